"""Figure 1 of FedMS: who holds how many images of each class, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fedkit.papers.fedms.cells import RUN, SCALES
from fedkit.papers.fedms.settings import SCENARIOS, federation, identity, setting
from fedkit.papers.registry import Cell, Experiment, register
from fedkit.records.golden import Tiny


def run_partition(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Count the labels of every client; a series per class, over the clients."""
    s, results = setting(cell), []
    for seed in cell.seeds:
        made = federation(s, seed)
        results.append(
            {
                "seed": int(seed),
                "metrics": made.summary(),
                "series": {f"{c}": n.tolist() for c, n in enumerate(made.label_counts.T)},
                "data": identity(s),
            }
        )
    return results


def _cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    settings = [
        replace(base, scenario=scenario, owned=owned)
        for base, readings in SCALES[profile].bases.items()
        for owned in dict.fromkeys(owned for _, owned in readings)
        for scenario in SCENARIOS
    ]
    chosen = (0,) if seeds is None else tuple(seeds)
    return [Cell(profile, "fedms", "partition", asdict(s), chosen) for s in settings]


register(
    Experiment(
        "fedms", "partition", "Who holds what (Figure 1)",
        _cells, run_partition,
        (Tiny("partition", run_partition, RUN.base, switches={"owned": {}}),),
    )
)  # fmt: skip
