"""The data sets that fedkit knows, their editions, and where to look for them."""

from __future__ import annotations

import difflib
import os
import string
from dataclasses import dataclass
from pathlib import Path

from fedkit.datasets.files import MissingDataError, user_cache
from fedkit.datasets.layouts import (
    CIFAR_CLASSES,
    CifarBatches,
    CifarZip,
    IdxLayout,
    Layout,
    NpzLayout,
)

__all__ = [
    "ELSEWHERE",
    "SETS",
    "Spec",
    "available",
    "canonical",
    "data_root",
    "find",
    "missing",
    "names",
]


@dataclass(frozen=True)
class Spec:
    """What is known about a data set before a file is opened."""

    title: str
    classes: tuple[str, ...]
    licence: str
    citation: str
    layouts: tuple[Layout, ...]


_FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_DIGITS = tuple(string.digits)
_LETTERS = tuple(string.ascii_uppercase)
_ORGANS = (
    "bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver",
    "lung-left", "lung-right", "pancreas", "spleen",
)  # fmt: skip
_EMNIST = "Cohen et al. 2017 (from NIST Special Database 19)"
_NIST = "none stated; work of the United States government"


def _med(name: str, title: str, md5: str, classes: tuple[str, ...], licence: str = "") -> Spec:
    layout = NpzLayout(name, len(classes), md5)
    return Spec(title, classes, licence or "CC BY 4.0", "Yang et al. 2023 (MedMNIST v2)", (layout,))


SETS: dict[str, Spec] = {
    "digits": Spec(
        "scikit-learn's digits, 8 x 8 grey",
        _DIGITS,
        "CC BY 4.0 (UCI); shipped with scikit-learn",
        "Alpaydin and Kaynak 1998",
        (),
    ),
    "mnist": Spec(
        "MNIST, 28 x 28 grey",
        _DIGITS,
        "CC BY-SA 3.0 as commonly stated",
        "LeCun et al. 1998",
        (
            IdxLayout(
                "MNIST/raw",
                "train",
                "t10k",
                10,
                (
                    "6bbc9ace898e44ae57da46a324031adb",
                    "a25bea736e30d166cdddb491f175f624",
                    "2646ac647ad5339dbf082846283269ea",
                    "27ae3e4e09519cfbb04c329615203637",
                ),
            ),
        ),
    ),
    "fashionmnist": Spec(
        "Fashion-MNIST, 28 x 28 grey",
        _FASHION,
        "MIT",
        "Xiao et al. 2017",
        (
            IdxLayout(
                "FashionMNIST/raw",
                "train",
                "t10k",
                10,
                (
                    "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                    "9018921c3c673c538a1fc5bad174d6f9",
                    "8181f5470baa50b63fa0f6fddb340f0a",
                    "15d484375f8d13e6eb1aabb0c3f46965",
                ),
            ),
        ),
    ),
    "cifar10": Spec(
        "CIFAR-10, 32 x 32 colour",
        CIFAR_CLASSES,
        "none stated; research use with citation",
        "Krizhevsky 2009",
        (CifarBatches(), CifarZip()),
    ),
    "emnist-letters": Spec(
        "EMNIST letters, 28 x 28 grey",
        _LETTERS,
        _NIST,
        _EMNIST,
        (
            IdxLayout(
                "EMNIST/raw", "emnist-letters-train", "emnist-letters-test", 26,
                sizes=(124_800, 20_800), first_label=1, transposed=True,
                note="whole letters split; upper and lower case merged; images turned upright",
            ),
            IdxLayout(
                "EMNIST-subset/raw", "emnist-letters-train", "emnist-letters-test", 26,
                (
                    "a10c68649cb3038478a8e67799bbb8e0",
                    "864044dcf59bb9743a66baade7c1402c",
                    "74d75f7eda9d8d00182a8e0f6dfd25a5",
                    "cb7cdbb5938c36a64069ad07a8255cf1",
                ),
                first_label=1, transposed=True,
                note="subset: the first 2,000 training and 400 test images of each letter; upper "
                "and lower case merged; images turned upright",
            ),
        ),
    ),
    "femnist": Spec(
        "EMNIST by class (the images of FEMNIST), 28 x 28 grey",
        _DIGITS + _LETTERS + tuple(string.ascii_lowercase),
        _NIST,
        _EMNIST + "; Caldas et al. 2018 (LEAF)",
        (
            IdxLayout(
                "EMNIST/raw", "emnist-byclass-train", "emnist-byclass-test", 62,
                sizes=(697_932, 116_323), transposed=True,
                note="EMNIST by class; images turned upright; writers are not known in this "
                "edition, so clients are made by a scheme and not by writer",
            ),
        ),
    ),
    "pathmnist": _med(
        "pathmnist", "PathMNIST, colon pathology, colour", "a8b06965200029087d5bd730944a56c1",
        ("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle",
         "normal colon mucosa", "cancer-associated stroma", "colorectal adenocarcinoma"),
    ),
    "dermamnist": _med(
        "dermamnist", "DermaMNIST, dermatoscopy, colour", "0744692d530f8e62ec473284d019b0c7",
        ("actinic keratoses", "basal cell carcinoma", "benign keratosis", "dermatofibroma",
         "melanoma", "melanocytic nevi", "vascular lesions"),
        "CC BY-NC 4.0",
    ),
    "octmnist": _med(
        "octmnist", "OCTMNIST, retinal OCT, grey", "c68d92d5b585d8d81f7112f81e2d0842",
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    ),
    "pneumoniamnist": _med(
        "pneumoniamnist", "PneumoniaMNIST, chest X-ray, grey", "28209eda62fecd6e6a2d98b1501bb15f",
        ("normal", "pneumonia"),
    ),
    "retinamnist": _med(
        "retinamnist", "RetinaMNIST, fundus camera, colour", "bd4c0672f1bba3e3a89f0e4e876791e4",
        ("0", "1", "2", "3", "4"),
    ),
    "breastmnist": _med(
        "breastmnist", "BreastMNIST, breast ultrasound, grey", "750601b1f35ba3300ea97c75c52ff8f6",
        ("malignant", "normal or benign"),
    ),
    "bloodmnist": _med(
        "bloodmnist", "BloodMNIST, blood cells, colour", "7053d0359d879ad8a5505303e11de1dc",
        ("basophil", "eosinophil", "erythroblast", "immature granulocyte", "lymphocyte",
         "monocyte", "neutrophil", "platelet"),
    ),
    "tissuemnist": _med(
        "tissuemnist", "TissueMNIST, kidney cortex, grey", "ebe78ee8b05294063de985d821c1c34b",
        ("collecting and connecting tubule", "distal convoluted tubule",
         "glomerular endothelial", "interstitial endothelial", "leukocytes", "podocytes",
         "proximal tubule", "thick ascending limb"),
    ),
    "organamnist": _med(
        "organamnist", "OrganAMNIST, abdominal CT (axial), grey",
        "68e3f8846a6bd62f0c9bf841c0d9eacc", _ORGANS,
    ),
    "organcmnist": _med(
        "organcmnist", "OrganCMNIST, abdominal CT (coronal), grey",
        "b9ceb9546e10131b32923c5bbeaea2b1", _ORGANS,
    ),
    "organsmnist": _med(
        "organsmnist", "OrganSMNIST, abdominal CT (sagittal), grey",
        "9ab87b696fb54e2a387ebe992d6ed5f1", _ORGANS,
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


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: `root`, else FEDKIT_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get("FEDKIT_DATA")
    return Path(named).expanduser() if named else user_cache()


def canonical(name: str) -> str:
    """Return the name as fedkit writes it, or refuse it and suggest the nearest known one."""
    key = name.lower().replace("_", "-")
    if key in SETS:
        return key
    if key == "chestmnist":
        raise ValueError(
            "data set 'chestmnist' has several labels per image, and fedkit needs one; choose "
            f"one of {', '.join(SETS)}"
        )
    if key in ELSEWHERE:
        raise ValueError(f"data set {key!r} has no images; load it with {ELSEWHERE[key]}({key!r})")
    near = difflib.get_close_matches(key, SETS, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"unknown data set {name!r}{hint}; expected one of {', '.join(SETS)}")


def find(name: str, root: Path) -> Layout | None:
    """Return the first layout whose files are all there."""
    for layout in SETS[name].layouts:
        if all(path is not None for path in layout.files(root).values()):
            return layout
    return None


def available(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return the edition that :func:`load` would read, None where there is none."""
    name = canonical(name)
    if name == "digits":
        return "embedded in scikit-learn"
    layout = find(name, data_root(root))
    return None if layout is None else layout.source


def missing(name: str, root: Path) -> MissingDataError:
    """Name what was looked for, where, and how to get it."""
    lacking = []
    for layout in SETS[name].layouts:
        absent = [file for file, path in layout.files(root).items() if path is None]
        lacking.append(f"{absent[0]}" + (f" and {len(absent) - 1} more" if absent[1:] else ""))
    message = (
        f"data set {name!r} is not in {root} (looked for {', or '.join(lacking)}); fetch it with "
        f"`fedkit data get {name}`, or set FEDKIT_DATA to a folder that has it"
    )
    if name == "femnist" and find("emnist-letters", root) is not None:
        message += (
            "; 'emnist-letters' is present there and is another data set (26 letters instead of "
            "62 characters): ask for it by that name if it serves you"
        )
    return MissingDataError(message)
