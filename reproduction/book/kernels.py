"""Kernels that are forked (on Linux) from a process which has imported what pages import."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import AsyncKernelManager

_IMPORTED = ("ipykernel.kernelapp", "matplotlib.pyplot", "myst_nb", "pandas", "scipy.stats",
             "sklearn.linear_model", "torch", "reproduction.figures",
             "reproduction.tables")  # fmt: skip
_STARTING = threading.Lock()


class Kernel(AsyncKernelManager):  # type: ignore[misc]
    """A kernel that papermill finds running, with its files in `work` and all its variables."""

    has_kernel = True

    def __init__(self, work: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        # a port may be taken before the kernel has it; a socket's path has a hundred bytes at most
        files = sys.platform == "linux" and len(os.fsencode(work)) < 80
        super().__init__(
            connection_file=str(work / "kernel.json"), transport="ipc" if files else "tcp"
        )
        self.write_connection_file()
        self.log_file = work / "kernel.log"
        self.log_file.touch()
        context: Any = multiprocessing.get_context("spawn")
        if sys.platform == "linux":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(_IMPORTED))
        given = (self.connection_file, cwd, dict(environment), self.log_file)
        self.process = context.Process(target=_serve, args=given)
        # libraries read some variables when they are imported, Python at its start
        with _STARTING:
            before = dict(os.environ)
            os.environ.update(environment)
            try:
                self.process.start()
            finally:
                for name in environment.keys() - before.keys():
                    del os.environ[name]
                os.environ.update(before)

    async def _async_is_alive(self) -> bool:
        return bool(self.process.is_alive())

    is_alive = _async_is_alive

    def close(self) -> None:
        """Let it end: what it made for its own time goes with it."""
        if self.process.is_alive():
            control = self.connect_control()
            self.session.send(control, "shutdown_request", {"restart": False})
            self.process.join(5)
        self.end()
        self.context.destroy(linger=100)

    def end(self) -> None:
        """End its process, from any thread, and everything below it."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.join()


def _serve(connection: str, cwd: Path, environment: dict[str, str], log: Path) -> None:
    """Become a kernel (in its own process)."""
    from ipykernel.kernelapp import IPKernelApp

    gc.freeze()  # what was imported stays
    multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]  # as in any kernel
    # a kernel whose parent is gone ends too
    environment["JPY_PARENT_PID"] = str(os.getppid())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    with open(log, "ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        IPKernelApp.launch_instance(["-f", connection, "--HistoryManager.hist_file=:memory:"])
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing ends without
