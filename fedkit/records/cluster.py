"""Cells as Ray tasks, on the cores of one machine or on a cluster.

The tasks compute and return; the driver alone touches the folder of records.  So nodes need no
shared folder, and a worker that is killed can leave nothing half-done.
"""

from __future__ import annotations

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
_AHEAD = 2  # how often the cores and GPUs are given away at once: none waits for the driver

Needs = Callable[[Cell], tuple[float, float]]


def run_on_ray(
    cells: Sequence[Cell],
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    *,
    address: str | None = None,
    needs: Needs = lambda cell: (1, 0),
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
    needs : callable
        ``needs(cell)`` returns how many cores and GPUs (parts of one too) a cell takes.
    on_error : {"stop", "continue"}
        After the first failure, "stop" begins no further cell, records those under way, and
        raises; "continue" keeps the failure in the outcome.  With "stop" Ray is given no more
        cells than its cores and GPUs take at once, with "continue" twice as many, which wait there.

    Raises
    ------
    CellError
        If a cell fails and `on_error` is ``"stop"``.
    ValueError
        If no node of the cluster has what a cell needs.

    Notes
    -----
    The driver holds the lock files of the cells that are under way, so other runners on its folder
    leave them alone; they are at most half as many as the files that it may open (``ulimit -n``).
    A cell whose worker dies is computed again, three times at most.  A node whose golden runs are
    at other behaviours than the driver's refuses to compute.
    """
    ray = need("ray", extra="ray")
    waiting = deque(dict.fromkeys(cells))
    now = {cell: behaviour(cell) for cell in waiting}  # an edit during the run is not what ran
    with _connected(ray, address):
        _check_needs(ray, {needs(cell) for cell in waiting})
        task = ray.remote(max_retries=_RETRIES)(_task)

        def submit(cell: Cell) -> Any:
            cores, gpus = needs(cell)
            options = task.options(num_cpus=cores, num_gpus=gpus, name=cell.key)
            return options.remote(cell, function, now[cell], device, cores)

        ahead = 1 if on_error == "stop" else _AHEAD
        ended = _run(ray, waiting, submit, store, anew, lambda some: _fits(ray, some, needs, ahead))
        return collect(ended, waiting, progress, on_error)


def _run(
    ray: Any,
    waiting: deque[Cell],
    submit: Callable[[Cell], Any],
    store: Store,
    anew: Callable[[Cell], bool],
    fits: Callable[[Sequence[Cell]], bool],
) -> Ended:
    """Yield the cells as they end: cell, field of the outcome, and what went wrong."""
    flying: dict[Any, tuple[Cell, ExitStack]] = {}  # with the locks that are held
    try:
        while waiting or flying:
            while waiting and (
                not flying or fits([*(cell for cell, _ in flying.values()), waiting[0]])
            ):
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


def _fits(ray: Any, cells: Sequence[Cell], needs: Needs, ahead: int) -> bool:
    """Whether so many cells may be under way together, by cores, GPUs and open lock files."""
    files = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1
    have = ray.cluster_resources()
    cores, gpus = (sum(part) for part in zip(*map(needs, cells), strict=True))
    return (
        cores <= ahead * have.get("CPU", 0.0)
        and gpus <= ahead * have.get("GPU", 0.0)
        and (files < 0 or len(cells) <= files // 2)
    )


def _task(
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    behaviour: Mapping[str, int],
    device: object,
    cores: float,
) -> tuple[list[Result], dict[str, Any]]:
    """Compute one cell on a worker."""
    there = {name: version(cell.paper, name) for name in behaviour}
    if there != behaviour:
        raise ValueError(
            f"a node has fedkit with the golden runs {there} and the driver {dict(behaviour)}; "
            "put both on the same commit"
        )
    threads = need("torch", extra="run").set_num_threads
    threads(max(1, int(cores)))
    return compute(cell, function, behaviour, device)


def _check_needs(ray: Any, wanted: set[tuple[float, float]]) -> None:
    """Refuse what would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    have = sorted({(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in nodes})
    for cores, gpus in wanted:
        if not any(cores <= c and gpus <= g for c, g in have):
            raise ValueError(
                f"a cell needs {cores:g} cores and {gpus:g} GPUs, and the nodes of this cluster "
                f"have {', '.join(f'{c:g} and {g:g}' for c, g in have)}"
            )


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
    try:
        ray.init(address or "local", log_to_driver=False, logging_level="error", **options)
    except ConnectionError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()
