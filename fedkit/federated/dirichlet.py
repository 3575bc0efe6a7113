"""Label skew by Dirichlet draws: three procedures that the literature calls by one name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedkit.federated.schemes import (
    check_positive,
    check_split,
    cut_by_shares,
    draw_shares,
    join_pieces,
)

__all__ = ["Dirichlet"]


@dataclass(frozen=True)
class Dirichlet:
    """Label skew by Dirichlet draws.

    Parameters
    ----------
    alpha : float
        Concentration; small is skewed.
    by : {"class", "client", "blocks"}
        What is drawn.

        ``"class"`` draws for each class its shares over the clients, Dir(alpha) over n
        clients (Yurochkin et al. 2019).  Labels and sizes are both skewed; with many clients
        and a small alpha most of them are empty.

        ``"client"`` gives all clients the same size (to one sample) and draws for each its
        distribution of labels, Dir(alpha * C * p) over C classes with p the class frequencies
        of the pool (Hsu et al. 2019; with p uniform this is Dir(alpha, ..., alpha)).  Clients
        fill up in random order without replacement; what a client wants and the pool no longer
        has is drawn from the rest of its distribution, and from the rest of the pool when
        nothing else is left.

        ``"blocks"`` is the procedure of CReFF (Shang et al. 2022, the source of FedOwen's long
        tail): random blocks of ten clients, a capped draw by class inside each block, then the
        blocks in line are cut into equal parts.  CReFF repeats a draw until each client has
        half the mean size, which need not end at a small alpha in a long tail; we keep the best
        of `attempts` draws.
    capped : bool
        With ``by="class"``: a client that has reached N/n samples takes part in no further
        class.  The Dirichlet over the remaining clients is that of the open ones, renormalised.
        One class can still carry a client beyond N/n.  Implied by ``"blocks"``; no meaning for
        ``"client"``, whose sizes are equal already.
    attempts : int
        With ``by="blocks"``: draws made per block.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    alpha: float
    by: Literal["class", "client", "blocks"] = "class"
    capped: bool = False
    attempts: int = 20

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        if self.by not in ("class", "client", "blocks"):
            raise ValueError(f"by is {self.by!r}; expected 'class', 'client' or 'blocks'")
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; expected at least 1")

    def split(self, y: np.ndarray, n_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """See :meth:`Scheme.split`."""
        labels = check_split(y, n_clients)
        if self.by == "client":
            return self._by_client(labels, n_clients, rng)
        if self.by == "blocks":
            return self._by_blocks(labels, n_clients, rng)
        return join_pieces(
            self._by_class(labels, rng.permutation(len(labels)), n_clients, self.capped, rng)
        )

    def _by_class(
        self,
        labels: np.ndarray,
        pool: np.ndarray,
        n_clients: int,
        capped: bool,
        rng: np.random.Generator,
    ) -> list[list[np.ndarray]]:
        """Divide a shuffled pool class by class; returns the pieces in the order of dealing."""
        parts: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
        sizes = np.zeros(n_clients, dtype=np.int64)
        limit = len(pool) / n_clients
        for label in np.unique(labels[pool]):
            members = pool[labels[pool] == label]
            # Someone is below the mean as long as a sample is left, so `open_` is never empty.
            open_ = np.flatnonzero(sizes < limit) if capped else np.arange(n_clients)
            shares = draw_shares(np.full(len(open_), self.alpha), rng)
            for client, piece in zip(open_, cut_by_shares(members, shares), strict=True):
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
            wish = draw_shares(concentration, rng)
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
        return join_pieces(parts)

    def _by_blocks(
        self, labels: np.ndarray, n_clients: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        members = [len(b) for b in np.array_split(np.arange(n_clients), -(-n_clients // 10))]
        pools = cut_by_shares(rng.permutation(len(labels)), np.array(members, dtype=np.float64))
        line: list[np.ndarray] = []
        for n_members, pool in zip(members, pools, strict=True):
            best: list[list[np.ndarray]] = []
            smallest = -1
            for _ in range(self.attempts):
                draw = self._by_class(labels, pool, n_members, True, rng)
                size = min(sum(map(len, pieces)) for pieces in draw)
                if size > smallest:
                    best, smallest = draw, size
                if smallest >= len(pool) // (2 * n_members):
                    break
            line += [piece for pieces in best for piece in pieces]
        return [np.sort(part) for part in np.array_split(np.concatenate(line), n_clients)]
