"""The arena's methods, and what each may see.

:class:`View` gives what a method declared, refuses the rest by one sentence, and counts what is
spent.  It guards against mistakes, not against malice.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch

from fedkit import estimators as est
from fedkit.arena.truths import World
from fedkit.checks import brief, choice, having, one_line
from fedkit.federated.valuers import (
    ClassCosine,
    Exact,
    RandomValues,
    Round,
    SizeAsValue,
    ValuePolicy,
    check_policy,
)
from fedkit.games.game import FunctionGame, Game, MemoGame, NoGainRule, normalise
from fedkit.games.valuation import Valuation
from fedkit.intervals import kendalls_tau
from fedkit.learning.evaluation import Evaluator
from fedkit.methods import fedccea
from fedkit.methods.cgsv import CosineValues, LeaveOneOut
from fedkit.methods.fedms import MaverickGTG, MaverickMR, rewards
from fedkit.methods.fedowen import OwenSampling
from fedkit.methods.fedtsv import TrajectoryValues
from fedkit.outside import blamed, is_outside, make_method
from fedkit.streams import Streams

__all__ = [
    "METHODS", "SIGHTS", "Method", "MethodError", "PeekError", "Played", "RoundByRound", "View",
    "find_method", "find_methods", "play",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]

_UTILITIES = ("accuracy", "negative_loss", "class_accuracy")
SIGHTS = ("updates", "sizes", "validation", "training")
"""What a method may declare: the clients' updates, how many samples they own, the server's
validation images (utilities of coalitions and models), and training from scratch."""


class PeekError(ValueError):
    """A method asked for what it did not declare."""


class MethodError(ValueError):
    """A method failed; the message is the sentence that is shown in the place of its row."""


class Method(Protocol):
    """What enters the arena."""

    @property
    def sees(self) -> Collection[str]:
        """What of :data:`SIGHTS` it asks for; an attribute of the class will do."""
        ...

    def values(self, view: View) -> npt.ArrayLike:
        """A finite number per client, larger for more valuable."""
        ...


class View:
    """What one method may see of one federation, and what it spends.

    Attributes
    ----------
    present : bool[R, n]
        Who is there in each round.
    streams : Streams
        Random streams of its own for every federation and variant; the seed tells nothing of the
        roles.
    trainings : float
        Federations trained so far, in units of everybody's data in all rounds.
    by_round : list of float64[k]
        What :meth:`mean` was given last.
    """

    _output = 0  # of a training from scratch: validation accuracy

    def __init__(self, world: World, sees: Collection[str]) -> None:
        self._world, self.sees = world, frozenset(sees)
        self.n_clients, self.n_rounds = world.n, world.scenario.rounds
        self.present = world.planted.present.copy()
        own = Streams(world.seed).sequence("arena", "method", repr(world.scenario))
        self.streams = Streams(int(own.generate_state(1)[0]))
        self.trainings = 0.0
        self.by_round: list[FloatArray] = []
        self._models = 0
        self._games: dict[tuple[int, str], MemoGame] = {}

    def ask(self, sight: str) -> None:
        """Refuse what was not declared."""
        if sight not in self.sees:
            told = ", ".join(sorted(self.sees)) or "nothing"
            raise PeekError(f"it asked for {sight} and declared {told}; add {sight!r} to sees")

    @property
    def evaluations(self) -> int:
        """Utility evaluations so far: distinct coalitions of each round, and models."""
        return self._models + sum(game.evaluations for game in self._games.values())

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Samples per client, int64[n]."""
        self.ask("sizes")
        return self._world.planted.federation.sizes.copy()

    def rounds(self, utility: str = "accuracy") -> list[Round]:
        """The rounds; of each one what was declared: updates, sizes, evaluator, game.

        `utility` is "accuracy", "negative_loss" or "class_accuracy", of games and evaluator.
        """
        choice("utility", utility, _UTILITIES)
        return [cast(Round, SeenRound(r, self, utility)) for r in self._world.rounds]

    def game(self, index: int, utility: str = "accuracy") -> MemoGame:
        """The coalition game of round `index`, over its participants."""
        self.ask("validation")
        if (index, utility) not in self._games:
            self._games[index, utility] = MemoGame(self._world.tables(utility)[index])
        return self._games[index, utility]

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """In how many rounds each client took part, int64[n]."""
        asked = np.concatenate([r.participants for r in self._world.rounds])
        return np.bincount(asked, minlength=self.n_clients)

    def mean(self, values: Sequence[npt.ArrayLike]) -> FloatArray:
        """Average values of the rounds' participants over the rounds that each took part in.

        float64[n]; NaN for a client who was never asked.  A sum would tell how often a client was
        drawn.
        """
        totals = np.zeros(self.n_clients)
        given = [np.array(mine, dtype=np.float64) for mine in values]
        for r, mine in zip(self._world.rounds, given, strict=True):
            totals[r.participants] += mine
        self.by_round = given
        return np.where(self.times > 0, totals / np.maximum(self.times, 1), np.nan)

    def train(self, sizes: npt.ArrayLike, every_round: bool = False) -> FloatArray:
        """Train federations from scratch: validation accuracy, float64[B, R] or [B, 1].

        In federation b (and round r) client i trains on its first ``sizes[b, (r,) i]`` samples.
        """
        self.ask("training")
        asked = np.asarray(sizes)
        share = (asked / self._world.planted.federation.sizes.sum()).sum()
        self.trainings += float(share) / (asked.shape[1] if asked.ndim == 3 else 1)
        return self._world.train(asked, on="validation", every_round=every_round)[..., self._output]

    def retraining(self) -> Game:
        """The game of training from scratch, over all clients, by validation accuracy."""
        self.ask("training")
        owned = self._world.planted.federation.sizes
        return FunctionGame(self.n_clients, lambda rows: self.train(rows * owned)[:, 0])

    @property
    def held(self) -> float:
        """MiB that the server must hold for what is declared: a round's updates, validation images.

        It is a formula; memory is not measured.
        """
        w, size = self._world, 0
        if self.sees & {"updates", "validation"}:
            size += max(r.updates.nbytes for r in w.rounds)
        if self.sees & {"validation", "training"}:
            size += w.planted.federation.x_val.nbytes
        return size / 2**20


class SeenRound:
    """A round, of which a method sees what it declared."""

    _FREE = ("index", "participants", "architecture", "local", "weighting")
    _ASKED: Mapping[str, str] = {"updates": "updates", "base": "updates", "sizes": "sizes"}

    def __init__(self, r: Round, view: View, utility: str) -> None:
        self._round, self._view, self._utility = r, view, utility

    def __getattr__(self, name: str) -> Any:
        if name in self._ASKED:
            self._view.ask(self._ASKED[name])
        elif name not in self._FREE:
            raise AttributeError(f"the arena shows no {name!r} of a round")
        found = getattr(self._round, name)
        # what can be written to is a copy: the rounds are everybody's
        return deepcopy(found) if isinstance(found, torch.Tensor | np.ndarray) else found

    @property
    def streams(self) -> Streams:
        """Random streams of the round, for this method."""
        return self._view.streams.child("round", self._round.index)

    @property
    def evaluator(self) -> SeenEvaluator:
        """Utilities of any models, and the validation images."""
        self._view.ask("validation")
        judge = self._view._world.judge(cast(Any, self._utility))  # one of three: View.rounds
        return SeenEvaluator(judge, self._view)

    def game(self, normalised: bool = False, no_gain: NoGainRule = "shift") -> Game:
        """The coalition game of the round."""
        game = self._view.game(self._round.index, self._utility)
        return normalise(game, no_gain=no_gain) if normalised else game


class SeenEvaluator:
    """The validation images, and utilities of models, which are counted."""

    def __init__(self, evaluator: Evaluator, view: View) -> None:
        self._evaluator, self._view = evaluator, view
        self.x, self.y = evaluator.x.clone(), evaluator.y.clone()
        self.arch = evaluator.arch

    def utilities(self, params: torch.Tensor) -> FloatArray:
        """Utility of each model of ``[B, P]``, the one that the rounds were asked for."""
        self._view._models += len(params)
        return self._evaluator.utilities(params)


@dataclass(frozen=True)
class RoundByRound:
    """A policy that values rounds, as a method: its values are averaged.

    `utility` is what its coalition games measure.
    """

    policy: ValuePolicy
    sees: tuple[str, ...] = ()
    utility: str = "accuracy"

    def values(self, view: View) -> FloatArray:
        """The policy's values in the units of the utility, averaged over rounds."""
        found = self.policy.value(view.rounds(self.utility))
        return view.mean([v.values * v.scale for v in found])


class _Trajectories(RoundByRound):
    """FedTSV, whose reference is a training of the server's in every round: it is counted."""

    def values(self, view: View) -> FloatArray:
        everybody = sum(view.rounds()[0].local.n_steps(int(n)) for n in view.sizes)
        for r in view.rounds():  # as many steps as participants take on average
            steps = np.mean([r.local.n_steps(int(n)) for n in r.sizes])
            view.trainings += max(1, round(float(steps))) / (everybody * view.n_rounds)
        return super().values(view)


@dataclass(frozen=True)
class _Uniform:
    """Control: the same for everybody in a round."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        shares = [np.full(len(r.participants), 1 / len(r.participants)) for r in rounds]
        return [Valuation(x, np.full_like(x, np.nan), 0, 0, "uniform") for x in shares]


#: utility evaluations per participant that samplers may spend in a round
SPENT = 6


def _budgets(rounds: Sequence[Round]) -> list[int]:
    """The common budget of each round, but no more than there are coalitions."""
    return [min(SPENT * len(r.participants), 2 ** len(r.participants)) for r in rounds]


@dataclass(frozen=True)
class _Owen:
    """Algorithm 1 on the normalised game, divided by its walks; values in the utility's units."""

    estimator: OwenSampling = field(default_factory=OwenSampling)

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        games = [normalise(r.game()) for r in rounds]
        seeds = [r.streams.child("valuation") for r in rounds]
        # two of them are what normalising asks for
        budgets = [
            max(b - 2, self.estimator.minimum(g.n_players, "distinct"))
            for b, g in zip(_budgets(rounds), games, strict=True)
        ]
        found = est.estimate_many(games, self.estimator, budgets, seeds)
        return [replace(v, values=g.restore(v.values)) for g, v in zip(games, found, strict=True)]


def _knowing(estimator: est.Estimator, whose: Any, sees: Collection[str]) -> est.Estimator:
    """Tell a proxy that knows the averaging weights the sizes of a round, or of all clients."""
    if isinstance(estimator, est.ProxySampling) and "sizes" in sees:
        return replace(estimator, sizes=tuple(whose.sizes.tolist()))
    return estimator


@dataclass(frozen=True)
class Sampled:
    """An estimator of the library under the common budget, 6 evaluations per participant.

    Without `common` it spends what it needs; `told` is what counts of a valuation.
    """

    estimator: est.Estimator
    sees: tuple[str, ...] = ("validation",)
    utility: str = "accuracy"
    common: bool = True
    told: Callable[[Valuation], FloatArray] = attrgetter("values")

    def values(self, view: View) -> FloatArray:
        """The estimates, averaged over rounds."""
        rounds = view.rounds(self.utility)
        found = est.estimate_many(
            [r.game() for r in rounds],
            [_knowing(self.estimator, r, self.sees) for r in rounds],
            _budgets(rounds) if self.common else None,
            [r.streams.child("valuation") for r in rounds],
        )
        return view.mean([self.told(v) for v in found])


@dataclass(frozen=True)
class Retrained:
    """An estimator on the game of training from scratch; without one, leave-one-out."""

    estimator: est.Estimator | None = None
    sees: tuple[str, ...] = ("training",)

    def values(self, view: View) -> FloatArray:
        """Values of the estimator under the common budget."""
        game = view.retraining()
        if self.estimator is None:
            return est.leave_one_out(game).values
        estimator = _knowing(self.estimator, view, self.sees)
        # an estimator may need a few coalitions more to have seen everybody
        budget = max(SPENT * game.n_players, estimator.minimum(game.n_players, "distinct"))
        return est.estimate(game, estimator, budget, view.streams).values


@dataclass(frozen=True)
class Simulated:
    """FedCCEA, in either reading of where its sigmoid is."""

    sigmoid: fedccea.Sigmoid = "shared"
    simulations: int = 40
    sees: tuple[str, ...] = ("training", "sizes")

    def values(self, view: View) -> FloatArray:
        """Values at full participation."""
        sizes, rounds, seed = view.sizes, view.n_rounds, view.streams.seed
        count = max(self.simulations, fedccea.fewest_simulations(view.n_clients, rounds))
        drawn = fedccea.sample_sizes(sizes, count, rounds, seed) * view.present
        accuracy = view.train(drawn, every_round=True)
        fitted = fedccea.fit_aam(
            fedccea.Simulations(drawn / sizes.mean(), accuracy), sigmoid=self.sigmoid, seed=seed
        )
        return fedccea.contribution_values(fitted.quality, sizes)


_SEEN = ("validation",)
METHODS: Mapping[str, Method] = {
    "exact": RoundByRound(Exact(normalised=False), _SEEN),
    "exact-loss": RoundByRound(Exact(normalised=False), _SEEN, "negative_loss"),
    "permutation": Sampled(est.PermutationSampling()),
    "antithetic": Sampled(est.PermutationSampling(antithetic=True)),
    "multilinear": Sampled(est.MultilinearSampling()),
    "gtg": Sampled(est.GTGShapley()),
    "tmc": Sampled(est.TruncatedMonteCarlo()),
    "banzhaf": Sampled(est.BanzhafSampling()),
    "beta": Sampled(est.BetaShapleySampling()),
    "complementary": Sampled(est.ComplementarySampling()),
    "proxy": Sampled(est.ProxySampling(), ("validation", "sizes")),
    "owen": RoundByRound(_Owen(), _SEEN),
    "ms-mr": Sampled(MaverickMR(), utility="class_accuracy", common=False, told=rewards),
    "ms-gtg": Sampled(MaverickGTG(), utility="class_accuracy", told=rewards),
    "fedtsv": _Trajectories(TrajectoryValues(), ("updates", "sizes", "validation")),
    "cgsv": RoundByRound(CosineValues(), ("updates",)),
    "shapfed": RoundByRound(ClassCosine(), ("updates", "sizes")),
    "loo": RoundByRound(LeaveOneOut(), _SEEN),
    "loo-loss": RoundByRound(LeaveOneOut(), _SEEN, "negative_loss"),
    "fedccea": Simulated(),
    "fedccea-connected": Simulated("connected"),
    "loo-retrained": Retrained(),
    "tmc-retrained": Retrained(est.TruncatedMonteCarlo()),
    "proxy-retrained": Retrained(est.ProxySampling(), ("training", "sizes")),
    "size": RoundByRound(SizeAsValue(), ("sizes",)),
    "random": RoundByRound(RandomValues()),
    "uniform": RoundByRound(_Uniform()),
}
"""The rows of the arena; the last three are controls.

Samplers have the common budget, which "ms-gtg" may leave unspent by its own stopping rule.
"exact", "exact-loss", "loo", "loo-loss", "loo-retrained" and "ms-mr" ask for what defines them, and
"fedccea" trains its own number of federations: read their fidelity beside their cost.  Rows that
see "training" train with the seed by which values of retraining are told, in their favour; what
values are worth is judged by a seed of its own.
"""


def _name(given: object) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)


def find_method(given: object, name: str | None = None) -> tuple[str, Method]:
    """Return a method with its name: a row, ``"package:Class"``, a class, an object or a policy.

    A policy that values rounds (``fedkit.federated.ValuePolicy``) may see updates, sizes and
    validation images, unless it declares ``sees`` itself, and its rounds have the utility
    "accuracy", unless it declares ``utility``.
    """
    name = _name(given) if name is None else name
    if isinstance(given, str):
        if given in METHODS:
            return name, METHODS[given]
        if not is_outside(given):
            rows = ", ".join(METHODS)
            raise ValueError(f"method {given!r} is unknown; choose package:Class or one of {rows}")
        given = make_method(given)
    with blamed(ValueError, f"method {name!r} cannot be made:"):
        made: Any = given() if isinstance(given, type) else given
    if not hasattr(made, "values") and (hasattr(made, "value") or isinstance(made, est.Estimator)):
        check_policy(made)
        utility = getattr(made, "utility", "accuracy")
        if utility not in _UTILITIES:  # its own business, such as the shape of a distance
            utility = "accuracy"
        made = RoundByRound(made, getattr(made, "sees", SIGHTS[:3]), utility)
    having(f"method {name}", made, "values", "sees")
    told = made.sees if isinstance(made.sees, Collection) else [made.sees]
    if isinstance(told, str) or not all(sight in SIGHTS for sight in told):
        raise ValueError(
            f"method {name} declares sees = {made.sees!r}; expected some of {', '.join(SIGHTS)}"
        )
    return name, made


def find_methods(
    given: Sequence[object] | Mapping[str, object],
) -> tuple[list[tuple[str, Method]], dict[str, str]]:
    """Return the methods that can be found, and a sentence for each one that cannot, by name.

    None at all is an error: then nothing goes on, as where the one that is asked for is misspelt.
    """
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or given == {}:
        raise ValueError(f"methods is {brief(given)}; expected a list of them, or a dict by name")
    pairs = given.items() if isinstance(given, Mapping) else [(_name(one), one) for one in given]
    named: list[tuple[Any, object]] = [*pairs]
    if unnamed := [name for name, _ in named if not isinstance(name, str) or not name]:
        raise ValueError(f"a method is named {unnamed[0]!r}; expected text")
    found, failures = [], {}
    for name, one in named:
        try:
            found.append(find_method(one, name))
        except ValueError as error:
            failures[name] = " ".join(str(error).split())
    if failures and not found:
        raise ValueError("; ".join(failures.values()))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise ValueError(
            f"methods are {names}; each needs a name of its own: give them as a dict, name: method"
        )
    return found, failures


@one_line
@dataclass(frozen=True)
class Played:
    """What a method said of one federation, and what it spent.

    Attributes
    ----------
    values : float64[n]
        By client; NaN only for one who took part in no round.
    fidelity : float
        Kendall's tau-b with the exact values of a round by the method's own utility (minus the
        loss where it asked for that alone, otherwise accuracy), averaged over the rounds in which
        they differ; NaN for a method that values no rounds, and without validation data.
    trainings : float
        In units of everybody's data in all rounds.
    seconds : float
        Processor time of its own, and of its coalitions at the price of evaluating all of a round
        together.
    """

    values: FloatArray
    fidelity: float
    evaluations: int
    trainings: float
    seconds: float
    held: float


class _Late(BaseException):
    """The limit is over; no Exception, so that a method does not catch it by mistake."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, where the platform can; only the main thread gets signals."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        yield
        return

    def late(number: int, frame: object) -> None:
        raise _Late

    before: Any = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, 1e8))  # of more the platform knows nothing
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def play(name: str, method: Method, world: World, limit: float = 600.0) -> Played:
    """Let a method value the clients of one federation.

    Raises
    ------
    MethodError
        If it raises, peeks, takes longer than `limit` seconds, or returns something else than one
        finite number per client (or NaN for one who took part in no round).
    """
    view = View(world, method.sees)
    _ = world.rounds  # rounds and tables are everybody's: made before the clock runs
    if "validation" in view.sees:
        if not len(world.planted.federation.y_val):
            raise MethodError(f"{name} asks for validation data, and the federation has none")
        _ = world.seconds_per_evaluation
    start, begun = time.process_time(), time.perf_counter()
    with blamed(MethodError, f"{name} raised"):
        try:
            with _limited(limit):
                given: Any = method.values(view)
                if hasattr(given, "reindex"):  # a pandas series is by client, in whatever order
                    given = given.reindex(range(world.n))
                if np.iscomplexobj(given):
                    raise TypeError("values are complex numbers")
                values = np.array(given, dtype=np.float64)
        except _Late:
            raise MethodError(f"{name} took longer than {limit:g} seconds") from None
        except PeekError as error:
            raise MethodError(f"{name} peeked: {error}") from error
    own = time.process_time() - start
    if time.perf_counter() - begun > limit:
        raise MethodError(f"{name} took longer than {limit:g} seconds")
    unasked = view.times == 0  # of whom nobody need say anything
    if values.shape != (world.n,) or not (np.isfinite(values) | unasked & np.isnan(values)).all():
        shown = " ".join(np.array2string(values, precision=3, threshold=12).split())
        raise MethodError(
            f"{name} returned {shown} of shape {values.shape}; expected {world.n} finite numbers, "
            "one per client"
        )
    coalitions = sum(game.evaluations for game in view._games.values())  # models took own time
    seconds = own + coalitions * (world.seconds_per_evaluation if coalitions else 0.0)
    return Played(
        values, _fidelity(view, values), view.evaluations, view.trainings, seconds, view.held
    )


def _fidelity(view: View, values: FloatArray) -> float:
    """Agreement of a method's values of rounds with the exact ones (:class:`Played`)."""
    mine = view.by_round
    judged = len(view._world.planted.federation.y_val) > 0
    if not judged or not mine or not np.array_equal(view.mean(mine), values, equal_nan=True):
        return float("nan")
    alone = {u for _, u in view._games} == {"negative_loss"}
    seen = View(view._world, _SEEN).rounds("negative_loss" if alone else "accuracy")
    exact = Exact(normalised=False).value(seen)
    pairs = [(np.round(a, 9), np.round(v.values, 9)) for a, v in zip(mine, exact, strict=True)]
    # tau is NaN where one side says nothing
    taus = [float(np.nan_to_num(kendalls_tau(a, b))) for a, b in pairs if np.ptp(b) > 0]
    return float(np.mean(taus)) if taus else float("nan")


Entry = str | type | Method | ValuePolicy | Callable[[], Method]
