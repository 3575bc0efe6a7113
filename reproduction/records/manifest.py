"""What a record was made with.

Whether the code has come to behave otherwise since is told by golden runs
(:mod:`reproduction.records.golden`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SHIPPED", "commit", "default_root", "lock_hash", "make_manifest", "repository_root", "stamp",
]  # fmt: skip

SHIPPED = "what fedkit has on record lies in results/ of its source: FEDKIT_RESULTS may name it"
"""Where to look for what a package does not carry."""


def repository_root() -> Path | None:
    """Return the checkout that this package runs from, or None when it is installed."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else None


def default_root() -> Path:
    """Return the folder of records.

    It is ``FEDKIT_RESULTS`` where that is set, else ``results`` in the checkout that fedkit runs
    from, else ``results`` in the current folder.
    """
    named = os.environ.get("FEDKIT_RESULTS")
    return Path(named).expanduser() if named else (repository_root() or Path.cwd()) / "results"


def lock_hash() -> str | None:
    """Hash the pins of the checkout's lock file, or return None where there is none."""
    path = (repository_root() or Path()) / "requirements.lock"
    if not path.is_file():
        return None
    pins = re.sub(r" \\\n    --hash=\S+", "", path.read_text(encoding="utf-8"))
    return hashlib.sha256(pins.encode()).hexdigest()[:16]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> int:
    """Return the threads in use; torch is asked only where it is loaded already."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


@cache
def _processor() -> str:
    """Return the model name of the processor; its kind where the system does not tell more."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        told = []
    names = (line.partition(":")[2].strip() for line in told if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "unknown processor"


def _machine(device: object) -> str:
    """Return the models that a run's times depend on: "AMD EPYC, 2 cores", a GPU before it."""
    cores = os.cpu_count() or 1
    told = f"{_processor()}, {cores} core{'s' * (cores > 1)}"
    torch = sys.modules.get("torch")
    if str(device).startswith("cuda") and torch is not None and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(device)}; {told}"
    return told


def _peak_memory() -> float | None:
    """Return the most memory that this process has held so far, in MiB; None where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def make_manifest(
    behaviour: Mapping[str, int],
    *,
    device: object = "cpu",
    data: Iterable[Mapping[str, Any]] = (),
    seconds: float | None = None,
    evaluations: int | None = None,
) -> dict[str, Any]:
    """Describe how a record was made, without a word on where.

    Parameters
    ----------
    behaviour : mapping
        What the golden runs that answer for the record are at
        (:func:`reproduction.records.golden.version`).
    data : iterable of mapping
        Identity of each data set: ``name``, ``source``, ``checksum``.

    Returns
    -------
    dict
        JSON data.  "uncommitted" tells whether the code differed from its commit.  "machine" is
        the model of the processor with the number of its cores, and that of a GPU that was used,
        as times and trained networks depend on them; records from before this field lack it.
        Wall times are kept out of every comparison; "peak_memory_mib" is that of the process so
        far, all of its cells together.
    """
    return {
        "behaviour": dict(behaviour),
        "commit": commit(),
        "uncommitted": uncommitted(),
        "lock": lock_hash(),
        "data": [dict(item) for item in data],
        "versions": {
            "fedkit": _version("fedkit-contributions"),
            "python": platform.python_version(),
            "numpy": _version("numpy"),
            "torch": _version("torch"),
        },
        "device": str(device).split(":")[0],
        "machine": _machine(device),
        "threads": _threads(),
        "seconds": None if seconds is None else round(float(seconds), 3),
        "evaluations": None if evaluations is None else int(evaluations),
        "peak_memory_mib": _peak_memory(),
    }


@cache
def commit() -> str | None:
    """Return the commit of the checkout in twelve digits; None where there is none."""
    return _git("rev-parse", "--short=12", "HEAD") or None


@cache
def uncommitted() -> bool | None:
    """Whether fedkit's code or its lock file differ from the commit; None without a checkout."""
    told = _git("status", "--porcelain", "--", "fedkit", "requirements.lock")
    return None if told is None else bool(told)


def _git(*words: str) -> str | None:
    root = repository_root()
    if root is None or not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def stamp(profile: str = "smoke", *, device: object = "cpu") -> pd.DataFrame:
    """Return the table at the foot of a notebook: what its numbers were made with.

    Parameters
    ----------
    profile : str
        Profile that the notebook ran at.
    device : str or torch.device
        Device that it ran on.

    Returns
    -------
    pandas.DataFrame
        One column, ``value``, indexed by item; neither paths nor the name of a computer, so that
        two builds of one commit show the same table.
    """
    pd = need("pandas", extra="run")
    rows = {
        "profile": profile,
        "device": str(device).split(":")[0],
        "threads": str(_threads()),
        "fedkit": _version("fedkit-contributions") or "not installed",
        "commit": commit() or "not in a git checkout",
        "lock file": lock_hash() or "none",
        "python": platform.python_version(),
        **{name: _version(name) or "not installed" for name in ("numpy", "scipy", "torch")},
    }
    frame = pd.DataFrame({"value": list(rows.values())}, index=list(rows))
    frame.index.name = "item"
    return frame  # type: ignore[no-any-return]
