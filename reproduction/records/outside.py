"""Papers outside fedkit: which packages enter one, and where its files are."""

from __future__ import annotations

from functools import cache
from importlib import metadata, util
from pathlib import Path

__all__ = ["GROUP", "PAPERS", "entered", "home"]

GROUP = "reproduction"
"""The entry point group: the name of a paper, and the module that registers its experiments."""

PAPERS = ("arena", "fedccea", "fedms", "fedowen", "fedtsv", "fedvalue")
"""The packages of this checkout that register experiments."""


@cache  # every record asks, for its golden runs
def entered() -> dict[str, str]:
    """Return the module of each paper that an installed package enters, by its name.

    A name that a paper of fedkit itself has stays fedkit's.
    """
    points = metadata.entry_points(group=GROUP)
    return {point.name: point.value for point in points if point.name not in PAPERS}


def home(module: str) -> Path | None:
    """Return the folder of a package; None for a single module, or where there is no such."""
    top, *rest = module.split(".")
    try:
        found = util.find_spec(top)  # which imports nothing, and a name with dots would
    except ValueError:  # a module made by hand
        return None
    folders = found.submodule_search_locations if found else None
    there = Path(next(iter(folders))).joinpath(*rest) if folders else None
    return there if there is not None and there.is_dir() else None
