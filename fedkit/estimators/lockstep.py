"""Truncated walks that advance side by side: one coalition of every walk per step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import (
    LARGEST_BLOCK,
    UNLIMITED,
    Budget,
    Floats,
    MeanAccumulator,
    Requests,
    blocks,
    random_orders,
)

__all__ = ["RunningMeans", "walk_blocks", "walk_permutations", "walk_until"]


@dataclass(frozen=True)
class Walks:
    """What a group of W walks brought."""

    increments: Floats  # [W, n(, m)], the credit of each player; 0 for those not reached
    cut: NDArray[np.bool_]  # [W], stopped by the end of the budget
    truncated: NDArray[np.bool_]  # [W], stopped by its own rule, in at least one output


def _affordable(budget: Budget, limit: int | None, cost: int, wanted: int) -> int:
    """Return how many of `wanted` walks surely fit if each costs all of `cost`; at least one.

    So walks started together never compete for the budget, whatever they ask for is answered, the
    result is that of walking one after another, and what truncation saves is spent on the next
    group.
    """
    left = UNLIMITED if limit is None else budget.left_until(limit)
    return int(min(wanted, max(left // max(cost, 1), 1), LARGEST_BLOCK))


def walk_together(
    orders: NDArray[np.int64],
    start: Floats,
    is_open: Callable[[Floats], NDArray[np.bool_]],
    budget: Budget,
    limit: int | None,
    lengths: NDArray[np.int64] | None = None,
    grand: Floats | None = None,
) -> Generator[NDArray[np.bool_], Floats, Walks]:
    """Add the players of each walk ``[W, n]`` one by one, from `start`; credit the increments.

    `is_open` says of the utilities before a step, ``[W]`` or ``[W, m]``, whether the step is looked
    at; an output for which it is not keeps its utility.  A walk visits its first `lengths` players,
    all if not said, until the budget has spent `limit`; `grand` is not asked for where it is known.
    """
    walks, n = orders.shape
    lengths = np.full(walks, n) if lengths is None else lengths
    ranks = np.argsort(orders, axis=1)
    previous = np.array(np.broadcast_to(start, (walks, *np.shape(start))))
    increments = np.zeros((walks, n, *previous.shape[1:]))
    cut = np.zeros(walks, dtype=np.bool_)
    truncated = np.zeros(walks, dtype=np.bool_)
    for step in range(n):
        opened = is_open(previous)
        inside = step < lengths
        truncated |= inside & ~opened.reshape(walks, -1).all(axis=1)
        going = np.flatnonzero(inside & opened.reshape(walks, -1).any(axis=1))
        if len(going) == 0:
            continue
        if grand is not None and step == n - 1:
            utilities = np.broadcast_to(grand, (len(going), *np.shape(grand)))
        elif limit is not None and budget.left_until(limit) == 0:
            cut[going] = True
            break
        else:
            utilities = yield ranks[going] <= step  # all of them: :func:`_affordable`
        if utilities.ndim > previous.ndim:  # the first answer shows how many outputs there are
            outputs = utilities.shape[1]
            previous = np.repeat(previous[:, None], outputs, axis=1)
            increments = np.repeat(increments[:, :, None], outputs, axis=2)
            opened = np.repeat(opened[:, None], outputs, axis=1)
        gained = np.where(opened[going], utilities - previous[going], 0.0)
        increments[going, orders[going, step]] = gained
        previous[going] += gained
    return Walks(increments, cut, truncated)


def walk_until(
    limit: int | None,
    wanted: int | None,
    cost: int,
    draw: Callable[[int, np.random.Generator], tuple[NDArray[np.int64], NDArray[np.int64]]],
    rng: np.random.Generator,
    is_open: Callable[[Floats], NDArray[np.bool_]],
    budget: Budget,
    accumulator: MeanAccumulator,
    stratum: int,
) -> Requests:
    """Walk from a utility of 0 until one does not fit into `limit`; without one, `wanted` walks.

    What truncation, or a walk of few players, saves is spent on fresh walks.  `draw` makes orders
    and lengths of so many walks, as in :func:`walk_together`, the longest of which is `cost` calls;
    what they credit is added to a stratum of the accumulator, whose info counts them.
    """
    spare = rng.spawn(1)[0]  # what is drawn at a level's end leaves the draws of the next alone
    for size in blocks(wanted if limit is None else None):
        left = size
        while left:
            spent = limit is not None and not budget.left_until(limit)  # walks of nobody still fit
            together = 1 if spent else _affordable(budget, limit, cost, left)
            orders, lengths = draw(together, spare if spent else rng)
            walks = yield from walk_together(orders, np.zeros(()), is_open, budget, limit, lengths)
            whole = ~walks.cut
            accumulator.add(walks.increments[whole], stratum)
            accumulator.info["walks"][stratum] += int(whole.sum())
            accumulator.info["truncated"] += int(walks.truncated[whole].sum())
            accumulator.info["cut"] += 0 if spent else int(walks.cut.sum())  # of what was paid for
            left -= together
            if walks.cut.any():
                return


def walk_permutations(
    orders: NDArray[np.int64],
    start: Floats,
    is_open: Callable[[Floats], NDArray[np.bool_]],
    budget: Budget,
    accumulator: MeanAccumulator,
    grand: Floats | None = None,
) -> Generator[NDArray[np.bool_], Floats, list[Floats]]:
    """Walk permutations while the budget lasts; return what each whole walk credits.

    The walks are added to the accumulator, whose info counts them.  At least one group walks.
    """
    found: list[Floats] = []
    info, cost = accumulator.info, orders.shape[1] - (grand is not None)
    while len(orders):
        together = _affordable(budget, budget.total, cost, len(orders))
        walks = yield from walk_together(
            orders[:together], start, is_open, budget, budget.total, grand=grand
        )
        orders = orders[together:]
        whole = walks.increments[~walks.cut]
        accumulator.add(whole)
        found.extend(whole)
        info["walks"] = int(accumulator.counts[0])
        info["truncated"] = info.get("truncated", 0) + int(walks.truncated[~walks.cut].sum())
        if budget.exhausted:
            break
    return found


def walk_blocks(
    walks: int | None,
    n: int,
    rng: np.random.Generator,
    start: Floats,
    is_open: Callable[[Floats], NDArray[np.bool_]],
    budget: Budget,
    accumulator: MeanAccumulator,
    grand: Floats | None = None,
) -> Requests:
    """Walk random permutations, so many, or until the budget or what is looked at ends."""
    for size in blocks(walks):
        asked, orders = budget.calls, random_orders(rng, size, n)
        yield from walk_permutations(orders, start, is_open, budget, accumulator, grand)
        if budget.exhausted or budget.calls == asked:
            return  # no walk looks at anything: all walks are equal


class RunningMeans:
    """The running means A_k after each of the last walks, for rules that look back on so many."""

    def __init__(self, last: int) -> None:
        self.walks = 0
        self.means: deque[Floats] = deque(maxlen=last + 1)
        self._sum: Floats | float = 0.0

    def add(self, increments: list[Floats]) -> None:
        for increment in increments:
            self._sum = self._sum + increment
            self.walks += 1
            self.means.append(self._sum / self.walks)

    def change(self, back: int) -> float:
        """Return the mean relative change since `back` walks ago, worst output."""
        last, then = self.means[-1], self.means[-1 - back]
        relative = np.abs(then - last) / (np.abs(last) + 1e-12)
        return float(relative.mean(axis=0).max())
