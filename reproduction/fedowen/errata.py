"""What FedOwen's Algorithm 1 computes, exactly: the expectation that its text takes for Shapley's.

A walk at inclusion level q visits the clients that arrive before time q when all clients arrive
at independent uniform times.  Client j is therefore credited at time s <= q, in front of a
coalition that holds every other client with probability s, and the mean of a walk is
``int_0^q e_j(s) ds``: the Shapley value at q = 1 alone.  The functions below evaluate that
mean, with the truncation of line 15 if asked for, without any sampling.

:func:`owen_bias`, :func:`owen_limit_bias` and :func:`truncation_bias` are the paper's statements
about its estimator, on small games: the largest error of an expectation over the clients, in units
of v(N).  A true statement gives zero up to rounding.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np

from fedkit.checks import Floats
from fedkit.games import Game, airport, all_coalitions, normalise, shapley, tabulate
from fedkit.games.exact import beta_weights, semivalue


def level_weights(n_players: int, levels: float) -> Floats:
    """Weight that Algorithm 1 without truncation gives, on average, to a marginal by its size.

    ``(1/Q) sum_i int_0^(i/Q) t^s (1-t)^(n-1-s) dt`` for s other clients; Q = 1 gives Shapley's.
    """
    if levels == math.inf:
        return beta_weights(n_players, 2, 1) / 2
    from fedkit.methods.fedowen import OwenSampling  # it brings torch

    return np.asarray(OwenSampling(levels=int(levels), eta=None).weights(n_players))


def walk_mean(game: Game, level: float, eta: float | None = None) -> tuple[Floats, float]:
    """Exact mean of one walk of Algorithm 1, by enumeration of its masks and orders.

    `level` is the inclusion probability; `eta` the tolerance of line 15.  Returns the expected
    credit of each client, and the expected number of utility calls.
    """
    n = game.n_players
    if n > 7:
        raise ValueError(f"the game has {n} players; orders are enumerated for 7 at the most")
    coalitions, table = all_coalitions(n), tabulate(game)(all_coalitions(n))
    values, evaluations = np.zeros(n), 0.0
    for members in coalitions:
        visited = np.flatnonzero(members)
        mass = level ** len(visited) * (1 - level) ** (n - len(visited))
        mass /= math.factorial(len(visited))
        for order in permutations(visited.tolist()) if mass > 0 else ():
            inside, before, left = 0, 0.0, 1.0  # lines 7 to 9
            for j in order:
                inside |= 1 << j
                gain = float(table[inside]) - before
                values[j] += mass * gain
                evaluations += mass
                left -= gain
                if eta is not None and left < eta:  # line 15
                    break
                before += gain
    return values, evaluations


def _airport() -> Game:
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

    game = Game(4, utility)
    return float(np.abs(walk_mean(game, 1.0, eta)[0] - walk_mean(game, 1.0)[0]).max())
