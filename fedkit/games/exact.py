"""Exact values of a game from the table of all its utilities.

Shapley, Banzhaf and Beta values are averages of the marginals ``v(S + i) - v(S)`` with a weight
that depends on the size of `S` alone (Dubey, Neyman & Weber 1981): a semivalue is a vector of
weights, and one routine serves all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from fedkit.checks import Floats, real, vector
from fedkit.games.game import Game, as_game, facts_of, tabulate
from fedkit.games.valuation import Valuation


def shapley_weights(n: int) -> Floats:
    """Weight ``s! (n-1-s)! / n!`` of one coalition of each size s = 0..n-1 (FedOwen, Eq. 1)."""
    try:
        return np.array([1.0 / (n * comb(n - 1, s)) for s in range(n)])
    except OverflowError:  # so many players that a weight may be too small for a float, and is 0
        return beta_weights(n, 1.0, 1.0)


def banzhaf_weights(n: int) -> Floats:
    """Weight ``2**-(n-1)`` of every coalition."""
    return np.full(n, 0.5 ** (n - 1))


def beta_weights(n: int, alpha: float, beta: float) -> Floats:
    """Weight of one coalition of each size s = 0..n-1 for the Beta(alpha, beta) semivalue.

    With ``j = s + 1`` the size class weighs ``p_j = C(n-1, j-1) B(j+beta-1, n-j+alpha) /
    B(alpha, beta)`` (Kwon & Zou 2022); here it is divided by its ``C(n-1, j-1)`` coalitions.
    Large `alpha` favours small coalitions; ``alpha = beta = 1`` is Shapley.
    """
    real("alpha", alpha, 0.0, above=True)
    real("beta", beta, 0.0, above=True)
    s = np.arange(n)
    with np.errstate(invalid="ignore"):
        logs: Floats = betaln(s + beta, n - 1 - s + alpha) - betaln(alpha, beta)
    # of so large parameters that rounding decides, the weights of all sizes are not 1 together
    classes = np.exp(logs + gammaln(n) - gammaln(s + 1) - gammaln(n - s))
    if not abs(classes.sum() - 1.0) < 1e-6:
        raise ValueError(f"alpha is {alpha} and beta {beta}; too extreme for exact weights")
    return np.exp(logs)


def semivalue(game: Game, weights: Floats) -> Floats:
    """Return ``sum over S without i of weights[|S|] (v(S + i) - v(S))``, float64[n] or [n, m].

    All utilities are asked for; `weights`, float64[n], are those of one coalition of each size
    0..n-1.
    """
    n = as_game(game).n_players
    weights = vector("weights", weights, n)
    values = tabulate(game).table
    assert values is not None
    outputs = values.shape[1:]
    # deleting bit i keeps the order of the other bits: one weight vector serves all players
    weight = weights[popcounts(n - 1)]
    result = np.empty((n, *outputs))
    for i in range(n):  # the middle axis is bit i of a coalition's index
        split = values.reshape(-1, 2, 2**i, *outputs)
        marginals = (split[:, 1] - split[:, 0]).reshape(2 ** (n - 1), *outputs)
        result[i] = weight @ marginals
    return result


def popcounts(bits: int) -> NDArray[np.uint8]:
    """Return the sizes of all coalitions of so many players, by index."""
    counts = np.zeros(1, dtype=np.uint8)
    for _ in range(bits):
        counts = np.concatenate([counts, counts + 1])
    return counts


def shapley(game: Game) -> Valuation:
    """Return the exact Shapley values (FedOwen, Eq. 1) from all ``2**n`` utilities.

    Parameters
    ----------
    game : Game
        At most 24 players; of many, :func:`tabulate` takes the coalitions in smaller batches.

    Returns
    -------
    Valuation
    """
    return _exact(game, shapley_weights, "shapley")


def banzhaf(game: Game) -> Valuation:
    """Return the exact Banzhaf values: the mean marginal over all coalitions of the others.

    Parameters
    ----------
    game : Game

    Returns
    -------
    Valuation
    """
    return _exact(game, banzhaf_weights, "banzhaf")


def beta_shapley(game: Game, alpha: float, beta: float) -> Valuation:
    """Return the exact Beta(alpha, beta) semivalues (Kwon & Zou 2022).

    Parameters
    ----------
    game : Game
    alpha, beta : float
        Of the weight of a coalition's size; (1, 1) is the Shapley value, a larger `alpha` favours
        small coalitions.

    Returns
    -------
    Valuation
    """
    weights = partial(beta_weights, alpha=alpha, beta=beta)
    return _exact(game, weights, f"beta_shapley(alpha={alpha}, beta={beta})")


def leave_one_out(game: Game) -> Valuation:
    """Return ``v(N) - v(N without i)``: n + 1 evaluations, no other coalition looked at.

    Parameters
    ----------
    game : Game

    Returns
    -------
    Valuation
    """
    n = as_game(game).n_players
    utilities = game(np.concatenate([np.ones((1, n), dtype=np.bool_), ~np.eye(n, dtype=np.bool_)]))
    values = utilities[0] - utilities[1:]
    calls = n + 1 if n > 1 else 1  # with one player, leaving it out gives the empty coalition
    return _known(game, values, n + 1, calls, "leave_one_out", lambda n: np.eye(n)[-1])


def _exact(game: Game, weights: Callable[[int], Floats], method: str) -> Valuation:
    n = as_game(game).n_players
    values = semivalue(game, weights(n))
    return _known(game, values, 2**n, 2**n - 1, method, weights)


def _known(
    game: Game, values: Floats, evaluations: int, calls: int, method: str, weights: Any
) -> Valuation:
    facts = facts_of(game, weights)
    errors = np.zeros_like(values)
    return Valuation(values, errors, evaluations, calls, method, exact=True, info=facts)
