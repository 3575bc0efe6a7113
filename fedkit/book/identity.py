"""What a run of a notebook depends on besides its own text, each as a short text or a hash."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

__all__ = ["commit_of", "data_identity", "hash_files", "installed_packages"]


def hash_files(files: Iterable[Path], root: Path) -> str:
    """Hash names (below `root`) and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        if path.is_file():
            name = path.relative_to(root) if path.is_relative_to(root) else path
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def commit_of(root: Path) -> str:
    """Return the commit that is checked out, which pages print."""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except OSError:  # no git here
        return "no commit"
    return done.stdout.strip() or "no commit"


def installed_packages() -> str:
    """List the installed packages with their versions."""
    return "\n".join(sorted({f"{d.name}=={d.version}" for d in distributions()}))


def data_identity() -> str:
    """List names and sizes below ``FEDKIT_DATA``; contents are verified by the loaders."""
    folder = os.environ.get("FEDKIT_DATA", "")
    if not folder or not Path(folder).is_dir():
        return f"no data folder {folder!r}"
    root = Path(folder)
    return "\n".join(
        f"{p.relative_to(root).as_posix()} {p.stat().st_size}"
        for p in sorted(root.rglob("*"))
        if p.is_file()
    )
