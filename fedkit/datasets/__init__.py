"""Data sets: the catalogue, and readers of the files that torchvision and others keep."""

from __future__ import annotations

from fedkit.extras import homes, later

_HOMES = homes(
    {
        "catalogue": "FileReport available data_root get names verify",
        "dataset": "Dataset load",
        "movielens": "MovieLens load_movielens made_up_ratings",
        "readers": "DamagedDataError DownloadError MissingDataError",
        "tabular": "TABLES Tabular find_table get_table load_table",
    }
)

__all__ = [*_HOMES]
__getattr__ = later(__name__, _HOMES)  # images need torch, tables and ratings do not
