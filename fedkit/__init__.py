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
from fedkit.extras import later
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
    "Adversaries": "federated",
    "Architecture": "learning",
    "ClassCosine": "federated",
    "ClientTable": "federated",
    "ContributionWeights": "methods.fedtsv",
    "CosineValues": "methods.cgsv",
    "Dataset": "datasets.dataset",
    "Dirichlet": "federated",
    "EpsilonGreedy": "methods.fedowen",
    "Estimated": "federated",
    "Evaluator": "learning",
    "Exact": "federated",
    "FedMS": "methods.fedms",
    "FedOwen": "methods.fedowen",
    "FedTSV": "methods.fedtsv",
    "Federation": "federated",
    "History": "federated",
    "IID": "federated",
    "LeaveOneOut": "methods.cgsv",
    "LocalSGD": "learning",
    "MaverickGTG": "methods.fedms",
    "MaverickMR": "methods.fedms",
    "MaverickTMR": "methods.fedms",
    "Mavericks": "federated",
    "NoValue": "federated",
    "OwenSampling": "methods.fedowen",
    "Plan": "federated",
    "Proportional": "federated",
    "RandomValues": "federated",
    "RoundGame": "federated",
    "SizeAsValue": "federated",
    "SizeWeighted": "federated",
    "Softmax": "methods.fedowen",
    "Strategy": "federated",
    "TrajectoryGame": "methods.fedtsv",
    "TrajectoryValues": "methods.fedtsv",
    "UniformSelection": "federated",
    "UniformWeights": "federated",
    "build": "learning",
    "federation_from_arrays": "federated",
    "gram_matrix": "methods.fedtsv",
    "load": "datasets.dataset",
    "make_federation": "federated",
    "run": "federated",
    "stamp": "records.manifest",
    "train_clients": "learning",
}

_get = later("fedkit", _LATER)

__all__ = [
    "BanzhafSampling",
    "BetaShapleySampling",
    "ComplementarySampling",
    "FunctionGame",
    "GTGShapley",
    "Game",
    "MemoGame",
    "MultilinearSampling",
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
    return importlib.import_module("fedkit.fedvalue") if name == "fedvalue" else _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
