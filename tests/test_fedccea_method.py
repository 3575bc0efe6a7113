"""FedCCEA: the simulator, both readings of the AAM against plain loops, value and index."""

from functools import partial

import numpy as np
import pytest
import torch
from rounding import assert_same_answers
from scipy.optimize import minimize

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
from fedkit.methods.optimisers import fit_connected, project, shared_weights, train_by_adam
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


def fitted_plainly(start, sims, seed, lr, epochs):
    """Algorithm 2 in a plain loop over one network."""
    inputs = torch.from_numpy(padded_inputs(sims.sizes)).float()
    targets = torch.from_numpy(sims.accuracy.ravel()).float()
    start.outer_bias.fill_(targets.mean())
    weights = start.weights.clone().requires_grad_()
    optimiser, rng = torch.optim.Adam([weights], lr=lr), np.random.default_rng(seed)
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for rows in torch.from_numpy(rng.permutation(len(targets))).split(64):
            optimiser.zero_grad()
            (start.like(weights)(inputs[rows]) - targets[rows]).square().mean().backward()
            optimiser.step()
            with torch.no_grad():
                start.like(weights).quality.clamp_(min=0.0)  # appendix A
    network = start.like(weights.detach())
    return network.quality.numpy(), (network(inputs) - targets).square().mean().item()


@pytest.mark.parametrize("sigmoid", ["shared", "connected"])
def test_starts_are_trained_at_once_as_one_by_one(sigmoid):
    _, sims = planted(10)

    def starts():
        rng = np.random.default_rng(4)
        return [AccuracyApproximation(6, 10, 3, sigmoid, rng=rng) for _ in range(4)]

    alone = [fitted_plainly(start, sims, 5, 0.03, 60) for start in starts()]
    best, losses = train_by_adam(
        starts(), padded_inputs(sims.sizes), sims.accuracy, np.random.default_rng(5), lr=0.03,
        epochs=60,
    )  # fmt: skip
    quality, loss = min(alone, key=lambda found: found[1])
    assert max(loss for _, loss in alone) > 1.05 * loss  # so that the best is one of them
    assert losses[-1] == pytest.approx(loss, rel=1e-3)
    np.testing.assert_allclose(best.quality.numpy(), quality, atol=1e-3)
    left = best.accuracies(sims.sizes) - sims.accuracy
    assert losses[-1] == pytest.approx(np.square(left).mean(), rel=1e-4)
    assert len(losses) == 60


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


def test_the_sign_of_the_effect_is_not_in_the_weights():
    """Where data do harm, the most harmful client gets the largest weight."""
    effects = np.array([-1.0, -0.8, -0.6, 0.3, 0.2, 0.1])
    sizes = np.random.default_rng(0).random((60, 8, 6))
    accuracy = 0.7 + 0.01 * np.cumsum(sizes @ effects, axis=1)
    fit = fit_aam(Simulations(sizes, accuracy))
    assert fit.quality.argmax() == 0
    assert fit.quality[3:].max() < fit.quality[:3].min()
    assert fit.per_round.sum() < 0
    upright = fit_aam(Simulations(sizes, 1.4 - accuracy))
    np.testing.assert_allclose(
        contribution_index(upright.quality), contribution_index(fit.quality), atol=0.02
    )
    assert upright.per_round.sum() > 0


def test_a_loss_is_no_accuracy():
    sizes = np.full((2, 3, 2), 0.5)
    for score in (-2.3, 55.0):
        with pytest.raises(ValueError, match=rf"an accuracy is {score:g}; expected scores in"):
            Simulations(sizes, np.full((2, 3), score))


def weak(simulations, seed, noise):
    """Sizes that explain a little, as in real federations: newer rounds matter more."""
    rng = np.random.default_rng(seed)
    sizes = rng.random((simulations, 12, 6))
    drive = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    kept = 0.5 ** np.subtract.outer(np.arange(12), np.arange(12)) * np.tri(12)
    accuracy = 0.5 + 0.02 * np.arange(12) + 0.01 * np.einsum("qr,sri,i->sq", kept, sizes, drive)
    return Simulations(sizes, accuracy + noise * rng.standard_normal(accuracy.shape))


def test_simulations_that_are_left_out_stop_the_fit():
    """Followed to the end the network learns noise; where it stops it predicts others better."""
    stopped, ended = [], []
    for seed in range(3):  # with one federation chance decides; over three the ratio is near 0.15
        past = weak(25, seed, noise=0.1)
        fresh = weak(200, 100 + seed, noise=0)
        rng = np.random.default_rng(seed)
        early, losses = fit_connected(past.sizes, past.accuracy, rng, partial(connected, rng, past))
        late, lower = followed(past, 300)
        assert lower < losses[-1]
        for errors, network in ((stopped, early), (ended, late)):
            errors.append(np.square(network.accuracies(fresh.sizes) - fresh.accuracy).mean())
    assert np.mean(stopped) < 0.5 * np.mean(ended)


def connected(rng, sims):
    """A network to begin with."""
    start = AccuracyApproximation(6, 12, sigmoid="connected", rng=rng, dtype=torch.float64)
    start.outer_bias.fill_(float(sims.accuracy.mean()))
    return start


def followed(sims, iterations):
    """Fit to the end."""
    rng = np.random.default_rng(3)
    start = AccuracyApproximation(6, 12, sigmoid="connected", rng=rng, dtype=torch.float64)
    x, y = torch.from_numpy(sims.sizes), torch.from_numpy(sims.accuracy)

    def slope(row):
        weights = torch.from_numpy(row).requires_grad_()
        loss = 1e4 * (start.like(weights).running(x) - y).square().mean()
        return loss.item(), torch.autograd.grad(loss, weights)[0].numpy()

    found = minimize(
        slope, start.weights.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": iterations}
    )
    return start.like(torch.from_numpy(found.x)), found.fun / 1e4


def test_adams_weights_at_their_bound_are_zero():
    """They jitter above it by a last step: neither an index nor a rank may hang on that."""
    sims, rng = weak(60, 2, 0.03), np.random.default_rng(0)
    start = AccuracyApproximation(6, 12, rng=rng)
    start.quality[:3] = torch.tensor([0.0, 1e-5, 1e-2])
    best, _ = train_by_adam(
        [start], padded_inputs(sims.sizes), sims.accuracy, rng, lr=1e-9, epochs=1
    )
    assert (best.quality[:2] == 0).all()
    assert best.quality[2] > 0.009


def test_starts_reach_a_minimum_that_middling_ones_miss():
    """Sizes that explain next to nothing, as in real federations: two seeds find one minimum."""
    rng = np.random.default_rng(4)
    sizes = rng.random((60, 20, 12))
    effect = 0.004 * np.cumsum(sizes @ rng.random(12), axis=1) / np.sqrt(1 + np.arange(20))
    sims = Simulations(sizes, 0.5 + effect + 0.03 * rng.standard_normal((60, 20)))
    fits = [fit_aam(sims, seed=seed) for seed in range(4)]
    np.testing.assert_allclose(
        [f.losses[-1] for f in fits], min(f.losses[-1] for f in fits), rtol=1e-4
    )
    middling = np.random.default_rng(0).uniform(0, 12**-0.5, (4, 12))
    alone = [shared_weights(sims.sizes, sims.accuracy, start[None])[3][-1] for start in middling]
    assert max(alone) > 1.001 * fits[0].losses[-1]


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


def test_index_by_hand():
    np.testing.assert_allclose(contribution_index([3.0, -1.0, 1.0]), [0.75, 0, 0.25])
    np.testing.assert_allclose(contribution_index([0.0, -2.0]), [0.5, 0.5])
    np.testing.assert_allclose(contribution_values(np.array([1.0, 2.0]), [10, 30]), [0.5, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.ones((2, 3))), "sizes have shape"),
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.full((1, 1, 4), 10**6)), "larger than"),
        (lambda f, a: sample_sizes(f.sizes, 0, 5), "simulations is 0"),
        (lambda f, a: sample_sizes([3, 4], 2, 2.5), "rounds is 2.5"),
        (lambda f, a: sample_sizes([3, np.nan], 2, 5), "sizes is"),
        (lambda f, a: sample_sizes([0, 0], 2, 5), "not all 0"),
        (lambda f, a: contribution_index([]), "values is"),
        (lambda f, a: contribution_values([1.0], [3, 4]), "quality is .* 2 finite numbers"),
        (lambda f, a: Simulations(np.ones((2, 3, 4)), np.ones((2, 4))), r"\(S, R, n\)"),
        (lambda f, a: Simulations(np.full((2, 3, 4), np.nan), np.ones((2, 3))), "not finite"),
        (lambda f, a: fit_aam(Simulations(np.ones((2, 3, 4)), np.ones((2, 3)))), "at least 3"),
        (lambda f, a: Simulations(60 * np.ones((2, 3, 4)), np.ones((2, 3))), "mean size"),
        (lambda f, a: Simulations(np.ones((2, 3, 4)), 70 * np.ones((2, 3))), "percentages by 100"),
        (lambda f, a: fit_aam(Simulations(SAME[..., None], CHANGING)), "sizes of every round"),
        (lambda f, a: fit_aam(Simulations(CHANGING[..., None], SAME)), "accuracies of every round"),
        (lambda f, a: fit_aam(planted(9)[1], sigmoid="both"), "sigmoid is 'both'"),
        (lambda f, a: fit_aam(planted(9)[1], solver="sgd"), "solver is 'sgd'"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", lr=1e30), "Adam diverges"),
    ],
)
def test_bad_input(problem, call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem)
