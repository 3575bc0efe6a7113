"""The counting server: it joins encrypted IDs and counts tuples of opaque tokens.

The server holds no key and is trusted with nothing: the task party checks what it answers
(:mod:`.verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints
from fedkit.fedvalue.protocol.messages import Job, JobUnknown, MessageError, Table, Upload

_WORD = 2**62


@dataclass
class OpenJob:
    """A job that is being counted."""

    job: Job
    uploads: dict[str, Upload] = field(default_factory=dict)
    table: Table | None = None

    def missing(self) -> list[str]:
        """Return the parties whose uploads are missing."""
        return [party for party in self.job.parties if party not in self.uploads]


class CountingServer:
    """A counting server in this process (:class:`.messages.Counter`); uploads live in memory."""

    def __init__(self) -> None:
        self._jobs: dict[str, OpenJob] = {}

    def open(self, job: Job) -> None:
        if not job.parties or len(set(job.parties)) != len(job.parties):
            raise MessageError(f"job {job.id} has the parties {job.parties}: each once")
        if self._jobs.setdefault(job.id, OpenJob(job)).job != job:
            raise MessageError(f"job {job.id} exists already and is another one")

    def pending(self, party: str) -> list[Job]:
        return [held.job for held in list(self._jobs.values()) if party in held.missing()]

    def submit(self, job: str, party: str, upload: Upload) -> None:
        held = self.held(job)
        known = held.uploads.setdefault(party, upload)
        if known is not upload and known.to_bytes() != upload.to_bytes():
            raise MessageError(f"{party!r} has already sent something else for job {job}")

    def table(self, job: str) -> Table | None:
        held = self.held(job)
        if held.table is None and not held.missing():
            parties = held.job.parties
            held.table = count_uploads([held.uploads[name] for name in parties], parties)
        return held.table

    def close(self, job: str) -> None:
        self._jobs.pop(job, None)

    def held(self, job: str) -> OpenJob:
        """Return an open job with its uploads."""
        if job not in self._jobs:
            raise JobUnknown(f"there is no job {job!r}")
        return self._jobs[job]


def count_uploads(uploads: Sequence[Upload], parties: Sequence[str]) -> Table:
    """Join the parties' uploads on their encrypted IDs and count the tuples of tokens.

    Two IDs of one party that begin with the same 8 bytes are refused as equal; of 10^7 different
    ones two do with probability below 10^-5, and another run has other keys.
    """
    keys = [sorted_halves(upload.ids) for upload in uploads]
    for name, (high, _, _) in zip(parties, keys, strict=True):
        if np.any(high[1:] == high[:-1]):
            raise MessageError(f"{name!r} sent an encrypted ID twice; all must differ")
    high, low, order = keys[0]
    rows = [order]
    for other_high, other_low, order in keys[1:]:
        at = np.searchsorted(other_high, high)
        here = np.flatnonzero(at < len(other_high))
        at = at[here]
        hit = (other_high[at] == high[here]) & (other_low[at] == low[here])
        here, at = here[hit], at[hit]
        high, low = high[here], low[here]
        rows = [row[here] for row in rows] + [order[at]]
    columns = [upload.tokens[row] for upload, row in zip(uploads, rows, strict=True)]
    tuples, counts = count_tuples(columns)
    sealed = tuple(upload.sealed for upload in uploads)
    return Table(tuples.astype(np.uint32, copy=False), counts, sealed)


def sorted_halves(ids: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], ...]:
    """Return the first and second 8 bytes of each ID, ascending by both, and that order."""
    halves = np.ascontiguousarray(ids).view(">u8")
    high, low = (half.astype(np.uint64) for half in halves.T)
    if np.all(high[1:] > high[:-1]):  # as honest parties send them
        return high, low, np.arange(len(high))
    order = np.lexsort((low, high))
    return high[order], low[order], order


def count_tuples(
    columns: Sequence[npt.NDArray[Any]], weights: Ints | None = None
) -> tuple[npt.NDArray[Any], Ints]:
    """Count how often each tuple occurs in columns of non-negative numbers.

    A row counts as `weights` (``int64[n]``), or once.  Returned are the tuples that occur,
    ``[C, P]`` in the columns' type, and ``int64[C]`` counts.  Their order depends on them alone:
    ascending by all columns, or by one whose values all differ.
    """
    if weights is None:
        for column in columns:
            if (order := _order_if_distinct(column)) is not None:
                tuples = np.stack([column[order] for column in columns]).T
                return tuples, np.ones(len(order), dtype=np.int64)
    code = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        size = int(column.max()) + 1 if len(column) else 1
        if span * size > _WORD:  # too wide for one word: number what has occurred so far
            levels, code = np.unique(code, return_inverse=True)
            span = len(levels)
        code = code * size + column.astype(np.int64)
        span *= size
    order = np.argsort(code.view(np.uint64))
    code = code[order]
    starts = np.flatnonzero(np.append(True, code[1:] != code[:-1])[: len(code)])
    if weights is None:
        counts = np.diff(np.append(starts, len(code)))
    else:
        counts = np.add.reduceat(weights[order], starts) if len(starts) else weights[:0]
    return np.stack([column[order[starts]] for column in columns]).T, counts


def _order_if_distinct(column: npt.NDArray[Any]) -> Ints | None:
    """Return the ascending order of numbers that all differ and are not spread wide, else None."""
    size = int(column.max()) + 1 if len(column) else 0
    if size < len(column) or size > 8 * len(column):
        return None
    place = np.full(size, -1)
    place[column] = np.arange(len(column))
    order = place[place >= 0]
    return order if len(order) == len(column) else None
