"""The parties: how each answers a counting job, and how the task party orders and checks counts.

They share a key and have an untrusted server count their joint cells (Algorithm 1): one after
another, as printed, or the whole table; with the paper's checks alone, or hardened by ours.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkit.checks import choice, flag, having, one_line, whole
from fedkit.fedvalue.columns import How, VerticalData
from fedkit.fedvalue.information import PartyValues, mshapley_from_table
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples, sorted_halves
from fedkit.fedvalue.protocol.crypto import (
    HASH_BYTES,
    Stream,
    derive,
    digest,
    encrypt_blocks,
    hash_ids,
    seal,
    unseal,
)
from fedkit.fedvalue.protocol.messages import (
    DIGEST_BYTES,
    ID_BYTES,
    KEY_BYTES,
    MOST,
    PADDING,
    Counter,
    Job,
    JobUnknown,
    MessageError,
    Order,
    Report,
    Table,
    Tokens,
    Upload,
)
from fedkit.fedvalue.protocol.verification import (
    Counts,
    check_alignment,
    check_consistency,
    check_counts,
    check_margins,
    known_answers,
    open_reports,
    spread,
)

__all__ = [
    "DataParty", "Party", "PartyChanged", "PartyMissing", "SecureCounts", "TaskParty", "Variant",
    "count_here", "count_securely", "parties_of",
]  # fmt: skip

Variant = Literal["table", "cells"]
Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int64]

#: rows of a block, on average at least: the table of a block of one would be that person's cells
LEAST_ROWS = 1000

#: index of an artificial ID in its block; copies of real IDs count from 0
_ARTIFICIAL = 2**32 - 1


class PartyMissing(TimeoutError):
    """No table in time: a party has not answered, or the server does not."""


class PartyChanged(ValueError):
    """A party's cells are not those that it had in the first job of the run."""


@dataclass(frozen=True, eq=False)
class Roster:
    """Keyed hashes of a party's IDs, a keyed digest of the set, and the rows in hash order."""

    hashes: Bytes
    digest: bytes
    order: npt.NDArray[np.int32]

    @classmethod
    def of(cls, name: str, ids: Any, key: bytes) -> Roster:
        """Hash a party's IDs; a :class:`ValueError` names one that occurs twice."""
        hashes = hash_ids(ids, key)
        high, low, order = sorted_halves(np.pad(hashes, ((0, 0), (0, ID_BYTES - HASH_BYTES))))
        twice = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
        if len(twice):
            who = ids[int(order[twice[0]])]
            raise ValueError(f"{name} holds the ID {who!r} more than once; an ID is one row")
        own = digest(key, "set", hashes[order].tobytes(), DIGEST_BYTES)
        return cls(hashes, own, order.astype(np.int32))

    def __len__(self) -> int:
        return len(self.hashes)

    def block(self, number: int, blocks: int) -> npt.NDArray[np.int32]:
        """Return the rows of one of several equal ranges of hashes: the same IDs at every party."""

        def block_of(row: int) -> int:
            return int.from_bytes(self.hashes[row].tobytes(), "big") * blocks >> 8 * HASH_BYTES

        ends = [bisect.bisect_left(self.order, b, key=block_of) for b in (number, number + 1)]
        return self.order[slice(*ends)]


class Party:
    """A party's own data and how it answers; the base of both roles.

    Parameters
    ----------
    name : str
        Name in the federation.
    ids : sequence of str, int or bytes, or Roster
        Who its rows are, in any order; each once.
    cells : int array[n]
        Cell of each row: one code for all the discretised columns together.
    key, secret : bytes
        32 bytes that the parties share, and 32 of its own, from which all its random choices
        follow: with the same secret it answers a job with the same bytes.  A task party needs a
        new one for every run.

    Attributes
    ----------
    levels : int64[n_cells]
        Code of the party's cell that goes by each number: its own secret.
    """

    def __init__(self, name: str, ids: Any, cells: Any, key: bytes, *, secret: bytes | None = None):
        codes = np.asarray(cells)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(
                f"{name}'s cells are {codes.dtype}{list(codes.shape)}; expected whole numbers, one "
                "per row (fedvalue.joint_codes)"
            )
        if len(ids) == 0 or len(ids) != len(codes):
            raise ValueError(
                f"{name} has {len(ids)} IDs and {len(codes)} rows; expected as many, at least one"
            )
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            size = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ValueError(f"the key is {size}; expected 32 random bytes (crypto.new_key())")
        self.name, self._key = name, key
        self._secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        self._roster = ids if isinstance(ids, Roster) else Roster.of(name, ids, key)
        levels, dense = np.unique(codes, return_inverse=True)
        number = Stream(self._secret, "cell numbers").permutation(len(levels))
        self.levels = levels[np.argsort(number)].astype(np.int64)
        self._cells = number[dense].astype(np.int32)
        by_hash = self._cells[self._roster.order].astype("<i4").tobytes()
        told = self._roster.digest + by_hash
        self._assignment = digest(self._secret, "cells", told, DIGEST_BYTES)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._cells)

    @property
    def n_cells(self) -> int:
        """Number of cells that occur."""
        return len(self.levels)

    def rows_in(self, order: Order) -> int:
        """Return the number of rows in the block that an order is for."""
        return len(self._roster.block(order.block, order.blocks))

    def upload(self, job: str, order: Order) -> Upload:
        """Prepare the upload for a job: line 1 and lines 7 to 11 of Algorithm 1, with tokens."""
        if order.blocks > 1 and self.n_rows < LEAST_ROWS * order.blocks:
            raise MessageError(
                f"blocks is {order.blocks}; expected one of {LEAST_ROWS} rows at least, as the "
                f"task party knows who is in a block, and {self.name} has {self.n_rows} rows"
            )
        random = Stream(self._secret, "upload", job)
        rows = self._rows_asked_for(order)  # line 1: the IDs of the condition
        hashes, cells = self._roster.hashes[rows], self._cells[rows]
        copies = order.duplications * len(cells)
        blocks = np.empty((copies + order.artificial, ID_BYTES), dtype=np.uint8)
        _duplicate(hashes, order.duplications, blocks[:copies])  # lines 8 and 9: DUP
        _add_artificial(self._key, job, blocks[copies:])  # line 10: the union with I^r
        job_key = derive(self._key, "ids", job) if order.hardened else derive(self._key, "ids")
        ids = encrypt_blocks(blocks, job_key)  # line 11: Enc
        artificial = self._cells_of_artificial(order, cells, random)
        cells = np.concatenate([np.repeat(cells, order.duplications), artificial])
        if order.hardened:
            ids = np.concatenate([ids, _private_ids(random)])
        tokens, cell_of = self._tokens(cells, len(ids), order, random)
        report = self._report(order, tokens[: len(cells)], cell_of, len(hashes))
        text = report.to_bytes(room=len(ids) if order.hardened else 0)
        shuffle = np.argsort(ids.view(">u8")[:, 0].astype(np.uint64))  # else copies lie together
        return Upload(
            ids.view(np.complex128)[shuffle].view(np.uint8),  # 16 bytes move as one number
            tokens[shuffle].astype(np.uint32),
            seal(text, self._key, "report", job, self.name),
        )

    def _rows_asked_for(self, order: Order) -> Any:
        if order.cell is not None:
            return np.flatnonzero(self._cells == order.cell)
        if order.blocks > 1:
            return self._roster.block(order.block, order.blocks)
        return slice(None)

    def _cells_of_artificial(self, order: Order, cells: Any, random: Stream) -> Codes:
        """Put artificial IDs into the party's cells in proportion to its rows."""
        if order.cell is not None:
            return np.full(order.artificial, order.cell)
        sizes = np.bincount(cells if len(cells) else self._cells)  # a block may have no rows
        held = np.flatnonzero(sizes)
        shares = spread(order.artificial, sizes[held])
        return np.repeat(held, shares)[random.permutation(order.artificial)]

    def _tokens(self, cells: Codes, size: int, order: Order, random: Stream) -> tuple[Codes, Codes]:
        """Return one fresh token per ID, those of private IDs at the end, and the tokens' cells."""
        if order.cell is not None:
            return np.zeros(size, dtype=np.int64), np.array([order.cell])
        if order.tokens == "row":
            token = random.permutation(size)
            cell_of = np.full(size, -1)
            cell_of[token[: len(cells)]] = cells
            return token, cell_of
        of_cell = random.permutation(self.n_cells)
        spare = random.integers(0, self.n_cells, size - len(cells))
        return np.concatenate([of_cell[cells], spare]), np.argsort(of_cell)

    def _report(self, order: Order, shared: Codes, cell_of: Codes, rows: int) -> Report:
        """Report on the tokens of the IDs that all parties share, artificial ones at the end."""
        margin = np.bincount(shared, minlength=len(cell_of))
        if order.cell is not None:
            margin = np.array([rows])
        made_up = shared[len(shared) - order.artificial :]
        digests = self._roster.digest, self._assignment
        return Report(self.n_rows, *digests, cell_of, margin, made_up)


def _duplicate(hashes: Bytes, q: int, out: Bytes) -> None:
    """Write q copies of each ID, told apart by their index (Definition 6)."""
    out[:, :HASH_BYTES].reshape(-1, q, HASH_BYTES)[:] = hashes[:, None]
    _index(out).reshape(-1, q)[:] = np.arange(q)


def _add_artificial(key: bytes, job: str, out: Bytes) -> None:
    """Write artificial IDs, which all parties draw alike from the key (Definition 8)."""
    made = Stream(key, "artificial IDs", job).bytes(len(out) * HASH_BYTES)
    out[:, :HASH_BYTES] = np.frombuffer(made, np.uint8).reshape(-1, HASH_BYTES)
    _index(out)[:] = _ARTIFICIAL


def _index(blocks: Bytes) -> npt.NDArray[np.uint32]:
    return blocks[:, HASH_BYTES:].view("<u4")[:, 0]


def _private_ids(random: Stream) -> Bytes:
    """Draw up to 255 IDs that nobody else has: they hide how many the party really sends."""
    size = random.integer(0, PADDING + 1)
    return np.frombuffer(random.bytes(size * ID_BYTES), np.uint8).reshape(-1, ID_BYTES)


class DataParty(Party):
    """A data party: it answers the task party's jobs, and keeps its columns to itself."""

    def order(self, job: Job) -> Order:
        """Open the envelope for this party; a SealError or MessageError if that is none."""
        if self.name not in job.envelopes:
            raise MessageError(f"job {job.id} brings no envelope for {self.name!r}")
        order = unseal(job.envelopes[self.name], self._key, "order", job.id, self.name)
        return Order.from_bytes(order)

    def answer(self, job: Job) -> Upload:
        """Prepare the upload that a job orders; the same job, the same bytes."""
        return self.upload(job.id, self.order(job))

    def serve(self, counter: Counter) -> int:
        """Answer all jobs that wait for this party; return how many."""
        jobs = counter.pending(self.name)
        for job in jobs:
            counter.submit(job.id, self.name, self.answer(job))
        return len(jobs)


@one_line
@dataclass(frozen=True, eq=False)
class SecureCounts:
    """The contingency table that the task party has verified.

    Attributes
    ----------
    cells : int64[C, 1 + d], counts : int64[C]
        Joint cells that occur, by the cell of the task party and of each data party, and N of
        each.  A data party's cells go by numbers whose meaning it keeps to itself.
    task_cells : int64[T, 2]
        Codes (x_t, y_t) that each cell of the task party stands for.
    parties : tuple of str
        The task party, then the data parties.
    duplications, artificial : tuple of int
        q and n_r of each iteration: in blocks those of the weakest, where a lie passes most likely;
        cell by cell those of the first query of each.
    queries : int
        Jobs that the server was given.
    bound : float
        Probability, at most, with which a lying server could have changed this table undetected
        (:func:`.verification.known_answers`); 1, which says nothing, unless whole tables are
        counted, hardened, with a token for every row.
    checks : tuple of str
        What held in every answer.
    blocks : int
        Parts that were counted and checked by themselves.
    """

    cells: Codes
    counts: Codes
    task_cells: Codes
    parties: tuple[str, ...]
    duplications: tuple[int, ...]
    artificial: tuple[int, ...]
    queries: int
    bound: float = 1.0
    checks: tuple[str, ...] = ()
    blocks: int = 1

    def values(self, **options: Any) -> PartyValues:
        """Return what :func:`~fedkit.fedvalue.information.mshapley_from_table` makes of it."""
        names = self.parties[1:]
        return mshapley_from_table(self.cells, self.task_cells, self.counts, names=names, **options)


class Query(NamedTuple):
    """One count to ask for: of a joint cell, or of a whole table (cell None)."""

    iteration: int  # from 1
    cell: tuple[int, ...] | None
    order: Order


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
    variant : {"table", "cells"}
        The whole table in one query per iteration, or a query per cell as printed.
    hardened : bool
        Fresh keys, padding, hidden tokens, and checks of total and margins.  Nothing is proven of
        it cell by cell, where a server that knows the true table can deceive.
    tokens : {"row", "cell"}
        Hardened only: data parties give every encrypted ID its own token, or every cell.
    blocks : int
        Whole tables only: the IDs are cut by their hashes into so many parts, a power of two, each
        counted and checked by itself, for less memory.  Parties refuse less than 1,000 rows a part.
    n_cells : mapping of str to int, optional
        Cells of each data party, which ``variant="cells"`` must know to ask for them.
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
        choice("variant", variant, ("table", "cells"))
        if variant == "cells" and set(n_cells or ()) != set(parties):
            raise ValueError(
                'variant="cells" needs n_cells, the number of cells of each data party'
            )
        self.iterations = whole("iterations", iterations, 1, MOST)
        self.duplications = _range("duplications", duplications, 1)
        self.artificial = _range("artificial", artificial, 0)
        self.variant, self.hardened = variant, flag("hardened", hardened)
        self.blocks = whole("blocks", blocks, 1, MOST)
        if blocks > 1 and variant == "cells":
            raise ValueError('blocks cut whole tables: take variant="table", or blocks=1')
        low, tokens = (self.duplications[0], self.artificial[0]), tokens if hardened else "cell"
        self._order = Order(*low, hardened=self.hardened, tokens=tokens, blocks=self.blocks)
        self.n_cells_of = {name: self.n_cells, **(n_cells or {})}
        self._runs = 0

    def count(
        self, counter: Counter, *, wait: Callable[[], object] | None = None, timeout: float = 600.0
    ) -> SecureCounts:
        """Have the server count, check every answer, and return the table.

        Each call has jobs, keys and random numbers of its own; another object with the same secret
        repeats them.  A server that has forgotten a job gets the same job again: nothing is drawn
        anew, or a server could fail until it likes the draw.  While uploads are missing `wait` is
        called, which by default sleeps 0.05 s, for `timeout` seconds a query.

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
        wait = wait or functools.partial(time.sleep, 0.05)
        tables: dict[int, Counts] = {}  # of each block
        single: dict[int, list[tuple[Counts, list[Report]]]] = {}  # cells of each iteration
        drawn: dict[int, dict[int, Order]] = {}  # the first of each iteration, by block
        first: list[bytes] = []
        for number, query in enumerate(queries):
            counts, reports = self._asked(f"{session}-{number}", query, counter, wait, timeout)
            now = [report.assignment for report in reports]
            first = first or now
            self._refuse_changed(now, first)
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

    def _refuse_changed(self, now: Sequence[bytes], first: Sequence[bytes]) -> None:
        """Blocks and iterations are merged by the numbers of the cells, which must stay."""
        both = zip(self.parties, now, first, strict=True)
        changed = ", ".join(repr(name) for name, new, old in both if new != old)
        if changed:
            raise PartyChanged(
                f"the cells of {changed} have changed during the run: its secret was lost, or it "
                "came back with other columns, bins or rows; run again"
            )


def count_securely(
    data: VerticalData, *, iterations: int = 2, duplications: int | tuple[int, int] = (2, 3),
    artificial: int | tuple[int, int] | None = None, seed: int | None = None,
    variant: Variant = "table", hardened: bool = True, bins: int = 5, how: How = "width",
    **options: Any,
) -> SecureCounts:  # fmt: skip
    """Count the joint cells of vertical data through the protocol, all roles in this process.

    By default a lie passes with probability 0.0005 at most (:attr:`SecureCounts.bound`).

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
    if seed is not None:
        whole("seed", seed, 0)
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
    if "task" in titles:
        raise ValueError(
            'a data party is named "task", and that is the task party here; name it otherwise'
        )
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
    if len(ends) != 2:
        raise ValueError(f"{name} is {value!r}; expected a whole number, or a pair (low, high)")
    low, high = (whole(name, end, least, MOST) for end in ends)
    if low > high:
        raise ValueError(f"{name} is {value!r}; expected (low, high) with low at most high")
    return low, high
