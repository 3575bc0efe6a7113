"""The API pages, written from fedkit's public names so that it cannot fall behind them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
from pathlib import Path

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


def public_modules() -> list[types.ModuleType]:
    """Return fedkit's modules with public names; a package stands for what it re-exports."""
    order = [*dict.fromkeys(room.split(".")[1] for room in _PAGES)]
    names = [info.name for info in pkgutil.walk_packages(fedkit.__path__, "fedkit.")]
    public = [importlib.import_module(name) for name in names if "._" not in name]
    public = [module for module in public if getattr(module, "__all__", None)]
    return sorted(public, key=lambda module: order.index(module.__name__.split(".")[1]))


def _homes() -> dict[str, list[str]]:
    """Assign every public object to one module: where it is written, else where it first shows."""
    modules = public_modules()
    names: dict[str, list[str]] = {m.__name__: [] for m in modules}
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            homes = [m for m in modules if name in m.__all__ and getattr(m, name) is value]
            # where it is written; a constant does not know, and rooms only repeat it
            written = getattr(value, "__module__", "")
            home = min(homes, key=lambda m: (m.__name__ != written, hasattr(m, "__path__")))
            if name not in names[home.__name__]:
                names[home.__name__].append(name)
    return {home: members for home, members in names.items() if members}


def _glance(homes: dict[str, list[str]], pages: dict[str, str]) -> str:
    """Write the table of the names that ``import fedkit as fk`` offers."""
    lines = ["```{eval-rst}", ".. list-table::", "   :widths: 28 54 18", ""]
    for name in fedkit.__all__:
        value = getattr(fedkit, name)
        shown = [p for p in PAGES if re.search(rf"\bfk\.{name}\b", pages.get(p, ""))]
        first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
        for home, names in homes.items():
            if name in names and getattr(importlib.import_module(home), name) is value:
                lines += [f"   * - :py:obj:`fk.{name} <{home}.{name}>`", f"     - {first}"]
                lines += [f"     - :doc:`example <{shown[0]}>`" if shown else "     - "]
    return "\n".join([*lines, "```"])


def expand(folder: Path) -> dict[str, str]:
    """Fill the marks of ``api.md``, the index, and of the pages of :data:`PAGES`, by their name."""
    pages = {name: (folder / f"{name}.md").read_text("utf-8") for name in ("api", *PAGES)}
    homes = _homes()
    glance, parts = _glance(homes, pages), dict.fromkeys(pages, "")
    for home, names in homes.items():
        told = f".. automodule:: {home}\n   :no-value:\n   :members: {', '.join(names)}"
        parts[page_of(home)] += f"### `{home}`\n```{{eval-rst}}\n{told}\n```\n\n"
    return {
        name: text.replace("<!-- names -->", glance).replace("<!-- modules -->", parts[name])
        for name, text in pages.items()
    }
