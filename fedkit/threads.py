"""One thread for small matrices, where handing work to others takes longer than the work."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_lock = Lock()
_open: list[Any] = []  # what each block that is entered must give back


@cache
def _controller() -> Any:
    """Return the BLAS libraries that are loaded; None without threadpoolctl, which finds them."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return None
    import scipy.linalg  # noqa: F401  brings a BLAS of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use a single thread within; blocks of several threads may overlap.

    It needs the package threadpoolctl, which scikit-learn brings; without it nothing changes.
    """
    controller = _controller()
    with _lock:
        first = not _open
        _open.append(controller.limit(limits=1, user_api="blas") if controller and first else None)
    try:
        yield
    finally:
        with _lock:
            # what the first took lies lowest, so that the last to leave gives it back
            if (mine := _open.pop()) is not None:
                mine.restore_original_limits()
