"""What the book adds to Sphinx: numbers for tables and sliders that come out of cells as HTML, in
one sequence with those of the text, and what a page says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from typing import Any

from docutils import nodes
from sphinx.search import SearchEnglish, languages

LONGEST = 50_000  # characters of an output that the search looks into


class NumberedTable(nodes.container):
    """A table that a cell shows."""


class NumberedFigure(nodes.container):
    """A figure with sliders that a cell shows."""


_KINDS = {"table": (NumberedTable, "<caption>"), "figure": (NumberedFigure, "<figcaption>")}


class Searched(SearchEnglish):
    """English without the longest tables, whose words would answer every question."""

    def split(self, input: str) -> list[str]:
        return super().split(input) if len(input) < LONGEST else []


def setup(app: Any) -> dict[str, Any]:
    """Connect to Sphinx."""
    languages["en"] = Searched
    for kind, (node, _) in _KINDS.items():
        app.add_enumerable_node(node, kind, lambda found: found["title"], html=(_open, _close))
    app.connect("autodoc-process-docstring", one_by_one, priority=400)  # before napoleon
    app.connect("doctree-read", dash)
    app.connect("doctree-read", wrap)
    app.connect("doctree-resolved", number)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", link_to_sources, priority=502)  # once the theme has buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def one_by_one(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make of fields that share a type a line each, and keep sentences with a colon whole.

    Napoleon takes "a, b : type" for one field of the type "a", and of a property what stands before
    a colon for its type.
    """
    if what in ("attribute", "data", "property"):
        colon = r"(``.*?``)|(?<![:`]):(?= )"  # but for those in code
        lines[:] = [re.sub(colon, lambda found: found[1] or " –", line) for line in lines]
        return
    apart = []
    for line in lines:
        fields = re.fullmatch(r"(\w+(?:, \w+)+) : (.+)", line)
        apart += [f"{one} : {fields[2]}" for one in fields[1].split(", ")] if fields else [line]
    lines[:] = apart


def _open(translator: Any, node: nodes.Element) -> None:
    translator.body.append(translator.starttag(node, "div"))


def _close(translator: Any, node: nodes.Element) -> None:
    translator.body.append("</div>\n")


def _raw(node: nodes.Node) -> Iterator[nodes.raw]:
    return (raw for raw in node.findall(nodes.raw) if raw.get("format") == "html")


def dash(app: Any, doctree: nodes.document) -> None:
    """Write the double hyphen between a parameter and its words as a dash."""
    for field in doctree.findall(nodes.field_body):
        for text in list(field.findall(nodes.Text)):
            text.parent.replace(text, nodes.Text(text.replace(" -- ", " – ")))


def wrap(app: Any, doctree: nodes.document) -> None:
    """Make each output with a caption a node that Sphinx numbers."""
    page = app.env.docname.rpartition("/")[2]
    found = dict.fromkeys(_KINDS, 0)
    for bundle in list(doctree.findall(nodes.container)):
        if bundle.get("nb_element") != "mime_bundle":
            continue
        html = "".join(raw.astext() for raw in _raw(bundle))
        kind = next((kind for kind, (_, tag) in _KINDS.items() if tag in html), None)
        if kind is None:
            continue
        found[kind] += 1
        name = f"{page}-{kind}-{found[kind]}"
        attributes = {"ids": [name], "title": name, "classes": ["fedkit-numbered"]}
        bundle.replace_self(_KINDS[kind][0]("", bundle.deepcopy(), **attributes))


def number(app: Any, doctree: nodes.document, docname: str) -> None:
    """Write the numbers in front of the captions."""
    pages = app.env.toc_fignumbers.values()  # of all: in print they are one document
    numbers = {name: at for kinds in pages for ids in kinds.values() for name, at in ids.items()}
    for kind, (node, tag) in _KINDS.items():
        for shown in doctree.findall(node):
            place = ".".join(map(str, numbers[shown["ids"][0]]))
            label = app.config.numfig_format[kind] % place
            told = f'{tag}<span class="caption-number">{label} </span>'
            for raw in _raw(shown):
                raw.children = [nodes.Text(raw.astext().replace(tag, told, 1))]


def describe(app: Any, pagename: str, template: str, context: Any, doctree: Any) -> None:
    """Say in a page's head what it is about, for search engines and previews."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if not re.search("thebe", f"{script.filename} {script.attributes}", re.IGNORECASE)
    ]  # jupyter-book loads what would run code in the page, twice, which is an error
    first = next(doctree.findall(nodes.paragraph), None) if doctree else None
    if first is None:
        return
    text = " ".join(first.astext().split())
    title = re.sub(r"<[^>]+>", "", context["title"])
    told = {
        'name="description"': text,
        'property="og:title"': unescape(title),
        'property="og:description"': text,
        'property="og:type"': "article",
        'property="og:url"': context["pageurl"],
        'property="og:image"': f"{app.config.html_baseurl}_static/preview.png",
    }
    context["metatags"] += "".join(
        f'<meta {what} content="{escape(value)}" />' for what, value in told.items()
    )


def link_to_sources(app: Any, pagename: str, template: str, context: Any, doctree: Any) -> None:
    """Let buttons edit the text of a notebook, and open the one notebook of all tables."""
    name = re.sub("^notebooks/tables-.*", "notebooks/tables", pagename)

    def mend(buttons: list[dict[str, Any]]) -> None:
        for button in buttons:
            mend(button.get("buttons", []))
            if button.get("url", "").startswith("https:"):  # the page's own notebook is beside it
                button["url"] = button["url"].replace(f"{pagename}.ipynb", f"{name}.ipynb")
            if button.get("label") == "source-edit-button":
                button["url"] = button["url"].replace(".ipynb", ".md")

    mend(context.get("header_buttons", []))
