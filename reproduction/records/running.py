"""Running cells: each is computed once, recorded as soon as it is done, and never lost."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkit.checks import choice
from fedkit.extras import bar, need
from reproduction.records.cell import Cell, canonical_json
from reproduction.records.manifest import make_manifest
from reproduction.records.store import NewerRecordError, RecordError, Result, Store

__all__ = ["CellError", "Outcome", "run_cells"]

_COLLECT_AFTER = 2.0  # seconds that a cell took

Anew = Callable[[Cell], bool]
Job = Callable[[Cell], tuple[Any, ...]]
"""What :func:`compute` takes to compute a cell."""
Ended = Iterator[tuple[Cell, str, Exception | None]]
"""Cells as they end: cell, field of the outcome, and what went wrong."""
Engine = Callable[[deque[Cell], Job, Store, Anew], Ended]
"""It takes what is to be computed from those that wait, which may be cleared under it."""


class CellError(RuntimeError):
    """The computation of a cell failed; the message names the cell."""


@dataclass
class Outcome:
    """What :func:`run_cells` did with each cell."""

    computed: list[Cell] = field(default_factory=list)
    skipped: list[Cell] = field(default_factory=list)
    busy: list[Cell] = field(default_factory=list)
    failed: list[tuple[Cell, Exception]] = field(default_factory=list)


def one_by_one(waiting: deque[Cell], job: Job, store: Store, anew: Anew) -> Ended:
    """Compute cells in this process, and yield them as they end."""
    while waiting:
        cell, start = waiting.popleft(), time.perf_counter()
        try:
            with hold(cell, store, anew) as word:
                if not word:
                    store.save(cell, *compute(*job(cell)))
            yield cell, word or "computed", None
        except Exception as error:
            yield cell, "failed", error
        if time.perf_counter() - start > _COLLECT_AFTER:
            gc.collect()  # federations sit in reference cycles; tensors do not alarm Python


def run_cells(
    cells: Sequence[Cell],
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    *,
    progress: bool = True,
    anew: Anew = lambda cell: False,
    on_error: str = "stop",
    behaviour: Callable[[Cell], Mapping[str, int]] = lambda cell: {},
    device: object = "cpu",
    engine: Engine = one_by_one,
) -> Outcome:
    """Compute the cells that have no record yet, and record each as soon as it is done.

    Parameters
    ----------
    function : callable
        ``function(cell)`` returns one result per seed (see :meth:`Store.save`); a result may
        also hold ``data`` (name, source, checksum of its data set) and ``evaluations``, which
        go to the manifest.
    anew : callable
        Whether to compute a finished cell too and replace its record.
    on_error : {"stop", "continue"}
        Whether the first failure ends the run or is kept in the outcome.
    behaviour : callable
        ``behaviour(cell)`` returns what its golden runs are at.
    device : str or torch.device
        Device of the run, for the manifest.
    engine : callable
        How cells are computed: here, one by one, or as :func:`~.cluster.run_on_ray`.

    Returns
    -------
    Outcome
        Cells computed, skipped (finished before), busy (another runner has them) and failed.

    Raises
    ------
    CellError
        If a cell fails and `on_error` is ``"stop"``.

    Notes
    -----
    Each cell has a lock file, so several runners, be they processes or threads, share a store
    without computing anything twice.  The lock of a runner that was killed is taken over.  An
    unreadable record is made anew.
    """
    choice("on_error", on_error, ("stop", "continue"))
    waiting = deque(dict.fromkeys(cells))
    now = {cell: behaviour(cell) for cell in waiting}  # an edit during the run is not what ran
    outcome = Outcome()
    ended = engine(waiting, lambda cell: (cell, function, now[cell], device), store, anew)
    for cell, word, error in bar(ended, progress, "cell", total=len(waiting)):
        getattr(outcome, word).append(cell if error is None else (cell, error))
        if error is not None and on_error == "stop":
            waiting.clear()
    if outcome.failed and on_error == "stop":
        cell, error = outcome.failed[0]
        raise CellError(f"cell {cell.key} failed: {told(error)}") from error
    return outcome


def told(error: BaseException) -> str:
    """What went wrong, with the kind of exception where its text alone may say little."""
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return f"{kind}{error}"


@contextmanager
def hold(cell: Cell, store: Store, anew: Anew) -> Iterator[str]:
    """Take the lock of a cell; yield where in the outcome it belongs if that is not to be."""
    if finished(cell, store, anew):
        yield "skipped"
        return
    with alone(store.path(cell).with_suffix(".lock")) as ours:
        # another runner may have been quicker
        yield "busy" if not ours else "skipped" if finished(cell, store, anew) else ""


def finished(cell: Cell, store: Store, anew: Anew) -> bool:
    """Tell whether records hold all seeds of a cell, and it is not to be made anew."""
    try:
        there = store.holding(cell)
    except NewerRecordError:
        raise
    except RecordError:
        return False
    return bool(there) and not anew(cell)


def compute(
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    behaviour: Mapping[str, int],
    device: object,
) -> tuple[list[Result], dict[str, Any]]:
    """Compute one cell; return its results and their manifest."""
    start = time.perf_counter()
    results = list(function(cell))
    seconds = time.perf_counter() - start
    data = {canonical_json(r["data"]): r["data"] for r in results if r.get("data")}
    spent = [r["evaluations"] for r in results if r.get("evaluations") is not None]
    return results, make_manifest(
        behaviour, device=device, data=data.values(), seconds=seconds,
        evaluations=sum(spent) if spent else None,
    )  # fmt: skip


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold a lock file that dies with its process; yield False where somebody else holds it."""
    filelock = need("filelock", extra="run")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):  # while it is held, so that nobody locks a lost file
            path.unlink()
        lock.release()
