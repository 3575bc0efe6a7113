"""From numbers to verdicts: the tolerance policy of ``book/policy.md`` as functions.

Every rule answers with one of six words.  Two principles hold throughout.  "Reproduced" can never
come from noise: of a size it needs an interval whose half-width is within the margin, of a
direction or a bound one that excludes the other side.  And "not reproduced" needs evidence too:
where the interval leaves both open, the verdict is "inconclusive".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedkit.intervals import (
    Interval,
    finite,
    paired_interval,
    paired_p_value,
    prediction_half_width,
)

__all__ = [
    "DIRECTION",
    "ICONS",
    "INCONCLUSIVE",
    "NOT_ATTEMPTED",
    "NOT_REPRODUCED",
    "NOT_TESTABLE",
    "REPRODUCED",
    "VERDICTS",
    "Judgement",
    "judge_bound",
    "judge_equal",
    "judge_equivalence",
    "judge_never",
    "judge_ordering",
    "judge_value",
]

REPRODUCED = "reproduced"
DIRECTION = "reproduced in direction, not in size"
INCONCLUSIVE = "inconclusive"
NOT_REPRODUCED = "not reproduced"
NOT_ATTEMPTED = "not attempted (cost)"
NOT_TESTABLE = "not testable"

ICONS = {
    REPRODUCED: "✓",
    DIRECTION: "↗",
    INCONCLUSIVE: "?",
    NOT_REPRODUCED: "✗",
    NOT_ATTEMPTED: "–",
    NOT_TESTABLE: "∅",
}
"""Icon of each verdict, always shown with its words."""

VERDICTS = tuple(ICONS)
"""The closed list of verdicts."""


@dataclass(frozen=True)
class Judgement:
    """A verdict and what it rests on.

    Attributes
    ----------
    verdict : str
        One of :data:`VERDICTS`.
    difference : float
        Ours minus the paper's, in the claim's unit; NaN where there is none.
    note : str
        Why, in a few words; names the assumption where one was made.
    """

    verdict: str
    difference: float = math.nan
    note: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in ICONS:
            raise ValueError(f"verdict {self.verdict!r} is not on the list {list(VERDICTS)}")


# ------------------------------------------------------------------------------ judgements


def _too_few(n: int, min_seeds: int) -> Judgement | None:
    if n >= max(min_seeds, 2):
        return None
    return Judgement(INCONCLUSIVE, note=f"{n} of at least {max(min_seeds, 2)} seeds")


def judge_value(
    values: npt.ArrayLike,
    paper: float,
    *,
    margin: float,
    paper_seeds: int = 1,
    min_seeds: int = 3,
    level: float = 0.95,
) -> Judgement:
    """Judge a printed number without spread (rule T3).

    With d = ours - paper and h the half-width of the prediction interval for a mean of the
    paper's number of seeds:

    - reproduced: h <= margin, and the printed number is inside the interval (abs(d) <= h) or
      equivalent to ours (abs(d) + h <= margin);
    - not reproduced: it is outside by more than the margin (abs(d) - h > margin), or the
      interval is narrow and excludes it with abs(d) > margin;
    - inconclusive otherwise.

    Parameters
    ----------
    values : float64[n]
        Ours, one per seed.
    paper, margin : float
        In one unit.
    paper_seeds : int
        Runs behind the printed number.
    min_seeds : int
        Below so many the verdict is inconclusive.
    level : float
        Level of the interval.
    """
    x = finite(values)
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    d = float(x.mean()) - paper
    h = prediction_half_width(x, paper_seeds, level)
    note = f"prediction half-width {h:.2g}, margin {margin:g}"
    if np.ptp(x) == 0:
        note += ", all seeds alike: the margin alone decides"
    if h <= margin and (abs(d) <= h or abs(d) + h <= margin):
        return Judgement(REPRODUCED, d, note)
    if abs(d) - h > margin or (h <= margin and abs(d) > margin):
        return Judgement(NOT_REPRODUCED, d, note)
    return Judgement(INCONCLUSIVE, d, note)


def judge_equivalence(
    values: npt.ArrayLike,
    paper: float,
    spread: float,
    paper_seeds: int,
    *,
    margin: float,
    min_seeds: int = 3,
    level: float = 0.95,
) -> Judgement:
    """Judge a printed mean with its standard deviation (rule T3): Welch and equivalence.

    Reproduced when Welch's interval of the difference at level ``2 * level - 1`` (two one-sided
    tests) lies within the margin; not reproduced when the interval at `level` excludes zero and
    the difference exceeds the margin; inconclusive otherwise.
    """
    x = finite(values)
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    d = float(x.mean()) - paper
    parts = np.array([x.var(ddof=1) / len(x), spread**2 / paper_seeds])
    error = math.sqrt(parts.sum())
    if error == 0:
        freedom = math.inf
    else:
        freedom = parts.sum() ** 2 / float(
            (parts**2 / np.array([len(x) - 1, max(paper_seeds - 1, 1)])).sum()
        )
    narrow = float(stats.t.ppf(level, freedom)) * error
    wide = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    note = f"Welch half-width {wide:.2g}, margin {margin:g}"
    if abs(d) + narrow <= margin:
        return Judgement(REPRODUCED, d, note)
    if abs(d) > wide and abs(d) > margin:
        return Judgement(NOT_REPRODUCED, d, note)
    return Judgement(INCONCLUSIVE, d, note)


def judge_ordering(
    differences: npt.ArrayLike,
    paper: float | None,
    *,
    margin: float,
    sign: int | None = None,
    p_value: float | None = None,
    min_seeds: int = 3,
    level: float = 0.95,
) -> Judgement:
    """Judge a difference, a slope or a contrast by its direction, then its size (T4, T5).

    With d our mean paired difference and h the half-width of its interval:

    - not reproduced: the interval and the (adjusted) test show the other sign, or the interval
      shows that any effect is below ``min(margin, abs(paper)) / 2`` while the paper's is not;
    - inconclusive: the direction is not established;
    - reproduced: direction established, which is all where no size is printed; where one is,
      h <= margin and abs(d - paper) <= margin as well;
    - reproduced in direction, not in size: direction established, size not.

    Parameters
    ----------
    differences : float64[n]
        One per seed.
    paper : float, optional
        The printed difference; None where only a direction is claimed.
    margin : float
        Agreement in size that was declared beforehand; not used where no size is printed.
    sign : {1, -1}, optional
        Claimed direction; by default that of `paper`.
    p_value : float, optional
        Adjusted for the family; by default that of :func:`paired_p_value`.
    min_seeds : int
        Below so many the verdict is inconclusive.
    level : float
        Level of the interval; ``1 - level`` is the level of the test.
    """
    x = finite(differences)
    if sign is None:
        if paper is None:
            raise ValueError("an ordering needs a sign or a printed difference; both are None")
        if paper == 0:  # a printed tie is a value, not an order
            tie = judge_value(x, 0.0, margin=margin, min_seeds=min_seeds, level=level)
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
    h = interval.half_width
    difference = math.nan if paper is None else interval.mean - paper
    note = f"{test}, p = {p:.2g}" + (" (Holm)" if p_value is not None else "")
    sure = p < 1 - level and not interval.low <= 0 <= interval.high
    if sure and interval.mean * sign < 0:
        return Judgement(NOT_REPRODUCED, difference, f"the other sign; {note}")
    if paper is not None:
        small = min(margin, abs(paper)) / 2
        if abs(paper) > margin and max(abs(interval.low), abs(interval.high)) < small:
            return Judgement(NOT_REPRODUCED, difference, f"no effect beyond {small:g}; {note}")
    if not sure:
        return Judgement(INCONCLUSIVE, difference, note)
    if paper is None or (h <= margin and abs(difference) <= margin):
        return Judgement(REPRODUCED, difference, note)
    return Judgement(DIRECTION, difference, note)


def judge_bound(
    interval: Interval, bound: float, *, at_most: bool, min_seeds: int = 3
) -> Judgement:
    """Judge "at most" or "at least": by the side of the bound on which the interval lies."""
    few = _too_few(interval.n, min_seeds)
    if few is not None:
        return few
    d = interval.mean - bound
    sign, slack = (1 if at_most else -1), 1e-9 * abs(bound)  # a mean of equal numbers may round
    low, high = sorted((sign * (interval.low - bound), sign * (interval.high - bound)))
    inside, outside = high <= slack, low > slack
    note = f"bound {bound:g}"
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
    if len(x) < min_seeds or not len(x):
        return Judgement(INCONCLUSIVE, note=f"{len(x)} of at least {min_seeds} seeds")
    worst = float(x[np.argmax(np.abs(x - expected))] - expected)
    held = abs(worst) <= tolerance
    note = f"worst seed off by {worst:g}, tolerance {tolerance:g}"
    difference = float(x.mean()) - expected
    return Judgement(REPRODUCED if held else NOT_REPRODUCED, difference, note)


def judge_never(values: npt.ArrayLike, *, min_seeds: int = 3) -> Judgement:
    """Judge "none" by counts, which cannot be negative: reproduced if no seed has any (T0).

    Not reproduced if every seed has some, and inconclusive where some seeds have and others not.
    """
    x = finite(values)
    few = _too_few(len(x), min_seeds)
    if few is not None:
        return few
    some = int((x != 0).sum())
    note = f"in {some} of {len(x)} seeds"
    verdict = {0: REPRODUCED, len(x): NOT_REPRODUCED}.get(some, INCONCLUSIVE)
    return Judgement(verdict, float(x.mean()), note)
