"""The round loop: select -> train -> value -> aggregate.

Several federations (replicates, one seed each) run in lockstep, so that local training of all
their participants is one stacked program.  Every draw comes from a stream named by seed, round
and client: a replicate gives the same numbers alone and among others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedkit.extras import bar
from fedkit.federated.aggregation import Aggregation
from fedkit.federated.clients import Federation
from fedkit.federated.history import History
from fedkit.federated.selection import ClientTable, Selection
from fedkit.federated.valuers import Round, ValuePolicy
from fedkit.games.valuation import Valuation
from fedkit.learning.architectures import Architecture
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.training import LocalSGD, train_clients
from fedkit.streams import Streams

__all__ = ["Plan", "Strategy", "keep_latest", "keep_mean", "keep_total", "run"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Remember = Callable[[ClientTable, IntArray, Valuation], None]
Weigh = Callable[[Round, Valuation, ClientTable], FloatArray]
Probe = Callable[[Round, Valuation], dict[str, float]]
Attack = Callable[[Round], torch.Tensor]


def keep_latest(clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is that of its last round (FedOwen: 'the latest contribution estimate')."""
    clients.values[ids] = valuation.values


def keep_mean(clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is the mean over its rounds."""
    old = clients.values[ids]
    rounds = clients.counts[ids].reshape(-1, *[1] * (old.ndim - 1))
    clients.values[ids] = old + (valuation.values - old) / rounds


def keep_total(clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is the sum over its rounds."""
    clients.values[ids] += valuation.values


@dataclass(frozen=True)
class Strategy:
    """Who takes part, how participants are valued, and how their updates are weighted.

    Parameters
    ----------
    select, value, aggregate
        The three policies.  `aggregate` is a rule on values and sizes, or a function of the
        round, its valuation and the clients' table, to which the round was added.
    remember : callable
        Writes a valuation into the clients' table, whose `counts` include the current round.
    outputs : int or None
        Values per client; None for one number (a vector-valued utility has one per output).
    """

    select: Selection
    value: ValuePolicy
    aggregate: Aggregation | Weigh
    remember: Remember = keep_latest
    outputs: int | None = None


@dataclass(frozen=True)
class Plan:
    """What all strategies of a comparison share.

    Parameters
    ----------
    rounds, participants : int
        Communication rounds, and clients per round.
    local : LocalSGD
        Local training.
    utility : {"accuracy", "negative_loss", "class_accuracy"}
        Utility on the server's validation set.
    weighting : {"size", "uniform"}
        How the updates of a coalition are averaged inside v(S).
    evaluate_every : int
        Test accuracy is measured after every so many rounds and after the last.
    """

    rounds: int
    participants: int
    local: LocalSGD
    utility: Literal["accuracy", "negative_loss", "class_accuracy"] = "accuracy"
    weighting: Literal["size", "uniform"] = "size"
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        for name in ("rounds", "participants", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass
class _Replicate:
    federation: Federation
    streams: Streams
    evaluator: Evaluator
    test: Evaluator
    table: ClientTable
    model: torch.Tensor


def _start(
    federation: Federation,
    seed: int,
    architecture: Architecture,
    strategy: Strategy,
    plan: Plan,
    device: torch.device,
    shared: dict[int, Evaluator],
) -> _Replicate:
    if not (federation.sizes > 0).any():
        raise ValueError("no client of this federation owns data; nothing can be trained")
    streams = Streams(seed)
    if id(federation.x_test) not in shared:  # replicates share one test set on the device
        shared[id(federation.x_test)] = Evaluator(
            architecture, federation.x_test, federation.y_test, "accuracy", device=device
        )
    return _Replicate(
        federation,
        streams,
        Evaluator(architecture, federation.x_val, federation.y_val, plan.utility, device=device),
        shared[id(federation.x_test)],
        ClientTable.new(federation.sizes, federation.label_counts, strategy.outputs),
        architecture.init(streams.generator("model")).to(device),
    )


def _local_losses(
    replicate: _Replicate, architecture: Architecture, device: torch.device, ids: IntArray
) -> FloatArray:
    """Mean loss of the global model on the data of some clients, which must own data."""
    losses = []
    for i in ids:
        x, y = replicate.federation.client_data(int(i))
        evaluator = Evaluator(architecture, x, y, "negative_loss", device=device)
        losses.append(-evaluator.utilities(replicate.model[None])[0])
    return np.array(losses, dtype=np.float64)


def _train(
    replicates: Sequence[_Replicate],
    chosen: Sequence[IntArray],
    t: int,
    architecture: Architecture,
    plan: Plan,
    device: torch.device,
) -> list[torch.Tensor]:
    """Local training of all participants of all replicates; updates [k, P] per replicate."""
    starts, data, rngs = [], [], []
    for replicate, ids in zip(replicates, chosen, strict=True):
        for i in ids:
            starts.append(replicate.model)
            data.append(replicate.federation.client_data(int(i)))
            rngs.append(replicate.streams.generator("round", t, "client", int(i)))
    start = torch.stack(starts)
    ended = train_clients(architecture, start, data, plan.local, rngs, device=device)
    return list((ended.to(device) - start).split([len(ids) for ids in chosen]))


def _close(replicate: _Replicate, r: Round, valuation: Valuation, strategy: Strategy) -> FloatArray:
    """Remember the values, aggregate, and return the weights of the participants."""
    table, ids = replicate.table, r.participants
    table.counts[ids] += 1
    strategy.remember(table, ids, valuation)
    if callable(strategy.aggregate):
        weights = strategy.aggregate(r, valuation, table)
    else:
        weights = strategy.aggregate.weights(valuation.values, r.sizes)
    step = torch.as_tensor(weights, dtype=r.updates.dtype, device=r.updates.device)
    replicate.model = r.base + step @ r.updates
    return weights


def run(
    federations: Sequence[Federation],
    architecture: Architecture,
    strategy: Strategy,
    plan: Plan,
    seeds: Sequence[int],
    *,
    device: str | torch.device | None = None,
    probe: Probe | None = None,
    attack: Attack | None = None,
    progress: bool = False,
) -> History:
    """Run federations in lockstep under one strategy.

    Parameters
    ----------
    federations : sequence of Federation
        One per replicate; they may share their tensors.
    architecture, strategy, plan
        The model, the policies, and what is fixed across strategies.
    seeds : sequence of int
        Root seed per replicate.  Equal seeds give equal initial models, client batches and
        selection draws under different strategies, so comparisons can be paired.
    device : str, torch.device or None
        None takes CUDA where it is available.
    probe : callable or None
        Called with every round and its valuation; the numbers that it returns join the history.
    attack : callable or None
        Maps a round to the updates that reach the server, float32[k, P]: misbehaving clients.
    progress : bool
        Show a progress bar.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        If seeds and federations do not match, no client owns data, or all updates of a round are
        non-finite.

    Notes
    -----
    An update that is not finite is left out of its round: neither valued nor aggregated, and the
    client's remembered value stays.
    """
    if len(federations) != len(seeds) or len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(
            f"{len(federations)} federations and seeds {list(seeds)}; "
            "give one distinct seed per federation"
        )
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    shared: dict[int, Evaluator] = {}
    replicates = [
        _start(f, s, architecture, strategy, plan, place, shared)
        for f, s in zip(federations, seeds, strict=True)
    ]
    history = History()
    for t in bar(range(plan.rounds), progress, "round"):
        _round(replicates, seeds, t, architecture, strategy, plan, place, history, probe, attack)
    history.models = torch.stack([r.model for r in replicates]).cpu()
    return history


def _round(
    replicates: Sequence[_Replicate],
    seeds: Sequence[int],
    t: int,
    architecture: Architecture,
    strategy: Strategy,
    plan: Plan,
    device: torch.device,
    history: History,
    probe: Probe | None,
    attack: Attack | None,
) -> None:
    clock = time.perf_counter()

    def lap(phase: str) -> None:
        nonlocal clock
        if device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        history.seconds[phase] = history.seconds.get(phase, 0.0) + now - clock
        clock = now

    chosen = []
    for replicate in replicates:
        replicate.table.round = t
        replicate.table.losses = partial(_local_losses, replicate, architecture, device)
        rng = replicate.streams.generator("round", t, "select")
        chosen.append(strategy.select.select(replicate.table, plan.participants, rng))
    updates = _train(replicates, chosen, t, architecture, plan, device)
    lap("train")

    rounds = []
    for replicate, ids, update in zip(replicates, chosen, updates, strict=True):
        r = Round(
            t, architecture, replicate.model, update, ids, replicate.table.sizes[ids],
            replicate.evaluator, plan.local, plan.weighting, replicate.streams.child("round", t),
        )  # fmt: skip
        rounds.append((r if attack is None else r.with_updates(attack(r))).finite())
    valuations = strategy.value.value(rounds)
    lap("value")

    for replicate, seed, ids, r, valuation in zip(
        replicates, seeds, chosen, rounds, valuations, strict=True
    ):
        weights = _close(replicate, r, valuation, strategy)
        key = {"seed": int(seed), "round": t + 1}
        last = t + 1 == plan.rounds
        measured = last or (t + 1) % plan.evaluate_every == 0
        history.rounds.append(
            key
            | {
                "accuracy": float(replicate.test.utilities(replicate.model[None])[0])
                if measured
                else float("nan"),
                "evaluations": valuation.evaluations,
                "calls": valuation.calls,
                "left_out": len(ids) - len(r.participants),
                "last": last,
            }
            | (probe(r, valuation) if probe is not None else {})
        )
        for j, i in enumerate(r.participants):
            value, error = valuation.values[j], valuation.standard_errors[j]
            history.clients.append(
                key
                | {
                    "client": int(i),
                    "value": value.tolist(),
                    "standard_error": error.tolist(),
                    "weight": float(weights[j]),
                }
            )
    lap("aggregate and test")
