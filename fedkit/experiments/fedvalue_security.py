"""FedValue's protocol under attack, what its counts leak, and how its time grows (section 4 and 5).

The paper proves a bound (Proposition 2) and measures time (Figures 6 and 7); it attacks nothing.
What the paper leaves open is a field of a setting.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedkit.experiments import Cell
from fedkit.fedvalue import bounds
from fedkit.fedvalue.attacks import ATTACKS
from fedkit.fedvalue.cheating import attempt
from fedkit.fedvalue.counting import CountingServer, count_tuples
from fedkit.fedvalue.information import mshapley_from_table
from fedkit.fedvalue.leakage import geometric_noise, measure, suppress, with_decoys
from fedkit.fedvalue.protocol import parties_of
from fedkit.fedvalue.tables import VerticalData
from fedkit.streams import Streams
from fedkit.tabular import load_table

Codes = tuple[Any, Any, list[Any]]

#: options of the task party behind each name; the first is Algorithm 1 as printed
PROTOCOLS: dict[str, dict[str, Any]] = {
    "printed": {"variant": "cells", "hardened": False},
    "printed, whole table": {"variant": "table", "hardened": False},
    "hardened, cell by cell": {"variant": "cells", "hardened": True},
    "hardened, token per cell": {"variant": "table", "hardened": True, "tokens": "cell"},
    "hardened": {"variant": "table", "hardened": True, "tokens": "row"},
}


@dataclass(frozen=True)
class Attacked:
    """One attack on one protocol.

    Attributes
    ----------
    protocol, attack : str
        Keys of :data:`PROTOCOLS` and :data:`fedkit.fedvalue.attacks.ATTACKS`.
    low, high : int
        Range of q.
    artificial_low, artificial_high : int
        Range of n_r (Table 3: 1 to 50).
    data : str
        "example": binary label and task feature, two binary features of one data party (the
        example behind Proposition 2, 16 cells), drawn at random, the first telling much of the
        label.  "label": the data party's cell is the label itself, the attacker's best case.
    people, iterations, trials : int
        Rows; tau; counts that are attacked for each seed.
    """

    protocol: str
    attack: str
    low: int = 2
    high: int = 9
    artificial_low: int = 1
    artificial_high: int = 50
    data: str = "example"
    people: int = 200
    iterations: int = 2
    trials: int = 200


def example(kind: str, people: int, rng: np.random.Generator) -> Codes:
    """Draw the codes of people: see :class:`Attacked`."""
    y = rng.integers(0, 2, people)
    if kind == "label":
        return np.zeros(people, dtype=np.int64), y, [y]
    x, second = rng.integers(0, 2, (2, people))
    first = np.where(rng.random(people) < 0.2, 1 - y, y)
    return x, y, [2 * first + second]


def run_security(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Attack one protocol many times, on new people each time."""
    s = Attacked(**cell.settings)
    options = PROTOCOLS[s.protocol] | {
        "duplications": (s.low, s.high),
        "artificial": (s.artificial_low, s.artificial_high),
        "iterations": s.iterations,
    }
    results = []
    for seed in cell.seeds:
        streams = Streams(seed).child("security")
        ended: Tally[str] = Tally()
        for trial in range(s.trials):
            codes = example(s.data, s.people, streams.generator("people", trial))
            end = attempt(ATTACKS[s.attack], codes, seed=seed * s.trials + trial, **options)
            ended["deceived" if end.changed else end.check or "unchanged"] += 1
        metrics = {"deceived": 0.0, "unchanged": 0.0} | {
            name: count / s.trials for name, count in ended.items()
        }
        metrics["trials"] = float(s.trials)
        metrics["bound.paper"] = bounds.proposition_2(s.low, s.iterations, 16)
        metrics["bound.per_cell"] = bounds.per_cell(s.low, s.iterations)
        metrics["bound.best_bet"] = bounds.best_shift((s.low, s.high), s.iterations)[0]
        metrics["bound.known_answers"] = bounds.known_answers(
            s.people, _smallest(s), [s.artificial_low] * s.iterations
        )
        results.append({"seed": int(seed), "metrics": metrics, "series": {}})
    return results


def _smallest(s: Attacked) -> list[int]:
    """Return the q of least protection: all different where the range has enough."""
    room = s.high - s.low + 1
    return [s.low + (j if s.iterations <= room else 0) for j in range(s.iterations)]


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


@dataclass(frozen=True)
class Timed:
    """One point of Figures 6 and 7; the defaults are those of Table 3.

    Attributes
    ----------
    varied : str
        The parameter that the point belongs to.
    protocol : str
        Key of :data:`PROTOCOLS`.
    parties, features, levels, rows : int
        Data parties; features of each party, and values of a feature; people.
    duplications, iterations, artificial : int
    """

    varied: str
    protocol: str = "hardened"
    parties: int = 5
    features: int = 2
    levels: int = 5
    rows: int = 10_000
    duplications: int = 3
    iterations: int = 2
    artificial: int = 50


def run_scaling(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Time one count and the values from it; features are independent and uniform."""
    s, results = Timed(**cell.settings), []
    for seed in cell.seeds:
        rng = Streams(seed).generator("scaling")
        sizes = [s.levels**s.features, 2, *[s.levels**s.features] * s.parties]
        x, y, *columns = (rng.integers(0, size, s.rows) for size in sizes)
        started = time.perf_counter()
        task, others = parties_of(
            (x, y, columns), seed=seed, duplications=s.duplications, iterations=s.iterations,
            artificial=s.artificial, **PROTOCOLS[s.protocol],
        )  # fmt: skip
        hashed = time.perf_counter()
        server = CountingServer()

        def serve(others: Any = others, server: CountingServer = server) -> None:
            for party in others:
                party.serve(server)

        found = task.count(server, wait=serve)
        counted = time.perf_counter()
        found.values()
        valued = time.perf_counter()
        metrics = {
            "seconds": counted - started, "seconds.hash": hashed - started,
            "seconds.values": valued - counted, "queries": float(found.queries),
            "cells": float(len(found.counts)),
        }  # fmt: skip
        results.append({"seed": int(seed), "metrics": metrics, "series": {}})
    return results
