"""Cells and results of an experiment that needs no training, for the tests of the records."""

from __future__ import annotations

import math

from reproduction.experiments import Experiment, Outcome
from reproduction.records import Cell, Store


def cell(method: str = "b", seeds: tuple[int, ...] = (0, 1, 2), **more: object) -> Cell:
    return Cell("smoke", "toy", "table1", {"method": method, "alpha": 0.1, **more}, seeds)


def compute(c: Cell, *_: object) -> list[dict[str, object]]:
    bias = {"a": 1.0, "b": 2.0}.get(str(c.settings["method"]), 3.0)
    return [
        {
            "seed": s,
            "metrics": {"accuracy": bias + s / 7, "absent": math.nan},
            "series": {"accuracy": [bias / 3, math.inf, s]},
            "data": {"name": "toy", "source": "made here", "checksum": "0"},
            "evaluations": 5,
        }
        for s in c.seeds
    ]


TOY = Experiment("toy", "table1", "A toy", lambda profile, seeds: [], compute)


def run(store: Store, *cells: Cell, **options: object) -> Outcome:
    return TOY.execute(cells, store, progress=False, **options)  # type: ignore[arg-type]
