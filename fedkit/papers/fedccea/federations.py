"""FedCCEA's federations, made from their settings: who has what, and whose data are noisy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedkit.federated.adversaries import Adversaries, Backdoor, LabelNoise
from fedkit.federated.clients import Federation, Transform, make_federation
from fedkit.federated.partitioners import IID, ClassesPerClient, Partitioner
from fedkit.learning.architectures import Architecture, build
from fedkit.papers import common
from fedkit.papers.fedccea.settings import Setting
from fedkit.streams import Streams


@dataclass(frozen=True)
class Pattern:
    """A bright square in the corner of a share of the images, whose labels stay ("sample noise").

    Appendix B.2 speaks of "a pattern of white pixels in the bottom right corner of the selected
    images" and of no label; a :class:`~fedkit.federated.adversaries.Backdoor` also relabels them.
    """

    share: float

    def __call__(
        self, x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the images, some with the pattern, and their labels."""
        return Backdoor(self.share)(x, y, rng)[0], y


def noise_of(name: str, n_classes: int) -> Transform | None:
    """Return what a noisy client does to its data; ValueError for a name that there is not."""
    kind, _, percent = name.partition("-")
    if name == "none":
        return None
    if kind not in ("label", "pattern", "backdoor") or not percent.isdigit():
        raise ValueError(f'noise is {name!r}; expected "none", "label-40" or "pattern-20", say')
    share = int(percent) / 100
    if kind == "label":
        return LabelNoise(share, n_classes)
    return Pattern(share) if kind == "pattern" else Backdoor(share)


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting; the noisy ones come last."""
    schemes: dict[str, Partitioner] = {
        "iid": IID(), "weak": ClassesPerClient(s.weak), "strong": ClassesPerClient(s.strong),
    }  # fmt: skip
    made = make_federation(
        common.dataset(s.data), s.clients, schemes[s.distribution], seed, validation=s.validation,
        validation_from="train", empty="refill",
    )  # fmt: skip
    clients = made.clients
    if s.samples is not None:
        rng = Streams(seed).generator("fedccea", "samples")
        clients = tuple(np.sort(rng.permutation(c)[: s.samples]) for c in clients)
    # "the order of samples": drawn once, and kept for every simulation and test (appendix B.1)
    rng = Streams(seed).generator("fedccea", "order")
    made = replace(made, clients=tuple(rng.permutation(c) for c in clients))
    attack = noise_of(s.noise, made.n_classes)
    if attack is None:
        return made
    return Adversaries.of((attack, s.noisy_clients().tolist())).data(made)


def halves(f: Federation, seed: int) -> tuple[Federation, Federation]:
    """Split the test images: one half values the clients, the other scores what comes of it.

    The paper does both on all test images, so its values are fitted to what they are judged by.

    Returns
    -------
    valuing, scoring : Federation
        The same clients with disjoint halves of the test images.
    """
    order = Streams(seed).generator("fedccea", "halves").permutation(len(f.y_test))
    first, second = (torch.from_numpy(np.sort(part)) for part in np.array_split(order, 2))
    return (
        replace(f, x_test=f.x_test[first], y_test=f.y_test[first]),
        replace(f, x_test=f.x_test[second], y_test=f.y_test[second]),
    )


def architecture(s: Setting, f: Federation) -> Architecture:
    """Return the network of a setting."""
    return build(s.model, f.input_shape, f.n_classes)
