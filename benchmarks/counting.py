"""Exact MShapley-CMI in the clear: one pass per coalition, pandas groupby, and a loop over cells.

Run ``python -m benchmarks.counting [--rows 1000000]``.  A task party with two features and a label,
data parties with two features each, five equal-width bins.  *fedkit* bins, counts and values.
*groupby* counts the cells of every coalition, and of every coalition with the label, by pandas, on
columns that are binned already.  *Cell by cell* asks how many rows hold one combination of values
after another, as a reader of Eq. 13 may do, but only for combinations that occur and for the
entropies of coalitions, not for every term of the equation; it is timed on fewer rows.  The first
line is measured in a process of its own, so that its peak memory is its own.  The largest
difference is to the other way on the same rows.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd

import fedkit as fk
from benchmarks.coalitions import environment
from fedkit.fedvalue.columns import discretise, joint_codes
from fedkit.fedvalue.information import mshapley_cmi

PARTIES, FEATURES = 5, 2


def made(rows: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """A task party, a label and data parties that share three hidden causes."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(rows, 3))
    columns = (PARTIES + 1) * FEATURES
    x = hidden @ rng.normal(size=(3, columns)) + rng.normal(size=(rows, columns))
    y = (hidden.sum(axis=1) + rng.normal(size=rows) > 0).astype(np.int64)
    return x[:, :FEATURES], y, [x[:, i : i + FEATURES] for i in range(FEATURES, columns, FEATURES)]


def alone(rows: int) -> tuple[float, float, np.ndarray]:
    """Value once and return seconds, peak megabytes of the process, and values."""
    data = made(rows)
    start = time.perf_counter()
    values = mshapley_cmi(*data).values
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seconds, peak / 1024, values


def by_groupby(binned: pd.DataFrame, parties: list[list[str]], task: list[str]) -> np.ndarray:
    """Values from pandas counts of every coalition's columns."""

    def entropy(columns: list[str]) -> float:
        counts = binned.groupby(columns, sort=False, observed=True).size().to_numpy()
        p = counts / counts.sum()
        return float(-(p * np.log(p)).sum())

    rows = fk.all_coalitions(len(parties))
    table = []
    for members in rows:
        columns = task + [c for p, taken in zip(parties, members, strict=True) if taken for c in p]
        table.append(entropy(["y"]) + entropy(columns) - entropy([*columns, "y"]))
    return fk.shapley(fk.table_game(np.array(table))).values


def by_cells(task: np.ndarray, y: np.ndarray, parties: list[np.ndarray]) -> np.ndarray:
    """Values from one question per combination of values: how many rows hold exactly it?"""

    def entropy(columns: list[np.ndarray]) -> float:
        total = 0.0
        for cell in {*zip(*(c.tolist() for c in columns), strict=True)}:
            inside = np.ones(len(y), dtype=bool)
            for column, level in zip(columns, cell, strict=True):
                inside &= column == level
            p = inside.mean()
            total -= p * np.log(p)
        return total

    table = []
    for members in fk.all_coalitions(len(parties)):
        columns = [task, *(p for p, taken in zip(parties, members, strict=True) if taken)]
        table.append(entropy([y]) + entropy(columns) - entropy([*columns, y]))
    return fk.shapley(fk.table_game(np.array(table))).values


def clock(call: object) -> tuple[float, np.ndarray]:
    """Seconds of one run, and its result."""
    start = time.perf_counter()
    result = call()  # type: ignore[operator]
    return time.perf_counter() - start, result


def main(rows: int = 1_000_000, smaller: int = 4_000) -> list[dict]:
    """Print the table and return its numbers."""
    environment("cpu")
    print(f"{PARTIES} data parties x {FEATURES} features, task party x {FEATURES}, exact values")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        seconds, peak, values = pool.submit(alone, rows).result()  # raises if the process dies
    x_task, y, parties = made(rows)
    names = [f"c{j}" for j in range((PARTIES + 1) * FEATURES)]
    binned = pd.DataFrame(discretise(np.concatenate([x_task, *parties], axis=1)), columns=names)
    binned["y"] = y
    groups = [names[i : i + FEATURES] for i in range(0, len(names), FEATURES)]
    group_s, group_values = clock(lambda: by_groupby(binned, groups[1:], groups[0]))

    codes = [joint_codes(binned[group].to_numpy()[:smaller]) for group in groups]
    cells_s, cells_values = clock(lambda: by_cells(codes[0], y[:smaller], codes[1:]))
    small_s, small_values = clock(
        lambda: mshapley_cmi(codes[0], y[:smaller], codes[1:], bins=25).values
    )
    off, off_small = (
        float(np.abs(a - b).max())
        for a, b in ((group_values, values), (cells_values, small_values))
    )
    lines = [
        {"way": "fedkit", "rows": rows, "seconds": seconds, "MB": peak, "times": 1.0, "off": off},
        {"way": "pandas groupby", "rows": rows, "seconds": group_s, "times": group_s / seconds,
         "off": off},
        {"way": "fedkit", "rows": smaller, "seconds": small_s, "times": 1.0, "off": off_small},
        {"way": "cell by cell", "rows": smaller, "seconds": cells_s, "times": cells_s / small_s,
         "off": off_small},
    ]  # fmt: skip
    for line in lines:
        memory = f", peak {line['MB']:.0f} MB with the data" if "MB" in line else ""
        print(
            f"{line['way']:15} {line['rows']:9,} rows {line['seconds']:9.3f}s {line['times']:8.1f}x"
            f"   largest difference {line['off']:.1e}{memory}"
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows)
