from dataclasses import replace

import numpy as np
import pytest
import torch
from toyrounds import a_round

import fedkit as fk
from fedkit.federated.adversaries import LabelFlip
from fedkit.federated.rounds import keep_total
from fedkit.federated.selection import ClientTable
from fedkit.federated.valuers import NoValue
from fedkit.methods.fedtsv import (
    ContributionWeights,
    CosineGame,
    CosineValues,
    LeaveOneOut,
    OracleWeights,
    RunningCosine,
    ShuffledValues,
    equal_lengths,
)
from fedkit.methods.fedtsv_trajectory import TrajectoryValues, gram_matrix


def test_cosine_values_by_hand():
    updates = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    plain = CosineGame(gram_matrix(updates))
    total = updates.sum(dim=0).numpy()
    for c, v in zip(fk.all_coalitions(3), plain.value(fk.all_coalitions(3)), strict=True):
        mine = updates.numpy()[c].sum(axis=0)
        length = np.linalg.norm(mine) * np.linalg.norm(total)
        assert v == pytest.approx(mine @ total / length if length else 0.0)
    r = replace(a_round(), updates=updates)
    near = CosineValues().value([r])[0].values  # equal lengths: both at 45 degrees to the mean
    np.testing.assert_allclose(near, [np.sqrt(0.5), np.sqrt(0.5), 0.0])
    loud = CosineValues(normalised=False).value([r])[0].values
    np.testing.assert_allclose(loud, [3 / np.sqrt(10), 1 / np.sqrt(10), 0.0])
    exact = CosineValues(exact=True).value([r])[0].values
    np.testing.assert_allclose(exact, [0.5, 0.5, 0.0], atol=1e-12)


def test_normalised_cosines_do_not_see_the_length_of_an_update():
    r = a_round()
    louder = replace(r, updates=r.updates * torch.tensor([1.0, 10.0, 1.0])[:, None])
    for exact in (False, True):
        a, b = (CosineValues(exact).value([x])[0].values for x in (r, louder))
        np.testing.assert_allclose(a, b, atol=1e-9)
    a, b = (CosineValues(normalised=False).value([x])[0].values for x in (r, louder))
    assert b[1] > a[1]


def test_leave_one_out_is_that_of_the_game():
    r = a_round()
    np.testing.assert_allclose(
        LeaveOneOut().value([r])[0].values, fk.leave_one_out(r.game()).values
    )


def table(values):
    values = np.asarray(values, dtype=float)
    n = len(values)
    counts = np.ones(n, dtype=np.int64)
    return ClientTable(np.full(n, 10), np.ones((n, 2), dtype=np.int64), values, counts)


def test_weights_follow_contributions_and_fall_back_to_uniform():
    r = a_round()
    v = TrajectoryValues().value([r])[0]
    weights = ContributionWeights()
    np.testing.assert_allclose(weights(r, v, table([3, -1, 1])), [0.75, 0, 0.25])
    np.testing.assert_allclose(weights(r, v, table([-3, -1, 0])), [1 / 3] * 3)
    np.testing.assert_allclose(OracleWeights((1,))(r, v, table([0, 0, 0])), [0.5, 0, 0.5])
    assert (OracleWeights((0, 1, 2))(r, v, table([0, 0, 0])) == 0).all()


def test_fedtsv_adds_values_up_and_weighs_by_the_sums():
    f = fk.make_federation(fk.load("digits"), 5, fk.IID(), 0, validation=0.2)
    f = f.with_transforms({4: LabelFlip(f.n_classes)})
    arch = fk.build("mlp-8", f.input_shape, f.n_classes)
    plan = fk.Plan(4, 5, fk.LocalSGD(lr=0.2, batch_size=16))
    history = fk.run([f], arch, fk.FedTSV().strategy(), plan, [0]).clients_frame()
    wide = history.pivot(index="round", columns="client", values=["value", "weight"])
    total = np.maximum(wide["value"].cumsum(), 0.0)
    np.testing.assert_allclose(wide["weight"], total.div(total.sum(axis=1), axis=0), atol=1e-6)
    assert (wide["weight"][4] == 0).all()


def test_fedtsv_takes_other_values_and_another_selection():
    sampled = TrajectoryValues(fk.PermutationSampling(), budget=12)
    strategy = fk.FedTSV(sampled, fk.EpsilonGreedy(0.5)).strategy()
    assert strategy.value is sampled
    assert strategy.select == fk.EpsilonGreedy(0.5)


def test_a_round_of_liars_leaves_the_oracles_model_alone():
    f = fk.make_federation(fk.load("digits"), 4, fk.IID(), 0, validation=0.2)
    arch = fk.build("mlp-8", f.input_shape, f.n_classes)
    oracle = fk.Strategy(fk.UniformSelection(), NoValue(), OracleWeights((0, 1, 2, 3)), keep_total)
    plan = fk.Plan(2, 4, fk.LocalSGD(lr=0.1, batch_size=32))
    ended = fk.run([f], arch, oracle, plan, [0]).models[0]
    torch.testing.assert_close(ended, arch.init(fk.Streams(0).generator("model")))


def test_shuffled_values_are_the_same_values_of_other_clients():
    rounds = [replace(a_round(), streams=fk.Streams(seed)) for seed in range(8)]
    true = TrajectoryValues().value(rounds)
    dealt = ShuffledValues(TrajectoryValues()).value(rounds)
    moved = 0
    for a, b in zip(true, dealt, strict=True):
        np.testing.assert_array_equal(np.sort(a.values), np.sort(b.values))
        moved += not np.array_equal(a.values, b.values)
    assert moved >= 4  # of 3 clients one order in six is the true one
    again = ShuffledValues(TrajectoryValues()).value(rounds)
    assert all(np.array_equal(a.values, b.values) for a, b in zip(dealt, again, strict=True))


def test_updates_are_brought_to_the_length_of_the_median_one():
    updates = torch.tensor([[3.0, 4.0], [0.0, 1.0], [20.0, 0.0], [0.0, 0.0], [float("inf"), 1.0]])
    even = equal_lengths(updates)
    torch.testing.assert_close(even[:3], torch.tensor([[3.0, 4.0], [0.0, 5.0], [5.0, 0.0]]))
    torch.testing.assert_close(even[3:], updates[3:])
    torch.testing.assert_close(equal_lengths(updates[1:3]).norm(dim=1), torch.ones(2))
    torch.testing.assert_close(equal_lengths(updates[3:]), updates[3:])
    cut = equal_lengths(updates, clip=True)
    torch.testing.assert_close(cut[:3], torch.tensor([[3.0, 4.0], [0.0, 1.0], [5.0, 0.0]]))
    huge = torch.ones(3, 4)
    huge[2] *= 1e25  # finite, but not its square
    torch.testing.assert_close(equal_lengths(huge), torch.ones(3, 4))


def test_running_importances_are_those_of_cgsv_with_everybody_present():
    clients, remember = table([0.0] * 3), RunningCosine(alpha=0.8)
    expected = np.full(3, 1 / 3)
    for psi in ([0.9, 0.5, -0.5], [0.7, 0.1, 0.0]):
        v = fk.Valuation(np.array(psi), np.full(3, np.nan), 0, 0, "x")
        remember(clients, np.arange(3), v)
        expected = np.maximum(0.8 * expected + 0.2 * np.array(psi), 1e-3)
        expected = expected / expected.sum()
        np.testing.assert_allclose(clients.values, expected)


def test_running_importances_leave_the_absent_alone():
    clients, remember = table([0.0] * 4), RunningCosine()
    v = fk.Valuation(np.array([0.9, 0.1]), np.full(2, np.nan), 0, 0, "x")
    remember(clients, np.array([0, 2]), v)
    np.testing.assert_allclose(clients.values[[1, 3]], 0.25)
    assert clients.values.sum() == pytest.approx(1)
    assert clients.values[0] > clients.values[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OracleWeights("a"), "expected clients' numbers"),
        (lambda: OracleWeights((-1,)), "expected clients' numbers"),
        (lambda: equal_lengths(torch.ones(3)), r"expected \[k, P\]"),
        (lambda: CosineGame(np.full((3, 3), np.inf)), "not finite"),
        (lambda: CosineGame(np.ones((2, 3))), "expected \\(k, k\\)"),
        (lambda: CosineGame(np.array([[1.0, 0.5], [0.2, 1.0]])), "no matrix of inner products"),
        (lambda: CosineGame(np.array([[1.0, 2.0], [2.0, 1.0]])), "no matrix of inner products"),
        (lambda: RunningCosine(alpha=2), "alpha is 2"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
