"""Class-wise values of one round: fedkit beside a loop over coalitions.

Run ``python -m benchmarks.classwise [--clients 5] [--images 2000]``.  The round is FedMS's: an MLP
on 28 x 28 images, class accuracies on the server's images.  The loop averages state dictionaries
and runs the model once per coalition, and remembers what it has seen; both sides value the same
round with the same random numbers, and their values are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

import fedkit as fk
from benchmarks.coalitions import MODULES, alternate, environment, named, state_dict_loop
from benchmarks.rounds import client_data
from fedkit.learning.evaluation import Evaluator
from fedkit.methods.fedms import MaverickGTG, MaverickMR, MaverickTMR, game_of

ESTIMATORS = {
    "MS-MR": MaverickMR(),
    "MS-TMR": MaverickTMR(),
    "MS-GTG": MaverickGTG(),
    "GTG": fk.GTGShapley(),
}


def loop_game(
    arch: fk.Architecture, base: torch.Tensor, updates: torch.Tensor, sizes: np.ndarray,
    x: torch.Tensor, y: torch.Tensor, scalar: bool,
) -> fk.FunctionGame:  # fmt: skip
    """The same game as a tutorial would write it: one coalition at a time."""
    module = MODULES["mlp-200"]().eval()
    start = named(arch, module, base)
    states = [named(arch, module, base + update) for update in updates]
    members = [torch.nonzero(y == c).flatten() for c in range(arch.n_classes)]

    def value(coalitions: np.ndarray) -> np.ndarray:
        owned = coalitions * sizes
        share = owned / np.maximum(owned.sum(axis=1, keepdims=True), 1)
        found = [
            right.mean() if scalar else torch.stack([right[rows].mean() for rows in members])
            for right in state_dict_loop(module, states, start, share, x, y)
        ]
        return torch.stack(found).numpy()

    return fk.FunctionGame(len(updates), value)


def main(clients: int = 5, images: int = 2000) -> list[dict]:
    """Print the table and return its numbers."""
    torch.set_num_threads(1)
    environment("cpu")
    arch = fk.build("mlp-200", (1, 28, 28), 10)
    base = arch.init(np.random.default_rng(0))
    data = [client_data(i, 300 + 100 * i) for i in range(clients)]
    sizes = np.array([len(y) for _, y in data])
    local = fk.LocalSGD(lr=0.002, batch_size=64, steps=5)  # far from converged
    rngs = [np.random.default_rng(i) for i in range(clients)]
    updates = fk.train_clients(arch, base.expand(clients, -1), data, local, rngs) - base
    x, y = client_data(99, images)
    print(f"{clients} clients, {images} images, seconds and evaluations per round")
    print("estimator  evaluations  fedkit s    loop s    ratio   largest difference")
    lines = []
    for name, estimator in ESTIMATORS.items():
        scalar = name == "GTG"
        judge = Evaluator(arch, x, y, "accuracy" if scalar else "class_accuracy", device="cpu")
        slow = loop_game(arch, base, updates, sizes, x, y, scalar)

        def ours(judge: Evaluator = judge, e: fk.estimators.Estimator = estimator) -> fk.Valuation:
            return fk.estimate(game_of(fk.RoundGame(judge, base, updates, sizes)), e, seed=1)

        def loop(
            game: fk.FunctionGame = slow, e: fk.estimators.Estimator = estimator
        ) -> fk.Valuation:
            return fk.estimate(game, e, seed=1)

        runs: dict[str, Callable[[], fk.Valuation]] = {"fedkit": ours, "loop": loop}
        times = alternate(runs, "cpu")
        (fast, got), (seconds, expected) = times["fedkit"], times["loop"]
        difference = float(np.abs(got.values - expected.values).max())
        lines.append({"estimator": name, "fedkit_s": fast, "loop_s": seconds,
                      "evaluations": got.evaluations, "difference": difference})  # fmt: skip
        print(
            f"{name:10} {got.evaluations:11} {fast:9.4f} {seconds:9.4f} {seconds / fast:7.1f}x "
            f"{difference:20.1e}"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--images", type=int, default=2000)
    arguments = parser.parse_args()
    main(arguments.clients, arguments.images)
