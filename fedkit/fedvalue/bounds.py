"""How likely a falsified count passes: Proposition 2, and what replaces it."""

from __future__ import annotations

import itertools
import math
from collections import Counter as Tally
from collections.abc import Sequence

__all__ = ["best_shift", "known_answers", "per_cell", "proposition_2", "share_known"]


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
        Range of q, both ends included; drawn uniformly, independently for each iteration.
    iterations : int
        tau.
    distinct : bool
        Whether the iterations' q all differ (drawn without replacement).

    Returns
    -------
    probability : float
        Of passing.
    shifts : tuple of int
        What to add in each iteration.
    """
    low, high = duplications
    directions: Tally[tuple[int, ...]] = Tally()
    draws = 0
    for q in itertools.product(range(low, high + 1), repeat=iterations):
        if distinct and len(set(q)) < iterations:
            continue
        common = math.gcd(*q)
        directions[tuple(value // common for value in q)] += 1
        draws += 1
    if not draws:
        raise ValueError(f"{iterations} different q do not fit into {low}..{high}")
    best, hits = max(directions.items(), key=lambda item: (item[1], [-v for v in item[0]]))
    factor = math.lcm(*range(low, high + 1))
    return hits / draws, tuple(factor * value for value in best)


def share_known(rows: int, duplications: int, artificial: int) -> float:
    """Return the share f of artificial IDs among all that the parties have in common."""
    return artificial / (rows * duplications + artificial)


def known_answers(rows: int, duplications: Sequence[int], artificial: Sequence[int]) -> float:
    """Return the bound of the hardened protocol if artificial IDs lie evenly over the task's cells.

    The theorem's f_j is the smallest share of artificial IDs under any token of the task party;
    here it is the overall share, so with uneven or small task cells a server may do better.  To
    change the table by q_j times something without touching a margin, at least 2 q_j IDs of
    iteration j must be counted under other tokens, and none of them may be artificial: the product
    over j of (1 - f_j)^(2 q_j).
    """
    return math.prod(
        (1 - share_known(rows, q, extra)) ** (2 * q)
        for q, extra in zip(duplications, artificial, strict=True)
    )
