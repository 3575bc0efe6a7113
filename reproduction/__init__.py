"""How the book checks five papers: settings, runs, records, claims, figures, and the book itself.

A paper may live outside this checkout: an installed package enters it under the entry point group
``fedkit.papers``, by its name and the module (or package) that registers its experiments.  The
arena, which compares all methods, is entered like a paper.
"""

from __future__ import annotations

from pathlib import Path

from reproduction.records.outside import PAPERS, entered, home

__all__ = ["claims_file", "packages"]


def packages() -> dict[str, str]:
    """Return the module of each paper by its name, sorted, without importing any."""
    ours = {name: f"{__name__}.{name}" for name in PAPERS}
    return dict(sorted((entered() | ours).items()))


def claims_file(paper: str) -> Path | None:
    """Return the ``claims.yaml`` in a paper's package; None where there is none."""
    folder = home(packages()[paper]) if paper in packages() else None
    return folder / "claims.yaml" if folder and (folder / "claims.yaml").is_file() else None
