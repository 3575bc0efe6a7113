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
  time; the empty coalition is free, and so is the grand one where an estimator asks for the two
  together, before its first walk: a normalised game knows both.  A step of a walk is a call
  whatever coalition it meets, so M whole walks are N x M calls for everyone.
* A walk (or draw, or round) that the budget cuts is paid for and left out, in every estimator.
  That is unbiased whatever walks cost: whether exactly k walks are whole is symmetric in those k,
  so each of them has the mean of the first one given k, and averaged over k >= 1 that is the mean
  of an uncut walk.  The smallest budget affords one whole walk, so k >= 1.
* An estimation with a budget in distinct evaluations gives up after 100 calls per unit of its
  budget: some coalitions may be too rare ever to be drawn.
* With a budget of all ``2**n`` distinct coalitions, an estimator whose expectation is a weighted
  mean of marginals, and that has no stopping rule of its own, evaluates all of them once and
  returns that expectation exactly, with standard errors 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count as count_up
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedkit.checks import choice, flag, function, having, real, whole
from fedkit.estimators.base import (
    PATIENCE,
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
    Known,
    Memo,
    all_coalitions,
    ask,
    check_coalitions,
    players_of,
    take,
)
from fedkit.games.exact import semivalue
from fedkit.games.game import Game, MemoGame, NormalisedGame, TableGame
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


DENSE_PLAYERS = 16  # hundreds of estimations may run together: 256 KiB each at most
IDLE = 10_000  # requests in a row that lead nowhere, before giving up


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
        little too small.  ``ProxySampling`` asks for its whole budget at once: it is not stopped.
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
    object share its utilities, while each budget counts what its own estimation asked for.

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

    stores: dict[int, _Utilities] = {}
    runs = []
    for game, estimator, total, seed in zip(*columns, strict=True):
        players_of(game)
        if isinstance(estimator, Estimator):
            game, estimator = estimator.prepare(game, total)
        store = stores.setdefault(id(game), _Utilities(game, n_jobs))
        runs.append(_Estimation(store, estimator, total, seed, count, trace, stop))
    known = None if any(run.total is None for run in runs) else sum(run.total or 0 for run in runs)
    shown = iter(bar(count_up(), progress, "evaluation", total=known))
    spent = 0
    try:
        active = [run for run in runs if run.advance(None)]
        while active:
            for run in active:
                run.grant()
            for store in stores.values():
                store.fill()
            active = [run for run in active if run.advance(run.answer())]
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


class _Utilities:
    """The utilities of one game, and the coalitions wanted in this step."""

    def __init__(self, game: Game, n_jobs: int) -> None:
        self.game = game
        self.n_jobs = n_jobs
        self.memo = Memo(players_of(game))
        self.wanted: list[tuple[NDArray[np.bool_], Any]] = []

    def fill(self) -> None:
        """Evaluate the wanted coalitions that are new."""
        if not self.wanted:
            return
        rows = np.concatenate([rows for rows, _ in self.wanted])
        if isinstance(self.wanted[0][1], list):
            keys: Any = [key for _, listed in self.wanted for key in listed]
        else:
            keys = np.concatenate([keys for _, keys in self.wanted])
        self.wanted = []
        new = self.memo.missing(keys)
        if len(new):
            self.memo.add(take(keys, new), ask(self._values, rows[new]))

    def _values(self, rows: NDArray[np.bool_]) -> Any:
        return self.game.value(rows) if self.n_jobs == 1 else _spread(self.game, rows, self.n_jobs)


def _spread(game: Game, rows: NDArray[np.bool_], n_jobs: int) -> Any:
    """Divide coalitions among processes; what wraps a game, such as its memory, stays here."""
    if isinstance(game, MemoGame | NormalisedGame):
        return game.by(rows, lambda asked: _spread(game.game, asked, n_jobs))
    if len(rows) <= 1:
        return game.value(rows)
    joblib = need("joblib", "run")
    jobs = min(joblib.effective_n_jobs(n_jobs), len(rows))
    parts = joblib.Parallel(n_jobs=jobs)(
        joblib.delayed(ask)(game.value, part) for part in np.array_split(rows, jobs)
    )
    return np.concatenate(parts)


@dataclass
class _Estimation:
    """One estimation: its generator, its budget, and the request it waits for."""

    store: _Utilities
    estimator: Estimator
    total: int | None
    seed: Seed
    count: Count
    trace: bool
    stop: Stop | None = None
    points: list[tuple[int, int, NDArray[np.float64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        n, self.idle = self.store.game.n_players, 0
        self.name = type(self.estimator).__name__
        self._check(n)
        self.budget = Budget(self.total, self.count)
        self.accumulator: Any = having(
            f"accumulator of {self.name}", self.estimator.accumulator(n),
            "values", "standard_errors", "degrees_of_freedom", "info",
        )  # fmt: skip
        if isinstance(self.accumulator, MeanAccumulator):
            self.accumulator.owner, self.accumulator.n_players = self.name, n
        all_of_them = self.count == "distinct" and self.total is not None and self.total >= 2**n
        ends_there = all_of_them and not self.estimator.stops
        weights = self.estimator.weights(n) if ends_there else None
        self.exact = weights is not None
        if weights is not None:
            self.accumulator = FinishedAccumulator()
            self.requests: Requests = _enumerate(n, weights, self.accumulator)
        else:
            rng = as_generator(self.seed)
            made = self.estimator.sample(n, rng, self.accumulator, self.budget)
            self.requests = having(f"sample of {self.name}", made, "send", "close")
        self.asked: NDArray[np.bool_] = np.zeros((0, n), dtype=np.bool_)
        self.keys: Any = None
        self.seen = Known(n, DENSE_PLAYERS)

    def _check(self, n: int) -> None:
        having("estimator", self.estimator, "sample", "accumulator", "minimum")
        if self.total is None:
            if not self.estimator.stops:
                raise ValueError(
                    f"{self.name} has no stop of its own; pass a budget or set its size (walks, "
                    "draws)"
                )
            return
        whole("budget", self.total)
        smallest = self.estimator.minimum(n, self.count)
        if self.total < smallest:
            raise ValueError(
                f"budget is {self.total} with count={self.count!r}; {self.name} needs at least "
                f"{smallest} to walk through {n} players once"
            )

    def advance(self, answer: NDArray[np.float64] | None) -> bool:
        """Hand an answer to the estimator; return whether it asks for more."""
        try:
            asked = next(self.requests) if answer is None else self.requests.send(answer)
        except StopIteration:
            self._note()
            return False
        self._note()
        if self.budget.closed or (answer is not None and self._stopped()):
            self.requests.close()
            return False
        try:
            self.asked = check_coalitions(asked, self.store.game.n_players)
        except ValueError as error:
            raise ValueError(f"{self.name} asked for what is none: {error}") from error
        return True

    def grant(self) -> None:
        """Cut the request to what the budget allows, count it, and want it evaluated."""
        keys = self.store.memo.keys(self.asked)
        new = self.seen.missing(keys)
        filled = self.asked.any(axis=1)
        if self.count == "calls" and _are_ends(self.asked):
            filled = np.zeros_like(filled)  # known before any walk: nobody is charged for them
        granted, remaining = len(self.asked), self.budget.remaining
        if self.count == "distinct":
            if self.total is not None and self.budget.calls >= PATIENCE * self.total:
                granted = 0
            elif len(new) > remaining:
                granted = int(new[remaining])
        elif filled.sum() > remaining:
            granted = int(np.flatnonzero(filled)[remaining])
        if granted < len(self.asked):
            self.budget.closed = True
            self.asked, filled, keys = self.asked[:granted], filled[:granted], keys[:granted]
            new = new[new < granted]
        fresh = take(keys, new)
        self.seen.meet(fresh)
        # calls are an end in sight where they are counted, or where something is learnt from them
        ends = filled.any() and (self.total is not None or self.accumulator.values() is not None)
        self.idle = 0 if len(new) or ends else self.idle + 1
        if self.idle >= IDLE:
            raise ValueError(
                f"{self.name} asked {IDLE} times in a row for nothing new, or for the empty "
                "coalition; it would never end"
            )
        self.budget.evaluations += len(new)
        self.budget.calls += int(filled.sum())
        self.keys = keys
        if len(new):
            self.store.wanted.append((self.asked[new], fresh))

    def answer(self) -> NDArray[np.float64]:
        """Return the utilities of what was granted."""
        memo = self.store.memo
        return memo.utilities(self.keys) if memo.size else np.zeros(0)

    def _note(self) -> None:
        values = self.accumulator.values() if self.trace else None
        if values is None:
            return
        point = (self.budget.evaluations, self.budget.calls, values)
        if self.points and self.points[-1][:2] == point[:2]:
            self.points[-1] = point
        else:
            self.points.append(point)

    def _stopped(self) -> bool:
        found = None if self.stop is None else self.so_far()
        if found is None or self.stop is None:
            return False
        answer = self.stop(found)
        return answer is not None and flag("what stop returned", answer)

    def so_far(self) -> Valuation | None:
        return None if self.accumulator.values() is None else self.result()

    def result(self) -> Valuation:
        accumulator: Accumulator = self.accumulator
        values, errors = accumulator.values(), accumulator.standard_errors()
        names = getattr(accumulator, "names", None)
        n = len(names or range(self.store.game.n_players))
        if values is None or errors is None:
            raise ValueError(
                f"{self.name} finished no walk within its budget of {self.total}; raise the budget"
            )
        if np.shape(values)[:1] != (n,):
            raise ValueError(
                f"{self.name} found values of shape {np.shape(values)}; expected one per player, "
                f"({n},) or ({n}, m)"
            )
        plain = type(self.estimator).__repr__ is object.__repr__  # an address tells nothing
        trace = None
        if self.trace:
            evaluations, calls, on_the_way = zip(*self.points, strict=True)
            trace = Trace(np.array(evaluations), np.array(calls), np.array(on_the_way))
        return Valuation(
            values=values,
            standard_errors=errors,
            evaluations=self.budget.evaluations,
            calls=self.budget.calls,
            method=self.name if plain else repr(self.estimator),
            seed=_root(self.seed),
            exact=self.exact,
            trace=trace,
            info=accumulator.info,
            degrees_of_freedom=accumulator.degrees_of_freedom(),
            names=names,
        )


def _are_ends(rows: NDArray[np.bool_]) -> bool:
    """Whether a request is the pair (empty, grand) of :func:`fedkit.games.coalitions.ends`."""
    return len(rows) == 2 and not rows[0].any() and bool(rows[1].all())


def _root(seed: Seed) -> int | None:
    if isinstance(seed, np.random.Generator):
        return None
    return seed.seed if isinstance(seed, Streams) else int(seed)


def _enumerate(n: int, weights: NDArray[np.float64], accumulator: FinishedAccumulator) -> Requests:
    """Evaluate all coalitions: the expectation of an estimator with these weights."""
    values = semivalue(TableGame((yield all_coalitions(n))), weights)
    accumulator.found = values, np.zeros_like(values), None
