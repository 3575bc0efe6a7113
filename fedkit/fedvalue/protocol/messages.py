"""What travels between the parties and the counting server, and how it is written as bytes.

The server has one operation: join the uploads of all parties on their encrypted IDs and count how
often each tuple of opaque cell tokens occurs.  Algorithm 1 as printed asks for one cell at a time:
all tokens are then 0.  A party may use the server from another process (`fedkit.fedvalue.service`)
or in the same one (:class:`.counting.CountingServer`); both offer :class:`Counter`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ID_BYTES", "Counter", "Job", "MessageError", "Table", "Upload"]

#: bytes of an encrypted ID: one block of AES
ID_BYTES = 16
#: parties of one job, at most
MOST_PARTIES = 1000
_MAGIC = b"FKV1"
#: bytes of a message's head, at most
_HEAD_BYTES = 1 << 20


class MessageError(ValueError):
    """A message that is not what it should be: cut off, oversized, or of wrong content."""


@dataclass(frozen=True, eq=False)
class Job:
    """One counting query: who takes part, and what the task party tells each of them.

    Attributes
    ----------
    id : str
        Name of the job, unique at the server.
    parties : tuple of str
        All who must upload, the task party first.
    envelopes : mapping of str to bytes
        Sealed instructions for each party (number of duplications, artificial IDs, ...): the
        server passes them on and cannot read them.
    """

    id: str
    parties: tuple[str, ...]
    envelopes: Mapping[str, bytes] = field(default_factory=dict)


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
        A message for the task party that the server cannot read.
    """

    ids: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.uint32]
    sealed: bytes = b""

    def __post_init__(self) -> None:
        if self.ids.dtype != np.uint8 or self.ids.ndim != 2 or self.ids.shape[1] != ID_BYTES:
            raise MessageError(
                f"ids are {self.ids.dtype}{list(self.ids.shape)}; uint8[N, {ID_BYTES}] is expected"
            )
        if self.tokens.dtype != np.uint32 or self.tokens.shape != (len(self.ids),):
            raise MessageError(
                f"tokens are {self.tokens.dtype}{list(self.tokens.shape)}; "
                f"uint32[{len(self.ids)}] is expected, one per ID"
            )

    def to_bytes(self) -> bytes:
        """Write the message."""
        return _pack(
            {"kind": "upload", "rows": len(self.ids)},
            np.ascontiguousarray(self.ids).tobytes(), self.tokens.astype("<u4").tobytes(),
            self.sealed,
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> Upload:
        """Read the message.

        Raises
        ------
        MessageError
            If the bytes are anything else.
        """
        head, parts = _unpack(data, "upload", 3)
        if len(parts) > 3:
            raise MessageError(f"the upload has {len(parts)} parts; 3 are expected")
        ids, tokens, sealed = parts
        rows = _count(head, "rows")
        return cls(
            _array(ids, "u1", (rows, ID_BYTES)).copy(),
            _array(tokens, "<u4", (rows,)).astype(np.uint32),
            bytes(sealed),
        )


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
        if self.tokens.dtype != np.uint32 or self.tokens.ndim != 2:
            raise MessageError(
                f"tokens are {self.tokens.dtype}{list(self.tokens.shape)}; uint32[C, P] is expected"
            )
        if self.counts.dtype != np.int64 or self.counts.shape != (len(self.tokens),):
            raise MessageError(
                f"counts are {self.counts.dtype}{list(self.counts.shape)}; "
                f"int64[{len(self.tokens)}] is expected, one per tuple"
            )

    def to_bytes(self) -> bytes:
        """Write the message."""
        names = sorted(self.sealed)
        return _pack(
            {"kind": "table", "rows": len(self.counts), "parties": self.tokens.shape[1],
             "sealed": names},
            self.tokens.astype("<u4").tobytes(), self.counts.astype("<i8").tobytes(),
            *(self.sealed[name] for name in names),
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Table:
        """Read the message.

        Raises
        ------
        MessageError
            If the bytes are anything else.
        """
        head, (tokens, counts, *sealed) = _unpack(data, "table", 2)
        rows, parties, names = _count(head, "rows"), _count(head, "parties"), head.get("sealed")
        if not 1 <= parties <= MOST_PARTIES:
            raise MessageError(f"the table is of {parties} parties; expected 1 to {MOST_PARTIES}")
        if (
            not isinstance(names, list)
            or len(names) != len(sealed)
            or not all(isinstance(name, str) for name in names)
        ):
            raise MessageError("the table's sealed messages do not match their names")
        return cls(
            _array(tokens, "<u4", (rows, parties)).astype(np.uint32, copy=False),
            _array(counts, "<i8", (rows,)).astype(np.int64, copy=False),
            {name: bytes(text) for name, text in zip(names, sealed, strict=True)},
        )


class Counter(Protocol):
    """A counting server, here or elsewhere."""

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


def _unpack(
    data: bytes | bytearray, kind: str, at_least: int
) -> tuple[dict[str, Any], list[memoryview]]:
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
        or len(sizes) < at_least
        or not all(type(size) is int and size >= 0 for size in sizes)
        or end + sum(sizes) != len(data)
    ):
        raise MessageError("the message is cut off, or longer than it says")
    parts, whole = [], memoryview(data)  # views: a table may fill a third of the memory
    for size in sizes:
        parts.append(whole[end : end + size])
        end += size
    return head, parts


def _count(head: dict[str, Any], name: str) -> int:
    value = head.get(name)
    if type(value) is not int or value < 0:
        raise MessageError(f"{name} is {value!r}; a whole number of at least 0 is expected")
    return value


def _array(data: memoryview, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if len(data) != np.dtype(dtype).itemsize * int(np.prod(shape, dtype=object)):
        raise MessageError(f"{len(data)} bytes do not hold an array {dtype}{list(shape)}")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
