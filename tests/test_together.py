"""Pairwise interactions and the least core, against closed forms and plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from fedkit.estimators import least_core, shapley_interactions
from fedkit.games import (
    TableGame,
    airport,
    all_coalitions,
    glove,
    random_unanimity_sum,
    tabulate,
    unanimity,
    weighted_majority,
)


def test_interactions_share_dividends_among_pairs():
    game = random_unanimity_sum(6, 14, 2, 3)  # a carrier T gives each of its pairs d / (t - 1)
    expected = np.zeros((6, 6, 3))
    for carrier, dividends in zip(game.carriers, game.coefficients, strict=True):
        if carrier.sum() > 1:
            pairs = np.outer(carrier, carrier) & ~np.eye(6, dtype=bool)
            expected += pairs[..., None] * dividends / (carrier.sum() - 1)
    np.testing.assert_allclose(shapley_interactions(game), expected, atol=1e-12)
    two = shapley_interactions(unanimity(2, [0, 1]))
    np.testing.assert_allclose(two, [[0, 1], [1, 0]])


def test_least_core_of_known_games():
    lone = least_core(glove(1, 3))  # one left glove: it gets all, the core is a point
    np.testing.assert_allclose(lone.values, [1, 0, 0, 0], atol=1e-7)
    assert lone.info["deficit"] == pytest.approx(0.0, abs=1e-7)
    majority = least_core(weighted_majority([1, 1, 1], 2))  # the core is empty
    np.testing.assert_allclose(majority.values, 1 / 3, atol=1e-7)
    assert majority.info["deficit"] == pytest.approx(1 / 3)
    sums = least_core(TableGame(5.0 + all_coalitions(3) @ [1.0, 2.0, 4.0]))
    np.testing.assert_allclose(sums.values, [1, 2, 4], atol=1e-7)
    one = least_core(TableGame([1.0, 3.0]))
    np.testing.assert_allclose(one.values, [2.0])


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e7])
def test_least_core_follows_the_unit_of_the_utility(unit):
    values = np.random.default_rng(3).normal(size=64)
    plain, scaled = least_core(TableGame(values)), least_core(TableGame(unit * values))
    np.testing.assert_allclose(scaled.values, unit * plain.values, rtol=0, atol=1e-7 * unit)
    assert scaled.info["deficit"] == pytest.approx(unit * plain.info["deficit"], rel=1e-7)
    gain = unit * (values[-1] - values[0])
    assert scaled.values.sum() == pytest.approx(gain, rel=1e-12)
    flat = least_core(TableGame(np.full(8, unit)))
    np.testing.assert_array_equal(flat.values, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_least_core_leaves_nobody_worse_off_than_its_deficit(seed):
    rng = np.random.default_rng(seed)
    games = [TableGame(rng.normal(size=64)), tabulate(airport(rng.exponential(size=6)))]
    for game in games:
        found = least_core(game)
        worth = game.values - game.values[0]
        rows = all_coalitions(6)
        assert found.values.sum() == pytest.approx(worth[-1])
        gap = (worth - rows @ found.values)[1:-1].max()
        assert gap == pytest.approx(found.info["deficit"], abs=1e-6)
        # any other payments have a larger gap, or as large a one and more squares
        for _ in range(200):
            other = found.values + rng.normal(size=6) * 0.05
            other += (worth[-1] - other.sum()) / 6
            theirs = (worth - rows @ other)[1:-1].max()
            assert theirs >= gap - 1e-6
            if theirs <= gap + 1e-9:
                assert (other**2).sum() >= (found.values**2).sum() - 1e-6


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: shapley_interactions(TableGame([0.0, 1.0])), "1 player"),
        (lambda: least_core(airport(np.arange(1.0, 17.0))), "at most 15"),
        (lambda: least_core(TableGame(np.ones((4, 2)))), "2 outputs"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_of_many_least_cores_the_smallest_payments_are_taken():
    found = least_core(unanimity(3, [0, 1]))
    np.testing.assert_allclose(found.values, [0.5, 0.5, 0], atol=1e-7)
