"""FedTSV's method, CGSV and the other baselines of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refusals
from rounding import assert_trained_alike
from toyrounds import a_round

import fedkit as fk
from fedkit.federated.adversaries import LabelFlip
from fedkit.methods.baselines import OracleWeights, RunningCosine, cosine_game
from fedkit.methods.fedtsv import UTILITIES, reference_updates
from reproduction.fedtsv.run import equal_lengths

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
    game = fk.trajectory_game(fk.gram_matrix(torch.cat([updates, reference[None]])), utility)
    coalitions = fk.all_coalitions(5)
    expected = [directly(updates, reference, c, utility) for c in coalitions]
    np.testing.assert_allclose(game(coalitions), expected, atol=1e-9)
    assert 0 < game(coalitions).min() <= game(coalitions).max() <= 1


def test_the_gram_matrix_is_that_of_whole_vectors():
    updates = vectors(3, 2**20 + 9)[0]  # longer than what is converted at a time
    wide = updates.double().numpy()
    np.testing.assert_allclose(fk.gram_matrix(updates), wide @ wide.T, rtol=1e-9)


@pytest.mark.parametrize(
    ("of", "counts", "steps"), [([0, 1, 2], [10, 9, 9], 9), ([0, 0, 1], [10, 10, 9], 10)]
)
def test_the_reference_is_a_client_that_owns_the_validation_data(of, counts, steps):
    """And takes as many steps as their rounded mean."""
    r = a_round()
    r = replace(r, sizes=r.sizes[of])
    assert [r.local.n_steps(int(n)) for n in r.sizes] == counts
    rng = r.streams.generator("reference")
    own = replace(r.local, steps=steps)
    data = [(r.evaluator.x, r.evaluator.y)]
    by_hand = fk.train_clients(r.architecture, r.base[None], data, own, [rng])[0] - r.base
    assert_trained_alike(reference_updates([r])[0], by_hand, torch.zeros_like(by_hand))


def test_without_a_reference_nobody_is_worth_anything():
    r = a_round(lr=0.0)
    assert fk.TrajectoryValues()([]) == []
    for policy in (fk.TrajectoryValues(), fk.TrajectoryValues(fk.PermutationSampling(), budget=6)):
        v = policy([r, a_round()])
        assert (v[0].values == 0).all()
        assert v[0].method == "no reference"
        assert (v[1].values != 0).any()


test_bad_input = refusals(
    (lambda: fk.trajectory_game(np.eye(1)), "m >= 2"),
    (lambda: fk.trajectory_game(np.diag([1.0, 0.0])), "the reference has length zero"),
    (lambda: fk.trajectory_game(np.array([[1.0, 2.0], [2.0, 1.0]])), "no matrix of inner products"),
    (lambda: fk.TrajectoryValues(budget=5), "budget is 5, but exact values"),
    (lambda: cosine_game(np.full((3, 3), np.inf)), "not finite"),
)


def test_exact_values_say_whose_own_update_beats_standing_still():
    r = a_round()
    v = fk.TrajectoryValues()([r])[0]
    d = reference_updates([r])[0]
    nearer = (r.updates - d).norm(dim=1) < d.norm()
    assert v.info["closer"].tolist() == nearer.tolist()


def table(values):
    values = np.asarray(values, dtype=float)
    n = len(values)
    counts = np.ones(n, dtype=np.int64)
    return fk.ClientTable(np.full(n, 10), np.ones((n, 2), dtype=np.int64), values, counts)


def test_weights_follow_contributions_and_fall_back_to_uniform():
    r = a_round()
    v = fk.TrajectoryValues()([r])[0]
    for rule, remembered, weights in (
        (fk.ContributionWeights(), [3, -1, 1], [0.75, 0, 0.25]),
        (fk.ContributionWeights(), [-3, -1, 0], [1 / 3] * 3),
        (OracleWeights((1,)), [0, 0, 0], [0.5, 0, 0.5]),
        (OracleWeights((0, 1, 2)), [0, 0, 0], [0, 0, 0]),
    ):
        model = rule(r, v, table(remembered))
        np.testing.assert_allclose(r.noted[-1], weights)
        torch.testing.assert_close(model, r.base + torch.tensor(weights).float() @ r.updates)


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


def test_running_importances_leave_the_absent_alone():
    clients, remember = table([0.0] * 4), RunningCosine()
    v = fk.Valuation(np.array([0.9, 0.1]), np.full(2, np.nan), 0, 0, "x")
    remember(clients, np.array([0, 2]), v)
    np.testing.assert_allclose(clients.values[[1, 3]], 0.25)
    assert clients.values.sum() == pytest.approx(1)
    assert clients.values[0] > clients.values[2]
