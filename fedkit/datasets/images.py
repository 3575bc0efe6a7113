"""Image data sets: their files, read and checked, as uint8 tensors."""

from __future__ import annotations

import gzip
import hashlib
import io
import string
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import one_line
from fedkit.datasets.files import BROKEN, DamagedDataError, damaged, missing, not_fetched
from fedkit.extras import need

if TYPE_CHECKING:
    import torch

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@one_line
@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one data set.

    Attributes
    ----------
    name : str
        Name under which it was loaded; of a copy its own, such as "cifar10-jpeg".
    x_train, x_test : uint8 tensor (N, C, H, W)
        Images as stored.
    y_train, y_test : int64 tensor (N,)
        Labels, from 0.
    classes : tuple of str
        Names of the classes.
    source : str
        Which files were read.
    note : str
        How it deviates from the official data set, empty where it does not.
    """

    name: str
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    classes: tuple[str, ...]
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        import torch

        classes = len(self.classes)
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1:] != self.x_train.shape[1:]:
                raise ValueError(
                    f"x_{part} is {x.dtype}{list(x.shape)}; expected uint8 images of one shape, "
                    "(N, C, H, W)"
                )
            counted = y.dtype == torch.int64 and y.shape == x.shape[:1]
            if not counted or ((y < 0) | (y >= classes)).any():
                raise ValueError(
                    f"y_{part} is {y.dtype}{list(y.shape)}; expected {len(x)} int64 labels from 0 "
                    f"to {classes - 1}, one of each image"
                )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.x_train.shape[1:]
        return int(channels), int(height), int(width)

    @cached_property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of each channel over the training images, float32 (C,)."""
        import torch

        # of the histogram of grey levels, so that the order of summation does not matter
        levels = torch.arange(256, dtype=torch.float64)
        mean, std = [], []
        for channel in range(self.x_train.shape[1]):
            counts = torch.bincount(self.x_train[:, channel].flatten(), minlength=256).double()
            centre = (counts @ levels) / counts.sum()
            variance = (counts @ (levels - centre) ** 2) / counts.sum()
            mean.append(centre)
            std.append(variance.sqrt() if variance > 0 else torch.ones((), dtype=torch.float64))
        return torch.stack(mean).float(), torch.stack(std).float()

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the sha256 of all images and labels, for records."""
        digest = hashlib.sha256()
        for part in (self.x_train, self.y_train, self.x_test, self.y_test):
            digest.update(str(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def to_float(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise uint8 images (N, C, H, W) by the moments of the training images: float32."""
        import torch

        if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != self.x_train.shape[1]:
            raise ValueError(
                f"images have dtype {x.dtype} and shape {tuple(x.shape)}; expected uint8 of shape "
                f"(N, {self.x_train.shape[1]}, H, W), as in Dataset.x_train"
            )
        mean, std = self.moments
        return x.float().sub_(mean.view(1, -1, 1, 1)).div_(std.view(1, -1, 1, 1))


@dataclass(frozen=True)
class Copy:
    """The files of one copy of an image data set, plain or gzipped."""

    source: str  # which copy this is, without any path of this computer
    md5: dict[str, str | None]  # of each file's unpacked content, by its name below the data folder
    read: Callable[[dict[Path, bytes]], Arrays]  # images (N, H, W[, C]) and labels of both parts
    note: str = ""  # how it deviates from the official data set
    sizes: tuple[int, int] | None = None  # images in training and test where no md5 is published
    name: str = ""  # its own name where its images are not the official ones

    def files(self, root: Path) -> dict[str, Path | None]:
        """Find the files, plain before gzipped; None where one is missing."""
        found = dict[str, Path | None]()
        for name in self.md5:
            places = (root / name, root / f"{name}.gz", root / name.removeprefix("medmnist/"))
            found[name] = next((path for path in places if path.is_file()), None)
        return found


@dataclass(frozen=True)
class ImageSet:
    """An image data set: who fetches it (torchvision or medmnist), and its copies, best first."""

    title: str
    classes: tuple[str, ...]
    fetcher: tuple[str, ...]
    copies: tuple[Copy, ...]


def _read_digits(_: dict[Path, bytes]) -> Arrays:
    bunch = need("sklearn.datasets", extra="run").load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target
    # A rule without randomness: of each class, every fifth image in file order is a test image.
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    return images[~test], labels[~test], images[test], labels[test]


def _read_idx(
    contents: dict[Path, bytes], first_label: int = 0, transposed: bool = False
) -> Arrays:
    """Parse four idx files: a magic number, the length of each axis, and the data."""
    arrays = []
    for content, axes in zip(contents.values(), (3, 1, 3, 1), strict=True):
        magic, *shape = np.frombuffer(content, ">u4", 1 + axes).tolist()
        if magic != 0x800 + axes:
            raise ValueError(f"an idx file of {axes} axes with magic {magic}")
        array = np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
        arrays.append(array.transpose(0, 2, 1) if axes == 3 and transposed else array)
    x_train, y_train, x_test, y_test = arrays
    first = np.int64(first_label)
    return x_train, y_train - first, x_test, y_test - first


def _read_npz(contents: dict[Path, bytes]) -> Arrays:
    (content,) = contents.values()
    with np.load(io.BytesIO(content)) as arrays:
        return (
            arrays["train_images"], arrays["train_labels"][:, 0],
            arrays["test_images"], arrays["test_labels"][:, 0],
        )  # fmt: skip


def _read_cifar_batches(contents: dict[Path, bytes]) -> Arrays:
    """Read CIFAR-10's batches by torchvision, which checks all digests before it unpickles one."""
    cifar = need("torchvision.datasets", extra="run").CIFAR10
    root = next(iter(contents)).parents[1]
    with warnings.catch_warnings():  # numpy renames modules in old pickles; harmless
        warnings.simplefilter("ignore", DeprecationWarning)
        train, test = (cifar(root, train=train) for train in (True, False))
    return train.data, np.array(train.targets), test.data, np.array(test.targets)


def _read_cifar_zip(contents: dict[Path, bytes]) -> Arrays:
    """Read CIFAR-10 as a zip of JPEG files in class folders, with the official order of labels."""
    archive, order = contents.values()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        train = _read_pictures(opened, "train", np.array(order.split(), dtype=np.int64))
        return (*train, *_read_pictures(opened, "test", None))


def _read_pictures(
    archive: zipfile.ZipFile, part: str, order: NDArray[np.int64] | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read ``part/class/NNNN.jpg`` of a zip: uint8 (N, 32, 32, 3) and labels (N,).

    The k-th time that `order` has label c stands for file k of class c; None: class by class.
    """
    image = need("PIL.Image", extra="run")
    names = [n for n in sorted(archive.namelist()) if n.startswith(f"{part}/") and n[-1] != "/"]
    labels = np.array([_CIFAR.index(name.split("/")[1]) for name in names])
    order = labels if order is None else order
    if not np.array_equal(np.sort(order), labels):  # the classes are in alphabetical order
        raise ValueError(f"other numbers of images of the classes of {part} than of labels")
    images = np.empty((len(names), 32, 32, 3), dtype=np.uint8)
    for place, name in zip(np.argsort(order, kind="stable"), names, strict=True):
        with image.open(archive.open(name)) as picture:
            images[place] = picture.convert("RGB")
    return images, order


def _idx(
    folder: str, train: str, test: str, *md5: str, note: str = "",
    sizes: tuple[int, int] | None = None, **how: Any,
) -> Copy:  # fmt: skip
    """Make a copy of idx files with the digests of their content."""
    names = [
        f"{folder}/{part}-{kind}-ubyte"
        for part in (train, test)
        for kind in ("images-idx3", "labels-idx1")
    ]
    digests: dict[str, str | None] = dict(zip(names, md5 or [None] * 4, strict=True))
    return Copy(f"idx files in {folder}", digests, partial(_read_idx, **how), note, sizes)


def _med(title: str, md5: str, classes: tuple[str, ...]) -> ImageSet:
    kind = title.partition(",")[0]  # medmnist's class, and in small letters its file
    note = (
        "official training split as training pool, official test split as test set; the official "
        "validation split is not used, the server's validation images come from the training pool"
    )
    file = f"medmnist/{kind.lower()}.npz"
    copy = Copy("MedMNIST npz file, 28 x 28", {file: md5}, _read_npz, note)
    return ImageSet(title, classes, (kind,), (copy,))


_DIGITS = tuple(string.digits)
_LETTERS = tuple(string.ascii_uppercase)
_CIFAR = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")

IMAGES = {
    "digits": ImageSet(
        "scikit-learn's digits, 8 x 8 grey", _DIGITS, (),
        (Copy("embedded in scikit-learn", {}, _read_digits,
              "grey levels 0 to 16; of each class every fifth image is a test image"),),
    ),
    "mnist": ImageSet(
        "MNIST, 28 x 28 grey", _DIGITS, ("MNIST",),
        (_idx("MNIST/raw", "train", "t10k",
              "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
              "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),),
    ),
    "fashionmnist": ImageSet(
        "Fashion-MNIST, 28 x 28 grey", _FASHION, ("FashionMNIST",),
        (_idx("FashionMNIST/raw", "train", "t10k",
              "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
              "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),),
    ),
    "cifar10": ImageSet(
        "CIFAR-10, 32 x 32 colour", _CIFAR, ("CIFAR10",),
        (
            Copy("official Python batches in cifar-10-batches-py",
                 # torchvision has the digests
                 dict.fromkeys(f"cifar-10-batches-py/{name}" for name in _BATCHES),
                 _read_cifar_batches),
            Copy("JPEG copies in cifar10/cifar10.zip",
                 {"cifar10/cifar10.zip": "8882bd9251c93a93c04ee4c3beb41d5b",
                  "cifar10/train_labels_official_order.txt": "25fae41a566bb218cee2a1695551982e"},
                 _read_cifar_zip,
                 "images are JPEG copies (quality 75) of the official ones, in the official order "
                 "for training and class by class for test; accuracies are not strictly comparable "
                 "with those on the lossless images",
                 name="cifar10-jpeg"),
        ),
    ),
    "emnist-letters": ImageSet(
        "EMNIST letters, 28 x 28 grey", _LETTERS, ("EMNIST", "letters"),
        (
            _idx("EMNIST/raw", "emnist-letters-train", "emnist-letters-test",
                 note="whole letters split; upper and lower case merged; images turned upright",
                 sizes=(124_800, 20_800), first_label=1, transposed=True),
            _idx("EMNIST-subset/raw", "emnist-letters-train", "emnist-letters-test",
                 "a10c68649cb3038478a8e67799bbb8e0", "864044dcf59bb9743a66baade7c1402c",
                 "74d75f7eda9d8d00182a8e0f6dfd25a5", "cb7cdbb5938c36a64069ad07a8255cf1",
                 note="subset: the first 2,000 training and 400 test images of each letter; upper "
                 "and lower case merged; images turned upright",
                 first_label=1, transposed=True),
        ),
    ),
    "femnist": ImageSet(
        "EMNIST by class (the images of FEMNIST), 28 x 28 grey",
        _DIGITS + _LETTERS + tuple(string.ascii_lowercase), ("EMNIST", "byclass"),
        (_idx("EMNIST/raw", "emnist-byclass-train", "emnist-byclass-test",
              note="EMNIST by class; images turned upright; writers are not known in this "
              "edition, so clients are made by a scheme and not by writer",
              sizes=(697_932, 116_323), transposed=True),),
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
"""The image data sets that ``fk.load`` knows, by name."""


def load_images(name: str, folder: Path, verify: bool) -> Dataset:
    """Read the best copy that is there; `name` is one of :data:`IMAGES`."""
    copy = find_copy(name, folder)
    if copy is None:
        files = [copy.files(folder).items() for copy in IMAGES[name].copies]
        looked = [next(file for file, path in each if path is None) for each in files]
        raise missing(name, folder, ", or ".join(looked))
    return _read_copy(name, copy, folder, verify)


def find_copy(name: str, root: Path) -> Copy | None:
    """Return the first copy whose files are all there."""
    return next((c for c in IMAGES[name].copies if all(c.files(root).values())), None)


def _read_copy(name: str, copy: Copy, root: Path, verify: bool) -> Dataset:
    import torch

    contents = {}
    try:
        for file, path in copy.files(root).items():
            assert path is not None
            content = path.read_bytes()
            contents[path] = gzip.decompress(content) if path.suffix == ".gz" else content
            found = hashlib.md5(contents[path], usedforsecurity=False).hexdigest()
            if verify and copy.md5[file] not in (None, found):
                raise ValueError(f"{path} has md5 {found} and not {copy.md5[file]}")
        x_train, y_train, x_test, y_test = map(
            torch.from_numpy, map(_in_order, copy.read(contents))
        )
        data = Dataset(
            copy.name or name, x_train, y_train, x_test, y_test, IMAGES[name].classes,
            copy.source, copy.note,
        )  # fmt: skip
        sizes = len(data.x_train), len(data.x_test)
        if verify and copy.sizes not in (None, sizes):
            raise ValueError(f"{sizes} images in training and test and not {copy.sizes}")
    except BROKEN as error:
        raise damaged(f"{name} in {root}", copy.source, error) from error
    return data


def _in_order(part: NDArray[Any]) -> NDArray[Any]:
    """Return labels as int64, and images with the channels before height and width."""
    if part.ndim == 1:
        return part.astype(np.int64, casting="same_kind")
    return np.array(part[:, None] if part.ndim == 3 else part.transpose(0, 3, 1, 2), order="C")


def get_images(name: str, folder: Path) -> str:
    """Download a set of images and check it, or check the copy that is there."""
    copy = IMAGES[name].copies[0]
    if all(copy.files(folder).values()):
        _read_copy(name, copy, folder, verify=True)
        return copy.source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as hidden:
            work = Path(hidden)
            _download_images(name, work)
            if not all(copy.files(work).values()):
                raise RuntimeError("it came without some files")
            _read_copy(name, copy, work, verify=True)
            for path in filter(None, copy.files(work).values()):
                target = folder / path.relative_to(work)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    except (OSError, RuntimeError, DamagedDataError) as error:
        raise not_fetched(name, folder, error, ", ".join(copy.md5)) from error
    return copy.source


def _download_images(name: str, folder: Path) -> None:
    """Download a data set into an empty folder, in the layout of its own package."""
    kind, *split = IMAGES[name].fetcher
    if IMAGES[name].copies[0].read is _read_npz:
        (folder / "medmnist").mkdir()
        medmnist = need("medmnist", extra="run")
        getattr(medmnist, kind)(split="train", download=True, root=str(folder / "medmnist"))
    else:
        sets = need("torchvision.datasets", extra="run")
        getattr(sets, kind)(str(folder), **({"split": split[0]} if split else {}), download=True)
