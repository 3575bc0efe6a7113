"""What a training seed of its own gives a method: ``python -m benchmarks.arena_seed [--save]``.

The arena's values of retraining are of one training seed.  Here methods value the same federations
of the paper profile with another one, and are set beside the same values on record.  ``--save``
writes the agreements into ``results/arena-seed.json``, which the book shows.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import fedkit as fk
from fedkit.arena.measures import agreement
from fedkit.records.store import Store

RECORD = Path(__file__).parents[1] / "results" / "arena-seed.json"
METHODS = ("proxy-retrained", "complementary-retrained", "loo-retrained", "exact-loss", "loo-loss")
#: added to the seed of the federation
APART = 1000


def agreements(seeds: int) -> list[dict[str, Any]]:
    """Agreement with retraining of every method on every federation, trained with another seed."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for record in Store().records("paper", "arena", "truths"):
            s = fk.arena.Scenario.of(record.cell)
            if s.scenario == "late":
                continue
            (truth,) = [r["series"] for r in record.results if r["seed"] == seed]
            planted = fk.arena.plant(s, seed)
            world = fk.arena.World(s, seed + APART, brought=planted)
            for name in METHODS:
                values = fk.arena.play(name, fk.arena.METHODS[name], world).values
                mine = values[np.argsort(planted.role)]
                found = agreement(mine, truth["retraining.accuracy"])
                place = {"dataset": s.dataset, "scenario": s.scenario, "seed": seed}
                rows.append({**place, "method": name, "agreement": round(found, 6)})
            print(*(f"{row['method']} {row['agreement']:.2f}" for row in rows[-len(METHODS) :]))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write results/arena-seed.json")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    found = agreements(given.seeds)
    if given.save:
        RECORD.write_text("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n")
