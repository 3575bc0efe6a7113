"""Cells as Ray tasks, on the cores of one machine or on a cluster.

The tasks compute and return; the driver alone touches the folder of records.  So nodes need no
shared folder, and a worker that is killed can leave nothing half-done.
"""

from __future__ import annotations

import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from fedkit.extras import need
from reproduction.records.cell import Cell
from reproduction.records.golden import version
from reproduction.records.running import Anew, Ended, Job, Outcome, compute, hold, run_cells
from reproduction.records.store import Result, Store

__all__ = ["run_on_ray"]

_RETRIES = 3  # of a cell whose worker died
_ANSWERS = 10.0  # seconds until a head node must have answered
_LOCKS = 500  # files that the driver holds open; a process may often have 1024


def run_on_ray(
    cells: Sequence[Cell],
    function: Callable[[Cell], Sequence[Result]],
    store: Store,
    *,
    address: str | None = None,
    cores: int = 1,
    gpus: float = 0.0,
    **options: Any,
) -> Outcome:
    """Compute the cells that have no record yet as Ray tasks, and record each when it is done.

    Parameters
    ----------
    cells, store, **options
        As for :func:`reproduction.records.running.run_cells`, with its errors.
    function : callable
        As there; it travels to the nodes by pickle.
    address : str, optional
        Of a Ray cluster, such as ``"auto"`` or ``"ray://head:10001"``; by default Ray is started
        on this machine and stopped at the end.
    cores, gpus : int, float
        What a cell takes; part of a GPU is possible.

    Raises
    ------
    ValueError
        If nothing listens at the address, or no node of the cluster has what a cell takes.

    Notes
    -----
    The driver holds the lock files of the cells that are under way, so other runners on its folder
    leave them alone.  A cell whose worker dies is computed again, three times at most.  A node
    whose golden runs are at other behaviours than the driver's refuses to compute.  After a failure
    that stops the run, cells under way are recorded.
    """
    ray = need("ray", extra="ray")
    with _connected(ray, address):
        at_once = min(_room(ray, cores, gpus), _LOCKS)
        task = ray.remote(max_retries=_RETRIES, num_cpus=cores, num_gpus=gpus)(_task)
        engine = partial(_tasks, ray, task, cores, at_once)
        return run_cells(cells, function, store, engine=engine, **options)


def _tasks(
    ray: Any,
    task: Any,
    cores: int,
    at_once: int,
    waiting: deque[Cell],
    job: Job,
    store: Store,
    anew: Anew,
) -> Ended:
    """Compute cells as Ray tasks, some at once, and yield them as they end."""
    flying: dict[Any, tuple[Cell, ExitStack]] = {}  # with the locks that are held
    try:
        while waiting or flying:
            while waiting and len(flying) < at_once:
                cell, lock = waiting.popleft(), ExitStack()
                failure: Exception | None = None
                try:
                    word = lock.enter_context(hold(cell, store, anew))
                    if not word:
                        begun = task.options(name=cell.key).remote(cores, *job(cell))
                        flying[begun] = cell, lock
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
    cores: int,
    cell: Cell,
    function: Callable[[Cell], Sequence[Result]],
    behaviour: Mapping[str, int],
    device: object,
) -> tuple[list[Result], dict[str, Any]]:
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


def _listening(address: str) -> None:
    """Refuse a host and port at which nothing answers: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto" and the like, which Ray tells at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"nothing answers at the Ray address {address!r}: {error}") from error


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start Ray here and stop it again; use what is connected already."""
    if ray.is_initialized():
        yield
        return
    # no statistics for others, and no tip on what a task without a GPU sees of one
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ.setdefault(name, "0")
    if address:
        _listening(address)
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level="error", **options)
    try:
        yield
    finally:
        ray.shutdown()
