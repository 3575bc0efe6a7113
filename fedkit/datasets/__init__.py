"""Data sets: the catalogue, and readers of the files that torchvision and others keep."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "DamagedDataError": "readers",
    "Dataset": "dataset",
    "DownloadError": "readers",
    "FileReport": "catalogue",
    "MissingDataError": "readers",
    "MovieLens": "movielens",
    "TABLES": "tabular",
    "Tabular": "tabular",
    "available": "catalogue",
    "data_root": "catalogue",
    "find_table": "tabular",
    "get": "catalogue",
    "get_table": "tabular",
    "load": "dataset",
    "load_movielens": "movielens",
    "load_table": "tabular",
    "made_up_ratings": "movielens",
    "names": "catalogue",
    "verify": "catalogue",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import what is asked for: images need torch, tables and ratings do not."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"fedkit.datasets.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedkit.datasets' has no attribute {name!r}")
