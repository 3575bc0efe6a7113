"""What a cheating server may answer, and whether the task party believes it.

Each attack sees what a server sees (:class:`View`) and falsifies the counts.  A server that says
anything about tokens or sealed messages that it cannot know is refused at once; these attacks
therefore keep to the counts, or move IDs between tokens that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.bounds import best_shift, spread
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples
from fedkit.fedvalue.protocol.messages import Counter, Job, Table, Upload
from fedkit.fedvalue.protocol.secure import CheatingDetected, parties_of
from fedkit.streams import as_generator

__all__ = [
    "ATTACKS",
    "Attack",
    "CheatingServer",
    "Knowledge",
    "Trial",
    "View",
    "attempt",
    "guess_q",
]


@dataclass(frozen=True)
class Knowledge:
    """What the server knows beforehand: the protocol, and the rest except key and secrets.

    `rows` people, the ranges of q (`duplications`) and n_r (`artificial`), tau `iterations` of
    `cells` queries each (1 for whole tables), and the rows in each cell of the task party.
    """

    rows: int
    duplications: tuple[int, int]
    artificial: tuple[int, int]
    iterations: int
    cells: int = 1
    task_rows: tuple[int, ...] = (1,)


@dataclass
class View:
    """What the server knows when it answers a query."""

    iteration: int  # from 0
    target: bool  # whether it wants to falsify this query: always, for a whole table
    table: Table  # the true answer
    sizes: tuple[int, ...]  # how many IDs each party sent
    known: Knowledge
    memory: dict[str, Any]  # what it kept from earlier queries of the same count
    rng: np.random.Generator

    @property
    def cellwise(self) -> bool:
        """Whether the query is for one cell."""
        return not self.table.tokens.any() and len(self.table.counts) <= 1


Attack = Callable[[View], Table]
Which = Literal["largest", "weakest", "random"]


def guess_q(view: View) -> int:
    """Guess q: cell by cell from the gcd of all differences, for a table from the total.

    Every set that the server sees has ``q * size + n_r`` members, and so has the intersection:
    n_r drops out of differences, and their greatest common divisor is a multiple of q, most often
    q itself.
    For a table all sets have the same size, and q n + n_r betrays q to whoever knows n.
    """
    low, high = view.known.duplications
    total = int(view.table.counts.sum())
    if not view.cellwise:
        guess = (total - sum(view.known.artificial) / 2) / view.known.rows
        return int(np.clip(round(guess), low, high))
    divisor = math.gcd(*(size - total for size in view.sizes))
    fits = [q for q in range(high, low - 1, -1) if divisor % q == 0]
    return fits[0] if fits and divisor else low


def _answer(view: View, counts: npt.NDArray[np.int64]) -> Table:
    return replace(view.table, counts=counts.astype(np.int64))


def _every(view: View) -> Table:
    """Return the true table; an empty intersection as a count of 0 that can be falsified."""
    if len(view.table.counts):
        return view.table
    tokens = np.zeros((1, view.table.tokens.shape[1]), dtype=np.uint32)
    return replace(view.table, tokens=tokens, counts=np.zeros(1, dtype=np.int64))


def zeros(view: View) -> Table:
    """Nothing in common, anywhere."""
    return _answer(view, np.zeros_like(view.table.counts))


def constant(view: View) -> Table:
    """The same number for every count."""
    same = view.memory.setdefault("constant", 10 + int(view.table.counts.mean() or 0))
    return _answer(view, np.full_like(view.table.counts, same))


def random(view: View) -> Table:
    """Every count drawn anew, up to twice the largest."""
    high = 2 * int(view.table.counts.max(initial=1)) + 1
    return _answer(view, view.rng.integers(0, high, len(view.table.counts)))


def scaled(view: View) -> Table:
    """Every count doubled."""
    return _answer(view, view.table.counts * 2)


def off_by_one(view: View) -> Table:
    """One too many in every count."""
    return _answer(view, view.table.counts + 1)


def replayed(view: View) -> Table:
    """The answer to the query before, with the sealed messages of this one."""
    last = view.memory.get("last", view.table)
    view.memory["last"] = view.table
    return replace(last, sealed=view.table.sealed)


def _shift_one(view: View, amount: int) -> Table:
    """Add to one count: of the targeted cell, or the largest of the table."""
    if not view.target:
        return view.table
    table = _every(view)
    counts = table.counts.copy()
    counts[np.argmax(counts)] += amount
    return replace(table, counts=counts)


def single_cell(view: View) -> Table:
    """One count, a random amount more."""
    return _shift_one(view, int(view.rng.integers(1, 51)))


def best_bet(view: View) -> Table:
    """One count, more by what every q of the range divides (:func:`.bounds.best_shift`)."""
    return _shift_one(
        view, best_shift(view.known.duplications, view.known.iterations)[1][view.iteration]
    )


def gcd_forgery(view: View) -> Table:
    """One count, more by a guess of q: one person more, consistently."""
    return _shift_one(view, guess_q(view))


def rank_linking(view: View) -> Table:
    """Move people between four cells so that every margin stays as it is.

    The two largest tokens of the task party and of the first data party are taken to be the same
    cells in every iteration.  Where every ID has its own token there is no largest: then rows of
    the two task tokens swap places at random.
    """
    return _swap(view, "largest")


def random_swap(view: View) -> Table:
    """As rank linking, with tokens chosen by chance."""
    return _swap(view, "random")


def weak_cells(view: View) -> Table:
    """As rank linking, between the two task cells with the fewest artificial IDs per row.

    The server is told how many rows each task cell has, and so how many artificial IDs
    (:func:`.bounds.spread`); the sizes of the tokens then tell which is which.
    """
    return _swap(view, "weakest")


def _swap(view: View, which: Which) -> Table:
    if view.cellwise:
        return gcd_forgery(view)
    tokens, counts = view.table.tokens.astype(np.int64), view.table.counts
    q = guess_q(view)
    task = _pair(tokens[:, 0], counts, view, which)
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
    data = _pair(tokens[here, 1], counts[here], view, which)
    at = {(tokens[i, 0], tokens[i, 1]): i for i in here}
    corners = [(t, a) for t in task for a in data]
    if len(data) < 2 or any(corner not in at for corner in corners):
        return view.table
    now = counts[[at[corner] for corner in corners]]
    sign = view.memory.setdefault("sign", 1 if min(now[1], now[2]) >= q else -1)
    changed = counts.copy()
    for corner, direction in zip(corners, (1, -1, -1, 1), strict=True):
        changed[at[corner]] += sign * direction * q
    return _answer(view, changed)


def _pair(
    column: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], view: View, which: Which
) -> npt.NDArray[np.int64]:
    sums = np.bincount(column, weights=counts)
    there = np.flatnonzero(sums)
    if which == "random":
        return there[view.rng.permutation(len(there))[:2]]
    if which == "largest":
        return there[np.argsort(-sums[there], kind="stable")[:2]]
    q, rows = guess_q(view), np.array(view.known.task_rows)
    given = spread(max(0, int(counts.sum()) - q * view.known.rows), rows)
    weak = np.argsort(given / rows, kind="stable")[:2]
    return np.unique([there[np.abs(sums[there] - q * rows[t] - given[t]).argmin()] for t in weak])


ATTACKS: dict[str, Attack] = {
    "zeros": zeros,
    "constant": constant,
    "random": random,
    "scaled": scaled,
    "off by one": off_by_one,
    "replayed": replayed,
    "single cell": single_cell,
    "best bet": best_bet,
    "gcd": gcd_forgery,
    "random swap": random_swap,
    "rank linking": rank_linking,
    "weak cells": weak_cells,
}


@dataclass
class CheatingServer:
    """A counting server that falsifies its answers; otherwise the honest one.

    Parameters
    ----------
    attack : callable
        ``attack(view) -> Table``.
    known : Knowledge
        What it knows beforehand.
    seed : int or numpy Generator
        Its own chance.  Cell by cell it attacks one cell, which chance chooses.
    """

    attack: Attack
    known: Knowledge
    seed: int | np.random.Generator = 0
    inner: Counter = field(default_factory=CountingServer)

    def __post_init__(self) -> None:
        self._rng = as_generator(self.seed)
        self._target = int(self._rng.integers(self.known.cells))
        self._sizes: dict[str, dict[str, int]] = {}
        self._memory: dict[str, Any] = {}
        self._number = 0
        self._answers: dict[str, Table] = {}

    def open(self, job: Job) -> None:
        """Announce a job."""
        self.inner.open(job)

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that wait for a party."""
        return self.inner.pending(party)

    def submit(self, job: str, party: str, upload: Upload) -> None:
        """Take an upload, and a look at it."""
        self._sizes.setdefault(job, {})[party] = len(upload.ids)
        self.inner.submit(job, party, upload)

    def table(self, job: str) -> Table | None:
        """Return falsified counts."""
        if job not in self._answers:
            table = self.inner.table(job)
            if table is None:
                return None
            cell, iteration = divmod(self._number, self.known.iterations)
            self._number += 1
            view = View(
                iteration, cell == self._target, table, tuple(self._sizes[job].values()),
                self.known, self._memory, self._rng,
            )  # fmt: skip
            self._answers[job] = self.attack(view)
        return self._answers[job]

    def close(self, job: str) -> None:
        """Forget a job."""
        self.inner.close(job)


@dataclass(frozen=True)
class Trial:
    """How one attack ended.

    Attributes
    ----------
    passed : bool
        All checks passed.
    changed : bool
        And the table is not the true one: the task party was deceived.
    check : str
        The check that failed, or "".
    """

    passed: bool
    changed: bool
    check: str


def attempt(attack: Attack, codes: Any, *, seed: int, **options: Any) -> Trial:
    """Let a server attack one count of the cells of `codes` and see how it ends.

    Parameters
    ----------
    attack : callable
        One of :data:`ATTACKS`, ``attack(view) -> Table``.
    codes : (x_task, y, parties)
        Codes of the rows, as :meth:`~fedkit.fedvalue.data.VerticalData.codes` gives them.
    seed : int
        Of the parties' secrets and the attack's chance.
    options
        Of :class:`~fedkit.fedvalue.protocol.task_party.TaskParty`.
    """
    task, others = parties_of(codes, seed=seed, **options)
    cells = math.prod(task.n_cells_of.values()) if task.variant == "cells" else 1
    rows = np.unique(np.stack(codes[:2]), axis=1, return_counts=True)[1]
    known = Knowledge(
        len(codes[1]), task.duplications, task.artificial, task.iterations, cells,
        tuple(rows.tolist()),
    )  # fmt: skip
    server = CheatingServer(attack, known, as_generator(seed))

    def serve() -> None:
        for party in others:
            party.serve(server)

    try:
        found = task.count(server, wait=serve)
    except CheatingDetected as caught:
        return Trial(False, False, caught.check)
    columns = [*task.task_cells[found.cells[:, 0]].T]
    columns += [party.levels[found.cells[:, 1 + d]] for d, party in enumerate(others)]
    clear = [np.asarray(column) for column in (codes[0], codes[1], *codes[2])]
    got = count_tuples(columns, found.counts)
    true = count_tuples(clear, np.ones(len(clear[0]), dtype=np.int64))
    same = all(np.array_equal(a, b) for a, b in zip(got, true, strict=True))
    return Trial(True, not same, "")
