"""Claims of FedValue's federated recommendation: the transcription, and how they find our runs."""

from dataclasses import asdict, replace

import pytest

from fedkit.claims.join import join
from fedkit.claims.judge import NOT_ATTEMPTED
from fedkit.datasets.movielens import made_up_ratings
from fedkit.papers.claims import load_claims
from fedkit.papers.fedvalue.recommendation import MAIN, TABLE9, Case, play
from fedkit.records.cell import Cell
from fedkit.records.store import Store

FEDVALUE = load_claims("fedvalue")

# Sum of a row, sum of place x number, and sum of place x spread, as a second program read them.
SUMS = {
    ("t5", "random"): (8.873, 57.75, 1.712),
    ("t5", "volume"): (8.853, 57.499, 1.753),
    ("t5", "vf-ps"): (8.919, 58.036, 1.949),
    ("t5", "fedvalue"): (8.991, 58.495, 1.805),
    ("t6", "random"): (8.747, 57.114, 1.638),
    ("t6s", "random"): (118.0, 416.0, 0),
    ("t6", "volume"): (8.682, 56.527, 1.872),
    ("t6s", "volume"): (121.0, 424.0, 0),
    ("t6", "vf-ps"): (8.837, 57.671, 2.386),
    ("t6s", "vf-ps"): (77.0, 277.0, 0),
    ("t6", "fedvalue"): (8.957, 58.467, 1.685),
    ("t6s", "fedvalue"): (0.0, 0.0, 0),
    ("t7", "random"): (8.671, 56.329, 2.233),
    ("t7s", "random"): (114.0, 397.0, 0),
    ("t7", "volume"): (8.603, 55.667, 2.961),
    ("t7s", "volume"): (135.0, 458.0, 0),
    ("t7", "vf-ps"): (8.911, 57.943, 2.186),
    ("t7s", "vf-ps"): (19.0, 79.0, 0),
    ("t7", "fedvalue"): (8.972, 58.38, 1.683),
    ("t7s", "fedvalue"): (0.0, 0.0, 0),
    ("t9.movies", "random"): (2.949, 7.401, 0),
    ("t9.movies", "volume"): (2.903, 7.263, 0),
    ("t9.movies", "vf-ps"): (2.956, 7.414, 0),
    ("t9.movies", "fedvalue"): (2.966, 7.443, 0),
    ("t9.candidates", "random"): (2.977, 7.455, 0),
    ("t9.candidates", "volume"): (2.983, 7.445, 0),
    ("t9.candidates", "vf-ps"): (3.002, 7.516, 0),
    ("t9.candidates", "fedvalue"): (3.011, 7.543, 0),
    ("t9.features", "random"): (2.979, 7.525, 0),
    ("t9.features", "volume"): (2.971, 7.519, 0),
    ("t9.features", "vf-ps"): (2.986, 7.539, 0),
    ("t9.features", "fedvalue"): (3.007, 7.598, 0),
    ("t9.high", "random"): (2.99, 7.485, 0),
    ("t9.high", "volume"): (2.963, 7.389, 0),
    ("t9.high", "vf-ps"): (3.001, 7.51, 0),
    ("t9.high", "fedvalue"): (3.011, 7.535, 0),
    ("t9.redundant", "random"): (2.879, 7.178, 0),
    ("t9.redundant", "volume"): (2.868, 7.145, 0),
    ("t9.redundant", "vf-ps"): (2.896, 7.215, 0),
    ("t9.redundant", "fedvalue"): (3.006, 7.538, 0),
    ("t9.free-riders", "random"): (2.783, 6.857, 0),
    ("t9.free-riders", "volume"): (2.751, 6.758, 0),
    ("t9.free-riders", "vf-ps"): (2.987, 7.463, 0),
    ("t9.free-riders", "fedvalue"): (3.005, 7.514, 0),
}


@pytest.mark.parametrize(("table", "row"), SUMS)
def test_rows_add_up(table, row):
    numbers = [float(text) for text in FEDVALUE.tables[table].rows[row]]
    spreads = [float(text) for text in FEDVALUE.tables[table].spreads.get(row, ())]
    found = (
        round(sum(numbers), 3),
        round(sum(i * x for i, x in enumerate(numbers, 1)), 3),
        round(sum(i * x for i, x in enumerate(spreads, 1)), 3),
    )
    assert found == SUMS[table, row]


def test_every_printed_number_has_one_claim():
    blocks = {name for name, _ in SUMS}
    found = {(t, row) for t in blocks for row in FEDVALUE.tables[t].rows}
    assert found == set(SUMS)
    for name in ("t5", "t6", "t7"):
        assert len(FEDVALUE.select(f"fedvalue.{name}.")) == 48
    assert len(FEDVALUE.select("fedvalue.t6s.")) == len(FEDVALUE.select("fedvalue.t7s.")) == 24
    assert len(FEDVALUE.select("fedvalue.t9.")) == 96


def test_one_cell_by_hand():
    claim = FEDVALUE["fedvalue.t7.var.auc.b1.fedvalue"]
    assert (claim.paper_value, claim.spread) == ("0.739", "0.021")
    assert claim.ours["metric"] == "auc.var.1.fedvalue"
    assert claim.ours["settings"]["scenario"] == "free-riders"
    assert FEDVALUE["fedvalue.o7.var.auc.b1.vs-vf-ps"].paper_value == "+0.014"


def test_every_claim_finds_the_record_of_its_cell_and_no_other(tmp_path):
    """Records with the cells' own settings, in which every metric says whose it is."""
    store, data = Store(tmp_path), made_up_ratings(users=300)
    small = Case(movies=8, low=0.02, high=0.2, candidates=3, trees_rounds=1)
    metrics = {}
    for scenario in ("redundant", "free-riders"):
        metrics |= play(data, replace(small, scenario=scenario), 0)["metrics"]
    marks = {}
    for number, case in enumerate((*MAIN, *TABLE9)):
        settings = asdict(replace(case, dataset="ml-1m"))
        same = dict.fromkeys(metrics, number / 100)
        results = [{"seed": seed, "metrics": same} for seed in range(10)]
        store.save(Cell("paper", "fedvalue", "recommendation", settings, tuple(range(10))), results)
        marks[case] = number / 100
    joined = join(load_claims("fedvalue"), store).set_index("claim")
    assert joined.loc["fedvalue.t5.fix.auc.b1.random", "mean"] == pytest.approx(marks[MAIN[0]])
    assert joined.loc["fedvalue.t6s.var.b3.volume", "mean"] == pytest.approx(marks[MAIN[1]])
    assert joined.loc["fedvalue.t9.high.h0.2.auc.vf-ps", "mean"] == pytest.approx(
        marks[Case(high=0.2)]
    )
    many = Case(scenario="free-riders", ratio=0.6)
    assert joined.loc["fedvalue.t9.free-riders.r0.6.auc.vf-ps", "mean"] == pytest.approx(
        marks[many]
    )
    ours = [name for name in joined.index if name.split(".")[1].rstrip("s")[:2] in
            ("t5", "t6", "t7", "t9", "o5", "o6", "o7", "o9")]  # fmt: skip
    words = ("volume", "excluded", "tight", "cheaper", "larger-with-redundant")
    ours += [name for name in joined.index if name.split(".")[1] in words]
    assert len(ours) == 288 + 36 * 3 + 72 + 12 + 7
    assert (joined.loc[ours, "verdict"] != NOT_ATTEMPTED).all()
