import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_federation import MLP, toy

import fedkit as fk
from fedkit.federated.aggregation import Proportional, SizeWeighted, UniformWeights
from fedkit.methods.fedowen import Softmax

ALL = [SizeWeighted(), UniformWeights(), Softmax(), Softmax(50.0), Proportional()]


def test_softmax_by_hand():
    w = Softmax().weights(np.array([0.0, math.log(2), math.log(5)]), np.array([9, 1, 1]))
    assert w == pytest.approx(np.array([1, 2, 5]) / 8)


def test_size_and_proportional_by_hand():
    sizes = np.array([1, 3, 0])
    values = np.array([-1.0, 0.5, 1.5])
    assert SizeWeighted().weights(values, sizes) == pytest.approx([0.25, 0.75, 0])
    assert Proportional().weights(values, sizes) == pytest.approx([0, 0.25, 0.75])
    assert Proportional().weights(-np.ones(3), sizes) == pytest.approx(np.full(3, 1 / 3))
    assert Proportional().weights([1e308, 1e308, 0.0], sizes) == pytest.approx([0.5, 0.5, 0.0])


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=10))
def test_weights_are_a_convex_combination(values):
    sizes = np.arange(1, len(values) + 1)
    for rule in ALL:
        w = rule.weights(np.array(values), sizes)
        assert np.isfinite(w).all()
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1)


def stepped(rule, updates, sizes=None, memory=None, base=(10.0, -20.0), left_out=()):
    """The next model of one round, as a list, less its base."""
    base, updates = torch.tensor(base), torch.tensor(updates)
    sizes = np.ones(len(updates)) if sizes is None else np.array(sizes)
    model = SimpleNamespace(n_parameters=len(base))
    r = SimpleNamespace(
        index=4, architecture=model, base=base, updates=updates, directions=updates, sizes=sizes,
        left_out=left_out,
    )  # fmt: skip
    table = SimpleNamespace(memory={} if memory is None else memory)
    return (rule.step(r, None, table) - base).tolist()


FIVE = [[1.0, 9.0], [2.0, -50.0], [4.0, 1.0], [900.0, 2.0], [3.5, 6.0]]


def test_robust_means_by_hand():
    assert stepped(fk.Median(), FIVE) == [3.5, 2.0]
    assert stepped(fk.Median(), FIVE[:4]) == [3.0, 1.5]
    assert stepped(fk.TrimmedMean(0.2), FIVE) == pytest.approx([9.5 / 3, 3.0])
    assert stepped(fk.TrimmedMean(0.39), FIVE) == stepped(fk.TrimmedMean(0.2), FIVE)
    assert stepped(fk.TrimmedMean(0.4), FIVE) == [3.5, 2.0]
    hundred = [[float(i), 0.0] for i in range(99)] + [[1e6, 0.0]]
    assert stepped(fk.TrimmedMean(0.29), hundred)[0] == 49.5  # of 29 to 70


def test_krum_by_hand():
    line = [[x, 0.0] for x in (0.0, 1.0, 2.25, 3.0, 50.0)]
    # one malicious: two neighbours each; 1 + 5.0625, 1 + 1.5625, 0.5625 + 1.5625, 0.5625 + 4
    assert stepped(fk.Krum(1), line) == [2.25, 0.0]
    assert stepped(fk.Krum(0), line) == [1.0, 0.0]  # 1 + 1.5625 + 4 of three neighbours
    with pytest.raises(ValueError, match=r"round 5 has 4 participants; Krum.* at least 5"):
        stepped(fk.Krum(1), line[:4])
    # those left out count among the malicious
    assert stepped(fk.Krum(1), line[:4], left_out=(9,)) == [2.25, 0.0]  # 0.5625 + 1.5625 of two
    # again of two: 0.81 + 4, 0.81 + 1.21, 1.21 + 2.25; of one the first two would be as near
    near = [[x, 0.0] for x in (0.0, 0.9, 2.0, 3.5)]
    assert stepped(fk.Krum(1), near, left_out=(9,)) == pytest.approx([0.9, 0.0])
    assert stepped(fk.Krum(2), line[:2], left_out=range(6)) == stepped(fk.Median(), line[:2])


def test_server_optimisers_by_hand():
    updates, sizes = [[1.0, 0.0], [4.0, 0.0]], [2, 1]
    for rule, second in (
        (fk.FedAdam, lambda v, d: 0.5 * v + 0.5 * d * d),
        (fk.FedYogi, lambda v, d: v - 0.5 * d * d * np.sign(v - d * d)),
    ):
        own = rule(lr=0.3, beta1=0.75, beta2=0.5, tau=2.0, weighting="size")
        memory, m, v = {}, 0.0, 4.0
        for scale in (1.0, 0.25, 3.0):  # the mean, 2, is below and above the root of v
            d = 2.0 * scale
            m, v = 0.75 * m + 0.25 * d, second(v, d)
            step = stepped(own, (scale * np.array(updates)).tolist(), sizes, memory)
            assert step == pytest.approx([0.3 * m / (math.sqrt(v) + 2.0), 0.0])
    plain = fk.FedAdam(beta1=0.0, beta2=0.0, lr=1.0)  # and the mean is not weighted
    assert stepped(plain, updates)[0] == pytest.approx(2.5 / (2.5 + 1e-3))


def twentyfold(r):
    """One participant sends its update times -20."""
    updates = r.updates.clone()
    updates[0] *= -20
    return updates


def final(aggregate, seeds=(0, 1), attack=twentyfold):
    plan = fk.Plan(rounds=15, participants=5, local=fk.LocalSGD(lr=0.3, batch_size=4))
    strategy = fk.Strategy(fk.UniformSelection(), fk.SizeAsValue(), aggregate)
    federations = [toy(s, (40, 40, 40, 40, 40)) for s in seeds]
    return fk.run(federations, MLP, strategy, plan, seeds, device="cpu", attack=attack)


def test_one_update_times_twenty_breaks_the_mean_and_no_robust_rule():
    broken = final(UniformWeights()).final_accuracy()
    assert max(broken.values()) < 0.5
    for rule in (fk.Median(), fk.TrimmedMean(0.2), fk.Krum(1)):
        history = final(rule)
        assert min(history.final_accuracy().values()) > 0.6
        assert history.clients_frame().weight.isna().all()


def test_server_optimisers_learn_and_keep_their_state_per_seed():
    rule = fk.FedYogi(lr=0.1)
    both = final(rule, attack=None)
    assert min(both.final_accuracy().values()) > 0.6
    assert final(rule, seeds=(1,), attack=None).rounds == both.rounds[1::2]
    assert torch.equal(final(rule, attack=None).models, both.models)  # nothing stays in the rule


@pytest.mark.parametrize("size", [math.nan, 1e30])
@pytest.mark.parametrize("rule", [UniformWeights(), fk.Krum(1), fk.FedAdam()])
def test_an_update_that_is_not_finite_or_far_too_long_is_left_out(rule, size):
    def attack(r):
        updates = r.updates.clone()
        updates[0] = size  # finite, but its square is not
        return updates

    history = final(rule, attack=attack)
    assert {len(row["left_out"]) for row in history.rounds} == {1}
    assert torch.isfinite(history.models).all()
    assert min(history.final_accuracy().values()) > 0.6


class Both:
    """A step that can be called: the step counts."""

    def __call__(self, r, valuation, clients):
        raise AssertionError

    def step(self, r, valuation, clients):
        return (r.base + r.updates.mean(dim=0)).requires_grad_()


def test_a_step_counts_whatever_else_it_is_and_may_carry_a_gradient():
    assert torch.equal(final(Both()).models, final(Both()).models)
    assert not final(Both()).models.requires_grad
    history = final(Returning(lambda base: base.double().numpy() * 0 + 0.5), seeds=(0,))
    assert (history.models == 0.5).all()  # an array will do


class Returning:
    def __init__(self, model):
        self.model = model

    def step(self, r, valuation, clients):
        return self.model(r.base)


@pytest.mark.parametrize(
    "model",
    [
        lambda base: base[:-1], lambda base: base[None], lambda base: base * torch.nan,
        lambda base: base.double() + 1e300, lambda base: None,
    ],
)  # fmt: skip
def test_the_next_model_is_checked(model):
    with pytest.raises(ValueError, match=r"Returning returned a model of .* finite numbers"):
        final(Returning(model), seeds=(0,))


@pytest.mark.parametrize("rule", [fk.Median, "median"])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ValueError, match=r"aggregate is ('median'|<class)"):
        final(rule)
