"""FedValue's protocol: cheating servers, what counts reveal of people, and how its time grows.

The paper proves a bound (Proposition 2), attacks nothing, and gives times without their settings.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedkit.fedvalue.columns import VerticalData
from fedkit.fedvalue.information import mshapley_from_table
from fedkit.fedvalue.protocol import verification as bounds
from fedkit.fedvalue.protocol.attacks import ATTACKS, View, attempt
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples
from fedkit.fedvalue.protocol.leakage import geometric_noise, measure, suppress, with_decoys
from fedkit.fedvalue.protocol.messages import Table
from fedkit.fedvalue.protocol.parties import parties_of
from fedkit.streams import Streams
from reproduction.common import each_seed, experiment
from reproduction.fedvalue import experiments as given
from reproduction.fedvalue.correlation import correlate, table
from reproduction.fedvalue.experiments import PROTOCOLS, Attacked, Leaking, Timed
from reproduction.golden import Tiny
from reproduction.records import Cell

Codes = tuple[Any, Any, list[Any]]

# ------------------------------------------------------------------- cheating servers


def example(kind: str, people: int, rng: np.random.Generator) -> Codes:
    """Draw the codes of people: see :class:`Attacked`."""
    if kind == "cells":  # sizes grow evenly, the largest being seven times the smallest
        sizes = np.maximum(1, np.round(people * np.arange(4, 29) / 400)).astype(np.int64)
        x = np.repeat(np.arange(25), sizes)
        return x, x % 2, [x]
    y = rng.integers(0, 2, people)
    if kind == "label":
        return np.zeros(people, dtype=np.int64), y, [y]
    x, second = rng.integers(0, 2, (2, people))
    first = np.where(rng.random(people) < 0.2, 1 - y, y)
    return x, y, [2 * first + second]


def _options(s: Attacked) -> dict[str, Any]:
    """What the task party of a setting is made with."""
    return PROTOCOLS[s.protocol] | {
        "duplications": (s.low, s.high),
        "artificial": (s.artificial_low, s.artificial_high),
        "iterations": s.iterations,
    }


@each_seed
def run_security(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Attack one protocol many times, on new people each time."""
    s = Attacked(**cell.settings)
    options = _options(s)
    # the q of least protection: all different where the range has enough
    step = int(s.iterations <= s.high - s.low + 1)
    least = [s.low + step * j for j in range(s.iterations)], [s.artificial_low] * s.iterations
    streams = Streams(seed).child("security")
    ended: Counter[str] = Counter()
    known, share = [], []
    for trial in range(s.trials):
        codes = example(s.data, s.people, streams.generator("people", trial))
        end = attempt(ATTACKS[s.attack], codes, seed=seed * s.trials + trial, **options)
        ended["deceived" if end.changed else end.check or "unchanged"] += 1
        sizes = np.unique(np.stack(codes[:2]), axis=1, return_counts=True)[1].tolist()
        known.append(bounds.known_answers(sizes, *least))
        share.append(bounds.share_known(sizes, s.low, s.artificial_low))
    metrics = {
        "deceived": 0.0,
        "unchanged": 0.0,
        **{name: count / s.trials for name, count in ended.items()},
        "trials": float(s.trials),
        "bound.paper": bounds.proposition_2(s.low, s.iterations, 16),
        "bound.per_cell": bounds.per_cell(s.low, s.iterations),
        "bound.best_bet": bounds.best_shift((s.low, s.high), s.iterations)[0],
        "bound.known_answers": float(np.mean(known)),
        "share_known": float(np.mean(share)),
    }
    return {"metrics": metrics, "series": {}}


def _answers(cell: Cell, device: Any) -> dict[str, Any]:
    """What the server counted and what it answered in one attack of a golden run."""
    s = Attacked(**cell.settings)
    seen: list[list[int]] = []

    def watched(view: View) -> Table:
        answer = ATTACKS[s.attack](view)
        # of the task party's tokens and the first data party's, whatever they are
        pair = np.unique(answer.tokens[:, :2], axis=0, return_inverse=True)[1].ravel()
        sums = np.bincount(pair, answer.counts, minlength=1).astype(np.int64)
        seen.append([int(view.counts.sum()), int(sums.sum()), int(sums @ sums), len(sums)])
        return answer

    people = example(s.data, s.people, Streams(0).child("security").generator("people", 0))
    attempt(watched, people, seed=0, **_options(s))
    return {"answers": seen}


# ------------------------------------------------------------------- leaks


@each_seed
def run_leak(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Let the task party draw its conclusions, and value the parties from what is left.

    The table is counted in the clear: the protocol gives the same one, bit for bit.
    """
    s = Leaking(**cell.settings)
    x, y = table(s.dataset).x, table(s.dataset).y
    streams = Streams(seed).child("leak", s.dataset)
    dealt = streams.generator("features").permutation(x.shape[1])
    groups = dealt[: s.features * (1 + s.parties)].reshape(1 + s.parties, s.features)
    own, *others = (x[:, group] for group in groups)
    codes, rng = VerticalData(own, y, tuple(others)).codes(), streams.generator("noise")
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
    leak = measure(
        task[: len(y)], codes[2], cells, counts,
        sizes=np.bincount(task), exact=s.defence != "noise",
    )  # fmt: skip
    error, rank = 1.0, 0.0  # of values of an empty table
    if len(counts):
        found = mshapley_from_table(cells, pairs, counts).values
        error = float(np.abs(found - exact).sum() / np.abs(exact).sum())
        rank = float(np.nan_to_num(correlate(found, exact)[1]))  # 0 where all are worth the same
    return {"metrics": {**asdict(leak), "error": error, "rank": rank}, "series": {}}


def contingency(codes: tuple[Any, Any, Sequence[Any]]) -> tuple[Any, Any, Any, Any]:
    """Return the task party's (x_t, y_t) per cell, each row's cell, and the table.

    The table is the occupied joint cells, ``int64[C, 1 + d]``, and their counts.
    """
    pairs, task = np.unique(np.stack(codes[:2]), axis=1, return_inverse=True)
    task = np.ravel(task)
    return pairs.T, task, *count_tuples([task, *codes[2]], np.ones(len(task), dtype=np.int64))


# ------------------------------------------------------------------- times


@each_seed
def run_scaling(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Time one count and the values from it; features are independent and uniform."""
    s = Timed(**cell.settings)
    rng = Streams(seed).generator("scaling")
    sizes = [s.levels**s.features, 2, *[s.levels**s.features] * s.parties]
    x, y, *columns = (rng.integers(0, size, s.rows) for size in sizes)
    begun, started = time.process_time(), time.perf_counter()
    task, others = parties_of(
        (x, y, columns), seed=seed, duplications=s.duplications, iterations=s.iterations,
        artificial=s.artificial, **PROTOCOLS[s.protocol],
    )  # fmt: skip
    hashed = time.perf_counter()
    server = CountingServer()
    found = task.count(server, wait=lambda: [party.serve(server) for party in others])
    counted, work = time.perf_counter(), time.process_time() - begun
    found.values()
    metrics = {
        "core_seconds": work, "seconds": counted - started, "seconds.hash": hashed - started,
        "seconds.values": time.perf_counter() - counted, "queries": float(found.queries),
        "cells": float(len(found.counts)),
    }  # fmt: skip
    return {"metrics": metrics, "series": {}}


# ------------------------------------------------------------------- cells

experiment(
    "fedvalue", "security", "Cheating servers (Proposition 2)", given.security,
    given.seeds_of_protocol,
    Tiny(
        "security", run_security, asdict(Attacked("hardened", "best bet", trials=4, people=60)),
        by="attack", switches={"protocol": {}, "data": {"attack": "weak cells"}}, more=_answers,
        felt={"security.scaled": {"protocol": "printed"}},  # where counts are more than one
    ),
)  # fmt: skip
experiment(
    "fedvalue", "leak", "What counts reveal of people", given.leak, given.seeds_of_protocol,
    Tiny(
        "leak", run_leak, asdict(Leaking("wine", features=1, parties=3)),
        switches={"defence": {"level": 2.0}},
    ),
)  # fmt: skip
experiment(
    "fedvalue", "scaling", "Time of the protocol (Figures 6 and 7)", given.scaling,
    given.seeds_of_protocol,
    Tiny(
        "scaling", run_scaling,
        asdict(Timed("rows", rows=200, parties=2, features=1, levels=3)), switches={"protocol": {}},
    ),
)  # fmt: skip
