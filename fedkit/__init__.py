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
from fedkit.games.game import (
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
from fedkit.games.valuation import Valuation
from fedkit.streams import Streams

__version__ = "0.1.0"

_LATER = {
    "Architecture": "learning.architectures",
    "Cast": "federated.adversaries",
    "ClassCosine": "federated.valuers",
    "ClientTable": "federated.selection",
    "ContributionWeights": "methods.fedtsv",
    "CosineValues": "methods.fedtsv",
    "Dataset": "datasets.dataset",
    "Dirichlet": "federated.clients",
    "EpsilonGreedy": "federated.selection",
    "Estimated": "federated.valuers",
    "Evaluator": "learning.evaluation",
    "Exact": "federated.valuers",
    "FedMS": "methods.fedms",
    "FedTSV": "methods.fedtsv",
    "Federation": "federated.clients",
    "History": "federated.history",
    "IID": "federated.clients",
    "LeaveOneOut": "methods.fedtsv",
    "LocalSGD": "learning.training",
    "MaverickGTG": "methods.fedms",
    "MaverickMR": "methods.fedms",
    "MaverickTMR": "methods.fedms",
    "Mavericks": "federated.clients",
    "NoValue": "federated.valuers",
    "Plan": "federated.rounds",
    "Proportional": "federated.aggregation",
    "RandomValues": "federated.valuers",
    "RoundGame": "federated.round_game",
    "SizeAsValue": "federated.valuers",
    "SizeWeighted": "federated.aggregation",
    "Softmax": "federated.aggregation",
    "Strategy": "federated.rounds",
    "TrajectoryGame": "methods.fedtsv_trajectory",
    "TrajectoryValues": "methods.fedtsv_trajectory",
    "UniformSelection": "federated.selection",
    "UniformWeights": "federated.aggregation",
    "build": "learning.architectures",
    "federation_from_arrays": "federated.own_arrays",
    "gram_matrix": "methods.fedtsv_trajectory",
    "load": "datasets.dataset",
    "make_federation": "federated.clients",
    "run": "federated.rounds",
    "stamp": "records.manifest",
    "train_clients": "learning.training",
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
