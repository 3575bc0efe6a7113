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

#: Modules in the order of the page; what is not named here follows under the last heading.
SECTIONS = {
    "Games and values": "games closed_forms masks valuation estimators classwise classwise_gtg "
    "streams",
    "Models and training": "models layers training firstlayer pooling workers arithmetic "
    "coalitions roundgame",
    "Data and federations": "datasets.dataset datasets.tabular datasets.movielens "
    "datasets.catalogue datasets.fetch datasets.layouts datasets.files "
    "partition ownarrays schemes dirichlet splits",
    "Rounds": "federation contribution selection aggregation maverick schedulers corruption "
    "history checkpoints trajectory adaptive retraining trainings samplespace aam approximation "
    "projection connected",
    "Vertical federated learning": "fedvalue fedvalue.data fedvalue.cmi "
    "fedvalue.bias fedvalue.significance fedvalue.knn fedvalue.protocol.secure "
    "fedvalue.protocol.parties fedvalue.protocol.task_party fedvalue.protocol.verification "
    "fedvalue.protocol.messages",
    "Experiments, records and claims": "records experiments staleness provenance claims comparing "
    "verdicts intervals overviews reporting printed",
    "Figures": "plots.curves plots.clients plots.style",
    "The book and the command line": "",
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
            if getattr(module, "__all__", None) and module.__name__ not in (
                "fedkit.plots",
                "fedkit.datasets",
            ):
                yield module
            if info.ispkg and (
                module.__name__ in ("fedkit.experiments", "fedkit.fedvalue")
                or module.__name__ in ("fedkit.plots", "fedkit.datasets")
                or not hasattr(module, "__all__")
            ):
                yield from below(module)

    order = [f"fedkit.{short}" for names in SECTIONS.values() for short in names.split()]
    found = list(below(fedkit))
    yield from sorted(found, key=lambda m: [*order, m.__name__].index(m.__name__))


def _homes(modules: list[types.ModuleType]) -> dict[str, list[str]]:
    """Assign every public object to one module: where it is written, else where it first shows."""
    names: dict[str, list[str]] = {m.__name__: [] for m in modules}
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            showing = [m.__name__ for m in modules if getattr(m, name, None) is value]
            written = getattr(value, "__module__", "")
            home = written if written in showing else showing[0]
            if name in getattr(sys.modules[home], "__all__", []) and name not in names[home]:
                names[home].append(name)
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
        named = [f"fedkit.{short}" for short in wanted.split()] or list(left)
        found = [name for name in named if name in left]
        for start, package in (("Experiments", "experiments"), ("Vertical", "fedvalue")):
            if heading.startswith(start):
                below = (name for name in left if name.startswith(f"fedkit.{package}."))
                found += [name for name in below if name not in found]
        page += [f"## {heading}", ""] if found else []
        for name in found:
            page += _module(name, left.pop(name))
    return text.replace(MARK_NAMES, _glance(homes)).replace(MARK_MODULES, "\n".join(page))
