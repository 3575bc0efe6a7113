"""A server that cheats, and whether the task party believes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedkit.fedvalue.protocol.attacks import Attack, Knowledge, View
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples
from fedkit.fedvalue.protocol.messages import Counter, Job, Table, Upload
from fedkit.fedvalue.protocol.secure import CheatingDetected, parties_of
from fedkit.streams import as_generator

__all__ = ["CheatingServer", "Trial", "attempt"]


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
        One of :data:`ATTACKS`.
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
