"""Cells as Ray tasks: what one costs beside its own computation, and what a second worker brings.

Run ``python -m benchmarks.cluster [--cells 200] [--repeats 3]``.  Empty cells give the overhead;
cells of fixed arithmetic are run with one and with two workers in turns.  Seconds of the processor
are those of the driver, which one machine has to have however many nodes there are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedkit.records.cell import Cell
from fedkit.records.cluster import run_on_ray
from fedkit.records.running import run_cells
from fedkit.records.store import Store


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


def main(n: int, repeats: int) -> None:
    """Print overhead and scaling."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rows: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    for repeat in range(repeats):
        for workers in (1, 2):
            begin, own = time.perf_counter(), time.process_time()
            options = {"include_dashboard": False, "log_to_driver": False}
            ray.init("local", num_cpus=workers, logging_level="error", **options)
            started = time.perf_counter() - begin
            timed(2 * workers, 0, True)  # the workers import what they need
            warm = time.perf_counter() - begin - started
            rows[workers].append(timed(8, 3000, True))
            told = (
                f"{workers} workers: Ray started in {started:.1f} s, workers warm in {warm:.1f} s"
            )
            print(f"{told}, {time.process_time() - own:.1f} s of the driver's processor")
            if repeat == repeats - 1 and workers == 2:
                for engine in (True, False):
                    wall, driver, _ = timed(n, 0, engine)
                    print(
                        f"{'as Ray tasks' if engine else 'one after another'}: {n} empty cells, "
                        f"{1e3 * wall / n:.1f} ms each, {1e3 * driver / n:.1f} ms of the driver's "
                        "processor"
                    )
            ray.shutdown()
    for workers, times in rows.items():
        share = [cpu / wall for wall, _, cpu in times]
        print(
            f"{workers} workers: 8 cells in {statistics.median(t[0] for t in times):.1f} s, "
            f"{statistics.median(share):.2f} s of the cells' processor per second"
        )
    pairs = zip(rows[1], rows[2], strict=True)
    ratios = [one[0] / two[0] for one, two in pairs]
    print(f"2 workers against 1, by turns: {', '.join(f'{r:.2f}' for r in ratios)} times as fast")
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    main(given.cells, given.repeats)
