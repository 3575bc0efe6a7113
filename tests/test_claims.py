"""Claims files: every printed number once and as printed, every claim a rule, nothing misspelt."""

import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduction.claims import ClaimsError, claims_papers, load_claims, rules
from reproduction.experiments import all_experiments, get, keep
from reproduction.records import PROFILES, Store
from reproduction.tables import claims_table
from reproduction.verdicts import RULES, _command, join
from tests.claimfiles import claims_in

CLAIMS = {paper: load_claims(paper) for paper in claims_papers()}
FEDOWEN = CLAIMS["fedowen"]

# ------------------------------------------------------------------- transcription

#: by paper, table and row: the sum of the numbers, of place x number, and of place x spread where
#: spreads are printed, as a second program read them from the text
SUMS = pd.read_csv(Path(__file__).with_name("printed_sums.csv")).set_index(["paper", "table"])


@pytest.mark.parametrize(("paper", "table"), SUMS.index.unique())
def test_rows_add_up(paper, table):
    printed, sums = CLAIMS[paper].tables[table], SUMS.loc[[(paper, table)]].set_index("row")
    assert set(printed.rows) == set(sums.index)
    for row, expected in sums.iterrows():
        numbers = [float(text) for text in printed.rows[row]]
        spreads = [float(text) for text in printed.spreads.get(row, ())]
        place = np.arange(1, len(numbers) + 1)
        found = [sum(numbers), place @ numbers, place @ spreads if spreads else 0]
        assert np.round(found, 3)[: expected.count()].tolist() == expected.dropna().tolist(), row


def test_every_printed_number_has_one_claim():
    for paper, claims in CLAIMS.items():
        found = Counter(
            c.place["table"] for c in claims.claims if c.place["table"] in claims.tables
        )
        rows = SUMS.loc[[paper]].groupby("table").size() if paper in SUMS.index else {}
        assert found == {t: n * len(claims.tables[t].columns) for t, n in rows.items()}
    spreads = {t for t, table in CLAIMS["fedvalue"].tables.items() if table.spreads}
    assert spreads == {"t5", "t6", "t7", "t8"}
    numbers = {c.id: c.number for c in CLAIMS["fedtsv"].claims if c.rule == "value"}
    assert numbers == {"fedtsv.fedavg.mnist": 75.0, "fedtsv.fedavg.cifar10": 65.0}


def test_numbers_that_are_printed_twice_agree():
    assert FEDOWEN["fedowen.t3.medmnist.a0.1.no-adaptive-0.01"].paper_value == "38.1"  # as printed
    for table, imbalance in (("t1", "0.01"), ("t2", "0.05")):
        for column in FEDOWEN.tables[table].columns:
            name = f"{column['dataset']}.a{column['alpha']}"
            one = FEDOWEN[f"fedowen.{table}.{name}.fedowen"]
            two = FEDOWEN[f"fedowen.t3.{name}.adaptive-{imbalance}"]
            assert one.paper_value == two.paper_value
    fedccea = CLAIMS["fedccea"].tables  # each reading is held to what is printed of FedCCEA
    assert {*fedccea["r3"].rows.values()} == {fedccea["t3"].rows["fedccea"]}
    fedvalue = CLAIMS["fedvalue"]  # shares of 108 bars
    above = [fedvalue[f"fedvalue.correlations-above-{level}"].number for level in (70, 80)]
    assert above == [round(100 * n / 108, 1) for n in (99, 71)]


# ------------------------------------------------------------------- declarations


def test_claims_say_when_they_were_written():
    rows = join(CLAIMS["fedtsv"], Store(Path("nowhere")))
    line = claims_table(rows[rows["claim"] == "fedtsv.fluctuates.tsv"])
    assert "[after the runs: added after the runs on MNIST]" in line


@pytest.mark.parametrize("paper", claims_papers())
def test_no_two_claims_of_a_paper_are_printed_under_the_same_name(paper):
    said = Counter(claim.says for claim in CLAIMS[paper].claims)
    assert [text for text, times in said.items() if times > 1] == []


def _places(claims):
    """Yield the places of our numbers that a paper's claims name."""
    for claim in claims.claims:
        for side in (claim.ours, claim.against or {}):
            for name in side.get("experiments", [side.get("experiment")]):
                if name and "pooled" not in side:
                    yield {**side, "experiment": name}


@pytest.mark.parametrize("paper", claims_papers())
def test_a_claim_asks_for_what_the_experiments_of_its_paper_have(paper):
    """A misspelt setting, method, data set or metric would have no record, and no verdict."""
    claims, store = CLAIMS[paper], Store()
    cells = {
        e.name: [c for p in PROFILES for c in e.cells(p, None)] for e in all_experiments(paper)
    }
    frames = {name: [store.frame(paper, name, p) for p in PROFILES] for name in cells}
    metrics = {n: {m for f in there if len(f) for m in f["metric"]} for n, there in frames.items()}
    sets = {c.settings.get("dataset") for there in cells.values() for c in there}
    methods = {c.settings.get("method") for there in cells.values() for c in there}
    methods |= {"fedowen-no-adaptive"}  # a row of Table 3
    assert set(claims.data) <= sets
    for place in _places(claims):
        settings = {**place.get("settings", {}), **place.get("sweep", {})}
        settings.pop("cost", None)  # a column of FedCCEA's Table 2, which no run has
        there = cells[place["experiment"]]
        assert set(settings) <= {name for c in there for name in c.settings}, place
        assert {settings.get("method"), *place.get("methods", [])} - {None} <= methods, place
        recorded = metrics[place["experiment"]]
        assert "(" in place["metric"] or not recorded or place["metric"] in recorded, place


def test_every_rule_has_a_reason_and_every_margin_a_rule():
    declared = {key for key, row in rules().items() if len(row["reason"]) > 20}
    assert declared == set(rules())
    used = {
        (paper, claim.test["named"])
        for paper, claims in CLAIMS.items()
        for claim in claims.claims
        if claim.rule in RULES and claim.rule != "exact"
    }
    assert used == declared
    sized = {"value", "ordering", "mean_gain"}
    for claims in CLAIMS.values():
        for claim in claims.claims:
            if claim.rule in sized and claim.paper_value is not None:
                assert claim.test["margin"] > 0, claim.id


@pytest.mark.parametrize("paper", claims_papers())
def test_the_protocol_of_a_claims_file_is_that_of_the_papers_cells(paper):
    """Else no record would be judged."""
    claims = CLAIMS[paper]
    names = {place["experiment"] for place in _places(claims)}
    cells = [c for name in names for c in get(paper, name).cells("paper", None)]
    for data in claims.data or [None]:
        protocol = {
            k: v if isinstance(v, list) else [v[data]] if isinstance(v, dict) else [v]
            for k, v in claims.protocol.items()
        }
        here = [c for c in cells if c.settings.get("dataset", data) == data]
        here = [c for c in here if protocol.keys() & c.settings.keys()]  # else it asks for nothing
        assert not here or any(
            all(k in c.settings and c.settings[k] in readings for k, readings in protocol.items())
            for c in here
        )
    assert cells


@pytest.mark.parametrize("paper", claims_papers())
def test_the_command_of_a_claim_finds_its_cells(paper):
    """As the shell hands it over; where nothing can be tested there may be none."""
    claims = CLAIMS[paper]
    for command in {_command(c, claims, "paper") for c in claims.claims if not c.untestable}:
        program, verb, _, *rest = shlex.split(command)
        assert program == "fedkit"
        if verb == "compare":
            continue
        experiment, _, _, *only = rest
        found = []
        for profile in PROFILES:
            cells = get(paper, experiment).cells(profile, None)
            try:
                for pair in only[1].split(",") if only else ():
                    cells = keep(cells, *pair.split("="))
            except ValueError:
                cells = []
            found += cells
        assert len(only) in (0, 2), command
        assert found, command


# ------------------------------------------------------------------- a file of claims

TOY = """
paper: {key: toy, seeds: 3}
untestable: {v: nobody can, "3": nor this}
names: {slow: slowly}
tables:
  - id: t
    where: Table 1
    unit: "%"
    columns: [x, y]
    settings: {dataset: mnist}
    ours: {experiment: e, metric: "m.{y}"}
    test: {rule: value of rates, margin: 2}
    row_lookup: {c: {metric: n, settings: {method: d}}}
    row_test: {b: {rule: value, margin: 3}}
    after_runs: [{what: added, rows: [a], columns: {x: 1}}]
    by_construction: [{what: a sum, rows: [b]}]
pooled:
  - {id: p, table: t, row: a, against: [b], by: [y], only: {x: [1]}, says: s,
     test: {rule: mean_gain, margin: 2, family: column}}
claims:
  - {id: "l.{pace}", where: w, says: "runs {pace}", paper_value: "4", each: {pace: [slow]},
     test: {rule: equal, rtol: 0.0}, ours: {experiment: e, metric: "m.{pace}"}}
"""
PRINTED = "x,1,1,3\ny,u,v,u\na,4.50±0.1,5±0.2,6±0.3\nb,1,2,3\nc,1,1,1\n"


def test_a_file_of_claims_is_expanded_block_by_block(tmp_path):
    claims = claims_in(tmp_path, TOY, t=PRINTED)
    assert len(claims.claims) == 9 + 2 + 1
    first = claims["toy.t.x1.u.a"]
    assert (first.paper_value, first.spread, first.paper_seeds) == ("4.50", "0.1", 3)
    assert first.ours == {
        "experiment": "e", "metric": "m.u", "settings": {"dataset": "mnist", "method": "a", "x": 1},
    }  # fmt: skip
    assert (first.rule, first.test["named"]) == ("value", "value of rates")
    assert first.after_runs == "added"
    assert claims["toy.t.x3.u.a"].after_runs == ""
    assert claims["toy.t.x1.u.b"].after_runs == ""
    assert claims["toy.t.x1.u.b"].by_construction
    assert claims["toy.t.x1.u.b"].test["margin"] == 3
    other = claims["toy.t.x1.u.c"].ours
    assert (other["metric"], other["settings"]) == (
        "n", {"dataset": "mnist", "method": "d", "x": 1, "y": "u"},
    )  # fmt: skip
    reasons = [claims[f"toy.t.{place}.a"].untestable for place in ("x1.u", "x1.v", "x3.u")]
    assert reasons == ["", "nobody can", "nor this"]
    gain = claims["toy.p.u.vs-b"]
    assert (gain.paper_value, gain.family, gain.kind) == ("+3.50", "toy.p.u", "ordering")
    assert [line[1]["settings"]["method"] for line in gain.ours["pooled"]] == ["b"]
    told = claims["toy.l.slow"]
    assert (told.says, told.ours["metric"]) == ("runs slowly", "m.slow")
    with pytest.raises(KeyError):
        claims["toy.x"]


def test_claims_of_a_reading_that_was_chosen_late_are_marked(tmp_path):
    claims = claims_in(tmp_path, TOY + "chosen_late: {e: seen before, other: not}\n", t=PRINTED)
    marks = {claim.id: claim.after_runs for claim in claims.claims}
    assert marks["toy.t.x1.u.a"] == "added; seen before"
    assert set(marks.values()) == {"added; seen before", "seen before"}


NARROW = """
paper: {key: fedvalue, seeds: 20}
same: {slow: fast}
tables:
  - id: t
    where: Table 1
    unit: share
    columns: [x]
    ours: {experiment: e, metric: m}
    test: {rule: value, narrow: place}
claims:
  - {id: "l.{pace}", where: w, says: s, each: {pace: [slow, fast]}, test: {rule: shown}}
  - {id: other, finding: "l.fast", where: w, says: s, test: {rule: shown}}
"""


def test_a_cell_of_a_narrow_column_is_judged_by_its_place(tmp_path):
    claims = claims_in(tmp_path, NARROW, t="x,1,2\na,.70,.70\nslow,.71,.80\nb,.725,.70\n")
    narrow, wide = claims["fedvalue.t.x1.a"], claims["fedvalue.t.x2.a"]
    assert (narrow.rule, narrow.test["margin"], narrow.kind) == ("place", 0.01, "value")
    assert narrow.ours["printed"] == [[0.70, 0.71, 0.725]]
    ((own, *others),) = narrow.ours["pooled"]
    assert own["settings"] == {"method": "a", "x": 1}
    assert [other["settings"]["method"] for other in others] == ["slow", "b"]
    assert "changed" in narrow.after_runs
    assert (wide.rule, wide.after_runs) == ("value", "")


def test_claims_that_say_one_thing_are_one_finding(tmp_path):
    claims = claims_in(tmp_path, NARROW, t="x,1,2\na,.70,.70\nslow,.71,.80\n")
    one = {claims[f"fedvalue.{name}"].finding for name in ("l.slow", "l.fast", "other")}
    assert one == {"fedvalue.l.fast"}
    assert claims["fedvalue.t.x1.a"].finding == "fedvalue.t.x1.a"
    assert claims["fedvalue.t.x1.slow"].finding == "fedvalue.t.x1.fast"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("b,1,2,3", "b,1,2", "row b of t needs 3 numbers"),
        ("b,1,2,3", "b,1,2,nan", "row b of t needs 3 numbers"),
        ("b,1,2,3", "b,1,2,x", "InvalidOperation"),
        ("b,1,2,3", "d,1,2,3", "KeyError: ('t', 'b'"),
        ("y,u,v,u", "z,u,v,u", "KeyError: 'y'"),
        ("y,u,v,u", "y,u,u,u", "use ['toy.t.x1.u.a', 'toy.t.x1.u.b', 'toy.t.x1.u.c'] twice"),
    ],
)
def test_a_table_that_cannot_be_the_printed_one_is_refused(tmp_path, old, new, word):
    assert old in PRINTED
    with pytest.raises(ClaimsError, match=re.escape(word)):
        claims_in(tmp_path, TOY, t=PRINTED.replace(old, new))
