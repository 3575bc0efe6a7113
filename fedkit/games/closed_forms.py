"""Games whose values are known in closed form: the ground truth of the tests and of the book.

Each is a game (``n_players``, ``value``) with ``shapley()`` and ``banzhaf()``.  All of them take
unequal players, because symmetric games hide mistakes such as an inclusion probability of
``1 - q`` for ``q``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import one_line, vector, whole
from fedkit.games.coalitions import Utilities, check_coalitions

__all__ = ["airport", "glove", "random_unanimity_sum", "unanimity", "weighted_majority"]

MOST = 10**6  # players, terms and outputs; a slip beyond would ask for memory that nobody has
MOST_COUNTED = 1000  # players up to which numbers of coalitions are floats
MOST_ENTRIES = 2**26  # of the table of coalitions by size and weight: half a GiB


@one_line
@dataclass(frozen=True, eq=False)
class UnanimitySum:
    """``v(S) = sum of the coefficients of the carriers inside S``: any game is of this form.

    Attributes
    ----------
    carriers : bool array, shape (terms, n)
        Non-empty coalitions.
    coefficients : float64 array, shape (terms,) or (terms, m)
        Harsanyi dividends of the carriers.
    """

    carriers: NDArray[np.bool_]
    coefficients: Utilities

    @property
    def n_players(self) -> int:
        return self.carriers.shape[1]

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        absent = (~rows).astype(np.float32) @ self.carriers.T.astype(np.float32)
        return (absent == 0).astype(np.float64) @ self.coefficients

    def shapley(self) -> Utilities:
        """Each dividend is shared equally by its carrier."""
        return self._shared(1.0 / self.carriers.sum(axis=1))

    def banzhaf(self) -> Utilities:
        """Each member gets the dividend when the rest of its carrier is there, or none of it."""
        return self._shared(0.5 ** (self.carriers.sum(axis=1) - 1.0))

    def _shared(self, share: Utilities) -> Utilities:
        return (self.carriers * share[:, None]).T @ self.coefficients


@one_line
@dataclass(frozen=True, eq=False)
class AirportGame(UnanimitySum):
    """A runway serves its longest plane: ``v(S) = max of costs in S``, and 0 for nobody.

    The carriers are those who need a piece of runway, and its cost is the coefficient; *one* of
    them is enough: the dual of the unanimity games, with their values.
    """

    costs: Utilities

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        return np.where(rows, self.costs, 0.0).max(axis=1)


class _Counted:
    """A game whose marginals are 0 or 1: values count the coalitions that a player completes."""

    @property
    def n_players(self) -> int:
        raise NotImplementedError

    def decisive(self) -> Utilities:
        """Return how many coalitions of each size each player completes, ``[n, n]``."""
        raise NotImplementedError

    def shapley(self) -> Utilities:
        counts = self._counts()
        n = len(counts)
        return counts @ np.array([1.0 / (n * comb(n - 1, s)) for s in range(n)])

    def banzhaf(self) -> Utilities:
        counts = self._counts()
        return counts.sum(axis=1) * 0.5 ** (len(counts) - 1)

    def _counts(self) -> Utilities:
        if self.n_players > MOST_COUNTED:
            raise ValueError(
                f"the game has {self.n_players} players; values are counted for at most "
                f"{MOST_COUNTED}, so sample them (fk.estimate)"
            )
        return self.decisive()


@dataclass(frozen=True)
class GloveGame(_Counted):
    """Pairs of gloves: ``v(S) = min(left gloves, right gloves)``; left-hand owners come first."""

    left: int
    right: int

    @property
    def n_players(self) -> int:
        return self.left + self.right

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        left = rows[:, : self.left].sum(axis=1)
        return np.minimum(left, rows[:, self.left :].sum(axis=1)).astype(np.float64)

    def decisive(self) -> Utilities:
        counts = np.zeros((2, self.n_players))
        for side, (own, others) in enumerate(((self.left, self.right), (self.right, self.left))):
            for a in range(own):
                for b in range(a + 1, others + 1):
                    counts[side, a + b] += comb(own - 1, a) * comb(others, b)
        return np.repeat(counts, [self.left, self.right], axis=0)


@one_line
@dataclass(frozen=True, eq=False)
class WeightedMajorityGame(_Counted):
    """``v(S) = 1`` when the weights of `S` reach the quota, else 0; integer weights."""

    weights: NDArray[np.int64]
    quota: int

    @property
    def n_players(self) -> int:
        return len(self.weights)

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        return (rows @ self.weights >= self.quota).astype(np.float64)

    def decisive(self) -> Utilities:
        most = MOST_ENTRIES // self.n_players
        if min(self.quota, int(self.weights.sum()) + 1) > most:
            raise ValueError(
                f"quota is {self.quota} and the weights sum to {self.weights.sum()}; values are "
                f"counted where either is below {most:,}: divide them by what they have in common, "
                "take fk.shapley of up to 24 players, or sample (fk.estimate)"
            )
        found = np.zeros((self.n_players, self.n_players))
        for player, own in enumerate(self.weights.tolist()):
            others = np.delete(self.weights, player).tolist()
            # losing coalitions of the others by [size, weight]: dynamic programming
            columns = min(self.quota, sum(others) + 1)
            counts = np.zeros((self.n_players, columns))
            counts[0, 0] = 1.0
            for weight in others:
                joined = np.zeros_like(counts)
                if weight < columns:
                    joined[1:, weight:] = counts[:-1, : columns - weight]
                counts = counts + joined
            if own:
                found[player] = counts[:, max(self.quota - own, 0) :].sum(axis=1)
        return found


def airport(costs: ArrayLike) -> AirportGame:
    """Return the airport game of Littlechild and Owen (1973) for non-negative costs.

    Parameters
    ----------
    costs : array_like of float
        Cost of the runway that each player needs.

    Returns
    -------
    AirportGame
    """
    array = vector("costs", costs)
    if (array < 0).any():
        raise ValueError(f"costs are {costs!r}; expected non-negative numbers")
    steps = np.sort(array)
    return AirportGame(array >= steps[:, None], np.diff(steps, prepend=0.0), array)


def glove(left: int, right: int) -> GloveGame:
    """Return the glove (shoe) game with `left` and `right` owners of single gloves.

    Parameters
    ----------
    left, right : int
        Owners of a left and of a right glove.

    Returns
    -------
    GloveGame
    """
    return GloveGame(whole("left", left, 1, MOST), whole("right", right, 1, MOST))


def weighted_majority(weights: ArrayLike, quota: int) -> WeightedMajorityGame:
    """Return a voting game with non-negative integer weights and a positive quota.

    Parameters
    ----------
    weights : array_like of int
    quota : int
        Sum of weights that wins.

    Returns
    -------
    WeightedMajorityGame
    """
    array = vector("weights", weights)
    if (array < 0).any() or (array != np.floor(array)).any():
        raise ValueError(f"weights are {weights!r}; expected non-negative integers, one per player")
    if sum(map(int, array)) >= 2**53:  # beyond, floats are no longer whole numbers one by one
        raise ValueError(f"weights are {weights!r}; expected integers with a sum below 2**53")
    counted = array.astype(np.int64)
    counted.setflags(write=False)
    return WeightedMajorityGame(counted, whole("quota", quota, 1))  # at 0 the empty one wins


def unanimity(n_players: int, carrier: ArrayLike) -> UnanimitySum:
    """Return the game that is worth 1 when every player listed in `carrier` is in, else 0.

    Parameters
    ----------
    n_players : int
    carrier : array_like of int
        Players who must all be in.

    Returns
    -------
    UnanimitySum
    """
    whole("n_players", n_players, 1, MOST)
    members = vector("carrier", carrier)
    if not np.isin(members, np.arange(n_players)).all():
        raise ValueError(
            f"carrier is {carrier!r}; expected at least one player from 0 to {n_players - 1}"
        )
    row = np.zeros((1, n_players), dtype=np.bool_)
    row[0, members.astype(np.int64)] = True
    return UnanimitySum(row, np.ones(1))


def random_unanimity_sum(
    n_players: int, terms: int, seed: int, n_outputs: int | None = None
) -> UnanimitySum:
    """Return a random sum of unanimity games: carriers of uniform size, normal coefficients.

    Parameters
    ----------
    n_players, terms : int
        Number of players and of unanimity games in the sum.
    seed : int
        Seed of carriers and coefficients.
    n_outputs : int, optional
        With `m` outputs the coefficients are ``(terms, m)`` and the game is vector-valued.

    Returns
    -------
    UnanimitySum
    """
    whole("n_players", n_players, 1, MOST)
    whole("terms", terms, 1, MOST)
    if n_outputs is not None:
        whole("n_outputs", n_outputs, 1, MOST)
    rng = np.random.default_rng(whole("seed", seed, 0))
    sizes = rng.integers(1, n_players + 1, size=terms)
    places = rng.permuted(np.tile(np.arange(n_players), (terms, 1)), axis=1)
    shape = (terms,) if n_outputs is None else (terms, n_outputs)
    return UnanimitySum(places < sizes[:, None], rng.normal(size=shape))
