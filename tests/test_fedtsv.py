from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch

import fedkit as fk
from fedkit.federated.selection import ClientTable
from fedkit.learning.evaluation import Evaluator
from fedkit.papers.fedtsv import settings as paper
from fedkit.papers.fedtsv.cells import CHANGES, TEN_SEEDS, changed
from fedkit.papers.fedtsv.runs import final_weights, round_metrics, run_cell
from fedkit.papers.registry import Cell, get
from fedkit.papers.separation import chance_above

BASE = paper.Setting(
    "tsv", "digits", "digits", model="mlp-8", clients=12, skewed=2, malicious=3, rounds=6,
    participants=4, lr=0.1, batch_size=8, validation=60, evaluate_every=2,
)  # fmt: skip


def cell(s, seeds=(0, 1)):
    return Cell("smoke", "fedtsv", "figures", asdict(s), seeds)


@pytest.mark.parametrize("method", paper.METHODS)
def test_every_method_runs(method):
    for result in run_cell(cell(replace(BASE, method=method)), None, False):
        metrics, series = result["metrics"], result["series"]
        assert 0 <= metrics["accuracy"] <= 100
        assert series["round"] == [2, 4, 6]
        assert len(series["loss"]) == len(series["loss_round"])
        assert sum(series["weight"]) == pytest.approx(100)
        assert series["kind"] == [0] * 7 + [1] * 2 + [2] * 3


def test_replicates_do_not_depend_on_each_other():
    both, alone = run_cell(cell(BASE), None, False), run_cell(cell(BASE, (1,)), None, False)
    for name, value in alone[0]["metrics"].items():
        if not name.endswith("seconds_per_round"):
            assert both[1]["metrics"][name] == pytest.approx(value, rel=1e-4, nan_ok=True), name


def test_a_federation_is_what_the_paper_describes():
    f = paper.federation(replace(BASE, clients=100, skewed=10, malicious=20), 0)
    assert f.n_clients == 100
    assert len(f.y_val) == 60
    kinds = replace(BASE, clients=100, skewed=10, malicious=20).kinds()
    assert np.bincount(kinds).tolist() == [70, 10, 20]
    shares = f.label_counts / f.sizes[:, None]
    assert shares[kinds == 1].max(axis=1).mean() > 1.5 * shares[kinds == 0].max(axis=1).mean()
    liars = [f.client_data(i)[1] for i in np.flatnonzero(kinds == 2)]
    truth = [f.y[f.clients[i]] for i in np.flatnonzero(kinds == 2)]
    assert all((a != b).all() for a, b in zip(liars, truth, strict=True))
    assert (f.client_data(0)[1] == f.y[f.clients[0]]).all()


def maps(f, clients):
    """Which label each true label becomes, per client; -1 where it has none."""
    found = np.full((len(clients), 10), -1)
    for row, i in enumerate(clients):
        for a, b in zip(f.y[f.clients[i]].tolist(), f.client_data(i)[1].tolist(), strict=True):
            assert found[row, a] in (-1, b)
            found[row, a] = b
    return found


def test_liars_lie_alone_or_together():
    for together in (False, True):
        f = paper.federation(replace(BASE, collusion=together), 0)
        found = maps(f, [9, 10, 11])
        both = (found[0] >= 0) & (found[1] >= 0)
        assert (found[0] == found[1])[both].all() == together


def test_a_one_sided_validation_set_loses_half_of_its_classes():
    f, full = (paper.federation(replace(BASE, one_sided=x), 0) for x in (0.2, 1.0))
    counts, before = (np.bincount(x.y_val, minlength=10) for x in (f, full))
    assert (counts[:5] == before[:5]).all()
    assert (counts[5:] >= 1).all()
    assert counts[5:].sum() < 0.4 * before[5:].sum()


def test_loud_liars_change_what_the_server_sees_and_nothing_else():
    quiet, loud = (replace(BASE, method="fedavg", scale=x, rounds=1) for x in (1.0, 10.0))
    f = paper.federation(quiet, 0)
    seen = {}
    for s in (quiet, loud):

        def probe(r, v, s=s):
            seen[s.scale] = (r.participants, r.updates.norm(dim=1).numpy())
            return {}

        paper.simulate(replace(s, participants=12), [f], [0], probe=probe)
    ratio = seen[10.0][1] / seen[1.0][1]
    np.testing.assert_allclose(ratio, np.where(seen[1.0][0] >= 9, 10, 1), rtol=1e-4)


def test_even_updates_are_equally_long_also_where_liars_are_loud():
    s = replace(BASE, method="fedavg", even=True, scale=10.0, rounds=2, participants=12)
    seen = []
    paper.simulate(s, [paper.federation(s, 0)], [0], probe=lambda r, v: seen.append(r) or {})
    for r in seen:
        lengths = r.updates.norm(dim=1)
        torch.testing.assert_close(lengths, lengths[:1].expand(12))
    cut = []
    clip = replace(s, even="clip", rounds=1)
    paper.simulate(clip, [paper.federation(s, 0)], [0], probe=lambda r, v: cut.append(r) or {})
    shortened = cut[0].updates.norm(dim=1)
    torch.testing.assert_close(shortened.max(), seen[0].updates[0].norm())
    assert (shortened < 0.99 * shortened.max()).any()


def test_leave_one_out_by_loss_asks_for_the_validation_loss():
    for method, utility in (("loo", "accuracy"), ("loo-loss", "negative_loss")):
        s, seen = replace(BASE, method=method, rounds=1), []
        f = paper.federation(s, 0)
        paper.simulate(s, [f], [0], probe=lambda r, v, seen=seen: seen.append((r, v)) or {})
        r, v = seen[0]
        judge = Evaluator(r.architecture, f.x_val, f.y_val, utility)
        mean = r.base + r.updates.mean(dim=0)
        without = r.base + (r.updates.sum(dim=0) - r.updates) / (len(r.updates) - 1)
        gone = judge.utilities(mean[None])[0] - judge.utilities(without)
        scale = abs(judge.utilities(mean[None])[0])  # the values are differences of such
        np.testing.assert_allclose(v.values, gone, rtol=0, atol=1e-5 * scale)


def test_what_goes_on_in_the_rounds_by_hand():
    s = replace(BASE, clients=4, skewed=1, malicious=1, rounds=4)  # kinds 0, 0, 1, 2
    rows = [  # round, client, value, weight
        (1, 0, 0.4, 0.9), (1, 3, -0.2, 0.1), (2, 1, 0.2, 0.5), (2, 2, 0.1, 0.5),
        (3, 0, 0.3, 0.8), (3, 3, 0.1, 0.2), (4, 2, -0.3, 0.5), (4, 3, -0.5, 0.5),
    ]  # fmt: skip
    clients = pd.DataFrame(rows, columns=["round", "client", "value", "weight"])
    nan = float("nan")
    notes = [
        {"fallback": f, "length_iid": a, "length_malicious": b, "reach": c, "closer": 0.5}
        for f, a, b, c in ((0, 1.0, 3.0, 0), (0, 1.0, nan, 0), (0, 2.0, 8.0, 40), (1, nan, 1.0, 60))
    ]
    found = round_metrics(s, clients, notes)
    assert found["weight_malicious"] == pytest.approx(35)
    assert found["reach_malicious"] == pytest.approx(50)
    assert found["fallback_malicious"] == pytest.approx(100 * 0.5 / 0.7)
    assert (found["fallback.first"], found["fallback.second"]) == (0, 50)
    assert found["length.malicious-iid.first"] == 3
    assert found["length.malicious-iid.second"] == 4
    assert found["value.iid.first"] == pytest.approx(0.3)
    assert found["closer.iid.first"] == pytest.approx(50)
    assert found["value.malicious.second"] == pytest.approx(-0.2)
    assert found["value.skewed.first"] == pytest.approx(0.1)
    other = round_metrics(s, clients, [note | {"fallback": nan} for note in notes])
    assert np.isnan(other["fallback_malicious"])
    assert np.isnan(other["fallback.second"])


def test_rounds_without_a_contribution_are_noted():
    s = replace(BASE, rounds=12, malicious=9, skewed=2)
    metrics = run_cell(cell(s, (0,)), None, False)[0]["metrics"]
    assert metrics["fallback.second"] > 0
    assert 0 <= metrics["closer.iid.second"] <= 100
    assert 0 <= metrics["told.iid-malicious"] <= metrics["auc.iid-malicious"] + 0.5
    blind = run_cell(cell(replace(s, method="fedavg"), (0,)), None, False)[0]["metrics"]
    assert np.isnan(blind["fallback.second"])


def test_tsv_gives_liars_less_weight_than_their_share():
    s = replace(BASE, rounds=15, participants=6)
    found = {m: run_cell(cell(replace(s, method=m)), None, False) for m in ("tsv", "fedavg")}
    share = {m: np.mean([r["metrics"]["weight_malicious"] for r in found[m]]) for m in found}
    assert share["tsv"] < 0.5 * share["fedavg"]
    assert np.mean([r["metrics"]["auc.iid-malicious"] for r in found["tsv"]]) > 0.9


def test_final_weights():
    values = np.array([3.0, -1, 1, *[0.0] * 9])
    table = ClientTable(np.ones(12), np.ones((12, 10)), values, np.ones(12, dtype=np.int64))
    np.testing.assert_allclose(final_weights(BASE, table)[:3], [0.75, 0, 0.25])
    np.testing.assert_allclose(final_weights(replace(BASE, method="fedavg"), table), 1 / 12)
    oracle = final_weights(replace(BASE, method="oracle"), table)
    assert oracle[9:].sum() == 0
    table.values[:] = -1
    np.testing.assert_allclose(final_weights(BASE, table), 1 / 12)


def test_chance_above_by_hand():
    assert chance_above(np.array([3.0, 1.0]), np.array([2.0, 1.0, 0.0])) == pytest.approx(4.5 / 6)
    assert np.isnan(chance_above(np.array([]), np.array([1.0])))


def test_the_study_changes_one_thing_at_a_time():
    for name, change in CHANGES.items():
        assert len(change) <= 1, name
    small = changed(BASE, {"malicious": 40})
    assert small.malicious == 4
    cells = get("fedtsv", "study").cells("paper")
    assert len({c.key for c in cells}) == len(cells)
    assert {c.settings["rounds"] for c in cells} == {400}
    assert not {c.key for c in cells} & {c.key for c in get("fedtsv", "figures").cells("paper")}
    assert set(TEN_SEEDS) < set(CHANGES)
    runs = [(str(sorted(c.settings.items())), seed) for c in cells for seed in c.seeds]
    assert len(set(runs)) == len(runs)  # blocks of seeds do not overlap
    assert set(Counter(run for run, _ in runs).values()) == {3, 10}
    assert {c.seeds for c in get("fedtsv", "study").cells("paper", (4, 5))} == {(4, 5)}
    with pytest.raises(ValueError, match="unknown profile"):
        get("fedtsv", "study").cells("huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"malicious": 12}, "leave at least one IID client"),
        ({"one_sided": 0}, "one_sided is 0"),
        ({"even": "cut"}, "even is 'cut'"),
        ({"validation": 0}, "the reference needs images"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        replace(BASE, **change)


def test_the_ready_made_strategy_is_that_of_the_paper():
    assert fk.FedTSV().strategy() == paper.strategy(BASE)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="unknown method 'fedsv'"):
        paper.strategy(replace(BASE, method="fedsv"))
