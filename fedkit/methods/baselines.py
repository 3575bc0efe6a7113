"""What FedMS and FedTSV are compared with: each from its own paper, and two oracles.

FedMS's rivals select: Power-of-Choice, FedEMD, S-FedAvg, GreedyFed.  FedTSV's rival weighs: CGSV.
FedAvg is ``fk.UniformSelection()``, FedProx the same with a proximal term in ``fk.LocalSGD``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedkit.checks import Floats, Ints, choice, flag, whole
from fedkit.federated.policies import top, unsampled
from fedkit.federated.rounds import ClientTable, Round
from fedkit.games.coalitions import Coalitions
from fedkit.games.exact import shapley
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation
from fedkit.methods.fedms import sample_by_score
from fedkit.methods.gram import check_inner_products, gram_matrix


def _check_clients(*clients: int) -> None:
    """Refuse what are no numbers of clients, such as a mask."""
    for client in clients:
        whole("a client", client, 0)


def _best(pool: Ints, scores: Floats, k: int, rng: np.random.Generator) -> Ints:
    """The clients of the k largest scores, ties broken at random, sorted."""
    order = rng.permutation(len(pool))
    return top(pool[order], scores[order], k)


# --------------------------------------------------------------------------- rivals of FedMS


@dataclass(frozen=True)
class PowerOfChoice:
    """The k clients with the largest local loss among d candidates (Cho et al. 2022).

    Candidates are drawn without replacement with probability proportional to their data.  d starts
    at all clients and is multiplied by `decay` after each round, down to k (FedMS, section 5.1).
    """

    decay: float = 1.0

    def candidates(self, n: int, k: int, t: int) -> int:
        """Return d of round t."""
        return max(min(k, n), math.ceil(n * self.decay**t - 1e-9))

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        pool = table.available
        share = table.sizes[pool] / table.sizes[pool].sum()
        d = self.candidates(len(pool), k, table.round)
        asked = np.sort(rng.choice(pool, d, replace=False, p=share))
        if table.losses is None:
            raise ValueError("Power-of-Choice asks clients for their loss; run it in a round")
        return asked if d <= k else _best(asked, table.losses(asked), k, rng)


@dataclass(frozen=True)
class FedEMD:
    """Clients with rare labels early, others later (Huang et al. 2022).

    ``P_k(t) = softmax(emd_g[k] - t beta emd_c[k])``: emd_g is the distance of the client's label
    distribution from everybody's, emd_c that from the labels of the data selected so far: half the
    L1 distance of the histograms, over its maximum over the clients with data.
    """

    beta: float = 0.01  #: distance coefficient

    def logits(self, table: ClientTable) -> Floats:
        """Return ``emd_g - t beta emd_c`` of every client, float64[n]."""
        counts = table.label_counts.astype(np.float64)
        own = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        chosen = table.counts @ counts
        distances = []
        for mass in (counts.sum(axis=0), chosen):
            if mass.sum() == 0:
                distances.append(np.zeros(len(own)))
                continue
            gap = np.abs(own - mass / mass.sum()).sum(axis=1) / 2
            distances.append(gap / max(gap[table.available].max(), 1e-12))
        return distances[0] - table.round * self.beta * distances[1]

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        pool = table.available
        return sample_by_score(pool, self.logits(table)[pool], k, rng)


@dataclass(frozen=True)
class RunningValue:
    """``phi <- alpha phi + (1 - alpha) s``, from 1 / n (S-FedAvg) or the first value."""

    alpha: float = 0.7
    start: Literal["uniform", "first"] = "uniform"

    def __post_init__(self) -> None:
        choice("start", self.start, ("uniform", "first"))

    def __call__(self, table: ClientTable, ids: Ints, valuation: Valuation) -> None:
        new, old = valuation.values, table.values[ids]
        first = table.counts[ids] == 1
        before = np.where(first, new if self.start == "first" else 1 / len(table.sizes), old)
        table.values[ids] = self.alpha * before + (1 - self.alpha) * new


@dataclass(frozen=True)
class SFedAvg:
    """Sample with ``softmax(scale phi)``, see :class:`RunningValue` (Nagalapatti et al. 2021)."""

    scale: float = 1.0

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        pool = table.available
        phi = np.where(table.counts > 0, table.values, 1 / len(table.sizes))
        return sample_by_score(pool, self.scale * phi[pool], k, rng)


@dataclass(frozen=True)
class GreedyFed:
    """Everybody once, then always the k largest values (Singhal et al. 2024)."""

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        pool = table.available
        new = table.selected[pool] == 0
        # Never selected first; the last batch of the first pass is filled up at random.
        scores = new.astype(np.float64) if new.any() else table.values[pool]
        return _best(pool, scores, k, rng)


@dataclass(frozen=True)
class Oracle:
    """Control: a server that is told who matters and who misbehaves."""

    #: clients that take part in every round, at most k of them, at random
    favourites: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()  #: clients that never do

    def __post_init__(self) -> None:
        _check_clients(*self.favourites, *self.excluded)

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        pool = np.setdiff1d(table.available, self.excluded)
        if not len(pool):
            raise ValueError("every client with data is excluded; leave at least one")
        return _best(pool, np.isin(pool, self.favourites).astype(np.float64), k, rng)


# -------------------------------------------------------------------------- rivals of FedTSV


def cosine_game(gram: npt.ArrayLike) -> Game:
    """Return CGSV's game (Xu et al. 2021): cosines of coalitions' summed updates with everybody's.

    `gram`, float64[k, k], has the inner products of the updates.  The cosine with a sum of length
    zero is 0; so is that of the empty coalition.
    """
    products = check_inner_products(gram, 1)

    def cosines(coalitions: Coalitions) -> Floats:
        members = coalitions.astype(np.float64)
        inner = members @ products
        length = np.sqrt(np.maximum((inner * members).sum(axis=1), 0) * max(products.sum(), 0))
        along = inner.sum(axis=1)
        return np.divide(along, length, out=np.zeros_like(along), where=length > 0)

    return Game(len(products), cosines)


@dataclass(frozen=True)
class CosineValues:
    """Cosine-gradient Shapley values of a round's participants (CGSV), or their approximation.

    Parameters
    ----------
    exact : bool
        True: the Shapley value of :func:`cosine_game`.  False: ``cos(u_i, u_N)``, which Xu et al.
        use in their experiments.
    normalised : bool
        True: updates are brought to equal length before they are averaged, as CGSV does.  False:
        they are averaged as they are, as FedTSV presumes (section IV-B).
    """

    exact: bool = False
    normalised: bool = True

    def __post_init__(self) -> None:
        flag("exact", self.exact)
        flag("normalised", self.normalised)

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [self._one(gram_matrix(r.directions)) for r in rounds]

    def _one(self, gram: Floats) -> Valuation:
        if self.normalised:
            length = np.sqrt(np.diag(gram))
            inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
            gram = gram * np.outer(inverse, inverse)
        game = cosine_game(gram)
        if self.exact:
            found = shapley(game)
        else:
            found = unsampled(game(np.eye(len(gram), dtype=bool)), "cosine to the mean")
        return replace(found, info={**found.info, "utility": "cosines of updates"})


@dataclass(frozen=True)
class RunningCosine:
    """CGSV's importances: ``r <- alpha r + (1 - alpha) psi``, at least `floor`, then normalised.

    The sum of the participants' importances stays what it was.  They start as the shares of the
    data.
    """

    alpha: float = 0.95  #: decay
    floor: float = 1e-3  #: the least importance

    def __call__(self, table: ClientTable, ids: Ints, valuation: Valuation) -> None:
        if "importances" not in table.memory:
            table.values[:] = table.sizes / table.sizes.sum()
            table.memory["importances"] = np.ones(1)
        total = table.values[ids].sum()
        mixed = self.alpha * table.values[ids] / total + (1 - self.alpha) * valuation.values
        mixed = np.maximum(mixed, self.floor)
        table.values[ids] = total * mixed / mixed.sum()


@dataclass(frozen=True)
class OracleWeights:
    """Control: a server that is told who misbehaves, and averages the others."""

    excluded: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_clients(*self.excluded)

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        good = (~np.isin(r.participants, self.excluded)).astype(np.float64)
        return r.average(good / max(good.sum(), 1.0))
