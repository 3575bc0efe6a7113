"""One driver for all estimators: budgets, memo, and many estimations in lockstep.

An estimator is a generator that yields coalitions and receives utilities.  The driver advances
any number of them side by side.  In each step it collects what all of them ask for, grants what
their budgets allow, evaluates every coalition that a game has not seen yet in one batch, and
hands the answers back.  So a hundred seeds of one game, or the games of twenty federations,
cost one batch per step, and the numbers are those of each estimation alone.

Rules
-----
* A request is granted row by row, in order, up to the first row that does not fit the budget;
  the budget is never exceeded.
* ``count="distinct"``: a coalition costs 1 the first time an estimation asks for it, the empty
  coalition included, and nothing again.  ``count="calls"``: each non-empty row costs 1, every
  time; the empty coalition is free, and so is the grand one where an estimator asks for the two
  together, before its first walk: a normalised game knows both.  A step of a walk is a call
  whatever coalition it meets, so M whole walks are N x M calls for everyone.
* A walk (or draw) that the budget cuts is paid for and left out, in every estimator.  That is
  unbiased whatever walks cost, from one call on: whether exactly k walks are whole is symmetric
  in those k, so each of them has the mean of the first one given k, and averaged over k >= 1
  that is the mean of an uncut walk.  The smallest budget affords one whole walk, so k >= 1.
  Keeping what a cut walk credited would lower the mean by what it did not reach.
* An estimation with a budget in distinct evaluations gives up after 100 calls per unit of its
  budget: some coalitions may be too rare ever to be drawn.
* With a budget of all ``2**n`` distinct coalitions, an estimator whose expectation is a weighted
  mean of marginals, and that has no stopping rule of its own, evaluates all of them once and
  returns that expectation exactly, with standard errors 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import Count, Estimator
from fedkit.estimators.job import Job, Seed, Store
from fedkit.games.coalitions import check_utilities, take
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation

__all__ = ["estimate", "estimate_many"]

Batch = list[tuple[Game, NDArray[np.bool_]]]


def estimate(
    game: Game,
    estimator: Estimator,
    budget: int | None = None,
    seed: Seed = 0,
    *,
    count: Count = "distinct",
    batch_size: int | None = None,
    trace: bool = False,
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
    batch_size : int, optional
        Largest number of coalitions per call of the game; does not change the result.
    trace : bool
        Keep the values along the way.

    Returns
    -------
    Valuation

    Raises
    ------
    ValueError
        If the budget is below one walk, there is neither a budget nor an own stop, or the game
        returns utilities that are not finite or have the wrong shape.
    """
    return estimate_many(
        [game], estimator, budget, [seed], count=count, batch_size=batch_size, trace=trace
    )[0]


def estimate_many(
    games: Game | Sequence[Game],
    estimators: Estimator | Sequence[Estimator],
    budget: int | Sequence[int | None] | None = None,
    seeds: Seed | Sequence[Seed] = 0,
    *,
    count: Count = "distinct",
    batch_size: int | None = None,
    trace: bool = False,
    evaluate: Callable[[Batch], Sequence[NDArray[np.float64]]] | None = None,
) -> list[Valuation]:
    """Run many estimations in lockstep, merging their evaluations into one batch per step.

    Each of `games`, `estimators`, `budget` and `seeds` is one object or a sequence; sequences
    have a common length, and single objects are used for all.  Estimations of the same game
    object share its utilities, while each budget counts what its own estimation asked for.

    Parameters
    ----------
    games, estimators, budget, seeds
        As in :func:`estimate`.
    count, batch_size, trace
        As in :func:`estimate`.
    evaluate : callable, optional
        Called with the list of ``(game, new coalitions)`` of a step and returns the list of
        their utilities: the place to merge the games of several federations into one batch on
        a device.  By default each game's own ``value`` is called.

    Returns
    -------
    list of Valuation
        Equal, bit for bit, to those of :func:`estimate` one by one.
    """
    if count not in ("distinct", "calls"):
        raise ValueError(f"count is {count!r}; expected 'distinct' or 'calls'")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected a positive number of rows")
    lists = [_listed(games), _listed(estimators), _listed(budget), _listed(seeds)]
    lengths = {len(entry) for entry in lists if len(entry) != 1} or {1}
    if len(lengths) != 1 or 0 in lengths:
        sizes = [len(entry) for entry in lists]
        raise ValueError(
            f"there are {sizes[0]} games, {sizes[1]} estimators, {sizes[2]} budgets and "
            f"{sizes[3]} seeds; each must be single or of one common length"
        )
    size = lengths.pop()
    columns = [entry * size if len(entry) == 1 else entry for entry in lists]
    if evaluate is None:
        evaluate = _one_by_one

    stores: dict[int, Store] = {}
    jobs = []
    for game, estimator, total, seed in zip(*columns, strict=True):
        store = stores.setdefault(id(game), Store(game))
        jobs.append(Job(store, estimator, total, seed, count, trace))
    active = [job for job in jobs if job.advance(None)]
    while active:
        for job in active:
            job.grant()
        _fill([store for store in stores.values() if store.wanted], evaluate, batch_size)
        active = [job for job in active if job.advance(job.answer())]
    return [job.result() for job in jobs]


def _listed(entry: Any) -> list[Any]:
    return list(entry) if isinstance(entry, list | tuple | range | np.ndarray) else [entry]


def _one_by_one(batch: Batch) -> list[NDArray[np.float64]]:
    return [game.value(coalitions) for game, coalitions in batch]


def _fill(
    stores: Sequence[Store],
    evaluate: Callable[[Batch], Sequence[NDArray[np.float64]]],
    batch_size: int | None,
) -> None:
    """Evaluate all wanted coalitions that are new, in batches of at most `batch_size` rows."""
    plan: list[tuple[Store, NDArray[np.bool_], Any]] = []
    for store in stores:
        if len(store.wanted) == 1:
            rows, keys = store.wanted[0]
        else:
            rows = np.concatenate([rows for rows, _ in store.wanted])
            if isinstance(store.wanted[0][1], list):
                keys = [key for _, listed in store.wanted for key in listed]
            else:
                keys = np.concatenate([keys for _, keys in store.wanted])
        store.wanted = []
        new = store.memo.missing(keys)
        if len(new):
            plan.append((store, rows[new], take(keys, new)))
    for piece in _pieces(plan, batch_size):
        answers = evaluate([(store.game, rows) for store, rows, _ in piece])
        if len(answers) != len(piece):
            raise ValueError(
                f"evaluate returned {len(answers)} arrays for {len(piece)} games; expected one "
                "array of utilities per (game, coalitions)"
            )
        for (store, rows, keys), answer in zip(piece, answers, strict=True):
            store.memo.add(keys, check_utilities(answer, rows))


def _pieces(
    plan: list[tuple[Store, NDArray[np.bool_], Any]], batch_size: int | None
) -> list[list[tuple[Store, NDArray[np.bool_], Any]]]:
    if batch_size is None:
        return [plan] if plan else []
    pieces: list[list[tuple[Store, NDArray[np.bool_], Any]]] = []
    room = 0
    for store, rows, keys in plan:
        start = 0
        while start < len(rows):
            if room == 0:
                pieces.append([])
                room = batch_size
            stop = min(start + room, len(rows))
            pieces[-1].append((store, rows[start:stop], keys[start:stop]))
            room -= stop - start
            start = stop
    return pieces
