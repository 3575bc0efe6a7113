"""What exact counts tell the task party about single people, and three defences.

A cell (x_t, y_t) with one person in it turns every count into a fact about that person: N(x_d,
x_t, y_t) = 1 says which x_d is theirs.  So does any cell of the task party whose people all share
one cell of a data party.  No key is broken for it: it is the protocol's own output.

A table is ``cells``, int64[C, 1 + d], the cell of the task party and of each data party, and
``counts``, int64[C].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.fedvalue.protocol.counting import count_tuples

__all__ = ["Leak", "claims", "geometric_noise", "measure", "suppress", "with_decoys"]

Codes = npt.NDArray[np.int64]
Counts = tuple[Codes, npt.NDArray[np.int64]]

#: joint cells, empty ones included, to which noise is added at most
MOST_CELLS = 5_000_000


def claims(cells: Codes, counts: npt.NDArray[np.int64]) -> Codes:
    """Return what the task party can conclude from a table, ``int64[T, d]``.

    For each cell of the task party (0, ..., the largest that occurs) and each data party: the one
    cell that all its people share, or -1 where there are several or nobody.
    """
    here = counts > 0
    cells = cells[here]
    tasks = int(cells[:, 0].max(initial=-1)) + 1
    found = np.full((tasks, cells.shape[1] - 1), -1, dtype=np.int64)
    for d in range(cells.shape[1] - 1):
        pairs, _ = count_tuples([cells[:, 0], cells[:, 1 + d]], counts[here])
        alone = np.bincount(pairs[:, 0], minlength=tasks)[pairs[:, 0]] == 1
        found[pairs[alone, 0], d] = pairs[alone, 1]
    return found


@dataclass(frozen=True)
class Leak:
    """How much a table gives away.

    Attributes
    ----------
    unique : float
        Share of people who are alone in their cell of the task party.
    claimed, revealed : float
        Share of (person, data party) of whom the task party concludes the cell; and rightly so.
    right : float
        Share of these conclusions that are true; NaN without any.
    """

    unique: float
    claimed: float
    right: float
    revealed: float


def measure(
    task: Codes, parties: Sequence[Codes], cells: Codes, counts: npt.NDArray[np.int64]
) -> Leak:
    """Let the task party conclude what it can about its own rows, and mark it with the truth.

    `task` is the cell (x_t, y_t) of each person, `parties` the true cells at each data party,
    numbered as in the table that the task party was given.
    """
    known = claims(cells, counts)
    said = np.full((len(task), len(parties)), -1)
    inside = task < len(known)
    said[inside] = known[task[inside]]
    true = said == np.stack(parties, axis=1)
    claimed, revealed = float((said >= 0).mean()), float(true.mean())
    size = np.bincount(task)[task]
    right = revealed / claimed if claimed else math.nan
    return Leak(float((size == 1).mean()), claimed, right, revealed)


def suppress(cells: Codes, counts: npt.NDArray[np.int64], minimum: int) -> Counts:
    """Leave out joint cells with fewer than `minimum` people, before the task party looks."""
    kept = counts >= minimum
    return cells[kept], counts[kept]


def geometric_noise(
    cells: Codes, counts: npt.NDArray[np.int64], epsilon: float, rng: np.random.Generator,
    sizes: Sequence[int] | None = None,
) -> Counts:  # fmt: skip
    """Add two-sided geometric noise to every joint cell, empty ones too; negative counts become 0.

    ``P(k)`` is proportional to ``exp(-epsilon * abs(k))`` (Ghosh et al. 2009).  With `sizes`, how
    many cells the task party and each data party could have by a public rule that also numbers
    them, the result is epsilon-differentially private for adding or removing a person.  By default
    the sizes are those that occur, and the guarantee holds for people with company in each party's
    cell only.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be above 0")
    least = [int(column.max(initial=-1)) + 1 for column in cells.T]
    sizes = least if sizes is None else list(sizes)
    if len(sizes) != len(least) or any(m < n for m, n in zip(sizes, least, strict=False)):
        raise ValueError(
            f"sizes is {sizes}; the cells need at least {least}, a number for each party"
        )
    if math.prod(sizes) > MOST_CELLS:
        raise ValueError(
            f"there are {math.prod(sizes)} joint cells, empty ones included; noise on all of them "
            f"is refused beyond {MOST_CELLS}: use fewer parties or bins"
        )
    full = np.zeros(sizes, dtype=np.int64)
    full[tuple(cells.T)] = counts
    p = 1 - math.exp(-epsilon)
    full += rng.geometric(p, sizes) - rng.geometric(p, sizes)
    left = np.argwhere(full > 0)
    return left.astype(np.int64), full[tuple(left.T)]


def with_decoys(
    codes: tuple[Any, Any, Sequence[Any]], per_cell: int, rng: np.random.Generator
) -> tuple[Codes, Codes, list[Codes]]:
    """Append people who do not exist: `per_cell` of them to every cell of the task party.

    The parties run the protocol on more rows (the last), under IDs that all agree on; every check
    works.  Each data party draws its decoys' cells from its own rows, independently of the others,
    and tells nobody.  So decoys do not have the real people's joint distribution: values lose what
    parties know in common, and a decoy may stand out by its combination of cells.

    `codes` and what is returned are as :meth:`~fedkit.fedvalue.data.VerticalData.codes` gives them.
    """
    x_task, y, parties = (np.asarray(codes[0]), np.asarray(codes[1]), codes[2])
    own = np.unique(np.stack([x_task, y]), axis=1)
    extra = np.repeat(own, per_cell, axis=1)
    columns = [np.asarray(column) for column in parties]
    drawn = [column[rng.integers(0, len(column), extra.shape[1])] for column in columns]
    return (
        np.concatenate([x_task, extra[0]]),
        np.concatenate([y, extra[1]]),
        [np.concatenate(pair) for pair in zip(columns, drawn, strict=True)],
    )
