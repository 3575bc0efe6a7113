"""How likely a falsified count passes: Proposition 2, and what replaces it."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter as Tally
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["best_shift", "known_answers", "per_cell", "proposition_2", "share_known", "spread"]


def proposition_2(duplications: int, iterations: int, cells: int) -> float:
    """Return the paper's bound: min(q) to the power of -tau times all cells (Eq. 15)."""
    return float(duplications) ** -(iterations * cells)


def per_cell(duplications: int, iterations: int) -> float:
    """Return min(q)^-tau: the step of the paper's proof for one cardinality."""
    return float(duplications) ** -iterations


def best_shift(
    duplications: tuple[int, int], iterations: int, *, distinct: bool = False
) -> tuple[float, tuple[int, ...]]:
    """Return the best that a server can do which knows the range of q and nothing else.

    A shift of one count by d_j in iteration j passes all three checks if and only if d_j / q_j is
    the same whole number in every iteration, so the server bets on the *direction* of (q_1, ...,
    q_tau) and shifts by a multiple of it that every q divides.

    Parameters
    ----------
    duplications : (int, int)
        Range of q, both ends included; drawn uniformly, independently for each iteration, or with
        `distinct` without replacement.
    iterations : int
        tau.

    Returns
    -------
    float, tuple of int
        The probability of passing, and what to add in each iteration.
    """
    low, high = duplications
    draws: Iterable[tuple[int, ...]] = itertools.product(range(low, high + 1), repeat=iterations)
    if distinct:
        draws = itertools.permutations(range(low, high + 1), iterations)
    directions = Tally(tuple(value // math.gcd(*q) for value in q) for q in draws)
    if not directions:
        raise ValueError(f"{iterations} different q do not fit into {low}..{high}")
    best, hits = max(directions.items(), key=lambda item: (item[1], [-v for v in item[0]]))
    factor = math.lcm(*range(low, high + 1))
    return hits / directions.total(), tuple(factor * value for value in best)


def spread(artificial: int, sizes: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Allocate artificial IDs to cells so that the smallest share of them is as large as can be.

    Adams' rule: the next ID goes where there are fewest per row; larger cells first among equals.
    `sizes` are the rows in each cell, at least one; ``int64[T]``, as what is returned.
    """
    rows = np.asarray(sizes, dtype=np.int64)
    # rounded up, this part is never too many; what is left, fewer than the cells, goes one by one
    sure = max(0, artificial - len(rows))
    given = -(-rows * sure // rows.sum())
    queue = [(g / n, -n, t) for t, (g, n) in enumerate(zip(given, rows, strict=True))]
    heapq.heapify(queue)
    for _ in range(artificial - int(given.sum())):
        t = queue[0][2]
        given[t] += 1
        heapq.heapreplace(queue, (given[t] / rows[t], -rows[t], t))
    return given


def share_known(sizes: Sequence[int], duplications: int, artificial: int) -> float:
    """Return f: the smallest share of artificial IDs of one task cell, as :func:`spread` gives."""
    given, rows = spread(artificial, sizes), np.asarray(sizes, dtype=np.int64)
    return float((given / (rows * duplications + given)).min())


def known_answers(
    sizes: Sequence[int], duplications: Sequence[int], artificial: Sequence[int]
) -> float:
    """Return the bound of the hardened protocol: the product over j of (1 - f_j)^(2 q_j).

    To change the table by q_j times something without touching a margin, at least 2 q_j IDs of
    iteration j must be counted under other tokens, and none of them may be artificial.  Those of
    one task cell are artificial with probability f_j at least (:func:`share_known`).
    """
    return math.prod(
        (1 - share_known(sizes, q, extra)) ** (2 * q)
        for q, extra in zip(duplications, artificial, strict=True)
    )
