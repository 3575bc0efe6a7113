"""How a round's updates become the next global model: one weight per participant.

The next model is ``base + weights @ updates``.  Weights are non-negative and sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Aggregation", "Proportional", "SizeWeighted", "UniformWeights"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Aggregation(Protocol):
    """Turns contributions and sizes of the participants into weights."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        """float64[k], finite, not negative, summing to 1; zeros keep the global model."""
        ...


def _normalise(raw: FloatArray) -> FloatArray:
    total = raw.sum()
    return raw / total if total != 0 else np.full(len(raw), 1 / len(raw))


@dataclass(frozen=True)
class SizeWeighted:
    """FedAvg: weights proportional to the clients' numbers of samples (McMahan et al. 2017)."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        """See :meth:`Aggregation.weights`."""
        return _normalise(np.asarray(sizes, dtype=np.float64))


@dataclass(frozen=True)
class UniformWeights:
    """The plain mean of the updates."""

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        """See :meth:`Aggregation.weights`."""
        return np.full(len(sizes), 1 / len(sizes))


@dataclass(frozen=True)
class Proportional:
    """Weights proportional to ``max(value, 0)``; uniform where no value is positive.

    ShapFed-WA as FedOwen prints it (Algorithm 7, line 2), with negative scores cut at 0.
    """

    def weights(self, values: FloatArray, sizes: IntArray) -> FloatArray:
        """See :meth:`Aggregation.weights`."""
        return _normalise(np.maximum(np.asarray(values, dtype=np.float64), 0.0))
