"""A long table that a reader searches, sorts and filters, in a page without kernel or network.

The table is plain HTML in a box of its own height; a few lines of script add a search field, a
choice for every filter and a button for every head.  Without script it is a table that scrolls.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from fedkit.checks import having
from fedkit.plots.tables import Shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["finder"]

_SCRIPT = """
(() => {
  const box = document.getElementById("@ID");
  const body = box.querySelector("tbody");
  const rows = [...body.rows];
  const text = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const search = box.querySelector("input");
  const filters = [...box.querySelectorAll("select")];
  const cell = (row, at) => row.cells[at].firstElementChild?.tagName === "DETAILS"
    ? row.cells[at].firstElementChild.firstElementChild.textContent : row.cells[at].textContent;
  for (const filter of filters) {
    const values = new Set(rows.map(row => cell(row, filter.dataset.column)));
    values.forEach(value => filter.add(new Option(value)));
  }
  const passes = (row, but) => filters.every(filter => filter === but || filter.value === "" ||
    cell(row, filter.dataset.column) === filter.value);
  const show = () => {
    const words = search.value.toLowerCase().split(/\\s+/);
    const found = rows.filter(row => words.every(word => text.get(row).includes(word)));
    let shown = 0;
    rows.forEach(row => { row.hidden = true; });
    found.filter(row => passes(row)).forEach(row => { row.hidden = false; shown += 1; });
    for (const filter of filters) {
      const left = new Set(found.filter(row => passes(row, filter))
        .map(row => cell(row, filter.dataset.column)));
      for (const option of filter.options) {
        option.disabled = option.value !== "" && !left.has(option.value);
      }
    }
    box.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  const key = (row, at) => Number(row.cells[at].dataset.key ?? NaN);
  [...box.querySelectorAll("th")].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      box.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = rows.some(row => "key" in row.cells[at].dataset);
      const order = numbers
        ? (a, b) => (isNaN(key(a, at)) - isNaN(key(b, at))) ||
            (down ? key(b, at) - key(a, at) : key(a, at) - key(b, at))
        : (a, b) => (down ? -1 : 1) * cell(a, at).localeCompare(cell(b, at));
      body.append(...rows.sort(order));
    });
  });
  [search, ...filters].forEach(part => part.addEventListener("input", show));
  const asked = new URLSearchParams(location.hash.slice(1));
  search.value = asked.get("find") ?? "";
  filters.forEach(filter => { filter.value = asked.get(filter.name) ?? ""; });
  box.querySelector(".fedkit-finder-controls").hidden = false;
  show();
})();
"""


def finder(
    frame: pd.DataFrame,
    caption: str,
    filters: Sequence[str] = (),
    *,
    keys: Mapping[str, Sequence[float]] | None = None,
    fold: Mapping[str, Sequence[str]] | None = None,
) -> Shown:
    """Show a long table with a search field, filters, and heads that sort.

    Parameters
    ----------
    frame : DataFrame
        Cells are shown as text; the index is not shown.
    caption : str
    filters : sequence of str
        Columns with few values; each gets a choice.  A link chooses, too: ``#column=value``, or
        ``#find=words`` for the search.
    keys : mapping of str to sequence of float, optional
        Numbers by which a column of text is sorted, NaN last.
    fold : mapping of str to sequence of str, optional
        What is folded below the cells of a column, line by line; words in backticks are code.
    """
    keys, fold = keys or {}, fold or {}
    having("frame", frame, "columns", "itertuples")
    if not len(frame):
        raise ValueError("frame has no rows: there is nothing to search")
    missing = [name for name in (*filters, *keys, *fold) if name not in frame]
    if missing:
        raise ValueError(f"no column {missing}; the table has {list(frame)}")
    for told, lists in (("keys", keys), ("fold", fold)):
        for column, each in lists.items():
            if len(each) != len(frame):
                raise ValueError(
                    f"{told} of {column!r} are {len(each)} for {len(frame)} rows; pass one per row"
                )
    names = [str(name) for name in frame.columns]

    def cell(column: str, place: int, value: object) -> str:
        shown = escape(str(value), quote=False)
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
        f"<script>{_SCRIPT.replace('@ID', name)}</script></div>"
    )
    return Shown(html, f"{caption}\n{frame.to_string(index=False)}")
