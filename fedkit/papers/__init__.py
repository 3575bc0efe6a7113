"""What a paper alone needs: settings, runs, tables and its claims; one package each.

A paper may live outside fedkit: an installed package enters it under the entry point group
``fedkit.papers``, by its name and the module (or package) that registers its experiments.
"""

from __future__ import annotations

import pkgutil
from importlib import metadata, util
from pathlib import Path

__all__ = ["folder", "packages"]


def packages() -> dict[str, str]:
    """Return the module of each paper by its name, sorted, without importing any."""
    here = pkgutil.iter_modules(__path__)
    ours = {item.name: f"{__name__}.{item.name}" for item in here if item.ispkg}
    entered = {point.name: point.value for point in metadata.entry_points(group=__name__)}
    return dict(sorted((entered | ours).items()))


def folder(paper: str) -> Path:
    """Return the folder of a paper's module, where its ``claims.yaml`` is."""
    found = util.find_spec(packages()[paper])
    if found is None or found.origin is None:
        raise ValueError(f"the module {packages()[paper]} of paper {paper!r} cannot be found")
    return Path(found.origin).parent
