"""What a paper alone needs: settings, runs, tables and its claims; one package each.

A paper may live outside fedkit: an installed package enters it under the entry point group
``fedkit.papers``, by its name and the module (or package) that registers its experiments.  The
arena, which compares all methods, stands above the papers and enters in the same way.
"""

from __future__ import annotations

import pkgutil
from pathlib import Path

from fedkit.records.outside import entered, home

__all__ = ["claims_file", "packages"]


def packages() -> dict[str, str]:
    """Return the module of each paper by its name, sorted, without importing any."""
    here = pkgutil.iter_modules(__path__)
    ours = {item.name: f"{__name__}.{item.name}" for item in here if item.ispkg}
    return dict(sorted((entered() | ours | {"arena": "fedkit.arena"}).items()))


def claims_file(paper: str) -> Path | None:
    """Return the ``claims.yaml`` in a paper's package; None where there is none."""
    folder = home(packages()[paper]) if paper in packages() else None
    return folder / "claims.yaml" if folder and (folder / "claims.yaml").is_file() else None
