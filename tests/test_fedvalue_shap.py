"""SHAP values of trained models add up, and parties and ensembles are made of them rightly."""

import os

import numpy as np
import pytest
from refusals import refused
from scipy.special import digamma
from sklearn.datasets import load_wine
from sklearn.svm import SVC

from fedkit.fedvalue.shap import (
    MODELS,
    KernelSVM,
    draw_groups,
    ensemble,
    explain,
    party_values,
    ross,
    train,
    vfps_scores,
)

# compiling an explainer takes seconds, and a few rows do not need it
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
RNG = np.random.default_rng(0)
X, Y = load_wine(return_X_y=True)
ROWS = RNG.permutation(len(Y))
FIT, REST = ROWS[:140], ROWS[140:]
BASE = X[FIT[-10:]]


@pytest.fixture(scope="module")
def fitted():
    return {name: train(name, X[FIT], Y[FIT], seed=1) for name in MODELS}


def output(model, x):
    """The quantity that a model's SHAP values explain, float64[n, outputs]."""
    z, inner = model.scaled(x), model.model
    if model.name == "svm":
        return inner.decide(z)
    if model.name == "lr":
        return inner.decision_function(z)
    if model.name == "rf":
        return inner.predict_proba(z)
    if model.name == "gbt":
        return inner.predict(z, output_margin=True)
    for weights, bias in zip(inner.coefs_[:-1], inner.intercepts_[:-1], strict=True):
        z = np.maximum(z @ weights + bias, 0)
    return z @ inner.coefs_[-1] + inner.intercepts_[-1]


@pytest.mark.parametrize("name", MODELS)
def test_shap_values_add_up_to_differences_of_outputs(fitted, name):
    model, rows = fitted[name], X[REST[:6]]
    phi = explain(model, rows, BASE, seed=3)
    assert phi.shape == (6, 13, 3)
    assert model.accuracy(X[REST], Y[REST]) > 0.85
    outputs = output(model, rows)
    # the part that no feature has is the same for every row
    difference = phi.sum(axis=1) - outputs
    assert np.abs(difference - difference.mean(axis=0)).max() < 1e-4 * np.ptp(outputs)
    if name in ("svm", "lr", "nn"):  # explained against the background
        expected = -output(model, BASE).mean(axis=0)
        assert np.allclose(difference, expected, atol=1e-6 * np.ptp(outputs))


def test_two_classes_and_a_constant_column():
    x = np.column_stack([X[:130, :4], np.ones(130)])
    for name in MODELS:
        model = train(name, x, Y[:130] > 0)
        assert model.accuracy(x, Y[:130] > 0) > 0.9
        if name != "svm":  # the same path as above, and slow to compile
            phi = explain(model, x[:5], x[-8:])
            assert phi.shape == (5, 5, 2 if name == "rf" else 1)
            assert np.abs(phi[:, 4]).max() < 1e-9


def test_the_kernel_machines_are_scikit_learns():
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    ours = KernelSVM().fit(z[FIT], Y[FIT])
    theirs = [SVC().fit(z[FIT], Y[FIT] == k).decision_function(z) for k in range(3)]
    assert np.allclose(ours.decide(z), np.transpose(theirs))
    assert (ours.predict(z) == np.argmax(theirs, axis=0)).all()
    two = KernelSVM().fit(z[:130], Y[:130])
    assert (two.predict(z[:130]) == SVC().fit(z[:130], Y[:130]).predict(z[:130])).all()


def test_party_values_by_hand():
    phi = np.array([[2.0, -2.0, 1.0], [-2.0, 2.0, 1.0]])[:, :, None]
    assert party_values(phi, [[0, 1], [2]]).tolist() == [0, 1]
    assert party_values(phi, [[0, 1], [2]], "apart").tolist() == [4, 1]
    assert (party_values(phi, [[0], [1], [2]]) == party_values(phi, [[0], [1], [2]], "apart")).all()
    refused("how is 'sum'", party_values, phi, [[0]], "sum")


def test_the_ensemble_counts_models_near_the_best():
    values = {"a": np.array([1.0, 3.0]), "b": np.array([20.0, 20.0]), "c": np.array([0.0, 9.0])}
    accuracies = {"a": 0.9, "b": 0.89, "c": 0.87}
    assert ensemble(values, accuracies, 0.005).tolist() == [0.25, 0.75]
    assert np.allclose(ensemble(values, accuracies, 0.02), [0.375, 0.625])
    assert np.allclose(ensemble(values, accuracies, 0.05), [0.25, 0.75])
    # exactly at the threshold is not above it (appendix D: "larger than")
    assert ensemble(values, {"a": 1.0, "b": 0.5, "c": 0.0}, 0.5).tolist() == [0.25, 0.75]


def test_score_of_one_party_by_hand():
    apart = vfps_scores([[[0.0], [1.0], [10.0], [11.0]]], [0, 0, 1, 1])
    assert apart[0] == pytest.approx(1 / 2 + 1 / 3)  # psi(4) - psi(2)


def test_neighbours_agree_with_a_plain_loop():
    y = np.array([0] * 12 + [1] * 3 + [2] * 2)
    x = np.random.default_rng(3).normal(size=(len(y), 2))
    terms = []
    for q in range(len(y)):
        distance = np.linalg.norm(x - x[q], axis=1)
        own = sorted(distance[i] for i in range(len(y)) if y[i] == y[q] and i != q)
        k = min(3, len(own))
        near = sum(distance <= own[k - 1]) - 1
        terms.append(digamma(len(y)) - digamma(len(own) + 1) + digamma(k) - digamma(near))
    assert ross(x, y) == pytest.approx(np.mean(terms), abs=1e-12)


def test_groups_cover_everybody():
    for seed in range(5):
        groups = draw_groups(4, 3, seed)
        assert len(groups) >= 3
        assert np.bitwise_or.reduce(groups) == 0b1111
        assert min(groups) > 0


def test_vfps_is_the_mean_of_the_groups_of_a_party_on_standardised_columns():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [20, 20, 1])  # one row of a label has no neighbour, and is left out
    parties = [rng.normal(size=(41, 1)) + y[:, None], 100 * rng.normal(size=(41, 2))]
    z = [(p[:40] - p[:40].mean(axis=0)) / p[:40].std(axis=0) for p in parties]
    told = {1: ross(z[0], y[:40]), 2: ross(z[1], y[:40]), 3: ross(np.hstack(z), y[:40])}
    drawn = draw_groups(2, 6, 4)
    expected = [np.mean([told[g] for g in drawn if g >> i & 1]) for i in (0, 1)]
    np.testing.assert_allclose(vfps_scores(parties, y, groups=6, seed=4), expected, atol=1e-9)
