"""Figures with one mark per client, or per client and class (see fedkit.plots)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.plots.style import ERROR_BAR, INK, MARKERS, PALETTE, Picture, finish, grid, panels

__all__ = [
    "bars_with_errors",
    "circles_of_clients",
    "dots_of_clients",
]


def circles_of_clients(
    counts: Mapping[str, ArrayLike],
    special: int = 0,
    names: tuple[str, str] = ("special", "others"),
) -> Picture:
    """Draw who holds what as circles: clients along, classes up, area = number of examples.

    Parameters
    ----------
    counts : mapping of str to array of shape (clients, classes)
        Label counts; one panel each, three in a row, with the key as its title.
    special : int
        The first so many clients get a colour of their own, and a legend.
    names : pair of str
        Legend: the special clients, and the rest.
    """
    picture, axes, columns = grid(len(counts), 3, 0.4, 2.8, "row")
    largest = max(float(np.max(table, initial=0)) for table in counts.values()) or 1.0
    for place, (axis, (title, table)) in enumerate(zip(axes, counts.items(), strict=True)):
        held = np.asarray(table, dtype=np.float64)
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
        below = "client" if place >= len(counts) - columns else ""
        finish(axis, below, "" if place % columns else "class", handles if special else [])
    return picture


def dots_of_clients(
    values: Mapping[str, ArrayLike],
    kinds: Sequence[str],
    *,
    ylabel: str,
    level: float | None = None,
) -> Picture:
    """Draw one dot per client, in panels of one method each; kinds differ in colour and marker.

    Parameters
    ----------
    values : mapping of str to array of shape (clients,)
        One panel each, with the key as its title.
    kinds : sequence of str
        Kind of each client; kinds appear in the order in which they are first met.
    ylabel : str
        Quantity and unit.
    level : float, optional
        A horizontal line, such as the weight of everybody alike.
    """
    picture, axes, columns = grid(len(values), 4, 0.7, 2.2)
    names = np.asarray(kinds)
    for title, numbers in values.items():
        if np.shape(numbers) != names.shape:
            raise ValueError(
                f"values of {title!r} have shape {np.shape(numbers)} for {len(names)} kinds; "
                "pass one of each per client"
            )
    for place, (axis, (title, numbers)) in enumerate(zip(axes, values.items(), strict=True)):
        heights = np.asarray(numbers, dtype=np.float64)
        handles = []
        for j, kind in enumerate(dict.fromkeys(kinds)):
            at = np.flatnonzero(names == kind)
            look = {
                "color": PALETTE[j % len(PALETTE)], "marker": MARKERS[j % len(MARKERS)],
                "linestyle": "none",
            }  # fmt: skip
            handles += axis.plot(at, heights[at], markersize=3.5, label=kind, **look)
        if level is not None:
            axis.axhline(level, color=INK, linewidth=0.8, linestyle="--")
        axis.set_title(title, color=INK, fontsize=10)
        last_row, first = place >= len(values) - columns, place % columns == 0
        shown = handles if len(handles) > 1 else []  # one kind needs no legend
        finish(axis, "client" if last_row else "", ylabel if first else "", shown)
    return picture


def bars_with_errors(
    values: Mapping[str, ArrayLike] | ArrayLike,
    errors: Mapping[str, ArrayLike] | ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    xlabel: str = "client",
    ylabel: str = "value (units of utility)",
) -> Picture:
    """Draw the values of the clients as bars, with error bars of 1.96 standard errors.

    Parameters
    ----------
    values : array of shape (n,), or mapping from series to such arrays
        Several series stand side by side.
    errors : the same, optional
        Standard errors; NaN or zero draws no error bar.
    names : sequence of str, optional
        Names of the clients; their numbers if left out.
    """
    series = dict(values) if isinstance(values, Mapping) else {"": values}
    shapes = {np.shape(numbers) for numbers in series.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"values have the shapes {sorted(shapes)}; pass one (n,) for all series")
    spreads = dict(errors) if isinstance(errors, Mapping) else {name: errors for name in series}
    axis = panels(height=3.0)[1][0, 0]
    width, handles = 0.8 / len(series), []
    places = np.arange(next(iter(shapes))[0])
    if names is not None and len(names) != len(places):
        raise ValueError(f"names are {len(names)} for {len(places)} clients; pass one per client")
    for j, (name, numbers) in enumerate(series.items()):
        at = places + (j - (len(series) - 1) / 2) * width
        tall = np.asarray(numbers, dtype=float)
        look: dict[str, Any] = {"color": PALETTE[j % len(PALETTE)]}
        look["hatch"] = ("", "///", "...", "xx")[j % 4]
        handles.append(axis.bar(at, tall, width, edgecolor=INK, linewidth=0.5, label=name, **look))
        if spreads.get(name) is not None:
            bar = 1.96 * np.nan_to_num(np.asarray(spreads[name], dtype=float))
            axis.errorbar(at[bar > 0], tall[bar > 0], yerr=bar[bar > 0], **ERROR_BAR)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(places, [str(name) for name in (names if names is not None else places)])
    axis.grid(False, axis="x")
    return finish(axis, xlabel, ylabel, handles if len(series) > 1 else [])
