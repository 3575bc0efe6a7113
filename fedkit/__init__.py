"""fedkit: who contributed what in federated learning.

Games, exact values and estimators need numpy and scipy and are imported at once; what needs
torch (models, training, federations) is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from fedkit.estimators import (
    BanzhafSampling,
    BetaShapleySampling,
    ComplementarySampling,
    GTGShapley,
    MultilinearSampling,
    OwenSampling,
    PermutationSampling,
    ProxySampling,
    TruncatedMonteCarlo,
    banzhaf,
    beta_shapley,
    estimate,
    estimate_many,
    least_core,
    leave_one_out,
    shapley,
    shapley_interactions,
)
from fedkit.games import (
    FunctionGame,
    Game,
    MemoGame,
    TableGame,
    airport,
    all_coalitions,
    coalition_index,
    glove,
    normalise,
    random_unanimity_sum,
    tabulate,
    unanimity,
    weighted_majority,
)
from fedkit.streams import Streams
from fedkit.valuation import Valuation

__version__ = "0.1.0"

_LATER = {
    "Architecture": "models",
    "Cast": "corruption",
    "ClassCosine": "contribution",
    "ClientTable": "selection",
    "ContributionWeights": "adaptive",
    "CosineValues": "adaptive",
    "Dataset": "datasets.dataset",
    "Dirichlet": "partition",
    "EpsilonGreedy": "selection",
    "Estimated": "contribution",
    "Evaluator": "coalitions",
    "Exact": "contribution",
    "FedMS": "maverick",
    "FedTSV": "adaptive",
    "Federation": "partition",
    "History": "history",
    "IID": "partition",
    "LeaveOneOut": "adaptive",
    "LocalSGD": "training",
    "MaverickGTG": "classwise_gtg",
    "MaverickMR": "classwise",
    "MaverickTMR": "classwise",
    "Mavericks": "partition",
    "NoValue": "contribution",
    "Plan": "federation",
    "Proportional": "aggregation",
    "RandomValues": "contribution",
    "RoundGame": "roundgame",
    "SizeAsValue": "contribution",
    "SizeWeighted": "aggregation",
    "Softmax": "aggregation",
    "Strategy": "federation",
    "TrajectoryGame": "trajectory",
    "TrajectoryValues": "trajectory",
    "UniformSelection": "selection",
    "UniformWeights": "aggregation",
    "build": "models",
    "compiled": "arithmetic",
    "federation_from_arrays": "ownarrays",
    "gram_matrix": "trajectory",
    "load": "datasets.dataset",
    "make_federation": "partition",
    "precision": "arithmetic",
    "run": "federation",
    "stamp": "provenance",
    "train_clients": "training",
}

__all__ = [
    "BanzhafSampling",
    "BetaShapleySampling",
    "ComplementarySampling",
    "FunctionGame",
    "GTGShapley",
    "Game",
    "MemoGame",
    "MultilinearSampling",
    "OwenSampling",
    "PermutationSampling",
    "ProxySampling",
    "Streams",
    "TableGame",
    "TruncatedMonteCarlo",
    "Valuation",
    "airport",
    "all_coalitions",
    "banzhaf",
    "beta_shapley",
    "coalition_index",
    "estimate",
    "estimate_many",
    "glove",
    "least_core",
    "leave_one_out",
    "normalise",
    "random_unanimity_sum",
    "shapley",
    "shapley_interactions",
    "tabulate",
    "unanimity",
    "weighted_majority",
    *_LATER,
    "fedvalue",
]


def __getattr__(name: str) -> Any:
    if name == "fedvalue":
        return importlib.import_module("fedkit.fedvalue")
    if name in _LATER:
        return getattr(importlib.import_module(f"fedkit.{_LATER[name]}"), name)
    raise AttributeError(f"module 'fedkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
