"""What a party does with a counting job: encrypted IDs, opaque tokens, a sealed report."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.bounds import spread
from fedkit.fedvalue.protocol.keys import (
    HASH_BYTES,
    Stream,
    derive,
    encrypt_blocks,
    hash_ids,
    seal,
    unseal,
)
from fedkit.fedvalue.protocol.messages import ID_BYTES, Counter, Job, MessageError, Upload

__all__ = ["DataParty", "Order", "Party", "Report"]

Tokens = Literal["row", "cell"]

#: largest number in an order: far beyond use, and below the index of an artificial ID
MOST = 2**31 - 1
#: index of an artificial ID in its block; copies of real IDs count from 0
_ARTIFICIAL = b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class Order:
    """What the task party asks of every party in one job, sealed in ``Job.envelopes``.

    Attributes
    ----------
    duplications : int
        q, copies of each ID (Definition 6).
    artificial : int
        n_r, number of artificial IDs (Definition 8); they follow from the key and the job's name.
    cell : int or None
        The cell that the job asks for (the printed protocol), or None for the whole table.
    fresh : bool
        Whether IDs are encrypted under a key of this job, or of the federation.
    padding : int
        Each party adds up to this many private IDs that nobody else has.
    tokens : {"row", "cell"}
        A token of its own for every encrypted ID, or one for every cell.
    """

    duplications: int
    artificial: int
    cell: int | None = None
    fresh: bool = True
    padding: int = 255
    tokens: Tokens = "row"

    def to_bytes(self) -> bytes:
        """Write the order."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        """Read the order.

        Raises
        ------
        MessageError
            If it is not one.
        """
        try:
            order = cls(**json.loads(data))
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError("the task party's order is damaged") from error
        for name, low in (("duplications", 1), ("artificial", 0), ("padding", 0), ("cell", 0)):
            value = getattr(order, name)
            whole = type(value) is int and low <= value <= MOST
            if not (whole or (name == "cell" and value is None)):
                raise MessageError(
                    f"the task party's order has {name} = {_shown(value)}; expected is a whole "
                    f"number from {low} to {MOST}"
                )
        if type(order.fresh) is not bool or order.tokens not in ("row", "cell"):
            raise MessageError(
                f"the task party's order has fresh = {_shown(order.fresh)} and tokens = "
                f"{_shown(order.tokens)}; expected are true or false, and row or cell"
            )
        return order


@dataclass(frozen=True, eq=False)
class Report:
    """What a party tells the task party about one upload, sealed.

    Attributes
    ----------
    rows : int
        Number of real rows of the party.
    digest : str
        Keyed digest of its set of IDs: equal sets, equal digests.
    cells : int64[T]
        Cell that each token stands for; -1 for tokens of private IDs only.
    margin : int64[T]
        How many of the IDs that the parties share carry each token (cell by cell: how many rows
        are in the cell that is asked for).
    artificial : int64[n_r]
        Token of each artificial ID.
    """

    rows: int
    digest: str
    cells: npt.NDArray[np.int64]
    margin: npt.NDArray[np.int64]
    artificial: npt.NDArray[np.int64]

    def to_bytes(self) -> bytes:
        """Write the report."""
        head = json.dumps([self.rows, self.digest, len(self.cells)]).encode()
        arrays = [self.cells, self.margin, self.artificial]
        return head + b"\n" + b"".join(array.astype("<i4").tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Read the report.

        Raises
        ------
        MessageError
            If it is not one.
        """
        head, _, body = data.partition(b"\n")
        try:
            rows, digest, tokens = json.loads(head)
            values = np.frombuffer(body, dtype="<i4").astype(np.int64)
            report = cls(rows, digest, *np.split(values, [tokens, 2 * tokens]))
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError("a party's report is damaged") from error
        sound = type(rows) is int and isinstance(digest, str) and len(report.margin) == tokens >= 0
        low, high = report.artificial.min(initial=0), report.artificial.max(initial=-1)
        if not sound or low < 0 or high >= tokens or report.margin.min(initial=0) < 0:
            raise MessageError("a party's report does not fit together")
        return report


class Party:
    """A party's own data and how it answers; the base of both roles.

    Parameters
    ----------
    name : str
        Name in the federation.
    ids : sequence of str, int or bytes
        Who its rows are, in any order; each once.
    cells : int array[n]
        Cell of each row: one code for all the discretised columns together.
    key : bytes
        The key that the parties share.
    secret : bytes, optional
        32 bytes of its own, from which all its random choices follow.  Keep it to answer a job in
        the same way after a crash; a task party needs a new one for every run.

    Raises
    ------
    ValueError
        If there are no rows, the lengths differ, or an ID occurs twice.
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
        self._hashes = hash_ids(ids, key)
        self._digest = _digest(self._hashes, ids, name, key)
        levels, dense = np.unique(codes, return_inverse=True)
        number = Stream(self._secret, "cell numbers").permutation(len(levels))
        #: code of the party's cell that goes by each number; the party's own secret
        self.levels = levels[np.argsort(number)].astype(np.int64)
        self._cells = number[dense]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._cells)

    @property
    def n_cells(self) -> int:
        """Number of cells that occur."""
        return len(self.levels)

    def upload(self, job: str, order: Order) -> Upload:
        """Prepare the upload for a job: lines 7 to 11 of Algorithm 1, with tokens."""
        random = Stream(self._secret, "upload", job)
        rows = slice(None) if order.cell is None else np.flatnonzero(self._cells == order.cell)
        hashes, q, extra = self._hashes[rows], order.duplications, order.artificial
        real = len(hashes) * q
        blocks = np.empty((real + extra, ID_BYTES), dtype=np.uint8)
        copies = blocks[:real].reshape(-1, q, ID_BYTES)
        copies[:, :, :HASH_BYTES] = hashes[:, None, :]
        copies[:, :, HASH_BYTES:] = np.arange(q, dtype="<u4").view(np.uint8).reshape(q, 4)
        made = Stream(self._key, "artificial IDs", job).bytes(extra * HASH_BYTES)
        blocks[real:, :HASH_BYTES] = np.frombuffer(made, np.uint8).reshape(extra, HASH_BYTES)
        blocks[real:, HASH_BYTES:] = np.frombuffer(_ARTIFICIAL, np.uint8)
        name = ("ids", job) if order.fresh else ("ids",)
        ids = encrypt_blocks(blocks, derive(self._key, *name))

        # artificial IDs fall into the party's cells in proportion to its rows: each has its share
        if order.cell is None:
            given = spread(extra, np.bincount(self._cells))
            like = np.repeat(np.arange(len(given)), given)[random.permutation(extra)]
        else:
            like = np.full(extra, order.cell)
        cells = np.concatenate([np.repeat(self._cells[rows], q), like])
        if order.padding:
            size = random.integer(0, order.padding + 1)
            own = np.frombuffer(random.bytes(size * ID_BYTES), np.uint8).reshape(-1, ID_BYTES)
            ids = np.concatenate([ids, own])
        tokens, cell_of = self._tokens(cells, len(ids), order, random)
        margin = np.bincount(tokens[: len(cells)], minlength=len(cell_of))
        if order.cell is not None:
            margin = np.array([len(hashes)])
        # ascending order of what is encrypted: the order of the rows would tell copies apart
        sort = np.argsort(ids.view(">u8")[:, 0].astype(np.uint64), kind="stable")
        report = Report(
            len(self._hashes), self._digest, cell_of, margin, tokens[real : real + extra]
        )
        return Upload(
            ids.view(f"V{ID_BYTES}")[:, 0][sort].view(np.uint8).reshape(-1, ID_BYTES),
            tokens[sort].astype(np.uint32),
            seal(report.to_bytes(), self._key, "report", job, self.name),
        )

    def _tokens(
        self, cells: npt.NDArray[np.int64], size: int, order: Order, random: Stream
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return one fresh token per ID, the private ones at the end, and the tokens' cells."""
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
    """A data party: it answers the task party's jobs, and keeps its columns to itself.

    Parameters are those of :class:`Party`.
    """

    def order(self, job: Job) -> Order:
        """Open the envelope for this party.

        Raises
        ------
        SealError
            If it was not sealed by someone with the key, for this job and this party.
        MessageError
            If there is none, or no order in it.
        """
        if self.name not in job.envelopes:
            raise MessageError(f"job {job.id} brings no envelope for {self.name!r}")
        order = unseal(job.envelopes[self.name], self._key, "order", job.id, self.name)
        return Order.from_bytes(order)

    def answer(self, job: Job) -> Upload:
        """Prepare the upload that a job orders; the same job, the same bytes.

        Raises
        ------
        SealError, MessageError
            As :meth:`order`.
        """
        return self.upload(job.id, self.order(job))

    def content(self, job: Job) -> str:
        """Return a digest of all that the answer to a job follows from, under the party's secret.

        Keep it with the job's name: a job of the same name and another digest, because the order or
        the party's data have changed, must not be answered.
        """
        total = hashlib.blake2b(key=derive(self._secret, "content"), digest_size=16)
        total.update(hashlib.sha256(job.envelopes.get(self.name, b"")).digest())
        total.update(self._hashes.tobytes())
        total.update(self._cells.astype("<i8").tobytes())
        return total.hexdigest()

    def serve(self, counter: Counter) -> int:
        """Answer all jobs that wait for this party; return how many."""
        jobs = counter.pending(self.name)
        for job in jobs:
            counter.submit(job.id, self.name, self.answer(job))
        return len(jobs)


def _shown(value: Any) -> str:
    """Return a foreign value in a few characters."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value)[:40] if plain else f"a {type(value).__name__}"


def _digest(hashes: npt.NDArray[np.uint8], ids: Any, name: str, key: bytes) -> str:
    """Return the keyed digest of a set of IDs, and refuse an ID that occurs twice."""
    words = np.ascontiguousarray(hashes).view("<u4")
    high = words[:, 0].astype(np.uint64) << np.uint64(32) | words[:, 1].astype(np.uint64)
    order = np.argsort(high, kind="stable")
    if np.any(high[order][1:] == high[order][:-1]):
        order = np.lexsort((words[:, 2], high))
        same = (words[order[1:]] == words[order[:-1]]).all(axis=1)
        if same.any():
            twice = ids[int(order[1:][same][0])]
            raise ValueError(f"{name} holds the ID {twice!r} more than once; an ID is one row")
    return hashlib.blake2b(
        hashes[order].tobytes(), key=derive(key, "set"), digest_size=16
    ).hexdigest()
