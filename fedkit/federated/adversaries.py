"""Clients that misbehave: with their data, or with what they send.

An attack on the data is a function ``(x, y, rng) -> (x, y)``, as a federation's transforms are; an
attack on the update has a method ``update(honest, rng)``.  Both draw from streams of their own: a
client that misbehaves changes no other client's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedkit.checks import having, whole
from fedkit.federated.federation import Federation, Transform
from fedkit.streams import Streams

__all__ = [
    "Adversaries", "Backdoor", "FeatureNoise", "FreeRider", "LabelFlip", "LabelNoise",
    "LabelPermutation", "RandomData", "RandomUpdate", "ScaledUpdate", "UpdateAttack", "check_cast",
]  # fmt: skip

Pair = tuple[Tensor, Tensor]
Rng = np.random.Generator


class UpdateAttack(Protocol):
    """Misbehaviour with the update that a client sends."""

    def update(self, honest: Tensor, rng: Rng) -> Tensor:
        """What is sent in the place of the honest update ``[P]``."""


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

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        _check_labels(self, y)
        wrong = _drawn(self.share, len(y), rng)
        shift = torch.from_numpy(rng.integers(1, self.n_classes, len(wrong)))
        noisy = y.clone()
        noisy[wrong] = (y[wrong] + shift) % self.n_classes
        return x, noisy


@dataclass(frozen=True)
class FeatureNoise:
    """Images mixed with standard normal noise: ``sqrt(1 - share) x + sqrt(share) noise``.

    The variance stays where it is one, as in federations whose images are normalised.
    """

    share: float

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
        return (1 - self.share) ** 0.5 * x + self.share**0.5 * noise, y


@dataclass(frozen=True)
class RandomData:
    """Images of standard normal noise with uniform labels, as many as the client has."""

    n_classes: int

    def __call__(self, x: Tensor, y: Tensor, rng: Rng) -> Pair:
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        return torch.from_numpy(noise), torch.from_numpy(rng.integers(0, self.n_classes, len(y)))


@dataclass(frozen=True)
class Backdoor:
    """Three by three bright pixels in the lower right corner of a share of images, as `target`."""

    share: float
    target: int = 0

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

    def update(self, honest: Tensor, rng: Rng) -> Tensor:
        return self.factor * honest


# ------------------------------------------------------------------------------ who does what


@dataclass(frozen=True)
class Adversaries:
    """Which clients misbehave, and how.

    Parameters
    ----------
    attacks : mapping of int to attack
        Client index to an attack on its data or its update; all others are honest.

    Examples
    --------
    >>> adversaries = Adversaries.of((LabelFlip(10), [50, 51]), (FreeRider(), [52]))
    >>> adversaries.kind(52)
    'FreeRider'
    """

    attacks: Mapping[int, Transform | UpdateAttack]

    def __post_init__(self) -> None:
        for i, attack in having("attacks", self.attacks, "items", "get").items():
            whole("a client in attacks", i, 0)
            if isinstance(attack, type) or not callable(attack):
                having(f"attacks[{i}]", attack, "update")

    @classmethod
    def of(cls, *groups: tuple[Transform | UpdateAttack, Sequence[int]]) -> Adversaries:
        """Make them of ``(attack, clients)`` pairs; no client may stand in two of them."""
        attacks: dict[int, Transform | UpdateAttack] = {}
        for group in groups:
            if not isinstance(group, tuple) or len(group) != 2 or np.ndim(group[1]) != 1:
                raise ValueError(f"a group is {group!r}; expected (attack, list of clients)")
            attack, clients = group
            for i in (whole("a client of a group", i, 0) for i in clients):
                if i in attacks:
                    raise ValueError(f"client {i} is given two attacks; give each client one")
                attacks[i] = attack
        return cls(attacks)

    def kind(self, client: int) -> str:
        """Name of a client's attack; "honest" for those without one."""
        return type(self.attacks[client]).__name__ if client in self.attacks else "honest"

    @property
    def tampering(self) -> frozenset[int]:
        """Clients who send another update than their training gave."""
        return frozenset(i for i, attack in self.attacks.items() if not callable(attack))

    @property
    def transforms(self) -> dict[int, Transform]:
        """What the others do to their data."""
        return {i: attack for i, attack in self.attacks.items() if callable(attack)}

    def data(self, federation: Federation) -> Federation:
        """The federation in which these clients misuse their data.

        It knows who is to tamper with updates, and is not run without :meth:`attack`.

        Raises
        ------
        ValueError
            If a client does not exist, transforms its data already, or nobody is left that is
            honest and owns data.
        """
        federation.check_clients(*self.attacks)
        if all(int(i) in self.attacks for i in np.flatnonzero(federation.sizes)):
            raise ValueError("every client with data misbehaves; leave at least one honest")
        done, mine = federation.transforms, self.transforms
        if other := sorted(i for i in done if i in mine and mine[i] != done[i]):
            raise ValueError(
                f"clients {other} transform their data already, which this would replace: make one "
                "transform of both"
            )
        told = federation.with_transforms(mine)
        return replace(told, tampering=federation.tampering | self.tampering)

    def attack(self, r: Any) -> Tensor:
        """The updates of a round that reach the server, float32[k, P]: the hook of ``fk.run``."""
        return self.sent(r.updates, r.participants.tolist(), r.streams)

    def sent(self, updates: Tensor, clients: Sequence[int], streams: Streams) -> Tensor:
        """What these clients send in the place of updates [k, P], in the round of the streams."""
        sent = updates.clone()
        for row, client in enumerate(clients):
            attack = self.attacks.get(client)
            if attack is not None and not callable(attack):
                sent[row] = attack.update(updates[row], streams.generator("tamper", client))
        return sent


def check_cast(federation: Federation, adversaries: Adversaries | None) -> None:
    """Refuse half a cast: a federation without its attack, or an attack without its data."""
    cast = Adversaries({}) if adversaries is None else adversaries
    if honest := sorted(federation.tampering - cast.tampering):
        raise ValueError(
            f"clients {honest} of the federation misuse their updates, and nobody is told how; "
            "pass attack=adversaries.attack (adversaries=adversaries to train_with_sizes, "
            "federation_game and fk.arena.compare)"
        )
    if owed := sorted(cast.transforms.keys() - federation.transforms.keys()):
        raise ValueError(
            f"clients {owed} of the adversaries misuse their data, and the federation has honest "
            "ones; pass adversaries.data(federation)"
        )
