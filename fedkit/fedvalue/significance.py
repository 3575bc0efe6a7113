"""Is a data party's contribution more than chance? Permutation p-values, one per party.

The rows of a party are permuted within the cells of what is known already, as in
:mod:`~fedkit.fedvalue.bias`, and its plug-in contribution is worked out again.  A p-value
is the share of permutations, the real order among them, that give at least as much.  Under the
null hypothesis all orders are equally likely, so ``P(p <= a) <= a`` for every `a`, with any number
of rows, levels and labels: no normal distribution is assumed and no spread is divided by.

The statistic is one contribution and not the value.  The value mixes contributions beside
different coalitions, and one permutation that serves all of them would also cut the party's link
to the other data parties: a noise party that is correlated with them could be called significant.

The null hypothesis is exact and narrow: the party's cells are independent of the label *given the
cells of what is known*.  Beside the task party (``given="task"``) a proxy of the task party's own
columns may be no null: bins are coarse, and inside a bin a proxy still tells of the label, so it
passes.  Beside all others (``given="others"``) copies cancel each other: neither tells anything.
A party that does not pass tells nothing *beside what is known* that these rows could show; that is
not to say that it is worthless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.extras import need
from fedkit.fedvalue.bias import CHUNK, _drawn_sums, null_information
from fedkit.fedvalue.cells import sum_clogc
from fedkit.fedvalue.cmi import cells_of_table, conditional_mutual_information
from fedkit.fedvalue.data import How, Missing, VerticalData, joint_codes, vertical_data
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Evidence",
    "Given",
    "permutation_p_value",
    "permutation_p_values",
    "permutation_p_values_from_table",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Given = Literal["task", "others"]

ROUNDING = 1e-9  # equal sums differ by less, relative, when they are added in another order


@dataclass(frozen=True, eq=False)
class Evidence:
    """Permutation tests of data parties.

    Attributes
    ----------
    contributions : float64[d]
        Plug-in contribution of each party beside what was `given`, in nats: the statistic.
    p_values : float64[d]
        At least ``1 / (1 + draws)``.
    adjusted : float64[d]
        Holm's adjustment over the parties: choosing those at most `a` errs with probability at
        most `a`, however many of them tell nothing beside what was given.
    names : tuple of str
        Names of the data parties.
    given : {"task", "others"}
        What was known already.
    """

    contributions: Floats
    p_values: Floats
    adjusted: Floats
    names: tuple[str, ...]
    given: Given

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per data party."""
        frame: pd.DataFrame = need("pandas", extra="run").DataFrame(
            {"party": self.names, "contribution": self.contributions, "p": self.p_values,
             "p (Holm)": self.adjusted}
        )  # fmt: skip
        return frame


def permutation_p_value(
    z: ArrayLike, x: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None, *,
    draws: int = 999, rng: np.random.Generator,
) -> float:  # fmt: skip
    """Return the p-value of "X tells nothing about Y given Z" from codes.

    ``(1 + #{drawn >= observed}) / (1 + draws)`` for the plug-in ``I(X; Y | Z)`` under random
    permutations within the cells of `z`.  It is 1 where no permutation changes anything.

    Parameters
    ----------
    z, x, y : int array, shape (n,) or (n, f)
        Codes.
    weights : int array, shape (n,), optional
        How many rows each stands for; 1 by default.
    draws : int
        Permutations, at least one.
    rng : Generator
        Source of the permutations.

    Raises
    ------
    ValueError
        If `draws` is below one or the codes are refused.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws}; expected at least 1 permutation")
    known, label = joint_codes(z), joint_codes(y)
    both = joint_codes(known, x)
    often = np.ones(len(known), dtype=np.int64) if weights is None else np.asarray(weights)
    if often.shape != known.shape or often.dtype.kind not in "iu" or (often < 0).any():
        raise ValueError("weights must be whole numbers of at least 0, one per row")
    cell = joint_codes(both, label)
    counts = np.zeros(int(cell.max()) + 1, dtype=np.int64)
    np.add.at(counts, cell, often)
    observed = sum_clogc(counts)  # all else in I(X; Y | Z) is the same in every permutation
    draw = _drawn_sums if weights is None else _drawn_tables
    drawn = draw(known, both, label, often.astype(np.int64), draws, rng)
    reached = np.count_nonzero(drawn >= observed - ROUNDING * max(observed, 1.0))
    return (1 + reached) / (1 + draws)


def _drawn_tables(
    z: Ints, zx: Ints, y: Ints, weights: Ints, draws: int, rng: np.random.Generator
) -> Floats:
    """Return the sum of ``c log c`` over cells (z, x, y) for labels permuted within z.

    Counts are drawn instead of rows: the rows of one label of a stratum `z` fall on its cells as
    balls drawn from an urn, cell after cell.  Time goes with cells, labels and draws, not rows.
    Strata and cells go by their counts, so the draws do not depend on how either are numbered.
    """
    z_of = _first(zx, z)
    sizes = np.zeros(len(z_of), dtype=np.int64)
    np.add.at(sizes, zx, weights)
    margins = np.zeros((int(y.max()) + 1, int(z.max()) + 1), dtype=np.int64)
    np.add.at(margins, (y, z), weights)
    z_of, sizes, margins = _in_order(z_of, sizes, margins)
    strata = margins.shape[1]
    width = np.bincount(z_of, minlength=strata)
    start = np.cumsum(width) - width
    table = np.arange(int(sizes.max()) + 1)
    table = table * np.log(np.maximum(table, 1))
    sums = np.zeros(draws)
    batch = max(1, CHUNK // len(sizes))
    for begin in range(0, draws, batch):
        some = slice(begin, min(begin + batch, draws))
        room = np.repeat(sizes[:, None], some.stop - begin, axis=1)
        for margin in margins[:-1]:
            left = np.repeat(margin[:, None], room.shape[1], axis=1)
            rest = np.add.reduceat(room, start, axis=0)
            for step in range(int(width.max())):
                here = np.flatnonzero(width > step)
                cell = start[here] + step
                rest[here] -= room[cell]
                fell = rng.hypergeometric(room[cell], rest[here], left[here])
                left[here] -= fell
                room[cell] -= fell
                sums[some] += table[fell].sum(axis=0)
        sums[some] += table[room].sum(axis=0)  # what is left has the last label
    return sums


def _in_order(z_of: Ints, sizes: Ints, margins: Ints) -> tuple[Ints, Ints, Ints]:
    """Sort strata by the labels in them and then their cells' sizes, and cells by size."""
    by_size = np.lexsort((sizes, z_of))
    ends = np.cumsum(np.bincount(z_of, minlength=margins.shape[1]))[:-1]
    profiles = [part.tolist() for part in np.split(sizes[by_size], ends)]
    strata = sorted(
        range(margins.shape[1]),
        key=lambda s: (len(profiles[s]), margins[:, s].tolist(), profiles[s]),
    )
    rank = np.empty(len(strata), dtype=np.int64)
    rank[strata] = np.arange(len(strata))
    cells = np.lexsort((sizes, rank[z_of]))
    return rank[z_of][cells], sizes[cells], margins[:, strata]


def _first(cell: Ints, z: Ints) -> Ints:
    """Return the stratum of each cell."""
    found = np.empty(int(cell.max()) + 1, dtype=np.int64)
    found[cell] = z
    return found


def permutation_p_values(
    x_task: Any | VerticalData,
    y: Any = None,
    parties: Any = None,
    *,
    given: Given = "task",
    bins: int = 5,
    how: How = "width",
    missing: Missing = "own",
    draws: int = 999,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Evidence:
    """Test for every data party whether its columns, in their bins, tell more than chance.

    Parameters
    ----------
    x_task, y, parties, names
        As in :class:`~fedkit.fedvalue.data.VerticalData`: one array or data frame per party,
        with its rows in the order of `y`; or a VerticalData alone, which can check that order.
    given : {"task", "others"}
        What is known already: the task party's columns, or all other parties' columns too.
        "task" has the most rows per cell, so the most power, and misses columns that tell
        something only together with another data party's.  "others" finds these, and has next
        to no power once the others' cells hold one row each; of two copies neither passes.
        Both are about binned columns: a proxy of the task party's own may pass, by what its
        bins tell inside those of the task party.
    bins, how, missing
        As in :func:`~fedkit.fedvalue.binning.discretise`.
    draws : int
        Permutations per party.  No p-value is below ``1 / (1 + draws)``, so `d` parties need at
        least ``d / 0.05`` of them for 5% after Holm's adjustment.
    seed : int
        Seed of the permutations.

    Raises
    ------
    ValueError
        If the data are refused, `given` is unknown or `draws` is below one.
    """
    data = vertical_data(x_task, y, parties, names)
    assert data.names is not None
    task, label, codes = data.codes(bins, how, missing)
    return _evidence(task, label, codes, None, data.names, given, draws, seed)


def permutation_p_values_from_table(
    tokens: ArrayLike,
    task_cells: ArrayLike,
    counts: ArrayLike,
    *,
    given: Given = "task",
    draws: int = 999,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Evidence:
    """Test every data party from a contingency table, such as the secure protocol gives.

    The same test as :func:`permutation_p_values` on the rows that were counted, with draws of
    its own: the table says of each joint cell how many rows are in it, and a permutation needs
    no more.  The cells may go by any numbers and stand in any order: the same table and seed give
    the same p-values.

    Parameters
    ----------
    tokens, task_cells, counts, names
        As in :func:`~fedkit.fedvalue.cmi.mshapley_from_table`.
    given, draws, seed
        As in :func:`permutation_p_values`.

    Raises
    ------
    ValueError
        If the table is refused, `given` is unknown or `draws` is below one.
    """
    cells, known = cells_of_table(tokens, task_cells, counts, names)
    task = cells.at(np.zeros(len(cells.parties), dtype=np.bool_)).key
    codes = [code for code, _ in cells.parties]
    return _evidence(task, cells.label, codes, cells.weights, known, given, draws, seed)


def _evidence(
    task: Ints, label: Ints, codes: Sequence[Ints], weights: Ints | None, names: tuple[str, ...],
    given: Given, draws: int, seed: int,
) -> Evidence:  # fmt: skip
    from fedkit.intervals import holm  # it brings scipy.stats, which takes seconds to load

    if given not in ("task", "others"):
        raise ValueError(f"given is {given!r}; expected 'task' or 'others'")
    found = []
    for party, code in enumerate(codes):
        others = [*codes[:party], *codes[party + 1 :]] if given == "others" else []
        known = joint_codes(task, *others)
        rng = Streams(seed).generator("fedvalue-p", party)
        p = permutation_p_value(known, code, label, weights, draws=draws, rng=rng)
        if weights is None:
            told = conditional_mutual_information(code, label, known)
        else:
            told = null_information(known, code, label, weights)[0]
        found.append((told, p))
    contributions, p_values = np.array(found).T
    return Evidence(contributions, p_values, holm(p_values.tolist()), names, given)
