"""One driver for all estimators: budgets, memory, and many estimations in lockstep.

An estimator is a generator that yields coalitions and receives utilities.  The driver advances
any number of them side by side: in each step it grants what their budgets allow, and evaluates in
one batch what a game has not seen yet.  The numbers are those of each estimation alone.

Rules
-----
* A request is granted row by row, in order, up to the first row that does not fit the budget.
* ``count="distinct"``: a coalition costs 1 the first time an estimation asks for it, the empty
  coalition included, and nothing again.  ``count="calls"``: each non-empty row costs 1, every
  time; the empty coalition is free, and so is the grand one where an estimator's first request is
  for the two together, as a normalised game knows both.
* A walk (or draw, or round) that the budget cuts is paid for and left out, in every estimator.
* An estimation with a budget in distinct evaluations gives up after 100 calls per unit of its
  budget.  One that asks for nothing that costs anything, 10,000 times in a row, is at fault.
* With a budget of all ``2**n`` distinct coalitions of up to 24 players, an estimator whose
  expectation is a weighted mean of marginals, and that has no stopping rule of its own, evaluates
  all of them once and returns that expectation exactly, with standard errors 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count as count_up
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from fedkit.checks import Bools, Floats, choice, function, having, real, warn, whole
from fedkit.estimators.accumulators import Accumulator, FinishedAccumulator, MeanAccumulator
from fedkit.extras import bar
from fedkit.games.coalitions import (
    MAX_TABLE_PLAYERS,
    Known,
    all_coalitions,
    as_coalitions,
    ends,
    keys_of,
)  # fmt: skip
from fedkit.games.exact import semivalue
from fedkit.games.game import Game, as_game, facts_of, table_game
from fedkit.games.memory import Memory
from fedkit.games.valuation import Valuation
from fedkit.streams import Streams, as_generator

Rng = np.random.Generator
Count = Literal["distinct", "calls"]
Requests = Generator[Bools, Floats, None]
Seed = int | Streams | np.random.Generator
Stop = Callable[[Valuation], bool]

PATIENCE = 100  # calls per unit of a budget in distinct evaluations before giving up
IDLE_STEPS = 10_000  # requests in a row that cost nothing; draws of one's own have some
UNLIMITED = 2**62
DENSE_PLAYERS = 16  # hundreds of estimations may run together: 256 KiB each at most
SIZES = ("walks", "draws", "rounds")  # fields by which an estimator ends without a budget


@dataclass
class Budget:
    """What may be spent and what has been; kept by the driver, read by the estimator."""

    total: int | None  #: the budget; None is unlimited
    count: Count  #: what it counts (see the rules of this module)
    evaluations: int = 0  #: spent so far
    calls: int = 0  #: spent so far, in the other way of counting
    closed: bool = False  #: a request could not be granted in full; nothing more will be answered

    @property
    def spent(self) -> int:
        """What has been spent, in the budget's own way of counting."""
        return self.evaluations if self.count == "distinct" else self.calls

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will be answered."""
        return self.closed or self.left() == 0

    def left(self, limit: int | None = None) -> int:
        """What is left of the part of the budget that ends at `limit`, by default of all of it."""
        limit = self.total if limit is None else limit
        if limit is None:
            return UNLIMITED
        return 0 if self.out_of_patience(limit) else max(limit - self.spent, 0)

    def out_of_patience(self, limit: int | None) -> bool:
        """Whether as many calls as belong to distinct evaluations up to `limit` are made."""
        if limit is None or self.count == "calls":
            return False
        return self.calls >= PATIENCE * limit


class Estimator:
    """What every estimator offers; the defaults suit a mean over walks or draws of one's own.

    An estimator of your own needs :meth:`sample` alone.
    """

    @property
    def stops(self) -> bool:
        """Whether it ends by itself, without a budget."""
        return any(getattr(self, size, None) is not None for size in SIZES)

    def minimum(self, n_players: int, count: Count) -> int:
        """Smallest budget that is accepted; by default that of one walk, a value for everyone."""
        return n_players + (count == "distinct")

    def weights(self, n_players: int) -> Floats | None:
        """Weight of a coalition of each size in the expectation; None when not of this form."""
        return None

    def prepare(self, game: Game, budget: int | None) -> tuple[Game, Estimator]:
        """Return the game that is asked, and who asks: one may use more than the utilities."""
        return game, self

    def accumulator(self, n_players: int) -> Accumulator:
        """Return an empty accumulator for a game of `n_players`."""
        return MeanAccumulator()

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        """Yield ``bool[b, n]``, receive ``float[b]`` or ``[b, m]``, write into `accumulator`.

        An answer shorter than the request means that the budget is spent: it holds the first
        rows, and nothing more will be answered.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample")


def precise(standard_error: float) -> Stop:
    """Return a stop for when the largest standard error is at most this, in the utility's units.

    Parameters
    ----------
    standard_error : float

    Returns
    -------
    callable
        What `stop` of :func:`estimate` takes.
    """
    real("standard_error", standard_error, 0.0, above=True)

    def stop(found: Valuation) -> bool:
        return bool((found.standard_errors <= standard_error).all()) and found.has_intervals

    return stop


def settled(level: float = 0.95) -> Stop:
    """Return a stop for when neighbours in the ranking are apart: a rule of thumb and no test.

    Parameters
    ----------
    level : float
        Of the interval of the difference of two neighbours, which must not hold 0.

    Returns
    -------
    callable
        What `stop` of :func:`estimate` takes.
    """
    if not 0.0 < real("level", level) < 1.0:
        raise ValueError(f"level is {level}; expected a probability strictly inside (0, 1)")
    factor = float(ndtri(0.5 + level / 2))

    def stop(found: Valuation) -> bool:
        order = np.argsort(-found.values, axis=0)
        values = np.take_along_axis(found.values, order, axis=0)
        variances = np.take_along_axis(found.standard_errors, order, axis=0) ** 2
        needed = factor * np.sqrt(variances[1:] + variances[:-1])
        return bool((values[:-1] - values[1:] > needed).all()) and found.has_intervals

    return stop


def estimate(
    game: Game,
    estimator: Estimator,
    budget: int | None = None,
    seed: Seed = 0,
    *,
    count: Count = "distinct",
    stop: Stop | None = None,
    progress: bool = False,
) -> Valuation:
    """Estimate the values of the players of one game.

    Parameters
    ----------
    game : Game
        Each distinct coalition is evaluated once.
    estimator : Estimator
        For instance ``PermutationSampling()``.
    budget : int, optional
        Evaluations that may be spent; None leaves the stop to the estimator's own size.
    seed : int, Streams or numpy Generator
        Source of all randomness; equal integers give equal bits.
    count : {"distinct", "calls"}
        How the budget counts (see the rules of this module).
    stop : callable, optional
        ``stop(valuation)`` is asked after each block of walks or draws, and ends the estimation
        when it returns true: :func:`precise` and :func:`settled`, or one of your own.
    progress : bool
        Show evaluations, their rate and the time left.  Coalitions are then asked for in pieces.

    Returns
    -------
    Valuation
        An exception of the game goes on with an attribute ``valuations``: what had been found.

    Raises
    ------
    ValueError
        If the budget is below one walk, there is neither a budget nor an own stop, or the game
        returns utilities that are not finite or have the wrong shape.

    Warns
    -----
    UserWarning
        If the estimator doubts its values: ``info["doubt"]`` of the valuation says why.
    """
    (found,) = estimate_many(
        [game], estimator, budget, [seed], count=count, stop=stop, progress=progress
    )
    if "doubt" in found.info:
        warn(found.info["doubt"])
    return found


def estimate_many(
    games: Game | Sequence[Game],
    estimators: Estimator | Sequence[Estimator],
    budget: int | Sequence[int | None] | None = None,
    seeds: Seed | Sequence[Seed] = 0,
    *,
    count: Count = "distinct",
    stop: Stop | None = None,
    progress: bool = False,
) -> list[Valuation]:
    """Run many estimations in lockstep, each equal, bit for bit, to that of :func:`estimate`.

    Each of `games`, `estimators`, `budget` and `seeds` is one object or a sequence; sequences
    have a common length.  Estimations of one game object share its batches and utilities.

    Parameters
    ----------
    games, estimators, budget, seeds, count, stop, progress
        As in :func:`estimate`.

    Returns
    -------
    list of Valuation
    """
    choice("count", count, ("distinct", "calls"))
    if stop is not None:
        function("stop", stop)
    columns = _columns(games, estimators, budget, seeds)
    shown = _Bar()
    memories: dict[int, tuple[Game, Memory]] = {}  # with the game, whose id is its own that long
    runs = []
    for game, estimator, total, seed in zip(*columns, strict=True):
        as_game(game)
        weights = getattr(estimator, "weights", lambda n_players: None)
        if isinstance(estimator, Estimator):
            game, estimator = estimator.prepare(game, total)
        if id(game) not in memories:
            memories[id(game)] = game, Memory(game, told=shown.more if progress else None)
        memory = memories[id(game)][1]
        runs.append(_Estimation(memory, estimator, total, seed, count, stop, weights))
    shown.begin(progress, None if None in columns[2] else sum(columns[2]))
    try:
        active = [run for run in runs if run.advance()]
        while active:
            of_one_game = defaultdict(list)
            for run in active:
                run.grant()
                of_one_game[id(run.memory)].append(run)
            for some in of_one_game.values():
                utilities = some[0].memory(np.concatenate([run.asked for run in some]))
                cuts = np.cumsum([len(run.asked) for run in some])[:-1]
                for run, answer in zip(some, np.split(utilities, cuts), strict=True):
                    run.take(answer)
            active = [run for run in active if run.advance()]
            shown.move_to(sum(run.budget.spent for run in runs))
    except BaseException as error:
        found = [run.so_far() for run in runs]
        error.valuations = found  # type: ignore[attr-defined]
        kept = sum(one.evaluations for one in found if one is not None)
        error.add_note(f"values of {kept} evaluations are in this exception's .valuations")
        raise
    return [run.result() for run in runs]


def _columns(*given: Any) -> list[list[Any]]:
    """Return games, estimators, budgets and seeds as lists of one length."""
    lists = [
        list(entry)
        if isinstance(entry, list | tuple | range | np.ndarray) and np.ndim(entry) > 0
        else [entry]
        for entry in given
    ]
    sizes = [len(entry) for entry in lists]
    size = max(sizes)
    if not set(sizes) <= {1, size} or 0 in sizes:
        raise ValueError(
            f"there are {sizes[0]} games, {sizes[1]} estimators, {sizes[2]} budgets and "
            f"{sizes[3]} seeds; each must be single or of one common length"
        )
    columns = [entry * size if len(entry) == 1 else entry for entry in lists]
    generators = [id(seed) for seed in columns[3] if isinstance(seed, np.random.Generator)]
    if len(set(generators)) < len(generators):
        raise ValueError(
            "one Generator is the seed of several estimations, whose draws would mix; pass one for "
            f"each, such as rng.spawn({size})"
        )
    return columns


class _Bar:
    """A progress bar that moves while a batch is evaluated, and to what was spent after it."""

    def begin(self, progress: bool, total: int | None) -> None:
        self._shown = iter(bar(count_up(), progress, "evaluation", total=total))
        self._place = 0

    def more(self, evaluations: int) -> None:
        self.move_to(self._place + evaluations)

    def move_to(self, place: int) -> None:
        for _ in range(place - self._place):
            next(self._shown)
        self._place = max(place, self._place)


class _Estimation:
    """One estimation: its generator, its budget, and the request it waits for."""

    def __init__(
        self,
        memory: Memory,
        estimator: Estimator,
        total: int | None,
        seed: Seed,
        count: Count,
        stop: Stop | None,
        weights_of: Callable[[int], Floats | None],
    ) -> None:
        self.memory, self.estimator, self.seed, self.stop = memory, estimator, seed, stop
        self.weights_of = weights_of  # of what was asked for, before it was prepared
        self.name, self.n = type(estimator).__name__, memory.game.n_players
        self._check(total, count)
        self.budget = Budget(total, count)
        self.accumulator: Any = estimator.accumulator(self.n)
        if isinstance(self.accumulator, MeanAccumulator):
            self.accumulator.owner, self.accumulator.n_players = self.name, self.n
        if stop is not None and isinstance(self.accumulator, FinishedAccumulator):
            raise ValueError(f"stop asks on the way, and {self.name} has values at its end alone")
        rng = as_generator(seed)  # refuses a bad seed where nothing is drawn, too
        weights = None  # of the expectation, where the budget is enough for all coalitions
        enough = total is not None and self.n <= MAX_TABLE_PLAYERS and total >= 2**self.n
        if enough and count == "distinct" and not estimator.stops:
            weights = estimator.weights(self.n)
        self.exact = weights is not None
        if weights is not None:
            self.accumulator = FinishedAccumulator()
            self.requests = _enumerate(self.n, weights, self.accumulator)
        else:
            self.requests = estimator.sample(self.n, rng, self.accumulator, self.budget)
            if not hasattr(self.requests, "send"):
                raise ValueError(f"{self.name}.sample must be a generator: it yields coalitions")
        self.answer: Floats | None = None
        self.idle = 0
        self.seen = Known(self.n, DENSE_PLAYERS)

    def _check(self, total: int | None, count: Count) -> None:
        having("estimator", self.estimator, "sample", "accumulator", "minimum")
        if total is None:
            if not self.estimator.stops:
                sizes = [size for size in SIZES if hasattr(self.estimator, size)]
                own = f" or set its {' or '.join(sizes)}" if sizes else ""
                raise ValueError(f"{self.name} has no stop of its own; pass a budget{own}")
            return
        whole("budget", total)
        smallest = self.estimator.minimum(self.n, count)
        if total < smallest:
            raise ValueError(
                f"budget is {total} with count={count!r}; {self.name} needs at least "
                f"{smallest} for {self.n} player{'s' * (self.n > 1)}"
            )

    def advance(self) -> bool:
        """Hand the answer to the estimator; return whether it asks for more."""
        try:
            asked = next(self.requests) if self.answer is None else self.requests.send(self.answer)
        except StopIteration:
            return False
        if self.budget.closed or (self.answer is not None and self._stopped()):
            self.requests.close()
            return False
        try:
            self.asked = as_coalitions(asked, self.n)
        except ValueError as error:
            raise ValueError(f"{self.name} asked for what is none: {error}") from error
        return True

    def grant(self) -> None:
        """Cut the request to what the budget allows."""
        budget, keys = self.budget, keys_of(self.asked)
        new = self.seen.missing(keys)
        filled = self.asked.any(axis=1)
        first = self.answer is None and self.n > 1
        if first and budget.count == "calls" and np.array_equal(self.asked, ends(self.n)):
            filled = np.zeros_like(filled)  # known before any walk: nobody is charged for them
        costly = new if budget.count == "distinct" else np.flatnonzero(filled)
        granted = len(self.asked)
        if budget.out_of_patience(budget.total):
            granted = 0
        elif len(costly) > budget.left():
            granted = int(costly[budget.left()])
        budget.closed = granted < len(self.asked)
        self.asked, self.new = self.asked[:granted], keys[new[new < granted]]
        self.charged = int(filled[:granted].sum())

    def take(self, answer: Floats) -> None:
        """Count what is answered: a game that fails has told nothing."""
        self.answer = answer
        self.seen.meet(self.new)
        self.budget.evaluations += len(self.new)
        self.budget.calls += self.charged
        self.idle = 0 if self.charged or len(self.new) else self.idle + 1
        if self.idle == IDLE_STEPS:
            raise ValueError(f"{self.name} asked {IDLE_STEPS:,} times for what costs nothing")
        if hasattr(self.accumulator, "see"):
            self.accumulator.see(self.asked, answer)

    def _stopped(self) -> bool:
        found = None if self.stop is None else self.so_far()
        return self.stop is not None and found is not None and bool(self.stop(found))

    def so_far(self) -> Valuation | None:
        return None if self.accumulator.values() is None else self.result()

    def result(self) -> Valuation:
        accumulator, values = self.accumulator, self.accumulator.values()
        if values is None:
            raise ValueError(
                f"{self.name} found no values within its budget of {self.budget.total}; raise it"
            )
        if np.shape(values)[:1] != (self.n,):
            raise ValueError(f"{self.name} found values {np.shape(values)} for {self.n} players")
        if isinstance(accumulator, MeanAccumulator):  # of a walk and its reverse there are 2 n
            several = min(2 * self.n + 1, 2 ** min(self.n, 60))
            accumulator.met_few = self.budget.evaluations < several
        plain = type(self.estimator).__repr__ is object.__repr__  # an address tells nothing
        # it goes on growing after a stop has looked
        info = deepcopy(accumulator.info) | facts_of(self.memory.game, self.weights_of)
        seed = self.seed
        if isinstance(seed, Streams):
            if seed.path:  # without which the root seed does not tell two apart
                info["stream"] = list(seed.path)
            seed = seed.seed
        return Valuation(
            values=values,
            standard_errors=accumulator.standard_errors(),
            evaluations=self.budget.evaluations,
            calls=self.budget.calls,
            method=self.name if plain else repr(self.estimator),
            seed=None if isinstance(seed, np.random.Generator) else int(seed),
            exact=self.exact,
            info=info,
            degrees_of_freedom=accumulator.degrees_of_freedom(),
        )


def _enumerate(n: int, weights: Floats, accumulator: FinishedAccumulator) -> Requests:
    """Evaluate all coalitions: the expectation of an estimator with these weights."""
    values = semivalue(table_game((yield all_coalitions(n))), weights)
    accumulator.found = values, np.zeros_like(values), None
