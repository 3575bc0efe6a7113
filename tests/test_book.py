"""Checks of the rendered book; ``make book`` builds it, ``make check-book`` runs them."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from readingtime import reading
from widths import browser, sticking_out

from reproduction.book.api import PAGES
from reproduction.book.build import Book, rendering

bs4 = pytest.importorskip("bs4")

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
BOOK = Book(ROOT)
NOTEBOOKS = [p for p in BOOK.pages if p.startswith("notebooks/")]

pytestmark = [
    pytest.mark.book,
    pytest.mark.skipif(
        not (HTML / "index.html").is_file(), reason="the book is not rendered: run 'make book'"
    ),
]

each_page = pytest.mark.parametrize("page", BOOK.pages)
each_notebook = pytest.mark.parametrize("page", NOTEBOOKS)


@cache
def soup(path: Path) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup(path.read_text("utf-8"), "html.parser")


def article(page: str) -> bs4.Tag:
    found = soup(HTML / f"{page}.html").find("article")
    assert found is not None, f"{page} has no article"
    return found


def remote(address: str) -> bool:
    return urlsplit(address).scheme in ("http", "https") or address.startswith("//")


# ----------------------------------------------------------------------------- reading

MOST_INTERVALS = 3
MOST_MINUTES = 25
MOST_LINES = 300


@each_notebook
def test_a_chapter_can_be_read_in_one_sitting(page: str) -> None:
    name = page.removeprefix("notebooks/")
    if name.endswith("-appendix") or name.startswith("tables-"):
        return
    found = reading(HTML / f"{page}.html")
    assert replace(found, code=0).minutes <= MOST_MINUTES  # the text; code is read or run beside it
    assert found.code <= MOST_LINES


@each_page
def test_a_paragraph_has_at_most_three_intervals(page: str) -> None:
    """Figures and tables have room for more."""
    shown = copy.copy(article(page))
    for other in shown.select(".cell_output, figure, table"):
        other.extract()
    number = r"[−+-]?\d[\d.,]*%?"
    texts = [p.get_text() for p in shown.select("p, li:not(:has(p))")]
    found = {t: len(re.findall(rf"\[{number},\s{number}\]", t)) for t in texts}
    assert not {t: n for t, n in found.items() if n > MOST_INTERVALS}


MINUTES = {"ten": 10, "fifteen": 15, "twenty": 20, "forty": 40}


@each_notebook
def test_a_chapter_says_how_long_it_takes_and_what_it_needs(page: str) -> None:
    if page.endswith(("-appendix", "/claims")) or "/tables-" in page:
        return
    said = re.search(r"[Rr]eading (?:the evidence )?takes (\w+)[^.]*\..*?You need ", prose(page))
    found = reading(HTML / f"{page}.html")
    assert said, "no line under the title"
    assert replace(found, code=0).minutes - 3 <= MINUTES[said[1]] <= found.minutes + 8


@each_page
def test_every_table_says_what_it_shows(page: str) -> None:
    shown = copy.copy(article(page))
    for stamp in shown.select("section#how-this-page-was-made"):
        stamp.extract()
    bare = [t for t in shown.select(".cell_output table") if t.find("caption") is None]
    assert not bare, f"{len(bare)} tables without a caption"


@each_page
def test_tables_and_figures_are_numbered_in_one_sequence(page: str) -> None:
    """Whether a cell shows them or the text does; a figure with sliders is a figure."""
    for kind, named in (("table caption", "Table"), ("figcaption", "Fig.")):
        shown = [c.get_text().strip() for c in article(page).select(kind)]
        found = [re.match(rf"{named} (\d+) ", text) for text in shown]
        assert all(found), [text for text, at in zip(shown, found, strict=True) if not at]
        first = int(found[0][1]) if found else 0
        assert [int(at[1]) for at in found] == list(range(first, first + len(found)))


@each_page
def test_the_head_of_a_page_describes_it_and_loads_nothing_that_fails(page: str) -> None:
    head = soup(HTML / f"{page}.html").head
    said = {m.get("name", m.get("property")): m.get("content") for m in head.find_all("meta")}
    assert len(said["description"]) > 30
    picture = said["og:image"].removeprefix("https://fedkit.github.io/fedkit/")
    assert (HTML / picture).is_file()
    assert not [s for s in head.find_all("script") if "thebe" in f"{s}".lower()]


@each_page
def test_the_edit_button_leads_to_the_source(page: str) -> None:
    links = [a["href"] for a in soup(HTML / f"{page}.html").find_all("a", href=True)]
    (edited,) = {link for link in links if "/edit/main/" in link}
    assert edited.partition("/edit/main/")[2] == BOOK.source(page).relative_to(ROOT).as_posix()


# ------------------------------------------------------------------------------- pages


def prose(page: str) -> str:
    """Text of a page without code."""
    shown = copy.copy(article(page))
    for code in shown.select("pre, code, script, style, dt.sig"):
        code.extract()
    return shown.get_text(" ")


@each_page
def test_nothing_is_left_unrendered(page: str) -> None:
    body = article(page)
    assert len(body.find("h1").get_text(strip=True)) > 3
    assert not body.select(".system-message, .problematic")
    assert "Traceback (most recent call last)" not in body.get_text(" ")
    text = prose(page)
    for leftover in ("{glue", "{term}", "{ref}", "{cite", "{numref}", "{doc}", ":::", "```", "$$"):
        assert leftover not in text, f"{leftover} is shown as text in {page}"


@each_page
def test_no_raw_number(page: str) -> None:
    """What a program would print of a missing, infinite or tiny number is no number for a page."""
    commit = r"(?![0-9a-f]{12}\b)"  # one may consist of digits and an e
    raw = (
        r"\[None, None\]|\b(?:nan|inf|NaT)\b|\bat 0x[0-9a-f]+"
        rf"|(?<![\w.]){commit}-?\d+(?:\.\d+)?e[+-]?\d+\b"
    )
    found = re.findall(rf".{{0,30}}(?:{raw}).{{0,10}}", prose(page))
    assert not found, found[:5]


@each_page
def test_tables_of_verdicts_are_cards_on_a_telephone(page: str) -> None:
    for table in article(page).select(".cell_output table"):
        head = {cell.get_text(strip=True) for cell in table.select("thead th")}
        words = head & {"verdict", "what fools it"}
        if words and not table.find_parent(class_="fedkit-finder"):
            assert "fedkit-cards" in table.get("class", []), table.caption


# ------------------------------------------------------------------------------ images


@each_page
def test_every_picture_is_there_and_has_a_real_alternative_text(page: str) -> None:
    path = HTML / f"{page}.html"
    for image in soup(path).find_all("img"):
        source = image["src"]
        assert source.startswith("data:") or (path.parent / unquote(source)).is_file(), source
    for image in article(page).find_all("img"):
        alt = image.get("alt", "")
        assert len(alt) > 20, f"{image['src']} has the alternative text {alt!r}"
        assert not alt.endswith((".png", ".svg"))  # a file's name


# ------------------------------------------------------------------------------- links


@cache
def anchors(path: Path) -> set[str]:
    return {t.get("id", t.get("name")) for t in soup(path).select("[id], a[name]")}


@each_page
def test_no_internal_link_is_broken(page: str) -> None:
    path = HTML / f"{page}.html"
    broken = []
    for link in soup(path).find_all("a", href=True):
        parts = urlsplit(link["href"])
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        fragment = unquote(parts.fragment) if target.suffix == ".html" else ""
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link["href"])
    assert not broken


@each_page
def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    parsed = soup(HTML / f"{page}.html")
    loaded = [t["src"] for t in parsed.find_all(["script", "img", "iframe", "source"], src=True)]
    for link in parsed.find_all("link", href=True):
        if set(link.get("rel", [])) & {"stylesheet", "preload", "icon", "modulepreload"}:
            loaded.append(link["href"])
    assert not [address for address in loaded if remote(address)]
    for style in parsed.find_all("style"):
        assert "url(http" not in style.get_text()


def test_mathematics_is_typeset_offline() -> None:
    assert (HTML / "_static/mathjax/tex-chtml.js").is_file()
    scripts = [t["src"] for t in soup(HTML / "book/notation.html").find_all("script", src=True)]
    assert any("_static/mathjax/tex-chtml.js" in s for s in scripts)


# ---------------------------------------------------------------- launch and download


@each_notebook
def test_launch_and_download_buttons(page: str) -> None:
    links = [a["href"] for a in soup(HTML / f"{page}.html").find_all("a", href=True)]
    repository = "fedkit/fedkit"
    source = f"notebooks/{BOOK.source(page).stem}.ipynb"
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/{source}"
    binder = f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{source}"
    assert {colab, binder} <= set(links)
    download = [link for link in links if link.endswith(".ipynb") and not remote(link)]
    assert download
    for link in download:
        assert json.loads((HTML / page).parent.joinpath(link).read_text("utf-8"))["nbformat"] == 4


# ------------------------------------------------------------------------------ search


def test_the_search_finds_words_of_the_chapters() -> None:
    text = (HTML / "searchindex.js").read_text("utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    assert set(BOOK.pages) <= set(index["docnames"])
    assert {"shaplei", "banzhaf", "coalit", "feder", "semivalu"} <= set(index["terms"])


# ------------------------------------------------------------------------ what is shown


def test_every_claim_is_on_the_report() -> None:
    from reproduction.claims import all_claims

    claims = [claim for read in all_claims().values() for claim in read.claims]
    shown = re.sub(r"\s+", " ", article("notebooks/claims").get_text(" "))
    for claim in claims:
        # what mathematics and quotes become is another matter: compare words
        words = re.findall(r"[A-Za-z]{3,}", claim.says)[:8]
        pattern = r"[^|]{0,40}?".join(map(re.escape, words))
        assert re.search(pattern, shown), f"{claim.id} is not on the page: {claim.says}"
    assert len(article("notebooks/claims").select("table tr")) > len(claims)


@each_notebook
def test_every_run_says_how_to_repeat_it(page: str) -> None:
    text = re.sub(r"\s+", " ", article(page).get_text(" "))
    assert f"fedkit book run {BOOK.source(page).stem}" in text


MOST_OF_AN_API_PAGE = 300_000  # bytes of HTML


@pytest.mark.parametrize("page", ["api", *PAGES])
def test_a_page_of_the_api_is_light(page: str) -> None:
    assert (HTML / "book" / f"{page}.html").stat().st_size < MOST_OF_AN_API_PAGE


def test_theorems_and_algorithms_are_numbered_and_referred_to() -> None:
    pages = [article(page) for page in BOOK.pages]
    labels = {proof["id"] for page in pages for proof in page.select("div.proof[id]")}
    links = {urlsplit(a["href"]).fragment for page in pages for a in page.select("a[href]")}
    assert len(labels) >= 5
    assert len(labels & links) >= 3


def test_dark_and_light_are_both_there() -> None:
    page = soup(HTML / "book/intro.html")
    assert page.select("button.theme-switch-button")
    logos = [i["src"] for i in page.select("a.navbar-brand img")]
    assert any("logo-dark" in s for s in logos)
    assert any(s.endswith("logo.svg") for s in logos)


# ------------------------------------------------------------------- the front page

PROMISES = {
    "On this page and the front page no result is typed": (
        "test_project.test_no_result_is_typed_on_the_front_page",
        "test_notebooks.test_no_result_is_typed_into_the_prose_of_an_experiment",
    ),
    "A verdict on a printed number rests on an interval over seeds": (
        "test_book.test_a_judged_number_has_its_interval_and_its_seeds",
    ),
    "Controls that know nothing about value (size, chance, equal shares)": (
        "test_arena_findings.test_every_row_has_a_name_and_the_tests_of_a_round_are_counted",
    ),
    "The pages are rendered from executed notebooks without a network": (
        "test_book.test_a_second_rendering_without_a_network_is_the_same_book",
    ),
}


def test_every_promise_of_the_report_is_held_by_a_test() -> None:
    listed = article("notebooks/claims").select("section#what-you-can-rely-on li")
    said = [re.sub(r"\s+", " ", item.get_text()).strip() for item in listed]
    assert len(said) == len(PROMISES)
    for promise, sentence in zip(PROMISES, said, strict=True):
        assert sentence.startswith(promise)
        for test in PROMISES[promise]:
            module, name = test.split(".")
            assert callable(getattr(importlib.import_module(module), name))


def test_the_report_has_a_finding_of_every_paper_and_the_front_page_a_picture() -> None:
    said = article("notebooks/claims").select("section#what-was-found-paper-by-paper p")
    interval = r"[−+]?\d+(\.\d+)?\s\[[−+]?\d+(\.\d+)?,\s[−+]?\d+(\.\d+)?\]"
    for paper in ("FedOwen", "FedMS", "FedTSV", "FedCCEA", "FedValue"):
        mine = [p.get_text() for p in said if p.get_text().startswith(paper)]
        assert any(re.search(interval, text) for text in mine), (paper, mine)
    assert article("book/intro").select_one("figure img") is not None


def test_every_question_is_a_heading_and_leads_to_the_section_that_answers_it() -> None:
    """The search finds titles of sections first."""
    pages = ("first-questions", "questions", "checking")
    asked = [part for page in pages for part in article(f"book/{page}").select("section > section")]
    assert len(asked) > 40
    for section in asked:
        assert section.select("p a.reference.internal[href]"), section.get_text()
    text = (HTML / "searchindex.js").read_text("utf-8")
    titles = json.loads(text[text.index("(") + 1 : text.rindex(")")])["alltitles"]
    assert {section.h2.get_text().rstrip("#") for section in asked} <= set(titles)


def test_a_judged_number_has_its_interval_and_its_seeds() -> None:
    from reproduction.verdicts import UNJUDGED

    judged = 0
    for row in article("notebooks/claims").select(".fedkit-finder tbody tr"):
        cells = [cell.get_text(" ").replace("\u00a0", " ") for cell in row.find_all("td")]
        _, _, claim, printed, ours, verdict, declared = cells
        if verdict[2:] in UNJUDGED or declared == "by construction" or printed == "–":
            continue
        judged += 1
        told = re.search(r"\[.+, .+\], n = \d+|, n = 1$", ours)  # one seed has no interval
        assert told or "rule: printed" in claim, cells
    assert judged > 500


# --------------------------------------------------------------- determinism, no network


def digest(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file() and "mathjax" not in p.parts]
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }


def offline() -> list[str]:
    """Return what to put before a command to run it without a network."""
    command = ["unshare", "-rn"]
    if shutil.which("unshare") is None:
        return []
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else []


@pytest.mark.slow
def test_a_second_rendering_without_a_network_is_the_same_book(tmp_path: Path) -> None:
    command, environment = rendering(ROOT / "_stage", tmp_path)
    command = [*offline(), *command]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert digest(HTML) == digest(tmp_path / "_build" / "html")


# ------------------------------------------------------------------------------- widths


@pytest.mark.skipif(browser() is None, reason="no Chromium on this machine")
def test_nothing_is_wider_than_its_column_on_a_telephone() -> None:
    assert sticking_out(HTML, BOOK.pages) == {page: [] for page in BOOK.pages}


@each_page
def test_every_page_opens_its_folds_for_print(page: str) -> None:
    scripts = soup(HTML / f"{page}.html").find_all("script", src=True)
    assert any("_static/fedkit.js" in script["src"] for script in scripts)
    assert "beforeprint" in (HTML / "_static" / "fedkit.js").read_text("utf-8")
