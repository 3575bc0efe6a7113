"""What a page shows beside figures: tables with a caption, tables to search, figures to turn.

A finder and a slider need neither kernel nor network: a few lines of script show what is asked
for.  Without script, and in print, there is a table that scrolls, and the first position.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import cycle
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from fedkit.plots import Picture


class Shown:
    """What a notebook shows by itself: HTML, text where there is none, and a picture in base64."""

    def __init__(self, html: str, text: str, png: str | None = None) -> None:
        self.html, self.text, self.png = html, text, png

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        shown = {"text/html": self.html, "text/plain": self.text, "image/png": self.png}
        return {kind: content for kind, content in shown.items() if content is not None}

    def __repr__(self) -> str:
        return self.text


def _script(kind: str, name: str) -> str:
    """Return the script of one widget on a page, by its id."""
    file = Path(__file__).with_name(f"{kind}.js")
    return file.read_text("utf-8").partition("\n")[2].replace("@ID", name)


def quote(numbers: Mapping[str, Any] | None = None, **more: Any) -> None:
    """Keep numbers under their names (in `more` with dashes), for the sentences that quote them."""
    from myst_nb import glue  # what no command needs

    named = {name.replace("_", "-"): number for name, number in more.items()}
    for name, number in {**(numbers or {}), **named}.items():
        glue(name, number, display=False)


def typeset(text: str) -> str:
    """Give numbers their minus, which a hyphen is not, and keep intervals on one line."""
    text = re.sub(r"(?<![\w.)\]])-(?=\d)", "−", text)
    whole = r"\[[^][a-zA-Z]*\](?: \*)?| ± |\bn = \d+|\d / \d"  # an interval and its star
    whole += r"|(?<!\w)[✓↗?≠⊘✗⇄○∅] (?=\w)| (?=[†‡])|\d (?=[✓✗]|open\b)"  # marks, and counts of them
    return re.sub(whole, lambda found: found[0].replace(" ", "\u00a0"), text)


def table(
    shown: pd.DataFrame | pd.Series | str,
    caption: str,
    decimals: int = 2,
    *,
    cards: bool = False,
) -> Shown:
    """Show a table with a caption; words in backticks are code.

    Text is a table in Markdown, with a row of rules below its head. `decimals` are of numbers that
    are not whole: what would round to nothing has two digits, as a power of ten below 0.0001, and
    what is missing or infinite is a dash. `cards` shows a card per row on narrow screens, for
    tables of words.
    """
    if isinstance(shown, str):
        lines = [line.strip().strip("|").split("|") for line in shown.strip().splitlines()]
        rows = [[re.sub(r"\\([*_])|\*\*", r"\1", c).strip() for c in line] for line in lines]
        index = pd.Index([row[0] for row in rows[2:]])
        shown = pd.DataFrame([row[1:] for row in rows[2:]], index, rows[0][1:])
    frame = pd.DataFrame(shown)
    if frame.index.nlevels == frame.columns.nlevels == 1 and frame.columns.name is None:
        names: Any = {"index": None, "columns": frame.index.name}  # one head, not two
        frame = frame.rename_axis(**names)

    def head(x: object) -> object:
        return typeset(escape(x, quote=False)) if isinstance(x, str) else x

    def cell(x: object) -> str:
        if isinstance(x, bool | str) or not isinstance(x, Real):
            lacks = x is None or x is pd.NA or x != x
            return "–" if lacks else typeset(escape(str(x), quote=False))
        if not math.isfinite(x):
            return "–"
        if isinstance(x, Integral):
            return typeset(str(x))
        size, text = abs(float(x)), f"{float(x):z.{decimals}f}"
        nothing = size > 0 and float(text) == 0  # decimals would show nothing
        if (nothing and size < 1e-4) or size >= 1e7:
            mantissa, exponent = f"{x:.1e}".split("e")
            return typeset(f"{mantissa}·10<sup>{int(exponent)}</sup>")
        return typeset(f"{float(x):.2g}" if nothing else text)

    named = frame.index.nlevels == 1 and any(len(str(name)) > 18 for name in frame.index)
    look = ["fedkit-cards"] * cards + ["fedkit-named"] * (named and not cards)
    body = frame.map(cell).rename(index=head, columns=head)
    for axis in (0, 1):
        body = body.rename_axis([head(name) for name in body.axes[axis].names], axis=axis)
    html = body.to_html(border=0, escape=False, classes=look)
    if cards:  # each cell says of which column it is, where there is no head above it
        told = cycle([escape(str(name)) for name in frame.columns])
        html = re.sub("<td>", lambda _: f'<td data-label="{next(told)}">', html)
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(caption, quote=False))
    html = html.replace(">", f"><caption>{words}</caption>", 1)
    return Shown(html, f"{caption}\n{frame.round(decimals).to_string()}")


def finder(
    frame: pd.DataFrame,
    caption: str,
    filters: Sequence[str] = (),
    *,
    keys: Mapping[str, Sequence[float]] | None = None,
    fold: Mapping[str, Sequence[str]] | None = None,
) -> Shown:
    """Show a long table with a search field, filters, and heads that sort; the index is not shown.

    `filters` are columns with few values, each of which gets a choice; a link chooses, too:
    ``#column=value``, or ``#find=words`` for the search. `keys` are numbers by which a column of
    text is sorted, NaN last; `fold` is folded below the cells of a column, words in backticks as
    code.
    """
    keys, fold = keys or {}, fold or {}
    names = [str(name) for name in frame.columns]

    def cell(column: str, place: int, value: object) -> str:
        shown = typeset(escape(str(value), quote=False))
        key = keys[column][place] if column in keys else math.nan
        attribute = "" if math.isnan(key) else f" data-key='{key:.12g}'"
        if column in fold:
            below = escape(fold[column][place], quote=False).replace("\n", "<br>")
            below = re.sub(r"`([^`]+)`", r"<code>\1</code>", below)
            shown = f"<details><summary>{shown}</summary>{below}</details>"
        return f"<td{attribute}>{shown}</td>"

    rows = [
        "<tr>" + "".join(cell(n, i, v) for n, v in zip(names, row, strict=True)) + "</tr>"
        for i, row in enumerate(frame.itertuples(index=False, name=None))
    ]
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in names)
    name = "finder-" + hashlib.sha256("\n".join([head, *rows]).encode()).hexdigest()[:10]
    choices = "".join(
        f"<label>{escape(f)} <select name='{escape(f)}' data-column='{names.index(f)}'>"
        "<option value=''>all</option></select></label>"
        for f in filters
    )
    html = (
        f"<div class='fedkit-finder' id='{name}'>"
        "<div class='fedkit-finder-controls' hidden>"
        f"<label>search <input type='search'></label>{choices}<output></output></div>"
        "<div class='fedkit-finder-box' tabindex='0' role='region' aria-label='a long table'>"
        f"<table><caption>{escape(caption, quote=False)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f"<script>{_script('finder', name)}</script></div>"
    )
    return Shown(html, f"{caption}\n{frame.to_string(index=False)}")


def slider(
    draw: Callable[..., Picture],
    values: Mapping[str, Sequence[object]],
    caption: str,
    *,
    alt: str = "",
    start: Mapping[str, int] | None = None,
) -> Shown:
    """Draw a figure for every position of its sliders, some 20 kB each.

    ``draw(a, b, ...)`` returns the picture for one value of each slider, in their order; give all
    pictures the same limits, or they jump. `start` is the position shown first (and in print), by
    label; `alt` says what is seen, by default the caption.
    """
    shown = {str(label): [str(v) for v in positions] for label, positions in values.items()}
    drawn = [draw(*chosen) for chosen in itertools.product(*values.values())]
    pictures = [base64.b64encode(picture.png(100)).decode() for picture in drawn]
    name = "sliders-" + hashlib.sha256("".join(pictures).encode()).hexdigest()[:10]
    data = json.dumps({"values": list(shown.values()), "pictures": pictures})
    ranges, place = "", 0
    for label, texts in shown.items():
        at = (start or {}).get(label, 0)
        place = place * len(texts) + at
        ranges += (
            f"<label>{escape(label)} <input type='range' min='0' max='{len(texts) - 1}' "
            f"value='{at}'><output>{escape(texts[at])}</output></label>"
        )
    html = (
        f"<figure class='fedkit-sliders' id='{name}'><img alt='{escape(alt or caption)}' "
        f"src='data:image/png;base64,{pictures[place]}'>"
        f"<div class='fedkit-ranges' hidden>{ranges}</div>"
        f"<figcaption>{escape(caption, quote=False)}</figcaption>"
        f"<script type='application/json'>{data}</script>"
        f"<script>{_script('slider', name)}</script></figure>"
    )
    return Shown(html, caption, pictures[place])
