"""One runner per cell: a lock that the operating system drops when its process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["try_lock"]

_held: set[str] = set()  # a record lock does not exclude its own process, so we do


def _take(descriptor: int) -> bool:
    """Try to take the kernel's exclusive lock on an open file."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        # lockf and not flock: a forked worker that outlives its killed parent keeps no lock.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _acquire(path: Path) -> int | None:
    """Open and lock `path`; None when a live process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _take(descriptor):
            os.close(descriptor)
            return None
        try:  # the last holder may have removed the file between our two calls
            current = os.stat(path)
        except FileNotFoundError:
            os.close(descriptor)
            continue
        if os.path.samestat(current, os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`, or yield False when another live process holds it.

    A lock file left by a dead process is taken over at once: the kernel dropped its lock when
    the process ended, however it ended.

    Parameters
    ----------
    path : Path
        The lock file; created when missing, removed when the block ends.

    Yields
    ------
    bool
        Whether the lock is ours.
    """
    name = str(path.resolve())
    if name in _held:
        yield False
        return
    descriptor = _acquire(path)
    if descriptor is None:
        yield False
        return
    _held.add(name)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield True
    finally:
        _held.discard(name)
        path.unlink(missing_ok=True)  # before the lock goes, so that nobody locks a lost file
        os.close(descriptor)
