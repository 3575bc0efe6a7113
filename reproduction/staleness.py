"""The rules for a folder of records: sound, in its place, small enough, and guarded."""

from __future__ import annotations

from reproduction.records.store import RecordError, Store
from reproduction.registry import get

__all__ = ["SIZE_LIMIT", "check_records", "stale_records"]

SIZE_LIMIT = 250_000
"""Bytes that a committed record may have at the most."""


def stale_records(store: Store) -> dict[str, list[str]]:
    """Name the stale records of a store, each with the golden runs that changed since.

    Unreadable records are left out; :func:`check_records` reports them.
    """
    stale = {}
    for path in store.paths():
        try:
            changed = store.read(path).stale()
        except RecordError:
            continue
        if changed:
            stale[path.relative_to(store.root).with_suffix("").as_posix()] = changed
    return stale


def check_records(store: Store) -> list[str]:
    """Return one sentence per problem of a store; an empty list means that all is well.

    Problems are: a record that is unreadable, misplaced or over the size limit, or does not name
    the golden runs that answer for it.  A stale record is none: it is shown as stale wherever its
    numbers are.
    """
    problems = []
    for path in store.paths():
        name = path.relative_to(store.root)
        try:
            record = store.read(path)
        except RecordError as error:
            problems.append(str(error))
            continue
        cell = record.cell
        if store.path(cell) != path:
            place = store.path(cell).relative_to(store.root)
            problems.append(f"{name} holds the cell of {place}; move it there")
        if path.stat().st_size > SIZE_LIMIT:
            problems.append(
                f"{name} has {path.stat().st_size} bytes, over the limit of {SIZE_LIMIT}; "
                "use smaller blocks of seeds or fewer series"
            )
        try:
            wanted = set(get(cell.paper, cell.experiment).behaviours(cell))
        except ValueError:  # an experiment that was removed, or somebody's own
            continue
        named = set(record.manifest.get("behaviour") or {})
        if named != wanted:
            problems.append(
                f"{name} names the golden runs {sorted(named)}; those that answer for its cell "
                f"are {sorted(wanted)}: make it anew with: {cell.command}"
            )
    return problems
