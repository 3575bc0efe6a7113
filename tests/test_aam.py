import numpy as np
import pytest
import torch
from plantedqualities import planted
from rounding import assert_same_answers

import fedkit as fk
from fedkit.federated.partitioners import QuantitySkew
from fedkit.federated.retraining import InOrder, RetrainingGame, train_with_sizes
from fedkit.learning.evaluation import Evaluator
from fedkit.methods.fedccea import (
    AccuracyApproximation,
    Simulations,
    contribution_index,
    contribution_values,
    fit_aam,
    padded_inputs,
    sample_sizes,
    simulate,
)
from fedkit.methods.fedccea_approximation import train_by_adam
from fedkit.methods.fedccea_projection import project
from fedkit.streams import Streams

LOCAL = fk.LocalSGD(lr=0.2, batch_size=8, epochs=2)


@pytest.fixture(scope="module")
def problem():
    f = fk.make_federation(
        fk.load("digits"), 4, QuantitySkew(1.0), 0, validation=0.1, empty="refill", min_size=10
    )
    return f, fk.build("mlp-8", f.input_shape, f.n_classes)


def plainly(f, arch, local, sizes, seed):
    """Algorithm 1's rounds for one simulation, one client after another."""
    model = arch.init(Streams(seed).generator("model"))
    test, found = Evaluator(arch, f.x_test, f.y_test, "accuracy", device="cpu"), []
    for used in sizes:
        locals_, weights = [], []
        for i, d in enumerate(used):
            if d:
                x, y = f.client_data(i)
                ended = fk.train_clients(
                    arch, model[None], [(x[:d], y[:d])], local, [InOrder()], device="cpu"
                )
                locals_.append(ended[0])
                weights.append(d)
        if locals_:
            share = torch.tensor(weights, dtype=torch.float32) / sum(weights)
            model = share @ torch.stack(locals_)
        found.append(float(test.utilities(model[None])[0]))
    return found


def test_lockstep_is_the_plain_loop(problem):
    f, arch = problem
    sizes = sample_sizes(f.sizes, 5, 3, seed=1)
    sizes[2, 1] = 0  # a round in which nobody uses data
    sizes[3, :, 2] = 0  # a client that never does
    together = train_with_sizes(f, arch, LOCAL, sizes, seed=7, device="cpu")
    for s, mine in enumerate(sizes):
        alone = plainly(f, arch, LOCAL, mine, 7)
        assert_same_answers(together[s], alone, len(f.y_test))
    assert together[2, 1] == together[2, 0]
    last = train_with_sizes(f, arch, LOCAL, sizes, seed=7, every_round=False, device="cpu")
    assert_same_answers(last[:, 0], together[:, -1], len(f.y_test))


def test_nothing_is_shuffled():
    assert InOrder().permutation(5).tolist() == [0, 1, 2, 3, 4]
    batches = LOCAL.batches(20, InOrder())
    assert [b.tolist() for b in batches[:3]] == [b.tolist() for b in batches[3:]]


def test_sizes_are_uniform_shares_and_grow_by_prefix():
    sizes = np.array([100, 300, 50])
    drawn = sample_sizes(sizes, 200, 10, seed=3)
    shares = drawn / sizes
    assert (drawn < sizes).all()
    error = 4.5 * np.sqrt(1 / 12 / 2000)
    np.testing.assert_allclose(shares.mean(axis=(0, 1)), 0.5, atol=error + 0.02)
    np.testing.assert_array_equal(drawn[:5], sample_sizes(sizes, 5, 10, seed=3))
    assert not np.array_equal(drawn[0], drawn[1])


def test_inputs_are_padded_as_in_figure_3():
    sizes = np.arange(1, 13, dtype=float).reshape(2, 3, 2)
    inputs = padded_inputs(sizes)
    assert inputs.shape == (6, 3, 2)
    np.testing.assert_array_equal(inputs[0], [[1, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(inputs[4], [[7, 8], [9, 10], [0, 0]])
    np.testing.assert_array_equal(inputs[5], sizes[1])


@pytest.mark.parametrize("sigmoid", ["shared", "connected"])
def test_the_model_is_what_the_paper_draws(sigmoid):
    rng = np.random.default_rng(0)
    model = AccuracyApproximation(3, 4, 10, sigmoid, rng=rng)
    x = torch.rand(5, 4, 3)
    z = x @ model.quality
    if sigmoid == "shared":
        z = torch.sigmoid(z)
    h = z @ model.inner + model.inner_bias
    if sigmoid == "connected":
        h = torch.sigmoid(h)
    torch.testing.assert_close(model(x), h @ model.outer + model.outer_bias)
    assert model.inner.shape == (4, 10)
    with torch.no_grad():
        model.quality[1] = -1.0
    model.constrain()
    assert model.quality[1] == 0
    assert (model.quality >= 0).all()


@pytest.mark.parametrize(
    ("solver", "sigmoid"),
    [
        ("projection", "shared"),
        ("quasi-newton", "connected"),
        ("adam", "shared"),
        ("adam", "connected"),
    ],
)
def test_planted_qualities_are_found(solver, sigmoid):
    quality, simulations = planted(60)
    fit = fit_aam(simulations, solver=solver, sigmoid=sigmoid, epochs=120)
    assert fit.error < 0.03
    assert np.corrcoef(fit.quality, quality)[0, 1] > 0.95
    assert fit.quality.min() >= 0
    again = fit_aam(simulations, solver=solver, sigmoid=sigmoid, epochs=120)
    np.testing.assert_array_equal(fit.quality, again.quality)
    np.testing.assert_allclose(fit.predict(simulations.sizes), fit.predicted, atol=1e-6)
    fresh = planted(40, seed=1)[1]
    assert np.sqrt(np.square(fit.predict(fresh.sizes) - fresh.accuracy).mean()) < 0.03


def test_projection_is_least_squares_on_padded_inputs():
    _, sims = planted(7, rounds=4)
    omega = np.array([0.5, 0.0, 1.0, 0.2, 0.7, 2.0])
    loss, gradient, predicted, per_round, constant = project(omega, sims.sizes, sims.accuracy)
    columns = 1 / (1 + np.exp(-(padded_inputs(sims.sizes) @ omega)))  # the AAM's second layer
    design = np.c_[columns, np.ones(len(columns))]
    target = sims.accuracy.ravel()
    plain = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    np.testing.assert_allclose(predicted.ravel(), plain, atol=1e-9)
    by_round = np.linalg.lstsq(design, target, rcond=None)[0][:-1]
    np.testing.assert_allclose(per_round, by_round, atol=1e-6)
    assert loss == pytest.approx(np.square(plain - target).mean(), rel=1e-9)
    h = 1 / (1 + np.exp(-(sims.sizes @ omega))) - 0.5
    np.testing.assert_allclose(constant + np.cumsum(h * per_round, axis=1), predicted, atol=1e-9)
    for i, step in enumerate(1e-5 * np.eye(6)):
        high, low = (project(omega + d, sims.sizes, sims.accuracy)[0] for d in (step, -step))
        assert gradient[i] == pytest.approx((high - low) / 2e-5, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(
    "omega", [np.full(6, 1e3), np.full(6, 12.0), np.full(6, 1e-7), np.zeros(6)]
)
def test_projection_where_columns_are_alike(omega):
    """Flat or vanishing sigmoids: what the sizes say is lost, the means of the rounds may be."""
    _, sims = planted(7, rounds=4)
    loss, gradient, predicted, per_round, _ = project(omega, sims.sizes + 0.1, sims.accuracy)
    h = 1 / (1 + np.exp(-np.minimum((sims.sizes + 0.1) @ omega, 700))) - 0.5
    design = np.tril(np.ones((4, 4)))[None] * h[:, None, :]
    design = np.c_[design.reshape(-1, 4), np.ones(28)]
    target = sims.accuracy.ravel()
    scale = np.linalg.norm(design, axis=0) + (np.linalg.norm(design, axis=0) == 0)
    best = np.linalg.lstsq(design / scale, target, rcond=1e-9)[0]
    np.testing.assert_allclose(predicted.ravel(), design / scale @ best, atol=1e-6)
    assert loss == pytest.approx(np.square(predicted - sims.accuracy).mean())
    assert np.isfinite(gradient).all()
    assert np.isfinite(per_round).all()


def test_projection_has_converged_where_adam_has_not():
    _, sims = planted(20)
    fits = [fit_aam(sims, seed=seed) for seed in (0, 1)]
    np.testing.assert_allclose(fits[0].predicted, fits[1].predicted, atol=1e-4)
    assert fits[0].losses[-1] == min(fits[0].losses)
    left = np.square(fits[0].predicted - sims.accuracy).mean()
    assert fits[0].error == pytest.approx(np.sqrt(left))
    by_adam = fit_aam(sims, solver="adam", epochs=100)
    assert fits[0].error < by_adam.error


def fitted_plainly(start, sims, seed, lr, epochs, batch_size):
    """Algorithm 2 in a plain loop over one network."""
    inputs = torch.from_numpy(padded_inputs(sims.sizes)).float()
    targets = torch.from_numpy(sims.accuracy.ravel()).float()
    with torch.no_grad():
        start.outer_bias.fill_(targets.mean())
    optimiser, rng = torch.optim.Adam(start.parameters(), lr=lr), np.random.default_rng(seed)
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for rows in torch.from_numpy(rng.permutation(len(targets))).split(batch_size):
            optimiser.zero_grad()
            (start(inputs[rows]) - targets[rows]).square().mean().backward()
            optimiser.step()
            start.constrain()
    with torch.no_grad():
        return start.quality.numpy(), (start(inputs) - targets).square().mean().item()


@pytest.mark.parametrize("sigmoid", ["shared", "connected"])
def test_starts_are_trained_at_once_as_one_by_one(sigmoid):
    _, sims = planted(10)

    def starts():
        rng = np.random.default_rng(4)
        return [AccuracyApproximation(6, 10, 3, sigmoid, rng=rng) for _ in range(4)]

    alone = [fitted_plainly(start, sims, 5, 0.03, 30, 16) for start in starts()]
    seen = []
    best, losses, predicted = train_by_adam(
        starts(), sims.sizes, sims.accuracy, np.random.default_rng(5), lr=0.03, epochs=30,
        batch_size=16, watch=lambda epoch, loss: seen.append((epoch, loss)),
    )  # fmt: skip
    quality, loss = min(alone, key=lambda found: found[1])
    assert (
        max(alone, key=lambda found: found[1])[1] > 1.05 * loss
    )  # so that the best is one of them
    assert losses[-1] == pytest.approx(loss, rel=1e-3)
    np.testing.assert_allclose(best.quality.detach().numpy(), quality, atol=1e-3)
    assert losses[-1] == pytest.approx(np.square(predicted - sims.accuracy).mean(), rel=1e-4)
    assert [epoch for epoch, _ in seen] == list(range(30))
    assert seen[-1][1] == losses[-1]


def test_the_simulator_end_to_end(problem):
    f, arch = problem
    found = simulate(f, arch, LOCAL, simulations=6, rounds=3, device="cpu")
    assert found.sizes.shape == (6, 3, 4)
    assert found.accuracy.shape == (6, 3)
    fit = fit_aam(found)
    index = contribution_index(contribution_values(fit.quality, f.sizes))
    assert index.sum() == pytest.approx(1)


def test_retraining_is_a_game(problem):
    f, arch = problem
    game = RetrainingGame(f, arch, LOCAL, rounds=2, chunk=5, device="cpu")
    masks = fk.all_coalitions(4)
    found = game.value(masks)
    whole = RetrainingGame(f, arch, LOCAL, rounds=2, chunk=64, device="cpu").value(masks)
    assert_same_answers(found, whole, len(f.y_test))
    start = arch.init(Streams(0).generator("model"))
    test = Evaluator(arch, f.x_test, f.y_test, "accuracy", device="cpu")
    assert found[0] == pytest.approx(test.utilities(start[None])[0])
    assert found[-1] > found[0]
    sampled = fk.estimate(game, fk.TruncatedMonteCarlo(), budget=10, seed=0)
    assert sampled.evaluations <= 10


def test_one_simulation_says_nothing_of_the_clients():
    """A number per round fits it exactly, whatever the weights are; two say something."""
    _, sims = planted(2)
    alone = sims.sizes[:1], sims.accuracy[:1]
    for omega in (np.ones(6), np.arange(6.0)):
        assert project(omega, *alone)[0] < 1e-12
        assert project(omega, sims.sizes, sims.accuracy)[0] > 1e-9


def test_the_sign_of_the_effect_is_not_in_the_weights():
    """Where data do harm, the most harmful client gets the largest weight."""
    effects = np.array([-1.0, -0.8, -0.6, 0.3, 0.2, 0.1])
    sizes = np.random.default_rng(0).random((60, 8, 6))
    accuracy = 0.9 + 0.01 * np.cumsum(sizes @ effects, axis=1)
    fit = fit_aam(Simulations(sizes, accuracy))
    assert fit.quality.argmax() == 0
    assert fit.quality[3:].max() < fit.quality[:3].min()
    assert fit.per_round.sum() < 0
    upright = fit_aam(Simulations(sizes, 1.8 - accuracy))
    np.testing.assert_allclose(
        contribution_index(upright.quality), contribution_index(fit.quality), atol=0.02
    )
    assert upright.per_round.sum() > 0
