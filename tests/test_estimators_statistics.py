"""What estimators estimate: z-tests and coverage over many seeds, run in lockstep.

A wrong weight, an inclusion probability of 1 - q for q, or a skipped marginal fails by tens of
standard errors.
"""

from __future__ import annotations

import numpy as np
import pytest
from manyseeds import GAME, ZERO, N, assert_calibrated, assert_unbiased, run

import fedkit as fk
from fedkit.estimators import (
    BanzhafSampling,
    ComplementarySampling,
    GTGShapley,
    MultilinearSampling,
    PermutationSampling,
    TruncatedMonteCarlo,
    estimate,
)
from fedkit.games import airport, all_coalitions, table_game, tabulate
from fedkit.games.exact import banzhaf, beta_shapley, semivalue, shapley
from fedkit.methods.fedowen import OwenSampling


def banzhaf_half(game):
    return banzhaf(game).values / 2


def of_shapley(game):
    return shapley(game).values


CASES = {
    "permutation": (PermutationSampling(), 180, of_shapley, False),
    "antithetic": (PermutationSampling(antithetic=True), 360, of_shapley, False),
    "MC-Shapley": (TruncatedMonteCarlo(0.0), 180, of_shapley, False),
    "GTG": (GTGShapley(0.0, 0.0, walks=36), None, of_shapley, True),
    "strata": (MultilinearSampling(draws=30), None, of_shapley, False),
    "strata unpaired": (
        MultilinearSampling(antithetic=False, draws=40), None, of_shapley, False,
    ),
    "gauss": (MultilinearSampling("gauss", draws=30), None, of_shapley, True),
    "gauss unpaired": (
        MultilinearSampling("gauss", antithetic=False, draws=50), None, of_shapley, True,
    ),
    "banzhaf msr": (BanzhafSampling(), 200, lambda g: banzhaf(g).values, False),
    "banzhaf marginal": (BanzhafSampling("marginal", 40), None, lambda g: banzhaf(g).values, False),
    "banzhaf as printed": (BanzhafSampling("as_printed", 40), None, banzhaf_half, False),
    "complementary": (ComplementarySampling(rounds=20), None, of_shapley, False),
    "beta": (
        PermutationSampling(beta=(4.0, 1.0)), 240,
        lambda g: beta_shapley(g, 4, 1).values, False,
    ),
    "beta late": (
        PermutationSampling(True, beta=(1.0, 2.0)), 360,
        lambda g: beta_shapley(g, 1, 2).values, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_unbiased_with_honest_standard_errors(name):
    estimator, budget, target, conservative = CASES[name]
    values, errors = run(estimator, budget)
    assert_unbiased(values, target(GAME))
    assert_calibrated(values, errors, target(GAME), conservative)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5, 7, 10])
@pytest.mark.parametrize("antithetic", [True, False])
def test_strata_are_unbiased_at_every_number(levels, antithetic):
    estimator = MultilinearSampling(levels=levels, antithetic=antithetic, draws=2)
    values, _ = run(estimator, None)
    assert_unbiased(values, shapley(GAME).values)


@pytest.mark.parametrize("budget", [4, 5, 6])
def test_walks_of_nobody_are_free_and_count(budget):
    """Half of one player's masks are empty: left out where calls are spent, values rise by 12%."""
    game = table_game([0.0, 1.0])
    values, _ = run(OwenSampling(2, eta=None), budget, game=game, repeats=2000)
    assert_unbiased(values, [0.75])


def test_a_part_of_a_draw_is_unbiased_and_its_error_conservative():
    estimator = MultilinearSampling(levels=8)  # 96 calls make a draw
    values, errors = run(estimator, 50)
    assert_unbiased(values, shapley(GAME).values)
    assert (errors**2).mean() > values.var(axis=0).mean()


@pytest.mark.parametrize(
    ("levels", "antithetic", "of", "players"),
    [(32, True, 0, 6), (8, False, 1, 5), (32, False, 0, 6)],
)
def test_walks_that_repeat_within_a_draw_make_no_error_small(levels, antithetic, of, players):
    """An order of n players has n rotations: with more levels than players, few of them differ."""
    game = tabulate(fk.random_unanimity_sum(players, 15, of))
    estimator = MultilinearSampling(levels=levels, antithetic=antithetic, draws=5)
    values, errors = run(estimator, None, game=game)
    assert (errors**2).mean() > 0.9 * values.var(axis=0, ddof=1).mean()
    assert not estimate(game, estimator).has_intervals
    assert estimate(game, MultilinearSampling(levels=levels, draws=10)).has_intervals
    # no more levels than players: no walk repeats, and each pair counts
    apart = MultilinearSampling(levels=players, antithetic=antithetic, draws=5)
    assert estimate(game, apart).has_intervals
    one = estimate(game, MultilinearSampling(levels=levels, draws=1))
    assert np.isnan(one.standard_errors).all()
    assert np.isfinite(one.values).all()


def test_too_few_gauss_nodes_are_biased_as_predicted_and_enough_are_not():
    for levels in (1, 2, 3):
        estimator = MultilinearSampling("gauss", levels=levels, draws=10)
        values, _ = run(estimator, None)
        assert_unbiased(values, semivalue(GAME, estimator.weights(N)))
    np.testing.assert_allclose(
        semivalue(GAME, MultilinearSampling("gauss", levels=3).weights(N)),
        shapley(GAME).values,
        atol=1e-12,
    )
    few = semivalue(GAME, MultilinearSampling("gauss", levels=1).weights(N))
    assert np.abs(few - shapley(GAME).values).max() > 0.02


def test_gauss_nodes_follow_one_sequence_through_all_blocks():
    """At two nodes every other mask is of the low level, whatever is drawn at a time."""
    for seed in range(5):
        asked = []
        game = fk.Game(60, lambda rows, asked=asked: asked.append(rows) or rows.sum(axis=1))
        sampler = MultilinearSampling("gauss", levels=2, antithetic=False, draws=64)
        estimate(game, sampler, seed=seed)
        shares = np.concatenate(asked)[::61].mean(axis=1)  # a mask, then its 60 neighbours
        assert len(asked) > 1
        assert np.abs(shares - 0.5).min() > 0.05  # 0.21 or 0.79
        assert 30 <= (shares > 0.5).sum() <= 34


def test_strata_beat_permutations_at_fedowens_budget():
    rows = all_coalitions(10)
    share = np.random.default_rng(1).exponential(size=10) / 5
    game = table_game(1.0 - np.exp(-(rows @ share)))  # saturating, as accuracies are
    exact = shapley(game).values
    error = [
        np.sqrt(((run(e, 40, game=game, repeats=60)[0] - exact) ** 2).mean())
        for e in (PermutationSampling(), PermutationSampling(antithetic=True),
                  MultilinearSampling())
    ]  # fmt: skip
    assert error[2] < 0.8 * error[1]
    assert error[2] < 0.4 * error[0]


@pytest.mark.parametrize(
    "estimator",
    [
        PermutationSampling(antithetic=True, walks=2),
        MultilinearSampling(levels=1, draws=1),
        MultilinearSampling(levels=3, draws=1),
        MultilinearSampling("gauss", draws=1),
    ],
    ids=repr,
)
def test_one_antithetic_pair_is_exact_where_marginals_are_linear(estimator):
    # pairwise interactions: a marginal is linear in the others, who are there once in each pair
    rng = np.random.default_rng(0)
    rows = all_coalitions(N).astype(float)
    pairs = table_game(((rows @ rng.normal(size=(N, N))) * rows).sum(axis=1))
    values = estimate(pairs, estimator, seed=3).values
    np.testing.assert_allclose(values, shapley(pairs).values, atol=1e-12)
    lone = estimate(pairs, PermutationSampling(walks=2), seed=3).values
    assert np.abs(lone - shapley(pairs).values).max() > 0.05


# --- FedOwen as printed -----------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_algorithm_1_has_the_mean_of_its_weights(levels):
    """Which are those of its partial integrals: test_fedowen."""
    estimator = OwenSampling(levels, draws=20, eta=None)
    target = semivalue(ZERO, estimator.weights(N))
    values, errors = run(estimator, None, game=ZERO)
    assert_unbiased(values, target)
    assert_calibrated(values, errors, target)


@pytest.mark.parametrize(
    ("estimator", "count", "budgets"),
    [
        (OwenSampling(2, eta=None), "calls", (12, 17)),
        (BanzhafSampling("as_printed"), "calls", (12, 17)),
        (TruncatedMonteCarlo(0.0, from_zero=True), "calls", (12, 17)),
        (GTGShapley(0.0, 0.0), "calls", (12, 17)),  # 12: v(N), two walks of a sweep
        (PermutationSampling(), "distinct", (14, 33)),
        (PermutationSampling(antithetic=True), "distinct", (14, 33)),
        (MultilinearSampling(), "distinct", (14, 33)),
        (ComplementarySampling(), "distinct", (22, 27)),
    ],
    ids=repr,
)
def test_a_budget_that_cuts_walks_keeps_the_mean(estimator, count, budgets):
    """Walks of random cost and few of them: keeping a cut walk's credits would be seen."""
    target = (
        of_shapley(ZERO) if estimator.weights(N) is None else semivalue(ZERO, estimator.weights(N))
    )
    for budget in budgets:
        values, _ = run(estimator, budget, count, game=ZERO, repeats=400)
        assert_unbiased(values, target)


def late_burden():
    """Additive: +0.6, +0.6, -0.2.  Once both helpers are in, v = 1.2 exceeds v(N) = 1."""
    return table_game(all_coalitions(3) @ np.array([0.6, 0.6, -0.2]))


@pytest.mark.parametrize(
    "estimator",
    [
        OwenSampling(1, draws=30, eta=0.1),
        TruncatedMonteCarlo(0.25, walks=30),
        GTGShapley(0.25, 0.0, walks=30),
        TruncatedMonteCarlo(0.25, 30, from_zero=True),
    ],
    ids=repr,
)
def test_truncation_spares_the_late_player_a_loss(estimator):
    # the burden comes last in a third of the walks, and is then not looked at
    values, _ = run(estimator, None, game=late_burden(), repeats=120)
    assert_unbiased(values[:, 2], -0.2 * 2 / 3)
    np.testing.assert_allclose(values[:, :2], 0.6, atol=1e-12)


def test_truncation_saves_evaluations_that_are_spent_again():
    game = tabulate(airport(np.array([1.0, 1.1, 0.9, 0.95, 1.05]) / 1.1))
    for estimator in (OwenSampling(1, eta=0.2), TruncatedMonteCarlo(0.2)):
        kept = estimate(game, estimator, 50, count="calls")
        walks = np.sum(kept.info["walks"])
        assert walks > 20  # whole walks would be 10
        assert kept.calls == 50


def test_gtg_algorithm_5_credits_the_empty_coalition_to_whoever_is_first():
    estimator = TruncatedMonteCarlo(0.0, 20, from_zero=True)
    values, _ = run(estimator, None)
    assert_unbiased(values, shapley(GAME).values + GAME.table[0] / N)


def test_gtg_stops_by_its_rule_and_cap():
    small = estimate(GAME, GTGShapley())
    assert 30 < small.info["walks"] <= GTGShapley().cap(N) == 51
    easy = estimate(airport(np.linspace(1.0, 2.0, 10)), GTGShapley())
    assert easy.info["converged"]
    assert easy.info["walks"] % 10 == 0  # judged between sweeps
    never = estimate(GAME, GTGShapley(convergence=0.0)).info
    assert (never["walks"], never["converged"]) == (51, False)
    flat = estimate(table_game(np.full(8, 0.7)), GTGShapley())
    assert flat.evaluations == 2
    np.testing.assert_array_equal(flat.values, np.zeros(3))
    back = table_game([0.5, 0.9, 0.4, 0.5])  # a round that gains exactly nothing
    nothing = estimate(back, GTGShapley(0.0, 0.0))
    assert (nothing.values.tolist(), nothing.info["walks"]) == ([0, 0], 0)
    little = table_game([0.0, 1.0, 0.5, 0.15])  # the round gains 0.15
    for between, values in ((0.16, np.zeros(2)), (0.14, shapley(little).values)):
        found = estimate(little, GTGShapley(0.0, between)).values
        np.testing.assert_allclose(found, values, rtol=1e-12)


def test_gtg_compares_the_last_walk_with_each_of_the_ten_before():
    game, seed = fk.random_unanimity_sum(6, 12, 3), 2
    means = {
        k: estimate(game, GTGShapley(0.0, 0.0, walks=k), seed=seed).values for k in range(26, 43)
    }
    worst = {
        k: max(np.mean(np.abs(means[k - b] / means[k] - 1)) for b in range(1, 11)) for k in (36, 42)
    }
    between = (worst[36] + worst[42]) / 2
    assert worst[42] < 0.9 * between < 0.9 * worst[36]
    assert estimate(game, GTGShapley(0.0, 0.0, between), seed=seed).info["walks"] == 42
    assert estimate(game, GTGShapley(0.0, 0.0, 1.1 * worst[36]), seed=seed).info["walks"] == 36


def test_gtg_sweeps_let_each_player_lead_once():
    first = []

    def squares(rows):
        first.extend(np.flatnonzero(row)[0] for row in rows if row.sum() == 1)
        return rows.sum(axis=1) ** 2.0

    result = estimate(fk.Game(5, squares), GTGShapley(0.0, 0.0, walks=5))
    assert sorted(first) == [0, 1, 2, 3, 4]
    assert result.info["walks"] == 5


def test_more_budget_takes_no_interval_away_and_a_stop_fires() -> None:
    game = fk.Game(12, lambda c: 1 - np.exp(-(c @ np.linspace(1, 12, 12)) / 20))
    budgets = range(100, 1500, 100)  # ten pairs, then one draw to ten of them
    found = [fk.estimate(game, fk.MultilinearSampling(), budget) for budget in budgets]
    given = [valuation.has_intervals for valuation in found]
    assert not given[0]
    assert given.index(True) <= 3
    assert all(given[given.index(True) :])
    enough = float(found[given.index(True)].standard_errors.max())
    stopped = fk.estimate(game, fk.MultilinearSampling(), 1500, stop=fk.precise(enough))
    assert stopped.evaluations < 500


def test_who_varies_more_than_all_others_has_the_larger_error():
    """Two players matter together alone: the calm of the others is not to shrink their errors."""
    rows = all_coalitions(10)
    game = table_game((rows[:, 0] != rows[:, 1]).astype(float))
    runs = fk.estimate_many(game, PermutationSampling(walks=5), None, range(400), count="calls")
    pair = np.array([run.values[:2] for run in runs])
    errors = np.array([run.standard_errors[:2] for run in runs])
    errors = np.nan_to_num(errors)  # five walks that are all alike have none
    assert np.sqrt((errors**2).mean()) > 0.9 * pair.std(axis=0, ddof=1).mean()  # it was 0.7


# --- complementary contributions ------------------------------------------------------------


def noise(n: int, seed: int = 0) -> fk.Game:
    return table_game(np.random.default_rng(seed).normal(size=2**n))


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
    game = fk.Game(7, lambda rows: asked.append(rows.copy()) or rows.sum(axis=1) ** 2.0)
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
    game = fk.Game(n, lambda rows: seen.append(rows.copy()) or rows.sum(axis=1) * 1.0)
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
        gap -= game.table[-1] - game.table[0]
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
