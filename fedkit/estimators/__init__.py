"""Exact solution concepts and the sampling estimators, behind one driver."""

from __future__ import annotations

from fedkit.extras import homes, later

_LATER = homes(
    {
        "estimators.base": "Budget ContrastAccumulator Estimator MeanAccumulator",
        "estimators.complementary": "ComplementarySampling",
        "estimators.driver": "estimate estimate_many precise settled",
        "estimators.multilinear": "MultilinearSampling",
        "estimators.permutation": "BetaShapleySampling PermutationSampling",
        "estimators.proxysampling": "ProxySampling",
        "estimators.semivalues": "BanzhafSampling",
        "estimators.together": "least_core shapley_interactions",
        "estimators.truncated": "GTGShapley TruncatedMonteCarlo",
        "games.exact": "banzhaf banzhaf_weights beta_shapley beta_weights leave_one_out semivalue "
        "shapley shapley_weights",
    }
)

__all__ = list(_LATER)
__getattr__ = later("fedkit", _LATER)
