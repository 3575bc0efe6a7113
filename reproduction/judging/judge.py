"""From numbers to verdicts: the tolerance policy of ``book/policy.md`` as functions.

Every rule answers with a word of a closed list.  Two principles hold throughout.  "Reproduced"
needs evidence, which a wide interval is not: of a size the whole interval must lie within the
margin, of a direction or a bound it must exclude the other side.  And "not reproduced" needs as
much: where the interval leaves both open, the verdict is "inconclusive".  One rule departs from
the first: no number of seeds shows that something never happens, so "none" is reproduced by ten
seeds without any, and the note says how many that leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import fisher_exact

from fedkit.intervals import (
    Interval,
    bounded_interval,
    difference_half_width,
    finite,
    paired_interval,
    paired_p_value,
)

__all__ = [
    "DIRECTION", "ICONS", "INCONCLUSIVE", "NONE_FROM", "NOT_ATTEMPTED", "NOT_JUDGED",
    "NOT_REPRODUCED", "NOT_TESTABLE", "REPRODUCED", "SIZE_EXCLUDED", "UNJUDGED", "VERDICTS",
    "Judgement", "judge_bound", "judge_equal", "judge_never", "judge_ordering", "judge_value",
]  # fmt: skip

REPRODUCED = "reproduced"
DIRECTION = "reproduced in direction, not in size"
INCONCLUSIVE = "inconclusive"
SIZE_EXCLUDED = "sign open, printed size excluded"
NOT_REPRODUCED = "not reproduced"
NOT_JUDGED = "run, not judged"
NOT_ATTEMPTED = "not attempted (cost)"
NOT_TESTABLE = "not testable"

ICONS = {
    REPRODUCED: "✓",
    DIRECTION: "↗",
    INCONCLUSIVE: "?",
    SIZE_EXCLUDED: "≠",
    NOT_REPRODUCED: "✗",
    NOT_JUDGED: "○",
    NOT_ATTEMPTED: "–",
    NOT_TESTABLE: "∅",
}
"""Icon of each verdict, always shown with its words."""

VERDICTS = tuple(ICONS)
"""The closed list of verdicts."""

NONE_FROM = 10
"""Seeds from which "none" can be reproduced; of ten without any up to 30.8% may have some."""

UNJUDGED = (NOT_JUDGED, NOT_ATTEMPTED, NOT_TESTABLE)
"""Those that say nothing of the claim itself."""


@dataclass(frozen=True)
class Judgement:
    """One of :data:`VERDICTS`, and what it rests on.

    The difference is ours minus the paper's, in the claim's unit, NaN where there is none; the note
    says why, in a few words, and names the assumption where one was made.
    """

    verdict: str
    difference: float = math.nan
    note: str = ""


def _too_few(n: int, min_seeds: int) -> Judgement | None:
    least = max(min_seeds, 2)
    return None if n >= least else Judgement(INCONCLUSIVE, note=f"{n} of at least {least} seeds")


def _compare(difference: float, half_width: float, margin: float) -> str:
    """Judge a size: equivalent, surely beyond the margin, or open.

    The one rule of every size.  At 95% both errors are 2.5% at most: of calling sizes equivalent
    that differ by the margin, and of calling them different that do not.
    """
    edge = margin * (1 + 1e-9)  # a difference of two numbers is at the margin but for rounding
    if abs(difference) + half_width <= edge:
        return REPRODUCED
    if abs(difference) - half_width > edge:
        return NOT_REPRODUCED
    return INCONCLUSIVE


def judge_value(
    values: npt.ArrayLike,
    paper: float,
    *,
    margin: float,
    spread: float | None = None,
    paper_seeds: int = 1,
    min_seeds: int = 3,
    level: float = 0.95,
    floor: float = 0.0,
) -> Judgement:
    """Judge a printed number, with or without its spread (rule T3).

    With d = ours - paper and h the half-width of the interval of that difference:

    - reproduced: the whole interval is within the margin (abs(d) + h <= margin);
    - not reproduced: the whole interval is beyond it (abs(d) - h > margin);
    - inconclusive otherwise.

    Parameters
    ----------
    values : float64[n]
        Ours, one per seed; below `min_seeds` the verdict is inconclusive.
    spread : float, optional
        The standard deviation that is printed with the number, of `paper_seeds` runs.  With it the
        interval is Welch's; without it the prediction interval, which takes the paper's runs to
        spread like ours.
    level : float
        Level of the interval, the same for both verdicts: equivalence is thus shown by two
        one-sided tests at ``(1 - level) / 2`` each, which is stricter than their usual
        ``1 - level`` and asks no less of "reproduced" than of "not reproduced".
    floor : float
        What h is at the least: the half-width that our own mean has where a spread is a bad guide,
        as of shares that are all zero (:func:`fedkit.intervals.bounded_interval`).
    """
    x = finite(values)
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    d = float(x.mean()) - paper
    h = difference_half_width(float(x.std(ddof=1)), len(x), spread, paper_seeds, level)
    name = "prediction" if spread is None else "Welch"
    if floor > h:
        name, h = "exact", floor
    note = f"{name} half-width {h:.2g}, margin {margin:g}"
    if h == 0:
        note += ", all seeds alike: the margin alone decides"
    return Judgement(_compare(d, h, margin), d, note)


def judge_ordering(
    differences: npt.ArrayLike,
    paper: float | None,
    *,
    margin: float,
    sign: int | None = None,
    p_value: float | None = None,
    paper_seeds: int = 1,
    min_seeds: int = 3,
    level: float = 0.95,
) -> Judgement:
    """Judge a difference, a slope or a contrast by its direction, then its size (T4, T5).

    The direction is by the interval of our mean paired difference and the (adjusted) test; the
    size, where one is printed, by the rule of :func:`judge_value`:

    - not reproduced: the other sign is established;
    - reproduced: the sign is established, and the size equivalent (where none is printed the
      sign is all);
    - reproduced in direction, not in size: the sign is established, the size is not equivalent;
    - sign open, printed size excluded: no sign is established, but the printed difference is
      surely off by more than the margin;
    - inconclusive otherwise.

    Parameters
    ----------
    differences : float64[n]
        One per seed.
    paper : float, optional
        The printed difference; None where only a direction is claimed, and no margin counts.
    sign : {1, -1}, optional
        Claimed direction; by default that of `paper`.
    p_value : float, optional
        Adjusted for the family; by default that of :func:`paired_p_value`.
    level : float
        Level of the interval; ``1 - level`` is the level of the test.
    """
    x = finite(differences)
    size: dict[str, Any] = {"margin": margin, "paper_seeds": paper_seeds, "level": level}
    if sign is None:
        if paper is None:
            raise ValueError("an ordering needs a sign or a printed difference; both are None")
        if paper == 0:  # a printed tie is a value, not an order
            tie = judge_value(x, 0.0, min_seeds=min_seeds, **size)
            if len(x) and not x.any() and tie.verdict == REPRODUCED:
                return replace(tie, note="the two are equal in every seed: it holds trivially")
            return tie
        sign = 1 if paper > 0 else -1
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    raw, test = paired_p_value(x)
    p = raw if p_value is None else p_value
    interval = paired_interval(x, level)
    note = f"{test}, p = {p:.2g}" + (" (Holm)" if p_value is not None else "")
    sure = p < 1 - level and not interval.low <= 0 <= interval.high
    difference, agrees, fits_none = math.nan, REPRODUCED, False
    if paper is not None:
        difference = interval.mean - paper
        h = difference_half_width(float(x.std(ddof=1)), len(x), None, paper_seeds, level)
        agrees = _compare(difference, h, margin)
        fits_none = _compare(interval.mean, h, margin) == REPRODUCED
        note += f"; size: half-width {h:.2g}, margin {margin:g}"
    if not sure:
        verdict = SIZE_EXCLUDED if agrees == NOT_REPRODUCED else INCONCLUSIVE
    elif interval.mean * sign < 0:
        verdict, note = NOT_REPRODUCED, f"the other sign; {note}"
    else:
        verdict = REPRODUCED if agrees == REPRODUCED else DIRECTION
        if verdict == REPRODUCED and fits_none:
            note += "; no difference would fit the size as well: the sign alone tells"
    return Judgement(verdict, difference, note)


def judge_bound(
    interval: Interval,
    bound: float,
    *,
    at_most: bool,
    limit: float | None = None,
    strict: bool = False,
    min_seeds: int = 3,
) -> Judgement:
    """Judge "at most" or "at least": by the side of the bound on which the interval lies.

    What is `strict` says "less" or "more": shares of a few settings can be the bound itself.

    The limit is the other end of what the sentence can mean.  "Tells them apart only partially" is
    at most 0.9, and not below chance either: what lies beyond the limit is upside down.
    """
    few = _too_few(interval.n, min_seeds)
    if few is not None:
        return few
    d = interval.mean - bound
    sign = 1 if at_most else -1
    # signed so that low numbers are inside; a mean of equal numbers may round
    low, high = sorted((sign * (interval.low - bound), sign * (interval.high - bound)))
    slack = 1e-9 * abs(bound)
    reach = -slack if strict else slack
    inside, outside = high <= reach, low > reach
    note = f"bound {bound:g}"
    if interval.half_width <= slack:
        note += ", all seeds or draws of them alike: no spread to judge by"
    if limit is not None:
        end = sign * (limit - bound)
        inside &= low >= end - slack
        if high < end - slack:
            return Judgement(NOT_REPRODUCED, d, f"{note}, upside down: beyond {limit:g}")
        note += f", limit {limit:g}"
    if inside:
        return Judgement(REPRODUCED, d, note)
    return Judgement(NOT_REPRODUCED if outside else INCONCLUSIVE, d, note)


def judge_equal(
    values: npt.ArrayLike, expected: float, *, tolerance: float, min_seeds: int = 1
) -> Judgement:
    """Judge an identity: every value equals the expected one within the tolerance (T0).

    The difference is that of the mean; the note names the worst seed, which decides.
    """
    x = finite(values)
    if len(x) < max(min_seeds, 1):
        return Judgement(INCONCLUSIVE, note=f"{len(x)} of at least {min_seeds} seeds")
    worst = float(x[np.argmax(np.abs(x - expected))] - expected)
    verdict = REPRODUCED if abs(worst) <= tolerance else NOT_REPRODUCED
    note = f"worst seed off by {worst:g}, tolerance {tolerance:g}"
    return Judgement(verdict, float(x.mean()) - expected, note)


def judge_never(values: npt.ArrayLike, *, paper_seeds: int = 1, min_seeds: int = 3) -> Judgement:
    """Judge "none" by counts, which cannot be negative (rule T3).

    - reproduced: none of :data:`NONE_FROM` seeds or more has any; the note has the upper end of
      Clopper and Pearson's interval for the share of seeds that have;
    - not reproduced: every seed has some, or more than chance gives beside the paper's seeds,
      none of which has (Fisher's exact test, one-sided);
    - inconclusive otherwise.
    """
    x = finite(values)
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    some = int((x != 0).sum())
    note = f"in {some} of {len(x)} seeds"
    if not some:
        most = bounded_interval(x, 0.0, 100.0).high
        note += f": at most {most:.1f}%, by the exact interval"
        if len(x) >= NONE_FROM:
            return Judgement(REPRODUCED, 0.0, note)
        return Judgement(INCONCLUSIVE, 0.0, f"{note}; a tick needs {NONE_FROM} seeds")
    beside = [[some, len(x) - some], [0, paper_seeds]]
    p = float(fisher_exact(beside, alternative="greater").pvalue)
    note += f", of the paper's in 0 of {paper_seeds}: Fisher's exact test, p = {p:.2g}"
    surely = some == len(x) or p < 0.025
    return Judgement(NOT_REPRODUCED if surely else INCONCLUSIVE, float(x.mean()), note)
