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

from fedkit.checks import (
    Floats,
    Ints,
    brief,
    choice,
    function,
    having,
    numbers,
    one_line,
    whole,
    whole_or_none,
)
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
from fedkit.learning.training import LocalSGD, train_clients
from fedkit.streams import Streams

# ------------------------------------------------------------------ what the policies are handed


@one_line
@dataclass
class ClientTable:
    """What a server knows of its `n` clients between two rounds.

    Attributes
    ----------
    sizes, counts, missed : int64[n]
        Training samples; rounds in which the client took part; rounds in which its update was left
        out, because it was not finite.
    label_counts : int64[n, classes]
        Training samples per client and class, by the true labels.
    values : float64[n] or float64[n, m]
        Contribution as the strategy remembers it; zero before the first round.
    round : int
        Index of the coming round, from 0.
    memory : dict
        What policies keep besides from round to round.
    losses : callable
        ``losses(ids)`` is the mean loss in nats of the global model on the data of these clients.
    """

    sizes: Ints
    label_counts: Ints
    values: Floats
    counts: Ints
    missed: Ints = field(default_factory=lambda: np.zeros((), dtype=np.int64))
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    losses: Callable[[Ints], Floats] | None = field(default=None, repr=False)

    @classmethod
    def new(cls, sizes: Ints, label_counts: Ints, outputs: int | None = None) -> ClientTable:
        """The table of a federation that has not run yet."""
        n = len(sizes)
        values = np.zeros(n if outputs is None else (n, outputs))
        return cls(sizes, label_counts, values, *np.zeros((2, n), dtype=np.int64))

    @property
    def available(self) -> Ints:
        """Clients that own data; a client without data is never selected."""
        return np.flatnonzero(self.sizes > 0)

    @property
    def selected(self) -> Ints:
        """Rounds in which each client was selected, whatever it sent, int64[n]."""
        return self.counts + self.missed


@one_line
@dataclass(frozen=True)
class Round:
    """One round of one federation, as the server sees it after local training."""

    index: int  #: from 0
    architecture: Model  #: the network
    base: Tensor  #: float32[P], the model that the participants started from
    updates: Tensor  #: float32[k, P], local model minus `base` of each
    participants: Ints  #: ``[k]``, client indices
    sizes: Ints  #: ``[k]``, their training samples
    evaluator: Evaluator  #: the utility on the server's validation set
    local: LocalSGD  #: how clients trained
    weighting: Literal["size", "uniform"]  #: how a coalition's updates are averaged
    streams: Streams  #: random streams of this round
    left_out: tuple[int, ...] = ()  #: clients that were selected and whose update was not usable
    #: weights that :meth:`average` was given
    noted: list[Floats] = field(default_factory=list, init=False, repr=False)

    @property
    def directions(self) -> Tensor:
        """The parameters' part of `updates`, on which cosines, lengths and distances act."""
        return self.architecture.parameters_of(self.updates)

    def game(self, normalised: bool = False, no_gain: NoGainRule = "shift") -> Game:
        """The game of the round: v(S) is the utility of the model of S; see ``fk.normalise``."""
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
                f"weights are {brief(given)} for {k} participants; expected numbers of at least "
                f"0 that sum to 1, or zeros to keep the model"
            )
        self.noted.append(given)
        return self.base + torch.as_tensor(given).to(self.updates) @ self.updates

    def with_updates(self, updates: Tensor | np.ndarray) -> Round:
        """The round with other updates, float32[k, P], in the place of the trained ones."""
        shape = tuple(self.updates.shape)
        if not isinstance(updates, Tensor | np.ndarray) or tuple(updates.shape) != shape:
            raise ValueError(f"updates are {brief(updates)}; expected a tensor or array {shape}")
        return replace(self, updates=real_tensor("updates", updates).to(self.updates))

    def finite(self) -> Round:
        """The round without participants whose update, or its squared length, is not finite."""
        good = torch.isfinite(self.updates.square().sum(dim=1))
        if good.all():
            return self
        if not good.any():
            raise ValueError(
                f"round {self.index + 1}: no update is finite: lower the learning rate"
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

Select = Callable[[ClientTable, int, np.random.Generator], Ints]
Value = Callable[[Sequence[Round]], list[Valuation]]
Aggregate = Callable[[Round, Valuation, ClientTable], Tensor]
Remember = Callable[[ClientTable, Ints, Valuation], None]
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


def keep_latest(table: ClientTable, ids: Ints, valuation: Valuation) -> None:
    """A client's value is that of its last round (FedOwen: 'the latest contribution estimate')."""
    table.values[ids] = valuation.values


def keep_total(table: ClientTable, ids: Ints, valuation: Valuation) -> None:
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
    outputs : int, optional
        Values per client, where the utility is a vector.
    """

    select: Select
    value: Value
    aggregate: Aggregate
    remember: Remember = keep_latest
    outputs: int | None = None

    def __post_init__(self) -> None:
        for name in _FORMS:
            check_policy(name, getattr(self, name))
        whole_or_none("outputs", self.outputs, 1)


@dataclass(frozen=True)
class Plan:
    """What all strategies of a comparison share.

    Parameters
    ----------
    rounds, participants, local
        Communication rounds, clients per round, and their training (``fk.LocalSGD``).
    utility : {"accuracy", "negative_loss", "class_accuracy"} or callable
        On the server's validation set, as ``fk.Evaluator`` takes it.
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


def check_selection(policy: object, chosen: npt.ArrayLike, n_clients: int) -> Ints:
    """Return what a selection gave as int64, or refuse it."""
    ids = np.asarray(chosen)
    numbers = ids.ndim == 1 and len(ids) > 0 and ids.dtype.kind in "iu"
    if not numbers or len(np.intersect1d(ids, np.arange(n_clients))) < len(ids):
        raise ValueError(
            f"{_name(policy)} selected {brief(ids)}; expected clients from 0 to "
            f"{n_clients - 1}, each once, and no mask"
        )
    return ids.astype(np.int64)


def values_of(strategy: Strategy, rounds: Sequence[Round]) -> list[Valuation]:
    """Return the values of the participants of each round, or refuse what are none."""
    policy, before = _name(strategy.value), _versions(rounds)
    valuations = strategy.value(rounds)
    if before != _versions(rounds):
        raise ValueError(
            f"{policy} changed the updates or the base of round {rounds[0].index + 1}: clone them"
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
            f"{policy} returned {given}; expected a list of one fk.Valuation per round, with "
            f"values of {wanted} (outputs of the strategy: {strategy.outputs})"
        )
    for v, r in zip(valuations, rounds, strict=True):
        if not np.isfinite(v.values).all():
            raise ValueError(
                f"{policy} returned {brief(v.values)} in round {r.index + 1}; expected finite ones"
            )
    return valuations


def _versions(rounds: Sequence[Round]) -> list[int]:
    """How often the tensors of rounds were changed; tensors of inference mode do not count."""
    return [x._version for r in rounds for x in (r.base, r.updates) if not x.is_inference()]


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
            f"{len(r.base)} finite numbers, such as round.average(weights)"
        )
    return new


# ---------------------------------------------------------------------------------- the loop


class Missing:
    """Stands for what nobody gave, and says so when a valuation asks for it."""

    def __init__(self, sentence: str, **given: Any) -> None:
        self.__dict__.update(given, _sentence=sentence)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(self._sentence)


class _Server:
    """What the server of one federation keeps, and its part of a round."""

    def __init__(
        self, f: Federation, model: Model, strategy: Strategy, plan: Plan, seed: int, device: Any
    ) -> None:
        if not (f.sizes > 0).any():
            raise ValueError("no client of this federation owns data; nothing can be trained")
        if not len(f.y_test):
            raise ValueError("the federation has no test data, on which models are scored")
        self.federation, self.plan, self.streams = f, plan, Streams(seed)
        self.judge = partial(Evaluator, model, device=device)
        self.evaluator: Any = Missing(
            "the federation holds no validation data, and this strategy scores models on them: "
            "give it some, or take one that does not"
        )
        if len(f.y_val):
            self.evaluator = self.judge(f.x_val, f.y_val, plan.utility)
        self.test = self.judge(f.x_test, f.y_test)
        self.table = ClientTable.new(f.sizes, f.label_counts, strategy.outputs)
        self.table.losses = self.losses
        self.model = model.init(self.streams.generator("model")).to(device)

    def losses(self, ids: Ints) -> Floats:
        """Mean loss of the global model on the data of some clients, which must own data."""
        owns = (self.federation.client_data(int(i)) for i in ids)
        judges = [self.judge(*own, "negative_loss") for own in owns]
        return -np.array([judge.utilities(self.model[None])[0] for judge in judges])

    def select(self, policy: Select, t: int) -> Ints:
        self.table.round = t
        rng = self.streams.child("round", t).generator("select")
        ids = policy(self.table, self.plan.participants, rng)
        return check_selection(policy, ids, self.federation.n_clients)

    def received(
        self, architecture: Model, ids: Ints, updates: Tensor, t: int, attack: Attack | None
    ) -> Round:
        """The round as it reaches the server: after attacks, and without broken updates."""
        streams = self.streams.child("round", t)
        updates = self.federation.sent(updates, ids.tolist(), streams)
        r = Round(
            t, architecture, self.model, updates, ids, self.table.sizes[ids], self.evaluator,
            self.plan.local, self.plan.weighting, streams,
        )  # fmt: skip
        if attack is not None:
            r = r.with_updates(attack(r))
        r = r.finite()
        r.participants.setflags(write=False)
        r.sizes.setflags(write=False)
        return r

    def write(self, history: History, r: Round, valuation: Valuation, probe: Probe | None) -> None:
        """Add the round, whose next model is there, to the history."""
        t, accuracy = r.index + 1, float("nan")
        if t == self.plan.rounds or t % self.plan.evaluate_every == 0:
            accuracy = float(self.test.utilities(self.model[None])[0])
        probed = None if probe is None else probe(r, valuation)
        more = {"last": t == self.plan.rounds} | _check_probed(probed)
        history.add(r, valuation, t, accuracy, more)


def _check_probed(probed: Any) -> dict[str, Any]:
    probed = {} if probed is None else probed
    if not isinstance(probed, Mapping) or not all(isinstance(name, str) for name in probed):
        raise ValueError(f"probe returned {brief(probed)}; expected numbers by name, or None")
    return {name: np.asarray(value).tolist() for name, value in probed.items()}


def _train(
    model: Model, servers: Sequence[_Server], chosen: Sequence[Ints], t: int, device: Any
) -> list[Tensor]:
    """Local training of all participants of all federations; updates [k, P] of each."""
    jobs = [(s, int(i)) for s, ids in zip(servers, chosen, strict=True) for i in ids]
    start = torch.stack([s.model for s, _ in jobs])
    data = [s.federation.client_data(i) for s, i in jobs]
    rngs = [s.streams.child("round", t).generator("client", i) for s, i in jobs]
    ended = train_clients(model, start, data, servers[0].plan.local, rngs, device=device)
    return list((ended.to(device) - start).split([len(ids) for ids in chosen]))


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
    probe : callable, optional
        Called with every round and its valuation; the numbers that it returns join the history.
    attack : callable, optional
        Maps a round to the updates that reach the server, float32[k, P].
    progress : bool
        Show a progress bar.

    Returns
    -------
    History
        An exception carries the `history` of the rounds before it.

    Raises
    ------
    ValueError
        If the arguments do not match, a policy returns what is no selection, no values or no model,
        or no update of a round is finite; one that is not is left out of its round.
    """
    seeds = _checked(federations, strategy, plan, seeds, probe, attack)
    place = find_device(device)
    if isinstance(architecture, nn.Module):
        architecture = classifier("architecture", architecture, federations[0].x)
    having("architecture", architecture, "init", "row", "size")
    pairs = zip(federations, seeds, strict=True)
    servers = [_Server(f, architecture, strategy, plan, seed, place) for f, seed in pairs]
    history, clock, t = History(), time.perf_counter(), 0

    def lap(phase: str) -> None:
        nonlocal clock
        if place.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        history.seconds[phase] = history.seconds.get(phase, 0.0) + now - clock
        clock = now

    try:
        for t in bar(range(plan.rounds), progress, "round"):
            clock = time.perf_counter()
            chosen = [server.select(strategy.select, t) for server in servers]
            updates = _train(architecture, servers, chosen, t, place)
            lap("train")
            rounds = [
                server.received(architecture, ids, sent, t, attack)
                for server, ids, sent in zip(servers, chosen, updates, strict=True)
            ]
            valuations = values_of(strategy, rounds)
            lap("value")
            for server, r, valuation in zip(servers, rounds, valuations, strict=True):
                server.model = next_model(strategy, server.table, r, valuation)
                server.write(history, r, valuation, probe)
            lap("aggregate and test")
    except BaseException as error:
        error.history = history  # type: ignore[attr-defined]
        error.add_note(f"in round {t + 1} of {plan.rounds}; those before are in .history")
        raise
    history.models = torch.stack([server.model for server in servers]).cpu()
    return history


def _checked(
    federations: Any, strategy: Any, plan: Any, seeds: Any, probe: Any, attack: Any
) -> list[int]:
    """Return the seeds of a run, or refuse what it is given."""
    several = isinstance(federations, list | tuple)
    if not several or not all(isinstance(f, Federation) for f in federations):
        raise ValueError(f"federations is {brief(federations)}; expected a list of federations")
    having("strategy", strategy, "select", "value", "aggregate", "remember")
    having("plan", plan, "rounds", "participants", "local", "evaluate_every")
    if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str | bytes | bytearray):
        raise ValueError(f"seeds is {brief(seeds)}; expected a list of whole numbers")
    seeds = [whole("seeds", seed, 0) for seed in seeds]
    for name, given in (("probe", probe), ("attack", attack)):
        if given is not None:
            function(name, given)
    if len(federations) != len(seeds) or len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"{len(federations)} federations, seeds {seeds}; give each one of its own")
    few = min(f.n_clients for f in federations)
    if plan.participants > few:
        raise ValueError(f"plan has {plan.participants} participants, a federation {few} clients")
    return seeds
