"""FedCCEA's simulations: in lockstep against one after another, on weights and in sample space.

Run ``python -m benchmarks.lockstep [--device cpu|cuda] [--threads 1]``.  20 simulations of 20
clients, one round, with the networks, batches and epochs of the paper's MNIST and EMNIST runs;
images are blobs.  Every client uses a random share of its data, as in Algorithm 1.  The test set is
small, so that training is what is timed.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from benchmarks.coalitions import alternate, environment, peak_mb
from benchmarks.rounds import client_data
from fedkit.federated.federation import Federation
from fedkit.federated.retraining import train_with_sizes
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedccea import sample_sizes

SIMULATIONS, CLIENTS = 20, 20
CASES = (
    ("mlp-128-64", 300, LocalSGD(lr=0.01, batch_size=32, epochs=3)),
    ("mlp-128-64", 100, LocalSGD(lr=0.01, batch_size=32, epochs=3)),
    ("mlp-128", 300, LocalSGD(lr=0.05, batch_size=256, epochs=1)),
    ("mlp-128", 100, LocalSGD(lr=0.05, batch_size=256, epochs=1)),
)


def federation(samples: int) -> Federation:
    """Clients of blobs."""
    parts = [client_data(i, samples) for i in range(CLIENTS)]
    x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    held = client_data(CLIENTS, 100)
    clients = tuple(np.split(np.arange(len(y)), CLIENTS))
    return Federation(x, y, clients, *held, *held, 10, "blobs")


def compare(name: str, samples: int, local: LocalSGD, device: str) -> dict[str, Any]:
    """One line of the table."""
    f, arch = federation(samples), build(name, (1, 28, 28), 10)
    sizes = sample_sizes(f.sizes, SIMULATIONS, 1)

    def together(path: str) -> np.ndarray:
        return train_with_sizes(f, arch, local, sizes, device=device, path=path)  # type: ignore[arg-type]

    def alone(path: str) -> np.ndarray:
        rows = [
            train_with_sizes(f, arch, local, one[None], device=device, path=path)  # type: ignore[arg-type]
            for one in sizes
        ]
        return np.concatenate(rows)

    times = alternate(
        {
            "samples": lambda: together("samples"),
            "weights": lambda: together("weights"),
            "alone": lambda: alone("weights"),
            "alone, samples": lambda: alone("samples"),
        },
        device,
    )
    line = {key: seconds for key, (seconds, _) in times.items()}
    results = [result for _, result in times.values()]
    line["largest_difference"] = max(float(np.abs(r - results[0]).max()) for r in results)
    line["peak_mb"] = peak_mb(device)
    print(
        f"{name:11} {samples:7} {line['samples']:10.3f} {line['weights']:10.3f} "
        f"{line['alone, samples']:10.3f} {line['alone']:10.3f} "
        f"{line['alone, samples'] / line['samples']:6.2f}x "
        f"{line['weights'] / line['samples']:6.2f}x "
        f"{line['largest_difference']:8.3f} {line['peak_mb']:8.0f}"
    )
    return {"model": name, "samples": samples, **line}


def main(device: str | None = None, threads: int = 1) -> dict[str, Any]:
    """Print the table and return its numbers."""
    torch.set_num_threads(threads)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    result = {"environment": environment(device), "lines": []}
    print(
        f"seconds of {SIMULATIONS} simulations, {CLIENTS} clients, one round\n"
        "                        in lockstep           one after another      alone/   weights/\n"
        "model       samples    samples    weights    samples    weights  lockstep  samples"
        "   differ peak MiB"
    )
    for name, samples, local in CASES:
        result["lines"].append(compare(name, samples, local, device))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    main(**vars(parser.parse_args()))
