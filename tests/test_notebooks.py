from __future__ import annotations

import ast
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import jupytext
import pytest
import yaml

from reproduction.book.build import LIMITS, Book
from reproduction.book.notebooks import pair_text, parameters_of, read_source
from reproduction.book.runs import execute

ROOT = Path(__file__).resolve().parent.parent
BOOK = Book(ROOT)
SOURCES = sorted((ROOT / "notebooks").glob("*.md"))
EXPERIMENTS = [s for s in SOURCES if s.stem in ("arena", "fedowen", "fedms", "claims")]
MOST_LINES = 25

each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)


@cache
def code_cells(source: Path) -> list:
    return [c for c in read_source(source).cells if c.cell_type == "code"]


def prose(source: Path) -> list[str]:
    """Lines of the text cells without code, mathematics, roles, options and headings."""
    text = "\n".join(c.source for c in read_source(source).cells if c.cell_type == "markdown")
    for pattern in (
        r"^(`{3,}|~{3,})(?!\{).*?^\1",  # blocks of code
        r"\$\$.*?\$\$",
        r"\$[^$\n]+\$",
        r"\{[\w:]+\}`[^`]*`",
        r"`[^`]*`",
        r"^:[\w-]+:.*$",
        r"^#.*$",
    ):
        text = re.sub(pattern, " ", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if line.strip()]


def test_the_table_of_contents_is_complete() -> None:
    assert BOOK.pages[0] == "book/intro"
    assert set(BOOK.sources) == set(SOURCES)
    pages = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "book").glob("*.md")}
    assert pages | set(BOOK.notebooks) == set(BOOK.pages)


@each_notebook
def test_a_pair_has_one_content(source: Path) -> None:
    """What is committed is the normal form of the text: stable ids, no outputs, no traces."""
    committed = source.with_suffix(".ipynb").read_text("utf-8")
    assert committed == pair_text(source)
    assert '"outputs": [{' not in committed.replace("\n", "").replace("  ", "")


@each_notebook
def test_parameters_have_a_help(source: Path) -> None:
    known = parameters_of(source)
    assert known, "a notebook needs a cell tagged 'parameters'"
    assert "profile" not in known or known["profile"].default == "smoke"
    assert all(p.help for p in known.values()), "a parameter has no comment that explains it"


def _lines_but_imports(code: str) -> int:
    imports = [n for n in ast.parse(code).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return len(code.splitlines()) - sum(n.end_lineno - n.lineno + 1 for n in imports)


@each_notebook
def test_cells_are_short(source: Path) -> None:
    lengths = {i: _lines_but_imports(c.source) for i, c in enumerate(code_cells(source))}
    long = {i: n for i, n in lengths.items() if n > MOST_LINES}
    assert not long, f"code cells (number: lines) with more than {MOST_LINES} lines"


@each_notebook
def test_code_that_is_shown_fits_its_column_and_glues_nothing(source: Path) -> None:
    hidden = {"remove-cell", "remove-input", "hide-input", "hide-cell", "parameters"}
    shown = [c for c in code_cells(source) if not hidden & set(c.metadata.get("tags", []))]
    lines = [line for c in shown for line in c.source.splitlines()]
    assert not [line for line in lines if len(line) > 78 or "glue(" in line]


SETUP = "Setup for this page"
COLAB = (
    '# On Colab, run the next line without its "#", and restart the session:\n'
    '# %pip install -q -e "git+https://github.com/fedkit/fedkit'
    '#egg=fedkit-contributions[book,vertical]"\n'
)


def tags_of(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))


def is_shown(cell) -> bool:
    return not {"remove-cell", "remove-input"} & tags_of(cell)


@each_notebook
def test_three_quarters_of_the_code_are_shown_without_a_click(source: Path) -> None:
    """Without what every page has: parameters, the imports of its setup, and the stamp."""
    told = [
        cell
        for cell in code_cells(source)[:-1]
        if "parameters" not in tags_of(cell)
        and cell.metadata.get("mystnb", {}).get("code_prompt_show") != SETUP
    ]
    lines = [
        (
            is_shown(cell) and not {"hide-input", "hide-cell"} & tags_of(cell),
            len(cell.source.splitlines()),
        )
        for cell in told
    ]
    assert sum(n for shown, n in lines if shown) >= 0.75 * sum(n for _, n in lines)


@pytest.mark.book
@each_notebook
def test_the_shown_cells_run_alone(source: Path, tmp_path: Path) -> None:
    """Who copies what a page shows, in order, needs nothing else."""
    notebook = read_source(source)
    notebook.cells = [c for c in notebook.cells if c.cell_type == "code" and is_shown(c)]
    alone = tmp_path / source.name
    alone.write_text(jupytext.writes(notebook, fmt="md:myst"), encoding="utf-8")
    execute(alone, tmp_path / "ran.ipynb", {}, LIMITS["smoke"], source.parent)


@each_notebook
def test_cells_silence_nothing_install_when_asked_and_end_with_the_stamp(source: Path) -> None:
    assert "stamp(" in code_cells(source)[-1].source
    for cell in code_cells(source):
        if cell.metadata.get("mystnb", {}).get("code_prompt_show") == SETUP:
            assert cell.source.startswith(COLAB)
            cell.source = cell.source.removeprefix(COLAB)
        for word in ("filterwarnings", "simplefilter", "%pip", "!pip", "%%capture", "%matplotlib"):
            assert word not in cell.source
        assert not re.search(r"np\.random\.(?!default_rng|Generator|SeedSequence)", cell.source)
        assert "allow_errors" not in cell.source


@each_notebook
def test_figures_have_alternative_text_and_caption(source: Path) -> None:
    for number, cell in enumerate(code_cells(source)):
        shown = cell.metadata.get("mystnb", {})
        if shown.get("figure"):
            assert len(shown["figure"].get("caption", "")) > 20, f"code cell {number}: no caption"
            assert len(shown.get("image", {}).get("alt", "")) > 20, f"code cell {number}: no text"


RESULT = re.compile(r"\d+(?:\.\d+)?\s*(?:%|per cent|±)|±\s*\d|\b\d+\.\d{2,}\b")


@pytest.mark.parametrize("source", EXPERIMENTS, ids=lambda s: s.stem)
def test_no_result_is_typed_into_the_prose_of_an_experiment(source: Path) -> None:
    """Results are glued; what a paper says may be quoted, in quotation marks."""
    found = []
    for line in prose(source):
        for quoted in (r"“[^”]*”", r"\"[^\"]*\"", r"(?<!\w)'[^']*'(?!\w)"):
            line = re.sub(quoted, " ", line)
        line = re.sub(r"95 ?% (confidence |t-)?(intervals?|bands?|level)", " ", line)
        line = re.sub(r"\{[\w:]+\}", " ", line)
        if RESULT.search(line) and not line.startswith("|"):
            found.append(line.strip())
    assert not found, f"glue these numbers, or quote the paper: {found}"


# ----------------------------------------------------------------------- numbers in prose

MOST_NUMBERS = 3
CHAPTERS = [
    *(s for s in SOURCES if not s.stem.endswith("-appendix")),
    *(
        ROOT / "book" / f"{page}.md"
        for page in (
            "intro",
            "how-to-read",
            "federated-learning",
            "first-questions",
            "questions",
            "checking",
        )
    ),
]
#: sections and folds that calculate with made-up numbers
BY_HAND = r"^## By hand[\s\S]*?(?=^## )|^:::\{dropdown\} By hand[\s\S]*?^:::$"
GLUED = re.compile(r"\{glue:text\}`[^`]*`")
NO_RESULT = (
    r"^ *(`{3,}|~{3,})(?:\w+|\{(?:code|math|table|list-table|figure|mermaid).*)\n[\s\S]*?^ *\1$",
    r"\$\$[\s\S]*?\$\$|\$[^$\n]+\$|^ *\|.*$",
    r"\{[\w:]+\}`[^`\n]*`|`[^`\n]*`|\]\([^)\n]*\)|^ *:[\w-]+:.*$|^\(.*\)=$|^#.*$",
    r"\b(?:19|20)\d\d\b|95 ?%|\b[A-Za-z]\w*-\d+\w*|\bDir\([\d.]+\)|^ *\d+\. |^ *:{3,}\{.*$",
    r"\b(?:section|figure|table|eq\.|equation|theorem|lemma|algorithm|proposition|corollary|step"
    r"|definition|example|appendix|line|row|column|exercise|client|class|part|round)s?"
    r"\s\(?\d[\d.]*\)?(?:(?:,| to| and|, and| or)\s\(?\d[\d.]*\)?)*",
)
NUMBER = r"¤|[+−-]?(?<![\w.])\d(?:[\d,.]*\d)?(?!\w)"
ONE = re.compile(rf"(?:{NUMBER})%?(?:\s\[(?:{NUMBER})%?, (?:{NUMBER})%?\])?")


def paragraphs(source: Path) -> list[str]:
    """Paragraphs and single list items; ¤ is a glued result, @ what holds no result."""
    text = GLUED.sub("¤", source.read_text("utf-8"))
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    for pattern in (BY_HAND, *NO_RESULT):
        text = re.sub(pattern, "@", text, flags=re.MULTILINE | re.IGNORECASE)
    return re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|@|\d+\.) )|\n(?= *[`:]{3})|\n(?=@)", text)


@pytest.mark.parametrize("source", CHAPTERS, ids=lambda s: s.stem)
def test_a_paragraph_has_at_most_three_numbers(source: Path) -> None:
    """In a paragraph or list item; tables, code, equations and captions may have more.

    A number in digits, a glued result, or a value with its interval counts one.  Years, the 95%
    of intervals, the numbers of sections, tables, clients and the like, and names such as LeNet-5
    or Dir(0.1) do not count, and what is calculated by hand is left out.
    """
    crowded = {p: n for p in paragraphs(source) if (n := len(ONE.findall(p))) > MOST_NUMBERS}
    assert not crowded, "\n\n".join(f"{n} numbers: {p}" for p, n in crowded.items())


# ------------------------------------------------------------------------------ anatomy

PAPERS = ("fedowen", "fedms", "fedtsv", "fedccea", "fedvalue")
ANATOMY = [
    "The result in one minute", "Why it matters", "By hand", "What is defined",
    "The algorithm, read", "Run it", "Claimed and measured", "What fools it", "Use it",
    "What to remember", "Exercises", "How this page was made",
]  # fmt: skip


@each_notebook
def test_a_chapter_has_the_anatomy_of_all_chapters(source: Path) -> None:
    """A paper's chapter has these parts and no others; the rest share beginning and end."""
    if source.stem in ("claims", "tables") or source.stem.endswith("-appendix"):
        return
    cells = [c.source for c in read_source(source).cells if c.cell_type == "markdown"]
    found = re.findall(r"^## (.+)$", "\n".join(cells), flags=re.MULTILINE)
    if source.stem in PAPERS:
        assert found == ANATOMY
    else:
        assert (found[0], *found[-3:]) == (ANATOMY[0], *ANATOMY[-3:])


@each_notebook
def test_a_verdict_in_a_chapter_has_its_marks(source: Path) -> None:
    """`marked_verdict` says what is younger than the runs, and what is stale."""
    cells = "\n".join(c.source for c in code_cells(source))
    rows = r"verdict_text\([^)]*(?:row|claim|joined|told)\b|ICONS\["
    assert not re.search(rows, cells), "write the verdict of a claim by marked_verdict"
    assert ("marked_verdict(" in cells) == ("marks_told(" in cells)


# ------------------------------------------------------------------------- launch links


def test_launch_links_lead_to_committed_notebooks() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    buttons = config["launch_buttons"]
    assert buttons["binderhub_url"] == "https://mybinder.org"
    assert buttons["colab_url"].startswith("https://colab.research.google.com")
    assert "path_to_book" not in config["repository"]  # a page's path is its repository path
    if shutil.which("git") and (ROOT / ".git").exists():
        targets = [str(source.with_suffix(".ipynb")) for source in SOURCES]
        command = ["git", "check-ignore", *targets]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == 1, "git ignores some"


# ------------------------------------------------------------------------ commands in prose

COMMAND = re.compile(
    r"(?:fedkit book run |papermill )(?:notebooks/)?([\w-]+)(?:\.md|\.ipynb)?((?: [^`\n#]*)?)"
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "book").glob("*.md")), *SOURCES]


def test_no_fence_is_closed_by_a_backtick_in_its_title() -> None:
    """Such a line opens nothing, and the fence that should end there opens instead."""
    lines = [(page.name, line) for page in PAGES for line in page.read_text("utf-8").splitlines()]
    assert not [(name, line) for name, line in lines if re.match(r"`{3,}\{[^`]*`", line)]


def test_what_is_glued_from_another_page_says_its_format() -> None:
    """Without one myst-nb takes the page for the key, and shows nothing."""
    glued = r"\{glue:text\}`([^`]*\.ipynb::[^`]*)`"
    found = [(p.name, key) for p in PAGES for key in re.findall(glued, p.read_text("utf-8"))]
    assert len(found) > 50
    assert not [(name, key) for name, key in found if not re.search(r"::[^:]+:[^:]+$", key)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_in_the_prose_name_parameters_that_exist(page: Path) -> None:
    for name, rest in COMMAND.findall(page.read_text("utf-8")):
        known = parameters_of(ROOT / "notebooks" / f"{name}.md")
        for parameter in re.findall(r"-p (\w+) ", f"{rest} "):
            assert parameter in known, f"{page.name}: {name} has no parameter {parameter}"
