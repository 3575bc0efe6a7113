"""Exact solution concepts and the sampling estimators, behind one driver."""

from __future__ import annotations

from fedkit.estimators.base import Budget, ContrastAccumulator, Estimator, MeanAccumulator
from fedkit.estimators.complementary import ComplementarySampling
from fedkit.estimators.driver import estimate, estimate_many, precise, settled
from fedkit.estimators.multilinear import MultilinearSampling
from fedkit.estimators.permutation import BetaShapleySampling, PermutationSampling
from fedkit.estimators.proxysampling import ProxySampling
from fedkit.estimators.semivalues import BanzhafSampling
from fedkit.estimators.together import least_core, shapley_interactions
from fedkit.estimators.totals import total
from fedkit.estimators.truncated import GTGShapley, TruncatedMonteCarlo
from fedkit.games.exact import (
    banzhaf,
    banzhaf_weights,
    beta_shapley,
    beta_weights,
    leave_one_out,
    semivalue,
    shapley,
    shapley_weights,
)

__all__ = [
    "BanzhafSampling", "BetaShapleySampling", "Budget", "ComplementarySampling",
    "ContrastAccumulator", "Estimator", "GTGShapley", "MeanAccumulator", "MultilinearSampling",
    "PermutationSampling", "ProxySampling", "TruncatedMonteCarlo", "banzhaf", "banzhaf_weights",
    "beta_shapley", "beta_weights", "estimate", "estimate_many", "least_core", "leave_one_out",
    "precise", "semivalue", "settled", "shapley", "shapley_interactions", "shapley_weights",
    "total",
]  # fmt: skip
