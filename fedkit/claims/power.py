"""What the seeds of a table can decide: the smallest difference, from the spreads on record.

A printed number can be reproduced where the half-width of its interval is within the margin, and a
difference of two rows shows where it is large beside its spread.  Both are computed before a run,
from the spread of the runs there are, for the planned number of seeds or for any other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from fedkit.claims.judge import UNJUDGED
from fedkit.extras import need
from fedkit.intervals import difference_half_width, finite

if TYPE_CHECKING:
    import pandas as pd

    from fedkit.claims.claim import Claims

__all__ = ["MOST_SEEDS", "POWER", "power", "smallest_difference"]

MOST_SEEDS = 50
"""Seeds beyond which a cell counts as one that no number of seeds decides."""
POWER = 0.8
"""Probability with which a difference is to be established."""


def smallest_difference(spread: float, seeds: int, level: float = 0.95) -> float:
    """Smallest true paired difference that so many seeds establish with probability 0.8.

    ``(t_level + t_power) s / sqrt(n)``, the usual approximation for a paired t test.

    Parameters
    ----------
    spread : float
        Standard deviation of the paired difference over seeds.
    seeds : int
        Two or more.
    level : float
        Level of the two-sided test.
    """
    freedom = seeds - 1
    quantiles = stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(POWER, freedom)
    return float(quantiles) * spread / math.sqrt(seeds)


def power(frame: pd.DataFrame) -> pd.DataFrame:
    """Tell, for every table with records, what its seeds decide.

    Parameters
    ----------
    frame : pandas.DataFrame
        All rows of :func:`fedkit.claims.join.join`.

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
    claims: Claims = frame.attrs["claims"]
    values = frame.attrs["values"]
    seeds_of_paper = claims.paper.get("seeds") or 1
    verdicts = dict(zip(frame["claim"], frame["verdict"], strict=True))
    rows: dict[str, list[tuple[int, float, float, float]]] = {}
    where: dict[str, tuple[str, str]] = {}
    for claim in claims.claims:
        rule, block = claim.test["rule"], str(claim.place.get("table"))
        x = finite(values.get(claim.id, ()))
        if rule not in ("value", "ordering", "mean_gain") or block == "words":
            continue
        if claim.number is None or len(x) < 2 or verdicts[claim.id] in UNJUDGED:
            continue
        level, spread = claim.test.get("level", 0.95), float(x.std(ddof=1))
        if rule == "value":
            m = int(claim.test.get("paper_seeds") or seeds_of_paper)
            printed = None if claim.spread is None else float(claim.spread)
            now, most = (
                difference_half_width(spread, n, printed, m, level) for n in (len(x), MOST_SEEDS)
            )
            wanted = float(claim.test["margin"])
        else:
            now, most = (smallest_difference(spread, n, level) for n in (len(x), MOST_SEEDS))
            wanted = abs(claim.number)
        rows.setdefault(block, []).append((len(x), now, most, wanted))
        what = "a printed number" if rule == "value" else "a difference of rows"
        where.setdefault(block, (what, claim.unit))
    lines = []
    for block, cells in rows.items():
        seeds, now, most, wanted = np.array(cells).T
        lines.append(
            {
                "table": f"{claims.paper['key']}.{block}",
                "what": where[block][0],
                "unit": where[block][1],
                "cells": len(cells),
                "seeds": int(np.median(seeds)),
                "smallest": float(np.median(now)),
                "needed": float(np.median(wanted)),
                "decided": int((now <= wanted).sum()),
                f"decided_{MOST_SEEDS}": int((most <= wanted).sum()),
            }
        )
    columns = ["table", "what", "unit", "cells", "seeds", "smallest", "needed", "decided",
               f"decided_{MOST_SEEDS}"]  # fmt: skip
    return pd.DataFrame(lines, columns=columns)
