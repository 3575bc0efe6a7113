"""Aggregations: weights by hand, and what becomes of updates that are broken."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_federation import MLP, poison, toy

import fedkit as fk
from fedkit.federated.policies import Proportional, SizeWeighted, UniformWeights
from fedkit.methods.fedowen import Softmax

ALL = [SizeWeighted(), UniformWeights(), Softmax(), Softmax(50.0), Proportional()]


def weights(rule, values, sizes=(1, 3, 4)):
    """The weights by which a rule averages."""
    r = SimpleNamespace(sizes=np.array(sizes), average=np.asarray)
    return rule(r, SimpleNamespace(values=np.asarray(values, dtype=float)), None)


def test_weights_by_hand():
    assert weights(Softmax(), [0.0, math.log(2), math.log(5)]) == pytest.approx(
        np.array([1, 2, 5]) / 8
    )
    assert weights(SizeWeighted(), [-1.0, 0.5, 1.5]) == pytest.approx([1 / 8, 3 / 8, 1 / 2])
    assert weights(UniformWeights(), [-1.0, 0.5, 1.5]) == pytest.approx([1 / 3] * 3)
    assert weights(Proportional(), [-1.0, 0.5, 1.5]) == pytest.approx([0, 0.25, 0.75])
    assert weights(Proportional(), [-1.0, -1.0, -1.0]) == pytest.approx([1 / 3] * 3)
    assert weights(Proportional(), [1e308, 1e308, 0.0]) == pytest.approx([0.5, 0.5, 0.0])


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=10))
def test_weights_are_a_convex_combination(values):
    for rule in ALL:
        w = weights(rule, values, np.arange(1, len(values) + 1))
        assert np.isfinite(w).all()
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1)


def final(rule, seeds=(0, 1), attack=None):
    """The history of two small federations under a rule."""
    plan = fk.Plan(rounds=3, participants=4, local=fk.LocalSGD(lr=0.2, batch_size=8))
    strategy = fk.Strategy(fk.UniformSelection(), fk.NoValue(), rule)
    federations = [toy(seed, sizes=(40, 40, 40, 40)) for seed in seeds]
    return fk.run(federations, MLP, strategy, plan, list(seeds), attack=attack, device="cpu")


@pytest.mark.parametrize("number", [math.nan, 1e30])
def test_one_client_that_sends_nonsense_does_not_keep_the_others_from_learning(number):
    history = final(UniformWeights(), attack=poison(number))
    assert {len(row["left_out"]) for row in history.rounds} == {1}
    assert min(history.final_accuracy().values()) > 0.6


def test_a_rule_may_make_the_next_model_itself():
    history = final(lambda r, v, table: (r.base + r.updates.mean(dim=0)).requires_grad_())
    assert not history.models.requires_grad
    assert torch.allclose(history.models, final(UniformWeights()).models, atol=1e-6)
    assert all(math.isnan(row["weight"]) for row in history.clients)
    array = final(lambda r, v, table: r.base.double().numpy() * 0 + 0.5, seeds=(0,))
    assert (array.models == 0.5).all()


def test_half_a_step_notes_the_weights_of_its_average():
    def half(r, valuation, table):
        return 0.5 * (r.base + r.average([1.0, 0.0, 0.0, 0.0]))

    weights = [row["weight"] for row in final(half, seeds=(0,)).clients]
    assert weights == [1.0, 0.0, 0.0, 0.0] * 3
