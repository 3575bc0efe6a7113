"""How a party answers a counting job: line 1 and lines 7 to 11 of Algorithm 1, with tokens."""

from __future__ import annotations

import bisect
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints
from fedkit.fedvalue.protocol.counting import sorted_halves
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
    PADDING,
    Counter,
    Job,
    MessageError,
    Order,
    Report,
    Upload,
)
from fedkit.fedvalue.protocol.verification import spread

Bytes = npt.NDArray[np.uint8]

#: rows of a block, on average at least; the table of a block of one would be that person's cells
LEAST_ROWS = 1000

#: index of an artificial ID in its block; copies of real IDs count from 0
_ARTIFICIAL = 2**32 - 1


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
        Cell of each row: one code for all the discretised columns together.  ``levels`` has the
        code of the party's cell that goes by each number, its own secret.
    key, secret : bytes
        32 bytes that the parties share, and 32 of its own, from which all its random choices
        follow: with the same secret it answers a job with the same bytes.  A task party needs a
        new one for every run.
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
        self.n_rows, self.n_cells = len(codes), len(levels)
        self._cells = number[dense].astype(np.int32)
        by_hash = self._cells[self._roster.order].astype("<i4").tobytes()
        told = self._roster.digest + by_hash
        self._assignment = digest(self._secret, "cells", told, DIGEST_BYTES)

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

    def _cells_of_artificial(self, order: Order, cells: Any, random: Stream) -> Ints:
        """Put artificial IDs into the party's cells in proportion to its rows."""
        if order.cell is not None:
            return np.full(order.artificial, order.cell)
        sizes = np.bincount(cells if len(cells) else self._cells)  # a block may have no rows
        held = np.flatnonzero(sizes)
        shares = spread(order.artificial, sizes[held])
        return np.repeat(held, shares)[random.permutation(order.artificial)]

    def _tokens(self, cells: Ints, size: int, order: Order, random: Stream) -> tuple[Ints, Ints]:
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

    def _report(self, order: Order, shared: Ints, cell_of: Ints, rows: int) -> Report:
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
