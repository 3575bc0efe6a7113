"""The round loop: select -> train -> value -> aggregate.

Several federations (replicates, one seed each) run in lockstep, and a replicate gives the same
numbers alone and among others, up to the rounding of float32: every draw comes from a stream named
by seed, round and client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedkit.checks import brief, choice, function, having, plain_array, whole
from fedkit.extras import bar
from fedkit.federated.adversaries import Adversaries, check_cast
from fedkit.federated.aggregation import Aggregation, Step
from fedkit.federated.clients import Federation
from fedkit.federated.history import History
from fedkit.federated.selection import ClientTable, Selection
from fedkit.federated.valuers import Round, ValuePolicy, check_policy
from fedkit.games.valuation import Valuation
from fedkit.learning.device import find_device
from fedkit.learning.evaluation import Evaluator, Score
from fedkit.learning.models import Model, classifier
from fedkit.learning.training import LocalSGD, check_batches, train_clients
from fedkit.streams import Streams

__all__ = ["Plan", "Strategy", "keep_latest", "keep_total", "run"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Remember = Callable[[ClientTable, IntArray, Valuation], None]
Weigh = Callable[[Round, Valuation, ClientTable], FloatArray]
Probe = Callable[[Round, Valuation], dict[str, float]]
Attack = Callable[[Round], torch.Tensor]


def keep_latest(clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is that of its last round (FedOwen: 'the latest contribution estimate')."""
    clients.values[ids] = valuation.values


def keep_total(clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is the sum over its rounds, in the units of the utility.

    Values of a normalised round, shares of its gain, are multiplied by that gain.
    """
    clients.values[ids] += valuation.values * valuation.scale


@dataclass(frozen=True)
class Strategy:
    """Who takes part, how participants are valued, and how their updates are weighted.

    Parameters
    ----------
    select, value, aggregate
        The three policies.  `aggregate` is a rule on values and sizes, or a function of the
        round, its valuation and the clients' table, to which the round was added.  Weights are
        finite, not negative, and sum to 1; all zero, they keep the global model.  A rule with a
        method `step` of the same three returns the next model in their place.
    remember : callable
        Writes a valuation into the clients' table, whose `counts` include the current round.
    outputs : int or None
        Values per client; None for one number (a vector-valued utility has one per output).
    """

    select: Selection
    value: ValuePolicy
    aggregate: Aggregation | Step | Weigh
    remember: Remember = keep_latest
    outputs: int | None = None

    def __post_init__(self) -> None:
        having("select", self.select, "select")
        check_policy(self.value)
        function("remember", self.remember)
        if self.outputs is not None:
            whole("outputs", self.outputs, 1)
        rule = self.aggregate
        known = callable(rule) or hasattr(rule, "weights") or hasattr(rule, "step")
        if isinstance(rule, type) or not known:
            raise ValueError(
                f"aggregate is {rule!r}; expected a function of round, valuation and clients, or "
                "an object with a method weights or step (SizeWeighted(), not SizeWeighted)"
            )


@dataclass(frozen=True)
class Plan:
    """What all strategies of a comparison share.

    Parameters
    ----------
    rounds, participants : int
        Communication rounds, and clients per round.
    local : LocalSGD
        Local training.
    utility : {"accuracy", "negative_loss", "class_accuracy"} or callable
        Utility on the server's validation set, as :class:`~fedkit.learning.evaluation.Evaluator`
        takes it.
    weighting : {"size", "uniform"}
        How the updates of a coalition are averaged inside v(S).
    evaluate_every : int
        Test accuracy is measured after every so many rounds and after the last.
    """

    rounds: int
    participants: int
    local: LocalSGD
    utility: Literal["accuracy", "negative_loss", "class_accuracy"] | Score = "accuracy"
    weighting: Literal["size", "uniform"] = "size"
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        for name in ("rounds", "participants", "evaluate_every"):
            whole(name, getattr(self, name), 1)
        having("local", self.local, "batches", "lr")
        if not callable(self.utility):
            choice("utility", self.utility, ("accuracy", "negative_loss", "class_accuracy"))
        choice("weighting", self.weighting, ("size", "uniform"))


def _name(policy: object) -> str:
    return getattr(policy, "__name__", type(policy).__name__)


def _shown(array: npt.NDArray[Any]) -> str:
    return " ".join(np.array2string(array, threshold=20).split())


def _versions(r: Round) -> tuple[int, ...]:
    """How often the tensors of a round were changed; tensors of inference mode do not count."""
    return tuple(x._version for x in (r.base, r.updates) if not x.is_inference())


def check_selection(policy: object, chosen: npt.ArrayLike, n_clients: int) -> IntArray:
    ids = np.asarray(chosen)
    numbers = ids.ndim == 1 and len(ids) > 0 and ids.dtype.kind in "iu"
    if not numbers or len(np.intersect1d(ids, np.arange(n_clients))) < len(ids):
        raise ValueError(
            f"{_name(policy)} selected {_shown(ids)}; expected at least one "
            f"client, each once, by its number from 0 to {n_clients - 1} (np.flatnonzero turns a "
            "mask into numbers)"
        )
    return ids.astype(np.int64)


def check_values(
    policy: object, valuations: Sequence[Valuation], rounds: Sequence[Round], outputs: int | None
) -> None:
    each = () if outputs is None else (outputs,)
    wanted = [(len(r.participants), *each) for r in rounds]
    given: Any = type(valuations).__name__
    if isinstance(valuations, list | tuple):
        given = [
            v.values.shape if isinstance(v, Valuation) else type(v).__name__ for v in valuations
        ]
    if given != wanted:
        raise ValueError(
            f"{_name(policy)} returned {given}; expected a list with one fk.Valuation per round, "
            f"whose values are {wanted}: of each participant, where the strategy's outputs are "
            f"{outputs}"
        )
    for v, r in zip(valuations, rounds, strict=True):
        if not np.isfinite(v.values).all():
            raise ValueError(
                f"{_name(policy)} returned the values {_shown(v.values)} of round {r.index + 1}; "
                "expected finite numbers (an estimator needs a budget with which it sees everybody)"
            )


def weigh(rule: Any, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
    """The weights that a rule gives to a round's participants, checked."""
    if callable(rule):
        given: Any = rule(r, valuation, clients)
    else:
        given = rule.weights(valuation.values, r.sizes)
    w, k = np.asarray(plain_array(given), dtype=np.float64), len(r.participants)
    fine = w.shape == (k,) and np.isfinite(w).all() and (w >= 0).all()
    if not fine or (w.any() and abs(w.sum() - 1) > 1e-5):
        raise ValueError(
            f"{_name(rule)} gave the weights {_shown(w)} to {k} "
            "participants; expected one finite number of at least 0 for each that sum to 1, or "
            "zeros to keep the model"
        )
    return w


def _check_model(policy: object, model: Any, base: torch.Tensor) -> torch.Tensor:
    new = torch.zeros(0)
    if isinstance(model, torch.Tensor | np.ndarray):
        new = torch.as_tensor(model).detach().to(base, copy=True)
    if new.shape != base.shape or not bool(torch.isfinite(new).all()):
        raise ValueError(
            f"{_name(policy)} returned a model of shape {tuple(new.shape)}; expected {len(base)} "
            "finite numbers, a tensor or an array: the parameters of the next model"
        )
    return new


class _Nobody:
    """Stands for the evaluator of a federation without validation data."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(
            "the federation holds no validation data, and this strategy scores models on them: "
            "give it some, or take one that does not"
        )


@dataclass
class _Replicate:
    """One federation with what its server keeps between rounds."""

    federation: Federation
    seed: int
    evaluator: Evaluator
    test: Evaluator
    table: ClientTable
    model: torch.Tensor

    def stream(self, t: int) -> Streams:
        return Streams(self.seed).child("round", t)

    def losses(self, ids: IntArray) -> FloatArray:
        """Mean loss of the global model on the data of some clients, which must own data."""
        arch, device = self.evaluator.model, self.evaluator.device
        data = (self.federation.client_data(int(i)) for i in ids)
        judges = [Evaluator(arch, x, y, "negative_loss", device=device) for x, y in data]
        return np.array([-judge.utilities(self.model[None])[0] for judge in judges], np.float64)


@dataclass
class _Run:
    """Replicates in lockstep."""

    architecture: Model
    strategy: Strategy
    plan: Plan
    device: torch.device
    probe: Probe | None
    attack: Attack | None
    replicates: list[_Replicate] = field(default_factory=list)
    history: History = field(default_factory=History)
    clock: float = 0.0

    def add(self, f: Federation, seed: int) -> None:
        if not (f.sizes > 0).any():
            raise ValueError("no client of this federation owns data; nothing can be trained")
        arch, judge = self.architecture, partial(Evaluator, self.architecture, device=self.device)
        if not len(f.y_test):
            raise ValueError("the federation has no test data, on which models are scored")
        same = (
            r.test for r in self.replicates
            if r.federation.x_test is f.x_test and r.federation.y_test is f.y_test
        )  # fmt: skip
        replicate = _Replicate(
            f,
            seed,
            judge(f.x_val, f.y_val, self.plan.utility) if len(f.y_val) else cast(Any, _Nobody()),
            next(same, None) or judge(f.x_test, f.y_test),  # one test set on the device for all
            ClientTable.new(f.sizes, f.label_counts, self.strategy.outputs),
            arch.init(Streams(seed).generator("model")).to(self.device),
        )
        replicate.table.losses = replicate.losses
        check_batches(arch, self.plan.local, f.sizes.tolist())
        self.replicates.append(replicate)

    def lap(self, phase: str | None = None) -> None:
        """Charge the time since the last lap to a phase."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if phase is not None:
            seconds = self.history.seconds
            seconds[phase] = seconds.get(phase, 0.0) + now - self.clock
        self.clock = now

    def round(self, t: int) -> None:
        self.lap()
        select = self.strategy.select
        chosen = []
        for replicate in self.replicates:
            replicate.table.round = t
            rng = replicate.stream(t).generator("select")
            ids = select.select(replicate.table, self.plan.participants, rng)
            chosen.append(check_selection(select, ids, replicate.federation.n_clients))
        updates = self.train(chosen, t)
        self.lap("train")

        rounds = []
        for replicate, ids, update in zip(self.replicates, chosen, updates, strict=True):
            r = Round(
                t, self.architecture, replicate.model, update, ids, replicate.table.sizes[ids],
                replicate.evaluator, self.plan.local, self.plan.weighting, replicate.stream(t),
            )  # fmt: skip
            r = (r if self.attack is None else r.with_updates(self.attack(r))).finite()
            r.participants.setflags(write=False)
            r.sizes.setflags(write=False)
            rounds.append(r)
        before = [_versions(r) for r in rounds]
        valuations = self.strategy.value.value(rounds)
        if before != [_versions(r) for r in rounds]:
            raise ValueError(
                f"{_name(self.strategy.value)} changed the updates or the base of round {t + 1} in "
                "place; work on a clone: what it is handed is what is aggregated"
            )
        check_values(self.strategy.value, valuations, rounds, self.strategy.outputs)
        self.lap("value")

        for replicate, ids, r, valuation in zip(
            self.replicates, chosen, rounds, valuations, strict=True
        ):
            replicate.table.missed[np.setdiff1d(ids, r.participants)] += 1
            weights = self.aggregate(replicate, r, valuation)
            self.write(replicate, r, valuation, weights)
        self.lap("aggregate and test")

    def train(self, chosen: Sequence[IntArray], t: int) -> list[torch.Tensor]:
        """Local training of all participants of all replicates; updates [k, P] per replicate."""
        jobs = [(r, int(i)) for r, ids in zip(self.replicates, chosen, strict=True) for i in ids]
        start = torch.stack([r.model for r, _ in jobs])
        data = [r.federation.client_data(i) for r, i in jobs]
        rngs = [r.stream(t).generator("client", i) for r, i in jobs]
        ended = train_clients(
            self.architecture, start, data, self.plan.local, rngs, device=self.device
        )
        return list((ended.to(self.device) - start).split([len(ids) for ids in chosen]))

    def aggregate(self, replicate: _Replicate, r: Round, valuation: Valuation) -> FloatArray:
        """Remember the values, take the step, and return the participants' weights (or nan)."""
        table, rule = replicate.table, self.strategy.aggregate
        table.counts[r.participants] += 1
        self.strategy.remember(table, r.participants, valuation)
        if hasattr(rule, "step"):
            replicate.model = _check_model(rule, rule.step(r, valuation, table), r.base)
            return np.full(len(r.participants), np.nan)
        weights = weigh(rule, r, valuation, table)
        step = torch.as_tensor(weights, dtype=r.updates.dtype, device=r.updates.device)
        replicate.model = r.base + step @ r.updates
        return weights

    def write(self, replicate: _Replicate, r: Round, v: Valuation, weights: FloatArray) -> None:
        t, last = r.index + 1, r.index + 1 == self.plan.rounds
        accuracy = float("nan")
        if last or t % self.plan.evaluate_every == 0:
            accuracy = float(replicate.test.utilities(replicate.model[None])[0])
        row = {"seed": replicate.seed, "round": t, "accuracy": accuracy}
        probed = self.probe(r, v) if self.probe is not None else None
        probed = {} if probed is None else probed
        if not isinstance(probed, Mapping) or not all(isinstance(name, str) for name in probed):
            raise ValueError(f"probe returned {brief(probed)}; expected numbers by name, or None")
        own = {"left_out": [*r.left_out], "last": last}
        if taken := sorted({*probed} & {*row, *own, "evaluations", "calls", "scale"}):
            raise ValueError(f"probe returned {taken}, which the history has; choose other names")
        more = {name: np.asarray(value).tolist() for name, value in probed.items()}
        self.history.add(row, r.participants, v, weights, **own, **more)


def run(
    federations: Sequence[Federation],
    architecture: Model | nn.Module,
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
        The model, the policies, and what is fixed across strategies.  A torch module is taken as
        ``fk.Evaluator`` takes it: every seed starts from its state, and clients
        train in training mode all parameters that ask for a gradient; running statistics are
        averaged with them.
    seeds : sequence of int
        Root seed per replicate.  Equal seeds give equal initial models and client batches under
        different strategies, and equal draws of one selector, so comparisons can be paired.
    device : optional
        None takes CUDA where it is available.
    probe : callable or None
        Called with every round and its valuation; the numbers that it returns, by names that
        the history does not have, join it.
    attack : callable or None
        Maps a round to the updates that reach the server, float32[k, P]: misbehaving clients.
        That of ``Adversaries`` comes with the federations of their ``data``.
    progress : bool
        Show a progress bar.

    Returns
    -------
    History
        Rounds, clients and times of all replicates.

    Raises
    ------
    ValueError
        If seeds and federations do not match, there are fewer clients than participants, no
        client owns data, a policy returns what is no selection, no values, no weights or no
        model, or no update of a round is finite.

    Notes
    -----
    An exception, of a policy of one's own or an interruption, carries the `history` of the rounds
    before it.

    An update that is not finite, or so long that its squared length is not (about 10¹⁹), is left
    out of its round: neither valued nor aggregated, and the client's remembered value stays.
    """
    known = isinstance(federations, Sequence) and not isinstance(federations, str)
    wrong = [f for f in federations if not isinstance(f, Federation)] if known else [federations]
    if wrong:
        raise ValueError(
            f"federations {'holds' if known else 'is'} {brief(wrong[0])}; expected a list of "
            "federations"
        )
    having("strategy", strategy, "select", "value", "aggregate", "remember")
    having("plan", plan, "rounds", "participants", "local", "evaluate_every")
    if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str):
        raise ValueError(f"seeds is {brief(seeds)}; expected a list of whole numbers")
    seeds = [whole("seeds", seed, 0) for seed in seeds]
    for name, given in (("probe", probe), ("attack", attack)):
        if given is not None:
            function(name, given)
    actors = getattr(attack, "__self__", None)
    if attack is None or isinstance(actors, Adversaries):  # of another function nothing is known
        for federation in federations:
            check_cast(federation, actors)
    if len(federations) != len(seeds) or len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(
            f"{len(federations)} federations and seeds {list(seeds)}; "
            "give one distinct seed per federation"
        )
    few = min(f.n_clients for f in federations)
    if plan.participants > few:
        raise ValueError(
            f"plan has {plan.participants} participants and a federation {few} clients"
        )
    place = find_device(device)
    if isinstance(architecture, nn.Module):
        architecture = classifier("architecture", architecture, federations[0].x)
    lockstep = _Run(architecture, strategy, plan, place, probe, attack)
    for federation, seed in zip(federations, seeds, strict=True):
        lockstep.add(federation, seed)
    t, steps = 0, bar(range(plan.rounds), progress, "round")
    try:
        for t in steps:
            lockstep.round(t)
    except BaseException as error:
        error.history = lockstep.history  # type: ignore[attr-defined]
        error.add_note(
            f"in round {t + 1} of {plan.rounds}; .history of this exception has those before"
        )
        raise
    lockstep.history.models = torch.stack([r.model for r in lockstep.replicates]).cpu()
    return lockstep.history
