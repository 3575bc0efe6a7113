"""Which coalitions to look at: complementary pairs, stratified by size, without replacement.

The design of Leverage SHAP (Musco & Witter 2025), with numbers per size that are fixed in
advance.  A stratum holds the pairs of a coalition of s = 1..n//2 players and its complement; from
each a simple random sample is drawn (Cochran 1977, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

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
    """How many complementary pairs to take of each size."""

    n_players: int
    pairs: Floats  # [strata], that there are
    taken: NDArray[np.int64]  # [strata], to draw

    @classmethod
    def smallest(cls, n_players: int) -> PairedDesign:
        """Take two pairs of each size, or the one that there is."""
        n = n_players  # with n/2 players both sides of a pair have as many
        pairs = [comb(n, s) // (1 + (2 * s == n)) for s in range(1, n // 2 + 1)]
        return cls(n, np.array(pairs, dtype=np.float64), np.minimum(pairs, FEWEST).astype(np.int64))

    @classmethod
    def for_budget(cls, n_players: int, budget: int, weights: Floats) -> PairedDesign:
        """Spread `budget` distinct evaluations, nobody and everybody included, over the sizes.

        One pair after another goes where it lowers the variance most if residuals have equal spread
        (Neyman's allocation in whole numbers, Wright 2012); `weights` are as for
        :func:`coefficients`.
        """
        n, design = n_players, cls.smallest(n_players)
        pairs, taken, left = design.pairs, design.taken, (budget - 2) // 2
        if SINGLES * n <= left:
            taken[:1] = pairs[:1]  # who is alone is like nobody else, whatever the weights
        some = np.arange(n) < np.arange(1, n // 2 + 1)[:, None]  # of each size one stands for all
        square = coefficients(some, weights) ** 2 + coefficients(~some, weights) ** 2
        step = np.arange(1.0, left + 1)  # pairs of a size before another one is taken
        gain = (pairs * np.sqrt(square.sum(axis=1)))[:, None] / np.sqrt(step * (step + 1))
        gain[(step < taken[:, None]) | (step >= pairs[:, None])] = -1.0
        more = min(left, int(pairs.sum())) - taken.sum()
        best = np.argsort(-gain, axis=None, kind="stable")[:more]
        return replace(design, taken=taken + np.bincount(best // left, minlength=len(pairs)))

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return one side of each pair, ``bool[K, n]``, and its stratum; in random order within."""
        n, none = self.n_players, np.zeros((0, self.n_players), dtype=np.bool_)
        sides = [_subsets(rng, n, s, int(taken)) for s, taken in enumerate(self.taken, 1)]
        return np.concatenate([none, *sides]), np.repeat(np.arange(len(sides)), self.taken)


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
