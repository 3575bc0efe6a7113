"""The figures of the pages on FedTSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedkit.games.exact import shapley
from fedkit.methods.baselines import cosine_game
from fedkit.methods.fedtsv import trajectory_game
from fedkit.methods.gram import gram_matrix
from fedkit.plots import Picture
from reproduction import figures as plots
from reproduction import overviews
from reproduction.fedtsv import findings
from reproduction.fedtsv.experiments import KINDS
from reproduction.fedtsv.findings import LABELS, LOST, RATES, RIVALS, TREATED, Evaluation


def rates(e: Evaluation) -> Picture:
    """Draw FedTSV's lead over each rival, a panel per learning rate."""
    leads = {
        (f"learning rate {rate:g}", name): e.lead("tsv", m, change)
        for rate, change in RATES.items()
        for m, name in RIVALS.items()
    }
    return plots.forests({"": overviews.intervals(leads)}, "FedTSV's lead (points)", columns=2)


def paid(moves: torch.Tensor, reference: torch.Tensor) -> dict[str, Any]:
    """Shapley values of clients by their updates in three games."""
    gram = gram_matrix(torch.cat([moves, reference[None]]))
    games = {
        "distance (FedTSV)": trajectory_game(gram, eps=0.0),
        "angle": trajectory_game(gram, "angular", eps=0.0),
        "CGSV": cosine_game(gram_matrix(torch.nn.functional.normalize(moves))),
    }
    return {name: shapley(game).values for name, game in games.items()}


def arrows(moves: torch.Tensor) -> Picture:
    """Draw updates in the plane around the reference (1, 0), and what three games pay."""
    picture, axes = plots.panels(1, 2, height=3.3)
    plane, pay = axes[0]
    for u in (0.2, np.exp(-1), 0.6, 0.8):
        far, round_ = -np.log(u), np.linspace(0, 2 * np.pi, 90)
        x, y = 1 + far * np.cos(round_), far * np.sin(round_)
        plane.plot(x, y, color=plots.INK, alpha=0.35, linewidth=0.8)
    plane.plot([0, 1], [0, 0], color=plots.INK, alpha=0.4, linewidth=9, solid_capstyle="butt")
    plane.plot(1, 0, "o", markersize=13, markerfacecolor="none", markeredgecolor=plots.INK)
    for i, end in enumerate(moves.tolist()):
        look = {"arrowstyle": "->", "linewidth": 2, "color": plots.PALETTE[i]}
        plane.annotate("", end, (0, 0), arrowprops=look)
        plane.plot(*end, plots.MARKERS[i], color=plots.PALETTE[i], label=f"client {i + 1}")
    plane.set(xlim=(-3.2, 3.2), ylim=(-1.7, 3.2), aspect="equal")
    plane.set_title("updates; grey, with a ring: the reference", fontsize=9, color=plots.INK)
    values = paid(moves.double(), torch.tensor([1.0, 0.0], dtype=torch.float64))
    for place, game in enumerate(values):
        for i, value in enumerate(values[game]):
            at = place + 0.2 * (i - 1)
            pay.plot([at, at], [0, value], color=plots.PALETTE[i], linewidth=2)
            pay.plot(at, value, plots.MARKERS[i], color=plots.PALETTE[i], markersize=6)
    pay.axhline(0, color=plots.INK, linewidth=1)
    pay.set_xticks(range(len(values)), list(values))
    pay.set_ylim(-0.8, 1.0)
    pay.set_title("Shapley value", fontsize=9, color=plots.INK)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9,
                   labelcolor=plots.INK)  # fmt: skip
    return picture


def curves(series: pd.DataFrame, methods: Sequence[str], against: str | None = None) -> Picture:
    """Draw test accuracy and loss over the rounds, or how far they are from one method's."""
    wide = findings.over_rounds(series, methods, against)
    picture, axes = plots.panels(1, 2, height=3.4)
    over = f" over {LABELS[against]}'s" if against else ""
    for axis, x, y, label in (
        (axes[0, 0], "round", "accuracy", f"accuracy{over} (%)"),
        (axes[0, 1], "loss_round", "loss", f"loss{over} (nats)"),
    ):
        part = wide[["method", "seed", x, y]].dropna()
        plots.curves_with_bands(
            part, x, y, "method", xlabel="round", ylabel=label, axis=axis,
            order=[LABELS[m] for m in methods],
        )  # fmt: skip
        if against:
            axis.axhline(0, color=plots.INK, linewidth=1)
    return picture


def gains(e: Evaluation) -> Picture:
    """Draw every method over FedAvg, in late accuracy and in test loss."""
    order = [m for m in LABELS if m in set(e.mnist.method) and m != "fedavg"]
    picture, axes = plots.panels(1, 2, height=3.9, share_y=True)
    for axis, metric, label in zip(
        axes[0], ("accuracy_late", "test_loss"),
        ("late accuracy over FedAvg's (points)", "test loss over FedAvg's (nats)"), strict=True,
    ):  # fmt: skip
        found = {LABELS[m]: e.lead(m, "fedavg", metric=metric) for m in order}
        plots.lines(axis, found, level=0)
        axis.set_xlabel(label, color=plots.INK)
    return picture


def weights(e: Evaluation) -> Picture:
    """Draw every client's weight after the run, seed 0 (the paper's Figure 2)."""
    first = e.drawn[(e.drawn.seed == 0) & e.drawn.series.isin(["weight", "kind"])]
    wide = first.pivot(index=["method", "index"], columns="series", values="value")
    picture, axes = plots.panels(1, 4, height=2.9, share_y=True)
    for axis, method in zip(axes[0], ("tsv", "loo", "cgsv", "fedavg"), strict=True):
        mine, handles = wide.loc[method], []
        for k, kind in enumerate(KINDS):
            part = mine.weight[mine.kind == k]
            look = {"color": plots.PALETTE[k], "markersize": 3.5, "label": kind}
            handles += axis.plot(part.index, part, plots.MARKERS[k], **look)
        axis.axhline(100 / len(mine), color=plots.INK, linewidth=0.8, linestyle="--")
        axis.set_title(LABELS[method], color=plots.INK, fontsize=10)
        plots.finish(axis, "client", "weight (%)" if axis is axes[0, 0] else "", handles)
    return picture


def shut_out(e: Evaluation) -> Picture:
    """Draw how many clients of each kind have the weight zero, by what is lost."""
    found = {change: e.weights(change) for change in LOST}
    frames = {
        kind: overviews.intervals({("", words): found[c][kind]
                      for c, words in LOST.items()})
        for kind in KINDS
    }  # fmt: skip
    return plots.forests(frames, "clients with weight zero (%)", columns=1, level=None)


def changes(e: Evaluation) -> Picture:
    """Draw FedTSV's lead over three rivals when one thing is changed."""
    frames = {
        RIVALS[m]: overviews.intervals(
            {("", words): e.lead("tsv", m, c) for c, words in TREATED.items()}
        )
        for m in ("cgsv", "loo", "loo-loss")
    }
    return plots.forests(frames, "FedTSV's lead (points)", columns=1)
