"""Editions of image data sets: where their files lie, how they are read, what is wrong with one.

An edition finds its files below the data folder and reads them; a data set may have several, the
most official first.  Digests are md5 of published files; a ``.gz`` is digested unpacked, so that
gzipped and plain copies are checked alike.  Sizes that a header claims are checked before the
body is read, so that a small file cannot ask for much memory.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fedkit.atomic import write_bytes
from fedkit.extras import need

__all__ = [
    "CIFAR_CLASSES",
    "CifarBatches",
    "CifarZip",
    "DamagedDataError",
    "DownloadError",
    "Edition",
    "Idx",
    "MissingDataError",
    "Npz",
    "Raw",
    "check_digest",
    "damaged",
    "read_member",
    "user_cache",
]

CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: Bytes that one array may have: twice EMNIST by class, the largest set that is read.
MOST_BYTES = 1 << 30
_UNREADABLE = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError)
_checked: set[tuple[str, int, int, str]] = set()


class MissingDataError(FileNotFoundError):
    """A data set is not where fedkit looked for it."""


class DamagedDataError(ValueError):
    """A data file is truncated, altered or not what its name says."""


class DownloadError(RuntimeError):
    """A data set could not be fetched or failed its checks after the download."""


def damaged(path: Path | str, expected: str, found: object) -> DamagedDataError:
    """Say what is wrong with a file, and how to mend it."""
    return DamagedDataError(
        f"{path} is damaged: expected {expected}, found {' '.join(str(found).split())[:200]}; "
        "delete this file and fetch it again with `fedkit data get NAME` (`fedkit data verify` "
        "checks all files)"
    )


def user_cache() -> Path:
    """Return the folder where this platform keeps caches, with fedkit's own name in it."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif os.uname().sysname == "Darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "fedkit"


def check_digest(path: Path, md5: str, content: bytes | None = None) -> None:
    """Compare the md5 of a file (unpacked, where it ends in ``.gz``) with the published one.

    The comparison is made once per file (path, size, time of change) and process.

    Parameters
    ----------
    path : Path
        The file.
    md5 : str
        Expected digest, hexadecimal.
    content : bytes, optional
        What it holds, where that is at hand.

    Raises
    ------
    DamagedDataError
        If the digests differ, or the file unpacks to more than any data set has.
    """
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns, md5)
    if key in _checked:
        return
    digest, left = hashlib.md5(content or b"", usedforsecurity=False), MOST_BYTES
    if content is None:
        try:
            with _opened(path) as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
                    left -= len(chunk)
                    if left < 0:
                        raise damaged(path, f"at most {MOST_BYTES:,} bytes", "more")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise damaged(path, "a whole gzip file", error) from error
    if digest.hexdigest() != md5:
        raise damaged(path, f"md5 {md5}", f"md5 {digest.hexdigest()}")
    _checked.add(key)


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_idx(path: Path, md5: str | None, axes: int, rows: int | None) -> np.ndarray:
    """Read an idx file of unsigned bytes, plain or gzipped: read-only, `axes` axes."""
    what = "images" if axes == 3 else "labels"
    size = 4 + 4 * axes
    try:
        with _opened(path) as stream:
            header = stream.read(size)
            if len(header) < size:
                raise damaged(path, f"an idx header of {size} bytes", f"{len(header)} bytes")
            magic = int.from_bytes(header[:4], "big")
            if magic != 0x800 + axes:
                raise damaged(path, f"{what} in an idx file (magic {0x800 + axes})", magic)
            shape = tuple(int(s) for s in np.frombuffer(header[4:], dtype=">u4"))
            count = math.prod(shape)
            if rows is not None and shape[0] != rows:
                raise damaged(path, f"{rows} {what}", shape[0])
            if count > MOST_BYTES:
                raise damaged(path, f"at most {MOST_BYTES:,} bytes of data", f"{count:,}")
            body = stream.read(count + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a whole gzip file", error) from error
    if len(body) != count:
        more = "more" if len(body) > count else f"{len(body)} bytes"
        raise damaged(path, f"{count} bytes of data as its header says", more)
    if md5 is not None:
        check_digest(path, md5, header + body)
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def read_member(path: Path, archive: zipfile.ZipFile, name: str, most: int = MOST_BYTES) -> bytes:
    """Read one file of a zip that is neither encrypted nor larger than `most` bytes.

    Raises
    ------
    DamagedDataError
        If it is missing, too large, encrypted or broken.
    """
    try:
        size = archive.getinfo(name).file_size
        if size > most:
            raise damaged(path, f"at most {most:,} bytes in {name}", f"{size:,}")
        return archive.read(name)
    except (KeyError, RuntimeError) as error:  # not there; encrypted, unknown compression
        raise damaged(path, f"a readable file {name}", error) from error


def _read_npz(path: Path, keys: Sequence[str]) -> list[np.ndarray]:
    """Read arrays of an npz file; :func:`read_member` keeps out what claims to be huge."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = []
            for key in keys:
                content = io.BytesIO(read_member(path, archive, f"{key}.npy"))
                version = np.lib.format.read_magic(content)
                reader = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, fortran, dtype = reader(content)
                rest = len(content.getbuffer()) - content.tell()
                if dtype.hasobject or math.prod(shape) * dtype.itemsize != rest:
                    raise damaged(path, f"{rest} bytes of numbers in {key}", f"{dtype}{shape}")
                flat = np.frombuffer(content.getbuffer(), dtype, offset=content.tell())
                arrays.append(flat.reshape(shape, order="F" if fortran else "C"))
            return arrays
    except DamagedDataError:
        raise
    except _UNREADABLE as error:
        raise damaged(path, "a whole npz file", error) from error


class Raw(NamedTuple):
    """Arrays as read: images (N, H, W) or (N, H, W, C) uint8, labels (N,) from 0."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Edition:
    """One way in which the files of a data set can lie below the data folder.

    Attributes
    ----------
    source : str
        Which edition this is, without any path of this computer.
    md5 : dict of str to str or None
        The published digest of each file, by its name below the data folder.
    note : str
        How it deviates from the official data set.
    """

    source: str
    md5: dict[str, str | None]
    note: str = ""

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the files, plain before gzipped; None where one is missing."""
        return {name: self._find(root, name) for name in self.md5}

    def _find(self, root: Path, name: str) -> Path | None:
        choices = (root / name, root / f"{name}.gz", root / name.removeprefix("medmnist/"))
        return next((path for path in choices if path.is_file()), None)

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the files that :meth:`files` found; with `verify`, check their digests."""
        raise NotImplementedError

    def _paths(self, root: Path) -> list[Path]:
        return [path for path in self.files(root).values() if path is not None]


def _labels(path: Path, y: np.ndarray, n: int, n_classes: int, first: int = 0) -> np.ndarray:
    """Check labels against the images they belong to and count them from zero."""
    if y.size != n or y.shape[:1] != (n,):
        raise damaged(path, f"{n} labels, one per image", f"an array of shape {y.shape}")
    labels = y.reshape(-1).astype(np.int64) - first
    if n and (labels.min() < 0 or labels.max() >= n_classes):
        found = f"{labels.min() + first} to {labels.max() + first}"
        raise damaged(path, f"labels {first} to {first + n_classes - 1}", found)
    return labels


@dataclass(frozen=True)
class Idx(Edition):
    """Four idx files (images and labels of training and test), as torchvision keeps them."""

    n_classes: int = 10
    sizes: tuple[int | None, int | None] = (None, None)  # images in training and test
    first_label: int = 0
    transposed: bool = False

    def read(self, root: Path, verify: bool) -> Raw:
        """Read images and labels."""
        arrays: list[np.ndarray] = []
        for place, (name, path) in enumerate(zip(self.md5, self._paths(root), strict=True)):
            md5, rows = (self.md5[name], self.sizes[place // 2]) if verify else (None, None)
            array = _read_idx(path, md5, 1 if place % 2 else 3, rows)
            if place % 2:
                array = _labels(path, array, len(arrays[-1]), self.n_classes, self.first_label)
            elif self.transposed:
                array = array.transpose(0, 2, 1)
            arrays.append(array)
        return Raw(*arrays)


@dataclass(frozen=True)
class Npz(Edition):
    """One npz file as the medmnist package keeps it."""

    n_classes: int = 2

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the training and test splits."""
        (path,), (md5,) = self._paths(root), self.md5.values()
        if verify and md5:
            check_digest(path, md5)
        keys = ("train_images", "train_labels", "test_images", "test_labels")
        x_train, y_train, x_test, y_test = _read_npz(path, keys)
        for images in (x_train, x_test):
            if images.dtype != np.uint8 or images.ndim not in (3, 4):
                raise damaged(path, "uint8 images", f"{images.dtype} of shape {images.shape}")
        y_train = _labels(path, y_train, len(x_train), self.n_classes)
        return Raw(x_train, y_train, x_test, _labels(path, y_test, len(x_test), self.n_classes))


@dataclass(frozen=True)
class CifarBatches(Edition):
    """The official Python edition of CIFAR-10, read by torchvision, which unpickles it.

    A pickle can run code, so the digests are checked whatever `verify` says.
    """

    def read(self, root: Path, verify: bool) -> Raw:
        """Read and join the batches."""
        for (_, md5), path in zip(self.md5.items(), self._paths(root), strict=True):
            check_digest(path, md5 or "")
        cifar = need("torchvision.datasets", extra="run").CIFAR10
        with warnings.catch_warnings():  # numpy renames modules in old pickles; harmless
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                parts = [cifar(str(root), train=train) for train in (True, False)]
            except (RuntimeError, pickle.UnpicklingError, *_UNREADABLE) as error:
                raise damaged(root / "cifar-10-batches-py", "CIFAR-10", error) from error
        train, test = ((part.data, np.asarray(part.targets, dtype=np.int64)) for part in parts)
        return Raw(*train, *test)


@dataclass(frozen=True)
class CifarZip(Edition):
    """CIFAR-10 as a zip of JPEG files in class folders, with the official order of labels."""

    def read(self, root: Path, verify: bool) -> Raw:
        """Decode the images, or read the decoded copy that an earlier call left.

        The copy lies in the user's cache folder under a name that holds the digests of the
        archive and of the copy itself, and is believed only if it has both; the data folder is
        never written to.  Unverified archives are decoded anew each time.
        """
        archive, order = self._paths(root)
        stem = f"cifar10-{next(iter(self.md5.values()))}"
        if verify:
            for path, md5 in zip((archive, order), self.md5.values(), strict=True):
                check_digest(path, md5 or "")
            for copy in user_cache().glob(f"{stem}-*.npz"):
                if copy.name == f"{stem}-{_sha256(copy.read_bytes())}.npz":
                    return Raw(*_read_npz(copy, Raw._fields))
                copy.unlink()  # it is made again below
        try:
            labels = np.array(order.read_text().split(), dtype=np.int64)
        except ValueError as error:
            raise damaged(order, "one label from 0 to 9 per line", error) from error
        raw = Raw(*_decode(archive, "train", labels), *_decode(archive, "test", None))
        if verify:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **raw._asdict())
            content = buffer.getvalue()
            try:
                write_bytes(user_cache() / f"{stem}-{_sha256(content)}.npz", content)
            except OSError as error:
                warnings.warn(
                    f"the decoded CIFAR-10 images could not be kept in {user_cache()} ({error}), "
                    "so the next load decodes them again; make room there or make it writable",
                    stacklevel=2,
                )
        return raw


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _decode(path: Path, part: str, order: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Decode ``part/class/NNNN.jpg`` of a zip: uint8 (N, 32, 32, 3) and labels (N,).

    The k-th time that `order` has label c stands for file k of class c; None: class by class.
    """
    image = need("PIL.Image", extra="run")
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if n[-1] != "/")
            folders = [[n for n in names if n.startswith(f"{part}/{c}/")] for c in CIFAR_CLASSES]
            counts = [len(folder) for folder in folders]
            labels = np.repeat(np.arange(10), counts) if order is None else order
            wanted = [int((labels == c).sum()) for c in range(10)]
            if wanted != counts or sum(counts) != len(labels):
                raise damaged(path, f"{wanted} images of the classes of {part}", counts)
            queues = [iter(folder) for folder in folders]
            images = np.empty((len(labels), 32, 32, 3), dtype=np.uint8)
            for place, label in enumerate(labels.tolist()):
                name = next(queues[label])
                content = io.BytesIO(read_member(path, archive, name, most=1 << 20))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of a huge picture, refused below
                    picture = image.open(content, formats=("JPEG", "PNG"))
                if picture.size != (32, 32):  # known before anything is decoded
                    raise damaged(path, f"a picture of 32 x 32 in {name}", picture.size)
                images[place] = np.asarray(picture.convert("RGB"))
    except DamagedDataError:
        raise
    except (*_UNREADABLE, OSError, SyntaxError, image.DecompressionBombError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise damaged(path, "a whole zip of images", error) from error
    return images, labels.astype(np.int64)
