from __future__ import annotations

import inspect
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from refusals import refused

from fedkit.__main__ import main as fedkit
from fedkit.datasets import files
from reproduction.book import build, cli, pages
from reproduction.book.api import PAGES, expand, page_of, public_names
from reproduction.book.build import Book
from reproduction.book.notebooks import (
    NotebookError,
    check_pair,
    guard_parameters,
    pair_text,
    parameters_of,
    read_source,
    write_pair,
)
from reproduction.book.runs import execute

BOOK = Path(__file__).resolve().parent.parent / "book"
HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A page
"""

PARAMETERS = """
```{code-cell} ipython3
:tags: [parameters]

seed: int = 0  # root seed
rate: float = 0.5  # a step size
name: str = "digits"  # a data set
exact: bool = False  # whether to be exact
```
"""


def cell(code: str) -> str:
    return f"\n```{{code-cell}} ipython3\n{code}\n```\n"


@pytest.fixture
def write(tmp_path: Path):
    def make(body: str) -> Path:
        path = tmp_path / "notebooks" / "page.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEADER + body, encoding="utf-8")
        return path

    return make


# ------------------------------------------------------------------------------- pairs


def test_the_pair_is_stable_and_follows_the_content(write) -> None:
    page = write(PARAMETERS + cell("print(seed)"))
    assert pair_text(page) == pair_text(page)
    assert write_pair(page)
    assert not write_pair(page)  # nothing to do the second time
    check_pair(page)
    os.utime(page.with_suffix(".ipynb"), (1, 1))  # time stamps decide nothing
    check_pair(page)
    page.write_text(page.read_text("utf-8").replace("print(seed)", "print(rate)"), "utf-8")
    os.utime(page, (0, 0))
    refused(r"differs from its source, .*make sync", check_pair, page, error=NotebookError)
    page.with_suffix(".ipynb").unlink()
    refused(r"page\.ipynb is missing", check_pair, page, error=NotebookError)


def test_a_page_without_header_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "plain.md"
    page.write_text("# Only prose\n", "utf-8")
    refused("format_name: myst", read_source, page, error=NotebookError)


# -------------------------------------------------------------------------- parameters


def test_parameters_are_read_with_type_default_and_help_and_values_get_their_type(write) -> None:
    page = write(PARAMETERS)
    assert [(p.name, p.type, p.default, p.help) for p in parameters_of(page).values()] == [
        ("seed", "int", 0, "root seed"), ("rate", "float", 0.5, "a step size"),
        ("name", "str", "digits", "a data set"), ("exact", "bool", False, "whether to be exact"),
    ]  # fmt: skip
    given = {"seed": "7", "rate": "1e-3", "name": "05", "exact": "true"}
    read = {"seed": 7, "rate": 0.001, "name": "05", "exact": True}
    assert guard_parameters(page, given) == read
    assert guard_parameters(page, {"rate": 1}) == {"rate": 1.0}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sede", "1", r"no parameter 'sede'; it knows seed, rate"),
        ("seed", "one", r"seed is 'one'; expected int"),
        ("rate", "fast", r"rate is 'fast'; expected float"),
        ("rate", "nan", r"rate is 'nan'; expected float"),
        ("exact", "1", r"exact is '1'; expected bool"),
    ],
)
def test_a_wrong_parameter_is_an_error(write, name: str, value: str, said: str) -> None:
    refused(said, guard_parameters, write(PARAMETERS), {name: value}, error=NotebookError)


@pytest.mark.parametrize("line", ["seed = 0  # no type", "seed: int = 2 * 3", "import math"])
def test_a_parameters_cell_holds_typed_literals_only(write, line: str) -> None:
    with pytest.raises(NotebookError, match="literal"):
        parameters_of(write(PARAMETERS.replace("seed: int = 0  # root seed", line)))


def test_the_command_line_refuses_before_anything_runs(
    write, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    write(PARAMETERS)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: notebooks/page\n", "utf-8")

    def book(*words: str) -> str:
        assert fedkit(["book", *words]) == 1
        return capsys.readouterr().err

    assert "no parameter 'sede'" in book("run", "page", "-p", "sede", "3")
    assert "no notebook 'pages'; there are page" in book("run", "pages")
    assert "given twice" in book("run", "page", "-p", "seed", "1", "-p", "seed", "2")
    assert "parameter seed is '1:30'; expected int" in book("run", "page", "-p", "seed=1:30")
    assert "ends in .ipynb" in book("run", "page", "-o", f"{tmp_path}/x.html")
    assert not (tmp_path / "_runs").exists()
    assert fedkit(["book", "parameters"]) == 0
    assert "-p rate (float, default 0.5)" in capsys.readouterr().out


# --------------------------------------------------------------------------- execution


def test_two_runs_give_the_same_bytes(write, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")  # kernels are the caller's choice
    body = PARAMETERS + cell(
        "import os, sys\n"
        'print(seed, 2 * rate, os.environ["OMP_NUM_THREADS"], os.environ["ATEN_CPU_CAPABILITY"])\n'
        "print(sys.executable)\n"
        'import atexit, pathlib; atexit.register(pathlib.Path("bye").touch)\n'
        "import json, ipykernel; at = json.load(open(ipykernel.get_connection_file()))\n"
        'assert sys.platform != "linux" or at["transport"] == "ipc"  # a port may be taken\n'
        "import multiprocessing; p = multiprocessing.Process(target=int); p.start(); p.join()\n"
        'print("progress", file=sys.stderr)\n'
        'from reproduction.widgets import quote; quote(lost=-2.5, lost_by="[-3, -2]")'
    )
    body += "\nIt is {glue:text}`lost:.2f` {glue:text}`lost-by`, not {glue:text}`x.ipynb::name`.\n"
    page = write(body)
    texts = []
    for n in range(2):
        target = tmp_path / f"{n}.ipynb"
        execute(page, target, {"rate": "1e-5"}, 60, page.parent)
        texts.append(target.read_text("utf-8"))
    assert texts[0] == texts[1]
    cells = json.loads(texts[0])["cells"]
    printed = "".join(cells[2]["outputs"][0]["text"]).splitlines()
    assert printed[0] == "0 2e-05 1 default"
    assert os.path.realpath(printed[1]) == os.path.realpath(__import__("sys").executable)
    assert "progress" not in texts[0].replace('print(\\"progress', "")  # standard error
    assert (page.parent / "bye").exists()  # the kernel ended, and was not ended
    as_run = "".join(cells[1]["source"])
    assert as_run.startswith("# fedkit book run page -p rate 1e-05\n")
    assert "rate: float = 1e-05  # a step size" in as_run
    text = "".join(cells[3]["source"])
    assert text == "It is −2.50 [−3,\N{NO-BREAK SPACE}−2], not {glue:text}`x.ipynb::name`."
    assert not any("injected-parameters" in c["metadata"].get("tags", []) for c in cells)


@pytest.mark.parametrize(
    ("code", "limit", "said"),
    [
        ("import os\nos._exit(3)", 60, "kernel died"),
        ("x = 1\nassert x == 2, 'the sum is off'", 60, "cell 1 raised AssertionError: the sum is"),
        ("import time\ntime.sleep(60)", 4, "limit"),
        ("import time\ntime.sleep(60)", 0.01, "limit"),  # up before the kernel is there
        ("import warnings\nwarnings.warn('old name', stacklevel=1)", 60, "UserWarning: old name"),
    ],
)
def test_a_failing_notebook_is_one_clear_error(write, tmp_path, code, limit, said):
    page = write(cell(code))
    target = tmp_path / "kept.ipynb"
    target.write_text("the run before", "utf-8")
    with pytest.raises(NotebookError, match=said):
        execute(page, target, {}, limit, page.parent)
    assert target.read_text("utf-8") == "the run before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.ipynb", "notebooks"]


# ------------------------------------------------------------------------------- cache


def test_a_run_with_other_parameters_renders_its_page(write, tmp_path, monkeypatch, capsys):
    """The page of this run and no other; what renders it is tested with the whole book."""
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    write(PARAMETERS + cell("print(seed)"))
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: notebooks/page\n", "utf-8")
    (tmp_path / "_config.yml").write_text("title: a page\n", "utf-8")
    (tmp_path / "book").mkdir()
    rendered = []

    def rendering(stage, output, *, strict):
        assert not strict
        rendered.append((stage / "notebooks" / "page.ipynb").read_text("utf-8"))
        html = output / "_build" / "html" / "notebooks" / "page.html"
        return ["install", "-D", str(stage / "_config.yml"), str(html)], {}

    monkeypatch.setattr(build, "rendering", rendering)
    monkeypatch.setattr("reproduction.book.api.expand", lambda folder: {})
    assert fedkit(["book", "run", "page", "-p", "seed", "41", "--html"]) == 0
    for run in (rendered[0], (tmp_path / "_runs" / "page.ipynb").read_text("utf-8")):
        assert "41\n" in json.loads(run)["cells"][-1]["outputs"][0]["text"]
    assert "Its page is" in capsys.readouterr().out


@pytest.fixture
def small_book(write, tmp_path: Path, monkeypatch) -> Path:
    for name in ("FEDKIT_DATA", "FEDKIT_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(build, "_installed_packages", lambda: "numpy==1")
    write(PARAMETERS.replace("seed: int = 0", 'profile: str = "smoke"'))
    for name in ("fedkit", "reproduction", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("one", "utf-8")
    (tmp_path / "requirements.lock").write_text("numpy==1\n", "utf-8")
    toc = "format: jb-book\nroot: book/intro\nparts:\n- chapters:\n  - file: notebooks/page\n"
    (tmp_path / "_toc.yml").write_text(toc, "utf-8")
    return tmp_path


installed_packages = build._installed_packages


def test_whatever_a_run_depends_on_changes_its_key(small_book: Path, monkeypatch) -> None:
    page = "notebooks/page"
    keys = [Book(small_book).key(page)]
    files = "fedkit/a.txt fedkit/new.py reproduction/a.txt results/a.txt requirements.lock"
    files += " notebooks/page.md"
    for name in files.split():
        with open(small_book / name, "a", encoding="utf-8") as file:
            file.write("\nmore")
        keys.append(Book(small_book).key(page))
    for name in ("fedkit/__pycache__/a.pyc", "results/.cell.json.1.tmp", "results/cell.lock"):
        (small_book / name).parent.mkdir(exist_ok=True)  # what comes and goes by itself
        (small_book / name).write_text("passing", "utf-8")
    assert Book(small_book).key(page) == keys[-1]
    keys.append(Book(small_book, "laptop").key(page))
    (small_book / "cache").mkdir()  # where data lie that `fedkit data get` fetched
    (small_book / "cache" / "images.gz").write_bytes(b"1")
    keys.append(Book(small_book).key(page))
    (small_book / "data").mkdir()
    monkeypatch.setenv("FEDKIT_DATA", str(small_book / "data"))
    keys.append(Book(small_book).key(page))
    (small_book / "data" / "images.gz").write_bytes(b"12345")
    keys.append(Book(small_book).key(page))
    monkeypatch.setattr(build, "_installed_packages", installed_packages)
    keys.append(Book(small_book).key(page))
    assert len(set(keys)) == len(keys) == 12


def test_a_cell_whose_options_are_no_yaml_is_told_of_by_page(write, tmp_path) -> None:
    write("```{code-cell} ipython3\n---\ntags: [a]\nmystnb: {b: c: d}\n---\n1\n```\n")
    with pytest.raises(NotebookError, match=r"page\.md: Code cell 1 .* could not be read"):
        read_source(tmp_path / "notebooks" / "page.md")


def test_a_run_is_kept_while_it_would_be_the_same(small_book: Path, monkeypatch) -> None:
    page = "notebooks/page"

    def fake(source, target, parameters, limit, cwd) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("executed", "utf-8")

    monkeypatch.setattr("reproduction.book.build.execute", fake)
    assert Book(small_book).run(page).startswith("ran")
    assert Book(small_book).run(page) == "kept"
    Book(small_book).executed(page).unlink()
    assert Book(small_book).run(page).startswith("ran")
    (small_book / "fedkit" / "a.txt").write_text("edited", "utf-8")
    assert Book(small_book).run(page).startswith("ran")


def test_the_tables_of_all_papers_are_runs_of_one_notebook(write, tmp_path: Path) -> None:
    """Each page hands over its paper; text and tables that a program shows become cells."""
    page = write(
        PARAMETERS
        + "\nOf {{name}}.\n"
        + "\n```{code-cell} ipython3\n:tags: [sections]\n\n"
        + "from IPython.display import Markdown, display\n"
        + 'display(Markdown("(a-b)=\\n## A heading"))\n'
        + 'display({"text/plain": "a table"}, raw=True)\n'
        + 'display({"text/plain": "a picture"}, raw=True, metadata={"mystnb": {"image": 1}})\n```\n'
    )
    execute(page, tmp_path / "x.ipynb", {"name": "wine"}, 60, page.parent)
    cells = json.loads((tmp_path / "x.ipynb").read_text("utf-8"))["cells"]
    shown = [c for c in cells if c["cell_type"] == "code" and c["outputs"]]
    assert "".join(cells[2]["source"]) == "Of wine."
    assert "## A heading" in "".join(cells[4]["source"])
    assert [c["outputs"][0]["data"]["text/plain"] for c in shown] == [["a table"], ["a picture"]]
    assert shown[1]["metadata"]["mystnb"] == {"image": 1}
    book = Book(BOOK.parent)
    pages = [p for p in book.notebooks if p.startswith("notebooks/tables-")]
    assert {book.source(p).name for p in pages} == {"tables.md"}
    assert len({book.key(p) for p in pages}) == len({book.executed(p) for p in pages}) == len(pages)
    assert book.parameters("notebooks/tables-fedms") == {"paper": "FedMS"}


def test_what_is_missing_or_has_drifted_stops_the_build(small_book, capsys, monkeypatch) -> None:
    monkeypatch.setattr(cli, "ROOT", small_book)
    build = ["book", "build"]
    assert fedkit(build) == 1
    assert "pages without a source: book/intro" in capsys.readouterr().err
    (small_book / "book").mkdir()
    (small_book / "book" / "intro.md").write_text("# Hello\n", "utf-8")
    assert fedkit(build) == 1
    assert "page.ipynb is missing" in capsys.readouterr().err
    assert not (small_book / "_stage").exists()


# ------------------------------------------------------------------------------ API page


def test_every_public_name_is_on_one_api_page_once() -> None:
    pages = expand(BOOK)
    assert set(pages) == {"api", *PAGES}
    shown = Counter(
        name.strip()
        for page in pages.values()
        for line in page.splitlines()
        if line.startswith("   :members:")
        for name in line.removeprefix("   :members:").split(",")
    )
    assert shown == Counter(name for names in public_names().values() for name in names)
    assert {"crypto.new_key", "shap.MODELS"} <= {
        f"{home.rpartition('.')[2]}.{name}"
        for home, names in public_names().items()
        for name in names
    }
    assert page_of("fedkit.fedvalue.protocol.crypto") == "api-protocol"
    assert page_of("fedkit.fedvalue.information") == "api-columns"


BLOCKS = {
    page: re.findall(r"```python\n(.*?)```", (BOOK / f"{page}.md").read_text("utf-8"), re.S)
    for page in ("api", *PAGES)
}


@pytest.mark.parametrize("page", BLOCKS)
def test_the_examples_of_an_api_page_run_in_their_order_and_are_short(page: str) -> None:
    names: dict[str, object] = {}
    assert BLOCKS[page]
    for block in BLOCKS[page]:
        assert sum(bool(line.strip()) for line in block.splitlines()) < 20
        exec(block, names)


def test_every_name_of_the_front_door_is_documented_and_has_an_example_that_runs() -> None:
    import fedkit as fk

    examples = "\n".join(block for page in PAGES for block in BLOCKS[page])
    for name in fk.__all__:
        assert re.search(rf"\bfk\.{name}\b", examples), f"no example of fk.{name}"
        value = getattr(fk, name)
        assert inspect.getdoc(value), f"fk.{name} has no text"
        if inspect.isfunction(value):
            sections = inspect.getdoc(value) or ""
            assert "Parameters\n" in sections, f"fk.{name} has no parameters"
            assert "Returns\n" in sections, f"fk.{name} does not say what it returns"


def test_of_a_fields_comment_code_keeps_its_colons_and_prose_has_dashes():
    lines = ['number of each node: as in ``{"fedkit": {"client": 1}}``']
    pages.one_by_one(None, "attribute", "", None, None, lines)
    assert lines == ['number of each node – as in ``{"fedkit": {"client": 1}}``']


def test_the_search_leaves_out_the_longest_outputs():
    searched = pages.Searched({})
    assert searched.split("thirty clients") == ["thirty", "clients"]
    assert searched.split("clients " * pages.LONGEST) == []
