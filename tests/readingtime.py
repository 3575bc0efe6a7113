"""How long a rendered page takes to read, by a formula that anybody can check.

Words at 200 a minute (captions, headings and the folded parts' titles among them; a formula in a
line counts as one word), a displayed equation 10 seconds, a line of visible code 2 seconds, a
table 30 seconds, a figure 20 seconds.  What is folded is not counted: hidden cells, dropdowns and
solutions are for those who want them.  ``python tests/readingtime.py`` prints every page.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import bs4

FOLDED = (
    "details, .toggle, .dropdown, .solution, .cell.tag_hide-cell, .cell.tag_remove-cell, "
    ".tag_hide-input > .cell_input, .tag_remove-input > .cell_input, .headerlink, script, style"
)


@dataclass(frozen=True)
class Reading:
    """What a page asks of a reader."""

    words: int
    equations: int
    code: int  # lines
    tables: int
    figures: int

    @property
    def minutes(self) -> float:
        seconds = 10 * self.equations + 2 * self.code + 30 * self.tables + 20 * self.figures
        return self.words / 200 + seconds / 60


def reading(page: Path) -> Reading:
    """Count a rendered page."""
    article = bs4.BeautifulSoup(page.read_text("utf-8"), "html.parser").find("article")
    assert article is not None, page
    for folded in article.select(FOLDED):
        folded.extract()
    found = {}
    for what, where in (
        ("code", "div.highlight pre"), ("tables", "table"), ("figures", "img, svg"),
        ("equations", "div.math"), ("inline", "span.math"), ("outputs", "div.output pre"),
    ):  # fmt: skip
        found[what] = [e.extract() for e in article.select(where)]
    lines = [line for e in found["code"] for line in e.get_text().splitlines() if line.strip()]
    words = len(article.get_text(" ").split()) + len(found["inline"])
    return Reading(
        words, len(found["equations"]), len(lines), len(found["tables"]), len(found["figures"])
    )


if __name__ == "__main__":
    html = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    for path in sorted([*html.glob("book/*.html"), *html.glob("notebooks/*.html")]):
        r = reading(path)
        print(f"{r.minutes:5.1f} minutes: {path.relative_to(html)} {r}")
