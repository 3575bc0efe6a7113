"""Clients and the round loop: partitioners, selection, valuers, aggregation, adversaries,
retraining.  What needs torch is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import later

_LATER = {
    "Adversaries": "adversaries",
    "Backdoor": "adversaries",
    "ClassCosine": "valuers",
    "ClassesPerClient": "partitioners",
    "ClientTable": "selection",
    "Dirichlet": "partitioners",
    "Estimated": "valuers",
    "Exact": "valuers",
    "FedAdam": "aggregation",
    "FedYogi": "aggregation",
    "FeatureNoise": "adversaries",
    "Federation": "clients",
    "FreeRider": "adversaries",
    "History": "history",
    "IID": "partitioners",
    "Krum": "aggregation",
    "LabelFlip": "adversaries",
    "LabelNoise": "adversaries",
    "LabelPermutation": "adversaries",
    "LateJoiners": "selection",
    "Mavericks": "partitioners",
    "Median": "aggregation",
    "MissingClassWarning": "partitioners",
    "Mixed": "partitioners",
    "NoValue": "valuers",
    "Partitioner": "partitioners",
    "Plan": "rounds",
    "Proportional": "aggregation",
    "QuantitySkew": "partitioners",
    "RandomData": "adversaries",
    "RandomUpdate": "adversaries",
    "RandomValues": "valuers",
    "RetrainingCache": "retraining_cache",
    "RetrainingGame": "retraining",
    "Round": "valuers",
    "RoundGame": "round_game",
    "ScaledUpdate": "adversaries",
    "SizeAsValue": "valuers",
    "SizeWeighted": "aggregation",
    "Strategy": "rounds",
    "TrimmedMean": "aggregation",
    "UniformSelection": "selection",
    "UniformWeights": "aggregation",
    "ValuePolicy": "valuers",
    "federation_from_arrays": "clients",
    "keep_latest": "rounds",
    "keep_mean": "rounds",
    "keep_total": "rounds",
    "make_federation": "clients",
    "run": "rounds",
    "train_with_sizes": "retraining",
}

__all__ = list(_LATER)
__getattr__ = later(__name__, _LATER)
