"""Clients and the round loop: partitioners, selection, valuers, aggregation, adversaries,
retraining.  What needs torch is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_LATER = homes(
    {
        "adversaries": "Adversaries Backdoor FeatureNoise FreeRider LabelFlip LabelNoise "
        "LabelPermutation RandomData RandomUpdate ScaledUpdate",
        "valuers": "ClassCosine Estimated Exact NoValue RandomValues Round "
        "ShuffledValues SizeAsValue ValuePolicy",
        "partitioners": "ClassesPerClient Dirichlet IID Mavericks MissingClassWarning Mixed "
        "Partitioner QuantitySkew",
        "selection": "ClientTable LateJoiners UniformSelection",
        "aggregation": "FedAdam FedYogi Krum Median Proportional SizeWeighted TrimmedMean "
        "UniformWeights",
        "clients": "Federation federation_from_arrays make_federation",
        "history": "History",
        "rounds": "Plan Strategy keep_latest keep_total run",
        "learners": "retraining_game",
        "retraining_cache": "RetrainingCache",
        "retraining": "federation_game train_with_sizes",
        "round_games": "round_game",
    }
)

__all__ = list(_LATER)
__getattr__ = later(__name__, _LATER)
