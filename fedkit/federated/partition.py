"""Partitioners: each sample of a labelled pool goes to exactly one client.

What happens before and after is here too: hold out, thin to a long tail, mend empty clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from fedkit.checks import choice, flag, having, real, vector, warn, whole

#: draws of a block of clients, of which ``Dirichlet(by="blocks")`` keeps the most even
_ATTEMPTS = 20


class Partitioner(Protocol):
    """Divides a pool among clients."""

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """For each client the sorted positions in `y`, labels int[N] from 0, that it holds."""


def _join_pieces(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Join the pieces of each client and sort them."""
    empty = np.empty(0, dtype=np.int64)
    return [np.sort(np.concatenate([empty, *pieces])) for pieces in parts]


def _largest_remainder(exact: np.ndarray, total: int) -> np.ndarray:
    """Round numbers that sum to `total` to whole numbers that do."""
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def _cut_by_shares(indices: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Cut indices into pieces whose lengths are in proportion to shares."""
    lengths = _largest_remainder(shares / shares.sum() * len(indices), len(indices))
    return np.split(indices, np.cumsum(lengths)[:-1])


def _draw_shares(concentration: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw shares that sum to one; of one share there is nothing to draw."""
    return rng.dirichlet(concentration) if len(concentration) > 1 else np.ones(1)


@dataclass(frozen=True)
class IID:
    """Shuffle the pool and deal it out evenly; sizes differ by at most one."""

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return [np.sort(p) for p in np.array_split(rng.permutation(len(y)), n_clients)]


@dataclass(frozen=True)
class Dirichlet:
    """Label skew by Dirichlet draws.

    Parameters
    ----------
    alpha : float
        Concentration; small is skewed.
    by : {"class", "capped", "client", "blocks"}
        ``"class"``: for each class its shares over the clients (Yurochkin et al. 2019).
        ``"capped"``: a client that has N/n samples takes part in no further class.
        ``"client"``: for each client, of equal sizes, its labels (Hsu et al. 2019), Dir(alpha C p)
        over C classes of frequencies p.  ``"blocks"``: capped draws in random blocks of ten,
        then cut into equal parts (Shang et al. 2022); the most even of 20 draws is kept.
    """

    alpha: float
    by: Literal["class", "capped", "client", "blocks"] = "class"

    def __post_init__(self) -> None:
        real("alpha", self.alpha, 0.0, 1e12, above=True)
        choice("by", self.by, ("class", "capped", "client", "blocks"))

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        if self.by == "client":
            return self._by_client(y, n_clients, rng)
        if self.by == "blocks":
            return self._by_blocks(y, n_clients, rng)
        return _join_pieces(self._by_class(y, rng.permutation(len(y)), n_clients, rng))

    def _by_class(
        self, labels: np.ndarray, pool: np.ndarray, n_clients: int, rng: np.random.Generator
    ) -> list[list[np.ndarray]]:
        """Divide a shuffled pool class by class, into pieces in the order of dealing."""
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        sizes = np.zeros(n_clients, dtype=np.int64)
        # Someone is below the mean as long as a sample is left, so somebody is always open.
        limit = np.inf if self.by == "class" else len(pool) / n_clients
        for label in np.unique(labels[pool]):
            open_ = np.flatnonzero(sizes < limit)
            shares = _draw_shares(np.full(len(open_), self.alpha), rng)
            pieces = _cut_by_shares(pool[labels[pool] == label], shares)
            for client, piece in zip(open_, pieces, strict=True):
                parts[client].append(piece)
                sizes[client] += len(piece)
        return parts

    def _by_client(
        self, labels: np.ndarray, n_clients: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        classes, counts = np.unique(labels, return_counts=True)
        queues = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
        remaining = counts.astype(np.int64)
        concentration = self.alpha * len(classes) * counts / counts.sum()
        sizes = np.full(n_clients, len(labels) // n_clients)
        sizes[: len(labels) % n_clients] += 1
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for client in rng.permutation(n_clients):
            wish = _draw_shares(concentration, rng)
            need = int(sizes[client])
            while need:
                chances = wish * (remaining > 0)
                if chances.sum() < 1e-12:
                    chances = remaining.astype(np.float64)
                take = np.minimum(rng.multinomial(need, chances / chances.sum()), remaining)
                for c in np.flatnonzero(take):
                    start = len(queues[c]) - remaining[c]
                    parts[client].append(queues[c][start : start + take[c]])
                remaining -= take
                need -= int(take.sum())
        return _join_pieces(parts)

    def _by_blocks(
        self, labels: np.ndarray, n_clients: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        members = [len(b) for b in np.array_split(np.arange(n_clients), -(-n_clients // 10))]
        pools = _cut_by_shares(rng.permutation(len(labels)), np.array(members, dtype=np.float64))
        line: list[np.ndarray] = []
        for n_members, pool in zip(members, pools, strict=True):
            best: list[list[np.ndarray]] = []
            smallest = -1
            for _ in range(_ATTEMPTS):
                draw = self._by_class(labels, pool, n_members, rng)
                size = min(sum(map(len, pieces)) for pieces in draw)
                if size > smallest:
                    best, smallest = draw, size
                if smallest >= len(pool) // (2 * n_members):
                    break
            line += [piece for pieces in best for piece in pieces]
        return [np.sort(part) for part in np.array_split(np.concatenate(line), n_clients)]


@dataclass(frozen=True)
class ClassesPerClient:
    """Each client holds `k` classes; each class is shared evenly by its holders."""

    k: int

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        classes = np.unique(y)
        if not self.k <= len(classes) <= self.k * n_clients:
            raise ValueError(
                f"k is {self.k} for {n_clients} clients and {len(classes)} classes; expected at "
                "most so many, and enough to hold all"
            )
        holders: list[list[int]] = [[] for _ in classes]
        for client in range(n_clients):
            crowd = np.array([len(h) for h in holders])  # the least held come first, ties at random
            for c in np.lexsort((rng.random(len(classes)), crowd))[: self.k]:
                holders[c].append(client)
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for label, clients in zip(classes, holders, strict=True):
            pieces = np.array_split(rng.permutation(np.flatnonzero(y == label)), len(clients))
            for client, piece in zip(rng.permutation(clients), pieces, strict=True):
                parts[client].append(piece)
        return _join_pieces(parts)


@dataclass(frozen=True)
class QuantitySkew:
    """Unequal sizes by one draw of Dir(alpha) (Li et al. 2022), or by fixed `proportions`."""

    alpha: float = 1.0
    proportions: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        real("alpha", self.alpha, 0.0, 1e12, above=True)

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        pool = rng.permutation(len(y))
        if self.proportions is None:
            shares = _draw_shares(np.full(n_clients, self.alpha), rng)
        else:
            shares = vector("proportions", self.proportions, n_clients)
            if not (shares > 0).all():
                raise ValueError(f"proportions is {self.proportions}; expected numbers above 0")
            shares = shares / shares.max()  # whose sum is finite
        return [np.sort(piece) for piece in _cut_by_shares(pool, shares)]


@dataclass(frozen=True)
class Mavericks:
    """Some clients, the first ones, alone hold some classes (Huang et al. 2022; FedMS, section 3).

    Parameters
    ----------
    n_mavericks : int
        As many classes, drawn at random, are theirs, and absent from all others.
    others : Partitioner
        How the remaining classes are divided.
    shared : bool
        False: one class for each.  True: each of the classes is shared evenly by all Mavericks.
    mixed : bool
        True: the Mavericks also take part in dividing the remaining classes.
    """

    n_mavericks: int = 1
    others: Partitioner = field(default_factory=IID)
    shared: bool = False
    mixed: bool = False

    def __post_init__(self) -> None:
        whole("n_mavericks", self.n_mavericks, 1)
        having("others", self.others, "split")
        flag("shared", self.shared)
        flag("mixed", self.mixed)

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        present, first = np.unique(y), 0 if self.mixed else self.n_mavericks
        few = n_clients - first < 1 or n_clients < self.n_mavericks
        if few or len(present) <= self.n_mavericks:
            raise ValueError(f"n_mavericks is {self.n_mavericks}: they leave no clients or classes")
        held = np.sort(rng.choice(present, self.n_mavericks, replace=False))
        rest = np.flatnonzero(~np.isin(y, held))
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        for owner, label in enumerate(held):
            members = rng.permutation(np.flatnonzero(y == label))
            if self.shared:
                for client, piece in enumerate(np.array_split(members, self.n_mavericks)):
                    parts[client].append(piece)
            else:
                parts[owner].append(members)
        for client, piece in enumerate(self.others.split(y[rest], n_clients - first, rng)):
            parts[first + client].append(rest[piece])
        return _join_pieces(parts)


@dataclass(frozen=True)
class Mixed:
    """Groups of so many clients with a partitioner each (FedTSV: 90 IID and 10 skewed ones)."""

    groups: tuple[tuple[int, Partitioner], ...]

    def __post_init__(self) -> None:
        for number, partitioner in self.groups:
            whole("a number of clients in groups", number, 1)
            having("a partitioner in groups", partitioner, "split")

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        numbers = np.array([number for number, _ in self.groups])
        if numbers.sum() != n_clients:
            raise ValueError(f"groups have {numbers.sum()} clients and n_clients is {n_clients}")
        pools = _cut_by_shares(rng.permutation(len(y)), numbers.astype(np.float64))
        parts = []
        for (number, partitioner), pool in zip(self.groups, pools, strict=True):
            parts += [np.sort(pool[p]) for p in partitioner.split(y[pool], number, rng)]
        return parts


def hold_out(
    y: np.ndarray, fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted positions in `y` that stay for training, and a held out fraction.

    Class c gives max(1, its share of round(fraction * N)) images, but never its only one.
    """
    if not 0 < real("validation", fraction) < 1:
        raise ValueError(f"validation fraction is {fraction}; expected above 0 and below 1")
    classes, counts = np.unique(y, return_counts=True)
    total = max(1, round(fraction * len(y)))
    quota = _largest_remainder(total * counts / len(y), total)
    quota = np.minimum(np.maximum(quota, 1), counts - 1)
    chosen = [
        rng.permutation(np.flatnonzero(y == c))[:q] for c, q in zip(classes, quota, strict=True)
    ]
    held = np.sort(np.concatenate(chosen)).astype(np.int64)
    absent = np.setdiff1d(classes, y[held]).tolist()
    if absent:
        warn(f"classes {absent} have no validation image; hold out a larger fraction")
    return np.setdiff1d(np.arange(len(y)), held), held


def long_tail(y: np.ndarray, imbalance_factor: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted positions that stay where the class of rank r among C keeps a part of labels int[N].

    ``floor(N / C * factor ** (r / (C - 1)))`` images, at least one (CReFF, Shang et al. 2022).
    """
    real("imbalance_factor", imbalance_factor, 0.0, 1.0, above=True)
    classes = np.unique(y)
    n_max = len(y) / len(classes)
    kept = []
    for rank, label in enumerate(classes):
        target = n_max * imbalance_factor ** (rank / max(len(classes) - 1, 1))
        # The small term keeps a whole number whole when the power is a rounding below it.
        members = rng.permutation(np.flatnonzero(y == label))
        kept.append(members[: max(1, int(target + 1e-9))])
    return np.sort(np.concatenate(kept)).astype(np.int64)


def fill_empty(
    parts: Sequence[np.ndarray],
    rule: Literal["keep", "refill"],
    rng: np.random.Generator,
    min_size: int = 1,
) -> list[np.ndarray]:
    """Leave parts below `min_size` ("keep"), or move random samples there from the largest."""
    sizes = np.array([len(p) for p in parts])
    if rule == "keep" or sizes.min() >= min_size:
        return list(parts)
    if sizes.sum() < min_size * len(parts):
        raise ValueError(f"{sizes.sum()} samples are too few: {min_size} for each of {len(parts)}")
    held = [list(rng.permutation(p)) for p in parts]
    while sizes.min() < min_size:
        poorest, richest = int(np.argmin(sizes)), int(np.argmax(sizes))
        held[poorest].append(held[richest].pop())
        sizes[poorest] += 1
        sizes[richest] -= 1
    return [np.sort(np.array(h, dtype=np.int64)) for h in held]
