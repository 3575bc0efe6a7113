"""Pictures of FedValue's protocol: who sends what to whom, and what the server sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.messages import Table
from fedkit.fedvalue.protocol.secure import parties_of
from fedkit.plots.style import HEAT, INK, PALETTE, Picture, panels

__all__ = ["Recorder", "sequence_diagram", "server_view"]

#: (from, to, text) of each line; None as receiver: something that is done at home
Steps = Sequence[tuple[int, int | None, str]]
LANES = ("task party", "data party A", "data party B", "counting server")
STEPS: Steps = (
    (0, 3, "job, sealed orders\n(q, $n_r$, tokens)"),
    (3, 1, "sealed order"),
    (3, 2, "sealed order"),
    (0, 3, "encrypted IDs,\ntokens, sealed report"),
    (1, 3, "encrypted IDs,\ntokens, sealed report"),
    (2, 3, "encrypted IDs,\ntokens, sealed report"),
    (3, None, "joins on IDs,\ncounts tuples"),
    (3, 0, "tuples of tokens,\ncounts, sealed reports"),
    (0, None, "checks, merges,\ndivides by q"),
)


def sequence_diagram(lanes: Sequence[str] = LANES, steps: Steps = STEPS) -> Picture:
    """Draw who sends what to whom in one iteration."""
    picture, axes = panels(height=0.8 + 0.5 * len(steps))
    axis = axes[0, 0]
    axis.set_axis_off()
    last = len(steps) + 0.6
    for x, name in enumerate(lanes):
        colour = PALETTE[1] if x == len(lanes) - 1 else PALETTE[0]
        axis.plot([x, x], [0.2, last], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.text(
            x, -0.05, name, ha="center", va="bottom", color=colour, fontsize=9.5, weight="bold"
        )
    for row, (start, end, text) in enumerate(steps, 1):
        if end is None:
            left = start == len(lanes) - 1
            axis.text(
                start + (-0.06 if left else 0.06), row, text, color=INK, fontsize=8,
                ha="right" if left else "left", va="center", style="italic",
            )  # fmt: skip
            axis.plot(start, row, "s", color=PALETTE[1] if left else PALETTE[0], markersize=7)
            continue
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 1}
        axis.annotate("", (end, row), (start, row), arrowprops=arrow)
        gap = start + (0.5 if end > start else -0.5)  # between two lanes, never on one
        look = {"ha": "center", "va": "bottom", "color": INK, "fontsize": 8, "linespacing": 1.0}
        axis.text(gap, row - 0.06, text, **look)
    axis.set_xlim(-0.45, len(lanes) - 0.5)
    axis.set_ylim(last, -0.6)
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


def matrix(table: Table) -> npt.NDArray[np.int64]:
    """Return the counts as token of the task party by token of the first data party."""
    rows, columns = (np.unique(column, return_inverse=True)[1] for column in table.tokens.T[:2])
    found = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
    np.add.at(found, (rows, columns), table.counts)
    return found


def server_view(clear: npt.NDArray[np.int64], tables: dict[str, Table]) -> Picture:
    """Draw the true table and, beside it, what the server holds under each protocol."""
    shown = {"the true table": clear, **{name: matrix(table) for name, table in tables.items()}}
    picture, axes = panels(1, len(shown), height=2.9)
    for axis, (name, counts) in zip(axes[0], shown.items(), strict=True):
        axis.imshow(counts, cmap=HEAT, aspect="auto", interpolation="nearest")
        axis.grid(False)
        axis.set_title(name, color=INK, fontsize=10)
        few = counts.size <= 36
        if few:
            for (i, j), n in np.ndenumerate(counts):
                dark = n > counts.max() / 2
                axis.text(j, i, str(n), ha="center", va="center", fontsize=9,
                          color="white" if dark else "black")  # fmt: skip
        axis.set_xticks([] if not few else range(counts.shape[1]))
        axis.set_yticks(range(counts.shape[0]))
        cell = "cell" if name == "the true table" else "token"
        axis.set_xlabel(f"{cell} of the data party", color=INK, fontsize=9)
        axis.set_ylabel(f"{cell} of the task party", color=INK, fontsize=9)
    return picture
