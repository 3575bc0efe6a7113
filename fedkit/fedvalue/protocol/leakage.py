"""What exact counts tell the task party about single people, and three defences.

People of the task party's cell (x_t, y_t) who all share one cell of a data party are known to be in
it; no key is broken for that.  A table is ``cells``, int64[C, 1 + d], the cell of the task party
and of each data party, and ``counts``, int64[C].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.checks import Bools, Ints
from fedkit.fedvalue.protocol.counting import count_tuples

Counts = tuple[Ints, Ints]


def claims(cells: Ints, counts: Ints, sizes: Sequence[int] | Ints) -> tuple[Ints, Bools]:
    """Return what the task party makes of a table of exact counts, some of which may be missing.

    `sizes` are the rows in each of its cells, ``int64[T]``, which it knows by itself.  Returned
    are, for each of its cells and each data party (``[T, d]``), the cell that most of the people
    left there have, the first of several, or -1 where nobody is left; and whether that is certain:
    all rows are there, and in one cell of the data party.
    """
    rows = np.asarray(sizes, dtype=np.int64)
    here = counts > 0
    cells, counts = cells[here], counts[here]
    left = np.bincount(cells[:, 0], weights=counts, minlength=len(rows))
    best = np.full((len(rows), cells.shape[1] - 1), -1, dtype=np.int64)
    certain = np.zeros(best.shape, dtype=bool)
    for d in range(best.shape[1]):
        pairs, many = count_tuples([cells[:, 0], cells[:, 1 + d]], counts)
        most = np.lexsort((-pairs[:, 1], many))  # of one task cell, the last one stays
        best[pairs[most, 0], d] = pairs[most, 1]
        alone = np.bincount(pairs[:, 0], minlength=len(rows)) == 1
        certain[:, d] = alone & (left == rows)
    return best, certain


@dataclass(frozen=True)
class Leak:
    """How much a table gives away: shares of people, or of pairs (person, data party)."""

    unique: float  #: people who are alone in their cell of the task party
    certain: float  #: pairs of which the task party knows the cell for certain
    #: pairs of which its best guess is right; the cell that most have who are left in the person's
    #: own cell, and the data party's most frequent one where nobody is left
    guessed: float
    blind: float  #: pairs of which that most frequent cell is right, a guess that needs no counts


def measure(
    task: Ints, parties: Sequence[Ints], cells: Ints, counts: Ints, *,
    sizes: Ints | None = None, exact: bool = True,
) -> Leak:  # fmt: skip
    """Let the task party conclude what it can about its own rows, and mark it with the truth.

    `task` is the cell (x_t, y_t) of each person, `parties` the true cells at each data party,
    numbered as in the table.  `sizes` are the rows in each of its cells, with the decoys; by
    default those of `task`.  With counts that are not `exact`, but noisy, nothing is certain.
    """
    own = np.bincount(task)
    best, certain = claims(cells, counts, own if sizes is None else sizes)
    true = np.stack(parties, axis=1)
    often = np.array([np.bincount(column).argmax() for column in parties])
    said = np.where(best[task] >= 0, best[task], often)
    return Leak(
        unique=float((own[task] == 1).mean()),
        certain=float(certain[task].mean()) if exact else 0.0,
        guessed=float((said == true).mean()),
        blind=float((often == true).mean()),
    )


def suppress(cells: Ints, counts: Ints, minimum: int) -> Counts:
    """Leave out joint cells with fewer than `minimum` people, before the task party looks."""
    kept = counts >= minimum
    return cells[kept], counts[kept]


def geometric_noise(
    cells: Ints, counts: Ints, epsilon: float, rng: np.random.Generator,
    sizes: Sequence[int] | None = None,
) -> Counts:  # fmt: skip
    """Add two-sided geometric noise to every joint cell, empty ones too; negative counts become 0.

    ``P(k)`` is proportional to ``exp(-epsilon * abs(k))`` (Ghosh et al. 2009).  With public
    `sizes`, how many cells each party could have, the result is epsilon-differentially private for
    adding or removing a person; by default they are those that occur.
    """
    sizes = [int(column.max(initial=-1)) + 1 for column in cells.T] if sizes is None else sizes
    full = np.zeros(sizes, dtype=np.int64)
    full[tuple(cells.T)] = counts
    p = 1 - math.exp(-epsilon)
    full += rng.geometric(p, sizes) - rng.geometric(p, sizes)
    left = np.argwhere(full > 0)
    return left.astype(np.int64), full[tuple(left.T)]


def with_decoys(
    codes: tuple[Any, Any, Sequence[Any]], per_cell: int, rng: np.random.Generator
) -> tuple[Ints, Ints, list[Ints]]:
    """Append people who do not exist: `per_cell` of them to every cell of the task party.

    Each data party draws its decoys' cells from its own rows, independently of the others.  `codes`
    and the result are as :meth:`~fedkit.fedvalue.columns.VerticalData.codes` gives them.
    """
    x_task, y, *columns = (np.asarray(column) for column in (codes[0], codes[1], *codes[2]))
    own = np.unique(np.stack([x_task, y]), axis=1)
    extra = np.repeat(own, per_cell, axis=1)
    drawn = [column[rng.integers(0, len(column), extra.shape[1])] for column in columns]
    return (
        np.concatenate([x_task, extra[0]]),
        np.concatenate([y, extra[1]]),
        [np.concatenate(pair) for pair in zip(columns, drawn, strict=True)],
    )
