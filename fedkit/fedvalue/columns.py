"""A party's own columns, read from a file."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.extras import need

__all__ = ["Columns", "read_columns"]


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
    y: npt.NDArray[Any] | None
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
