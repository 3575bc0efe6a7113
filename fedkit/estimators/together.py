"""What clients are worth together: pairwise interactions, and payments that nobody leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkit.games.coalitions import all_coalitions, players_of
from fedkit.games.exact import popcounts, shapley_weights
from fedkit.games.game import Game, tabulate
from fedkit.games.valuation import Valuation

__all__ = ["least_core", "shapley_interactions"]

Floats = NDArray[np.float64]

CORE_PLAYERS = 15


def shapley_interactions(game: Game) -> Floats:
    """Return the Shapley interaction index of every pair of players (Grabisch & Roubens 1999).

    For players i and j the mean of ``v(S + i + j) - v(S + i) - v(S + j) + v(S)`` over coalitions S
    of the others, each of their n - 1 sizes weighted alike.  Copies of one client and clients that
    are redundant have a negative index, clients that need each other a positive one.

    For a table of named pairs, with errors where it is sampled, estimate
    ``ProxySampling(value="interactions")`` and call ``found.named(players)``.

    Parameters
    ----------
    game : Game
        At most 24 players, and two at least.

    Returns
    -------
    float64 array, shape (n, n) or (n, n, m)
        Symmetric, with zeros on the diagonal.

    Raises
    ------
    ValueError
        If there is one player only, there are too many, or a utility is not finite.
    """
    n = players_of(game)
    if n < 2:
        raise ValueError(f"the game has {n} player; an interaction is between two")
    table = tabulate(game).values
    outputs = table.shape[1:]
    weights = shapley_weights(n - 1)[popcounts(n - 2)]
    result = np.zeros((n, n, *outputs))
    for j in range(1, n):
        for i in range(j):
            # axes: players above j, j, players between, i, players below i
            cube = table.reshape(-1, 2, 2 ** (j - i - 1), 2, 2**i, *outputs)
            cross = cube[:, 1, :, 1] - cube[:, 1, :, 0] - cube[:, 0, :, 1] + cube[:, 0, :, 0]
            result[i, j] = result[j, i] = weights @ cross.reshape(len(weights), *outputs)
    return result


def least_core(game: Game) -> Valuation:
    """Return payments that hand out v(N) - v(empty) and leave the worst-off coalition best off.

    The least core (Maschler, Peleg & Shapley 1979): the smallest e such that every coalition S is
    paid at least ``v(S) - v(empty) - e``.  With e <= 0 no coalition gains by leaving.  Where
    several payments reach it, that of least squared sum is taken, so that the answer is unique.

    Parameters
    ----------
    game : Game
        At most 15 players, one utility each.

    Returns
    -------
    Valuation
        ``info["deficit"]`` is e.

    Raises
    ------
    ValueError
        If there are more than 15 players, several outputs, a utility that is not finite, or no
        solution is found.
    """
    from scipy.optimize import linprog

    n = players_of(game)
    if n > CORE_PLAYERS:
        raise ValueError(
            f"the game has {n} players; the least core weighs 2**n coalitions and takes at most "
            f"{CORE_PLAYERS}"
        )
    table = tabulate(game)
    if table.values.ndim != 1:
        raise ValueError(
            f"the game has {table.values.shape[1]} outputs; the least core is of one: pass a game "
            "of one column"
        )
    worth = table.values - table.values[0]
    unit = float(np.abs(worth).max()) or 1.0  # the solvers' tolerances are absolute
    worth /= unit
    rows = all_coalitions(n).astype(np.float64)
    if n == 1:
        payments, deficit = worth[1:].copy(), 0.0
    else:
        proper, claims = rows[1:-1], worth[1:-1]
        # x(S) + e >= claim, x(N) = v(N): minimise e
        solved = linprog(
            np.r_[np.zeros(n), 1.0],
            A_ub=-np.column_stack([proper, np.ones(len(proper))]),
            b_ub=-claims,
            A_eq=np.r_[np.ones(n), 0.0][None],
            b_eq=[worth[-1]],
            bounds=[(None, None)] * (n + 1),
            method="highs",
        )
        if not solved.success:
            raise ValueError(f"the least core was not found: {solved.message}")
        deficit = float(solved.x[-1])
        payments = _smallest(proper, claims - deficit, worth[-1], solved.x[:n])
    info = {"deficit": deficit * unit}
    return Valuation(
        payments * unit, np.zeros(n), 2**n, 2**n - 1, "least_core", exact=True, info=info
    )


def _smallest(rows: Floats, claims: Floats, total: float, start: Floats) -> Floats:
    """Return the payments of least squared sum with ``rows @ x >= claims`` and this total.

    Constraints that are violated are added until there are none; each step is a projection,
    whose dual is a non-negative least squares problem.
    """
    from scipy.optimize import nnls

    n = rows.shape[1]
    slack = 1e-9 * max(1.0, float(np.abs(claims).max()))
    active = np.zeros(len(rows), dtype=np.bool_)
    payments = np.full(n, total / n)
    for _ in range(1000):
        gap = claims - rows @ payments
        worst = np.argsort(-gap)[: 2 * n]
        new = worst[(gap[worst] > slack) & ~active[worst]]
        if len(new) == 0:
            return payments
        active[new] = True
        # within the plane of the total: x = mean + z, sum z = 0, A z >= b
        a = rows[active] - rows[active].mean(axis=1, keepdims=True)
        b = claims[active] - rows[active].sum(axis=1) * total / n
        # Lawson & Hanson: least distance programming through non-negative least squares
        dual, _ = nnls(np.vstack([a.T, b]), np.r_[np.zeros(n), 1.0])
        rest = np.vstack([a.T, b]) @ dual - np.r_[np.zeros(n), 1.0]
        if np.linalg.norm(rest) < 1e-12:
            return start  # the claims leave a point at rounding precision: the solver's own
        payments = total / n - rest[:n] / rest[n]
    return start
