"""Data sets: the catalogue, and readers of the files that torchvision and others keep."""

from __future__ import annotations

from fedkit.extras import later

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


__getattr__ = later(__name__, _HOMES)  # images need torch, tables and ratings do not
