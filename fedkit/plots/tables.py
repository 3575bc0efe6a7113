"""Tables of the book: every one says what it shows."""

from __future__ import annotations

import math
import re
from html import escape
from itertools import cycle
from numbers import Integral, Real
from typing import TYPE_CHECKING

from fedkit.checks import whole
from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Shown", "table"]


class Shown:
    """What a notebook shows by itself.

    Attributes
    ----------
    html, text : str
        On a page, and where there is none.
    png : str or None
        A picture in base64, for where HTML is not shown.
    """

    def __init__(self, html: str, text: str, png: str | None = None) -> None:
        self.html, self.text, self.png = html, text, png

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        shown = {"text/html": self.html, "text/plain": self.text, "image/png": self.png}
        return {kind: content for kind, content in shown.items() if content is not None}

    def __repr__(self) -> str:
        return self.text


def typeset(text: str) -> str:
    """Give numbers their minus, which a hyphen is not, and keep intervals on one line."""
    text = re.sub(r"(?<![\w.)\]])-(?=\d)", "−", text)
    whole = r"\[[^][a-zA-Z]*\](?: \*)?| ± "  # an interval and its star
    return re.sub(whole, lambda found: found[0].replace(" ", "\u00a0"), text)


def table(
    shown: pd.DataFrame | pd.Series | str,
    caption: str,
    decimals: int = 2,
    *,
    cards: bool = False,
) -> Shown:
    """Show a table with a caption.

    Parameters
    ----------
    shown : DataFrame, Series or str
        Text is a table in Markdown, with a row of rules below its head.
    caption : str
        What it shows, in one or two sentences; words in backticks are code.
    decimals : int
        Of numbers that are not whole; what would round to nothing has two digits, as a power of
        ten below 0.0001, and what is missing or infinite is a dash.
    cards : bool
        Show a card per row on narrow screens, for tables of words.
    """
    pd = need("pandas", "run")
    whole("decimals", decimals, 0)
    if isinstance(shown, str):
        lines = [line.strip().strip("|").split("|") for line in shown.strip().splitlines()]
        rows = [[re.sub(r"\\([*_])|\*\*", r"\1", c).strip() for c in line] for line in lines]
        if len({len(row) for row in rows}) != 1 or len(rows) < 3:
            raise ValueError(
                f"shown is {shown!r:.60}; expected a table in Markdown: a head, a row of rules, "
                "and rows of as many cells"
            )
        index = pd.Index([row[0] for row in rows[2:]])
        shown = pd.DataFrame([row[1:] for row in rows[2:]], index, rows[0][1:])
    try:
        frame = pd.DataFrame(shown)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"shown is {shown!r:.60}; expected a data frame, a series or text"
        ) from error
    if frame.index.nlevels == frame.columns.nlevels == 1 and frame.columns.name is None:
        frame = frame.rename_axis(index=None, columns=frame.index.name)  # one head, not two

    def head(x: object) -> object:
        return escape(x, quote=False) if isinstance(x, str) else x

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
