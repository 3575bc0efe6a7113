"""Cells as Ray tasks, on the cores of one machine or on a cluster.

The tasks compute and return; the driver alone touches the folder of records.  So nodes need no
shared folder, and a worker that is killed can leave nothing half-done.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fedkit.extras import need
from fedkit.records.cell import Cell
from fedkit.records.golden import version
from fedkit.records.running import Ended, Outcome, collect, compute, hold
from fedkit.records.store import Result, Store

__all__ = ["run_on_ray"]

_RETRIES = 3  # of a cell whose worker died
_LOCKS = 500  # files that the driver holds open; a process may often have 1024


def run_on_ray(
    cells: Sequence[Cell],
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    *,
    address: str | None = None,
    cores: int = 1,
    gpus: float = 0.0,
    progress: bool = True,
    anew: Callable[[Cell], bool] = lambda cell: False,
    on_error: str = "stop",
    behaviour: Callable[[Cell], Mapping[str, int]] = lambda cell: {},
    device: object = "cpu",
) -> Outcome:
    """Compute the cells that have no record yet as Ray tasks, and record each when it is done.

    Parameters
    ----------
    cells, store, progress, anew, behaviour, device
        As for :func:`fedkit.records.running.run_cells`.
    function : callable
        As there; it travels to the nodes by pickle.
    address : str, optional
        Of a Ray cluster, such as ``"auto"`` or ``"ray://head:10001"``; by default Ray is started
        on this machine and stopped at the end.
    cores, gpus : int, float
        What a cell takes; part of a GPU is possible.
    on_error : {"stop", "continue"}
        After the first failure, "stop" begins no further cell, records those under way, and
        raises; "continue" keeps the failure in the outcome.  With "stop" Ray is given no more
        cells than its cores and GPUs take at once, with "continue" twice as many, which wait there.

    Raises
    ------
    CellError
        If a cell fails and `on_error` is ``"stop"``.
    ValueError
        If no node of the cluster has what a cell takes.

    Notes
    -----
    The driver holds the lock files of the cells that are under way, so other runners on its folder
    leave them alone.  A cell whose worker dies is computed again, three times at most.  A node
    whose golden runs are at other behaviours than the driver's refuses to compute.
    """
    ray = need("ray", extra="ray")
    waiting = deque(dict.fromkeys(cells))
    now = {cell: behaviour(cell) for cell in waiting}  # an edit during the run is not what ran
    with _connected(ray, address):
        room = _room(ray, cores, gpus)
        at_once = min(room if on_error == "stop" else 2 * room, _LOCKS)
        task = ray.remote(max_retries=_RETRIES, num_cpus=cores, num_gpus=gpus)(_task)

        def submit(cell: Cell) -> Any:
            named = task.options(name=cell.key)
            return named.remote(cell, function, now[cell], device, cores)

        ended = _run(ray, waiting, at_once, submit, store, anew)
        return collect(ended, waiting, progress, on_error)


def _run(
    ray: Any,
    waiting: deque[Cell],
    at_once: int,
    submit: Callable[[Cell], Any],
    store: Store,
    anew: Callable[[Cell], bool],
) -> Ended:
    """Yield the cells as they end: cell, field of the outcome, and what went wrong."""
    flying: dict[Any, tuple[Cell, ExitStack]] = {}  # with the locks that are held
    try:
        while waiting or flying:
            while waiting and len(flying) < at_once:
                cell, lock = waiting.popleft(), ExitStack()
                failure: Exception | None = None
                try:
                    word = lock.enter_context(hold(cell, store, anew))
                    if not word:
                        flying[submit(cell)] = cell, lock
                except Exception as error:
                    word, failure = "failed", error
                if word:
                    lock.close()
                    yield cell, word, failure
            for done in ray.wait(list(flying), num_returns=1)[0] if flying else ():
                cell, lock = flying.pop(done)
                trouble: Exception | None = None
                with lock:
                    try:
                        store.save(cell, *ray.get(done))
                    except ray.exceptions.RayTaskError as error:
                        trouble = error.cause if isinstance(error.cause, Exception) else error
                    except Exception as error:
                        trouble = error
                yield cell, "failed" if trouble else "computed", trouble
    finally:  # of a run that was stopped
        for left, (_, lock) in flying.items():
            ray.cancel(left, force=True)
            lock.close()


def _task(
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    behaviour: Mapping[str, int],
    device: object,
    cores: int,
) -> tuple[list[Result], dict[str, Any]]:
    """Compute one cell on a worker."""
    there = {name: version(cell.paper, name) for name in behaviour}
    if there != behaviour:
        raise ValueError(
            f"a node has fedkit with the golden runs {there} and the driver {dict(behaviour)}; "
            "put both on the same commit"
        )
    need("torch", extra="run").set_num_threads(cores)
    return compute(cell, function, behaviour, device)


def _room(ray: Any, cores: int, gpus: float) -> int:
    """Count how many cells the nodes take together; what none of them takes would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(
        int(min(node.get("CPU", 0) / cores, node.get("GPU", 0) / gpus if gpus else math.inf))
        for node in nodes
    )
    if not room:
        raise ValueError(
            f"no node of this cluster has the {cores} cores and {gpus:g} GPUs of a cell"
        )
    return room


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start Ray here and stop it again; use what is connected already."""
    if ray.is_initialized():
        yield
        return
    # no statistics for others, and no tip on what a task without a GPU sees of one
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ.setdefault(name, "0")
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level="error", **options)
    try:
        yield
    finally:
        ray.shutdown()
