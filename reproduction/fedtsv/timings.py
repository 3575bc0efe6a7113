"""Seconds and errors of three ways to a round's trajectory values, on made-up updates.

The values of a round can be taken exactly from one Gram matrix, sampled from the same matrix, or
taken from the mean update of every coalition, built one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from fedkit.estimators import PermutationSampling, estimate
from fedkit.games.exact import shapley
from fedkit.games.game import Game
from fedkit.methods.fedtsv import trajectory_game
from fedkit.methods.gram import gram_matrix
from reproduction.common import Setting, each_seed
from reproduction.records import Cell


def made_up(k: int, parameters: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `k` updates, float32 ``[k, P]``, from close to the reference to its opposite."""
    rng = torch.Generator().manual_seed(k)
    reference = torch.randn(parameters, generator=rng)
    mix = torch.linspace(1, -1, k)[:, None]
    return mix * reference + torch.randn(k, parameters, generator=rng), reference


def averaging(updates: torch.Tensor, reference: torch.Tensor) -> Game:
    """Return the trajectory game that averages updates, one coalition at a time."""
    sigma = reference.norm()

    def value(coalitions: np.ndarray) -> np.ndarray:
        found = []
        for row in coalitions:
            ids = torch.from_numpy(np.flatnonzero(row))
            mean = updates[ids].mean(dim=0) if len(ids) else torch.zeros_like(reference)
            found.append(float(torch.exp(-(mean - reference).norm() / sigma)))
        return np.array(found)

    return Game(len(updates), value)


def clock(call: Callable[[], Any], repeat: int = 3) -> tuple[float, Any]:
    """Return the shortest of some runs, in seconds, and the result of the last."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


@dataclass(frozen=True)
class Timing(Setting):
    """One round that is valued in three ways."""

    participants: int
    parameters: int  # length of an update
    averaged: bool = True  # always: it is part of the names of the records


@each_seed
def run_timing(cell: Cell, seed: int, device: str | None, progress: bool) -> dict[str, Any]:
    """Time the three ways, on the CPU; every seed is one draw of the sampling."""
    s = Timing.of(cell)
    updates, reference = made_up(s.participants, s.parameters)

    def game() -> Game:
        return trajectory_game(gram_matrix(torch.cat([updates, reference[None]])))

    # as many coalitions as the row "FedTSV, sampled" of the records
    sampling = partial(estimate, estimator=PermutationSampling(), budget=2 * s.participants + 2)
    exact_s, exact = clock(lambda: shapley(game()).values)
    sampled_s, sampled = clock(lambda: sampling(game(), seed=seed).values)
    metrics = {
        "seconds.exact": exact_s,
        "seconds.sampled": sampled_s,
        "error.sampled": float(np.abs(sampled - exact).mean()),
        "size": float(np.abs(exact).mean()),
    }
    if seed == cell.seeds[0]:
        slow_s, slow = clock(lambda: shapley(averaging(updates, reference)).values, 1)
        metrics["seconds.averaged"] = slow_s
        metrics["error.averaged"] = float(np.abs(slow - exact).max())
    return {"metrics": metrics, "data": {}}
