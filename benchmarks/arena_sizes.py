"""What clients add to coalitions of every size: ``python -m benchmarks.arena_sizes [--save]``.

On federations of the arena's paper profile with free-riders, labels alike and skewed, all
coalitions of every round are judged by loss.  Every semivalue is a weighted sum of these means
(:func:`fedkit.games.exact.semivalue`).  ``--save`` writes ``results/arena-sizes.json``, which the
book shows.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.games import semivalue
from reproduction.arena import plant, scenarios

RECORD = Path(__file__).parents[1] / "results" / "arena-sizes.json"
SCENARIOS = ("free-riders", "skewed-free-riders")


def contributions(seeds: int) -> Iterator[dict[str, Any]]:
    """Mean loss that a client takes off, by the clients there already; both halves of the rounds.

    ``adds`` has a row per client and a column per size, ``bad`` who sends nothing.
    """
    there = [s for s in scenarios("paper") if s.scenario in SCENARIOS]
    for s, seed in product(there, range(seeds)):
        planted = plant(s, seed)
        world = planted.world
        n = world.n
        tables = world.tables("negative_loss")
        by_size = np.array(
            [[semivalue(t, row) for row in np.diag([1 / math.comb(n - 1, k) for k in range(n)])]
             for t in tables]
        )  # fmt: skip
        for half, part in enumerate(np.array_split(by_size, 2)):
            yield {
                "dataset": s.dataset, "scenario": s.scenario, "seed": seed, "half": half,
                "bad": planted.bad.tolist(), "adds": part.mean(axis=0).T.round(6).tolist(),
            }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write results/arena-sizes.json")
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    rows = []
    for found in contributions(given.seeds):
        print(*(found[k] for k in ("dataset", "scenario", "seed", "half")))
        rows.append(json.dumps(found))
    if given.save:
        RECORD.write_text("[\n" + ",\n".join(rows) + "\n]\n")
