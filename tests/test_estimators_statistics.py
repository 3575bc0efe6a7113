"""What estimators estimate: z-tests and coverage over many seeds, run in lockstep.

A wrong weight, an inclusion probability of 1 - q for q, or a skipped marginal fails by tens of
standard errors.
"""

from __future__ import annotations

import numpy as np
import pytest
from manyseeds import GAME, ZERO, N, assert_calibrated, assert_unbiased, run

import fedkit as fk
from fedkit.games.exact import semivalue


def of_banzhaf(game):
    return fk.banzhaf(game).values


def banzhaf_half(game):
    return of_banzhaf(game) / 2


def of_shapley(game):
    return fk.shapley(game).values


CASES = {
    "permutation": (fk.PermutationSampling(), 180, of_shapley, False),
    "antithetic": (fk.PermutationSampling(antithetic=True), 360, of_shapley, False),
    "MC-Shapley": (fk.TruncatedMonteCarlo(0.0), 180, of_shapley, False),
    "GTG": (fk.GTGShapley(0.0, 0.0, walks=36), None, of_shapley, True),
    "strata": (fk.MultilinearSampling(draws=30), None, of_shapley, False),
    "strata unpaired": (
        fk.MultilinearSampling(antithetic=False, draws=40), None, of_shapley, False,
    ),
    "gauss": (fk.MultilinearSampling("gauss", draws=30), None, of_shapley, True),
    "gauss unpaired": (
        fk.MultilinearSampling("gauss", antithetic=False, draws=50), None, of_shapley, True,
    ),
    "banzhaf msr": (fk.BanzhafSampling(), 200, of_banzhaf, False),
    "banzhaf marginal": (fk.BanzhafSampling("marginal", 40), None, of_banzhaf, False),
    "banzhaf as printed": (fk.BanzhafSampling("as_printed", 40), None, banzhaf_half, False),
    "complementary": (fk.ComplementarySampling(rounds=20), None, of_shapley, False),
    "beta": (
        fk.PermutationSampling(beta=(4.0, 1.0)), 240,
        lambda g: fk.beta_shapley(g, 4, 1).values, False,
    ),
    "beta late": (
        fk.PermutationSampling(True, beta=(1.0, 2.0)), 360,
        lambda g: fk.beta_shapley(g, 1, 2).values, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_unbiased_with_honest_standard_errors(name):
    estimator, budget, target, conservative = CASES[name]
    values, errors = run(estimator, budget)
    assert_unbiased(values, target(GAME))
    assert_calibrated(values, errors, target(GAME), conservative)


@pytest.mark.parametrize(
    ("levels", "antithetic", "of", "players"),
    [(32, True, 0, 6), (8, False, 1, 5), (32, False, 0, 6)],
)
def test_walks_that_repeat_within_a_draw_make_no_error_small(levels, antithetic, of, players):
    """An order of n players has n rotations: with more levels than players, few of them differ."""
    game = fk.tabulate(fk.random_unanimity_sum(players, 15, of))
    estimator = fk.MultilinearSampling(levels=levels, antithetic=antithetic, draws=5)
    values, errors = run(estimator, None, game=game)
    assert (errors**2).mean() > 0.9 * values.var(axis=0, ddof=1).mean()
    assert not fk.estimate(game, estimator).has_intervals
    assert fk.estimate(game, fk.MultilinearSampling(levels=levels, draws=10)).has_intervals
    # no more levels than players: no walk repeats, and each pair counts
    apart = fk.MultilinearSampling(levels=players, antithetic=antithetic, draws=5)
    assert fk.estimate(game, apart).has_intervals
    one = fk.estimate(game, fk.MultilinearSampling(levels=levels, draws=1))
    assert np.isnan(one.standard_errors).all()
    assert np.isfinite(one.values).all()


# --- FedOwen as printed -----------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_algorithm_1_has_the_mean_of_its_weights(levels):
    """Which are those of its partial integrals: test_fedowen."""
    estimator = fk.OwenSampling(levels, draws=20, eta=None)
    target = semivalue(ZERO, estimator.weights(N))
    values, errors = run(estimator, None, game=ZERO)
    assert_unbiased(values, target)
    assert_calibrated(values, errors, target)


@pytest.mark.parametrize(
    ("estimator", "count", "budgets"),
    [
        (fk.OwenSampling(2, eta=None), "calls", (12, 17)),
        (fk.BanzhafSampling("as_printed"), "calls", (12, 17)),
        (fk.TruncatedMonteCarlo(0.0, from_zero=True), "calls", (12, 17)),
        (fk.GTGShapley(0.0, 0.0), "calls", (12, 17)),  # 12: v(N), two walks of a sweep
        (fk.PermutationSampling(), "distinct", (14, 33)),
        (fk.PermutationSampling(antithetic=True), "distinct", (14, 33)),
        (fk.MultilinearSampling(), "distinct", (14, 33)),
        (fk.ComplementarySampling(), "distinct", (22, 27)),
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


def test_gtg_stops_by_its_rule_and_cap():
    small = fk.estimate(GAME, fk.GTGShapley())
    assert 30 < small.info["walks"] <= fk.GTGShapley().cap(N) == 51
    easy = fk.estimate(fk.airport(np.linspace(1.0, 2.0, 10)), fk.GTGShapley())
    assert easy.info["converged"]
    assert easy.info["walks"] % 10 == 0  # judged between sweeps
    never = fk.estimate(GAME, fk.GTGShapley(convergence=0.0)).info
    assert (never["walks"], never["converged"]) == (51, False)
    flat = fk.estimate(fk.table_game(np.full(8, 0.7)), fk.GTGShapley())
    assert flat.evaluations == 2
    np.testing.assert_array_equal(flat.values, np.zeros(3))
    back = fk.table_game([0.5, 0.9, 0.4, 0.5])  # a round that gains exactly nothing
    nothing = fk.estimate(back, fk.GTGShapley(0.0, 0.0))
    assert (nothing.values.tolist(), nothing.info["walks"]) == ([0, 0], 0)
    little = fk.table_game([0.0, 1.0, 0.5, 0.15])  # the round gains 0.15
    for between, values in ((0.16, np.zeros(2)), (0.14, fk.shapley(little).values)):
        found = fk.estimate(little, fk.GTGShapley(0.0, between)).values
        np.testing.assert_allclose(found, values, rtol=1e-12)


def test_gtg_sweeps_let_each_player_lead_once():
    first = []

    def squares(rows):
        first.extend(np.flatnonzero(row)[0] for row in rows if row.sum() == 1)
        return rows.sum(axis=1) ** 2.0

    result = fk.estimate(fk.Game(5, squares), fk.GTGShapley(0.0, 0.0, walks=5))
    assert sorted(first) == [0, 1, 2, 3, 4]
    assert result.info["walks"] == 5


# --- complementary contributions ------------------------------------------------------------


def noise(n: int, seed: int = 0) -> fk.Game:
    return fk.table_game(np.random.default_rng(seed).normal(size=2**n))


def test_both_sides_of_a_pair_are_asked_for_together_and_paid_once():
    asked = []
    game = fk.Game(7, lambda rows: asked.append(rows.copy()) or rows.sum(axis=1) ** 2.0)
    found = fk.estimate(game, fk.ComplementarySampling(rounds=2))
    rows = np.concatenate(asked)
    sides = {tuple(row) for row in rows.astype(int).tolist()}
    assert all(tuple(1 - x for x in row) in sides for row in sides)
    assert found.evaluations == len(sides) == len(rows)
    # two pairs of class 0, seven of class 1; four and three per round of classes 2 and 3
    assert found.calls == 2 * (1 + 7 + 2 * (4 + 3)) - 1
    assert found.evaluations <= found.calls + 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_up_to_three_players_one_round_is_exact(n):
    game = noise(n)
    found = fk.estimate(game, fk.ComplementarySampling(rounds=9))
    np.testing.assert_allclose(found.values, fk.shapley(game).values, atol=1e-12)
    np.testing.assert_array_equal(found.standard_errors, 0)
    assert found.has_intervals  # nothing is random
    assert (found.evaluations, found.info["rounds"]) == (2**n, 1)


@pytest.mark.parametrize("budget", [12, 15])
def test_two_rounds_that_agree_are_no_interval(budget):
    game = fk.airport([1.0, 4.0, 9.0, 16.0])
    found = fk.estimate_many(game, fk.ComplementarySampling(), budget=budget, seeds=range(20))
    assert not any(v.has_intervals for v in found if v.info["rounds"] < 10)
    told = [
        fk.estimate(noise(5), fk.ComplementarySampling(rounds=k)).has_intervals for k in (9, 10)
    ]
    assert told == [False, True]
    stopped = fk.estimate(game, fk.ComplementarySampling(), 15, seed=1, stop=fk.precise(0.05))
    assert stopped.standard_errors.max() > 0 or not stopped.has_intervals
    three = fk.estimate(fk.airport([1.0, 4.0, 9.0]), fk.ComplementarySampling(), 20, seed=0)
    np.testing.assert_allclose(three.values, fk.airport([1.0, 4.0, 9.0]).shapley(), atol=1e-12)
