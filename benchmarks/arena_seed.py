"""What a training seed of its own gives a method: ``python -m benchmarks.arena_seed [--save]``.

The arena's values of retraining are of one training seed.  Here methods value the same federations
of the paper profile with another one, and are set beside the same values on record.  ``--save``
adds what ``results/arena-seed.json`` lacks, which the book shows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.arena import METHODS as ROWS
from fedkit.arena import agreement, play
from reproduction.arena.federations import Scenario, plant
from reproduction.arena.rows import APART
from reproduction.records import Store

RECORD = Path(__file__).parents[1] / "results" / "arena-seed.json"
METHODS = ("proxy-retrained", "loo-retrained", "exact-loss", "loo-loss")
PLACE = ("dataset", "scenario", "seed", "method")


def agreements(seeds: int) -> Iterator[dict[str, Any]]:
    """Agreement with retraining of every method on every federation, trained with another seed."""
    known = {tuple(row[k] for k in PLACE): row for row in json.loads(RECORD.read_text())}
    truths = [(Scenario.of(r.cell), r) for r in Store().records("paper", "arena", "truths")]
    for seed, (s, record) in product(range(seeds), truths):
        if s.scenario == "late":
            continue
        (truth,) = [r["series"] for r in record.results if r["seed"] == seed]
        planted = plant(s, seed)
        world = replace(planted.world, seed=seed + APART)
        for name in METHODS:
            place = (s.dataset, s.scenario, seed, name)
            if place not in known:
                values = play(ROWS[name], world).values
                found = agreement(values[np.argsort(planted.role)], truth["retraining.accuracy"])
                known[place] = dict(zip(PLACE, place, strict=True)) | {"agreement": round(found, 6)}
            yield known[place]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write results/arena-seed.json")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    rows = []
    for row in agreements(given.seeds):
        print(*row.values())
        rows.append(row)
    if given.save:
        seen = {tuple(row[k] for k in PLACE) for row in rows}
        before = json.loads(RECORD.read_text())
        rows += [row for row in before if tuple(row[k] for k in PLACE) not in seen]
        RECORD.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
