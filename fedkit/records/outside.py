"""Papers outside fedkit: which packages enter one, and where its files are; none is imported."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import metadata, util
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["GROUP", "entered", "home"]

GROUP = "fedkit.papers"
"""The entry point group: the name of a paper, and the module that registers its experiments."""

_OURS = Path(__file__).parents[1] / "papers"


def entered() -> dict[str, str]:
    """Return the module of each paper that an installed package enters, by its name.

    A name that a paper of fedkit itself has stays fedkit's.
    """
    return _entered(tuple(sys.path))


@lru_cache(maxsize=1)
def _entered(path: tuple[str, ...]) -> dict[str, str]:  # every record asks, for its golden runs
    points = metadata.entry_points(group=GROUP)
    return {point.name: point.value for point in points if not (_OURS / point.name).is_dir()}


def home(module: str) -> Path | None:
    """Return the folder of a package; None for a single module, or where there is no such."""
    top, *rest = module.split(".")
    try:
        found = util.find_spec(top)
    except ValueError:  # a module made by hand
        return None
    name = top
    for part in rest:
        name = f"{name}.{part}"
        inside = found.submodule_search_locations if found is not None else None
        found = PathFinder.find_spec(name, inside) if inside is not None else None
    if found is None or found.submodule_search_locations is None:
        return None
    return Path(next(iter(found.submodule_search_locations)))
