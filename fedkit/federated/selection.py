"""Which clients take part in a round.

A selection policy reads what the server knows of its clients (:class:`ClientTable`) and names
the participants of the next round.  Policies keep no state of their own, so a federation can be
stopped and resumed at any round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ClientTable", "EpsilonGreedy", "Selection", "UniformSelection"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass
class ClientTable:
    """What a server knows of its `n` clients between two rounds.

    Attributes
    ----------
    sizes : int64[n]
        Training samples per client.
    label_counts : int64[n, classes]
        Training samples per client and class, for the policies that may see them.
    values : float64[n] or float64[n, m]
        Contribution of each client as the strategy remembers it; zero before its first round.
    counts : int64[n]
        Rounds in which the client took part.
    round : int
        Index of the coming round, from 0.
    memory : dict of str to array
        Further arrays that policies keep from round to round.
    losses : callable
        ``losses(ids)`` asks clients for the mean loss of the global model on their data,
        float64[len(ids)], in nats.  Set by the round loop.
    """

    sizes: IntArray
    label_counts: IntArray
    values: FloatArray
    counts: IntArray
    round: int = 0
    memory: dict[str, FloatArray] = field(default_factory=dict)
    losses: Callable[[IntArray], FloatArray] | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, sizes: IntArray, label_counts: IntArray, outputs: int | None = None
    ) -> ClientTable:
        """Return the table of a federation that has not run yet."""
        n = len(sizes)
        values = np.zeros(n if outputs is None else (n, outputs))
        return cls(sizes, label_counts, values, np.zeros(n, dtype=np.int64))

    @property
    def available(self) -> IntArray:
        """Clients that own data; a client without data is never selected."""
        return np.flatnonzero(self.sizes > 0)


class Selection(Protocol):
    """Chooses the participants of a round."""

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        """Return distinct client indices, sorted.

        At most `k` of them, except where a method asks all clients in its first round.
        """
        ...


def _draw(pool: IntArray, k: int, rng: np.random.Generator) -> IntArray:
    return np.sort(rng.permutation(pool)[:k])


@dataclass(frozen=True)
class UniformSelection:
    """`k` clients uniformly without replacement, among those that own data."""

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        """Return the participants of the next round."""
        return _draw(clients.available, k, rng)


@dataclass(frozen=True)
class EpsilonGreedy:
    """FedOwen's hybrid adaptive selection (Algorithm 2, Eq. 13).

    Parameters
    ----------
    epsilon : float
        Probability of a uniform (exploring) round; the paper's 0.1.
    confidence : float
        Weight `c` of the confidence bonus; not given in the paper.
    floor : float
        Contribution floor `tau`: below it a client's gain counts as 0 and its bonus is scaled.
    low_gain : float
        Scale of the bonus below the floor; the paper's 0.1.

    Notes
    -----
    Line 13 subtracts the smallest score, so the client with the smallest score has probability
    exactly 0 in an exploiting round, and fewer than `k` clients may be left with a positive
    probability.  The paper does not say what happens then; we draw all that are left and fill up
    uniformly from the others.  In round ``t = 0`` every bonus is 0 because ``ln(1) = 0``, hence
    the draw is uniform by line 14.
    """

    epsilon: float = 0.1
    confidence: float = 0.1
    floor: float = 0.0
    low_gain: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon is {self.epsilon}; it is a probability, from 0 to 1")
        if self.confidence < 0 or self.low_gain < 0:
            raise ValueError(
                f"confidence is {self.confidence} and low_gain {self.low_gain}; "
                "both scale a bonus and cannot be negative"
            )

    def probabilities(self, values: FloatArray, counts: IntArray, t: int) -> FloatArray:
        """Selection weights of an exploiting round (Algorithm 2, lines 4 to 14).

        Parameters
        ----------
        values : float64[n]
            Latest contribution of each client.
        counts : int64[n]
            Earlier selections of each client (sigma).
        t : int
            Round index, from 0.

        Returns
        -------
        float64[n]
            Non-negative, summing to 1.
        """
        values = np.asarray(values, dtype=np.float64)
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"the value of client {bad} is {values[bad]}; selection needs numbers")
        low = values < self.floor
        gain = np.where(low, 0.0, values)  # line 6
        bonus = self.confidence * np.sqrt(np.log(t + 1) / (counts + 1))  # line 7
        score = gain + np.where(low, self.low_gain * bonus, bonus)  # lines 8 to 11
        score = score - score.min()  # line 13
        total = score.sum()
        # Rounding can leave differences of 1e-17 between equal scores; they are no preference.
        if total <= 1e-12 * max(1.0, float(np.abs(gain).max() + bonus.max())):
            return np.full(len(values), 1 / len(values))  # line 14
        return score / total

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        """Return the participants of the next round."""
        pool = clients.available
        if rng.random() < self.epsilon or len(pool) <= k:  # lines 1 and 2
            return _draw(pool, k, rng)
        p = self.probabilities(clients.values[pool], clients.counts[pool], clients.round)
        likely = np.flatnonzero(p > 0)
        if len(likely) <= k:
            rest = np.setdiff1d(np.arange(len(pool)), likely)
            chosen = np.concatenate([likely, rng.permutation(rest)[: k - len(likely)]])
        else:
            chosen = rng.choice(len(pool), size=k, replace=False, p=p)  # line 15
        return np.sort(pool[chosen])
