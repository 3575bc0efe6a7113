"""Which coalitions to look at: complementary pairs, stratified by size, without replacement.

The design of Leverage SHAP (Musco & Witter 2025), with numbers per size that are fixed in
advance.  A stratum holds the pairs of a coalition of `s` players and its complement; from each
a simple random sample is drawn, so a pair's inclusion probability is known (taken / pairs) and
the Horvitz-Thompson estimate of any semivalue is unbiased, with the textbook's variance of a
stratified sample from a finite population (Cochran 1977, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

__all__ = ["PairedDesign", "coefficients"]

Floats = NDArray[np.float64]

FEWEST = 2  # pairs of a stratum: one has no variance
SINGLES = 8  # single players are all taken where they are at most this part of the pairs


def coefficients(coalitions: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return ``a[B, n]`` with ``value_i = sum over all S of a_i(S) v(S)`` for a semivalue.

    `weights` are those of a marginal by the size of the coalition that is joined (0..n-1): a
    member `i` of `S` has ``weights[s - 1]``, everybody else ``-weights[s]``.
    """
    sizes = coalitions.sum(axis=1)[:, None]
    padded = np.concatenate([[0.0], weights, [0.0]])
    return np.where(coalitions, padded[sizes], -padded[sizes + 1])


@dataclass(frozen=True, eq=False)
class PairedDesign:
    """How many complementary pairs to take of each size, a stratum for s = 1..n//2."""

    n_players: int
    pairs: Floats  # [strata], that there are
    taken: NDArray[np.int64]  # [strata], to draw

    @staticmethod
    def population(n_players: int) -> Floats:
        """Pairs with a side of s = 1..n//2 players; with n/2 of them both sides have as many."""
        n = n_players
        pairs = [comb(n, s) // (1 + (2 * s == n)) for s in range(1, n // 2 + 1)]
        return np.array(pairs, dtype=np.float64)

    @classmethod
    def minimum(cls, n_players: int) -> int:
        """Distinct evaluations that the smallest design needs, with nobody and everybody."""
        return 2 + 2 * int(np.minimum(cls.population(n_players), FEWEST).sum())

    @classmethod
    def for_budget(cls, n_players: int, budget: int, weights: Floats) -> PairedDesign:
        """Spread `budget` distinct evaluations, nobody and everybody included, over the sizes.

        One pair after another goes where it lowers the variance most if residuals have equal spread
        (Neyman's allocation in whole numbers, Wright 2012); `weights` are as for
        :func:`coefficients`.
        """
        n, pairs = n_players, cls.population(n_players)
        some = np.arange(n) < np.arange(1, n // 2 + 1)[:, None]  # of each size one stands for all
        square = coefficients(some, weights) ** 2 + coefficients(~some, weights) ** 2
        spread = pairs * np.sqrt(square.sum(axis=1))
        left = (budget - 2) // 2
        taken = np.minimum(pairs, FEWEST).astype(np.int64)
        if SINGLES * n <= left:
            taken[:1] = pairs[:1]  # who is alone is like nobody else, whatever the weights

        def wanted(s: int) -> tuple[float, int]:
            there = taken[s] < pairs[s]
            return (-spread[s] / float(taken[s] * (taken[s] + 1)) ** 0.5 if there else np.inf), s

        queue = [wanted(s) for s in range(len(pairs))]
        heapify(queue)
        for _ in range(min(left, int(pairs.sum())) - int(taken.sum())):
            s = queue[0][1]
            taken[s] += 1
            heapreplace(queue, wanted(s))
        return cls(n, pairs, taken)

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return one side of each pair, ``bool[K, n]``, and its stratum; in random order within."""
        sides = [np.zeros((0, self.n_players), dtype=np.bool_)]
        for stratum, taken in enumerate(self.taken):
            sides.append(_subsets(rng, self.n_players, stratum + 1, int(taken)))
        return np.concatenate(sides), np.repeat(np.arange(len(self.taken)), self.taken)


def _subsets(rng: np.random.Generator, n: int, size: int, count: int) -> NDArray[np.bool_]:
    """Return `count` distinct subsets of a size, uniform; of a half, those that hold player 0."""
    half = 2 * size == n
    there = comb(n, size) // (1 + half)
    if there <= 4 * count:  # in the order of `combinations` those that hold player 0 come first
        listed = np.array(list(islice(combinations(range(n), size), there)))
        found = np.zeros((there, n), dtype=np.bool_)
        found[np.arange(there)[:, None], listed] = True
    else:  # few are drawn twice
        found = np.zeros((0, n), dtype=np.bool_)
        while len(found) < count:
            ranks = rng.random((2 * (count - len(found)) + 8, n)).argsort(axis=1)
            more = ranks < size
            more ^= half & ~more[:, :1]
            found = np.unique(np.concatenate([found, more]), axis=0)
    return np.asarray(found[rng.permutation(len(found))[:count]])
