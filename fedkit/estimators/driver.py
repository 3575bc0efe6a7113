"""One driver for all estimators: budgets, memo, and many estimations in lockstep.

An estimator is a generator that yields coalitions and receives utilities.  The driver advances
any number of them side by side.  In each step it collects what all of them ask for, grants what
their budgets allow, evaluates every coalition that a game has not seen yet in one batch, and
hands the answers back.  So a hundred seeds of one game cost one batch per step, and the numbers
are those of each estimation alone.

Rules
-----
* A request is granted row by row, in order, up to the first row that does not fit the budget;
  the budget is never exceeded.
* ``count="distinct"``: a coalition costs 1 the first time an estimation asks for it, the empty
  coalition included, and nothing again.  ``count="calls"``: each non-empty row costs 1, every
  time; the empty coalition is free, and so is the grand one where an estimator's first request is
  for the two together: a normalised game knows both, and the rule is one for all games.  (Of one
  player the grand coalition is the whole walk, and is paid for.)
  A step of a walk is a call whatever coalition it meets, so M whole walks are N x M calls; M less
  for ``TruncatedMonteCarlo`` and ``GTGShapley``, which know v(N) already (as printed, FedOwen's
  Algorithm 5 asks for it again).
* A walk (or draw, or round) that the budget cuts is paid for and left out, in every estimator.
  That is unbiased whatever walks cost, be it nothing: whether exactly k walks are whole is
  symmetric in those k, so each of them has the mean of the first one given k, and averaged over
  k >= 1 that is the mean of an uncut walk.  The smallest budget affords one whole walk, so k >= 1.
  Where calls are spent this holds for ``OwenSampling`` too, whose walks of empty masks are free:
  a level counts them until a walk does not fit.  (Where *distinct* coalitions are, a level ends at
  the first walk of anybody after its share is spent, though one over coalitions that it has seen
  would be free: at 2 N evaluations and two levels its values are 1% too large with three
  players, 0.7% with four.)
* An estimation with a budget in distinct evaluations gives up after 100 calls per unit of its
  budget: some coalitions may be too rare ever to be drawn.  One that asks for nothing that costs
  anything, 10,000 times in a row, is at fault.
* With a budget of all ``2**n`` distinct coalitions of up to 24 players, an estimator whose
  expectation is a weighted mean of marginals, and that has no stopping rule of its own, evaluates
  all of them once and returns that expectation exactly, with standard errors 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count as count_up
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedkit.checks import choice, flag, function, having, real, whole
from fedkit.estimators.base import (
    SIZES,
    Accumulator,
    Budget,
    Count,
    Estimator,
    FinishedAccumulator,
    MeanAccumulator,
    Requests,
)
from fedkit.extras import bar, need
from fedkit.games.coalitions import (
    MAX_TABLE_PLAYERS,
    Known,
    all_coalitions,
    check_coalitions,
    ends,
    keys_of,
    players_of,
)
from fedkit.games.exact import semivalue
from fedkit.games.game import FunctionGame, Game, MemoGame, NormalisedGame, TableGame
from fedkit.games.valuation import Trace, Valuation
from fedkit.streams import Streams, as_generator

__all__ = ["estimate", "estimate_many", "precise", "settled"]

Seed = int | Streams | np.random.Generator
Stop = Callable[[Valuation], bool]


def precise(standard_error: float) -> Stop:
    """Return a stop for when the largest standard error is at most this, in the utility's units.

    Parameters
    ----------
    standard_error : float
        In the unit of the utility.

    Returns
    -------
    callable
        What `stop` of :func:`estimate` takes: asked after every block, True where it may end.
    """
    real("standard_error", standard_error, 0.0, above=True)

    def stop(found: Valuation) -> bool:
        return bool((found.standard_errors <= standard_error).all()) and found.has_intervals

    return stop


def settled(level: float = 0.95) -> Stop:
    """Return a stop for when neighbours in the ranking are apart.

    For every two players next to each other in the order of their values the difference must be
    larger than the half-width of its interval at this level, their errors taken as independent.
    Players of one walk share its coalitions, so that a difference may be known better or worse
    than that: a valuation keeps no covariances.  This is a rule of thumb and no test: it is asked
    after every block, so that players of equal value are told apart by chance in the end.

    Parameters
    ----------
    level : float
        Of the interval of each difference.

    Returns
    -------
    callable
        What `stop` of :func:`estimate` takes: asked after every block, True where it may end.
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


IDLE_STEPS = 10_000  # requests in a row that cost nothing; draws of one's own have some
DENSE_PLAYERS = 16  # hundreds of estimations may run together: 256 KiB each at most


def estimate(
    game: Game,
    estimator: Estimator,
    budget: int | None = None,
    seed: Seed = 0,
    *,
    count: Count = "distinct",
    trace: bool = False,
    stop: Stop | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> Valuation:
    """Estimate the values of the players of one game.

    Parameters
    ----------
    game : Game
        The game; each distinct coalition is evaluated once.
    estimator : Estimator
        For instance ``PermutationSampling()``.
    budget : int, optional
        Evaluations that may be spent; None leaves the stop to the estimator's own size.
    seed : int, Streams or numpy Generator
        Source of all randomness; equal integers give equal bits.
    count : {"distinct", "calls"}
        How the budget counts (see the rules of this module).
    trace : bool
        Keep the values along the way.
    stop : callable, optional
        ``stop(valuation)`` is asked after each block of walks or draws, and ends the estimation
        when it returns true: :func:`precise` and :func:`settled`, or one of your own.  A stop that
        looks at the values favours samples that happen to agree, so standard errors are then a
        little too small.  ``ProxySampling``, which has values at its end alone, takes none, and a
        budget that is enough for all coalitions is spent on them.
    n_jobs : int
        Processes among which the coalitions of a request are divided, for games in slow Python;
        -1 is one per core.  The game must be picklable (joblib takes lambdas too).
    progress : bool
        Show evaluations as a bar in a terminal or a notebook.

    Returns
    -------
    Valuation

    Raises
    ------
    ValueError
        If the budget is below one walk, there is neither a budget nor an own stop, or the game
        returns utilities that are not finite or have the wrong shape.

    Notes
    -----
    Whatever exception the game raises on the way, Ctrl-C included, goes on to the caller with an
    attribute ``valuations``: what each estimation had found, None for nothing.  A game wrapped in
    ``fk.MemoGame`` keeps what it evaluated, so that a second try asks only for the rest.
    """
    return estimate_many(
        [game], estimator, budget, [seed], count=count, trace=trace, stop=stop, n_jobs=n_jobs,
        progress=progress,
    )[0]  # fmt: skip


def estimate_many(
    games: Game | Sequence[Game],
    estimators: Estimator | Sequence[Estimator],
    budget: int | Sequence[int | None] | None = None,
    seeds: Seed | Sequence[Seed] = 0,
    *,
    count: Count = "distinct",
    trace: bool = False,
    stop: Stop | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> list[Valuation]:
    """Run many estimations in lockstep; those of one game share one batch per step.

    Each of `games`, `estimators`, `budget` and `seeds` is one object or a sequence; sequences
    have a common length, and single objects are used for all.  Estimations of the same game
    object share its utilities, while each budget counts what its own estimation asked for.  A numpy
    Generator serves one estimation: the draws of several would mix.

    Parameters
    ----------
    games, estimators, budget, seeds
        As in :func:`estimate`.
    count, trace, stop, n_jobs, progress
        As in :func:`estimate`.

    Returns
    -------
    list of Valuation
        Equal, bit for bit, to those of :func:`estimate` one by one.
    """
    choice("count", count, ("distinct", "calls"))
    flag("trace", trace)
    if stop is not None:
        function("stop", stop)
    if n_jobs != -1:
        whole("n_jobs", n_jobs, 1)
    lists = [_listed(games), _listed(estimators), _listed(budget), _listed(seeds)]
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

    memos: dict[int, tuple[Game, MemoGame]] = {}  # with the game, whose id is its own that long
    runs = []
    for game, estimator, total, seed in zip(*columns, strict=True):
        players_of(game)
        if isinstance(estimator, Estimator):
            game, estimator = estimator.prepare(game, total)
        if id(game) not in memos:
            memos[id(game)] = game, MemoGame(game if n_jobs == 1 else _spread(game, n_jobs))
        runs.append(_Estimation(memos[id(game)][1], estimator, total, seed, count, trace, stop))
    known = None if None in columns[2] else sum(columns[2])
    shown = iter(bar(count_up(), progress, "evaluation", total=known))
    spent = 0
    try:
        active = [run for run in runs if run.advance()]
        while active:
            of_one_game = defaultdict(list)
            for run in active:
                run.grant()
                of_one_game[id(run.game)].append(run)
            for some in of_one_game.values():
                utilities = some[0].game.value(np.concatenate([run.asked for run in some]))
                cuts = np.cumsum([len(run.asked) for run in some])[:-1]
                for run, answer in zip(some, np.split(utilities, cuts), strict=True):
                    run.take(answer)
            active = [run for run in active if run.advance()]
            before, spent = spent, sum(run.budget.spent for run in runs)
            for _ in range(spent - before):
                next(shown)
    except BaseException as error:
        error.valuations = [run.so_far() for run in runs]  # type: ignore[attr-defined]
        error.add_note(
            f"after {sum(run.budget.evaluations for run in runs)} evaluations; what they told is "
            "in .valuations of this exception"
        )
        raise
    return [run.result() for run in runs]


def _listed(entry: Any) -> list[Any]:
    several = isinstance(entry, list | tuple | range | np.ndarray) and np.ndim(entry) > 0
    return list(entry) if several else [entry]


def _spread(game: Game, n_jobs: int) -> Game:
    """Divide coalitions among processes; what wraps a game, such as its memory, stays here."""
    if isinstance(game, NormalisedGame):
        return replace(game, game=_spread(game.game, n_jobs))
    if isinstance(game, MemoGame):
        inner = _spread(game.game, n_jobs)
        return FunctionGame(game.n_players, lambda rows: game.value(rows, inner))
    joblib = need("joblib", "run")
    jobs = joblib.effective_n_jobs(n_jobs)

    def value(rows: NDArray[np.bool_]) -> NDArray[Any]:
        if len(rows) < 2:
            return np.asarray(game.value(rows))
        parts = np.array_split(rows, min(jobs, len(rows)))
        return np.concatenate(joblib.Parallel(jobs)(joblib.delayed(game.value)(p) for p in parts))

    return FunctionGame(game.n_players, value)


class _Estimation:
    """One estimation: its generator, its budget, and the request it waits for."""

    def __init__(
        self,
        game: MemoGame,
        estimator: Estimator,
        total: int | None,
        seed: Seed,
        count: Count,
        trace: bool,
        stop: Stop | None,
    ) -> None:
        n = game.n_players
        self.game, self.estimator, self.seed, self.stop = game, estimator, seed, stop
        self.name = type(estimator).__name__
        self._check(n, total, count)
        self.budget = Budget(total, count)
        self.accumulator: Any = estimator.accumulator(n)
        if isinstance(self.accumulator, MeanAccumulator):
            self.accumulator.owner, self.accumulator.n_players = self.name, n
        if stop is not None and isinstance(self.accumulator, FinishedAccumulator):
            raise ValueError(
                f"stop asks on the way, and {self.name} has values at its end alone: leave it out, "
                "and choose the budget"
            )
        known = count == "distinct" and n <= MAX_TABLE_PLAYERS
        all_of_them = known and total is not None and total >= 2**n
        weights = estimator.weights(n) if all_of_them and not estimator.stops else None
        rng = as_generator(seed)  # refuses a bad seed where nothing is drawn, too
        self.exact = weights is not None
        if weights is not None:
            self.accumulator = FinishedAccumulator()
            self.requests = _enumerate(n, weights, self.accumulator)
        else:
            self.requests = estimator.sample(n, rng, self.accumulator, self.budget)
            if not hasattr(self.requests, "send"):
                raise ValueError(
                    f"{self.name}.sample returned a {type(self.requests).__name__}; it must be a "
                    "generator: yield coalitions, bool[c, n], and take their utilities from there"
                )
        self.answer: NDArray[np.float64] | None = None
        self.idle = 0
        self.seen = Known(n, DENSE_PLAYERS)
        self.points: list[tuple[int, int, NDArray[np.float64]]] | None = [] if trace else None

    def _check(self, n: int, total: int | None, count: Count) -> None:
        having("estimator", self.estimator, "sample", "accumulator", "minimum")
        if total is None:
            if not self.estimator.stops:
                sizes = [size for size in SIZES if hasattr(self.estimator, size)]
                own = f" or set its {' or '.join(sizes)}" if sizes else ""
                raise ValueError(f"{self.name} has no stop of its own; pass a budget{own}")
            return
        whole("budget", total)
        smallest = self.estimator.minimum(n, count)
        if total < smallest:
            raise ValueError(
                f"budget is {total} with count={count!r}; {self.name} needs at least "
                f"{smallest} for {n} player{'s' * (n > 1)}"
            )

    def advance(self) -> bool:
        """Hand the answer to the estimator; return whether it asks for more."""
        try:
            asked = next(self.requests) if self.answer is None else self.requests.send(self.answer)
        except StopIteration:
            self._note()
            return False
        self._note()
        if self.budget.closed or (self.answer is not None and self._stopped()):
            self.requests.close()
            return False
        try:
            self.asked = check_coalitions(asked, self.game.n_players)
        except ValueError as error:
            raise ValueError(f"{self.name} asked for what is none: {error}") from error
        return True

    def grant(self) -> None:
        """Cut the request to what the budget allows."""
        budget, keys = self.budget, keys_of(self.asked)
        new = self.seen.missing(keys)
        filled, n = self.asked.any(axis=1), self.game.n_players
        first = self.answer is None and n > 1
        if first and budget.count == "calls" and np.array_equal(self.asked, ends(n)):
            filled = np.zeros_like(filled)  # known before any walk: nobody is charged for them
        costly = new if budget.count == "distinct" else np.flatnonzero(filled)
        granted = len(self.asked)
        if budget.total is not None and budget.out_of_patience(budget.total):
            granted = 0
        elif len(costly) > budget.remaining:
            granted = int(costly[budget.remaining])
        budget.closed = granted < len(self.asked)
        self.asked, self.new = self.asked[:granted], keys[new[new < granted]]
        self.charged = int(filled[:granted].sum())

    def take(self, answer: NDArray[np.float64]) -> None:
        """Count what is answered: a game that fails has told nothing."""
        self.answer = answer
        self.seen.meet(self.new)
        self.budget.evaluations += len(self.new)
        self.budget.calls += self.charged
        self.idle = 0 if self.charged or len(self.new) else self.idle + 1
        if self.idle == IDLE_STEPS:
            raise ValueError(
                f"{self.name} asked {IDLE_STEPS:,} times in a row for the empty coalition or for "
                "none at all, which costs nothing: it would never end"
            )

    def _note(self) -> None:
        values = None if self.points is None else self.accumulator.values()
        if self.points is None or values is None:
            return
        point = (self.budget.evaluations, self.budget.calls, values)
        if self.points and self.points[-1][:2] == point[:2]:
            self.points.pop()
        self.points.append(point)

    def _stopped(self) -> bool:
        found = None if self.stop is None else self.so_far()
        return self.stop is not None and found is not None and bool(self.stop(found))

    def so_far(self) -> Valuation | None:
        return None if self.accumulator.values() is None else self.result()

    def result(self) -> Valuation:
        accumulator: Accumulator = self.accumulator
        values = accumulator.values()
        names = getattr(accumulator, "names", None)
        n = len(names or range(self.game.n_players))
        if values is None:
            raise ValueError(
                f"{self.name} found no values within its budget of {self.budget.total}; raise it"
            )
        if np.shape(values)[:1] != (n,):
            raise ValueError(
                f"{self.name} found values of shape {np.shape(values)}; expected one per player, "
                f"({n},) or ({n}, m)"
            )
        plain = type(self.estimator).__repr__ is object.__repr__  # an address tells nothing
        info = deepcopy(accumulator.info)  # it goes on growing after a stop has looked
        seed = self.seed
        if isinstance(seed, Streams):
            if seed.path:  # without which the root seed does not tell two apart
                info["stream"] = list(seed.path)
            seed = seed.seed
        trace = None
        if self.points:
            evaluations, calls, on_the_way = zip(*self.points, strict=True)
            # walks of nobody do not know yet how many outputs the game has
            wide = [v if v.ndim == values.ndim else v[..., None] for v in on_the_way]
            points = np.stack([np.broadcast_to(v, values.shape) for v in wide])
            trace = Trace(np.array(evaluations), np.array(calls), points)
        return Valuation(
            values=values,
            standard_errors=accumulator.standard_errors(),
            evaluations=self.budget.evaluations,
            calls=self.budget.calls,
            method=self.name if plain else repr(self.estimator),
            seed=None if isinstance(seed, np.random.Generator) else int(seed),
            exact=self.exact,
            trace=trace,
            info=info,
            degrees_of_freedom=accumulator.degrees_of_freedom(),
            names=names,
        )


def _enumerate(n: int, weights: NDArray[np.float64], accumulator: FinishedAccumulator) -> Requests:
    """Evaluate all coalitions: the expectation of an estimator with these weights."""
    values = semivalue(TableGame((yield all_coalitions(n))), weights)
    accumulator.found = values, np.zeros_like(values), None
