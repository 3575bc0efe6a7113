"""Complementary contributions: pairs, rounds, strata, their means and standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from manyseeds import assert_calibrated, assert_unbiased, run

import fedkit as fk
from fedkit.estimators import ComplementarySampling, PermutationSampling, estimate, shapley
from fedkit.games import FunctionGame, TableGame, airport, tabulate


def noise(n: int, seed: int = 0) -> TableGame:
    return TableGame(np.random.default_rng(seed).normal(size=2**n))


@pytest.mark.parametrize("n", [5, 7, 8])  # sizes that divide n, that do not, and halves
def test_every_single_round_is_unbiased(n):
    game = noise(n, n)
    values, _ = run(ComplementarySampling(1), None, game=game, repeats=400)
    assert_unbiased(values, shapley(game).values)


def test_standard_errors_hold_where_sizes_do_not_divide_n():
    game = noise(7)
    values, errors = run(ComplementarySampling(rounds=20), None, game=game)
    assert_unbiased(values, shapley(game).values)
    assert_calibrated(values, errors, shapley(game).values)


def test_both_sides_of_a_pair_are_asked_for_together_and_paid_once():
    asked = []
    game = FunctionGame(7, lambda rows: asked.append(rows.copy()) or rows.sum(axis=1) ** 2.0)
    found = estimate(game, ComplementarySampling(rounds=2))
    rows = np.concatenate(asked)
    sides = {tuple(row) for row in rows.astype(int).tolist()}
    assert all(tuple(1 - x for x in row) in sides for row in sides)
    assert found.evaluations == len(sides) == len(rows)
    # two pairs of class 0, seven of class 1; four and three per round of classes 2 and 3
    assert found.calls == 2 * (1 + 7 + 2 * (4 + 3)) - 1
    assert found.evaluations <= found.calls + 1


@pytest.mark.parametrize("n", [2, 5, 6, 9])
def test_a_round_meets_every_player_on_both_sides_of_every_size(n):
    seen = []
    game = FunctionGame(n, lambda rows: seen.append(rows.copy()) or rows.sum(axis=1) * 1.0)
    found = estimate(game, ComplementarySampling(rounds=1))
    rows = np.concatenate(seen)
    for s in range(1, n + 1):
        assert rows[rows.sum(axis=1) == s].any(axis=0).all()
    smallest = ComplementarySampling().minimum(n, "distinct")
    assert found.evaluations == len(rows) == smallest
    assert found.calls == ComplementarySampling().minimum(n, "calls")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_up_to_three_players_one_round_is_exact(n):
    game = noise(n)
    found = estimate(game, ComplementarySampling(rounds=9))
    np.testing.assert_allclose(found.values, shapley(game).values, atol=1e-12)
    np.testing.assert_array_equal(found.standard_errors, 0)
    assert found.has_intervals  # nothing is random
    assert (found.evaluations, found.info["rounds"]) == (2**n, 1)


def test_values_sum_to_the_gain_where_sizes_divide_n():
    for n, exactly in ((4, True), (6, True), (7, False)):
        game = noise(n)
        gap = estimate(game, ComplementarySampling(rounds=2)).values.sum()
        gap -= game.values[-1] - game.values[0]
        assert bool(abs(gap) < 1e-9) is exactly


def test_it_beats_permutations_where_a_player_matters_in_its_own_right():
    game = tabulate(airport(np.array([1.0, 2.0, 2.5, 4.0, 4.5, 7.0, 8.0, 9.0])))
    exact = shapley(game).values
    error = [
        np.sqrt(((run(e, 120, "distinct", game, 80)[0] - exact) ** 2).mean())
        for e in (ComplementarySampling(), PermutationSampling())
    ]
    assert error[0] < error[1]


@pytest.mark.parametrize("budget", [12, 15])
def test_two_rounds_that_agree_are_no_interval(budget):
    game = fk.airport([1.0, 4.0, 9.0, 16.0])
    found = fk.estimate_many(game, fk.ComplementarySampling(), budget=budget, seeds=range(20))
    assert not any(v.has_intervals for v in found if v.info["rounds"] < 10)
    told = [estimate(noise(5), ComplementarySampling(rounds=k)).has_intervals for k in (9, 10)]
    assert told == [False, True]
    stopped = fk.estimate(game, fk.ComplementarySampling(), 15, seed=1, stop=fk.precise(0.05))
    assert stopped.standard_errors.max() > 0 or not stopped.has_intervals
    three = fk.estimate(fk.airport([1.0, 4.0, 9.0]), fk.ComplementarySampling(), 20, seed=0)
    np.testing.assert_allclose(three.values, fk.airport([1.0, 4.0, 9.0]).shapley(), atol=1e-12)
