"""Counting cells: how many rows share a value, for one coalition of columns after another.

A coalition's cells are a refinement of the cells of any part of it.  Each is therefore built from
the cells of a smaller coalition by one pass over the rows, and all 2**d coalitions of `d` parties
cost 2**d passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Cells", "CoalitionCells", "dense", "densify", "sum_clogc"]

Codes = NDArray[np.int64]
Counts = NDArray[np.int64]

TABLE_FACTOR = 8  # keys in a range of this many times the rows go through a table, others a sort


def dense(column: ArrayLike) -> tuple[Codes, int]:
    """Return codes moved to start at 0 (relabelled where they are sparse), and their range."""
    code = np.asarray(column).astype(np.int64)
    low = int(code.min(initial=0))
    return densify(code - low, int(code.max(initial=0)) - low + 1)


def densify(key: Codes, size: int) -> tuple[Codes, int]:
    """Relabel keys in ``0..size-1`` to ``0..m-1`` in their order, and return `m` too.

    Time and memory are of the order of the rows, however large `size` is.
    """
    if not _fits(size, len(key)):
        values, inverse = np.unique(key, return_inverse=True)
        return inverse.reshape(-1).astype(np.int64), len(values)
    seen = np.zeros(size, dtype=np.bool_)
    seen[key] = True
    labels = np.cumsum(seen) - 1
    return labels[key], int(labels[-1]) + 1


def _fits(size: int, rows: int) -> bool:
    return size <= TABLE_FACTOR * rows + 2**12


def sum_clogc(counts: Counts) -> float:
    """Return the sum of ``c log c`` over cell counts (natural logarithm).

    Equal counts are taken together, so the result depends on the counts as a multiset only, bit
    for bit: not on the order in which cells were found.
    """
    if counts.max(initial=0) <= 8 * len(counts) + 2**12:
        how_many = np.bincount(counts)
        sizes = np.flatnonzero(how_many)
        how_many = how_many[sizes]
    else:
        sizes, how_many = np.unique(counts, return_counts=True)
    sizes, how_many = sizes[sizes > 1], how_many[sizes > 1]  # 0 log 0 = 1 log 1 = 0
    return float((how_many * (sizes * np.log(sizes))).sum())


@dataclass(eq=False)
class Cells:
    """The cells of one coalition.

    Attributes
    ----------
    members : bool[d]
        The coalition of data parties.
    key : int64[n]
        Cell of each row, below `size`.
    size : int
        Range of the keys.
    pure : bool
        Set by the user of the cells when each cell has one label: a larger coalition can then
        add nothing, and its cells are not worked out (its key has no rows).
    """

    members: NDArray[np.bool_]
    key: Codes
    size: int
    pure: bool = False


class CoalitionCells:
    """Cells of coalitions of data parties, each together with the task party.

    Parameters
    ----------
    task : int[n]
        Cell of each row at the task party.
    label : int[n]
        Label of each row.
    parties : sequence of int[n]
        Cell of each row at each data party.
    weights : int[n], optional
        How many people a row stands for; 1 by default.
    """

    def __init__(
        self,
        task: ArrayLike,
        label: ArrayLike,
        parties: Sequence[ArrayLike],
        weights: ArrayLike | None = None,
    ) -> None:
        key, size = dense(task)
        self.label, self.n_labels = dense(label)
        self.parties = [dense(party) for party in parties]
        self.weights = None if weights is None else np.asarray(weights, dtype=np.int64)
        self.total = len(key) if self.weights is None else int(self.weights.sum())
        self._stack = [Cells(np.zeros(len(parties), dtype=np.bool_), key, size)]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.label)

    def at(self, members: NDArray[np.bool_]) -> Cells:
        """Return the cells of a coalition.

        The coalitions between the empty one and the last are kept, at most d + 1 of them.  So
        the walks of a permutation, and all coalitions in the order of their index, cost one pass
        each; an arbitrary order costs as many as there are parties to add.
        """
        while (self._stack[-1].members & ~members).any():
            self._stack.pop()
        start = self._stack[-1]
        added = np.flatnonzero(members & ~start.members)
        if not len(added):
            return start
        key, size = start.key, start.size
        for party in added if not start.pure else ():
            key, size = densify(key, size)
            code, levels = self.parties[party]
            key, size = key * levels + code, size * levels
        cells = Cells(members.copy(), key[:0] if start.pure else key, size, start.pure)
        self._stack.append(cells)
        return cells

    def counts(self, cells: Cells) -> tuple[Counts, Counts]:
        """Return the counts of the cells, and of the cells split by label (some may be 0)."""
        key, size = cells.key, cells.size
        if size > 2**62 // self.n_labels:
            key, size = densify(key, size)
        both = key * self.n_labels + self.label
        if _fits(size * self.n_labels, self.rows):
            split = self._bincount(both, size * self.n_labels)
            return split.reshape(size, self.n_labels).sum(axis=1), split
        if self.weights is None:
            ordered = np.sort(both)
            starts = _starts(ordered)
            split = np.diff(starts, append=self.rows)
        else:
            order = np.argsort(both, kind="stable")
            ordered = both[order]
            starts = _starts(ordered)
            split = np.add.reduceat(self.weights[order], starts)
        return np.add.reduceat(split, _starts(ordered[starts] // self.n_labels)), split

    def _bincount(self, key: Codes, size: int) -> Counts:
        if self.weights is None:
            return np.bincount(key, minlength=size)
        totals = np.zeros(size, dtype=np.int64)
        np.add.at(totals, key, self.weights)  # whole numbers: bincount would go through floats
        return totals


def _starts(ordered: Codes) -> NDArray[np.int64]:
    """Return where each run of equal keys begins."""
    return np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
