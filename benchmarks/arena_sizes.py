"""What clients add to coalitions of every size: ``python -m benchmarks.arena_sizes [--save]``.

On federations of the arena's paper profile with free-riders, labels alike and skewed, all
coalitions of every round are judged by loss.  Every semivalue is a weighted sum of these means
(:func:`fedkit.games.exact.semivalue`).  The book shows ``results/arena-sizes.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import comb

import numpy as np

from benchmarks.kept import Row, command, save
from fedkit.games import semivalue
from reproduction.arena import plant, scenarios

SCENARIOS = ("free-riders", "skewed-free-riders")


def contributions(seeds: int) -> Iterator[Row]:
    """Mean loss that a client takes off, by the clients there already; both halves of the rounds.

    ``adds`` has a row per client and a column per size, ``bad`` who sends nothing.
    """
    there = [s for s in scenarios("paper") if s.scenario in SCENARIOS]
    for s, seed in product(there, range(seeds)):
        planted = plant(s, seed)
        n = planted.world.n
        of_one_size = np.diag([1 / comb(n - 1, k) for k in range(n)])
        tables = planted.world.tables("negative_loss")
        by_size = np.array([[semivalue(table, row) for row in of_one_size] for table in tables])
        for half, part in enumerate(np.array_split(by_size, 2)):
            yield {
                "dataset": s.dataset, "scenario": s.scenario, "seed": seed, "half": half,
                "bad": planted.bad.tolist(), "adds": part.mean(axis=0).T.round(6).tolist(),
            }  # fmt: skip


if __name__ == "__main__":
    given = command(__doc__, seeds=10).parse_args()
    rows = []
    for row in contributions(given.seeds):
        print(*(row[k] for k in ("dataset", "scenario", "seed", "half")))
        rows.append(row)
    if given.save:
        save("arena-sizes.json", rows)
