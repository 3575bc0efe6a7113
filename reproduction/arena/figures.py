"""The figures of the page on methods."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import pandas as pd

from fedkit.plots import Picture
from reproduction import figures as plots
from reproduction.arena import findings
from reproduction.arena.findings import ALIKE_RIDERS, CONTROLS, LABELS, MAIN, RETRAIN, Evidence
from reproduction.arena.measures import MEASURES

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


def _draw(
    e: Evidence, axis: Any, measures: Mapping[str, str], title: str = "", level: float | None = None
) -> None:
    """Draw a measure of each method; hollow where the method trains again."""
    names = {m: LABELS[m].removeprefix("control: ") for m in measures}
    plots.lines(
        axis, {names[m]: e.mean(measure, m) for m, measure in measures.items()}, level=level,
        hollow={names[m] for m in names if m in RETRAIN},
        second={names[m] for m in names if m in CONTROLS},
    )  # fmt: skip
    axis.set_title(title, fontsize=9, color=plots.INK)
    axis.tick_params(axis="y", labelsize=8)


def minute(e: Evidence) -> Picture:
    """Draw the main methods by four measures."""
    picture, axes = plots.panels(2, 2, height=7.6, share_y=True)
    for axis, (measure, title) in zip(axes.flat, SHOWN.items(), strict=True):
        measures = dict.fromkeys(MAIN, measure)
        if measure == "cost.evaluations":
            axis.set_xscale("symlog", linthresh=10)
            measures |= dict.fromkeys((m for m in MAIN if m in RETRAIN), "cost.trainings")
        _draw(e, axis, measures, title)
    return picture


def forest(
    e: Evidence, measure: str, methods: tuple[str, ...] = MAIN, coin: float | None = None
) -> Picture:
    """Draw one measure, best method first, and what a coin would reach."""
    rows = findings.ranked(e, measure, methods)
    picture, axes = plots.panels(height=0.7 + 0.24 * len(rows))
    _draw(e, axes[0, 0], dict.fromkeys(rows, measure))
    if coin is not None:
        axes[0, 0].axvline(coin, color=plots.INK, linestyle=(0, (2, 3)))
    axes[0, 0].set_xlabel(fill(MEASURES[measure].split(" (")[0], 70), color=plots.INK)
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
        _draw(e, axis, dict.fromkeys(MAIN, measure), title, level=0)
    return picture
