"""FedMS's claims: what was typed is what a program read from the paper's text."""

import numpy as np
import pandas as pd
import pytest

from fedkit.claims.claim import ClaimsError, parse_claims
from fedkit.claims.join import join
from fedkit.claims.judge import NOT_ATTEMPTED
from fedkit.papers.claims import load_claims
from fedkit.papers.fedms.tables import readings, study, tuned_on_validation
from fedkit.records.store import Cell, Store

FEDMS = load_claims("fedms")

# Sum of a row, sum of place x number, and sum of place x spread, as a program read them.
SUMS = {
    ("t1", "fedavg"): (406.24, 1353.76, 22.31),
    ("t2", "fedavg"): (43.5, 135.5, 0),
    ("t1", "fedprox"): (389.12, 1280.87, 53.17),
    ("t2", "fedprox"): (44.0, 126.0, 0),
    ("t1", "poc"): (406.68, 1304.18, 71.78),
    ("t2", "poc"): (42.5, 127.0, 0),
    ("t1", "fedemd"): (387.63, 1264.01, 26.28),
    ("t2", "fedemd"): (3.0, 11.5, 0),
    ("t1", "s-fedavg"): (410.8, 1361.82, 36.52),
    ("t2", "s-fedavg"): (44.0, 136.5, 0),
    ("t1", "greedyfed"): (423.84, 1442.45, 47.59),
    ("t2", "greedyfed"): (151.5, 529.0, 0),
    ("t1", "fedms"): (466.84, 1573.09, 20.43),
    ("t2", "fedms"): (58.0, 283.5, 0),
}


@pytest.mark.parametrize(("table", "row"), SUMS)
def test_rows_add_up(table, row):
    numbers = [float(text) for text in FEDMS.tables[table].rows[row]]
    spreads = [float(text) for text in FEDMS.tables[table].spreads.get(row, ())]
    found = (
        round(sum(numbers), 2),
        round(sum(i * x for i, x in enumerate(numbers, 1)), 2),
        round(sum(i * x for i, x in enumerate(spreads, 1)), 2),
    )
    assert found == SUMS[table, row]


def test_every_printed_number_has_one_claim():
    assert {(t.id, row) for t in FEDMS.tables.values() for row in t.rows} == set(SUMS)
    assert len(FEDMS.select("fedms.t1")) == 42
    assert len(FEDMS.select("fedms.t2")) == 35
    assert all(c.spread is not None for c in FEDMS.select("fedms.t1"))


def test_a_column_may_name_the_metric():
    claim = FEDMS["fedms.t2.maverick.fedms"]
    assert claim.paper_value == "54.0"
    assert claim.ours["metric"] == "rate.maverick"
    assert "kind" not in claim.ours["settings"]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((79.0, 79.3, 79.1, 79.2), "reproduced"),
        ((60.0, 60.3, 60.1, 60.2), "not reproduced"),
        ((60.0, 95.0, 70.0, 90.0), "inconclusive"),
    ],
)
def test_a_number_with_a_spread_is_judged_by_equivalence(tmp_path, ours, verdict):
    store = Store(tmp_path)
    settings = {
        "method": "fedavg", "dataset": "mnist", "data": "mnist", "scenario": "dir10",
        "adversaries": 0, "clients": 50, "participants": 5, "local": "steps", "owned": 0.1,
        "lr": 0.05, "batch_size": 64, "validation": 0.2, "mavericks": 2,
    }  # fmt: skip
    cell = Cell("paper", "fedms", "table1", settings, tuple(range(len(ours))))
    data = {"name": "mnist", "source": "made up", "checksum": "0"}
    results = [
        {"seed": i, "metrics": {"accuracy": x}, "series": {}, "data": data}
        for i, x in enumerate(ours)
    ]
    store.save(cell, results)
    table = join(load_claims("fedms"), store, profile="paper").set_index("claim")
    row = table.loc["fedms.t1.dir10.mnist.fedavg"]
    assert row.verdict == verdict
    assert row["mean"] == pytest.approx(np.mean(ours))


def test_a_row_with_some_spreads_is_refused():
    text = """
paper: {key: x}
tables:
  - {id: t, where: Table, unit: "%", columns: {a: [1, 2]}, transcription: {},
     ours: {experiment: e, metric: m}, test: {rule: value, margin: 1}, rows: {r: "1.0±0.1 2.0"}}
"""
    with pytest.raises(ClaimsError, match="give all numbers a spread, or none"):
        parse_claims(text)


def save(store, method="fedavg", value=80.0, **change):
    settings = {
        "method": method, "dataset": "mnist", "data": "mnist", "scenario": "dir10",
        "adversaries": 0, "clients": 50, "participants": 5, "local": "steps", "owned": 0.1,
        "lr": 0.05, "batch_size": 64, "validation": 0.2, "mavericks": 2, **change,
    }  # fmt: skip
    data = {"name": "mnist", "source": "made up", "checksum": "0"}
    results = [
        {"seed": i, "metrics": {"accuracy": value + i / 10}, "series": {}, "data": data}
        for i in range(4)
    ]
    store.save(Cell("paper", "fedms", "table1", settings, (0, 1, 2, 3)), results)


def test_of_several_readings_the_protocol_names_one(tmp_path):
    store, place = Store(tmp_path), "fedms.t1.dir10.mnist.fedavg"
    for local, owned, value in (("steps", 1.0, 60.0), ("epochs", 1.0, 90.0)):
        save(store, value=value, local=local, owned=owned)
    row = join(load_claims("fedms"), store).set_index("claim").loc[place]
    assert row.verdict == NOT_ATTEMPTED
    save(store, value=79.0)
    row = join(load_claims("fedms"), store).set_index("claim").loc[place]
    assert row["mean"] == pytest.approx(79.15)


def test_readings_are_judged_one_by_one(tmp_path):
    store = Store(tmp_path)
    save(store, value=79.0)
    save(store, "fedms", 92.9)
    save(store, "fedms", 50.0, local="epochs", owned=1.0)
    table = readings(store)
    assert table["cells"].tolist() == [2, 1]
    assert table["FedMS first"].tolist() == ["–", "–"]  # not all seven rows
    assert table["mean distance"].iloc[0] == pytest.approx((0.02 + 0.09) / 2)
    assert table["within 3 points"].tolist() == [2, 0]
    assert table["on the 1 common cells"].tolist() == pytest.approx([0.09, 42.81])


def test_the_study_and_the_tuning_as_tables(tmp_path):
    store = Store(tmp_path)
    common = {"shared": False, "poisoned": False, "estimator": "gtg", "temperature": 0.01}
    rows = []
    for mavericks, gain in ((2, 3.0), (5, -1.0)):
        for method, more in (("fedms", gain), ("uniform-coreset", 0.0)):
            for seed in range(3):
                setting = {**common, "owned": 0.1, "mavericks": mavericks, "method": method}
                value = 80 + more + seed
                rows += [
                    {**setting, "seed": seed, "metric": "accuracy", "value": value},
                    {**setting, "seed": seed, "metric": "rate.maverick", "value": 40.0},
                ]
    table = study(pd.DataFrame(rows))
    assert table.index.tolist() == ["as in Table 1", "five Mavericks"]
    assert table["gain"].tolist() == pytest.approx([3.0, -1.0])
    assert store.frame("fedms", "study").empty

    rows = [
        {"method": "fedms", "lr": lr, "alpha": a, "seed": seed, "metric": metric,
         "value": 100 * lr + a + (metric == "accuracy") * 10 * (lr < 0.1),
         "mu": 1.0, "poc_decay": 0.9, "emd_beta": 0.01, "sv_alpha": 0.7, "temperature": 0.01}
        for lr in (0.05, 0.2) for a in (0.6, 0.8) for seed in range(3)
        for metric in ("accuracy", "accuracy_validation")
    ]  # fmt: skip
    best = tuned_on_validation(pd.DataFrame(rows)).iloc[0]
    assert best["chosen"] == "lr 0.2, alpha 0.8"  # not the one that tests best
    assert best["points"] == 4
    assert not best["inside"]
    assert best["seeds"] == 3
    assert best["mean"] == pytest.approx(20.8)
    one = pd.DataFrame(rows).query("lr == 0.2 and alpha == 0.6")  # a run that has just begun
    assert tuned_on_validation(one).iloc[0]["chosen"] == "lr 0.2"
