"""Claims that a paper's own tables bear out or not, checked without any run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reproduction.statistics import kendalls_w

if TYPE_CHECKING:
    from reproduction.claims import Claims, PrintedTable

FloatArray = npt.NDArray[np.float64]


def _numbers(table: PrintedTable, row: str) -> FloatArray:
    return np.array([float(number) for number in table.rows[row]])


def _accuracy_tables(claims: Claims) -> list[PrintedTable]:
    """Return the tables that compare methods: those with a row FedOwen and a row FedAvg."""
    return [t for t in claims.tables.values() if {"fedowen", "fedavg"} <= set(t.rows)]


def _gains(table: PrintedTable, against: str, relative: bool | str) -> FloatArray:
    """Gain of FedOwen in each column, in points, in percent, or in percent of its "own"."""
    ours = _numbers(table, "fedowen")
    others = np.stack([_numbers(table, row) for row in table.rows if row != "fedowen"])
    base = {
        "best": others.max(axis=0), "worst": others.min(axis=0), "mean": others.mean(axis=0),
    }.get(against)  # fmt: skip
    if base is None:
        base = _numbers(table, against)
    whole = {False: 100, True: base, "own": ours}[relative]
    return np.asarray((ours - base) / whole * 100)


def max_gain(claims: Claims, against: str, relative: bool | str) -> float:
    """Largest gain of FedOwen in a column over its best, worst, mean or a named other row.

    In points, in percent of that row, or in percent of FedOwen's "own" accuracy.
    """
    return max(float(_gains(t, against, relative).max()) for t in _accuracy_tables(claims))


def columns_not_best(claims: Claims) -> float:
    """Number of columns in which another row is better than FedOwen's."""
    return float(sum((_gains(t, "best", False) < 0).sum() for t in _accuracy_tables(claims)))


def largest_shortfall(claims: Claims) -> float:
    """Largest lack of FedOwen behind the best row of a column, in points."""
    return max(float(-_gains(t, "best", False).min()) for t in _accuracy_tables(claims))


def columns_adaptive_better(claims: Claims) -> float:
    """Number of columns of Table 3, of thirty, in which adaptive selection is better."""
    table = claims.tables["t3"]
    rows = [row for row in table.rows if row.startswith("adaptive")]
    return float(sum((_numbers(table, r) > _numbers(table, f"no-{r}")).sum() for r in rows))


def hardest_setting_rank(claims: Claims) -> float:
    """Rank (1 = largest) of the hardest setting by mean relative gain over FedAvg."""
    gains: dict[tuple[float, float], list[float]] = {}
    for table in _accuracy_tables(claims):
        for column, gain in zip(table.columns, _gains(table, "fedavg", True), strict=True):
            place = (float(table.settings["imbalance"]), float(column["alpha"]))
            gains.setdefault(place, []).append(float(gain))
    means = {place: float(np.mean(values)) for place, values in gains.items()}
    hardest = means[min(means)]
    return float(1 + sum(value > hardest for value in means.values()))


def concordance(claims: Claims) -> float:
    """Kendall's W of the rankings in all printed columns."""
    tables = _accuracy_tables(claims)
    rows = list(tables[0].rows)
    scores = [np.stack([_numbers(t, row) for row in rows], axis=1) for t in tables]
    return float(kendalls_w(np.concatenate(scores)))


def relative_gain(
    claims: Claims, table: str, row: str, against: str, column: Mapping[str, Any]
) -> float:
    """By how many percent one row's number is above another's, in one column of a table."""
    printed = claims.tables[table]
    place = printed.columns.index(column)
    ours, theirs = (_numbers(printed, r)[place] for r in (row, against))
    return float((ours - theirs) / theirs * 100)


def ratio_of_gains(
    claims: Claims, tables: list[str], row: str, against: str, column: Mapping[str, Any]
) -> float:
    """By how many percent the relative gain in one table exceeds that in another."""
    first, second = (relative_gain(claims, table, row, against, column) for table in tables)
    return (first / second - 1) * 100


def row_maximum(claims: Claims, table: str, row: str) -> float:
    """Largest number of a row."""
    return float(_numbers(claims.tables[table], row).max())


def columns_best(claims: Claims, table: str, row: str) -> float:
    """Number of columns of a table in which no other row is as high."""
    printed = claims.tables[table]
    others = np.stack([_numbers(printed, r) for r in printed.rows if r != row])
    return float((_numbers(printed, row) > others.max(axis=0)).sum())


def smallest_lead(claims: Claims, table: str, row: str, against: str) -> float:
    """Smallest difference of a row to another one over the columns of a table."""
    printed = claims.tables[table]
    return float((_numbers(printed, row) - _numbers(printed, against)).min())


def printed_number(claims: Claims, table: str, row: str, column: Mapping[str, Any]) -> float:
    """Return one number of a table, to be set beside the one that the text quotes."""
    printed = claims.tables[table]
    return float(_numbers(printed, row)[list(printed.columns).index(column)])


def lowest_where_not_best(claims: Claims) -> float:
    """Lowest number of FedOwen's in the columns in which another row is better."""
    tables = _accuracy_tables(claims)
    behind = [_numbers(t, "fedowen")[_gains(t, "best", False) < 0] for t in tables]
    return float(np.concatenate(behind).min())


_STATISTICS: dict[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        max_gain, columns_not_best, largest_shortfall, columns_adaptive_better,
        hardest_setting_rank, concordance, relative_gain, ratio_of_gains, row_maximum, columns_best,
        printed_number, lowest_where_not_best, smallest_lead,
    )
}  # fmt: skip


def printed_statistic(claims: Claims, test: Mapping[str, Any]) -> float:
    """Compute the statistic that a test names, with its arguments, on the printed tables."""
    names = ("against", "relative", "table", "tables", "row", "column")
    return _STATISTICS[test["statistic"]](claims, **{n: test[n] for n in names if n in test})
