from dataclasses import replace

import numpy as np
import pytest
from tinyrecords import series_of

import fedkit as fk
from fedkit.federated.rounds import ClientTable
from reproduction.common import chance_above
from reproduction.fedtsv import findings
from reproduction.fedtsv import run as paper
from reproduction.fedtsv.findings import EVEN, LOUD, SLOW
from reproduction.fedtsv.run import final_weights

BASE = paper.Setting(
    "tsv", "digits", "digits", model="mlp-8", clients=12, skewed=2, malicious=3, rounds=6,
    participants=4, lr=0.1, batch_size=8, validation=60, evaluate_every=2,
)  # fmt: skip


def test_a_federation_is_what_the_paper_describes():
    s = replace(BASE, clients=100, skewed=10, malicious=20)
    f, kinds = paper.federation(s, 0), s.kinds()
    assert len(f.y_val) == 60
    assert np.bincount(kinds).tolist() == [70, 10, 20]
    shares = f.label_counts / f.sizes[:, None]
    assert shares[kinds == 1].max(axis=1).mean() > 1.5 * shares[kinds == 0].max(axis=1).mean()
    liars = [f.client_data(i)[1] for i in np.flatnonzero(kinds == 2)]
    truth = [f.y[f.clients[i]] for i in np.flatnonzero(kinds == 2)]
    assert all((a != b).all() for a, b in zip(liars, truth, strict=True))
    assert (f.client_data(0)[1] == f.y[f.clients[0]]).all()


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
    assert chance_above(np.array([np.nan, 3.0]), np.array([2.0, np.nan])) == 0.25


def test_the_ready_made_strategy_is_that_of_the_paper():
    assert fk.FedTSV().strategy() == paper.strategy(BASE)


def test_curves_are_compared_by_seed_and_round():
    losses = {"loss_round": [[0, 3]] * 2, "weight": [[1.0]] * 2}
    fedavg = {"round": [[2, 4]] * 2, "accuracy": [[50.0, 60], [70.0, 90]]}
    tsv = {"round": [[2, 4], [2, 5]], "accuracy": [[51.0, 63], [72.0, 91]]}
    series = series_of(
        [
            ({"method": "fedavg"}, {**fedavg, **losses, "loss": [[2.0, 1.0], [1.5, 0.5]]}),
            ({"method": "tsv"}, {**tsv, **losses, "loss": [[2.0, 0.7], [1.5, 0.25]]}),
        ]
    )
    plain = findings.over_rounds(series, ["fedavg", "tsv"])
    assert len(plain) == 8
    assert plain.accuracy.sum() == 50 + 60 + 70 + 90 + 51 + 63 + 72 + 91
    ahead = findings.over_rounds(series, ["fedavg", "tsv"], "fedavg")
    assert set(ahead.method) == {"FedTSV (exact)"}
    assert ahead.accuracy.tolist()[:3] == [1, 3, 2]
    assert np.isnan(ahead.accuracy.iloc[3])  # tested after another round
    assert ahead.loss.tolist() == pytest.approx([0, -0.3, 0, -0.25])


# what the pages say, from the committed records


def test_who_is_most_accurate_turns_on_the_learning_rate(evaluation):
    ours = {m: evaluation.lead("tsv", m) for m in findings.RIVALS}
    slow = {m: evaluation.lead("tsv", m, SLOW) for m in findings.RIVALS}
    assert min(cut.low for m, cut in slow.items() if m != "oracle") > 0  # the paper's order
    assert slow["oracle"].low < 0 < slow["oracle"].high
    assert ours["fedavg"].low > 0 > ours["cgsv"].high
    assert all(ours[m].low < 0 < ours[m].high for m in ("loo", "loo-loss", "oracle"))
    rest = [evaluation.lead("tsv", "cgsv", c) for c in findings.RATES.values()]
    assert [cut.high < 0 for cut in rest] == [False, False, True, False]
    slowly = {m: evaluation.values(m, change=SLOW) for m in ("tsv", "loo", "loo-loss")}
    later = {m: (slowly["tsv"] - x)[lambda gaps: gaps.index > 2] for m, x in slowly.items()}
    cuts = {m: findings.mean_interval(gaps) for m, gaps in later.items()}
    assert cuts["loo"].n == 7
    assert cuts["loo"].low < 0 < cuts["loo-loss"].low
    reached = [evaluation.mean("fedavg", "accuracy_late", c) for c in findings.RATES.values()]
    assert [abs(x - 75) < 5 for x in reached] == [True, False, False, False]


def test_scores_find_liars_and_weights_shut_out_honest_clients(evaluation):
    weights = {change: evaluation.weights(change) for change in findings.LOST}
    iid = {change: cut["iid"] for change, cut in weights.items()}
    skewed = {change: cut["skewed"] for change, cut in weights.items()}
    here, rational, gaussian, angle, few, slow = iid.values()
    assert rational.high < 10 < 30 < here.low < here.high < gaussian.low
    assert max(angle.high, few.high) < here.low
    assert slow.mean == 0
    assert [cut.mean == 100 for cut in skewed.values()] == [True, True, True, False, False, True]
    assert 30 < skewed["utility of the angle"].mean < 60
    assert float(findings.counts(evaluation)["told-least"]) > 0.95
    assert evaluation.mean("tsv", "auc.skewed-malicious") > 0.98
    assert evaluation.mean("tsv", "weight_malicious") < evaluation.mean("cgsv", "weight_malicious")
    pair = "auc.iid-malicious"
    assert evaluation.mean("cgsv", pair) > 0.99 > 0.01 > evaluation.mean("cgsv-raw", pair)
    counted = findings.counts(evaluation)
    assert 5 < counted["n-weights"] < counted["n-failed"]


def test_long_updates_free_riders_and_dealt_values_fool_it(evaluation):
    loud = {m: evaluation.lead("tsv", m, LOUD) for m in findings.RIVALS}
    assert max(loud[m].high for m in ("loo", "loo-loss", "oracle")) < 0 < loud["fedavg"].low
    assert loud["cgsv"].mean < 0 < loud["cgsv"].high
    assert evaluation.mean("tsv", "auc.iid-malicious", LOUD) > 0.99
    assert evaluation.mean("fedavg", "accuracy_late", LOUD) < 70
    lowest = evaluation.values("tsv", "accuracy_lowest_late", LOUD)
    assert 0 < (lowest < 25).sum() < 10
    assert evaluation.values("loo", "accuracy_lowest_late", LOUD).min() > 85
    free = [evaluation.free_riders(m) for m in ("fedtsv", "loo-loss")]
    assert free[0].high < 0.2 < 0.9 < free[1].low
    found = {name: cut for name, (cut, _) in findings.differences(evaluation).items()}
    assert found["loss-shuffled"].high < 0
    assert found["loss-shuffled"].mean < 0.5 * found["loss-tsv"].mean
    assert found["remedy"].low > 0
    exact = evaluation.lead("tsv", "tsv-sampled")
    assert exact.low < 0 < exact.high
    alike = evaluation.lead("fedavg", "tsv", EVEN)
    assert alike.low < 0 < alike.high
    near = [evaluation.mean("tsv", f"closer.iid.{half}") for half in ("first", "second")]
    assert near[1] < near[0] < 20
    assert evaluation.mean("tsv", "fallback_malicious") > 90


def test_exact_values_are_cheaper_than_sampled_ones_for_five(evaluation):
    timed = findings.timings(evaluation)
    assert timed.loc[5, "seconds.exact"] < timed.loc[5, "seconds.sampled"]
    assert timed.loc[20, "seconds.exact"] < 1 < timed.loc[20, "seconds.averaged"]
