"""What the seeds of a table can decide: the smallest difference, from the spreads on record.

A printed number can be reproduced where the half-width of its interval is within the margin, and a
difference of two rows shows where it is large beside its spread.  Both are computed before a run,
from the spread of the runs there are, for the planned number of seeds or for any other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import stats

from fedkit.claims.judge import UNJUDGED
from fedkit.extras import need
from fedkit.intervals import difference_half_width, finite

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_SEEDS", "POWER", "power", "smallest_difference"]

MOST_SEEDS = 50
"""Seeds beyond which a cell counts as one that no number of seeds decides."""
POWER = 0.8
"""Probability with which a difference is to be established."""


def smallest_difference(spread: float, seeds: int, level: float = 0.95) -> float:
    """Smallest true paired difference that so many seeds establish with probability 0.8.

    ``(t_level + t_power) s / sqrt(n)``, the usual approximation for a two-sided paired t test; s is
    the standard deviation of the difference over seeds, of which there are two or more.
    """
    freedom = seeds - 1
    quantiles = stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(POWER, freedom)
    return float(quantiles) * spread / math.sqrt(seeds)


def power(frame: pd.DataFrame) -> pd.DataFrame:
    """Tell, for every table with records, what its seeds decide.

    Returns
    -------
    pandas.DataFrame
        One row per table or block of orderings: what is decided (``a printed number`` or ``a
        difference of rows``), cells with records, seeds (median), smallest (median over the cells
        of the smallest difference that these seeds decide), needed (median of what is to be
        decided: the margin, or the printed difference), decided (cells whose smallest is within
        it), decided_50 (the same for 50 seeds), in the table's unit.
    """
    pd = need("pandas", extra="run")
    cells = []
    for claim, values, verdict in zip(
        frame["entry"], frame["values"], frame["verdict"], strict=True
    ):
        x = finite(values)
        if claim.rule not in ("value", "ordering", "mean_gain") or claim.number is None:
            continue
        if claim.place["table"] == "words" or len(x) < 2 or verdict in UNJUDGED:
            continue
        level, spread = claim.test.get("level", 0.95), float(x.std(ddof=1))
        if claim.rule == "value":
            printed = None if claim.spread is None else float(claim.spread)
            what, needed = "a printed number", float(claim.test["margin"])
            now, most = (
                difference_half_width(spread, n, printed, claim.paper_seeds, level)
                for n in (len(x), MOST_SEEDS)
            )
        else:
            what, needed = "a difference of rows", abs(claim.number)
            now, most = (smallest_difference(spread, n, level) for n in (len(x), MOST_SEEDS))
        table = f"{claim.id.partition('.')[0]}.{claim.place['table']}"
        decided = (now <= needed, most <= needed)
        cells.append((table, what, claim.unit, 1, len(x), now, needed, *decided))
    how = {
        "what": "first", "unit": "first", "cells": "sum", "seeds": "median", "smallest": "median",
        "needed": "median", "decided": "sum", "decided_50": "sum",
    }  # fmt: skip
    found = pd.DataFrame(cells, columns=["table", *how])
    return found.groupby("table", sort=False, as_index=False).agg(how).astype({"seeds": int})
