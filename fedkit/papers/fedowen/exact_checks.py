"""FedOwen's statements about its estimator, checked exactly on games small enough to enumerate.

Each function returns the largest error of an expectation, over the clients, in units of v(N); a
true statement gives zero up to rounding.  No sampling and no training is involved.
"""

from __future__ import annotations

import math

import numpy as np

from fedkit.estimators import semivalue, shapley
from fedkit.games.game import FunctionGame, TableGame, airport, normalise, tabulate
from fedkit.papers.fedowen.errata import level_weights, walk_mean

__all__ = ["owen_bias", "owen_limit_bias", "truncation_bias"]


def _airport() -> TableGame:
    """Return four clients of costs 1, 2, 4 and 8, scaled to v(N) = 1."""
    return tabulate(normalise(airport([1.0, 2.0, 4.0, 8.0])))


def owen_bias(levels: int = 2) -> float:
    """Error of the mean of Algorithm 1 as printed, without truncation (section 3.3)."""
    game = _airport()
    walks = [walk_mean(game, (level + 1) / levels)[0] for level in range(levels)]
    return float(np.abs(np.mean(walks, axis=0) - shapley(game).values).max())


def owen_limit_bias() -> float:
    """Error of what Algorithm 1 tends to as Q and M grow (Eq. 12)."""
    game = _airport()
    limit = semivalue(game, level_weights(game.n_players, math.inf))
    return float(np.abs(limit - shapley(game).values).max())


def truncation_bias(eta: float = 0.1) -> float:
    """Change that truncation makes in the mean of a full walk (section 3.3, step 5)."""

    def utility(coalitions: np.ndarray) -> np.ndarray:
        gain = np.minimum(coalitions @ np.array([0.3, 0.5, 0.7, 0.0]), 1.2)
        return np.asarray(gain - 0.2 * coalitions[:, 3])  # the last client lowers the utility

    game = FunctionGame(4, utility)
    return float(np.abs(walk_mean(game, 1.0, eta)[0] - walk_mean(game, 1.0)[0]).max())
