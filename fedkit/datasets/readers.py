"""Editions of image data sets: where their files lie, how they are read, what is wrong with one.

An edition finds its files below the data folder and reads them; a data set may have several, the
most official first.  A file is compared with its published md5 before it is parsed; a ``.gz`` is
unpacked first, as far as a file of its edition may reach, so that gzipped and plain copies are
checked alike.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tokenize import TokenError
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkit.extras import need

__all__ = [
    "BROKEN",
    "CIFAR_CLASSES",
    "MOST",
    "CifarBatches",
    "CifarZip",
    "DamagedDataError",
    "Digits",
    "DownloadError",
    "Edition",
    "Idx",
    "MissingDataError",
    "Npz",
    "Raw",
    "at_most",
    "damaged",
    "read_checked",
    "user_cache",
]

CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: what zip, gzip and numpy raise at a broken file
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, RuntimeError)

#: bytes that no file of a data set but EMNIST by class exceeds; few packed bytes may hold far more
MOST = 2**28


class MissingDataError(FileNotFoundError):
    """A data set is not where fedkit looked for it."""


class DamagedDataError(ValueError):
    """A data file is truncated, altered or not what its name says."""


class DownloadError(OSError):
    """A data set could not be fetched or failed its checks after the download."""


def damaged(path: Path | str, expected: str, found: object) -> DamagedDataError:
    """Say what is wrong with a file, and how to mend it."""
    return DamagedDataError(
        f"{path} is damaged: expected {expected}, found {' '.join(str(found).split())[:200]}; "
        "delete it and fetch it again with `fedkit data get NAME` (`fedkit data verify` "
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


def read_checked(path: Path, md5: str | None, most: int) -> bytes:
    """Read a file of at most so many bytes, unpacked where it ends in ``.gz``, and check its md5.

    Without an md5 any content will do.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = at_most(most, file, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a whole gzip file", error) from error
    if md5 is not None:
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != md5:
            raise damaged(path, f"md5 {md5}", f"md5 {found}")
    return content


def at_most(most: int, file: gzip.GzipFile | IO[bytes], path: Path) -> bytes:
    """Read what a packed file holds, and refuse it beyond so many bytes."""
    held = io.BytesIO()
    while held.tell() <= most and (piece := file.read(2**20)):
        held.write(piece)
    if held.tell() > most:
        raise damaged(path, f"at most {most} bytes of content", "more")
    return held.getvalue()


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

    @property
    def most(self) -> int:
        """Bytes that each of its files holds at most, unpacked."""
        return MOST

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the files, plain before gzipped; None where one is missing."""
        found = dict[str, Path | None]()
        for name in self.md5:
            choices = (root / name, root / f"{name}.gz", root / name.removeprefix("medmnist/"))
            found[name] = next((path for path in choices if path.is_file()), None)
        return found

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the files that :meth:`files` found; with `verify`, check their digests."""
        raise NotImplementedError

    def _contents(self, root: Path, verify: bool) -> dict[Path, bytes]:
        return {
            path: read_checked(path, self.md5[name] if verify else None, self.most)
            for name, path in self.files(root).items()
            if path is not None
        }


@dataclass(frozen=True)
class Digits(Edition):
    """scikit-learn's digits, which need no file, in fixed stratified parts of 80 and 20%."""

    def read(self, root: Path, verify: bool) -> Raw:
        return _digits()


@cache
def _digits() -> Raw:
    bunch = need("sklearn.datasets", extra="run").load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    # A rule without randomness: of each class, every fifth image in file order is a test image.
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return Raw(images[~test], labels[~test], images[test], labels[test])


@dataclass(frozen=True)
class Idx(Edition):
    """Four idx files (images and labels of training and test), as torchvision keeps them.

    torchvision reads them plain only, so they are parsed here.
    """

    sizes: tuple[int | None, int | None] = (None, None)  # images in training and test
    first_label: int = 0
    transposed: bool = False

    @property
    def most(self) -> int:
        return max(MOST, *(16 + 28 * 28 * (size or 0) for size in self.sizes))

    def read(self, root: Path, verify: bool) -> Raw:
        arrays: list[np.ndarray] = []
        for path, content in self._contents(root, verify).items():
            if len(arrays) % 2:
                arrays.append(_idx(path, content, 1).astype(np.int64) - self.first_label)
                continue
            images = _idx(path, content, 3)
            size = self.sizes[len(arrays) // 2] if verify else None
            if size not in (None, len(images)):
                raise damaged(path, f"{size} images", len(images))
            arrays.append(images.transpose(0, 2, 1) if self.transposed else images)
        return Raw(*arrays)


def _idx(path: Path, content: bytes, axes: int) -> npt.NDArray[np.uint8]:
    """Parse an idx file of unsigned bytes: a magic number, the length of each axis, the data."""
    size = 4 + 4 * axes
    if len(content) < size:
        raise damaged(path, f"an idx header of {size} bytes", f"{len(content)} bytes")
    magic, *shape = np.frombuffer(content[:size], ">u4").tolist()
    if magic != 0x800 + axes:
        raise damaged(path, f"an idx file of {axes} axes (magic {0x800 + axes})", f"magic {magic}")
    if len(content) - size != math.prod(shape):
        raise damaged(path, f"{math.prod(shape)} bytes of data", len(content) - size)
    return np.frombuffer(content, np.uint8, offset=size).reshape(shape)


@dataclass(frozen=True)
class Npz(Edition):
    """One npz file as the medmnist package keeps it."""

    def read(self, root: Path, verify: bool) -> Raw:
        ((path, content),) = self._contents(root, verify).items()
        keys = ("train_images", "train_labels", "test_images", "test_labels")
        try:
            with np.load(io.BytesIO(content)) as arrays:
                x_train, y_train, x_test, y_test = (np.asarray(arrays[key]) for key in keys)
                return Raw(x_train, y_train[:, 0], x_test, y_test[:, 0])
        # the last two at a header that is no Python, and one that claims what no memory holds
        except (*BROKEN, IndexError, TokenError, MemoryError) as error:
            raise damaged(path, "a whole npz file", error) from error


@dataclass(frozen=True)
class CifarBatches(Edition):
    """The official Python edition of CIFAR-10, read by torchvision, which unpickles it.

    A pickle can run code, so the digests are checked whatever `verify` says.
    """

    def read(self, root: Path, verify: bool) -> Raw:
        self._contents(root, verify=True)
        cifar = need("torchvision.datasets", extra="run").CIFAR10
        with warnings.catch_warnings():  # numpy renames modules in old pickles; harmless
            warnings.simplefilter("ignore", DeprecationWarning)
            train, test = (cifar(str(root), train=train) for train in (True, False))
        return Raw(train.data, np.array(train.targets), test.data, np.array(test.targets))


@dataclass(frozen=True)
class CifarZip(Edition):
    """CIFAR-10 as a zip of JPEG files in class folders, with the official order of labels."""

    def read(self, root: Path, verify: bool) -> Raw:
        (path, archive), (order, text) = self._contents(root, verify).items()
        try:
            labels = np.array(text.split(), dtype=np.int64)
        except ValueError as error:
            raise damaged(order, "one label from 0 to 9 per line", error) from error
        return Raw(*_decode(path, archive, "train", labels), *_decode(path, archive, "test", None))


def _decode(
    path: Path, content: bytes, part: str, order: npt.NDArray[np.int64] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Decode ``part/class/NNNN.jpg`` of a zip: uint8 (N, 32, 32, 3) and labels (N,).

    The k-th time that `order` has label c stands for file k of class c; None: class by class.
    """
    image = need("PIL.Image", extra="run")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore", image.DecompressionBombWarning)  # its size is looked at
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
                with image.open(archive.open(name), formats=("JPEG",)) as picture:
                    if picture.size != (32, 32):  # numpy would repeat a single pixel
                        wide, high = picture.size
                        raise damaged(path, f"images of 32 x 32, {name} too", f"{wide} x {high}")
                    images[place] = picture.convert("RGB")
    except DamagedDataError:
        raise
    except (*BROKEN, OSError, image.DecompressionBombError) as error:
        raise damaged(path, "a whole zip of images of 32 x 32", error) from error
    return images, labels.astype(np.int64)
