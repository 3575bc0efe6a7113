"""FedCCEA's pools, and what its pages say, from the committed records."""

from tinyrecords import records

from fedkit.intervals import bounded_interval, mean_interval, paired_interval
from reproduction.fedccea import experiments as n
from reproduction.fedccea import findings
from reproduction.overviews import lead

POOL = "MNIST, IID and weak non-IID, mean of 2 settings"


def test_rivals_on_record_are_judged_in_both_readings():
    e = findings.Evaluation()
    names = ["fedccea.tmc-zeros", "fedccea.t3.mnist.strong.tmc-sv", "fedccea.declines.loo"]
    there = e.judged_by_rounds
    assert set(names) <= set(there.index)
    assert "fedccea.fits" not in there.index
    zeros = ", ".join(f"{x:.0f}" for x in there.loc[names[0], "values"])
    assert findings.numbers(e)["cc-zeros-tmc-sv-rounds"] == zeros
    assert e.judged.loc[names[0], "values"] != there.loc[names[0], "values"]
    assert e.judged.loc[names[0], "paper"] == there.loc[names[0], "paper"]


def test_leads_are_pooled_within_a_seed():
    """A seed is good for all methods alike, and a setting for one: three of each."""
    rows, place = [], {"dataset": "mnist", "noise": "label-40"}
    for distribution, gain in (("iid", 1.0), ("weak", 2.0), ("strong", 6.0)):
        areas = {"fedccea": [3.0 + gain, 5.0 + gain, 8.0 + gain], "loo": [3.0, 5.0, 8.0]}
        found = {f"area.{m}": v for m, v in areas.items()}
        rows.append(({**place, "distribution": distribution}, found))
    one_seed = {"area.fedccea": [90.0], "area.loo": [0.0]}
    rows.append(({**place, "distribution": "iid", "noise": "label-10"}, one_seed))  # not pooled
    over = {"LOO": ("area.fedccea", "area.loo"), "TMC-SV": ("area.fedccea", "area.tmc-sv")}
    leads = findings.intervals(findings.seed_table(records(rows)), over, pooled=True)
    assert leads.index.get_level_values(0).unique().tolist() == [POOL]  # one setting is no pool
    assert leads.loc[(POOL, "LOO"), ["mean", "low", "high"]].tolist() == [1.5] * 3
    assert leads.loc[(POOL, "TMC-SV"), "n"] == 0
    # where LOO ranks nobody in one of the settings its mean would be over other ones
    del rows[1][1]["area.loo"]
    leads = findings.intervals(findings.seed_table(records(rows)), over, pooled=True)
    assert leads.loc[(POOL, "LOO"), "n"] == 0


# ---------------------------------------------------- what the pages say, from committed records


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
    leads = findings.leads(evaluation)
    assert leads["cc-mnist-chance"].high < 0
    noisy = findings.compared(evaluation.runs)
    (mnist,) = (x for name, x in findings.pools(noisy) if name.startswith("MNIST, strong"))
    gained = lead(mnist, "gain.fedccea", "gain.loo")
    assert gained.low < 0 < gained.high
    over = {x: findings.over_retrained(x) for x in ("auc", "gain")}
    chance, gain = (findings.intervals(noisy, over[x], pooled=True) for x in ("auc", "gain"))
    few = chance.index.get_level_values(0).str.contains("strong")
    assert (chance[few]["mean"] < 0).all()
    assert (chance[~few]["mean"] > 0).all()
    assert (chance[~few]["low"] < 0).all()
    printed = gain[~few & gain.index.get_level_values(1).str.startswith("FedCCEA\n")]
    assert (printed["mean"] < 0).all()


def test_fedccea_loses_at_both_ends_of_its_order(evaluation):
    points, amounts = findings.points(evaluation), findings.amounts(evaluation)
    assert points["cc-lost-cca"].low > 0
    assert lead(evaluation.here, "lost40.connected", "lost40.random").low > 0
    assert mean_interval(evaluation.here["area.loo"]).low > 0
    assert min(amounts["cc-both-low"].low, amounts["cc-both-high"].low) > 0
    for noise in ("none", "label-10", "label-20", "label-40"):
        crossed = [findings.crossed(evaluation, m, noise) for m in ("fedccea", "tmc-sv", "loo")]
        assert crossed == sorted(crossed, reverse=True)
    verdict = evaluation.judged.verdict["fedccea.lasting.label-40.fedccea"]
    assert verdict == "not reproduced"
    clean = evaluation.at("mnist", "strong", "none")
    assert (clean["zeros.fedccea"] > 0).all()
    assert not clean["zeros.tmc-sv"].any()
    assert (clean["zeros.loo"] == 1).all()
    assert amounts["cc-zeros-drop"].low > 0


def test_partial_participation_is_mostly_the_amounts(evaluation):
    points, amounts = findings.points(evaluation), findings.amounts(evaluation)
    strong = lead(evaluation.here, "area.partial", "area.fedccea")
    assert min(points["cc-wider-iid"].low, strong.low) > 0
    iid = evaluation.at("mnist", "iid", "label-40")
    extra = paired_interval(iid["area.partial"] - iid["area.partial-size"])
    assert extra.low < 0 < extra.high
    assert amounts["cc-area-partial-size"].low > 0
    assert points["cc-over-amounts"].low > 0
    assert points["cc-dealt-mnist"].low < 0 < points["cc-dealt-mnist"].mean
    mnist, letters = (
        evaluation.deals.xs((x, *findings.PLACE[1:]), level=[0, 1, 2]) for x in ("mnist", "emnist")
    )
    dealt = "area.dealt-connected"
    assert lead(letters, dealt, "area.amounts").mean < 0 < points["cc-over-dealt-letters"].low
    over = lead(mnist, "area.learnt-connected", dealt)
    assert over.low < 0 < over.high


def test_sizes_explain_little_of_unseen_simulations(evaluation):
    means = evaluation.runs.groupby(findings.RUN[:3]).mean()
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
    counted = findings.counts(evaluation)
    by_setting = evaluation.runs.groupby(findings.RUN[:3])["unseen.fedccea"]
    sure = sum(mean_interval(x).high < 0 for _, x in by_setting)
    assert 0 < sure < counted["cc-unseen-below"] / 2
    assert 0 < counted["cc-good"] < counted["cc-judged"] / 2
    assert counted["cc-bad"] > 0


def test_times_and_trainings_are_as_the_pages_say(evaluation):
    printed, ours = findings.printed_times(), evaluation.measured
    assert (printed["FedCCEA over TMC-SV"] > 1).all()
    assert printed["LOO (s)"].iloc[-1] < 65 * printed["FedCCEA, one simulation (s)"].iloc[-1]
    over = ours["data trained on"]
    assert over.iloc[0] > 10 > 1 > over.iloc[-1]
    assert over.is_monotonic_decreasing
    assert ours["FedCCEA over LOO"].iloc[-1] > 1
    base = evaluation.learnt.xs("all samples", level=1).dropna(subset="paper")
    assert len(base) == 3
    assert ((base["mean"] - base.paper).abs() < 2).all()
    noisy = findings.compared(evaluation.runs).groupby(findings.RUN[:3], sort=False).mean()
    assert (noisy["trained.loo"] < 0.5 * noisy["trained.fedccea"]).all()
    places = noisy.index.get_level_values
    sharp = noisy[(places(1) == "strong") & ~places(2).str.startswith("pattern")]
    best = sharp[["auc.fedccea", "auc.connected"]].max(axis=1)
    assert (sharp["auc.loo"] > best).all()
