"""Trajectory Shapley values of one round: exact by the Gram matrix, by sampling, and by averaging.

Run ``python -m benchmarks.trajectory [--model mlp-64] [--threads 1]``.  *Averaging* builds the mean
update of every coalition and its distance to the reference, one after another, and takes exact
values of the table; *sampling* walks through 10 permutations in the same way, as the paper does.
Where all coalitions would take too long, averaging is timed on some of them and scaled up; such
rows carry a tilde.  Exact values take the least of three runs, the others, which last long, one.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import fedkit as fk
from benchmarks.coalitions import environment
from fedkit.methods.fedtsv import gram_matrix, trajectory_game
from reproduction.fedtsv.timings import averaging, clock, made_up

PERMUTATIONS, WHOLE = 10, 1 << 15


def main(model: str = "mlp-64", threads: int = 1) -> list[dict]:
    """Print the table and return its numbers."""
    torch.set_num_threads(threads)
    environment("cpu")
    p = fk.build(model, (1, 28, 28), 10).n_parameters
    print(f"{model}, {p} parameters; seconds per round, and largest error against the exact values")
    print(" k   Gram, exact  10 permutations        averaging, exact    ratio   errors")
    lines = []
    for k in (5, 10, 15, 20):
        updates, reference = made_up(k, p)

        def exact(u: torch.Tensor = updates, d: torch.Tensor = reference) -> np.ndarray:
            return fk.shapley(trajectory_game(gram_matrix(torch.cat([u, d[None]])))).values

        slow = averaging(updates, reference)

        def sampled(game: fk.Game = slow) -> np.ndarray:
            return fk.estimate(game, fk.PermutationSampling(walks=PERMUTATIONS), seed=0).values

        fast_s, fast = clock(exact)
        sample_s, sample = clock(sampled, 1)
        whole = 2**k <= WHOLE
        some = fk.all_coalitions(k) if whole else np.random.default_rng(0).random((2000, k)) < 0.5
        loop_s, table = clock(lambda s=some, g=slow: g(s), 1)
        loop_s *= 2**k / len(some)
        spread = float(np.abs(np.asarray(sample) - np.asarray(fast)).max())
        off = float("nan")
        if whole:
            off = float(np.abs(fk.shapley(fk.table_game(np.asarray(table))).values - fast).max())
        lines.append({"k": k, "gram_s": fast_s, "sampled_s": sample_s, "averaging_s": loop_s,
                      "difference": off, "sampling_error": spread})  # fmt: skip
        print(
            f"{k:2} {fast_s:12.4f}s {sample_s:15.4f}s {'' if whole else '~':>12}{loop_s:11.4f}s "
            f"{loop_s / fast_s:8.0f}x   averaging {off:.1e}, sampling {spread:.1e}"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mlp-64")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    main(arguments.model, arguments.threads)
