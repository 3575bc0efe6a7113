"""One estimation inside the driver: what it asks for, what it may spend, what it learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import PATIENCE, Budget, Count, Estimator, Requests, Tally
from fedkit.games.coalitions import Memo, all_coalitions, check_coalitions, take
from fedkit.games.exact import semivalue
from fedkit.games.game import Game, TableGame
from fedkit.games.valuation import Trace, Valuation
from fedkit.streams import Streams, as_generator

__all__ = ["Job", "Seed", "Store"]

Seed = int | Streams | np.random.Generator

DENSE_PLAYERS = 16  # hundreds of estimations may run together: 64 KiB each at most


class Store:
    """The utilities of one game, and the coalitions wanted in this step."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.memo = Memo(game.n_players)
        self.wanted: list[tuple[NDArray[np.bool_], Any]] = []


@dataclass
class Job:
    """One estimation: its generator, its budget, and the request it waits for."""

    store: Store
    estimator: Estimator
    total: int | None
    seed: Seed
    count: Count
    trace: bool
    points: list[tuple[int, int, NDArray[np.float64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = self.store.game.n_players
        self._check(n)
        self.budget = Budget(self.total, self.count)
        self.tally: Any = self.estimator.tally(n)
        weights = self.estimator.weights(n)
        all_of_them = self.count == "distinct" and self.total is not None and self.total >= 2**n
        self.exact = all_of_them and weights is not None and not self.estimator.stops
        if self.exact:
            self.tally = _ExactTally(weights)
            self.requests: Requests = _enumerate(n, self.tally)
        else:
            rng = as_generator(self.seed)
            self.requests = self.estimator.sample(n, rng, self.tally, self.budget)
        self.asked: NDArray[np.bool_] = np.zeros((0, n), dtype=np.bool_)
        self.keys: Any = None
        self.seen_dense = np.zeros(2**n, dtype=np.bool_) if n <= DENSE_PLAYERS else None
        self.seen: set[Any] = set()

    def _check(self, n: int) -> None:
        name = type(self.estimator).__name__
        if self.total is None:
            if not self.estimator.stops:
                raise ValueError(
                    f"{name} has no stop of its own; pass a budget or set its size (walks, draws)"
                )
            return
        if isinstance(self.total, bool) or not isinstance(self.total, int | np.integer):
            raise ValueError(f"budget is {self.total!r}; expected a whole number or None")
        smallest = self.estimator.minimum(n, self.count)
        if self.total < smallest:
            raise ValueError(
                f"budget is {self.total} with count={self.count!r}; {name} needs at least "
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
        if self.budget.closed:
            self.requests.close()
            return False
        self.asked = check_coalitions(asked, self.store.game.n_players)
        return True

    def _new(self, keys: Any) -> NDArray[np.int64]:
        """Return the positions of keys that this estimation asks for the first time."""
        if self.seen_dense is not None:
            unknown = np.flatnonzero(~self.seen_dense[keys])
            if len(unknown) < 2:
                return unknown
            return unknown[np.sort(np.unique(keys[unknown], return_index=True)[1])]
        listed = keys if isinstance(keys, list) else keys.tolist()
        fresh: dict[Any, int] = {}
        for position, key in enumerate(listed):
            if key not in self.seen:
                fresh.setdefault(key, position)
        return np.array(list(fresh.values()), dtype=np.int64)

    def grant(self) -> None:
        """Cut the request to what the budget allows, count it, and want it evaluated."""
        keys = self.store.memo.keys(self.asked)
        new = self._new(keys)
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
            self.asked, filled = self.asked[:granted], filled[:granted]
            keys = keys[:granted]
            new = new[new < granted]
        fresh = take(keys, new)
        if self.seen_dense is not None:
            self.seen_dense[fresh] = True
        else:
            self.seen.update(fresh if isinstance(fresh, list) else fresh.tolist())
        self.budget.evaluations += len(new)
        self.budget.calls += int(filled.sum())
        self.keys = keys
        if len(new):
            self.store.wanted.append((self.asked[new], fresh))

    def answer(self) -> NDArray[np.float64]:
        """Return the utilities of what was granted."""
        if self.store.memo.size == 0:
            return np.zeros(0)
        return self.store.memo.utilities(self.keys)

    def _note(self) -> None:
        if not self.trace:
            return
        values = self.tally.values()
        if values is None:
            return
        point = (self.budget.evaluations, self.budget.calls, values)
        if self.points and self.points[-1][:2] == point[:2]:
            self.points[-1] = point
        else:
            self.points.append(point)

    def result(self) -> Valuation:
        """Return what was learnt."""
        tally: Tally = self.tally
        values, errors = tally.values(), tally.standard_errors()
        if values is None or errors is None:
            raise ValueError(
                f"{type(self.estimator).__name__} finished no walk within its budget of "
                f"{self.total}; raise the budget"
            )
        trace = None
        if self.trace:
            trace = Trace(
                np.array([point[0] for point in self.points], dtype=np.int64),
                np.array([point[1] for point in self.points], dtype=np.int64),
                np.array([point[2] for point in self.points]),
            )
        return Valuation(
            values=values,
            standard_errors=errors,
            evaluations=self.budget.evaluations,
            calls=self.budget.calls,
            method=repr(self.estimator),
            seed=_root(self.seed),
            exact=self.exact,
            trace=trace,
            info=tally.info,
            degrees_of_freedom=tally.degrees_of_freedom(),
        )


def _are_ends(rows: NDArray[np.bool_]) -> bool:
    """Whether a request is the pair (empty, grand) that :func:`ends` makes."""
    return len(rows) == 2 and not rows[0].any() and bool(rows[1].all())


def _root(seed: Seed) -> int | None:
    if isinstance(seed, np.random.Generator):
        return None
    return seed.seed if isinstance(seed, Streams) else int(seed)


class _ExactTally:
    """The expectation of an estimator, from all utilities."""

    def __init__(self, weights: NDArray[np.float64] | None) -> None:
        self.weights = weights
        self.table: TableGame | None = None
        self.info: dict[str, Any] = {}

    def values(self) -> NDArray[np.float64] | None:
        if self.table is None or self.weights is None:
            return None
        return semivalue(self.table, self.weights)

    def standard_errors(self) -> NDArray[np.float64] | None:
        values = self.values()
        return None if values is None else np.zeros_like(values)

    def degrees_of_freedom(self) -> None:
        return None


def _enumerate(n: int, tally: _ExactTally) -> Requests:
    tally.table = TableGame((yield all_coalitions(n)))
