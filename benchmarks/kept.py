"""What benchmarks write into ``results/``: rows of JSON, one a line, and one command for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"

Row = dict[str, Any]


def command(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """A command with ``--save``, and an option with a default for each of some numbers."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--save", action="store_true", help="write what is measured")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser


def on_record(name: str) -> list[Row]:
    return list(json.loads((RESULTS / name).read_text("utf-8")))


def save(name: str, rows: Sequence[Row], place: Sequence[str] = ()) -> None:
    """Write rows; by the fields of a place, those that were not measured anew stay."""
    if place:
        every = [*on_record(name), *rows]
        rows = list({tuple(row[field] for field in place): row for row in every}.values())
    lines = ",\n".join(map(json.dumps, rows))
    (RESULTS / name).write_text(f"[\n{lines}\n]\n", "utf-8")


def save_one(name: str, **told: Any) -> None:
    (RESULTS / name).write_text(json.dumps(told, indent=1) + "\n", "utf-8")
