"""FedValue's protocol under attack.

The paper proves a bound (Proposition 2) and attacks nothing.  What it leaves open is a field of
:class:`Attacked`.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.fedvalue.protocol import bounds
from fedkit.fedvalue.protocol.attacks import ATTACKS, attempt
from fedkit.papers.registry import Cell
from fedkit.streams import Streams

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
        Keys of :data:`PROTOCOLS` and :data:`fedkit.fedvalue.protocol.attacks.ATTACKS`.
    low, high : int
        Range of q.
    artificial_low, artificial_high : int
        Range of n_r (Table 3: 1 to 50).
    data : str
        "example": binary label and task feature, two binary features of one data party (the
        example behind Proposition 2, 16 cells), drawn at random, the first telling much of the
        label.  "label": the data party's cell is the label itself, the attacker's best case.
        "cells": the same with 25 cells of the task party, from small to large.
    people, iterations, trials : int
        Rows (about, for "cells"); tau; counts that are attacked for each seed.
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
        known, share = [], []
        for trial in range(s.trials):
            codes = example(s.data, s.people, streams.generator("people", trial))
            end = attempt(ATTACKS[s.attack], codes, seed=seed * s.trials + trial, **options)
            ended["deceived" if end.changed else end.check or "unchanged"] += 1
            sizes = np.unique(np.stack(codes[:2]), axis=1, return_counts=True)[1].tolist()
            least = _smallest(s), [s.artificial_low] * s.iterations
            known.append(bounds.known_answers(sizes, *least))
            share.append(bounds.share_known(sizes, s.low, s.artificial_low))
        metrics = {"deceived": 0.0, "unchanged": 0.0} | {
            name: count / s.trials for name, count in ended.items()
        }
        metrics["trials"] = float(s.trials)
        metrics["bound.paper"] = bounds.proposition_2(s.low, s.iterations, 16)
        metrics["bound.per_cell"] = bounds.per_cell(s.low, s.iterations)
        metrics["bound.best_bet"] = bounds.best_shift((s.low, s.high), s.iterations)[0]
        metrics["bound.known_answers"] = float(np.mean(known))
        metrics["share_known"] = float(np.mean(share))
        results.append({"seed": int(seed), "metrics": metrics, "series": {}})
    return results


def _smallest(s: Attacked) -> list[int]:
    """Return the q of least protection: all different where the range has enough."""
    room = s.high - s.low + 1
    return [s.low + (j if s.iterations <= room else 0) for j in range(s.iterations)]
