"""The rule for records that are older than the code: rerun them, or say why they may stay.

``results/STALE.md`` is a list of ``- <profile>/<paper>/<experiment>/<key>: reason`` lines; a
name may hold ``*``.  A stale record that no line names fails the check, and so does a line that
names no stale record.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from fedkit.records import RecordError, Store

__all__ = ["SIZE_LIMIT", "STALE_FILE", "accepted_stale", "check_records", "stale_records"]

STALE_FILE = "STALE.md"
SIZE_LIMIT = 250_000
"""Bytes that a committed record may have at the most."""

_LINE = re.compile(r"\s*[-*]\s+`?(?P<name>[^\s`:]+)`?\s*:\s*(?P<reason>.*)")


def accepted_stale(root: Path) -> dict[str, str]:
    """Read the accepted stale records: name (may hold ``*``) -> reason.

    Raises
    ------
    ValueError
        If a line of the list names no record or gives no reason.
    """
    path = root / STALE_FILE
    if not path.is_file():
        return {}
    accepted = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.lstrip().startswith(("- ", "* ")):
            continue
        match = _LINE.fullmatch(line)
        if match is None or not match["reason"].strip() or match["name"].count("/") != 3:
            raise ValueError(
                f"{STALE_FILE} has the line {line.strip()!r}; expected "
                "'- profile/paper/experiment/key: reason'"
            )
        accepted[match["name"]] = match["reason"].strip()
    return accepted


def stale_records(store: Store) -> dict[str, list[str]]:
    """Name the stale records of a store, each with the modules that changed since.

    Unreadable records are left out; :func:`check_records` reports them.
    """
    stale = {}
    memo: dict[str, list[str]] = {}
    for path in store.paths():
        try:
            changed = store.read(path).stale(memo)
        except RecordError:
            continue
        if changed:
            stale[path.relative_to(store.root).with_suffix("").as_posix()] = changed
    return stale


def check_records(store: Store) -> list[str]:
    """Return one sentence per problem of a store; an empty list means that all is well.

    Problems are: a record that is unreadable, misplaced or over the size limit; a stale record
    that ``STALE.md`` does not list; a line of ``STALE.md`` that names no stale record; a file
    that a killed runner left.
    """
    problems = []
    for path in store.paths():
        name = path.relative_to(store.root)
        try:
            cell = store.read(path).cell
        except RecordError as error:
            problems.append(str(error))
            continue
        if store.path(cell) != path:
            place = store.path(cell).relative_to(store.root)
            problems.append(f"{name} holds the cell of {place}; move it there")
        if path.stat().st_size > SIZE_LIMIT:
            problems.append(
                f"{name} has {path.stat().st_size} bytes, over the limit of {SIZE_LIMIT}; "
                "use smaller blocks of seeds or fewer series"
            )
    accepted = accepted_stale(store.root)
    stale = stale_records(store)
    for key, changed in stale.items():
        if not any(fnmatchcase(key, pattern) for pattern in accepted):
            problems.append(
                f"{key} is stale ({', '.join(changed)} changed since); rerun it, or list it in "
                f"{STALE_FILE} with a reason"
            )
    for pattern in accepted:
        if not any(fnmatchcase(key, pattern) for key in stale):
            problems.append(f"{STALE_FILE} lists {pattern}, which names no stale record; remove it")
    for left in sorted(store.root.glob("*/*/*/.*.tmp")):
        problems.append(f"{left.relative_to(store.root)} was left by a killed run; remove it")
    return problems
