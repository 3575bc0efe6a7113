"""Compare methods of valuing clients on one federation, one's own among them.

:class:`World` trains the federation once and has the utilities of all 2^k coalitions of each
round, shared by all methods; a :class:`View` hands them to one method and counts what it spends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fedkit import estimators as est
from fedkit.checks import Bools, Floats, brief, choice, flag, having, numbers, one_line, warn, whole
from fedkit.extras import need
from fedkit.federated import policies
from fedkit.federated.federation import Federation
from fedkit.federated.history import History
from fedkit.federated.retraining import train_with_sizes
from fedkit.federated.rounds import Plan, Round, Select, Strategy, Value, check_policy, run
from fedkit.games.exact import leave_one_out, shapley
from fedkit.games.game import Game, NoGainRule, normalise, table_game, tabulate
from fedkit.games.memory import Memory
from fedkit.games.valuation import Valuation
from fedkit.intervals import kendalls_tau
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import Model, build, classifier
from fedkit.learning.training import LocalSGD
from fedkit.methods import fedccea
from fedkit.methods.baselines import CosineValues
from fedkit.methods.fedms import MaverickGTG, MaverickMR, rewards
from fedkit.methods.fedowen import OwenSampling
from fedkit.methods.fedtsv import TrajectoryValues
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd


UTILITIES = ("accuracy", "negative_loss", "class_accuracy")
SIGHTS = ("updates", "sizes", "validation", "training")
"""What a method may need: the clients' updates, how many samples they own, the server's validation
images (utilities of coalitions and models), and training from scratch."""

#: participants of a round whose 2^k coalitions are all evaluated
MOST = 14
#: up to so many clients the federations of all coalitions are trained
EXACT_UP_TO = 11
#: of more clients so many coalitions are sampled
SAMPLED = 600
#: mean cross-entropy of a model that has diverged, and the worst there is
WORST = 10.0
#: utility evaluations per participant that samplers may spend in a round
SPENT = 6


# ------------------------------------------------------------------------------ the federation


def accuracy_and_loss(outputs: torch.Tensor, y: torch.Tensor) -> Floats:
    """Accuracy, and minus the mean cross-entropy, no worse than minus :data:`WORST`."""
    loss = F.cross_entropy(outputs.double(), y).nan_to_num(nan=WORST)
    accuracy = (outputs.argmax(dim=1) == y).double().mean()
    return np.array([float(accuracy), -min(float(loss), WORST)])


def bounded_loss(r: Round, judge: Evaluator) -> Callable[[Bools], Floats]:
    """Minus the loss of coalitions, no worse than minus :data:`WORST`."""
    loss = replace(r, evaluator=judge).game().function
    return lambda rows: np.maximum(np.nan_to_num(loss(rows), nan=-WORST, neginf=-WORST), -WORST)


@dataclass(frozen=True, eq=False)
class World:
    """A federation and its training, from which all methods are served.

    `seed` is that of the training and of the methods' own streams; `present`, bool[R, n], says who
    is there in each round; `name` tells the streams of two worlds with one seed apart.
    """

    federation: Federation
    model: Model
    plan: Plan
    seed: int = 0
    select: Select = field(default_factory=policies.UniformSelection)
    present: Bools | None = None
    name: str = ""

    @property
    def n(self) -> int:
        """Number of clients."""
        return self.federation.n_clients

    @property
    def rounds(self) -> list[Round]:
        """The rounds of federated averaging, as the server saw them."""
        return self._played[0]

    @property
    def accuracy(self) -> float:
        """Test accuracy of the model after the last round, a fraction."""
        return self._played[1].final_accuracy()[self.seed]

    @cached_property
    def _played(self) -> tuple[list[Round], History]:
        seen: list[Round] = []

        def keep(r: Round, v: Valuation) -> dict[str, float]:
            seen.append(r)
            return {}

        strategy = Strategy(self.select, policies.NoValue(), policies.SizeWeighted())
        plan = replace(self.plan, evaluate_every=self.plan.rounds)
        history = run(
            [self.federation], self.model, strategy, plan, [self.seed], device="cpu", probe=keep
        )
        return seen, history

    def judge(self, utility: Any) -> Evaluator:
        """A utility on the server's validation images."""
        f = self.federation
        return Evaluator(self.model, f.x_val, f.y_val, utility, device="cpu")

    @cached_property
    def _tables(self) -> tuple[dict[str, list[Game]], float]:
        counts = np.bincount(self.federation.y_val.numpy(), minlength=self.model.n_classes)
        # the accuracies of all classes tell that of all images; a class without images has none
        told = "class_accuracy" if counts.all() else "accuracy"
        judges, start = [self.judge(told), self.judge("negative_loss")], time.process_time()
        right = [tabulate(replace(r, evaluator=judges[0]).game()) for r in self.rounds]
        seconds = (time.process_time() - start) / sum(2**t.n_players for t in right)
        losses = [
            tabulate(Game(len(r.participants), bounded_loss(r, judges[1]))) for r in self.rounds
        ]
        tables = [t.table for t in right if t.table is not None]
        hits = (v @ counts if v.ndim > 1 else v * counts.sum() for v in tables)
        # whole numbers of right answers, so that equal accuracies are equal numbers
        accurate = [table_game(np.rint(each) / counts.sum()) for each in hits]
        return {told: right, "negative_loss": losses, "accuracy": accurate}, seconds

    def tables(self, utility: str) -> list[Game]:
        """The utilities of all coalitions of every round, for one utility."""
        if utility == "class_accuracy":
            self.judge("class_accuracy")  # which refuses a class without an image
        return self._tables[0][utility]

    @property
    def seconds_per_evaluation(self) -> float:
        """Processor time of one utility, where all of a round are evaluated together."""
        return self._tables[1]

    def train(
        self,
        sizes: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        on: str = "test",
        every_round: bool = False,
    ) -> Floats:
        """Train federations from scratch: accuracy and minus loss, float64[B, R or 1, 2].

        As ``train_with_sizes``, with `sizes` (B, n) or (B, R, n); who is not there yet uses none.
        Models are judged `on` "test" or "validation" images.
        """
        f, asked = self.federation, np.asarray(sizes)
        if asked.ndim == 2:
            asked = np.broadcast_to(asked[:, None], (len(asked), self.plan.rounds, asked.shape[1]))
        if self.present is not None:
            asked = asked * self.present
        if on == "validation":
            f = replace(f, x_test=f.x_val, y_test=f.y_val)
        return train_with_sizes(
            f, self.model, self.plan.local, asked, seed=self.seed, every_round=every_round,
            device="cpu", weights=weights, utility=accuracy_and_loss,
        )  # fmt: skip

    def value(self, coalitions: Bools) -> Floats:
        """Accuracy and minus loss of the federations of some coalitions, float64[B, 2]."""
        return self.train(coalitions * self.federation.sizes)[:, 0]


def retraining_values(w: World) -> Valuation:
    """Shapley values of training from scratch, by test accuracy and minus loss, float64[n, 2]."""
    game = Game(w.n, w.value)
    if w.n <= EXACT_UP_TO:
        return shapley(game)
    return est.estimate(game, est.ComplementarySampling(), SAMPLED, seed=w.seed)


# ------------------------------------------------------------------------- what a method is shown


class View:
    """What one method is shown of one federation, and what it spends."""

    output = 0  # of a training from scratch: validation accuracy

    def __init__(self, world: World) -> None:
        self._world = world
        self.n_clients, self.n_rounds = world.n, world.plan.rounds
        everybody = np.ones((self.n_rounds, self.n_clients), dtype=bool)
        #: ``bool[R, n]``, who is there in each round
        self.present = everybody if world.present is None else world.present
        self.sizes = world.federation.sizes  #: ``int64[n]``, samples per client
        asked = np.concatenate([r.participants for r in world.rounds])
        #: ``int64[n]``, rounds in which each client took part
        self.times = np.bincount(asked, minlength=self.n_clients)
        own = Streams(world.seed).sequence("arena", "method", world.name)
        #: of this method for this federation; the seed tells nothing of the clients
        self.streams = Streams(int(own.generate_state(1)[0]))
        self.trainings = 0.0  #: so far, in units of everybody's data in all rounds
        self.by_round: list[Floats] = []  #: what :meth:`mean` was given last, ``[k]`` each
        self.games: dict[tuple[int, str], Memory] = {}
        self._models = 0

    @property
    def evaluations(self) -> int:
        """Utility evaluations so far: distinct coalitions of each round, and models."""
        return self._models + sum(game.evaluations for game in self.games.values())

    def rounds(self, utility: str = "accuracy") -> list[Round]:
        """The rounds, whose games and evaluator have a utility: one of :data:`UTILITIES`."""
        choice("utility", utility, UTILITIES)
        judge = self._counting(utility) if len(self._world.federation.y_val) else None
        shown: list[Round] = []
        for r in self._world.rounds:
            seen = {part.name: getattr(r, part.name) for part in fields(r) if part.init}
            seen["streams"] = self.streams.child("round", r.index)
            seen["evaluator"] = judge or r.evaluator
            shown.append(ShownRound(**seen, view=self, utility=utility))
        return shown

    def _counting(self, utility: str) -> Evaluator:
        """Return an evaluator whose models are counted."""
        judge = self._world.judge(utility)
        evaluate = judge.utilities

        def counted(rows: Any) -> Floats:
            self._models += len(rows)
            return evaluate(rows)

        judge.utilities = counted  # type: ignore[method-assign, assignment]
        return judge

    def game(self, index: int, utility: str = "accuracy") -> Game:
        """The coalition game of round `index`, over its participants."""
        if (index, utility) not in self.games:
            self.games[index, utility] = Memory(self._world.tables(utility)[index])
        memory = self.games[index, utility]
        return Game(memory.game.n_players, memory)

    def mean(self, values: Sequence[npt.ArrayLike]) -> Floats:
        """Average values over the rounds that each client took part in, float64[n], or NaN."""
        totals = np.zeros(self.n_clients)
        given = [np.array(mine, dtype=np.float64) for mine in values]
        for r, mine in zip(self._world.rounds, given, strict=True):
            totals[r.participants] += mine
        self.by_round = given
        return np.where(self.times > 0, totals / np.maximum(self.times, 1), np.nan)

    def train(self, sizes: npt.ArrayLike, every_round: bool = False) -> Floats:
        """Train federations from scratch: validation accuracy, float64[B, R] or [B, 1].

        In federation b (and round r) client i trains on its first ``sizes[b, (r,) i]`` samples.
        """
        asked = np.asarray(sizes)
        share = (asked / self.sizes.sum()).sum()
        self.trainings += float(share) / (asked.shape[1] if asked.ndim == 3 else 1)
        return self._world.train(asked, on="validation", every_round=every_round)[..., self.output]

    def retraining(self) -> Game:
        """The game of training from scratch, over all clients, by validation accuracy."""
        return Game(self.n_clients, lambda rows: self.train(rows * self.sizes)[:, 0])


@dataclass(frozen=True)
class ShownRound(Round):
    """A round whose coalitions are looked up, and counted."""

    view: View = field(kw_only=True, repr=False)
    utility: str = field(kw_only=True)

    def game(self, normalised: bool = False, no_gain: NoGainRule = "shift") -> Game:
        """The coalition game of the round."""
        game = self.view.game(self.index, self.utility)
        return normalise(game, no_gain=no_gain) if normalised else game


# --------------------------------------------------------------------------------- the methods


class Method(Protocol):
    """What is compared; ``sees``, names of :data:`SIGHTS`, says what it needs."""

    def values(self, view: View) -> npt.ArrayLike:
        """A finite number per client, larger for more valuable."""


def sees(method: object) -> tuple[str, ...]:
    """Return what a method says that it needs."""
    return tuple(getattr(method, "sees", SIGHTS[:3]))


@dataclass(frozen=True)
class RoundByRound:
    """A policy that values rounds by `utility`; its `credit` is averaged."""

    policy: Value
    sees: tuple[str, ...] = ()
    utility: str = "accuracy"
    credit: Callable[[Valuation], Floats] = lambda v: v.in_units().values

    def values(self, view: View) -> Floats:
        """Say what each client is worth, averaged over rounds."""
        return view.mean([self.credit(v) for v in self.policy(view.rounds(self.utility))])


class _Trajectories(RoundByRound):
    """FedTSV, whose reference is a training of the server's in every round: it is counted."""

    def values(self, view: View) -> Floats:
        everybody = sum(view.rounds()[0].local.n_steps(int(n)) for n in view.sizes)
        for r in view.rounds():  # as many steps as participants take on average
            steps = np.mean([r.local.n_steps(int(n)) for n in r.sizes])
            view.trainings += max(1, round(float(steps))) / (everybody * view.n_rounds)
        return super().values(view)


def _uniform(rounds: Sequence[Round]) -> list[Valuation]:
    """Control: the same for everybody in a round."""
    counts = [len(r.participants) for r in rounds]
    return [policies.unsampled(np.full(k, 1 / k), "uniform") for k in counts]


@dataclass(frozen=True)
class Budgeted:
    """An estimator as a policy, under the common budget, and told the sizes if `sized`."""

    estimator: est.Estimator
    sized: bool = False
    normalised: bool = False

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Value each round by its game."""
        games = [r.game(self.normalised) for r in rounds]
        if self.sized:
            sizes = [r.sizes.astype(np.float64) for r in rounds]
            games = [replace(g, sizes=own) for g, own in zip(games, sizes, strict=True)]
        budgets = [self._budget(game.n_players) for game in games]
        seeds = [r.streams.child("valuation") for r in rounds]
        return est.estimate_many(games, self.estimator, budgets, seeds)

    def _budget(self, n: int) -> int:
        budget = min(SPENT * n, 2**n)
        least = self.estimator.minimum(n, "distinct")
        return max(budget - 2, least) if self.normalised else budget


@dataclass(frozen=True)
class Retrained:
    """An estimator on the game of training from scratch; without one, leave-one-out."""

    estimator: est.Estimator | None = None
    sees: tuple[str, ...] = ("training",)

    def values(self, view: View) -> Floats:
        """Values of the estimator under the common budget."""
        game = view.retraining()
        if self.estimator is None:
            return leave_one_out(game).values
        if "sizes" in self.sees:
            game = replace(game, sizes=view.sizes.astype(np.float64))
        # an estimator may need a few coalitions more to have seen everybody
        budget = max(SPENT * game.n_players, self.estimator.minimum(game.n_players, "distinct"))
        return est.estimate_many(game, self.estimator, budget, view.streams)[0].values


@dataclass(frozen=True)
class Simulated:
    """FedCCEA, in either reading of where its sigmoid is."""

    sigmoid: fedccea.Sigmoid = "shared"
    simulations: int = 40
    sees: tuple[str, ...] = ("training", "sizes")

    def values(self, view: View) -> Floats:
        """Values at full participation."""
        sizes, rounds, seed = view.sizes, view.n_rounds, view.streams.seed
        count = max(self.simulations, fedccea.fewest_simulations(view.n_clients, rounds))
        drawn = fedccea.sample_sizes(sizes, count, rounds, seed) * view.present
        accuracy = view.train(drawn, every_round=True)
        fitted = fedccea.fit_aam(
            fedccea.Simulations(drawn / sizes.mean(), accuracy), sigmoid=self.sigmoid, seed=seed
        )
        return fedccea.contribution_values(fitted.quality, sizes)


def _sampled(estimator: est.Estimator, **settings: bool) -> RoundByRound:
    seen = ("validation", "sizes") if settings.get("sized") else ("validation",)
    return RoundByRound(Budgeted(estimator, **settings), seen)


def _by_class(policy: Value) -> RoundByRound:
    return RoundByRound(policy, _SEEN, "class_accuracy", rewards)


_SEEN = ("validation",)
METHODS: Mapping[str, Method] = {
    "exact": RoundByRound(policies.Exact(normalised=False), _SEEN),
    "exact-loss": RoundByRound(policies.Exact(normalised=False), _SEEN, "negative_loss"),
    "permutation": _sampled(est.PermutationSampling()),
    "antithetic": _sampled(est.PermutationSampling(antithetic=True)),
    "multilinear": _sampled(est.MultilinearSampling()),
    "gtg": _sampled(est.GTGShapley()),
    "tmc": _sampled(est.TruncatedMonteCarlo()),
    "banzhaf": _sampled(est.BanzhafSampling()),
    "beta": _sampled(est.PermutationSampling(antithetic=True, beta=(4.0, 1.0))),
    "complementary": _sampled(est.ComplementarySampling()),
    "proxy": _sampled(est.ProxySampling(), sized=True),
    "owen": _sampled(OwenSampling(), normalised=True),
    "ms-mr": _by_class(policies.Estimated(MaverickMR(), None, "distinct", normalised=False)),
    "ms-gtg": _by_class(Budgeted(MaverickGTG())),
    "fedtsv": _Trajectories(TrajectoryValues(), ("updates", "sizes", "validation")),
    "cgsv": RoundByRound(CosineValues(), ("updates",)),
    "shapfed": RoundByRound(policies.ClassCosine(), ("updates", "sizes")),
    "loo": RoundByRound(policies.LeaveOneOut(), _SEEN),
    "loo-loss": RoundByRound(policies.LeaveOneOut(), _SEEN, "negative_loss"),
    "fedccea": Simulated(),
    "fedccea-connected": Simulated("connected"),
    "loo-retrained": Retrained(),
    "tmc-retrained": Retrained(est.TruncatedMonteCarlo()),
    "proxy-retrained": Retrained(est.ProxySampling(), ("training", "sizes")),
    "size": RoundByRound(policies.SizeAsValue(), ("sizes",)),
    "random": RoundByRound(policies.RandomValues()),
    "uniform": RoundByRound(_uniform),
}
"""The methods of the library by name; the last three are controls.

Samplers have the common budget; the others ask for what defines them.
"""

Entry = str | type | Method | Value


def find_methods(given: Sequence[Entry] | Mapping[str, Entry]) -> dict[str, Method]:
    """Return methods by name: each a name of :data:`METHODS`, a class, an object or a policy.

    A function of rounds has rounds of the utility "accuracy", unless it declares ``utility``.
    """
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or not len(given):
        raise ValueError(f"methods is {brief(given)}; expected at least one, in a list or dict")
    own = (
        one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        for one in given
    )
    pairs = given.items() if isinstance(given, Mapping) else zip(own, given, strict=True)
    found: dict[str, Method] = {}
    for name, one in pairs:
        if not isinstance(name, str) or not name or name in found:
            raise ValueError(f"a method is named {name!r}; give a dict, with a name for each")
        found[name] = _method(name, one)
    return found


def _method(name: str, given: Any) -> Method:
    if isinstance(given, str):
        return METHODS[choice("a method", given, METHODS)]
    made: Any = given() if isinstance(given, type) else given
    of_rounds = callable(made) or hasattr(made, "value") or isinstance(made, est.Estimator)
    if of_rounds and not hasattr(made, "values"):
        check_policy("value", made)
        utility = getattr(made, "utility", "accuracy")
        if utility not in UTILITIES:  # its own business, such as the shape of a distance
            utility = "accuracy"
        made = RoundByRound(made, sees(made), utility)
    having(f"method {name}", made, "values")
    needs = getattr(made, "sees", ())
    if isinstance(needs, str) or not all(sight in SIGHTS for sight in needs):
        raise ValueError(f"method {name} has sees={needs!r}; expected some of {', '.join(SIGHTS)}")
    return cast(Method, made)


@dataclass(frozen=True)
class Played:
    """What a method said of one federation, and what it spent."""

    values: Floats  #: ``[n]``, by client; NaN only for one who took part in no round
    #: Kendall's tau-b with the exact values of a round by the method's own utility, averaged over
    #: the rounds in which they differ; NaN where there is none
    fidelity: float
    evaluations: int  #: of utilities
    trainings: float  #: of federations, in units of everybody's data
    seconds: float  #: of processor time
    held: float  #: MiB of the server


def play(method: Method, world: World) -> Played:
    """Let a method value the clients of one federation.

    Refused is one that needs validation data where there are none, or returns something else than
    one finite number per client (or NaN for one who took part in no round).
    """
    needs, judged = sees(method), len(world.federation.y_val) > 0
    if "validation" in needs and not judged:
        raise ValueError("it asks for validation data, and the federation has none")
    view = View(world)  # rounds and tables are everybody's: made before the clock runs
    price = world.seconds_per_evaluation if judged else 0.0
    start = time.process_time()
    given: Any = method.values(view)
    if hasattr(given, "reindex"):  # a pandas series is by client, in whatever order
        given = given.reindex(range(world.n))
    values = numbers("what it returned", given).copy()
    own = time.process_time() - start
    unasked = view.times == 0  # of whom nobody need say anything
    if values.shape != (world.n,) or not (np.isfinite(values) | unasked & np.isnan(values)).all():
        raise ValueError(f"it returned {brief(values)}; expected {world.n} finite numbers")
    coalitions = sum(game.evaluations for game in view.games.values())  # models took own time
    return Played(
        values, _fidelity(view, values), view.evaluations, view.trainings, own + coalitions * price,
        _held(world, needs),
    )  # fmt: skip


def _held(world: World, needs: Collection[str]) -> float:
    size = 0
    if {"updates", "validation"} & {*needs}:
        size += max(r.updates.nbytes for r in world.rounds)
    if {"validation", "training"} & {*needs}:
        size += world.federation.x_val.nbytes
    return size / 2**20


def _fidelity(view: View, values: Floats) -> float:
    """Agreement of a method's values of rounds with the exact ones (:class:`Played`)."""
    mine = view.by_round
    judged = len(view._world.federation.y_val) > 0
    if not judged or not mine or not np.array_equal(view.mean(mine), values, equal_nan=True):
        return float("nan")
    alone = {u for _, u in view.games} == {"negative_loss"}
    tables = view._world.tables("negative_loss" if alone else "accuracy")
    exact = [shapley(table).values for table in tables]
    pairs = [(np.round(a, 9), np.round(b, 9)) for a, b in zip(mine, exact, strict=True)]
    # tau is NaN where one side says nothing
    taus = [float(np.nan_to_num(kendalls_tau(a, b))) for a, b in pairs if np.ptp(b) > 0]
    return float(np.mean(taus)) if taus else float("nan")


# ------------------------------------------------------------------------------ the comparison


def agreement(a: npt.ArrayLike, b: npt.ArrayLike, silent: float = 0.0) -> float:
    """Kendall's tau-b of two valuations, without NaN; `silent` where one says nothing."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"valuations have shapes {x.shape} and {y.shape}; expected one number per client"
        )
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 2:
        return float("nan")
    return float(np.nan_to_num(kendalls_tau(x[both], y[both]), nan=silent))


@one_line
@dataclass(frozen=True, eq=False)
class Compared:
    """What methods say of the clients of one federation."""

    values: pd.DataFrame  #: one row per method, one column per client, in units of the method
    #: one row per method; ``rounds`` and ``retraining``, its agreement (Kendall's tau-b) with the
    #: exact values of the rounds and with those of retraining; ``evaluations``, ``trainings``,
    #: ``seconds`` and ``held`` (MiB), its costs
    measures: pd.DataFrame
    agreement: pd.DataFrame  #: of every method with every other; NaN where one has no order
    failures: dict[str, str]  #: one sentence for each method that failed, which is warned of, too
    accuracy: float  #: of the model after the last round, on the test images, a fraction


def compare(
    federation: Federation,
    model: str | Model | nn.Module = "mlp-32",
    methods: Sequence[Entry] | Mapping[str, Entry] | None = None,
    *,
    rounds: int = 8,
    participants: int | None = None,
    epochs: int = 2,
    batch_size: int = 20,
    lr: float = 0.1,
    seed: int = 0,
    retraining: bool = False,
) -> Compared:
    """Value the clients of one's own federation by many methods, on the same rounds.

    Parameters
    ----------
    federation : Federation
    model : str, Model or torch module
        As for ``fk.build``, or what it returns; a module as ``fk.run`` takes it.
    methods : sequence or dict, optional
        Names of ``fk.arena.METHODS``, classes or objects with ``values(view)``, or policies that
        value rounds; all of the library's that train nothing anew by default.
    rounds, participants : int
        Rounds of federated averaging and clients asked in each, at most 14.
    epochs, batch_size : int
        Of local training, by plain SGD.
    lr : float
        Its learning rate.
    seed : int
        Of the training.
    retraining : bool
        Also train the federations of all coalitions (of 600 that are drawn, beyond 11 clients)
        from scratch.
    """
    pd = need("pandas", "run")
    having("federation", federation, "n_clients", "client_data")
    n = federation.n_clients
    k = min(n, MOST) if participants is None else whole("participants", participants, 2, n)
    if k > MOST:
        raise ValueError(
            f"{k} clients a round; participants must be at most {MOST} here, where all coalitions "
            "of a round are evaluated to judge the methods by; fk.run values more of them by one"
        )
    if isinstance(model, str):
        model = build(model, federation.input_shape, federation.n_classes)
    elif isinstance(model, nn.Module):
        model = classifier("model", model, federation.x)
    having("model", model, "init", "name")
    if methods is None:
        methods = [name for name, method in METHODS.items() if "training" not in sees(method)]
    entered = find_methods(methods)
    w = World(
        federation, model, Plan(rounds, k, LocalSGD(lr=lr, batch_size=batch_size, epochs=epochs)),
        whole("seed", seed, 0), name=federation.name,
    )  # fmt: skip
    truth = retraining_values(w).values[:, 0] if flag("retraining", retraining) else None
    values, measures, failures = {}, {}, {}
    for name, method in entered.items():
        try:
            played = play(method, w)
        except Exception as error:  # one that fails stops nobody else
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            failures[name] = " ".join(f"{name} failed: {reason}".split())
            warn(failures[name])
            continue
        values[name] = played.values
        measures[name] = {
            "rounds": played.fidelity,
            "retraining": np.nan if truth is None else agreement(played.values, truth),
            **{c: getattr(played, c) for c in ("evaluations", "trainings", "seconds", "held")},
        }
    pairs = {a: {b: agreement(x, y, np.nan) for b, y in values.items()} for a, x in values.items()}
    named = [f"client {i}" for i in range(n)]
    return Compared(
        pd.DataFrame.from_dict(values, orient="index", columns=named),
        pd.DataFrame.from_dict(measures, orient="index"),
        pd.DataFrame(pairs), failures, w.accuracy,
    )  # fmt: skip
