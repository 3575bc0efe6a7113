"""Intervals and tests; verdicts of numbers made for each rule, and of claims with records."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy import stats

from fedkit.intervals import (
    bounded_interval,
    geometric_mean,
    holm,
    kendalls_tau,
    mean_interval,
    paired_interval,
    paired_p_value,
)
from reproduction import tables
from reproduction import verdicts as v
from reproduction.claims import Claim, ClaimsError, claims_papers, load_claims
from reproduction.experiments import all_experiments, get
from reproduction.readings import Reading, choices_of, readings_of, settings_of, under
from reproduction.records import PROFILES, Cell, Store
from reproduction.statistics import kendalls_w, slopes
from tests.claimfiles import claims_in

# ------------------------------------------------------------------- intervals and tests


def test_intervals():
    x = [1.0, 2.0, 4.0, math.nan]
    interval = mean_interval(x)
    low, high = stats.t.interval(0.95, 2, np.mean(x[:3]), stats.sem(x[:3]))
    assert (interval.n, interval.low, interval.high) == (3, pytest.approx(low), pytest.approx(high))
    assert math.isnan(mean_interval([5.0]).low)
    assert mean_interval([]).n == 0
    wide = mean_interval([0.1, 0.9])
    assert wide.low < 0 < 1 < wide.high
    assert wide.within(0.0, 1.0) == replace(wide, low=0.0, high=1.0)
    assert wide.within(-9.0, 9.0) == wide
    ratio = geometric_mean([0.5, 2.0, 4.0])
    assert ratio.mean == pytest.approx(4 ** (1 / 3))
    logs = stats.t.interval(0.95, 2, np.log(4) / 3, stats.sem(np.log([0.5, 2.0, 4.0])))
    assert (ratio.low, ratio.high) == pytest.approx(np.exp(logs))
    assert math.isnan(mean_interval([5.0]).within(0, 1).low)
    for call, word in (
        (lambda: geometric_mean([1, -5, 4]), "values begin at -5"),
        (lambda: geometric_mean([0, 4]), "values begin at 0"),
        (lambda: bounded_interval([2, 3], 0, 1), "from 2 to 3 lie beyond 0 to 1"),
        (lambda: mean_interval([1, 2], level=95), "level is 95; it must lie between 0 and 1"),
    ):
        refused(word, call)
    d = np.random.default_rng(1).exponential(size=12)
    found, plain = paired_interval(d), mean_interval(d)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))
    assert paired_interval(-d) == replace(found, mean=-found.mean, low=-found.high, high=-found.low)
    assert paired_interval([1.0, 1.0, 1.0 + 1e-15]).half_width == 0  # equal but for rounding


def test_all_at_one_end_is_not_always():
    always = bounded_interval(np.ones(10), 0.0, 1.0)
    assert (always.mean, always.high, always.n) == (1, 1, 10)
    assert always.low == pytest.approx(stats.binomtest(10, 10).proportion_ci().low)
    never = bounded_interval(np.full(10, -1.0), -1.0, 1.0)
    assert never.low == -1
    assert never.high == pytest.approx(1 - 2 * always.low)
    # shares between the ends: Student's t, cut where it leaves what is possible
    few = bounded_interval([1.0, 1.0, 0.9], 0.0, 1.0)
    assert few.high == 1
    assert few.low == pytest.approx(mean_interval([1.0, 1.0, 0.9]).low)
    assert bounded_interval([0.5, 0.5], 0.0, 1.0).half_width == 0
    some = bounded_interval(100.0 * (np.arange(20) < 3), 0.0, 100.0)  # 3 of 20
    exact = stats.binomtest(3, 20).proportion_ci(0.95, "exact")
    assert (some.low, some.high) == pytest.approx((100 * exact.low, 100 * exact.high))
    assert some.mean == 15
    assert np.isnan(bounded_interval([1.0], 0.0, 1.0).low)
    assert bounded_interval([], 0.0, 1.0).n == 0


@pytest.mark.parametrize(
    ("values", "digits", "signed", "text"),
    [
        ([-0.04, 0.03], 0, False, "0 [0, 0]"),  # what rounds to zero has no sign
        ([-0.04], 1, False, "0.0"),
        ([-0.06], 1, False, "-0.1"),
        ([-0.04], 1, True, "+0.0"),
        ([0.5, 0.5], 1, True, "+0.5 [+0.5, +0.5]"),
        ([math.nan], 1, True, "–"),
    ],
)
def test_intervals_as_text(values, digits, signed, text):
    assert mean_interval(values).text(digits, signed=signed) == text


def test_paired_tests_are_honest_about_few_seeds():
    few = [1.0, 1.1, 0.9]
    p, test = paired_p_value(few)
    assert "t, normal differences assumed" in test
    assert p == pytest.approx(stats.ttest_1samp(few, 0).pvalue)
    assert paired_p_value(np.arange(1.0, 11))[1] == "Wilcoxon signed-rank"
    assert paired_p_value([2.0, 2.0, 2.0])[0] == 0.25  # equal differences prove little
    assert paired_p_value([0.0, 0.0, 0.0])[0] == 1
    assert paired_p_value([3.0])[0] == 1
    assert paired_p_value([0.0] * 9 + [1.0])[0] == 1  # a single difference shows no direction


def test_the_signed_rank_test_with_ties_is_scipys():
    rng = np.random.default_rng(0)
    for n in (10, 12, 13):
        d = np.round(rng.normal(0.4, 1, n))
        d[:3] = 0, 1, -1  # a zero and a tie
        assert paired_p_value(d)[0] == pytest.approx(stats.wilcoxon(d).pvalue)


def test_rounding_breaks_no_tie_and_signs_no_zero():
    correct = np.random.default_rng(1).integers(9270, 9280, size=(2, 50, 10))
    ours, theirs = correct / 100  # percent of 10,000 test images
    for percent, counts in zip(ours - theirs, correct[0] - correct[1], strict=True):
        assert paired_p_value(percent)[0] == paired_p_value(counts)[0]
    assert len(np.unique(ours - theirs)) > len(np.unique(correct[0] - correct[1]))


def test_holm_and_slopes():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
    assert slopes([0, 1, 3], [[1, 3, 7], [5, 5, 5]]).tolist() == pytest.approx([2, 0])
    flat = np.array([71.3, 70.9, 72.8, 71.7, 70.2])[:, None].repeat(6, axis=1)
    assert not slopes([0, 0.05, 0.1, 0.2, 0.5, 1], flat).any()  # exactly, or rounding has a sign
    refused("two different", slopes, [2, 2], [[1, 1]])


def test_kendalls_tau_and_w():
    rng = np.random.default_rng(4)
    scores, reference = rng.integers(0, 5, size=(3, 7)), rng.integers(0, 5, size=7)  # with ties
    expected = [stats.kendalltau(line, reference).statistic for line in scores]
    assert kendalls_tau(scores, reference) == pytest.approx(expected)
    assert kendalls_tau([3, 2, 1], [10, 20, 30]) == -1
    assert kendalls_w([[1, 2, 3, 4], [10, 20, 30, 40]]) == 1
    assert kendalls_w([[1, 2, 3], [3, 2, 1]]) == 0
    assert kendalls_w([[1, 1, 3], [5, 5, 9], [2, 2, 4]]) == pytest.approx(1)  # ties agree too
    scores = rng.normal(size=(5, 7))
    pairs = [stats.spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert kendalls_w(scores) == pytest.approx((4 * np.mean(pairs) + 1) / 5)  # textbook identity
    assert kendalls_w(np.stack([scores, scores])).shape == (2,)


# ------------------------------------------------------------------- rules


def ruled(rule, values, paper=None, spread=None, paper_seeds=1, p_value=None, **test):
    """What a rule says of numbers, one per seed."""
    printed, spread = (None if x is None else str(x) for x in (paper, spread))
    claim = Claim(
        "x", "", "", {"rule": rule, **test}, printed, spread=spread, paper_seeds=paper_seeds
    )
    return v.judge(claim, np.asarray(values, dtype=float), p_value=p_value)


TIGHT = np.array([-0.3, 0.0, 0.3])  # half-width of the interval of a mean of three: 0.75
WIDE = 40 * TIGHT


@pytest.mark.parametrize(
    ("values", "paper", "verdict"),
    [
        (70 + TIGHT, 70.2, v.REPRODUCED),  # half-width 0.78 for a mean of ten
        (70 + TIGHT, 71.3, v.INCONCLUSIVE),  # inside a narrow interval, and perhaps off by more
        (70 + TIGHT, 75.0, v.NOT_REPRODUCED),
        (70 + TIGHT, 71.9, v.INCONCLUSIVE),  # differs, but perhaps by less than the margin
        (70 + WIDE, 70.0, v.INCONCLUSIVE),  # right on the number, and no evidence
        (70 + WIDE, 40.0, v.INCONCLUSIVE),
        (70 + WIDE, 0.0, v.NOT_REPRODUCED),  # far outside even a wide interval
        (70 + TIGHT[:2], 70.0, v.INCONCLUSIVE),
        ([70.0, 70.0, 70.0], 70.5, v.REPRODUCED),
        ([math.nan] * 3, 70.0, v.INCONCLUSIVE),
    ],
)
def test_value_claims(values, paper, verdict):
    assert ruled("value", values, paper, margin=2.0, paper_seeds=10).verdict == verdict


@pytest.mark.parametrize("spread", [None, 0.4])
def test_one_rule_judges_numbers_with_and_without_a_spread(spread):
    """By the half-width h: within the margin, beyond it, or open; a wider h never helps."""
    x = 50 + np.array([-0.4, -0.1, 0.0, 0.2, 0.3])

    def verdict(paper, scale=1.0, paper_seeds=5):
        numbers = 50 + scale * (x - 50)
        printed = None if spread is None else scale * spread
        told = ruled("value", numbers, paper, printed, paper_seeds, margin=1.0)
        return told.verdict

    s = float(x.std(ddof=1))
    other = s if spread is None else spread
    # degrees of freedom: ours, or Welch's of two samples of five
    freedom = 4 if spread is None else 4 * (s**2 + other**2) ** 2 / (s**4 + other**4)
    h = float(stats.t.ppf(0.975, freedom)) * math.sqrt((s**2 + other**2) / 5)
    for d in (-1, 1):
        assert verdict(50 + d * (1 - h - 1e-6)) == v.REPRODUCED
        assert verdict(50 + d * (1 - h + 1e-6)) == v.INCONCLUSIVE
        assert verdict(50 + d * (1 + h - 1e-6)) == v.INCONCLUSIVE
        assert verdict(50 + d * (1 + h + 1e-6)) == v.NOT_REPRODUCED
    assert verdict(50.0, scale=4.0) in (v.INCONCLUSIVE, v.UNDECIDABLE)
    assert verdict(50.0, scale=1.5) == v.REPRODUCED  # a mean of five is known better than one run
    assert verdict(50.0, scale=1.5, paper_seeds=1) == v.INCONCLUSIVE


def test_places_in_a_narrow_column():
    """Which row is ahead decides; a level within the margin does not."""

    def told(printed, *ours, spread=0.002):
        noise = spread * np.array([-1.0, 0, 1, 0.5, -0.5])
        scores = np.array([[[x + k * noise[i] for k, x in enumerate(ours)]] for i in range(5)])
        claim = Claim(
            "x", "", "", {"rule": "place", "margin": 0.01}, str(printed[0]),
            ours={"printed": [printed], "pooled": []}, paper_seeds=20,
        )  # fmt: skip
        return v.judge(claim, scores)

    ahead = told([0.72, 0.71, 0.70], 0.83, 0.82, 0.81)  # a level far off, and the same place
    assert ahead.verdict == v.REPRODUCED
    assert ahead.difference == pytest.approx(0.11)
    assert ahead.note.startswith("+0.015 from the other rows' mean, printed +0.015")
    assert told([0.72, 0.71, 0.70], 0.70, 0.71, 0.72).verdict == v.NOT_REPRODUCED
    assert told([0.72, 0.71, 0.70], 0.75, 0.71, 0.70).verdict == v.DIRECTION
    assert told([0.72, 0.71, 0.70], 0.72, 0.71, 0.70, spread=0.05).verdict == v.INCONCLUSIVE
    # what rounding alone may have printed has no sign to be right or wrong
    assert told([0.71, 0.72, 0.70], 0.709, 0.72, 0.70).verdict == v.REPRODUCED
    assert told([0.71, 0.72, 0.70], 0.75, 0.72, 0.70).verdict == v.NOT_REPRODUCED


def test_one_vote_for_a_finding():
    def vote(*verdicts):
        frame = pd.DataFrame({"finding": "a", "verdict": verdicts})
        (row,) = tables.by_finding(frame).itertuples()
        return row.verdict

    assert vote(v.REPRODUCED, v.INCONCLUSIVE) == v.REPRODUCED
    assert vote(v.NOT_REPRODUCED, v.NOT_REPRODUCED, v.NOT_JUDGED) == v.NOT_REPRODUCED
    assert vote(v.REPRODUCED, v.DIRECTION) == v.DIRECTION
    assert vote(v.DIRECTION, v.NOT_REPRODUCED) == v.TURNS
    assert vote(v.TURNS, v.NOT_REPRODUCED) == v.TURNS
    assert vote(v.NOT_ATTEMPTED, v.INCONCLUSIVE) == v.INCONCLUSIVE
    frame = pd.DataFrame({"finding": ["a", "b", "a"], "verdict": [v.REPRODUCED] * 3})
    assert tables.by_finding(frame)["claims"].tolist() == [2, 1]


def test_a_printed_spread_may_leave_nothing_to_decide():
    """Beyond the margin whatever we run, and before that; what is far off is not reproduced."""
    claim = Claim(
        "x", "", "a reaches", {"rule": "value", "margin": 3.0, "min_seeds": 3}, "50", spread="2",
        paper_seeds=3,
    )  # fmt: skip
    assert v.cannot_be_decided(claim)
    assert verdict_of(claim, [50.0]) == verdict_of(claim, [50.0, 50.1, 49.9]) == v.UNDECIDABLE
    assert verdict_of(claim, [80.0, 80.1, 79.9]) == v.NOT_REPRODUCED
    for other in (replace(claim, spread="1"), replace(claim, untestable="no data"),
                  replace(claim, test={**claim.test, "rule": "place"})):  # fmt: skip
        assert not v.cannot_be_decided(other)
    least = min(  # over the spread of endless seeds, by Welch's formula
        stats.t.ppf(0.975, (a + 1 / 3) ** 2 / ((1 / 3) ** 2 / 2)) * math.sqrt(a + 1 / 3)
        for a in np.linspace(0, 1, 1001)
    )
    assert v.printed_half_width(claim) == pytest.approx(2 * least, rel=1e-4)
    assert v.printed_half_width(replace(claim, spread=None)) == 0
    frame = v.join(load_claims("fedms"), Store(Path("nowhere")))
    listed = tables.too_wide(frame)
    assert len(listed) == sum(v.cannot_be_decided(entry) for entry in frame["entry"]) > 0
    assert (listed["half-width at least"] > listed["margin"]).all()
    assert tables.too_wide(frame[:0]).empty


@pytest.mark.parametrize(
    ("differences", "paper", "verdict"),
    [
        (5 + TIGHT, 5.5, v.REPRODUCED),
        (5 + TIGHT, 12.0, v.DIRECTION),
        (5 + TIGHT, -5.0, v.NOT_REPRODUCED),
        (0.1 * TIGHT, 5.0, v.SIZE_EXCLUDED),  # a narrow interval round zero
        (0.5 + TIGHT, 5.0, v.SIZE_EXCLUDED),
        (0.5 + TIGHT, 3.0, v.INCONCLUSIVE),  # off by 2.5, of which 1.5 are in the interval
        (5 + WIDE, 5.0, v.INCONCLUSIVE),
        (60 + WIDE, 60.0, v.DIRECTION),  # surely positive, but of unknown size
        ([5.0, 5.0, 5.0], 5.0, v.INCONCLUSIVE),  # three equal differences: no test can be sure
        (TIGHT, 0.0, v.REPRODUCED),  # a printed tie
    ],
)
def test_ordering_claims(differences, paper, verdict):
    assert ruled("ordering", differences, paper, margin=2.0).verdict == verdict


def test_a_size_that_none_would_fit_as_well_is_told():
    """A margin above the printed difference leaves the sign alone to tell."""
    for margin, alone in ((2.0, False), (9.0, True)):
        told = ruled("ordering", 5 + TIGHT, 5.5, margin=margin)
        assert (told.verdict, "the sign alone tells" in told.note) == (v.REPRODUCED, alone)


def test_directions_without_a_size_and_corrected_p_values():
    d = 5 + TIGHT
    corrected = ruled("ordering", d, 5.0, margin=2.0, p_value=0.2)
    assert corrected.verdict == v.INCONCLUSIVE
    assert "Holm" in corrected.note
    assert ruled("ordering", 60 + WIDE, sign=1).verdict == v.REPRODUCED
    assert ruled("ordering", d, sign=-1).verdict == v.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (ruled("at_most", 3 + TIGHT, bound=2.0), v.NOT_REPRODUCED),
        (ruled("at_least", 3 + TIGHT, bound=2.0), v.REPRODUCED),
        (ruled("at_most", 3 + WIDE, bound=4.0), v.INCONCLUSIVE),
        (ruled("at_most", [40.0] * 3, bound=40.0), v.REPRODUCED),
        # at the margin, but for rounding
        (ruled("value", [0.9] * 5, 0.87, margin=0.03), v.REPRODUCED),
        (ruled("value", [0.75] * 5, 0.72, margin=0.03), v.REPRODUCED),
        (ruled("value", [0.93] * 5, 0.96, margin=0.03), v.REPRODUCED),
        (ruled("equal", [40.0, 40.0], 40.0, rtol=0.0, min_seeds=1), v.REPRODUCED),
        (ruled("equal", [40.0, 39.0], 40.0, rtol=0.0125, min_seeds=1), v.NOT_REPRODUCED),
        (ruled("equal", [], 40.0, rtol=0.0125, min_seeds=1), v.INCONCLUSIVE),
        (ruled("equal", [0.0, 0.0, 30.0], 10.0, rtol=1.5), v.NOT_REPRODUCED),  # the worst seed's
        (ruled("never", [0] * 10), v.REPRODUCED),
        (ruled("never", [0] * 9), v.INCONCLUSIVE),  # 33.6% may have some
        (ruled("never", [0] * 9 + [math.nan]), v.INCONCLUSIVE),
        (ruled("never", [0] * 10, min_seeds=11), v.INCONCLUSIVE),
        (ruled("never", [1, 0, 0]), v.INCONCLUSIVE),
        (ruled("never", [2, 5, 4]), v.NOT_REPRODUCED),
        (ruled("never", [0, 0]), v.INCONCLUSIVE),
        (ruled("never", [1, 2, math.nan]), v.INCONCLUSIVE),
        # one-sided, by hand: C(36, 16) / C(40, 16) and so on; 4 of 20 is 5.3%, 5 of 20 is 2.4%
        (ruled("never", [1] * 4 + [0] * 16, paper_seeds=20), v.INCONCLUSIVE),
        (ruled("never", [1] * 5 + [0] * 15, paper_seeds=20), v.NOT_REPRODUCED),
        (ruled("never", [1] * 12 + [0] * 8, paper_seeds=1), v.INCONCLUSIVE),
        (ruled("never", [1] * 4 + [0] * 6, paper_seeds=10), v.INCONCLUSIVE),  # 4.3%
        (ruled("never", [0], min_seeds=1), v.INCONCLUSIVE),  # one seed is always too few
    ],
)
def test_other_rules(found, verdict):
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict", "note"),
    [
        ([0] * 20, v.REPRODUCED, "in 0 of 20 seeds: at most 16.8%, by the exact interval"),
        (
            [0] * 3,
            v.INCONCLUSIVE,
            "in 0 of 3 seeds: at most 70.8%, by the exact interval; a tick n",
        ),
        ([2, 1, 1], v.NOT_REPRODUCED, "in 3 of 3 seeds, of the paper's in 0 of 1: Fisher"),
    ],
)
def test_none_says_what_it_leaves_open(values, verdict, note):
    found = ruled("never", values)
    assert (found.verdict, found.note[: len(note)]) == (verdict, note)
    if not any(values):  # no seed of n has any with a chance of 2.5%
        most = 1 - 0.025 ** (1 / len(values))
        assert f"at most {100 * most:.1f}%" in found.note


@pytest.mark.parametrize(
    ("rule", "bound", "limit"), [("at_most", 0.9, 0.5), ("at_least", 0.5, 0.9)]
)
def test_what_is_upside_down_does_not_keep_to_a_bound(rule, bound, limit):
    """A score of 0.001 is at most 0.9, and no sign that two groups are told apart partially."""
    expected = {
        0.001: v.NOT_REPRODUCED,
        0.5: v.INCONCLUSIVE,
        0.7: v.REPRODUCED,
        0.99: v.NOT_REPRODUCED,
    }
    for mean, verdict in expected.items():
        assert ruled(rule, mean + 0.01 * TIGHT, bound=bound, limit=limit).verdict == verdict
    without = ruled("at_most", 0.001 + 0.01 * TIGHT, bound=0.9)
    assert without.verdict == v.REPRODUCED


# ------------------------------------------------------------------- claims and records

PLACES = {
    "fedowen": {"dataset": "mnist", "data": "mnist", "alpha": 0.05, "imbalance": 0.01},
    "fedms": {"dataset": "mnist", "data": "mnist", "scenario": "dir10", "adversaries": 0},
}
PROTOCOLS = {  # of the runs that are judged
    paper: {
        k: v[0] if isinstance(v, list) else v[place["dataset"]] if isinstance(v, dict) else v
        for k, v in load_claims(paper).protocol.items()
    }
    | place
    for paper, place in PLACES.items()
}


def save(store, paper, experiment, metrics, profile="paper", **change):
    """Save a record with one value per metric and seed."""
    seeds = tuple(range(len(next(iter(metrics.values())))))
    results = [
        {"seed": i, "metrics": {m: v[i] for m, v in metrics.items()}, "series": {}} for i in seeds
    ]
    settings = PROTOCOLS.get(paper, {}) | change
    store.save(Cell(profile, paper, experiment, settings, seeds), results)


def save_owen(store, method, accuracy, profile="paper", **change):
    metrics = {"accuracy_last_10_rounds": accuracy, "calls": [40.0] * len(accuracy)}
    save(store, "fedowen", "declared", metrics, profile, method=method, **change)


def verdict_of(claim, values):
    return v.judge(claim, np.asarray(values)).verdict


def judged(store, paper="fedowen", **options):
    claims = load_claims(paper)
    frame = v.join(claims, store, **options)
    assert list(frame.columns) == v.COLUMNS
    assert set(frame["verdict"]) <= set(v.VERDICTS)
    assert len(frame) == len(claims.claims)
    return frame.set_index("claim")


FEDOWEN = load_claims("fedowen")
VALUE = "fedowen.t1.mnist.a0.05.fedowen"  # printed: 88.12
ORDER = "fedowen.o1.mnist.a0.05.vs-fedavg"  # printed: +4.38


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    """FedOwen's claims and two records."""
    store = Store(tmp_path_factory.mktemp("records"))
    save_owen(store, "fedowen", [88.0, 88.2, 88.4])
    save_owen(store, "fedavg", [83.9, 84.0, 84.2, 90.0])  # the fourth seed has no partner
    return v.join(FEDOWEN, store)


def test_join_of_an_empty_store(tmp_path):
    rows = judged(Store(tmp_path))
    assert rows.loc[VALUE].verdict == v.NOT_ATTEMPTED
    assert rows.loc[VALUE].command.startswith("fedkit run fedowen declared --profile paper --only ")
    assert rows.loc["fedowen.t1.medmnist.a0.05.fedowen"].verdict == v.NOT_TESTABLE
    # a bound of ours stands with the rule and does not pass for a printed number
    ours, printed = rows.loc["fedowen.ranking.printed"], rows.loc["fedowen.shortfall"]
    assert not isinstance(ours.paper, str)
    assert math.isnan(ours.difference)
    assert "bound 0.7" in ours.rule
    assert ours.verdict in (v.REPRODUCED, v.NOT_REPRODUCED)
    assert "| not printed |" in tables.claims_table(ours.to_frame().T)
    assert printed.paper == "0.5"
    assert math.isfinite(printed.difference)


def test_join_judges_the_paper_profile(frame):
    rows = frame.set_index("claim")
    value, order = rows.loc[VALUE], rows.loc[ORDER]
    assert (value.verdict, value.seeds, value.stale) == (v.REPRODUCED, 3, True)
    assert (value["mean"], value.difference) == pytest.approx((88.2, 0.08))
    assert (order.verdict, order.seeds) == (v.REPRODUCED, 3)
    assert order["mean"] == pytest.approx(np.mean([4.1, 4.2, 4.2]))
    assert rows.loc["fedowen.budget.fedowen"].verdict == v.REPRODUCED
    assert rows.loc["fedowen.o1.mnist.a0.05.vs-mc"].verdict == v.NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("profile", "change", "word"),
    [
        ("smoke", {}, "profile smoke"),
        ("laptop", {}, "profile laptop"),
        ("paper", {"data": "digits"}, "run on digits"),
        ("paper", {"rounds": 40}, "rounds 40, the paper has 100"),
    ],
)
def test_other_runs_are_shown_and_never_judged(tmp_path, profile, change, word):
    store = Store(tmp_path)
    save_owen(store, "fedowen", [88.1, 88.1, 88.2], profile, **change)
    save_owen(store, "fedavg", [83.7, 83.8, 83.7], profile, **change)
    rows = judged(store, profile=profile)
    for name in (VALUE, ORDER):
        assert rows.loc[name].verdict == v.NOT_JUDGED
        assert word in rows.loc[name].note
        assert math.isfinite(rows.loc[name, "mean"])
    if profile == "laptop":  # reduced runs are judged where that is asked for
        assert judged(store, profile="laptop", scale="laptop").loc[VALUE].verdict == v.REPRODUCED
        assert judged(store, scale="laptop").loc[VALUE].seeds == 0


def test_a_tick_says_which_other_rows_it_fits(frame):
    """By hand: 88.2 with a half-width of 0.55 is within 2 points of 88.14, 87.05 and 86.8 ..."""
    row = frame.set_index("claim").loc[VALUE]
    half = 4.302652729911275 * 0.2 * math.sqrt(1 / 3 + 1 / 10)
    printed = [float(r[4]) for name, r in FEDOWEN.tables["t1"].rows.items() if name != "fedowen"]
    assert row.also_fits == sum(abs(88.2 - p) + half <= 2 for p in printed) == 2
    assert row.other_rows == 6
    assert "also fits 2 of 6 other rows" in tables.comparison_table(frame, "t1", dataset="mnist")
    exact = frame[frame["claim"] == "fedowen.not-best"].iloc[0]
    assert exact["by_construction"]
    assert math.isnan(exact["also_fits"])


def test_an_order_that_agrees_is_seldom_called_not_reproduced():
    """The size of the rule at its bound, with noise as large as the gaps between rows."""
    claim = FEDOWEN["fedowen.k1.mnist"]
    printed, rng = np.asarray(claim.ours["printed"]), np.random.default_rng(0)
    shuffled = (np.array([rng.permutation(row) for row in printed]) for _ in range(3000))
    there = [(kendalls_tau(scores, printed).mean(), i, scores) for i, scores in enumerate(shuffled)]
    tau, _, truth = min(one for one in there if one[0] >= 0.5)
    assert tau < 0.6
    for n, spread in ((3, 2.0), (10, 4.0)):
        draws = truth + spread * rng.standard_normal((60, n, *printed.shape))
        told = [verdict_of(claim, values) for values in draws]
        assert told.count(v.NOT_REPRODUCED) <= 9  # 2.5% of 60 with luck; it was 37% and more
    turned = -printed + rng.standard_normal((20, 5, *printed.shape))
    assert {verdict_of(claim, values) for values in turned} == {v.NOT_REPRODUCED}
    assert verdict_of(claim, printed + rng.normal(0, 0.01, (5, *printed.shape))) == v.REPRODUCED


def test_rankings_that_agree_are_seldom_called_different():
    """Noise pulls W down as it does tau: one order in all columns, and gaps below the noise."""
    claim, rng = FEDOWEN["fedowen.ranking"], np.random.default_rng(0)
    truth = np.tile(0.5 * np.arange(7.0), (12, 1))
    told = [verdict_of(claim, truth + 3 * rng.standard_normal((10, 12, 7))) for _ in range(40)]
    assert told.count(v.NOT_REPRODUCED) <= 2  # it was most of them
    apart = np.array([rng.permutation(7) for _ in range(12)]) * 2.0
    draws = apart + rng.standard_normal((20, 10, 12, 7))
    assert {verdict_of(claim, values) for values in draws} == {v.NOT_REPRODUCED}
    assert verdict_of(claim, truth + rng.normal(0, 0.01, (10, 12, 7))) == v.REPRODUCED


def test_three_seeds_exclude_an_order_by_their_noise_and_no_sooner():
    """Deviations from a mean of three are too small for noise, and a mean has less than a seed."""

    def told(values):
        values = np.array(values, dtype=float)
        _, columns, rows = values.shape
        printed = {"printed": [list(range(rows, 0, -1))] * columns}
        return verdict_of(replace(FEDOWEN["fedowen.k1.mnist"], ours=printed), values)

    # as little agreement as ours in 24% and in none of the draws, with the other noise 0% and 12%
    loose = [[[20, 0, 80, 40, 1]], [[60, 61, 70, 30, 80]], [[70, 2, 81, 50, 51]]]
    assert told(loose) == v.INCONCLUSIVE
    turned = [[[2, 16, 4], [12, 3, 9]], [[5, 6, 17], [11, 10, 14]], [[0, 13, 15], [7, 1, 8]]]
    assert told(turned) == v.NOT_REPRODUCED


def test_none_of_few_is_no_proof_of_none():
    """A share of one party is 0 or 100: twenty zeros leave up to 16.8% open."""
    claims = load_claims("fedvalue")
    cell, bound = (claims[f"fedvalue.{n}"] for n in ("t7s.fix.b1.vf-ps", "vf-ps-below-5.fix.1"))
    for many, verdict in ((20, v.INCONCLUSIVE), (80, v.REPRODUCED)):
        assert verdict_of(cell, np.zeros(many)) == verdict
        assert verdict_of(bound, np.zeros(many)) == verdict
    assert verdict_of(cell, np.full(20, 100.0)) == v.NOT_REPRODUCED
    assert verdict_of(bound, np.full(20, 100.0)) == v.NOT_REPRODUCED
    assert verdict_of(cell, np.linspace(0.1, 0.3, 20)) == v.REPRODUCED  # shares of many


def test_only_what_is_tested_counts_in_a_family(tmp_path):
    store = Store(tmp_path)
    save_owen(store, "fedowen", [88.0] * 6, alpha=0.05)
    save_owen(store, "fedavg", [87, 87.8, 86.5, 87.7, 86, 87.6], alpha=0.05)
    alone = judged(store).loc[ORDER].note
    save_owen(store, "mc", [80.0], alpha=0.05)  # one seed
    assert judged(store).loc[ORDER].note == alone
    save_owen(store, "gtg", [87, 89, 87, 89, 87, 88.9], alpha=0.05)
    assert judged(store).loc[ORDER].note != alone


def test_a_printed_tie_corrects_nobody(tmp_path):
    """It is judged by its size, and has no part in the p-values of its family."""
    entry = """
  - {id: %s, where: w, says: s, paper_value: "%s", unit: "%%", family: f,
     test: {rule: ordering, margin: 1}, ours: {experiment: e, metric: accuracy, settings: {x: 1}},
     against: {experiment: e, metric: accuracy, settings: {x: 2}}}"""
    store, told = Store(tmp_path), []
    for x, accuracy in ((1, [61.0, 62.0, 63.5]), (2, [60.0] * 3)):
        save(store, "toy", "e", {"accuracy": accuracy}, x=x)
    for others in ((), (("tie", "0"),), (("other", "2"),)):
        text = TOY + "".join(entry % one for one in (("a", "2"), *others))
        claims = claims_in(tmp_path, text, t=PRINTED)
        told.append(v.join(claims, store).set_index("claim").loc["toy.a"].note)
    assert told[0] == told[1] != told[2]


def test_marks_of_comparisons_and_stars_are_read(tmp_path):
    text = TOY.replace(
        "test: {rule: best_share, bound: 0.5}}",
        "by_construction: yes indeed, test: {rule: best_share, bound: 0.5}}",
    )
    text = text.replace('test: {rule: ordering, sign: 1}}',
                        'after_runs: [{what: later, columns: {x: 1}}],\n'
                        '     test: {rule: ordering, sign: 1}}')  # fmt: skip
    found = {claim.id: claim for claim in claims_in(tmp_path, text, t=PRINTED).claims}
    assert found["toy.most"].by_construction
    assert found["toy.s.x1"].after_runs == "later"


def test_every_claim_is_in_the_table_to_be_searched_the_judged_first(frame):
    found, shown = tables.claims_listed({"FedOwen": frame})
    assert len(found) == len(frame) == len(shown["fold"]["claim"])
    assert set(found["declared"]) == {"before the runs", "after the runs", "by construction"}
    unjudged = found["verdict"].str[2:].isin(v.UNJUDGED).tolist()
    assert unjudged == sorted(unjudged)
    assert any("`fedkit run fedowen declared" in below for below in shown["fold"]["claim"])
    assert set(shown["filters"]) | set(shown["keys"]) <= set(found)


def test_tiny_numbers_are_powers_of_ten_and_a_verdict_has_its_marks(frame):
    (row,) = frame[frame["claim"] == VALUE].assign(after_runs="").to_dict("records")
    tiny = pd.DataFrame([{**row, "mean": 1.2e-5, "low": -3e-7, "note": "p = 3.8e-06; alpha1e5"}])
    assert "1.2·10⁻⁵ [-3.0·10⁻⁷, " in tables.claims_table(tiny)
    assert "p = 3.8·10⁻⁶; alpha1e5" in tables.claims_table(tiny)  # a name stays as it is
    assert tables.marked_verdict(row) == "✓ reproduced †"  # the record of `frame` is stale
    other = {**row, "stale": False, "after_runs": "added", "by_construction": True}
    assert tables.marked_verdict(other) == "✓ reproduced ‡, by construction"
    told = tables.marks_told(pd.DataFrame([row, other]))
    assert [mark in told for mark in ("‡: ", "†: ")] == [True, True]
    assert tables.marks_told(pd.DataFrame([{**row, "stale": False}])) == ""


def test_tables_for_a_page(frame):
    lines = (
        tables.comparison_table(frame, "t1", dataset="mnist").replace("\u00a0", " ").splitlines()
    )
    assert lines[0] == "| paper / ours / verdict | alpha 0.01 | alpha 0.05 | alpha 0.1 |"
    assert len(lines) == 2 + 7
    assert "88.12<br>88.20 [87.70, 88.70], n = 3 †<br>✓ reproduced" in lines[-1]
    assert "not attempted (cost)" in lines[2]
    refused("tables are", tables.comparison_table, frame, "t9")
    text = tables.claims_table(frame[frame["claim"] == VALUE], commands=True)
    assert "`fedkit run fedowen declared" in text
    assert "✓ reproduced" in text
    assert len({line.count(" | ") for line in text.splitlines()}) == 1  # a head for every column
    counts = tables.summary(frame)
    given = frame["by_construction"].sum()
    assert counts.to_numpy().sum() == len(frame)
    assert counts.loc["by construction"].sum() == given
    assert [name.split(" ", 1)[1] for name in counts.columns] == list(v.VERDICTS)


TOY = """
paper: {key: toy, seeds: 5}
tables:
  - id: t
    where: Table 1
    unit: "%"
    columns: [x]
    ours: {experiment: e, metric: accuracy}
    test: {rule: value, margin: 2}
pooled:
  - {id: most, table: t, row: a, by: [], unit: share, says: s, test: {rule: best_share, bound: 0.5}}
stars:
  - {id: s, table: t, row: a, unit: "%", says: "a over {against}, p < {p}", marks: "** -",
     test: {rule: ordering, sign: 1}}
claims:
  - {id: m, where: w, says: s, test: {rule: at_least, bound: 15},
     ours: {experiment: e, metric: mean(accuracy), settings: {method: a, x: 1}}}
  - {id: r, where: w, says: s, test: {rule: at_least, bound: 15},
     ours: {experiment: e, metric: rise(accuracy), settings: {method: a, x: 1}}}
  - {id: mean-calls, where: w, says: s, paper_value: "2", test: {rule: at_most},
     ours: {experiment: e, metric: calls, settings: {method: c}, pool: mean, of: 2}}
"""
PRINTED = "x,1,2\nb,50,65\na,60,70\nc,55,40\n"


def test_rules_and_places_of_a_toy_paper(tmp_path):
    store, claims = Store(tmp_path), claims_in(tmp_path, TOY, t=PRINTED)
    # in the second column b ties a with one of five seeds, and overtakes it with two
    ahead = {("a", 1): [60] * 5, ("b", 1): [50] * 5, ("c", 1): [50, 51, 52, 50, 51]}
    ahead |= {("a", 2): [60] * 5, ("b", 2): [50, 50, 60, 70, 70], ("c", 2): [1] * 5}
    for (method, x), accuracy in ahead.items():
        results = [
            {"seed": k, "metrics": {"accuracy": v}, "series": {"accuracy": [10, 27, 30 + k]}}
            for k, v in enumerate(accuracy)
        ]
        store.save(Cell("paper", "toy", "e", {"method": method, "x": x}, tuple(range(5))), results)
    for x, calls in ((3, [1] * 5), (4, [3] * 3)):
        save(store, "toy", "e", {"calls": calls}, method="c", x=x)
    rows = v.join(claims, store).set_index("claim")
    # of the table of means: in the second column a ties b, which is no lead, nor more than half
    most = rows.loc["toy.most"]
    assert (most["mean"], most.low, most.high) == (0.5, 0.5, 1.0)
    assert most.verdict == v.INCONCLUSIVE
    values = np.array([[[60.0, 50, 40], [60, x, 0]] for x in (50, 50, 50, 50, 95)])
    assert verdict_of(claims["toy.most"], values) == v.INCONCLUSIVE  # one seed can turn it
    values[4, 1, 1] = 61  # one seed of five has b ahead, its mean is behind in every draw of most
    assert verdict_of(claims["toy.most"], values) == v.REPRODUCED
    assert verdict_of(claims["toy.most"], values[:, [0, 0]]) == v.REPRODUCED
    values[:, 1, 1] = 60
    assert verdict_of(claims["toy.most"], values) == v.NOT_REPRODUCED  # half is not more than half
    assert [name for name in rows.index if ".s." in name] == ["toy.s.x1"]
    assert rows.loc["toy.s.x1", "says"] == "a over c, p < 0.05"  # the second best as printed
    assert claims["toy.s.x1"].test["level"] == 0.95
    assert rows.loc["toy.s.x1", "values"] == (10, 9, 8, 10, 9)
    assert rows.loc["toy.m", "mean"] == pytest.approx(23)
    assert rows.loc["toy.r", "mean"] == 22  # not what the middle entry says
    assert rows.loc["toy.m", "verdict"] == v.REPRODUCED
    assert rows.loc["toy.mean-calls", "values"] == (2, 2, 2)  # of the seeds that both settings have
    assert rows.loc["toy.mean-calls", "note"].endswith("no spread to judge by")
    save(store, "toy", "e", {"accuracy": [1.0] * 5}, method="a", x=1, lr=0.2)
    refused(r"differ in \['lr'\]", v.join, claims, store, error=ClaimsError)


def test_records_of_two_copies_of_a_data_set_are_not_judged_together(tmp_path):
    store, claims = Store(tmp_path), claims_in(tmp_path, TOY, t=PRINTED)
    for method, checksum in (("a", "11"), ("c", "22")):
        one = Cell("paper", "toy", "e", {"method": method, "x": 1}, tuple(range(5)))
        manifest = {"data": [{"name": "mnist", "source": "s", "checksum": checksum}]}
        results = [{"seed": k, "metrics": {"accuracy": 50.0 + k}, "series": {}} for k in range(5)]
        store.save(one, results, manifest)
    row = v.join(claims, store).set_index("claim").loc["toy.s.x1"]
    assert (row.verdict, row.note) == (v.NOT_JUDGED, "run on different copies of mnist")


# ------------------------------------------------------------------- each paper's own


def test_other_choices_and_margins_are_judged_beside_the_declared_ones(tmp_path):
    store = Store(tmp_path)
    printed = load_claims("fedms")["fedms.t1.dir10.mnist.fedms"].number
    for owned, off in ((0.1, 1.5), (1.0, 9.0)):
        metrics = {"accuracy": [printed + off + k / 100 for k in range(5)]}
        save(store, "fedms", "table1", metrics, method="fedms", owned=owned)
    claims = load_claims("fedms")
    found = tables.readings(claims, store).set_index("other")
    whole = found.loc["owned=1.0"]
    assert (whole["claims judged under both"], whole["moved"], whole["turned"]) == (1, 1, 1)
    assert found.loc["local=epochs", "verdicts under the other"] == "no records"
    there = tables.margins(claims, store).loc["value"]
    counted = tuple(there[["at half", "as declared", "at twice"]])
    # the printed spread of three runs is 0.32: a half-width of 0.8
    assert counted == ("0 ✓, 0 ✗, 1 open", "1 ✓, 0 ✗, 0 open", "1 ✓, 0 ✗, 0 open")
    # what holds in one admissible reading and fails in another turns, in the report too
    row = v.join(claims, store).set_index("claim").loc["fedms.t1.dir10.mnist.fedms"]
    assert row.verdict == v.TURNS
    assert row.note.startswith("reproduced here, not reproduced with owned=1.0")
    assert row["mean"] == pytest.approx(printed + 1.52)


def test_a_reading_asks_the_places_that_it_concerns():
    claims = load_claims("fedccea")
    asked = under(claims, Reading("", "metric=fedccea", "metric=adam", True))
    assert asked["fedccea.t3.mnist.iid.fedccea"].ours["metric"] == "excluded.adam"
    assert asked["fedccea.t3.mnist.iid.base"].ours["metric"] == "base"
    highest = asked["fedccea.declines-highest.none.fedccea"]
    assert highest.ours["metric"] == "mean(adam.highest)"
    (rounds,) = (r for r in readings_of("fedccea") if r.choice.startswith("TMC-SV"))
    asked = under(claims, rounds)
    moved = asked["fedccea.declines.tmc-sv"]
    assert moved.ours["experiment"] == "rounds"
    assert moved.ours["metric"] == "excluded.tmc-sv-rounds"
    assert moved.ours["settings"]["permutations"] == 2
    assert moved.against == claims["fedccea.declines.tmc-sv"].against  # everybody is everybody
    assert asked["fedccea.loo-zeros"] == claims["fedccea.loo-zeros"]


@pytest.mark.parametrize("paper", claims_papers())
def test_every_open_choice_is_one_row_and_every_other_reading_has_cells(paper):
    rows = choices_of(paper)
    assert len({row["choice"] for row in rows}) == len(rows) > 0
    assert all(row["ours"] and row["where"] for row in rows)
    for row in rows:
        others = row["others"].split("; ")
        assert bool(row["judged"]) == bool(row["others"]) == bool(row["why"]), row["choice"]
        assert set(filter(None, row["admissible"].split("; "))) <= set(others), row["choice"]
    for reading in readings_of(paper):
        judged, other = settings_of(reading.judged), settings_of(reading.other)
        name = other.get("experiment", judged.get("experiment"))
        names = [name] if name else [e.name for e in all_experiments(paper)]
        asked = {k: v for k, v in other.items() if k not in ("experiment", "metric")}
        cells = [c for n in names for p in PROFILES for c in get(paper, n).cells(p, None)]
        assert any(asked.items() <= cell.settings.items() for cell in cells), reading


# ------------------------------------------------------------------- levels


def test_a_verdict_is_at_the_level_of_its_claim():
    def ordering(differences, **more):
        return ruled("ordering", differences, sign=1, **more).verdict

    big, small = np.array([0.9, 1.0, 1.1]), np.array([0.2, 1.0, 1.6])  # p is 0.0033, and 0.15
    assert [ordering(big, level=level) for level in (0.99, 0.999)] == [v.REPRODUCED, v.INCONCLUSIVE]
    assert [ordering(small, level=level) for level in (0.8, 0.95)] == [v.REPRODUCED, v.INCONCLUSIVE]
    assert ordering(big - 0.97, p_value=0.001) == v.INCONCLUSIVE  # the interval counts as well
    x = 70 + np.array([-0.3, 0.0, 0.3])
    for level, verdict in ((0.95, v.REPRODUCED), (0.99, v.INCONCLUSIVE)):
        told = ruled("value", x, 70.0, margin=1.5, paper_seeds=3, level=level)
        assert told.verdict == verdict
