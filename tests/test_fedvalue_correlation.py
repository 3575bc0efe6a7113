"""FedValue's experiments on tables: who gets which columns, what is correlated and recorded."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from fedkit.fedvalue.information import conditional_mutual_information
from fedkit.fedvalue.shap import MODELS
from reproduction.fedvalue import correlation as fedvalue
from reproduction.fedvalue.correlation import (
    correlate,
    deal,
    information_values,
    run_correlation,
    summary,
)
from reproduction.fedvalue.experiments import Setting
from reproduction.records import Cell

RNG = np.random.default_rng(1)
WINE = Setting("wine", 3, repetitions=2, rows=12, background=5, walks=20)


class Quick:
    """Stands for a trained model: no training, and SHAP values that are known."""

    def __init__(self, name, x, y, seed):
        self.name, self.columns = name, x.shape[1]

    def accuracy(self, x, y):
        assert x.shape[1] == self.columns
        return {"svm": 0.95, "gbt": 0.94, "lr": 0.9, "rf": 0.9, "nn": 0.5}[self.name]


def quick_explain(model, x, background, seed):
    assert x.shape[1] == background.shape[1] == model.columns
    weights = 1.0 + np.arange(x.shape[1])
    return np.broadcast_to(weights[:, None], (len(x), x.shape[1], 2)).copy()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(fedvalue, "train", Quick)
    monkeypatch.setattr(fedvalue, "explain", quick_explain)
    fedvalue._repetition.cache_clear()
    yield
    fedvalue._repetition.cache_clear()


def cell(s, seeds=(0, 1), name="correlation"):
    return Cell("smoke", "fedvalue", name, asdict(s), seeds)


@pytest.mark.parametrize("features", [1, 2, 3])
@pytest.mark.parametrize("task_has", ["columns", "label"])
def test_columns_are_dealt_evenly(features, task_has):
    s = replace(WINE, features=features, task_has=task_has)
    own, *parties = deal(s, 13, RNG)
    assert len(own) == (features if task_has == "columns" else 0)
    assert {len(p) for p in parties} == {features}
    assert len(parties) == (13 - len(own)) // features
    together = np.concatenate([own, *parties])
    assert len(np.unique(together)) == len(together)
    assert len(deal(replace(s, data_parties=2), 13, RNG)) == 3


def test_correlations_of_values_that_do_not_vary_are_undefined():
    assert correlate(np.array([1.0, 2, 4]), np.array([2.0, 4, 8])) == pytest.approx((1, 1))
    assert correlate(np.array([1.0, 2, 9]), np.array([3.0, 2, 1]))[1] == -1
    assert np.isnan(correlate(np.zeros(3), np.array([1.0, 2, 3]))).all()
    assert np.isnan(correlate(np.array([1.0, 2, 3]), np.array([0.1, 0.1 + 1e-17, 0.1]))).all()


def test_values_and_controls_are_what_they_are_called():
    x = RNG.integers(0, 3, (200, 4))
    y = (x[:, 1] > 0).astype(np.int64)
    parties = [np.array([0]), np.array([1]), np.array([2, 3])]
    values, facts = information_values(WINE, x, y, parties, seed=0)
    expected = [
        conditional_mutual_information(a, y, x[:, 0])
        + conditional_mutual_information(a, y, np.column_stack([x[:, 0], b]))
        for a, b in ((x[:, 1], x[:, 2:]), (x[:, 2:], x[:, 1]))
    ]
    assert np.allclose(values["plugin"], np.array(expected) / 2)
    assert np.allclose(values["alone"][0], conditional_mutual_information(x[:, 1], y, 0 * y))
    assert values["entropy"].argmax() == 1
    assert values["permutation"][1] < values["plugin"][1]
    assert abs(values["shuffled"][0]) < 0.1 < values["plugin"][0]
    assert (facts["exact"], facts["parties"]) == (1, 2)
    assert facts["left"] == pytest.approx(0)


def test_batches_do_not_depend_on_each_other(quick):
    both, alone = (
        run_correlation(cell(WINE), None, False),
        run_correlation(cell(WINE, (1,)), None, False),
    )
    assert both[1]["metrics"] == pytest.approx(alone[0]["metrics"], nan_ok=True)
    assert both[0]["metrics"] != pytest.approx(both[1]["metrics"], nan_ok=True)


def test_the_summary_counts_bars():
    metrics = {f"accuracy.{m}": a for m, a in zip(MODELS, (0.5, 0.6, 0.7, 0.8, 0.9), strict=True)}
    bars = (0.1, 0.5, 0.71, 0.75, 0.85, 0.81, 0.8)
    for estimate in ("plugin", "permutation", "alone", "entropy", "shuffled"):
        for b, r in zip((*MODELS, "ensemble5", "ensemble2"), bars, strict=True):
            metrics[f"pearson.{estimate}.{b}"] = r if estimate != "shuffled" else float("nan")
    found = summary(metrics)
    assert found["above.70"] == pytest.approx(100 * 4 / 6)
    assert found["above.80"] == pytest.approx(100 * 2 / 6)
    assert found["above.80.ensemble5"] == 100
    assert found["above.80.ensemble2"] == 0
    assert found["above.70.shuffled"] == 0
    assert found["better"] > 0.9
