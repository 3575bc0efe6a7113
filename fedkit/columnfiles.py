"""CSV files of columns: what one party of a vertical federation brings to a command."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedkit.extras import need


def read_columns(
    path: Path, *, id_column: str = "id", label: str | None = None,
    columns: Sequence[str] | None = None,
) -> tuple[list[str], Any, Any]:  # fmt: skip
    """Return the IDs of a CSV file with commas and a line of names, its features, and the label.

    Features, a data frame, are the `columns` named, by default all but the ID and the label;
    without a label there must be one.  IDs stay text, as they stand there: leading zeros count.  In
    other columns an empty cell is a missing value, and so is a word for one: NA, None, null, NaN
    and the like.
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
        raise ValueError(f"{path} is no CSV file in UTF-8 with a line of names: {error}") from error
    own = [id_column] if label is None else [id_column, label]
    chosen = [c for c in frame.columns if c not in own] if columns is None else list(columns)
    asked = [*own, *chosen]
    known = set(asked) <= set(frame.columns) and len(set(asked)) == len(asked) > 1
    if not known or frame.empty:
        raise ValueError(
            f"asked of {path} are the columns {', '.join(asked)} of {len(frame)} rows; expected "
            f"rows, and two or more different ones of {', '.join(frame.columns)}"
        )
    if any(name.startswith("Unnamed: ") for name in chosen):  # such as numbers of rows
        raise ValueError(f"{path} has a column without a name; name it, or choose others")
    ids = frame[id_column].tolist()
    odd = [row for row, one in enumerate(ids, 1) if not one or one != one.strip()]
    if odd:
        raise ValueError(f"{path}: the {id_column} of row {odd[0]} is empty, or padded with spaces")
    return ids, frame[chosen], None if label is None else frame[label]
