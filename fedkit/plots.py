"""Plots of values, in the book's style: one palette, one ink, no global state.

Backgrounds are transparent; text, axes and grid are a grey that is seen on white as on a dark page.
Colours are Okabe and Ito's, which colour-blind readers can tell apart, less black and yellow.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import Floats, brief, numbers, real, whole
from fedkit.extras import need

need("matplotlib", extra="run")

from matplotlib import patheffects  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import AutoLocator, MaxNLocator  # noqa: E402

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK = "#767676"  # contrast 4.5:1 on white, 4.1:1 on #121212
WIDTH = 7.2  # inches, every figure
_STEPS = [digit * 10**k for k in range(9) for digit in (1, 2, 5)]
# a black line with a white edge is seen on white, on dark and on every bar
CROWDED = 60  # bars that leave no room for outlines and hatches
ERROR_BAR: dict[str, Any] = {
    "fmt": "none", "ecolor": "black", "elinewidth": 1.2, "capsize": 0,
    "path_effects": [patheffects.withStroke(linewidth=3.2, foreground="white")],
}  # fmt: skip


class Picture(Figure):
    """A matplotlib Figure that shows itself in a notebook, with no pyplot state behind it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.entries: dict[str, Any] = {}  # label -> artist, of the legend

    def png(self, dpi: int = 144) -> bytes:
        """Return the figure as PNG bytes, the same bytes for the same figure."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()


def panels(
    rows: int = 1, columns: int = 1, *, height: float = 3.4, share_y: bool | Literal["row"] = False
) -> tuple[Picture, NDArray[Any]]:
    """Return an empty figure in the book's style and its axes, ``object[rows, columns]``.

    The height, in inches, is of the whole figure, whose width is fixed; the panels, or those of a
    row, may share the vertical axis.
    """
    whole("rows", rows, 1)
    whole("columns", columns, 1)
    real("height", height, 0.0, above=True)
    picture = Picture(figsize=(WIDTH, height), layout="constrained", facecolor="none")
    axes = picture.subplots(rows, columns, squeeze=False, sharey=share_y)
    for axis in axes.flat:
        axis.set_facecolor("none")
        dress(axis)
    return picture, axes


def dress(axis: Axes) -> None:
    """Give axes the book's grid and ink."""
    axis.grid(True, color=INK, alpha=0.22, linewidth=0.6)
    axis.set_axisbelow(True)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
    axis.tick_params(which="both", colors=INK, labelsize=9)


def finish(
    axis: Axes, xlabel: str, ylabel: str, handles: Sequence[Any], *, below: bool = False
) -> Picture:
    """Label the axes, put the legend beside (or below) the panel, return the figure."""
    axis.set_xlabel(xlabel, color=INK, fontsize=10)
    axis.set_ylabel(ylabel, color=INK, fontsize=10)
    axis.title.set_color(INK)
    axis.title.set_fontsize(10.5)
    if isinstance(axis.xaxis.get_major_locator(), AutoLocator):
        axis.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    picture: Any = axis.figure  # from panels()
    picture.entries.update({handle.get_label(): handle for handle in handles})
    for old in list(picture.legends):  # panels share one legend, grown by each of them
        old.remove()
    if picture.entries:
        below = below or len(picture.axes) > 1  # panels need the width
        place = "outside lower center" if below else "outside right upper"
        longest = max(len(name) for name in picture.entries)
        columns = max(1, min(4, int(14 * picture.get_figwidth() / (longest + 5)))) if below else 1
        look: dict[str, Any] = {"loc": place, "ncols": columns, "labelcolor": INK}
        picture.legend(handles=list(picture.entries.values()), frameon=False, fontsize=9, **look)
    return cast(Picture, picture)


def untangle(axis: Axes) -> Picture:
    """Turn the names below an axis where they would touch, and show every k-th where too many."""
    picture: Any = axis.figure
    picture.draw_without_rendering()
    labels = axis.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    if all(left.x1 < right.x0 for left, right in pairwise(boxes)):
        return cast(Picture, picture)
    texts = [label.get_text() for label in labels]
    wide, high = max(box.width for box in boxes), max(box.height for box in boxes)
    turned = not all(text.isdecimal() for text in texts)
    room = axis.get_window_extent().width / (1.2 * (high if turned else wide))
    step = next(k for k in _STEPS if len(texts) <= k * room)
    axis.set_xticks(axis.get_xticks()[::step], texts[::step])
    if turned:
        axis.tick_params(axis="x", labelrotation=90)
        picture.set_figheight(picture.get_figheight() + wide / picture.dpi)
    return cast(Picture, picture)


THIN: dict[str, Any] = {"elinewidth": 0.7, "path_effects": []}


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
    tall = _by_series("values", values)
    if errors is not None and not isinstance(errors, Mapping):
        errors = dict.fromkeys(tall, errors)
    spread = _by_series("errors", errors or {})
    n = len(next(iter(tall.values()), ()))
    for name, each in (*tall.items(), *spread.items()):
        if len(each) != n or name not in tall or np.any(spread.get(name, 0) < 0):
            raise ValueError(
                f"values or errors of {name!r} have shape {each.shape}; pass {n} for each series, "
                "and errors of at least 0, or NaN"
            )
    if not any(np.isfinite(heights).any() for heights in tall.values()):
        raise ValueError("values hold no number: there is nothing to draw")
    if names is not None and np.shape(names) != (n,):
        raise ValueError(f"names are {brief(names)} for {n} clients; pass one per client")
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
            half = 1.96 * np.nan_to_num(spread[name])
            axis.errorbar(at[half > 0], heights[half > 0], yerr=half[half > 0], **bar)
    axis.axhline(0, color=INK, linewidth=0.8)
    labels = [str(name) for name in (places if names is None else names)]
    axis.set_xticks(places, labels, parse_math=False)
    axis.grid(False, axis="x")
    finish(axis, xlabel, ylabel, handles if len(tall) > 1 else [])
    return untangle(axis)


def _by_series(what: str, values: Any) -> dict[str, Floats]:
    """Return numbers by series, float64[n] each, or refuse what is none."""
    given = values if isinstance(values, Mapping) else {"": values}
    found = {title: numbers(f"{what} of {title!r}", each) for title, each in given.items()}
    for title, array in found.items():
        if array.ndim != 1:
            raise ValueError(f"{what} of {title!r} have shape {array.shape}; expected (n,)")
    return found
