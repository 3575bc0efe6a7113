"""Axioms: of the exact values, and of the estimators where they hold."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_estimators import ALL, SHAPLEY_WALKS, random_table, seeds

from fedkit.estimators import (
    BanzhafSampling,
    ComplementarySampling,
    GTGShapley,
    ProxySampling,
    TruncatedMonteCarlo,
    banzhaf,
    beta_shapley,
    beta_weights,
    estimate,
    leave_one_out,
    shapley,
    shapley_weights,
)
from fedkit.games.game import MemoGame, TableGame, airport, all_coalitions
from fedkit.methods.fedowen import OwenSampling

UNTRUNCATED = [e for e in ALL if e.weights(4) is not None and not isinstance(e, ProxySampling)]
# built from marginals
WALKING = [e for e in UNTRUNCATED if e not in (BanzhafSampling(), ComplementarySampling())]

# --- exact values -----------------------------------------------------------------------------

SEMIVALUES = [shapley, banzhaf, lambda game: beta_shapley(game, 4.0, 1.0), leave_one_out]
sizes = st.integers(1, 7)


def test_beta_one_one_is_shapley_and_weights_sum_to_one():
    for n in (1, 2, 7, 30):
        np.testing.assert_allclose(beta_weights(n, 1, 1), shapley_weights(n), rtol=1e-11)
        counts = np.array([float(comb(n - 1, s)) for s in range(n)])
        np.testing.assert_allclose((counts * beta_weights(n, 3.0, 0.5)).sum(), 1.0)
    # Beta(2, 1), n = 2: p_j = C(1, j-1) B(j, 4-j) / B(2, 1): 2/3 and 1/3
    np.testing.assert_allclose(beta_weights(2, 2.0, 1.0), [2 / 3, 1 / 3])
    for bad in ((0.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (np.inf, 1.0)):
        with pytest.raises(ValueError, match="expected a finite number above 0"):
            beta_weights(3, *bad)


@settings(deadline=None)
@given(sizes, seeds)
def test_efficiency(n, seed):
    table = random_table(n, seed)
    gain = table.values[-1] - table.values[0]
    np.testing.assert_allclose(shapley(table).values.sum(), gain, atol=1e-10)


@settings(deadline=None)
@given(sizes, seeds, st.sampled_from(SEMIVALUES))
def test_symmetry_under_relabelling(n, seed, solve):
    table = random_table(n, seed)
    order = np.random.default_rng(seed + 1).permutation(n)
    renamed = TableGame(table.value(all_coalitions(n)[:, order]))  # player i is now order[i]
    np.testing.assert_allclose(solve(renamed).values[order], solve(table).values, atol=1e-10)


@settings(deadline=None)
@given(sizes, seeds, st.sampled_from(SEMIVALUES))
def test_null_player_and_linearity(n, seed, solve):
    one, two = random_table(n, seed), random_table(n, seed + 1)
    both = TableGame(2.0 * one.values - 3.0 * two.values)
    np.testing.assert_allclose(
        solve(both).values, 2 * solve(one).values - 3 * solve(two).values, atol=1e-9
    )
    null = TableGame(np.concatenate([one.values, one.values]))  # player n changes nothing
    assert solve(null).values[n] == 0.0


@settings(deadline=None)
@given(sizes, seeds, st.sampled_from(SEMIVALUES))
def test_outputs_are_columns(n, seed, solve):
    table = random_table(n, seed, (3,))
    together = solve(table).values
    assert together.shape == (n, 3)
    for column in range(3):
        alone = solve(TableGame(table.values[:, column])).values
        np.testing.assert_allclose(together[:, column], alone, atol=1e-12)


def test_leave_one_out_costs_n_plus_one():
    game = MemoGame(airport([1.0, 4.0, 2.0]))
    result = leave_one_out(game)
    np.testing.assert_array_equal(result.values, [0.0, 2.0, 0.0])
    assert result.evaluations == game.evaluations == 4


# --- axioms of the estimators -----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SHAPLEY_WALKS), st.integers(2, 6), seeds)
def test_walks_are_efficient(estimator, n, seed):
    table = random_table(n, seed)
    if isinstance(estimator, OwenSampling):
        table = TableGame(table.values - table.values[0])
    budget = 30 if not estimator.stops else None
    total = estimate(table, estimator, budget, 1, count="calls").values.sum()
    np.testing.assert_allclose(total, table.values[-1] - table.values[0], atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WALKING), st.integers(1, 6), seeds)
def test_a_null_player_gets_exactly_nothing(estimator, n, seed):
    table = random_table(n, seed)
    values = table.values - table.values[0]
    null = TableGame(np.concatenate([values, values]))
    result = estimate(null, estimator, 40, 1, count="calls")
    np.testing.assert_allclose(result.values[n], 0.0, atol=1e-15)
    # a sample cannot tell a null player from one whose contributions are rare, so that means borrow
    # spread from the others; nobody's standard error is smaller
    errors = np.nan_to_num(result.standard_errors)
    assert errors[n] <= errors.min() * (1 + 1e-9) + 1e-15


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(UNTRUNCATED), st.integers(2, 6), seeds)
def test_linearity_on_the_same_sample(estimator, n, seed):
    one, two = random_table(n, seed), random_table(n, seed + 1)
    both = TableGame(2.0 * one.values - 3.0 * two.values)
    single = [estimate(g, estimator, 40, 5, count="calls").values for g in (one, two, both)]
    np.testing.assert_allclose(single[2], 2 * single[0] - 3 * single[1], atol=1e-10)


@pytest.mark.parametrize(
    "estimator",
    [
        *UNTRUNCATED,
        TruncatedMonteCarlo(0.3, walks=20),
        GTGShapley(0.3, 0.0, walks=20),
        GTGShapley(0.3, as_printed=True, walks=20),
        OwenSampling(3, draws=6, eta=0.3),
        GTGShapley(0.3, 0.5, walks=20, official_normalisation=True),
    ],
    ids=repr,
)
def test_outputs_of_an_estimate_are_columns(estimator):
    table = random_table(5, 3, (3,))
    budget = None if estimator.stops else 40
    together = estimate(table, estimator, budget, 2, count="calls")
    assert together.values.shape == together.standard_errors.shape == (5, 3)
    for column in range(3):
        one = TableGame(table.values[:, column])
        alone = estimate(one, estimator, budget, 2, count="calls")
        np.testing.assert_allclose(together.values[:, column], alone.values, atol=1e-12)
        np.testing.assert_allclose(
            together.standard_errors[:, column], alone.standard_errors, atol=1e-12
        )
