"""What a training seed of its own gives a method: ``python -m benchmarks.arena_seed [--save]``.

The arena's values of retraining are of one training seed.  Here methods value the same federations
of the paper profile with another one, and are set beside the same values on record.  ``--save``
adds what ``results/arena-seed.json`` lacks, which the book shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.kept import Row, command, on_record, save
from fedkit.arena import METHODS as ROWS
from fedkit.arena import agreement, play
from reproduction.arena.federations import Scenario, plant
from reproduction.arena.rows import APART
from reproduction.records import Store

METHODS = ("proxy-retrained", "loo-retrained", "exact-loss", "loo-loss")
PLACE = ("dataset", "scenario", "seed", "method")


def agreements(seeds: int) -> Iterator[Row]:
    """Agreement with retraining, by another seed, of what has none on record."""
    known = {tuple(row[k] for k in PLACE) for row in on_record("arena-seed.json")}
    for seed, record in product(range(seeds), Store().records("paper", "arena", "truths")):
        s = Scenario.of(record.cell)
        if s.scenario == "late":
            continue
        (truth,) = [r["series"] for r in record.results if r["seed"] == seed]
        planted = plant(s, seed)
        world = replace(planted.world, seed=seed + APART)
        for name in METHODS:
            place = (s.dataset, s.scenario, seed, name)
            if place not in known:
                values = play(ROWS[name], world).values[np.argsort(planted.role)]
                found = agreement(values, truth["retraining.accuracy"])
                yield dict(zip(PLACE, place, strict=True)) | {"agreement": round(found, 6)}


if __name__ == "__main__":
    given = command(__doc__, seeds=2).parse_args()
    rows = []
    for row in agreements(given.seeds):
        print(*row.values())
        rows.append(row)
    if given.save:
        save("arena-seed.json", rows, PLACE)
