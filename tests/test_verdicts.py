"""Intervals, tests and verdicts: what each rule says of numbers made for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedkit.claims.judge import (
    DIRECTION,
    ICONS,
    INCONCLUSIVE,
    NOT_REPRODUCED,
    REPRODUCED,
    SIZE_EXCLUDED,
    UNJUDGED,
    VERDICTS,
    Judgement,
    judge_bound,
    judge_equal,
    judge_never,
    judge_ordering,
    judge_value,
)
from fedkit.intervals import (
    holm,
    mean_interval,
    paired_interval,
    paired_p_value,
    prediction_interval,
    slopes,
)

# ------------------------------------------------------------------- intervals and tests


def test_intervals() -> None:
    x = [1.0, 2.0, 4.0, math.nan]
    interval = mean_interval(x)
    low, high = stats.t.interval(0.95, 2, np.mean(x[:3]), stats.sem(x[:3]))
    assert (interval.n, interval.low, interval.high) == (3, pytest.approx(low), pytest.approx(high))
    assert math.isnan(mean_interval([5.0]).low)
    assert mean_interval([]).n == 0
    wide = mean_interval([0.1, 0.9])
    assert wide.low < 0 < 1 < wide.high
    cut = wide.within(0.0, 1.0)
    assert (cut.mean, cut.low, cut.high, cut.n) == (wide.mean, 0.0, 1.0, 2)
    assert wide.within(-9.0, 9.0) == wide
    assert math.isnan(mean_interval([5.0]).within(0, 1).low)
    d = np.random.default_rng(1).exponential(size=12)
    bca = stats.bootstrap((d,), np.mean, n_resamples=9999).confidence_interval
    assert paired_interval(d).low == pytest.approx(bca.low, abs=0.05)
    assert paired_interval(d).high == pytest.approx(bca.high, abs=0.2)
    assert paired_interval(d) == paired_interval(d)
    assert paired_interval(d[:9]) == mean_interval(d[:9])


def test_paired_tests_are_honest_about_few_seeds() -> None:
    few = [1.0, 1.1, 0.9]
    p, test = paired_p_value(few)
    assert "t, normal differences assumed" in test
    assert p == pytest.approx(stats.ttest_1samp(few, 0).pvalue)
    assert paired_p_value(np.arange(1.0, 11))[1] == "Wilcoxon signed-rank"
    assert paired_p_value([2.0, 2.0, 2.0])[0] == 0.25  # equal differences prove little
    assert paired_p_value([0.0, 0.0, 0.0])[0] == 1
    assert paired_p_value([3.0])[0] == 1


def test_the_signed_rank_test_with_ties_is_scipys() -> None:
    rng = np.random.default_rng(0)
    for n in (10, 12, 13):
        d = np.round(rng.normal(0.4, 1, n))
        d[:3] = 0, 1, -1  # a zero and a tie
        assert paired_p_value(d)[0] == pytest.approx(stats.wilcoxon(d).pvalue)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_slopes() -> None:
    assert slopes([0, 1, 3], [[1, 3, 7], [5, 5, 5]]).tolist() == pytest.approx([2, 0])
    with pytest.raises(ValueError, match="two different"):
        slopes([2, 2], [[1, 1]])


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ([0, 0, 0], REPRODUCED), ([1, 0, 0], INCONCLUSIVE), ([2, 5, 4], NOT_REPRODUCED),
        ([0, 0], INCONCLUSIVE), ([1, 2, math.nan], INCONCLUSIVE),
    ],
)  # fmt: skip
def test_none_is_judged_by_every_seed(counts: list[float], verdict: str) -> None:
    assert judge_never(counts).verdict == verdict


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert mean_interval([-0.04, 0.03]).text(0) == "0 [0, 0]"
    assert mean_interval([-0.04]).text(1) == "0.0"
    assert mean_interval([-0.06]).text(1) == "-0.1"
    assert mean_interval([-0.04]).text(1, signed=True) == "+0.0"
    assert mean_interval([0.5, 0.5]).text(1, signed=True) == "+0.5 [+0.5, +0.5]"
    assert mean_interval([float("nan")]).text(1, signed=True) == "–"


def test_regression_interval_needs_five_runs() -> None:
    low, high = prediction_interval([1, 2, 3, 4, 5.0])
    half = stats.t.ppf(0.975, 4) * np.std([1, 2, 3, 4, 5], ddof=1) * math.sqrt(1 + 1 / 5)
    assert (low, high) == (pytest.approx(3 - half), pytest.approx(3 + half))
    with pytest.raises(ValueError, match="at least 5"):
        prediction_interval([1, 2, 3.0])


# ------------------------------------------------------------------- verdicts

TIGHT = np.array([-0.3, 0.0, 0.3])  # half-width of the interval of a mean of three: 0.75
WIDE = 40 * TIGHT


def test_the_list_of_verdicts_is_closed() -> None:
    assert len(VERDICTS) == len(set(ICONS.values())) == 8
    assert set(UNJUDGED) < set(VERDICTS)
    with pytest.raises(ValueError, match="not on the list"):
        Judgement("nearly reproduced")


@pytest.mark.parametrize(
    ("values", "paper", "verdict"),
    [
        (70 + TIGHT, 70.2, REPRODUCED),  # half-width 0.78 for a mean of ten
        (70 + TIGHT, 71.3, INCONCLUSIVE),  # inside a narrow interval, and perhaps off by more
        (70 + TIGHT, 75.0, NOT_REPRODUCED),
        (70 + TIGHT, 71.9, INCONCLUSIVE),  # differs, but perhaps by less than the margin
        (70 + WIDE, 70.0, INCONCLUSIVE),  # right on the number, and no evidence
        (70 + WIDE, 40.0, INCONCLUSIVE),
        (70 + WIDE, 0.0, NOT_REPRODUCED),  # far outside even a wide interval
        (70 + TIGHT[:2], 70.0, INCONCLUSIVE),
        ([70.0, 70.0, 70.0], 70.5, REPRODUCED),
        ([math.nan] * 3, 70.0, INCONCLUSIVE),
    ],
)
def test_value_claims(values: np.ndarray, paper: float, verdict: str) -> None:
    assert judge_value(values, paper, margin=2.0, paper_seeds=10).verdict == verdict


def test_a_mean_of_ten_is_predicted_more_closely_than_one_run() -> None:
    spread = 70 + 0.9 * np.array([-1.0, 0.0, 1.0])  # half-widths 2.55 and 4.47
    assert judge_value(spread, 70.0, margin=3.0, paper_seeds=10).verdict == REPRODUCED
    assert judge_value(spread, 70.0, margin=3.0, paper_seeds=1).verdict == INCONCLUSIVE


@pytest.mark.parametrize("spread", [None, 0.4])
def test_one_rule_judges_numbers_with_and_without_a_spread(spread: float | None) -> None:
    """By the half-width h: within the margin, beyond it, or open; a wider h never helps."""
    x = 50 + np.array([-0.4, -0.1, 0.0, 0.2, 0.3])

    def verdict(paper: float, scale: float = 1.0) -> str:
        numbers = 50 + scale * (x - 50)
        printed = None if spread is None else scale * spread
        return judge_value(numbers, paper, margin=1.0, spread=printed, paper_seeds=5).verdict

    s = float(x.std(ddof=1))
    if spread is None:
        h = float(stats.t.ppf(0.975, 4)) * s * math.sqrt(2 / 5)
    else:
        h = float(stats.t.ppf(0.975, _welch(s, spread))) * math.sqrt((s**2 + spread**2) / 5)
    for d in (-1, 1):
        assert verdict(50 + d * (1 - h - 1e-6)) == REPRODUCED
        assert verdict(50 + d * (1 - h + 1e-6)) == INCONCLUSIVE
        assert verdict(50 + d * (1 + h - 1e-6)) == INCONCLUSIVE
        assert verdict(50 + d * (1 + h + 1e-6)) == NOT_REPRODUCED
    assert verdict(50.0, scale=4.0) == INCONCLUSIVE


def _welch(one: float, two: float) -> float:
    """Welch's degrees of freedom of two samples of five."""
    return 4 * (one**2 + two**2) ** 2 / (one**4 + two**4)


@pytest.mark.parametrize("width", [10.0, 30.0, 100.0])
def test_reproduced_never_comes_from_a_wide_interval(width: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        x = rng.normal(0, width, size=3)
        half = stats.t.ppf(0.975, 2) * x.std(ddof=1) / math.sqrt(3)
        if half > 2.0:
            assert judge_value(x, 0.0, margin=2.0).verdict != REPRODUCED
            assert judge_ordering(x, 1.0, margin=2.0).verdict != REPRODUCED
            assert judge_value(x, 0.0, spread=1.0, paper_seeds=10, margin=2.0).verdict != REPRODUCED


@pytest.mark.parametrize(
    ("differences", "paper", "verdict"),
    [
        (5 + TIGHT, 5.5, REPRODUCED),
        (5 + TIGHT, 12.0, DIRECTION),
        (5 + TIGHT, -5.0, NOT_REPRODUCED),
        (0.1 * TIGHT, 5.0, SIZE_EXCLUDED),  # a narrow interval round zero
        (0.5 + TIGHT, 5.0, SIZE_EXCLUDED),
        (0.5 + TIGHT, 3.0, INCONCLUSIVE),  # off by 2.5, of which 1.5 are in the interval
        (5 + WIDE, 5.0, INCONCLUSIVE),
        (60 + WIDE, 60.0, DIRECTION),  # surely positive, but of unknown size
        ([5.0, 5.0, 5.0], 5.0, INCONCLUSIVE),  # three equal differences: no test can be sure
    ],
)
def test_ordering_claims(differences: np.ndarray, paper: float, verdict: str) -> None:
    assert judge_ordering(differences, paper, margin=2.0).verdict == verdict


def test_ordering_claims_use_the_corrected_p_value() -> None:
    d = 5 + TIGHT
    assert judge_ordering(d, 5.0, margin=2.0, p_value=0.2).verdict == INCONCLUSIVE
    assert "Holm" in judge_ordering(d, 5.0, margin=2.0, p_value=0.2).note
    assert judge_ordering(d, None, sign=1, margin=2.0).verdict == REPRODUCED
    assert judge_ordering(60 + WIDE, None, sign=1, margin=2.0).verdict == REPRODUCED  # no size
    assert judge_ordering(d, None, sign=-1, margin=2.0).verdict == NOT_REPRODUCED
    assert judge_ordering(TIGHT, 0.0, margin=2.0).verdict == REPRODUCED  # a printed tie
    with pytest.raises(ValueError, match="needs a sign"):
        judge_ordering(d, None, margin=2.0)


def test_other_rules() -> None:
    narrow, wide = mean_interval(3 + TIGHT), mean_interval(3 + WIDE)
    assert judge_bound(narrow, 4.0, at_most=True).verdict == REPRODUCED
    assert judge_bound(narrow, 2.0, at_most=True).verdict == NOT_REPRODUCED
    assert judge_bound(narrow, 2.0, at_most=False).verdict == REPRODUCED
    assert judge_bound(wide, 4.0, at_most=True).verdict == INCONCLUSIVE
    assert judge_bound(mean_interval([40.0] * 3), 40.0, at_most=True).verdict == REPRODUCED
    assert judge_equal([40.0, 40.0], 40.0, tolerance=0.0).verdict == REPRODUCED
    assert judge_equal([40.0, 39.0], 40.0, tolerance=0.5).verdict == NOT_REPRODUCED
    assert judge_equal([], 40.0, tolerance=0.5).verdict == INCONCLUSIVE
    mixed = judge_equal([0.0, 0.0, 30.0], 0.0, tolerance=0.5)  # the worst seed decides
    assert (mixed.verdict, mixed.difference) == (NOT_REPRODUCED, 10.0)
    assert mixed.note == "worst seed off by 30, tolerance 0.5"


def test_what_is_upside_down_does_not_keep_to_a_bound() -> None:
    """A score of 0.001 is at most 0.9, and no sign that two groups are told apart partially."""
    upside_down, partly, chance = (mean_interval(m + 0.01 * TIGHT) for m in (0.001, 0.7, 0.5))
    for bound, limit, at_most in ((0.9, 0.5, True), (0.5, 0.9, False)):

        def judged(interval, bound=bound, limit=limit, at_most=at_most):  # type: ignore[no-untyped-def]
            return judge_bound(interval, bound, at_most=at_most, limit=limit).verdict

        assert judged(partly) == REPRODUCED
        assert judged(upside_down) == NOT_REPRODUCED
        assert judged(chance) == INCONCLUSIVE
        assert judged(mean_interval(0.99 + 0.01 * TIGHT)) == NOT_REPRODUCED
    assert judge_bound(upside_down, 0.9, at_most=True).verdict == REPRODUCED


def test_what_holds_without_any_spread_is_marked() -> None:
    tie = judge_ordering([0.0] * 10, 0.0, margin=0.01)
    assert tie.verdict == REPRODUCED
    assert tie.note == "the two are equal in every seed: it holds trivially"
    assert "trivially" not in judge_ordering(TIGHT - TIGHT.mean(), 0.0, margin=5.0).note
    assert "trivially" not in judge_ordering([0.001] * 10, 0.0, margin=0.01).note
    alike = judge_value([20.0] * 10, 18.0, margin=5.0)
    assert alike.verdict == REPRODUCED
    assert alike.note.endswith("all seeds alike: the margin alone decides")
    assert "alike" not in judge_value(18 + TIGHT, 18.0, margin=5.0).note
