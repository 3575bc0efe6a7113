"""Figures of the book: one style, one palette, no global state.

Every function returns a :class:`Picture`, a matplotlib Figure that a notebook shows by itself,
without pyplot.  Backgrounds are transparent; text, axes and grid are a grey that has about the
same contrast on white as on a dark page.  Colours are Okabe and Ito's, which colour-blind
readers can tell apart, less black and yellow, which vanish on one of the two pages; every
series also has a marker and a line style of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.plotstyle import (
    ERROR_BAR,
    HEAT,
    INK,
    MARKERS,
    PALETTE,
    Picture,
    finish,
    looks,
    panels,
    require,
    t_interval,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "INK",
    "MARKERS",
    "PALETTE",
    "Picture",
    "bars_with_errors",
    "class_histogram",
    "curves_with_bands",
    "dots_with_intervals",
    "error_against_evaluations",
    "heatmap_clients",
    "panels",
    "scatter_estimates",
    "t_interval",
]


def curves_with_bands(
    tidy: DataFrame,
    x: str,
    y: str,
    hue: str,
    *,
    level: float = 0.95,
    paper: float | Mapping[str, float] | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    order: Sequence[str] | None = None,
    axis: Axes | None = None,
) -> Picture:
    """Draw mean curves over `x` with t-interval bands over the repeated rows (the seeds).

    Parameters
    ----------
    tidy : DataFrame
        One row per seed, series and place; columns `x`, `y`, `hue`.
    x, y, hue : str
        Columns: horizontal axis, vertical axis, series.
    level : float
        Level of the intervals; places with one seed have no band.
    paper : float or mapping from series to float, optional
        Printed value(s), drawn as marked horizontal line(s).
    xlabel, ylabel : str, optional
        Axis labels with units; the column names if left out.
    log_x, log_y : bool
        Logarithmic axes.
    order : sequence of str, optional
        Series in the order that fixes colours and markers; those absent from `tidy` only keep
        their place, so that a method looks the same in every figure.
    axis : Axes, optional
        Draw into this axes of :func:`panels` instead of a new figure.

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, or `order` misses a series.
    """
    require(tidy, (x, y, hue))
    axis = panels()[1][0, 0] if axis is None else axis
    handles = []
    for series, look in looks(tidy[hue], order).items():
        part = tidy[tidy[hue].astype(str) == series]
        if len(part) == 0:
            continue
        places = np.sort(part[x].unique())
        cuts = np.array([t_interval(part.loc[part[x] == at, y], level) for at in places])
        kept = ~(log_y & (cuts[:, 0] <= 0))  # an error of exactly zero has no place on a log axis
        places, cuts = places[kept], cuts[kept]
        look["markevery"] = max(1, len(places) // 12)
        (line,) = axis.plot(places, cuts[:, 0], label=series, markersize=5, linewidth=1.6, **look)
        handles.append(line)
        floor = cuts[:, 0] / 10 if log_y else -np.inf
        low = np.maximum(cuts[:, 1], floor)
        axis.fill_between(places, low, cuts[:, 2], color=look["color"], alpha=0.18, linewidth=0)
        if isinstance(paper, Mapping) and series in paper:
            axis.axhline(paper[series], color=look["color"], linewidth=1, linestyle=(0, (2, 3)))
    if paper is not None:
        if not isinstance(paper, Mapping):
            axis.axhline(float(paper), color=INK, linewidth=1.2, linestyle=(0, (2, 3)))
        from matplotlib.lines import Line2D

        handles.append(Line2D([], [], color=INK, linestyle=(0, (2, 3)), label="paper"))
    if log_x:
        axis.set_xscale("log")
    if log_y:
        axis.set_yscale("log")
    return finish(axis, xlabel or x, ylabel or y, handles)


def error_against_evaluations(
    tidy: DataFrame,
    *,
    x: str = "evaluations",
    y: str = "error",
    hue: str = "estimator",
    exact: int | None = None,
    level: float = 0.95,
    xlabel: str = "distinct utility evaluations",
    ylabel: str = "root mean squared error",
    order: Sequence[str] | None = None,
    axis: Axes | None = None,
) -> Picture:
    """Draw estimation error against the evaluations spent, both on logarithmic axes.

    Parameters
    ----------
    tidy : DataFrame
        One row per estimator, budget and seed.
    x, y, hue : str
        Its columns: evaluations spent, error, name of the estimator.
    exact : int, optional
        Cost of the exact value (2**n evaluations), drawn as a marked vertical line.
    level, xlabel, ylabel, order, axis
        As in :func:`curves_with_bands`.
    """
    picture = curves_with_bands(
        tidy, x, y, hue, level=level, xlabel=xlabel, ylabel=ylabel, log_x=True, log_y=True,
        order=order, axis=axis,
    )  # fmt: skip
    if exact is not None:
        at = axis if axis is not None else picture.axes[0]
        at.axvline(exact, color=INK, linewidth=1.2, linestyle=(0, (2, 3)))
        at.annotate(
            f"exact: {exact:,}", (exact, 0.98), xycoords=("data", "axes fraction"), color=INK,
            fontsize=9, rotation=90, ha="right", va="top", xytext=(-3, 0),
            textcoords="offset points",
        )  # fmt: skip
    return picture


def dots_with_intervals(
    table: DataFrame,
    *,
    label: str = "label",
    mean: str = "mean",
    low: str = "low",
    high: str = "high",
    paper: str = "paper",
    xlabel: str,
    level: float = 0.95,
) -> Picture:
    """Draw claimed beside measured: our mean with its interval, the paper's number hollow.

    Parameters
    ----------
    table : DataFrame
        One row per line of the figure, drawn from the top; nan where there is no number.
    label, mean, low, high, paper : str
        Its columns; `paper` may be missing.
    xlabel : str
        Quantity and unit.
    level : float
        Level of the interval, for the legend.
    """
    require(table, (label, mean, low, high))
    axis = panels(height=0.9 + 0.32 * len(table))[1][0, 0]
    rows = np.arange(len(table))
    ours = table[mean].to_numpy(dtype=float)
    ends = np.abs(table[[low, high]].to_numpy(dtype=float).T - ours)
    handles: list[Any] = [
        axis.errorbar(
            ours, rows, xerr=ends, fmt="o", color=PALETTE[0], markersize=5,
            capsize=3, linewidth=1.6, label=f"measured, {100 * level:g}% interval",
        )
    ]  # fmt: skip
    if paper in table:
        printed = table[paper].to_numpy(dtype=float)
        look = dict(marker="D", markersize=7, markerfacecolor="none", markeredgecolor=PALETTE[1])
        handles += axis.plot(
            printed, rows, linestyle="none", markeredgewidth=1.5, label="paper", **look
        )
    axis.set_yticks(rows, [str(name) for name in table[label]])
    axis.set_ylim(len(table) - 0.5, -0.5)
    return finish(axis, xlabel, "", handles, below=True)


def class_histogram(
    before: ArrayLike,
    after: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    names: tuple[str, str] = ("before", "after"),
    xlabel: str = "class",
    ylabel: str = "training examples (count)",
) -> Picture:
    """Draw label counts, before and (if given) after a long tail was cut into them.

    Parameters
    ----------
    before, after : array of shape (classes,)
        Counts.
    classes : sequence of str, optional
        Names of the classes; their numbers if left out.
    names : pair of str
        Legend of the two series.
    xlabel, ylabel : str
        Axis labels.
    """
    series = {names[0]: before} if after is None else {names[0]: before, names[1]: after}
    return bars_with_errors(series, names=classes, xlabel=xlabel, ylabel=ylabel)


def heatmap_clients(
    counts: ArrayLike,
    *,
    classes: Sequence[str] | None = None,
    clients: Sequence[str] | None = None,
    label: str = "examples (count)",
) -> Picture:
    """Draw how many examples of each class each client holds.

    Parameters
    ----------
    counts : array of shape (clients, classes)
        Label counts; a cell with none is left empty.
    classes, clients : sequence of str, optional
        Names; their numbers if left out.
    label : str
        What the colour means, with its unit.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"counts have shape {table.shape}; expected (clients, classes)")
    rows, columns = table.shape
    picture, axes = panels(height=1.2 + 0.26 * min(rows, 24))
    axis = axes[0, 0]
    axis.grid(False)
    shown = np.where(table > 0, table, np.nan)
    image = axis.pcolormesh(shown, cmap=HEAT, vmin=0, edgecolors="none")
    if rows <= 12 and columns <= 12:
        for (i, j), number in np.ndenumerate(table):
            if number > 0:
                colour = "white" if number > 0.6 * table.max() else "black"
                look = {"ha": "center", "va": "center", "fontsize": 7.5, "color": colour}
                axis.text(j + 0.5, i + 0.5, f"{number:g}", **look)
    bar = picture.colorbar(image, ax=axis, pad=0.02)
    bar.set_label(label, color=INK, fontsize=9.5)
    bar.ax.tick_params(colors=INK, labelsize=9)
    bar.outline.set_edgecolor(INK)
    sides = ((columns, classes, axis.set_xticks), (rows, clients, axis.set_yticks))
    for steps, given, put in sides:
        every = max(1, steps // 20)
        names = [str(name) for name in (given if given is not None else range(steps))]
        put(np.arange(steps)[::every] + 0.5, names[::every])
    axis.invert_yaxis()
    return finish(axis, "class", "client", [])


def bars_with_errors(
    values: Mapping[str, ArrayLike] | ArrayLike,
    errors: Mapping[str, ArrayLike] | ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    multiple: float = 1.96,
    xlabel: str = "client",
    ylabel: str = "value (units of utility)",
    axis: Axes | None = None,
) -> Picture:
    """Draw the values of the clients as bars, with error bars of `multiple` standard errors.

    Parameters
    ----------
    values : array of shape (n,), or mapping from series to such arrays
        Values; several series stand side by side.
    errors : the same, optional
        Standard errors; nan or zero draws no error bar.
    names : sequence of str, optional
        Names of the clients; their numbers if left out.
    multiple : float
        Length of an error bar in standard errors (1.96: 95% for a normal estimate).
    xlabel, ylabel, axis
        As in :func:`curves_with_bands`.
    """
    series = dict(values) if isinstance(values, Mapping) else {"": values}
    spreads = dict(errors) if isinstance(errors, Mapping) else {name: errors for name in series}
    axis = panels(height=3.0)[1][0, 0] if axis is None else axis
    shapes = {name: np.asarray(numbers).shape for name, numbers in series.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 1:
        raise ValueError(f"values have shapes {shapes}; expected one number per bar in each")
    width, handles = 0.8 / len(series), []
    places = np.arange(next(iter(shapes.values()))[0])
    for j, (name, numbers) in enumerate(series.items()):
        at = places + (j - (len(series) - 1) / 2) * width
        tall = np.asarray(numbers, dtype=float)
        look: dict[str, Any] = {"color": PALETTE[j % len(PALETTE)]}
        look["hatch"] = ("", "///", "...", "xx")[j % 4]
        handles.append(axis.bar(at, tall, width, edgecolor=INK, linewidth=0.5, label=name, **look))
        if spreads.get(name) is not None:
            bar = multiple * np.nan_to_num(np.asarray(spreads[name], dtype=float))
            axis.errorbar(at[bar > 0], tall[bar > 0], yerr=bar[bar > 0], **ERROR_BAR)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(places, [str(name) for name in (names if names is not None else places)])
    axis.grid(False, axis="x")
    return finish(axis, xlabel, ylabel, handles if len(series) > 1 else [])


def scatter_estimates(
    exact: ArrayLike,
    estimated: Mapping[str, ArrayLike] | ArrayLike,
    errors: ArrayLike | None = None,
    *,
    multiple: float = 1.96,
    xlabel: str = "exact value (units of utility)",
    ylabel: str = "estimate (units of utility)",
    axis: Axes | None = None,
) -> Picture:
    """Draw estimates against exact values, with the diagonal on which they would agree.

    Parameters
    ----------
    exact : array of shape (n,)
        Exact values.
    estimated : array of shape (n,), or mapping from series to such arrays
        Estimates.
    errors : array of shape (n,), optional
        Standard errors of a single series.
    multiple, xlabel, ylabel, axis
        As in :func:`bars_with_errors`.
    """
    truth = np.asarray(exact, dtype=np.float64).ravel()
    series = dict(estimated) if isinstance(estimated, Mapping) else {"": estimated}
    axis = panels(height=4.0)[1][0, 0] if axis is None else axis
    drawn, handles = [truth], []
    for j, (name, numbers) in enumerate(series.items()):
        guess = np.asarray(numbers, dtype=np.float64).ravel()
        if guess.shape != truth.shape:
            raise ValueError(f"{guess.size} estimates for {truth.size} exact values; give as many")
        spread = None if errors is None else multiple * np.nan_to_num(np.asarray(errors).ravel())
        look: dict[str, Any] = {"color": PALETTE[j % len(PALETTE)], "markersize": 5, "capsize": 2}
        look |= {"fmt": MARKERS[j % len(MARKERS)], "label": name}
        handles.append(axis.errorbar(truth, guess, yerr=spread, **look))
        drawn.append(guess)
    ends = [min(part.min() for part in drawn), max(part.max() for part in drawn)]
    handles += axis.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (2, 3)), label="equal")
    return finish(axis, xlabel, ylabel, [h for h in handles if h.get_label()])
