"""Cells as Ray tasks: what one costs beside its own computation, and what a second worker brings.

Run ``python -m benchmarks.cluster [--cells 200] [--repeats 3] [--save]``.  Empty cells give the
overhead; cells of fixed arithmetic are run with one and with two workers in turns.  Seconds of the
processor are those of the driver, which one machine has to have however many nodes there are; they
hold on a busy machine, too, the others on an idle one.  ``--save`` writes ``results/cluster.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.records.cell import Cell
from reproduction.records.cluster import run_on_ray
from reproduction.records.running import run_cells
from reproduction.records.store import Store

RECORD = Path(__file__).parents[1] / "results" / "cluster.json"


def cells(n: int) -> list[Cell]:
    """Cells that differ in a number alone."""
    return [Cell("smoke", "toy", "cluster", {"method": f"m{i}"}, (0,)) for i in range(n)]


def work(products: int) -> Callable[[Cell], list[dict[str, Any]]]:
    """A function of cells that multiplies matrices so many times."""

    def function(cell: Cell) -> list[dict[str, Any]]:
        a = np.random.default_rng(0).normal(size=(200, 200)) / 20
        b, begin = a, time.process_time()
        for _ in range(products):
            b = np.tanh(a @ b)
        spent = time.process_time() - begin
        return [{"seed": s, "metrics": {"norm": float((b**2).sum()), "cpu": spent}} for s in (0,)]

    return function


def timed(n: int, products: int, ray: bool) -> tuple[float, float, float]:
    """Seconds, the driver's seconds of the processor, and the cells' own."""
    with tempfile.TemporaryDirectory() as folder:
        store, begin, own = Store(folder), time.perf_counter(), time.process_time()
        engine: Any = run_on_ray if ray else run_cells
        engine(cells(n), work(products), store, progress=False)
        wall, driver = time.perf_counter() - begin, time.process_time() - own
        cpu = store.frame().query("metric == 'cpu'")["value"].sum()
        return wall, driver, float(cpu)


def measured(n: int, repeats: int) -> dict[str, Any]:
    """Overhead of empty cells, and how much faster two workers are, by turns."""
    import ray

    found: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for _ in range(repeats):
        for workers in (1, 2):
            begin, own = time.perf_counter(), time.process_time()
            quiet: Any = {"include_dashboard": False, "log_to_driver": False}
            ray.init("local", num_cpus=workers, logging_level=logging.ERROR, **quiet)
            started = time.perf_counter() - begin
            timed(2 * workers, 0, True)  # the workers import what they need
            warm = time.perf_counter() - begin - started
            spent = time.process_time() - own
            wall, _, cpu = timed(8, 3000, True)
            one = {"start": started, "warm": warm, "driver": spent, "seconds": wall, "cpu": cpu}
            found.setdefault(f"workers {workers}", []).append(
                {name: round(value, 2) for name, value in one.items()}
            )
            if workers == 2:
                for name, engine in (("ray", True), ("plain", False)):
                    wall, driver, _ = timed(n, 0, engine)
                    found.setdefault(name, []).append(
                        {"wall_ms": round(1e3 * wall / n, 2), "cpu_ms": round(1e3 * driver / n, 2)}
                    )
            ray.shutdown()
    return found


def told(found: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"load of the machine before: {found['load']} on {found['cores']} cores")

    def middle(name: str, what: str) -> float:
        return statistics.median(one[what] for one in found[name])

    for name in ("workers 1", "workers 2"):
        share = statistics.median(one["cpu"] / one["seconds"] for one in found[name])
        print(
            f"{name}: Ray starts in {middle(name, 'start'):.1f} s, workers are warm "
            f"{middle(name, 'warm'):.1f} s later ({middle(name, 'driver'):.1f} s of the driver's "
            f"processor); 8 cells in {middle(name, 'seconds'):.1f} s, {share:.2f} s of the cells' "
            "processor per second"
        )
    pairs = zip(found["workers 1"], found["workers 2"], strict=True)
    ratios = ", ".join(f"{one['seconds'] / two['seconds']:.2f}" for one, two in pairs)
    print(f"2 workers against 1, by turns: {ratios} times as fast")
    for name, how in (("ray", "as Ray tasks"), ("plain", "one after another")):
        wall, cpu = middle(name, "wall_ms"), middle(name, "cpu_ms")
        print(f"empty cells {how}: {wall:.1f} ms each, {cpu:.1f} ms of the driver's processor")
    driver = middle("ray", "cpu_ms")
    print(
        f"1,000 cells on 100 workers: {driver:.0f} s of the driver's processor; it is in the way "
        f"of cells of less than {driver / 10:.1f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write results/cluster.json")
    given = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    result = measured(given.cells, given.repeats)
    told(result)
    if given.save:
        RECORD.write_text(json.dumps(result, indent=1) + "\n")
