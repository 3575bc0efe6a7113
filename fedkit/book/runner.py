"""The process that executes one notebook: ``python -m fedkit.book.runner job.json``.

It runs apart from the pipeline so that a dead kernel, a hanging cell or an interpreter that runs
out of memory costs one notebook and one clear sentence, and never a half-written page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["environment", "kill_tree", "main"]

#: One thread per library unless the caller says more: results do not depend on how many cores
#: are free.
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def environment(work: Path) -> dict[str, str]:
    """Return the environment of a run, with a kernel of this very interpreter.

    A kernel named ``python3`` may be registered elsewhere for another Python; the one written
    into `work` comes first on ``JUPYTER_PATH``.
    """
    kernel = work / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True, exist_ok=True)
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
    }
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    values = dict(os.environ)
    for name in _THREADS:
        values.setdefault(name, "1")
    values["JUPYTER_PATH"] = str(work / "jupyter")
    values["JUPYTER_CONFIG_DIR"] = str(work / "config")
    values["IPYTHONDIR"] = str(work / "ipython")
    values["PYTHONHASHSEED"] = "0"
    values["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    values.pop("MPLBACKEND", None)
    if values.get("FEDKIT_DATA"):
        values["FEDKIT_DATA"] = str(Path(values["FEDKIT_DATA"]).expanduser().resolve())
    return values


def kill_tree(process: subprocess.Popen[str]) -> None:
    """End a process and everything below it (the kernel has a process group of its own)."""
    import psutil

    try:
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def _explain(error: BaseException) -> str:
    """Say in a few lines what stopped the notebook."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, PapermillExecutionError):
        source = str(error.source).strip()
        return (
            f"cell {error.cell_index} raised {error.ename}: {error.evalue}\n"
            f"--- the cell ---\n{source}"
        )
    if isinstance(error, DeadKernelError):
        return "the kernel died in mid-notebook (out of memory, or killed); nothing was written"
    if isinstance(error, CellTimeoutError):
        return "a cell ran past the limit of the notebook; nothing was written"
    return f"{type(error).__name__}: {error}"


def main(argv: list[str] | None = None) -> int:
    """Execute the job described by a JSON file; leave ``error.txt`` beside it on failure."""
    import papermill
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillException, PapermillExecutionError

    path = Path((argv if argv is not None else sys.argv[1:])[0])
    job = json.loads(path.read_text(encoding="utf-8"))
    try:
        papermill.execute_notebook(
            job["input"],
            job["output"],
            parameters=job["parameters"],
            kernel_name="python3",
            cwd=job["cwd"],
            progress_bar=False,
            request_save_on_cell_execute=False,
            execution_timeout=max(1, int(job["limit"])),
        )
    except (
        PapermillException,
        PapermillExecutionError,
        CellExecutionError,
        CellTimeoutError,
        DeadKernelError,
    ) as error:
        (path.parent / "error.txt").write_text(_explain(error), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
