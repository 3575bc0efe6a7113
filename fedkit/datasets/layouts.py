"""Where the files of each image data set lie, and what is known about them.

A layout finds its files below the data folder and reads them; a data set may have several
layouts, the most official first.  All digests are md5 of published files (for idx files: of
the unpacked content, so that gzipped and plain copies are checked alike).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from fedkit.datasets.files import (
    DamagedDataError,
    check_digest,
    read_cifar_batch,
    read_idx,
    read_image_zip,
    read_npz,
    user_cache,
    write_npz,
)

__all__ = ["CIFAR_CLASSES", "CifarBatches", "CifarZip", "IdxLayout", "Layout", "NpzLayout", "Raw"]

CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


class Raw(NamedTuple):
    """Arrays as read: images (N, H, W) or (N, H, W, C) uint8, labels (N,) from 0."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Layout(Protocol):
    """One way in which the files of a data set can lie below the data folder."""

    @property
    def source(self) -> str:
        """Which edition this is, without any path of this computer."""
        ...

    @property
    def note(self) -> str:
        """How it deviates from the official data set."""
        ...

    def files(self, root: Path) -> dict[str, Path | None]:
        """Return the files by relative name, None where one is missing."""
        ...

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the files that :meth:`files` found."""
        ...

    def digest(self, name: str) -> str | None:
        """Return the published md5 of a file, None where none is published."""
        ...


def _labels(path: Path, y: np.ndarray, n: int, n_classes: int, first: int) -> np.ndarray:
    """Check labels against the images they belong to and count them from zero."""
    labels = np.asarray(y).reshape(len(y), -1)
    if labels.shape != (n, 1):
        raise DamagedDataError(
            f"{path} is damaged: expected {n} labels, one per image, found an array of shape "
            f"{np.asarray(y).shape}; fetch the data set again"
        )
    labels = labels[:, 0].astype(np.int64) - first
    if n and (labels.min() < 0 or labels.max() >= n_classes):
        raise DamagedDataError(
            f"{path} is damaged: expected labels {first} to {first + n_classes - 1}, found "
            f"{labels.min() + first} to {labels.max() + first}; fetch the data set again"
        )
    return labels


@dataclass(frozen=True)
class IdxLayout:
    """Four idx files in one folder, gzipped or not, as torchvision keeps them."""

    folder: str
    train: str
    test: str
    n_classes: int
    md5: tuple[str, ...] = ()  # train images, train labels, test images, test labels
    sizes: tuple[int, int] | None = None  # images in train and test, where no md5 is published
    first_label: int = 0
    transposed: bool = False
    note: str = ""

    @property
    def source(self) -> str:
        """What was read, in words."""
        return f"idx files in {self.folder}"

    def _names(self) -> list[str]:
        return [
            f"{self.folder}/{part}-{kind}-ubyte"
            for part in (self.train, self.test)
            for kind in ("images-idx3", "labels-idx1")
        ]

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find each file, plain before gzipped."""
        found: dict[str, Path | None] = {}
        for name in self._names():
            choices = (root / name, root / f"{name}.gz")
            found[name] = next((path for path in choices if path.is_file()), None)
        return found

    def digest(self, name: str) -> str | None:
        """Return the md5 of the unpacked file."""
        return dict(zip(self._names(), self.md5, strict=False)).get(name)

    def read(self, root: Path, verify: bool) -> Raw:
        """Read images and labels."""
        arrays: list[np.ndarray] = []
        found = self.files(root)
        for position, (name, path) in enumerate(found.items()):
            assert path is not None
            array = read_idx(path, self.digest(name) if verify else None)
            if position % 2:
                images = arrays[-1]
                array = _labels(path, array, len(images), self.n_classes, self.first_label)
            elif array.ndim != 3:
                raise DamagedDataError(f"{path} is damaged: expected images, found labels")
            elif verify and self.sizes and len(array) != self.sizes[position // 2]:
                raise DamagedDataError(
                    f"{path} is damaged: expected {self.sizes[position // 2]} images, found "
                    f"{len(array)}; fetch the data set again"
                )
            elif self.transposed:
                array = array.transpose(0, 2, 1)
            arrays.append(array)
        return Raw(*arrays)


@dataclass(frozen=True)
class NpzLayout:
    """One npz file as the medmnist package keeps it."""

    name: str
    n_classes: int
    md5: str
    note: str = (
        "official training split as training pool, official test split as test set; the official "
        "validation split is not used, the server's validation images come from the training pool"
    )
    source: str = "MedMNIST npz file, 28 x 28"

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the file in the data folder or its medmnist folder."""
        name = f"{self.name}.npz"
        choices = (root / "medmnist" / name, root / name)
        return {f"medmnist/{name}": next((path for path in choices if path.is_file()), None)}

    def digest(self, name: str) -> str | None:
        """Return the md5 that the medmnist package publishes."""
        return self.md5

    def read(self, root: Path, verify: bool) -> Raw:
        """Read the training and test splits."""
        (path,) = self.files(root).values()
        assert path is not None
        keys = ("train_images", "train_labels", "test_images", "test_labels")
        arrays = read_npz(path, keys, self.md5 if verify else None)
        parts: list[np.ndarray] = []
        for part in ("train", "test"):
            images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
            if images.dtype != np.uint8 or images.ndim not in (3, 4):
                raise DamagedDataError(
                    f"{path} is damaged: expected uint8 images, found {images.dtype} of shape "
                    f"{images.shape}; fetch the data set again"
                )
            parts += [images, _labels(path, labels, len(images), self.n_classes, 0)]
        return Raw(*parts)


@dataclass(frozen=True)
class CifarBatches:
    """The official Python edition of CIFAR-10, as torchvision extracts it."""

    folder: str = "cifar-10-batches-py"
    source: str = "official Python batches in cifar-10-batches-py"
    note: str = ""
    md5: tuple[str, ...] = (
        "c99cafc152244af753f735de768cd75f",
        "d4bba439e000b95fd0a9bffe97cbabec",
        "54ebc095f3ab1f0389bbae665268c751",
        "634d18415352ddfa80567beed471001a",
        "482c414d41f54cd18b22e5b47cb7c3cb",
        "40351d587109b95175f43aff81a1287e",
    )

    def _names(self) -> list[str]:
        parts = [f"data_batch_{i}" for i in range(1, 6)]
        return [f"{self.folder}/{part}" for part in [*parts, "test_batch"]]

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the six batches."""
        return {n: (root / n if (root / n).is_file() else None) for n in self._names()}

    def digest(self, name: str) -> str | None:
        """Return the md5 that torchvision publishes."""
        return dict(zip(self._names(), self.md5, strict=True)).get(name)

    def read(self, root: Path, verify: bool) -> Raw:
        """Read and join the batches."""
        images, labels = [], []
        for name in self._names():
            path = root / name
            batch = read_cifar_batch(path, self.digest(name) if verify else None)
            x = np.asarray(batch.get("data", np.empty(0)))
            if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072:
                raise DamagedDataError(
                    f"{path} is damaged: expected uint8 data of 3072 columns, found {x.dtype} of "
                    f"shape {x.shape}; fetch the data set again"
                )
            images.append(x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            labels.append(_labels(path, np.asarray(batch.get("labels", [])), len(x), 10, 0))
        return Raw(np.concatenate(images[:5]), np.concatenate(labels[:5]), images[5], labels[5])


@dataclass(frozen=True)
class CifarZip:
    """CIFAR-10 as a zip of JPEG files in class folders, with the official order of labels."""

    archive: str = "cifar10/cifar10.zip"
    order: str = "cifar10/train_labels_official_order.txt"
    source: str = "JPEG copies in cifar10/cifar10.zip"
    note: str = (
        "images are JPEG copies (quality 75) of the official ones, in the official order for "
        "training and class by class for test; accuracies are not strictly comparable with "
        "those on the lossless images"
    )
    md5: tuple[str, str] = (
        "8882bd9251c93a93c04ee4c3beb41d5b",
        "25fae41a566bb218cee2a1695551982e",
    )

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the archive and the list of labels."""
        names = (self.archive, self.order)
        return {n: (root / n if (root / n).is_file() else None) for n in names}

    def digest(self, name: str) -> str | None:
        """Return the md5 of the only copy known to us."""
        return {self.archive: self.md5[0], self.order: self.md5[1]}.get(name)

    def read(self, root: Path, verify: bool) -> Raw:
        """Decode the images, or read the decoded copy that an earlier call left.

        The copy lies in the user's cache folder, named by the digest of the archive; the data
        folder is never written to.  Unverified archives are decoded anew each time.
        """
        archive, order = root / self.archive, root / self.order
        copy = user_cache() / f"cifar10-decoded-{self.md5[0][:12]}.npz"
        if verify:
            check_digest(archive, None, self.md5[0])
            check_digest(order, None, self.md5[1])
            if copy.is_file():
                try:
                    return Raw(**read_npz(copy, Raw._fields))
                except DamagedDataError:
                    copy.unlink()  # it is made again below
        try:
            labels = np.array(order.read_text().split(), dtype=np.int64)
        except ValueError as error:
            raise DamagedDataError(
                f"{order} is damaged: expected one label from 0 to 9 per line ({error}); fetch it "
                "again"
            ) from error
        parts = read_image_zip(archive, CIFAR_CLASSES, {"train": labels, "test": None})
        raw = Raw(*parts["train"], *parts["test"])
        if verify:
            try:
                write_npz(copy, **raw._asdict())
            except OSError as error:
                warnings.warn(
                    f"the decoded CIFAR-10 images could not be kept in {copy.parent} ({error}), so "
                    "the next load decodes them again; make room there or make it writable",
                    stacklevel=2,
                )
        return raw
