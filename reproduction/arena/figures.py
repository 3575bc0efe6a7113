"""The figures of the page on methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedkit.plots import Picture
from reproduction import figures as plots
from reproduction.arena import findings
from reproduction.arena.findings import ALIKE_RIDERS, CONTROLS, LABELS, MAIN, RETRAIN, Evidence
from reproduction.arena.measures import MEASURES, interval

SHOWN = {
    "fidelity.retraining": "agrees with retraining",
    "detection": "ranks sound above bad",
    "worth.removal": "removal (points)",
    "cost.evaluations": "cost of eight rounds",
}
TRICKS = {
    "fairness.copying": "a copy adds",
    "fairness.splitting": "splitting adds",
    "fairness.apart": "copies apart by",
}


def _draw(e: Evidence, axis: Any, measure: str, rows: Sequence[str]) -> None:
    """Draw means with intervals, a row per method; hollow where the method trains again."""
    wide = e.units(measure)
    for place, method in enumerate(rows):
        if method in wide and wide[method].notna().any():
            found = interval(measure, wide[method])
            color = plots.PALETTE[1 if method in CONTROLS else 0]
            face = "none" if method in RETRAIN else color
            axis.plot([found.low, found.high], [place, place], color=color, linewidth=1.4)
            axis.plot(found.mean, place, "o", color=color, markerfacecolor=face, markersize=4.5)


def _name(axis: Any, rows: Sequence[str], title: str = "") -> None:
    axis.set_title(title, fontsize=9, color=plots.INK)
    axis.set_yticks(range(len(rows)), [LABELS[m].removeprefix("control: ") for m in rows])
    axis.tick_params(axis="y", labelsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)


def minute(e: Evidence) -> Picture:
    """Draw the main methods by four measures."""
    picture, axes = plots.panels(2, 2, height=7.6, share_y=True)
    for axis, (measure, title) in zip(axes.flat, SHOWN.items(), strict=True):
        if measure == "cost.evaluations":
            axis.set_xscale("symlog", linthresh=10)
            _draw(e, axis, measure, [m if m not in RETRAIN else "" for m in MAIN])
            _draw(e, axis, "cost.trainings", [m if m in RETRAIN else "" for m in MAIN])
        else:
            _draw(e, axis, measure, MAIN)
        _name(axis, MAIN, title)
    return picture


def forest(
    e: Evidence, measure: str, methods: tuple[str, ...] = MAIN, coin: float | None = None
) -> Picture:
    """Draw one measure, best method first, and what a coin would reach."""
    rows = findings.ranked(e, measure, methods)
    picture, axes = plots.panels(height=0.7 + 0.24 * len(rows))
    axis = axes[0, 0]
    _draw(e, axis, measure, rows)
    if coin is not None:
        axis.axvline(coin, color=plots.INK, linestyle=(0, (2, 3)))
    axis.set_xlabel(MEASURES[measure].split(" (")[0], color=plots.INK)
    _name(axis, rows)
    return picture


def joining() -> Picture:
    """Draw by how much the loss falls when a client joins so many others."""
    tidy = findings.adds(findings.sizes())
    alike = tidy.scenario == ALIKE_RIDERS
    shown: dict[str, pd.DataFrame] = {
        "label skew": tidy[~alike],
        "labels alike, rounds 5 to 8": tidy[alike & (tidy.half == 1)],
    }
    picture, axes = plots.panels(1, 2, height=3.4, share_y=True)
    for axis, (title, part) in zip(axes[0], shown.items(), strict=True):
        of_seed: Any = part.groupby(["client", "there", "seed"], as_index=False).adds.mean()
        plots.curves_with_bands(
            of_seed, "there", "adds", "client", axis=axis,
            xlabel="clients there already", ylabel="loss falls by",
        )  # fmt: skip
        axis.set_title(title, fontsize=9, color=plots.INK)
    return picture


def tricks(e: Evidence) -> Picture:
    """Draw what copying and splitting add, and how far the pay of two copies is apart."""
    picture, axes = plots.panels(1, 3, height=4.4, share_y=True)
    for axis, (measure, title) in zip(axes.flat, TRICKS.items(), strict=True):
        _draw(e, axis, measure, MAIN)
        axis.axvline(0, color=plots.INK, linewidth=0.8)
        _name(axis, MAIN, title)
    return picture
