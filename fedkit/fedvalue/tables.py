"""Vertical data as tables of codes: joint cells, and what a federation of columns holds.

Rows are people (or other entities), the same in every party; each party owns columns.  The metric
needs only which rows share a value, so every column becomes whole numbers, and the columns of a
party become one number per row: its cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.fedvalue.binning import (
    How,
    Missing,
    columns_of,
    discretise,
    label_codes,
)
from fedkit.fedvalue.cells import dense, densify

__all__ = ["How", "Missing", "VerticalData", "discretise", "joint_codes", "label_codes", "pca"]

Codes = NDArray[np.int64]


def joint_codes(*columns: ArrayLike) -> Codes:
    """Return dense labels ``0..m-1`` of the rows' joint value over any number of columns.

    Parameters
    ----------
    columns : int array, shape (n,) or (n, f)
        Codes, of equal length; a matrix without columns tells nothing and changes nothing.

    Returns
    -------
    int64 array, shape (n,)
        Equal for two rows if and only if they agree in all columns.

    Raises
    ------
    ValueError
        If no column or no row is given, lengths differ, or codes are not whole numbers.
    """
    if not columns:
        raise ValueError("no columns are given; pass at least one, so that the rows are known")
    arrays = [np.asarray(column) for column in columns]
    rows = len(arrays[0])
    if not rows:
        raise ValueError("the columns have no rows; pass at least one row")
    joint, size = np.zeros(rows, dtype=np.int64), 1
    for array in arrays:
        if array.dtype.kind not in "biu":
            raise ValueError(
                f"codes have dtype {array.dtype}; expected whole numbers, as discretise gives them"
            )
        if len(array) != rows:
            raise ValueError(f"a column has {len(array)} rows and the first {rows}; align them")
        for column in array.reshape(rows, -1).T if array.ndim != 1 else [array]:
            code, levels = dense(column)
            joint, size = densify(joint * levels + code, size * levels)
    return joint


@dataclass(frozen=True, eq=False)
class VerticalData:
    """A task party's columns and label beside the columns of data parties, row by row.

    Parameters
    ----------
    x_task : array or data frame, shape (n, f), or None
        Features of the task party; None (or no columns) where it has only the label.  Row `i` is
        the same person in all arrays: pass `ids` to have that checked, nothing else can.
    y : array, shape (n,)
        Label: whole numbers, truth values or text.
    parties : sequence of arrays or data frames, each of shape (n,) or (n, f_d)
        Features of the data parties, one entry per party: a list, not one matrix.
    ids : array, shape (n,), or sequence of 1 + d such arrays, optional
        Who each row is: one list for all, or one per party (the task party first), which must
        then agree.  ``0..n-1`` by default.
    names : sequence of str, optional
        Names of the data parties; "party 1", "party 2", ... by default.

    Raises
    ------
    ValueError
        If there is no data party, a party has no rows or another number of rows, IDs repeat or
        are not aligned, the label is continuous or has missing values, or names repeat.
    """

    x_task: Any
    y: NDArray[Any]
    parties: tuple[Any, ...]
    ids: NDArray[Any] | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        y = np.asarray(self.y)
        if y.ndim != 1 or len(y) == 0:
            raise ValueError(f"y has shape {y.shape}; expected one label per row, at least one row")
        label_codes(y)
        parties = tuple(self.parties)
        if not parties:
            raise ValueError("there are no data parties; pass the columns of at least one")
        x_task = np.zeros((len(y), 0)) if self.x_task is None else self.x_task
        names = self.names or tuple(f"party {i + 1}" for i in range(len(parties)))
        names = tuple(str(name) for name in names)
        if len(names) != len(parties) or len(set(names)) != len(names):
            raise ValueError(
                f"names are {list(names)}; expected {len(parties)} different names, one per party"
            )
        for name, x in zip(("the task party", *names), (x_task, *parties), strict=True):
            columns_of(x, name)
            if len(x) != len(y):
                raise ValueError(
                    f"{name} has {len(x)} rows and y has {len(y)}; keep the rows that all parties "
                    "share, in one order"
                )
        object.__setattr__(self, "x_task", x_task)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "parties", parties)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "ids", _common_ids(self.ids, len(y), ("the task party", *names)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def n_parties(self) -> int:
        """Number of data parties."""
        return len(self.parties)

    def codes(
        self, bins: int = 5, how: How = "width", missing: Missing = "own"
    ) -> tuple[Codes, Codes, list[Codes]]:
        """Return one dense code per row for the task party, the label, and each data party."""
        assert self.names is not None
        task, *parties = (
            joint_codes(
                discretise(x, bins, how, missing, name=name).reshape(self.n_rows, -1),
            )
            for name, x in zip(
                ("the task party", *self.names), (self.x_task, *self.parties), strict=True
            )
        )
        return task, label_codes(self.y), parties


def _common_ids(ids: Any, rows: int, names: tuple[str, ...]) -> NDArray[Any]:
    """Check the IDs of the parties against each other and return the common list."""
    if ids is None:
        return np.arange(rows)
    each = list(ids) if isinstance(ids, list | tuple) and np.ndim(ids[0]) == 1 else [ids]
    if len(each) not in (1, len(names)):
        raise ValueError(f"there are {len(each)} lists of IDs for {len(names)} parties")
    first = np.asarray(each[0])
    for name, own in zip(names, map(np.asarray, each), strict=False):
        if own.shape != (rows,):
            raise ValueError(f"{name} has IDs of shape {own.shape} for {rows} rows")
        values, counts = np.unique(own, return_counts=True)
        if len(values) != rows:
            raise ValueError(
                f"{name} holds ID {values[counts > 1][0]!r} more than once; an ID is one row"
            )
        if not np.array_equal(own, first):
            row = int(np.argmin(own == first))
            raise ValueError(
                f"{name} has ID {own[row]!r} in row {row} where the task party has "
                f"{first[row]!r}; align the parties' rows first"
            )
    return first


def pca(x: ArrayLike, components: int, seed: int = 0) -> NDArray[np.float64]:
    """Return the scores of a party's rows on its first principal components.

    One half of the paper's fast-FedValue; the other is the sampling of permutations (Eq. 16), the
    `estimator` of :func:`~fedkit.fedvalue.information.mshapley_cmi`.

    Columns are centred and not scaled.  The sign of a component is fixed: its loading of largest
    size is positive.

    Parameters
    ----------
    x : array, shape (n, f)
        Finite numbers.
    components : int
        How many to keep, at most ``min(n, f)``.
    seed : int
        Unused: the decomposition is exact.  Kept for callers that pass one seed everywhere.

    Returns
    -------
    float64 array, shape (n, components)

    Raises
    ------
    ValueError
        If `components` is out of range or a value is not finite.
    """
    matrix = np.asarray(x, dtype=np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError(f"x has shape {matrix.shape}; pca needs a matrix of finite numbers")
    if not 1 <= components <= min(matrix.shape):
        raise ValueError(
            f"components is {components}; expected 1 to {min(matrix.shape)} for shape "
            f"{matrix.shape}"
        )
    centred = matrix - matrix.mean(axis=0)
    if len(matrix) > matrix.shape[1]:  # the small matrix of the two
        _, vectors = np.linalg.eigh(centred.T @ centred)
        loadings = vectors[:, ::-1][:, :components].T
    else:
        loadings = np.linalg.svd(centred, full_matrices=False)[2][:components]
    largest = np.abs(loadings).argmax(axis=1)
    signs = np.where(loadings[np.arange(components), largest] < 0, -1.0, 1.0)
    scores: NDArray[np.float64] = centred @ (loadings * signs[:, None]).T
    return scores
