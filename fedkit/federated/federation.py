"""Federations: a data set, a server validation set, and clients that share the rest.

The order is that of FedOwen (section 4.1): the server's validation images leave the data set
first; then the training pool is given a long tail; then a partitioner divides it among clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch

from fedkit.checks import (
    brief,
    choice,
    having,
    one_line,
    plain_array,
    same_rows,
    unboxed,
    whole,
    whole_or_none,
)
from fedkit.datasets import Dataset
from fedkit.federated.partition import Partitioner, fill_empty, hold_out, long_tail
from fedkit.learning.device import pair_of
from fedkit.streams import Streams

Tensor = torch.Tensor
Transform = Callable[[Tensor, Tensor, np.random.Generator], tuple[Tensor, Tensor]]
"""What a client does to its own data: (x_i, y_i, rng) -> (x_i, y_i)."""


class UpdateAttack(Protocol):
    """Misbehaviour with the update that a client sends."""

    def update(self, honest: Tensor, rng: np.random.Generator) -> Tensor:
        """What is sent in the place of the honest update ``[P]``."""


Pair = tuple[Any, Any]

#: labels below this are classes; a larger one is an identifier, or not finite
_MOST = 1_000_000


@one_line
@dataclass(frozen=True, eq=False)
class Federation:
    """Clients, server and test data of one federated learning problem.

    Attributes
    ----------
    x : float32 tensor (N, C, H, W)
        Training pool, normalised.
    y : int64 tensor (N,)
        Its labels.
    clients : tuple of int64 array
        Positions in the pool that each client holds; a partition of it, but for copies.
    x_val, y_val, x_test, y_test : tensors
        Server validation and test data, normalised alike; disjoint from the pool.
    n_classes : int
        Classes of the data set, those absent from the pool included.
    name : str
    seed : int
        Root seed of what clients do to their data.
    transforms : mapping of int to callable
        What some clients do to their data.
    attacks : mapping of int to attack
        What some send in the place of their updates.
    """

    x: Tensor
    y: Tensor
    clients: tuple[np.ndarray, ...]
    x_val: Tensor
    y_val: Tensor
    x_test: Tensor
    y_test: Tensor
    n_classes: int
    name: str
    seed: int = 0
    transforms: Mapping[int, Transform] = field(default_factory=dict)
    attacks: Mapping[int, UpdateAttack] = field(default_factory=dict)

    @property
    def n_clients(self) -> int:
        return len(self.clients)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.x.shape[1:]
        return int(channels), int(height), int(width)

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client before any transform, int64 (n,)."""
        return np.array([len(c) for c in self.clients], dtype=np.int64)

    @property
    def label_counts(self) -> np.ndarray:
        """True labels per client and class, before any transform, int64 (n, classes)."""
        y = self.y.numpy()
        return np.stack([np.bincount(y[c], minlength=self.n_classes) for c in self.clients])

    def summary(self) -> dict[str, float]:
        """How unequal the clients are, before any transform.

        ``classes`` (mean number held) and ``dominance`` (mean share of a client's most frequent
        class) are of the clients with data.
        """
        sizes, counts = self.sizes, self.label_counts
        held = counts[sizes > 0]
        return {
            "clients": float(self.n_clients),
            "empty": float((sizes == 0).sum()),
            "smallest": float(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": float(sizes.max()),
            "classes": float((held > 0).sum(1).mean()),
            "dominance": float((held.max(1) / held.sum(1)).mean()),
        }

    def check_clients(self, *clients: int) -> None:
        """Refuse clients that do not exist."""
        unknown = [i for i in clients if isinstance(i, bool) or i not in range(self.n_clients)]
        if unknown:
            raise ValueError(f"clients {unknown} do not exist; expected 0 to {self.n_clients - 1}")

    def client_data(self, i: int) -> tuple[Tensor, Tensor]:
        """Images and labels that client `i` trains on, after its transform; always the same."""
        self.check_clients(i)
        index = torch.from_numpy(self.clients[i])
        x_i, y_i = self.x[index], self.y[index]
        if i in self.transforms:
            rng = Streams(self.seed).generator("client", i, "transform")
            x_i, y_i = self.transforms[i](x_i, y_i, rng)
            if not len(x_i) == len(y_i) == len(index):
                raise ValueError(
                    f"the transform of client {i} made {len(x_i)} samples and {len(y_i)} labels "
                    f"of {len(index)}"
                )
        return x_i, y_i

    def with_transforms(self, transforms: Mapping[int, Transform]) -> Federation:
        """The same federation in which some clients transform their data."""
        self.check_clients(*transforms)
        return replace(self, transforms={**self.transforms, **transforms})

    def with_adversaries(self, attacks: Mapping[int, Transform | UpdateAttack]) -> Federation:
        """The same federation in which some clients misbehave.

        An attack is a function ``(x, y, rng) -> (x, y)`` on a client's data, or has a method
        ``update(honest, rng)`` that returns what is sent in the place of an update.  Refused are a
        second attack of a kind for a client, and to leave nobody honest.
        """
        for i, attack in having("attacks", attacks, "items", "keys").items():
            if isinstance(attack, type) or not callable(attack):
                having(f"attacks[{i}]", attack, "update")
        self.check_clients(*attacks)
        on_data = {i: attack for i, attack in attacks.items() if callable(attack)}
        on_updates = {i: attack for i, attack in attacks.items() if not callable(attack)}
        for new, old in ((on_data, self.transforms), (on_updates, self.attacks)):
            if other := sorted(i for i in new if i in old and new[i] != old[i]):
                raise ValueError(f"clients {other} have an attack of this kind; make one of both")
        bad = {*self.attacks, *attacks}
        if all(int(i) in bad for i in np.flatnonzero(self.sizes)):
            raise ValueError("every client with data misbehaves in attacks; leave one honest")
        made = self.with_transforms(on_data)
        return replace(made, attacks={**self.attacks, **on_updates})

    def sent(self, updates: Tensor, clients: Sequence[int], streams: Streams) -> Tensor:
        """What clients send in the place of their updates [k, P], in the round of the streams."""
        if not self.attacks.keys() & set(clients):
            return updates
        sent = updates.clone()
        for row, client in enumerate(clients):
            if client in self.attacks:
                rng = streams.generator("tamper", client)
                false = self.attacks[client].update(updates[row], rng)
                if not isinstance(false, Tensor) or false.shape != updates[row].shape:
                    raise ValueError(
                        f"client {client} sent {brief(false)}; expected {brief(updates[row])}"
                    )
                sent[row] = false
        return sent


def make_federation(
    dataset: Dataset,
    n_clients: int,
    scheme: Partitioner,
    seed: int,
    *,
    validation: float = 0.01,
    validation_from: Literal["train", "test"] = "train",
    imbalance_factor: float | None = None,
    empty: Literal["keep", "refill"] = "keep",
    min_size: int = 1,
) -> Federation:
    """Make a federation of a data set, normalised by the statistics of its training images.

    Parameters
    ----------
    dataset : Dataset
    n_clients : int
    scheme : Partitioner
        How the pool is divided.
    seed : int
        Root seed; federations that differ in the scheme alone share validation set and pool.
    validation : float
        Fraction of the images that the server holds out, before the long tail.
    validation_from : {"train", "test"}
        Which images they are taken from.
    imbalance_factor : float, optional
        Size of the last class relative to the first, in between they fall off exponentially.
    empty : {"keep", "refill"}
        Leave clients that are too small, or fill them up from the largest to `min_size` samples.

    Returns
    -------
    Federation
    """
    streams = Streams(seed).child("federation")
    choice("validation_from", validation_from, ("train", "test"))
    choice("empty", empty, ("keep", "refill"))
    whole("min_size", min_size, 1)
    having("dataset", dataset, "x_train", "y_train", "to_float")
    having("scheme", scheme, "split")
    train, test = (dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)
    y_all = dataset.y_train.numpy()
    source = train if validation_from == "train" else test
    rest, held = hold_out(source[1].numpy(), validation, streams.generator("validation"))
    pool = rest if source is train else np.arange(len(y_all))
    tested = rest if source is test else np.arange(len(test[1]))
    if imbalance_factor is not None:
        pool = pool[long_tail(y_all[pool], imbalance_factor, streams.generator("tail"))]
    if whole("n_clients", n_clients, 1) > len(pool):
        raise ValueError(f"n_clients is {n_clients} for {len(pool)} samples; take fewer clients")
    dealt = scheme.split(y_all[pool], n_clients, streams.generator("split"))
    parts = _positions(scheme, dealt, n_clients, len(pool))
    parts = fill_empty(parts, empty, streams.generator("refill"), min_size)

    def part(pair: tuple[Tensor, Tensor], index: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(index)
        return dataset.to_float(pair[0][rows]), pair[1][rows]

    x, y = part(train, pool)
    x_val, y_val = part(source, held)
    x_test, y_test = part(test, tested)
    return Federation(
        x, y, tuple(parts), x_val, y_val, x_test, y_test, dataset.n_classes, dataset.name, int(seed)
    )


def _positions(scheme: Partitioner, parts: Any, n_clients: int, size: int) -> list[np.ndarray]:
    """The positions that a partitioner dealt, or one sentence on why they are no partition."""
    given = [np.asarray(part) for part in parts] if isinstance(parts, Sequence | np.ndarray) else []
    given = [part if part.size else np.empty(0, dtype=np.int64) for part in given]
    plain = all(part.ndim == 1 and part.dtype.kind in "iu" for part in given)
    every = np.concatenate(given) if given and plain else np.full(1, -1)
    once = len(np.intersect1d(every, np.arange(size))) == len(every)
    if len(given) == n_clients and once:
        return [part.astype(np.int64) for part in given]
    raise ValueError(
        f"{type(scheme).__name__} dealt {brief(given)}; expected {n_clients} vectors of positions "
        f"from 0 to {size - 1}, none of them twice (np.flatnonzero makes positions of a mask)"
    )


def federation_from_arrays(
    clients: Sequence[Pair],
    test: Pair,
    validation: Pair | None = None,
    *,
    n_classes: int | None = None,
    name: str = "own data",
    seed: int = 0,
) -> Federation:
    """Make a federation of arrays that are already divided among clients.

    Parameters
    ----------
    clients : sequence of pairs, DataLoaders or Datasets
        Features and labels of each client.  Features are finite numbers of the shape (N, columns),
        (N, H, W) or (N, C, H, W), alike for all but N; labels are whole numbers from 0, (N,).
    test, validation : pair, DataLoader or Dataset
        The server's test and validation data; without `validation` it is empty.
    n_classes : int, optional
        By default one more than the largest label.
    name : str
    seed : int
        Root seed of what clients do to their data.

    Returns
    -------
    Federation
        Columns become images of one channel and one row.
    """
    if not isinstance(clients, Sequence) or isinstance(clients, str):
        raise ValueError(f"clients is {brief(clients)}; expected a list of (features, labels)")
    whole_or_none("n_classes", n_classes, 2)
    whole("seed", seed, 0)
    given = {f"client {i}": pair for i, pair in enumerate(clients)} | {"the test data": test}
    if validation is not None:
        given["the validation data"] = validation
    given = {whose: pair_of(whose, pair) for whose, pair in given.items()}
    checked = {whose: _check(whose, pair) for whose, pair in given.items()}
    held = [checked[f"client {i}"] for i in range(len(clients))]
    shape = next((x.shape[1:] for x, _ in held if len(x)), None)
    if shape is None:
        raise ValueError("no client has data; give at least one client samples")
    for whose, (x, _) in checked.items():
        if len(x) and x.shape[1:] != shape:
            raise ValueError(f"{whose}: samples {tuple(x.shape[1:])}, of others {tuple(shape)}")
    labels = torch.cat([y for _, y in checked.values()])
    most = 1 + int(labels.max())
    if n_classes is not None and n_classes < most:
        raise ValueError(f"n_classes is {n_classes}, and a label is {most - 1}; labels are from 0")
    nothing = torch.empty((0, *shape)), torch.empty(0, dtype=torch.int64)
    x, y = (torch.cat(part) for part in zip(*(pair for pair in held if len(pair[1])), strict=True))
    parts = np.split(np.arange(len(y)), np.cumsum([len(labels) for _, labels in held])[:-1])
    on_server = checked.get("the validation data", nothing), checked["the test data"]
    return Federation(
        x, y, tuple(parts), *on_server[0], *on_server[1], n_classes or most, name, seed
    )


def _check(whose: str, pair: Pair) -> tuple[Tensor, Tensor]:
    """Images [N, C, H, W] and labels [N] of a pair of arrays."""
    x, y = (unboxed(plain_array(a)) for a in pair)
    same_rows(f"{whose}: features and labels", *pair)
    if x.ndim not in (2, 3, 4) or y.shape != x.shape[:1]:
        raise ValueError(
            f"{whose}: features {x.shape} and labels {y.shape}; expected (N, columns), (N, H, W) "
            f"or (N, C, H, W), and (N,)"
        )
    if any(a.dtype.kind not in "biuf" for a in (x, y)):
        raise ValueError(f"{whose}: {x.dtype} and {y.dtype}; encode text, fill what is missing")
    narrow = x.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ValueError(f"{whose}: features that are not finite in single precision; scale them")
    if not ((y == np.floor(y)) & (y >= 0) & (y < _MOST)).all():
        raise ValueError(f"{whose}: labels are not whole numbers from 0; encode classes first")
    images = narrow.reshape(len(x), *(1,) * (4 - x.ndim), *x.shape[1:])
    return torch.from_numpy(images), torch.from_numpy(y.astype(np.int64))
