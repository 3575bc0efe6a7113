"""Figures of the FedValue chapters that fedkit.plots has no twin for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedkit.plots.style import INK, MARKERS, PALETTE, Picture, finish, panels, require

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["strips"]


def strips(
    tidy: DataFrame, panel: str, place: str, value: str, hue: str, *, ylabel: str
) -> Picture:
    """Draw every single number as a dot, in strips side by side.

    Parameters
    ----------
    tidy : DataFrame
        One row per dot.
    panel, place, value, hue : str
        Columns: the panel, the strip along its horizontal axis, the height, the series (colour,
        marker, and place within the strip).
    ylabel : str
        Quantity and unit.

    Raises
    ------
    ValueError
        If a column is missing or the table is empty.
    """
    require(tidy, (panel, place, value, hue))
    names = list(dict.fromkeys(tidy[panel]))
    places = list(dict.fromkeys(tidy[place]))
    series = list(dict.fromkeys(tidy[hue]))
    picture, axes = panels(1, len(names), height=3.2)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
        handles = []
        for j, kind in enumerate(series):
            across, up = [], []
            for k, at in enumerate(places):
                chosen = (tidy[panel] == name) & (tidy[place] == at) & (tidy[hue] == kind)
                dots = tidy.loc[chosen, value].to_numpy(dtype=float)
                shift = 0.3 * (j - (len(series) - 1) / 2)
                across.append(k + shift + np.linspace(-0.08, 0.08, len(dots)))
                up.append(dots)
            look = {"color": PALETTE[j % len(PALETTE)], "marker": MARKERS[j % len(MARKERS)]}
            where, high = np.concatenate(across), np.concatenate(up)
            handles.append(axis.scatter(where, high, s=22, label=str(kind), **look))
        axis.set_xticks(range(len(places)), [str(at) for at in places])
        axis.set_xlim(-0.5, len(places) - 0.5)
        axis.grid(False, axis="x")
        axis.axhline(0, color=INK, linewidth=0.8)
        finish(axis, "", ylabel, handles)
    return picture
