"""The API pages, written from fedkit's public names so that it cannot fall behind them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import fedkit

__all__ = ["PAGES", "expand", "page_of", "public_modules"]

MARK_NAMES, MARK_MODULES = "<!-- names -->", "<!-- modules -->"

#: Page of each room; of two that fit a module, the longer.
PAGES = {
    "api-games": "games estimators streams",
    "api-models": "learning datasets",
    "api-federation": "federated flower",
    "api-methods": "methods",
    "api-columns": "fedvalue",
    "api-protocol": "fedvalue.protocol fedvalue.service",
    "api-arena": "arena intervals",
    "api-records": "papers records claims",
    "api-plots": "plots book cli checks extras atomic",
}


def page_of(module: str) -> str:
    """Return the page of a module by its full name."""
    place = module.removeprefix("fedkit.")
    fitting = {
        room: page for page, rooms in PAGES.items() for room in rooms.split()
        if f"{place}.".startswith(f"{room}.")
    }  # fmt: skip
    return fitting[max(fitting, key=len)]


def public_modules(*, draft: bool = False) -> Iterator[types.ModuleType]:
    """Yield fedkit's modules with public names; a package stands for what it re-exports.

    A module that cannot be imported is an error, or in a draft a note.
    """

    def below(package: types.ModuleType) -> Iterator[types.ModuleType]:
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if any(part.startswith("_") for part in info.name.split(".")):
                continue
            try:
                module = importlib.import_module(info.name)
            except ImportError as error:
                if not draft:
                    raise
                print(f"  note: {info.name} is left out of the API page: {error}")
                continue
            if getattr(module, "__all__", None):
                yield module
            if info.ispkg:
                yield from below(module)

    order = [room for rooms in PAGES.values() for room in rooms.split()]
    yield from sorted(below(fedkit), key=lambda m: order.index(m.__name__.split(".")[1]))


def _homes(modules: list[types.ModuleType]) -> dict[str, list[str]]:
    """Assign every public object to one module: where it is written, else where it first shows."""
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
    return names


def _glance(homes: dict[str, list[str]], examples: dict[str, str]) -> str:
    """Write the table of the names that ``import fedkit as fk`` offers."""
    lines = ["```{eval-rst}", ".. list-table::", "   :widths: 28 54 18", ""]
    for name in getattr(fedkit, "__all__", []):
        value = getattr(fedkit, name)
        shown = [p for p, text in examples.items() if re.search(rf"\bfk\.{name}\b", text)]
        example = f":doc:`example <{shown[0]}>`" if shown else ""
        for home, names in homes.items():
            if name in names and getattr(sys.modules[home], name) is value:
                first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
                lines += [f"   * - :py:obj:`fk.{name} <{home}.{name}>`", f"     - {first}"]
                lines += [f"     - {example}"]
    return "\n".join([*lines, "```"]) if len(lines) > 4 else ""


def _module(name: str, members: list[str]) -> list[str]:
    """Write the part of the page on one module."""
    directive = [f".. automodule:: {name}", f"   :members: {', '.join(members)}"]
    return [f"### `{name}`", "```{eval-rst}", *directive, "```", ""]


def expand(folder: Path, *, draft: bool = False) -> dict[str, str]:
    """Fill the marks of the API pages.

    Parameters
    ----------
    folder : Path
        With ``api.md``, the index, and the pages of :data:`PAGES`.
    draft : bool
        Whether a module that cannot be imported is a note and no error.

    Returns
    -------
    dict of str to str
        Text of each page that is there, by its name.
    """
    texts = {
        name: (folder / f"{name}.md").read_text(encoding="utf-8")
        for name in ("api", *PAGES) if (folder / f"{name}.md").is_file()
    }  # fmt: skip
    if not texts:
        return {}
    homes = _homes(list(public_modules(draft=draft)))
    pages: dict[str, list[str]] = {name: [] for name in texts}
    for name, names in homes.items():
        if names and page_of(name) in pages:
            pages[page_of(name)] += _module(name, names)
    examples = {name: text for name, text in texts.items() if name != "api"}
    glance = _glance(homes, examples)
    return {
        name: text.replace(MARK_NAMES, glance).replace(MARK_MODULES, "\n".join(pages[name]))
        for name, text in texts.items()
    }
