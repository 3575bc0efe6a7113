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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
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

Way = Callable[[], Any]


@dataclass(frozen=True)
class Contest:
    """What is done, in units of which each way does so many; ours is the first way."""

    title: str
    unit: str
    ways: dict[str, tuple[Way, float]]
    repeats: int = 3


@dataclass(frozen=True)
class Given:
    """What was asked for."""

    short: bool
    device: str


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


def coalitions(given: Given) -> Iterator[Contest]:
    """Accuracies of coalitions, against averaging state dictionaries one by one."""
    few = 5 if given.short else 20
    many = 32 if given.short else 1024 if given.device == "cuda" else 256
    for name, make in MODULES.items():
        for images in (600,) if given.short else (600, 2000):
            model, rng = fk.build(name, SHAPE, CLASSES), np.random.default_rng(0)
            base = model.init(rng).to(given.device)
            updates = torch.stack([model.init(rng) for _ in range(CLIENTS)]).to(given.device)
            x, y = (part.to(given.device) for part in client_data(0, images))
            sizes = rng.integers(1, 1000, CLIENTS)
            rows = fk.all_coalitions(CLIENTS)[rng.permutation(2**CLIENTS)[:many]]
            evaluator = fk.Evaluator(model, x, y, device=given.device)
            module = make().to(given.device).eval()
            weights = averaging_weights(rows[:few], sizes)

            def ours(evaluator=evaluator, base=base, updates=updates, sizes=sizes, rows=rows):  # type: ignore[no-untyped-def]
                return fk.round_game(evaluator, base, base + updates, sizes)(rows)[:few]

            def loop(module=module, base=base, updates=updates, weights=weights, x=x, y=y):  # type: ignore[no-untyped-def]
                keys = module.state_dict()
                states = [_named(keys, base + update) for update in updates]
                start, found = _named(keys, base), []
                for row in weights:
                    mean = {k: sum(float(w) * s[k] for w, s in zip(row, states, strict=True))
                            for k in keys}  # fmt: skip
                    module.load_state_dict(mean if row.any() else start)
                    with torch.no_grad():
                        found.append(float((module(x).argmax(1) == y).double().mean()))
                return np.array(found)

            ways = {"fedkit": (ours, many), "state dictionaries": (loop, few)}
            yield Contest(f"coalitions {name}, {images} images", "coalitions", ways)


def _named(keys: dict[str, Tensor], flat: Tensor) -> dict[str, Tensor]:
    parts = flat.split([like.numel() for like in keys.values()])
    return {k: part.view(like.shape) for (k, like), part in zip(keys.items(), parts, strict=True)}


def rounds(given: Given) -> Iterator[Contest]:
    """A round of local training, against torch.nn and torch.optim as a tutorial has them."""
    images = 100 if given.short else 600
    for name in MODULES:
        model = fk.build(name, SHAPE, CLASSES)
        start = model.init(np.random.default_rng(0)).to(given.device)
        parts = [client_data(i, images) for i in range(CLIENTS)]
        data = [(x.to(given.device), y.to(given.device)) for x, y in parts]

        def ours(model=model, start=start, data=data):  # type: ignore[no-untyped-def]
            stack = start.cpu().expand(CLIENTS, -1)
            return fk.train_clients(model, stack, data, LOCAL, _streams(1), device=given.device)

        def loop(name=name, start=start, data=data):  # type: ignore[no-untyped-def]
            own = zip(data, _streams(1), strict=True)
            return torch.stack([_plain(name, start, part, rng) for part, rng in own])

        ways = {"fedkit": (ours, CLIENTS * images), "torch.optim": (loop, CLIENTS * images)}
        yield Contest(f"round {name}, {CLIENTS} clients", "images", ways)


def _streams(number: int) -> list[np.random.Generator]:
    return [np.random.default_rng([number, i]) for i in range(CLIENTS)]


def _plain(name: str, start: Tensor, data: Any, rng: np.random.Generator) -> Tensor:
    model = MODULES[name]().to(start.device)
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), LOCAL.lr)
    x, y = data
    for batch in torch.from_numpy(rng.permutation(len(y))).to(x.device).split(LOCAL.batch_size):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def flower(given: Given) -> Iterator[Contest]:
    """Rounds of federated averaging, against Flower's simulation, its start-up included."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        return
    number = 2 if given.short else 13
    for name in ("mlp-200",) if given.short else MODULES:

        def ours(name=name):  # type: ignore[no-untyped-def]
            model = fk.build(name, SHAPE, CLASSES)
            flat = model.init(np.random.default_rng(0))
            data = [client_data(i) for i in range(CLIENTS)]
            for r in range(1, number + 1):
                stack = flat.expand(CLIENTS, -1)
                flat = fk.train_clients(model, stack, data, LOCAL, _streams(r), device="cpu").mean(
                    0
                )
            return flat

        ways = {"fedkit": (ours, number), "Flower": (partial(_flower, name, number), number)}
        yield Contest(f"federated averaging {name}", "rounds", ways, repeats=1)


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
            fraction_evaluate=0.0,
            min_fit_clients=CLIENTS,
            min_available_clients=CLIENTS,
            initial_parameters=ndarrays_to_parameters([part[0].numpy() for part in start]),
            on_fit_config_fn=lambda server_round: {"round": server_round},
            evaluate_fn=lambda server_round, parameters, config: final.append(parameters),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=number))

    def client(context: Any) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return torch.cat([torch.from_numpy(part).flatten() for part in final[-1]])


def lockstep(given: Given) -> Iterator[Contest]:
    """FedCCEA's simulations of 20 clients, together against one after another."""
    number, clients, images = 20, 20, 50 if given.short else 300
    parts = [client_data(i, images) for i in range(clients)]
    x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    held = client_data(clients, 100)
    split = tuple(np.split(np.arange(len(y)), clients))
    federation = Federation(x, y, split, *held, *held, CLASSES, "blobs")
    for name, local in (
        ("mlp-128-64", fk.LocalSGD(lr=0.01, batch_size=32, epochs=3)),
        ("mlp-128", fk.LocalSGD(lr=0.05, batch_size=256, epochs=1)),
    ):
        model, sizes = fk.build(name, SHAPE, CLASSES), sample_sizes(federation.sizes, number, 1)
        run = partial(train_with_sizes, federation, model, local, device=given.device)

        def alone(run=run, sizes=sizes):  # type: ignore[no-untyped-def]
            return np.concatenate([run(one[None]) for one in sizes])

        ways = {"in lockstep": (partial(run, sizes), number), "one by one": (alone, number)}
        yield Contest(f"simulations {name}", "simulations", ways)


# --- games ------------------------------------------------------------------------------------


def overhead(given: Given) -> Iterator[Contest]:
    """What walking costs beside a utility that costs nothing, against shapiq and pyDVL."""
    calls, table = 900 if given.short else 9000, saturating(10)

    def ours() -> None:
        fk.estimate(table, fk.PermutationSampling(), calls, count="calls")

    ways: dict[str, tuple[Way, float]] = {"fedkit": (ours, calls)}
    if find_spec("shapiq"):
        import shapiq

        def walk() -> None:
            shapiq.PermutationSamplingSV(10, random_state=0).approximate(calls, _looked_up(table))

        ways["shapiq"] = walk, calls
    if find_spec("pydvl"):
        ways["pyDVL"] = partial(_pydvl, table, calls), calls
    yield Contest("walks, n = 10", "coalitions", ways)


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


def exact(given: Given) -> Iterator[Contest]:
    """Exact Shapley values of a table, against shapiq's where it can wait for them."""
    for n in (10,) if given.short else (16, 20, 24):
        table = saturating(n)
        ways: dict[str, tuple[Way, float]] = {
            "fedkit": (lambda table=table: fk.shapley(table).values, 2**n)
        }
        if find_spec("shapiq") and n <= 16:
            import shapiq

            def peer(table=table, n=n):  # type: ignore[no-untyped-def]
                computer = shapiq.ExactComputer(game=_looked_up(table), n_players=n)
                return computer("SV").get_n_order_values(1)

            ways["shapiq"] = peer, 2**n
        yield Contest(f"exact values, n = {n}", "utilities", ways)


# --- columns ----------------------------------------------------------------------------------


def counting(given: Given) -> Iterator[Contest]:
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

    def ours() -> np.ndarray:
        return mshapley_cmi(task, y, parties).values

    ways = {"fedkit": (ours, rows), "pandas groupby": (groupby, rows)}
    yield Contest("counting in the clear", "rows", ways, repeats=1)


def protocol(given: Given) -> Iterator[Contest]:
    """The counting protocol at the paper's size (four hours there), and cell by cell.

    Parties share a list of IDs that is hashed once, with 3 copies of each, 2 iterations and 50
    artificial IDs in each block, every check on; cell by cell is Algorithm 1 as printed.
    """
    options = {"duplications": 3, "iterations": 2, "artificial": 50}

    def counted(codes: tuple, **more: Any) -> np.ndarray:
        found = count_here(*parties_of(codes, seed=0, **options, **more))
        return np.sort(found.counts)

    small, large = _codes(1000, 2, 3), _codes(10_000 if given.short else 1_000_000, PARTIES, 25)
    ways: dict[str, tuple[Way, float]] = {
        "whole table": (partial(counted, small), 1000),
        "cell by cell": (partial(counted, small, variant="cells", hardened=False), 1000),
    }
    yield Contest("protocol, 2 data parties", "rows", ways, repeats=1)
    in_the_clear = [large[0], large[1], *large[2]]
    ways = {
        "whole table": (partial(counted, large, blocks=8), len(large[0])),
        "in the clear": (
            lambda: np.sort(count_tuples(in_the_clear, np.ones(len(large[0]), dtype=np.int64))[1]),
            len(large[0]),
        ),
    }
    yield Contest(f"protocol, {PARTIES} data parties", "rows", ways, repeats=1)


def _codes(rows: int, parties: int, cells: int) -> tuple:
    rng = fk.Streams(0).generator("secure counting", rows)
    x, y, *columns = (rng.integers(0, size, rows) for size in (cells, 2, *([cells] * parties)))
    return x, y, columns


CONTESTS: dict[str, Callable[[Given], Iterator[Contest]]] = {
    each.__name__: each
    for each in (
        coalitions, rounds, lockstep, overhead, counting, protocol, flower, exact
    )
}  # fmt: skip


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contests", nargs="*", metavar="CONTEST", help=", ".join(CONTESTS))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    if unknown := set(given.contests) - set(CONTESTS):
        parser.error(f"no contest {sorted(unknown)}; choose from {', '.join(CONTESTS)}")
    torch.set_num_threads(given.threads)
    # differences are of the method, not of a shorter float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {given.device}")
    for name in given.contests or CONTESTS:
        for contest in CONTESTS[name](Given(given.short, given.device)):
            timed(contest, Given(given.short, given.device))


if __name__ == "__main__":
    main()
