"""Which coalitions to look at: complementary pairs, stratified by size, without replacement.

The design of Leverage SHAP (Musco & Witter 2025), with numbers per size that are fixed in
advance.  A stratum holds the pairs of a coalition of `s` players and its complement; from each
a simple random sample is drawn, so a pair's inclusion probability is known (taken / pairs) and
the Horvitz-Thompson estimate of any semivalue is unbiased, with the textbook's variance of a
stratified sample from a finite population (Cochran 1977, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

__all__ = ["PairedDesign", "coefficients"]

Floats = NDArray[np.float64]

FEWEST = 2  # pairs of a stratum: one has no variance


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
    def population(n_players: int) -> list[int]:
        """Pairs with a side of s = 1..n//2 players; with n/2 of them both sides have as many."""
        return [
            comb(n_players, s) // (1 + (2 * s == n_players)) for s in range(1, n_players // 2 + 1)
        ]

    @classmethod
    def minimum(cls, n_players: int) -> int:
        """Distinct evaluations that the smallest design needs, with nobody and everybody."""
        return 2 + 2 * sum(min(pairs, FEWEST) for pairs in cls.population(n_players))

    @classmethod
    def for_budget(cls, n_players: int, budget: int, weights: Floats) -> PairedDesign:
        """Spread `budget` distinct evaluations over the sizes.

        Every stratum gets two pairs; the rest is shared in proportion to what a residual of
        equal spread would do to the estimate (Neyman's allocation), and what a stratum cannot
        take because it is exhausted goes to the others.  Nobody and everybody are part of the
        budget; `weights` are as for :func:`coefficients`.
        """
        n = n_players
        pairs = np.array(cls.population(n), dtype=np.float64)
        s = np.arange(1, n // 2 + 1)
        some = np.arange(n) < s[:, None]  # one coalition of each size stands for all
        square = (coefficients(some, weights) ** 2).sum(axis=1)
        square += (coefficients(~some, weights) ** 2).sum(axis=1)
        share = pairs * np.sqrt(square)
        least, left = np.minimum(pairs, FEWEST), min((budget - 2) // 2, pairs.sum())
        low, high = 0.0, float((pairs[share > 0] / share[share > 0]).max(initial=0.0))
        for _ in range(max(100, n + 64)):  # bisection for the level at which the budget is spent
            level = (low + high) / 2
            spent = np.clip(level * share, least, pairs).sum()
            low, high = (level, high) if spent < left else (low, level)
        taken = np.clip(high * share, least, pairs)
        whole = np.floor(taken + 1e-9).astype(np.int64)
        spare = int(left) - int(whole.sum())
        fraction = np.where(whole < pairs, taken - whole, -1.0)
        for stratum in np.argsort(-fraction, kind="stable")[: max(spare, 0)]:
            whole[stratum] += whole[stratum] < pairs[stratum]
        return cls(n, pairs, whole)

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return one side of each pair, ``bool[K, n]``, and its stratum; in random order within."""
        sides = [
            _subsets(rng, self.n_players, stratum + 1, int(taken))
            for stratum, taken in enumerate(self.taken)
        ]
        none = np.zeros((0, self.n_players), dtype=np.bool_)
        return np.concatenate([none, *sides]), np.repeat(np.arange(len(self.taken)), self.taken)


def _subsets(rng: np.random.Generator, n: int, size: int, count: int) -> NDArray[np.bool_]:
    """Return `count` distinct subsets of a size, uniform; of a half, those that hold player 0."""
    half = 2 * size == n
    there = comb(n, size) // (1 + half)
    if there <= 4 * count:
        chosen = combinations(range(1, n), size - 1) if half else combinations(range(n), size)
        listed = np.fromiter((i for subset in chosen for i in subset), dtype=np.int64)
        members = listed.reshape(there, -1)[rng.permutation(there)[:count]]
        result = np.zeros((count, n), dtype=np.bool_)
        result[np.arange(count)[:, None], members] = True
        result[:, 0] |= half
        return result
    found: dict[bytes, NDArray[np.bool_]] = {}
    while len(found) < count:  # at most a quarter of them: few are drawn twice
        ranks = rng.random((2 * (count - len(found)) + 8, n)).argsort(axis=1)
        for row in np.asarray(ranks < size):
            side = row if not half or row[0] else ~row
            found.setdefault(side.tobytes(), side)
    return np.array(list(found.values())[:count])
