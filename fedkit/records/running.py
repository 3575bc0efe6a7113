"""Running cells: each is computed once, recorded as soon as it is done, and never lost."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedkit.extras import need, seen
from fedkit.records.cell import Cell, canonical_json
from fedkit.records.locks import try_lock
from fedkit.records.manifest import make_manifest
from fedkit.records.packing import NewerRecordError, RecordError, Result

if TYPE_CHECKING:
    from fedkit.records.store import Store

__all__ = ["CellError", "Outcome", "run_cells"]

_COLLECT_AFTER = 2.0  # seconds that a cell took


class CellError(RuntimeError):
    """The computation of a cell failed; the message names the cell."""


def _unknown(cell: Cell) -> Mapping[str, int]:
    """No golden run answers for the cell."""
    return {}


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
    force: bool = False,
    on_error: str = "stop",
    behaviour: Callable[[Cell], Mapping[str, int]] = _unknown,
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
    force : bool
        Compute finished cells too and replace their records.
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
    Each cell has a lock file, so several runners share a store without computing anything
    twice.  The lock of a runner that was killed is taken over.  An unreadable record is made
    anew, except one that a newer fedkit wrote, which is an error.
    """
    if on_error not in ("stop", "continue"):
        raise ValueError(f"on_error is {on_error!r}; choose 'stop' or 'continue'")
    cells = list(dict.fromkeys(cells))
    now = {cell: behaviour(cell) for cell in cells}  # an edit during the run is not what ran
    outcome = Outcome()
    bar = None
    if progress and seen():
        bar = need("tqdm.auto", extra="run").tqdm(total=len(cells), unit="cell")
    try:
        for cell in cells:
            if bar is not None:
                bar.set_description(cell.key)
            start = time.perf_counter()
            try:
                done = _run_cell(cell, function, store, force, now[cell], device)
            except Exception as error:
                if on_error == "stop":
                    raise CellError(f"cell {cell.key} failed: {error}") from error
                outcome.failed.append((cell, error))
            else:
                getattr(outcome, done).append(cell)
            if time.perf_counter() - start > _COLLECT_AFTER:
                gc.collect()  # federations sit in reference cycles; tensors do not alarm Python
            if bar is not None:
                bar.update(1)
    finally:
        if bar is not None:
            bar.close()
    return outcome


def _run_cell(
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    force: bool,
    behaviour: Mapping[str, int],
    device: object,
) -> str:
    """Compute and record one cell; return the field of the outcome that it belongs to."""

    def finished() -> bool:
        if force or not store.path(cell).is_file():
            return False
        try:
            store.load(cell)
        except NewerRecordError:
            raise
        except RecordError:
            return False
        return True

    if finished():
        return "skipped"
    path = store.path(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    with try_lock(path.with_suffix(".lock")) as ours:
        if not ours:
            return "busy"
        if finished():  # another runner was quicker
            return "skipped"
        start = time.perf_counter()
        results = list(function(cell))
        seconds = time.perf_counter() - start
        data = {canonical_json(r["data"]): r["data"] for r in results if r.get("data")}
        spent = [r["evaluations"] for r in results if r.get("evaluations") is not None]
        manifest = make_manifest(
            behaviour,
            device=device,
            data=data.values(),
            seconds=seconds,
            evaluations=sum(spent) if spent else None,
        )
        store.save(cell, results, manifest)
    return "computed"
