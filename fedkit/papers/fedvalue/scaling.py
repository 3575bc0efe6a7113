"""How the time of FedValue's protocol grows (Figures 6 and 7)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.secure import parties_of
from fedkit.papers.fedvalue.security import PROTOCOLS
from fedkit.papers.registry import Cell
from fedkit.streams import Streams


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
    """Time one count and the values from it; features are independent and uniform.

    "core_seconds" is the processor time of hashing and counting, of all roles together: it does
    not depend on what else the machine does, or hardly.
    """
    s, results = Timed(**cell.settings), []
    for seed in cell.seeds:
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

        def serve(others: Any = others, server: CountingServer = server) -> None:
            for party in others:
                party.serve(server)

        found = task.count(server, wait=serve)
        counted, work = time.perf_counter(), time.process_time() - begun
        found.values()
        valued = time.perf_counter()
        metrics = {
            "core_seconds": work, "seconds": counted - started, "seconds.hash": hashed - started,
            "seconds.values": valued - counted, "queries": float(found.queries),
            "cells": float(len(found.counts)),
        }  # fmt: skip
        results.append({"seed": int(seed), "metrics": metrics, "series": {}})
    return results
