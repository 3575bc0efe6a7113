"""Neighbours: values agree with pyDVL's and shapiq's, games and values go there and back."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from refusals import refused

import fedkit as fk
from fedkit.interop import from_pydvl, from_shapiq, to_pydvl, to_shap, to_shapiq

GAMES = {
    "airport": fk.tabulate(fk.airport([1.0, 3.0, 2.0, 5.0, 5.5])),
    "sum": fk.tabulate(fk.random_unanimity_sum(6, 14, 2)),
    "noise": fk.table_game(np.random.default_rng(3).normal(size=64)),
}


def needed(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages about each other
        return pytest.importorskip(name)


@pytest.mark.parametrize("name", GAMES)
def test_exact_values_agree_with_shapiq(name):
    shapiq, game = needed("shapiq"), GAMES[name]
    computer = shapiq.ExactComputer(game=to_shapiq(game), n_players=game.n_players)
    for index, ours in (("SV", fk.shapley), ("BV", fk.banzhaf)):
        theirs = computer(index).get_n_order_values(1)
        np.testing.assert_allclose(ours(game).values, theirs, atol=1e-10)
    back = from_shapiq(to_shapiq(game))
    np.testing.assert_allclose(fk.tabulate(back).table, game.table)


def test_a_game_of_shapiq_is_taken_as_it_is_centred_or_not():
    shapiq = needed("shapiq")

    class Voting(shapiq.Game):
        def value_function(self, coalitions):
            return coalitions @ np.array([1.0, 2.0, 4.0]) + 7

    for centred, empty in ((True, 0.0), (False, 7.0)):
        game = from_shapiq(Voting(3, normalize=centred, normalization_value=7.0))
        assert game([[False] * 3])[0] == empty
        np.testing.assert_allclose(fk.shapley(game).values, [1, 2, 4])


@pytest.mark.parametrize("name", GAMES)
def test_exact_values_agree_with_pydvl(name):
    pydvl, game = needed("pydvl.valuation"), GAMES[name]
    utility, data = to_pydvl(game)
    for kind, ours, more in (
        (pydvl.ShapleyValuation, fk.shapley(game), {}),
        (pydvl.BanzhafValuation, fk.banzhaf(game), {}),
        (pydvl.BetaShapleyValuation, fk.beta_shapley(game, 4.0, 1.0), {"alpha": 4.0, "beta": 1.0}),
    ):
        sampler = pydvl.DeterministicUniformSampler()
        valuation = kind(utility, sampler, pydvl.NoStopping(), progress=False, **more)
        valuation.fit(data)
        result = valuation.result.sort(key="index")
        np.testing.assert_allclose(ours.values, result.values, atol=1e-8)
    back = from_pydvl(utility, game.n_players)
    np.testing.assert_allclose(fk.tabulate(back).table, game.table)


def test_a_game_of_several_outputs_is_refused_with_a_way_out():
    vector = fk.random_unanimity_sum(4, 6, 0, n_outputs=3)
    column = fk.Game(4, lambda rows: vector(rows)[:, 0])
    for there in (to_shapiq, to_pydvl):
        refused(r"utilities of 3 numbers.*\[:, 0\]", there, vector)
        there(column)


def test_a_model_utility_of_pydvl_is_a_game_by_retraining():
    pydvl = needed("pydvl.valuation")
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    train, test = pydvl.Dataset(x[:5], y[:5]), pydvl.Dataset(x[5:], y[5:])
    tree = DecisionTreeRegressor(random_state=0)
    scorer = pydvl.SupervisedScorer(tree, test, default=0.0)
    theirs = from_pydvl(pydvl.ModelUtility(tree, scorer).with_dataset(train), 5)
    points = [(x[i : i + 1], y[i : i + 1]) for i in range(5)]
    ours = fk.retraining_game(tree, points, (x[5:], y[5:]))
    # of nobody's data each has a guess of its own
    np.testing.assert_allclose(fk.tabulate(theirs).table[1:], fk.tabulate(ours).table[1:])


def test_values_are_explanations_of_shap():
    needed("shap")
    game = GAMES["airport"]
    one = to_shap(fk.shapley(game).named(list("abcde")), base=0.5, data=range(5))
    np.testing.assert_array_equal(one.values, fk.shapley(game).values)
    assert (one.base_values, one.feature_names) == (0.5, list("abcde"))
    assert one.data.tolist() == list(range(5))
    alone = fk.estimate(game, fk.PermutationSampling(), budget=50, count="calls")
    np.testing.assert_array_equal(to_shap(alone).error_std, alone.standard_errors)
    sampler = fk.PermutationSampling()
    found = fk.estimate_many(game, sampler, budget=100, seeds=range(3), count="calls")
    several = to_shap(found, base=[1, 2, 3], data=range(5))
    refused(r"data has shape \(2,\); expected \(5,\) or \(3, 5\)", to_shap, found, data=[1, 2])
    assert several.values.shape == several.data.shape == (3, 5)
    np.testing.assert_array_equal(several.values[1], found[1].values)
    np.testing.assert_array_equal(several.error_std[2], found[2].standard_errors)
    np.testing.assert_array_equal(several.base_values, [1, 2, 3])
    shares = fk.shapley(fk.normalise(fk.airport([100.0, 200.0, 300.0])))
    assert to_shap(shares).values.sum() == pytest.approx(300.0)  # in the utility's units
    vector = fk.shapley(fk.random_unanimity_sum(4, 6, 0, n_outputs=3))
    np.testing.assert_array_equal(to_shap(vector).values, vector.values.T)
    for bad in ([], [1], "abc", [fk.shapley(game), fk.shapley(fk.airport([1.0]))]):
        refused("all alike", to_shap, bad)
