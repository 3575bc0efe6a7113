"""Ours beside the usual way: ``python -m benchmarks.speed [CONTEST ...] [--short]``.

In a contest the same work is done in two or more ways on the same data.  They take turns, so that
load hits all alike; each is timed by its fastest run.  A line has units of work per second, how
many times less ours takes, the largest difference between the results, and the largest memory of
the process so far.  ``--short`` makes the work small: a look whether all of it runs.  Peers that
are not installed are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import fedkit as fk
from fedkit.federated.federation import Federation
from fedkit.federated.retraining import train_with_sizes
from fedkit.fedvalue.columns import discretise
from fedkit.fedvalue.information import mshapley_cmi
from fedkit.fedvalue.protocol.counting import count_tuples
from fedkit.fedvalue.protocol.parties import count_here, parties_of
from fedkit.games.coalitions import averaging_weights, coalition_index
from fedkit.methods.fedccea import sample_sizes

CLIENTS, SHAPE, CLASSES = 10, (1, 28, 28), 10
LOCAL = fk.LocalSGD(lr=0.05, batch_size=32, epochs=1)
PARTIES, FEATURES = 5, 2

Ways = dict[str, tuple[Callable[[], Any], float]]


@dataclass(frozen=True)
class Contest:
    """What is done, in units of which each way does so many; ours is the first way."""

    title: str
    unit: str
    ways: Ways
    repeats: int = 3


@dataclass(frozen=True)
class Given:
    """What was asked for."""

    short: bool
    device: str


MODULES: dict[str, Callable[[], nn.Module]] = {
    "mlp-200": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)
    ),
    "lenet5": lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10),
    ),
}  # fmt: skip


@cache  # Flower makes a client for every message
def client_data(i: int, images: int = 600) -> tuple[Tensor, Tensor]:
    """Blobs around ten class means, so that training converges as on real images."""
    means = np.random.default_rng(99).standard_normal((CLASSES, *SHAPE), dtype=np.float32)
    rng = np.random.default_rng([7, i])
    y = rng.integers(0, CLASSES, images)
    x = means[y] + rng.standard_normal((images, *SHAPE), dtype=np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def saturating(n: int) -> fk.Game:
    """An accuracy-like game: diminishing returns of unequal clients, and a little noise."""
    rng = np.random.default_rng(0)
    share = rng.exponential(size=n) * 2.0 / n
    rows = fk.all_coalitions(n)
    return fk.table_game(1.0 - np.exp(-(rows @ share)) + 0.004 * rng.normal(size=2**n))


# --- models -----------------------------------------------------------------------------------


def module_of(name: str, row: Tensor) -> nn.Module:
    """An ordinary module with the parameters of a row."""
    module = MODULES[name]().to(row.device)
    nn.utils.vector_to_parameters(row.clone(), module.parameters())
    return module


def coalitions(given: Given, name: str, images: int) -> Contest:
    """Accuracies of coalitions, against averaging state dictionaries one by one."""
    few = 5 if given.short else 20
    many = 32 if given.short else 1024 if given.device == "cuda" else 256
    model, rng = fk.build(name, SHAPE, CLASSES), np.random.default_rng(0)
    base = model.init(rng).to(given.device)
    updates = torch.stack([model.init(rng) for _ in range(CLIENTS)]).to(given.device)
    x, y = (part.to(given.device) for part in client_data(0, images))
    sizes = rng.integers(1, 1000, CLIENTS)
    rows = fk.all_coalitions(CLIENTS)[rng.permutation(2**CLIENTS)[:many]]
    evaluator = fk.Evaluator(model, x, y, device=given.device)
    module = module_of(name, base).eval()
    start = deepcopy(module.state_dict())
    states = [module_of(name, base + update).state_dict() for update in updates]

    def loop() -> np.ndarray:
        found = []
        for row in averaging_weights(rows[:few], sizes):
            shares = [(float(w), s) for w, s in zip(row, states, strict=True)]
            mean = {k: sum(w * s[k] for w, s in shares) for k in start}
            module.load_state_dict(mean if row.any() else start)
            with torch.no_grad():
                found.append(float((module(x).argmax(1) == y).double().mean()))
        return np.array(found)

    ways: Ways = {
        "fedkit": (lambda: fk.round_game(evaluator, base, base + updates, sizes)(rows)[:few], many),
        "state dictionaries": (loop, few),
    }
    return Contest(f"coalitions {name}, {images} images", "coalitions", ways)


def rounds(given: Given, name: str) -> Contest:
    """A round of local training, against torch.nn and torch.optim as a tutorial has them."""
    images = 100 if given.short else 600
    model = fk.build(name, SHAPE, CLASSES)
    start = model.init(np.random.default_rng(0)).to(given.device)
    parts = [client_data(i, images) for i in range(CLIENTS)]
    data = [(x.to(given.device), y.to(given.device)) for x, y in parts]

    def ours() -> Tensor:
        stack = start.cpu().expand(CLIENTS, -1)
        return fk.train_clients(model, stack, data, LOCAL, _streams(1), device=given.device)

    def loop() -> Tensor:
        own = zip(data, _streams(1), strict=True)
        return torch.stack([_plain(name, start, part, rng) for part, rng in own])

    ways: Ways = {"fedkit": (ours, CLIENTS * images), "torch.optim": (loop, CLIENTS * images)}
    return Contest(f"round {name}, {CLIENTS} clients", "images", ways)


def _streams(number: int) -> list[np.random.Generator]:
    return [np.random.default_rng([number, i]) for i in range(CLIENTS)]


def _plain(name: str, start: Tensor, data: Any, rng: np.random.Generator) -> Tensor:
    model = module_of(name, start)
    optimiser = torch.optim.SGD(model.parameters(), LOCAL.lr)
    x, y = data
    for batch in torch.from_numpy(rng.permutation(len(y))).to(x.device).split(LOCAL.batch_size):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def flower(given: Given, name: str) -> Contest | None:
    """Rounds of federated averaging, against Flower's simulation, its start-up included."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        return None
    number = 2 if given.short else 13
    model = fk.build(name, SHAPE, CLASSES)

    def ours() -> Tensor:
        flat = model.init(np.random.default_rng(0))
        data = [client_data(i) for i in range(CLIENTS)]
        for r in range(1, number + 1):
            stack = flat.expand(CLIENTS, -1)
            flat = fk.train_clients(model, stack, data, LOCAL, _streams(r), device="cpu").mean(0)
        return flat

    ways: Ways = {"fedkit": (ours, number), "Flower": (partial(_flower, name, number), number)}
    return Contest(f"federated averaging {name}", "rounds", ways, repeats=1)


def _flower(name: str, number: int) -> Tensor:
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    model = fk.build(name, SHAPE, CLASSES)
    start = model.split(model.init(np.random.default_rng(0))[None])
    final: list[Any] = []

    class Client(NumPyClient):
        def __init__(self, partition: int) -> None:
            torch.set_num_threads(1)
            self.partition = partition

        def fit(self, parameters: Any, config: dict) -> tuple:
            flat = torch.cat([torch.from_numpy(p).flatten() for p in parameters])
            rng = np.random.default_rng([int(config["round"]), self.partition])
            data = client_data(self.partition)
            trained = _plain(name, flat, data, rng)
            return [part[0].numpy() for part in model.split(trained[None])], len(data[1]), {}

    def server(context: Any) -> Any:
        strategy = FedAvg(
            fraction_evaluate=0.0, min_fit_clients=CLIENTS, min_available_clients=CLIENTS,
            initial_parameters=ndarrays_to_parameters([part[0].numpy() for part in start]),
            on_fit_config_fn=lambda server_round: {"round": server_round},
            evaluate_fn=lambda server_round, parameters, config: final.append(parameters),
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=number))

    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(
            lambda context: Client(int(context.node_config["partition-id"])).to_client()
        ),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return torch.cat([torch.from_numpy(part).flatten() for part in final[-1]])


def lockstep(given: Given, name: str, local: fk.LocalSGD) -> Contest:
    """FedCCEA's simulations of 20 clients, together against one after another."""
    number, clients, images = 20, 20, 50 if given.short else 300
    parts = [client_data(i, images) for i in range(clients)]
    x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    held = client_data(clients, 100)
    split = tuple(np.split(np.arange(len(y)), clients))
    federation = Federation(x, y, split, *held, *held, CLASSES, "blobs")
    model, sizes = fk.build(name, SHAPE, CLASSES), sample_sizes(federation.sizes, number, 1)
    run = partial(train_with_sizes, federation, model, local, device=given.device)
    ways: Ways = {
        "in lockstep": (partial(run, sizes), number),
        "one by one": (lambda: np.concatenate([run(one[None]) for one in sizes]), number),
    }
    return Contest(f"simulations {name}", "simulations", ways)


# --- games ------------------------------------------------------------------------------------


def overhead(given: Given) -> Contest:
    """What walking costs beside a utility that costs nothing, against shapiq and pyDVL."""
    calls, table = 900 if given.short else 9000, saturating(10)

    def ours() -> None:
        fk.estimate(table, fk.PermutationSampling(), calls, count="calls")

    ways: Ways = {"fedkit": (ours, calls)}
    if find_spec("shapiq"):
        import shapiq

        def walk() -> None:
            shapiq.PermutationSamplingSV(10, random_state=0).approximate(calls, _looked_up(table))

        ways["shapiq"] = walk, calls
    if find_spec("pydvl"):
        ways["pyDVL"] = partial(_pydvl, table, calls), calls
    return Contest("walks, n = 10", "coalitions", ways)


def _looked_up(table: fk.Game) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: table.table[coalition_index(np.atleast_2d(rows).astype(bool))]


def _pydvl(table: fk.Game, calls: int) -> None:
    from pydvl.valuation import Dataset, MinUpdates, PermutationSampler, ShapleyValuation
    from pydvl.valuation.utility.base import UtilityBase

    class Utility(UtilityBase):
        def __call__(self, sample: Any) -> float:
            code = 0 if sample is None else sum(1 << int(i) for i in sample.subset)
            return float(table.table[code])

    n = table.n_players
    until = MinUpdates(calls // (n - 1))
    valuation = ShapleyValuation(Utility(), PermutationSampler(seed=0), until, progress=False)
    valuation.fit(Dataset(np.arange(n, dtype=float)[:, None], np.zeros(n)))


def exact(given: Given, n: int) -> Contest:
    """Exact Shapley values of a table, against shapiq's where it can wait for them."""
    n = 10 if given.short else n
    table = saturating(n)
    ways: Ways = {"fedkit": (lambda: fk.shapley(table).values, 2**n)}
    if find_spec("shapiq") and n <= 16:
        import shapiq

        def peer() -> np.ndarray:
            computer = shapiq.ExactComputer(game=_looked_up(table), n_players=n)
            return computer("SV").get_n_order_values(1)

        ways["shapiq"] = peer, 2**n
    return Contest(f"exact values, n = {n}", "utilities", ways)


# --- columns ----------------------------------------------------------------------------------


def counting(given: Given) -> Contest:
    """Exact MShapley-CMI in the clear, against counting every coalition by pandas."""
    rows = 20_000 if given.short else 1_000_000
    rng, columns = np.random.default_rng(0), (PARTIES + 1) * FEATURES
    hidden = rng.normal(size=(rows, 3))
    x = hidden @ rng.normal(size=(3, columns)) + rng.normal(size=(rows, columns))
    y = (hidden.sum(axis=1) + rng.normal(size=rows) > 0).astype(np.int64)
    task, *parties = (x[:, i : i + FEATURES] for i in range(0, columns, FEATURES))
    binned = pd.DataFrame(discretise(x), columns=[f"c{j}" for j in range(columns)])
    binned["y"] = y

    def entropy(names: list[str]) -> float:
        p = binned.groupby(names, sort=False, observed=True).size().to_numpy() / rows
        return float(-(p * np.log(p)).sum())

    def groupby() -> np.ndarray:
        table = []
        for members in fk.all_coalitions(PARTIES):
            whose = [0, *(1 + np.flatnonzero(members))]
            names = [f"c{FEATURES * party + j}" for party in whose for j in range(FEATURES)]
            table.append(entropy(["y"]) + entropy(names) - entropy([*names, "y"]))
        return fk.shapley(fk.table_game(np.array(table))).values

    ways: Ways = {
        "fedkit": (lambda: mshapley_cmi(task, y, parties).values, rows),
        "pandas groupby": (groupby, rows),
    }
    return Contest("counting in the clear", "rows", ways, repeats=1)


def protocol(given: Given, parties: int) -> Contest:
    """The counting protocol at the paper's size (four hours there), or cell by cell.

    Parties share a list of IDs that is hashed once, with 3 copies of each, 2 iterations and 50
    artificial IDs in each block, every check on; cell by cell is Algorithm 1 as printed.
    """
    options = {"duplications": 3, "iterations": 2, "artificial": 50}
    large = parties == PARTIES
    rows = 1000 if not large else 10_000 if given.short else 1_000_000
    rng = fk.Streams(0).generator("secure counting", rows)
    cells = 25 if large else 3
    x, y, *columns = (rng.integers(0, size, rows) for size in (cells, 2, *([cells] * parties)))

    def counted(**more: Any) -> np.ndarray:
        found = count_here(*parties_of((x, y, columns), seed=0, **options, **more))
        return np.sort(found.counts)

    def in_the_clear() -> np.ndarray:
        return np.sort(count_tuples([x, y, *columns], np.ones(rows, dtype=np.int64))[1])

    ways: Ways = {"whole table": (partial(counted, blocks=8) if large else counted, rows)}
    if large:
        ways["in the clear"] = in_the_clear, rows
    else:
        ways["cell by cell"] = partial(counted, variant="cells", hardened=False), rows
    return Contest(f"protocol, {parties} data parties", "rows", ways, repeats=1)


CONTESTS: dict[Callable[..., Contest | None], list[tuple]] = {
    coalitions: [*product(MODULES, (600, 2000))],
    rounds: [*product(MODULES)],
    lockstep: [
        ("mlp-128-64", fk.LocalSGD(lr=0.01, batch_size=32, epochs=3)),
        ("mlp-128", fk.LocalSGD(lr=0.05, batch_size=256, epochs=1)),
    ],
    overhead: [()],
    counting: [()],
    protocol: [(2,), (PARTIES,)],
    flower: [*product(MODULES)],
    exact: [(16,), (20,), (24,)],
}
"""Each contest, and what it is held with."""


def timed(contest: Contest, given: Given) -> None:
    """Do it in turns, and print a line for each way."""
    best = dict.fromkeys(contest.ways, np.inf)
    found: dict[str, Any] = {}
    for _ in range(1 if given.short else contest.repeats):
        for name, (way, _) in contest.ways.items():
            start = time.perf_counter()
            result = way()
            if given.device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(best[name], time.perf_counter() - start)
            found[name] = None if result is None else np.asarray(torch.as_tensor(result).cpu())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if given.device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    first = next(iter(contest.ways))
    for name, (_, units) in contest.ways.items():
        rate, ours = units / best[name], contest.ways[first][1] / best[first]
        line = f"{contest.title:32} {name:20} {rate:14,.4g} {contest.unit + '/s':14}"
        if name != first:
            line += f" {ours / rate:8.1f}x "
            if found[name] is not None:
                line += f" differs by {np.abs(found[name] - found[first]).max():.1e}"
        print(f"{line}  {peak:,.0f} MiB" if name == first else line, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the contests, one after another."""
    names = {each.__name__: each for each in CONTESTS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contests", nargs="*", metavar="CONTEST", help=", ".join(names))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.contests) - set(names):
        parser.error(f"no contest {sorted(unknown)}; choose from {', '.join(names)}")
    torch.set_num_threads(asked.threads)
    # differences are of the method, not of a shorter float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {asked.device}")
    given = Given(asked.short, asked.device)
    for hold in (names[name] for name in asked.contests or names):
        for case in CONTESTS[hold]:
            if contest := hold(given, *case):
                timed(contest, given)


if __name__ == "__main__":
    from benchmarks import speed  # Flower's processes find its functions by this name

    speed.main()
