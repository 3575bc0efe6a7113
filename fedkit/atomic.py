"""Writing a file whole or not at all, and entries into one that survives a kill."""

from __future__ import annotations

import io
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds to wait for another process that writes

_OTHERS = {".csv", ".json", ".npy", ".npz", ".parquet", ".pkl", ".png", ".pt", ".xlsx"}


def named_as(path: str | Path, suffix: str, instead: str = "") -> Path:
    """Return where a file of a kind goes; refuse a folder, and the name of another kind of file."""
    place = Path(path).expanduser()
    if not place.name or place.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; expected the name of a file")
    if place.suffix in _OTHERS - {suffix}:
        hint = f" ({instead})" if instead else ""
        raise ValueError(
            f"{place.name} is named like another kind of file; save writes {suffix}{hint}"
        )
    return place


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write a ``.npz`` file; see :func:`write_bytes`."""
    import numpy as np  # which a list on the command line does not wait for

    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, and a crash leaves either.

    Folders are made where they lack.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{writer}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def file_at(path: str | Path) -> Path:
    """Return the path of a file, of the user's folder where it begins with ``~``."""
    if isinstance(path, str | os.PathLike) and str(path):
        return Path(path).expanduser()
    raise ValueError(f"path is {path!r}; expected the name of a file")


def open_table(path: Path, table: str, columns: str, kind: str) -> sqlite3.Connection:
    """Open a file of numbered entries, which several processes may read and write, or refuse it.

    `kind` is what the file holds.  An entry is there, whole, once its transaction ends.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
        with file:
            file.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (number INTEGER PRIMARY KEY, {columns})"
            )
    except (sqlite3.Error, OSError) as error:
        raise ValueError(
            f"{path} cannot hold {kind} ({error}); pass a new file, or one with {kind}"
        ) from error
    return file
