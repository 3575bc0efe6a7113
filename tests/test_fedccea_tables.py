"""FedCCEA's tables and figures, by hand."""

import numpy as np
import pandas as pd
import pytest
from tinyrecords import records, series_of

from fedkit.papers.fedccea import names as n
from fedkit.papers.fedccea import pictures, tables

POOL = "MNIST, IID and weak non-IID, mean of 2 settings"


def mnist(distribution="strong", noise="none", **more):
    return {"dataset": "mnist", "distribution": distribution, "noise": noise, **more}


def values(*seeds):
    """Values of all methods, alike; five clients, of which the last would be noisy."""
    return {f"value.{m}": list(seeds) for m in n.METHODS}


def seed_table(rows, series=None):
    return tables.seed_table(records(rows), None if series is None else series_of(series))


def lossless(rows):
    """Removal curves beside other series: nothing is lost."""
    return [(place, {"removed": [[0.0, 40]] * 2} | named) for place, named in rows]


def test_areas_and_leads_by_hand():
    areas = {f"area.{m}": [1.0, 3.0] for m in n.METHODS}
    areas |= {f"area.{m}": [0.0, 1.0] for m in (*n.READINGS, "partial", "partial-size")}
    areas |= {f"area.random{k}": [3.0, -4.0] for k in range(n.RANDOM_ORDERS)}
    table = seed_table([(mnist(), areas)])
    row = tables.areas_table(table).loc["MNIST, strong non-IID"]
    assert (row["seeds"], row["oracle"]) == ("2", "–")
    assert row["FedCCEA"].startswith("2.0 [")
    assert row["a random order, s.e."] == "2.5"  # sqrt((9 + 16) / 2 / 2 seeds)
    leads = tables.leads_table(table)
    assert len(leads) == 1  # nothing to pool
    assert leads["FedCCEA, over TMC-SV"].item() == "0.0 [0.0, 0.0]"
    assert leads["behind the nodes, over LOO"].item() == "0.0 [0.0, 0.0]"
    partial = tables.partial_table(table)
    assert partial["partial, over amounts alone"].item() == "0.0 [0.0, 0.0]"
    assert partial["partial, behind the nodes, over amounts alone"].item() == "–"
    assert partial["partial, behind the nodes"].item() == "–"
    assert partial["amounts alone"].item().startswith("0.5 [")


def test_the_papers_numbers_stand_beside_its_own_data_only():
    """The letters are another data set, and clients of index zero are no percentage."""
    found = {"base": [80.0, 82.0], "excluded.loo": [50.0, 51.0], "zeros.loo": [1.0, 15.0]}
    found |= {"excluded.loo.random": [48.0, np.nan], "excluded.adam": [99.0, 97.0]}
    letters = mnist(data="emnist-letters", clients=20) | {"dataset": "emnist"}
    rows = [(mnist(data="mnist", clients=20), found), (letters, found)]
    table = tables.exclusion_table(records(rows))
    assert set(table.loc["EMNIST letters, strong non-IID", "paper (%)"]) == {"–"}
    table = table.loc["MNIST, strong non-IID"]
    everybody, loo = table.loc["everybody"], table.loc["LOO, retrained"]
    assert everybody["accuracy (%)"].startswith("81.0 [68.3, 93.7]")
    assert (everybody["paper (%)"], loo["paper (%)"]) == ("85.60", "85.29")
    assert loo["clients of index zero"] == "8.0 [0.0, 20.0]"
    assert table.loc["FedCCEA, by Adam", "accuracy (%)"] == "98.0 [85.3, 100.0]"
    # a mean of fewer seeds says so
    assert loo["without as many random clients (%)"] == "48.0, n = 1"
    assert loo["less these (points)"] == "2.0, n = 1"
    assert "n =" not in loo["accuracy (%)"]


def test_fits_by_hand():
    found = {name: [0.5] for name in ("rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds")}
    found |= {f"rank.{m}": [0.3] for m in (*n.READINGS, "connected", "0.5.connected")}
    found |= {"aam_error": [3.0], "round_error": [2.9], "explained": [-0.25]}
    others = ("chance", "p", "same_round", "adam", "connected")
    found |= {f"explained.{m}": [0.1 * i] for i, m in enumerate(others)}
    found["unseen.connected"] = [-0.07]
    table = seed_table([(mnist("weak", "label-10"), found)])
    name = "MNIST, weak non-IID, 10% label noise"
    fits = tables.fits_table(table).loc[name]
    assert fits.loc["FedCCEA"].tolist() == ["0.50"] * 4 + ["–"]
    assert fits.loc["FedCCEA, by Adam", "and FedCCEA"] == "0.30"
    nodes = fits.loc["FedCCEA, sigmoid behind the nodes"]
    assert nodes[["two halves", "two quarters", "and FedCCEA"]].tolist() == ["0.30", "–", "0.30"]
    shares = tables.shares_table(table).loc[name]
    columns = ["FedCCEA", "behind the nodes", "by Adam", "same round", "FedCCEA, by chance"]
    sample = ["-0.25", "0.40", "0.30", "0.20", "0.00"]
    assert shares.loc["in the sample", columns].tolist() == sample
    assert shares.loc["unseen", columns].tolist() == ["–", "-0.07", "–", "–", "–"]
    row = tables.errors_table(table).loc[name]
    assert row["error of the AAM (points)"] == "3.00"
    assert row["FedCCEA, more than chance (seeds)"] == "0 of 1"


def test_leads_are_pooled_within_a_seed():
    """A seed is good for all methods alike, and a setting for one: three of each."""
    rows = []
    for distribution, gain in (("iid", 1.0), ("weak", 2.0), ("strong", 6.0)):
        areas = {"fedccea": [3.0 + gain, 5.0 + gain, 8.0 + gain], "loo": [3.0, 5.0, 8.0]}
        found = {f"area.{m}": v for m, v in areas.items()}
        rows.append((mnist(distribution, "label-40"), found))
    one_seed = {"area.fedccea": [90.0], "area.loo": [0.0]}
    rows.append((mnist("iid", "label-10"), one_seed))  # not pooled
    leads = tables.leads_table(seed_table(rows))
    assert not leads.index.str.contains("strong non-IID, mean").any()  # one setting is no pool
    assert leads.loc[POOL, "FedCCEA, over LOO"] == "1.5 [1.5, 1.5]"
    assert leads.loc[POOL, "FedCCEA, over TMC-SV"] == "–"
    # where LOO ranks nobody in one of the settings its mean would be over other ones
    del rows[1][1]["area.loo"]
    leads = tables.leads_table(seed_table(rows))
    assert leads.loc[POOL, "FedCCEA, over LOO"].startswith("–")


def test_losses_are_beside_random_clients_of_the_same_seed():
    curves = {"removed": [[0.0, 40]] * 2, "random": [[90.0, 80], [90.0, 75]]}
    curves["fedccea.highest"] = [[90.0, 70], [90.0, 66]]
    found = {"lost40.fedccea": [14.0, 21.0], "lost40.loo": [9.0, 12.0]}
    table = seed_table([(mnist(), found)], [(mnist(noisy=0.2), curves)])
    row = tables.losses_table(table).loc["MNIST, strong non-IID"]
    assert row["random clients"].startswith("12.5 [")
    assert row["FedCCEA, more"].startswith("5.0 [")
    assert row["LOO, more"].startswith("-2.0 [")
    assert row["TMC-SV, more"] == "–"
    highest = tables.losses_table(table, "highest").iloc[0]
    assert highest["FedCCEA, more"].startswith("9.5 [")  # 10 and 9
    assert (highest["random clients"], highest["LOO, more"]) == (row["random clients"], "–")
    assert tables.losses_table(table, pooled=True).empty

    def both(clean, noisy):
        """Two settings in which as much is lost at random."""
        places = mnist(noisy=0.2), mnist(noise="label-40")
        named = [{f"lost40.{m}": lost for m, lost in x.items()} for x in (clean, noisy)]
        rows = [*zip(places, named, strict=True)]
        return seed_table(rows, [(place, curves) for place in places])

    pool = "MNIST, strong non-IID, mean of 2 settings"
    table = both({"fedccea": [14.0, 21.0]}, {"fedccea": [20.0] * 2})
    row = tables.losses_table(table, pooled=True).loc[pool]
    assert row["random clients"].startswith("12.5 [")
    assert row["FedCCEA, more"].startswith("6.2 [")  # 5.0 and 7.5
    assert tables.costlier(table) == {}  # 5 and 12.5 by seed are not above 0
    ((place, cut),) = tables.costlier(table, "highest").items()
    assert (place[1], cut.mean) == ("FedCCEA", 9.5)
    more = {"same_round": [15.0, 20.5], "loo": [2.0, 7.0]}
    ((place, cut),) = tables.costlier(both(more, more)).items()  # 5.0 and 5.5 more
    assert place == (pool, "same round")
    assert cut.text(1) == "5.2 [2.1, 8.4]"


def test_dealt_qualities_by_hand():
    found = {"area.learnt": [5.0, 7.0], "area.amounts": [1.0, 3.0]}
    found |= {"lost40.learnt": [9.0, 9.0], "lost40.amounts": [2.0, 2.0]}
    for k in range(n.DEALS):
        sign = 1 if k % 2 else -1
        found |= {f"area.dealt{k}": [4.0 + sign, 4.0 - sign], f"lost40.dealt{k}": [6.0, 6.0]}
    table = tables.dealt_table(seed_table([(mnist(), found)]))
    assert table.index.tolist() == [("MNIST, strong non-IID", "FedCCEA")]  # of one reading
    row = table.iloc[0]
    assert row["area, learnt"].startswith("6.0 [")
    assert row["area, dealt"].startswith("4.0 [4.0, 4.0], one ±1.")
    assert row["area, learnt over dealt"].startswith("2.0 [")
    assert row["lost more, learnt"] == "7.0 [7.0, 7.0]"
    assert row["lost more, dealt"] == "4.0 [4.0, 4.0]"
    assert row["lost, learnt less dealt"] == "3.0 [3.0, 3.0]"


def test_parts_by_hand():
    ends = ("", ".0.25", ".0.5", ".0.75")
    found = {f"auc.{m}{e}": [0.1 * i] for m in n.METHODS for i, e in enumerate(ends)}
    found |= {f"trained.tmc-sv{e}": [12.0 * i] for i, e in enumerate(ends)}
    table = tables.parts_table(seed_table([(mnist("iid", "label-40"), found)]))
    table = table.loc["MNIST, IID, 40% label noise"]
    assert table.index.tolist() == ["25%", "50%", "75%", "all"]
    assert table["FedCCEA"].tolist() == ["0.10", "0.20", "0.30", "0.00"]
    assert table["TMC-SV"].tolist() == table["behind the nodes"].tolist()
    assert table["TMC-SV trained"].tolist() == ["12.0", "24.0", "36.0", "0.0"]
    assert table["LOO"].tolist() == ["–", "–", "–", "0.00"]


def test_a_gain_is_over_the_same_clients_of_the_same_seed():
    clean = mnist("iid", noisy=0.2)
    series = lossless([(clean, values([1.0, 2, 3, 4, 2.5], [1.0, 1, 1, 1, 0]))])
    rows = [(clean, {"base": [0.0, 0.0]})]
    rows += [(mnist("iid", "label-40"), {"auc.fedccea": [0.6, 1.0], "auc.loo": [0.9, 1.0]})]
    shuffled = series_of(series).sample(frac=1, random_state=0)
    table = tables.seed_table(records(rows), shuffled)
    shown = tables.planted_table(table).loc["MNIST, IID, 40% label noise"]
    assert shown.index.tolist() == [n.LABELS[m] for m in n.METHODS]
    assert shown.loc["FedCCEA", "the same clients, all clean"] == "0.75 [0.00, 1.00]"
    assert shown.loc["FedCCEA", "gain"].startswith("0.05 [")  # over 0.5 and 1
    assert shown.loc["LOO, retrained", "gain"] == "0.20 [-1.00, 1.00]"  # of two probabilities
    assert shown.loc["TMC-SV, retrained", "with noise"] == "–"
    # without clean runs on record there is nothing to compare with
    alone = tables.seed_table(records(rows), shuffled[shuffled.series == "removed"])
    assert (tables.planted_table(alone)["gain"] == "–").all()


def test_gains_are_pooled_within_a_seed():
    rows, clean = [], []
    for distribution, gain in (("iid", 0.1), ("weak", 0.3), ("strong", 0.5)):  # strong is alone
        auc = {f"auc.{m}": [0.5 + gain, 0.6 + gain] for m in n.METHODS}
        auc["auc.loo"] = [0.4 + gain, 0.5 + gain]
        rows.append((mnist(distribution, "label-40"), auc))
        clean.append((mnist(distribution, noisy=0.2), values([1, 2, 3, 4, 2.5], [1] * 5)))
    one_seed = {f"auc.{m}": [1.0] for m in n.METHODS}
    rows.append((mnist("iid", "label-10"), one_seed))  # not pooled
    table = seed_table(rows, lossless(clean))
    found = tables.gains_table(table)
    assert found.index.tolist() == [(POOL, "with noise"), (POOL, "gain")]
    for kind, by_hand in (("with noise", [0.7, 0.8]), ("gain", [0.2, 0.3])):
        mean, _ = found.loc[(POOL, kind), "FedCCEA"].split(" [")
        assert float(mean) == pytest.approx(np.mean(by_hand))
    assert set(found["FedCCEA, over LOO"]) == {"0.10 [0.10, 0.10]"}  # alike in every seed
    assert set(found["FedCCEA, over TMC-SV"]) == {"0.00 [0.00, 0.00]"}
    # over LOO by both, over TMC-SV by neither: alike there
    decided = tables.decided_leads(table)
    assert {place[1:] for place in decided} == {("FedCCEA", "LOO"), ("behind the nodes", "LOO")}
    assert all(cut.mean == pytest.approx(0.1) for cuts in decided.values() for cut in cuts)
    # in seed 0 LOO has the noisy client last before there is any noise: the gain over it is open
    odd = [(p, {**named, "value.loo": [[1, 2, 3, 4, 0.5], [1] * 5]}) for p, named in clean]
    assert tables.decided_leads(seed_table(rows, lossless(odd))) == {}
    for _, auc in rows[:2]:  # behind LOO now, and over TMC-SV with noise only
        auc["auc.loo"] = [x + 0.3 for x in auc["auc.loo"]]
    decided = tables.decided_leads(seed_table(rows, lossless(clean)))
    assert {cut.mean < 0 for cuts in decided.values() for cut in cuts} == {True}
    assert {place[2] for place in decided} == {"LOO"}


def test_equal_quality_takes_the_first_budget_that_is_as_good():
    found = {"trained.fedccea": [50.0], "trained.loo": [20.0], "auc.loo": [0.7]}
    found |= {"auc.fedccea": [0.6], "auc.connected": [0.9]}
    budgets = {".0.25": (12.0, 0.5), ".0.5": (25.0, 0.6), ".0.75": (38.0, 0.55), "": (49.0, 0.8)}
    for end, (cost, auc) in budgets.items():
        found |= {f"trained.tmc-sv{end}": [cost], f"auc.tmc-sv{end}": [auc]}
    clean = lossless([(mnist(noisy=0.2), values([1.0, 2, 3, 4, 2.5]))])  # 0.5 for all methods

    def row():
        table = seed_table([(mnist(), found), (mnist(noise="label-40"), found)], clean)
        (one,) = tables.equal_quality_table(table).to_dict("records")
        return one

    assert row()["TMC-SV as good as FedCCEA with"] == "25.0"
    assert row()["FedCCEA (gain)"] == "0.60 (+0.10)"
    assert row()["TMC-SV as good as behind the nodes with"] == "not with 49.0"
    assert (row()["LOO trained"], row()["LOO is as good as"]) == ("20.0", "FedCCEA")
    found["auc.fedccea"] = [0.5]  # a coin: as good as that is nobody's merit
    assert row()["TMC-SV as good as FedCCEA with"] == "–"


def test_pictures_show_what_is_on_record():
    """Every method's curve in the panel of its setting, and an empty panel elsewhere."""
    series = {"removed": [0.0, 10, 20], "round": [1.0, 2]}
    for m in (*n.METHODS, *n.PARTIAL):
        series |= {f"{m}.lowest": [90.0, 89, 88], f"{m}.highest": [90.0, 80, 70]}
    series |= {f"index.{m}": [0.1, 0.6, 0.3] for m in n.METHODS}
    for m in n.FITS:
        series |= {f"miss.{m}.{q}": [x, x] for q, x in (("low", -1), ("middle", 0), ("high", 1))}
    frame = series_of([(mnist("iid"), {name: [x, x] for name, x in series.items()})])
    index = pictures.all_indices(frame)
    assert [len(axis.lines) for axis in index.axes] == [4, 0, 0]
    assert index.axes[0].lines[0].get_ydata() == pytest.approx([60, 30, 10])
    removals = pictures.all_removals(frame, "mnist")
    assert [len(axis.lines) for axis in removals.axes] == [8, 0, 0]
    assert removals.axes[0].lines[1].get_ydata() == pytest.approx([90, 80, 70])
    chance = frame[frame.series == "loo.lowest"].assign(series="random")
    beside = pictures.all_removals(pd.concat([frame, chance]), "mnist")
    assert [len(axis.lines) for axis in beside.axes] == [9, 0, 0]
    partial = pictures.all_removals(frame, "mnist", ("fedccea", *n.PARTIAL))
    assert [len(axis.lines) for axis in partial.axes] == [8, 0, 0]
    assert len({line.get_color() for line in partial.axes[0].lines}) == 4
    # what a row shows stands at its first panel that is there
    later = pictures.all_removals(frame.assign(distribution="weak"), "mnist")
    assert [a.get_ylabel() for a in later.axes] == ["", "clean\naccuracy (%)", ""]
    assert [a.get_title() for a in later.axes] == [*n.DISTRIBUTIONS.values()]
    assert [len(axis.lines) for axis in pictures.misses(frame).axes] == [3]


def test_settings_stand_in_the_papers_order():
    order = [("mnist", "iid", "none"), ("mnist", "strong", "none"), ("mnist", "strong", "label-40"),
             ("emnist", "iid", "none")]  # fmt: skip
    places = [dict(zip(tables.RUN, p, strict=False)) for p in order]
    table = seed_table([(place, {"rank.0.5": [0.1]}) for place in reversed(places)])
    found = tables.fits_table(table).index.get_level_values(0).unique().tolist()
    assert found == [n.setting_name(*place) for place in order]


def test_learning_and_times_by_hand():
    one = {"dataset": "mnist", "data": "mnist", "distribution": "iid", "lr": 0.01, "batch_size": 32}
    scales = ({"samples": None}, {"samples": 300}, {"samples": 300, "batch_size": 256})
    frame = records([({**one, **s}, {"base": [91.0 - k]}) for k, s in enumerate(scales)])
    table = tables.learning_table(frame)
    assert table["IID"].tolist() == ["91.0", "89.0", "90.0"]
    assert table.index[1] == "MNIST, 300 samples, batches of 256, learning rate 0.01"
    seconds = {"simulation": [0.3], "lockstep": [0.1], "walk": [1.0], "loo": [2.0]}
    metrics = {f"seconds.{k}": v for k, v in seconds.items()}
    metrics |= {"trained.lockstep": [0.5], "trained.loo": [4.0]}
    metrics |= {"testing.lockstep": [0.05], "testing.loo": [1.0]}
    times = tables.measured_times(records([({"clients": 4}, metrics)]), 100).loc[4]
    assert times["FedCCEA over LOO"] == pytest.approx(5)
    assert times["data trained on"] == pytest.approx(12.5)
    assert times["training alone"] == pytest.approx(5)
    assert times["one simulation (ms)"] == pytest.approx(300)
