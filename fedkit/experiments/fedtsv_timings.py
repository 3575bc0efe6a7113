"""Seconds and errors of three ways to a round's trajectory values, on made-up updates.

The values of a round can be taken exactly from one Gram matrix, sampled from the same matrix, or
taken from the mean update of every coalition, built one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fedkit.estimators import PermutationSampling, estimate, shapley
from fedkit.extras import need
from fedkit.games import FunctionGame
from fedkit.intervals import mean_interval
from fedkit.trajectory import TrajectoryGame, gram_matrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["averaging", "clock", "made_up", "timings"]

FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")


def made_up(k: int, parameters: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `k` updates, from close to the reference to its opposite, and the reference.

    The same numbers for the same arguments; float32 ``[k, P]`` and ``[P]``.
    """
    rng = torch.Generator().manual_seed(k)
    reference = torch.randn(parameters, generator=rng)
    mix = torch.linspace(1, -1, k)[:, None]
    return mix * reference + torch.randn(k, parameters, generator=rng), reference


def averaging(updates: torch.Tensor, reference: torch.Tensor) -> FunctionGame:
    """Return the trajectory game that averages updates, one coalition at a time."""
    sigma = reference.norm()

    def value(coalitions: np.ndarray) -> np.ndarray:
        found = []
        for row in coalitions:
            ids = torch.from_numpy(np.flatnonzero(row))
            mean = updates[ids].mean(dim=0) if len(ids) else torch.zeros_like(reference)
            found.append(float(torch.exp(-(mean - reference).norm() / sigma)))
        return np.array(found)

    return FunctionGame(len(updates), value)


def clock(call: Callable[[], T], repeat: int = 3) -> tuple[float, T]:
    """Return the shortest of some runs, in seconds, and the result of the last."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def _game(updates: torch.Tensor, reference: torch.Tensor) -> TrajectoryGame:
    return TrajectoryGame(gram_matrix(torch.cat([updates, reference[None]])))


def _exact(updates: torch.Tensor, reference: torch.Tensor) -> FloatArray:
    return shapley(_game(updates, reference)).values


def _averaged(updates: torch.Tensor, reference: torch.Tensor) -> FloatArray:
    return shapley(averaging(updates, reference)).values


def _sampled(updates: torch.Tensor, reference: torch.Tensor, seed: int) -> FloatArray:
    budget = 2 * len(updates) + 2  # as the row "FedTSV, sampled" of the records
    game = _game(updates, reference)
    return estimate(game, PermutationSampling(), budget=budget, seed=seed).values


def timings(
    players: Sequence[int], parameters: int, *, averaged: int = 10, draws: int = 20
) -> pd.DataFrame:
    """Seconds per round of the three ways, and how far the two others are from exact values.

    Parameters
    ----------
    players : sequence of int
        Participants of a round, one row each.
    parameters : int
        Length of an update.
    averaged : int
        Most participants for which every coalition is averaged.
    draws : int
        Repetitions of the sampling, whose error is their mean with a 95% t-interval.

    Returns
    -------
    DataFrame
        Texts; a dash where coalitions are not averaged.  Sampling asks for ``2 k + 2`` different
        coalitions, as the row *FedTSV, sampled* of the records does.  Seconds are the shortest of
        three runs (of one for averaging), the Gram matrix included.
    """
    pd = need("pandas", "run")
    rows = {}
    for k in players:
        updates, reference = made_up(k, parameters)
        exact_s, exact = clock(partial(_exact, updates, reference))
        sample_s, _ = clock(partial(_sampled, updates, reference, 0))
        found = [_sampled(updates, reference, seed) for seed in range(draws)]
        errors = [float(np.abs(values - exact).mean()) for values in found]
        row = {
            "exact (s)": f"{exact_s:.2g}",
            "sampled (s)": f"{sample_s:.2g}",
            "error of sampling": mean_interval(errors).text(3),
            "size of a value": f"{np.abs(exact).mean():.3f}",
            "averaging (s)": "–",
            "difference of averaging": "–",
        }
        if k <= averaged:
            slow_s, slow = clock(partial(_averaged, updates, reference), 1)
            row["averaging (s)"] = f"{slow_s:.2g}"
            row["difference of averaging"] = f"{np.abs(slow - exact).max():.0e}"
        rows[k] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("participants")
