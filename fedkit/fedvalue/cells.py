"""Counting cells: how many rows share a value, for one coalition of columns after another.

A coalition's cells are a refinement of the cells of any part of it.  Each is therefore built from
the cells of a smaller coalition by one pass over the rows, and all 2**d coalitions of `d` parties
cost 2**d passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Cells", "CoalitionCells", "densify", "joint_codes", "people", "sum_clogc", "totals"]

Ints = NDArray[np.int64]

TABLE_FACTOR = 8  # keys in a range of this many times the rows go through a table, others a sort


def joint_codes(*columns: ArrayLike) -> Ints:
    """Return dense labels ``0..m-1`` of the rows' joint value over any number of columns.

    Parameters
    ----------
    columns : int array, shape (n,) or (n, f)
        Codes, of equal length; a matrix without columns tells nothing and changes nothing.

    Returns
    -------
    int64 array, shape (n,)
        Equal for two rows if and only if they agree in all columns; in lexicographic order.
    """
    arrays = [np.asarray(column) for column in columns]
    rows = len(arrays[0]) if arrays else 0
    if not rows:
        raise ValueError("the columns have no rows; pass at least one column of at least one row")
    joint, size = np.zeros(rows, dtype=np.int64), 1
    for array in arrays:
        if len(array) != rows:
            raise ValueError(f"a column has {len(array)} rows and the first {rows}; align them")
        for column in array.reshape(rows, -1).T:
            code, levels = _from_zero(column)
            joint, size = densify(joint * levels + code, size * levels)
    return joint


def densify(key: Ints, size: int) -> tuple[Ints, int]:
    """Relabel keys in ``0..size-1`` to ``0..m-1`` in their order, and return `m` too.

    Time and memory are of the order of the rows, however large `size` is.
    """
    if not _fits(size, len(key)):
        values, inverse = np.unique(key, return_inverse=True)
        return inverse, len(values)
    seen = np.zeros(size, dtype=np.bool_)
    seen[key] = True
    labels = np.cumsum(seen) - 1
    return labels[key], int(labels[-1]) + 1


def _from_zero(column: ArrayLike) -> tuple[Ints, int]:
    """Return dense codes from 0, in their order, and how many there are."""
    code = np.asarray(column)
    if code.dtype.kind not in "biu":
        raise ValueError(
            f"codes have dtype {code.dtype}; expected whole numbers, as discretise gives them"
        )
    code = code.astype(np.int64)
    low = int(code.min(initial=0))
    return densify(code - low, int(code.max(initial=0)) - low + 1)


def _fits(size: int, rows: int) -> bool:
    return size <= TABLE_FACTOR * rows + 2**12


def people(weights: ArrayLike) -> Ints:
    """Return how many people each row stands for, or refuse fractions of them."""
    given = np.asarray(weights)
    if given.dtype.kind not in "biu":
        raise ValueError(f"weights are {weights!s:.60}; expected whole numbers of people")
    return given.astype(np.int64)


def totals(key: Ints, size: int, weights: Ints | None = None) -> Ints:
    """Return how many rows, or how much weight, each key in ``0..size-1`` has."""
    if weights is None:
        return np.bincount(key, minlength=size)
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, key, people(weights))  # whole numbers: bincount would go through floats
    return sums


def sum_clogc(counts: Ints) -> float:
    """Return the sum of ``c log c`` over cell counts (natural logarithm).

    Equal counts are taken together: the order in which cells were found changes no bit.
    """
    if _fits(counts.max(initial=0), len(counts)):
        how_many = np.bincount(counts)
        sizes = np.flatnonzero(how_many)
        how_many = how_many[sizes]
    else:
        sizes, how_many = np.unique(counts, return_counts=True)
    sizes, how_many = sizes[sizes > 1], how_many[sizes > 1]  # 0 log 0 = 1 log 1 = 0
    return float((how_many * (sizes * np.log(sizes))).sum())


@dataclass(eq=False)
class Cells:
    """The cells of one coalition of data parties."""

    members: NDArray[np.bool_]
    key: Ints  # of each row, below `size`
    size: int
    # set by the user when each cell has one label: a larger coalition can then add nothing, and its
    # cells are not worked out (its key has no rows)
    pure: bool = False


class CoalitionCells:
    """Cells of coalitions of data parties, each together with the task party.

    Parameters
    ----------
    task, label : int[n]
        Cell of each row at the task party, and its label.
    parties : sequence of int[n]
        Cell of each row at each data party.
    weights : int[n], optional
        How many people a row stands for; 1 by default.
    names : sequence of str, optional
        Names of the data parties; "party 1", "party 2", ... by default.
    """

    def __init__(
        self, task: ArrayLike, label: ArrayLike, parties: Sequence[ArrayLike],
        weights: ArrayLike | None = None, names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        d = len(parties)
        given = [f"party {i + 1}" for i in range(d)] if names is None else names
        if not isinstance(given, list | tuple) or len(given) != d:
            raise ValueError(f"names is {names!r}; expected one for each of {d} data parties")
        self.names = tuple(given)
        self.label, self.n_labels = _from_zero(label)
        self.parties = [_from_zero(party) for party in parties]
        self.weights = None if weights is None else people(weights)
        self.rows = len(self.label)
        self.total = self.rows if self.weights is None else int(self.weights.sum())
        self._stack = [Cells(np.zeros(d, dtype=np.bool_), *_from_zero(task))]

    def apart(self) -> CoalitionCells:
        """Return the same columns for another user: its walk and its marks are its own."""
        other = copy(self)
        other._stack = [replace(self.task, pure=False)]
        return other

    @property
    def task(self) -> Cells:
        """The task party's own cells."""
        return self._stack[0]

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

    def counts(self, cells: Cells) -> tuple[Ints, Ints]:
        """Return the counts of the cells, and of the cells split by label (some may be 0)."""
        key, size, labels = cells.key, cells.size, self.n_labels
        if _fits(size * labels, self.rows):
            split = totals(key * labels + self.label, size * labels, self.weights)
            return split.reshape(size, labels).sum(axis=1), split
        key, size = densify(key, size)
        both, found = densify(key * labels + self.label, size * labels)
        return totals(key, size, self.weights), totals(both, found, self.weights)
