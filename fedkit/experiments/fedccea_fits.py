"""FedCCEA's weights under scrutiny: how stable they are, what they explain, what else is there."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from fedkit.aam import Fit, Simulations, fewest_simulations, fit_aam
from fedkit.experiments.fedccea import Setting
from fedkit.experiments.separation import chance_above
from fedkit.streams import Streams

__all__ = [
    "READINGS",
    "agreement",
    "by_chance",
    "explained",
    "falling",
    "other_fits",
    "same_round",
    "stability",
]

FloatArray = npt.NDArray[np.float64]
#: other readings of the same simulations: Adam's fit, Adam's with the sigmoid behind the nodes,
#: and a straight line
READINGS = ("adam", "connected", "same_round")
#: of the simulations, for the explained share by chance; Adam's fit is slow and gets fewer
PERMUTATIONS, FEW_PERMUTATIONS = 19, 3
#: random pairs of parts of the simulations whose fits are compared
SPLITS = 20
#: distance of the two seeds of the AAM that are compared
OTHER_SEED = 1_000_003


def agreement(a: FloatArray, b: FloatArray) -> float:
    """Rank correlation of two fits' weights; NaN where all weights of one are equal."""
    from scipy.stats import spearmanr

    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return float("nan") if constant else float(spearmanr(a, b).statistic)


def stability(s: Setting, sims: Simulations, seed: int) -> dict[str, float]:
    """How far two fits agree that share neither simulations nor the fit's seed.

    Returns
    -------
    dict of str to float
        "rank.0.25": rank correlation of the shared weights from a quarter of the simulations with
        those from another quarter, mean over random pairs of quarters, and "spread.0.25", their
        standard deviation; "rank.seeds": from all simulations twice, with two seeds.  NaN where all
        weights of a fit are equal.
    """

    def quality(rows: npt.NDArray[np.int64], other: bool) -> FloatArray:
        part = Simulations(sims.sizes[rows], sims.accuracy[rows])
        return fit_aam(part, seed=seed + OTHER_SEED * other).quality

    rng, total = Streams(seed).generator("fedccea", "splits"), len(sims.sizes)
    found = {}
    for share in (0.1, 0.25, 0.5):
        some = max(fewest_simulations(s.clients, s.rounds), round(share * total))
        some = min(some, total // 2)
        orders = [rng.permutation(total) for _ in range(SPLITS)]
        pairs = [(quality(o[:some], False), quality(o[some : 2 * some], True)) for o in orders]
        ranks = [agreement(*pair) for pair in pairs]
        found[f"rank.{share:g}"] = float(np.mean(ranks))
        found[f"spread.{share:g}"] = float(np.std(ranks, ddof=1))
    everybody = np.arange(total)
    found["rank.seeds"] = agreement(quality(everybody, False), quality(everybody, True))
    return found


def other_fits(
    s: Setting, sims: Simulations, fit: Fit, seed: int, noisy: npt.NDArray[np.bool_]
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """What else can be read off the same simulations.

    The AAM trained by Adam, in both readings of the sigmoid, and :func:`same_round`.

    Returns
    -------
    dict of str to float64[n]
        Weights, or slopes.
    dict of str to float
        Explained share, rank correlation with the converged fit and, with noisy clients, the
        probability that a clean one is above: "explained.adam", ...; the rank correlation of one
        pair of halves of the simulations, "rank.0.5.adam", ..., where the fits of the two halves
        share no seed; and what Adam's fit with the sigmoid behind the nodes explains by chance.
    """
    half = len(sims.sizes) // 2
    parts = [Simulations(sims.sizes[p], sims.accuracy[p]) for p in (slice(half), slice(half, None))]

    def adam(part: Simulations, place: Literal["shared", "connected"], start: int = seed) -> Fit:
        # Not the seed of the converged fit: its starts would be among this one's.
        start += 2 * OTHER_SEED
        return fit_aam(part, solver="adam", sigmoid=place, lr=s.aam_lr, seed=start)

    def halves(place: Literal["shared", "connected"]) -> float:
        return agreement(
            *(adam(p, place, seed + k * OTHER_SEED).quality for k, p in enumerate(parts))
        )

    shared, connected, line = adam(sims, "shared"), adam(sims, "connected"), same_round(sims)
    qualities = {"adam": shared.quality, "connected": connected.quality, "same_round": line[0]}
    null = [
        explained(other, adam(other, "connected"))["explained"]
        for other in _shuffled(sims, seed, FEW_PERMUTATIONS)
    ]
    found = {
        "explained.adam": explained(sims, shared)["explained"],
        "explained.connected": explained(sims, connected)["explained"],
        "explained.connected.chance": float(np.mean(null)),
        "explained.same_round": line[1],
        "rank.0.5.adam": halves("shared"),
        "rank.0.5.connected": halves("connected"),
        "rank.0.5.same_round": agreement(*(same_round(part)[0] for part in parts)),
    }
    for name, quality in qualities.items():
        found[f"rank.{name}"] = agreement(quality, fit.quality)
        if noisy.any():
            found[f"auc.{name}"] = chance_above(quality[~noisy], quality[noisy])
    return qualities, found


def explained(sims: Simulations, fit: Fit) -> dict[str, float]:
    """Error of the AAM beside that of the round's mean, which knows nothing of the sizes."""
    accuracy = 100 * sims.accuracy
    left = np.sqrt(np.square(accuracy - accuracy.mean(axis=0)).mean())
    error = 100 * fit.error
    share = 1 - (error / left) ** 2 if left > 0 else float("nan")
    return {"aam_error": error, "round_error": float(left), "explained": float(share)}


def falling(fit: Fit) -> dict[str, float]:
    """Whether data raise the fitted accuracy at all; if not, the weights are upside down.

    Returns
    -------
    dict of str to float
        "per_round": sum over the rounds of what each adds to the accuracies that follow it, in
        points; "falling": share of the rounds that take something off.
    """
    assert fit.per_round is not None
    return {
        "per_round": 100 * float(fit.per_round.sum()),
        "falling": float((fit.per_round < 0).mean()),
    }


def by_chance(sims: Simulations, seed: int) -> dict[str, float]:
    """What the AAM explains where sizes and accuracies belong to different simulations.

    Returns
    -------
    dict of str to float
        "explained.chance": mean explained share over the permutations; "explained.p": the
        permutation p-value of the share that is explained in truth.
    """

    def share(other: Simulations) -> float:
        return explained(other, fit_aam(other, seed=seed))["explained"]

    found = share(sims)
    null = np.array([share(other) for other in _shuffled(sims, seed, PERMUTATIONS)])
    return {
        "explained.chance": float(null.mean()),
        "explained.p": (1 + int((null >= found).sum())) / (1 + PERMUTATIONS),
    }


def _shuffled(sims: Simulations, seed: int, times: int) -> list[Simulations]:
    """Sizes and accuracies of different simulations."""
    rng = Streams(seed).generator("fedccea", "permutations")
    orders = [rng.permutation(len(sims.sizes)) for _ in range(times)]
    return [Simulations(sims.sizes, sims.accuracy[order]) for order in orders]


def same_round(sims: Simulations) -> tuple[FloatArray, float]:
    """Regress what is left after the means of the rounds on the sizes of the same round.

    The AAM gives round rho one weight in all accuracies that follow it, so it cannot say that the
    last round matters most.  This straight line says nothing else.

    Returns
    -------
    float64[n]
        One coefficient per client, in accuracy per scaled size.
    float
        Share of the variance explained, adjusted for the coefficients.
    """
    rounds, n = sims.sizes.shape[1:]
    x = (sims.sizes - sims.sizes.mean(axis=0)).reshape(-1, n)
    y = (sims.accuracy - sims.accuracy.mean(axis=0)).reshape(-1)
    slope = np.linalg.lstsq(x, y, rcond=None)[0]
    free = y.size - rounds
    left, total = np.square(y - x @ slope).sum() / (free - n), np.square(y).sum() / free
    return slope, float(1 - left / total) if free > n and total > 0 else float("nan")
