"""The counting server: it joins encrypted IDs and counts tuples of opaque tokens.

The server holds no key.  It is trusted with nothing: the task party checks what it answers
(:mod:`.verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.messages import Job, MessageError, Table, Upload

__all__ = ["CountingServer", "count_tuples", "count_uploads"]

_WORD = 2**62


class CountingServer:
    """A counting server in this process (:class:`.messages.Counter`); uploads live in memory."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._uploads: dict[str, dict[str, Upload]] = {}
        self._tables: dict[str, Table] = {}

    def open(self, job: Job) -> None:
        """Announce a job; the same job again changes nothing, another of its name is refused."""
        known = self._jobs.get(job.id)
        if known is None:
            if not job.parties or len(set(job.parties)) != len(job.parties):
                raise MessageError(f"job {job.id} has the parties {job.parties}: each once")
            self._jobs[job.id], self._uploads[job.id] = job, {}
        elif (known.parties, dict(known.envelopes)) != (job.parties, dict(job.envelopes)):
            raise MessageError(f"job {job.id} exists already and is another one")

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that still wait for a party's upload, oldest first."""
        return [
            job
            for job in self._jobs.values()
            if party in job.parties and party not in self._uploads[job.id]
        ]

    def submit(self, job: str, party: str, upload: Upload) -> None:
        """Hand in an upload; the same one again changes nothing, a different one is refused."""
        if job not in self._jobs:
            raise MessageError(f"there is no job {job!r}")
        if party not in self._jobs[job].parties:
            raise MessageError(f"{party!r} has no part in job {job}")
        known = self._uploads[job].setdefault(party, upload)
        if known is not upload and not (
            known.sealed == upload.sealed
            and np.array_equal(known.ids, upload.ids)
            and np.array_equal(known.tokens, upload.tokens)
        ):
            raise MessageError(f"{party!r} has already sent something else for job {job}")

    def table(self, job: str) -> Table | None:
        """Return the counts, or None while uploads are missing."""
        if job not in self._jobs:
            raise MessageError(f"there is no job {job!r}")
        parties, uploads = self._jobs[job].parties, self._uploads[job]
        if len(uploads) < len(parties):
            return None
        if job not in self._tables:
            self._tables[job] = count_uploads([uploads[name] for name in parties], parties)
        return self._tables[job]

    def close(self, job: str) -> None:
        """Forget a job and its uploads; an unknown one is ignored."""
        self._jobs.pop(job, None)
        self._uploads.pop(job, None)
        self._tables.pop(job, None)


def count_uploads(uploads: Sequence[Upload], parties: Sequence[str]) -> Table:
    """Join uploads on their encrypted IDs and count the tuples of tokens.

    Parameters
    ----------
    uploads : sequence of Upload
        One per party; sorted by ID they join fastest.
    parties : sequence of str
        Their names, in the same order.

    Raises
    ------
    MessageError
        If a party sent an ID twice.
    """
    keys = []
    for name, upload in zip(parties, uploads, strict=True):
        high, low, order = _sorted_words(upload.ids)
        if np.any((high[1:] == high[:-1]) & (low[1:] == low[:-1])):
            raise MessageError(f"{name!r} sent an encrypted ID twice; all must differ")
        keys.append((high, low, order))
    if any(np.any(high[1:] == high[:-1]) for high, _, _ in keys):
        keys = _ranked(keys)  # two IDs share their first 8 bytes: compare all 16
    high, low, _ = keys[0]
    found = [np.arange(len(high))]
    for other_high, other_low, _ in keys[1:]:
        at = np.searchsorted(other_high, high)
        at[at == len(other_high)] = 0
        hit = (
            (other_high[at] == high) & (other_low[at] == low)
            if len(other_high)
            else np.zeros(len(high), dtype=bool)
        )
        high, low = high[hit], low[hit]
        found = [rows[hit] for rows in found] + [at[hit]]
    columns = [
        (upload.tokens if order is None else upload.tokens[order])[rows]
        for upload, (_, _, order), rows in zip(uploads, keys, found, strict=True)
    ]
    tuples, counts = count_tuples(columns)
    return Table(
        tuples.astype(np.uint32),
        counts,
        {name: upload.sealed for name, upload in zip(parties, uploads, strict=True)},
    )


_Keys = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], "npt.NDArray[np.int64] | None"]


def _sorted_words(ids: npt.NDArray[np.uint8]) -> _Keys:
    """Return the two halves of each ID in ascending order, and the order if it was another."""
    words = np.ascontiguousarray(ids).view(">u8").astype(np.uint64)
    high, low = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    before, after = high[:-1], high[1:]
    if np.all((before < after) | ((before == after) & (low[:-1] <= low[1:]))):
        return high, low, None
    order = np.lexsort((low, high))
    return high[order], low[order], order


def _ranked(keys: Sequence[_Keys]) -> list[_Keys]:
    """Replace both halves by one dense rank over all parties, which keeps the order."""
    high, low = (np.concatenate([key[half] for key in keys]) for half in (0, 1))
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    new = np.concatenate([[False], (high[1:] != high[:-1]) | (low[1:] != low[:-1])])
    rank = np.empty(len(order), dtype=np.uint64)
    rank[order] = np.cumsum(new)
    ends = np.cumsum([len(key[0]) for key in keys])[:-1]
    return [
        (part, np.zeros_like(part), key[2])
        for part, key in zip(np.split(rank, ends), keys, strict=True)
    ]


def count_tuples(
    columns: Sequence[npt.NDArray[Any]],
    weights: npt.NDArray[np.int64] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count how often each tuple occurs in columns of non-negative numbers.

    Parameters
    ----------
    columns : sequence of integers[n]
        At least one.
    weights : int64[n], optional
        Counts that each row stands for; 1 by default.

    Returns
    -------
    tuples : int64[C, P]
        The tuples that occur, in an order that depends on them alone: ascending by all columns,
        or by one whose values all differ.
    counts : int64[C]
        Their counts.
    """
    if weights is None:
        for column in columns:
            if (order := _order_if_distinct(column)) is not None:
                found = np.stack([other[order].astype(np.int64) for other in columns], axis=1)
                return found, np.ones(len(order), dtype=np.int64)
    code = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        size = int(column.max()) + 1 if len(column) else 1
        if span * size > _WORD:  # too wide for one word: number what has occurred so far
            levels, code = np.unique(code, return_inverse=True)
            span = len(levels)
        code = code * size + column.astype(np.int64)
        span *= size
    if weights is None:
        _, first, counts = np.unique(code, return_index=True, return_counts=True)
    else:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        counts = np.bincount(inverse, weights=weights, minlength=len(first))  # exact to 2^53
    tuples = np.stack([column[first].astype(np.int64) for column in columns], axis=1)
    return tuples, counts.astype(np.int64)


def _order_if_distinct(column: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Return the ascending order of numbers that all differ and are not spread wide, else None."""
    size = int(column.max()) + 1 if len(column) else 0
    if size < len(column) or size > 8 * len(column):
        return None
    place = np.full(size, -1)
    place[column] = np.arange(len(column))
    order = place[place >= 0]
    return order if len(order) == len(column) else None
