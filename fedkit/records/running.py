"""Running cells: each is computed once, recorded as soon as it is done, and never lost."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkit.extras import bar, need
from fedkit.records.cell import Cell, canonical_json
from fedkit.records.manifest import make_manifest
from fedkit.records.store import NewerRecordError, RecordError, Result, Store

__all__ = ["CellError", "Outcome", "run_cells"]

_COLLECT_AFTER = 2.0  # seconds that a cell took


class CellError(RuntimeError):
    """The computation of a cell failed; the message names the cell."""


@dataclass
class Outcome:
    """What :func:`run_cells` did with each cell."""

    computed: list[Cell] = field(default_factory=list)
    skipped: list[Cell] = field(default_factory=list)
    busy: list[Cell] = field(default_factory=list)
    failed: list[tuple[Cell, Exception]] = field(default_factory=list)


def run_cells(
    cells: Sequence[Cell],
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    *,
    progress: bool = True,
    anew: Callable[[Cell], bool] = lambda cell: False,
    on_error: str = "stop",
    behaviour: Callable[[Cell], Mapping[str, int]] = lambda cell: {},
    device: object = "cpu",
) -> Outcome:
    """Compute the cells that have no record yet, and record each as soon as it is done.

    Parameters
    ----------
    cells : sequence of Cell
    function : callable
        ``function(cell)`` returns one result per seed (see :meth:`Store.save`); a result may
        also hold ``data`` (name, source, checksum of its data set) and ``evaluations``, which
        go to the manifest.
    store : Store
    progress : bool
        Show a progress bar.
    anew : callable
        Whether to compute a finished cell too and replace its record.
    on_error : {"stop", "continue"}
        Whether the first failure ends the run or is kept in the outcome.
    behaviour : callable
        ``behaviour(cell)`` returns what its golden runs are at (:mod:`fedkit.records.golden`).
    device : str or torch.device
        Device of the run, for the manifest.

    Returns
    -------
    Outcome
        Cells computed, skipped (finished before), busy (another runner has them) and failed.

    Raises
    ------
    CellError
        If a cell fails and `on_error` is ``"stop"``.
    ValueError
        If `on_error` is something else.

    Notes
    -----
    Each cell has a lock file, so several runners, be they processes or threads, share a store
    without computing anything twice.  The lock of a runner that was killed is taken over.  An
    unreadable record is made anew, except one that a newer fedkit wrote, which is an error.
    """
    if on_error not in ("stop", "continue"):
        raise ValueError(f"on_error is {on_error!r}; choose 'stop' or 'continue'")
    cells = list(dict.fromkeys(cells))
    now = {cell: behaviour(cell) for cell in cells}  # an edit during the run is not what ran
    outcome = Outcome()
    for cell in bar(cells, progress, "cell"):
        start = time.perf_counter()
        try:
            done = _run_cell(cell, function, store, anew, now[cell], device)
            getattr(outcome, done).append(cell)
        except Exception as error:
            if on_error == "stop":
                raise CellError(f"cell {cell.key} failed: {error}") from error
            outcome.failed.append((cell, error))
        if time.perf_counter() - start > _COLLECT_AFTER:
            gc.collect()  # federations sit in reference cycles; tensors do not alarm Python
    return outcome


def _run_cell(
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    anew: Callable[[Cell], bool],
    behaviour: Mapping[str, int],
    device: object,
) -> str:
    """Compute and record one cell; return the field of the outcome that it belongs to."""

    if finished(cell, store, anew):
        return "skipped"
    with alone(store.path(cell).with_suffix(".lock")) as ours:
        if not ours:
            return "busy"
        if finished(cell, store, anew):  # another runner was quicker
            return "skipped"
        store.save(cell, *compute(cell, function, behaviour, device))
    return "computed"


def finished(cell: Cell, store: Store, anew: Callable[[Cell], bool]) -> bool:
    """Tell whether a cell has a record that is not to be made anew."""
    try:
        store.load(cell)
    except NewerRecordError:
        raise
    except (FileNotFoundError, RecordError):
        return False
    return not anew(cell)


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
        behaviour,
        device=device,
        data=data.values(),
        seconds=seconds,
        evaluations=sum(spent) if spent else None,
    )


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
