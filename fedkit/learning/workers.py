"""Independent pieces of CPU work on as many cores as torch may use.

Threads *inside* an operation meet at a barrier after each of a step's hundred small kernels, and
wait there spinning: on shared cores two such threads can be slower than one.  Whole clients, or
whole groups of coalitions, meet once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["for_each"]

T = TypeVar("T")


def for_each(work: Callable[[T], None], items: Iterable[T], *, parallel: bool = True) -> None:
    """Call ``work(item)`` for all items, on ``torch.get_num_threads()`` threads.

    Each call computes with one torch thread.  The items must not depend on each other; the first
    exception is raised here, after the calls that already run.  One after another if not parallel.
    """
    todo, threads = list(items), torch.get_num_threads()
    if threads == 1 or len(todo) < 2 or not parallel:
        for item in todo:
            work(item)
        return
    # set_num_threads counts for the calling thread in OpenMP, and for the process in MKL.
    count = min(threads, len(todo))
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(work, todo))
    finally:
        torch.set_num_threads(threads)
