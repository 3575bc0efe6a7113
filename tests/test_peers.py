"""Cross-checks against pyDVL and shapiq, where they are installed."""

from __future__ import annotations

import numpy as np
import pytest

from fedkit.estimators import MultilinearSampling, estimate
from fedkit.games import airport, all_coalitions, random_unanimity_sum, table_game, tabulate
from fedkit.games.exact import banzhaf, beta_shapley, shapley

GAMES = {
    "airport": tabulate(airport([1.0, 3.0, 2.0, 5.0, 5.5])),
    "sum": tabulate(random_unanimity_sum(6, 14, 2)),
    "noise": table_game(np.random.default_rng(3).normal(size=64)),
}


def batched(table):
    """The game as shapiq calls it: sometimes with one coalition instead of a batch."""
    return lambda coalitions: table(np.atleast_2d(coalitions))


@pytest.mark.parametrize("name", GAMES)
def test_exact_values_agree_with_shapiq(name):
    shapiq = pytest.importorskip("shapiq")
    table = GAMES[name]
    peer = shapiq.ExactComputer(game=batched(table), n_players=table.n_players)
    for index, ours in (("SV", shapley), ("BV", banzhaf)):
        theirs = peer(index).get_n_order_values(1)
        np.testing.assert_allclose(ours(table).values, theirs, atol=1e-10)


def fit_pydvl(table, kind, **settings):
    """Value the rows of a dummy data set whose utility is a table."""
    from pydvl.valuation import Dataset
    from pydvl.valuation.utility.base import UtilityBase

    n = table.n_players

    class TableUtility(UtilityBase):
        def __call__(self, sample):
            if sample is None:
                return float(table.table[0])
            row = np.zeros((1, n), dtype=bool)
            row[0, np.asarray(sample.subset, dtype=int)] = True
            return float(table(row)[0])

    data = Dataset(np.arange(n, dtype=float)[:, None], np.zeros(n))
    valuation = kind(utility=TableUtility(), progress=False, **settings)
    valuation.fit(data)
    result = valuation.result
    values = np.empty(n)
    values[np.asarray(result.indices, dtype=int)] = result.values
    return values


@pytest.mark.parametrize("name", GAMES)
def test_exact_values_agree_with_pydvl(name):
    pytest.importorskip("pydvl")
    from pydvl.valuation import (
        BanzhafValuation,
        BetaShapleyValuation,
        DeterministicUniformSampler,
        NoStopping,
        ShapleyValuation,
    )

    table = GAMES[name]
    for kind, ours, more in (
        (ShapleyValuation, shapley(table), {}),
        (BanzhafValuation, banzhaf(table), {}),
        (BetaShapleyValuation, beta_shapley(table, 4.0, 1.0), {"alpha": 4.0, "beta": 1.0}),
    ):
        how = {"sampler": DeterministicUniformSampler(), "is_done": NoStopping()}
        np.testing.assert_allclose(ours.values, fit_pydvl(table, kind, **how, **more), atol=1e-8)


def test_the_peers_owen_grid_is_biased_and_ours_is_not():
    shapiq = pytest.importorskip("shapiq")
    n = 8
    game = table_game(all_coalitions(n).all(axis=1).astype(float))  # unanimity of everybody
    theirs = shapiq.OwenSamplingSV(n=n, n_anchor_points=5, random_state=0)
    grid = theirs.approximate(20_000, batched(game)).get_n_order_values(1)
    assert grid.mean() > 1.3 / n  # both ends of the grid weigh as much as its inside
    ours = estimate(game, MultilinearSampling("gauss", draws=1000), seed=0)
    np.testing.assert_allclose(ours.values, 1 / n, atol=5 * ours.standard_errors.max())
