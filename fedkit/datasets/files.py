"""Where the files of data sets lie, and what is said of one that is missing or wrong."""

from __future__ import annotations

import os
import shlex
import zipfile
import zlib
from pathlib import Path
from textwrap import shorten

#: what zip, gzip, numpy, torchvision and pillow raise at a broken file
BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, TypeError, ValueError, LookupError, RuntimeError,
    OSError,
)  # fmt: skip


class MissingDataError(FileNotFoundError):
    """A data set is not where fedkit looked for it."""


class DamagedDataError(ValueError):
    """A data file is truncated, altered or not what its name says."""


class DownloadError(OSError):
    """A data set could not be fetched or failed its checks after the download."""


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: `root`, else FEDKIT_DATA, else the user's cache folder."""
    named = os.environ.get("FEDKIT_DATA") if root is None else root
    return Path(named).expanduser() if named else user_cache()


def user_cache() -> Path:
    """Return the folder where this platform keeps caches, with fedkit's own name in it."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif os.uname().sysname == "Darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "fedkit"


def missing(name: str, folder: Path, looked: str, how: str = "") -> MissingDataError:
    """Return the error of a set that is not in a folder, and how to get it."""
    usual = folder == data_root()
    command = f"fedkit data get {name}" + ("" if usual else f" --root {shlex.quote(str(folder))}")
    other = "set FEDKIT_DATA to" if usual else "name"
    return MissingDataError(
        f"data set {name!r} is not in {folder} (looked for {looked}); "
        f"{how or f'fetch it with `{command}`'}, or {other} a folder that has it"
    )


def damaged(path: Path | str, expected: str, found: object) -> DamagedDataError:
    """Return the error of a file that is not what was expected."""
    return DamagedDataError(
        f"{path} is damaged: expected {expected}, found {shorten(str(found), 200)}; "
        "delete it and fetch it again with `fedkit data get NAME`"
    )


def not_fetched(name: str, folder: Path, why: object, files: str) -> DownloadError:
    """Return the error of a download that failed, and which files to place by hand."""
    return DownloadError(
        f"data set {name!r} could not be fetched into {folder}: {shorten(str(why), 200)}; "
        f"place {files} there by hand, or try again"
    )
