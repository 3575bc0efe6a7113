"""The figures of the pages on FedOwen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fedkit.games import Game, shapley
from fedkit.games.exact import semivalue
from fedkit.intervals import Interval, bounded_interval
from fedkit.plots import Picture
from reproduction import figures as plots
from reproduction import overviews
from reproduction.fedowen import calibration, findings
from reproduction.fedowen.errata import level_weights, walk_mean
from reproduction.fedowen.findings import COLUMN, CONTROLS, LABELS, SETS, Evaluation, pooled
from reproduction.overviews import lead, where


def minute(e: Evaluation) -> Picture:
    """Draw leads over FedAvg in both tables and both federations, of the rows that both have."""
    tables = {"Table 1, declared federation": pooled(e.table1),
              "Table 2, declared federation": pooled(e.table2),
              "Table 1, federation of blocks": pooled(e.blocks1),
              "Table 2, federation of blocks": pooled(e.blocks2)}  # fmt: skip
    found = (pooled(e.table1) + pooled(e.blocks1)).mean().dropna().drop("fedavg")
    parts: dict[str, dict[Any, Interval]] = {"values clients": {}, "control": {}}
    for title, wide in tables.items():
        for m in found.sort_values(ascending=False).index:
            if m in wide:
                part = parts["control" if m in CONTROLS else "values clients"]
                part[title, LABELS[m].removeprefix("control: ")] = lead(wide, m, "fedavg")
    frames = {name: overviews.intervals(cuts) for name, cuts in parts.items()}
    return plots.forests(frames, "points of accuracy over FedAvg", columns=2)


def stopped_walk(q: float = 0.5) -> Picture:
    """Draw a walk that is stopped at time q: six clients arrive, an example without data."""
    times, order = np.array([0.1, 0.24, 0.41, 0.6, 0.74, 0.9]), [4, 2, 6, 1, 5, 3]
    height = np.array([0, 0.3, 0.46, 0.66, 0.78, 0.93, 1.0])
    axis = plots.panels(height=3.2)[1][0, 0]
    axis.axvspan(q, 1, color=plots.INK, alpha=0.12, linewidth=0)
    axis.hlines(height, [0, *(times + 0.011)], [*(times - 0.011), 1], color=plots.INK, linewidth=1)
    for i, (t, client) in enumerate(zip(times, order, strict=True)):
        color = plots.PALETTE[0 if t <= q else 6]
        look = {"color": color} if t <= q else {"edgecolor": color, "facecolor": "none"}
        axis.bar(t, height[i + 1] - height[i], 0.022, bottom=height[i], **look)
        axis.annotate(f"client {client}", (t + 0.016, height[i] + 0.01), color=color, fontsize=9)
    axis.axvline(q, color=plots.PALETTE[1], linewidth=2)
    axis.annotate("stopped at q", (q + 0.01, 0.06), color=plots.PALETTE[1], fontsize=10)
    axis.annotate("lost", (0.985, 0.8), color=plots.INK, fontsize=10, ha="right")
    axis.set_xlim(0, 1)
    return plots.finish(axis, "arrival time", "utility of those who are there", [])


def stopped(game: Game, q: float, levels: int) -> Picture:
    """Draw mean marginals up to time q, and what becomes of them, in a game of three."""
    grid, names = np.linspace(0, 1, 41), ["client 0", "client 1", "client 2"]
    slopes = np.array([semivalue(game, np.array([(1 - s) ** 2, s * (1 - s), s**2])) for s in grid])
    exact, walk = shapley(game).values, walk_mean(game, q)[0]
    mean = semivalue(game, level_weights(3, levels))
    picture, axes = plots.panels(1, 2, height=3.0)
    picture.set_layout_engine(None)
    picture.subplots_adjust(left=0.09, right=0.98, bottom=0.17, top=0.9, wspace=0.3)
    left, right = axes[0]
    inside = grid <= q + 1e-9
    for j in range(3):
        left.plot(grid, slopes[:, j], color=plots.PALETTE[j])
        left.fill_between(grid[inside], slopes[inside, j], color=plots.PALETTE[j], alpha=0.25)
        right.plot(exact[j], j, "D", color=plots.INK, markersize=9, fillstyle="none")
        right.plot(walk[j], j - 0.15, "o", color=plots.PALETTE[j])
        right.plot(mean[j], j + 0.15, "s", color=plots.PALETTE[j])
    left.set(xlim=(0, 1), ylim=(0, 0.8))
    left.set_xlabel("arrival time", color=plots.INK)
    left.set_ylabel("mean marginal", color=plots.INK)
    missing = f"missing: one walk {1 - walk.sum():.2f}, Algorithm 1 {1 - mean.sum():.2f}"
    right.set_title(missing, fontsize=9, color=plots.INK)
    right.set(xlim=(0, 0.45), ylim=(2.5, -0.5))
    right.set_xlabel("value", color=plots.INK)
    right.set_yticks(range(3), names)
    return picture


def claimed(e: Evaluation) -> Picture:
    """Draw the accuracy of every row in one column beside the paper's."""
    here = e.table1.loc[tuple(COLUMN.values())]
    printed = e.tables.T.loc[(0.01, *COLUMN.values())]
    rows = [m for m in LABELS if m in here and here[m].notna().sum() > 2]
    found = overviews.intervals(
        {LABELS[m]: bounded_interval(here[m].dropna(), 0, 100) for m in rows},
        {LABELS[m]: float(printed.get(m, np.nan)) for m in rows},
    )
    return plots.dots_with_intervals(found, "final test accuracy (%)")


def curves(series: pd.DataFrame, methods: tuple[str, ...]) -> Picture:
    """Draw test accuracy over the rounds."""
    wide = series.pivot(index=["method", "seed", "index"], columns="series", values="value")
    wide = wide.reset_index().replace({"method": LABELS})
    order = [LABELS[m] for m in methods]
    return plots.curves_with_bands(
        wide[wide.method.isin(order)], "round", "accuracy", "method",
        xlabel="communication round", ylabel="test accuracy (%)", order=order, within=(0, 100),
    )  # fmt: skip


def unequal(e: Evaluation) -> Picture:
    """Draw differences between rows where clients are of very unequal size."""
    pairs = {
        "FedOwen over FedAvg": ("fedowen", "fedavg"),
        "no values over FedAvg": ("uniform", "fedavg"),
        "FedOwen over no values": ("fedowen", "uniform"),
        "FedOwen over random values": ("fedowen", "random-values"),
    }
    found = {
        (words, name): lead(e.unequal.loc[data, 0.01], *pair)
        for words, pair in pairs.items()
        for data, name in SETS.items()
    }
    return plots.forests({"": overviews.intervals(found)}, "points of accuracy", columns=2)


def sensitivity(e: Evaluation) -> Picture:
    """Draw FedOwen's lead over FedAvg, one setting changed at a time."""
    lines = findings.sensitivity(e).clip(-100, 100)
    return plots.dots_with_intervals(lines, "FedOwen over FedAvg (points)")


def sweeps(e: Evaluation) -> Picture:
    """Draw accuracy by inclusion levels, under both budgets, and by exploration rate."""
    picture, axes = plots.panels(1, 2, height=3.4)
    fixed = "FedOwen, fixed budget"
    order = [LABELS["fedowen"], fixed, LABELS["fedowen-corrected"], LABELS["random-values"]]
    others = {"levels": "fedowen-corrected", "epsilon": "random-values"}
    for axis, (name, other) in zip(axes[0], others.items(), strict=True):
        f = where(e.frame(f"sweep_{name}", "laptop"), dataset=COLUMN["dataset"], metric="accuracy")
        f = f[f.method.isin(["fedowen", other])]
        if name == "levels":  # at Q = 2 the two budgets are one
            same = f[~f.budget_grows | ((f.levels == 2) & (f.method == "fedowen"))]
            f = pd.concat([f[f.budget_grows], same.assign(method=fixed)])
        plots.curves_with_bands(
            f.replace({"method": LABELS}), name, "value", "method", axis=axis, order=order,
            ylabel="test accuracy (%)", within=(0, 100),
        )  # fmt: skip
    return picture


def level_shares(n: int = 10) -> Picture:
    """Draw the weight of all marginals of a size, by rule."""
    rows = findings.level_shares(n)
    tidy = rows.reset_index(names="size").melt("size", var_name="rule", value_name="weight")
    return plots.curves_with_bands(
        tidy, "size", "weight", "rule", ylabel="weight of that size (share)",
        xlabel="other clients in the coalition (count)",
    )  # fmt: skip


def calibrated(e: Evaluation) -> Picture:
    """Draw FedAvg's accuracy minus the printed one, of the readings with three seeds."""
    return calibration.picture(e.calibrated[e.calibrated.seeds >= 3])
