"""The API pages, written from fedkit's public names so that it cannot fall behind them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

import fedkit

#: Page of each room; of two that fit a module, the longer.
PAGES = {
    "api-games": "games estimators streams interop",
    "api-models": "learning datasets",
    "api-federation": "federated flower",
    "api-methods": "methods",
    "api-columns": "fedvalue",
    "api-protocol": "fedvalue.protocol fedvalue.http fedvalue.commands",
    "api-arena": "arena intervals",
    "api-plots": "plots checks extras atomic threads columnfiles __main__",
}
_PAGES = {f"fedkit.{room}.": page for page, rooms in PAGES.items() for room in rooms.split()}


def page_of(module: str) -> str:
    """Return the page of a module by its full name."""
    return _PAGES[max((room for room in _PAGES if f"{module}.".startswith(room)), key=len)]


def public_names() -> dict[str, list[str]]:
    """Return the names that each module of fedkit defines and documents, private ones left out."""
    order = [*dict.fromkeys(room.split(".")[1] for room in _PAGES)]
    modules = [info.name for info in pkgutil.walk_packages(fedkit.__path__, "fedkit.")]
    found = {}
    for name in sorted(modules, key=lambda name: order.index(name.split(".")[1])):
        module = importlib.import_module(name)
        constants = [key for of, key in ModuleAnalyzer.for_module(name).find_attr_docs() if not of]
        things = inspect.getmembers(module, lambda x: inspect.isclass(x) or inspect.isfunction(x))
        own = [key for key, thing in things if thing.__module__ == name]
        found[name] = sorted({key for key in own + constants if not key.startswith("_")})
    return {name: names for name, names in found.items() if names}


def _glance(homes: dict[str, list[str]], pages: dict[str, str]) -> str:
    """Write the table of the names that ``import fedkit as fk`` offers."""
    lines = ["```{eval-rst}", ".. list-table::", "   :widths: 28 54 18", ""]
    for name in fedkit.__all__:
        value = getattr(fedkit, name)
        shown = [p for p in PAGES if re.search(rf"\bfk\.{name}\b", pages.get(p, ""))]
        first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
        if name in homes.get(home := getattr(value, "__module__", ""), ()):
            lines += [f"   * - :py:obj:`fk.{name} <{home}.{name}>`", f"     - {first}"]
            lines += [f"     - :doc:`example <{shown[0]}>`" if shown else "     - "]
    return "\n".join([*lines, "```"])


def expand(folder: Path) -> dict[str, str]:
    """Fill the marks of ``api.md``, the index, and of the pages of :data:`PAGES`, by their name."""
    pages = {name: (folder / f"{name}.md").read_text("utf-8") for name in ("api", *PAGES)}
    homes = public_names()
    glance, parts = _glance(homes, pages), dict.fromkeys(pages, "")
    for home, names in homes.items():
        told = f".. automodule:: {home}\n   :no-value:\n   :members: {', '.join(names)}"
        parts[page_of(home)] += f"### `{home}`\n```{{eval-rst}}\n{told}\n```\n\n"
    return {
        name: text.replace("<!-- names -->", glance).replace("<!-- modules -->", parts[name])
        for name, text in pages.items()
    }
