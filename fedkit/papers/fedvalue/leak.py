"""What FedValue's counts tell the task party about single people, and what defences cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedkit.datasets.tabular import load_table
from fedkit.fedvalue.cmi import mshapley_from_table
from fedkit.fedvalue.data import VerticalData
from fedkit.fedvalue.protocol.counting import count_tuples
from fedkit.fedvalue.protocol.leakage import geometric_noise, measure, suppress, with_decoys
from fedkit.papers.registry import Cell
from fedkit.streams import Streams


@dataclass(frozen=True)
class Leaking:
    """One data set, one defence.

    Attributes
    ----------
    dataset : str
    features : int
        Columns of the task party, and of each data party.
    parties : int
        Data parties.
    defence : str
        "none", "joint" (leave out joint cells below `level`), "task" (leave out cells of the task
        party below `level`), "noise" (geometric, epsilon = `level`), "decoys" (`level` for each
        cell of the task party).
    level : float
    """

    dataset: str
    features: int = 2
    parties: int = 5
    defence: str = "none"
    level: float = 0.0


@lru_cache(maxsize=4)
def _columns(dataset: str) -> tuple[Any, Any, tuple[bool, ...]]:
    table = load_table(dataset)
    return np.asarray(table.x), np.asarray(table.y), tuple(bool(d) for d in table.discrete)


def run_leak(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Let the task party draw its conclusions, and value the parties from what is left.

    The table is counted in the clear: the protocol gives the same one, bit for bit.
    """
    from scipy.stats import spearmanr

    s, results = Leaking(**cell.settings), []
    x, y, _ = _columns(s.dataset)
    for seed in cell.seeds:
        streams = Streams(seed).child("leak", s.dataset)
        dealt = streams.generator("features").permutation(x.shape[1])
        groups = dealt[: s.features * (1 + s.parties)].reshape(1 + s.parties, s.features)
        data = VerticalData(x[:, groups[0]], y, tuple(x[:, group] for group in groups[1:]))
        codes, rng = data.codes(), streams.generator("noise")
        pairs, task, cells, counts = contingency(codes)
        exact = mshapley_from_table(cells, pairs, counts).values
        if s.defence == "joint":
            cells, counts = suppress(cells, counts, int(s.level))
        elif s.defence == "task":
            big = (np.bincount(task) >= s.level)[cells[:, 0]]
            cells, counts = cells[big], counts[big]
        elif s.defence == "noise":
            cells, counts = geometric_noise(cells, counts, s.level, rng)
        elif s.defence == "decoys":
            pairs, task, cells, counts = contingency(with_decoys(codes, int(s.level), rng))
        leak = measure(task[: len(y)], codes[2], cells, counts)
        modes = [np.bincount(column).max() / len(y) for column in codes[2]]
        metrics = {
            "unique": leak.unique, "claimed": leak.claimed, "right": leak.right,
            "revealed": leak.revealed, "guess": float(np.mean(modes)),
        }  # fmt: skip
        if len(counts):
            found = mshapley_from_table(cells, pairs, counts).values
            metrics["error"] = float(np.abs(found - exact).sum() / np.abs(exact).sum())
            flat = np.ptp(found) < 1e-12
            metrics["rank"] = 0.0 if flat else float(spearmanr(found, exact).statistic)
        else:
            metrics |= {"error": 1.0, "rank": 0.0}
        results.append({"seed": int(seed), "metrics": metrics, "series": {}})
    return results


def contingency(codes: tuple[Any, Any, Sequence[Any]]) -> tuple[Any, Any, Any, Any]:
    """Return the task party's (x_t, y_t) per cell, each row's cell, and the table."""
    pairs, task = np.unique(np.stack(codes[:2]), axis=1, return_inverse=True)
    task = np.ravel(task)
    return pairs.T, task, *count_tuples([task, *codes[2]], np.ones(len(task), dtype=np.int64))
