"""Shown cells of a notebook are enough: they run alone, in order, and are most of its code."""

from pathlib import Path

import pytest

from reproduction.book.notebooks import read_source

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
#: pages that do not teach with shown code yet
WAITING = {"arena", "foundations", "fedtsv", "tables"}
PAGES = [
    page
    for page in sorted(FOLDER.glob("*.md"))
    if page.stem not in WAITING and not page.stem.endswith("-appendix")
]
LEAST = 75  # percent of the lines

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def cells(page: Path) -> list[tuple[set[str], str]]:
    """Tags and code of the code cells of a page."""
    found = (cell for cell in read_source(page).cells if cell.cell_type == "code")
    return [(set(cell.metadata.get("tags", [])), cell.source) for cell in found]


def shown(tags: set[str]) -> bool:
    return "parameters" in tags or not tags & {"remove-cell", "remove-input"}


@each_page
def test_most_code_is_shown(page: Path) -> None:
    lines = [(shown(tags), len(code.splitlines())) for tags, code in cells(page)]
    total = sum(n for _, n in lines)
    assert 100 * sum(n for seen, n in lines if seen) >= LEAST * total


@pytest.mark.book
@each_page
def test_shown_cells_run_alone(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {}
    for tags, code in cells(page):
        if shown(tags):
            exec(compile(code, page.name, "exec"), names)
