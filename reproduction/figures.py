"""Figures and tables of the book, in the style of :mod:`fedkit.plots`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from fedkit.checks import Floats
from fedkit.intervals import Interval, mean_interval
from fedkit.plots import INK, PALETTE, Picture, bars_with_errors, finish, panels
from reproduction.widgets import Shown, finder, quote, slider, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "HEAT", "INK", "MARKERS", "PALETTE", "Picture", "Shown", "bars_with_errors",
    "circles_of_clients",
    "curves_with_bands", "dots_with_intervals", "error_against_evaluations",
    "finder", "finish", "forests", "lines", "logarithmic", "looks", "panels", "quote",
    "scatter_estimates", "slider", "stacked", "table",
]  # fmt: skip

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
HEAT = LinearSegmentedColormap.from_list(
    "fedkit", ["#E6F1F8", "#9CCBE8", "#3E9BD1"]
)  # black is read on each


def looks(hue: Iterable[object], order: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Return colour, marker and dashes of each series, fixed by its place in `order`."""
    present = [str(name) for name in dict.fromkeys(hue)]
    names = list(order) if order is not None else present
    if set(present) - set(names):
        raise ValueError(f"order is {names}; it misses {sorted(set(present) - set(names))}")
    return {
        name: {
            "color": PALETTE[i % len(PALETTE)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": _DASHES[(i + 2 * (i // len(PALETTE))) % len(_DASHES)],
        }
        for i, name in enumerate(names)
    }


def logarithmic(side: Axis, name: str) -> None:
    """Make one side ("x" or "y") of an axes logarithmic, with few and plain labels.

    Matplotlib's own labels of a range below one decade run into each other.
    """
    axis = side.axes
    axis.set_xscale("log") if name == "x" else axis.set_yscale("log")
    low, high = side.get_view_interval()
    if high / low < 300:
        side.set_major_locator(
            LogLocator(subs=(1, 2, 5) if high / low > 4 else (1, 1.5, 2, 3, 5, 7))
        )
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    side.set_minor_formatter(NullFormatter())


def grid(
    count: int, most: int, base: float, each: float, share_y: bool | Literal["row"] = True
) -> tuple[Picture, list[Any], int]:
    """Return a figure, its `count` panels, and how many, `most` at most, stand in a row.

    Its height is `base` and `each` for every row.
    """
    columns = min(count, most)
    rows = -(-count // columns)
    picture, axes = panels(rows, columns, height=base + each * rows, share_y=share_y)
    for empty in axes.flat[count:]:
        empty.remove()
    return picture, list(axes.flat[:count]), columns


def circles_of_clients(
    counts: Mapping[str, ArrayLike],
    special: int = 0,
    names: tuple[str, str] = ("special", "others"),
) -> Picture:
    """Draw who holds what as circles: clients along, classes up, area = number of examples.

    `counts` are label counts [clients, classes] by the title of their panel; the first `special`
    clients have a colour of their own, and `names` are the legend of these and the rest.
    """
    tables = {title: np.asarray(held, dtype=float) for title, held in counts.items()}
    picture, axes, columns = grid(len(tables), 3, 0.4, 2.8, "row")
    largest = max(float(np.max(table, initial=0)) for table in tables.values()) or 1.0
    for place, (axis, (title, held)) in enumerate(zip(axes, tables.items(), strict=True)):
        handles = []
        for part, name, colour in (
            (slice(special, None), names[1], int(special > 0)),
            (slice(special), names[0], 0),
        ):
            client, label = np.nonzero(held[part])
            area = 120 * held[part][client, label] / largest
            look = {"color": PALETTE[colour], "alpha": 0.75, "linewidths": 0, "label": name}
            handles.append(axis.scatter(client + (part.start or 0), label, area, **look))
        axis.set_yticks(range(0, held.shape[1], 1 + held.shape[1] // 20))
        axis.set_title(title, color=INK, fontsize=10)
        below = "client" if place >= len(tables) - columns else ""
        finish(axis, below, "" if place % columns else "class", handles if special else [])
    return picture


def curves_with_bands(
    tidy: DataFrame,
    x: str,
    y: str,
    hue: str,
    *,
    xlabel: str | None = None,
    ylabel: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    order: Sequence[str] | None = None,
    within: tuple[float, float] = (-np.inf, np.inf),
    axis: Axes | None = None,
) -> Picture:
    """Draw mean curves over `x` with bands of 95% over the repeated rows; one seed has no band.

    `tidy` has a row per seed, series (`hue`) and place. `order` fixes colours and markers, so that
    a method looks the same in every figure; bands are cut to what the quantity can be, `within`.
    """
    axis = panels()[1][0, 0] if axis is None else axis
    handles = []
    for series, look in looks(tidy[hue], order).items():
        part = tidy[tidy[hue].astype(str) == series]
        if len(part) == 0:
            continue
        places = np.sort(part[x].unique())
        means = [mean_interval(part.loc[part[x] == at, y]) for at in places]
        cuts = np.array([(cut.mean, cut.low, cut.high) for cut in means])
        kept = ~(log_y & (cuts[:, 0] <= 0))  # an error of exactly zero has no place on a log axis
        places, cuts = places[kept], cuts[kept]
        look["markevery"] = max(1, len(places) // 12)
        (line,) = axis.plot(places, cuts[:, 0], label=series, markersize=5, linewidth=1.6, **look)
        handles.append(line)
        low, high = np.clip(cuts[:, 1:], *within).T
        low = np.maximum(low, cuts[:, 0] / 10 if log_y else -np.inf)
        axis.fill_between(places, low, high, color=look["color"], alpha=0.18, linewidth=0)
    for wanted, side, name in ((log_x, axis.xaxis, "x"), (log_y, axis.yaxis, "y")):
        if wanted:
            logarithmic(side, name)
    across, up = x if xlabel is None else xlabel, y if ylabel is None else ylabel
    return finish(axis, across, up, handles)


def error_against_evaluations(
    tidy: DataFrame,
    *,
    exact: int | None = None,
    ylabel: str = "root mean squared error",
) -> Picture:
    """Draw estimation error against the evaluations spent, both on logarithmic axes.

    `tidy` has columns evaluations, error and estimator; `exact`, the cost of the exact value, is a
    marked vertical line.
    """
    picture = curves_with_bands(
        tidy, "evaluations", "error", "estimator", xlabel="distinct utility evaluations",
        ylabel=ylabel, log_x=True, log_y=True,
    )  # fmt: skip
    if exact is not None:
        at = picture.axes[0]
        at.axvline(exact, color=INK, linewidth=1.2, linestyle=(0, (2, 3)))
        at.annotate(
            f"exact: {exact:,}", (exact, 0.98), xycoords=("data", "axes fraction"), color=INK,
            fontsize=9, rotation=90, ha="right", va="top", xytext=(-3, 0),
            textcoords="offset points",
        )  # fmt: skip
    return picture


def _dots(axis: Axes, at: Floats, rows: DataFrame, k: int, name: str) -> list[Any]:
    """Draw means with their intervals, and the paper's numbers hollow; return what is named."""
    colour, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
    axis.hlines(at, rows["low"], rows["high"], color=colour, linewidth=1.5)
    look: dict[str, Any] = {"linestyle": "none", "markersize": 4.5}
    handles = axis.plot(rows["mean"], at, marker, color=colour, label=name, **look)
    if "paper" in rows and rows["paper"].notna().any():
        look |= {"markerfacecolor": "none", "markeredgecolor": PALETTE[1], "markersize": 7}
        handles += axis.plot(rows["paper"], at, "D", markeredgewidth=1.4, label="paper", **look)
    return handles


def dots_with_intervals(table: DataFrame, xlabel: str) -> Picture:
    """Draw claimed beside measured: our mean with its interval, the paper's number hollow.

    `table` has a row per label, from the top: columns mean, low, high and, if there are any, paper;
    NaN where there is no number.
    """
    axis, rows = panels(height=0.9 + 0.32 * len(table))[1][0, 0], np.arange(float(len(table)))
    handles = _dots(axis, rows, table, 0, "measured, 95% interval")
    axis.set_yticks(rows, [str(name) for name in table.index], parse_math=False)
    axis.set_ylim(len(table) - 0.5, -0.5)
    return finish(axis, xlabel, "", handles, below=True)


def lines(
    axis: Axes,
    cuts: Mapping[str, Interval],
    *,
    hollow: Container[str] = (),
    second: Container[str] = (),
    printed: Mapping[str, float] | None = None,
    level: float | None = None,
) -> None:
    """Draw means with their intervals on an axis, a named line each from the top.

    `hollow` ones are open, the `second` ones have a second colour, `printed` numbers are hollow
    diamonds; `level` is a vertical line.
    """
    diamond: dict[str, Any] = {"mec": PALETTE[1], "mfc": "none", "mew": 1.5, "markersize": 7}
    for row, (name, cut) in enumerate(cuts.items()):
        colour = PALETTE[(6 if printed else 1) if name in second else 0]
        face = "none" if name in hollow else colour
        axis.plot([cut.low, cut.high], [row, row], color=colour, linewidth=1.6)
        axis.plot(cut.mean, row, "o", color=colour, markerfacecolor=face, markersize=4.5)
        if printed:
            axis.plot(printed[name], row, "D", **diamond)
    if level is not None:
        axis.axvline(level, color=INK, linewidth=1)
    axis.set_yticks(range(len(cuts)), [*cuts])
    axis.set_ylim(len(cuts) - 0.5, -0.5)


def forests(
    frames: Mapping[str, DataFrame],
    xlabel: str,
    *,
    columns: int = 3,
    level: float | Sequence[float] | None = 0.0,
) -> Picture:
    """Draw means with their intervals, a panel per setting and a line per label, on one scale.

    `frames` by series, which have a colour each: index (setting, label), columns mean, low, high
    and, drawn hollow, paper; `columns` panels stand in a row, `level` are vertical lines.
    """
    shown = [frame.dropna(subset="mean") for frame in frames.values()]
    titles, labels = (
        [*dict.fromkeys(key for frame in shown for key in frame.index.get_level_values(i))]
        for i in range(2)
    )
    ends = [frame.reindex(columns=["mean", "low", "high", "paper"]).to_numpy() for frame in shown]
    least, most = (f(np.concatenate(ends)) for f in (np.nanmin, np.nanmax))
    per_row = max(0.2 * len(labels), 0.16 * len(labels) * len(frames))
    picture, axes, columns = grid(len(titles), columns, 0.9, 0.55 + per_row)
    for title, axis in zip(titles, axes, strict=True):
        for line in np.atleast_1d([] if level is None else level):
            axis.axvline(line, color=INK, linewidth=0.9)
        handles: list[Any] = []
        for k, (name, frame) in enumerate(zip(frames, shown, strict=True)):
            if title not in frame.index.get_level_values(0):
                continue
            part = frame.loc[title]
            at = np.array([labels.index(label) for label in part.index], dtype=float)
            at += 0.7 * (k - (len(frames) - 1) / 2) / len(frames)
            handles += _dots(axis, at, part, k, name)
        axis.set_yticks(range(len(labels)), labels, parse_math=False)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set_title(str(title).replace(", ", "\n", 1))
        finish(axis, "", "", handles if len(handles) > 1 else [])
        axis.title.set_fontsize(8.5)
        axis.xaxis.set_major_locator(MaxNLocator(4 if columns > 2 else 6))
        if most > least:
            axis.set_xlim(least - 0.04 * (most - least), most + 0.04 * (most - least))
    if columns == 1:
        axes[-1].set_xlabel(xlabel, color=INK, fontsize=10)
    elif picture.legends:  # the label and an outside legend would take the same place
        picture.legends[0].set_title(xlabel)
        picture.legends[0].get_title().set(color=INK, fontsize=10)
    else:
        picture.supxlabel(xlabel, color=INK, fontsize=10)
    return picture


def stacked(counts: DataFrame, parts: Mapping[str, tuple[str, int]], xlabel: str) -> Picture:
    """Draw a bar per row of counts, in shares, with the counts in it.

    `parts` are words and place in the palette by column; all other columns are "other".
    """
    rest = counts[[name for name in counts if name not in parts]].sum(axis=1)
    counts = counts.assign(other=rest).reindex(columns=list(parts)).fillna(0).astype(int)
    shares = counts.div(counts.sum(axis=1), axis=0) * 100
    picture, ((axis,),) = panels(height=max(3.8, 1.6 + 0.24 * len(counts)))
    starts = shares.cumsum(axis=1) - shares
    for part, (words, colour) in parts.items():
        look: dict[str, Any] = {"color": PALETTE[colour], "label": words, "height": 0.66}
        bars = axis.barh(list(shares.index), shares[part], left=starts[part], **look)
        there = counts[part].astype(str).where(shares[part] > 4, "")
        axis.bar_label(bars, list(there), label_type="center", fontsize=9, color="black")
    axis.invert_yaxis()
    axis.grid(False, axis="y")
    axis.set_xlabel(xlabel, color=INK)
    picture.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=INK)
    return picture


def scatter_estimates(
    exact: ArrayLike,
    estimated: Mapping[str, ArrayLike] | ArrayLike,
    *,
    xlabel: str = "exact value (units of utility)",
    ylabel: str = "estimate (units of utility)",
) -> Picture:
    """Draw estimates, n or n per series, against n exact values, with the diagonal of agreement."""
    truth = np.asarray(exact, dtype=float).ravel()
    given = estimated if isinstance(estimated, Mapping) else {"": estimated}
    guesses = {name: np.asarray(each, dtype=float).ravel() for name, each in given.items()}
    axis = panels(height=4.0)[1][0, 0]
    handles = []
    for j, (name, guess) in enumerate(guesses.items()):
        look: dict[str, Any] = {"color": PALETTE[j % len(PALETTE)], "markersize": 5, "label": name}
        handles += axis.plot(truth, guess, MARKERS[j % len(MARKERS)], **look)
    everything = [truth, *guesses.values()]
    ends = [f([f(part) for part in everything]) for f in (np.nanmin, np.nanmax)]
    handles += axis.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (2, 3)), label="equal")
    return finish(axis, xlabel, ylabel, [h for h in handles if h.get_label()])
