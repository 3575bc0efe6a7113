"""FedCCEA's weights under scrutiny: how stable they are, what they explain, what else is there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedkit.methods.fedccea import Fit, Simulations, fewest_simulations, fit_aam
from fedkit.papers.fedccea.settings import FITS, Setting
from fedkit.streams import Streams

__all__ = [
    "READINGS",
    "agreement",
    "by_chance",
    "explained",
    "falling",
    "misses",
    "other_fits",
    "same_round",
    "stability",
    "unseen",
]

FloatArray = npt.NDArray[np.float64]
#: what else is read off the same simulations: the first reading trained by Adam, a straight line
READINGS = ("adam", "same_round")
#: of the simulations, for the explained share by chance
PERMUTATIONS = 19
#: random pairs of parts of the simulations whose fits are compared
SPLITS = 20
#: of which each is predicted by a fit of the others
FOLDS = 5
#: distance of the two seeds of the AAM that are compared
OTHER_SEED = 1_000_003


def agreement(a: FloatArray, b: FloatArray) -> float:
    """Rank correlation of two fits' weights; NaN where all weights of one are equal."""
    from scipy.stats import spearmanr

    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return float("nan") if constant else float(spearmanr(a, b).statistic)


def stability(
    s: Setting, sims: Simulations, seed: int, splits: int | None = None
) -> dict[str, float]:
    """How far two fits agree that share neither simulations nor the fit's seed, in both readings.

    `splits` random pairs of parts are compared, :data:`SPLITS` if it is left out.

    Returns
    -------
    dict of str to float
        "rank.0.25": rank correlation of the shared weights from a quarter of the simulations with
        those from another quarter, mean over random pairs of quarters, and "spread.0.25", their
        standard deviation; "rank.seeds": from all simulations twice, with two seeds.  The same with
        the sigmoid behind the nodes, and for halves also of :func:`same_round`, with the reading's
        name behind.  NaN where all weights of a fit are equal.
    """

    def quality(method: str, rows: npt.NDArray[np.int64], other: bool) -> FloatArray:
        part = Simulations(sims.sizes[rows], sims.accuracy[rows])
        if method == "same_round":
            return same_round(part)[0]
        return fit_aam(part, sigmoid=FITS[method], seed=seed + OTHER_SEED * other).quality

    total, everybody, found = len(sims.sizes), np.arange(len(sims.sizes)), {}
    for method in (*FITS, "same_round"):
        rng = Streams(seed).generator("fedccea", "splits")  # the same parts for all
        end = "" if method == "fedccea" else f".{method}"
        for share in (0.1, 0.25, 0.5):
            some = max(fewest_simulations(s.clients, s.rounds), round(share * total))
            some = min(some, total // 2)
            orders = [rng.permutation(total) for _ in range(splits or SPLITS)]
            pairs = [
                (quality(method, o[:some], False), quality(method, o[some : 2 * some], True))
                for o in orders
            ]
            ranks = [agreement(*pair) for pair in pairs]
            found[f"rank.{share:g}{end}"] = float(np.mean(ranks))
            found[f"spread.{share:g}{end}"] = float(np.std(ranks, ddof=1))
        if method in FITS:
            both = (quality(method, everybody, other) for other in (False, True))
            found[f"rank.seeds{end}"] = agreement(*both)
    return found


def other_fits(
    s: Setting, sims: Simulations, fits: dict[str, Fit], seed: int
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """What else can be read off the same simulations: :data:`READINGS`.

    Adam makes 200 epochs, not as many as the loss would need: it is the paper's rate in one of many
    ways to use it, and says whether a verdict turns on the optimiser.

    Returns
    -------
    dict of str to float64[n]
        Weights, or slopes.
    dict of str to float
        Explained share in the sample, "explained.adam", ...; rank correlation with the converged
        fit, "rank.adam", ..., and of the two readings, "rank.connected".
    """
    # Not the seed of the converged fit: its starts would be among this one's.
    adam = fit_aam(sims, solver="adam", lr=s.aam_lr, seed=seed + 2 * OTHER_SEED)
    line = same_round(sims)
    qualities = {"adam": adam.quality, "same_round": line[0]}
    found = {
        "explained.adam": explained(sims, adam)["explained"],
        "explained.same_round": line[1],
        "rank.connected": agreement(fits["connected"].quality, fits["fedccea"].quality),
    }
    for name, quality in qualities.items():
        found[f"rank.{name}"] = agreement(quality, fits["fedccea"].quality)
    return qualities, found


def unseen(sims: Simulations, seed: int) -> dict[str, float]:
    """What the sizes explain of simulations that the fit has not seen, beside the round's mean.

    Returns
    -------
    dict of str to float
        "unseen.fedccea", "unseen.connected" and "unseen.same_round": one less the ratio of squared
        errors, in :data:`FOLDS`-fold cross-validation over simulations; below 0 where the sizes
        mislead.  Predictions are cut to [0, 1]: from sizes that differ little a fit can extrapolate
        anywhere.
    """
    x, y = sims.sizes, sims.accuracy
    fold = Streams(seed).generator("fedccea", "folds").permutation(len(x)) % FOLDS

    def line(part: Simulations) -> Callable[[FloatArray], FloatArray]:
        slope = same_round(part)[0]
        return lambda sizes: part.accuracy.mean(axis=0) + (sizes - part.sizes.mean(axis=0)) @ slope

    errors = dict.fromkeys(("mean", *FITS, "same_round"), 0.0)
    for k in range(FOLDS):
        out = fold == k
        part = Simulations(x[~out], y[~out])
        guesses = {"mean": np.broadcast_to(part.accuracy.mean(axis=0), y[out].shape)}
        for method, place in FITS.items():
            predict = fit_aam(part, sigmoid=place, seed=seed).predict
            assert predict is not None
            guesses[method] = np.clip(predict(x[out]), 0.0, 1.0)  # an accuracy, as in section 3.2.1
        guesses["same_round"] = line(part)(x[out])
        for method, guess in guesses.items():
            errors[method] += float(np.square(guess - y[out]).sum())
    mean = errors.pop("mean")
    return {f"unseen.{m}": 1 - e / mean if mean > 0 else float("nan") for m, e in errors.items()}


def misses(sims: Simulations, fit: Fit) -> dict[str, list[float]]:
    """Approximated minus true accuracy over the simulations, by round, in points (Figure 7).

    Returns
    -------
    dict of str to list of float
        "low", "middle" and "high": the 5%, 50% and 95% quantiles, one per round.
    """
    quantiles = np.quantile(100 * (fit.predicted - sims.accuracy), (0.05, 0.5, 0.95), axis=0)
    return {name: q.tolist() for name, q in zip(("low", "middle", "high"), quantiles, strict=True)}


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
