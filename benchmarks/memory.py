"""How much memory each row of the arena takes while it values the clients of one federation.

Run ``python -m benchmarks.memory [--repeats 3] [--save]`` on Linux.  Every row runs in a process of
its own, forked when the rounds are made, and evaluates its coalitions itself instead of looking
them up; what is told is how far resident memory rises above what the rounds need.  One thread.
``--save`` writes ``results/memory.json``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from benchmarks.kept import command, save_one
from fedkit.arena import METHODS, View, World, bounded_loss
from fedkit.games.game import Game
from fedkit.learning.evaluation import Evaluator
from reproduction.arena import plant, scenarios


class Untabulated(World):
    """A federation whose coalitions are evaluated when they are asked for."""

    def tables(self, utility):
        """The game of each round."""
        f = self.federation
        judge = Evaluator(self.model, f.x_val, f.y_val, utility, device="cpu")
        rounds = [replace(r, evaluator=judge) for r in self.rounds]
        by_loss = utility == "negative_loss"
        values = [bounded_loss(r, judge) if by_loss else r.game() for r in rounds]
        return [Game(len(r.participants), v) for r, v in zip(rounds, values, strict=True)]


def _resident(what: str) -> float:
    """MiB of this process: VmRSS, or VmHWM, the most since it was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(what))) / 1024


def rise(name: str, w: World, answer: multiprocessing.SimpleQueue) -> None:
    """How far a row's work raises resident memory, in MiB."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    METHODS[name].values(View(w))
    answer.put(_resident("VmHWM") - before)


if __name__ == "__main__":
    given = command(__doc__, repeats=3).parse_args()
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    found: dict[str, dict[str, float]] = {}
    for s in scenarios("paper"):
        if s.dataset != "mnist" or s.scenario not in ("labels", "twenty"):
            continue
        w = Untabulated(**vars(plant(s, 0).world))
        _ = w.rounds
        for name in METHODS:
            rises = []
            for _ in range(given.repeats):
                answer = fork.SimpleQueue()
                child = fork.Process(target=rise, args=(name, w, answer))
                child.start()
                child.join()
                if child.exitcode:
                    raise RuntimeError(f"{name} ended without an answer")
                rises.append(answer.get())
            found.setdefault(name, {})[s.scenario] = round(median(rises), 1)
            print(f"{s.scenario:8} {name:18} {found[name][s.scenario]:8.1f} MiB", flush=True)
    if given.save:
        save_one("memory.json", torch=torch.__version__, threads=1, MiB=found)
