"""Clients and the round loop: partition, federation, adversaries, policies, rounds, retraining.

What needs torch is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(
    __name__,
    {
        "adversaries": "Backdoor FeatureNoise FreeRider LabelFlip LabelNoise "
        "LabelPermutation RandomData RandomUpdate ScaledUpdate",
        "federation": "Federation federation_from_arrays make_federation",
        "history": "History",
        "partition": "ClassesPerClient Dirichlet IID Mavericks Mixed Partitioner QuantitySkew",
        "policies": "ClassCosine Estimated Exact LeaveOneOut NoValue Proportional "
        "RandomValues ShuffledValues SizeAsValue SizeWeighted UniformSelection UniformWeights",
        "learners": "retraining_game",
        "retraining": "federation_game train_with_sizes",
        "round_games": "round_game",
        "rounds": "ClientTable Plan Round Strategy keep_latest keep_total run",
    },
)
