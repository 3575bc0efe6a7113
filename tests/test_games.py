"""Games: one class, tables, closed forms, normalisation, processes, refusals."""

from __future__ import annotations

import warnings
from math import comb

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refusals, refused

import fedkit as fk
from fedkit.games import semivalue
from fedkit.games.exact import beta_weights, shapley_weights

CLOSED = {
    "airport": fk.airport([1.0, 3.0, 2.0, 5.0, 5.5]),
    "airport with ties": fk.airport([2.0, 0.0, 2.0, 7.0]),
    "glove": fk.glove(2, 4),
    "glove reversed": fk.glove(3, 1),
    "majority": fk.weighted_majority([4, 3, 2, 1, 0], 6),
    "dictator": fk.weighted_majority([9, 1, 1], 5),
    "quota out of reach": fk.weighted_majority([1, 1], 10**10),
    "unanimity": fk.unanimity(6, [1, 3, 4]),
    "sum": fk.random_unanimity_sum(7, 20, 3),
    "vector sum": fk.random_unanimity_sum(6, 10, 1, 3),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_agree_with_the_exact_values(name):
    game = CLOSED[name]
    np.testing.assert_allclose(game.shapley(), fk.shapley(game).values, atol=1e-12)
    assert repr(game).startswith("Example(n_players=") or not repr(game).count("\n")


def test_banzhaf_values_of_unanimity_are_halves_of_halves():
    # a member of three completes them where the two others are in: in a quarter of all coalitions
    found = fk.banzhaf(fk.unanimity(5, [1, 3, 4]))
    np.testing.assert_array_equal(found.values, [0, 0.25, 0, 0.25, 0.25])
    majority = fk.banzhaf(fk.weighted_majority([4, 3, 2, 1], 6))
    np.testing.assert_array_equal(majority.values, [5 / 8, 3 / 8, 3 / 8, 1 / 8])


def test_beta_one_one_is_shapley_and_weights_sum_to_one():
    for n in (1, 2, 7, 30):
        np.testing.assert_allclose(beta_weights(n, 1, 1), shapley_weights(n), rtol=1e-11)
        counts = np.array([float(comb(n - 1, s)) for s in range(n)])
        np.testing.assert_allclose((counts * beta_weights(n, 3.0, 0.5)).sum(), 1.0)
    # Beta(2, 1), n = 2: p_j = C(1, j-1) B(j, 4-j) / B(2, 1): 2/3 and 1/3
    np.testing.assert_allclose(beta_weights(2, 2.0, 1.0), [2 / 3, 1 / 3])


def test_leave_one_out_costs_n_plus_one():
    asked = []
    base = fk.airport([1.0, 4.0, 2.0])
    result = fk.leave_one_out(fk.Game(3, lambda rows: asked.extend(rows) or base(rows)))
    np.testing.assert_array_equal(result.values, [0.0, 2.0, 0.0])
    assert result.evaluations == len(asked) == 4
    alone = fk.leave_one_out(fk.airport([3.0]))  # without its player there is nobody
    assert (alone.values.tolist(), alone.evaluations, alone.calls) == ([3.0], 2, 1)


def test_a_function_may_write_into_the_coalitions_it_is_given():
    asked = fk.all_coalitions(3)
    fk.Game(3, lambda rows: rows.fill(True) or np.zeros(len(rows)))(asked)
    np.testing.assert_array_equal(asked, fk.all_coalitions(3))


def test_bits_of_the_index_are_players():
    rows = fk.all_coalitions(5)
    assert rows.dtype == np.bool_
    assert rows.shape == (32, 5)
    np.testing.assert_array_equal(fk.coalition_index(rows), np.arange(32))
    assert fk.coalition_index([[True, False, True]])[0] == 5
    wide = np.zeros((1, 62), dtype=bool)
    wide[0, 61] = True
    assert fk.coalition_index(wide)[0] == 2**61


def test_table_is_a_copy_and_read_only():
    # v(1)=6, v(2)=0, v(3)=12, v(12)=18, v(13)=18, v(23)=24, v(123)=36
    values = np.array([0, 6, 0, 18, 12, 18, 24, 36.0])
    game = fk.table_game(values)
    values[0] = 9
    np.testing.assert_allclose(fk.shapley(game).values, [10, 10, 16], atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        game.table[0] = 1
    assert fk.tabulate(game) is game
    np.testing.assert_allclose(semivalue(game, shapley_weights(3)), [10, 10, 16])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_utilities_that_are_not_finite_name_their_coalition(bad):
    values = np.zeros(8)
    values[5] = bad
    refused(r"coalition \[0, 2\]", fk.table_game, values)
    game = fk.Game(3, lambda rows: np.where(rows[:, 1] & ~rows[:, 0], bad, 1.0))
    refused(r"coalition \[1\]", fk.tabulate, game)
    vector = fk.Game(2, lambda rows: np.stack([rows[:, 0], rows[:, 0] * bad], axis=1))
    with pytest.raises(ValueError, match="coalition"), np.errstate(invalid="ignore"):
        fk.tabulate(vector)


def test_normalise_puts_the_ends_at_zero_and_one():
    table = fk.tabulate(fk.random_unanimity_sum(5, 9, 2)).table
    shifted = fk.table_game(table * np.sign(table[-1]) + 3.0)
    for scaled in (fk.normalise(shifted), fk.tabulate(fk.normalise(shifted))):
        np.testing.assert_allclose(scaled([[0] * 5, [1] * 5]), [0.0, 1.0], atol=1e-12)
        found = fk.shapley(scaled)
        np.testing.assert_allclose(
            found.values * found.scale, fk.shapley(shifted).values, atol=1e-12
        )
    twice = fk.normalise(fk.normalise(shifted))
    np.testing.assert_allclose(twice.scale, fk.normalise(shifted).scale)


def test_normalise_without_gain_flips_signs_only_where_it_divides():
    # outputs: gain 2, gain -4, no gain
    rows = fk.all_coalitions(2)
    game = fk.table_game(
        np.stack([1 + rows.sum(1), 5 - 2 * rows.sum(1), rows[:, 0] ^ rows[:, 1]], 1)
    )
    plain = fk.shapley(game).values
    for rule, scale in (("shift", [2, 1, 1]), ("absolute", [2, 4, 1]), ("divide", [2, -4, 1])):
        scaled = fk.normalise(game, no_gain=rule)
        np.testing.assert_array_equal(scaled.scale, scale)
        values = fk.shapley(scaled).values
        np.testing.assert_array_equal(np.sign(values), np.sign(plain) * np.sign(scale))
        np.testing.assert_allclose(values * scaled.scale, plain)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_tabulate_in_batches(batch_size):
    game = fk.random_unanimity_sum(6, 12, 4, 2)
    sizes = []
    counted = fk.Game(6, lambda rows: sizes.append(len(rows)) or game(rows))
    table = fk.tabulate(counted, batch_size=batch_size).table
    np.testing.assert_allclose(table, fk.tabulate(game).table, atol=1e-14)
    assert max(sizes) <= batch_size
    two_then_three = fk.Game(7, lambda rows: np.zeros((len(rows), 2 + rows[0].any())))
    refused("must not change", fk.tabulate, two_then_three, batch_size=batch_size)


def test_processes_give_the_same_utilities():
    pytest.importorskip("joblib")
    game = fk.random_unanimity_sum(9, 30, 1, 2)
    spread = fk.parallel(game, n_jobs=2)
    np.testing.assert_array_equal(spread(fk.all_coalitions(9)), game(fk.all_coalitions(9)))
    assert spread.at_once == fk.normalise(spread).at_once == 2


test_silent_nonsense_is_refused_in_one_line = pytest.mark.filterwarnings("error")(  # nor cast
    refusals(
        *[
            (lambda shape=shape: fk.table_game(np.zeros(shape)), r"2\*\*n")
            for shape in [(), (0,), (1,), (3,), (6, 2), (4, 2, 2)]
        ],
        (lambda: fk.airport([1.0, -1.0]), "non-negative"),
        (lambda: fk.weighted_majority([1, -1], 1), "whole numbers of at least 0"),
        (lambda: fk.weighted_majority([1, 1], 0), "quota is 0"),
        (lambda: fk.weighted_majority([True, False], 1), "weights is"),
        (lambda: fk.unanimity(3, [1e308]), "carrier is"),
        (lambda: fk.table_game(["0", "1"]), "the values are of type <U1; expected real numbers"),
        (lambda: fk.table_game([0, 1j]), "the values are of type complex128"),
        (lambda: fk.table_game([[0, 1], [2]]), "expected real numbers, rows of one length"),
        (lambda: fk.airport([1, 2])([[0, 1], [1]]), r"coalitions have shape \(2,\)"),
        (lambda: fk.airport([1, 2])([[0, 1, 1]]), r"expected \(B, 2\)"),
        (lambda: fk.airport([1, 2])([[0, 3]]), "entries other than 0 and 1"),
        (lambda: fk.coalition_index(np.zeros((1, 63), dtype=bool)), "n <= 62"),
        (lambda: fk.tabulate(fk.Game(1, lambda rows: [[1], [1, 2]])), "rows of one length"),
        (lambda: fk.tabulate(fk.Game(3, lambda rows: np.zeros(len(rows) + 1))), "of shape .9,"),
        (lambda: fk.tabulate(fk.Game(3, lambda rows: np.zeros((len(rows), 1, 1)))), "of shape .8,"),
        (lambda: fk.all_coalitions(25), r"n_players is 25"),
        (lambda: fk.shapley(fk.Game(40, lambda rows: rows.sum(axis=1))), r"n_players is 40"),
        (
            lambda: fk.beta_shapley(fk.airport([1, 2, 3]), 1e-320, 1),
            "alpha is 1e-320 and beta 1; too",
        ),
        (lambda: fk.shapley(lambda rows: rows.sum(axis=1)), r"fk.Game\(n_players"),
        (lambda: fk.shapley(np.zeros(8)), r"make one: fk.Game\(n_players"),
        (lambda: fk.Game(3, "v"), "function is 'v'"),
        (lambda: semivalue(fk.airport([1, 2]), np.ones(3)), "expected 2 finite numbers"),
    )
)


def test_tensors_with_a_gradient_are_numbers_and_masked_ones_are_none():
    weight = torch.tensor(2.0, requires_grad=True)
    game = fk.Game(3, lambda c: weight * torch.as_tensor(c.sum(axis=1)))
    np.testing.assert_allclose(fk.shapley(game).values, [2, 2, 2])
    table = torch.tensor([0.0, 1.0, 2.0, 4.0], requires_grad=True)
    np.testing.assert_allclose(fk.shapley(fk.table_game(table)).values, [1.5, 2.5])
    with pytest.raises(ValueError, match="finite"):
        fk.shapley(fk.table_game(np.ma.masked_equal([0.0, 1.0, -999.0, 4.0], -999.0)))
    images = np.ma.masked_equal([[1.0, -999.0]], -999.0)
    refused("NaN", fk.Evaluator, torch.nn.Linear(2, 2), images, [0])


def test_read_only_arrays_and_frames_are_taken_without_a_warning():
    net = torch.nn.Linear(4, 2)
    x, y = np.ones((5, 4), dtype=np.float32), np.zeros(5, dtype=np.int64)
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = fk.Evaluator(net, x, y)
    framed = fk.Evaluator(net, pd.DataFrame(x), y)
    assert torch.equal(kept.x, framed.x)


def test_recorded_games_are_whole_and_say_their_sizes():
    games = fk.games.RECORDED
    assert not set(games["choosing"]) & set(games["final"])
    for name in games["choosing"] + games["final"]:
        game = fk.games.recorded(name)
        assert game.table.shape == (2**12,)
        assert np.ptp(game.table) > 0
        assert (game.sizes is None) == ("attribution" in name)
        assert game.sizes is None or (game.sizes >= 0).all()
    refused("digits-a-accuracy", fk.games.recorded, "digits")
