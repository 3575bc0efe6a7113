"""Coalition values per second: fedkit against averaging state dictionaries one by one.

Run ``python -m benchmarks.coalitions [--device cpu|cuda]``.  Both sides see the same base,
updates, validation images and coalitions in the same run, and their accuracies are compared.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.federated.round_games import round_game
from fedkit.games.coalitions import averaging_weights
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import Model, build

CLIENTS = 10


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {"mlp-200": mlp, "lenet5": lenet}
LIMITS = {
    "mlp-200": "memory traffic of hidden units; a product with K = k + 1 = 11",
    "lenet5": "arithmetic of both convolutions, more than half of the time (needs AVX-512)",
}


def environment(device: str) -> dict[str, Any]:
    """Versions and threads, for the head of a table."""
    info: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
    }
    print("  ".join(f"{key} {value}" for key, value in info.items()))
    return info


def peak_mb(device: str) -> float:
    """Largest memory so far, MiB: of the process, or of the device."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alternate(
    runs: dict[str, Callable[[], Any]], device: str, repeats: int = 3
) -> dict[str, tuple[float, Any]]:
    """Fastest time and last result of each side; the sides take turns, so load hits all alike."""
    best = {key: (float("inf"), run()) for key, run in runs.items()}  # a run to warm up
    for _ in range(repeats):
        for key, run in runs.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            result = run()
            if device == "cuda":
                torch.cuda.synchronize()
            best[key] = (min(best[key][0], time.perf_counter() - start), result)
    return best


def state_dict_loop(
    module: nn.Module,
    states: list[dict[str, Tensor]],
    base: dict[str, Tensor],
    weights: np.ndarray,
    x: Tensor,
    y: Tensor,
) -> Iterator[Tensor]:
    """Average state dictionaries, load them, run all images at once: one coalition at a time.

    Yields 1 for every image that is right, else 0.
    """
    for row in weights:
        members = np.flatnonzero(row)
        average = {
            key: sum(float(row[i]) * states[i][key] for i in members) if len(members) else b
            for key, b in base.items()
        }
        module.load_state_dict(average)
        with torch.no_grad():
            yield (module(x).argmax(1) == y).double()


def named(arch: Model, module: nn.Module, params: Tensor) -> dict[str, Tensor]:
    """A flat vector as the state dictionary of a plain module."""
    return {
        key: part.view(like.shape).clone()
        for (key, like), part in zip(module.state_dict().items(), arch.split(params), strict=True)
    }


def compare(name: str, images: int, coalitions: int, loop_coalitions: int, device: str) -> dict:
    """One line of the table."""
    arch, rng = build(name, (1, 28, 28), 10), np.random.default_rng(0)
    base = arch.init(rng).to(device)
    updates = torch.stack([arch.init(rng) for _ in range(CLIENTS)]).to(device)
    x = torch.from_numpy(rng.standard_normal((images, 1, 28, 28), dtype=np.float32)).to(device)
    y = torch.from_numpy(rng.integers(0, 10, images)).to(device)
    sizes = rng.integers(1, 1000, CLIENTS)
    rows = (np.arange(1 << CLIENTS)[:, None] >> np.arange(CLIENTS) & 1).astype(bool)
    rows = rows[rng.permutation(len(rows))[:coalitions]]
    evaluator = Evaluator(arch, x, y, device=device)

    def fresh() -> np.ndarray:
        game = round_game(evaluator, base, None, sizes, updates=updates)
        return game(rows)  # first layer included

    module = MODULES[name]().to(device).eval()
    states = [named(arch, module, base + update) for update in updates]
    weights = averaging_weights(rows[:loop_coalitions], sizes)
    start = named(arch, module, base)

    def one_by_one() -> np.ndarray:
        right = state_dict_loop(module, states, start, weights, x, y)
        return np.array([float(images.mean()) for images in right])

    times = alternate({"fedkit": fresh, "loop": one_by_one}, device)
    (ours, values), (loop, plain) = times["fedkit"], times["loop"]
    per_second, loop_per_second = len(rows) / ours, len(weights) / loop
    difference = float(np.abs(values[: len(plain)] - plain).max())
    line = {
        "model": name,
        "images": images,
        "coalitions": len(rows),
        "fedkit_per_s": per_second,
        "loop_per_s": loop_per_second,
        "ratio": per_second / loop_per_second,
        "largest_difference_images": difference * images,
        "peak_mb": peak_mb(device),
        "limit": LIMITS[name] if device == "cpu" else "launches at small batches, then arithmetic",
    }
    print(
        f"{name:8} {images:6} {len(rows):6} {per_second:12.0f} {loop_per_second:10.1f} "
        f"{line['ratio']:7.1f}x {line['largest_difference_images']:8.1f} "
        f"{line['peak_mb']:9.0f}  {line['limit']}"
    )
    return line


def main(device: str | None = None, threads: int = 1) -> dict[str, Any]:
    """Print the table and return its numbers."""
    torch.set_num_threads(threads)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    result = {"environment": environment(device), "lines": []}
    print(
        "model    images  coal.  fedkit/s     loop/s    ratio  differ  peak MiB  limit\n"
        "(differ: largest difference of an accuracy, in images; peak: of the whole process)"
    )
    number = 1024 if device == "cuda" else 256
    for name in MODULES:
        for images in (600, 2000):
            result["lines"].append(compare(name, images, number, 20, device))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    main(arguments.device, arguments.threads)
