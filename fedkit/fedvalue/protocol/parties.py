"""The roles: how a data party answers a counting job, and how the task party orders and checks."""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.checks import choice, one_line, whole
from fedkit.fedvalue.cmi import PartyValues, mshapley_from_table
from fedkit.fedvalue.protocol.bounds import known_answers, spread
from fedkit.fedvalue.protocol.counting import ascending, count_tuples, sorted_halves
from fedkit.fedvalue.protocol.keys import (
    HASH_BYTES,
    Stream,
    derive,
    encrypt_blocks,
    hash_ids,
    seal,
    unseal,
)
from fedkit.fedvalue.protocol.messages import (
    DIGEST_BYTES,
    ID_BYTES,
    MOST,
    PADDING,
    Counter,
    Job,
    MessageError,
    Order,
    Report,
    Tokens,
    Upload,
)
from fedkit.fedvalue.protocol.verification import (
    Counts,
    check_alignment,
    check_consistency,
    check_counts,
    check_margins,
    open_reports,
)

__all__ = [
    "DataParty", "Party", "PartyChanged", "PartyMissing", "SecureCounts", "TaskParty", "Variant",
]  # fmt: skip

Variant = Literal["table", "cells"]

#: rows of a block, on average at least: the table of a block of one would be that person's cells
LEAST_ROWS = 1000

#: index of an artificial ID in its block; copies of real IDs count from 0
_ARTIFICIAL = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Roster:
    """Keyed hashes of a party's IDs, a keyed digest of the set, and the rows in hash order."""

    hashes: npt.NDArray[np.uint8]
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
        own = _digest(derive(key, "set"), hashes[order].tobytes())
        return cls(hashes, own, order.astype(np.int32))

    def __len__(self) -> int:
        return len(self.hashes)

    def block(self, number: int, blocks: int) -> npt.NDArray[np.int32]:
        """Rows of one of several equal ranges of hashes: the same IDs at every party."""

        def share(row: int) -> int:
            return int.from_bytes(self.hashes[row].tobytes(), "big") * blocks >> 8 * HASH_BYTES

        ends = [bisect.bisect_left(self.order, b, key=share) for b in (number, number + 1)]
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
        follow.  With the same secret it answers a job in the same way after a crash; a task party
        needs a new one for every run.

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
        self.name, self._key = name, key
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._roster = ids if isinstance(ids, Roster) else Roster.of(name, ids, key)
        levels, dense = np.unique(codes, return_inverse=True)
        number = Stream(self._secret, "cell numbers").permutation(len(levels))
        self.levels = levels[np.argsort(number)].astype(np.int64)
        self._cells = number[dense].astype(np.int32)
        by_hash = self._cells[self._roster.order].astype("<i4").tobytes()
        self._assignment = _digest(derive(self._secret, "cells"), self._roster.digest + by_hash)

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
        """Prepare the upload for a job: lines 7 to 11 of Algorithm 1, with tokens."""
        random = Stream(self._secret, "upload", job)
        hashes, real = self._roster.hashes, self._cells
        if order.blocks > 1 and self.n_rows < LEAST_ROWS * order.blocks:
            raise MessageError(
                f"{self.name} has {self.n_rows} rows and is asked for {order.blocks} blocks; one "
                f"has {LEAST_ROWS} rows at least, for the task party knows who is in a block"
            )
        if order.cell is not None or order.blocks > 1:
            rows = self._roster.block(order.block, order.blocks)
            if order.cell is not None:
                rows = np.flatnonzero(real == order.cell)
            hashes, real = hashes[rows], real[rows]
        q, extra, copies = order.duplications, order.artificial, len(hashes) * order.duplications
        blocks = np.empty((copies + extra, ID_BYTES), dtype=np.uint8)
        blocks[:copies, :HASH_BYTES].reshape(-1, q, HASH_BYTES)[:] = hashes[:, None]
        made = Stream(self._key, "artificial IDs", job).bytes(extra * HASH_BYTES)
        blocks[copies:, :HASH_BYTES] = np.frombuffer(made, np.uint8).reshape(extra, HASH_BYTES)
        index = blocks[:, HASH_BYTES:].view("<u4")[:, 0]
        index[:copies].reshape(-1, q)[:], index[copies:] = np.arange(q), _ARTIFICIAL
        ids = encrypt_blocks(blocks, derive(self._key, "ids", *[job] * order.hardened))

        # artificial IDs fall into the party's cells in proportion to its rows: each has its share
        if order.cell is None:
            sizes = np.bincount(real if len(real) else self._cells)  # a block may have no rows
            held = np.flatnonzero(sizes)
            like = np.repeat(held, spread(extra, sizes[held]))[random.permutation(extra)]
        else:
            like = np.full(extra, order.cell)
        cells = np.concatenate([np.repeat(real, q), like])
        if order.hardened:
            size = random.integer(0, PADDING + 1)
            own = np.frombuffer(random.bytes(size * ID_BYTES), np.uint8).reshape(-1, ID_BYTES)
            ids = np.concatenate([ids, own])
        tokens, cell_of = self._tokens(cells, len(ids), order, random)
        margin = np.bincount(tokens[: len(cells)], minlength=len(cell_of))
        if order.cell is not None:
            margin = np.array([len(hashes)])
        made_up = tokens[len(cells) - extra : len(cells)]
        digests = self._roster.digest, self._assignment
        report = Report(self.n_rows, *digests, cell_of, margin, made_up)
        text = report.to_bytes(room=len(ids) if order.hardened else 0)
        # ascending order of what is encrypted: the order of the rows would tell copies apart
        sort = ascending(ids.view(">u8")[:, 0].astype(np.uint64))
        return Upload(
            ids.view(np.complex128)[sort].view(np.uint8),  # 16 bytes move as one number
            tokens[sort].astype(np.uint32),
            seal(text, self._key, "report", job, self.name),
        )

    def _tokens(
        self, cells: npt.NDArray[np.int64], size: int, order: Order, random: Stream
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
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

    def content(self, job: Job) -> str:
        """Return a digest of all that the answer to a job follows from, under the party's secret.

        A job of the same name and another digest must not be answered.
        """
        total = hashlib.blake2b(key=derive(self._secret, "content"), digest_size=16)
        total.update(hashlib.sha256(job.envelopes.get(self.name, b"")).digest())
        total.update(self._roster.hashes.tobytes())
        total.update(self._cells.astype("<i8").tobytes())
        return total.hexdigest()

    def serve(self, counter: Counter) -> int:
        """Answer all jobs that wait for this party; return how many."""
        jobs = counter.pending(self.name)
        for job in jobs:
            counter.submit(job.id, self.name, self.answer(job))
        return len(jobs)


class PartyMissing(TimeoutError):
    """No table in time: a party has not answered, or the server does not."""


class PartyChanged(ValueError):
    """A party's cells are not those that it had in the first job of the run."""


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
        (:func:`.bounds.known_answers`); 1, which says nothing, unless whole tables are counted,
        hardened, with a token for every row.
    checks : tuple of str
        What held in every answer.
    blocks : int
        Parts that were counted and checked by themselves.
    """

    cells: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    task_cells: npt.NDArray[np.int64]
    parties: tuple[str, ...]
    duplications: tuple[int, ...]
    artificial: tuple[int, ...]
    queries: int
    bound: float = 1.0
    checks: tuple[str, ...] = ()
    blocks: int = 1

    def values(self, **options: Any) -> PartyValues:
        """Return what :func:`~fedkit.fedvalue.cmi.mshapley_from_table` makes of it."""
        return mshapley_from_table(
            self.cells, self.task_cells, self.counts, names=self.parties[1:], **options
        )


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
        counted and checked by itself, with artificial IDs of its own.  Memory falls with their
        number; the bound is that of the weakest part.  The task party can tell who is in a part and
        sees its table, so parties refuse less than 1,000 rows a part on average, and numbers whose
        parts differ by few people (:class:`.messages.Order`).
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
        self.duplications = _range("duplications", duplications)
        self.artificial = _range("artificial", artificial)
        self.variant, self.hardened = variant, bool(hardened)
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

        Each call has jobs, keys and random numbers of its own.  The first call of another object
        with the same secret repeats those of this object's first: so a run is taken up after a
        crash.  While uploads are missing `wait` is called, which by default sleeps 0.05 s, for
        `timeout` seconds a query.

        Raises
        ------
        CheatingDetected, AlignmentError, PartyChanged, PartyMissing
            If an answer fails a check, and nothing of the table is then to be trusted; a party
            holds other IDs, or other cells than in an earlier query; one is not answered in time.
        """
        if self.blocks > 1 and self.n_rows < LEAST_ROWS * self.blocks:  # before a job is opened
            most = 2 ** (max(1, self.n_rows // LEAST_ROWS).bit_length() - 1)
            raise ValueError(
                f"blocks is {self.blocks}; at most {most} for {self.n_rows} rows, as one has "
                f"{LEAST_ROWS} at least"
            )
        random = Stream(self._secret, "orders", self._runs)
        self._runs += 1
        session = random.bytes(8).hex()
        wait = wait or functools.partial(time.sleep, 0.05)
        queries = self._queries(random)
        answers: dict[int, list[tuple[Counts, list[Report]]]] = {}
        tables: dict[int, Counts] = {}
        drawn: dict[int, dict[int, Order]] = {}
        first: list[bytes] = []
        for number, (iteration, cell, order) in enumerate(queries):
            counts, reports = self._query(
                f"{session}-{number}", iteration, cell, order, counter, wait, timeout
            )
            now = [report.assignment for report in reports]
            first = first or now
            if now != first:  # blocks are merged by the numbers of the cells
                both = zip(self.parties, now, first, strict=True)
                changed = ", ".join(repr(name) for name, new, old in both if new != old)
                raise PartyChanged(
                    f"the cells of {changed} have changed during the run: its state file was lost, "
                    "or it came back with other columns, bins or rows; run again"
                )
            drawn.setdefault(order.block, {}).setdefault(iteration, order)
            if cell is None:
                check_consistency(counts, tables.setdefault(order.block, counts), iteration)
            else:
                answers.setdefault(iteration, []).append((counts, reports))
        if answers:
            tables[0] = self._joined(answers)
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
            len(queries), self._bound(weakest) if proven else 1.0, tuple(checks), self.blocks,
        )  # fmt: skip

    def _bound(self, orders: Sequence[Order]) -> float:
        rows = self._roster.block(orders[0].block, self.blocks)
        sizes = np.bincount(self._cells[rows])
        if not len(sizes):
            return 0.0  # nothing to falsify
        drawn = [(order.duplications, order.artificial) for order in orders]
        return known_answers(sizes[sizes > 0].tolist(), *zip(*drawn, strict=True))

    def _queries(self, random: Stream) -> list[tuple[int, tuple[int, ...] | None, Order]]:
        """Return (iteration, cell, order) of every query; hardened cell queries in random order."""
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
                queries.append((j + 1, cell, order))
        if self.hardened and self.variant == "cells":
            queries = [queries[i] for i in random.permutation(len(queries))]
        return queries

    def _query(
        self, job: str, iteration: int, cell: tuple[int, ...] | None, order: Order,
        counter: Counter, wait: Callable[[], object], timeout: float,
    ) -> tuple[Counts, list[Report]]:  # fmt: skip
        # the task party knows its rows by their tokens: one per cell, or it would learn the data
        # parties' cells of each row
        orders = [replace(order, cell=c) for c in cell or [None] * len(self.parties)]
        orders[0] = replace(orders[0], tokens="cell")
        envelopes = {
            name: seal(told.to_bytes(), self._key, "order", job, name)
            for name, told in zip(self.parties, orders, strict=True)
        }
        until = time.monotonic() + timeout
        counter.open(Job(job, self.parties, envelopes))
        try:
            counter.submit(job, self.name, self.upload(job, orders[0]))
            while (table := counter.table(job)) is None:
                if time.monotonic() > until:
                    raise PartyMissing(
                        f"no table after {timeout:g} s: one of {', '.join(self.parties[1:])} has "
                        "not answered, or the server does not"
                    )
                wait()
        finally:
            # a server that will not forget a job hides no other error, and costs no table
            with contextlib.suppress(Exception):
                counter.close(job)
        reports = open_reports(table, self.parties, self._key, job, iteration)
        check_alignment(reports, self.parties)
        counts = check_counts(table, reports, orders[0], iteration)
        if self.hardened and cell is None:
            margins = [report.margin for report in reports]
            check_margins(list(table.tokens.T), table.counts, margins, self.parties, iteration)
        return counts, reports

    def _joined(self, answers: Mapping[int, list[tuple[Counts, list[Report]]]]) -> Counts:
        """Put the table together that was counted cell by cell, and compare iterations."""
        tables: dict[int, Counts] = {}
        for iteration, counted in sorted(answers.items()):
            cells, counts = (
                np.concatenate(part) for part in zip(*(c for c, _ in counted), strict=True)
            )
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


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=DIGEST_BYTES).digest()


def _range(name: str, value: Any) -> tuple[int, int]:
    ends = value if isinstance(value, tuple | list) else (value, value)
    if len(ends) != 2:
        raise ValueError(f"{name} is {value!r}; expected a whole number, or a pair (low, high)")
    low, high = (whole(name, end, int(name == "duplications"), MOST) for end in ends)
    if low > high:
        raise ValueError(f"{name} is {value!r}; expected (low, high) with low at most high")
    return low, high
