"""FedCCEA's intervals, tables and figures, by hand."""

import numpy as np
import pytest
from tinyrecords import records, series_of

from fedkit.intervals import bounded_interval, mean_interval, paired_interval
from reproduction import figures as plots
from reproduction.fedccea import experiments as n
from reproduction.fedccea import findings as tables
from reproduction.overviews import lead

POOL = "MNIST, IID and weak non-IID, mean of 2 settings"
STRONG = "MNIST, strong non-IID"


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


def text(table, shown, digits=1, bounds=(-np.inf, np.inf), **how):
    return tables.as_text(tables.intervals(table, shown, bounds, **how), digits)


def test_intervals_and_leads_by_hand():
    found = {"area.fedccea": [1.0, 3.0], "area.loo": [1.0, 3.0], "auc.loo": [1.0, 1.0]}
    found |= {f"area.random{k}": [3.0, -4.0] for k in range(n.RANDOM_ORDERS)}
    table = seed_table([(mnist(), found)])
    shown = {"area": "area.fedccea", "lead": ("area.fedccea", "area.loo"), "none": "area.oracle"}
    row = tables.intervals(table, shown).loc[STRONG]
    assert row.loc["area", ["mean", "n"]].tolist() == [2.0, 2]
    assert row.loc["lead", ["mean", "low", "high"]].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(row.loc["none", "mean"])
    assert row.loc["none", "n"] == 0
    # all at the end of what is possible: an exact interval, not one without width
    bounded = tables.intervals(table, {"chance": "auc.loo"}, (0, 1)).iloc[0]
    assert bounded["low"] == pytest.approx(0.025 ** (1 / 2))
    assert bounded["high"] == 1
    assert list(text(table, shown)) == ["area", "lead"]  # what nobody has is no column
    ((_, seeds),) = tables.settings(table)
    assert tables.random_spread(seeds) == 2.5  # sqrt((9 + 16) / 2 / 2 seeds)


def test_the_papers_numbers_stand_beside_its_own_data_only():
    """The letters are another data set."""
    found = {"base": [80.0, 82.0], "excluded.loo": [50.0, 51.0], "excluded.adam": [99.0, 97.0]}
    found |= {"excluded.loo.random": [48.0, np.nan]}
    letters = mnist(data="emnist-letters") | {"dataset": "emnist"}
    rows = [(mnist(data="mnist"), found), (letters, found), (mnist(noise="label-40"), found)]
    table = tables.exclusions(records(rows))
    assert table.index.get_level_values(0).unique().tolist() == [
        STRONG, "EMNIST, strong non-IID",
    ]  # fmt: skip
    assert table.loc["EMNIST, strong non-IID", "paper"].isna().all()
    table = table.loc[STRONG]
    assert table.loc[["everybody", "LOO", "FedCCEA by Adam"], "paper"].tolist() == [
        85.60, 85.29, 85.60,
    ]  # fmt: skip
    assert table.loc["FedCCEA by Adam", ["mean", "high"]].tolist() == [98.0, 100.0]
    # a mean of fewer seeds says so
    over = {"LOO": ("excluded.loo", "excluded.loo.random"), "everybody": "base"}
    shown = text(seed_table(rows[:1]), over).loc[STRONG]
    assert shown["LOO"] == "2.0, n = 1"
    assert shown["everybody"].startswith("81.0 [68.3")


def test_rivals_stand_in_both_readings_where_both_are_on_record():
    own = {"base": [87.0], "excluded.tmc-sv": [87.0], "excluded.loo": [86.0]}
    rounds = {"excluded.tmc-sv-rounds": [74.0], "excluded.loo-rounds": [85.0]}
    here = mnist(data="mnist")
    table = tables.exclusions(
        records([(here, own), (here, rounds), ({**here, **mnist("iid")}, own)])
    )
    found = table.loc[STRONG]
    assert found.loc["TMC-SV", ["mean", "paper"]].tolist() == [87.0, 74.29]
    assert found.loc["TMC-SV by rounds", ["mean", "paper"]].tolist() == [74.0, 74.29]
    assert found.loc["LOO by rounds", ["mean", "paper"]].tolist() == [85.0, 85.29]
    # where nothing was valued round by round there is no row
    assert "LOO by rounds" not in table.loc["MNIST, IID"].index


def test_rivals_on_record_are_judged_in_both_readings():
    e = tables.Evaluation()
    names = ["fedccea.tmc-zeros", "fedccea.t3.mnist.strong.tmc-sv", "fedccea.declines.loo"]
    there = e.judged_by_rounds
    assert set(names) <= set(there.index)
    assert "fedccea.fits" not in there.index
    zeros = ", ".join(f"{x:.0f}" for x in there.loc[names[0], "values"])
    assert tables.numbers(e)["cc-zeros-tmc-sv-rounds"] == zeros
    assert e.judged.loc[names[0], "values"] != there.loc[names[0], "values"]
    assert e.judged.loc[names[0], "paper"] == there.loc[names[0], "paper"]


def test_a_federation_is_trained_beside_the_papers():
    one = mnist("iid", data="mnist", lr=0.01, batch_size=32)
    scales = ({"samples": None}, {"samples": 300}, {"samples": 300, "lr": 0.1})
    rows = [({**one, **s}, {"base": [91.0 - k]}) for k, s in enumerate(scales)]
    rows.append(({**one, "dataset": "emnist", "data": "emnist-letters", "samples": 300},
                 {"base": [60.0]}))  # fmt: skip
    table = tables.learning(records(rows))
    found = table.loc["MNIST, IID"]
    assert found.index.tolist() == ["all samples", "300 samples", "300 samples, as run here"]
    assert found["mean"].tolist() == [91.0, 90.0, 89.0]
    assert set(found["paper"]) == {91.12}
    assert table.loc["EMNIST, IID", "paper"].isna().all()


def test_leads_are_pooled_within_a_seed():
    """A seed is good for all methods alike, and a setting for one: three of each."""
    rows = []
    for distribution, gain in (("iid", 1.0), ("weak", 2.0), ("strong", 6.0)):
        areas = {"fedccea": [3.0 + gain, 5.0 + gain, 8.0 + gain], "loo": [3.0, 5.0, 8.0]}
        found = {f"area.{m}": v for m, v in areas.items()}
        rows.append((mnist(distribution, "label-40"), found))
    one_seed = {"area.fedccea": [90.0], "area.loo": [0.0]}
    rows.append((mnist("iid", "label-10"), one_seed))  # not pooled
    over = {"LOO": ("area.fedccea", "area.loo"), "TMC-SV": ("area.fedccea", "area.tmc-sv")}
    leads = tables.intervals(seed_table(rows), over, pooled=True)
    assert leads.index.get_level_values(0).unique().tolist() == [POOL]  # one setting is no pool
    assert leads.loc[(POOL, "LOO"), ["mean", "low", "high"]].tolist() == [1.5] * 3
    assert leads.loc[(POOL, "TMC-SV"), "n"] == 0
    # where LOO ranks nobody in one of the settings its mean would be over other ones
    del rows[1][1]["area.loo"]
    leads = tables.intervals(seed_table(rows), over, pooled=True)
    assert leads.loc[(POOL, "LOO"), "n"] == 0


def test_losses_are_beside_random_clients_of_the_same_seed():
    curves = {"removed": [[0.0, 40]] * 2, "random": [[90.0, 80], [90.0, 75]]}
    curves["fedccea.highest"] = [[90.0, 70], [90.0, 66]]
    found = {"lost40.fedccea": [14.0, 21.0], "lost40.loo": [9.0, 12.0]}
    table = seed_table([(mnist(), found)], [(mnist(noisy=0.2), curves)])
    assert table["lost40.random"].tolist() == [10.0, 15.0]
    assert table["lost40.highest.random"].tolist() == [10.0, 15.0]
    assert table["lost40.highest.fedccea"].tolist() == [20.0, 24.0]


def test_deals_are_a_seeds_mean():
    found = {"area.learnt": [5.0, 7.0]}
    for k in range(n.DEALS):
        sign = 1 if k % 2 else -1
        found |= {f"area.dealt{k}": [4.0 + sign, 4.0 - sign], f"lost40.dealt{k}": [6.0, 6.0]}
    table = tables.mean_deals(seed_table([(mnist(), found)]))
    assert table["area.dealt"].tolist() == [4.0, 4.0]
    assert table["lost40.dealt"].tolist() == [6.0, 6.0]
    assert "area.dealt-connected" not in table  # of one reading


def test_a_gain_is_over_the_same_clients_of_the_same_seed():
    clean = mnist("iid", noisy=0.2)
    series = lossless([(clean, values([1.0, 2, 3, 4, 2.5], [1.0, 1, 1, 1, 0]))])
    rows = [(clean, {"base": [0.0, 0.0]})]
    rows += [(mnist("iid", "label-40"), {"auc.fedccea": [0.6, 1.0], "auc.loo": [0.9, 1.0]})]
    shuffled = series_of(series).sample(frac=1, random_state=0)
    table = tables.seed_table(records(rows), shuffled)
    noisy = table.xs("label-40", level="noise")
    assert noisy["clean.fedccea"].tolist() == [0.5, 1.0]
    assert noisy["gain.fedccea"].tolist() == pytest.approx([0.1, 0.0])
    assert noisy["gain.loo"].tolist() == pytest.approx([0.4, 0.0])
    assert noisy["gain.tmc-sv"].isna().all()
    assert tables.compared(table).empty  # not for every method
    # without clean runs on record there is nothing to compare with
    alone = tables.seed_table(records(rows), shuffled[shuffled.series == "removed"])
    assert alone["gain.fedccea"].isna().all()


def test_a_forest_has_a_panel_per_setting_on_one_scale():
    rows = [(mnist(d), {"area.loo": [x, x + 2], "area.fedccea": [0.0, 0.0]})
            for d, x in (("iid", 1.0), ("strong", 9.0))]  # fmt: skip
    table = seed_table(rows)
    found = tables.intervals(table, {"LOO": "area.loo", "FedCCEA": "area.fedccea"})
    picture = plots.forests({"ours": found, "twice": 2 * found}, "points")
    assert [a.get_title() for a in picture.axes] == ["MNIST\nIID", "MNIST\nstrong non-IID"]
    assert len({axis.get_xlim() for axis in picture.axes}) == 1
    line, ours, twice = picture.axes[1].lines
    assert line.get_xdata() == [0.0, 0.0]
    assert (ours.get_xdata().tolist(), twice.get_xdata().tolist()) == ([10.0, 0.0], [20.0, 0.0])
    assert (ours.get_ydata() < twice.get_ydata()).all()
    printed = plots.forests({"": found.assign(paper=[5.0, 5, np.nan, np.nan])}, "", level=None)
    assert [len(axis.lines) for axis in printed.axes] == [2, 1]


def test_times_by_hand():
    seconds = {"simulation": [0.3], "lockstep": [0.1], "walk": [1.0], "loo": [2.0]}
    metrics = {f"seconds.{k}": v for k, v in seconds.items()}
    metrics |= {"trained.lockstep": [0.5], "trained.loo": [4.0]}
    metrics |= {"testing.lockstep": [0.05], "testing.loo": [1.0]}
    times = tables.measured_times(records([({"clients": 4}, metrics)])).loc[4]
    assert times["FedCCEA over LOO"] == pytest.approx(5)
    assert times["data trained on"] == pytest.approx(12.5)
    assert times["training alone"] == pytest.approx(5)
    assert times["one simulation (ms)"] == pytest.approx(300)


# ---------------------------------------------------- what the pages say, from committed records


@pytest.fixture(scope="module")
def evaluation():
    return tables.Evaluation("paper")


def test_leave_one_out_finds_noisy_clients_better_where_classes_are_few(evaluation):
    here = evaluation.here
    assert here["auc.loo"].mean() > 0.85
    assert here["trained.loo"].mean() < 0.5 * here["trained.fedccea"].mean()
    assert paired_interval(here["auc.fedccea"] - here["auc.loo"]).high < 0
    for fit in ("fedccea", "connected"):
        cut = bounded_interval(here[f"auc.{fit}"], 0, 1)
        assert cut.low < 0.5 < cut.high
    for distribution in ("iid", "weak"):
        part = evaluation.at("mnist", distribution, "label-40")
        for m in n.FITS:
            gap = paired_interval(part[f"auc.{m}"] - part["auc.loo"])
            assert gap.low < 0 < gap.high
    leads = tables.leads(evaluation)
    assert leads["cc-mnist-chance"].high < 0
    noisy = tables.compared(evaluation.runs)
    (mnist,) = (x for name, x in tables.pools(noisy) if name.startswith("MNIST, strong"))
    gained = lead(mnist, "gain.fedccea", "gain.loo")
    assert gained.low < 0 < gained.high
    over = {x: tables.over_retrained(x) for x in ("auc", "gain")}
    chance, gain = (tables.intervals(noisy, over[x], pooled=True) for x in ("auc", "gain"))
    few = chance.index.get_level_values(0).str.contains("strong")
    assert (chance[few]["mean"] < 0).all()
    assert (chance[~few]["mean"] > 0).all()
    assert (chance[~few]["low"] < 0).all()
    printed = gain[~few & gain.index.get_level_values(1).str.startswith("FedCCEA\n")]
    assert (printed["mean"] < 0).all()


def test_fedccea_loses_at_both_ends_of_its_order(evaluation):
    points, amounts = tables.points(evaluation), tables.amounts(evaluation)
    assert points["cc-lost-cca"].low > 0
    assert lead(evaluation.here, "lost40.connected", "lost40.random").low > 0
    assert mean_interval(evaluation.here["area.loo"]).low > 0
    assert min(amounts["cc-both-low"].low, amounts["cc-both-high"].low) > 0
    for noise in ("none", "label-10", "label-20", "label-40"):
        crossed = [tables.crossed(evaluation, m, noise) for m in ("fedccea", "tmc-sv", "loo")]
        assert crossed == sorted(crossed, reverse=True)
    verdict = evaluation.judged.verdict["fedccea.lasting.label-40.fedccea"]
    assert verdict == "not reproduced"
    clean = evaluation.at("mnist", "strong", "none")
    assert (clean["zeros.fedccea"] > 0).all()
    assert not clean["zeros.tmc-sv"].any()
    assert (clean["zeros.loo"] == 1).all()
    assert amounts["cc-zeros-drop"].low > 0


def test_partial_participation_is_mostly_the_amounts(evaluation):
    points, amounts = tables.points(evaluation), tables.amounts(evaluation)
    strong = lead(evaluation.here, "area.partial", "area.fedccea")
    assert min(points["cc-wider-iid"].low, strong.low) > 0
    iid = evaluation.at("mnist", "iid", "label-40")
    extra = paired_interval(iid["area.partial"] - iid["area.partial-size"])
    assert extra.low < 0 < extra.high
    assert amounts["cc-area-partial-size"].low > 0
    assert points["cc-over-amounts"].low > 0
    assert points["cc-dealt-mnist"].low < 0 < points["cc-dealt-mnist"].mean
    mnist, letters = (
        evaluation.deals.xs((x, *tables.PLACE[1:]), level=[0, 1, 2]) for x in ("mnist", "emnist")
    )
    dealt = "area.dealt-connected"
    assert lead(letters, dealt, "area.amounts").mean < 0 < points["cc-over-dealt-letters"].low
    over = lead(mnist, "area.learnt-connected", dealt)
    assert over.low < 0 < over.high


def test_sizes_explain_little_of_unseen_simulations(evaluation):
    means = evaluation.runs.groupby(tables.RUN[:3]).mean()
    first, rival = means["unseen.fedccea"], means["unseen.same_round"]
    assert (first < 0).mean() > 0.5
    assert first.max() < 0.1
    assert (rival > first).mean() > 0.9
    assert rival.max() > means["unseen.connected"].max() > first.max()
    assert means.xs("none", level="noise")["rank.0.5"].max() < 0.5
    assert means["explained.adam"].mean() < means["explained"].mean()
    clean = evaluation.at("mnist", "strong", "none").mean()
    assert clean["rank.seeds"] > 0.9 > clean["rank.0.5"] + 0.3
    per_round = evaluation.valued[evaluation.valued.metric == "per_round"].value
    assert (per_round > 0).all()  # nowhere is the order upside down
    counted = tables.counts(evaluation)
    by_setting = evaluation.runs.groupby(tables.RUN[:3])["unseen.fedccea"]
    sure = sum(mean_interval(x).high < 0 for _, x in by_setting)
    assert 0 < sure < counted["cc-unseen-below"] / 2
    assert 0 < counted["cc-good"] < counted["cc-judged"] / 2
    assert counted["cc-bad"] > 0


def test_times_and_trainings_are_as_the_pages_say(evaluation):
    printed, ours = tables.printed_times(), evaluation.measured
    assert (printed["FedCCEA over TMC-SV"] > 1).all()
    assert printed["LOO (s)"].iloc[-1] < 65 * printed["FedCCEA, one simulation (s)"].iloc[-1]
    over = ours["data trained on"]
    assert over.iloc[0] > 10 > 1 > over.iloc[-1]
    assert over.is_monotonic_decreasing
    assert ours["FedCCEA over LOO"].iloc[-1] > 1
    base = evaluation.learnt.xs("all samples", level=1).dropna(subset="paper")
    assert len(base) == 3
    assert ((base["mean"] - base.paper).abs() < 2).all()
    noisy = tables.compared(evaluation.runs).groupby(tables.RUN[:3], sort=False).mean()
    assert (noisy["trained.loo"] < 0.5 * noisy["trained.fedccea"]).all()
    places = noisy.index.get_level_values
    sharp = noisy[(places(1) == "strong") & ~places(2).str.startswith("pattern")]
    best = sharp[["auc.fedccea", "auc.connected"]].max(axis=1)
    assert (sharp["auc.loo"] > best).all()
