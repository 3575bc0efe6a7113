"""The task party: how it orders and checks counts; and whole counts in one process.

It has an untrusted server count the joint cells of all parties (Algorithm 1): one after another, as
printed, or the whole table; with the paper's checks alone, or hardened by ours.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fedkit.checks import Ints, choice, flag, having, one_line, whole, whole_or_none
from fedkit.fedvalue.columns import How, VerticalData
from fedkit.fedvalue.information import PartyValues, mshapley_from_table
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples
from fedkit.fedvalue.protocol.crypto import Stream, derive, seal
from fedkit.fedvalue.protocol.messages import (
    KEY_BYTES,
    MOST,
    Counter,
    Job,
    JobUnknown,
    Order,
    Report,
    Table,
    Tokens,
)
from fedkit.fedvalue.protocol.uploads import DataParty, Party, Roster
from fedkit.fedvalue.protocol.verification import (
    Counts,
    check_alignment,
    check_consistency,
    check_counts,
    check_margins,
    known_answers,
    open_reports,
)

Variant = Literal["table", "cells"]


class PartyMissing(TimeoutError):
    """No table in time: a party has not answered, or the server does not."""


class PartyChanged(ValueError):
    """A party's cells are not those that it had in the first job of the run."""


@one_line
@dataclass(frozen=True, eq=False)
class SecureCounts:
    """The contingency table that the task party has verified."""

    #: ``[C, 1 + d]``, joint cells that occur, by the cell of the task party and of each data party,
    #: which goes by numbers that only this party understands
    cells: Ints
    counts: Ints  #: ``[C]``, N of each
    task_cells: Ints  #: ``[T, 2]``, codes (x_t, y_t) that each cell of the task party stands for
    parties: tuple[str, ...]  #: the task party, then the data parties
    duplications: tuple[int, ...]  #: q of each iteration; in blocks of the weakest
    artificial: tuple[int, ...]  #: n_r; both, cell by cell, of the first query
    queries: int  #: jobs that the server was given
    #: probability, at most, with which a lying server could have changed this table undetected
    #: (:func:`.verification.known_answers`); 1, which says nothing, unless whole tables are
    #: counted, hardened, with a token for every row
    bound: float = 1.0
    checks: tuple[str, ...] = ()  #: what held in every answer
    blocks: int = 1  #: parts that were counted by themselves

    def values(self, **options: Any) -> PartyValues:
        """Return what :func:`~fedkit.fedvalue.information.mshapley_from_table` makes of it."""
        names = self.parties[1:]
        return mshapley_from_table(self.cells, self.task_cells, self.counts, names=names, **options)


class Query(NamedTuple):
    """One count to ask for: of a joint cell, or of a whole table (cell None)."""

    iteration: int  #: from 1
    cell: tuple[int, ...] | None  #: the joint cell; None asks for the whole table
    order: Order  #: what the parties are told to send


class TaskParty(Party):
    """The task party: it orders the counts, checks them, and alone sees the table.

    Parameters
    ----------
    name, ids, key, secret
        Of a :class:`Party`.
    x_task, y : int array[n]
        One code per row for its discretised features, and for the label.
    parties : sequence of str
        Names of the data parties, in the order of the table's columns.
    iterations : int
        tau (Definition 7).
    duplications, artificial : int or (int, int)
        Range, both ends included, of q and n_r; drawn anew for each query and told to nobody but
        the parties.  Hardened, the q of different iterations differ where the range allows it.
        These defaults are the paper's; a bound wants three artificial IDs per row
        (:func:`count_securely`).
    variant : {"table", "cells"}
        The whole table in one query per iteration, or a query per cell as printed, for which
        `n_cells` says how many cells each data party has.
    hardened : bool
        Fresh keys, padding, hidden tokens, and checks of total and margins.  Nothing is proven of
        it cell by cell, where a server that knows the true table can deceive.
    tokens : {"row", "cell"}
        Hardened only: data parties give every encrypted ID its own token, or every cell.
    blocks : int
        Whole tables only: the IDs are cut by their hashes into so many parts, a power of two, each
        counted and checked by itself, for less memory.  Parties refuse less than 1,000 rows a part.
    """

    def __init__(
        self, name: str, ids: Any, x_task: Any, y: Any, key: bytes, parties: Sequence[str], *,
        iterations: int = 2, duplications: int | tuple[int, int] = (2, 9),
        artificial: int | tuple[int, int] = (1, 50), variant: Variant = "table",
        hardened: bool = True, tokens: Tokens = "row", blocks: int = 1,
        n_cells: Mapping[str, int] | None = None, secret: bytes | None = None,
    ):  # fmt: skip
        features, labels = np.asarray(x_task), np.asarray(y)
        if features.shape != labels.shape or features.ndim != 1:
            raise ValueError(f"x_task has shape {features.shape}, y {labels.shape}; expected (n,)")
        pairs, cells = np.unique(np.stack([features, labels]), axis=1, return_inverse=True)
        super().__init__(name, ids, np.ravel(cells), key, secret=secret)
        self.task_cells = np.ascontiguousarray(pairs.T[self.levels]).astype(np.int64)
        self.parties = (name, *parties)
        if len(parties) == 0 or len(set(self.parties)) != len(self.parties):
            raise ValueError(f"parties are {self.parties}; expected different names, two or more")
        choice("variant", variant, ("table", "cells"))
        if variant == "cells" and set(n_cells or ()) != set(parties):
            raise ValueError('variant="cells" needs n_cells, the cells of each data party')
        self.iterations = whole("iterations", iterations, 1, MOST)
        self.duplications = _range("duplications", duplications, 1)
        self.artificial = _range("artificial", artificial, 0)
        low, tokens = (self.duplications[0], self.artificial[0]), tokens if hardened else "cell"
        self._order = Order(*low, hardened=hardened, tokens=tokens, blocks=blocks)
        self.variant, self.hardened, self.blocks = variant, hardened, blocks
        if blocks > 1 and variant == "cells":
            raise ValueError('blocks cut whole tables: take variant="table", or blocks=1')
        self.n_cells_of = {name: self.n_cells, **(n_cells or {})}
        self._runs = 0

    def count(
        self, counter: Counter, *, wait: Callable[[], object] = lambda: time.sleep(0.05),
        timeout: float = 600.0,
    ) -> SecureCounts:  # fmt: skip
        """Have the server count, check every answer, and return the table.

        Each call has jobs, keys and random numbers of its own; another object with the same secret
        repeats them, and a server that has forgotten a job gets the same job again.  While uploads
        are missing `wait` is called, for `timeout` seconds a query.

        Raises
        ------
        CheatingDetected, AlignmentError, PartyChanged, PartyMissing
            If an answer fails a check, and nothing of the table is then to be trusted; a party
            holds other IDs, or other cells than in an earlier query; one is not answered in time.
        """
        random = Stream(self._secret, "orders", self._runs)
        self._runs += 1
        session = random.bytes(8).hex()
        queries = self._queries(random)
        tables: dict[int, Counts] = {}  # of each block
        single: dict[int, list[tuple[Counts, list[Report]]]] = {}  # cells of each iteration
        drawn: dict[int, dict[int, Order]] = {}  # the first of each iteration, by block
        first: list[Report] = []
        for number, query in enumerate(queries):
            counts, reports = self._asked(f"{session}-{number}", query, counter, wait, timeout)
            first = first or reports
            self._refuse_changed(reports, first)
            order, iteration = query.order, query.iteration
            drawn.setdefault(order.block, {}).setdefault(iteration, order)
            if query.cell is None:
                check_consistency(counts, tables.setdefault(order.block, counts), iteration)
            else:
                single.setdefault(iteration, []).append((counts, reports))
        if single:
            tables[0] = self._joined(single)
        return self._verified(tables, drawn, len(queries))

    def _queries(self, random: Stream) -> list[Query]:
        """Draw q and n_r of every query, lines 2 to 5; hardened cells are asked in random order."""
        low, high = self.duplications
        parts: list[tuple[tuple[int, ...] | None, int]] = [(None, b) for b in range(self.blocks)]
        if self.variant == "cells":
            every = itertools.product(*(range(self.n_cells_of[n]) for n in self.parties))
            parts = [(cell, 0) for cell in every]
        queries = []
        for cell, block in parts:
            deck = low + random.permutation(high - low + 1)
            distinct = self.hardened and self.iterations <= len(deck)
            for j in range(self.iterations):
                q = int(deck[j]) if distinct else random.integer(low, high + 1)
                extra = random.integer(self.artificial[0], self.artificial[1] + 1)
                order = replace(self._order, duplications=q, artificial=extra, block=block)
                queries.append(Query(j + 1, cell, order))
        if self.hardened and self.variant == "cells":
            queries = [queries[i] for i in random.permutation(len(queries))]
        return queries

    def _asked(
        self, name: str, query: Query, counter: Counter, wait: Callable[[], object], timeout: float
    ) -> tuple[Counts, list[Report]]:
        """Ask one query and check its answer, lines 6 to 22."""
        # the task party knows its rows by their tokens: one per cell, or it would learn the data
        # parties' cells of each row
        orders = [replace(query.order, cell=c) for c in query.cell or [None] * len(self.parties)]
        orders[0] = replace(orders[0], tokens="cell")
        envelopes = {
            party: seal(order.to_bytes(), self._key, "order", name, party)
            for party, order in zip(self.parties, orders, strict=True)
        }
        table = self._table(Job(name, self.parties, envelopes), orders[0], counter, wait, timeout)
        reports = open_reports(table, self.parties, self._key, name, query.iteration)
        check_alignment(reports, self.parties)
        counts = check_counts(table, reports, orders[0], query.iteration)
        if self.hardened and query.cell is None:
            margins = [report.margin for report in reports]
            columns = list(table.tokens.T)
            check_margins(columns, table.counts, margins, self.parties, query.iteration)
        return counts, reports

    def _table(
        self, job: Job, own: Order, counter: Counter, wait: Callable[[], object], timeout: float
    ) -> Table:
        """Hand the job in, again where the server has forgotten it, and wait for the table."""
        until = time.monotonic() + timeout
        table, known = None, False
        try:
            while table is None:
                try:
                    if not known:
                        counter.open(job)
                        counter.submit(job.id, self.name, self.upload(job.id, own))
                        known = True
                    table = counter.table(job.id)
                except JobUnknown:
                    known = False
                if table is None and time.monotonic() > until:
                    raise PartyMissing(
                        f"no table after {timeout:g} s: one of {', '.join(self.parties[1:])} has "
                        "not answered, or the server does not"
                    )
                if table is None:
                    wait()
        finally:
            # a server that will not forget a job hides no other error, and costs no table
            with contextlib.suppress(Exception):
                counter.close(job.id)
        return table

    def _joined(self, single: Mapping[int, list[tuple[Counts, list[Report]]]]) -> Counts:
        """Put the table together that was counted cell by cell, and compare iterations."""
        tables: dict[int, Counts] = {}
        for iteration, counted in sorted(single.items()):
            parts = zip(*(counts for counts, _ in counted), strict=True)
            cells, counts = (np.concatenate(part) for part in parts)
            order = np.lexsort(cells.T[::-1])
            tables[iteration] = cells[order], counts[order]
            check_consistency(tables[iteration], tables[1], iteration)
            if self.hardened:
                margins = [np.zeros(self.n_cells_of[name], np.int64) for name in self.parties]
                for _, reports in counted:
                    for margin, report in zip(margins, reports, strict=True):
                        margin[report.cells[0]] = report.margin[0]
                check_margins(list(cells.T), counts, margins, self.parties, iteration)
        return tables[1]

    def _verified(
        self, tables: Mapping[int, Counts], drawn: Mapping[int, Mapping[int, Order]], queries: int
    ) -> SecureCounts:
        """Merge the tables of all blocks; say what was checked, and what is proven of it."""
        cells, totals = (np.concatenate(part) for part in zip(*tables.values(), strict=True))
        if self.blocks > 1:
            cells, totals = count_tuples(list(cells.T), totals)
        orders = [[order for _, order in sorted(of.items())] for of in drawn.values()]
        weakest = max(orders, key=self._bound)
        proven = self.hardened and self.variant == "table" and self._order.tokens == "row"
        checks = ["seals", "IDs", "non-negativity", "divisibility"]
        checks += ["consistency"] * (self.iterations > 1) + ["total", "margins"] * self.hardened
        return SecureCounts(
            cells, totals, self.task_cells, self.parties,
            tuple(order.duplications for order in weakest),
            tuple(order.artificial for order in weakest),
            queries, self._bound(weakest) if proven else 1.0, tuple(checks), self.blocks,
        )  # fmt: skip

    def _bound(self, orders: Sequence[Order]) -> float:
        rows = self._roster.block(orders[0].block, self.blocks)
        sizes = np.bincount(self._cells[rows])
        if not len(sizes):
            return 0.0  # nothing to falsify
        drawn = [(order.duplications, order.artificial) for order in orders]
        return known_answers(sizes[sizes > 0].tolist(), *zip(*drawn, strict=True))

    def _refuse_changed(self, now: Sequence[Report], first: Sequence[Report]) -> None:
        """Blocks and iterations are merged by the numbers of the cells, which must stay."""
        for name, new, old in zip(self.parties, now, first, strict=True):
            if new.assignment != old.assignment:
                raise PartyChanged(
                    f"the cells of {name!r} have changed during the run: its secret was lost, or "
                    "it came back with other columns, bins or rows; run again"
                )


def count_securely(
    data: VerticalData, *, iterations: int = 2, duplications: int | tuple[int, int] = (2, 3),
    artificial: int | tuple[int, int] | None = None, seed: int | None = None,
    variant: Variant = "table", hardened: bool = True, bins: int = 5, how: How = "width",
    **options: Any,
) -> SecureCounts:  # fmt: skip
    """Count the joint cells of vertical data through the protocol, all roles in this process.

    By default a lie passes with probability 0.0004 at most (:attr:`SecureCounts.bound`).

    Parameters
    ----------
    data : VerticalData
        The data of all parties; each role gets its own only.
    artificial : int or (int, int), optional
        n_r; by default three times the rows.  The paper's 1 to 50 prove nothing.
    seed : int, optional
        Fixes key and secrets, for lessons and tests; by default they come from the system.
    bins, how
        As for :meth:`~fedkit.fedvalue.columns.VerticalData.codes`.
    iterations, duplications, variant, hardened, options
        As for :class:`TaskParty`.  ``variant="cells"`` with hardening is refused: a server that
        knows the true table can deceive it.
    """
    having("data", data, "codes", "ids", "names")
    whole_or_none("seed", seed, 0)
    if variant == "cells" and flag("hardened", hardened):
        raise ValueError(
            'variant is "cells" and hardened is True: a server that knows the true table can '
            "deceive this count, and nothing is proven of it; count a whole table "
            '(variant="table"), or as printed (hardened=False)'
        )
    options |= {
        "iterations": iterations, "duplications": duplications, "variant": variant,
        "hardened": hardened,
        "artificial": safe_artificial(data.n_rows) if artificial is None else artificial,
    }  # fmt: skip
    codes = data.codes(bins, how)
    return count_here(*parties_of(codes, data.ids, data.names, seed=seed, **options))


def safe_artificial(rows: int, blocks: int = 1) -> int:
    """Return as many artificial IDs as make a lie unlikely: three times the rows of a block."""
    return -(-3 * rows // blocks)


def count_here(task: TaskParty, others: Sequence[DataParty]) -> SecureCounts:
    """Count with a server in this process, the data parties side by side in threads."""
    server = CountingServer()
    with ThreadPoolExecutor() as pool:
        return task.count(
            server, wait=lambda: list(pool.map(lambda party: party.serve(server), others))
        )


def parties_of(
    codes: tuple[Any, Any, Sequence[Any]], ids: Any = None, names: Sequence[str] | None = None, *,
    seed: int | None = None, **options: Any,
) -> tuple[TaskParty, list[DataParty]]:  # fmt: skip
    """Set up the roles from the codes of task party, label and data parties.

    `ids` is one list for all (``0..n-1`` by default); `options` are those of :class:`TaskParty`.
    """
    x_task, y, cells = codes
    root = secrets.token_bytes(KEY_BYTES) if seed is None else derive(bytes(32), "lesson", seed)
    key = derive(root, "key")
    who = Roster.of("every party", np.arange(len(y)) if ids is None else ids, key)  # hashed once
    titles = tuple(names) if names else tuple(f"party {i + 1}" for i in range(len(cells)))
    others = [
        DataParty(name, who, column, key, secret=derive(root, "secret", name))
        for name, column in zip(titles, cells, strict=True)
    ]
    if options.get("variant") == "cells":
        options.setdefault("n_cells", {party.name: party.n_cells for party in others})
    own = derive(root, "secret of the task party")
    return TaskParty("task", who, x_task, y, key, titles, secret=own, **options), others


def _range(name: str, value: Any, least: int) -> tuple[int, int]:
    ends = value if isinstance(value, tuple | list) else (value, value)
    low, high = (whole(name, end, least, MOST) for end in ends) if len(ends) == 2 else (1, 0)
    if low > high:
        raise ValueError(f"{name} is {value!r}; expected a whole number, or a pair (low, high)")
    return low, high
