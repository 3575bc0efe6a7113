"""Schemes that divide a pool of labelled samples among clients.

A scheme is a frozen dataclass with one method ``split(y, n_clients, rng)``.  Every split is a
partition: each sample of the pool goes to exactly one client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

__all__ = [
    "IID",
    "ClassesPerClient",
    "Mavericks",
    "Mixed",
    "QuantitySkew",
    "Scheme",
    "check_labels",
    "check_positive",
    "check_split",
    "cut_by_shares",
    "draw_shares",
    "join_pieces",
]


class Scheme(Protocol):
    """A rule that divides samples among clients."""

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Divide samples among clients.

        Parameters
        ----------
        y : int array (N,)
            Labels, from 0.
        n_clients : int
            Number of clients, at most N.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        list of int64 array
            For each client the sorted positions in `y` that it holds; possibly empty.
        """
        ...


def check_labels(y: np.ndarray) -> np.ndarray:
    """Return labels as int64, or refuse them.

    Raises
    ------
    ValueError
        If they are not a non-empty vector of non-negative integers.
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"labels have shape {labels.shape}; expected a vector of at least one")
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels have dtype {labels.dtype}; expected integers from 0, as in y.astype('int64')"
        )
    labels = labels.astype(np.int64)
    if labels.min() < 0:
        raise ValueError(f"labels contain {labels.min()}; expected integers from 0")
    return labels


def check_split(y: np.ndarray, n_clients: int) -> np.ndarray:
    """Return the labels of a pool as int64, or refuse it for this number of clients."""
    labels = check_labels(y)
    if n_clients < 1:
        raise ValueError(f"n_clients is {n_clients}; expected at least 1")
    if n_clients > len(labels):
        raise ValueError(
            f"n_clients is {n_clients} but there are {len(labels)} samples; take fewer clients or "
            "more data"
        )
    return labels


def check_positive(name: str, value: float) -> None:
    """Refuse a parameter that is not a finite number above 0."""
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; expected a finite number above 0")


def join_pieces(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Join the pieces of each client and sort them."""
    empty = np.empty(0, dtype=np.int64)
    return [np.sort(np.concatenate([empty, *pieces])).astype(np.int64) for pieces in parts]


def cut_by_shares(indices: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Cut indices into pieces whose lengths are in proportion to shares (largest remainder)."""
    exact = shares / shares.sum() * len(indices)
    counts = np.floor(exact).astype(np.int64)
    rest = len(indices) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return np.split(indices, np.cumsum(counts)[:-1])


def draw_shares(concentration: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw shares that sum to one, also where the concentration is so small that they underflow."""
    if len(concentration) == 1:
        return np.ones(1)
    shares = rng.dirichlet(concentration)
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares
    # The limit of a vanishing concentration: all to one, chosen in proportion to it.
    limit = np.zeros(len(concentration))
    limit[rng.choice(len(concentration), p=concentration / concentration.sum())] = 1.0
    return limit


@dataclass(frozen=True)
class IID:
    """Shuffle the pool and deal it out evenly; sizes differ by at most one."""

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        return [np.sort(p) for p in np.array_split(rng.permutation(len(labels)), n_clients)]


@dataclass(frozen=True)
class ClassesPerClient:
    """Each client holds `k` classes; each class is shared evenly by its holders.

    Classes go to clients in turn, always those with the fewest holders (ties at random), so
    the numbers of holders differ by at most one.

    Parameters
    ----------
    k : int
        Classes per client.
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}; expected at least 1 class per client")

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        classes = np.unique(labels)
        if self.k > len(classes):
            raise ValueError(f"k is {self.k} but there are {len(classes)} classes; take fewer")
        if self.k * n_clients < len(classes):
            raise ValueError(
                f"{n_clients} clients of {self.k} classes cannot hold {len(classes)} classes; take "
                "more clients or a larger k"
            )
        holders: list[list[int]] = [[] for _ in classes]
        for client in range(n_clients):
            crowd = np.array([len(h) for h in holders])
            for c in np.lexsort((rng.random(len(classes)), crowd))[: self.k]:
                holders[c].append(client)
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for label, clients in zip(classes, holders, strict=True):
            pieces = np.array_split(rng.permutation(np.flatnonzero(labels == label)), len(clients))
            for client, piece in zip(rng.permutation(clients), pieces, strict=True):
                parts[client].append(piece)
        return join_pieces(parts)


@dataclass(frozen=True)
class QuantitySkew:
    """Unequal sizes with labels drawn alike for all clients.

    Parameters
    ----------
    alpha : float
        Sizes are in proportion to one draw of Dir(alpha) over the clients (Li et al. 2022).
    proportions : tuple of float, optional
        Fixed proportions, one per client, in place of the draw.
    """

    alpha: float = 1.0
    proportions: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        for share in self.proportions or ():
            check_positive("a proportion", share)

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        pool = rng.permutation(len(labels))
        if self.proportions is not None:
            if len(self.proportions) != n_clients:
                raise ValueError(
                    f"proportions has {len(self.proportions)} entries for {n_clients} clients; "
                    "expected one per client"
                )
            shares = np.array(self.proportions)
        else:
            shares = draw_shares(np.full(n_clients, self.alpha), rng)
        return [np.sort(piece) for piece in cut_by_shares(pool, shares)]


@dataclass(frozen=True)
class Mavericks:
    """Some clients alone hold some classes (Huang et al. 2022; FedMS, section 3).

    The Mavericks are the first clients.  Classes held by a Maverick are absent from all others.

    Parameters
    ----------
    n_mavericks : int
        Number of Mavericks.
    classes : tuple of int, optional
        Classes that they hold; default: as many as there are Mavericks, drawn at random.
    others : Scheme
        How the remaining classes are divided.
    shared : bool
        False: classes are dealt to the Mavericks in turn, each class has one holder.  True:
        each of these classes is shared evenly by all Mavericks ("shared Mavericks").
    mixed : bool
        True: the Mavericks also take part in dividing the remaining classes.
    """

    n_mavericks: int = 1
    classes: tuple[int, ...] | None = None
    others: Scheme = field(default_factory=IID)
    shared: bool = False
    mixed: bool = False

    def __post_init__(self) -> None:
        if self.n_mavericks < 1:
            raise ValueError(f"n_mavericks is {self.n_mavericks}; expected at least 1")
        n_held = self.n_mavericks if self.classes is None else len(set(self.classes))
        if not self.shared and n_held < self.n_mavericks:
            raise ValueError(
                f"{self.n_mavericks} Mavericks cannot each hold one of {n_held} classes alone; "
                "name more classes or set shared=True"
            )

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        present = np.unique(labels)
        held = np.array(sorted(set(self.classes or ())), dtype=np.int64)
        if self.classes is None:
            n_held = min(self.n_mavericks, len(present))
            held = np.sort(rng.choice(present, n_held, replace=False))
        absent = np.setdiff1d(held, present)
        if len(absent):
            raise ValueError(f"Maverick classes {absent.tolist()} have no samples; expected some")
        if not self.shared and len(held) < self.n_mavericks:
            raise ValueError(
                f"{self.n_mavericks} Mavericks cannot each hold one of {len(held)} classes alone; "
                "take fewer Mavericks or set shared=True"
            )
        rest = np.flatnonzero(~np.isin(labels, held))
        first = 0 if self.mixed else self.n_mavericks
        if n_clients - first < 1 or not len(rest):
            raise ValueError(
                f"{self.n_mavericks} Mavericks among {n_clients} clients leave no clients or no "
                "classes for the others; take fewer Mavericks"
            )
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for turn, label in enumerate(held):
            members = rng.permutation(np.flatnonzero(labels == label))
            if self.shared:
                for client, piece in enumerate(np.array_split(members, self.n_mavericks)):
                    parts[client].append(piece)
            else:
                parts[turn % self.n_mavericks].append(members)
        for client, piece in enumerate(self.others.split(labels[rest], n_clients - first, rng)):
            parts[first + client].append(rest[piece])
        return join_pieces(parts)


@dataclass(frozen=True)
class Mixed:
    """Groups of clients with different schemes, as in FedTSV's 90 IID and 10 skewed clients.

    The pool is dealt to the groups at random, in proportion to their numbers of clients.

    Parameters
    ----------
    groups : tuple of (int, Scheme)
        Numbers of clients with their scheme, in the order of the clients.
    """

    groups: tuple[tuple[int, Scheme], ...]

    def __post_init__(self) -> None:
        if not self.groups or any(number < 1 for number, _ in self.groups):
            raise ValueError(f"groups is {self.groups}; expected pairs (at least 1 client, scheme)")

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        numbers = np.array([number for number, _ in self.groups])
        if numbers.sum() != n_clients:
            raise ValueError(
                f"groups have {numbers.sum()} clients and n_clients is {n_clients}; make them agree"
            )
        pools = cut_by_shares(rng.permutation(len(labels)), numbers.astype(np.float64))
        parts = []
        for (number, scheme), pool in zip(self.groups, pools, strict=True):
            parts += [np.sort(pool[p]) for p in scheme.split(labels[pool], number, rng)]
        return parts
