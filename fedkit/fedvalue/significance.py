"""Is a data party's contribution more than chance? Permutation p-values, one per party.

The rows of a party are permuted within the cells of what is known already, as in
:mod:`~fedkit.fedvalue.corrections`, and its plug-in contribution is worked out again.  A p-value
is the share of permutations, the real order among them, that give at least as much.  Under the
null hypothesis all orders are equally likely, so ``P(p <= a) <= a`` for every `a`, with any number
of rows, levels and labels: no normal distribution is assumed and no spread is divided by.

The statistic is one contribution and not the value.  The value mixes contributions beside
different coalitions, and one permutation that serves all of them would also cut the party's link
to the other data parties: a noise party that is correlated with them could be called significant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.extras import need
from fedkit.fedvalue.cells import sum_clogc
from fedkit.fedvalue.corrections import _drawn_sums
from fedkit.fedvalue.information import conditional_mutual_information
from fedkit.fedvalue.tables import How, Missing, VerticalData, joint_codes
from fedkit.intervals import holm
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Evidence", "Given", "permutation_p_value", "permutation_p_values"]

Floats = NDArray[np.float64]
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
        most `a`, however many of them are worthless.
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
    cell = joint_codes(both, label)
    counts = np.zeros(int(cell.max()) + 1, dtype=np.int64)
    np.add.at(counts, cell, often)
    observed = sum_clogc(counts)  # all else in I(X; Y | Z) is the same in every permutation
    drawn = _drawn_sums(known, both, label, often, draws, rng)
    reached = np.count_nonzero(drawn >= observed - ROUNDING * max(observed, 1.0))
    return (1 + reached) / (1 + draws)


def permutation_p_values(
    x_task: Any,
    y: Any,
    parties: Sequence[Any],
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
        As in :class:`~fedkit.fedvalue.tables.VerticalData`: one array or data frame per party,
        with its rows in the order of `y`.
    given : {"task", "others"}
        What is known already: the task party's columns, or all other parties' columns too.
        "task" has the most rows per cell, so the most power, and misses columns that tell
        something only together with another data party's.  "others" finds these, and has next
        to no power once the others' cells hold one row each.
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
    if given not in ("task", "others"):
        raise ValueError(f"given is {given!r}; expected 'task' or 'others'")
    data = VerticalData(x_task, y, tuple(parties), names=None if names is None else tuple(names))
    assert data.names is not None
    task, label, codes = data.codes(bins, how, missing)
    found = []
    for party, code in enumerate(codes):
        others = codes[:party] + codes[party + 1 :] if given == "others" else []
        known = joint_codes(task, *others)
        rng = Streams(seed).generator("fedvalue-p", party)
        p = permutation_p_value(known, code, label, draws=draws, rng=rng)
        found.append((conditional_mutual_information(code, label, known), p))
    contributions, p_values = np.array(found).T
    return Evidence(contributions, p_values, holm(p_values.tolist()), data.names, given)
