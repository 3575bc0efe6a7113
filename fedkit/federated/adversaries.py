"""Clients that misbehave: with their data, or with what they send.

:class:`Adversaries` says which clients make which attack.  Attacks on the data are transforms of a
federation; attacks on the update replace what reaches the server.  Both are values, so they fit
into a record, and both draw from streams of their own: a client that misbehaves changes no other
client's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch

from fedkit.federated.clients import Federation
from fedkit.federated.valuers import Round

__all__ = [
    "Adversaries",
    "Backdoor",
    "DataAttack",
    "FreeRider",
    "LabelFlip",
    "LabelNoise",
    "LabelPermutation",
    "RandomData",
    "RandomUpdate",
    "UpdateAttack",
]

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


class DataAttack(Protocol):
    """Misbehaviour with data: called with the client's own images and labels."""

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return the images and labels that the client trains on."""
        ...


class UpdateAttack(Protocol):
    """Misbehaviour with the update that a client sends."""

    def update(self, honest: Tensor, rng: np.random.Generator) -> Tensor:
        """Return what is sent in the place of the honest update ``[P]``."""
        ...


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}; it is a share, from 0 to 1")


@dataclass(frozen=True)
class LabelFlip:
    """Every label c becomes ``n_classes - 1 - c`` (Tolpegin et al. 2020; FedMS, section 5.1).

    FedMS says only that such clients "flip the label of their dataset".  The mirror image is a
    flip that changes every label where the number of classes is even.
    """

    n_classes: int

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return the images with mirrored labels."""
        return x, self.n_classes - 1 - y


@dataclass(frozen=True)
class LabelPermutation:
    """A fixed permutation without a fixed point, drawn once per client (FedTSV's adversary)."""

    n_classes: int

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return the images with permuted labels."""
        if self.n_classes < 2:
            raise ValueError(f"n_classes is {self.n_classes}; nothing to permute below 2")
        while True:
            order = rng.permutation(self.n_classes)
            if (order != np.arange(self.n_classes)).all():
                return x, torch.from_numpy(order)[y]


@dataclass(frozen=True)
class LabelNoise:
    """A share of the labels is replaced by a different one, drawn uniformly (FedCCEA).

    Parameters
    ----------
    share : float
        Rounded to whole labels: exactly so many are wrong.
    n_classes : int
    """

    share: float
    n_classes: int

    def __post_init__(self) -> None:
        _share("share", self.share)

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return the images with noisy labels."""
        wrong = torch.from_numpy(rng.permutation(len(y))[: round(self.share * len(y))])
        shift = torch.from_numpy(rng.integers(1, self.n_classes, len(wrong)))
        noisy = y.clone()
        noisy[wrong] = (y[wrong] + shift) % self.n_classes
        return x, noisy


@dataclass(frozen=True)
class RandomData:
    """Images of standard normal noise with uniform labels, as many as the client has.

    The images of a federation are normalised, so the noise has their mean and variance.
    """

    n_classes: int

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return noise."""
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        return torch.from_numpy(noise), torch.from_numpy(rng.integers(0, self.n_classes, len(y)))


@dataclass(frozen=True)
class Backdoor:
    """A bright square in the corner of a share of the images, all labelled `target`.

    Parameters
    ----------
    share : float
        Share of the images that carry the pattern, rounded to whole images.
    target : int
        Their label.
    size : int
        Edge of the square in pixels, at the lower right.
    """

    share: float
    target: int = 0
    size: int = 3

    def __post_init__(self) -> None:
        _share("share", self.share)

    def stamp(self, x: Tensor) -> Tensor:
        """Return the images with the pattern, at the brightness of their brightest pixel."""
        if self.size > min(x.shape[-2:]):
            raise ValueError(f"size is {self.size}; images are {x.shape[-2]} x {x.shape[-1]}")
        marked = x.clone()
        if len(x):
            marked[..., -self.size :, -self.size :] = x.max()
        return marked

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> Pair:
        """Return the images, some with the pattern and the target label."""
        chosen = torch.from_numpy(rng.permutation(len(y))[: round(self.share * len(y))])
        images, labels = x.clone(), y.clone()
        images[chosen] = self.stamp(x)[chosen]
        labels[chosen] = self.target
        return images, labels


@dataclass(frozen=True)
class RandomUpdate:
    """A random direction instead of training (FedMS: "random generated model updates").

    Parameters
    ----------
    norm : {"honest", "unit"}
        Length of what is sent: that of the client's honest update, which no norm test would
        notice, or 1 times `scale`.
    scale : float
        Factor of that length.
    """

    norm: Literal["honest", "unit"] = "honest"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.norm not in ("honest", "unit"):
            raise ValueError(f'norm is {self.norm!r}; expected "honest" or "unit"')

    def update(self, honest: Tensor, rng: np.random.Generator) -> Tensor:
        """Return noise of that length."""
        noise = torch.from_numpy(rng.standard_normal(len(honest), dtype=np.float32))
        noise = noise.to(honest.device)
        length = honest.norm() if self.norm == "honest" else torch.ones((), device=honest.device)
        return noise * (self.scale * length / noise.norm())


@dataclass(frozen=True)
class FreeRider:
    """Sends the global model back: an update of zero (FedMS, section 5.1).

    Parameters
    ----------
    noise : float
        Length of a random disguise, relative to an honest update; 0 is the plain free-rider.
    """

    noise: float = 0.0

    def update(self, honest: Tensor, rng: np.random.Generator) -> Tensor:
        """Return zero, or a little noise."""
        if self.noise == 0:
            return torch.zeros_like(honest)
        return RandomUpdate(scale=self.noise).update(honest, rng)


@dataclass(frozen=True)
class Adversaries:
    """Which clients misbehave, and how.

    Parameters
    ----------
    attacks : mapping of int to attack
        Client index to :class:`DataAttack` or :class:`UpdateAttack`; all others are honest.

    Examples
    --------
    >>> adversaries = Adversaries.of((LabelFlip(10), [50, 51]), (FreeRider(), [52]))
    >>> adversaries.kind(52)
    'FreeRider'
    """

    attacks: Mapping[int, DataAttack | UpdateAttack]

    @classmethod
    def of(cls, *groups: tuple[DataAttack | UpdateAttack, Sequence[int]]) -> Adversaries:
        """Make them of ``(attack, clients)`` pairs.

        Raises
        ------
        ValueError
            If a client is given two attacks.
        """
        attacks: dict[int, DataAttack | UpdateAttack] = {}
        for attack, clients in groups:
            for i in clients:
                if int(i) in attacks:
                    raise ValueError(f"client {i} is given two attacks; give each client one")
                attacks[int(i)] = attack
        return cls(attacks)

    def kind(self, client: int) -> str:
        """Name of a client's attack; "honest" for those without one."""
        return type(self.attacks[client]).__name__ if client in self.attacks else "honest"

    def kinds(self, n_clients: int) -> list[str]:
        """Names of all attacks, by client."""
        return [self.kind(i) for i in range(n_clients)]

    def data(self, federation: Federation) -> Federation:
        """Return the federation in which these clients misuse their data.

        Raises
        ------
        ValueError
            If a client does not exist, or nobody is left that is honest and owns data.
        """
        unknown = [i for i in self.attacks if not 0 <= i < federation.n_clients]
        if unknown:
            raise ValueError(
                f"clients {unknown} do not exist; expected 0 to {federation.n_clients - 1}"
            )
        honest = [i for i in np.flatnonzero(federation.sizes) if int(i) not in self.attacks]
        if not honest:
            raise ValueError("every client with data misbehaves; leave at least one honest")
        transforms = {i: attack for i, attack in self.attacks.items() if callable(attack)}
        told = {
            str(i): {"part": self.kind(i)} | _settings(attack) for i, attack in self.attacks.items()
        }
        made = federation.with_transforms(transforms)
        return replace(made, settings={**made.settings, "cast": told})

    def attack(self, r: Round) -> Tensor:
        """Return the updates that reach the server; the hook of
        :func:`fedkit.federated.rounds.run`."""
        updates = r.updates
        for row, client in enumerate(r.participants.tolist()):
            attack = self.attacks.get(client)
            if attack is not None and not callable(attack):
                if updates is r.updates:
                    updates = r.updates.clone()
                rng = r.streams.generator("tamper", client)
                updates[row] = attack.update(r.updates[row], rng)
        return updates


def _settings(attack: Any) -> dict[str, Any]:
    return asdict(attack)
