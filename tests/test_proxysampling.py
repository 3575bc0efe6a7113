"""Regression with a correction: the design, the closed forms, what is estimated, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from manyseeds import GAME, N, assert_unbiased, lopsided, run
from rounding import assert_close

import fedkit as fk
from fedkit import threads
from fedkit.estimators import ProxySampling, estimate, estimate_many, lifted, proxies, proxysampling
from fedkit.estimators.design import PairedDesign, coefficients
from fedkit.estimators.proxies import FAMILIES, Mixture, candidates, choose, fit, mixture
from fedkit.games import (
    Game,
    airport,
    all_coalitions,
    coalition_index,
    random_unanimity_sum,
    table_game,
    tabulate,
)
from fedkit.games.exact import banzhaf, banzhaf_weights, shapley, shapley_weights
from fedkit.learning.evaluation import share_right
from fedkit.threads import one_thread


def assert_honest(results, exact):
    """Unbiased, with standard errors of the right size: those of a regression are rougher."""
    values = np.array([found.values for found in results])
    assert_unbiased(values, exact)
    errors = np.array([found.standard_errors for found in results])
    ratio = np.sqrt((errors**2).mean() / values.var(axis=0, ddof=1).mean())
    assert 0.8 < ratio < 1.4, ratio
    low, high = np.array([found.interval() for found in results]).swapaxes(0, 1)
    covered = ((low <= exact) & (exact <= high)).mean()
    assert covered > 0.9, covered


# --- the design -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 12, 60])
@pytest.mark.parametrize("rule", [shapley_weights, banzhaf_weights])
def test_the_design_spends_its_budget_on_distinct_coalitions(n, rule):
    least = PairedDesign.minimum(n)
    for budget in (least, least + 1, least + 57, 1000):
        design = PairedDesign.for_budget(n, budget, rule(n))
        sides, stratum = design.draw(np.random.default_rng(3))
        assert (design.taken <= design.pairs).all()
        assert (design.taken >= np.minimum(design.pairs, 2)).all()
        assert 2 + 2 * len(sides) == min(2 * (budget // 2), 2**n)
        size = sides.sum(axis=1)
        np.testing.assert_array_equal(np.minimum(size, n - size), stratum + 1)
        both = np.concatenate([sides, ~sides])
        assert len(np.unique(both, axis=0)) == len(both)


# --- proxies ----------------------------------------------------------------------------------


SMALL = np.array([1.0, 5.0, 2.0, 0.0, 3.0])
LOGS = np.log([0.02, 3.0, 0.7, 0.4])


def mixtures(rates):
    return [Mixture(SMALL, np.concatenate([LOGS, rates]), rough) for rough in (False, True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_those_of_their_definition(family):
    rng = np.random.default_rng(1)
    rows, rates = rng.random((12, 5)) < 0.5, rng.normal(size=10)
    grid = mixtures(rates) if family == "mixture" else candidates(family, SMALL)
    for proxy, (i, j) in product(grid, combinations(range(12), 2)):
        a, b = rows[[i, j]].astype(float)
        s, t = a.sum(), b.sum()
        lag = abs(np.log(max(s, 0.5)) - np.log(max(t, 0.5)))
        near = np.exp(-lag / (3.0 if family == "mixture" else proxy.reach))
        apart = (
            a * SMALL / ((a * SMALL).sum() or 1.0) - b * SMALL / ((b * SMALL).sum() or 1.0)
        ) ** 2

        def falling(square, rough=proxy.rough):
            d = np.sqrt(square.sum())
            return (1 + 3**0.5 * d) * np.exp(-(3**0.5) * d) if rough else np.exp(-(d**2) / 2)

        if family == "mixture":
            expected = near * (4 + 0.7 * falling(np.exp(rates[:5]) * apart))
            expected += 0.4 * np.exp(-(np.exp(rates[5:]) * np.abs(a - b)).sum())
        elif family == "round":
            expected = near * (4 + falling(apart / proxy.scale**2))
        elif family == "membership":
            expected = 4 * near + proxy.scale ** np.abs(a - b).sum()
        else:
            p, q = max(s, 1.0), max(t, 1.0)
            growth = 1 + (2 / p) * (2 / q) + (2 * p / 5) * (2 * q / 5)
            expected = 4 * near + (a - s / 5) @ (b - t / 5) * growth * proxy.scale / 5
        found = proxy.kernel(rows[[i]], rows[[j]])[0, 0]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_many_players_need_no_table(family, monkeypatch):
    rows = np.random.default_rng(1).random((12, 9)) < 0.5
    grid = candidates(family, np.arange(1.0, 10.0))
    tables = [proxy.kernel(rows, rows) for proxy in grid]
    monkeypatch.setattr(proxies, "TABLE", 0)
    for proxy, table in zip(grid, tables, strict=True):
        np.testing.assert_allclose(proxy.kernel(rows, rows), table, rtol=1e-12)


def test_cross_validation_takes_the_proxy_that_fits():
    rows = all_coalitions(9)[np.random.default_rng(0).permutation(512)[:150]]
    d = np.arange(1.0, 10.0)
    w = rows * d / np.maximum(rows @ d, 1.0)[:, None]
    of_round = np.exp(-8 * ((w - 0.2) ** 2).sum(axis=1))[:, None]
    even = ("linear", "membership", "round")  # clients alike but for their sizes
    assert choose(even, d, rows, of_round).family == "round"
    lean = (rows @ (d - 5.0))[:, None]
    assert choose(even, d, rows, lean).family == "linear"
    costs = rows[:, :4].all(axis=1)[:, None] + rows[:, 3:6].all(axis=1)[:, None] * 2.0
    assert choose(even, d, rows, costs).family == "membership"
    assert choose(FAMILIES, d, rows, costs).family == "mixture"  # three clients do not matter
    skewed = np.exp(-8 * ((w[:, :3] - 0.2) ** 2).sum(axis=1))[:, None]
    found = choose(FAMILIES, d, rows, skewed)
    rates = found.logs[4:13]
    assert rates[:3].min() > rates[3:].max()


def test_a_mixture_knows_its_slope():
    rng = np.random.default_rng(1)
    rows, y = rng.random((12, 5)) < 0.5, rng.normal(size=(12, 2))
    for proxy in mixtures(rng.normal(size=10)):
        places = proxy._places(rows)
        lag = proxies._lag(places[2][:, None], places[2])
        height, slope = proxy._likelihood(places, lag, y)
        plain = proxies._likelihood(proxy.kernel(rows, rows), proxy.noise, y)
        assert height == pytest.approx(plain)
        for k, step in enumerate(1e-5 * np.eye(len(slope))):
            ends = [replace(proxy, logs=proxy.logs + sign * step) for sign in (1, -1)]
            up, down = (end._likelihood(places, lag, y)[0] for end in ends)
            assert slope[k] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)


# --- the estimate -----------------------------------------------------------------------------


EXACT = {
    "shapley": lambda game: shapley(game).values,
    "banzhaf": lambda game: banzhaf(game).values,
}


def plain(family, shares):
    first = candidates("round" if family == "mixture" else family, shares)[0]
    return mixture(first) if family == "mixture" else first


def by_hand(game, estimator, budget, seed):
    """Each pair left out in its turn, each stratum's total written out over all coalitions."""
    n, weights = game.n_players, estimator.weights(game.n_players)
    rows = all_coalitions(n)
    rng = np.random.default_rng(seed)
    design = PairedDesign.for_budget(n, budget, weights)
    sides, stratum = design.draw(rng)
    v = game.table - (game.table[0] + game.table[-1]) / 2
    a = coefficients(rows, weights)
    size = rows.sum(axis=1)
    proxy = plain(estimator.proxy, np.ones(n))
    known = np.array([0, 2**n - 1, *coalition_index(sides), *coalition_index(~sides)])
    result = a[0] * v[0] + a[-1] * v[-1]
    for s in range(len(design.taken)):
        mine = np.flatnonzero(stratum == s)
        everything = np.flatnonzero(np.minimum(size, n - size) == s + 1)
        if design.taken[s] == design.pairs[s]:
            result = result + a[everything].T @ v[everything]
            continue
        totals = []
        for p in mine:
            pair = coalition_index(np.stack([sides[p], ~sides[p]]))
            others = np.setdiff1d(known, pair)
            refit = fit(proxy, rows[others], v[others][:, None])
            guess = (proxy.kernel(rows, rows[others]) @ refit.weights)[:, 0]
            left = np.setdiff1d(everything, others)  # the pair, and what was not drawn
            total = a[everything].T @ guess[everything]
            seen = np.intersect1d(everything, others)
            total = total + a[seen].T @ (v - guess)[seen]
            total = total + (len(left) / 2) * a[pair].T @ (v - guess)[pair]
            totals.append(total)
        result = result + np.mean(totals, axis=0)
    return result


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", ["shapley", "banzhaf"])
def test_the_closed_form_is_the_plain_loop(family, value, monkeypatch):
    monkeypatch.setattr(
        proxysampling, "choose", lambda families, shares, *_: plain(families[0], shares)
    )
    estimator = ProxySampling(family, value=value)
    for budget in (14, 31, 44):
        found = estimate(GAME, estimator, budget, np.random.default_rng(budget))
        expected = by_hand(GAME, estimator, budget, budget)
        np.testing.assert_allclose(found.values, expected, atol=1e-9)
        assert found.evaluations == budget - budget % 2


@pytest.mark.parametrize(
    ("estimator", "budget", "repeats"),
    [
        (ProxySampling("linear"), 14, 160),
        (ProxySampling("linear"), 36, 160),
        (ProxySampling("membership"), 36, 160),
        (ProxySampling("round", sizes=[1, 2, 3, 4, 5, 6]), 36, 80),
        (ProxySampling("mixture", sizes=[1, 2, 3, 4, 5, 6]), 36, 60),
        (ProxySampling(), 30, 60),
        (ProxySampling("linear", value="banzhaf"), 36, 160),
    ],
    ids=repr,
)
def test_unbiased_with_honest_standard_errors(estimator, budget, repeats):
    results = estimate_many(GAME, estimator, budget, range(repeats))
    assert_honest(results, EXACT[estimator.value](GAME))


def test_shapley_values_add_up_and_nearly_all_coalitions_are_nearly_exact():
    found = estimate(GAME, ProxySampling(), 30, 1)
    assert found.values.sum() == pytest.approx(GAME.table[-1] - GAME.table[0])
    assert found.info["proxies"]
    nearly = estimate(GAME, ProxySampling(), 63)
    assert np.abs(nearly.values - shapley(GAME).values).max() < 0.2


def test_a_game_of_many_outputs_and_a_constant_one():
    game = lopsided((3,))
    found = estimate(game, ProxySampling(), 40, 2)
    assert found.values.shape == found.standard_errors.shape == (N, 3)
    np.testing.assert_allclose(found.values.sum(axis=0), game.table[-1] - game.table[0])
    one = estimate(table_game(game.table[:, 1]), ProxySampling("linear"), 40, 2)
    assert one.values.shape == (N,)
    flat = estimate(table_game(np.full(64, 0.7)), ProxySampling(), 20)
    np.testing.assert_allclose(flat.values, 0.0, atol=1e-9)


def test_many_players_are_valued_within_their_errors():
    for n, game in ((24, random_unanimity_sum(24, 30, 1)), (40, airport(np.arange(1.0, 41.0)))):
        found = estimate(game, ProxySampling("linear"), 400, 3)
        away = np.abs(found.values - game.shapley()) / found.standard_errors
        assert np.median(away) < 2
        assert away.max() < 6
        assert found.evaluations == 400 <= comb(n, 5)


@pytest.mark.parametrize("per_player", [0, 99])  # slopes of each size, or common ones
@pytest.mark.parametrize("value", ["shapley", "banzhaf"])
@pytest.mark.parametrize("size", [3, 4])  # of eight players: the second is its own complement
def test_what_is_additive_is_summed_in_closed_form(size, value, per_player, monkeypatch):
    monkeypatch.setattr(proxysampling, "PER_PLAYER", per_player)
    n, rng = 8, np.random.default_rng(0)
    weights = (shapley_weights if value == "shapley" else banzhaf_weights)(n)
    sides = np.array([row for row in product([False, True], repeat=n) if sum(row) == size])
    sides = sides[sides[:, 0]] if 2 * size == n else sides
    rows = np.stack([sides, ~sides], axis=1).reshape(-1, n)
    additive = rows @ rng.normal(size=(n, 2)) + rows.sum(axis=1, keepdims=True) ** 2
    rough = additive + rng.normal(size=additive.shape)
    for predicted in (additive, rough):
        exact = proxysampling._parts(coefficients(rows, weights), predicted).sum(axis=0)
        found, told = [], []
        for _ in range(20 if predicted is additive else 400):
            pairs = rng.permutation(len(sides))[:30]
            some = (2 * pairs[:, None] + np.arange(2)).ravel()
            common = proxysampling._common_slopes([(rows[some], predicted[some])])
            total, rest = proxysampling._beside_additive(
                rows[some], weights, predicted[some], len(sides), common
            )
            found.append(total)
            left = len(sides) * (len(sides) - 30) / 30
            told.append(left * rest.var(axis=0, ddof=1))
        if predicted is additive:
            assert_close(found, np.broadcast_to(exact, np.shape(found)), 1e-9)
            continue
        assert_unbiased(np.array(found).reshape(400, -1), exact.ravel())
        spread = np.var(found, axis=0, ddof=1)
        # slopes of few pairs leave more in the other half than those of both would
        assert 0.65 < (spread / np.mean(told, axis=0)).mean() < 1.1


@pytest.mark.parametrize("n", [24, 60])
def test_beyond_twenty_players_a_proxy_that_knows_the_game_is_summed_closely(n):
    data = np.arange(1.0, n + 1)
    found = estimate(Game(n, lambda rows: rows @ data), ProxySampling("linear"), 6 * n, 0)
    assert np.abs(found.values - data).max() < 0.02 * data.mean()  # a tenth of the sample's error
    slack = 6 * found.standard_errors + 1e-9
    assert (np.abs(found.values - data) <= slack).all()


def test_more_coalitions_than_a_proxy_is_fitted_to(monkeypatch):
    monkeypatch.setattr(proxysampling, "FITTED_ROWS", 60)
    game = tabulate(random_unanimity_sum(9, 30, 2))
    values, _ = run(ProxySampling("linear"), 200, "distinct", game, 80)
    assert_unbiased(values, shapley(game).values)


def test_all_coalitions_are_predicted_only_where_a_sample_of_them_would_be_felt(monkeypatch):
    n, spread = 17, np.linspace(1.0, 5.0, 17)
    monkeypatch.setattr(proxysampling, "all_coalitions", lambda _: pytest.fail("all of them"))
    estimate(random_unanimity_sum(n, 60, 1), ProxySampling("linear"), 102, seed=0)
    additive = Game(n, lambda rows: rows @ spread)  # summed in closed form
    estimate(additive, ProxySampling("linear"), 102, seed=0)
    cubic = Game(n, lambda rows: (rows @ spread) ** 3)  # known well, and not additive
    with pytest.raises(pytest.fail.Exception, match="all of them"):
        estimate(cubic, ProxySampling("membership"), 3000, seed=0)


@pytest.mark.parametrize("felt", [0.0, 0.3, np.inf])
def test_whether_all_are_predicted_is_decided_by_lot_of_its_own(felt, monkeypatch):
    for name, value in (
        ("ENUMERATED", 5), ("PROXY_ROWS", 40), ("PILOT_ROWS", 30), ("FELT", felt),
    ):  # fmt: skip
        monkeypatch.setattr(proxysampling, name, value)
    assert_honest(
        estimate_many(GAME, ProxySampling("linear"), 30, range(200)), EXACT["shapley"](GAME)
    )


def test_a_round_is_valued_better_by_what_it_is():
    d = np.random.default_rng(4).lognormal(size=12)
    skill = np.random.default_rng(5).normal(size=(12, 3))

    def utility(rows):
        w = rows * d / np.where(rows.any(axis=1), rows @ d, 1.0)[:, None]
        return -(((w @ skill - 0.3) ** 2).sum(axis=1) ** 0.5)

    game = tabulate(Game(12, utility))
    exact = shapley(game).values

    def error(proxy, sizes):
        found = estimate_many(game, ProxySampling(proxy, sizes), 200, range(6))
        return np.sqrt(np.mean([(each.values - exact) ** 2 for each in found]))

    assert error("round", d) < error("linear", None) / 2
    assert error("auto", d) < 1.5 * error("round", d)


# --- behind the utility -----------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("proxy", "budget", "repeats"), [("membership", 14, 120), ("auto", 36, 60), ("linear", 50, 120)]
)
def test_looking_behind_the_utility_is_unbiased_with_honest_errors(proxy, budget, repeats):
    estimator = ProxySampling(proxy, sizes=SHARES, score=share_right)
    results = estimate_many(table_game(MARGINS), estimator, budget, range(repeats))
    assert_honest(results, shapley(RIGHT).values)
    for found in results[:3]:
        assert found.evaluations == budget - budget % 2
        assert found.values.sum() == pytest.approx(RIGHT.table[-1] - RIGHT.table[0])


def test_a_game_that_can_say_more_is_asked_without_being_told():
    game = replace(RIGHT, lifted=(table_game(MARGINS), share_right))
    told = estimate(table_game(MARGINS), ProxySampling(sizes=SHARES, score=share_right), 36, 3)
    found = estimate(game, ProxySampling(sizes=SHARES), 36, 3)
    assert found == told
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

    estimator = ProxySampling("membership", score=halves, value="banzhaf")
    values, _ = run(estimator, 40, "distinct", table_game(MARGINS), 60)
    assert values.shape == (60, N, 2)
    assert_unbiased(values, banzhaf(table_game(halves(MARGINS))).values)


def test_folds_and_their_shares_are_those_of_the_plain_loop(monkeypatch):
    rng = np.random.default_rng(7)
    rows = all_coalitions(N)[rng.permutation(2**N)[:30]]
    rows[0], rows[1] = False, True
    outputs = rng.normal(size=(30, 5)) + rows @ rng.normal(size=(N, 5))

    def score(z):
        return np.abs(z[:, :2])  # a kink

    y, seen = score(outputs), np.r_[0, 1, 12:20]
    monkeypatch.setattr(lifted, "choose", lambda families, shares, *_: plain(families[0], shares))
    folds = [np.array([4, 9, 11]), np.array([20, 21]), np.array([5, 8])]
    makers = [
        lifted.Lifted.choose(("round",), SHARES, rows[seen], outputs[seen], score),
        lifted.Plain.choose(("membership",), SHARES, rows[seen], y[seen]),
    ]
    behind, blind = (make(rows, outputs, y, folds) for make in makers)

    def again(left):
        """What each predicts of rows that it was not fitted to."""
        kept = np.setdiff1d(np.arange(30), left)
        both = [make(rows[kept], outputs[kept], y[kept], [left[:0]]) for make in makers]
        return [each.mean(rows[left], np.ones((1, 1))) for each in both]

    found = lifted.Blend.choose(behind, blind, folds, lambda at, made: (y[at] - made)[:, None])
    assert ((found.share > 0.0) & (found.share < 1.0)).any()
    for k, fold in enumerate(folds):
        residuals = []
        for other in (folds[j] for j in range(3) if j != k):
            made = again(np.concatenate([other, fold]))
            residuals.append(np.stack([y[other] - each[: len(other)] for each in made]))
        e, f = np.concatenate(residuals, axis=1)
        share = np.clip((f * (f - e)).sum(axis=0) / ((f - e) ** 2).sum(axis=0), 0.0, 1.0)
        np.testing.assert_allclose(found.share[k], share, atol=1e-3)
        one, two = again(fold)
        expected = found.share[k] * one + (1.0 - found.share[k]) * two
        np.testing.assert_allclose(found.predict(rows[fold], k), expected, atol=1e-3)


def test_where_outputs_tell_less_than_their_score_it_falls_back(monkeypatch):
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=2**8)
    smooth = 1.0 + all_coalitions(8) @ np.linspace(0.1, 1.0, 8)
    game = table_game((signs * smooth)[:, None])
    estimator = ProxySampling("linear", score=lambda z: np.abs(z[:, 0]))
    chosen = estimate_many(game, estimator, 100, range(3))
    monkeypatch.setattr(lifted, "best_share", lambda behind, plain: np.ones(1))
    forced = estimate_many(game, estimator, 100, range(3))
    exact = shapley(table_game(smooth)).values
    errors = [np.abs([each.values - exact for each in found]).mean() for found in (chosen, forced)]
    assert errors[0] < 0.1 * errors[1]
    assert all("score" not in name or name[1] == "%" for name in chosen[0].info["proxies"])
    assert forced[0].info["proxies"] == ["score of linear"] * 2


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

    def error(game):
        found = estimate_many(game, estimator, 150, range(5))
        return np.sqrt(np.mean([(each.values - exact) ** 2 for each in found]))

    assert error(game) < 0.8 * error(table)


def test_of_many_players_and_many_coalitions_a_part_stands_for_all(monkeypatch):
    exact = shapley(RIGHT).values
    monkeypatch.setattr(proxysampling, "ENUMERATED", 5)  # as beyond 16 players
    monkeypatch.setattr(proxysampling, "PROXY_ROWS", 40)
    monkeypatch.setattr(proxysampling, "FITTED_ROWS", 24)
    estimator = ProxySampling("membership", SHARES, score=share_right)
    assert_honest(estimate_many(table_game(MARGINS), estimator, 36, range(120)), exact)


def test_dealing_coalitions_to_the_proxies_changes_no_mean(monkeypatch):
    """Beside the same sample with every coalition predicted by every proxy."""
    estimator = ProxySampling("membership", SHARES, score=share_right)
    together = estimate_many(table_game(MARGINS), estimator, 24, range(60))
    monkeypatch.setattr(proxysampling, "TOGETHER", 0)
    monkeypatch.setattr(proxysampling, "CROWDED", 0)
    dealt = estimate_many(table_game(MARGINS), estimator, 24, range(60))
    free = estimate(table_game(MARGINS), ProxySampling("auto", SHARES, score=share_right), 24, 0)
    assert not any("mixture" in name.partition(", ")[2] for name in free.info["proxies"])
    off = np.array([a.values - b.values for a, b in zip(dealt, together, strict=True)])
    z = off.mean(axis=0) / (off.std(axis=0, ddof=1) / np.sqrt(60))
    assert np.abs(z).max() < 4.5
    assert off.std() > 1e-4


@pytest.mark.parametrize(("rough", "taken"), [(0.0, False), (0.2, True)])
def test_single_precision_is_taken_only_where_its_rounding_is_nothing(rough, taken, monkeypatch):
    """Of a smooth game a proxy leaves so little that rounding would be a third of an error."""
    n, spread = 13, np.linspace(1.0, 5.0, 13)

    def utility(rows):
        kinks = np.cos(40 * rows @ np.sqrt(np.arange(2.0, n + 2)))
        return 1 - np.exp(-(rows @ spread) / 20) + rough * kinks

    said = []
    guard = proxysampling._fine_enough
    monkeypatch.setattr(
        proxysampling, "_fine_enough", lambda *each: said.append(guard(*each)) or said[-1]
    )
    game = Game(n, utility)
    found = estimate(game, ProxySampling("mixture", sizes=spread), 700, seed=3)
    assert said
    assert all(each is taken for each in said)
    monkeypatch.setattr(proxysampling, "DOUBLE", n)  # the plain way: double precision always
    plain = estimate(game, ProxySampling("mixture", sizes=spread), 700, seed=3)
    off = np.abs(found.values - plain.values) / plain.standard_errors
    assert off.max() < 0.1
    assert bool(off.any()) is taken


def test_a_score_that_is_none_is_refused():
    game = table_game(MARGINS)
    with pytest.raises(ValueError, match=r"score made \(\) of outputs"):
        estimate(game, ProxySampling(score=lambda outputs: outputs.mean()), 36)
    with pytest.raises(ValueError, match="returns finite"):
        estimate(game, ProxySampling(score=lambda outputs: outputs[:, 0] * np.nan), 36)
    with pytest.raises(ValueError, match="budget"):
        estimate(replace(RIGHT, lifted=(table_game(MARGINS), share_right)), ProxySampling(), "100")
    with pytest.raises(ValueError, match=r"expected \[B, N\]"):
        estimate(RIGHT, ProxySampling(score=share_right), 36)
    with pytest.raises(ValueError, match="2 sizes for 6 players"):
        estimate(GAME, ProxySampling(sizes=[1.0, 2.0]), 40)


def test_spread_of_a_proxys_parts_is_that_of_all_players_and_strata():
    squares = np.array([[[0.0], [1.0]], [[0.0], [3.0]]])
    np.testing.assert_allclose(proxysampling._spread(squares), [[0.5], [1.5]])


def test_a_small_fit_uses_one_thread_and_gives_the_others_back(monkeypatch):
    limits = pytest.importorskip("threadpoolctl").threadpool_limits

    def blas():
        return {m["num_threads"] for m in threads._controller().info() if m["user_api"] == "blas"}

    seen, fitted = [], proxysampling._estimate
    monkeypatch.setattr(
        proxysampling, "_estimate", lambda *given: (seen.append(blas()), fitted(*given))[1]
    )
    with limits(2, "blas"):
        before = blas()
        fk.estimate(GAME, fk.ProxySampling(), 30, seed=0)
        monkeypatch.setattr(proxysampling, "SMALL_ROWS", 4)
        fk.estimate(GAME, fk.ProxySampling(), 30, seed=0)
        assert seen == [{1}, before]
        inner, outer = one_thread(), one_thread()
        outer.__enter__()
        inner.__enter__()
        assert blas() == {1}
        outer.__exit__(None, None, None)  # another thread is still within
        assert blas() == {1}
        inner.__exit__(None, None, None)
        assert blas() == before
