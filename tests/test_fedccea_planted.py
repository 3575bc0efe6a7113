"""Who finds noisy clients: beside the same clients without noise, and at which cost."""

import numpy as np
import pytest
from tinyrecords import records, series_of

from fedkit.papers.fedccea import planted
from fedkit.papers.fedccea import settings as paper

PLACE = {"dataset": "mnist", "distribution": "iid"}
CLEAN = {**PLACE, "noise": "none", "noisy": 0.2}
NOISY = {**PLACE, "noise": "label-40"}


def test_parts_by_hand():
    place = {"dataset": "mnist", "distribution": "iid", "noise": "label-40"}
    ends = ("", ".0.25", ".0.5", ".0.75")
    found = {f"auc.{m}{e}": [0.1 * i] for m in paper.METHODS for i, e in enumerate(ends)}
    found |= {f"trained.tmc-sv{e}": [12.0 * i] for i, e in enumerate(ends)}
    table = planted.parts_table(records([(place, found)])).loc["MNIST, IID, 40% label noise"]
    assert table.index.tolist() == ["25%", "50%", "75%", "all"]
    assert table["FedCCEA"].tolist() == ["0.10", "0.20", "0.30", "0.00"]
    assert table["TMC-SV"].tolist() == table["behind the nodes"].tolist()
    assert table["TMC-SV trained"].tolist() == ["12.0", "24.0", "36.0", "0.0"]
    assert table["LOO"].tolist() == ["–", "–", "–", "0.00"]


def values(*seeds):
    """Values of all methods, alike; five clients, of which the last would be noisy."""
    return {f"value.{m}": list(seeds) for m in paper.METHODS}


def test_the_last_fifth_is_compared_without_noise():
    series = series_of([(CLEAN, values([1.0, 2, 3, 4, 2.5], [1.0, 1, 1, 1, 0]))])
    found = planted.all_clean(series)
    assert found.loc[("mnist", "iid", 0)].tolist() == [0.5] * len(paper.METHODS)
    assert found.loc[("mnist", "iid", 1)].tolist() == [1.0] * len(paper.METHODS)
    shuffled = planted.all_clean(series.sample(frac=1, random_state=0))
    assert shuffled.loc[("mnist", "iid", 0), "loo"] == 0.5


def test_a_gain_is_over_the_same_clients_of_the_same_seed():
    series = series_of([(CLEAN, values([1.0, 2, 3, 4, 2.5], [1.0, 1, 1, 1, 0]))])
    frame = records([(CLEAN, {}), (NOISY, {"auc.fedccea": [0.6, 1.0], "auc.loo": [0.9, 1.0]})])
    table = planted.planted_table(frame, series).loc["MNIST, IID, 40% label noise"]
    assert table.index.tolist()[0] == "FedCCEA"
    assert len(table) == len(paper.METHODS)
    assert table.loc["FedCCEA", "the same clients, all clean"] == "0.75 [0.00, 1.00]"
    assert table.loc["FedCCEA", "gain"].startswith("0.05 [")
    assert table.loc["LOO, retrained", "gain"] == "0.20 [-1.00, 1.00]"  # of two probabilities
    assert table.loc["TMC-SV, retrained", "with noise"] == "–"
    # without clean runs on record there is nothing to compare with
    alone = planted.planted_table(frame, series[series.seed > 9])
    assert (alone["gain"] == "–").all()


def test_gains_are_pooled_within_a_seed():
    rows, clean = [], []
    for distribution, gain in (("iid", 0.1), ("weak", 0.3)):
        place = {"dataset": "mnist", "distribution": distribution}
        auc = {f"auc.{m}": [0.5 + gain, 0.6 + gain] for m in paper.METHODS}
        auc["auc.loo"] = [0.4 + gain, 0.5 + gain]
        rows.append(({**place, "noise": "label-40"}, auc))
        clean.append(({**place, "noise": "none", "noisy": 0.2}, values([1, 2, 3, 4, 2.5], [1] * 5)))
    other = {"dataset": "mnist", "distribution": "strong", "noise": "label-40"}
    rows.append((other, {f"auc.{m}": [1.0, 0.9] for m in paper.METHODS}))  # alone in its pool
    clean.append(({**other, "noise": "none", "noisy": 0.2}, values([1, 2, 3, 4, 2.5], [1] * 5)))
    half = {"dataset": "mnist", "distribution": "iid", "noise": "label-10"}
    rows.append((half, {f"auc.{m}": [1.0] for m in paper.METHODS}))  # one seed: not pooled
    found = planted.pooled_gains(records(rows), series_of(clean))
    pool = "MNIST, IID and weak non-IID, mean of 2 settings"
    assert found.index.tolist() == [(pool, "with noise"), (pool, "gain")]
    for kind, by_hand in (("with noise", [0.7, 0.8]), ("gain", [0.2, 0.3])):
        mean, _ = found.loc[(pool, kind), "FedCCEA"].split(" [")
        assert float(mean) == pytest.approx(np.mean(by_hand))
    assert set(found["FedCCEA, over LOO"]) == {"0.10 [0.10, 0.10]"}  # alike in every seed
    assert set(found["FedCCEA, over TMC-SV"]) == {"0.00 [0.00, 0.00]"}
    assert planted.pooled_gains(records(rows[:1]), series_of(clean)).empty
    # over LOO by both, over TMC-SV by neither: alike there
    decided = planted.decided_leads(records(rows), series_of(clean))
    assert {place[1:] for place in decided} == {("FedCCEA", "LOO"), ("behind the nodes", "LOO")}
    assert all(cut.mean == pytest.approx(0.1) for cuts in decided.values() for cut in cuts)
    # in seed 0 LOO has the noisy client last before there is any noise: the gain over it is open
    odd = [(p, {**named, "value.loo": [[1, 2, 3, 4, 0.5], [1] * 5]}) for p, named in clean]
    assert planted.decided_leads(records(rows), series_of(odd)) == {}
    for _, auc in rows[:2]:  # behind LOO now, and over TMC-SV with noise only
        auc["auc.loo"] = [x + 0.3 for x in auc["auc.loo"]]
    decided = planted.decided_leads(records(rows), series_of(clean))
    assert {cut.mean < 0 for cuts in decided.values() for cut in cuts} == {True}
    assert {place[2] for place in decided} == {"LOO"}
    assert planted.decided_leads(records(rows), series_of(odd)) == {}


def test_equal_quality_takes_the_first_budget_that_is_as_good():
    found = {"trained.fedccea": [50.0], "trained.loo": [20.0], "auc.loo": [0.7]}
    found |= {"auc.fedccea": [0.6], "auc.connected": [0.9]}
    budgets = {".0.25": (12.0, 0.5), ".0.5": (25.0, 0.6), ".0.75": (38.0, 0.55), "": (49.0, 0.8)}
    for end, (cost, auc) in budgets.items():
        found |= {f"trained.tmc-sv{end}": [cost], f"auc.tmc-sv{end}": [auc]}
    series = series_of([(CLEAN, values([1.0, 2, 3, 4, 2.5]))])  # clean: 0.5 for all methods
    row = planted.equal_quality_table(records([(NOISY, found)]), series).iloc[0]
    assert row["TMC-SV as good as FedCCEA with"] == "25.0"
    assert row["FedCCEA (gain)"] == "0.60 (+0.10)"
    assert row["TMC-SV as good as behind the nodes with"] == "not with 49.0"
    assert (row["LOO trained"], row["LOO is as good as"]) == ("20.0", "FedCCEA")
    assert planted.equal_quality_table(records([(CLEAN, found)]), series).empty
    found["auc.fedccea"] = [0.5]  # a coin: as good as that is nobody's merit
    row = planted.equal_quality_table(records([(NOISY, found)]), series).iloc[0]
    assert row["TMC-SV as good as FedCCEA with"] == "–"
