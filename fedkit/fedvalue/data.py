"""Vertical data as tables of codes: joint cells, what a federation of columns holds, and its files.

Rows are people (or other entities), the same in every party; each party owns columns.  The metric
needs only which rows share a value, so every column becomes whole numbers, and the columns of a
party become one number per row: its cell.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.extras import need
from fedkit.fedvalue.binning import (
    How,
    Missing,
    columns_of,
    discretise,
    label_codes,
    label_doubt,
)
from fedkit.fedvalue.cells import dense, densify

__all__ = [
    "Columns",
    "How",
    "Missing",
    "VerticalData",
    "discretise",
    "joint_codes",
    "label_codes",
    "pca",
    "read_columns",
    "vertical_data",
]

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


@dataclass(frozen=True, eq=False, repr=False)
class VerticalData:
    """A task party's columns and label beside the columns of data parties, row by row.

    Parameters
    ----------
    x_task : array or data frame, shape (n, f), or None
        Features of the task party; None (or no columns) where it has only the label.  Row `i` is
        the same person in all arrays: pass `ids`, a list per party, to have that checked.
        Otherwise only the indexes of pandas objects are compared.
    y : array, shape (n,)
        Label: whole numbers, truth values or text.
    parties : sequence of arrays or data frames, each of shape (n,) or (n, f_d), or a dict
        Features of the data parties, one entry per party: a list, not one matrix.  The keys of a
        dict are the parties' names.
    ids : array, shape (n,), or sequence of 1 + d such arrays, optional
        Who each row is: one list per party (the task party first), which must then agree, or one
        for all, which says nothing of the parties' own order.  ``0..n-1`` by default.
    names : sequence of str, optional
        Names of the data parties; "party 1", "party 2", ... by default.
    discrete : sequence of 1 + d entries, optional
        Which columns keep their levels, the task party first: for each party what
        :func:`~fedkit.fedvalue.binning.discretise` takes, so a truth value for all its columns,
        one per column, or None.

    Raises
    ------
    ValueError
        If there is no data party, the parties are one matrix or data frame, a party has no rows
        or another number of rows, IDs repeat or are not aligned, there is no list of IDs per party
        and two pandas objects have different indexes, the label is continuous or has missing
        values, names repeat, or `discrete` has another length.

    Warns
    -----
    UserWarning
        If the label is the same in all rows (every value is then 0), or has more than 5 levels
        and more than one for every five rows (an amount or an ID: any columns seem to tell it).

    Examples
    --------
    Six people, four columns: the task party owns the first, two suppliers the others.

    >>> x = np.array([[0, 0, 5.1, 1], [0, 1, 4.9, 0], [1, 0, 3.0, 1],
    ...               [1, 1, 2.2, 0], [0, 1, 6.3, 1], [1, 0, 1.7, 0]])
    >>> offers = {"bank": x[:, [1]], "shop": x[:, [2, 3]]}
    >>> data = VerticalData(x[:, [0]], [0, 1, 1, 0, 1, 1], offers)
    >>> data.names, data.n_rows
    (('bank', 'shop'), 6)
    """

    x_task: Any
    y: Any
    parties: Any  # a tuple, once made
    ids: Any = None
    names: tuple[str, ...] | None = None
    discrete: tuple[bool | Sequence[bool] | None, ...] | None = None

    def __post_init__(self) -> None:
        y = np.asarray(self.y)
        if y.ndim != 1 or len(y) == 0:
            raise ValueError(f"y has shape {y.shape}; expected one label per row, at least one row")
        doubt = label_doubt(label_codes(y), "y")
        if doubt is not None:
            warnings.warn(doubt, stacklevel=3)
        parties, given = _each_party(self.parties, self.names)
        x_task = np.zeros((len(y), 0)) if self.x_task is None else self.x_task
        names = tuple(f"party {i + 1}" for i in range(len(parties))) if given is None else given
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
        if not _per_party(self.ids):
            _check_index(self.x_task, self.y, *parties)
        object.__setattr__(self, "x_task", x_task)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "parties", parties)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "ids", _common_ids(self.ids, len(y), ("the task party", *names)))
        kept = (None,) * (1 + len(parties)) if self.discrete is None else self.discrete
        if isinstance(kept, bool | str) or len(kept) != 1 + len(parties):
            raise ValueError(
                f"discrete is {self.discrete!r}; expected {1 + len(parties)} entries, one for the "
                "task party and one per data party"
            )
        object.__setattr__(self, "discrete", tuple(kept))

    def __repr__(self) -> str:
        def width(x: Any) -> int:
            return 1 if np.ndim(x) == 1 else int(np.shape(x)[1])

        held = ", ".join(
            f"{name}: {width(x)}" for name, x in zip(self.names or (), self.parties, strict=True)
        )
        return f"VerticalData({self.n_rows} rows; columns: task {width(self.x_task)}, {held})"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    def codes(
        self, bins: int = 5, how: How = "width", missing: Missing = "own"
    ) -> tuple[Codes, Codes, list[Codes]]:
        """Return one dense code per row for the task party, the label, and each data party."""
        assert self.names is not None
        assert self.discrete is not None
        owners, held = ("the task party", *self.names), (self.x_task, *self.parties)
        task, *parties = (
            joint_codes(
                discretise(x, bins, how, missing, discrete=keep, name=name).reshape(
                    self.n_rows, -1
                ),
            )
            for name, x, keep in zip(owners, held, self.discrete, strict=True)
        )
        return task, label_codes(self.y), parties


def vertical_data(
    x_task: Any, y: Any = None, parties: Any = None, names: Iterable[str] | None = None
) -> VerticalData:
    """Return the data of a call: a :class:`VerticalData` as it is, or one made of its parts.

    Raises
    ------
    ValueError
        If a VerticalData comes with other data, or the data are refused.
    """
    if not isinstance(x_task, VerticalData):
        return VerticalData(x_task, y, parties, names=None if names is None else tuple(names))
    if y is not None or parties is not None or names is not None:
        raise ValueError(
            "a VerticalData holds the label, the parties and their names; pass nothing beside it"
        )
    return x_task


def _each_party(
    parties: Any, names: Iterable[str] | None
) -> tuple[tuple[Any, ...], tuple[str, ...] | None]:
    """Return the columns of each data party, and the names where there are any."""
    if hasattr(parties, "shape") or isinstance(parties, str | bytes):
        what = f"of shape {tuple(parties.shape)}" if hasattr(parties, "shape") else "of text"
        raise ValueError(
            f"parties is one {type(parties).__name__} {what}; pass a list with one array or data "
            "frame per party, such as [x[:, [0, 1]], x[:, [2]]]"
        )
    if isinstance(parties, Mapping):
        if names is not None:
            raise ValueError("the keys of parties are the names; do not pass names beside a dict")
        parties, names = parties.values(), parties.keys()
    if not isinstance(parties, Iterable):
        raise ValueError(f"parties is {parties!r}; expected a list with one array per party")
    each = tuple(parties)
    if not each:
        raise ValueError("there are no data parties; pass the columns of at least one")
    return each, None if names is None else tuple(map(str, names))


def _check_index(*held: Any) -> None:
    """Refuse data frames and series whose rows go by different indexes."""
    framed = [x.index for x in held if hasattr(x, "iloc")]
    if not all(index.equals(framed[0]) for index in framed):
        raise ValueError(
            "the indexes of two data frames (or series) differ, so their rows may not be the same "
            "people; align them and reset_index(drop=True), or pass ids, one list per party"
        )


def _per_party(ids: Any) -> bool:
    """Say whether there is a list of IDs for each party."""
    return isinstance(ids, list | tuple) and len(ids) > 0 and np.ndim(ids[0]) == 1


def _common_ids(ids: Any, rows: int, names: tuple[str, ...]) -> NDArray[Any]:
    """Check the IDs of the parties against each other and return the common list."""
    if ids is None:
        return np.arange(rows)
    if isinstance(ids, Mapping):
        raise ValueError("ids is a dict; pass a list, the task party's IDs first")
    each = list(ids) if _per_party(ids) else [ids]
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
                f"{first[row]!r}; align the parties' rows first, or write the IDs alike"
            )
    return first


def pca(x: ArrayLike, components: int) -> NDArray[np.float64]:
    """Return the scores of a party's rows on its first principal components.

    One half of the paper's fast-FedValue; the other is the sampling of permutations (Eq. 16), the
    `estimator` of :func:`~fedkit.fedvalue.cmi.mshapley_cmi`.

    Columns are centred and not scaled.  The sign of a component is fixed: its loading of largest
    size is positive.

    Parameters
    ----------
    x : array, shape (n, f)
        Finite numbers.
    components : int
        How many to keep, at most ``min(n, f)``.

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


@dataclass(frozen=True, eq=False)
class Columns:
    """What one party holds.

    Attributes
    ----------
    ids : list of str, length n
        IDs as text, as they stand in the file: leading zeros count.
    x : data frame, shape (n, f)
        The features.
    y : array, shape (n,), or None
        The label.
    names : tuple of str
        Names of the features.
    """

    ids: list[str]
    x: Any
    y: NDArray[Any] | None
    names: tuple[str, ...]


def read_columns(
    path: Path,
    *,
    id_column: str = "id",
    label: str | None = None,
    columns: Sequence[str] | None = None,
    min_columns: int = 1,
) -> Columns:
    """Read a CSV file with a line of names, or an .npz file with one array per column.

    Parameters
    ----------
    path : Path
        The file.
    id_column : str
        Column that says which person, product, ... a row is about.
    label : str, optional
        Column of the label, for the task party.
    columns : sequence of str, optional
        The features to use; by default every other column.
    min_columns : int
        Features that there must be at least.

    Raises
    ------
    ValueError
        If the file is no table with commas, a column is missing, has no name or is named twice,
        there are no rows, an ID is missing, is neither text nor a whole number, has blanks around
        it or comes twice, a label is missing, or the labels are all the same or continuous.
    OSError
        If it cannot be read.
    """
    frame = _npz(path) if path.suffix == ".npz" else _csv(path, id_column)
    chosen = [c for c in frame.columns if c not in (id_column, label)]
    if columns is not None:
        chosen = list(columns)
        if len(set(chosen)) < len(chosen):
            raise ValueError("a column is asked for twice")
        if id_column in chosen or (label is not None and label in chosen):
            raise ValueError("the ID and the label are not features; leave them out of the columns")
    for name in [id_column, *([] if label is None else [label]), *chosen]:
        if name not in frame.columns:
            raise ValueError(
                f"{path} has no column {name!r}; it has {', '.join(map(str, frame.columns))}: name "
                "one of these, or write them alike (--id-column, --label, --columns)"
            )
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows")
    if len(chosen) < min_columns:
        raise ValueError(f"{path} has no features: only {', '.join(map(str, frame.columns))}")
    ids = _ids(frame[id_column], path, id_column)
    y = None
    if label is not None:
        if frame[label].isna().any():
            row = int(np.argmax(frame[label].isna().to_numpy()))
            raise ValueError(f"{path} has no label in row {row + 1}; remove the row, or label it")
        y = frame[label].to_numpy()
        if y.dtype.kind not in "biuf":
            y = y.astype(str)
        if (y == y[0]).all():
            raise ValueError(
                f"the label {label!r} has the one value {y[0]} in all {len(y)} rows of {path}, so "
                "there is nothing to tell about it; take rows with two labels or more"
            )
        if y.dtype.kind == "f" and (y != np.floor(y)).any():
            raise ValueError(
                f"the label {label!r} of {path} is continuous, with values such as "
                f"{float(y[y != np.floor(y)][0])!r}; write classes into the file, such as "
                "low and high, and name their column (--label)"
            )
    return Columns(ids, frame[chosen], y, tuple(map(str, chosen)))


def _csv(path: Path, id_column: str) -> Any:
    pandas = need("pandas", "service")
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = pandas.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False)
            names = [str(name) for name in head.iloc[0]]
            if "" in names:
                raise ValueError(
                    f"column {names.index('') + 1} of {path} has no name; it may be row "
                    "numbers: leave them out (to_csv(..., index=False)), or name it"
                )
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{path} has two columns named {twice[0]!r}")
            other = [mark for mark in (";", "\t") if mark in names[0]]
            if len(names) == 1 and other:
                raise ValueError(
                    f"{path} has {other[0]!r} between its columns; save it with commas"
                )
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                frame = pandas.read_csv(file, index_col=False)
            if id_column in names:  # IDs are text: no lost zeros, and 'NA' is one like any other
                file.seek(0)
                frame[id_column] = pandas.read_csv(
                    file, index_col=False, usecols=[id_column], dtype=str, keep_default_na=False
                )[id_column]
            return frame
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8") from error
    except pandas.errors.ParserWarning as error:
        raise ValueError(f"{path} has a row with more fields than there are names") from error
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise ValueError(f"{path} is not a CSV file with a line of names: {error}") from error


def _npz(path: Path) -> Any:
    pandas = need("pandas", "service")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{path} is not an .npz file of plain arrays: {error}") from error
    sizes = {name: array.shape for name, array in arrays.items()}
    if len(set(sizes.values())) > 1 or any(len(shape) != 1 for shape in sizes.values()):
        raise ValueError(f"{path} must hold one array per column, all equally long: {sizes}")
    return pandas.DataFrame(arrays)


def _ids(column: Any, path: Path, name: str) -> list[str]:
    ids: list[str] = []
    seen: set[str] = set()
    for row, given in enumerate(column.tolist(), 1):
        if not isinstance(given, str | int) or isinstance(given, bool):  # NaN is a float
            raise ValueError(
                f"{path}: the {name} of row {row} is {given!r}; expected text or a whole number"
            )
        one = str(given)
        if not one or one != one.strip():
            raise ValueError(f"{path}: the {name} of row {row} is {one!r}; it is empty, or padded")
        if one in seen:
            raise ValueError(f"{path}: the {name} {one!r} comes twice (row {row}); one row per ID")
        seen.add(one)
        ids.append(one)
    return ids
