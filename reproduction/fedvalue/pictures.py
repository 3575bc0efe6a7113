"""Figures of the FedValue chapters that ``reproduction.figures`` has no twin for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.messages import Table
from fedkit.fedvalue.protocol.parties import parties_of
from reproduction.figures import (
    HEAT,
    INK,
    PALETTE,
    Picture,
    curves_with_bands,
    finish,
    logarithmic,
    looks,
    panels,
)

if TYPE_CHECKING:
    from typing import Any

    from pandas import DataFrame


def strips(
    tidy: DataFrame, panel: str, place: str, value: str, hue: str, *, ylabel: str
) -> Picture:
    """Draw every single number as a dot, in strips side by side.

    `panel`, `place`, `value` and `hue` are columns: the panel, the strip along its horizontal axis,
    the height, the series (colour, marker, and place within the strip).
    """
    names, places, series = (list(tidy[column].unique()) for column in (panel, place, hue))
    styles = looks(series, None)
    picture, axes = panels(1, len(names), height=3.2)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
        handles = []
        for j, kind in enumerate(series):
            dots = tidy[(tidy[panel] == name) & (tidy[hue] == kind)]
            rank, size = (dots.groupby(place)[value].transform(f) for f in ("cumcount", "size"))
            strip = dots[place].map(places.index) + 0.3 * (j - (len(series) - 1) / 2)
            look = {k: styles[str(kind)][k] for k in ("color", "marker")}
            x = strip + 0.16 * rank / np.maximum(size - 1, 1) - 0.08
            handles.append(axis.scatter(x, dots[value], s=22, label=str(kind), **look))
        axis.set_xticks(range(len(places)), [str(at) for at in places])
        axis.set_xlim(-0.5, len(places) - 0.5)
        axis.grid(False, axis="x")
        axis.axhline(0, color=INK, linewidth=0.8)
        finish(axis, "", ylabel, handles)
    return picture


_LANES = ("task party", "data party A", "data party B", "counting server")
#: (from, to, text) of each line; None as receiver: something that is done at home
_STEPS = (
    (0, 3, "a job; orders, sealed: q, $n_r$, tokens"),
    (3, 1, "its sealed order"),
    (3, 2, "its sealed order"),
    (0, 3, "encrypted IDs, tokens, a sealed report"),
    (1, 3, "encrypted IDs, tokens, a sealed report"),
    (2, 3, "the same"),
    (3, None, "joins on IDs, counts tuples of tokens"),
    (3, 0, "tuples with their counts; the sealed reports"),
    (0, None, "opens, checks, merges, divides by q"),
)


def sequence_diagram() -> Picture:
    """Draw who sends what to whom in one iteration of the counting protocol.

    Texts stand in boxes of their own, dark on light or light on dark, for either kind of page.
    """
    picture, axes = panels(height=0.9 + 0.47 * len(_STEPS))
    axis, server, last = axes[0, 0], len(_LANES) - 1, len(_STEPS) + 0.5
    axis.set_axis_off()
    axis.set_xlim(-0.5, server + 0.5)
    axis.set_ylim(last, -1.35)
    colours = [PALETTE[int(x == server)] for x in range(len(_LANES))]
    round_box = {"boxstyle": "round,pad=0.35", "linewidth": 0.8}
    paper = {**round_box, "facecolor": "#F4F6F8", "edgecolor": INK}
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    for x, (name, colour) in enumerate(zip(_LANES, colours, strict=True)):
        axis.plot([x, x], [0.2, last], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        box = {**round_box, "facecolor": colour, "edgecolor": colour}
        axis.text(x, 0, name, color="white", fontsize=9.5, weight="bold", bbox=box, **middle)
    axis.plot([-0.4, server - 0.6], [-0.55, -0.55], color=PALETTE[0], linewidth=2.5)
    known = "share the key and the IDs of the people"
    axis.text((server - 1) / 2, -0.95, known, color=INK, fontsize=9, **middle)
    axis.text(server, -0.95, "has no key", color=INK, fontsize=9, **middle)
    for row, (start, end, text) in enumerate(_STEPS, 1):
        look = {"color": "#1F2933", "fontsize": 8, "bbox": paper, **middle}
        if end is None:
            axis.plot(start, row, "s", color=colours[start], markersize=8)
            side, align = (-0.12, "right") if start == server else (0.12, "left")
            axis.text(start + side, row, text, **{**look, "ha": align, "style": "italic"})
        else:
            arrow = {"arrowstyle": "-|>", "color": colours[start], "linewidth": 1.6, "shrinkA": 0}
            axis.annotate("", (end, row), (start, row), arrowprops={**arrow, "shrinkB": 1})
            axis.text((start + end) / 2, row, text, **look)
    return picture


def times(frame: DataFrame, shown: Mapping[str, str]) -> Picture:
    """Draw the time of the protocol against some of its parameters, a panel each, two in a row.

    `shown`: what is varied, and what the axis is called.
    """
    rows = -(-len(shown) // 2)
    picture, axes = panels(rows, 2, height=0.4 + 3.0 * rows)
    names = {"hardened": "whole table, hardened", "printed": "cell by cell, printed"}
    seconds = frame[frame.metric == "core_seconds"].assign(name=frame.protocol.map(names))
    for axis, (varied, label) in zip(axes.flat, shown.items(), strict=True):
        part = seconds[seconds.varied == varied]
        curves_with_bands(
            part, varied, "value", "name", xlabel=label, ylabel="seconds of one core", axis=axis,
            order=list(names.values()),
        )  # fmt: skip
        if varied in ("rows", "parties", "features"):
            logarithmic(axis.yaxis, "y")
    return picture


class Recorder(CountingServer):
    """An honest server that keeps its answers, to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Table] = []

    def table(self, job: str) -> Table | None:
        """Return the counts, and keep them."""
        found = super().table(job)
        if found is not None:
            self.answers.append(found)
        return found


def watched(codes: Any, **options: Any) -> list[Table]:
    """Count with a server that keeps its answers, and return them."""
    task, others = parties_of(codes, **options)
    server = Recorder()
    task.count(server, wait=lambda: [party.serve(server) for party in others])
    return server.answers


def server_view(clear: npt.NDArray[np.int64], tables: Mapping[str, Table]) -> Picture:
    """Draw the true table and, beside it, what the server holds under each protocol.

    Counts stand by token of the task party and of the first data party.
    """
    shown = {"the true table": clear}
    for name, table in tables.items():
        rows, columns = (np.unique(column, return_inverse=True)[1] for column in table.tokens.T[:2])
        shown[name] = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
        np.add.at(shown[name], (rows, columns), table.counts)
    picture, axes = panels(1, len(shown), height=2.9)
    for axis, (name, counts) in zip(axes[0], shown.items(), strict=True):
        axis.imshow(counts, cmap=HEAT, aspect="auto", interpolation="nearest")
        axis.grid(False)
        axis.set_title(name)
        few = counts.size <= 36
        for (i, j), n in np.ndenumerate(counts) if few else ():
            colour = "white" if n > counts.max() / 2 else "black"
            axis.text(j, i, str(n), ha="center", va="center", fontsize=9, color=colour)
        axis.set_xticks(range(counts.shape[1]) if few else [])
        axis.set_yticks(range(counts.shape[0]))
        cell = "cell" if name == "the true table" else "token"
        finish(axis, f"{cell} of the data party", f"{cell} of the task party", ())
    return picture
