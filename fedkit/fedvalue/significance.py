"""Is a data party's contribution more than chance? Permutation p-values, one per party.

The null hypothesis is that a party's cells are independent of the label *given the cells of what is
known*.  The statistic is its plug-in contribution, and a p-value the share of permutations of its
rows within these cells, the real order among them, that give at least as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.checks import Floats, Ints, one_line, whole
from fedkit.extras import need
from fedkit.fedvalue.columns import How, VerticalData, joint_codes
from fedkit.fedvalue.corrections import CHUNK, clogc, totals
from fedkit.fedvalue.information import (
    CoalitionCells,
    coalition_cells,
    conditional_mutual_information,
)
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd


ROUNDING = 2e-14  # of n log n: equal sums differ by less when they are added in another order


@one_line
@dataclass(frozen=True, eq=False)
class Evidence:
    """Permutation tests of data parties, by their `names`, beside the task party alone."""

    contributions: Floats  #: ``[d]``, plug-in contribution of each party, in nats; the statistic
    p_values: Floats  #: ``[d]``, at least ``1 / (1 + draws)``
    #: ``[d]``, by Holm's adjustment over the parties; choosing those at most `a` errs with
    #: probability at most `a`, however many of them tell nothing
    adjusted: Floats
    names: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per data party."""
        return need("pandas", extra="run").DataFrame(
            {"party": self.names, "contribution": self.contributions, "p": self.p_values,
             "p (Holm)": self.adjusted}
        )  # fmt: skip


def permutation_p_value(
    z: ArrayLike, x: ArrayLike, y: ArrayLike, weights: Ints | None = None, *,
    draws: int = 999, rng: np.random.Generator,
) -> float:  # fmt: skip
    """Return the p-value of "X tells nothing about Y given Z" from codes, ``(n,)`` or ``(n, f)``.

    ``(1 + #{drawn >= observed}) / (1 + draws)`` for the plug-in ``I(X; Y | Z)`` under random
    permutations within the cells of `z`; 1 where no permutation changes anything.  A row stands
    for `weights` rows.

    Drawn are the tables of labels by values of `x` within a cell of `z`, whose margins are fixed
    (Patefield 1981): the p-value depends on neither the order of rows nor the numbers of cells.
    """
    from scipy.stats import random_table  # scipy.stats takes seconds to load

    whole("draws", draws, 1)
    known, label = joint_codes(z), joint_codes(y)
    both = joint_codes(known, x)  # in the order of z
    cells, labels = int(both.max()) + 1, int(label.max()) + 1
    table = totals(both * labels + label, cells * labels, weights).reshape(cells, labels)
    stratum = np.empty(cells, dtype=np.int64)
    stratum[both] = known
    strata = [
        part for part in np.split(table, np.flatnonzero(np.diff(stratum)) + 1)
        if len(part) > 1 and np.count_nonzero(part.any(axis=0)) > 1  # else always the same
    ]  # fmt: skip
    strata.sort(key=lambda part: (sorted(part.sum(axis=1)), list(part.sum(axis=0))))
    observed, drawn = 0.0, np.zeros(draws)
    for part in strata:
        sizes, often = np.sort(part.sum(axis=1)), part.sum(axis=0)
        # every draw has these margins; without their share few digits are lost to rounding
        fixed = float(clogc(sizes).sum() + clogc(often).sum() - clogc(often.sum()))
        observed += float(clogc(part).sum()) - fixed
        batch = max(1, CHUNK // part.size)
        for begin in range(0, draws, batch):
            some = drawn[begin : begin + batch]
            tables = random_table.rvs(sizes, often, size=len(some), random_state=rng)
            some += clogc(tables).sum(axis=(1, 2)) - fixed
    rounding = ROUNDING * max(float(clogc(table.sum())), 1.0)
    reached = np.count_nonzero(drawn >= observed - rounding)
    return (1 + reached) / (1 + draws)


def permutation_p_values(
    x_task: Any | VerticalData | CoalitionCells, y: Any = None, parties: Any = None, *,
    bins: int = 5, how: How = "width", draws: int = 999, seed: int = 0,
) -> Evidence:  # fmt: skip
    """Test for every data party whether its columns, in their bins, tell more than chance.

    What is known already are the task party's columns; give it those of another party too, to
    find what tells something only beside them.

    Parameters
    ----------
    x_task, y, parties, bins, how
        As for :func:`~fedkit.fedvalue.information.mshapley_cmi`.
    draws : int
        Permutations per party.  No p-value is below ``1 / (1 + draws)``, and no adjusted one below
        `d` times that: of 50 parties and 999 draws, 0.05.
    seed : int
        Seed of the permutations.
    """
    from fedkit.intervals import holm  # it brings scipy.stats

    cells = coalition_cells(x_task, y, parties, bins, how)
    whole("draws", draws, 1)
    task, label, weights = cells.task.key, cells.label, cells.weights
    contributions, p_values = np.empty((2, len(cells.parties)))
    for party, (code, _) in enumerate(cells.parties):
        rng = Streams(seed).generator("fedvalue-p", party)
        p_values[party] = permutation_p_value(task, code, label, weights, draws=draws, rng=rng)
        contributions[party] = conditional_mutual_information(code, label, task, weights)
    return Evidence(contributions, p_values, holm(p_values.tolist()), cells.names)
