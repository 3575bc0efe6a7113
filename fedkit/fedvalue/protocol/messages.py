"""What travels between the parties and the counting server, and how it is written as bytes.

A :class:`Job` announces one count and carries a sealed :class:`Order` to each party; each answers
with an :class:`Upload` and, sealed in it, a :class:`Report` to the task party, who gets the
:class:`Table`: how often each tuple of opaque cell tokens occurs.

An order is JSON of always the same length.  Any other message is four letters, a few numbers of
four bytes, and then arrays whose sizes follow from these numbers, all little-endian.  A message
that is too short or too long by a byte is refused with a :class:`MessageError`.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints, choice, flag, whole

Tokens = Literal["row", "cell"]

#: bytes of the shared key, and of a party's own secret
KEY_BYTES = 32
#: bytes of an encrypted ID; one block of AES
ID_BYTES = 16
#: largest number in an order; far beyond use, and below the index of an artificial ID
MOST = 10**9
#: private IDs that a party adds in a hardened job, at most
PADDING = 255
#: bytes of a digest; against accidents, as whoever has the key may report any
DIGEST_BYTES = 8
#: bytes of an order
_ORDER_BYTES = 256


class MessageError(ValueError):
    """A message that is not what it should be: cut off, oversized, or of wrong content."""


class JobUnknown(MessageError):
    """The server has no such job: it was never opened, is closed, or the server has restarted."""


@dataclass(frozen=True)
class Job:
    """One count: its name at the server, the parties (the task party first), and sealed orders."""

    id: str
    parties: tuple[str, ...]
    envelopes: Mapping[str, bytes] = field(default_factory=dict)
    #: how :mod:`fedkit.fedvalue.http` writes one as JSON
    __pydantic_config__ = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}  # noqa: RUF012


@dataclass(frozen=True)
class Order:
    """What the task party asks of every party in one job, sealed in ``Job.envelopes``."""

    duplications: int  #: q, copies of each ID (Definition 6)
    artificial: int  #: n_r, artificial IDs (Definition 8)
    cell: int | None = None  #: that the job asks for (as printed), or None for the whole table
    #: IDs are encrypted under a key of this job, each party adds up to 255 private IDs that nobody
    #: else has, and the report is as long for every n_r
    hardened: bool = True
    tokens: Tokens = "row"  #: a token of its own for every encrypted ID, or one for every cell
    block: int = 0  #: the part of the IDs that is asked for, from 0
    #: of so many; a power of two, so that parts of two jobs lie within each other or apart, and
    #: never differ by one person
    blocks: int = 1

    def __post_init__(self) -> None:
        whole("duplications", self.duplications, 1, MOST)
        if whole("blocks", self.blocks, 1, MOST).bit_count() > 1:
            raise ValueError(f"blocks is {self.blocks}; expected a power of two, such as 2, 4 or 8")
        whole("block", self.block, 0, self.blocks - 1)
        whole("artificial", self.artificial, 0, MOST)
        if self.cell is not None:
            whole("cell", self.cell, 0, MOST)
        flag("hardened", self.hardened)
        choice("tokens", self.tokens, ("row", "cell"))

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).ljust(_ORDER_BYTES).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        if len(data) != _ORDER_BYTES:
            raise MessageError("the task party's order is damaged, or of another version")
        try:
            return cls(**json.loads(data))
        except (TypeError, ValueError) as error:
            raise MessageError(f"the task party's order cannot be: {error}") from error


@dataclass(frozen=True, eq=False)
class Upload:
    """What one party sends for one job."""

    ids: npt.NDArray[np.uint8]  #: ``[N, 16]``, encrypted, all different
    tokens: npt.NDArray[np.uint32]  #: ``[N]``, opaque name of the cell that each belongs to
    sealed: bytes = b""  #: the :class:`Report`

    def to_bytes(self) -> bytes:
        tokens = self.tokens.astype("<u4")
        sizes = [len(self.ids), len(self.sealed)]
        return _packed(b"FKU2", sizes, self.ids.tobytes(), tokens, self.sealed)

    @classmethod
    def from_bytes(cls, data: bytes) -> Upload:
        (rows, size), body = _opened(b"FKU2", 2, data)
        ids, tokens, sealed = _cut(body, ID_BYTES * rows, 4 * rows, size)
        names = np.frombuffer(ids, np.uint8).reshape(rows, ID_BYTES).copy()
        return cls(names, np.frombuffer(tokens, "<u4").astype(np.uint32), bytes(sealed))


@dataclass(frozen=True, eq=False)
class Report:
    """What a party tells the task party about one upload, sealed."""

    rows: int  #: number of real rows of the party
    digest: bytes  #: keyed digest of its set of IDs; equal sets, equal digests
    assignment: bytes  #: digest, under its own secret, of who is in which of its cells
    cells: Ints  #: ``[T]``, cell that each token stands for; -1 for those of private IDs only
    #: ``[T]``, how many of the IDs that the parties share carry each token (cell by cell; how many
    #: rows are in the cell that is asked for)
    margin: Ints
    artificial: Ints  #: ``[n_r]``, token of each artificial ID

    def to_bytes(self, room: int = 0) -> bytes:
        """Write the report, with room for so many artificial IDs: its length hides their number."""
        filled = bytes(4 * max(0, room - len(self.artificial)))
        numbers = np.concatenate([self.cells, self.margin, self.artificial]).astype("<i4")
        sizes = [self.rows, len(self.cells), len(self.artificial), len(filled)]
        return _packed(b"FKR3", sizes, self.digest, self.assignment, numbers, filled)

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        (rows, tokens, extra, filled), body = _opened(b"FKR3", 4, data)
        sizes = DIGEST_BYTES, DIGEST_BYTES, 4 * tokens, 4 * tokens, 4 * extra, filled
        digest, assignment, *parts, _ = _cut(body, *sizes)
        numbers = (np.frombuffer(part, "<i4").astype(np.int64) for part in parts)
        report = cls(rows, bytes(digest), bytes(assignment), *numbers)
        known = (report.artificial >= 0) & (report.artificial < tokens)
        if not known.all() or (report.margin < 0).any():
            raise MessageError("a party's report does not fit together")
        return report


@dataclass(frozen=True, eq=False)
class Table:
    """What the server answers: how often each tuple of tokens occurs."""

    #: ``[C, P]``, one row per tuple that occurs, one column per party in the job's order
    tokens: npt.NDArray[np.uint32]
    counts: Ints  #: ``[C]``, number of encrypted IDs in the intersection that carry this tuple
    sealed: Sequence[bytes] = ()  #: the parties' reports for the task party, in the same order

    def to_bytes(self) -> bytes:
        sizes = [len(text) for text in self.sealed]
        return _packed(
            b"FKT2", [*self.tokens.shape, len(sizes)], np.array(sizes, "<u4"),
            self.tokens.astype("<u4"), self.counts.astype("<i8"), *self.sealed,
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Table:
        (rows, parties, reports), body = _opened(b"FKT2", 3, data)
        (head,), rest = _cut(body[: 4 * reports], 4 * reports), body[4 * reports :]
        sizes = np.frombuffer(head, "<u4").tolist()
        tokens, counts, *sealed = _cut(rest, 4 * rows * parties, 8 * rows, *sizes)
        return cls(  # views: a table may fill a third of the memory
            np.frombuffer(tokens, "<u4").reshape(rows, parties).astype(np.uint32, copy=False),
            np.frombuffer(counts, "<i8").astype(np.int64, copy=False),
            tuple(map(bytes, sealed)),
        )


class Counter(Protocol):
    """A counting server: in this process, or elsewhere (:mod:`fedkit.fedvalue.http`)."""

    def open(self, job: Job) -> None:
        """Announce a job; the same job again changes nothing, another of its name is refused."""

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that still wait for a party's upload, oldest first."""

    def submit(self, job: str, party: str, upload: Upload) -> None:
        """Hand in an upload; the same one again changes nothing, a different one is refused."""

    def table(self, job: str) -> Table | None:
        """Return the counts, None while uploads are missing; JobUnknown if there is no such job."""

    def close(self, job: str) -> None:
        """Forget a job and its uploads; an unknown one is ignored."""


def _packed(kind: bytes, numbers: Sequence[int], *parts: bytes | npt.NDArray[Any]) -> bytes:
    head = kind + struct.pack(f"<{len(numbers)}I", *numbers)
    return b"".join([head, *(p if isinstance(p, bytes) else p.tobytes() for p in parts)])


def _opened(kind: bytes, numbers: int, data: bytes | bytearray) -> tuple[Any, memoryview]:
    end = 4 + 4 * numbers
    if data[:4] != kind or len(data) < end:
        raise MessageError(f"this is not the message that is expected ({kind!r})")
    return struct.unpack(f"<{numbers}I", data[4:end]), memoryview(data)[end:]


def _cut(body: memoryview, *sizes: int) -> list[memoryview]:
    if sum(sizes) != len(body):
        raise MessageError("the message is cut off, or longer than it says")
    ends = itertools.accumulate(sizes)
    return [body[end - size : end] for size, end in zip(sizes, ends, strict=True)]
