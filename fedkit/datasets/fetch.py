"""Fetching data sets into the data folder, and checking the files that are there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedkit.datasets.catalogue import SETS, canonical, data_root, find
from fedkit.datasets.files import DamagedDataError, DownloadError, check_digest, read_bytes
from fedkit.datasets.layouts import IdxLayout, NpzLayout
from fedkit.extras import need

__all__ = ["FileReport", "get", "verify"]


@dataclass(frozen=True)
class FileReport:
    """Result of checking one file: status is ok, unchecked, damaged or missing."""

    name: str
    status: str
    detail: str = ""


def verify(name: str, root: str | os.PathLike[str] | None = None) -> list[FileReport]:
    """Check every file of a data set that is there against its published digest.

    Returns
    -------
    list of FileReport
        One per file of the edition that :func:`load` would read; where none is
        complete, of the first edition, with the missing files named.  A file without a
        published digest is ``unchecked``; the structure of such a set is checked instead.
    """
    name = canonical(name)
    if name == "digits":
        return [FileReport("digits", "ok", "embedded in scikit-learn")]
    folder = data_root(root)
    layout = find(name, folder)
    complete = layout is not None
    layout = layout or SETS[name].layouts[0]
    reports = []
    for file, path in layout.files(folder).items():
        md5 = layout.digest(file)
        if path is None:
            reports.append(FileReport(file, "missing"))
            continue
        try:
            content = read_bytes(path) if isinstance(layout, IdxLayout) else None
            if md5 is not None:
                check_digest(path, content, md5)
            reports.append(
                FileReport(file, "ok", f"md5 {md5}")
                if md5
                else FileReport(file, "unchecked", "no published digest; structure only")
            )
        except DamagedDataError as error:
            reports.append(FileReport(file, "damaged", str(error)))
    if complete and any(report.status == "unchecked" for report in reports):
        try:
            layout.read(folder, verify=True)
        except DamagedDataError as error:
            reports.append(FileReport(name, "damaged", str(error)))
    return reports


def _fetch(name: str, folder: Path) -> None:
    """Download a data set into an empty folder, in the layout of its own package."""
    layout = SETS[name].layouts[0]
    if isinstance(layout, NpzLayout):
        medmnist = need("medmnist", extra="run")
        (folder / "medmnist").mkdir()
        kind = getattr(medmnist, medmnist.INFO[name]["python_class"])
        kind(split="train", download=True, root=str(folder / "medmnist"))
        return
    sets = need("torchvision.datasets", extra="run")
    fetchers: dict[str, Callable[[], object]] = {
        "mnist": lambda: sets.MNIST(str(folder), download=True),
        "fashionmnist": lambda: sets.FashionMNIST(str(folder), download=True),
        "cifar10": lambda: sets.CIFAR10(str(folder), download=True),
        "emnist-letters": lambda: sets.EMNIST(str(folder), split="letters", download=True),
        "femnist": lambda: sets.EMNIST(str(folder), split="byclass", download=True),
    }
    fetchers[name]()


def get(name: str, root: str | os.PathLike[str] | None = None) -> str:
    """Download a data set through torchvision or medmnist, check it, then put it in place.

    The download goes to a hidden folder inside the data folder; only files that pass their
    checks are moved to where :func:`load` looks, so an interrupted download leaves
    nothing.
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
    name = canonical(name)
    if name == "digits":
        return "embedded in scikit-learn"
    folder, layout = data_root(root), SETS[name].layouts[0]
    if all(path is not None for path in layout.files(folder).values()):
        layout.read(folder, verify=True)
        return layout.source
    by_hand = f"place {', '.join(layout.files(folder))} below {folder} by hand, or try again"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder, prefix=".fetching-"))
    except OSError as error:
        raise DownloadError(
            f"data set {name!r} cannot be written to {folder} ({error}); set FEDKIT_DATA to a "
            "folder that is writable"
        ) from error
    try:
        _fetch(name, work)
        layout.read(work, verify=True)
        for file, path in layout.files(work).items():
            if path is None:
                raise DownloadError(f"data set {name!r} came without {file}; {by_hand}")
            target = folder / path.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    except (OSError, RuntimeError, DamagedDataError) as error:
        if isinstance(error, DownloadError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise DownloadError(
            f"data set {name!r} could not be fetched: {reason}; {by_hand}"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return layout.source
