"""Reading, writing and comparing the snapshots: CSV, where a list stands in one field."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from typing import Any

from .rooms import HERE, RESULTS, ROOMS, Row

#: relative and absolute tolerance of numbers; a name that is not here is compared as text
TOLERANCES = {
    "mean": (1e-6, 1e-9),
    "low": (1e-6, 1e-9),
    "high": (1e-6, 1e-9),
    "values": (1e-7, 1e-9),
    "errors": (1e-6, 1e-9),
    "initial": (1e-5, 1e-5),
    "change": (2e-3, 2e-4),
    "negative loss": (1e-4, 1e-5),
    "total": (2e-3, 0.2),
    "right": (0.0, 1.0),  # one image may lie on the border of two classes
}
#: the lists of records stand in a text file, and their names are derived anew
WRITTEN = [room for room in ROOMS if room != "record_names"]


def field(value: Any) -> str:
    """Write one field as text."""
    if isinstance(value, list):
        return " ".join(map(field, value))
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def as_text(rows: Iterable[Row]) -> list[dict[str, str]]:
    return [{name: field(value) for name, value in row.items()} for row in rows]


def read(room: str) -> list[dict[str, str]]:
    with (HERE / f"{room}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def write(room: str) -> None:
    rows = as_text(ROOMS[room]())
    with (HERE / f"{room}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_list() -> None:
    """List the records there are."""
    names = (str(path.relative_to(RESULTS)) for path in RESULTS.glob("*/*/*/*.json"))
    (HERE / "records.txt").write_text("\n".join(sorted(names)) + "\n")


def _same(name: str, old: str, new: str) -> bool:
    if old == new or name not in TOLERANCES:
        return old == new
    olds, news = ([float(x) for x in text.split()] for text in (old, new))
    relative, absolute = TOLERANCES[name]
    return len(olds) == len(news) and all(
        math.isclose(a, b, rel_tol=relative, abs_tol=absolute) or (math.isnan(a) and math.isnan(b))
        for a, b in zip(olds, news, strict=True)
    )


def differences(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[str]:
    """Say which fields of which rows differ, and whether rows are missing or new."""
    told = (
        [] if len(old) == len(new) else [f"{len(old)} rows were written, now there are {len(new)}"]
    )
    for a, b in zip(old, new, strict=False):
        for name in a:
            if not _same(name, a[name], b.get(name, "")):
                row = ", ".join([*a.values()][:5])[:90]
                told.append(f"{row}: {name} was {a[name][:80]}, is {b.get(name, '')[:80]}")
    return told
