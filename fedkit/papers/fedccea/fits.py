"""FedCCEA's weights under scrutiny: how stable they are, what they explain, what else is there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedkit.methods.fedccea import Fit, Simulations, fewest_simulations, fit_aam
from fedkit.papers.fedccea.names import FITS
from fedkit.streams import Streams

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: of the simulations, for the explained share by chance
PERMUTATIONS = 19
#: random pairs of parts of the simulations whose fits are compared
SPLITS = 20
#: of which each is predicted by a fit of the others
FOLDS = 5
#: distance of the two seeds of the AAM that are compared
OTHER_SEED = 1_000_003


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


def agreement(a: FloatArray, b: FloatArray) -> float:
    """Rank correlation of two fits' weights; NaN where all weights of one are equal."""
    from scipy.stats import spearmanr

    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return float("nan") if constant else float(spearmanr(a, b).statistic)


def stability(sims: Simulations, seed: int, splits: int = SPLITS) -> dict[str, float]:
    """How far two fits agree that share neither simulations nor the fit's seed.

    `splits`: random pairs of parts that are compared.

    "rank.0.25": rank correlation of the weights from a quarter of the simulations with those from
    another quarter, mean over random pairs of quarters, and "spread.0.25", their standard
    deviation; "rank.seeds": from all simulations twice, with two seeds.  With the name of the
    reading behind: the sigmoid behind the nodes, and :func:`same_round`.  NaN where all weights of
    a fit are equal.
    """
    total, rounds, clients = sims.sizes.shape
    everybody = np.arange(total)

    def quality(method: str, rows: IntArray, other: bool) -> FloatArray:
        part = Simulations(sims.sizes[rows], sims.accuracy[rows])
        if method == "same_round":
            return same_round(part)[0]
        return fit_aam(part, sigmoid=FITS[method], seed=seed + OTHER_SEED * other).quality

    found = {}
    for method in (*FITS, "same_round"):
        rng = Streams(seed).generator("fedccea", "splits")  # the same parts for all
        end = "" if method == "fedccea" else f".{method}"

        def ranked(first: IntArray, second: IntArray, method: str = method) -> float:
            return agreement(quality(method, first, False), quality(method, second, True))

        for share in (0.1, 0.25, 0.5):
            some = min(max(fewest_simulations(clients, rounds), round(share * total)), total // 2)
            orders = [rng.permutation(total) for _ in range(splits)]
            ranks = [ranked(order[:some], order[some : 2 * some]) for order in orders]
            found[f"rank.{share:g}{end}"] = float(np.mean(ranks))
            found[f"spread.{share:g}{end}"] = float(np.std(ranks, ddof=1))
        if method in FITS:
            found[f"rank.seeds{end}"] = ranked(everybody, everybody)
    return found


def explained(sims: Simulations, fit: Fit) -> dict[str, float]:
    """Error of the AAM beside that of the round's mean, which knows nothing of the sizes."""
    accuracy = 100 * sims.accuracy
    left = np.sqrt(np.square(accuracy - accuracy.mean(axis=0)).mean())
    error = 100 * fit.error
    share = 1 - (error / left) ** 2 if left > 0 else float("nan")
    return {"aam_error": error, "round_error": float(left), "explained": float(share)}


def by_chance(sims: Simulations, share: float, seed: int) -> dict[str, float]:
    """What the AAM explains where sizes and accuracies belong to different simulations.

    `share`: what it explains in truth.

    "explained.chance": mean explained share over the permutations; "explained.p": the permutation
    p-value of `share`.
    """
    rng = Streams(seed).generator("fedccea", "permutations")
    null = []
    for _ in range(PERMUTATIONS):
        other = Simulations(sims.sizes, sims.accuracy[rng.permutation(len(sims.sizes))])
        null.append(explained(other, fit_aam(other, seed=seed))["explained"])
    above = sum(chance >= share for chance in null)
    return {
        "explained.chance": float(np.mean(null)), "explained.p": (1 + above) / (1 + PERMUTATIONS),
    }  # fmt: skip


def unseen(sims: Simulations, seed: int) -> dict[str, float]:
    """What the sizes explain of simulations that the fit has not seen, beside the round's mean.

    "unseen.fedccea", "unseen.connected" and "unseen.same_round": one less the ratio of squared
    errors, in :data:`FOLDS`-fold cross-validation over simulations; below 0 where the sizes
    mislead.  The AAM's predictions are cut to [0, 1]: from sizes that differ little a fit can
    extrapolate anywhere.
    """
    x, y = sims.sizes, sims.accuracy
    fold = Streams(seed).generator("fedccea", "folds").permutation(len(x)) % FOLDS
    errors = dict.fromkeys(("mean", *FITS, "same_round"), 0.0)
    for k in range(FOLDS):
        out = fold == k
        part = Simulations(x[~out], y[~out])
        mean = part.accuracy.mean(axis=0)
        line = mean + (x[out] - part.sizes.mean(axis=0)) @ same_round(part)[0]
        guesses = {"mean": mean, "same_round": line}
        for method, place in FITS.items():
            predict = fit_aam(part, sigmoid=place, seed=seed).predict
            assert predict is not None
            guesses[method] = np.clip(predict(x[out]), 0.0, 1.0)  # an accuracy, as in section 3.2.1
        for method, guess in guesses.items():
            errors[method] += float(np.square(guess - y[out]).sum())
    least = errors.pop("mean")
    return {f"unseen.{m}": 1 - e / least if least > 0 else float("nan") for m, e in errors.items()}


def misses(sims: Simulations, fit: Fit) -> dict[str, FloatArray]:
    """Approximated minus true accuracy over the simulations, by round, in points (Figure 7).

    Returns
    -------
    dict of str to float64[R]
        "low", "middle" and "high": the 5%, 50% and 95% quantiles, one per round.
    """
    quantiles = np.quantile(100 * (fit.predicted - sims.accuracy), (0.05, 0.5, 0.95), axis=0)
    return dict(zip(("low", "middle", "high"), quantiles, strict=True))
