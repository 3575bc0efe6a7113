"""Selection policies that FedMS is compared with, each from its own paper.

FedAvg is :class:`~fedkit.federated.selection.UniformSelection`, FedProx the same with a proximal
term in :class:`~fedkit.learning.training.LocalSGD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedkit.checks import choice, real, whole
from fedkit.federated.selection import ClientTable
from fedkit.games.valuation import Valuation
from fedkit.methods.fedms import sample_by_score

__all__ = ["FedEMD", "GreedyFed", "Oracle", "PowerOfChoice", "RunningValue", "SFedAvg"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def clients_of(name: str, given: Sequence[int]) -> None:
    """Refuse what are no numbers of clients, such as a mask."""
    if not isinstance(given, Sequence | np.ndarray):
        raise ValueError(f"{name} is {given!r}; expected the numbers of clients, such as (0, 3)")
    for client in given:
        whole(f"a client of {name}", client, 0)


def _top(pool: IntArray, scores: FloatArray, k: int, rng: np.random.Generator) -> IntArray:
    """The clients of the k largest scores, ties broken at random, sorted."""
    order = rng.permutation(len(pool))
    best = order[np.argsort(-scores[order], kind="stable")[:k]]
    return np.sort(pool[best])


@dataclass(frozen=True)
class PowerOfChoice:
    """The k clients with the largest local loss among d candidates (Cho et al. 2022).

    Candidates are drawn without replacement with probability proportional to their data.

    Parameters
    ----------
    decay : float
        d starts at all clients and is multiplied by this after each round, down to k: the
        "decay factor" of FedMS (section 5.1; 1.0 keeps all clients as candidates).  The adaptive
        variant of Cho et al. takes all in the first half of the rounds, and k later.
    """

    decay: float = 1.0

    def __post_init__(self) -> None:
        real("decay", self.decay, 0.0, 1.0, above=True)

    def candidates(self, n: int, k: int, t: int) -> int:
        """Return d of round t."""
        return max(min(k, n), math.ceil(n * self.decay**t - 1e-9))

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        pool = clients.available
        share = clients.sizes[pool] / clients.sizes[pool].sum()
        d = self.candidates(len(pool), k, clients.round)
        asked = np.sort(rng.choice(pool, d, replace=False, p=share))
        if clients.losses is None:
            raise ValueError("Power-of-Choice asks clients for their loss; run it in a round")
        return asked if d <= k else _top(asked, clients.losses(asked), k, rng)


@dataclass(frozen=True)
class FedEMD:
    """Clients with rare labels early, others later (Huang et al. 2022).

    ``P_k(t) = softmax(emd_g[k] - t beta emd_c[k])``: emd_g is the distance of the client's label
    distribution from everybody's, emd_c that from the labels of the data selected so far.

    Parameters
    ----------
    beta : float
        Distance coefficient: 0.001 or 0.01 in FedMS (section 5.1).

    Notes
    -----
    Between classes, which have no order, the earth mover's distance with unit ground distance is
    half the L1 distance of the histograms.  Both distances are divided by their maximum over the
    clients with data.  Huang et al. multiply emd_g with a coefficient, 1 here.
    """

    beta: float = 0.01

    def __post_init__(self) -> None:
        real("beta", self.beta, 0.0)

    def logits(self, clients: ClientTable) -> FloatArray:
        """Return ``emd_g - t beta emd_c`` of every client, float64[n]."""
        counts = clients.label_counts.astype(np.float64)
        own = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        chosen = clients.counts @ counts
        distances = []
        for mass in (counts.sum(axis=0), chosen):
            if mass.sum() == 0:
                distances.append(np.zeros(len(own)))
                continue
            gap = np.abs(own - mass / mass.sum()).sum(axis=1) / 2
            distances.append(gap / max(gap[clients.available].max(), 1e-12))
        return distances[0] - clients.round * self.beta * distances[1]

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        pool = clients.available
        return sample_by_score(pool, self.logits(clients)[pool], k, rng)


@dataclass(frozen=True)
class RunningValue:
    """``phi <- alpha phi + (1 - alpha) s`` for participants: what S-FedAvg and GreedyFed keep.

    Parameters
    ----------
    alpha : float
        Decay; FedMS takes 0.7 for both (section 5.1), Nagalapatti & Narayanam (2021) 0.75.
    start : {"uniform", "first"}
        The value before the first round: 1 / n (S-FedAvg), or the first value itself (GreedyFed).
    """

    alpha: float = 0.7
    start: str = "uniform"

    def __post_init__(self) -> None:
        real("alpha", self.alpha, 0.0, 1.0)
        choice("start", self.start, ("uniform", "first"))

    def __call__(self, clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
        new, old = valuation.values, clients.values[ids]
        first = clients.counts[ids] == 1
        before = np.where(first, new if self.start == "first" else 1 / len(clients.sizes), old)
        clients.values[ids] = self.alpha * before + (1 - self.alpha) * new


@dataclass(frozen=True)
class SFedAvg:
    """Sample with ``softmax(scale phi)`` (Nagalapatti & Narayanam 2021); see :class:`RunningValue`.

    A client that was never selected has phi = 1 / n.

    Parameters
    ----------
    scale : float
        1 for values of an accuracy in [0, 1]; 100 takes them in percent, as FedMS's scores are.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        real("scale", self.scale, 0.0)

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        pool = clients.available
        phi = np.where(clients.counts > 0, clients.values, 1 / len(clients.sizes))
        return sample_by_score(pool, self.scale * phi[pool], k, rng)


@dataclass(frozen=True)
class GreedyFed:
    """Everybody once, then always the k largest values (Singhal et al. 2024)."""

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        pool = clients.available
        new = clients.selected[pool] == 0
        # Never selected first; the last batch of the first pass is filled up at random.
        scores = new.astype(np.float64) if new.any() else clients.values[pool]
        return _top(pool, scores, k, rng)


@dataclass(frozen=True)
class Oracle:
    """Control: a server that is told who matters and who misbehaves.

    Parameters
    ----------
    favourites : tuple of int
        Clients that take part in every round (at most k of them, at random).
    excluded : tuple of int
        Clients that never do.
    """

    favourites: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("favourites", "excluded"):
            clients_of(name, getattr(self, name))

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        pool = np.setdiff1d(clients.available, self.excluded)
        if not len(pool):
            raise ValueError("every client with data is excluded; leave at least one")
        return _top(pool, np.isin(pool, self.favourites).astype(np.float64), k, rng)
