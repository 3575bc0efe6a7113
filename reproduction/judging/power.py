"""What the seeds of a table can decide: the smallest difference, from the spreads on record.

A printed number can be reproduced where the half-width of its interval is within the margin, and a
difference of two rows shows where it is large beside its spread.  Both are computed from the spread
of the runs there are, for their seeds or for those that are planned.  What the order of rows can
decide has no such formula, and is simulated.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from fedkit.checks import whole
from fedkit.extras import need
from fedkit.intervals import NONPARAMETRIC_FROM, bounded_interval, difference_half_width, finite
from reproduction.judging.claim import Claims
from reproduction.judging.join import verdict_of
from reproduction.judging.judge import NOT_REPRODUCED, REPRODUCED, UNJUDGED
from reproduction.judging.measured import Lookup, grid, numbers_of
from reproduction.records.cell import canonical_json
from reproduction.records.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_SEEDS", "POWER", "order_power", "power", "smallest_difference"]

MOST_SEEDS = 50
"""Seeds beyond which a cell counts as one that no number of seeds decides."""
POWER = 0.8
"""Probability with which a difference is to be established."""
_DRAWS = 100  # of seeds, that are judged to tell the power of an order


def smallest_difference(spread: float, seeds: int, level: float = 0.95) -> float:
    """Smallest true paired difference that so many seeds establish with probability 0.8.

    Of the test that :func:`fedkit.intervals.paired_p_value` takes for so many seeds: below ten the
    two-sided paired t test's, by the non-central t; from ten on Wilcoxon's, on normal differences,
    by simulation.  It is infinite where even signs that all agree do not reach the level.

    Parameters
    ----------
    spread : float
        Standard deviation of the difference over seeds.
    seeds : int
        Two or more.
    level : float
        One minus the level of the test.
    """
    if not spread:
        return 0.0
    smallest = _smallest_shift if seeds >= NONPARAMETRIC_FROM else _smallest_of_t
    return spread * smallest(seeds, round(level, 12))


@lru_cache(maxsize=1024)
def _smallest_of_t(seeds: int, level: float) -> float:
    """Return the mean, in standard deviations, that the t test of so many normals finds."""
    edge = float(stats.t.ppf((1 + level) / 2, seeds - 1))

    def lacks(shift: float) -> float:
        return float(stats.nct.sf(edge, seeds - 1, shift)) - POWER

    return float(brentq(lacks, 0.0, 10 * edge)) / math.sqrt(seeds)


@lru_cache(maxsize=1024)
def _smallest_shift(seeds: int, level: float) -> float:
    """Return the mean, in standard deviations, that Wilcoxon's test of so many normals finds."""
    chances = np.ones(1)  # of each sum of ranks, were all signs tossed
    for rank in range(1, seeds + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    above = np.cumsum(chances[::-1])[::-1]
    least = int(np.searchsorted(-above, -(1 - level) / 2))  # the first sum that is rare enough
    if least == len(above):
        return math.inf
    normal = np.random.default_rng(0).standard_normal((4000, seeds))

    def found(shift: float) -> float:
        moved = normal + shift
        ranks = np.argsort(np.argsort(np.abs(moved), axis=1), axis=1) + 1
        return float(((ranks * (moved > 0)).sum(axis=1) >= least).mean())

    low, high = 0.0, 1.0
    while found(high) < POWER:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= POWER else (middle, high)
    return high


def power(frame: pd.DataFrame, seeds: int | None = None) -> pd.DataFrame:
    """Tell, for every table with records, what its seeds decide.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of :func:`reproduction.judging.join.join`.
    seeds : int, optional
        So many, such as those planned, in the place of those on record; two or more.

    Returns
    -------
    pandas.DataFrame
        One row per table or block of orderings: what is decided (``a printed number`` or ``a
        difference of rows``), cells with records, seeds (median), smallest (median over the cells
        of the smallest difference that these seeds decide), needed (median of what is to be
        decided: the margin, or the printed difference), decided (cells whose smallest is within
        it), decided_50 (the same for 50 seeds), in the table's unit.  Differences that are
        corrected together count at the first step of Holm, which is the hardest.
    """
    pd = need("pandas", extra="run")
    if seeds is not None:
        whole("seeds", seeds, 2)
    cells = []
    judged = frame["entry"][~frame["verdict"].isin(UNJUDGED)]
    families = Counter(claim.family for claim in judged if claim.family and claim.number != 0)
    for claim, values, verdict in zip(
        frame["entry"], frame["values"], frame["verdict"], strict=True
    ):
        x = finite(values)
        if claim.rule not in ("value", "ordering", "mean_gain") or claim.number is None:
            continue
        if claim.place["table"] == "words" or len(x) < 2 or verdict in UNJUDGED:
            continue
        level, spread = claim.test.get("level", 0.95), float(x.std(ddof=1))
        n = seeds or len(x)
        if claim.rule == "value" or claim.number == 0:  # a printed tie is judged by its size
            printed = None if claim.spread is None else float(claim.spread)
            what, needed = "a printed number", float(claim.test["margin"])
            now, most = (
                difference_half_width(spread, many, printed, claim.paper_seeds, level)
                for many in (n, MOST_SEEDS)
            )
            if claim.test.get("of_few"):  # so many seeds that are like ours
                now, most = (
                    max(half, bounded_interval(np.resize(x, many), 0, 100, level).half_width)
                    for half, many in ((now, n), (most, MOST_SEEDS))
                )
        else:
            what, needed = "a difference of rows", abs(claim.number)
            level = 1 - (1 - level) / max(1, families[claim.family])
            now, most = (smallest_difference(spread, many, level) for many in (n, MOST_SEEDS))
        table = f"{claim.id.partition('.')[0]}.{claim.place['table']}"
        decided = (now <= needed, most <= needed)
        cells.append((table, what, claim.unit, 1, n, now, needed, *decided))
    how = {
        "what": "first", "unit": "first", "cells": "sum", "seeds": "median", "smallest": "median",
        "needed": "median", "decided": "sum", "decided_50": "sum",
    }  # fmt: skip
    found = pd.DataFrame(cells, columns=["table", *how])
    return found.groupby("table", sort=False, as_index=False).agg(how).astype({"seeds": int})


def order_power(claims: Claims, store: Store, seeds: int | None = None) -> pd.DataFrame:
    """Tell what the test of the order of rows would say if the printed tables were the truth.

    Draws of seeds are the printed numbers plus what our seeds deviate from their mean, drawn with
    replacement and widened by sqrt(n / (n - 1)); each draw is judged as ours are.

    Parameters
    ----------
    claims : Claims
    store : Store
        Whose records of the profile ``paper`` are taken.
    seeds : int, optional
        So many per draw, such as those planned; by default those on record.

    Returns
    -------
    pandas.DataFrame
        One row per claim with records: claim, seeds, reproduced and not_reproduced, the shares of
        draws with that verdict.
    """
    pd = need("pandas", extra="run")
    if seeds is not None:
        whole("seeds", seeds, 2)
    lookup, rows = Lookup(claims, store, "paper"), []
    cells = [c for c in claims.claims if c.place.get("table") in claims.tables]
    printed = {canonical_json(cell.ours): cell.number for cell in cells}
    for claim in claims.claims:
        if claim.rule not in ("concordance", "rank_agreement") or claim.untestable:
            continue
        numbers = numbers_of(claim, lookup)
        if numbers is None or numbers.bar or (have := len(numbers.values)) < 2:
            continue
        n = seeds or have
        apart = (numbers.values - numbers.values.mean(axis=0)) * math.sqrt(have / (have - 1))
        picks = np.random.default_rng(0).integers(0, have, size=(_DRAWS, n))
        there = [
            line
            for line in grid(claim, claims)
            if all(lookup.find(place) is not None for place in line)
        ]
        truth = np.array([[printed[canonical_json(place)] for place in line] for line in there])
        found = [verdict_of(claim, truth + apart[pick]) for pick in picks]
        told = (found.count(REPRODUCED) / _DRAWS, found.count(NOT_REPRODUCED) / _DRAWS)
        rows.append((claim.id, n, *told))
    return pd.DataFrame(rows, columns=["claim", "seeds", "reproduced", "not_reproduced"])
