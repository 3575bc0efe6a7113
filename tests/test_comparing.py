"""Joining claims with records: verdicts, and the tables of a page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedkit.claims import join as comparing
from fedkit.claims.changes import changes, changes_table, keep_verdicts
from fedkit.claims.claim import ClaimsError, parse_claims
from fedkit.claims.join import COLUMNS, join
from fedkit.claims.judge import (
    NOT_ATTEMPTED,
    NOT_JUDGED,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    VERDICTS,
)
from fedkit.claims.power import power, smallest_difference
from fedkit.claims.tables import (
    by_paper,
    claims_table,
    comparison_table,
    summary,
    terminal_table,
    with_verdict,
)
from fedkit.intervals import mean_interval
from fedkit.papers.claims import claims_papers, load_claims
from fedkit.records.store import Cell, Store

FEDOWEN = load_claims("fedowen")


def _save(
    store: Store, method: str, accuracy: list[float], profile: str = "paper", **change: object
) -> None:
    settings = {
        "method": method, "dataset": "mnist", "data": "mnist", "alpha": 0.05, "imbalance": 0.01,
        "clients": 100, "rounds": 100, "levels": 2, "epsilon": 0.1, **change,
    }  # fmt: skip
    cell = Cell(profile, "fedowen", "table1", settings, tuple(range(len(accuracy))))
    results = [
        {"seed": s, "metrics": {"accuracy": a, "calls": 40.0}} for s, a in enumerate(accuracy)
    ]
    store.save(cell, results, {})


VALUE = "fedowen.t1.mnist.a0.05.fedowen"  # printed: 88.12
ORDER = "fedowen.o1.mnist.a0.05.vs-fedavg"  # printed: +4.38


def _rows(store: Store, profile: str = "paper") -> dict[str, dict]:
    frame = join(load_claims("fedowen"), store, profile=profile)
    assert list(frame.columns) == COLUMNS
    assert set(frame["verdict"]) <= set(VERDICTS)
    assert len(frame) == len(FEDOWEN.claims)
    return {row["claim"]: row for row in frame.to_dict("records")}


def test_join_of_an_empty_store(tmp_path: Path) -> None:
    rows = _rows(Store(tmp_path))
    assert rows[VALUE]["verdict"] == NOT_ATTEMPTED
    assert rows[VALUE]["command"].startswith("fedkit run fedowen table1 --profile paper --only ")
    assert rows["fedowen.t1.medmnist.a0.05.fedowen"]["verdict"] == NOT_TESTABLE
    assert rows["fedowen.not-best"]["verdict"] == REPRODUCED
    for name in ("worst", "best", "fedavg", "mean"):
        assert rows[f"fedowen.gain.relative.{name}"]["verdict"] == NOT_REPRODUCED
    # Algorithm 1's statements about itself, on exact games.
    for name in ("unbiased", "consistent", "truncation"):
        assert rows[f"fedowen.{name}"]["verdict"] == NOT_REPRODUCED
        assert rows[f"fedowen.{name}"]["mean"] > 0.01


def test_join_judges_the_paper_profile(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.0, 88.2, 88.4])
    _save(store, "fedavg", [83.9, 84.0, 84.2, 90.0])  # the fourth seed has no partner
    rows = _rows(store)
    assert rows[VALUE]["verdict"] == REPRODUCED
    assert rows[VALUE]["seeds"] == 3
    assert rows[VALUE]["mean"] == pytest.approx(88.2)
    assert rows[VALUE]["difference"] == pytest.approx(0.08)
    assert rows[VALUE]["stale"]
    assert rows[ORDER]["seeds"] == 3
    assert rows[ORDER]["mean"] == pytest.approx(np.mean([4.1, 4.2, 4.2]))
    assert rows[ORDER]["verdict"] == REPRODUCED
    assert rows["fedowen.budget.fedowen"]["verdict"] == REPRODUCED
    assert rows["fedowen.o1.mnist.a0.05.vs-mc"]["verdict"] == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("profile", "change", "word"),
    [
        ("smoke", {}, "profile smoke"),
        ("laptop", {}, "profile laptop"),
        ("paper", {"data": "digits"}, "run on digits"),
        ("paper", {"rounds": 40}, "rounds 40, the paper has 100"),
    ],
)
def test_other_runs_are_shown_and_never_judged(
    tmp_path: Path, profile: str, change: dict[str, object], word: str
) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.1, 88.1, 88.2], profile, **change)
    _save(store, "fedavg", [83.7, 83.8, 83.7], profile, **change)
    rows = _rows(store, profile)
    for name in (VALUE, ORDER):
        assert rows[name]["verdict"] == NOT_JUDGED
        assert word in rows[name]["note"]
        assert math.isfinite(rows[name]["mean"])


def test_reduced_runs_are_judged_where_that_is_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.1, 88.1, 88.2], profile="laptop")
    assert _rows(store, "laptop")[VALUE]["verdict"] == NOT_JUDGED
    judged = join(load_claims("fedowen"), store, profile="laptop", scale="laptop").set_index(
        "claim"
    )
    assert judged.loc[VALUE, "verdict"] == REPRODUCED
    assert (
        join(load_claims("fedowen"), store, scale="laptop").set_index("claim").loc[VALUE].seeds == 0
    )


def test_sentences_name_methods_as_people_do() -> None:
    claims = load_claims("fedtsv")
    assert (
        claims["fedtsv.best.cgsv.cifar10"].says == "FedTSV consistently surpasses CGSV (CIFAR-10)"
    )
    assert claims["fedtsv.best.cgsv.cifar10"].ours["settings"]["dataset"] == "cifar10"


def test_records_of_two_settings_are_ambiguous(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.1, 88.1, 88.2], lr=0.1)
    _save(store, "fedowen", [88.1, 88.1, 88.2], lr=0.2)
    with pytest.raises(ClaimsError, match=r"differ in \['lr'\]"):
        join(load_claims("fedowen"), store)


def test_trends_and_rankings(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rng = np.random.default_rng(0)
    methods = list(FEDOWEN.tables["t1"].rows)
    for column in FEDOWEN.tables["t1"].columns:
        if column["dataset"] == "mnist":
            for rank, method in enumerate(methods):
                numbers = 70 + 30 * column["alpha"] + 2 * rank + rng.normal(0, 0.1, size=4)
                _save(store, method, numbers.tolist(), alpha=column["alpha"])
    rows = _rows(store)
    assert rows["fedowen.ranking"]["mean"] == pytest.approx(1)
    assert rows["fedowen.ranking"]["verdict"] == REPRODUCED
    trend = rows["fedowen.heterogeneity.mnist"]
    levels = np.log10([0.01, 0.05, 0.1])
    assert trend["mean"] == pytest.approx(np.polyfit(levels, [0.3, 1.5, 3.0], 1)[0], abs=0.3)
    assert trend["verdict"] == REPRODUCED
    assert rows["fedowen.levels.gain.mnist"]["verdict"] == NOT_ATTEMPTED


def test_the_interval_of_a_percentage_stays_within_0_and_100(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [99.9, 95.0, 99.0])
    _save(store, "fedavg", [0.0, 4.0, 0.2], alpha=0.1)
    _save(store, "fedavg", [99.0, 94.9, 91.0])
    rows = _rows(store)
    assert rows[VALUE]["high"] == 100.0
    assert 0 < rows[VALUE]["low"] < 95
    assert rows["fedowen.t1.mnist.a0.1.fedavg"]["low"] == 0.0
    assert rows[ORDER]["low"] < 0 < rows[ORDER]["mean"]  # a difference, in points


@pytest.mark.parametrize(
    ("unit", "values", "low", "high"),
    [
        ("probability", [0.99, 1.0], 0.0, 1.0),
        ("probability", [0.99, 1.2], -math.inf, math.inf),  # this is none
        ("% of the weight", [2.0, 90.0], 0.0, 100.0),
        ("points", [0.5, 0.9], -math.inf, math.inf),
    ],
)
def test_the_interval_of_a_probability_stays_within_0_and_1(
    unit: str, values: list[float], low: float, high: float
) -> None:
    claim = replace(load_claims("fedtsv").claims[0], unit=unit)
    plain = mean_interval(values)
    found = comparing._interval(claim, np.array(values))
    assert (found.low, found.high) == (max(plain.low, low), min(plain.high, high))


@pytest.mark.parametrize("paper", claims_papers())
def test_no_two_claims_of_a_paper_are_printed_under_the_same_name(paper: str) -> None:
    claims = load_claims(paper).claims
    frame = pd.DataFrame(
        {"says": [c.says for c in claims], "paper": [c.paper_value for c in claims]}
    ).assign(mean=np.nan, seeds=0, stale=False, verdict=NOT_ATTEMPTED, also_fits=np.nan)
    longest = int(frame["says"].str.len().max())
    names = [line[:longest] for line in terminal_table(frame, None).splitlines()[1:]]
    assert len(names) == len(claims)
    assert sorted({n for n in names if names.count(n) > 1}) == []


def test_claims_say_when_they_were_written() -> None:
    tsv = load_claims("fedtsv")
    assert tsv["fedtsv.best.cgsv.mnist"].after_runs == ""
    assert tsv["fedtsv.long"].after_runs == "added"
    assert tsv["fedtsv.loo-scattered"].after_runs.startswith("reworded")
    assert "fitted" in load_claims("fedms")["fedms.t1.dir10.mnist.poc"].after_runs
    assert not load_claims("fedms")["fedms.t1.dir10.mnist.fedprox"].after_runs
    assert not load_claims("fedms")["fedms.t1.dir1.mnist.poc"].after_runs
    assert all(c.after_runs for c in load_claims("fedms").select("fedms.t2"))
    line = claims_table(join(tsv, Store(Path("nowhere"))).iloc[[-1]])
    assert "[after the runs: added after the runs on MNIST]" in line


def test_a_tick_says_which_other_rows_it_fits(tmp_path: Path) -> None:
    """By hand: 88.2 with a half-width of 0.55 is within 2 points of 88.14, 87.05 and 86.8 ..."""
    store = Store(tmp_path)
    _save(store, "fedowen", [88.0, 88.2, 88.4])
    row = _rows(store)[VALUE]
    half = 4.302652729911275 * 0.2 * math.sqrt(1 / 3 + 1 / 10)
    printed = [float(r[4]) for name, r in FEDOWEN.tables["t1"].rows.items() if name != "fedowen"]
    assert row["also_fits"] == sum(abs(88.2 - p) + half <= 2 for p in printed) == 2
    assert row["other_rows"] == 6
    frame = join(load_claims("fedowen"), store)
    assert "also fits 2 of 6 other rows" in comparison_table(frame, "t1", dataset="mnist")
    counts = by_paper({"fedowen": frame})["fedowen"]
    assert counts["of reproduced cells that have other rows"] == 2  # it stands in Table 3 as well
    assert counts["reproduced by construction"] > 0
    exact = frame[frame["claim"] == "fedowen.not-best"].iloc[0]
    assert exact["by_construction"]
    assert math.isnan(exact["also_fits"])


def test_what_single_cells_leave_open_is_pooled(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(1)
    columns = [c for c in FEDOWEN.tables["t1"].columns if c["dataset"] == "mnist"]
    for number, (column, off) in enumerate(zip(columns, (0.0, 1.0, -1.0), strict=True)):
        shared = rng.normal(0, 3, size=5)  # a seed's luck, which pairs take out
        for method, line in FEDOWEN.tables["t1"].rows.items():
            value = float(line[FEDOWEN.tables["t1"].columns.index(column)])
            gain = off if method == "fedowen" else 0.0
            numbers = value + gain + shared + rng.normal(0, 0.01, size=5)
            _save(store, method, numbers.tolist(), alpha=column["alpha"])
        rows = _rows(store)
        name = "fedowen.p1.mnist.vs-fedavg"
        if number < 2:
            assert rows[name]["verdict"] == NOT_JUDGED
            assert rows[name]["note"] == f"{number + 1} of 3 settings on record"
    assert rows[name]["paper"] == "+4.273"  # (7.17 + 4.38 + 1.27) / 3
    assert rows[name]["mean"] == pytest.approx(4.273, abs=0.02)
    assert rows[name]["verdict"] == REPRODUCED
    assert rows["fedowen.k1.mnist"]["mean"] > 0.7
    assert rows["fedowen.k1.mnist"]["verdict"] == REPRODUCED


def test_changes_are_told_apart_by_rule_and_by_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.0, 88.2, 88.4])
    frame = join(load_claims("fedowen"), store)
    keep_verdicts({"fedowen": frame}, tmp_path)
    assert set(changes({"fedowen": frame}, tmp_path)["because"]) == {""}
    other = frame.copy()
    other.loc[other["claim"] == VALUE, "verdict"] = NOT_REPRODUCED
    moved = other["claim"] == "fedowen.t3.mnist.a0.05.adaptive-0.01"
    other.loc[moved, ["verdict", "mean"]] = [NOT_REPRODUCED, 70.0]
    because = changes({"fedowen": other}, tmp_path).set_index("claim")["because"]
    assert because[VALUE] == "rule"
    assert because["fedowen.t3.mnist.a0.05.adaptive-0.01"] == "runs"
    text = changes_table(changes({"fedowen": other}, tmp_path))
    assert "| ✓ reproduced | ✗ not reproduced | the rules | 1 |" in text
    with pytest.raises(ValueError, match="fedkit compare --keep"):
        changes({"fedowen": frame}, tmp_path / "elsewhere")


def test_power_counts_what_the_seeds_can_decide(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.0, 88.2, 88.4])  # s = 0.2
    _save(store, "fedavg", [80.0, 84.0, 88.4])  # no margin of 2 is in reach of three seeds
    table = power(join(load_claims("fedowen"), store)).set_index("table")
    cells = table.loc["fedowen.t1"]
    assert (cells["cells"], cells["seeds"], cells["decided"]) == (2, 3, 1)
    assert table.loc["fedowen.o1", "needed"] == pytest.approx(4.38)
    # t quantiles of two degrees of freedom, by a table: 4.303 and 1.061
    assert smallest_difference(1.0, 3) == pytest.approx((4.303 + 1.061) / math.sqrt(3), abs=1e-3)


def test_a_protocol_may_accept_several_readings(tmp_path: Path) -> None:
    store, settings = Store(tmp_path), {"method": "tsv", "dataset": "mnist", "data": "mnist"}
    for utility in ("rational", "angular"):
        cell = Cell("paper", "fedtsv", "study", {**settings, "utility": utility}, tuple(range(5)))
        told = [{"seed": k, "metrics": {"told.iid-malicious": 0.98 + k / 500}} for k in range(5)]
        store.save(cell, told, {})
    found = join(load_claims("fedtsv"), store).set_index("claim")
    by = {
        u: found.loc[f"fedtsv.separates-weights-{u}.iid-malicious"] for u in ("rational", "angular")
    }
    assert by["rational"].verdict == REPRODUCED
    assert by["angular"].verdict == NOT_JUDGED
    assert by["angular"]["mean"] == pytest.approx(0.984)
    assert by["angular"].note.startswith("run with utility angular, its readings are exponential,")


def test_tables_for_a_page(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _save(store, "fedowen", [88.0, 88.2, 88.4])
    frame = join(load_claims("fedowen"), store)
    table = comparison_table(frame, "t1", dataset="mnist")
    lines = table.splitlines()
    assert lines[0] == "| paper / ours / verdict | alpha 0.01 | alpha 0.05 | alpha 0.1 |"
    assert len(lines) == 2 + 7
    assert "88.12<br>88.20 [87.70, 88.70], n = 3 †<br>✓ reproduced" in lines[-1]
    assert "not attempted (cost)" in lines[2]
    with pytest.raises(ValueError, match="tables are"):
        comparison_table(frame, "t9")
    text = claims_table(frame[frame["claim"] == VALUE], commands=True)
    assert "`fedkit run fedowen table1" in text
    assert "✓ reproduced" in text
    assert set(with_verdict(frame, "Not attempted")["verdict"]) == {NOT_ATTEMPTED}
    assert list(with_verdict(frame, "reproduced")["claim"].isin([VALUE])).count(True) == 1
    with pytest.raises(ValueError, match="names no verdict; choose one of: reproduced; "):
        with_verdict(frame, "wrong")
    narrow, wide = (terminal_table(frame, width).splitlines() for width in (20, 1000))
    assert len(narrow) == len(wide) == len(frame) + 1
    assert len({line.index(" ✓") for line in narrow if " ✓" in line}) == 1  # aligned
    assert any(line.startswith("t1.mnist") for line in narrow)  # an id in the place of a sentence
    assert len({line.split()[0] for line in narrow}) == len(narrow)
    assert not any(line.startswith("t1.") for line in wide)
    assert terminal_table(frame, None).splitlines() == wide
    counts = summary(frame)
    assert counts.to_numpy().sum() == len(frame)
    assert [name.split(" ", 1)[1] for name in counts.columns] == list(VERDICTS)


TOY = """
paper: {key: toy, seeds: 5}
experiments: {e: {metrics: "accuracy mean(accuracy)", methods: a b c, settings: method x}}
tables:
  - id: t
    where: Table 1
    unit: "%"
    transcription: {by: hand}
    columns: {x: [1, 2]}
    ours: {experiment: e, metric: accuracy}
    test: {rule: value, margin: 2}
    rows: {b: 50 65, a: 60 70, c: 55 40}
pooled:
  - {id: most, table: t, row: a, by: [], unit: share, says: s, test: {rule: best_share, bound: 0.5}}
stars:
  - {id: s, table: t, row: a, unit: "%", says: "a over {against}, p < {p}", marks: "** -",
     test: {rule: ordering, sign: 1, margin: 1}}
claims:
  - {id: m, where: w, says: s, kind: bound, paper_value: null, test: {rule: at_least, bound: 15},
     ours: {experiment: e, metric: mean(accuracy), settings: {method: a, x: 1}}}
"""


def test_shares_of_best_columns_stars_and_means_of_series(tmp_path: Path) -> None:
    store, claims = Store(tmp_path), parse_claims(TOY)
    # in the second column b overtakes a with two of five seeds
    ahead = {("a", 1): [60] * 5, ("b", 1): [50] * 5, ("c", 1): [50, 51, 52, 50, 51]}
    ahead |= {("a", 2): [60] * 5, ("b", 2): [50, 50, 50, 70, 70], ("c", 2): [1] * 5}
    for (method, x), accuracy in ahead.items():
        results = [
            {"seed": k, "metrics": {"accuracy": v}, "series": {"accuracy": [10, 20, 30 + k]}}
            for k, v in enumerate(accuracy)
        ]
        store.save(Cell("paper", "toy", "e", {"method": method, "x": x}, tuple(range(5))), results)
    rows = join(claims, store).set_index("claim")
    assert rows.loc["toy.most", "values"] == (1.0, 1.0, 1.0, 0.5, 0.5)
    assert rows.loc["toy.most", "verdict"] == "inconclusive"  # 0.8, from 0.46 on
    assert [name for name in rows.index if ".s." in name] == ["toy.s.x1"]
    assert rows.loc["toy.s.x1", "says"] == "a over c, p < 0.05"  # the second best as printed
    assert claims["toy.s.x1"].test["level"] == 0.95
    assert rows.loc["toy.s.x1", "values"] == (10, 9, 8, 10, 9)
    assert rows.loc["toy.m", "mean"] == pytest.approx(20 + 2 / 3)
    assert rows.loc["toy.m", "verdict"] == REPRODUCED
