"""The arena's federations: real images, and clients of whom one knows what they are worth.

Roles are dealt to the clients anew by each seed; all that is reported is in the order of roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from fedkit.arena import World
from fedkit.checks import Bools, Floats, Ints, one_line
from fedkit.datasets import Dataset
from fedkit.federated import adversaries
from fedkit.federated.federation import (
    Federation,
    Transform,
    UpdateAttack,
    make_federation,
)
from fedkit.federated.partition import IID, Dirichlet, Mavericks, Partitioner, QuantitySkew
from fedkit.federated.policies import UniformSelection, draw
from fedkit.federated.rounds import ClientTable, Plan
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD
from fedkit.streams import Streams
from reproduction import common

SCENARIOS = {
    "sizes": "sizes in the proportion 1 to 10, labels alike",
    "labels": "label skew, Dir(0.3), sizes alike",
    "mavericks": "two clients alone hold a class each",
    "label-noise": "from none to all of a client's labels wrong",
    "feature-noise": "from none to all of a client's images noise",
    "random-updates": "two clients send random directions",
    "scaled-updates": "two clients send five times their update",
    "free-riders": "two clients send nothing",
    "skewed-free-riders": "two clients send nothing, label skew, Dir(0.3)",
    "skewed-wrong-labels": "two clients have all labels wrong, label skew, Dir(0.3)",
    "duplicates": "a client adds a copy of itself",
    "split": "a client of twice the size splits in two",
    "late": "two clients come when half of the rounds are over",
    "twenty": "20 clients with graded label noise, 10 in a round",
}
#: what misbehaving clients send
_SENT: dict[str, UpdateAttack] = {
    "random-updates": adversaries.RandomUpdate(),
    "scaled-updates": adversaries.ScaledUpdate(5.0),
    "free-riders": adversaries.FreeRider(),
    "skewed-free-riders": adversaries.FreeRider(),
}
#: scenarios in which bad clients' labels or images are noise
_NOISY = ("label-noise", "feature-noise", "twenty", "skewed-wrong-labels")
#: scenarios in which every seed draws other labels for a role
SKEWED = ("labels", "skewed-free-riders", "skewed-wrong-labels")
#: scenarios with a client who plays a trick, and hence a federation before the trick
TRICKS = ("duplicates", "split")


@dataclass(frozen=True)
class Scenario(common.Setting):
    """One planted truth at one size, all seeds apart."""

    dataset: str  # of images
    scenario: str  # a name of SCENARIOS
    model: str = "mlp-32"
    clients: int = 10  # roles before any trick
    participants: int = 10  # of a round
    rounds: int = 8
    samples: int = 60  # training images per client, on average
    validation: int = 1000  # images that the server holds
    seen: int = 1000  # of these, by methods and utilities
    test: int = 2000
    epochs: int = 2
    batch_size: int = 20
    lr: float = 0.1
    before: bool = False  # the federation before the trick was played

    @property
    def local(self) -> LocalSGD:
        """Local training."""
        return LocalSGD(lr=self.lr, batch_size=self.batch_size, epochs=self.epochs)


@one_line
@dataclass(frozen=True, eq=False)
class Planted:
    """A federation, and what is known of its clients; arrays are in the order of the clients."""

    world: World  # its validation images are those that are seen
    role: Ints  # [n]
    quality: Floats  # [n], in [0, 1]; all alike where nothing is planted in what one is worth
    # [n], whom a method should value least: misbehaving, or (graded noise) worse than one half.
    # Nobody among Mavericks, whom retraining and planting rank against each other, nor among those
    # who come late, which presence alone gives away.
    bad: Bools
    groups: tuple[tuple[int, ...], ...]  # whose data were drawn alike, or are the same
    trick: tuple[int, ...]  # the client who plays a trick, and its further part


@dataclass(frozen=True)
class LateJoiners:
    """Uniform selection where client i can be asked from round ``first[i]`` on, from 0."""

    first: Mapping[int, int]

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        absent = [i for i, start in self.first.items() if table.round < start]
        return draw(np.setdiff1d(table.available, absent), k, rng)


def _pool(data: Dataset, s: Scenario, rng: np.random.Generator) -> Dataset:
    """Draw the images of one seed, so that a federation is small."""
    train, test = s.clients * s.samples + s.validation, s.test
    for name, wanted, there in (
        ("training", train, len(data.y_train)), ("test", test, len(data.y_test)),
    ):  # fmt: skip
        if wanted > there:
            raise ValueError(f"{wanted} {name} images are wanted, {data.name} has {there}")
    a, b = rng.permutation(len(data.y_train))[:train], rng.permutation(len(data.y_test))[:test]
    return replace(
        data, x_train=data.x_train[a], y_train=data.y_train[a], x_test=data.x_test[b],
        y_test=data.y_test[b],
    )  # fmt: skip


def _seen(f: Federation, n: int, rng: np.random.Generator) -> Federation:
    """Keep n validation images, as evenly over the classes as may be, at least one of each."""
    y = f.y_val.numpy()
    shuffled = rng.permutation(len(y))
    turn = np.empty(len(y), dtype=np.int64)  # how many of its class came before
    for c in np.unique(y):
        mine = shuffled[y[shuffled] == c]
        turn[mine] = np.arange(len(mine))
    kept = torch.from_numpy(np.sort(shuffled[np.argsort(turn[shuffled], kind="stable")[:n]]))
    return replace(f, x_val=f.x_val[kept], y_val=f.y_val[kept])


@lru_cache(maxsize=64)
def plant(s: Scenario, seed: int) -> Planted:
    """Make a scenario's federation; what clients are worth is decided here, and told.

    Neighbouring cells share it.

    Quality is a client's share of the largest size ("sizes"), how close its labels are to
    everybody's, 1 less the total variation ("labels"), whether it alone holds a class
    ("mavericks"), the share of its data that is sound ("label-noise", "feature-noise", "twenty",
    "skewed-wrong-labels"), whether it behaves ("random-updates", "scaled-updates", "free-riders",
    "skewed-free-riders"), its share of the rounds ("late"), and the same for all elsewhere.
    """
    n, name = s.clients, s.scenario
    sizes = np.arange(1.0, n + 1) if name == "sizes" else np.ones(n)
    if name == "split":
        sizes[0] = 2.0
    scheme: Partitioner = QuantitySkew(proportions=tuple(sizes.tolist()))
    if name in SKEWED:
        scheme = Dirichlet(0.3, by="client")
    elif name == "mavericks":
        scheme = Mavericks(2, others=IID())
    data = _pool(common.dataset(s.dataset), s, Streams(seed).generator("arena", "pool"))
    f = make_federation(
        data, n, scheme, seed, validation=s.validation / len(data.y_train), empty="refill",
    )  # fmt: skip
    f = _seen(f, s.seen, Streams(seed).generator("arena", "seen"))
    if name in TRICKS and not s.before:
        own, *rest = f.clients
        mine, further = (own, own) if name == "duplicates" else (own[::2], own[1::2])
        f, n = replace(f, clients=(mine, *rest, further)), n + 1

    counts = f.label_counts
    own_labels = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    apart = np.abs(own_labels - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2
    graded = 1 - np.arange(n) / (n - 1)
    last = np.arange(n) >= n - 2
    start = s.rounds // 2
    quality = {
        "sizes": f.sizes / f.sizes.max(),
        "labels": 1 - apart,
        "mavericks": (np.arange(n) < 2).astype(np.float64),
        "label-noise": graded,
        "feature-noise": graded,
        "twenty": graded,
        "late": np.where(last, 1 - start / s.rounds, 1.0),
        **dict.fromkeys((*_SENT, "skewed-wrong-labels"), np.where(last, 0.0, 1.0)),
    }.get(name, np.ones(n))
    misbehaving = name in (*_SENT, *_NOISY)
    bad = (quality < 0.5) & misbehaving
    alike: list[range] = []
    if name in (*_SENT, "late") and name not in SKEWED:
        alike = [range(n - 2)]
    elif name in TRICKS:
        alike = [range(1, s.clients)]  # who plays it is worth something else
    elif name == "mavericks":
        alike = [range(2, n)]

    # deal the roles: client i plays role[i]
    role = Streams(seed).generator("arena", "roles").permutation(n)
    client = np.argsort(role)
    attacks: dict[int, Transform | UpdateAttack] = {}
    for r in np.flatnonzero(quality < 1) if misbehaving else ():
        by_label = adversaries.LabelNoise(1 - quality[r], f.n_classes)
        noise = adversaries.FeatureNoise(1 - quality[r]) if name == "feature-noise" else by_label
        attacks[int(client[r])] = _SENT.get(name, noise)
    late = {int(i): start for i in client[last]} if name == "late" else {}
    f = replace(f, clients=tuple(f.clients[r] for r in role)).with_adversaries(attacks)
    present = np.ones((s.rounds, n), dtype=bool)
    for i, first in late.items():
        present[:first, i] = False
    trick = (0, n - 1) if n > s.clients else (0,) if s.before else ()
    world = World(
        f, build(s.model, f.input_shape, f.n_classes),
        Plan(s.rounds, n if s.participants >= s.clients else s.participants, s.local), seed,
        LateJoiners(late) if late else UniformSelection(), present, repr(s),
    )  # fmt: skip
    return Planted(
        world, role, quality[role], bad[role],
        tuple(tuple(int(client[r]) for r in group) for group in alike),
        tuple(int(client[r]) for r in trick),
    )  # fmt: skip
