"""What an estimator gives over many seeds, run in lockstep.

The seeds are fixed, so the tests are deterministic; bounds are set so that an unbiased estimator
with honest standard errors passes with room.
"""

from __future__ import annotations

import numpy as np

from fedkit.estimators import estimate_many
from fedkit.games import all_coalitions, table_game

N = 6
REPEATS = 240


def lopsided(outputs=()):
    """A game without symmetric players, v(empty) = 0.4, neither monotone nor convex."""
    rows = all_coalitions(N)
    noise = np.random.default_rng(5).normal(size=(2**N, *outputs))
    lean = rows @ np.array([0.3, -0.2, 1.0, 0.1, 0.6, -0.5])
    smooth = 0.4 + lean * (0.5 + rows.sum(axis=1) / N)
    return table_game(smooth.reshape(-1, *(1,) * len(outputs)) + 0.3 * noise)


GAME = lopsided()
ZERO = table_game(GAME.table - GAME.table[0])  # for Algorithm 1, which assumes v(empty) = 0


def run(estimator, budget, count="calls", game=GAME, repeats=REPEATS):
    results = estimate_many(game, estimator, budget, range(repeats), count=count)
    return (
        np.array([result.values for result in results]),
        np.array([result.standard_errors for result in results]),
    )


def assert_unbiased(values, target):
    z = (values.mean(axis=0) - target) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))
    assert np.abs(z).max() < 4.5, z
    assert np.square(z).mean() < 4, z  # 1 is expected: small errors of many players add up


def assert_calibrated(values, errors, target, conservative=False):
    covered = (np.abs(values - target) < 1.959964 * errors).mean()
    assert 0.90 < covered < (1.0 if conservative else 0.975), covered
    ratio = np.sqrt((errors**2).mean() / values.var(axis=0, ddof=1).mean())
    assert 0.93 < ratio < (2.0 if conservative else 1.07), ratio
