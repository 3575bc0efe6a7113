"""Data sets by name: found below one folder, checked, and given as tensors or arrays.

``FEDKIT_DATA`` names the data folder (default: the user's cache folder).  It has the layouts of
torchvision, medmnist, the UCI repository and GroupLens; ``"digits"``, ``"wine"`` and ``"breast"``
are embedded in scikit-learn and need no folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from fedkit.checks import choice, flag
from fedkit.datasets.files import DamagedDataError, DownloadError, MissingDataError, data_root
from fedkit.datasets.images import IMAGES, Dataset, find_copy, get_images, load_images
from fedkit.datasets.ratings import (
    RATINGS,
    MovieLens,
    get_ratings,
    load_movielens,
    made_up_ratings,
    ratings_files,
)
from fedkit.datasets.tables import TABLES, Tabular, get_table, load_table, table_files

__all__ = [
    "IMAGES", "RATINGS", "TABLES", "DamagedDataError", "Dataset", "DownloadError",
    "MissingDataError", "MovieLens", "Tabular", "data_root", "find", "get", "load",
    "load_movielens", "load_table", "made_up_ratings",
]  # fmt: skip


def load(name: str, root: str | os.PathLike[str] | None = None, *, verify: bool = True) -> Dataset:
    """Load an image data set by name, one of ``fedkit.datasets.IMAGES``.

    Parameters
    ----------
    name : str
    root : path, optional
        Data folder; by default FEDKIT_DATA, else the user's cache folder.
    verify : bool
        Check published digests.  Switch it off only for files that you changed on purpose.

    Returns
    -------
    Dataset
        Training and test images with their labels.

    Raises
    ------
    ValueError, MissingDataError, DamagedDataError
        If the name is unknown, the files are not there, or one is not what it should be.
    """
    name = _canonical(name, IMAGES)
    return load_images(name, data_root(root), flag("verify", verify))


def find(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return which copy of a data set would be loaded, None where there is none."""
    name, folder = _canonical(name, [*IMAGES, *TABLES, *RATINGS]), data_root(root)
    if name in RATINGS:
        return ratings_files(name, folder)
    if name in TABLES:
        if not TABLES[name].files:
            return "embedded in scikit-learn"
        files = table_files(name, folder)
        return None if files is None else " and ".join(files)
    copy = find_copy(name, folder)
    return None if copy is None else copy.source


def get(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Download a data set, check it, then put it in place; what is there already is checked.

    Images come through torchvision or medmnist, tables through ``ucimlrepo``, ratings from
    GroupLens.  Which copy is now there is returned; a DownloadError tells what failed.
    """
    name, folder = _canonical(name, [*IMAGES, *TABLES, *RATINGS]), data_root(root)
    if name in IMAGES:
        return get_images(name, folder)
    there = find(name, folder)
    if there is not None:
        (load_table if name in TABLES else load_movielens)(name, folder)
        return there
    return (get_table if name in TABLES else get_ratings)(name, folder)


def _canonical(name: str, known: Collection[str]) -> str:
    """Return the name as fedkit writes it, or refuse it."""
    key = name.lower().replace("_", "-") if isinstance(name, str) else repr(name)
    if key in known:
        return key
    if key in TABLES or key in RATINGS:
        loader = "load_table" if key in TABLES else "load_movielens"
        raise ValueError(f"{key!r} has no images; load it with fedkit.datasets.{loader}({key!r})")
    return str(choice("name", key, known))
