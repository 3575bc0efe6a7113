"""fedkit: who contributed what in federated learning.

Every name is imported when it is first used: games, exact values and estimators need numpy and
scipy alone, models and federations need torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from fedkit.extras import later

__version__ = "0.1.0"

_HOMES = {
    "Adversaries": "federated",
    "Architecture": "learning",
    "BanzhafSampling": "estimators",
    "BetaShapleySampling": "estimators",
    "ClassCosine": "federated",
    "ClientTable": "federated",
    "ComplementarySampling": "estimators",
    "ContributionWeights": "methods.fedtsv",
    "CosineValues": "methods.cgsv",
    "Dataset": "datasets.dataset",
    "Dirichlet": "federated",
    "EpsilonGreedy": "methods.fedowen",
    "Estimated": "federated",
    "Estimator": "estimators",
    "Evaluator": "learning",
    "Exact": "federated",
    "FedAdam": "federated",
    "FedMS": "methods.fedms",
    "FedOwen": "methods.fedowen",
    "FedTSV": "methods.fedtsv",
    "FedYogi": "federated",
    "Federation": "federated",
    "FunctionGame": "games.game",
    "GTGShapley": "estimators",
    "Game": "games.game",
    "History": "federated",
    "IID": "federated",
    "Krum": "federated",
    "LeaveOneOut": "methods.cgsv",
    "LocalSGD": "learning",
    "MaverickGTG": "methods.fedms",
    "MaverickMR": "methods.fedms",
    "MaverickTMR": "methods.fedms",
    "Mavericks": "federated",
    "Median": "federated",
    "MemoGame": "games.game",
    "MultilinearSampling": "estimators",
    "NoValue": "federated",
    "OwenSampling": "methods.fedowen",
    "PermutationSampling": "estimators",
    "Plan": "federated",
    "Proportional": "federated",
    "ProxySampling": "estimators",
    "RandomValues": "federated",
    "RoundGame": "federated",
    "ScikitLinear": "learning",
    "SizeAsValue": "federated",
    "SizeWeighted": "federated",
    "Softmax": "methods.fedowen",
    "Strategy": "federated",
    "Streams": "streams",
    "TableGame": "games.game",
    "TrajectoryGame": "methods.fedtsv",
    "TrajectoryValues": "methods.fedtsv",
    "TrimmedMean": "federated",
    "TruncatedMonteCarlo": "estimators",
    "UniformSelection": "federated",
    "UniformWeights": "federated",
    "Valuation": "games.valuation",
    "airport": "games.game",
    "all_coalitions": "games.game",
    "banzhaf": "estimators",
    "beta_shapley": "estimators",
    "build": "learning",
    "coalition_index": "games.game",
    "estimate": "estimators",
    "estimate_many": "estimators",
    "federation_from_arrays": "federated",
    "glove": "games.game",
    "gram_matrix": "methods.fedtsv",
    "least_core": "estimators",
    "leave_one_out": "estimators",
    "load": "datasets.dataset",
    "make_federation": "federated",
    "normalise": "games.game",
    "precise": "estimators",
    "random_unanimity_sum": "games.game",
    "run": "federated",
    "settled": "estimators",
    "share_right": "learning",
    "shapley": "estimators",
    "shapley_interactions": "estimators",
    "stamp": "records.manifest",
    "tabulate": "games.game",
    "train_clients": "learning",
    "unanimity": "games.game",
    "weighted_majority": "games.game",
}

_ROOMS = ("arena", "fedvalue")
_get = later("fedkit", _HOMES)

__all__ = [*_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"fedkit.{name}") if name in _ROOMS else _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
