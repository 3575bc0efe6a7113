"""What travels between the parties and the counting server, and how it is written as bytes.

The server has one operation: join the uploads of all parties on their encrypted IDs and count how
often each tuple of opaque cell tokens occurs.  A :class:`Job` announces it and carries a sealed
:class:`Order` to each party; each answers with an :class:`Upload` and, sealed in it, a
:class:`Report` to the task party, who gets the :class:`Table`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ID_BYTES", "Counter", "Job", "MessageError", "Order", "Report", "Table", "Upload"]

Tokens = Literal["row", "cell"]

#: bytes of an encrypted ID: one block of AES
ID_BYTES = 16
#: largest number in an order: far beyond use, and below the index of an artificial ID
MOST = 2**31 - 1
#: parties of one job, at most
MOST_PARTIES = 1000
_MAGIC = b"FKV1"
#: bytes of a message's head, at most
_HEAD_BYTES = 1 << 20
#: characters of an order and of a report's head, filled up: numbers do not show their digits
_ORDER, _REPORT = 240, 80


class MessageError(ValueError):
    """A message that is not what it should be: cut off, oversized, or of wrong content."""


def whole(name: str, value: Any, low: int = 0, high: int = MOST) -> int:
    """Return a whole number from low to high, or refuse it by name (:class:`MessageError`)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        value = _shown(value)
    elif low <= value <= high:
        return int(value)
    raise MessageError(f"{name} is {value!s:.40}; expected a whole number from {low} to {high}")


def _shown(value: Any) -> str:
    """Return a foreign value in a few characters."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value)[:40] if plain else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Job:
    """One counting query: who takes part, and what the task party tells each of them.

    Attributes
    ----------
    id : str
        Name of the job, unique at the server.
    parties : tuple of str
        All who must upload, the task party first.
    envelopes : mapping of str to bytes
        The sealed :class:`Order` for each party, which the server cannot read.
    """

    id: str
    parties: tuple[str, ...]
    envelopes: Mapping[str, bytes] = field(default_factory=dict)


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
        Hardened: IDs are encrypted under a key of this job and not of the federation, and the
        report is as long for every n_r.
    padding : int
        Each party adds up to this many private IDs that nobody else has.
    tokens : {"row", "cell"}
        A token of its own for every encrypted ID, or one for every cell.
    block, blocks : int
        The job asks for the IDs of this part, from 0, of so many.
    """

    duplications: int
    artificial: int
    cell: int | None = None
    fresh: bool = True
    padding: int = 255
    tokens: Tokens = "row"
    block: int = 0
    blocks: int = 1

    def __post_init__(self) -> None:
        whole("duplications", self.duplications, 1)
        whole("block", self.block, 0, whole("blocks", self.blocks, 1) - 1)
        for name in ("artificial", "padding", *(() if self.cell is None else ("cell",))):
            whole(name, getattr(self, name))
        if not isinstance(self.fresh, bool):
            raise MessageError(f"fresh is {_shown(self.fresh)}; expected true or false")
        if self.tokens not in ("row", "cell"):
            raise MessageError(f'tokens is {_shown(self.tokens)}; expected "row" or "cell"')

    def to_bytes(self) -> bytes:
        """Write the order."""
        return json.dumps(asdict(self), sort_keys=True).ljust(_ORDER).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        """Read the order; a :class:`MessageError` if it is none."""
        try:
            return cls(**json.loads(data))
        except MessageError as error:
            raise MessageError(f"the task party's order cannot be: {error}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError("the task party's order is damaged") from error


@dataclass(frozen=True, eq=False)
class Upload:
    """What one party sends for one job.

    Attributes
    ----------
    ids : uint8[N, 16]
        Encrypted IDs, all different.
    tokens : uint32[N]
        Opaque name of the cell that each belongs to.
    sealed : bytes
        The sealed :class:`Report`, which the server cannot read.
    """

    ids: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.uint32]
    sealed: bytes = b""

    def __post_init__(self) -> None:
        _expect("ids", self.ids, "uint8", (len(self.ids), ID_BYTES))
        _expect("tokens", self.tokens, "uint32", (len(self.ids),))

    def to_bytes(self) -> bytes:
        """Write the message."""
        return _pack({"kind": "upload", "rows": len(self.ids)}, self.ids.tobytes(),
                     self.tokens.astype("<u4").tobytes(), self.sealed)  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> Upload:
        """Read the message; a :class:`MessageError` if the bytes are anything else."""
        head, parts = _unpack(data, "upload")
        if len(parts) != 3:
            raise MessageError(f"the upload has {len(parts)} parts; 3 are expected")
        rows = whole("rows", head.get("rows"))
        return cls(
            _array(parts[0], "u1", (rows, ID_BYTES)).copy(),
            _array(parts[1], "<u4", (rows,)).astype(np.uint32),
            bytes(parts[2]),
        )


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

    def to_bytes(self, room: int = 0) -> bytes:
        """Write the report, with room for so many artificial IDs, whatever their number.

        A seal hides what is written and not how long it is: with room for all IDs that the server
        sees anyway, the length tells it nothing.
        """
        head = json.dumps([self.rows, self.digest, len(self.cells), len(self.artificial)])
        numbers = np.concatenate([self.cells, self.margin, self.artificial]).astype("<i4")
        filled = bytes(4 * max(0, room - len(self.artificial)))
        return head.ljust(_REPORT).encode() + b"\n" + numbers.tobytes() + filled

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Read the report; a :class:`MessageError` if it is none."""
        head, _, body = data.partition(b"\n")
        try:
            rows, digest, tokens, extra = json.loads(head)
            rows, tokens, extra = (whole("a number", value) for value in (rows, tokens, extra))
            numbers = np.frombuffer(body, dtype="<i4").astype(np.int64)
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageError("a party's report is damaged") from error
        parts = np.split(numbers, [tokens, 2 * tokens, 2 * tokens + extra])[:3]
        report = cls(rows, digest, *parts)
        if (
            not isinstance(digest, str)
            or [len(part) for part in parts] != [tokens, tokens, extra]
            or not np.all((report.artificial >= 0) & (report.artificial < tokens))
            or np.any(report.margin < 0)
        ):
            raise MessageError("a party's report does not fit together")
        return report


@dataclass(frozen=True, eq=False)
class Table:
    """What the server answers: how often each tuple of tokens occurs.

    Attributes
    ----------
    tokens : uint32[C, P]
        One row per tuple that occurs, one column per party in the order of ``Job.parties``.
    counts : int64[C]
        Number of encrypted IDs in the intersection that carry this tuple.
    sealed : mapping of str to bytes
        The parties' sealed messages for the task party.
    """

    tokens: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]
    sealed: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _expect("tokens", self.tokens, "uint32", (len(self.tokens), self.tokens.shape[-1]))
        _expect("counts", self.counts, "int64", (len(self.tokens),))

    def to_bytes(self) -> bytes:
        """Write the message."""
        rows, parties = self.tokens.shape
        names = sorted(self.sealed)
        return _pack(
            {"kind": "table", "rows": rows, "parties": parties, "sealed": names},
            self.tokens.astype("<u4").tobytes(), self.counts.astype("<i8").tobytes(),
            *(self.sealed[name] for name in names),
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Table:
        """Read the message; a :class:`MessageError` if the bytes are anything else."""
        head, parts = _unpack(data, "table")
        rows = whole("rows", head.get("rows"))
        parties = whole("parties", head.get("parties"), 1, MOST_PARTIES)
        names = head.get("sealed")
        if (
            not isinstance(names, list)
            or len(names) != len(parts) - 2
            or not all(isinstance(name, str) for name in names)
        ):
            raise MessageError("the table's sealed messages do not match their names")
        return cls(
            _array(parts[0], "<u4", (rows, parties)).astype(np.uint32, copy=False),
            _array(parts[1], "<i8", (rows,)).astype(np.int64, copy=False),
            {name: bytes(text) for name, text in zip(names, parts[2:], strict=True)},
        )


class Counter(Protocol):
    """A counting server: in this process, or elsewhere (``fedkit.fedvalue.service``)."""

    def open(self, job: Job) -> None:
        """Announce a job; the same job again changes nothing, another of its name is refused."""
        ...

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that still wait for a party's upload, oldest first."""
        ...

    def submit(self, job: str, party: str, upload: Upload) -> None:
        """Hand in an upload; the same one again changes nothing, a different one is refused."""
        ...

    def table(self, job: str) -> Table | None:
        """Return the counts, or None while uploads are missing."""
        ...

    def close(self, job: str) -> None:
        """Forget a job and its uploads; an unknown one is ignored."""
        ...


def _pack(head: dict[str, Any], *parts: bytes) -> bytes:
    text = json.dumps(head | {"sizes": [len(p) for p in parts]}, sort_keys=True).encode()
    return b"".join([_MAGIC, struct.pack("<I", len(text)), text, *parts])


def _unpack(data: bytes | bytearray, kind: str) -> tuple[dict[str, Any], list[memoryview]]:
    if data[:4] != _MAGIC or len(data) < 8:
        raise MessageError("this is not a message of fedkit's counting protocol")
    end = 8 + struct.unpack("<I", data[4:8])[0]
    if end > _HEAD_BYTES:
        raise MessageError(f"the head of the message has {end} bytes; {_HEAD_BYTES} are allowed")
    try:
        head = json.loads(data[8:end])
    except (ValueError, RecursionError) as error:  # the second: brackets within brackets
        raise MessageError("the head of the message is damaged") from error
    if not isinstance(head, dict) or head.get("kind") != kind:
        raise MessageError(f"a message of kind {kind!r} is expected")
    sizes = head.get("sizes")
    if (
        not isinstance(sizes, list)
        or not all(type(size) is int and size >= 0 for size in sizes)
        or end + sum(sizes) != len(data)
    ):
        raise MessageError("the message is cut off, or longer than it says")
    parts, rest = [], memoryview(data)[end:]  # views: a table may fill a third of the memory
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    return head, parts


def _expect(name: str, array: npt.NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise MessageError(
            f"{name} are {array.dtype}{list(array.shape)}; expected {dtype}{list(shape)}"
        )


def _array(data: memoryview, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if len(data) != np.dtype(dtype).itemsize * int(np.prod(shape, dtype=object)):
        raise MessageError(f"{len(data)} bytes do not hold an array {dtype}{list(shape)}")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
