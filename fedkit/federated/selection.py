"""Which clients take part in a round.

Policies keep no state of their own: what they remember is in the :class:`ClientTable`, so that one
policy serves all federations of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedkit.checks import having, one_line, whole

__all__ = ["ClientTable", "LateJoiners", "Selection", "UniformSelection", "draw"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@one_line
@dataclass
class ClientTable:
    """What a server knows of its `n` clients between two rounds.

    Attributes
    ----------
    sizes : int64[n]
        Training samples per client.
    label_counts : int64[n, classes]
        Training samples per client and class, for the policies that may see them: by the true
        labels, before clients misuse their data (`losses` are of the data after it).
    values : float64[n] or float64[n, m]
        Contribution of each client as the strategy remembers it; zero before its first round.
    counts : int64[n]
        Rounds in which the client took part.
    missed : int64[n]
        Rounds in which it was selected and its update left out, because it was not finite.
    round : int
        Index of the coming round, from 0.
    memory : dict
        Further arrays and tensors that policies keep from round to round.
    losses : callable
        ``losses(ids)`` asks clients for the mean loss of the global model on their data,
        float64[len(ids)], in nats.  Set by the round loop.
    """

    sizes: IntArray
    label_counts: IntArray
    values: FloatArray
    counts: IntArray
    missed: IntArray = field(default_factory=lambda: np.zeros((), dtype=np.int64))
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    losses: Callable[[IntArray], FloatArray] | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, sizes: IntArray, label_counts: IntArray, outputs: int | None = None
    ) -> ClientTable:
        """The table of a federation that has not run yet."""
        n = len(sizes)
        values = np.zeros(n if outputs is None else (n, outputs))
        return cls(sizes, label_counts, values, *np.zeros((2, n), dtype=np.int64))

    @property
    def available(self) -> IntArray:
        """Clients that own data; a client without data is never selected."""
        return np.flatnonzero(self.sizes > 0)

    @property
    def selected(self) -> IntArray:
        """Rounds in which each client was selected, whatever it sent, int64[n]."""
        return self.counts + self.missed


class Selection(Protocol):
    """Chooses the participants of a round."""

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        """Distinct client indices, sorted; at most `k`, but a method may ask all in round 0."""


def draw(pool: IntArray, k: int, rng: np.random.Generator) -> IntArray:
    """`k` clients of the pool, uniformly without replacement, sorted."""
    return np.sort(rng.permutation(pool)[:k])


@dataclass(frozen=True)
class UniformSelection:
    """`k` clients uniformly without replacement, among those that own data."""

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        return draw(clients.available, k, rng)


@dataclass(frozen=True)
class LateJoiners:
    """Uniform selection where some clients join later: before its first round none can be asked.

    Parameters
    ----------
    first : mapping of int to int
        The round, from 0, in which a client comes; all others are there from the start.
    """

    first: Mapping[int, int]

    def __post_init__(self) -> None:
        for client, start in having("first", self.first, "items").items():
            whole("a client in first", client, 0)
            whole(f"first[{client}]", start, 0)

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        if max(self.first, default=-1) >= len(clients.sizes):
            raise ValueError(f"client {max(self.first)} in first does not exist")
        absent = [i for i, start in self.first.items() if clients.round < start]
        return draw(np.setdiff1d(clients.available, absent), k, rng)
