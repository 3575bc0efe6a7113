"""The API page, written from fedkit's public names so that it cannot fall behind them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator

import fedkit

__all__ = ["expand", "public_modules"]

MARK_NAMES, MARK_MODULES = "<!-- names -->", "<!-- modules -->"

#: Rooms in the order of the page.
SECTIONS = {
    "Games and values": "games estimators streams",
    "Models and training": "learning",
    "Data and federations": "datasets federated",
    "Methods": "methods",
    "Flower": "flower",
    "Vertical federated learning": "fedvalue",
    "Experiments, records and claims": "arena papers records claims intervals",
    "Figures": "plots",
    "The book and the command line": "book cli checks extras atomic",
}


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

    order = [room for rooms in SECTIONS.values() for room in rooms.split()]
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


def _glance(homes: dict[str, list[str]]) -> str:
    """Write the table of the names that ``import fedkit as fk`` offers."""
    lines = ["```{eval-rst}", ".. list-table::", "   :widths: 35 65", ""]
    for name in getattr(fedkit, "__all__", []):
        value = getattr(fedkit, name)
        for home, names in homes.items():
            if name in names and getattr(sys.modules[home], name) is value:
                first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
                lines += [f"   * - :py:obj:`fk.{name} <{home}.{name}>`", f"     - {first}"]
    return "\n".join([*lines, "```"]) if len(lines) > 4 else ""


def _module(name: str, members: list[str]) -> list[str]:
    """Write the part of the page on one module."""
    directive = [f".. automodule:: {name}", f"   :members: {', '.join(members)}"]
    return [f"### `{name}`", "```{eval-rst}", *directive, "```", ""]


def expand(text: str, *, draft: bool = False) -> str:
    """Fill the two marks of ``book/api.md``."""
    homes = _homes(list(public_modules(draft=draft)))
    left = {name: names for name, names in homes.items() if names}
    page: list[str] = []
    for heading, wanted in SECTIONS.items():
        found = [name for name in left if name.split(".")[1] in wanted.split()]
        page += [f"## {heading}", ""] if found else []
        for name in found:
            page += _module(name, left.pop(name))
    return text.replace(MARK_NAMES, _glance(homes)).replace(MARK_MODULES, "\n".join(page))
