"""The figures of the pages on FedMS."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.games.exact import shapley
from fedkit.intervals import Interval, bounded_interval
from fedkit.methods.fedms import class_difficulty, class_scores
from fedkit.plots import Picture
from reproduction import figures as plots
from reproduction import overviews
from reproduction.fedms import findings
from reproduction.fedms.experiments import PAPER_METHODS, SCENARIOS
from reproduction.fedms.findings import KIND_LABELS, LABELS, SCORES, Evaluation
from reproduction.overviews import lead, where

ROWS = (*PAPER_METHODS, "fedms-printed", "uniform-coreset", "oracle")
WORDS = {"dir10": "Dir(10), alike", "dir1": "Dir(1)", "dir0.1": "Dir(0.1), unlike"}


def corners(e: Evaluation) -> Picture:
    """Draw FedMS's square: blind or by score, everybody or the coreset averaged."""
    picture, axes = plots.panels(height=4.0)
    axis, gains = axes[0, 0], findings.gains(e)
    axis.set_axis_off()
    axis.set(xlim=(-0.45, 2.45), ylim=(-0.3, 1.6))
    blind, scored = {1, 3, 6, 8}, {2, 5, 7, 9}
    for (x, y), method, title, asked, averaged in (
        ((0, 0), "fedavg", "FedAvg", blind, blind),
        ((2, 0), "uniform-coreset", "drawn blindly, coreset averaged", blind, {3, 6}),
        ((0, 1.35), "fedms-printed", "drawn by score, all averaged", scored, scored),
        ((2, 1.35), "fedms", "FedMS", scored, {5, 9}),
    ):
        for k in range(10):  # who is asked, and who is averaged
            colour = plots.PALETTE[0 if k == 9 else 1] if k in asked else plots.INK
            face = colour if k in averaged else "none"
            shape, size = ("*", 12) if k == 9 else ("o", 7)
            look = {"markersize": size, "alpha": 1 if k in asked else 0.4}
            axis.plot(x + 0.075 * (k - 4.5), y, shape, color=colour, markerfacecolor=face, **look)
        axis.text(x, y + 0.1, title, fontsize=10, weight="bold", ha="center", color=plots.INK)
        reached = f"{e.pooled[method].mean():.1f}%"
        axis.text(x, y - 0.17, reached, fontsize=13, ha="center", color=plots.INK)
    for start, end, at, name in (
        ((0, 0.25), (0, 1.12), (-0.22, 0.68), "score"),
        ((0.45, 0), (1.55, 0), (1, 0.15), "coreset"),
        ((2, 0.25), (2, 1.12), (2.22, 0.68), "beside-coreset"),
        ((0.45, 1.35), (1.55, 1.35), (1, 1.5), "beside-score"),
        ((0.3, 0.25), (1.7, 1.12), (1.2, 0.55), "both"),
    ):
        arrow = {"arrowstyle": "->", "color": plots.INK, "linewidth": 1.4}
        axis.annotate("", end, start, arrowprops=arrow)
        i = gains[name]
        words = f"{i.mean:+.1f}\n[{i.low:.1f}, {i.high:.1f}]".replace("-", "−")
        axis.text(*at, words, ha="center", va="center", fontsize=8.5, color=plots.INK)
    return picture


def who_holds_what(e: Evaluation) -> Picture:
    """Draw the images of every client and class, MNIST (Figure 1)."""
    held = e.series("partition", dataset="mnist", owned=e.usual["owned"], seed=0)
    held = held.assign(series=held.series.astype(int))
    counts = {
        words: where(held, scenario=scenario)
        .pivot(index="index", columns="series", values="value")
        .to_numpy()
        for scenario, words in WORDS.items()
    }
    return plots.circles_of_clients(counts, 2, ("Mavericks", "other clients"))


def final_accuracy(table: pd.DataFrame) -> Picture:
    """Draw the accuracy of every method of some runs, over all classes and the Mavericks'."""
    parts = {"accuracy": "all classes", "accuracy_maverick_classes": "the Mavericks' classes"}
    found = {
        (title, LABELS[method]): bounded_interval(
            where(table, metric=m, method=method).value, 0, 100
        )
        for m, title in parts.items()
        for method in dict.fromkeys(table.method)
    }
    return plots.forests(
        {"": overviews.intervals(found)}, "test accuracy (%)", level=None, columns=2
    )


def turned(game: Any, participants: Sequence[int], mavericks: int, temperature: float) -> Picture:
    """Draw the weight of each class and what it pays, for the coalitions of one round."""
    coreset = game.table[1 + game.table[1:].sum(axis=1).argmax()]
    by_class, rising = shapley(game).values, np.argsort(coreset, kind="stable")
    weights = class_difficulty(coreset, temperature)
    picture, axes = plots.panels(1, 2, height=3.1)
    left, right = axes[0]
    left.bar(range(len(rising)), weights[rising], color=plots.PALETTE[2])
    left.set_xticks(range(len(rising)), [f"{100 * coreset[c]:.0f}" for c in rising])
    left.set_ylim(0, 1.05)
    plots.finish(left, "accuracy on the class (%)", "weight of the class", [])
    who = [f"client {i}" + " (M)" * int(i < mavericks) for i in participants]
    owner = [plots.PALETTE[0 if i < mavericks else 1] for i in participants]
    right.barh(range(len(who)), 100 * class_scores(by_class, weights), color=owner)
    right.set_yticks(range(len(who)), who)
    highest = max(np.abs(100 * by_class).max(), 1)
    right.set(xlim=(-1.05 * highest, 1.05 * highest), ylim=(len(who) - 0.5, -0.5))
    plots.finish(right, "reward (points)", "", [])
    right.axvline(0, color=plots.INK, linewidth=1)
    return picture


def table1(e: Evaluation) -> Picture:
    """Draw Table 1 on MNIST beside the paper's."""
    return plots.forests({"measured": findings.table1(e, ROWS)}, "test accuracy (%)", level=None)


def table2(e: Evaluation) -> Picture:
    """Draw Table 2 beside the paper's."""
    return plots.forests({"measured": findings.table2(e, ROWS)}, "rounds (%)", level=e.chance)


def detection(e: Evaluation) -> Picture:
    """Draw which score finds whom."""
    cuts = {
        (title, words): bounded_interval(e.auc[f"{kind}.{score}"], 0, 1)
        for kind, title in {"maverick": "Mavericks", **KIND_LABELS}.items()
        for score, words in SCORES.items()
    }
    return plots.forests({"": overviews.intervals(cuts)}, "chance", columns=5, level=0.5)


def study(e: Evaluation) -> Picture:
    """Draw what FedMS gains on the blind coreset, one change at a time."""
    return plots.dots_with_intervals(
        findings.study(e), "gain on blind drawing with the coreset (points)"
    )


def five_clients(e: Evaluation) -> Picture:
    """Draw accuracy with and without the Maverick of five, and what two scores pay it."""
    series = e.series("five_clients", scenario="iid")
    wide = series.pivot(index=["seed", "index"], columns="series", values="value").reset_index()
    picture, axes = plots.panels(1, 2, height=3.2)
    curves = {"accuracy": "all clients", "without": "without the Maverick"}
    paid = {"gap.MR": "paid by accuracy (MR)", "gap.MS-MR": "paid by difficulty (MS-MR)"}
    labels = ("test accuracy (%)", "Maverick minus others (points)")
    for axis, names, label in zip(axes[0], (curves, paid), labels, strict=True):
        rows = wide.melt(["seed", "round"], [*names], "curve", label)
        rows["curve"] = rows["curve"].map(names)
        order = [*curves.values(), *paid.values()]
        plots.curves_with_bands(rows, "round", label, "curve", axis=axis, order=order)
    return picture


def ranked_last(e: Evaluation) -> Picture:
    """Draw in how many rounds each score ranks the Maverick of five last."""
    five = e.five()
    rows = {
        words: bounded_interval(five[f"last.{score}"], 0, 100) for score, words in SCORES.items()
    }
    shown = overviews.intervals(rows)
    return plots.dots_with_intervals(shown, "rounds in which the Maverick is last (%)")


def gains(e: Evaluation) -> Picture:
    """Draw every method's gain over FedAvg and over the blind coreset, by scenario."""
    found: dict[str, dict[Any, Interval]] = {"over FedAvg": {}, "over the blind coreset": {}}
    for cuts, reference in zip(found.values(), ("fedavg", "uniform-coreset"), strict=True):
        for (scenario, words), method in product(WORDS.items(), LABELS):
            wide = e.accuracy.loc[scenario]
            if method in wide and method != reference:
                cuts[words, LABELS[method]] = lead(wide, method, reference)
    return plots.forests({k: overviews.intervals(x) for k, x in found.items()}, "gain (points)")


def rewards(e: Evaluation) -> Picture:
    """Draw what Mavericks and others are paid, MNIST (the layout of Figures 3 to 5)."""
    index = ["scenario", "method", "seed", "index"]
    series = e.series("table1", **e.usual)
    wide = series.pivot(index=index, columns="series", values="value").reset_index()
    rows = [m for m in ("fedms", "s-fedavg", "greedyfed") if m in set(wide.method)]
    picture, axes = plots.panels(len(rows), len(SCENARIOS), height=2.1 * len(rows) + 0.6)
    names = {"reward_maverick": "Mavericks", "reward_other": "other clients"}
    for (i, j), axis in np.ndenumerate(axes):
        scenario = list(SCENARIOS)[j]
        part = where(wide, scenario=scenario, method=rows[i])
        tidy = part.melt(["round", "seed"], list(names), "who", "reward").dropna()
        plots.curves_with_bands(
            tidy.assign(who=tidy["who"].map(names)), "round", "reward", "who",
            ylabel=f"{LABELS[rows[i]]}: points" if j == 0 else "",
            xlabel="round" if i == len(rows) - 1 else "", order=list(names.values()), axis=axis,
        )  # fmt: skip
        if i == 0:
            axis.set_title(f"Mavericks + {findings.SKEWS[scenario]}")
    return picture
