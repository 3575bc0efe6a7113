"""The counting protocol at full size, and the printed protocol beside the whole-table variant.

Run ``python -m benchmarks.secure_counting [--rows 1000000] [--blocks 8]``.  The large case is the
paper's: a task party and 5 data parties with 2 features of 5 values each, 3 copies of each ID, 2
iterations, 50 artificial IDs in each block; the parties, who share one list of IDs that is hashed
once, run in threads of this process, every check on.  The paper's laptop took 4 hours.
The small case asks for every cell by itself, as Algorithm 1 is printed.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

import numpy as np

from benchmarks.coalitions import environment
from fedkit.fedvalue.protocol.counting import count_tuples
from fedkit.fedvalue.protocol.parties import count_here, parties_of
from fedkit.streams import Streams

PAPER_SECONDS = 4 * 3600


def data(rows: int, parties: int, cells: int) -> tuple:
    """Independent cells of task party, label and data parties."""
    rng = Streams(0).generator("secure counting", rows)
    x, y, *columns = (rng.integers(0, size, rows) for size in (cells, 2, *([cells] * parties)))
    return x, y, columns


def timed(codes: tuple, **options: object) -> tuple[float, float, object]:
    """Seconds to hash the IDs, seconds to count and check, and the counts."""
    start = time.perf_counter()
    task, others = parties_of(codes, seed=0, **options)  # type: ignore[arg-type]
    hashed = time.perf_counter()
    found = count_here(task, others)
    return hashed - start, time.perf_counter() - hashed, found


def same(found: object, codes: tuple) -> bool:
    """Whether the counts are, as a multiset, those in the clear."""
    clear = count_tuples([codes[0], codes[1], *codes[2]], np.ones(len(codes[0]), dtype=np.int64))
    return bool(np.array_equal(np.sort(found.counts), np.sort(clear[1])))  # type: ignore[attr-defined]


def main(rows: int = 1_000_000, blocks: int = 8) -> dict:
    """Print both cases and return their numbers."""
    environment("cpu")
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.1f}")
    table = {"duplications": 3, "iterations": 2, "artificial": 50}

    small = data(1_000, 2, 3)
    rates = {}
    for name, options in (
        ("cell by cell, printed", {"variant": "cells", "hardened": False}),
        ("whole table, printed checks", {"hardened": False}),
        ("whole table, hardened", {}),
    ):
        _, seconds, found = timed(small, **table, **options)
        rates[name] = seconds
        print(
            f"1000 rows, 2 data parties, {found.queries:4} queries: {name:28} {seconds:7.3f} s, "
            f"counts {'equal' if same(found, small) else 'DIFFER'}"
        )  # fmt: skip
    ratio = rates["cell by cell, printed"] / rates["whole table, hardened"]
    print(f"the whole table takes {ratio:.0f}x less than its cells one by one")

    large = data(rows, 5, 25)
    work = time.process_time()
    hashing, counting, found = timed(large, **table, blocks=blocks)
    start = time.perf_counter()
    values = found.values()
    valuing = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    total, work = hashing + counting + valuing, time.process_time() - work
    print(
        f"{rows} rows in {blocks} blocks, 5 data parties: hashing {hashing:.1f} s, protocol "
        f"{counting:.1f} s, values {valuing:.1f} s, "
        f"together {total:.1f} s ({work:.1f} s of one core); "
        f"peak {peak:.2f} GiB; {len(found.counts)} cells, "
        f"counts {'equal' if same(found, large) else 'DIFFER'}"
    )
    if rows == 1_000_000:
        print(f"the paper's laptop: 4 hours, {PAPER_SECONDS / total:.0f}x as long")
    return {
        "seconds": total,
        "core_seconds": work,
        "peak_gib": peak,
        "ratio": ratio,
        "values": values.values.tolist(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=8)
    main(**vars(parser.parse_args()))
