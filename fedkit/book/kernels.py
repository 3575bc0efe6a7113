"""Kernels that are forked from a process which has imported what pages import.

Importing torch, pandas and their like takes longer than most pages run, and there are two dozen.
Where the system forks safely (Linux), one process imports them once and every kernel is its copy:
fresh, and ready at once.  Elsewhere a kernel is a new interpreter.
"""

from __future__ import annotations

import asyncio
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

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

__all__ = ["Kernel"]

_IMPORTED = ("ipykernel.kernelapp", "matplotlib.pyplot", "myst_nb", "pandas", "scipy.stats",
             "sklearn.linear_model", "torch", "fedkit.plots", "fedkit.claims.tables")  # fmt: skip
_STARTING = threading.Lock()


class _Process:
    """A process of multiprocessing, in the terms of subprocess."""

    stdin = stdout = stderr = None

    def __init__(self, *given: Any) -> None:
        context: Any = multiprocessing.get_context("spawn")
        if sys.platform == "linux":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(_IMPORTED))
        self.process = context.Process(target=_serve, args=given)
        self.process.start()
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode  # type: ignore[no-any-return]

    def wait(self) -> int | None:
        self.process.join()
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and everything below it."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.join()

    def terminate(self) -> None:
        self.process.terminate()


class _Forked(LocalProvisioner):  # type: ignore[misc]
    """What starts the process of a kernel."""

    async def launch_kernel(self, cmd: list[str], **_: Any) -> Any:
        kernel: Any = self.parent
        with _STARTING:  # libraries read some variables when they are imported, Python at its start
            before = {name: os.environ.get(name) for name in kernel.environment}
            os.environ.update(kernel.environment)
            try:
                given = (kernel.connection_file, kernel.cwd, kernel.environment, kernel.log_file)
                process: Any = _Process(*given)
                self.process = kernel.process = process
                if kernel.over:  # its time was up before it began
                    process.kill()
            finally:
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
        return self.connection_info


class Kernel(AsyncKernelManager):  # type: ignore[misc]
    """A kernel that papermill starts and ends.

    `work` is for its connection file and `log_file`, what it prints past the notebook;
    `environment` has all its environment variables.
    """

    def __init__(self, work: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        # a port may be taken before the kernel has it; a socket's path has a hundred bytes at most
        files = sys.platform == "linux" and len(os.fsencode(work)) < 80
        super().__init__(
            connection_file=str(work / "kernel.json"), transport="ipc" if files else "tcp"
        )
        self.cwd, self.environment, self.log_file = cwd, dict(environment), work / "kernel.log"
        self.log_file.touch()
        self.process: _Process | None = None
        self.over = False
        self.provisioner = _Forked(kernel_spec=self.kernel_spec, parent=self)

    def close(self) -> None:
        """Let it end: what it made for its own time goes with it."""

        async def ended() -> None:
            await self.shutdown_kernel()

        if self.process is not None and self.process.poll() is None:
            asyncio.run(ended())
        self.end()

    def end(self) -> None:
        """End its process, from any thread, and everything below it; none begins any more."""
        self.over = True
        if self.process is not None:
            self.process.kill()


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
