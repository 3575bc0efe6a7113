"""Shapley values from complementary contributions, stratified by the size of the coalition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import (
    Budget,
    Count,
    Estimator,
    Floats,
    MeanAccumulator,
    Requests,
    blocks,
    check_size,
    random_orders,
)
from fedkit.games.exact import shapley_weights

__all__ = ["ComplementarySampling"]


@dataclass(frozen=True)
class ComplementarySampling(Estimator):
    """Coalitions compared with what they leave behind (Zhang et al. 2023, FedTSV's sampler).

    A player's Shapley value is the mean over the sizes s of
    ``E[v(S) - v(N without S) | i in S, |S| = s]``: the *complementary contribution* of a coalition
    that i is in.  The pair of a coalition and its complement informs every player, the members by
    its difference and all others by the same with the other sign, at the complement's size.

    Parameters
    ----------
    rounds : int, optional
        Number of rounds in every size class, where the budget does not stop earlier.

    Notes
    -----
    A size class holds the pairs whose smaller side has s players, ``s = 1 .. floor(n / 2)``; the
    pair of everybody and nobody is a class of its own, the same for all players.  Zhang et al. draw
    single pairs, so that a player may lack a size for long, and their mean with it.  Here a class
    is sampled in rounds: a random order of the players is cut into ``ceil(n / s)`` coalitions that
    cover all of them (the last takes in some of the one before where s does not divide n; one pair
    is enough where ``2 s = n``).  Every coalition of a round is uniform of its size, so a round's
    mean is unbiased, and rounds are independent: they are the unit of the standard errors.  The
    largest class and the singletons are the same in every round; they are asked for once, without
    error.

    Values sum to ``v(N) - v(empty)`` exactly where every s divides n, else in expectation.
    Zhang et al.'s Neyman allocation of the pairs to the sizes is left out.
    """

    rounds: int | None = None

    def __post_init__(self) -> None:
        check_size("rounds", self.rounds)

    def minimum(self, n_players: int, count: Count) -> int:
        """One round in every class, both sides of each pair."""
        n = n_players
        return 2 + 2 * sum(_pairs(n, s) for s in range(1, n // 2 + 1)) - (count == "calls")

    def weights(self, n_players: int) -> Floats:
        return shapley_weights(n_players)

    def accumulator(self, n_players: int) -> MeanAccumulator:
        """Return an empty accumulator with one stratum per class, everybody first."""
        return MeanAccumulator(np.ones(1 + n_players // 2), certain=2)

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        n = n_players
        done = 0
        for size in blocks(self.rounds, largest=16):
            plan = [
                (s, _round(rng, n, s))
                for r in range(done, done + size)
                for s in range(n // 2 + 1)
                if r == 0 or s > 1  # the first two classes are always the same
            ]
            done += size
            if not plan:
                return  # up to three players nothing is random
            utilities = yield np.concatenate([rows for _, rows in plan])
            start = 0
            for s, rows in plan:
                answers = utilities[start : start + len(rows)]
                start += len(rows)
                if len(answers) < len(rows):
                    return
                sample = _contributions(rows[0::2], answers[0::2] - answers[1::2])
                # what has no error is added twice: two equal samples have none
                accumulator.add(np.stack([sample] * (2 if s < 2 else 1)), s)
                accumulator.info["rounds"] = int(accumulator.counts[-1]) if n > 3 else 1


def _pairs(n: int, s: int) -> int:
    """Return the number of pairs of a round of class s; 0 is that of everybody and nobody."""
    return 1 if s in (0, n / 2) else -(-n // s)


def _round(rng: np.random.Generator, n: int, s: int) -> NDArray[np.bool_]:
    """Return the coalitions of a round, each followed by its complement: ``bool[2 pairs, n]``."""
    pairs = _pairs(n, s)
    rows = np.ones((pairs, n), dtype=np.bool_)
    if s:
        order = random_orders(rng, 1, n)[0]
        first = np.minimum(np.arange(pairs) * s, n - s)  # the last coalition ends with the order
        place = np.argsort(order)
        rows = (place >= first[:, None]) & (place < first[:, None] + s)
    return np.stack([rows, ~rows], axis=1).reshape(2 * pairs, n)


def _contributions(members: NDArray[np.bool_], differences: Floats) -> Floats:
    """Return a round's share in every player's value, from the differences ``[pairs(, m)]``."""
    pairs, n = members.shape
    inside = members.T.astype(np.float64)
    if members.sum() == pairs * n:  # everybody and nobody: one size
        return np.asarray(inside @ differences) / n
    if pairs == 1:  # two halves: one size, which half the players meet with the other sign
        return np.asarray((2 * inside - 1) @ differences) / n
    outside = 1 - inside
    inside /= inside.sum(axis=1, keepdims=True)
    outside /= outside.sum(axis=1, keepdims=True)
    return np.asarray((inside - outside) @ differences) / n
