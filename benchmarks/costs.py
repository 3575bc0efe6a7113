"""What valuing a round costs beside training it: ``python -m benchmarks.costs [--save]``.

Every client trains a two-layer network on 600 images for one epoch, which is all that FedAvg does;
the server has 1,000 validation images.  Processor time of one thread, so that load hardly counts,
median of repeated runs.  ``--save`` writes ``results/costs.json``, which the book shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.kept import command, save_one
from benchmarks.speed import client_data
from fedkit import estimators as est
from fedkit.arena import METHODS, World
from fedkit.federated.federation import federation_from_arrays
from fedkit.federated.rounds import Plan, Round
from fedkit.games.game import normalise
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedms import MaverickGTG, MaverickMR
from fedkit.methods.fedowen import OwenSampling
from fedkit.methods.fedtsv import TrajectoryValues

CLIENTS = (10, 30, 100)
EXACT_UP_TO = 12  # all coalitions of a round are tested up to here
LOCAL = LocalSGD(lr=0.05, batch_size=32, epochs=1)
#: by row of the arena: what its coalitions are judged by
UTILITIES = {"exact-loss": "negative_loss", "loo-loss": "negative_loss", "ms-mr": "class_accuracy",
             "ms-gtg": "class_accuracy"}  # fmt: skip


def _policy(name: str) -> Callable[[Round], Any]:
    policy: Any = getattr(METHODS[name], "policy")  # noqa: B009
    return lambda r: policy([r])


def _sampled(estimator: Any, each: int) -> Callable[[Round], Any]:
    return lambda r: est.estimate(r.game(), estimator, each * len(r.participants), 0)


def _proxy(r: Round) -> Any:
    estimator = replace(est.ProxySampling(), sizes=tuple(r.sizes.tolist()))
    return _sampled(estimator, 6)(r)


def _fedtsv(r: Round) -> Any:
    k = len(r.participants)
    sampled = TrajectoryValues(est.PermutationSampling(), 6 * k)
    return (TrajectoryValues() if k <= EXACT_UP_TO else sampled)([r])


def _owen(r: Round) -> Any:
    budget = 4 * len(r.participants)
    return est.estimate(normalise(r.game()), OwenSampling(), budget, 0, count="calls")


VALUES: dict[str, Callable[[Round], Any]] = {
    "cgsv": _policy("cgsv"),
    "shapfed": _policy("shapfed"),
    "fedtsv": _fedtsv,
    "loo-loss": _policy("loo-loss"),
    "ms-gtg": _sampled(MaverickGTG(), 6),
    "owen": _owen,
    "banzhaf": _sampled(est.BanzhafSampling(), 6),
    "proxy": _proxy,
    "exact-loss": _policy("exact-loss"),
    "ms-mr": lambda r: est.estimate(r.game(), MaverickMR(), None, 0),
}
EXACT = ("exact-loss", "ms-mr")


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def world(clients: int) -> World:
    """A federation of equal clients, and one round of it."""
    shards = [client_data(i) for i in range(clients)]
    validation, test = client_data(10_001, 1000), client_data(10_002, 100)
    federation = federation_from_arrays(shards, test, validation)
    model = build("mlp-200", federation.input_shape, federation.n_classes)
    return World(federation, model, Plan(1, clients, LOCAL))


def costs(clients: int, repeats: int) -> Iterator[tuple[str, float]]:
    """Seconds of a round of FedAvg, and of its valuation by each method."""
    _ = world(clients).rounds
    fresh = [world(clients) for _ in range(repeats)]
    yield "fedavg", median(_seconds(partial(getattr, w, "rounds")) for w in fresh)
    w = fresh[0]
    (played,) = w.rounds
    for name, value in VALUES.items():
        if name not in EXACT or clients <= EXACT_UP_TO:
            judge: Any = w.judge(UTILITIES.get(name, "accuracy"))  # type: ignore[arg-type]
            r = replace(played, evaluator=judge)
            value(r)  # what is made once is not counted
            yield name, median(_seconds(partial(value, r)) for _ in range(repeats))


if __name__ == "__main__":
    given = command(__doc__, repeats=3).parse_args()
    torch.set_num_threads(1)
    found = {}
    for clients in CLIENTS:
        found[str(clients)] = {n: round(s, 4) for n, s in costs(clients, given.repeats)}
        print(clients, *(f"{n} {s:.3f}" for n, s in found[str(clients)].items()), sep="  ")
    if given.save:
        save_one("costs.json", torch=torch.__version__, seconds=found)
