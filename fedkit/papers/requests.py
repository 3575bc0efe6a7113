"""What the command line does with cells: choose them, run them, remember what was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkit.atomic import write_text
from fedkit.papers.registry import Experiment, get
from fedkit.records.store import PROFILES, Cell, Outcome, Store

__all__ = ["Request", "check_profile", "find_device", "pending", "select"]

PENDING = ".pending"
"""Folder of the store with one file per request that has not ended."""


def check_profile(name: str) -> str:
    """Return the name of a profile, or say which there are."""
    if name not in PROFILES:
        raise ValueError(f"profile {name!r} is unknown; choose from {', '.join(PROFILES)}")
    return name


def find_device(name: str) -> str:
    """Turn ``auto`` into what there is, and refuse a device that is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {name!r} is unknown; choose auto, cpu or cuda")
    if name == "cpu":
        return name
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for and torch sees none; use --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _value(text: str) -> Any:
    """Read a setting from the command line: JSON where it is JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _matches(cell: Cell, name: str, text: str) -> bool:
    if name == "key":
        return text in (cell.key, cell.digest)
    setting = cell.settings[name]
    return setting == _value(text) or str(setting) == text


def select(cells: list[Cell], only: Sequence[str]) -> list[Cell]:
    """Keep the cells that every ``name=value`` fits; an unknown name or value is an error."""
    for part in [piece for text in only for piece in text.split(",") if piece.strip()]:
        name, equals, text = (word.strip() for word in part.partition("="))
        if not equals:
            raise ValueError(f"--only {part!r} cannot be read; write name=value")
        names = list(dict.fromkeys(name for cell in cells for name in cell.settings))
        if name != "key" and name not in names:
            raise ValueError(f"--only names {name!r}; settings are {', '.join([*names, 'key'])}")
        kept = [
            c for c in cells if (name == "key" or name in c.settings) and _matches(c, name, text)
        ]
        if not kept:
            there = sorted({str(c.settings.get(name, c.digest)) for c in cells})
            raise ValueError(f"--only {part} fits no cell; {name} is one of {', '.join(there)}")
        cells = kept
    return cells


@dataclass(frozen=True)
class Request:
    """Cells of one experiment that somebody asked for.

    While it runs, the request stands in a file of the store, so that ``fedkit resume`` can do
    what was asked and nothing else.

    Parameters
    ----------
    experiment : Experiment
    cells : tuple of Cell
    anew : {"none", "stale", "all"}
        Which finished cells are to be made anew.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    anew: str = "none"

    def path(self, store: Store) -> Path:
        """Return the file that stands for the request."""
        first = self.cells[0]
        name = f"{first.profile}-{first.paper}-{first.experiment}-{first.digest}"
        return store.root / PENDING / f"{name}-{len(self.cells)}.json"

    def _note(self, store: Store) -> Path:
        """Write the request down; one that stands already keeps its time."""
        path = self.path(store)
        text = json.dumps(
            {
                "paper": self.experiment.paper,
                "experiment": self.experiment.name,
                "anew": self.anew,
                "cells": [cell.to_dict() for cell in self.cells],
            }
        )
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        return path

    def _again(self, store: Store, since: float) -> list[Cell]:
        """Return the finished cells to make anew that were not since the request was made."""
        if self.anew == "stale":
            return [cell for cell in self.cells if store.state(cell)[0] == "stale"]
        if self.anew == "all":
            paths = {cell: store.path(cell) for cell in self.cells}
            return [c for c, path in paths.items() if path.is_file() and _age(path) < since]
        return []

    def run(self, store: Store, device: str, *, keep_going: bool, quiet: bool) -> Outcome:
        """Run the request and, when it ends without a failure, forget it."""
        note = self._note(store)
        again = self._again(store, _age(note))
        rest = [cell for cell in self.cells if cell not in set(again)]
        total = Outcome()
        for cells, force in ((again, True), (rest, False)):
            if not cells:
                continue
            part = self.experiment.execute(
                cells,
                store,
                device=device,
                progress=not quiet,
                force=force,
                on_error="continue" if keep_going else "stop",
            )
            for field in ("computed", "skipped", "busy", "failed"):
                getattr(total, field).extend(getattr(part, field))
        if not total.failed:
            note.unlink(missing_ok=True)
        return total


def _age(path: Path) -> float:
    return path.stat().st_mtime


def pending(store: Store, paper: str | None = None, profile: str | None = None) -> list[Request]:
    """Return the requests that have not ended, oldest first.

    Raises
    ------
    ValueError
        If a request names an experiment that is gone, or its file is damaged.
    """
    requests = []
    files = sorted((store.root / PENDING).glob("*.json"), key=_age)
    for path in files:
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            cells = tuple(Cell.from_dict(item) for item in body["cells"])
            names = (body["paper"], body["experiment"])
            anew = body["anew"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{PENDING}/{path.name} is damaged; remove it and start the run anew"
            ) from error
        if paper in (None, names[0]) and profile in (None, cells[0].profile):
            requests.append(Request(get(*names), cells, anew))
    return requests
