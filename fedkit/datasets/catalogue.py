"""The data sets that fedkit knows: where they lie, how they are fetched and checked."""

from __future__ import annotations

import difflib
import os
import string
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.datasets.readers import (
    CIFAR_CLASSES,
    DamagedDataError,
    Edition,
    MissingDataError,
    Raw,
    cifar_batches,
    cifar_zip,
    damaged,
    data_root,
    digits,
    idx,
    not_fetched,
    npz,
    read_checked,
)
from fedkit.extras import need

__all__ = ["FileReport", "available", "data_root", "get", "names", "verify"]


@dataclass(frozen=True)
class Spec:
    """What is known about a data set before a file is opened.

    Attributes
    ----------
    title : str
    classes : tuple of str
    fetcher : tuple of str
        What fetches it: torchvision's or medmnist's class, and for EMNIST the split.
    editions : tuple of Edition
        The most official first; licences and sources stand on the book's page on data.
    """

    title: str
    classes: tuple[str, ...]
    fetcher: tuple[str, ...]
    editions: tuple[Edition, ...]


@dataclass(frozen=True)
class FileReport:
    """Result of checking one file: status is ok, unchecked, damaged or missing."""

    name: str
    status: str
    detail: str = ""


def _idx(
    folder: str, train: str, test: str, *md5: str, note: str = "",
    sizes: tuple[int, int] | None = None, **how: Any,
) -> Edition:  # fmt: skip
    """Make an edition of idx files with the digests of their content."""
    names = [
        f"{folder}/{part}-{kind}-ubyte"
        for part in (train, test)
        for kind in ("images-idx3", "labels-idx1")
    ]
    digests: dict[str, str | None] = dict(zip(names, md5 or [None] * 4, strict=True))
    return Edition(f"idx files in {folder}", digests, partial(idx, **how), note, sizes)


def _med(title: str, md5: str, classes: tuple[str, ...]) -> Spec:
    kind = title.partition(",")[0]  # medmnist's class, and in small letters its file
    note = (
        "official training split as training pool, official test split as test set; the official "
        "validation split is not used, the server's validation images come from the training pool"
    )
    edition = Edition(
        "MedMNIST npz file, 28 x 28", {f"medmnist/{kind.lower()}.npz": md5}, npz, note
    )
    return Spec(title, classes, (kind,), (edition,))


_DIGITS = tuple(string.digits)
_LETTERS = tuple(string.ascii_uppercase)
_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_BATCHES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}

SETS: dict[str, Spec] = {
    "digits": Spec(
        "scikit-learn's digits, 8 x 8 grey", _DIGITS, (),
        (Edition("embedded in scikit-learn", {}, digits,
                 "grey levels 0 to 16; of each class every fifth image is a test image"),),
    ),
    "mnist": Spec(
        "MNIST, 28 x 28 grey", _DIGITS, ("MNIST",),
        (_idx("MNIST/raw", "train", "t10k",
              "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
              "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),),
    ),
    "fashionmnist": Spec(
        "Fashion-MNIST, 28 x 28 grey", _FASHION, ("FashionMNIST",),
        (_idx("FashionMNIST/raw", "train", "t10k",
              "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
              "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),),
    ),
    "cifar10": Spec(
        "CIFAR-10, 32 x 32 colour", CIFAR_CLASSES, ("CIFAR10",),
        (
            Edition(
                "official Python batches in cifar-10-batches-py",
                {f"cifar-10-batches-py/{name}": md5 for name, md5 in _BATCHES.items()},
                cifar_batches,
            ),
            Edition(
                "JPEG copies in cifar10/cifar10.zip",
                {
                    "cifar10/cifar10.zip": "8882bd9251c93a93c04ee4c3beb41d5b",
                    "cifar10/train_labels_official_order.txt": "25fae41a566bb218cee2a1695551982e",
                },
                cifar_zip,
                "images are JPEG copies (quality 75) of the official ones, in the official order "
                "for training and class by class for test; accuracies are not strictly comparable "
                "with those on the lossless images",
                name="cifar10-jpeg",
            ),
        ),
    ),
    "emnist-letters": Spec(
        "EMNIST letters, 28 x 28 grey", _LETTERS, ("EMNIST", "letters"),
        (
            _idx(
                "EMNIST/raw", "emnist-letters-train", "emnist-letters-test",
                note="whole letters split; upper and lower case merged; images turned upright",
                sizes=(124_800, 20_800), first_label=1, transposed=True,
            ),
            _idx(
                "EMNIST-subset/raw", "emnist-letters-train", "emnist-letters-test",
                "a10c68649cb3038478a8e67799bbb8e0", "864044dcf59bb9743a66baade7c1402c",
                "74d75f7eda9d8d00182a8e0f6dfd25a5", "cb7cdbb5938c36a64069ad07a8255cf1",
                note="subset: the first 2,000 training and 400 test images of each letter; upper "
                "and lower case merged; images turned upright",
                first_label=1, transposed=True,
            ),
        ),
    ),
    "femnist": Spec(
        "EMNIST by class (the images of FEMNIST), 28 x 28 grey",
        _DIGITS + _LETTERS + tuple(string.ascii_lowercase), ("EMNIST", "byclass"),
        (
            _idx(
                "EMNIST/raw", "emnist-byclass-train", "emnist-byclass-test",
                note="EMNIST by class; images turned upright; writers are not known in this "
                "edition, so clients are made by a scheme and not by writer",
                sizes=(697_932, 116_323), transposed=True,
            ),
        ),
    ),
    "pathmnist": _med(
        "PathMNIST, colon pathology, colour", "a8b06965200029087d5bd730944a56c1",
        ("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle",
         "normal colon mucosa", "cancer-associated stroma", "colorectal adenocarcinoma"),
    ),
    "pneumoniamnist": _med(
        "PneumoniaMNIST, chest X-ray, grey", "28209eda62fecd6e6a2d98b1501bb15f",
        ("normal", "pneumonia"),
    ),
    "retinamnist": _med(
        "RetinaMNIST, fundus camera, colour", "bd4c0672f1bba3e3a89f0e4e876791e4",
        ("0", "1", "2", "3", "4"),
    ),
    "breastmnist": _med(
        "BreastMNIST, breast ultrasound, grey", "750601b1f35ba3300ea97c75c52ff8f6",
        ("malignant", "normal or benign"),
    ),
}  # fmt: skip


ELSEWHERE = {
    **dict.fromkeys(
        ("wine", "parkinsons", "spect", "breast", "music", "credit"),
        "fedkit.datasets.load_table",
    ),
    **dict.fromkeys(("ml-1m", "ml-100k"), "fedkit.datasets.load_movielens"),
}
"""Data sets without images (tables, ratings), and the function that loads each."""


def names() -> list[str]:
    """Return the names that :func:`load` knows."""
    return list(SETS)


def canonical(name: str, known: Collection[str] = SETS) -> str:
    """Return the name as fedkit writes it, or refuse it and suggest the nearest known one."""
    key = name.lower().replace("_", "-") if isinstance(name, str) else repr(name)
    if key in known:
        return key
    if key in ELSEWHERE:
        raise ValueError(f"data set {key!r} has no images; load it with {ELSEWHERE[key]}({key!r})")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(
        f"name is {name!r}, an unknown data set{hint}; expected one of {', '.join(known)}"
    )


def find(name: str, root: Path) -> Edition | None:
    """Return the first edition whose files are all there."""
    complete = (e for e in SETS[name].editions if all(e.files(root).values()))
    return next(complete, None)


def available(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return the edition that :func:`load` would read, None where there is none."""
    edition = find(canonical(name), data_root(root))
    return None if edition is None else edition.source


def called(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Return the name of the data that :func:`load` would read: of a copy its own."""
    edition = find(name, data_root(root))
    return (edition.name if edition else "") or name


def read(name: str, edition: Edition, root: Path, verify: bool) -> Raw:
    """Read an edition of a data set and check its labels against its images and classes."""
    raw, last = edition.read(root, verify), len(SETS[name].classes) - 1
    for images, labels in (raw[:2], raw[2:]):
        if images.dtype != np.uint8 or images.shape[1:] != raw.x_train.shape[1:]:
            raise damaged(
                edition.source, "uint8 images of one shape", f"{images.dtype}{images.shape}"
            )
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
            raise damaged(
                edition.source, f"{len(images)} whole labels", f"{labels.dtype}{labels.shape}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() <= last:
            found = f"{labels.min()} to {labels.max()}"
            raise damaged(edition.source, f"labels 0 to {last}, counted from 0", found)
    return raw


def verify(name: str, root: str | os.PathLike[str] | None = None) -> list[FileReport]:
    """Check every file of a data set that is there against its published digest.

    Returns
    -------
    list of FileReport
        One per file of the edition that :func:`load` would read; where none is complete, of the
        first edition, with the missing files named.  A file without a published digest is
        ``unchecked``; a last report then tells of the structure of the set.
    """
    name, folder = canonical(name), data_root(root)
    complete = find(name, folder)
    edition = complete or SETS[name].editions[0]
    reports = []
    for file, path in edition.files(folder).items():
        md5 = edition.md5[file]
        if path is None:
            reports.append(FileReport(file, "missing"))
        elif md5 is None:
            reports.append(FileReport(file, "unchecked", "no published digest; structure only"))
        else:
            reports.append(report(file, f"md5 {md5}", partial(read_checked, path, md5)))
    if complete and (not edition.md5 or None in edition.md5.values()):
        reports.append(report(name, edition.source, partial(read, name, edition, folder, True)))
    return reports


def report(name: str, detail: str, check: Callable[[], object]) -> FileReport:
    """Report on what `check` reads, with `detail` where all is well."""
    try:
        check()
    except (MissingDataError, DamagedDataError) as error:
        state = "missing" if isinstance(error, MissingDataError) else "damaged"
        return FileReport(name, state, str(error))
    return FileReport(name, "ok", detail)


def _fetch(name: str, folder: Path) -> None:
    """Download a data set into an empty folder, in the layout of its own package."""
    spec = SETS[name]
    kind, *split = spec.fetcher
    if spec.editions[0].parse is npz:
        (folder / "medmnist").mkdir()
        medmnist = need("medmnist", extra="run")
        getattr(medmnist, kind)(split="train", download=True, root=str(folder / "medmnist"))
    else:
        sets = need("torchvision.datasets", extra="run")
        getattr(sets, kind)(str(folder), **({"split": split[0]} if split else {}), download=True)


def get(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Download a data set through torchvision or medmnist, check it, then put it in place.

    The download goes to a hidden folder inside the data folder; only files that pass their
    checks are moved to where :func:`load` looks, so an interrupted download leaves nothing.
    The official edition is fetched, also where another edition is present already.

    Returns
    -------
    str
        The edition that is now there.

    Raises
    ------
    DownloadError
        If the download or the checks after it fail.
    """
    name, folder = canonical(name), data_root(root)
    edition = SETS[name].editions[0]
    if all(edition.files(folder).values()):
        read(name, edition, folder, verify=True)
        return edition.source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as hidden:
            work = Path(hidden)
            _fetch(name, work)
            found = {file: path for file, path in edition.files(work).items() if path is not None}
            if lacking := edition.md5.keys() - found:
                raise RuntimeError(f"it came without {', '.join(sorted(lacking))}")
            read(name, edition, work, verify=True)
            for path in found.values():
                target = folder / path.relative_to(work)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    except (OSError, RuntimeError, DamagedDataError) as error:
        raise not_fetched(name, folder, error, ", ".join(edition.md5)) from error
    return edition.source
