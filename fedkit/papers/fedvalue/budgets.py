"""Which data parties a budget pays: prices, selection by score, and who is among the paid.

Sets of parties are masks: bit i of the whole number is party i.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import numpy.typing as npt

__all__ = [
    "BUDGETS",
    "MOST_PARTIES",
    "SCHEMES",
    "affordable",
    "greedy",
    "members",
    "odd_share",
    "prices",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: incentives of section 6: the same for all, or twice as much for a high volume
SCHEMES = ("fix", "var")
#: in units of alpha
BUDGETS = (1, 2, 3)
#: ties are broken in every order, so there must not be too many
MOST_PARTIES = 7


def prices(high: BoolArray, scheme: str) -> IntArray:
    """Return what each party asks, in units of alpha: FIX 1, VAR 1 or 2 by volume.

    Raises
    ------
    ValueError
        If the scheme is unknown.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}; choose from {SCHEMES}")
    return np.where(high & (scheme == "var"), 2, 1).astype(np.int64)


def greedy(
    scores: FloatArray, price: IntArray, budget: int, *, worthless: bool = True
) -> dict[int, float]:
    """Select parties by falling score until nothing more can be paid.

    A party that cannot be paid any more is passed over and the next one is looked at: in the
    paper's tables VOLUME with 2 alpha under VAR does as well as with alpha under FIX, and with
    alpha under VAR as badly as RANDOM, which no other rule explains.

    Parameters
    ----------
    scores : float64[d]
        Equal ones (to twelve digits of the largest) come in random order.
    price : int64[d]
    budget : int
    worthless : bool
        Whether a party of score 0 or less is paid too while money is left, as the paper's "until
        the budget is used up" has it.

    Returns
    -------
    dict of int to float
        Probability of each set of parties; bit i of the key is party i.
    """
    d = len(scores)
    if len(price) != d or not 1 <= d <= MOST_PARTIES:
        raise ValueError(
            f"{d} scores and {len(price)} prices; one of each for 1 to {MOST_PARTIES} parties "
            "is expected"
        )
    if not np.isfinite(scores).all():
        raise ValueError(f"scores are {scores.tolist()}; finite numbers are expected")
    scale = float(np.abs(scores).max()) or 1.0
    rounded = np.round(scores / scale, 12)
    ties = len(np.unique(rounded)) < d
    orders = itertools.permutations(range(d)) if ties else [tuple(range(d))]
    found: Counter[int] = Counter()
    for first in orders:
        left, chosen = budget, 0
        for i in sorted(first, key=lambda i: -rounded[i]):
            if price[i] <= left and (worthless or rounded[i] > 0):
                left, chosen = left - int(price[i]), chosen | 1 << i
        found[chosen] += 1
    return {mask: count / found.total() for mask, count in sorted(found.items())}


def affordable(price: IntArray, budget: int) -> list[int]:
    """Return every set of parties that the budget pays, as masks."""
    d = len(price)
    return [m for m in range(1 << d) if sum(int(price[i]) for i in members(m)) <= budget]


def members(mask: int) -> list[int]:
    """Return the parties of a mask, ascending."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def odd_share(selected: dict[int, float], odd: BoolArray) -> float:
    """Return RPSP or FRSP: the mean share of odd parties among those selected (0 of none)."""
    return sum(p * float(odd[members(mask)].mean()) for mask, p in selected.items() if mask)
