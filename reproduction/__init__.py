"""How the book checks five papers: experiments, records, claims, figures, and the book itself."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout: what is in this folder runs nowhere else."""

NAMES = {
    "fedowen": "FedOwen", "fedms": "FedMS", "fedtsv": "FedTSV", "fedccea": "FedCCEA",
    "fedvalue": "FedValue", "arena": "Arena",
}  # fmt: skip
"""How each paper's method is written; the page of its tables is called so."""

PAPERS = {name: ROOT / "reproduction" / name for name in sorted(NAMES)}
"""The folder of each paper; :func:`reproduction.experiments.enter` adds one of your own."""


def claims_file(paper: str) -> Path | None:
    """Return the ``claims.yaml`` in a paper's folder; None where there is none."""
    file = PAPERS[paper] / "claims.yaml" if paper in PAPERS else None
    return file if file is not None and file.is_file() else None


def golden_folder(paper: str) -> Path:
    """Return where the golden numbers of a paper lie; one of your own has them in its folder."""
    home = PAPERS.get(paper, ROOT / "reproduction" / paper)
    if home.parent == ROOT / "reproduction":
        return ROOT / "results" / "golden" / paper
    return home / "golden"


def results_folder() -> Path:
    """Return the folder of records: ``FEDKIT_RESULTS`` where that is set, else ``results``."""
    named = os.environ.get("FEDKIT_RESULTS")
    return Path(named).expanduser() if named else ROOT / "results"
