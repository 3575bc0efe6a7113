"""Columns as whole numbers: the levels of discrete columns, the bins of continuous ones."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import choice, plain_array, warn, whole

__all__ = [
    "How", "Missing", "cells_doubt", "column_doubts", "columns_of", "discretise",
    "label_codes", "label_doubt",
]  # fmt: skip

Codes = NDArray[np.int64]
How = Literal["width", "quantile"]
Missing = Literal["own", "refuse"]

ROWS_OF_A_CELL = 2  # of the task party's, on average: with fewer, the values are doubted
ROWS_OFFERED = 4 / 3  # and of a data party's
FEW_CELLS = 10  # but not for so few, where rows are few
CROWDED = 0.9  # of the rows in the first or the last bin, none between: the column is doubted
ON_EDGE = 1e-9  # of a bin: nearer than this is on the edge, which rounding would miss


def columns_of(x: Any, name: str = "x") -> list[NDArray[Any]]:
    """Return the columns of a vector, a matrix or a data frame as arrays ``[n]``.

    What a masked array hides is missing: NaN among floats, else None in a column of objects.
    """
    if hasattr(x, "toarray"):
        raise ValueError(f"{name} is a sparse matrix; pass {name}.toarray()")
    try:
        shape = np.shape(x)
    except ValueError as error:
        raise ValueError(f"{name} is ragged; expected (rows,) or (rows, columns)") from error
    if len(shape) not in (1, 2):
        raise ValueError(f"{name} has shape {shape}; expected (rows,) or (rows, columns)")
    if len(x) == 0:
        raise ValueError(f"{name} has no rows; a party needs at least one row in common")
    if hasattr(x, "iloc") and x.ndim == 2:  # a data frame keeps a type per column
        return [x.iloc[:, j].to_numpy() for j in range(x.shape[1])]
    array = x if isinstance(x, np.ma.MaskedArray) else plain_array(x)
    return [plain_array(column) for column in ([array] if array.ndim == 1 else array.T)]


def discretise(
    x: Any, bins: int = 5, how: How = "width", missing: Missing = "own", *,
    discrete: bool | Sequence[bool] | None = None, name: str = "x",
) -> Codes:  # fmt: skip
    """Replace every column by whole numbers: its levels, or the bins its values fall into.

    Five equal-width bins are the paper's choice (section 5, after Brown et al. 2012).  Edges come
    from the rows at hand.  Another unit leaves both kinds of bins as they are; another increasing
    map, such as a logarithm, moves rows between bins of equal width, so such a copy is not a copy
    any more, and leaves bins of equal weight as they are.

    Parameters
    ----------
    x : array or data frame, shape (n,) or (n, f)
        Finite numbers, truth values or text.
    bins : int
        Bins of a continuous column, at least one.
    how : {"width", "quantile"}
        Bins of equal width between the smallest and the largest value, or of equal weight
        (fewer where values are tied).
    missing : {"own", "refuse"}
        NaN and None become a level of their own, the last one, or are refused.  A column
        without any value has this one level, so it is constant and worth nothing.
    discrete : bool or sequence of bool, optional
        Whether (each) column keeps its levels.  By default truth values do, numbers with at most
        `bins` distinct values (whole numbers with more are binned), and text with any number of
        levels, as columns do that pandas calls categories: leave out names and IDs, which
        as text are a level per row and seem to tell all.
    name : str
        What the data are called in an error.

    Returns
    -------
    int64 array of the shape of `x`
        Codes from 0; a constant column is all 0.

    Warns
    -----
    UserWarning
        If 90% of twenty rows or more are in the first or the last of four bins or more of equal
        width and the others in the bin at the other end, as with a far outlier or a code of
        missing values such as -9999.
    """
    whole("bins", bins, 1)
    choice("how", how, ("width", "quantile"))
    choice("missing", missing, ("own", "refuse"))
    columns = columns_of(x, name)
    titles = list(x.columns) if hasattr(x, "columns") else list(range(len(columns)))
    given = each_discrete(discrete, len(columns), name)
    rows = len(x)
    codes = np.zeros((rows, len(columns)), dtype=np.int64)
    for j, (column, keep) in enumerate(zip(columns, given, strict=True)):
        where = f"column {titles[j]!r} of {name}"
        kind = x.dtypes.iloc[j] if hasattr(x, "columns") else getattr(x, "dtype", None)
        if keep is None and kind == "category":
            keep = True
        values, absent = _parse(column, where)
        if missing == "refuse" and absent.any():
            raise ValueError(
                f"{where} lacks {int(absent.sum())} of {rows} values; fill them in, or make them a "
                "level of their own: missing='own', at the command line --missing own"
            )
        present = values[~absent]
        codes[~absent, j] = _bin(present, int(bins), how, keep, where)
        codes[absent, j] = codes[~absent, j].max(initial=-1) + 1
    return codes[:, 0] if np.ndim(x) == 1 else codes


def each_discrete(discrete: Any, columns: int, name: str) -> Any:
    if isinstance(discrete, bool | None):
        return [discrete] * columns
    known = (bool, np.bool_, type(None))
    listed = isinstance(discrete, Sequence | np.ndarray) and len(discrete) == columns
    if not listed or not all(isinstance(keep, known) for keep in discrete):
        raise ValueError(
            f"discrete is {discrete!r}; expected True, False or None, or one of them for each of "
            f"the {columns} columns of {name}"
        )
    return discrete


def _parse(column: NDArray[Any], where: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a column as numbers or text, and where its values are missing."""
    kind = column.dtype.kind
    absent = np.isnan(column) if kind == "f" else np.zeros(len(column), dtype=np.bool_)
    if kind == "O":
        absent = np.array([is_missing(value) for value in column], dtype=np.bool_)
        present = column[~absent].tolist()
        held = [v for v in present if isinstance(v, Sized) and not isinstance(v, str | bytes)]
        if held:
            raise ValueError(
                f"{where} holds a {type(held[0]).__name__} in a cell; expected numbers, truth "
                "values, text"
            )
        kinds = {type(value) for value in present}
        if any(issubclass(k, date | time | timedelta) or k.__name__ == "Period" for k in kinds):
            kind = "M"
        elif all(isinstance(value, Real | Decimal | np.bool_) for value in present):
            given = np.array(present)  # whole numbers stay whole: float64 would merge large ones
            column = np.zeros(len(column), given.dtype if given.dtype.kind in "iu" else np.float64)
            column[~absent] = given
        else:
            column = np.where(absent, "", column).astype(str)
    if kind in "mM":
        raise ValueError(
            f"{where} holds dates or times; make numbers of what matters in them, such as the "
            "year, the weekday or an age in days"
        )
    if kind not in "ObiufUS":
        raise ValueError(f"{where} has dtype {column.dtype}; expected numbers, truth values, text")
    if column.dtype.kind == "f" and np.isinf(column).any():
        raise ValueError(
            f"{where} holds an infinite value at row {int(np.argmax(np.isinf(column)))}; "
            "expected finite numbers or NaN for a missing value"
        )
    return column, absent


def is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | Decimal) and bool(value != value)


def _bin(values: NDArray[Any], bins: int, how: How, keep: bool | None, where: str) -> Codes:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    text = values.dtype.kind in "US"
    if text and keep is False:
        raise ValueError(f"{where} holds text, which has no bins; pass discrete=True for it")
    if keep is None:
        # an early look at some rows spares sorting a long continuous column
        few = text or values.dtype.kind == "b" or len(np.unique(values[: 50 * bins])) <= bins
        keep = few and (text or len(np.unique(values)) <= bins)
    if keep:
        return np.unique(values, return_inverse=True)[1]
    if values.dtype.kind in "iu":  # float64 has no neighbours of large ones, such as nanoseconds
        values = values.astype(np.uint64) - values.min().astype(np.uint64)  # modulo 2^64
    numbers = values.astype(np.float64)
    low, high = numbers.min(), numbers.max()
    if low == high:
        return np.zeros(len(numbers), dtype=np.int64)
    if max(-low, high) > 2.0**900:  # where differences, times bins, could overflow
        numbers, low, high = (part * 2.0**-900 for part in (numbers, low, high))
    if how == "quantile":
        # order statistics: an edge between two rows would be moved by rounding, or by a map
        edges = np.unique(np.sort(numbers)[(len(numbers) - 1) * np.arange(1, bins) // bins])
        # ties at the largest value are a bin of their own, as those at the smallest are
        last = (numbers == high) & (len(edges) > 0 and edges[-1] == high)
        return np.searchsorted(edges, numbers, side="left") + last
    place = (numbers - low) / (high - low) * bins
    codes = np.minimum((place + ON_EDGE).astype(np.int64), bins - 1)
    _doubt_width(codes, bins, where)
    return codes


def label_codes(y: ArrayLike, name: str = "y") -> Codes:
    """Return dense codes of a discrete label."""
    values, absent = _parse(plain_array(y), name)
    if absent.any():
        raise ValueError(
            f"{name} is missing in {int(absent.sum())} of {len(values)} rows; leave these out"
        )
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise ValueError(
            f"{name} is continuous; the metric needs classes, such as low and high: make some, "
            "or pass discretise(y, bins)"
        )
    return np.unique(values, return_inverse=True)[1]


def label_doubt(codes: Codes, what: str = "the label") -> str | None:
    """Return a sentence on a label that is constant, or has a level for few rows."""
    rows, levels = len(codes), int(codes.max()) + 1
    if levels == 1:
        return f"{what} is the same in all {rows} rows, so everybody's value is 0"
    if levels > max(5, rows / 5):
        return (
            f"{what} has {levels} levels in {rows} rows: is it an amount, or an ID? Nearly any "
            "columns seem to tell it; put it in a few classes"
        )
    return None


def cells_doubt(codes: Codes, data_party: str | None = None) -> str | None:
    """Return a sentence on a party, the task party by default, with a row or two in each cell."""
    rows, cells = len(codes), int(codes.max()) + 1
    if cells <= max(FEW_CELLS, rows / (ROWS_OF_A_CELL if data_party is None else ROWS_OFFERED)):
        return None
    owner = "the task party" if data_party is None else data_party
    follows = (
        "even a party that knows the label seems to add less than it does"
        if data_party is None
        else "its value as printed is too high and one with chance taken off too low"
    )
    return (
        f"{owner}'s columns make {cells} cells of {rows} rows, so that {follows}: take fewer "
        "columns or bins"
    )


def _doubt_width(codes: Codes, bins: int, where: str) -> None:
    """Warn of a few far values among twenty rows or more, with nothing between."""
    n, inside = len(codes), np.bincount(codes, minlength=bins)
    most = int(inside.max())
    if n >= 20 and bins >= 4 and not inside[1:-1].any() and most >= CROWDED * n:
        warn(
            f"{where} has {most} of its {n} values in one of {bins} bins of equal width and the "
            "others far away: outliers, or codes of missing values? Make these NaN, or take bins "
            "of equal weight (how='quantile', at the command line --how quantile)"
        )


def column_doubts(x: Any, owner: str) -> list[str]:
    """Return a sentence on each column that is missing in all rows, or seems a forgotten ID.

    Whole numbers that may be IDs are looked for in data frames alone, whose columns have names.
    """
    columns, named = columns_of(x, owner), hasattr(x, "columns")
    found = []
    for title, column in zip(x.columns if named else range(len(columns)), columns, strict=True):
        doubt = _id_doubt(column) if named or column.dtype.kind not in "iu" else None
        if all(map(is_missing, column)):
            doubt = f"is missing in all {len(column)} rows, so it tells nothing"
        if doubt is not None:
            found.append(f"column {title!r} of {owner} {doubt}")
    return found


def _id_doubt(column: NDArray[Any]) -> str | None:
    """What is odd about ten rows or more: few agree in text, or whole numbers leave no gap."""
    n, kind = len(column), column.dtype.kind
    if n < 10 or kind not in "iuUSO":
        return None
    if kind in "iu":
        gapless = int(column.max()) - int(column.min()) == n - 1
        levels = len(np.unique(column)) if gapless else 0
    else:
        values = column.tolist()
        text = all(isinstance(value, str | bytes) for value in values[:10])
        levels = len(set(values)) if text else 0
    if levels == n:
        return (
            "is another in every row: is it an ID? Leave it out, for it is no feature and may seem "
            "to tell everything"
        )
    if 2 * levels > n:
        return (
            f"is text with {levels} levels in {n} rows: numbers kept as text, or an ID? Each level "
            "is a cell of its own, which may seem to tell everything"
        )
    return None
