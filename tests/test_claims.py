"""Claims: every printed number once, every claim a rule, every verdict from the list."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedkit.claims.claim import Claim, ClaimsError, parse_claims
from fedkit.claims.join import join
from fedkit.claims.printed import printed_statistic
from fedkit.claims.tables import claims_table
from fedkit.intervals import kendalls_tau, kendalls_w
from fedkit.papers.claims import claims_papers, load_claims
from fedkit.papers.registry import get
from fedkit.records.cell import PROFILES
from fedkit.records.store import Store

FEDOWEN = load_claims("fedowen")

# ------------------------------------------------------------------- transcription

# Sum of a row, and sum of place x number, of the numbers as a program read them from the text.
SUMS = {
    ("t1", "fedavg"): (656.74, 4702.31),
    ("t1", "mc"): (714.86, 5108.84),
    ("t1", "gtg"): (674.37, 4824.89),
    ("t1", "banzhaf"): (688.89, 4924.47),
    ("t1", "weightedshap"): (694.2, 4980.8),
    ("t1", "shapfed"): (661.5, 4742.58),
    ("t1", "fedowen"): (729.73, 5220.11),
    ("t2", "fedavg"): (707.33, 5092.78),
    ("t2", "mc"): (760.28, 5440.65),
    ("t2", "gtg"): (727.62, 5231.49),
    ("t2", "banzhaf"): (735.37, 5262.88),
    ("t2", "weightedshap"): (740.0, 5308.77),
    ("t2", "shapfed"): (713.41, 5134.9),
    ("t2", "fedowen"): (773.21, 5550.12),
    ("t3", "no-adaptive-0.01"): (689.53, 4875.34),
    ("t3", "adaptive-0.01"): (729.73, 5220.11),
    ("t3", "no-adaptive-0.05"): (737.65, 5288.14),
    ("t3", "adaptive-0.05"): (773.21, 5550.12),
}


@pytest.mark.parametrize(("table", "row"), SUMS)
def test_rows_add_up(table: str, row: str) -> None:
    numbers = [float(text) for text in FEDOWEN.tables[table].rows[row]]
    weighted = sum(place * number for place, number in enumerate(numbers, start=1))
    assert (round(sum(numbers), 2), round(weighted, 2)) == SUMS[table, row]


def test_every_printed_number_has_one_claim() -> None:
    assert {(t.id, row) for t in FEDOWEN.tables.values() for row in t.rows} == set(SUMS)
    counts = Counter(c.place["table"] for c in FEDOWEN.select(kind="value"))
    assert counts == {"t1": 105, "t2": 105, "t3": 60}
    ids = [claim.id for claim in FEDOWEN.claims]
    assert len(ids) == len(set(ids))
    claim = FEDOWEN["fedowen.t1.fashionmnist.a0.01.fedowen"]
    assert claim.paper_value == "69.79"
    assert claim.where == "Table 1, row fedowen, fashionmnist, alpha 0.01"
    assert claim.ours["experiment"] == "table1"
    assert claim.ours["settings"] == {
        "method": "fedowen", "dataset": "fashionmnist", "alpha": 0.01, "imbalance": 0.01
    }  # fmt: skip
    assert FEDOWEN["fedowen.t3.medmnist.a0.1.no-adaptive-0.01"].paper_value == "38.1"  # as printed


def test_table_3_repeats_tables_1_and_2() -> None:
    tables = FEDOWEN.tables
    for table, imbalance in (("t1", "0.01"), ("t2", "0.05")):
        assert tables["t3"].rows[f"adaptive-{imbalance}"] == tables[table].rows["fedowen"]
        for column in tables[table].columns:
            name = f"{column['dataset']}.a{column['alpha']}"
            one = FEDOWEN[f"fedowen.{table}.{name}.fedowen"]
            two = FEDOWEN[f"fedowen.t3.{name}.adaptive-{imbalance}"]
            assert (one.ours, one.paper_value) == (two.ours, two.paper_value)


def test_every_claim_is_declared_in_full() -> None:
    for claim in FEDOWEN.claims:
        rule = claim.test["rule"]
        if rule in ("value", "ordering", "slope", "taper"):
            assert claim.test["margin"] > 0, claim.id
            assert claim.test["min_seeds"] >= 3, claim.id
        if claim.kind == "value":
            assert claim.paper_seeds == 10
        if rule == "ordering":
            assert claim.against is not None
            assert claim.family
        if rule == "ordering" and claim.place["table"] != "words":
            assert claim.paper_value is not None
            assert claim.paper_value[0] in "+-"


def test_medmnist_cannot_be_tested() -> None:
    named = [c for c in FEDOWEN.claims if "medmnist" in c.id]
    assert len(named) > 50
    assert all("which MedMNIST" in c.untestable for c in named)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: 1 2", "2 numbers for 3 columns"),
        ("a: 1 2 x", "no numbers"),
    ],
)
def test_bad_tables_are_refused(text: str, word: str) -> None:
    source = f"""
    paper: {{key: toy}}
    tables:
      - id: t
        where: Table 9
        unit: "%"
        transcription: {{by: hand}}
        columns: {{alpha: [1, 2, 3]}}
        ours: {{experiment: e, metric: m}}
        test: {{rule: value, margin: 1}}
        rows: {{ {text} }}
    """
    with pytest.raises(ClaimsError, match=word):
        parse_claims(source)


def test_bad_claims_are_refused() -> None:
    good = {"id": "x", "where": "a", "says": "b", "kind": "value", "paper_value": "1", "unit": ""}
    with pytest.raises(ClaimsError, match="kind 'guess'"):
        Claim(**{**good, "kind": "guess"}, ours={}, test={"rule": "value"})  # type: ignore[arg-type]
    with pytest.raises(ClaimsError, match="rule 'looks good'"):
        Claim(**good, ours={}, test={"rule": "looks good"})  # type: ignore[arg-type]
    bound = {**good, "kind": "bound", "ours": {}}
    with pytest.raises(ClaimsError, match="a printed number or a bound of ours"):
        Claim(**{**bound, "paper_value": None}, test={"rule": "at_most"})  # type: ignore[arg-type]
    with pytest.raises(ClaimsError, match="a printed number or a bound of ours"):
        Claim(**bound, test={"rule": "at_most", "bound": 2})  # type: ignore[arg-type]
    with pytest.raises(ClaimsError, match="no claims file"):
        load_claims("nobody2020")


def test_a_bound_of_ours_does_not_pass_for_a_printed_number(tmp_path: Path) -> None:
    """It judges, and stands with the rule."""
    row = (
        join(load_claims("fedowen"), Store(tmp_path))
        .set_index("claim")
        .loc["fedowen.ranking.printed"]
    )
    assert pd.isna(row["paper"])
    assert math.isnan(row["difference"])
    assert "bound 0.7" in row["rule"]
    assert row["verdict"] in ("reproduced", "not reproduced")
    line = claims_table(row.to_frame().T)
    assert "| not printed |" in line
    printed = (
        join(load_claims("fedowen"), Store(tmp_path)).set_index("claim").loc["fedowen.shortfall"]
    )
    assert printed["paper"] == "0.5"
    assert math.isfinite(printed["difference"])


# ------------------------------------------------------------------- the paper's own tables


def _matrix(table: str) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in FEDOWEN.tables[table].rows.values()])


def test_statistics_of_the_printed_tables() -> None:
    both = np.concatenate([_matrix("t1"), _matrix("t2")], axis=1)
    ours, others = both[-1], both[:-1]

    def gain(**test: object) -> float:
        return printed_statistic(FEDOWEN, {"statistic": "max_gain", **test})

    assert gain(against="worst", relative=True) == pytest.approx(
        100 * (ours / others.min(axis=0)).max() - 100
    )
    assert gain(against="best", relative=False) == pytest.approx((ours - others.max(axis=0)).max())
    assert gain(against="mean", relative=False) == pytest.approx((ours - others.mean(axis=0)).max())
    assert gain(against="fedavg", relative=True) == pytest.approx(
        100 * (ours / both[0]).max() - 100
    )
    not_best = np.flatnonzero(ours < others.max(axis=0))
    statistic = printed_statistic(FEDOWEN, {"statistic": "columns_not_best"})
    assert statistic == len(not_best)
    # By hand: Table 1, MNIST, 0.05 (column 4) and Table 2, CIFAR-10, 0.1 (column 15 + 11).
    assert not_best.tolist() == [4, 26]
    assert printed_statistic(FEDOWEN, {"statistic": "largest_shortfall"}) == pytest.approx(0.31)
    claims = load_claims("fedms")
    best = {"statistic": "columns_best", "table": "t1", "row": "fedms"}
    assert printed_statistic(claims, best) == 4  # not CIFAR-10 under Dir(10), MNIST under Dir(0.1)
    value = load_claims("fedvalue")
    exceeds = dict(value["fedvalue.percent.exceeds"].test)
    by_hand = (0.016 / 0.714) / (0.010 / 0.734) - 1
    assert printed_statistic(value, exceeds) == pytest.approx(100 * by_hand)
    with pytest.raises(ClaimsError, match="statistic 'vibes'"):
        printed_statistic(FEDOWEN, {"statistic": "vibes"})


def test_kendalls_tau() -> None:
    rng = np.random.default_rng(4)
    scores, reference = rng.integers(0, 5, size=(3, 7)), rng.integers(0, 5, size=7)  # with ties
    expected = [stats.kendalltau(line, reference).statistic for line in scores]
    assert kendalls_tau(scores, reference) == pytest.approx(expected)
    assert kendalls_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendalls_tau([3, 2, 1], [10, 20, 30]) == -1


def test_kendalls_w() -> None:
    assert kendalls_w([[1, 2, 3, 4], [10, 20, 30, 40]]) == 1
    assert kendalls_w([[1, 2, 3], [3, 2, 1]]) == 0
    assert kendalls_w([[1, 1, 3], [5, 5, 9], [2, 2, 4]]) == pytest.approx(1)  # ties agree too
    scores = np.random.default_rng(3).normal(size=(5, 7))
    pairs = [stats.spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert kendalls_w(scores) == pytest.approx((4 * np.mean(pairs) + 1) / 5)  # textbook identity
    assert kendalls_w(np.stack([scores, scores])).shape == (2,)


# ------------------------------------------------------------------- spelling


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("metric: accuracy}", "metric: acuracy}", "table1 has no 'acuracy'"),
        ("experiment: table1,", "experiment: tabel1,", "names the experiment 'tabel1'"),
        ("imbalance: 0.01}", "imbalanse: 0.01}", "has no 'imbalanse'; its settings are"),
        ("  fedavg: 1", "  fedavgg: 1", "has no 'fedavgg'; its methods are"),
        ("margin: 2", "margim: 2", "the rule of toy.t.a1.fedavg has ['margim']"),
        (", margin: 2", "", "lacks ['margin']"),
        ("margin: 2", "margin: two", "margin of toy.t.a1.fedavg is 'two'; it is a number"),
        ("unit:", "units:", "tables: t has ['units']"),
        ("tables:", "table:", "the claims file has ['table']"),
        ("ours:", "by_chance: 1\n    ours:", "has ['by_chance']"),
    ],
)
def test_what_is_misspelt_is_refused(old: str, new: str, word: str) -> None:
    source = """
paper: {key: toy}
experiments: {table1: {metrics: accuracy, methods: fedavg, settings: method a imbalance}}
tables:
  - id: t
    where: Table 9
    unit: "%"
    transcription: {by: hand}
    columns: {a: [1, 2]}
    settings: {imbalance: 0.01}
    ours: {experiment: table1, metric: accuracy}
    test: {rule: value, margin: 2}
    rows:
      fedavg: 1 2
"""
    assert old in source
    assert len(parse_claims(source).claims) == 2
    with pytest.raises(ClaimsError, match=re.escape(word)):
        parse_claims(source.replace(old, new))


@pytest.mark.parametrize("paper", claims_papers())
def test_the_names_of_a_claims_file_are_those_of_its_experiments(paper: str) -> None:
    """Settings and methods are those of cells; metrics, where there are records, of these."""
    store = Store()
    for name, known in load_claims(paper).experiments.items():
        cells = [c for p in PROFILES for c in get(paper, name).cells(p, None)]
        # "cost" is a column of FedCCEA's Table 2, which no run has
        assert known["settings"] - {"cost"} <= {key for c in cells for key in c.settings}
        methods = {c.settings.get("method") for c in cells}
        assert known.get("methods", set()) - methods <= {"fedowen-no-adaptive", *_ELSEWHERE}
        frames = [store.frame(paper, name, profile) for profile in PROFILES]
        metrics = {m for f in frames if len(f) for m in f["metric"]}
        plain = {m for m in known["metrics"] if not m.startswith("mean(")}
        if metrics and paper != "fedms":
            assert plain <= metrics, name


#: methods of FedOwen that the shared list of its experiments gives to those without them
_ELSEWHERE = {"fedavg", "mc", "gtg", "banzhaf", "weightedshap", "shapfed", "fedowen"}
_ELSEWHERE |= {"cgsv", "cgsv-raw", "loo", "loo-loss", "tsv"}
