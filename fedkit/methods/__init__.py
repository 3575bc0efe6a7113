"""One file per paper: its algorithm, in the paper's order, with equation numbers; and baselines.

What needs torch is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(
    __name__,
    {
        "baselines": "CosineValues FedEMD GreedyFed Oracle OracleWeights PowerOfChoice "
        "RunningCosine RunningValue SFedAvg cosine_game",
        "fedccea": "Fit Simulations contribution_index contribution_values fit_aam simulate",
        "fedms": "Accumulate CoresetWeights FedMS MaverickGTG MaverickMR MaverickTMR "
        "MaverickValues ScoreSelection class_difficulty class_scores",
        "fedowen": "EpsilonGreedy FedOwen OwenSampling OwenTwins Softmax",
        "fedtsv": "ContributionWeights FedTSV TrajectoryValues reference_updates trajectory_game",
        "gram": "gram_matrix",
        "one_round": "value",
    },
)
