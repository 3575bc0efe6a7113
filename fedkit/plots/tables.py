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

__all__ = ["CaptionedTable", "table"]


class CaptionedTable:
    """A table with its caption; a notebook shows it by itself.

    Attributes
    ----------
    frame : DataFrame
    caption : str
    cards : bool
        Whether narrow screens show a card per row.
    """

    def __init__(
        self, frame: pd.DataFrame, caption: str, decimals: int, blank: str, cards: bool = False
    ) -> None:
        self.frame, self.caption, self.cards = frame, caption, cards
        self._decimals, self._blank = decimals, blank

    def _number(self, x: float) -> str:
        """As many decimals as asked for; powers of ten where these would show nothing."""
        shown = f"{x:.{self._decimals}f}"
        if (x != 0 and float(shown) == 0) or abs(x) >= 1e7:
            mantissa, exponent = f"{x:.1e}".split("e")
            return f"{mantissa}·10<sup>{int(exponent)}</sup>"
        return shown.replace("-", "−")

    def _cell(self, x: object) -> str:
        if isinstance(x, bool | str) or not isinstance(x, Real):
            return self._blank if x is None or x != x else escape(str(x), quote=False)
        if not math.isfinite(x):
            return self._blank
        return str(x) if isinstance(x, Integral) else self._number(float(x))

    def _repr_html_(self) -> str:
        look = ["fedkit-cards"] if self.cards else None
        html = self.frame.map(self._cell).to_html(border=0, escape=False, classes=look)
        if self.cards:  # each cell says of which column it is, where there is no head above it
            told = cycle([escape(str(name)) for name in self.frame.columns])
            html = re.sub("<td>", lambda _: f'<td data-label="{next(told)}">', html)
        caption = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.caption, quote=False))
        return html.replace(">", f"><caption>{caption}</caption>", 1)

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.frame.round(self._decimals).to_string()}"


def table(
    shown: pd.DataFrame | pd.Series | str,
    caption: str,
    decimals: int = 2,
    blank: str = "–",
    *,
    cards: bool = False,
) -> CaptionedTable:
    """Show a table with a caption.

    Parameters
    ----------
    shown : DataFrame, Series or str
        Text is a table in Markdown, with a row of rules below its head.
    caption : str
        What it shows, in one or two sentences; words in backticks are code.
    decimals : int
        Of numbers that are not whole; what would round to nothing is a power of ten.
    blank : str
        In the place of what is missing or infinite.
    cards : bool
        Show a card per row on narrow screens, for tables of words.

    Returns
    -------
    CaptionedTable
    """
    pd = need("pandas", "run")
    whole("decimals", decimals, 0)
    if not isinstance(shown, str):
        return CaptionedTable(pd.DataFrame(shown), caption, decimals, blank, cards)
    lines = [line.strip().strip("|").split("|") for line in shown.strip().splitlines()]
    rows = [[re.sub(r"\\([*_])|\*\*", r"\1", c).strip() for c in line] for line in lines]
    frame = pd.DataFrame([row[1:] for row in rows[2:]], columns=rows[0][1:])
    frame.index = pd.Index([row[0] for row in rows[2:]])
    return CaptionedTable(frame, caption, decimals, blank, cards)
