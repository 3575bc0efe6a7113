"""Figures with one mark per client, or per client and class (see fedkit.plots)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.checks import numbers, whole
from fedkit.plots.given import FloatArray, series
from fedkit.plots.style import (
    ERROR_BAR,
    INK,
    MARKERS,
    PALETTE,
    Picture,
    finish,
    grid,
    panels,
    untangle,
)

__all__ = ["bars_with_errors", "circles_of_clients", "dots_of_clients"]

CROWDED = 60  # bars that leave no room for outlines and hatches
THIN: dict[str, Any] = {"elinewidth": 0.7, "path_effects": []}


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
    tables = series("counts", counts, 2)
    if not all((table >= 0).all() for table in tables.values()):
        raise ValueError("counts are negative or missing in places; expected numbers of examples")
    whole("special", special, 0)
    if len(names) != 2:
        raise ValueError(f"names are {names!r}; expected two, of the special clients and the rest")
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
    drawn, names = series("values", values, 1), np.asarray(kinds)
    if names.ndim != 1:
        raise ValueError(f"kinds is {kinds!r:.60}; expected a list with the kind of each client")
    for title, heights in drawn.items():
        if heights.shape != names.shape:
            raise ValueError(
                f"values of {title!r} have shape {heights.shape} for {len(names)} kinds; "
                "pass one of each per client"
            )
    picture, axes, columns = grid(len(drawn), 4, 0.7, 2.2)
    for place, (axis, (title, heights)) in enumerate(zip(axes, drawn.items(), strict=True)):
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
        last_row, first = place >= len(drawn) - columns, place % columns == 0
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
        Names of the clients; their numbers if left out.  Where they would touch they are turned,
        and of many some are left out.
    """
    tall = series("values", values if isinstance(values, Mapping) else {"": values}, 1)
    n = len(next(iter(tall.values())))
    if any(len(heights) != n for heights in tall.values()):
        raise ValueError(
            f"values have the shapes {[heights.shape for heights in tall.values()]}; pass one (n,) "
            "for all series"
        )
    spread = _spreads(tall, errors)
    if names is not None and (np.ndim(names) != 1 or len(names) != n):
        told = len(names) if np.ndim(names) == 1 else repr(names)
        raise ValueError(f"names are {told} for {n} clients; pass one per client")
    axis = panels(height=3.0)[1][0, 0]
    width, handles, places = 0.8 / len(tall), [], np.arange(n)
    crowded = n * len(tall) > CROWDED
    edge, bar = (0.0, ERROR_BAR | THIN) if crowded else (0.5, ERROR_BAR)
    for j, (name, heights) in enumerate(tall.items()):
        at = places + (j - (len(tall) - 1) / 2) * width
        look: dict[str, Any] = {"color": PALETTE[j % len(PALETTE)]}
        look["hatch"] = "" if crowded else ("", "///", "...", "xx")[j % 4]
        drawn = axis.bar(at, heights, width, edgecolor=INK, linewidth=edge, label=name, **look)
        handles.append(drawn)
        if name in spread:
            half = 1.96 * spread[name]
            axis.errorbar(at[half > 0], heights[half > 0], yerr=half[half > 0], **bar)
    axis.axhline(0, color=INK, linewidth=0.8)
    labels = [str(name) for name in (places if names is None else names)]
    axis.set_xticks(places, labels, parse_math=False)
    axis.grid(False, axis="x")
    finish(axis, xlabel, ylabel, handles if len(tall) > 1 else [])
    return untangle(axis)


def _spreads(values: dict[str, FloatArray], errors: Any) -> dict[str, FloatArray]:
    """Return standard errors by series; none is 0."""
    if errors is None:
        return {}
    given = errors if isinstance(errors, Mapping) else dict.fromkeys(values, errors)
    found = {}
    for name, each in given.items():
        if name not in values:
            raise ValueError(f"errors are of {name!r}; the values are of {list(values)}")
        spread = numbers(f"errors of {name!r}", each)
        if spread.shape != values[name].shape or (spread < 0).any():
            raise ValueError(
                f"errors of {name!r} have shape {spread.shape}, values {values[name].shape}; pass "
                "one standard error of at least 0, or NaN, for each value"
            )
        found[name] = np.nan_to_num(spread)
    return found
