"""The audit: recorded runs run again by today's code, one seed each, and compared.

A golden run is small, so it cannot see what depends on size: chunks, truncation, other paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from reproduction.records.golden import is_timing
from reproduction.records.store import Record
from reproduction.registry import Experiment, get

__all__ = ["TOLERANCE", "Audited", "audit", "choose", "compare"]

TOLERANCE = 1e-3
"""Largest relative difference at which a run counts as equal; processors differ in last digits."""


@dataclass(frozen=True)
class Audited:
    """One recorded run that was run again.

    Attributes
    ----------
    record : str
        ``profile/paper/experiment/key``.
    compared : int
        How many numbers were.
    difference : float
        The largest difference of two numbers, as a share of the larger; NaN if none was compared.
    worst : str
        Name of that number; what is missing where the data are.
    """

    record: str
    seed: int
    compared: int
    difference: float
    worst: str

    @property
    def verdict(self) -> str:
        """One of "equal", "different" and "data missing"."""
        if not self.compared:
            return "data missing"
        return "equal" if self.difference <= TOLERANCE else "different"


def choose(records: Sequence[Record], k: int, rng: np.random.Generator) -> list[tuple[Record, int]]:
    """Draw k records spread over the experiments, and a seed of each.

    Experiments take turns in random order, so none is drawn twice before all were drawn once.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for place in rng.permutation(len(records)):
        record = records[place]
        groups.setdefault((record.cell.paper, record.cell.experiment), []).append(record)
    turns = [record for record in chain(*zip_longest(*groups.values())) if record is not None]
    return [(record, int(rng.choice(record.cell.seeds))) for record in turns[:k]]


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a result by its name; wall times are left out."""
    numbers = {name: float(value) for name, value in result["metrics"].items()}
    for name, values in (result.get("series") or {}).items():
        numbers |= {f"{name}[{i}]": float(f"{v:.7g}") for i, v in enumerate(values)}
    return {name: value for name, value in numbers.items() if not is_timing(name)}


def compare(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[int, float, str]:
    """Return how many numbers were compared, the largest relative difference, and where it is.

    Numbers below a millionth count as that, so that rounding about zero is none.
    """
    old, new = _numbers(then), _numbers(now)
    worst, where = 0.0, ""
    for name, a in old.items():
        b = new.get(name, np.inf)
        if a == b or (np.isnan(a) and np.isnan(b)):
            continue
        far = abs(a - b) / max(abs(a), abs(b), 1e-6) if np.isfinite(a) and np.isfinite(b) else 1.0
        if far > worst:
            worst, where = far, name
    return len(old), worst, where


def audit(record: Record, seed: int, experiment: Experiment | None = None) -> Audited:
    """Run one seed of a record again, on the CPU, and compare."""
    cell = record.cell
    run = (experiment or get(cell.paper, cell.experiment)).run
    name = f"{cell.profile}/{cell.paper}/{cell.experiment}/{cell.key}"
    then = next(result for result in record.results if result["seed"] == seed)
    try:
        now = run(replace(cell, seeds=(seed,)), "cpu", False)[0]
    except FileNotFoundError as error:
        return Audited(name, seed, 0, float("nan"), str(error))
    return Audited(name, seed, *compare(then, now))
