"""What a cheating server may answer, and whether the task party believes it.

Each attack sees what a server sees (:class:`View`) and falsifies the counts.  A server that says
anything about tokens or sealed messages that it cannot know is refused at once; these attacks
therefore keep to the counts, or move IDs between tokens that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples
from fedkit.fedvalue.protocol.messages import Table
from fedkit.fedvalue.protocol.parties import parties_of
from fedkit.fedvalue.protocol.verification import CheatingDetected, best_shift, spread
from fedkit.streams import as_generator


@dataclass
class View:
    """What a server knows beforehand (the protocol, and all but key and secrets), and sees."""

    rows: int  # people
    duplications: tuple[int, int]  # the ranges of q
    artificial: tuple[int, int]  # and of n_r
    iterations: int
    rng: np.random.Generator  # its own chance
    cells: int = 1  # queries in an iteration
    task_rows: tuple[int, ...] = (1,)  # in each cell of the task party
    memory: dict[str, Any] = field(default_factory=dict)  # what it keeps of earlier queries

    def see(self, table: Table, sizes: tuple[int, ...], iteration: int, target: bool) -> None:
        """Take the true answer to a query, and how many IDs each party sent.

        `iteration` is from 0; `target` is a query to falsify: always, for a whole table.
        """
        self.table, self.sizes, self.iteration, self.target = table, sizes, iteration, target
        self.counts = table.counts
        self.cellwise = not table.tokens.any() and len(self.counts) <= 1  # of one cell

    def answer(self, counts: npt.NDArray[Any]) -> Table:
        return replace(self.table, counts=counts.astype(np.int64))


Attack = Callable[[View], Table]


def guess_q(view: View) -> int:
    """Guess q: cell by cell from the gcd of all differences, for a table from the total.

    Every set that the server sees has ``q * size + n_r`` members, and so has the intersection: the
    gcd of differences is a multiple of q, most often q itself.  For a table all sets have the same
    size, and q n + n_r betrays q to whoever knows n.
    """
    low, high = view.duplications
    total = int(view.counts.sum())
    if not view.cellwise:
        guess = (total - sum(view.artificial) / 2) / view.rows
        return int(np.clip(round(guess), low, high))
    divisor = math.gcd(*(size - total for size in view.sizes))
    fits = [q for q in range(high, low - 1, -1) if divisor % q == 0]
    return fits[0] if fits and divisor else low


def _another_size(view: View) -> int:
    """Return what turns the true answer into the size of another set, which passes as well.

    Cell by cell a party's upload has ``q * size + n_r`` IDs, with the very q and n_r of the true
    answer: nothing needs to be known of them.  It is the task party's, or another where that is
    the truth.  In a table every upload is of everybody: their copies are q times the rows.
    """
    total = int(view.counts.sum())
    if view.cellwise:
        return next((size - total for size in view.sizes if size != total), 0)
    return guess_q(view) * view.rows


def _constant(view: View) -> Table:
    same = view.memory.setdefault("constant", 10 + int(view.counts.mean() or 0))
    return view.answer(np.full_like(view.counts, same))


def _replayed(view: View) -> Table:
    last = view.memory.get("last", view.table)
    view.memory["last"] = view.table
    return replace(last, sealed=view.table.sealed)


def _shift_one(amount: Callable[[View], int]) -> Attack:
    """Add to one count: of the targeted cell, or the largest of the table."""

    def attack(view: View) -> Table:
        more = amount(view)
        if not view.target:
            return view.table
        if not len(view.counts):  # an empty intersection can be falsified, too
            tokens = np.zeros((1, view.table.tokens.shape[1]), dtype=np.uint32)
            return replace(view.table, tokens=tokens, counts=np.array([more]))
        counts = view.counts.copy()
        counts[np.argmax(counts)] += more
        return view.answer(counts)

    return attack


#: of the sizes of some tokens, the places of the two that are to change
Pair = Callable[[View, npt.NDArray[Any]], npt.NDArray[Any]]


def _weakest(view: View, sums: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The two task cells with the fewest artificial IDs per row: sizes of tokens tell them."""
    q, rows = guess_q(view), np.array(view.task_rows)
    given = spread(max(0, int(sums.sum()) - q * view.rows), rows)
    weak = np.argsort(given / rows, kind="stable")[:2]
    return np.unique([np.abs(sums - q * rows[t] - given[t]).argmin() for t in weak])


def _swap(pair: Pair) -> Attack:
    """Move people between four cells so that every margin stays as it is.

    Where every ID has its own token, rows of two task tokens swap places at random.
    """

    def attack(view: View) -> Table:
        tokens, counts = view.table.tokens.astype(np.int64), view.counts
        q = guess_q(view)

        def chosen(column: Ints, weights: Ints) -> Any:
            sums = np.bincount(column, weights=weights)
            there = np.flatnonzero(sums)
            return there[pair(view, sums[there])]

        task = chosen(tokens[:, 0], counts)
        if len(task) < 2:
            return view.table
        if len(counts) > 1 and counts.max() == 1:  # a token for every ID: swap q rows
            rows = [view.rng.permutation(np.flatnonzero(tokens[:, 0] == t))[:q] for t in task]
            swapped = view.table.tokens.copy()
            some = min(map(len, rows))
            swapped[rows[0][:some], 0], swapped[rows[1][:some], 0] = task[1], task[0]
            return replace(view.table, tokens=swapped)
        rest = tokens[np.argmax(counts), 2:]
        here = np.flatnonzero((tokens[:, 2:] == rest).all(axis=1))
        data = chosen(tokens[here, 1], counts[here])
        at = {(tokens[i, 0], tokens[i, 1]): i for i in here}
        corners = [(t, a) for t in task for a in data]
        if len(data) < 2 or any(corner not in at for corner in corners):
            return view.table
        places = [at[corner] for corner in corners]
        now = counts[places]
        sign = view.memory.setdefault("sign", 1 if min(now[1], now[2]) >= q else -1)
        changed = counts.copy()
        changed[places] += sign * q * np.array([1, -1, -1, 1])
        return view.answer(changed)

    return attack


ATTACKS: dict[str, Attack] = {
    "zeros": lambda view: view.answer(0 * view.counts),  # nothing in common, anywhere
    "constant": _constant,  # the same number for every count
    "random": lambda view: view.answer(  # every count drawn anew, up to twice the largest
        view.rng.integers(0, 2 * int(view.counts.max(initial=1)) + 1, len(view.counts))
    ),
    "scaled": lambda view: view.answer(2 * view.counts),
    "off by one": lambda view: view.answer(view.counts + 1),
    "replayed": _replayed,  # the answer to the query before, with the reports of this one
    "single cell": _shift_one(lambda view: int(view.rng.integers(1, 51))),
    "upload size": _shift_one(_another_size),  # a right answer, of another set
    "best bet": _shift_one(  # what every q of the range divides
        lambda v: best_shift(v.duplications, v.iterations)[1][v.iteration]
    ),
    "gcd": _shift_one(guess_q),  # one person more, consistently
    "random swap": _swap(lambda view, sums: view.rng.permutation(len(sums))[:2]),
    # taken to be the same cells in every iteration
    "rank linking": _swap(lambda view, sums: np.argsort(-sums, kind="stable")[:2]),
    "weak cells": _swap(_weakest),
}


class CheatingServer(CountingServer):
    """A counting server that answers what ``attack(view)`` gives; cell by cell it attacks one."""

    def __init__(self, attack: Attack, view: View):
        super().__init__()
        self._attack, self._view, self._answered = attack, view, 0
        self._target = int(view.rng.integers(view.cells))

    def table(self, job: str) -> Table | None:
        """Return falsified counts; a job is asked for once."""
        table = super().table(job)
        if table is None:
            return None
        cell, iteration = divmod(self._answered, self._view.iterations)
        self._answered += 1
        sizes = tuple(len(upload.ids) for upload in self.held(job).uploads.values())
        self._view.see(table, sizes, iteration, cell == self._target)
        return self._attack(self._view)


@dataclass(frozen=True)
class Trial:
    """How one attack ended: by which check, or "" where none failed.

    `changed`: all checks passed and the table is not the true one, so the task party was deceived.
    """

    changed: bool
    check: str = ""


def attempt(attack: Attack, codes: Any, *, seed: int, **options: Any) -> Trial:
    """Let a server attack one count of the cells of `codes` and see how it ends.

    The codes are those of :meth:`~fedkit.fedvalue.columns.VerticalData.codes`, `options` those of
    :class:`~fedkit.fedvalue.protocol.parties.TaskParty`; `seed` is of the parties' secrets and of
    the attack's chance.
    """
    task, others = parties_of(codes, seed=seed, **options)
    cells = math.prod(task.n_cells_of.values()) if task.variant == "cells" else 1
    rows = np.unique(np.stack(codes[:2]), axis=1, return_counts=True)[1].tolist()
    view = View(len(codes[1]), task.duplications, task.artificial, task.iterations,
                as_generator(seed), cells, tuple(rows))  # fmt: skip
    server = CheatingServer(attack, view)
    try:
        found = task.count(server, wait=lambda: [party.serve(server) for party in others])
    except CheatingDetected as caught:
        return Trial(False, caught.check)
    columns = [*task.task_cells[found.cells[:, 0]].T]
    columns += [party.levels[found.cells[:, 1 + d]] for d, party in enumerate(others)]
    clear = [np.asarray(column) for column in (codes[0], codes[1], *codes[2])]
    got = count_tuples(columns, found.counts)
    true = count_tuples(clear, np.ones(len(clear[0]), dtype=np.int64))
    return Trial(not all(map(np.array_equal, got, true)))
