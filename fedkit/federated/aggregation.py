"""How a round's updates become the next global model.

An aggregation gives one weight per participant, and the next model is ``base + weights @
updates``; or it makes a :class:`Step` and returns the next model itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedkit import checks

if TYPE_CHECKING:
    from torch import Tensor

    from fedkit.federated.selection import ClientTable
    from fedkit.federated.valuers import Round
    from fedkit.games.valuation import Valuation

__all__ = [
    "Aggregation", "FedAdam", "FedYogi", "Krum", "Median", "Proportional", "SizeWeighted", "Step",
    "TrimmedMean", "UniformWeights",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Aggregation(Protocol):
    """Turns contributions and sizes of the participants into weights."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        """float64[k], finite, not negative, summing to 1; zeros keep the global model."""


class Step(Protocol):
    """Makes the next model."""

    def step(self, r: Round, valuation: Valuation, clients: ClientTable) -> Tensor:
        """The next model, finite float[P]; what a rule remembers belongs into `clients.memory`."""


def _normalise(raw: FloatArray) -> FloatArray:
    if raw.max() > 1e300:  # lest the sum is infinite
        raw = raw / raw.max()
    total = raw.sum()
    return raw / total if total != 0 else np.full(len(raw), 1 / len(raw))


@dataclass(frozen=True)
class SizeWeighted:
    """FedAvg: weights proportional to the clients' numbers of samples (McMahan et al. 2017)."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        return _normalise(np.asarray(sizes, dtype=np.float64))


@dataclass(frozen=True)
class UniformWeights:
    """The plain mean of the updates."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        return np.full(len(sizes), 1 / len(sizes))


@dataclass(frozen=True)
class Proportional:
    """Weights proportional to ``max(value, 0)``; uniform where no value is positive.

    ShapFed-WA as FedOwen prints it (Algorithm 7, line 2), with negative scores cut at 0.
    """

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        return _normalise(np.maximum(np.asarray(values, dtype=np.float64), 0.0))


@dataclass(frozen=True)
class Median:
    """Coordinate-wise median of the updates (Yin et al. 2018, Definition 1).

    Of an even number of updates it is the mean of the two in the middle.  Sizes play no part.
    """

    def step(self, r: Round, valuation: Valuation, clients: ClientTable) -> Tensor:
        k = len(r.updates)
        return r.base + r.updates.sort(dim=0).values[(k - 1) // 2 : k // 2 + 1].mean(dim=0)


@dataclass(frozen=True)
class TrimmedMean:
    """Coordinate-wise mean without the extremes (Yin et al. 2018, Definition 2).

    Parameters
    ----------
    share : float
        In each coordinate ``floor(share k)`` of the largest and as many of the smallest of k
        updates are left out; at least 0, below 0.5.
    """

    share: float

    def __post_init__(self) -> None:
        if checks.real("share", self.share, 0.0, 0.5) == 0.5:
            raise ValueError("share is 0.5; a trimmed mean keeps something: take less, or Median()")

    def step(self, r: Round, valuation: Valuation, clients: ClientTable) -> Tensor:
        k = len(r.updates)
        cut = min(int(self.share * k + 1e-9), (k - 1) // 2)  # 0.29 * 100 is 28.999...
        return r.base + r.updates.sort(dim=0).values[cut : k - cut].mean(dim=0)


@dataclass(frozen=True)
class Krum:
    """The one update that is nearest to its neighbours (Blanchard et al. 2017, section 4).

    With f malicious among k participants the score of i is ``sum ||u_i - u_j||^2`` over the
    k - f - 2 updates j nearest to it; the lowest score is taken, in a tie the first.

    Parameters
    ----------
    malicious : int
        f; a selection needs ``2 f + 3`` participants.

    Notes
    -----
    A participant whose update was left out of the round (it was not finite) counts among the f.
    Where fewer than 3 remain, nobody has neighbours, and the model is that of :class:`Median`.
    """

    malicious: int

    def __post_init__(self) -> None:
        checks.whole("malicious", self.malicious, 0)

    def step(self, r: Round, valuation: Valuation, clients: ClientTable) -> Tensor:
        k, unusable, least = len(r.updates), len(r.left_out), 2 * self.malicious + 3
        if k + unusable < least:
            raise ValueError(
                f"round {r.index + 1} has {k + unusable} participants; "
                f"Krum(malicious={self.malicious}) needs at least {least}: select more, or lower "
                "malicious"
            )
        if k < 3:
            return Median().step(r, valuation, clients)
        remaining = max(self.malicious - unusable, 0)
        own = r.directions
        apart = ((own - u).double().square().sum(dim=1).sort().values for u in own)
        scores = [float(row[1 : k - remaining - 1].sum()) for row in apart]  # row[0]: itself
        return r.base + r.updates[int(np.argmin(scores))]


@dataclass(frozen=True)
class FedAdam:
    """FedAdam (Reddi et al. 2021, Algorithm 2): ``v <- beta2 v + (1 - beta2) D^2``.

    With D the mean update of the round and ``m <- beta1 m + (1 - beta1) D``, the next model is
    ``base + lr m / (sqrt(v) + tau)``; at first m = 0 and v = tau^2.

    Parameters
    ----------
    lr : float
        Server learning rate, above 0.
    beta1, beta2 : float
        Decay of m and v, at least 0 and below 1.
    tau : float
        Degree of adaptivity, above 0: the smaller, the more do all coordinates move alike.
    weighting : {"uniform", "size"}
        D is the plain mean, as printed, or weighted by samples, as in the paper's experiments.
    """

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    weighting: Literal["uniform", "size"] = "uniform"

    def __post_init__(self) -> None:
        for name in ("lr", "tau"):
            checks.real(name, getattr(self, name), 0.0, above=True)
        for name in ("beta1", "beta2"):
            if checks.real(name, getattr(self, name), 0.0, 1.0) == 1.0:
                raise ValueError(f"{name} is 1; expected a number below 1: nothing would be learnt")
        checks.choice("weighting", self.weighting, ("uniform", "size"))

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square

    def step(self, r: Round, valuation: Valuation, clients: ClientTable) -> Tensor:
        sizes = r.sizes if self.weighting == "size" else np.ones(len(r.sizes))
        updates = r.updates.double()
        mean = updates.new_tensor(sizes / sizes.sum()) @ updates
        zero: Any = mean.new_zeros(mean.shape)
        m, v = clients.memory.get("server optimiser", (zero, zero + self.tau**2))
        m = self.beta1 * m + (1 - self.beta1) * mean
        v = self._second(v, mean.square())
        clients.memory["server optimiser"] = (m, v)
        model, n = r.base + self.lr * m / (v.sqrt() + self.tau), r.architecture.n_parameters
        model[n:] = r.base[n:] + mean[n:]  # running statistics are averaged, not optimised
        return model


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedYogi (Reddi et al. 2021): ``v <- v - (1 - beta2) D^2 sign(v - D^2)``.

    The rest, and the parameters, are those of :class:`FedAdam`.
    """

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()
