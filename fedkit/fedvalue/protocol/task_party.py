"""The task party: it orders the counts, checks every answer, and alone sees the table."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.cmi import PartyValues, mshapley_from_table
from fedkit.fedvalue.protocol.bounds import known_answers
from fedkit.fedvalue.protocol.keys import Stream, seal
from fedkit.fedvalue.protocol.messages import Counter, Job, Table
from fedkit.fedvalue.protocol.parties import MOST, Order, Party, Report, Tokens
from fedkit.fedvalue.protocol.verification import (
    Counts,
    check_alignment,
    check_consistency,
    check_counts,
    check_margins,
    check_table,
    open_reports,
)

__all__ = ["PartyMissing", "SecureCounts", "TaskParty", "Variant"]

Variant = Literal["table", "cells"]


class PartyMissing(TimeoutError):
    """No table in time: a party has not answered, or the server does not."""


@dataclass(frozen=True, eq=False)
class SecureCounts:
    """The contingency table that the task party has verified.

    Attributes
    ----------
    cells : int64[C, 1 + d]
        Cell of the task party and of each data party; one row per joint cell that occurs.  A data
        party's cells go by numbers whose meaning it keeps to itself.
    counts : int64[C]
        N of each: rows in it.
    task_cells : int64[T, 2]
        Codes (x_t, y_t) that each cell of the task party stands for.
    parties : tuple of str
        The task party, then the data parties.
    duplications, artificial : tuple of int
        q and n_r of each iteration (of the first query of each, cell by cell).
    queries : int
        Jobs that the server was given.
    seconds : float
        Time from first job to last check.
    bound : float
        Probability, at most, with which a lying server could have changed this table undetected:
        :func:`.bounds.known_answers` of what was drawn.  1, which says nothing, unless whole tables
        are counted, hardened, with a token for every row.
    checks : tuple of str
        What held in every answer, by the names of :class:`.verification.CheatingDetected`.
    """

    cells: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    task_cells: npt.NDArray[np.int64]
    parties: tuple[str, ...]
    duplications: tuple[int, ...]
    artificial: tuple[int, ...]
    queries: int
    seconds: float
    bound: float = 1.0
    checks: tuple[str, ...] = ()

    def values(self, **options: Any) -> PartyValues:
        """Return MShapley-CMI of the data parties.

        `options` are those of :func:`~fedkit.fedvalue.cmi.mshapley_from_table`.
        """
        return mshapley_from_table(
            self.cells, self.task_cells, self.counts, names=self.parties[1:], **options
        )


class TaskParty(Party):
    """The task party: it orders the counts, checks them, and alone sees the table.

    Parameters
    ----------
    name, ids, key, secret
        As for :class:`.parties.Party`.
    x_task, y : int array[n]
        One code per row for its discretised features, and for the label.
    parties : sequence of str
        Names of the data parties, in the order of the table's columns.
    iterations : int
        tau (Definition 7).
    duplications, artificial : int or (int, int)
        Range, both ends included, of q and n_r; drawn anew for each query and told to nobody but
        the parties.  Hardened, the q of different iterations differ where the range allows it.
    variant : {"table", "cells"}
        The whole table in one query per iteration, or a query per cell as printed.
    hardened : bool
        Fresh keys, padding, hidden tokens, and checks of total and margins.  Nothing is proven of
        it cell by cell, where a server that knows the true table deceives every time.
    padding : int
        Hardened only: each party adds 0 to this many private IDs.
    tokens : {"row", "cell"}
        Hardened only: data parties give every encrypted ID its own token, or every cell.
    n_cells : mapping of str to int, optional
        Cells of each data party, which ``variant="cells"`` must know to ask for them.

    Raises
    ------
    ValueError
        If an option is out of range, or the party's own rows are refused.
    """

    def __init__(
        self, name: str, ids: Any, x_task: Any, y: Any, key: bytes, parties: Sequence[str], *,
        iterations: int = 2, duplications: int | tuple[int, int] = (2, 9),
        artificial: int | tuple[int, int] = (1, 50), variant: Variant = "table",
        hardened: bool = True, padding: int = 255, tokens: Tokens = "row",
        n_cells: Mapping[str, int] | None = None, secret: bytes | None = None,
    ):  # fmt: skip
        features, labels = np.asarray(x_task), np.asarray(y)
        if features.shape != labels.shape or features.ndim != 1:
            raise ValueError(
                f"x_task has shape {features.shape} and y {labels.shape}; expected one code per row"
            )
        pairs, cells = np.unique(np.stack([features, labels]), axis=1, return_inverse=True)
        super().__init__(name, ids, np.ravel(cells), key, secret=secret)
        self.task_cells = np.ascontiguousarray(pairs.T[self.levels]).astype(np.int64)
        self.parties = (name, *parties)
        if len(parties) == 0 or len(set(self.parties)) != len(self.parties):
            raise ValueError(
                f"the parties are {self.parties}; expected different names, two or more"
            )
        if variant not in ("table", "cells"):
            raise ValueError(f'variant is {variant!r}; expected "table" or "cells"')
        if variant == "cells" and set(n_cells or ()) != set(parties):
            raise ValueError(
                'variant="cells" needs n_cells, the number of cells of each data party'
            )
        self.iterations = _at_least("iterations", iterations, 1)
        self.duplications = _range("duplications", duplications, 1)
        self.artificial = _range("artificial", artificial, 0)
        self.variant, self.hardened = variant, bool(hardened)
        self.padding = _at_least("padding", padding, 0) if hardened else 0
        if tokens not in ("row", "cell"):
            raise ValueError(f'tokens is {tokens!r}; expected "row" or "cell"')
        self.tokens: Tokens = tokens if hardened else "cell"
        self.n_cells_of = {name: self.n_cells, **(n_cells or {})}
        self._runs = 0

    def count(
        self, counter: Counter, *, wait: Callable[[], object] | None = None, timeout: float = 600.0
    ) -> SecureCounts:
        """Have the server count, check every answer, and return the table.

        Each call has jobs, keys and random numbers of its own.  The first call of another object
        with the same secret repeats those of this object's first: so a run is taken up after a
        crash, and nothing else may be started that way.

        Parameters
        ----------
        counter : Counter
            The server, here or elsewhere.
        wait : callable, optional
            Called while uploads are missing; by default sleeps 0.05 s.
        timeout : float
            Seconds that one query may take.

        Raises
        ------
        CheatingDetected
            If an answer fails a check; nothing of the table is then to be trusted.
        AlignmentError
            If a party holds other IDs.
        PartyMissing
            If a query is not answered in time.
        """
        started = time.perf_counter()
        random = Stream(self._secret, "orders", self._runs)
        self._runs += 1
        session = random.bytes(8).hex()
        queries = self._queries(random)
        rows: dict[int, list[tuple[Counts, list[Report]]]] = {}
        used: dict[int, tuple[int, int]] = {}
        for number, (iteration, cell, order) in enumerate(queries):
            job = f"{session}-{number}"
            envelopes, own = {}, order
            for e, name in enumerate(self.parties):
                # the task party knows its rows by their tokens: one per cell, or it would learn
                # the data parties' cells of each row
                told = replace(
                    order,
                    cell=None if cell is None else cell[e],
                    tokens=order.tokens if e else "cell",
                )
                envelopes[name] = seal(told.to_bytes(), self._key, "order", job, name)
                own = told if e == 0 else own
            table = self._ask(counter, Job(job, self.parties, envelopes), own, wait, timeout)
            counts, reports = self._check(table, job, own, iteration)
            used.setdefault(iteration, (order.duplications, order.artificial))
            if cell is None and iteration > 1:
                check_consistency(counts, rows[1][0][0], iteration)
                reports = []
            rows.setdefault(iteration, []).append((counts, reports))
        cells, counts_ = self._collect(rows)
        copies, extra = (tuple(used[j][k] for j in sorted(used)) for k in (0, 1))
        proven = self.hardened and self.variant == "table" and self.tokens == "row"
        bound = known_answers(np.bincount(self._cells).tolist(), copies, extra) if proven else 1.0
        checks = ["seals", "IDs", "non-negativity", "divisibility"]
        checks += ["consistency"] if self.iterations > 1 else []
        checks += ["total", "margins"] if self.hardened else []
        return SecureCounts(
            cells, counts_, self.task_cells, self.parties, copies, extra, len(queries),
            time.perf_counter() - started, bound, tuple(checks),
        )  # fmt: skip

    def _queries(self, random: Stream) -> list[tuple[int, tuple[int, ...] | None, Order]]:
        """Return (iteration, cell, order) of every query; hardened cell queries in random order."""
        low, high = self.duplications
        if self.variant == "table":
            cells: list[tuple[int, ...] | None] = [None]
        else:
            sizes = [range(self.n_cells_of[name]) for name in self.parties]
            cells = list(itertools.product(*sizes))
        out = []
        for cell in cells:
            deck = low + random.permutation(high - low + 1)
            distinct = self.hardened and self.iterations <= len(deck)
            for j in range(self.iterations):
                q = int(deck[j]) if distinct else random.integer(low, high + 1)
                extra = random.integer(self.artificial[0], self.artificial[1] + 1)
                order = Order(q, extra, None, self.hardened, self.padding, self.tokens)
                out.append((j + 1, cell, order))
        if self.hardened and self.variant == "cells":
            out = [out[i] for i in random.permutation(len(out))]
        return out

    def _ask(
        self, counter: Counter, job: Job, order: Order, wait: Callable[[], object] | None,
        timeout: float,
    ) -> Table:  # fmt: skip
        until = time.monotonic() + timeout
        counter.open(job)
        try:
            counter.submit(job.id, self.name, self.upload(job.id, order))
            while (table := counter.table(job.id)) is None:
                if time.monotonic() > until:
                    raise PartyMissing(
                        f"no table after {timeout:g} s: one of {', '.join(self.parties[1:])} has "
                        "not answered, or the server does not"
                    )
                (wait or _sleep)()
        finally:
            # a server that will not forget a job hides no other error, and costs no table
            with contextlib.suppress(Exception):
                counter.close(job.id)
        return table

    def _check(
        self, table: Table, job: str, order: Order, iteration: int
    ) -> tuple[Counts, list[Report]]:
        reports = open_reports(table.sealed, self.parties, self._key, job, iteration)
        check_alignment(reports, self.parties)
        check_table(table, reports, iteration)
        counts = check_counts(table, reports, order, iteration)
        if self.hardened and order.cell is None:
            margins = [report.margin for report in reports]
            check_margins(list(table.tokens.T), table.counts, margins, self.parties, iteration)
        return counts, reports

    def _collect(self, rows: Mapping[int, list[tuple[Counts, list[Report]]]]) -> Counts:
        """Return the table; cell by cell, put it together and compare iterations."""
        if self.variant == "table":
            return rows[1][0][0]
        tables = {}
        for iteration, answers in sorted(rows.items()):
            cells = np.concatenate([counts[0] for counts, _ in answers])
            counts = np.concatenate([counts[1] for counts, _ in answers])
            order = np.lexsort(cells.T[::-1])
            tables[iteration] = cells[order], counts[order]
            check_consistency(tables[iteration], tables[1], iteration)
            if self.hardened:
                margins = [np.zeros(self.n_cells_of[name], np.int64) for name in self.parties]
                for _, reports in answers:
                    for margin, report in zip(margins, reports, strict=True):
                        margin[report.cells[0]] = report.margin[0]
                check_margins(list(cells.T), counts, margins, self.parties, iteration)
        return tables[1]


def _sleep() -> None:
    time.sleep(0.05)


def _at_least(name: str, value: Any, low: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= MOST:
        raise ValueError(f"{name} is {value!r}; expected a whole number from {low} to {MOST}")
    return int(value)


def _range(name: str, value: Any, low: int) -> tuple[int, int]:
    ends = value if isinstance(value, tuple | list) else (value, value)
    if len(ends) != 2:
        raise ValueError(f"{name} is {value!r}; expected a whole number, or a pair (low, high)")
    first, last = (_at_least(name, end, low) for end in ends)
    if first > last:
        raise ValueError(f"{name} is {value!r}; expected (low, high) with low at most high")
    return first, last
