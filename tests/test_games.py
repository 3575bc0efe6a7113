"""Games: contract, closed forms, memo, normalisation, refusals."""

from __future__ import annotations

import warnings
from math import comb

import numpy as np
import pandas as pd
import pytest
import torch

import fedkit as fk
from fedkit.estimators import (
    banzhaf,
    beta_shapley,
    beta_weights,
    leave_one_out,
    semivalue,
    shapley,
    shapley_weights,
)
from fedkit.games import (
    FunctionGame,
    Game,
    MemoGame,
    TableGame,
    airport,
    all_coalitions,
    coalition_index,
    glove,
    normalise,
    random_unanimity_sum,
    tabulate,
    unanimity,
    weighted_majority,
)

CLOSED = {
    "airport": airport([1.0, 3.0, 2.0, 5.0, 5.5]),
    "airport with ties": airport([2.0, 0.0, 2.0, 7.0]),
    "glove": glove(2, 4),
    "glove reversed": glove(3, 1),
    "majority": weighted_majority([4, 3, 2, 1, 0], 6),
    "dictator": weighted_majority([9, 1, 1], 5),
    "unanimity": unanimity(6, [1, 3, 4]),
    "sum": random_unanimity_sum(7, 20, 3),
    "vector sum": random_unanimity_sum(6, 10, 1, 3),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_agree_with_the_exact_values(name):
    game = CLOSED[name]
    assert isinstance(game, Game)
    np.testing.assert_allclose(game.shapley(), shapley(game).values, atol=1e-12)
    np.testing.assert_allclose(game.banzhaf(), banzhaf(game).values, atol=1e-12)


def test_beta_one_one_is_shapley_and_weights_sum_to_one():
    for n in (1, 2, 7, 30):
        np.testing.assert_allclose(beta_weights(n, 1, 1), shapley_weights(n), rtol=1e-11)
        counts = np.array([float(comb(n - 1, s)) for s in range(n)])
        np.testing.assert_allclose((counts * beta_weights(n, 3.0, 0.5)).sum(), 1.0)
    # Beta(2, 1), n = 2: p_j = C(1, j-1) B(j, 4-j) / B(2, 1): 2/3 and 1/3
    np.testing.assert_allclose(beta_weights(2, 2.0, 1.0), [2 / 3, 1 / 3])


def test_weights_of_any_game_and_of_a_quota_out_of_reach():
    game = FunctionGame(3, lambda rows: rows @ [1.0, 2.0, 4.0])
    np.testing.assert_allclose(semivalue(game, shapley_weights(3)), [1.0, 2.0, 4.0])
    never = weighted_majority([1, 1], 10**10)
    np.testing.assert_array_equal(never.shapley(), [0.0, 0.0])
    np.testing.assert_array_equal(never.banzhaf(), [0.0, 0.0])


def test_what_wraps_a_game_knows_its_sizes():
    class Sized(TableGame):
        sizes = (1.0, 2.0)

    game = Sized([0.0, 1.0, 2.0, 4.0])
    assert MemoGame(game).sizes == normalise(MemoGame(game)).sizes == game.sizes
    assert MemoGame(airport([1.0, 2.0])).sizes is None


def test_leave_one_out_costs_n_plus_one():
    game = MemoGame(airport([1.0, 4.0, 2.0]))
    result = leave_one_out(game)
    np.testing.assert_array_equal(result.values, [0.0, 2.0, 0.0])
    assert result.evaluations == game.evaluations == 4
    alone = leave_one_out(airport([3.0]))  # without its player there is nobody
    assert (alone.values.tolist(), alone.evaluations, alone.calls) == ([3.0], 2, 1)


def test_a_function_may_write_into_the_coalitions_it_is_given():
    asked = all_coalitions(3)
    FunctionGame(3, lambda rows: rows.fill(True) or np.zeros(len(rows))).value(asked)
    np.testing.assert_array_equal(asked, all_coalitions(3))


def test_bits_of_the_index_are_players():
    rows = all_coalitions(5)
    assert rows.dtype == np.bool_
    assert rows.shape == (32, 5)
    np.testing.assert_array_equal(coalition_index(rows), np.arange(32))
    assert coalition_index([[True, False, True]])[0] == 5
    wide = np.zeros((1, 62), dtype=bool)
    wide[0, 61] = True
    assert coalition_index(wide)[0] == 2**61
    with pytest.raises(ValueError, match="n <= 62"):
        coalition_index(np.zeros((1, 63), dtype=bool))


def test_table_is_a_copy_and_read_only():
    # v(1)=6, v(2)=0, v(3)=12, v(12)=18, v(13)=18, v(23)=24, v(123)=36
    values = np.array([0, 6, 0, 18, 12, 18, 24, 36.0])
    table = TableGame(values)
    values[0] = 9
    np.testing.assert_allclose(shapley(table).values, [10, 10, 16], atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = 1


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (6, 2), (4, 2, 2)])
def test_bad_tables_are_refused(shape):
    with pytest.raises(ValueError, match="2\\*\\*n"):
        TableGame(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_utilities_that_are_not_finite_name_their_coalition(bad):
    values = np.zeros(8)
    values[5] = bad
    with pytest.raises(ValueError, match=r"coalition \[0, 2\]"):
        TableGame(values)
    game = FunctionGame(3, lambda rows: np.where(rows[:, 1] & ~rows[:, 0], bad, 1.0))
    with pytest.raises(ValueError, match=r"coalition \[1\]"):
        tabulate(game)
    with pytest.raises(ValueError, match=r"coalition \[1\]"):
        MemoGame(game).value(all_coalitions(3))
    vector = FunctionGame(2, lambda rows: np.stack([rows[:, 0], rows[:, 0] * bad], axis=1))
    with pytest.raises(ValueError, match="coalition"), np.errstate(invalid="ignore"):
        tabulate(vector)


@pytest.mark.parametrize("n", [3, 21, 63, 70, 130])
def test_memo_evaluates_each_coalition_once(n):
    asked = []
    base = random_unanimity_sum(n, 30, 1)
    game = MemoGame(FunctionGame(n, lambda rows: asked.append(len(rows)) or base.value(rows)))
    rng = np.random.default_rng(0)
    rows = rng.random((40, n)) < rng.random((40, 1))
    rows[:3], rows[1], rows[2, -1] = False, True, True  # the last bit of a key counts
    distinct = len(np.unique(rows, axis=0))
    np.testing.assert_array_equal(
        game.value(np.concatenate([rows, rows])), base.value(np.concatenate([rows, rows]))
    )
    np.testing.assert_array_equal(game.value(rows[::-1]), base.value(rows[::-1]))
    assert game.evaluations == distinct == sum(asked)
    assert game.calls == 120
    more = rng.random((300, n)) < 0.5  # grows beyond its first allocation
    np.testing.assert_array_equal(game.value(more), base.value(more))
    assert game.evaluations == len(np.unique(np.concatenate([rows, more]), axis=0))


@pytest.mark.parametrize("n", [3, 21, 63, 130])
@pytest.mark.parametrize("outputs", [None, 2])
def test_what_a_memo_saved_is_not_evaluated_again(n, outputs, tmp_path):
    base = random_unanimity_sum(n, 30, 1, outputs)
    rows = np.random.default_rng(0).random((300, n)) < 0.5
    rows[0], rows[1] = False, True
    memo = MemoGame(base)
    memo.value(rows)
    memo.save(tmp_path / "new" / "utilities.npz")
    asked = []
    again = FunctionGame(n, lambda rows: asked.append(rows) or base.value(rows))
    found = MemoGame.load(tmp_path / "new" / "utilities.npz", again, batch_size=64)
    assert (found.evaluations, found.calls) == (memo.evaluations, 0)
    np.testing.assert_array_equal(found.value(rows[::-1]), memo.value(rows[::-1]))
    assert not asked
    more = ~rows[2:] if n > 3 else rows  # a memory that was loaded goes on learning
    np.testing.assert_array_equal(found.value(more), base.value(more))
    assert found.evaluations == memo.evaluations + sum(map(len, asked))


def test_a_memo_of_nothing_is_saved_and_another_file_is_refused(tmp_path):
    file = tmp_path / "utilities.npz"
    MemoGame(airport([1, 2])).save(file)
    assert MemoGame.load(file, airport([1, 2])).value([[1, 1]]).tolist() == [2]
    with pytest.raises(ValueError, match=r"utilities.npz is of a game of 2 players and game has 3"):
        MemoGame.load(file, airport([1, 2, 3]))
    np.savez(file, keys=np.zeros(1))
    with pytest.raises(ValueError, match=r"utilities.npz is no saved MemoGame"):
        MemoGame.load(file, airport([1, 2]))
    file.write_bytes(b"none")
    with pytest.raises(ValueError, match=r"utilities.npz is no saved MemoGame"):
        MemoGame.load(file, airport([1, 2]))


def test_a_memo_keeps_what_was_scored_before_a_failure():
    rows, seen = np.eye(6, dtype=bool), []

    def score(coalitions):
        for row in coalitions:
            if len(seen) == 4:
                raise RuntimeError("the fifth")
            seen.append(row)
        return coalitions.sum(axis=1)

    for batch_size, kept in ((None, 0), (1, 4), (3, 3)):
        seen.clear()
        memo = MemoGame(FunctionGame(6, score), batch_size)
        with pytest.raises(RuntimeError, match="the fifth"):
            memo.value(rows)
        assert memo.evaluations == kept
    assert MemoGame(airport([1, 2]), 1).value(rows[:0, :2]).tolist() == []


def test_memo_refuses_a_changing_number_of_outputs():
    game = MemoGame(FunctionGame(3, lambda rows: np.zeros((len(rows), len(rows)))))
    game.value(np.eye(3, dtype=bool))
    with pytest.raises(ValueError, match="must not change"):
        game.value(all_coalitions(3))


def test_normalise_puts_the_ends_at_zero_and_one():
    table = tabulate(random_unanimity_sum(5, 9, 2))
    shifted = TableGame(table.values * np.sign(table.values[-1]) + 3.0)
    scaled = normalise(shifted)
    ends = scaled.value(np.array([[False] * 5, [True] * 5]))
    np.testing.assert_allclose(ends, [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(
        scaled.restore(shapley(scaled).values), shapley(shifted).values, atol=1e-12
    )


def test_normalise_without_gain_flips_signs_only_where_it_divides():
    # outputs: gain 2, gain -4, no gain
    rows = all_coalitions(2)
    game = TableGame(np.stack([1 + rows.sum(1), 5 - 2 * rows.sum(1), rows[:, 0] ^ rows[:, 1]], 1))
    plain = shapley(game).values
    for rule, scale in (("shift", [2, 1, 1]), ("absolute", [2, 4, 1]), ("divide", [2, -4, 1])):
        scaled = normalise(game, no_gain=rule)
        np.testing.assert_array_equal(scaled.scale, scale)
        values = shapley(scaled).values
        np.testing.assert_array_equal(np.sign(values), np.sign(plain) * np.sign(scale))
        np.testing.assert_allclose(scaled.restore(values), plain)
    with pytest.raises(ValueError, match="no_gain='shift'"):
        normalise(game, no_gain="raise")


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_tabulate_in_batches(batch_size):
    game = random_unanimity_sum(6, 12, 4, 2)
    sizes = []
    counted = FunctionGame(6, lambda rows: sizes.append(len(rows)) or game.value(rows))
    table = tabulate(counted, batch_size=batch_size)
    np.testing.assert_allclose(table.values, tabulate(game).values, atol=1e-14)
    assert max(sizes) <= batch_size
    two_then_three = FunctionGame(7, lambda rows: np.zeros((len(rows), 2 + rows[0].any())))
    with pytest.raises(ValueError, match="must not change"):
        tabulate(two_then_three, batch_size=batch_size)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: airport([1.0, -1.0]), "non-negative"),
        (lambda: weighted_majority([1, -1], 1), "non-negative integers"),
        (lambda: weighted_majority([1, 1], 0), "quota is 0"),
        (lambda: weighted_majority([True, False], 1), "weights is"),
        (lambda: weighted_majority([1e308, 1e308], 1), "sum below 2\\*\\*53"),
        (lambda: weighted_majority([2**50, 2**50, 1], 2**50).shapley(), "the weights sum to"),
        (lambda: weighted_majority([1] + [0] * 1099, 1).banzhaf(), "has 1100 players"),
        (lambda: glove(2, 2000).shapley(), "has 2002 players"),
        (lambda: glove(2**70, 1), "left is"),
        (lambda: unanimity(3, [1e308]), "carrier is"),
        (lambda: unanimity(2**70, [0]), "n_players is"),
        (lambda: random_unanimity_sum(2**70, 2, 0), "n_players is"),
        (lambda: random_unanimity_sum(3, 2**70, 0), "terms is"),
        (lambda: random_unanimity_sum(3, 2, 0, 2**70), "n_outputs is"),
        (lambda: TableGame(["0", "1"]), "the values are of type <U1; expected real numbers"),
        (lambda: TableGame([0, 1j]), "the values are of type complex128"),
        (lambda: TableGame([[0, 1], [2]]), "the values are of unequal lengths"),
        (lambda: airport([1, 2]).value([[0, 1], [1]]), "coalitions are of unequal lengths"),
        (lambda: coalition_index([[0, 1], [1]]), "coalitions are of unequal lengths"),
        (lambda: tabulate(FunctionGame(1, lambda rows: [[1], [1, 2]])), "utilities of unequal"),
        (lambda: tabulate(FunctionGame(3, lambda rows: np.zeros(len(rows) + 1))), "of shape .9,"),
        (
            lambda: tabulate(FunctionGame(3, lambda rows: np.zeros((len(rows), 1, 1)))),
            "of shape .8,",
        ),
        (lambda: all_coalitions(25), r"2\*\*25 coalitions"),
        (lambda: shapley(FunctionGame(40, lambda rows: rows.sum(axis=1))), r"2\*\*40 coalitions"),
        (lambda: beta_shapley(airport([1, 2, 3]), 1e-320, 1), "alpha is 1e-320 and beta 1; too"),
    ],
)
@pytest.mark.filterwarnings("error")  # no cast of what it cannot be
def test_silent_nonsense_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_weights_and_quotas_beyond_what_is_counted_are_games_all_the_same():
    game = weighted_majority([2**50, 2**50 + 1, 3], 2**50 + 2)  # any two of the three win
    np.testing.assert_allclose(fk.shapley(game).values, [1 / 3] * 3)
    np.testing.assert_array_equal(weighted_majority([1, 2], 10**400).shapley(), [0, 0])


def test_tensors_with_a_gradient_are_numbers_and_masked_ones_are_none():
    weight = torch.tensor(2.0, requires_grad=True)
    game = fk.FunctionGame(3, lambda c: weight * torch.as_tensor(c.sum(axis=1)))
    np.testing.assert_allclose(fk.shapley(game).values, [2, 2, 2])
    table = torch.tensor([0.0, 1.0, 2.0, 4.0], requires_grad=True)
    np.testing.assert_allclose(fk.shapley(fk.TableGame(table)).values, [1.5, 2.5])
    with pytest.raises(ValueError, match="finite"):
        fk.shapley(fk.TableGame(np.ma.masked_equal([0.0, 1.0, -999.0, 4.0], -999.0)))
    images = np.ma.masked_equal([[1.0, -999.0]], -999.0)
    with pytest.raises(ValueError, match="NaN"):
        fk.Evaluator(torch.nn.Linear(2, 2), images, [0])


def test_read_only_arrays_and_frames_are_taken_without_a_warning():
    net = torch.nn.Linear(4, 2)
    x, y = np.ones((5, 4), dtype=np.float32), np.zeros(5, dtype=np.int64)
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = fk.Evaluator(net, x, y)
    framed = fk.Evaluator(net, pd.DataFrame(x), y)
    assert torch.equal(kept.x, framed.x)
