"""What a record or a page was made with, without a word on where."""

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
from reproduction import ROOT

if TYPE_CHECKING:
    import pandas as pd


def lock_hash() -> str:
    """Hash the pins of the lock file."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.sub(r" \\\n    --hash=\S+", "", text)
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
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "unknown processor"


def _machine(device: object) -> str:
    """Return the models that a run's times depend on: "AMD EPYC, 2 cores", a GPU before it."""
    cores = os.cpu_count() or 1
    processor = f"{_processor()}, {cores} core{'s' * (cores > 1)}"
    torch = sys.modules.get("torch")
    if str(device).startswith("cuda") and torch is not None and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(device)}; {processor}"
    return processor


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
    """Describe how a record was made; ``book/provenance.md`` explains each field."""
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
    """Return the commit of the checkout in twelve digits; None where git tells none."""
    return _git("rev-parse", "--short=12", "HEAD") or None


@cache
def uncommitted() -> bool | None:
    """Whether the code or the lock file differ from the commit; None where git tells none."""
    changed = _git("status", "--porcelain", "--", "fedkit", "reproduction", "requirements.lock")
    return None if changed is None else bool(changed)


def _git(*words: str) -> str | None:
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def stamp(profile: str = "smoke") -> pd.DataFrame:
    """Return the table at the foot of a page, column ``value``: what its numbers were made with."""
    pd = need("pandas", extra="run")
    rows = {
        "profile": profile,
        "device": "cpu",
        "threads": str(_threads()),
        "fedkit": _version("fedkit-contributions") or "not installed",
        "commit": commit() or "not in a git checkout",
        "lock file": lock_hash(),
        "python": platform.python_version(),
        **{name: _version(name) or "not installed" for name in ("numpy", "scipy", "torch")},
    }
    index = pd.Index(list(rows), name="item")
    return pd.DataFrame({"value": list(rows.values())}, index=index)  # type: ignore[no-any-return]
