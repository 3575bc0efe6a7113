"""FedCCEA's tables and figures, by hand."""

import numpy as np
import pandas as pd
import pytest
from tinyrecords import records, series_of

from fedkit.papers.fedccea import areas as fedccea_areas
from fedkit.papers.fedccea import pictures as fedccea_pictures
from fedkit.papers.fedccea import settings as paper
from fedkit.papers.fedccea import tables
from fedkit.papers.fedccea.dealt import DEALS
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.removal import PARTIAL
from fedkit.papers.fedccea.times import measured_times


def test_tables_by_hand():
    strong = {"dataset": "mnist", "data": "mnist", "distribution": "strong", "noise": "none"}
    strong["clients"] = 20
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
    areas = fedccea_areas.areas_table(frame)
    assert areas["seeds"].item() == "2"
    assert areas["FedCCEA"].item().startswith("2.0 [")
    assert areas["oracle"].item() == "–"
    assert areas["a random order, s.e."].item() == "2.5"  # sqrt((9 + 16) / 2 / 2 seeds)
    leads = fedccea_areas.leads_table(frame)
    assert len(leads) == 1  # nothing to pool
    assert leads["FedCCEA, over TMC-SV"].item() == "0.0 [0.0, 0.0]"
    assert leads["behind the nodes, over LOO"].item() == "0.0 [0.0, 0.0]"
    partial = fedccea_areas.partial_table(frame)
    assert partial["partial, over amounts alone"].item() == "0.0 [0.0, 0.0]"
    assert partial["partial, behind the nodes, over amounts alone"].item() == "–"
    assert partial["partial, behind the nodes"].item() == "–"
    assert partial["amounts alone"].item().startswith("0.5 [")
    assert (
        tables.setting_name("emnist", "iid", "label-40") == "EMNIST letters, IID, 40% label noise"
    )


def test_the_papers_numbers_stand_beside_its_own_data_only():
    """The letters are another data set, and clients of index zero are no percentage."""
    rows = [
        (
            {
                "dataset": name,
                "data": data,
                "distribution": "strong",
                "noise": "none",
                "clients": 20,
            },
            {"base": [50.0, 52.0], "excluded.loo": [50.0, 51.0], "zeros.loo": [1.0, 15.0]},
        )
        for name, data in (("mnist", "mnist"), ("emnist", "emnist-letters"))
    ]
    table = tables.exclusion_table(records(rows))["paper (%)"]
    assert table["MNIST, strong non-IID", "LOO, retrained"] == "85.29"
    assert set(table["EMNIST letters, strong non-IID"]) == {"–"}
    zeros = tables.exclusion_table(records(rows))["clients of index zero"]
    assert zeros["MNIST, strong non-IID", "LOO, retrained"] == "8.0 [0.0, 20.0]"


def test_fits_by_hand():
    place = {"dataset": "mnist", "distribution": "weak", "noise": "label-10"}
    found = {name: [0.5] for name in ("rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds")}
    found |= {f"rank.{n}": [0.3] for n in (*READINGS, "connected", "0.5.connected")}
    found |= {"aam_error": [3.0], "round_error": [2.9], "explained": [-0.25]}
    others = ("chance", "p", "same_round", "adam", "connected")
    found |= {f"explained.{n}": [0.1 * i] for i, n in enumerate(others)}
    found["unseen.connected"] = [-0.07]
    frame, name = records([(place, found)]), "MNIST, weak non-IID, 10% label noise"
    fits = tables.fits_table(frame).loc[name]
    assert fits.loc["FedCCEA"].tolist() == ["0.50"] * 4 + ["–"]
    assert fits.loc["FedCCEA, by Adam", "and FedCCEA"] == "0.30"
    nodes = fits.loc["FedCCEA, sigmoid behind the nodes"]
    assert (nodes["two halves"], nodes["two quarters"], nodes["and FedCCEA"]) == (
        "0.30",
        "–",
        "0.30",
    )
    shares = tables.shares_table(frame).loc[name]
    sample = ["-0.25", "0.40", "0.30", "0.20", "0.00"]
    assert shares.loc["in the sample"].tolist() == sample
    assert shares.columns.tolist() == [
        "FedCCEA", "behind the nodes", "by Adam", "same round", "FedCCEA, by chance",
    ]  # fmt: skip
    assert shares.loc["unseen"].tolist() == ["–", "-0.07", "–", "–", "–"]
    row = tables.errors_table(frame).loc[name]
    assert row["error of the AAM (points)"] == "3.00"
    assert row["FedCCEA, more than chance (seeds)"] == "0 of 1"


def test_leads_are_pooled_within_a_seed():
    """A seed is good for all methods alike, and a setting for one: three of each."""
    rows = []
    for distribution, gain in (("iid", 1.0), ("weak", 2.0), ("strong", 6.0)):
        place = {"dataset": "mnist", "distribution": distribution, "noise": "label-40"}
        areas = {"fedccea": [3.0 + gain, 5.0 + gain, 8.0 + gain], "loo": [3.0, 5.0, 8.0]}
        rows.append((place, {f"area.{m}": v for m, v in areas.items()}))
    half = {"dataset": "mnist", "distribution": "iid", "noise": "label-10"}
    rows.append((half, {"area.fedccea": [90.0], "area.loo": [0.0]}))  # one seed: not pooled
    leads = fedccea_areas.leads_table(records(rows))
    assert not leads.index.str.contains("strong non-IID, mean").any()  # one setting is no pool
    row = leads.loc["MNIST, IID and weak non-IID, mean of 2 settings"]
    assert row["FedCCEA, over LOO"] == "1.5 [1.5, 1.5]"
    assert row["FedCCEA, over TMC-SV"] == "–"
    # where LOO ranks nobody in one of the settings its mean would be over other ones
    del rows[1][1]["area.loo"]
    pooled = fedccea_areas.leads_table(records(rows)).loc[row.name, "FedCCEA, over LOO"]
    assert pooled.startswith("–")


def test_losses_are_beside_random_clients_of_the_same_seed():
    where = {"dataset": "mnist", "distribution": "strong", "noise": "none"}
    frame = records([(where, {"lost40.fedccea": [14.0, 21.0], "lost40.loo": [9.0, 12.0]})])
    curves = {"removed": [[0.0, 40]] * 2, "random": [[90.0, 80], [90.0, 75]]}
    curves["fedccea.highest"] = [[90.0, 70], [90.0, 66]]
    table = fedccea_areas.losses_table(frame, series_of([(where, curves)]))
    row = table.loc["MNIST, strong non-IID"]
    assert row["random clients"].startswith("12.5 [")
    assert row["FedCCEA, more"].startswith("5.0 [")
    assert row["LOO, more"].startswith("-2.0 [")
    assert row["TMC-SV, more"] == "–"
    highest = fedccea_areas.losses_table(frame, series_of([(where, curves)]), "highest").iloc[0]
    assert highest["FedCCEA, more"].startswith("9.5 [")  # 10 and 9
    assert (highest["random clients"], highest["LOO, more"]) == (row["random clients"], "–")
    # pooled with another setting in which as much is lost at random, and more by FedCCEA
    more = {"dataset": "mnist", "distribution": "strong", "noise": "label-40"}
    frame = records(
        [(where, {"lost40.fedccea": [14.0, 21.0]}), (more, {"lost40.fedccea": [20.0] * 2})]
    )
    series = series_of([(where, curves), (more, curves)])
    row = fedccea_areas.pooled_losses(frame, series).iloc[0]
    assert row.name == "MNIST, strong non-IID, mean of 2 settings"
    assert row["random clients"].startswith("12.5 [")
    assert row["FedCCEA, more"].startswith("6.2 [")  # 5.0 and 7.5
    assert fedccea_areas.costlier(frame, series) == {}  # 5 and 12.5 by seed are not above 0
    rows = [(p, {"lost40.fedccea": [15.0, 20.5], "lost40.loo": [2.0, 7.0]}) for p in (where, more)]
    ((place, cut),) = fedccea_areas.costlier(records(rows), series).items()  # 5.0 and 5.5 more
    assert place == ("MNIST, strong non-IID, mean of 2 settings", "FedCCEA")
    assert cut.text(1) == "5.2 [2.1, 8.4]"
    ((place, cut),) = fedccea_areas.costlier(frame, series, "highest").items()
    assert (place[1], cut.mean) == ("FedCCEA", 9.5)
    rows = [(p, {"lost40.same_round": [15.0, 20.5]}) for p in (where, more)]
    ((place, _),) = fedccea_areas.costlier(records(rows), series).items()  # a rival as well
    assert place[1] == "same round"
    assert fedccea_areas.pooled_losses(frame[frame.noise == "none"], series).empty


def test_dealt_qualities_by_hand():
    place = {"dataset": "mnist", "distribution": "strong", "noise": "none"}
    found = {"area.learnt": [5.0, 7.0], "area.amounts": [1.0, 3.0]}
    found |= {"lost40.learnt": [9.0, 9.0], "lost40.amounts": [2.0, 2.0]}
    for k in range(DEALS):
        sign = 1 if k % 2 else -1
        found |= {f"area.dealt{k}": [4.0 + sign, 4.0 - sign], f"lost40.dealt{k}": [6.0, 6.0]}
    table = fedccea_areas.dealt_table(records([(place, found)]))
    assert table.index.tolist() == [("MNIST, strong non-IID", "FedCCEA")]  # of one reading
    row = table.iloc[0]
    assert row["area, learnt"].startswith("6.0 [")
    assert row["area, dealt"].startswith("4.0 [4.0, 4.0], one ±1.")
    assert row["area, learnt over dealt"].startswith("2.0 [")
    assert row["lost more, learnt"] == "7.0 [7.0, 7.0]"
    assert row["lost more, dealt"] == "4.0 [4.0, 4.0]"
    assert row["lost, learnt less dealt"] == "3.0 [3.0, 3.0]"


def test_a_mean_of_fewer_seeds_says_so():
    found = {"excluded.loo": [50.0, 51.0], "excluded.loo.random": [48.0, np.nan]}
    place = {
        "dataset": "mnist",
        "data": "mnist",
        "distribution": "strong",
        "noise": "none",
        "clients": 20,
    }
    row = tables.exclusion_table(records([(place, found)])).loc[
        ("MNIST, strong non-IID", "LOO, retrained")
    ]
    assert row["without as many random clients (%)"] == "48.0, n = 1"
    assert row["less these (points)"] == "2.0, n = 1"
    assert row["accuracy (%)"].startswith("50.5 [")
    assert "n =" not in row["accuracy (%)"]


def test_pictures_show_what_is_on_record():
    """Every method's curve in the panel of its setting, and an empty panel elsewhere."""
    series = {"removed": [0.0, 10, 20], "round": [1.0, 2]}
    for m in (*paper.METHODS, *PARTIAL):
        series |= {f"{m}.lowest": [90.0, 89, 88], f"{m}.highest": [90.0, 80, 70]}
    series |= {f"index.{m}": [0.1, 0.6, 0.3] for m in paper.METHODS}
    for m in paper.FITS:
        series |= {f"miss.{m}.{q}": [x, x] for q, x in (("low", -1), ("middle", 0), ("high", 1))}
    place = {"dataset": "mnist", "distribution": "iid", "noise": "none"}
    frame = pd.DataFrame(
        [
            {**place, "seed": seed, "series": name, "index": i, "value": value}
            for seed in (0, 1)
            for name, values in series.items()
            for i, value in enumerate(values)
        ]
    )
    index = fedccea_pictures.all_indices(frame)
    assert [len(axis.lines) for axis in index.axes] == [4, 0, 0]
    assert index.axes[0].lines[0].get_ydata() == pytest.approx([60, 30, 10])
    removals = fedccea_pictures.all_removals(frame, "mnist")
    assert [len(axis.lines) for axis in removals.axes] == [8, 0, 0]
    chance = frame[frame.series == "loo.lowest"].assign(series="random")
    beside = fedccea_pictures.all_removals(pd.concat([frame, chance]), "mnist")
    assert [len(axis.lines) for axis in beside.axes] == [9, 0, 0]
    assert removals.axes[0].lines[1].get_ydata() == pytest.approx([90, 80, 70])
    partial = fedccea_pictures.all_removals(frame, "mnist", ("fedccea", *PARTIAL))
    assert [len(axis.lines) for axis in partial.axes] == [8, 0, 0]
    assert len({line.get_color() for line in partial.axes[0].lines}) == 4
    # what a row shows stands at its first panel that is there
    weak = frame.assign(distribution="weak")
    later = fedccea_pictures.all_removals(weak, "mnist")
    assert [a.get_ylabel() for a in later.axes] == ["", "clean\naccuracy (%)", ""]
    assert [a.get_title() for a in later.axes] == [tables.SPLIT[d] for d in paper.DISTRIBUTIONS]
    missed = fedccea_pictures.misses(frame)
    assert [len(axis.lines) for axis in missed.axes] == [3]


def test_settings_stand_in_the_papers_order():
    order = [("mnist", "iid", "none"), ("mnist", "strong", "none"), ("mnist", "strong", "label-40"),
             ("emnist", "iid", "none")]  # fmt: skip
    places = [dict(zip(("dataset", "distribution", "noise"), p, strict=True)) for p in order]
    frame = records([(place, {"rank.0.5": [0.1]}) for place in reversed(places)])
    found = tables.fits_table(frame).index.get_level_values(0).unique().tolist()
    assert found == [tables.setting_name(*place) for place in order]


def test_learning_and_times_by_hand():
    one = {"dataset": "mnist", "data": "mnist", "distribution": "iid", "lr": 0.01, "batch_size": 32}
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
