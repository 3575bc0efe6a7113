"""Every point that the chapter on FedOwen's theory proves, on exact games and without training."""

import math
from itertools import permutations

import numpy as np
import pytest

from fedkit.estimators import (
    BanzhafSampling,
    GTGShapley,
    banzhaf,
    beta_shapley,
    estimate_many,
    leave_one_out,
    semivalue,
    shapley,
)
from fedkit.games.game import TableGame, all_coalitions, normalise
from fedkit.methods.fedowen import OwenSampling
from fedkit.papers.fedowen.errata import level_weights, walk_mean

HALVES = TableGame([0.0, 0.4, 0.0, 0.7, 0.0, 0.4, 0.9, 1.0])


def random_game(n, seed, *, monotone=False):
    table = np.random.default_rng(seed).random(2**n)
    table[0] = 0.0
    if monotone:
        for i in range(1, 2**n):
            table[i] = max([table[i], *(table[i ^ (1 << j)] for j in range(n) if i >> j & 1)])
    else:
        table[-1] = 1.3
    return TableGame(table / table[-1])


def slope(game, q):
    n = game.n_players
    return semivalue(game, np.array([q**s * (1 - q) ** (n - 1 - s) for s in range(n)]))


def integral(function, low, high):
    x, w = np.polynomial.legendre.leggauss(12)
    points = low + (high - low) * (x + 1) / 2
    return sum(b * function(t) for t, b in zip(points, w * (high - low) / 2, strict=True))


def endpoint_weights(n, levels):
    grid = np.arange(1, levels + 1) / levels
    return np.mean([[q**s * (1 - q) ** (n - 1 - s) for s in range(n)] for q in grid], axis=0)


# the mean of a walk


@pytest.mark.parametrize("level", [0.0, 0.25, 0.6, 1.0])
def test_walk_mean_is_the_integral_up_to_its_level(level):
    game = random_game(5, 1)
    mean, evaluations = walk_mean(game, level)
    np.testing.assert_allclose(mean, integral(lambda s: slope(game, s), 0, level), atol=1e-12)
    assert evaluations == pytest.approx(5 * level)


def test_walk_mean_worked_by_hand():
    mean, evaluations = walk_mean(HALVES, 0.5)
    np.testing.assert_allclose(mean, [0.2125, 0.125, 0.0875])
    assert evaluations == pytest.approx(1.5)


def test_a_walk_at_level_q_does_not_estimate_the_slope_at_q():
    assert np.abs(walk_mean(HALVES, 0.5)[0] - slope(HALVES, 0.5)).max() > 0.1


@pytest.mark.parametrize("levels", [1, 2, 4, 16])
def test_level_weights_average_the_walks_and_agree_with_the_estimator(levels):
    game = random_game(4, 2)
    expected = np.mean([walk_mean(game, i / levels)[0] for i in range(1, levels + 1)], axis=0)
    weights = level_weights(4, levels)
    np.testing.assert_allclose(semivalue(game, weights), expected, atol=1e-12)
    np.testing.assert_allclose(OwenSampling(levels=levels, eta=None).weights(4), weights)


@pytest.mark.parametrize("levels", [1, 2, 4, 16])
def test_total_is_the_mean_of_the_extension_on_the_diagonal(levels):
    game = random_game(5, 3)
    rows = all_coalitions(5)

    def diagonal(q):
        return float(game.value(rows) @ np.prod(np.where(rows, q, 1 - q), axis=1))

    total = semivalue(game, level_weights(5, levels)).sum()
    assert total == pytest.approx(np.mean([diagonal(i / levels) for i in range(1, levels + 1)]))


def test_limit_total_is_the_mean_over_sizes():
    game = random_game(5, 4)
    rows = all_coalitions(5)
    by_size = [game.value(rows[rows.sum(axis=1) == k]).mean() for k in range(6)]
    total = semivalue(game, level_weights(5, math.inf)).sum()
    assert total == pytest.approx(np.mean(by_size))


def test_one_level_is_shapley_and_the_limit_half_a_beta_shapley():
    game = random_game(6, 5)
    np.testing.assert_allclose(semivalue(game, level_weights(6, 1)), shapley(game).values)
    limit = semivalue(game, level_weights(6, math.inf))
    np.testing.assert_allclose(limit, beta_shapley(game, 2, 1).values / 2)
    many = semivalue(game, level_weights(6, 4096))
    np.testing.assert_allclose(many, limit, atol=1e-3)


def test_weight_by_size_falls_in_a_straight_line():
    n = 9
    mass = [math.comb(n - 1, s) * w for s, w in enumerate(level_weights(n, math.inf))]
    np.testing.assert_allclose(mass, (n - np.arange(n)) / (n * (n + 1)))


@pytest.mark.parametrize("levels", [1, 2, 3, 7])
def test_additive_games_shrink_by_a_known_factor(levels):
    amounts = np.array([0.1, 0.2, 0.7])
    game = TableGame(all_coalitions(3) @ amounts)
    shrunk = semivalue(game, level_weights(3, levels))
    np.testing.assert_allclose(shrunk, amounts * (levels + 1) / (2 * levels))


def test_definition_as_printed_has_the_limit_of_the_algorithm():
    game = random_game(4, 6)
    rows = all_coalitions(4)

    def literal(q):
        chance = np.prod(np.where(rows, q, 1 - q), axis=1)
        gain = [game.value(rows | (np.arange(4) == j)) - game.value(rows) for j in range(4)]
        return np.array(gain) @ chance

    expected = semivalue(game, level_weights(4, math.inf))
    np.testing.assert_allclose(integral(literal, 0, 1), expected, atol=1e-12)
    assert not np.allclose(expected, shapley(game).values, atol=0.02)


def test_sampling_has_the_predicted_mean_and_not_shapleys():
    runs = estimate_many(HALVES, OwenSampling(levels=2, draws=200, eta=None), None, range(60))
    values = np.array([run.values for run in runs])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    z = (values.mean(axis=0) - semivalue(HALVES, level_weights(3, 2))) / error
    assert np.abs(z).max() < 4.5
    assert (np.abs(values.mean(axis=0) - shapley(HALVES).values) / error).max() > 20


# three rules, three orders


def test_smallest_flip_and_its_fractions():
    np.testing.assert_allclose(level_weights(3, 2), np.array([15, 6, 9]) / 48)
    assert shapley(HALVES).values.argsort()[::-1].tolist() == [1, 0, 2]
    assert semivalue(HALVES, level_weights(3, 2)).argsort()[::-1].tolist() == [0, 1, 2]
    assert semivalue(HALVES, endpoint_weights(3, 2)).argsort()[::-1].tolist() == [1, 2, 0]


def test_two_clients_never_flip():
    rng = np.random.default_rng(7)
    for levels in (2, 3, math.inf):
        for _ in range(50):
            game = TableGame([0.0, *rng.normal(size=3)])
            a, b = shapley(game).values, semivalue(game, level_weights(2, levels))
            assert np.sign(a[0] - a[1]) == np.sign(b[0] - b[1])


def test_endpoint_sum_puts_half_of_its_weight_on_leave_one_out():
    game = random_game(6, 8)
    half = semivalue(game, endpoint_weights(6, 2))
    expected = (banzhaf(game).values + leave_one_out(game).values) / 2
    np.testing.assert_allclose(half, expected)
    assert np.abs(half - shapley(game).values).max() > 0.02


def test_gauss_nodes_remove_the_bias_and_one_fewer_does_not():
    game = random_game(6, 9)
    errors = []
    for nodes in (2, 3):
        x, w = np.polynomial.legendre.leggauss(nodes)
        value = sum(b / 2 * slope(game, (t + 1) / 2) for t, b in zip(x, w, strict=True))
        errors.append(np.abs(value - shapley(game).values).max())
    assert errors[1] < 1e-12 < errors[0]


@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_twins_are_never_negatively_correlated_in_monotone_games(q):
    game = random_game(5, 10, monotone=True)
    rows = all_coalitions(5)
    for j in range(5):
        others = rows[~rows[:, j]]
        chance = np.prod(np.where(np.delete(others, j, axis=1), q, 1 - q), axis=1)
        absent, present = game.value(others), game.value(others | (np.arange(5) == j))
        assert np.cov(absent, present, aweights=chance, ddof=0)[0, 1] > 0


def test_mirrors_are_never_positively_correlated_where_marginals_fall():
    held = np.random.default_rng(17).random((6, 8)) < 0.4
    share = 0.7 ** np.arange(8)
    game = TableGame((all_coalitions(6).astype(float) @ held > 0) @ share)
    rows = all_coalitions(6)
    covariances = []
    for j in range(6):
        alone = np.arange(6) == j
        others = rows[~rows[:, j]]
        mirror = ~(others | alone)
        gain = game.value(others | alone) - game.value(others)
        opposite = game.value(mirror | alone) - game.value(mirror)
        covariances.append(np.cov(gain, opposite, ddof=0)[0, 1])
    assert max(covariances) <= 1e-15
    assert min(covariances) < -1e-4


# truncation


def test_truncation_by_hand_with_two_clients():
    helpful = TableGame([0.0, 0.9, 0.4, 1.0])
    np.testing.assert_allclose(shapley(helpful).values, [0.75, 0.25])
    mean, evaluations = walk_mean(helpful, 1.0, 0.2)
    np.testing.assert_allclose(mean, [0.75, 0.20])
    assert evaluations == pytest.approx(1.5)


def test_a_harmful_client_is_credited_at_any_tolerance():
    harmful = TableGame([0.0, 1.2, 0.2, 1.0])
    np.testing.assert_allclose(shapley(harmful).values, [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(walk_mean(harmful, 1.0, 0.0)[0], [1.0, 0.1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", [0.5, 1.0])
def test_truncation_is_bounded_in_monotone_games(seed, level):
    eta = 0.25
    game = random_game(5, 20 + seed, monotone=True)
    change = walk_mean(game, level, eta)[0] - walk_mean(game, level)[0]
    assert change.max() <= 1e-12
    assert -eta <= change.sum() <= 1e-12
    assert change.min() > -eta


def test_truncation_is_not_bounded_in_others_and_the_remainder_is_no_bound():
    game = TableGame([0.0, 0.95, 0.1, 1.4, 0.1, 0.5, 0.3, 1.0])
    change = walk_mean(game, 1.0, 0.1)[0] - shapley(game).values
    assert change.min() < -0.1
    assert 1 - game.values[0b001] < 0.1 < game.values[0b011] - game.values[0b001]
    wild = TableGame([0.0, 0.95, 0.0, 10.0, 0.0, 0.95, 0.0, 1.0])
    assert walk_mean(wild, 0.5, 0.1)[0].sum() - walk_mean(wild, 0.5)[0].sum() < -0.1


def test_truncated_sampling_has_the_enumerated_bias():
    game, eta = random_game(5, 11, monotone=True), 0.25
    exact = np.mean([walk_mean(game, q, eta)[0] for q in (0.5, 1.0)], axis=0)
    plain = semivalue(game, level_weights(5, 2))
    runs = estimate_many(game, OwenSampling(levels=2, draws=200, eta=eta), None, range(40))
    values = np.array([run.values for run in runs])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - exact) / error).max() < 4.5
    assert (np.abs(values.mean(axis=0) - plain) / error).max() > 6


def test_respending_with_a_fixed_divisor_inflates_by_walds_identity():
    game, budget = random_game(5, 12, monotone=True), 20
    spender = OwenSampling(levels=1, eta=0.4)
    runs = estimate_many(game, spender, budget, range(400), count="calls")
    assert {run.calls for run in runs} == {budget}
    walks = np.array([run.info["walks"][0] for run in runs])
    sums = np.array([run.values.sum() for run in runs]) * walks
    one_walk = walk_mean(game, 1.0, 0.4)[0].sum()
    assert walks.mean() > 4.3  # more than the QM = 4 that line 23 divides by
    assert sums.mean() / 4 > 1.05
    means = sums / walks  # divided by the whole walks: the mean of one truncated walk, unbiased
    assert abs(means.mean() - one_walk) < 4.5 * means.std(ddof=1) / math.sqrt(len(means))


# rounds without gain


def test_dividing_by_a_loss_flips_the_order_and_fedkits_rule_keeps_it():
    game = TableGame([0.60, 0.64, 0.52, 0.55])
    raw = shapley(game).values
    np.testing.assert_allclose(raw, [0.035, -0.085])
    assert (raw / raw.sum()).argmax() == 1
    np.testing.assert_allclose(shapley(normalise(game)).values, raw)


# the baselines as printed


def test_algorithm_4_gives_half_of_the_banzhaf_value():
    rows = all_coalitions(3)
    gains = [HALVES.value(rows | (np.arange(3) == j)) - HALVES.value(rows) for j in range(3)]
    printed = np.mean(gains, axis=1)
    np.testing.assert_allclose(printed, banzhaf(HALVES).values / 2)
    weights = BanzhafSampling(variant="as_printed").weights(3)
    np.testing.assert_allclose(semivalue(HALVES, weights), printed)


def test_algorithm_5_gives_every_client_a_share_of_the_empty_utility():
    game = TableGame(0.3 + 0.6 * HALVES.values)
    printed = np.zeros(3)
    for order in permutations(range(3)):
        path = np.cumsum([1 << j for j in order])
        printed[list(order)] += np.diff(game.values[path], prepend=0.0) / 6
    np.testing.assert_allclose(printed, shapley(game).values + 0.1)
    gtg = GTGShapley(within=0.0, as_printed=True)
    runs = estimate_many(game, gtg, 300, range(20), count="calls")
    assert np.mean([run.values.sum() for run in runs]) == pytest.approx(0.9, abs=1e-3)


# bad input


@pytest.mark.parametrize("levels", [0, 1.5, -2, math.nan])
def test_levels_are_whole_numbers_from_one(levels):
    with pytest.raises(ValueError, match="levels is"):
        level_weights(3, levels)


def test_enumeration_is_refused_for_large_games_and_wrong_levels():
    with pytest.raises(ValueError, match="7 at the most"):
        walk_mean(TableGame(np.arange(256) / 255), 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        walk_mean(HALVES, 1.2)
    with pytest.raises(ValueError, match="at least one player"):
        level_weights(0, 2)
