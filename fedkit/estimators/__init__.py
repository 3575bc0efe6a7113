"""The sampling estimators, behind one driver."""

from __future__ import annotations

from fedkit.estimators.accumulators import ContrastAccumulator, MeanAccumulator
from fedkit.estimators.driver import Budget, Estimator, estimate, estimate_many, precise, settled
from fedkit.estimators.levels import BanzhafSampling, ComplementarySampling, MultilinearSampling
from fedkit.estimators.regression import ProxySampling
from fedkit.estimators.walks import GTGShapley, PermutationSampling, TruncatedMonteCarlo

__all__ = [
    "BanzhafSampling", "Budget", "ComplementarySampling", "ContrastAccumulator", "Estimator",
    "GTGShapley", "MeanAccumulator", "MultilinearSampling", "PermutationSampling", "ProxySampling",
    "TruncatedMonteCarlo", "estimate", "estimate_many", "precise", "settled",
]  # fmt: skip
