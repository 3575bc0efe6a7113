"""Image data sets by name: found below one folder, checked, and given as uint8 tensors.

``FEDKIT_DATA`` names the data folder (default: the user's cache folder).  It has torchvision's
and medmnist's own layouts; idx files may also stand gzipped.  ``"digits"`` is embedded in
scikit-learn and needs no folder.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fedkit.checks import flag, one_line
from fedkit.datasets.catalogue import SETS, canonical, data_root, find, read
from fedkit.datasets.readers import missing

__all__ = ["Dataset", "load"]


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
        Which edition was read.
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
        """Mean and standard deviation of each channel over the training images, float32 (C,).

        They come from the exact histogram of the 256 grey levels, so they do not depend on
        the order of summation.
        """
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
        """Normalise images by the channel means and deviations of the training images.

        Parameters
        ----------
        x : uint8 tensor (N, C, H, W)
            Images of this data set.

        Returns
        -------
        float32 tensor (N, C, H, W)
        """
        if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != self.x_train.shape[1]:
            raise ValueError(
                f"images have dtype {x.dtype} and shape {tuple(x.shape)}; expected uint8 of shape "
                f"(N, {self.x_train.shape[1]}, H, W), as in Dataset.x_train"
            )
        mean, std = self.moments
        return x.float().sub_(mean.view(1, -1, 1, 1)).div_(std.view(1, -1, 1, 1))


def _tensor(images: np.ndarray) -> torch.Tensor:
    """Turn (N, H, W) or (N, H, W, C) into a contiguous uint8 (N, C, H, W)."""
    batch = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(batch, dtype=np.uint8, order="C"))


def load(name: str, root: str | os.PathLike[str] | None = None, *, verify: bool = True) -> Dataset:
    """Load an image data set by name.

    Parameters
    ----------
    name : str
        A name of the catalogue.  ``"emnist-letters"`` reads the whole split where it is there and
        fedkit's subset otherwise; ``"femnist"`` is EMNIST by class and never falls back.
    root : path, optional
        Data folder; default as in :func:`data_root`.
    verify : bool
        Check published digests.  Switch it off only for files that
        you changed on purpose; their structure is checked all the same.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If the name is unknown.
    MissingDataError
        If the files are not there; the message says how to get them.
    DamagedDataError
        If a file is truncated, altered or inconsistent.
    """
    name, folder = canonical(name), data_root(root)
    flag("verify", verify)
    edition = find(name, folder)
    if edition is None:
        files = [edition.files(folder).items() for edition in SETS[name].editions]
        looked = [next(file for file, path in each if path is None) for each in files]
        raise missing(name, folder, ", or ".join(looked))
    raw = read(name, edition, folder, verify)
    return Dataset(
        name=edition.name or name,
        x_train=_tensor(raw.x_train),
        y_train=torch.from_numpy(np.array(raw.y_train, dtype=np.int64)),
        x_test=_tensor(raw.x_test),
        y_test=torch.from_numpy(np.array(raw.y_test, dtype=np.int64)),
        classes=SETS[name].classes,
        source=edition.source,
        note=edition.note,
    )
