"""What a figure is given: numbers by series, frames with columns; one sentence where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import having, numbers

__all__ = ["check_frame", "series"]

FloatArray = NDArray[np.float64]


def series(name: str, values: Any, axes: int) -> dict[str, FloatArray]:
    """Return numbers by series, each with so many axes and not all of them missing, or refuse."""
    if not hasattr(values, "items"):
        raise ValueError(f"{name} is {values!r:.60}; expected a dict of arrays by title")
    found = {title: numbers(f"{name} of {title!r}", given) for title, given in values.items()}
    for title, array in found.items():
        if array.ndim != axes:
            wanted = "(n,)" if axes == 1 else "(clients, classes)"
            raise ValueError(f"{name} of {title!r} have shape {array.shape}; expected {wanted}")
    if not any(np.isfinite(array).any() for array in found.values()):
        raise ValueError(f"{name} hold no number: there is nothing to draw")
    return found


def check_frame(name: str, frame: Any, labels: Sequence[str], drawn: Sequence[str]) -> None:
    """Refuse what is no data frame with columns of labels and of the numbers that are drawn."""
    having(name, frame, "columns", "iloc")
    missing = [column for column in (*labels, *drawn) if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} has no column {missing}; it has {list(frame.columns)}")
    for column in drawn:
        numbers(f"column {column!r} of {name}", frame[column].tolist())
