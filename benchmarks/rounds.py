"""A round of local training: fedkit, a plain torch loop, and Flower's simulation.

Run ``python -m benchmarks.rounds [--device cpu|cuda] [--no-flower]``.  Ten clients of 600 images
train for one epoch with batches of 32.  All sides start from the same parameters and take the
same batches, and the averaged models are compared at the end.  Flower runs as its users run it: a
NumPyClient, FedAvg, ``run_simulation``, one actor per core; its start-up is removed by subtracting
a run of 3 rounds from one of 13.  fedkit and the loop are measured with one torch thread and with
one per core; beside Flower, fedkit has every core, as Flower has.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.coalitions import MODULES, alternate, environment, peak_mb
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD, train_clients

CLIENTS, IMAGES = 10, 600
CONFIG = LocalSGD(lr=0.05, batch_size=32, epochs=1)
LIMITS = {
    "mlp-200": "products of 32 rows; traffic of the weights",
    "lenet5": "gradients of the convolutions and max pooling",
}
Data = tuple[Tensor, Tensor]


@cache  # Flower makes a client for every message
def client_data(i: int, images: int = IMAGES) -> Data:
    """Blobs around ten class means, so that training converges as on real images."""
    means = np.random.default_rng(99).standard_normal((10, 1, 28, 28), dtype=np.float32)
    rng = np.random.default_rng([7, i])
    y = rng.integers(0, 10, images)
    x = means[y] + rng.standard_normal((images, 1, 28, 28), dtype=np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def plain_client(
    name: str, start: Tensor, data: Data, rng: np.random.Generator, device: str
) -> Tensor:
    """One client with torch.nn and torch.optim, as a tutorial would write it."""
    model = MODULES[name]().to(device)
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), CONFIG.lr)
    x, y = data
    order = torch.from_numpy(rng.permutation(len(y))).to(device)
    for batch in order.split(CONFIG.batch_size):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def generators(server_round: int, clients: int = CLIENTS) -> list[np.random.Generator]:
    return [np.random.default_rng([server_round, i]) for i in range(clients)]


def compare(name: str, device: str, clients: int = CLIENTS, repeats: int = 5) -> dict[str, Any]:
    """One line of the table: fedkit and the plain loop."""
    arch = build(name, (1, 28, 28), 10)
    start = arch.init(np.random.default_rng(0))
    data = [client_data(i) for i in range(clients)]
    moved = [(x.to(device), y.to(device)) for x, y in data]
    first = start.to(device)

    def ours() -> Tensor:
        rngs = generators(1, clients)
        return train_clients(arch, start.expand(clients, -1), moved, CONFIG, rngs, device=device)

    def loop() -> Tensor:
        pairs = zip(moved, generators(1, clients), strict=True)
        return torch.stack([plain_client(name, first, own, rng, device) for own, rng in pairs])

    times = alternate({"fedkit": ours, "loop": loop}, device, repeats)
    (fast, got), (slow, expected) = times["fedkit"], times["loop"]
    line = {
        "model": name,
        "clients": clients,
        "threads": torch.get_num_threads(),
        "fedkit_s": fast,
        "loop_s": slow,
        "ratio": slow / fast,
        "fedkit_images_per_s": clients * IMAGES / fast,
        "largest_difference": float((got - expected.cpu()).abs().max()),
        "peak_mb": peak_mb(device),
        "limit": LIMITS[name] if device == "cpu" else "launches of small kernels",
    }
    print(
        f"{name:8} {line['threads']:6} {clients:7} {fast:8.3f} {slow:9.3f} "
        f"{line['ratio']:7.2f}x {line['fedkit_images_per_s']:10.0f} "
        f"{line['largest_difference']:9.1e} {line['peak_mb']:9.0f}  {line['limit']}"
    )
    return line


def flower_seconds(name: str, rounds: int) -> tuple[float, list[np.ndarray]]:
    """Wall time of one simulation, start-up included, and the final parameters."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    arch = build(name, (1, 28, 28), 10)
    start = arch.split(arch.init(np.random.default_rng(0))[None])
    final: dict[int, list[np.ndarray]] = {}

    class Client(NumPyClient):
        def __init__(self, partition: int) -> None:
            torch.set_num_threads(1)
            self.partition = partition
            self.x, self.y = client_data(partition)

        def fit(self, parameters: list[np.ndarray], config: dict) -> tuple:
            flat = torch.cat([torch.from_numpy(p).flatten() for p in parameters])
            rng = np.random.default_rng([int(config["round"]), self.partition])
            trained = plain_client(name, flat, (self.x, self.y), rng, "cpu")
            parts = [t[0].numpy() for t in arch.split(trained[None])]
            return parts, len(self.y), {}

    def client_fn(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    def keep(server_round: int, parameters: list[np.ndarray], config: dict) -> None:
        final[server_round] = parameters

    def server_fn(context: Context) -> ServerAppComponents:
        initial = ndarrays_to_parameters([t[0].numpy() for t in start])
        assert len(parameters_to_ndarrays(initial)) == len(start)
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=CLIENTS,
            min_available_clients=CLIENTS,
            initial_parameters=initial,
            on_fit_config_fn=lambda server_round: {"round": server_round},
            evaluate_fn=keep,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    begin = time.perf_counter()
    run_simulation(
        server_app=ServerApp(server_fn=server_fn),
        client_app=ClientApp(client_fn=client_fn),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return time.perf_counter() - begin, final[rounds]


def compare_flower(name: str, few: int = 3, many: int = 13) -> dict[str, Any]:
    """Seconds per round of Flower and of fedkit, and the difference of their final models."""
    short, _ = flower_seconds(name, few)
    long, parts = flower_seconds(name, many)
    theirs = torch.cat([torch.from_numpy(p).flatten() for p in parts])
    arch = build(name, (1, 28, 28), 10)
    params = arch.init(np.random.default_rng(0))
    data = [client_data(i) for i in range(CLIENTS)]
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    torch.set_num_threads(cores)
    begin = time.perf_counter()
    for r in range(1, many + 1):
        stack = params.expand(CLIENTS, -1)
        params = train_clients(arch, stack, data, CONFIG, generators(r), device="cpu").mean(0)
    fedkit = (time.perf_counter() - begin) / many
    torch.set_num_threads(before)
    flower = (long - short) / (many - few)
    x, y = client_data(CLIENTS)
    accuracy = [
        float((arch.forward(p[None], x)[0].argmax(1) == y).double().mean())
        for p in (params, theirs)
    ]
    line = {
        "model": name,
        "cores": cores,
        "fedkit_s": fedkit,
        "flower_s": flower,
        "flower_start_s": short - few * flower,
        "ratio": flower / fedkit,
        "largest_difference": float((params - theirs).abs().max()),
        "accuracy_fedkit": accuracy[0],
        "accuracy_flower": accuracy[1],
        "limit": "Flower: serialisation and actors; fedkit: arithmetic",
    }
    print(
        f"{name:8} {cores} cores: fedkit {fedkit:.3f} s/round, Flower {flower:.3f} s/round after "
        f"{line['flower_start_s']:.1f} s of start-up: {line['ratio']:.1f}x; largest difference "
        f"{line['largest_difference']:.1e}, accuracies {accuracy[0]:.4f} and {accuracy[1]:.4f}"
    )
    return line


def main(device: str | None = None, flower: bool = True, threads: int = 1) -> dict[str, Any]:
    """Print the tables and return their numbers."""
    torch.set_num_threads(threads)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    result: dict[str, Any] = {"environment": environment(device), "loop": [], "flower": []}
    print(
        "model   threads clients fedkit s    loop s   ratio   images/s    differ  peak MiB  limit\n"
        "(differ: largest difference of a parameter; peak: of the whole process)"
    )
    for name in MODULES:
        for count in sorted({threads, os.cpu_count() or 1} if device == "cpu" else {threads}):
            torch.set_num_threads(count)
            result["loop"].append(compare(name, device))
    torch.set_num_threads(threads)
    if device == "cuda":
        result["loop"].append(compare("lenet5", device, clients=100, repeats=2))
    if flower:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by Flower's actors
        os.environ.setdefault("RAY_DEDUP_LOGS", "1")
        result["environment"]["flwr"] = version("flwr")
        print(f"flwr {version('flwr')}, ray {version('ray')}")
        for name in MODULES:
            result["flower"].append(compare_flower(name))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--no-flower", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    main(arguments.device, not arguments.no_flower, arguments.threads)
