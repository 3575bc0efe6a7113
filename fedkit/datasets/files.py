"""Reading the file formats of image data sets, and saying clearly what is wrong with a file.

Every reader checks the published digest of what it read (once per file and process) and the
structure of the file, so that a truncated or damaged copy is refused before a number depends
on it.  Readers return plain numpy arrays; :class:`Dataset` gives them names and meaning.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.atomic import write_bytes

__all__ = [
    "DamagedDataError",
    "DownloadError",
    "MissingDataError",
    "check_digest",
    "read_bytes",
    "read_cifar_batch",
    "read_idx",
    "read_image_zip",
    "read_npz",
    "user_cache",
    "write_npz",
]


class MissingDataError(FileNotFoundError):
    """A data set is not where fedkit looked for it."""


class DamagedDataError(ValueError):
    """A data file is truncated, altered or not what its name says."""


class DownloadError(RuntimeError):
    """A data set could not be fetched or failed its checks after the download."""


_checked: set[tuple[str, int, int, str]] = set()
_CHUNK = 1 << 20
_IMAGE_NUMBER, _LABEL_NUMBER = 0x803, 0x801


def user_cache() -> Path:
    """Return the folder where this platform keeps caches, with fedkit's own name in it."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif os.uname().sysname == "Darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "fedkit"


def _damaged(path: Path, expected: str, found: str) -> DamagedDataError:
    return DamagedDataError(
        f"{path} is damaged: expected {expected}, found {found}; delete this file and fetch it "
        "again with `fedkit data get NAME` (`fedkit data verify` checks all files)"
    )


def check_digest(path: Path, content: bytes | None, md5: str) -> None:
    """Compare the md5 of a file, or of its unpacked content, with the published one.

    The comparison is made once per file (path, size, time of change) and process.

    Parameters
    ----------
    path : Path
        The file.
    content : bytes or None
        Unpacked content when the digest is of the content, None to digest the file itself.
    md5 : str
        Expected digest, hexadecimal.

    Raises
    ------
    DamagedDataError
        If the digests differ.
    """
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns, md5)
    if key in _checked:
        return
    digest = hashlib.md5(content or b"", usedforsecurity=False)
    if content is None:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    if digest.hexdigest() != md5:
        raise _damaged(path, f"md5 {md5}", f"md5 {digest.hexdigest()}")
    _checked.add(key)


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacking it when its name ends in ``.gz``."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path, "rb") as stream:
            return stream.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, "a whole gzip file", str(error)) from error


def read_idx(path: Path, md5: str | None = None) -> np.ndarray:
    """Read an idx file of unsigned bytes, gzipped or not.

    Parameters
    ----------
    path : Path
        Image file (magic number 2051) or label file (magic number 2049).
    md5 : str, optional
        Published md5 of the unpacked file.

    Returns
    -------
    ndarray of uint8
        (N, H, W) for images, (N,) for labels; read-only.

    Raises
    ------
    DamagedDataError
        If the magic number, the length or the digest is wrong.
    """
    content = read_bytes(path)
    if len(content) < 8:
        raise _damaged(path, "an idx header of at least 8 bytes", f"{len(content)} bytes")
    magic = int.from_bytes(content[:4], "big")
    if magic not in (_IMAGE_NUMBER, _LABEL_NUMBER):
        raise _damaged(path, "an idx file of unsigned bytes (magic 2049 or 2051)", f"magic {magic}")
    n_axes = magic & 0xFF
    start = 4 + 4 * n_axes
    if len(content) < start:
        raise _damaged(path, f"an idx header of {start} bytes", f"{len(content)} bytes")
    shape = tuple(int(s) for s in np.frombuffer(content[4:start], dtype=">u4"))
    size = math.prod(shape)
    found = len(content) - start
    if found != size:
        raise _damaged(path, f"{size} bytes of data as its header says", f"{found} bytes")
    if md5 is not None:
        check_digest(path, content, md5)
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_npz(path: Path, keys: Sequence[str], md5: str | None = None) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz file, after checking its digest.

    Raises
    ------
    DamagedDataError
        If the digest is wrong, an array is missing or unreadable.
    """
    if md5 is not None:
        check_digest(path, None, md5)
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}
    except KeyError as error:
        raise _damaged(path, f"arrays {', '.join(keys)}", str(error.args[0])) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise _damaged(path, "a whole npz file", str(error)) from error


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can build numpy arrays and nothing else."""

    allowed = frozenset({"_reconstruct", "ndarray", "dtype", "scalar"})

    def find_class(self, module: str, name: str) -> Any:
        """Refuse whatever a CIFAR batch has no need of."""
        if module.split(".")[0] == "numpy" and name in self.allowed:
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_cifar_batch(path: Path, md5: str | None = None) -> dict[str, Any]:
    """Read one pickled batch of the official Python edition of CIFAR-10.

    Only numpy arrays, lists, strings and numbers are unpickled, so a forged file cannot run
    code even when the digest check is switched off.
    """
    content = path.read_bytes()
    if md5 is not None:
        check_digest(path, content, md5)
    try:
        # Numpy of a later major version renames the modules in old pickles; that is harmless.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, ImportError) as error:
        raise _damaged(path, "a CIFAR-10 batch", str(error)) from error
    if not isinstance(batch, dict):
        raise _damaged(path, "a CIFAR-10 batch", type(batch).__name__)
    return batch


def read_image_zip(
    path: Path, classes: Sequence[str], orders: Mapping[str, np.ndarray | None]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Decode a zip of image folders ``part/class/NNNN.jpg``.

    Parameters
    ----------
    path : Path
        The archive; files of a class are numbered in their original order.
    classes : sequence of str
        Folder names, in the order of their labels.
    orders : mapping of str to int array or None
        For each part its labels in original order: the k-th time that label c occurs stands
        for file k of class c.  None keeps the images class by class.

    Returns
    -------
    dict
        Part -> (images uint8 (N, H, W, 3), labels int64 (N,)).

    Raises
    ------
    DamagedDataError
        If the archive is unreadable, a file is missing, or an order does not fit the files.
    """
    from fedkit.extras import need

    image = need("PIL.Image", extra="run")
    result: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for part, order in orders.items():
                folders = [
                    sorted(n for n in names if n.startswith(f"{part}/{c}/") and n[-1] != "/")
                    for c in classes
                ]
                counts = [len(folder) for folder in folders]
                by_class = np.repeat(np.arange(len(classes)), counts)
                labels = np.asarray(by_class if order is None else order, dtype=np.int64)
                wanted = [int((labels == c).sum()) for c in range(len(classes))]
                if wanted != counts or sum(counts) != len(labels):
                    raise _damaged(path, f"{wanted} images of the classes of {part}", f"{counts}")
                images = []
                queues = [iter(folder) for folder in folders]
                for label in labels.tolist():
                    with archive.open(next(queues[label])) as stream:
                        images.append(np.asarray(image.open(stream).convert("RGB")))
                shapes = sorted({i.shape for i in images})
                if len(shapes) != 1:
                    raise _damaged(path, f"images of one size in {part}", f"{shapes}")
                result[part] = (np.stack(images), labels)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise _damaged(path, "a whole zip of images", str(error)) from error
    return result


def write_npz(path: Path, **arrays: np.ndarray) -> None:
    """Write an npz file so that it appears whole or not at all.

    Raises
    ------
    OSError
        If the folder is not writable or the disk is full; nothing half-written stays behind.
    """
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_bytes(path, content.getvalue())
