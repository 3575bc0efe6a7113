"""The AAM with its sigmoid behind the nodes, and minima of the other reading."""

import numpy as np
import pytest
import torch

from fedkit.methods.fedccea import AccuracyApproximation, Simulations, fit_aam, padded_inputs
from fedkit.methods.fedccea_approximation import train_by_adam
from fedkit.methods.fedccea_connected import Connected, fit_connected
from fedkit.methods.fedccea_projection import shared_weights


def weak(simulations, seed, effect=0.01, noise=0.03):
    """Sizes that explain a little, as in real federations: newer rounds matter more."""
    rng = np.random.default_rng(seed)
    sizes = rng.random((simulations, 12, 6))
    drive = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    kept = 0.5 ** np.subtract.outer(np.arange(12), np.arange(12)) * np.tri(12)
    accuracy = 0.5 + 0.02 * np.arange(12) + effect * np.einsum("qr,sri,i->sq", kept, sizes, drive)
    return Simulations(sizes, accuracy + noise * rng.standard_normal(accuracy.shape))


def test_running_sums_are_the_padded_network_with_its_slopes():
    rng = np.random.default_rng(0)
    sizes, accuracy = rng.random((4, 5, 3)), rng.random((4, 5))
    plain = AccuracyApproximation(3, 5, 7, "connected", rng=rng)
    with torch.no_grad():
        plain.inner_bias.copy_(torch.from_numpy(rng.random(7)))
        plain.outer_bias.fill_(0.3)
    ours = Connected(*(np.asarray(p.detach().double()) for p in plain.parameters()))
    assert [name for name, _ in plain.named_parameters()] == [
        "quality", "inner", "inner_bias", "outer", "outer_bias",
    ]  # fmt: skip
    np.testing.assert_allclose(ours.predict(sizes), plain.accuracies(sizes), atol=1e-6)
    found = plain(torch.from_numpy(padded_inputs(sizes)).float())
    loss = (found - torch.from_numpy(accuracy.ravel()).float()).square().mean()
    slopes = torch.autograd.grad(loss, list(plain.parameters()))
    ours_loss, ours_slopes = ours.slope(sizes, accuracy)
    assert ours_loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(
        ours_slopes.flat(), np.concatenate([s.numpy().ravel() for s in slopes]), atol=1e-6
    )
    np.testing.assert_array_equal(ours.like(ours.flat()).flat(), ours.flat())


def test_simulations_that_are_left_out_stop_the_fit():
    """Followed to the end the network learns noise; where it stops it predicts others better."""
    stopped, ended = [], []
    for seed in range(5):  # with one federation chance decides; over five the ratio is near 0.1
        past = weak(25, seed, noise=0.1)
        fresh = weak(200, 100 + seed, noise=0)
        early, losses = fit_connected(past.sizes, past.accuracy, np.random.default_rng(seed))
        late, lower = followed(past, 300)
        assert lower[-1] < losses[-1]
        for errors, network in ((stopped, early), (ended, late)):
            errors.append(np.square(network.predict(fresh.sizes) - fresh.accuracy).mean())
    assert np.mean(stopped) < 0.5 * np.mean(ended)


def followed(sims, iterations):
    """Fit to the end."""
    from fedkit.methods import fedccea_connected as connected

    start = Connected.drawn(np.random.default_rng(3), 6, 12, 10, float(sims.accuracy.mean()))
    losses = []
    network = connected._descend(
        start, sims.sizes, sims.accuracy, iterations, lambda _, loss: losses.append(loss)
    )
    return network, losses


def test_the_two_readings_differ_where_rounds_are_forgotten():
    """The last rounds decide: one number per round cannot say so, nodes that saturate can."""
    past, fresh = weak(100, 0, effect=0.05, noise=0.01), weak(100, 1, effect=0.05, noise=0.01)
    error = {}
    for sigmoid in ("shared", "connected"):
        found = fit_aam(past, sigmoid=sigmoid).predict(fresh.sizes)
        error[sigmoid] = np.square(found - fresh.accuracy).mean()
    assert error["connected"] < 0.9 * error["shared"]


def test_adams_weights_at_their_bound_are_zero():
    """They jitter above it by a last step: neither an index nor a rank may hang on that."""
    sims, rng = weak(60, 2), np.random.default_rng(0)
    start = AccuracyApproximation(6, 12, rng=rng)
    with torch.no_grad():
        start.quality[:3] = torch.tensor([0.0, 1e-5, 1e-2])
    best, _, predicted = train_by_adam(
        [start], sims.sizes, sims.accuracy, rng, lr=1e-9, batch_size=64, epochs=1
    )
    assert (best.quality[:2] == 0).all()
    assert best.quality[2] > 0.009
    np.testing.assert_array_equal(predicted, best.accuracies(sims.sizes))


@pytest.mark.parametrize("constant", ["sizes", "accuracy"])
def test_a_constant_that_differs_by_round_says_nothing_either(constant):
    sims = weak(20, 0)
    parts = {"sizes": sims.sizes, "accuracy": sims.accuracy}
    parts[constant] = np.broadcast_to(parts[constant][:1], parts[constant].shape)
    with pytest.raises(ValueError, match="all alike, so they say nothing"):
        fit_aam(Simulations(**parts))


def test_starts_reach_a_minimum_that_middling_ones_miss():
    """Sizes that explain next to nothing, as in real federations: two seeds find one minimum."""
    rng = np.random.default_rng(2)
    sizes = 2 * rng.random((60, 20, 12))
    effect = 0.002 * np.cumsum(sizes @ rng.random(12), axis=1) / np.sqrt(1 + np.arange(20))
    sims = Simulations(sizes, 0.5 + effect + 0.03 * rng.standard_normal((60, 20)))
    fits = [fit_aam(sims, seed=seed) for seed in range(4)]
    np.testing.assert_allclose(
        [f.losses[-1] for f in fits], min(f.losses[-1] for f in fits), rtol=1e-4
    )
    middling = np.random.default_rng(0).uniform(0, 12**-0.5, (4, 12))
    alone = [shared_weights(sims.sizes, sims.accuracy, start[None])[1][-1] for start in middling]
    assert max(alone) > 1.001 * fits[0].losses[-1]
