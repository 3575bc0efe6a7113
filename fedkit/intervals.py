"""Intervals and tests over a handful of seeds, each with its assumption stated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedkit.checks import Floats

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
        """Write the mean, with its ends where there are several seeds; a dash where it is none."""
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


def finite(values: npt.ArrayLike) -> Floats:
    """Return the finite values as one row."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def settled(values: npt.ArrayLike, of: npt.ArrayLike) -> Floats:
    """Round values to ten digits of the largest that they were computed `of`.

    Differences of accuracies tie or vanish in floating point only nearly.
    """
    largest = float(np.abs(np.asarray(of, dtype=np.float64)).max(initial=0.0))
    digits = 9 - math.floor(math.log10(largest)) if largest > 0 else 0
    return np.asarray(values, dtype=np.float64).round(digits)


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean over seeds, float64[n], with Student's t interval; only finite values count."""
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

    Where all n values are at the ends, k of them at the upper one, it is Clopper and Pearson's.
    """
    i = mean_interval(values, level)
    if i.n < 2:
        return i
    x, span = finite(values), most - least
    if x.min() < least - 1e-9 * span or x.max() > most + 1e-9 * span:
        raise ValueError(f"values from {x.min():g} to {x.max():g} lie beyond {least:g} to {most:g}")
    k = int((x == most).sum())
    if k + int((x == least).sum()) < i.n:
        return i.within(least, most)
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, k, i.n - k + 1) if k else 0.0
    high = stats.beta.isf(tail, k + 1, i.n - k) if k < i.n else 1.0
    return replace(i, low=least + span * float(low), high=least + span * float(high))


def paired_interval(differences: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean paired difference with Student's t interval, of differences that are :func:`settled`."""
    d = finite(differences)
    return mean_interval(settled(d, of=d), level)


def paired_p_value(differences: npt.ArrayLike) -> tuple[float, str]:
    """Two-sided p-value of "no difference", and the test's name.

    Below ten seeds this is the paired t test, from ten seeds on Wilcoxon's signed-rank test.
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


def _signed_ranks(d: Floats, axis: int) -> Floats:
    return np.asarray((np.sign(d) * stats.rankdata(np.abs(d), axis=axis)).sum(axis=axis))


def holm(p_values: Sequence[float]) -> Floats:
    """Holm's adjusted p-values of a family, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def kendalls_tau(scores: npt.ArrayLike, reference: npt.ArrayLike) -> Floats:
    """Kendall's rank correlation tau-b of scores with a reference, corrected for ties.

    Both are float64[..., methods], of shapes that broadcast; the result is float64[...]: 1 for the
    same order, -1 for the reversed one, NaN where all are tied.
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (scores, reference))
    first, second = np.triu_indices(x.shape[-1], 1)
    a = np.sign(x[..., first] - x[..., second])
    b = np.sign(y[..., first] - y[..., second])
    with np.errstate(invalid="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))
