"""What the AAM does with clients that nobody used, and with bad input."""

import numpy as np
import pytest
from plantedqualities import planted

import fedkit as fk
from fedkit.federated.partitioners import QuantitySkew
from fedkit.federated.retraining import RetrainingGame, train_with_sizes
from fedkit.methods.fedccea import (
    AccuracyApproximation,
    Simulations,
    contribution_index,
    contribution_values,
    fewest_simulations,
    fit_aam,
    padded_inputs,
    sample_sizes,
)

LOCAL = fk.LocalSGD(lr=0.2, batch_size=8, epochs=2)
CHANGING = np.arange(27.0).reshape(9, 3)


@pytest.fixture(scope="module")
def problem():
    f = fk.make_federation(
        fk.load("digits"), 4, QuantitySkew(1.0), 0, validation=0.1, empty="refill", min_size=10
    )
    return f, fk.build("mlp-8", f.input_shape, f.n_classes)


FITS = [("projection", "shared"), ("quasi-newton", "connected"), ("adam", "shared")]


@pytest.mark.parametrize(("solver", "sigmoid"), FITS)
def test_a_client_that_nobody_used_has_weight_zero(solver, sigmoid):
    """Nothing is known of it; the others get what they get without it."""
    _, sims = planted(30)
    alone = fit_aam(sims, solver=solver, sigmoid=sigmoid, epochs=20)
    wider = np.insert(sims.sizes, 2, 0.0, axis=2)
    fit = fit_aam(Simulations(wider, sims.accuracy), solver=solver, sigmoid=sigmoid, epochs=20)
    np.testing.assert_array_equal(fit.quality, np.insert(alone.quality, 2, 0.0))
    np.testing.assert_allclose(fit.predict(wider), alone.predict(sims.sizes), rtol=1e-5)
    values = contribution_values(fit.quality, [5, 5, 1, 5, 5, 5, 5])
    assert contribution_index(values)[2] == 0
    # the draw is rounded down, so a client with one sample is such a client
    assert sample_sizes([1, 5], 50, 4)[..., 0].max() == 0


@pytest.mark.parametrize(("solver", "sigmoid"), FITS)
@pytest.mark.parametrize("shape", [(2, 9, 6), (2, 5, 6), (2, 10, 5), (2, 60)])
def test_predictions_of_another_federation_are_refused(solver, sigmoid, shape):
    fit = fit_aam(planted(9)[1], solver=solver, sigmoid=sigmoid, epochs=2)
    with pytest.raises(ValueError, match=r"expected finite ones, \(simulations, 10, 6\)"):
        fit.predict(np.ones(shape))
    with pytest.raises(ValueError, match="expected finite ones"):
        fit.predict(np.full((2, 10, 6), np.nan))
    assert fit.predict(np.ones((2, 10, 6))).shape == (2, 10)


def test_index_by_hand():
    np.testing.assert_allclose(contribution_index([3.0, -1.0, 1.0]), [0.75, 0, 0.25])
    np.testing.assert_allclose(contribution_index([0.0, -2.0]), [0.5, 0.5])
    np.testing.assert_allclose(contribution_values(np.array([1.0, 2.0]), [10, 30]), [0.5, 3.0])


def bad_shape(f, arch):
    return train_with_sizes(f, arch, LOCAL, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (bad_shape, "sizes have shape"),
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.full((1, 1, 4), 10**6)), "larger than"),
        (lambda f, a: RetrainingGame(f, a, LOCAL, rounds=0), "rounds is 0"),
        (lambda f, a: sample_sizes(f.sizes, 0, 5), "simulations is 0"),
        (lambda f, a: contribution_index([np.nan]), "one finite value"),
        (lambda f, a: contribution_index([-np.inf, 1.0]), "one finite value"),
        (lambda f, a: contribution_index([]), "one finite value"),
        (lambda f, a: contribution_index(np.ones((2, 2))), "one finite value"),
        (lambda f, a: contribution_values([1.0, np.nan], [3, 4]), "one finite weight"),
        (lambda f, a: contribution_values([1.0, 2.0], [3, np.inf]), "one finite weight"),
        (lambda f, a: sample_sizes([3, np.nan], 2, 5), "numbers of samples"),
        (lambda f, a: sample_sizes([3, -1], 2, 5), "numbers of samples"),
        (lambda f, a: sample_sizes([0, 0], 2, 5), "not all 0"),
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.full((1, 1, 4), 2.7)), "whole and finite"),
        (lambda f, a: train_with_sizes(f, a, LOCAL, np.full((1, 1, 4), np.nan)), "whole and"),
        (lambda f, a: RetrainingGame(f, a, LOCAL, rounds=1.5), "whole numbers from 1"),
        (lambda f, a: padded_inputs(np.ones((2, 3))), r"expected \(S, R, n\)"),
        (lambda f, a: contribution_values(np.ones(2), [0, 0]), "not all zero"),
        (lambda f, a: Simulations(np.ones((2, 3, 4)), np.ones((2, 4))), r"\(S, R, n\)"),
        (lambda f, a: Simulations(np.full((2, 3, 4), np.nan), np.ones((2, 3))), "not finite"),
        (lambda f, a: Simulations(-np.ones((2, 3, 4)), np.ones((2, 3))), "negative"),
        (lambda f, a: Simulations(np.ones((2, 3, 0)), np.ones((2, 3))), "may be 0"),
        (lambda f, a: fit_aam(Simulations(np.ones((2, 3, 4)), np.ones((2, 3)))), "at least 3"),
        (lambda f, a: fit_aam(Simulations(np.ones((1, 9, 4)), np.ones((1, 9)))), "at least 2"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", batch_size=0), "batch_size is 0"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", nodes=0), "nodes is 0"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", epochs=0), "epochs is 0"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", starts=0), "starts is 0"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", epochs=2.5), "epochs is 2.5"),
        (lambda f, a: fit_aam(planted(9)[1], batch_size=0), "batch_size is 0"),
        (lambda f, a: fit_aam(planted(9)[1], solver="adam", lr=1e30), "Adam diverges"),
        (lambda f, a: fit_aam(planted(9)[1], sigmoid="both"), "sigmoid is 'both'"),
        (lambda f, a: fit_aam(planted(9)[1], nodes=2.5), "nodes is 2.5"),
        (lambda f, a: fit_aam(Simulations(np.ones((9, 3, 2)), CHANGING)), "sizes of every round"),
        (lambda f, a: fit_aam(Simulations(CHANGING[..., None], np.ones((9, 3)))), "accuracies of"),
        (lambda f, a: sample_sizes([3, 4], 2.5, 3), "simulations is 2.5"),
        (lambda f, a: fewest_simulations(4, 0), "rounds is 0"),
        (
            lambda f, a: fit_aam(
                planted(9)[1],
                solver="projection",
                sigmoid="connected",
            ),
            "expected \"adam\", or 'quasi-newton' with sigmoid='connected'",
        ),
        (
            lambda f, a: AccuracyApproximation(2, 2, sigmoid="no", rng=np.random.default_rng(0)),
            "sigmoid is 'no'",
        ),
    ],
)
def test_bad_input(problem, call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem)
