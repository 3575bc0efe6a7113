"""Draw the figure of the README: ``make figure``.

Error against cost for four estimators on a game of 12 players, repeated over 40 seeds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import fedkit as fk
from reproduction import figures as plots

TARGET = Path(__file__).parent / "_static" / "estimators.png"
ESTIMATORS = {
    "permutations": fk.PermutationSampling(),
    "permutations, antithetic": fk.PermutationSampling(antithetic=True),
    "multilinear (corrected Owen)": fk.MultilinearSampling(),
    "Owen, as printed": fk.OwenSampling(levels=2),
}


def main() -> None:
    """Run the estimators and write the picture."""
    game = fk.normalise(fk.random_unanimity_sum(12, 60, seed=3))  # as FedOwen assumes
    exact = fk.shapley(game).values
    rows = []
    for name, estimator in ESTIMATORS.items():
        for budget in (50, 100, 200, 400, 800, 1600):
            many = fk.estimate_many(game, estimator, budget=budget, seeds=list(range(40)))
            rows += [
                {
                    "estimator": name,
                    "evaluations": budget,
                    "error": float(np.sqrt(np.mean((found.values - exact) ** 2))),
                }
                for found in many
            ]
    picture = plots.error_against_evaluations(pd.DataFrame(rows), exact=2**12)
    TARGET.write_bytes(picture.png(dpi=110))


if __name__ == "__main__":
    main()
