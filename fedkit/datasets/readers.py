"""Editions of image data sets: where their files lie, how they are read, what is wrong with one.

An edition finds its files below the data folder and reads them; a data set may have several, the
most official first.  A file is compared with its published md5 before it is parsed; a ``.gz`` is
unpacked first, so that gzipped and plain copies are checked alike.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shlex
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedkit.extras import need

__all__ = ["DamagedDataError", "DownloadError", "MissingDataError"]

CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: what zip, gzip, numpy, torchvision and pillow raise at a broken file
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError, RuntimeError, OSError)


class MissingDataError(FileNotFoundError):
    """A data set is not where fedkit looked for it."""


class DamagedDataError(ValueError):
    """A data file is truncated, altered or not what its name says."""


class DownloadError(OSError):
    """A data set could not be fetched or failed its checks after the download."""


def missing(name: str, folder: Path, looked: str, how: str = "") -> MissingDataError:
    """Name what was looked for, where, and how to get it."""
    usual = folder == data_root()
    get = f"fedkit data get {name}" + ("" if usual else f" --root {shlex.quote(str(folder))}")
    other = "set FEDKIT_DATA to" if usual else "name"
    return MissingDataError(
        f"data set {name!r} is not in {folder} (looked for {looked}); "
        f"{how or f'fetch it with `{get}`'}, or {other} a folder that has it"
    )


def not_fetched(name: str, folder: Path, why: object, files: str) -> DownloadError:
    """Say why a download failed, and which files to place by hand."""
    told = shorten(str(why), 200)
    return DownloadError(
        f"data set {name!r} could not be fetched into {folder}: {told}; place {files} there by "
        "hand, or try again"
    )


def damaged(path: Path | str, expected: str, found: object) -> DamagedDataError:
    """Say what is wrong with a file, and how to mend it."""
    return DamagedDataError(
        f"{path} is damaged: expected {expected}, found {shorten(str(found), 200)}; "
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


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: `root`, else FEDKIT_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get("FEDKIT_DATA")
    return Path(named).expanduser() if named else user_cache()


def read_checked(path: Path, md5: str | None) -> bytes:
    """Read a file, unpacked where it ends in ``.gz``, and check its md5 if there is one."""
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a whole gzip file", error) from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 not in (None, found):
        raise damaged(path, f"md5 {md5}", f"md5 {found}")
    return content


class Raw(NamedTuple):
    """Arrays as read: images (N, H, W) or (N, H, W, C) uint8, labels (N,) from 0."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


Contents = Mapping[Path, bytes]


@dataclass(frozen=True)
class Edition:
    """One way in which the files of a data set can lie below the data folder.

    Attributes
    ----------
    source : str
        Which edition this is, without any path of this computer.
    md5 : dict of str to str or None
        The published digest of each file, by its name below the data folder.
    parse : callable
        Turns the contents of the files, in this order, into arrays.
    note : str
        How it deviates from the official data set.
    sizes : pair of int, optional
        Images in training and test, where no digest is published.
    name : str
        Its own name where its images are not the official ones, empty where they are.
    """

    source: str
    md5: dict[str, str | None]
    parse: Callable[[Contents], Raw]
    note: str = ""
    sizes: tuple[int, int] | None = None
    name: str = ""

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the files, plain before gzipped; None where one is missing."""
        found = dict[str, Path | None]()
        for name in self.md5:
            choices = (root / name, root / f"{name}.gz", root / name.removeprefix("medmnist/"))
            found[name] = next((path for path in choices if path.is_file()), None)
        return found

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the files that :meth:`files` found; with `verify`, check their digests."""
        found = {name: path for name, path in self.files(root).items() if path is not None}
        contents = {
            path: read_checked(path, self.md5[name] if verify else None)
            for name, path in found.items()
        }
        try:
            raw = self.parse(contents)
        except DamagedDataError:
            raise
        except BROKEN as error:
            raise damaged(" and ".join(map(str, contents)), self.source, error) from error
        sizes = len(raw.x_train), len(raw.x_test)
        if verify and self.sizes not in (None, sizes):
            raise damaged(self.source, f"{self.sizes} images in training and test", sizes)
        return raw


@cache
def _digits() -> Raw:
    bunch = need("sklearn.datasets", extra="run").load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    # A rule without randomness: of each class, every fifth image in file order is a test image.
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return Raw(images[~test], labels[~test], images[test], labels[test])


def digits(_: Contents) -> Raw:
    """Split scikit-learn's digits, which need no file, in stratified parts of 80 and 20%."""
    return _digits()


def idx(contents: Contents, first_label: int = 0, transposed: bool = False) -> Raw:
    """Parse four idx files: images and labels of training and test.

    torchvision reads them plain only.
    """
    arrays = []
    for (path, content), axes in zip(contents.items(), (3, 1, 3, 1), strict=True):
        try:  # a magic number, the length of each axis, the data
            magic, *shape = np.frombuffer(content, ">u4", 1 + axes).tolist()
            array = np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
        except ValueError as error:
            raise damaged(path, "a whole idx file", error) from error
        if magic != 0x800 + axes:
            raise damaged(path, f"an idx file of {axes} axes", f"magic {magic}")
        arrays.append(array.transpose(0, 2, 1) if axes == 3 and transposed else array)
    x_train, y_train, x_test, y_test = arrays
    first = np.int64(first_label)
    return Raw(x_train, y_train - first, x_test, y_test - first)


def npz(contents: Contents) -> Raw:
    """Parse one npz file as the medmnist package keeps it."""
    (content,) = contents.values()
    keys = ("train_images", "train_labels", "test_images", "test_labels")
    with np.load(io.BytesIO(content)) as arrays:
        x_train, y_train, x_test, y_test = (arrays[key] for key in keys)
    return Raw(x_train, y_train[:, 0], x_test, y_test[:, 0])


def cifar_batches(contents: Contents) -> Raw:
    """Read CIFAR-10's official batches by torchvision.

    A pickle can run code: torchvision checks all digests before it unpickles one.
    """
    cifar = need("torchvision.datasets", extra="run").CIFAR10
    root = next(iter(contents)).parents[1]
    with warnings.catch_warnings():  # numpy renames modules in old pickles; harmless
        warnings.simplefilter("ignore", DeprecationWarning)
        train, test = (cifar(root, train=train) for train in (True, False))
    return Raw(train.data, np.array(train.targets), test.data, np.array(test.targets))


def cifar_zip(contents: Contents) -> Raw:
    """Read CIFAR-10 as a zip of JPEG files in class folders, with the official order of labels."""
    archive, order = contents.values()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        train = _decode(opened, "train", np.array(order.split(), dtype=np.int64))
        return Raw(*train, *_decode(opened, "test", None))


def _decode(
    archive: zipfile.ZipFile, part: str, order: npt.NDArray[np.int64] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Decode ``part/class/NNNN.jpg`` of a zip: uint8 (N, 32, 32, 3) and labels (N,).

    The k-th time that `order` has label c stands for file k of class c; None: class by class.
    """
    image = need("PIL.Image", extra="run")
    names = [n for n in sorted(archive.namelist()) if n.startswith(f"{part}/") and n[-1] != "/"]
    labels = np.array([CIFAR_CLASSES.index(name.split("/")[1]) for name in names])
    order = labels if order is None else order
    if not np.array_equal(np.sort(order), labels):  # the classes are in alphabetical order
        raise ValueError(f"other numbers of images of the classes of {part} than of labels")
    images = np.empty((len(names), 32, 32, 3), dtype=np.uint8)
    for place, name in zip(np.argsort(order, kind="stable"), names, strict=True):
        with image.open(archive.open(name)) as picture:
            images[place] = picture.convert("RGB")
    return images, order
