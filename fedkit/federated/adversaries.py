"""Clients that misbehave: with their data, or with what they send.

An attack on the data is a function ``(x, y, rng) -> (x, y)``, as a federation's transforms are; an
attack on the update has a method ``update(honest, rng)``.  ``Federation.with_adversaries`` says who
does what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedkit.checks import real, whole

Pair = tuple[Tensor, Tensor]
Rng = np.random.Generator


# ------------------------------------------------------------------------- attacks on the data


@dataclass(frozen=True)
class LabelFlip:
    """Every label c becomes ``n_classes - 1 - c`` (Tolpegin et al. 2020; FedMS, section 5.1)."""

    n_classes: int

    def __post_init__(self) -> None:
        whole("n_classes", self.n_classes, 2)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        _check_labels(self, y)
        return x, self.n_classes - 1 - y


@dataclass(frozen=True)
class LabelPermutation:
    """A fixed permutation without a fixed point, drawn once per client (FedTSV's adversary)."""

    n_classes: int

    def __post_init__(self) -> None:
        whole("n_classes", self.n_classes, 2)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        _check_labels(self, y)
        while True:
            order = rng.permutation(self.n_classes)
            if (order != np.arange(self.n_classes)).all():
                return x, torch.from_numpy(order)[y]


@dataclass(frozen=True)
class LabelNoise:
    """A share of the labels, rounded to whole ones, becomes another, drawn uniformly (FedCCEA)."""

    share: float
    n_classes: int

    def __post_init__(self) -> None:
        real("share", self.share, 0.0, 1.0)
        whole("n_classes", self.n_classes, 2)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        _check_labels(self, y)
        wrong = _drawn(self.share, len(y), rng)
        shift = torch.from_numpy(rng.integers(1, self.n_classes, len(wrong)))
        noisy = y.clone()
        noisy[wrong] = (y[wrong] + shift) % self.n_classes
        return x, noisy


@dataclass(frozen=True)
class FeatureNoise:
    """Images mixed with standard normal noise: ``sqrt(1 - share) x + sqrt(share) noise``."""

    share: float

    def __post_init__(self) -> None:
        real("share", self.share, 0.0, 1.0)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
        return (1 - self.share) ** 0.5 * x + self.share**0.5 * noise, y


@dataclass(frozen=True)
class RandomData:
    """Images of standard normal noise with uniform labels, as many as the client has."""

    n_classes: int

    def __post_init__(self) -> None:
        whole("n_classes", self.n_classes, 2)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        return torch.from_numpy(noise), torch.from_numpy(rng.integers(0, self.n_classes, len(y)))


@dataclass(frozen=True)
class Backdoor:
    """Three by three bright pixels in the lower right corner of a share of images, as `target`."""

    share: float
    target: int = 0

    def __post_init__(self) -> None:
        real("share", self.share, 0.0, 1.0)
        whole("target", self.target, 0)

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        images, labels = x.clone(), y.clone()
        chosen = _drawn(self.share, len(y), rng)
        if len(chosen):
            images[chosen, ..., -3:, -3:] = x.max()
            labels[chosen] = self.target
        return images, labels


def _check_labels(attack: LabelFlip | LabelPermutation | LabelNoise, y: Tensor) -> None:
    if len(y) and int(y.max()) >= attack.n_classes:
        raise ValueError(
            f"{type(attack).__name__} has n_classes={attack.n_classes}, and a label is "
            f"{int(y.max())}; give the number of classes of the data"
        )


def _drawn(share: float, n: int, rng: Rng) -> Tensor:
    """Positions of a share of n samples, rounded to whole ones."""
    return torch.from_numpy(rng.permutation(n)[: round(share * n)])


# ----------------------------------------------------------------------- attacks on the update


@dataclass(frozen=True)
class RandomUpdate:
    """A random direction instead of training, `scale` times as long as the honest update."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        real("scale", self.scale, 0.0)

    def update(self, honest: Tensor, rng: Rng) -> Tensor:
        noise = torch.from_numpy(rng.standard_normal(len(honest), dtype=np.float32))
        noise = noise.to(honest.device)
        return noise * (self.scale * honest.norm() / noise.norm())


@dataclass(frozen=True)
class FreeRider:
    """Sends the global model back: an update of zero (FedMS, section 5.1)."""

    def update(self, honest: Tensor, rng: Rng) -> Tensor:
        return torch.zeros_like(honest)


@dataclass(frozen=True)
class ScaledUpdate:
    """The honest update times a factor: boosted above 1, reversed below 0."""

    factor: float

    def __post_init__(self) -> None:
        real("factor", self.factor)

    def update(self, honest: Tensor, rng: Rng) -> Tensor:
        return self.factor * honest
