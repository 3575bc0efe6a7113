"""CSV files of columns: what one party of a vertical federation brings to a command."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedkit.checks import one_line
from fedkit.extras import need

__all__ = ["Columns", "read_columns"]


@one_line
@dataclass(frozen=True, eq=False)
class Columns:
    """What one party's file holds: IDs as text, a data frame of features, a task party's label."""

    ids: list[str]
    x: Any
    y: NDArray[Any] | None


def read_columns(
    path: Path, *, id_column: str = "id", label: str | None = None,
    columns: Sequence[str] | None = None,
) -> Columns:  # fmt: skip
    """Read a CSV file with commas and a line of names.

    Features are the `columns` named, by default all but the ID and the label; without a label
    there must be one.  IDs stay text, as they stand there: leading zeros count.  In other columns
    an empty cell is a missing value, and so is a word for one: NA, None, null, NaN and the like.
    """
    pandas = need("pandas", "service")
    try:
        with warnings.catch_warnings():
            # a row has more fields than there are names
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            # all rows at once: of a long column, one part could become numbers, another text
            frame = pandas.read_csv(
                path, index_col=False, converters={id_column: str}, low_memory=False,
                encoding="utf-8-sig",
            )  # fmt: skip
    except (ValueError, pandas.errors.ParserWarning) as error:  # no text, or no table
        raise ValueError(
            f"{path} is not a CSV file in UTF-8 with commas and a line of names: {error}"
        ) from error
    own = [id_column] if label is None else [id_column, label]
    chosen = [c for c in frame.columns if c not in own] if columns is None else list(columns)
    asked = [*own, *chosen]
    missing = [name for name in asked if name not in frame.columns]
    if missing or len(set(asked)) < len(asked):
        raise ValueError(
            f"asked of {path} are the columns {', '.join(asked)}; expected different ones of "
            f"{', '.join(frame.columns)}"
        )
    unnamed = [name for name in chosen if name.startswith("Unnamed: ")]
    if unnamed or not len(frame) or (label is None and not chosen):
        lacks = "a name of each column" if unnamed else "rows" if not len(frame) else "features"
        raise ValueError(f"{path} lacks {lacks}; expected a line of names, rows, and features")
    ids = frame[id_column].tolist()
    odd = [row for row, one in enumerate(ids, 1) if not one or one != one.strip()]
    if odd:
        raise ValueError(
            f"{path}: the {id_column} of row {odd[0]} is empty, or padded with spaces; IDs are "
            "compared as they are written"
        )
    return Columns(ids, frame[chosen], None if label is None else frame[label].to_numpy())
