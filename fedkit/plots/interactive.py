"""Figures that a reader turns by hand, in a page that needs neither kernel nor network.

One picture is drawn beforehand for every position of the sliders; a few lines of script show the
one that is asked for.  Without script, and in print, the page shows the first position.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from fedkit.checks import function, having, whole
from fedkit.plots.style import Picture
from fedkit.plots.tables import Shown

__all__ = ["slider"]

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


def slider(
    draw: Callable[..., Picture],
    values: Mapping[str, Sequence[object]],
    caption: str,
    *,
    alt: str = "",
    start: Mapping[str, int] | None = None,
) -> Shown:
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
    """
    function("draw", draw)
    for label, positions in having("values", values, "items", "values").items():
        having(f"values of {label!r}", positions, "__len__", "__iter__")
    shown = {str(label): [str(v) for v in positions] for label, positions in values.items()}
    count = math.prod(map(len, shown.values())) if shown else 0
    if not 0 < count <= MOST:
        raise ValueError(f"sliders need 1 to {MOST} pictures, got {count}")
    for label in set(start or {}) - set(shown):
        raise ValueError(f"start names {label!r}; the sliders are {', '.join(shown)}")
    places = {
        label: whole(f"start of {label!r}", (start or {}).get(label, 0), 0, len(texts) - 1)
        for label, texts in shown.items()
    }
    drawn = [draw(*chosen) for chosen in itertools.product(*values.values())]
    pictures = [
        base64.b64encode(having("what draw returned", picture, "png").png(100)).decode()
        for picture in drawn
    ]
    name = "sliders-" + hashlib.sha256("".join(pictures).encode()).hexdigest()[:10]
    data = json.dumps({"values": list(shown.values()), "pictures": pictures})
    ranges, place = "", 0
    for label, texts in shown.items():
        at = places[label]
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
        f"<script>{_SCRIPT.replace('@ID', name)}</script></figure>"
    )
    return Shown(html, caption, pictures[place])
