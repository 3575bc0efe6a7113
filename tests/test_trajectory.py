from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rounding import assert_close, assert_trained_alike
from toyrounds import a_round

import fedkit as fk
from fedkit.methods.fedtsv_trajectory import (
    UTILITIES,
    TrajectoryGame,
    TrajectoryValues,
    gram_matrix,
    reference_updates,
)

RULES = {
    "exponential": lambda d, sigma: np.exp(-d / sigma),
    "rational": lambda d, sigma: 1 / (1 + d / sigma),
    "gaussian": lambda d, sigma: np.exp(-((d / sigma) ** 2)),
}


def vectors(k=5, p=400, seed=0):
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=p)
    # asymmetric: from nearly the reference to its opposite, and one far too long
    mix = np.linspace(1, -1, k)
    updates = mix[:, None] * reference + rng.normal(size=(k, p))
    updates[0] *= 4
    return torch.tensor(updates, dtype=torch.float32), torch.tensor(reference, dtype=torch.float32)


def directly(updates, reference, coalition, utility, eps=1e-12):
    """Eq. 9 to 11 by their definitions, one coalition at a time."""
    u, d = updates.double().numpy(), reference.double().numpy()
    mean = u[coalition].mean(axis=0) if coalition.any() else np.zeros_like(d)
    if utility == "angular":
        if not coalition.any():
            return np.exp(-1.0)
        cosine = mean @ d / np.linalg.norm(mean) / np.linalg.norm(d)
        return np.exp(-2 * np.arccos(cosine) / np.pi)
    return RULES[utility](np.linalg.norm(mean - d), np.linalg.norm(d) + eps)


@pytest.mark.parametrize("utility", UTILITIES)
def test_the_gram_matrix_gives_every_utility(utility):
    updates, reference = vectors()
    game = TrajectoryGame(gram_matrix(torch.cat([updates, reference[None]])), utility)
    coalitions = fk.all_coalitions(5)
    expected = [directly(updates, reference, c, utility) for c in coalitions]
    np.testing.assert_allclose(game.value(coalitions), expected, atol=1e-9)
    assert 0 < game.value(coalitions).min() <= game.value(coalitions).max() <= 1


def test_the_gram_matrix_does_not_depend_on_its_chunks():
    updates, _ = vectors()
    np.testing.assert_allclose(gram_matrix(updates, 7), gram_matrix(updates), rtol=1e-12)
    wide = updates.double().numpy()
    np.testing.assert_allclose(gram_matrix(updates), wide @ wide.T, rtol=1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_values_do_not_depend_on_the_unit_of_the_parameters(seed, unit):
    updates, reference = vectors(4, 30, seed)
    gram = gram_matrix(torch.cat([updates, reference[None]]))
    for utility in UTILITIES:
        small = fk.shapley(TrajectoryGame(gram, utility, 0.0)).values
        large = fk.shapley(TrajectoryGame(gram * unit**2, utility, 0.0)).values
        np.testing.assert_allclose(small, large, atol=1e-9)


@given(st.integers(0, 10**6))
def test_efficiency_and_symmetry(seed):
    updates, reference = vectors(4, 30, seed)
    updates[3] = updates[1]
    game = TrajectoryGame(gram_matrix(torch.cat([updates, reference[None]])))
    values = fk.shapley(game).values
    ends = game.value(np.array([[False] * 4, [True] * 4]))
    assert values.sum() == pytest.approx(ends[1] - ends[0])
    assert values[1] == pytest.approx(values[3])


def test_a_mean_makes_standing_still_count():
    """Means, not sums: a client that sends nothing shortens the mean, so it is no null player."""
    reference = torch.tensor([1.0, 0.0])
    updates = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    game = TrajectoryGame(gram_matrix(torch.cat([updates, reference[None]])), eps=0.0)
    # v(0) = e^-1, v({1}) = 1, v({2}) = e^-1, v(N) = e^-1/2
    np.testing.assert_allclose(
        game.value(fk.all_coalitions(2)), [np.exp(-1), 1, np.exp(-1), np.exp(-0.5)]
    )
    values = fk.shapley(game).values
    assert values[1] == pytest.approx((0 + np.exp(-0.5) - 1) / 2)
    assert values[1] < 0 < values[0]


def test_the_reference_is_a_client_that_owns_the_validation_data():
    r = a_round()
    counts = [r.local.n_steps(int(n)) for n in r.sizes]
    assert counts == [10, 9, 9]
    steps = 9  # their rounded mean
    rng = r.streams.generator("reference")
    own = replace(r.local, steps=steps)
    data = [(r.evaluator.x, r.evaluator.y)]
    by_hand = fk.train_clients(r.architecture, r.base[None], data, own, [rng])[0] - r.base
    assert_trained_alike(reference_updates([r])[0], by_hand, torch.zeros_like(by_hand))


def test_sampling_agrees_with_the_gram_matrix():
    r = a_round()
    exact = TrajectoryValues().value([r])[0]
    reference = reference_updates([r])[0]
    expected = [directly(r.updates, reference, c, "exponential") for c in fk.all_coalitions(3)]
    assert_close(exact.values, fk.shapley(fk.TableGame(np.array(expected))).values)
    game = TrajectoryGame(gram_matrix(torch.cat([r.updates, reference[None]])))
    sampled = TrajectoryValues(fk.PermutationSampling(), budget=4).value([r])[0]
    again = fk.estimate(game, fk.PermutationSampling(), budget=4, seed=r.streams.child("valuation"))
    np.testing.assert_array_equal(sampled.values, again.values)
    assert sampled.evaluations <= 4
    found = fk.estimate_many(game, fk.PermutationSampling(), budget=4, seeds=range(400))
    values = np.stack([v.values for v in found])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - exact.values) < 4.5 * error).all()


def test_without_a_reference_nobody_is_worth_anything():
    r = a_round(lr=0.0)
    for policy in (TrajectoryValues(), TrajectoryValues(fk.PermutationSampling(), budget=6)):
        v = policy.value([r, a_round()])
        assert (v[0].values == 0).all()
        assert v[0].method == "no reference"
        assert (v[1].values != 0).any()


def test_no_rounds_have_no_values():
    assert TrajectoryValues().value([]) == []


def test_one_participant():
    r = a_round(k=1)
    v = TrajectoryValues().value([r])[0]
    reference = reference_updates([r])[0]
    game = TrajectoryGame(gram_matrix(torch.cat([r.updates, reference[None]])))
    both = game.value(np.array([[False], [True]]))
    assert v.values == pytest.approx([both[1] - both[0]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrajectoryGame(np.eye(3), "cosine"), "utility is 'cosine'"),
        (lambda: TrajectoryGame(np.eye(1)), "at least one update"),
        (lambda: TrajectoryGame(np.full((3, 3), np.nan)), "not finite"),
        (lambda: TrajectoryGame(np.diag([1.0, 0.0])), "the reference has length zero"),
        (lambda: TrajectoryGame(np.array([[1.0, 0.5], [0.2, 1.0]])), "no matrix of inner products"),
        (lambda: TrajectoryGame(np.array([[1.0, 2.0], [2.0, 1.0]])), "no matrix of inner products"),
        (lambda: TrajectoryGame(np.eye(3), eps=-5), "eps is -5"),
        (lambda: TrajectoryGame(np.eye(3), eps=np.nan), "eps is nan"),
        (lambda: TrajectoryValues(utility="cosine"), "utility is 'cosine'"),
        (lambda: TrajectoryValues(budget=5), "budget is 5, but exact values"),
        (lambda: reference_updates([]), "there is no round"),
        (lambda: gram_matrix(torch.ones(3)), r"expected a tensor \[m, P\]"),
        (lambda: gram_matrix(np.ones((2, 3))), r"expected a tensor \[m, P\]"),
        (lambda: gram_matrix(torch.ones(2, 3), chunk=0), "chunk is 0"),
        (lambda: a_round(validation=0.0), "validation"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_updates_that_are_not_finite_are_left_out():
    f = fk.make_federation(fk.load("digits"), 4, fk.IID(), 0, validation=0.2)
    arch = fk.build("mlp-8", f.input_shape, f.n_classes)
    plan = fk.Plan(2, 4, fk.LocalSGD(lr=0.1, batch_size=32))
    strategy = fk.FedTSV().strategy()

    def break_one(r):
        updates = r.updates.clone()
        updates[1] = float("nan")
        return updates

    history = fk.run([f], arch, strategy, plan, [0], attack=break_one)
    assert (history.rounds_frame().left_out == 1).all()
    assert set(history.clients_frame().client) == {0, 2, 3}


def test_exact_values_say_whose_own_update_beats_standing_still():
    r = a_round()
    v = TrajectoryValues().value([r])[0]
    d = reference_updates([r])[0]
    nearer = (r.updates - d).norm(dim=1) < d.norm()
    assert v.info["closer"].tolist() == nearer.tolist()
