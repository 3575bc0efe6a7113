"""fedkit: who contributed what in federated learning.

Every name is imported when it is first used: games, exact values and estimators need numpy and
scipy alone, models and federations need torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from fedkit.extras import lazy

__version__ = "0.1.0"

_names, _get = lazy(
    "fedkit",
    {
        "federated": "ClassCosine ClientTable Dirichlet Estimated Exact Federation "
        "History IID LeaveOneOut Mavericks NoValue Plan Proportional RandomValues ShuffledValues "
        "SizeAsValue SizeWeighted Strategy UniformSelection UniformWeights federation_from_arrays "
        "federation_game make_federation retraining_game round_game run",
        "learning": "Evaluator LocalSGD Model build model_of share_right train_clients",
        "estimators": "BanzhafSampling ComplementarySampling Estimator "
        "GTGShapley MultilinearSampling PermutationSampling ProxySampling TruncatedMonteCarlo "
        "estimate estimate_many precise settled",
        "methods": "ContributionWeights CosineValues EpsilonGreedy FedMS FedOwen FedTSV "
        "MaverickGTG MaverickMR MaverickTMR OwenSampling OwenTwins Softmax "
        "TrajectoryValues gram_matrix trajectory_game value",
        "datasets": "Dataset load",
        "games": "Game Ledger Valuation airport all_coalitions banzhaf beta_shapley "
        "coalition_index glove leave_one_out normalise parallel random_unanimity_sum remember "
        "shapley table_game tabulate total unanimity weighted_majority",
        "streams": "Streams",
    },
)

_ROOMS = ("arena", "fedvalue", "games", "interop")

__all__ = [*_names, *_ROOMS]


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"fedkit.{name}") if name in _ROOMS else _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
