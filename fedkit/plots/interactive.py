"""Figures that a reader turns by hand, in a page that needs neither kernel nor network.

One picture is drawn beforehand for every position of the sliders; a few lines of script show the
one that is asked for.  Without script, and in print, the page shows the first position.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from fedkit import checks
from fedkit.plots.style import Picture

__all__ = ["Sliders", "slider"]

MOST = 80  # pictures; some 20 kB each
_SCRIPT = """
(() => {
  const figure = document.getElementById("@ID");
  const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const ranges = [...figure.querySelectorAll("input")];
  const show = () => {
    let place = 0;
    ranges.forEach((range, i) => {
      place = place * data.values[i].length + Number(range.value);
      range.nextElementSibling.textContent = data.values[i][range.value];
      range.setAttribute("aria-valuetext", data.values[i][range.value]);
    });
    figure.querySelector("img").src = "data:image/png;base64," + data.pictures[place];
  };
  ranges.forEach(range => range.addEventListener("input", show));
  figure.querySelector(".fedkit-ranges").hidden = false;
  show();
})();
"""


class Sliders:
    """Pictures for every position of one or more sliders; a notebook shows them by itself.

    Attributes
    ----------
    values : dict of str to list of str
        Positions of each slider, as shown.
    pictures : list of bytes
        PNG of every position; the last slider turns fastest.
    caption, alt : str
    start : tuple of int
        Position that is shown first, one number per slider.
    """

    def __init__(
        self,
        values: Mapping[str, list[str]],
        pictures: Sequence[bytes],
        caption: str,
        alt: str,
        start: tuple[int, ...],
    ) -> None:
        self.values, self.pictures = dict(values), list(pictures)
        self.caption, self.alt, self.start = caption, alt, start

    def _first(self) -> bytes:
        place = 0
        for at, shown in zip(self.start, self.values.values(), strict=True):
            place = place * len(shown) + at
        return self.pictures[place]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        text = [base64.b64encode(p).decode() for p in self.pictures]
        name = "sliders-" + hashlib.sha256("".join(text).encode()).hexdigest()[:10]
        data = {"values": list(self.values.values()), "pictures": text}
        ranges = "".join(
            f"<label>{escape(label)} <input type='range' min='0' max='{len(shown) - 1}' "
            f"value='{at}'><output>{escape(shown[at])}</output></label>"
            for (label, shown), at in zip(self.values.items(), self.start, strict=True)
        )
        first = base64.b64encode(self._first()).decode()
        html = (
            f"<figure class='fedkit-sliders' id='{name}'>"
            f"<img alt='{escape(self.alt, quote=True)}' src='data:image/png;base64,{first}'>"
            f"<div class='fedkit-ranges' hidden>{ranges}</div>"
            f"<figcaption>{escape(self.caption, quote=False)}</figcaption>"
            f"<script type='application/json'>{json.dumps(data)}</script>"
            f"<script>{_SCRIPT.replace('@ID', name)}</script></figure>"
        )
        return {"text/html": html, "image/png": first, "text/plain": self.caption}


def slider(
    draw: Callable[..., Picture],
    values: Mapping[str, Sequence[object]],
    caption: str,
    *,
    alt: str = "",
    start: Mapping[str, int] | None = None,
    dpi: int = 100,
) -> Sliders:
    """Draw a figure for every position of its sliders.

    Parameters
    ----------
    draw : callable
        ``draw(a, b, ...)`` returns the picture for one value of each slider, in their order; give
        all pictures the same limits, or they jump.
    values : dict of str to sequence
        Label of each slider and the values it runs through; at most 80 pictures together.
    caption : str
    alt : str
        What is seen, for those who do not see it; the caption by default.
    start : dict of str to int, optional
        Position shown first (and in print), by label; 0 by default.
    dpi : int
        Pixels per inch.

    Returns
    -------
    Sliders

    Raises
    ------
    ValueError
        No slider, one without values, or more than 80 pictures.
    """
    checks.function("draw", draw)
    checks.having("values", values, "items")
    checks.whole("dpi", dpi, 20, 300)
    given = {str(label): list(v) for label, v in values.items()}
    count = 1
    for label, positions in given.items():
        if not positions:
            raise ValueError(f"slider {label!r} has no values")
        count *= len(positions)
    if not given or count > MOST:
        raise ValueError(f"sliders need 1 to {MOST} pictures, got {count if given else 0}")
    first = tuple((start or {}).get(label, 0) for label in given)
    for at, (label, positions) in zip(first, given.items(), strict=True):
        if not 0 <= at < len(positions):
            raise ValueError(f"start of {label!r} must be 0 to {len(positions) - 1}, got {at}")
    pictures = [draw(*chosen).png(dpi) for chosen in itertools.product(*given.values())]
    shown = {label: [str(v) for v in positions] for label, positions in given.items()}
    return Sliders(shown, pictures, caption, alt or caption, first)
