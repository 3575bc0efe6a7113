"""Figures of the page on foundations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedkit.plots import Picture
from reproduction import figures as plots

SPOTS = {0.0: "worth alone", 0.5: "Banzhaf value", 1.0: "leave-one-out"}
#: where the name of each of three curves stands
BESIDE = ((0.3, "left", "bottom"), (0.3, "right", "top"), (0.8, "center", "bottom"))


def slopes(marginals: npt.NDArray[np.float64], names: Sequence[str], q: float) -> Picture:
    """Draw the slopes of three players over q, their heights at one q, and Shapley values."""
    picture, axes = plots.panels(1, 2, height=3.0)
    left, right = axes[0]
    grid, sizes = np.linspace(0, 1, 41), np.arange(3)[:, None]
    curves = marginals @ stats.binom.pmf(sizes, 2, grid)
    heights = marginals @ stats.binom.pmf(sizes, 2, q)
    for k, name in enumerate(names):
        color = plots.PALETTE[k]
        left.plot(grid, curves[k], color=color)
        left.plot(q, heights[k], "o", color=color)
        spot, horizontal, vertical = BESIDE[k]
        at = float(np.interp(spot, grid, curves[k]))
        left.annotate(name, (spot, at), color=color, ha=horizontal, va=vertical)
        right.bar(name, heights[k], color=color, alpha=0.8)
        right.plot(name, marginals[k].mean(), "D", mfc="white", mec=plots.INK)
    left.axvline(q, color=plots.INK, linewidth=1, linestyle=(0, (2, 3)))
    left.set_xlabel("q, chance that another clinic is there", color=plots.INK)
    left.set_ylabel("slope e(q) (points)", color=plots.INK)
    left.set_title(f"q = {q:g}", color=plots.INK)
    right.set_title(SPOTS.get(q, "between"), color=plots.INK)
    for axis in (left, right):
        axis.set_ylim(0, 50)
    return picture


def copied(names: Sequence[str], before: Any, after: Any, dropped: Any) -> Picture:
    """Draw the values of the clinics without and with a copy of the first, and leave-one-out."""
    bars = {
        "Shapley, without the copy": [*before, np.nan],
        "Shapley": after,
        "leave-one-out": dropped,
    }
    return plots.bars_with_errors(
        bars,
        names=[*names, f"{names[0]}'s copy"],
        xlabel="clinic",
        ylabel="value (points of accuracy)",
    )
