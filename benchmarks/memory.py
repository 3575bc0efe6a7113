"""How much memory each row of the arena takes while it values the clients of one federation.

Run ``python -m benchmarks.memory [--repeats 3] [--save]`` on Linux.  Every row runs in a process of
its own, forked when the rounds are made, and evaluates its coalitions itself instead of looking
them up; what is told is how far resident memory rises above what the rounds need.  One thread.
``--save`` writes ``results/memory.json``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path

import torch

from fedkit.arena import METHODS, View, World, bounded_loss
from fedkit.games.game import Game
from fedkit.learning.evaluation import Evaluator
from reproduction.arena import plant, scenarios

RECORD = Path(__file__).parents[1] / "results" / "memory.json"


class Untabulated(World):
    """A federation whose coalitions are evaluated when they are asked for."""

    def tables(self, utility):
        """The game of each round."""
        f = self.federation
        judge = Evaluator(self.model, f.x_val, f.y_val, utility, device="cpu")
        rounds = [replace(r, evaluator=judge) for r in self.rounds]
        values = [
            bounded_loss(r, judge) if utility == "negative_loss" else r.game() for r in rounds
        ]
        return [Game(len(r.participants), v) for r, v in zip(rounds, values, strict=True)]


def _resident(what: str) -> float:
    """MiB of this process: VmRSS, or VmHWM, the most since it was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(what))) / 1024


def rise(name: str, w: World) -> float:
    """How far a row's work raises resident memory, in MiB."""
    receive, send = os.pipe()
    if os.fork() == 0:
        try:
            method = METHODS[name]
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            before = _resident("VmRSS")
            method.values(View(w))
            os.write(send, f"{_resident('VmHWM') - before:.3f}".encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive) as answer:
        told = answer.read()
    os.wait()
    if not told:
        raise RuntimeError(f"{name} ended without an answer")
    return float(told)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for s in scenarios("paper"):
        if s.dataset == "mnist" and s.scenario in ("labels", "twenty"):
            w = Untabulated(**vars(plant(s, 0).world))
            _ = w.rounds
            for name in METHODS:
                rises = [rise(name, w) for _ in range(options.repeats)]
                found.setdefault(name, {})[s.scenario] = round(statistics.median(rises), 1)
                print(f"{s.scenario:8} {name:18} {found[name][s.scenario]:8.1f} MiB", flush=True)
    if options.save:
        told = {"torch": torch.__version__, "threads": 1, "MiB": found}
        RECORD.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
