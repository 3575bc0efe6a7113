"""Intervals and tests over a handful of seeds, each with its assumption stated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

__all__ = [
    "NONPARAMETRIC_FROM", "Interval", "bounded_interval", "difference_half_width", "finite",
    "geometric_mean", "holm", "kendalls_tau", "kendalls_w", "mean_interval", "paired_interval",
    "paired_p_value", "settled", "slopes",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]

NONPARAMETRIC_FROM = 10
"""Seeds from which the paired test is of ranks instead of Student's."""


@dataclass(frozen=True)
class Interval:
    """A mean over n seeds with its confidence interval; NaN ends where one seed gives none."""

    mean: float
    low: float
    high: float
    n: int

    def text(self, digits: int = 2, *, signed: bool = False) -> str:
        """Write the mean, with its ends where there are several seeds; a dash where it is none.

        `signed` numbers have a plus as well, for differences whose direction is to be seen.
        """
        if not np.isfinite(self.mean):
            return "–"
        # z: a number that rounds to zero has no sign
        form = f"{'+' if signed else ''}z.{digits}f"
        ends = f" [{self.low:{form}}, {self.high:{form}}]" if self.n > 1 else ""
        return f"{self.mean:{form}}{ends}"

    def within(self, least: float, most: float) -> Interval:
        """Cut the ends to the range that the quantity can have; NaN ends stay."""
        return replace(self, low=max(self.low, least), high=min(self.high, most))

    @property
    def half_width(self) -> float:
        """The larger distance from the mean to an end; NaN where there is no interval."""
        return float(np.fmax(self.high - self.mean, self.mean - self.low))


def finite(values: npt.ArrayLike) -> FloatArray:
    """Return the finite values as one row."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def settled(values: npt.ArrayLike, of: npt.ArrayLike) -> FloatArray:
    """Round values to ten digits of the largest that they were computed `of`.

    Accuracies are counts over counts, so their differences often tie or vanish, but in floating
    point only nearly: rounding must neither break the tie nor give the zero a sign.
    """
    largest = float(np.abs(np.asarray(of, dtype=np.float64)).max(initial=0.0))
    digits = 9 - math.floor(math.log10(largest)) if largest > 0 else 0
    return np.asarray(values, dtype=np.float64).round(digits)


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean over seeds with Student's t interval.

    `values` are float64[n], one per seed; those that are not finite are left out.
    """
    x = finite(values)
    n = len(x)
    if not 0 < level < 1:
        raise ValueError(f"level is {level:g}; it must lie between 0 and 1")
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(x.mean())
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * x.std(ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half, n)


def geometric_mean(values: npt.ArrayLike) -> Interval:
    """Geometric mean of positive numbers, such as ratios, with Student's interval of their logs."""
    x = np.asarray(values, dtype=np.float64)
    if (x <= 0).any():
        raise ValueError(f"values begin at {np.nanmin(x):g}; a geometric mean is of positive ones")
    i = mean_interval(np.log(x))
    return Interval(math.exp(i.mean), math.exp(i.low), math.exp(i.high), i.n)


def bounded_interval(
    values: npt.ArrayLike, least: float, most: float, level: float = 0.95
) -> Interval:
    """Mean of what cannot leave [least, most]: Student's t interval, cut to it.

    Where all n values are at the ends, k of them at the upper one, Clopper and Pearson's interval
    is given: t is a bad guide there, and without width where all are at one end.  It holds too if
    values between the ends are possible, for by Markov's inequality a value is at an end with
    chance p at most, where p is how far the mean lies towards it.  Of values near an end, and not
    at it, t knows no better.  Values are as for :func:`mean_interval`.
    """
    i = mean_interval(values, level)
    if i.n < 2:
        return i
    x, span = finite(values), most - least
    if x.min() < least - 1e-9 * span or x.max() > most + 1e-9 * span:
        raise ValueError(
            f"values reach from {x.min():g} to {x.max():g}, beyond {least:g} to {most:g}"
        )
    k = int((x == most).sum())
    if k + int((x == least).sum()) < i.n:
        return i.within(least, most)
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, k, i.n - k + 1) if k else 0.0
    high = stats.beta.isf(tail, k + 1, i.n - k) if k < i.n else 1.0
    return replace(i, low=least + span * float(low), high=least + span * float(high))


def difference_half_width(
    spread: float,
    seeds: int,
    printed_spread: float | None = None,
    paper_seeds: int = 1,
    level: float = 0.95,
) -> float:
    """Half-width of the interval of our mean minus the paper's.

    Without a printed spread the paper's runs are taken to spread like ours, which gives the
    prediction interval for a mean of m runs, ``t s sqrt(1/n + 1/m)``.  With one it is Welch's.

    Parameters
    ----------
    spread, printed_spread : float
        Standard deviation over our seeds, and over the paper's.
    seeds, paper_seeds : int
        Our number of seeds (NaN comes of less than two), and runs behind the printed number.
    """
    if seeds < 2:
        return math.nan
    theirs = spread if printed_spread is None else printed_spread
    parts = np.array([spread**2 / seeds, theirs**2 / paper_seeds])
    freedom = float(seeds - 1)
    if printed_spread is not None:
        below = float((parts**2 / np.array([seeds - 1, max(paper_seeds - 1, 1)])).sum())
        freedom = float(parts.sum()) ** 2 / below if below else math.inf
    return float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(parts.sum())


def paired_interval(differences: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean paired difference with Student's t interval, of differences that are :func:`settled`.

    At ten or twenty seeds a bias-corrected bootstrap holds the mean less often than it says, of
    skewed and heavy-tailed differences as of normal ones (a test compares the two).
    """
    d = finite(differences)
    return mean_interval(settled(d, of=d), level)


def paired_p_value(differences: npt.ArrayLike) -> tuple[float, str]:
    """Two-sided p-value of "no difference", and the test's name.

    Below ten seeds this is the paired t test, which assumes normal differences: with three
    seeds no sign or rank test can fall below 0.25.  From ten seeds on it is Wilcoxon's
    signed-rank test.
    """
    d = finite(differences)
    d = settled(d, of=d)
    if len(d) < 2:
        return 1.0, "no test (fewer than two seeds)"
    if np.ptp(d) == 0:
        if len(d) >= NONPARAMETRIC_FROM and d[0] != 0:
            return float(stats.binomtest(len(d), len(d)).pvalue), "sign test (equal differences)"
        return (1.0 if d[0] == 0 else 0.5 ** (len(d) - 1)), "sign test (equal differences)"
    if len(d) < NONPARAMETRIC_FROM:
        return float(stats.ttest_1samp(d, 0.0).pvalue), "paired t, normal differences assumed"
    sizes = np.abs(d[d != 0])
    if len(sizes) == 1:
        return 1.0, "Wilcoxon signed-rank"  # one difference is as often above as below
    if len(sizes) <= 13 and len(np.unique(sizes)) < len(d):  # exact; SciPy takes signs one by one
        found = stats.permutation_test(
            (d[d != 0],), _signed_ranks, permutation_type="samples", vectorized=True
        )
        return float(found.pvalue), "Wilcoxon signed-rank"
    return float(stats.wilcoxon(d).pvalue), "Wilcoxon signed-rank"


def _signed_ranks(d: FloatArray, axis: int) -> FloatArray:
    return np.asarray((np.sign(d) * stats.rankdata(np.abs(d), axis=axis)).sum(axis=axis))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Holm's adjusted p-values of a family, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def slopes(levels: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
    """Least-squares slope of each seed's values on the levels (rule T5).

    Parameters
    ----------
    levels : float64[k]
        Two or more different ones, already on the scale of the claim.
    values : float64[n, k]
    """
    x = np.asarray(levels, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    centred = x - x.mean()
    if len(x) < 2 or not centred.any():
        raise ValueError(f"levels are {x.tolist()}; a slope needs two different ones")
    # from the first level on: the slope of what is constant is exactly 0
    return np.asarray((y - y[..., :1]) @ centred / (centred @ centred))


def kendalls_tau(scores: npt.ArrayLike, reference: npt.ArrayLike) -> FloatArray:
    """Kendall's rank correlation tau-b of scores with a reference, corrected for ties (rule T6).

    Both are float64[..., methods], of shapes that broadcast; the result is float64[...]: 1 for the
    same order, -1 for the reversed one, NaN where all are tied.
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (scores, reference))
    first, second = np.triu_indices(x.shape[-1], 1)
    a = np.sign(x[..., first] - x[..., second])
    b = np.sign(y[..., first] - y[..., second])
    with np.errstate(invalid="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))


def kendalls_w(scores: npt.ArrayLike) -> FloatArray:
    """Kendall's coefficient of concordance of rankings, corrected for ties (rule T6).

    Each column of the scores, float64[..., columns, methods], ranks the methods; the result,
    float64[...], is 1 where all rank alike and about 1 / columns for independent rankings.
    """
    ranks = stats.rankdata(np.asarray(scores, dtype=np.float64), axis=-1)
    columns, methods = ranks.shape[-2:]
    total = ranks.sum(axis=-2)
    spread = ((total - columns * (methods + 1) / 2) ** 2).sum(axis=-1)
    # sum(t**3 - t) of a column's tie groups follows from its ranks' own sum of squares
    ties = methods * (methods**2 - 1) - 12 * ((ranks - (methods + 1) / 2) ** 2).sum(axis=-1)
    scale = columns**2 * methods * (methods**2 - 1) - columns * ties.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(12 * spread / scale)
