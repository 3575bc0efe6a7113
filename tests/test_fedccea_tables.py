import pandas as pd
import pytest

from fedkit.experiments import fedccea as paper
from fedkit.experiments import fedccea_tables as tables
from fedkit.experiments.fedccea_fits import READINGS
from fedkit.experiments.fedccea_removal import (
    PARTIAL,
)
from fedkit.experiments.fedccea_times import measured_times


def records(rows):
    """A frame of records: settings, and metrics per seed."""
    return pd.DataFrame(
        [
            {**settings, "seed": seed, "metric": name, "value": value}
            for settings, metrics in rows
            for name, values in metrics.items()
            for seed, value in enumerate(values)
        ]
    )


def test_tables_by_hand():
    strong = {"dataset": "mnist", "distribution": "strong", "noise": "none"}
    methods = {f"{k}.{m}": [1.0, 3.0] for k in ("excluded", "zeros", "area") for m in paper.METHODS}
    methods |= {"excluded.tmc-sv.random": [5.0, 5.0], "excluded.adam": [99.0, 97.0]}
    controls = {f"area.{m}": [0.0, 1.0] for m in (*READINGS, *PARTIAL) if m != "partial-connected"}
    controls |= {f"area.random{k}": [3.0, -4.0] for k in range(paper.RANDOM_ORDERS)}
    frame = records([(strong, {"base": [80.0, 82.0], **methods, **controls})])
    table = tables.exclusion_table(frame).loc["MNIST, strong non-IID"]
    everybody, tmc = table.loc["everybody"], table.loc["TMC-SV, retrained"]
    assert everybody["accuracy (%)"].startswith("81.0 [68.3, 93.7]")
    assert (everybody["paper (%)"], tmc["paper (%)"]) == ("85.60", "74.29")
    assert tmc["without as many random clients (%)"].startswith("5.0")
    assert table.loc["FedCCEA, by Adam", "accuracy (%)"] == "98.0 [85.3, 100.0]"
    areas = tables.areas_table(frame)
    assert areas["seeds"].item() == "2"
    assert areas["FedCCEA"].item().startswith("2.0 [")
    assert areas["oracle"].item() == "–"
    assert areas["one random order, ±"].item() == "3.5"
    leads = tables.leads_table(frame)
    assert leads["FedCCEA, over TMC-SV"].item() == "0.0 [0.0, 0.0]"
    assert leads["by Adam, over LOO"].item().startswith("-1.5 [")
    partial = tables.partial_table(frame)
    assert partial["FedCCEA, over amounts alone"].item() == "0.0 [0.0, 0.0]"
    assert partial["behind the nodes, over amounts alone"].item() == "–"
    assert partial["behind the nodes"].item() == "–"
    assert partial["amounts alone"].item().startswith("0.5 [")
    assert (
        tables.setting_name("emnist", "iid", "label-40") == "EMNIST letters, IID, 40% label noise"
    )


def test_fits_by_hand():
    place = {"dataset": "mnist", "distribution": "weak", "noise": "label-10"}
    found = {name: [0.5] for name in ("rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds")}
    found |= {f"rank.{n}": [0.3] for n in (*READINGS, *(f"0.5.{r}" for r in READINGS))}
    found |= {"aam_error": [3.0], "round_error": [2.9], "explained": [-0.25]}
    others = ("chance", "p", "same_round", "adam", "connected")
    found |= {f"explained.{n}": [0.1 * i] for i, n in enumerate(others)}
    frame = records([(place, found)])
    row = tables.fits_table(frame).loc["MNIST, weak non-IID, 10% label noise"]
    assert (row["two halves"], row["converged and Adam's"]) == ("0.50", "0.30")
    row = tables.shares_table(frame).loc["MNIST, weak non-IID, 10% label noise"]
    assert (row["explained share"], row["by chance"]) == ("-0.25", "0.00")
    assert row["more than chance"] == "0 of 1"
    assert row["sizes of the same round"] == "0.20"


def test_parts_by_hand():
    place = {"dataset": "mnist", "distribution": "iid", "noise": "label-40"}
    ends = ("", ".0.25", ".0.5", ".0.75")
    found = {f"auc.{m}{e}": [0.1 * i] for m in paper.METHODS for i, e in enumerate(ends)}
    row = tables.parts_table(records([(place, found)])).iloc[0]
    assert (row["FedCCEA, 25%"], row["FedCCEA, all"]) == ("0.10", "0.00")
    assert row["TMC-SV, 75%"] == "0.30"


def test_settings_stand_in_the_papers_order():
    order = [("mnist", "iid", "none"), ("mnist", "strong", "none"), ("mnist", "strong", "label-40"),
             ("emnist", "iid", "none")]  # fmt: skip
    places = [dict(zip(("dataset", "distribution", "noise"), p, strict=True)) for p in order]
    frame = records([(place, {"rank.0.5": [0.1]}) for place in reversed(places)])
    found = tables.fits_table(frame).index.tolist()
    assert found == [tables.setting_name(*place) for place in order]


def test_learning_and_times_by_hand():
    one = {"dataset": "mnist", "distribution": "iid", "lr": 0.01, "batch_size": 32}
    scales = ({"samples": None}, {"samples": 300}, {"samples": 300, "batch_size": 256})
    frame = records([({**one, **s}, {"base": [91.0 - k]}) for k, s in enumerate(scales)])
    table = tables.learning_table(frame)
    assert table["IID"].tolist() == ["91.0", "89.0", "90.0"]
    assert table.index[1] == "MNIST, 300 samples, batches of 256, learning rate 0.01"
    seconds = {"simulation": [0.3], "lockstep": [0.1], "walk": [1.0], "loo": [2.0]}
    trained = {"trained.lockstep": [0.5], "trained.loo": [4.0]}
    cost = records([({"clients": 4}, {f"seconds.{k}": v for k, v in seconds.items()} | trained)])
    times = measured_times(cost, 100)
    assert times["FedCCEA over LOO"].item() == pytest.approx(5)
    assert times["data trained on"].item() == pytest.approx(12.5)
    assert "training alone" not in times
    tested = {"testing.lockstep": [0.05], "testing.loo": [1.0]}
    metrics = {f"seconds.{k}": v for k, v in seconds.items()} | trained | tested
    times = measured_times(records([({"clients": 4}, metrics)]), 100)
    assert times["training alone"].item() == pytest.approx(5)
    assert times["one simulation (ms)"].item() == pytest.approx(300)
