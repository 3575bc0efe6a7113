"""What FedOwen's Algorithm 1 computes, exactly: the expectation that its text takes for Shapley's.

A walk at inclusion level q visits the clients that arrive before time q when all clients arrive
at independent uniform times.  Client j is therefore credited at time s <= q, in front of a
coalition that holds every other client with probability s, and the mean of a walk is
``int_0^q e_j(s) ds``: the Shapley value at q = 1 alone.  The functions below evaluate that
mean, with the truncation of line 15 if asked for, without any sampling.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import numpy.typing as npt

from fedkit.estimators import beta_weights
from fedkit.games.game import Game, all_coalitions, tabulate
from fedkit.methods.fedowen import OwenSampling

__all__ = ["level_weights", "walk_mean"]

FloatArray = npt.NDArray[np.float64]


def level_weights(n_players: int, levels: float) -> FloatArray:
    """Weight that Algorithm 1 without truncation gives, on average, to a marginal by its size.

    Parameters
    ----------
    n_players : int
        Number of clients n.
    levels : int or math.inf
        Number Q of inclusion levels i/Q; 1 gives Shapley's weights.

    Returns
    -------
    float64[n]
        Entry s is the weight of ``v(S + j) - v(S)`` for each coalition S of s other clients:
        ``(1/Q) sum_i int_0^(i/Q) t^s (1-t)^(n-1-s) dt``.

    Raises
    ------
    ValueError
        If there is no client or less than one level.

    References
    ----------
    Proved in the chapter on FedOwen's theory; KhademSohi et al. (2025), Algorithm 1.
    """
    if n_players < 1:
        raise ValueError(f"n_players is {n_players}; a game needs at least one player")
    if not (levels >= 1 and (levels == math.inf or levels == int(levels))):
        raise ValueError(f"levels is {levels}; expected a whole number from 1, or math.inf")
    if levels == math.inf:
        return beta_weights(n_players, 2, 1) / 2
    return np.asarray(OwenSampling(levels=int(levels), eta=None).weights(n_players))


def walk_mean(game: Game, level: float, eta: float | None = None) -> tuple[FloatArray, float]:
    """Exact mean of one walk of Algorithm 1, by enumeration of its masks and orders.

    Parameters
    ----------
    game : Game
        Of at most 7 players, with v(empty) = 0 and v(N) = 1 as the paper asks.
    level : float
        Inclusion probability q, from 0 to 1.
    eta : float, optional
        Truncation tolerance of line 15; left out, no walk is cut.

    Returns
    -------
    values : float64[n]
        Expected credit of each client in one walk.
    evaluations : float
        Expected number of utility calls of one walk.

    Raises
    ------
    ValueError
        If the game has more than 7 players or the level is no probability.
    """
    n = game.n_players
    if n > 7:
        raise ValueError(f"the game has {n} players; orders are enumerated for 7 at the most")
    if not 0.0 <= level <= 1.0:
        raise ValueError(f"level is {level}; an inclusion probability lies between 0 and 1")
    coalitions, table = all_coalitions(n), tabulate(game).values
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
