"""Regression with a correction: sample, kernel, fit, what is estimated, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from manyseeds import GAME, N, assert_unbiased, lopsided, run
from refusals import refused

import fedkit as fk
from fedkit import threads
from fedkit.estimators import ProxySampling, estimate, estimate_many, regression
from fedkit.estimators.regression import Kernel, allocation, coefficients, drawn, pairs_there
from fedkit.games import (
    airport,
    all_coalitions,
    coalition_index,
    random_unanimity_sum,
    table_game,
    tabulate,
    weighted_majority,
)
from fedkit.games.exact import (
    banzhaf,
    banzhaf_weights,
    beta_weights,
    semivalue,
    shapley,
    shapley_weights,
)
from fedkit.learning.evaluation import share_right
from fedkit.threads import one_thread

BETA = tuple(beta_weights(N, 4.0, 1.0))


def assert_honest(results, exact):
    """Unbiased, with standard errors of the right size: those of a regression are rougher."""
    values = np.array([found.values for found in results])
    assert_unbiased(values, exact)
    errors = np.array([found.standard_errors for found in results])
    ratio = np.sqrt((errors**2).mean() / values.var(axis=0, ddof=1).mean())
    assert 0.8 < ratio < 1.5, ratio
    low, high = np.array([found.interval() for found in results]).swapaxes(0, 1)
    covered = ((low <= exact) & (exact <= high)).mean()
    assert covered > 0.9, covered


def root_mean_square(game, estimator, budget, exact, seeds=6):
    found = estimate_many(game, estimator, budget, range(seeds))
    return np.sqrt(np.mean([(each.values - exact) ** 2 for each in found]))


# --- the sample -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 12, 60])
@pytest.mark.parametrize("rule", [shapley_weights, banzhaf_weights])
def test_the_sample_spends_its_budget_on_distinct_coalitions(n, rule):
    least = ProxySampling().minimum(n, "distinct")
    for budget in (least, least + 1, least + 57, 1000):
        taken = allocation(n, budget, rule(n))
        rows, stratum = drawn(n, taken, np.random.default_rng(3))
        assert (taken <= pairs_there(n)).all()
        assert (taken >= np.minimum(pairs_there(n), 2)).all()
        assert 2 * len(rows) == min(2 * (budget // 2), 2**n)
        np.testing.assert_array_equal(rows[:, 0], ~rows[:, 1])
        assert not rows[0, 0].any()
        size = rows[:, 0].sum(axis=1)
        np.testing.assert_array_equal(np.minimum(size, n - size), stratum + 1)
        np.testing.assert_array_equal(np.bincount(stratum + 1, minlength=len(taken) + 1)[1:], taken)
        assert len(np.unique(rows.reshape(-1, n), axis=0)) == 2 * len(rows)


@pytest.mark.parametrize("weights", [shapley_weights(9), beta_weights(9, 4.0, 1.0)])
def test_each_pair_goes_where_the_variance_falls_most(weights):
    pairs, square = [9, 36, 84, 126], []
    for s in range(1, 5):
        side = np.arange(9) < s
        parts = coefficients(np.array([side, ~side]), weights)
        square.append((pairs[s - 1] * parts).ravel() @ (pairs[s - 1] * parts).ravel())
    taken = np.array([2, 2, 2, 2])
    for _ in range(60 - 8):
        taken[np.argmax(np.where(taken < pairs, square / (taken * (taken + 1.0)), -1.0))] += 1
    assert allocation(9, 2 + 2 * 60, weights).tolist() == taken.tolist()
    few, many = (allocation(9, 2 * k, banzhaf_weights(9))[0] for k in (72, 73))
    assert few < many == 9  # who is alone is like nobody else


# --- the kernel -------------------------------------------------------------------------------


SMALL = np.array([1.0, 5.0, 2.0, 0.0, 3.0])
LOGS = np.log([0.02, 3.0, 0.7, 0.6])


def some_kernel(seed=1):
    logs = np.concatenate([LOGS, np.random.default_rng(seed).normal(size=10)])
    return replace(Kernel.start(SMALL), logs=logs)


def between(kernel, rows, others):
    return kernel.between(kernel.views(rows), kernel.views(others))


def test_the_kernel_is_that_of_its_definition():
    rows, kernel = np.random.default_rng(1).random((12, 5)) < 0.5, some_kernel()
    lambdas, mus = np.exp(kernel.logs[4:].reshape(2, -1))
    for i, j in combinations(range(12), 2):
        a, b = rows[[i, j]].astype(float)
        lag = abs(np.log(max(a.sum(), 0.5)) - np.log(max(b.sum(), 0.5)))
        u, w = (x * SMALL / ((x * SMALL).sum() or 1.0) for x in (a, b))
        alike = 4.0 + 0.7 / (1.0 + (lambdas * (u - w) ** 2).sum())
        expected = np.exp(-lag / 3.0) * (alike + 0.6 / (1.0 + (mus * (a - b) ** 2).sum()))
        found = between(kernel, rows[[i]], rows[[j]])[0, 0]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_kernel_knows_its_likelihood_and_slope():
    rng = np.random.default_rng(1)
    rows, y, kernel = rng.random((12, 5)) < 0.5, rng.normal(size=(12, 2)), some_kernel()
    height, slope = kernel.likelihood(rows, y)
    matrix = between(kernel, rows, rows) + 0.02 * np.eye(12)
    fit = np.log(np.einsum("bq,bc,cq->q", y, np.linalg.inv(matrix), y) / 12).sum()
    assert height == pytest.approx(-6.0 * fit - np.linalg.slogdet(matrix)[1])
    for k, step in enumerate(1e-5 * np.eye(len(slope))):
        ends = [replace(kernel, logs=kernel.logs + sign * step) for sign in (1, -1)]
        up, down = (end.likelihood(rows, y)[0] for end in ends)
        assert slope[k] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)


def test_rates_are_learned_by_who_matters():
    rows = all_coalitions(9)[np.random.default_rng(0).permutation(512)[:150]]
    sizes = np.arange(1.0, 10.0)
    w = rows * sizes / np.maximum(rows @ sizes, 1.0)[:, None]
    start = Kernel.start(sizes)
    skewed = np.exp(-8 * ((w[:, :3] - 0.2) ** 2).sum(axis=1))[:, None]
    rates = start.learned(rows, skewed).logs[4:13]
    assert rates[:3].min() > rates[3:].max()
    votes = (rows[:, :4].sum(axis=1) > 2)[:, None] * 1.0
    rates = start.learned(rows, votes).logs[13:]
    assert rates[:4].min() > rates[4:].max()


# --- the fit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", [32, 24])
def test_what_is_left_out_is_that_of_the_plain_loop(fitted, monkeypatch):
    monkeypatch.setattr(regression, "FITTED_ROWS", fitted)
    rng, n = np.random.default_rng(7), 5
    half = all_coalitions(n)[:16][rng.permutation(16)]
    rows = np.stack([half, ~half], axis=1)
    numbers, kernel = rng.normal(size=(16, 2, 3)), some_kernel()
    fit = regression._Fit(kernel, rows, numbers)
    mean, out = 0.0, np.array([2, 5, 14])
    for k in range(16):
        kept = (np.arange(16) < fitted // 2) & (np.arange(16) != k)
        some = rows[kept].reshape(-1, n)
        noisy = between(kernel, some, some) + np.exp(kernel.logs[0]) * np.eye(len(some))
        weights = np.linalg.solve(noisy, numbers[kept].reshape(-1, 3))
        made = between(kernel, rows.reshape(-1, n), some) @ weights
        np.testing.assert_allclose(fit.guess[k], made[2 * k : 2 * k + 2], atol=1e-9)
        mean = mean + np.isin(k, out) * made / len(out)
    found = fit.without(out, rows.reshape(-1, n))
    np.testing.assert_allclose(found, mean, atol=1e-9)


# --- the estimate -----------------------------------------------------------------------------


def by_hand(game, weights, budget, seed):
    """Each pair left out in its turn, each stratum's total written out over all coalitions."""
    n, rows = game.n_players, all_coalitions(game.n_players)
    taken = allocation(n, budget, weights)
    drawn_pairs, stratum = drawn(n, taken, np.random.default_rng(seed))
    v = game.table - (game.table[0] + game.table[-1]) / 2
    a = coefficients(rows, weights)
    kernel = Kernel.start(np.ones(n))
    pairs = coalition_index(drawn_pairs.reshape(-1, n)).reshape(-1, 2)
    known, size = pairs.ravel(), rows.sum(axis=1)
    result = a[known].T @ v[known]
    for p, s in list(enumerate(stratum))[1:]:
        others = np.setdiff1d(known, pairs[p])
        noise = np.exp(kernel.logs[0]) * np.eye(len(others))
        noisy = between(kernel, rows[others], rows[others]) + noise
        guess = between(kernel, rows, rows[others]) @ np.linalg.solve(noisy, v[others])
        unseen = np.setdiff1d(np.flatnonzero(np.minimum(size, n - size) == s + 1), known)
        total = a[unseen].T @ guess[unseen]
        total = total + (pairs_there(n)[s] - taken[s]) * a[pairs[p]].T @ (v - guess)[pairs[p]]
        result = result + total / taken[s]
    return result


@pytest.mark.parametrize("value", ["shapley", "banzhaf", BETA], ids=["shapley", "banzhaf", "beta"])
def test_the_closed_form_is_the_plain_loop(value, monkeypatch):
    monkeypatch.setattr(Kernel, "learned", lambda kernel, *_: kernel)
    estimator = ProxySampling(value=value, shrink=False)
    for budget in (14, 31, 44):
        found = estimate(GAME, estimator, budget, np.random.default_rng(budget))
        expected = by_hand(GAME, estimator.weights(N), budget, budget)
        np.testing.assert_allclose(found.values, expected, atol=1e-9)
        assert found.evaluations == budget - budget % 2


@pytest.mark.parametrize(
    ("estimator", "budget", "repeats"),
    [
        (ProxySampling(shrink=False), 14, 120),
        (ProxySampling(sizes=[1, 2, 3, 4, 5, 6], shrink=False), 36, 80),
        (ProxySampling(value="banzhaf", shrink=False), 30, 80),
        (ProxySampling(value=BETA, shrink=False), 36, 80),
    ],
    ids=["shapley", "sizes", "banzhaf", "beta"],
)
def test_unbiased_with_honest_standard_errors(estimator, budget, repeats):
    results = estimate_many(GAME, estimator, budget, range(repeats))
    assert_honest(results, semivalue(GAME, estimator.weights(N)))


def test_shapley_values_add_up_and_nearly_all_coalitions_are_nearly_exact():
    for shrink in (True, False):
        found = estimate(GAME, ProxySampling(shrink=shrink), 30, 1)
        assert found.values.sum() == pytest.approx(GAME.table[-1] - GAME.table[0])
        nearly = estimate(GAME, ProxySampling(shrink=shrink), 63)
        assert np.abs(nearly.values - shapley(GAME).values).max() < 0.2


def test_several_outputs_share_a_kernel_and_a_constant_one_is_worth_nothing():
    game = lopsided((3,))
    found = estimate(game, ProxySampling(), 40, 2)
    assert found.values.shape == found.standard_errors.shape == (N, 3)
    np.testing.assert_allclose(found.values.sum(axis=0), game.table[-1] - game.table[0])
    one = estimate(table_game(game.table[:, 1]), ProxySampling(), 40, 2)
    assert one.values.shape == (N,)
    flat = estimate(table_game(np.full(64, 0.7)), ProxySampling(), 20)
    np.testing.assert_allclose(flat.values, 0.0, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_values_do_not_depend_on_the_unit(factor):
    plain = estimate(GAME, ProxySampling(), 30, 1)
    found = estimate(table_game(factor * GAME.table), ProxySampling(), 30, 1)
    slack = 1e-6 * np.abs(plain.values).max()
    np.testing.assert_allclose(found.values / factor, plain.values, atol=slack)
    np.testing.assert_allclose(found.standard_errors / factor, plain.standard_errors, atol=slack)


def test_a_correction_is_kept_as_james_and_stein_say():
    estimates = np.array([[3.0, 0.1], [-1.0, 0.2], [0.0, 0.0], [-2.0, -0.3], [0.0, 0.0]])
    kept = regression._kept(estimates, np.ones((5, 2)))
    np.testing.assert_allclose(kept, [1.0 - (4 - 2) / 4 * 5 / 14, 0.0])
    assert regression._kept(estimates[:3], np.ones((3, 2))).tolist() == [1.0, 1.0]


def test_of_a_vote_of_many_shrinking_leaves_no_more_error_than_equal_shares():
    game = weighted_majority(np.arange(30) % 7 + 1, 70)
    exact = game.shapley()
    shrunk, unbiased = (
        root_mean_square(game, ProxySampling(shrink=shrink), 90, exact, 3)
        for shrink in (True, False)
    )
    assert shrunk <= exact.std()
    assert shrunk < unbiased / 2


def test_spread_of_parts_is_that_of_all_players_where_their_own_is_smaller():
    parts = np.array([[[0.0], [1.0]], [[0.0], [3.0]]])
    total, variance = regression._others(parts, 10.0)
    np.testing.assert_allclose(total, 8 * np.array([[0.0], [2.0]]))
    pooled = (0.0 + 2.0) / 2
    spread = np.array([[6 * pooled / 7], [(2.0 + 6 * pooled) / 7]])
    np.testing.assert_allclose(variance, 10 * 8 / 2 * spread)


# --- many players -----------------------------------------------------------------------------


def test_many_players_are_valued_within_their_errors():
    games = [random_unanimity_sum(24, 30, 1), *(airport(np.arange(1.0, n)) for n in (41, 121))]
    for game in games:
        found = estimate(game, ProxySampling(), 400, 3)
        away = np.abs(found.values - game.shapley()) / found.standard_errors
        assert np.median(away) < 2
        assert away.max() < 6
        assert found.evaluations == 400


@pytest.mark.parametrize("rule", [shapley_weights, banzhaf_weights], ids=["shapley", "banzhaf"])
@pytest.mark.parametrize("n", [7, 8])
def test_what_is_additive_is_summed_in_closed_form(rule, n):
    rng, weights, rows = np.random.default_rng(0), rule(n), all_coalitions(n)
    size = rows.sum(axis=1)
    b, c = rng.normal(size=(2, n, 2))
    additive = rows @ b + rows @ c / np.maximum(size, 1)[:, None] + (size * (n - size))[:, None]
    taken = allocation(n, 40, weights)
    pairs, stratum = drawn(n, taken, rng)
    sample = regression._Sample(weights, taken, pairs, stratum, None, None, None)
    some, strata = sample._unseen(rng)
    kept = np.concatenate([np.flatnonzero(strata == s)[3 * (s > 0) :] for s in np.unique(strata)])
    predicted = additive[coalition_index(some[kept].reshape(-1, n))].reshape(-1, 2, 2)
    values, variance = sample._summed(some[kept], strata[kept], predicted)
    seen = np.isin(np.arange(2**n), coalition_index(pairs.reshape(-1, n)))
    expected = coefficients(rows[~seen], weights).T @ additive[~seen]
    np.testing.assert_allclose(values, expected, atol=1e-9)
    np.testing.assert_allclose(variance, 0.0, atol=1e-9)


def test_a_sample_of_the_learned_game_stands_for_all_of_it(monkeypatch):
    monkeypatch.setattr(regression, "PREDICTED", 40)
    results = estimate_many(GAME, ProxySampling(shrink=False), 30, range(150))
    assert_honest(results, shapley(GAME).values)


def test_more_coalitions_than_a_kernel_is_fitted_to(monkeypatch):
    monkeypatch.setattr(regression, "FITTED_ROWS", 60)
    game = tabulate(random_unanimity_sum(9, 30, 2))
    values, _ = run(ProxySampling(shrink=False), 200, "distinct", game, 80)
    assert_unbiased(values, shapley(game).values)


# --- rounds -----------------------------------------------------------------------------------


def test_a_round_is_valued_better_by_what_it_is():
    d = np.random.default_rng(4).lognormal(size=12)
    skill = np.random.default_rng(5).normal(size=(12, 3))

    def utility(rows):
        w = rows * d / np.where(rows.any(axis=1), rows @ d, 1.0)[:, None]
        return -(((w @ skill - 0.3) ** 2).sum(axis=1) ** 0.5)

    game = tabulate(fk.Game(12, utility))
    exact = shapley(game).values
    told, blind = (root_mean_square(game, ProxySampling(s), 200, exact) for s in (d, None))
    assert told < 0.75 * blind
    assert blind < root_mean_square(game, fk.MultilinearSampling(), 200, exact) / 3


def margins(n, images=30, seed=6):
    """Margins of a round of n clients, float64[2**n, images], lopsided, with kinks."""
    rng = np.random.default_rng(seed)
    rows = all_coalitions(n)
    d = rng.lognormal(size=n)
    w = rows * d / np.where(rows.any(axis=1), rows @ d, 1.0)[:, None]
    hidden = np.maximum(w @ rng.normal(size=(n, 8)) + 0.3 * rng.normal(size=8), 0.0)
    return hidden @ rng.normal(size=(8, images)) + 0.3 * rng.normal(size=images), d


MARGINS, SHARES = margins(N)
RIGHT = table_game(share_right(MARGINS))


@pytest.mark.parametrize(("budget", "repeats"), [(14, 120), (36, 80)])
def test_looking_behind_the_utility_is_unbiased_with_honest_errors(budget, repeats):
    estimator = ProxySampling(sizes=SHARES, score=share_right, shrink=False)
    results = estimate_many(table_game(MARGINS), estimator, budget, range(repeats))
    assert_honest(results, shapley(RIGHT).values)
    for found in results[:3]:
        assert found.evaluations == budget - budget % 2
        assert found.values.sum() == pytest.approx(RIGHT.table[-1] - RIGHT.table[0])


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_values_do_not_depend_on_the_units_of_sizes_outputs_and_scores(factor):
    plain = estimate(table_game(MARGINS), ProxySampling(sizes=SHARES, score=share_right), 30, 1)
    largest = SHARES / SHARES.max() * 1.7e308
    estimator = ProxySampling(sizes=largest, score=lambda z: factor * share_right(z))
    found = estimate(table_game(factor * MARGINS), estimator, 30, 1)
    slack = 1e-6 * np.abs(plain.values).max()
    np.testing.assert_allclose(found.values / factor, plain.values, atol=slack)
    np.testing.assert_allclose(found.standard_errors / factor, plain.standard_errors, atol=slack)


def test_of_many_players_and_many_coalitions_a_part_stands_for_all(monkeypatch):
    monkeypatch.setattr(regression, "PREDICTED", 40)
    monkeypatch.setattr(regression, "FITTED_ROWS", 24)
    estimator = ProxySampling(SHARES, score=share_right, shrink=False)
    assert_honest(
        estimate_many(table_game(MARGINS), estimator, 36, range(100)), shapley(RIGHT).values
    )


def test_a_game_that_can_say_more_is_asked_without_being_told():
    game = replace(RIGHT, lifted=(table_game(MARGINS), share_right))
    told = estimate(table_game(MARGINS), ProxySampling(sizes=SHARES, score=share_right), 36, 3)
    found = estimate(game, ProxySampling(sizes=SHARES), 36, 3)
    assert replace(found, info=told.info) == told  # that names no semivalue of what is scored
    assert "score" not in found.method
    whole = estimate(game, ProxySampling(), 64)
    assert whole.exact
    np.testing.assert_allclose(whole.values, shapley(RIGHT).values, atol=1e-12)
    scored = estimate(table_game(MARGINS), ProxySampling(score=share_right), 64)
    np.testing.assert_allclose(scored.values, shapley(RIGHT).values, atol=1e-12)
    assert not scored.standard_errors.any()


def test_a_score_may_be_a_vector_and_may_be_the_banzhaf_value():
    def halves(outputs):
        return np.stack([share_right(outputs[:, :15]), share_right(outputs[:, 15:])], axis=1)

    estimator = ProxySampling(score=halves, value="banzhaf", shrink=False)
    values, _ = run(estimator, 40, "distinct", table_game(MARGINS), 60)
    assert values.shape == (60, N, 2)
    assert_unbiased(values, banzhaf(table_game(halves(MARGINS))).values)


def test_where_outputs_tell_less_than_their_score_it_falls_back():
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=2**8)
    smooth = 1.0 + all_coalitions(8) @ np.linspace(0.1, 1.0, 8)
    exact = shapley(table_game(smooth)).values
    blind = root_mean_square(table_game(smooth), ProxySampling(), 100, exact, 3)
    estimator = ProxySampling(score=lambda z: np.abs(z[:, 0]))
    behind = root_mean_square(table_game((signs * smooth)[:, None]), estimator, 100, exact, 3)
    assert behind < 0.01 * np.abs(exact).mean()
    assert behind < 100 * blind


def test_of_a_round_it_is_closer_than_what_sees_utilities_alone():
    federation = fk.make_federation(fk.load("digits"), 9, fk.Dirichlet(0.5), 1, validation=0.2)
    arch = fk.build("mlp-16", federation.input_shape, federation.n_classes)
    data = [federation.client_data(i) for i in range(9)]
    base, streams = arch.init(np.random.default_rng(2)), fk.Streams(3)
    batches = [streams.generator("client", i) for i in range(9)]
    trained = fk.train_clients(arch, base.repeat(9, 1), data, fk.LocalSGD(lr=0.1), batches)
    evaluator = fk.Evaluator(arch, federation.x_val, federation.y_val, device="cpu")
    game = fk.round_game(evaluator, base, trained, federation.sizes)
    exact = shapley(game).values
    table, estimator = tabulate(game), ProxySampling(sizes=federation.sizes)
    assert estimate(game, ProxySampling(), 40, 1) == estimate(game, estimator, 40, 1)
    uniform = fk.round_game(evaluator, base, trained, weighting="uniform")
    assert (uniform.sizes == 1).all()
    assert estimate(game, ProxySampling(sizes=np.ones(9)), 40, 1) != estimate(
        game, estimator, 40, 1
    )
    behind, blind = (root_mean_square(each, estimator, 150, exact, 5) for each in (game, table))
    assert behind < 0.8 * blind


# --- refusals and threads ---------------------------------------------------------------------


def test_what_is_none_is_refused():
    game = table_game(MARGINS)
    with pytest.raises(ValueError, match=r"score made \(\) of outputs"):
        estimate(game, ProxySampling(score=lambda outputs: outputs.mean()), 36)
    with pytest.raises(ValueError, match="returns finite"):
        estimate(game, ProxySampling(score=lambda outputs: outputs[:, 0] * np.nan), 36)
    with pytest.raises(ValueError, match="budget"):
        estimate(replace(RIGHT, lifted=(table_game(MARGINS), share_right)), ProxySampling(), "100")
    refused(r"expected \[B, N\]", estimate, RIGHT, ProxySampling(score=share_right), 36)
    refused("2 sizes for 6 players", estimate, GAME, ProxySampling(sizes=[1.0, 2.0]), 40)
    refused("2 weights as value for 6 players", estimate, GAME, ProxySampling(value=[0.5, 0.5]), 40)


def test_a_fit_uses_one_thread_and_gives_the_others_back(monkeypatch):
    limits = pytest.importorskip("threadpoolctl").threadpool_limits

    def blas():
        return {m["num_threads"] for m in threads._controller().info() if m["user_api"] == "blas"}

    seen, estimated = [], regression._Sample.estimate
    monkeypatch.setattr(
        regression._Sample, "estimate", lambda *given: (seen.append(blas()), estimated(*given))[1]
    )
    with limits(2, "blas"):
        before = blas()
        fk.estimate(GAME, fk.ProxySampling(), 30, seed=0)
        assert seen == [{1}]
        inner, outer = one_thread(), one_thread()
        outer.__enter__()
        inner.__enter__()
        assert blas() == {1}
        outer.__exit__(None, None, None)  # another thread is still within
        assert blas() == {1}
        inner.__exit__(None, None, None)
        assert blas() == before


def test_weights_that_are_no_semivalue_are_refused_and_leave_one_out_is_one() -> None:
    game = fk.airport([1.0, 2.0, 4.0, 5.0, 7.0, 8.0])
    for wrong in ([1 / 6] * 6, [0.0] * 6, [-1.0] * 6):
        refused("as of every semivalue", estimate, game, ProxySampling(value=wrong), 20, 0)
    alone = [1.0, 0, 0, 0, 0, 0]  # of each client alone
    found = estimate(game, ProxySampling(value=alone), 2**6, 0)
    assert found.values == pytest.approx([1.0, 2.0, 4.0, 5.0, 7.0, 8.0])
    assert np.isfinite(estimate(game, ProxySampling(value=alone), 40, 0).values).all()


def test_values_are_there_although_the_sample_has_what_predictions_are_drawn_from(monkeypatch):
    monkeypatch.setattr(regression, "PREDICTED", 200)
    game = fk.table_game(np.random.default_rng(0).normal(size=2**12))
    for seed in range(6):
        found = estimate(game, ProxySampling(value="banzhaf"), 2000, seed)
        assert np.isfinite(found.values).all()
        assert np.isfinite(found.standard_errors).all()
