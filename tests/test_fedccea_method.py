"""FedCCEA: the simulator, both readings of the AAM against plain loops, value and index."""

import numpy as np
import pytest
import torch
from refusals import refused
from rounding import assert_same_answers

import fedkit as fk
from fedkit.federated import retraining
from fedkit.federated.partition import QuantitySkew
from fedkit.federated.retraining import InOrder, federation_game, train_with_sizes
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
from fedkit.methods.optimisers import project, train_by_adam
from fedkit.streams import Streams

LOCAL = fk.LocalSGD(lr=0.2, batch_size=8, epochs=2)
CHANGING = np.arange(27.0).reshape(9, 3) / 27
SAME = np.tile(np.arange(3.0) / 3, (9, 1))  # differs by round, not by simulation


def planted(simulations, noise=0.005, rounds=10, seed=0):
    """Accuracies that a known quality made, through a saturating law."""
    rng = np.random.default_rng(seed)
    quality = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    sizes = rng.random((simulations, rounds, 6))
    used = np.cumsum(sizes @ quality, axis=1)
    accuracy = 0.9 * (1 - np.exp(-used / 8)) + noise * rng.standard_normal(used.shape)
    return quality, Simulations(sizes, accuracy)


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
    sizes = sample_sizes(f.sizes // 3, 3, 3, seed=1)
    sizes[1, 1] = 0  # a round in which nobody uses data
    sizes[2, :, 2] = 0  # a client that never does
    together = train_with_sizes(f, arch, LOCAL, sizes, seed=7, device="cpu")
    for s, mine in enumerate(sizes):
        alone = plainly(f, arch, LOCAL, mine, 7)
        assert_same_answers(together[s], alone, len(f.y_test))
    assert together[1, 1] == together[1, 0]
    assert InOrder().permutation(5).tolist() == [0, 1, 2, 3, 4]
    last = train_with_sizes(f, arch, LOCAL, sizes, seed=7, every_round=False, device="cpu")
    assert_same_answers(last[:, 0], together[:, -1], len(f.y_test))


def test_one_that_overflows_leaves_its_neighbours_alone(problem):
    f, arch = problem
    sizes = np.zeros((3, 2, 4), dtype=np.int64)
    sizes[1] = f.sizes
    wild = fk.LocalSGD(lr=1e30, batch_size=7)
    found = train_with_sizes(f, arch, wild, sizes, device="cpu")
    assert (found[0] == found[2]).all()
    assert (found[0] != found[1]).all()
    assert found[1, -1] == pytest.approx(float((f.y_test == 0).double().mean()))  # the first class


def test_who_weighs_nothing_may_overflow(problem):
    f, arch = problem
    f, found = f.with_transforms({1: lambda x, y, rng: (1e30 * x, y)}), []
    for used in (f.sizes, f.sizes * [1, 0, 1, 1]):
        one = used[None, None]
        found.append(train_with_sizes(f, arch, LOCAL, one, device="cpu", weights=[[1, 0, 1, 1]]))
    assert_same_answers(*found, len(f.y_test))
    assert found[0].item() > 0.3  # it has learnt


def test_inputs_are_padded_as_in_figure_3():
    sizes = np.arange(1, 13, dtype=float).reshape(2, 3, 2)
    inputs = padded_inputs(sizes)
    assert inputs.shape == (6, 3, 2)
    np.testing.assert_array_equal(inputs[0], [[1, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(inputs[4], [[7, 8], [9, 10], [0, 0]])
    np.testing.assert_array_equal(inputs[5], sizes[1])


@pytest.mark.parametrize("sigmoid", ["shared", "connected"])
def test_the_model_is_what_the_paper_draws_and_needs_no_padding(sigmoid):
    rng = np.random.default_rng(0)
    model = AccuracyApproximation(3, 5, 10, sigmoid, rng=rng, dtype=torch.float64)
    model.inner_bias.copy_(torch.from_numpy(rng.random(10)))
    model.outer_bias.fill_(0.3)
    sizes = rng.random((4, 5, 3))
    inputs = torch.from_numpy(padded_inputs(sizes))
    z = inputs @ model.quality
    if sigmoid == "shared":
        z = torch.sigmoid(z)
    h = z @ model.inner + model.inner_bias
    if sigmoid == "connected":
        h = torch.sigmoid(h)
    plain = h @ model.outer + model.outer_bias
    torch.testing.assert_close(model(inputs), plain)
    np.testing.assert_allclose(model.accuracies(sizes), plain.view(4, 5), rtol=1e-12)
    both = model.like(torch.stack([2 * model.weights, model.weights]))(inputs)
    torch.testing.assert_close(both[1], plain)
    assert model.inner.shape == (5, 10)
    assert (model.quality >= 0).all()


FITS = [
    {"solver": solver, "sigmoid": sigmoid}
    for solver in ("converged", "adam")
    for sigmoid in ("shared", "connected")
]


@pytest.mark.parametrize("how", FITS)
def test_planted_qualities_are_found(how):
    quality, simulations = planted(60)
    fit = fit_aam(simulations, epochs=120, **how)
    left = np.square(fit.predicted - simulations.accuracy).mean()
    assert fit.error == pytest.approx(np.sqrt(left), rel=1e-4)
    assert fit.error < 0.03
    assert np.corrcoef(fit.quality, quality)[0, 1] > 0.95
    assert fit.quality.min() >= 0
    np.testing.assert_allclose(fit.predict(simulations.sizes), fit.predicted, atol=1e-6)
    fresh = planted(40, seed=1)[1]
    assert np.sqrt(np.square(fit.predict(fresh.sizes) - fresh.accuracy).mean()) < 0.03
    few = planted(6)[1]
    first, again = (fit_aam(few, epochs=5, **how).quality for _ in range(2))
    np.testing.assert_array_equal(first, again)


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


def test_the_simulator_scales_by_the_mean_client(problem):
    f, arch = problem
    found = simulate(f, arch, LOCAL, simulations=6, rounds=3, device="cpu")
    drawn = sample_sizes(f.sizes, 6, 3)
    np.testing.assert_allclose(found.sizes, drawn / np.mean(f.sizes))
    reached = train_with_sizes(f, arch, LOCAL, drawn, device="cpu")
    np.testing.assert_array_equal(found.accuracy, reached)


def test_retraining_is_a_game(problem, monkeypatch):
    f, arch = problem
    game = federation_game(f, arch, LOCAL, rounds=2, device="cpu")
    masks = fk.all_coalitions(4)
    whole = game(masks)
    monkeypatch.setattr(retraining, "_TOGETHER", 5)
    found = game(masks)
    assert_same_answers(found, whole, len(f.y_test))
    start = arch.init(Streams(0).generator("model"))
    test = Evaluator(arch, f.x_test, f.y_test, "accuracy", device="cpu")
    assert found[0] == pytest.approx(test.utilities(start[None])[0])
    assert found[-1] > found[0]


def connected(rng, sims):
    """A network to begin with."""
    start = AccuracyApproximation(6, 12, sigmoid="connected", rng=rng, dtype=torch.float64)
    start.outer_bias.fill_(float(sims.accuracy.mean()))
    return start


@pytest.mark.parametrize("how", FITS)
def test_a_client_that_nobody_used_has_weight_zero(how):
    """Nothing is known of it; the others get what they get without it."""
    _, sims = planted(30)
    alone = fit_aam(sims, epochs=20, **how)
    wider = np.insert(sims.sizes, 2, 0.0, axis=2)
    fit = fit_aam(Simulations(wider, sims.accuracy), epochs=20, **how)
    np.testing.assert_array_equal(fit.quality, np.insert(alone.quality, 2, 0.0))
    np.testing.assert_allclose(fit.predict(wider), alone.predict(sims.sizes), rtol=1e-5)
    values = contribution_values(fit.quality, [5, 5, 1, 5, 5, 5, 5])
    assert contribution_index(values)[2] == 0
    three = fk.shapley(fk.airport([1, 2, 4]))
    np.testing.assert_array_equal(contribution_index(three), contribution_index(three.values))
    # the draw is rounded down, so a client with one sample is such a client
    assert sample_sizes([1, 5], 50, 4)[..., 0].max() == 0


def test_adams_weights_at_their_bound_are_zero():
    """They jitter above it by a last step: neither an index nor a rank may hang on that."""
    sims, rng = planted(60)[1], np.random.default_rng(0)
    start = AccuracyApproximation(6, 10, rng=rng)
    start.quality[:3] = torch.tensor([0.0, 1e-5, 1e-2])
    padded = padded_inputs(sims.sizes)
    best, _ = train_by_adam([start], padded, sims.accuracy, rng, lr=1e-9, epochs=1)
    assert (best.quality[:2] == 0).all()
    assert best.quality[2] > 0.009


def scored(score):
    return Simulations(np.full((2, 3, 2), 0.5), np.full((2, 3), score))


def test_index_by_hand():
    np.testing.assert_allclose(contribution_index([3.0, -1.0, 1.0]), [0.75, 0, 0.25])
    np.testing.assert_allclose(contribution_index([0.0, -2.0]), [0.5, 0.5])
    np.testing.assert_allclose(contribution_values(np.array([1.0, 2.0]), [10, 30]), [0.5, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.ones((2, 3))), "sizes are float64"),
        (
            lambda f, a: train_with_sizes(f, a, LOCAL, np.full((1, 1, 4), 10**6)),
            "from 0 to what a client owns",
        ),
        (lambda f, a: sample_sizes(f.sizes, 0, 5), "simulations is 0"),
        (lambda f, a: sample_sizes([3, 4], 2, 2.5), "rounds is 2.5"),
        (lambda f, a: sample_sizes([3, np.nan], 2, 5), "sizes is"),
        (lambda f, a: sample_sizes([0, 0], 2, 5), "not all 0"),
        (lambda f, a: contribution_index([]), "values is"),
        (lambda f, a: contribution_values([1.0], [3, 4]), "quality is .* 2 finite numbers"),
        (lambda f, a: Simulations(np.ones((2, 3, 4)), np.ones((2, 4))), r"expected \[S, R, n\]"),
        (lambda f, a: Simulations(np.full((2, 3, 4), np.nan), np.ones((2, 3))), "must be finite"),
        (lambda f, a: fit_aam(Simulations(np.ones((2, 3, 4)), np.ones((2, 3)))), "at least 3"),
        (lambda f, a: Simulations(60 * np.ones((2, 3, 4)), np.ones((2, 3))), "mean size"),
        (lambda f, a: scored(-2.3), "accuracy reaches -2.3; expected scores in"),  # a loss
        (lambda f, a: scored(55.0), "accuracy reaches 55; expected scores in"),
        (lambda f, a: fit_aam(Simulations(SAME[..., None], CHANGING)), "sizes of every round"),
        (lambda f, a: fit_aam(Simulations(CHANGING[..., None], SAME)), "accuracies of every round"),
        (lambda f, a: fit_aam(planted(9)[1], sigmoid="both"), "sigmoid is 'both'"),
        (lambda f, a: fit_aam(planted(9)[1], solver="sgd"), "solver is 'sgd'"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", lr=1e30), "Adam diverges"),
    ],
)
def test_bad_input(problem, call, message):
    refused(message, call, *problem)
