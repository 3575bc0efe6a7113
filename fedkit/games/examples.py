"""Games whose values are known in closed form: the ground truth of the tests and of the book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.checks import Bools, brief, vector, whole, whole_or_none
from fedkit.games.coalitions import Coalitions, Utilities
from fedkit.games.exact import shapley_weights
from fedkit.games.game import Game


@dataclass(eq=False, repr=False)
class Example(Game):
    """A game whose method ``shapley()`` returns its Shapley values in closed form, float64[n]."""

    shapley: Callable[[], Utilities] = field(kw_only=True, repr=False)


def airport(costs: ArrayLike) -> Example:
    """Return the airport game of Littlechild and Owen (1973): a runway serves its longest plane.

    ``v(S)`` is the largest cost in `S`; those who need a piece of runway share its cost.

    Parameters
    ----------
    costs : array_like of float
        Cost of the runway that each player needs, non-negative.

    Returns
    -------
    Example
    """
    array = vector("costs", costs)
    if (array < 0).any():
        raise ValueError(f"costs are {brief(costs)}; expected non-negative numbers")
    steps = np.sort(array)
    return _unanimity_sum(
        array >= steps[:, None],
        np.diff(steps, prepend=0.0),
        lambda rows: np.where(rows, array, 0.0).max(axis=1),
    )


def unanimity(n_players: int, carrier: ArrayLike) -> Example:
    """Return the game that is worth 1 when every player listed in `carrier` is in, else 0.

    Parameters
    ----------
    n_players : int
    carrier : array_like of int
        Players who must all be in.

    Returns
    -------
    Example
    """
    whole("n_players", n_players, 1)
    members = vector("carrier", carrier)
    if not np.isin(members, np.arange(n_players)).all():
        raise ValueError(f"carrier is {brief(carrier)}; expected players from 0 to {n_players - 1}")
    row = np.zeros((1, n_players), dtype=np.bool_)
    row[0, members.astype(np.int64)] = True
    return _unanimity_sum(row, np.ones(1))


def random_unanimity_sum(
    n_players: int, terms: int, seed: int, n_outputs: int | None = None
) -> Example:
    """Return a random sum of unanimity games: carriers of uniform size, normal coefficients.

    Parameters
    ----------
    n_players, terms, seed : int
    n_outputs : int, optional
        With `m` outputs the coefficients are ``(terms, m)`` and the game is vector-valued.

    Returns
    -------
    Example
    """
    whole("n_players", n_players, 1)
    whole("terms", terms, 1)
    whole_or_none("n_outputs", n_outputs, 1)
    rng = np.random.default_rng(whole("seed", seed, 0))
    sizes = rng.integers(1, n_players + 1, size=terms)
    places = rng.permuted(np.tile(np.arange(n_players), (terms, 1)), axis=1)
    shape = (terms,) if n_outputs is None else (terms, n_outputs)
    return _unanimity_sum(places < sizes[:, None], rng.normal(size=shape))


def _unanimity_sum(
    carriers: Bools, dividends: Utilities, utilities: Callable[[Coalitions], Any] | None = None
) -> Example:
    """Return ``v(S) = sum of the dividends of the carriers inside S``."""

    def inside(rows: Coalitions) -> Utilities:
        absent = (~rows).astype(np.float32) @ carriers.T.astype(np.float32)
        return np.asarray((absent == 0).astype(np.float64) @ dividends)

    def shapley() -> Utilities:
        return np.asarray((carriers / carriers.sum(axis=1, keepdims=True)).T @ dividends)

    return Example(carriers.shape[1], utilities or inside, shapley=shapley)


def glove(left: int, right: int) -> Example:
    """Return the glove game: ``v(S)`` is the number of pairs; owners of left gloves come first.

    Parameters
    ----------
    left, right : int
        Owners of a left and of a right glove.

    Returns
    -------
    Example
    """
    sides = whole("left", left, 1), whole("right", right, 1)

    def pairs(rows: Coalitions) -> Utilities:
        return np.minimum(rows[:, :left].sum(axis=1), rows[:, left:].sum(axis=1)).astype(np.float64)

    def shapley() -> Utilities:
        counts = np.zeros((2, left + right))  # coalitions of each size that a player completes
        for side, (own, others) in enumerate((sides, sides[::-1])):
            for a in range(own):
                for b in range(a + 1, others + 1):
                    counts[side, a + b] += comb(own - 1, a) * comb(others, b)
        return np.repeat(counts @ shapley_weights(left + right), sides)

    return Example(left + right, pairs, shapley=shapley)


def weighted_majority(weights: ArrayLike, quota: int) -> Example:
    """Return a vote: ``v(S) = 1`` when the weights of `S` reach the quota, else 0.

    Parameters
    ----------
    weights : array_like of int
        At least 0; memory grows with ``players * (sum of weights)``.
    quota : int
        Sum of weights that wins, positive.

    Returns
    -------
    Example
    """
    array = vector("weights", weights)
    if (array < 0).any() or (array != np.floor(array)).any():
        raise ValueError(f"weights are {brief(weights)}; expected whole numbers of at least 0")
    whole("quota", quota, 1)  # at 0 the empty one wins
    each = array.astype(np.int64)

    def wins(rows: Coalitions) -> Utilities:
        return (rows @ each >= quota).astype(np.float64)

    def shapley() -> Utilities:
        found = np.zeros((len(each), len(each)))  # coalitions of each size that a player completes
        for player, own in enumerate(each.tolist()):
            others = np.delete(each, player).tolist()
            # losing coalitions of the others by [size, weight]: dynamic programming
            columns = min(quota, sum(others) + 1)
            counts = np.zeros((len(each), columns))
            counts[0, 0] = 1.0
            for weight in others:
                joined = np.zeros_like(counts)
                if weight < columns:
                    joined[1:, weight:] = counts[:-1, : columns - weight]
                counts = counts + joined
            if own:
                found[player] = counts[:, max(quota - own, 0) :].sum(axis=1)
        return found @ shapley_weights(len(each))

    return Example(len(each), wins, shapley=shapley)
