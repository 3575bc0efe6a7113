"""The round loop: select, train, value, aggregate, remember.

Several federations (replicates, one seed each) run in lockstep.  A replicate gives the same numbers
alone and among others, as every draw comes from a stream named by seed, round and client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedkit.checks import brief, choice, function, having, numbers, one_line, whole
from fedkit.estimators import Estimator
from fedkit.extras import bar
from fedkit.federated.federation import Federation
from fedkit.federated.history import History
from fedkit.federated.round_games import game_of_updates
from fedkit.games.game import Game, NoGainRule, normalise
from fedkit.games.valuation import Valuation
from fedkit.learning.device import find_device, real_tensor
from fedkit.learning.evaluation import Evaluator, Score
from fedkit.learning.models import Model, classifier
from fedkit.learning.training import LocalSGD, check_batches, train_clients
from fedkit.streams import Streams

__all__ = [
    "ClientTable", "Plan", "Round", "Strategy", "check_policy", "check_selection", "keep_latest",
    "keep_total", "next_model", "run", "values_of",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# ------------------------------------------------------------------ what the policies are handed


@one_line
@dataclass
class ClientTable:
    """What a server knows of its `n` clients between two rounds.

    Attributes
    ----------
    sizes : int64[n]
        Training samples per client.
    label_counts : int64[n, classes]
        Training samples per client and class, by the true labels.
    values : float64[n] or float64[n, m]
        Contribution of each client as the strategy remembers it; zero before its first round.
    counts : int64[n]
        Rounds in which the client took part.
    missed : int64[n]
        Rounds in which it was selected and its update left out, because it was not finite.
    round : int
        Index of the coming round, from 0.
    memory : dict
        Further arrays and tensors that policies keep from round to round.
    losses : callable
        ``losses(ids)`` is the mean loss of the global model on the data that each of these clients
        trains on, float64[len(ids)], in nats.
    """

    sizes: IntArray
    label_counts: IntArray
    values: FloatArray
    counts: IntArray
    missed: IntArray = field(default_factory=lambda: np.zeros((), dtype=np.int64))
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    losses: Callable[[IntArray], FloatArray] | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, sizes: IntArray, label_counts: IntArray, outputs: int | None = None
    ) -> ClientTable:
        """The table of a federation that has not run yet."""
        n = len(sizes)
        values = np.zeros(n if outputs is None else (n, outputs))
        return cls(sizes, label_counts, values, *np.zeros((2, n), dtype=np.int64))

    @property
    def available(self) -> IntArray:
        """Clients that own data; a client without data is never selected."""
        return np.flatnonzero(self.sizes > 0)

    @property
    def selected(self) -> IntArray:
        """Rounds in which each client was selected, whatever it sent, int64[n]."""
        return self.counts + self.missed


@one_line
@dataclass(frozen=True)
class Round:
    """One round of one federation, as the server sees it after local training.

    Attributes
    ----------
    index : int
        From 0.
    architecture : Model
        The network; a row of P numbers is its travelling state.
    base : float32[P]
        Global model that the participants started from.
    updates : float32[k, P]
        Local model minus `base`, per participant.
    participants, sizes : int64[k]
        Client indices, and their training samples.
    evaluator : Evaluator
        Utility on the server's validation set.
    local : LocalSGD
        How the participants trained.
    weighting : {"size", "uniform"}
        How a coalition's updates are averaged.
    streams : Streams
        Random streams of this round.
    left_out : tuple of int
        Clients that were selected and whose update was not usable.
    noted : list of float64[k]
        Weights that :meth:`average` was given.
    """

    index: int
    architecture: Model
    base: Tensor
    updates: Tensor
    participants: IntArray
    sizes: IntArray
    evaluator: Evaluator
    local: LocalSGD
    weighting: Literal["size", "uniform"]
    streams: Streams
    left_out: tuple[int, ...] = ()
    noted: list[FloatArray] = field(default_factory=list, init=False, repr=False)

    @property
    def directions(self) -> Tensor:
        """The parameters' part of `updates`, on which cosines, lengths and distances act."""
        return self.architecture.parameters_of(self.updates)

    def game(self, normalised: bool = False, no_gain: NoGainRule = "shift") -> Game:
        """The coalition game of the round: v(S) is the utility of the model of S.

        Normalised, v(empty) = 0 and v(N) = 1; a round without a gain follows `no_gain`, as in
        ``fk.normalise``.
        """
        sizes = self.sizes if self.weighting == "size" else np.ones(len(self.sizes))
        game = game_of_updates(self.evaluator, self.base, self.updates, sizes.astype(np.float64))
        return normalise(game, no_gain=no_gain) if normalised else game

    def average(self, weights: npt.ArrayLike) -> Tensor:
        """The model ``base + weights @ updates``, float32[P]; the weights are noted.

        Weights, float64[k], are finite, not negative, and sum to 1; all zero, they keep `base`.
        """
        given, k = numbers("weights", weights), len(self.participants)
        fine = given.shape == (k,) and np.isfinite(given).all() and (given >= 0).all()
        if not fine or (given.any() and abs(given.sum() - 1) > 1e-5):
            raise ValueError(
                f"weights are {_shown(given)} for {k} participants; expected one finite number of "
                "at least 0 for each that sum to 1, or zeros to keep the model"
            )
        self.noted.append(given)
        return self.base + torch.as_tensor(given).to(self.updates) @ self.updates

    def with_updates(self, updates: Tensor | np.ndarray) -> Round:
        """The round with other updates, float32[k, P], in the place of the trained ones."""
        shape = tuple(self.updates.shape)
        if not isinstance(updates, Tensor | np.ndarray) or tuple(updates.shape) != shape:
            raise ValueError(
                f"updates are {brief(updates)}; expected a tensor or array of shape {shape}, one "
                "update per participant, also of an attack"
            )
        return replace(self, updates=real_tensor("updates", updates).to(self.updates))

    def finite(self) -> Round:
        """The round without the participants whose update is not finite; one must be left.

        Nor is one used whose squared length overflows: distances to it would not be finite.
        """
        good = torch.isfinite(self.updates.square().sum(dim=1))
        if good.all():
            return self
        if not good.any():
            raise ValueError(
                f"round {self.index + 1}: no participant's update is finite (clients "
                f"{self.participants.tolist()}); local training diverged, lower the learning "
                f"rate (it is {self.local.lr})"
            )
        kept = good.cpu().numpy()
        return replace(
            self,
            updates=self.updates[good],
            participants=self.participants[kept],
            sizes=self.sizes[kept],
            left_out=(*self.left_out, *self.participants[~kept].tolist()),
        )


# ------------------------------------------------------------------------------ the policies

Select = Callable[[ClientTable, int, np.random.Generator], IntArray]
Value = Callable[[Sequence[Round]], list[Valuation]]
Aggregate = Callable[[Round, Valuation, ClientTable], Tensor]
Remember = Callable[[ClientTable, IntArray, Valuation], None]
Probe = Callable[[Round, Valuation], dict[str, float]]
Attack = Callable[[Round], Tensor]

_FORMS = {
    "select": "(table, k, rng) -> client numbers",
    "value": "(rounds) -> valuations",
    "aggregate": "(round, valuation, table) -> next model, such as round.average(weights)",
    "remember": "(table, ids, valuation)",
}


def check_policy(name: str, policy: object) -> None:
    """Refuse what has not the form of the policy `name`, and show the form."""
    kind = getattr(policy, "__name__", type(policy).__name__)
    advice = f"; make one: {kind}(...)" if isinstance(policy, type) else ""
    if isinstance(policy, Estimator):  # it values games, and is told how it would value rounds
        advice = f"; wrap it for rounds: fk.Estimated(fk.{kind}(), budget=60)"
    if advice or not callable(policy):
        form = _FORMS[name]
        raise ValueError(f"{name} is {brief(policy)}; expected a function {form}{advice}")


def keep_latest(table: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is that of its last round (FedOwen: 'the latest contribution estimate')."""
    table.values[ids] = valuation.values


def keep_total(table: ClientTable, ids: IntArray, valuation: Valuation) -> None:
    """A client's value is the sum over its rounds, in the units of the utility."""
    table.values[ids] += valuation.values * valuation.scale


@dataclass(frozen=True)
class Strategy:
    """Four functions: who takes part, what they are worth, the next model, what is remembered.

    Parameters
    ----------
    select : callable
        ``select(table, k, rng)`` returns distinct client numbers, about `k` of them.
    value : callable
        ``value(rounds)`` returns one valuation per round, over its participants.
    aggregate : callable
        ``aggregate(round, valuation, table)`` returns the next model, float32[P], such as
        ``round.average(weights)``; the table knows the round already.
    remember : callable
        ``remember(table, ids, valuation)`` writes into the table, whose `counts` include the round.
    outputs : int or None
        Values per client; None for one number (a vector-valued utility has one per output).
    """

    select: Select
    value: Value
    aggregate: Aggregate
    remember: Remember = keep_latest
    outputs: int | None = None

    def __post_init__(self) -> None:
        for name in _FORMS:
            check_policy(name, getattr(self, name))
        if self.outputs is not None:
            whole("outputs", self.outputs, 1)


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
        Utility on the server's validation set, as ``fk.Evaluator`` takes it.
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
        if not callable(self.utility) or isinstance(self.utility, type):
            choice("utility", self.utility, ("accuracy", "negative_loss", "class_accuracy"))
        choice("weighting", self.weighting, ("size", "uniform"))


# -------------------------------------------------------------- what the policies give is checked


def _name(policy: object) -> str:
    return getattr(policy, "__name__", type(policy).__name__)


def _shown(array: npt.NDArray[Any]) -> str:
    return " ".join(np.array2string(array, threshold=20).split())


def check_selection(policy: object, chosen: npt.ArrayLike, n_clients: int) -> IntArray:
    """Return what a selection gave as int64, or refuse it."""
    ids = np.asarray(chosen)
    numbers = ids.ndim == 1 and len(ids) > 0 and ids.dtype.kind in "iu"
    if not numbers or len(np.intersect1d(ids, np.arange(n_clients))) < len(ids):
        raise ValueError(
            f"{_name(policy)} selected {_shown(ids)}; expected at least one "
            f"client, each once, by its number from 0 to {n_clients - 1} (np.flatnonzero turns a "
            "mask into numbers)"
        )
    return ids.astype(np.int64)


def values_of(strategy: Strategy, rounds: Sequence[Round]) -> list[Valuation]:
    """Return the values of the participants of each round, or refuse what are none."""
    policy, before = _name(strategy.value), [_versions(r) for r in rounds]
    valuations = strategy.value(rounds)
    if before != [_versions(r) for r in rounds]:
        raise ValueError(
            f"{policy} changed the updates or the base of round {rounds[0].index + 1} in place; "
            "work on a clone: what it is handed is what is aggregated"
        )
    each = () if strategy.outputs is None else (strategy.outputs,)
    wanted = [(len(r.participants), *each) for r in rounds]
    given: Any = type(valuations).__name__
    if isinstance(valuations, list | tuple):
        given = [
            v.values.shape if isinstance(v, Valuation) else type(v).__name__ for v in valuations
        ]
    if given != wanted:
        raise ValueError(
            f"{policy} returned {given}; expected a list with one fk.Valuation per round, whose "
            f"values are {wanted}: of each participant, where the strategy's outputs are "
            f"{strategy.outputs}"
        )
    for v, r in zip(valuations, rounds, strict=True):
        if not np.isfinite(v.values).all():
            raise ValueError(
                f"{policy} returned the values {_shown(v.values)} of round {r.index + 1}; "
                "expected finite numbers (an estimator needs a budget with which it sees everybody)"
            )
    return valuations


def next_model(strategy: Strategy, table: ClientTable, r: Round, valuation: Valuation) -> Tensor:
    """Note the round in the table, remember its values, and return the next model, float32[P]."""
    table.missed[list(r.left_out)] += 1
    table.counts[r.participants] += 1
    strategy.remember(table, r.participants, valuation)
    model: Any = strategy.aggregate(r, valuation, table)
    new = torch.zeros(0)
    if isinstance(model, Tensor | np.ndarray):
        new = real_tensor("the next model", model).to(r.base, copy=True)
    if new.shape != r.base.shape or not bool(torch.isfinite(new).all()):
        raise ValueError(
            f"{_name(strategy.aggregate)} returned {brief(model)}; expected the next model, "
            f"{len(r.base)} finite numbers in a tensor or an array, such as round.average(weights)"
        )
    return new


def _check_probed(probed: Any, taken: Mapping[str, Any]) -> dict[str, Any]:
    probed = {} if probed is None else probed
    if not isinstance(probed, Mapping) or not all(isinstance(name, str) for name in probed):
        raise ValueError(f"probe returned {brief(probed)}; expected numbers by name, or None")
    if double := sorted({*probed} & {*taken, "evaluations", "calls", "scale"}):
        raise ValueError(f"probe returned {double}, which the history has; choose other names")
    return {name: np.asarray(value).tolist() for name, value in probed.items()}


def _versions(r: Round) -> tuple[int, ...]:
    """How often the tensors of a round were changed; tensors of inference mode do not count."""
    return tuple(x._version for x in (r.base, r.updates) if not x.is_inference())


# ---------------------------------------------------------------------------------- the loop


_NO_VALIDATION = (
    "the federation holds no validation data, and this strategy scores models on them: give it "
    "some, or take one that does not"
)


class Missing:
    """Stands for what nobody gave, and says so when a valuation asks for it."""

    def __init__(self, sentence: str, **given: Any) -> None:
        self.__dict__.update(given, _sentence=sentence)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(self._sentence)


@dataclass
class _Replicate:
    """One federation with what its server keeps between rounds."""

    federation: Federation
    seed: int
    evaluator: Evaluator
    test: Evaluator
    table: ClientTable
    model: Tensor

    def stream(self, t: int) -> Streams:
        return Streams(self.seed).child("round", t)

    def losses(self, ids: IntArray) -> FloatArray:
        """Mean loss of the global model on the data of some clients, which must own data."""
        found = []
        for i in ids:
            x, y = self.federation.client_data(int(i))
            own = Evaluator(self.test.model, x, y, "negative_loss", device=self.test.device)
            found.append(-own.utilities(self.model[None])[0])
        return np.array(found, np.float64)


@dataclass
class _Run:
    """Replicates in lockstep."""

    model: Model
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
        if not len(f.y_test):
            raise ValueError("the federation has no test data, on which models are scored")
        check_batches(self.model, self.plan.local, f.sizes.tolist())
        judge = partial(Evaluator, self.model, device=self.device)
        evaluator: Any = Missing(_NO_VALIDATION)
        if len(f.y_val):
            evaluator = judge(f.x_val, f.y_val, self.plan.utility)
        tests = [  # one test set on the device for all
            r.test
            for r in self.replicates
            if r.federation.x_test is f.x_test and r.federation.y_test is f.y_test
        ]
        test = tests[0] if tests else judge(f.x_test, f.y_test)
        table = ClientTable.new(f.sizes, f.label_counts, self.strategy.outputs)
        start = self.model.init(Streams(seed).generator("model")).to(self.device)
        replicate = _Replicate(f, seed, evaluator, test, table, start)
        table.losses = replicate.losses
        self.replicates.append(replicate)

    def lap(self, phase: str | None = None) -> None:
        """Charge the time since the last lap to a phase."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if phase is not None:
            self.history.seconds[phase] = self.history.seconds.get(phase, 0.0) + now - self.clock
        self.clock = now

    def round(self, t: int) -> None:
        """Play one round of all replicates."""
        self.lap()
        chosen = [self.select(replicate, t) for replicate in self.replicates]
        trained = self.train(chosen, t)
        self.lap("train")
        rounds = [
            self.received(replicate, ids, updates, t)
            for replicate, ids, updates in zip(self.replicates, chosen, trained, strict=True)
        ]
        valuations = values_of(self.strategy, rounds)
        self.lap("value")
        for replicate, r, valuation in zip(self.replicates, rounds, valuations, strict=True):
            replicate.model = next_model(self.strategy, replicate.table, r, valuation)
            self.write(replicate, r, valuation)
        self.lap("aggregate and test")

    def select(self, replicate: _Replicate, t: int) -> IntArray:
        replicate.table.round = t
        rng = replicate.stream(t).generator("select")
        ids = self.strategy.select(replicate.table, self.plan.participants, rng)
        return check_selection(self.strategy.select, ids, replicate.federation.n_clients)

    def train(self, chosen: Sequence[IntArray], t: int) -> list[Tensor]:
        """Local training of all participants of all replicates; updates [k, P] per replicate."""
        jobs = [(r, int(i)) for r, ids in zip(self.replicates, chosen, strict=True) for i in ids]
        start = torch.stack([r.model for r, _ in jobs])
        data = [r.federation.client_data(i) for r, i in jobs]
        rngs = [r.stream(t).generator("client", i) for r, i in jobs]
        ended = train_clients(self.model, start, data, self.plan.local, rngs, device=self.device)
        return list((ended.to(self.device) - start).split([len(ids) for ids in chosen]))

    def received(self, replicate: _Replicate, ids: IntArray, updates: Tensor, t: int) -> Round:
        """The round as it reaches the server: after attacks, and without broken updates."""
        updates = replicate.federation.sent(updates, ids.tolist(), replicate.stream(t))
        r = Round(
            t, self.model, replicate.model, updates, ids, replicate.table.sizes[ids],
            replicate.evaluator, self.plan.local, self.plan.weighting, replicate.stream(t),
        )  # fmt: skip
        if self.attack is not None:
            r = r.with_updates(self.attack(r))
        r = r.finite()
        r.participants.setflags(write=False)
        r.sizes.setflags(write=False)
        return r

    def write(self, replicate: _Replicate, r: Round, valuation: Valuation) -> None:
        t, last = r.index + 1, r.index + 1 == self.plan.rounds
        accuracy = float("nan")
        if last or t % self.plan.evaluate_every == 0:
            accuracy = float(replicate.test.utilities(replicate.model[None])[0])
        row = {"seed": replicate.seed, "round": t, "accuracy": accuracy}
        more = {"left_out": [*r.left_out], "last": last}
        if self.probe is not None:
            more |= _check_probed(self.probe(r, valuation), row | more)
        weights = r.noted[-1] if r.noted else np.full(len(r.participants), np.nan)
        self.history.add(row, r.participants, valuation, weights, **more)


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
    architecture : Model or torch.nn.Module
        Of a module every seed starts from its state, and clients train all parameters that ask for
        a gradient; running statistics (BatchNorm) are averaged with them.
    strategy, plan
        The policies, and what is fixed across strategies.
    seeds : sequence of int
        Root seed per replicate.  Under equal seeds strategies have equal initial models and client
        batches, so comparisons can be paired.
    device : optional
        None takes CUDA where it is available.
    probe : callable or None
        Called with every round and its valuation; the numbers that it returns, by names that
        the history does not have, join it.
    attack : callable or None
        Maps a round to the updates that reach the server, float32[k, P], after what the
        federation's adversaries do.
    progress : bool
        Show a progress bar.

    Returns
    -------
    History
        Rounds, clients and times of all replicates.  An exception carries the `history` of the
        rounds before it.

    Raises
    ------
    ValueError
        If seeds and federations do not match, there are fewer clients than participants, no
        client owns data, a policy returns what is no selection, no values or no model, or no
        update of a round is finite; one that is not is left out of its round.
    """
    seeds = _checked(federations, strategy, plan, seeds, probe, attack)
    place = find_device(device)
    if isinstance(architecture, nn.Module):
        architecture = classifier("architecture", architecture, federations[0].x)
    having("architecture", architecture, "init", "row", "size")
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


def _checked(
    federations: Any, strategy: Any, plan: Any, seeds: Any, probe: Any, attack: Any
) -> list[int]:
    """Return the seeds of a run, or refuse what it is given."""
    known = isinstance(federations, Sequence) and not isinstance(federations, str)
    wrong = [f for f in federations if not isinstance(f, Federation)] if known else [federations]
    if wrong:
        raise ValueError(
            f"federations {'holds' if known else 'is'} {brief(wrong[0])}; expected a list of "
            "federations"
        )
    having("strategy", strategy, "select", "value", "aggregate", "remember")
    having("plan", plan, "rounds", "participants", "local", "evaluate_every")
    if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str | bytes | bytearray):
        raise ValueError(f"seeds is {brief(seeds)}; expected a list of whole numbers")
    seeds = [whole("seeds", seed, 0) for seed in seeds]
    for name, given in (("probe", probe), ("attack", attack)):
        if given is not None:
            function(name, given)
    if len(federations) != len(seeds) or len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(
            f"{len(federations)} federations and seeds {seeds}; "
            "give one distinct seed per federation"
        )
    few = min(f.n_clients for f in federations)
    if plan.participants > few:
        raise ValueError(
            f"plan has {plan.participants} participants and a federation {few} clients"
        )
    return seeds
