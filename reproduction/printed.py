"""Claims that a paper's own tables bear out or not, checked without any run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reproduction.statistics import kendalls_w

if TYPE_CHECKING:
    from reproduction.claims import Claims

Column = Mapping[str, Any]


def _frame(claims: Claims, table: str) -> Any:
    """The numbers of a table: rows as printed, columns by all that is set in them."""
    printed = claims.tables[table]
    columns = pd.MultiIndex.from_frame(pd.DataFrame(printed.columns).assign(**printed.settings))
    numbers = np.array([*printed.rows.values()], dtype=np.float64)
    return pd.DataFrame(numbers, index=list(printed.rows), columns=columns)


def _accuracies(claims: Claims) -> Any:
    """The tables that compare methods, those with a row FedOwen and a row FedAvg, side by side."""
    names = [name for name, t in claims.tables.items() if {"fedowen", "fedavg"} <= set(t.rows)]
    return pd.concat([_frame(claims, name) for name in names], axis=1)


def _gains(claims: Claims, against: str, relative: bool | str = False) -> Any:
    """Gain of FedOwen in each column over the best, worst, mean or a named other row.

    In points, in percent of that row, or in percent of its "own" accuracy.
    """
    scores = _accuracies(claims)
    of_others = {"best": "max", "worst": "min", "mean": "mean"}
    others = scores.drop(index="fedowen")
    base = others.agg(of_others[against]) if against in of_others else others.loc[against]
    gain = scores.loc["fedowen"] - base
    whole = {False: 100, True: base, "own": scores.loc["fedowen"]}[relative]
    return gain / whole * 100


def max_gain(claims: Claims, against: str, relative: bool | str) -> float:
    """Largest gain of FedOwen in a column, in points or in percent."""
    return float(_gains(claims, against, relative).max())


def columns_not_best(claims: Claims) -> float:
    """Number of columns in which another row is better than FedOwen's."""
    return float((_gains(claims, "best") < 0).sum())


def largest_shortfall(claims: Claims) -> float:
    """Largest lack of FedOwen behind the best row of a column, in points."""
    return float(-_gains(claims, "best").min())


def lowest_where_not_best(claims: Claims) -> float:
    """Lowest number of FedOwen's in the columns in which another row is better."""
    return float(_accuracies(claims).loc["fedowen"][_gains(claims, "best") < 0].min())


def columns_adaptive_better(claims: Claims) -> float:
    """Number of columns of Table 3, of thirty, in which adaptive selection is better."""
    table = _frame(claims, "t3")
    rows = [row for row in table.index if row.startswith("adaptive")]
    return float(sum((table.loc[row] > table.loc[f"no-{row}"]).sum() for row in rows))


def hardest_setting_rank(claims: Claims) -> float:
    """Rank (1 = largest) of the hardest setting by mean relative gain over FedAvg."""
    gains = _gains(claims, "fedavg", relative=True)
    means = gains.groupby(level=["imbalance", "alpha"], sort=True).mean()
    return float(means.rank(ascending=False, method="min").iloc[0])


def concordance(claims: Claims) -> float:
    """Kendall's W of the rankings in all printed columns."""
    return float(kendalls_w(_accuracies(claims).T.to_numpy()))


def printed_number(claims: Claims, table: str, row: str, column: Column) -> float:
    """Return one number of a table, to be set beside the one that the text quotes."""
    printed = claims.tables[table]
    return float(printed.rows[row][printed.columns.index(column)])


def relative_gain(claims: Claims, table: str, row: str, against: str, column: Column) -> float:
    """By how many percent one row's number is above another's, in one column of a table."""
    ours, theirs = (printed_number(claims, table, name, column) for name in (row, against))
    return (ours - theirs) / theirs * 100


def ratio_of_gains(
    claims: Claims, tables: list[str], row: str, against: str, column: Column
) -> float:
    """By how many percent the relative gain in one table exceeds that in another."""
    first, second = (relative_gain(claims, table, row, against, column) for table in tables)
    return (first / second - 1) * 100


def row_maximum(claims: Claims, table: str, row: str) -> float:
    """Largest number of a row."""
    return float(_frame(claims, table).loc[row].max())


def columns_best(claims: Claims, table: str, row: str) -> float:
    """Number of columns of a table in which no other row is as high."""
    frame = _frame(claims, table)
    return float((frame.loc[row] > frame.drop(index=row).max()).sum())


def smallest_lead(claims: Claims, table: str, row: str, against: str) -> float:
    """Smallest difference of a row to another one over the columns of a table."""
    frame = _frame(claims, table)
    return float((frame.loc[row] - frame.loc[against]).min())


def printed_statistic(claims: Claims, test: Mapping[str, Any]) -> float:
    """Compute the statistic that a test names, a function above, on the printed tables."""
    names = ("against", "relative", "table", "tables", "row", "column")
    statistic: Callable[..., float] = globals()[test["statistic"]]
    return statistic(claims, **{name: test[name] for name in names if name in test})
