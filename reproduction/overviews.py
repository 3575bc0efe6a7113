"""Methods side by side, from records: means with intervals, and differences paired by seed.

They add to the claims report what a paper did not print, such as controls.  ``labels`` names the
methods of a paper and puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import Interval, holm, mean_interval, paired_interval, paired_p_value, settled
from reproduction.outside import is_outside

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.records import Record

__all__ = [
    "alike", "by_seed", "gains", "machines_told", "means", "overview", "seeds_told",
    "table", "where",
]  # fmt: skip


def where(frame: pd.DataFrame, **settings: Any) -> pd.DataFrame:
    """Keep the rows with these settings."""
    for name, value in settings.items() if len(frame) else ():  # without records, no columns
        frame = frame[frame[name] == value]
    return frame


def alike(frame: pd.DataFrame, setting: Any, fields: Iterable[str]) -> pd.DataFrame:
    """Keep the rows that have the same in these fields as a setting."""
    return where(frame, **{name: getattr(setting, name) for name in fields})


def table(rows: Mapping[Any, Mapping[str, Any]]) -> pd.DataFrame:
    """Make a table of rows by name, each a number or text by column."""
    return need("pandas", "run").DataFrame.from_dict(rows, orient="index")


def seeds_told(counts: Iterable[int]) -> str:
    """Say how many seeds stand behind numbers, but for those that have none: '5 to 10 seeds'."""
    some = [int(n) for n in counts if n > 0]
    low, high = min(some), max(some)
    return f"{low} seeds" if low == high else f"{low} to {high} seeds"


def machines_told(records: Iterable[Record]) -> str:
    """Say in a sentence on which processors recorded times were measured, where it is kept."""
    kept = [record.manifest.get("machine") for record in records]
    named = sorted({machine for machine in kept if machine})
    if not named:
        return "The processor was not kept."
    rest = f"; of {kept.count(None)} of {len(kept)} records it was not kept" * (None in kept)
    return f"Measured on {' and '.join(named)}{rest}."


def by_seed(
    frame: pd.DataFrame, labels: Mapping[str, str], metric: str = "accuracy", **settings: Any
) -> pd.DataFrame:
    """Pivot records with these settings to one row per seed and one column per method.

    The methods are those of `labels` in their order, then methods from outside; `frame` is from
    :meth:`reproduction.records.Store.frame`.
    """
    part = where(frame, metric=metric, **settings)
    if part.empty:
        raise ValueError(f"no record with metric {metric!r} and settings {settings}")
    if part.duplicated(["method", "seed"]).any():
        raise ValueError(f"settings {settings} leave several records per method; name more of them")
    wide = part.pivot(index="seed", columns="method", values="value")
    return wide[[m for m in labels if m in wide.columns] + [m for m in wide if is_outside(m)]]


def gains(wide: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Difference of every method to one of them, paired by seed.

    Equal seeds share partition, initial model and client batches, so the difference is taken
    inside each seed.

    Index method; columns gain, low, high, p (Holm-adjusted over the table), seeds.
    """
    pd = need("pandas", "run")
    if reference not in wide:
        raise ValueError(f"{reference!r} has no record; there are {', '.join(wide.columns)}")
    others = [m for m in wide.columns if m != reference]
    rows, p_values = {}, []
    for method in others:
        # Rows may differ in their seeds; a difference is taken where both have run.
        pair = wide[[method, reference]].dropna().to_numpy(dtype=np.float64)
        difference = settled(pair[:, 0] - pair[:, 1], of=pair)
        p_values.append(paired_p_value(difference)[0])
        rows[method] = astuple(paired_interval(difference))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["gain", "low", "high", "seeds"])
    table["p"] = holm(p_values) if others else []
    return table


def means(
    wide: pd.DataFrame, interval: Callable[[pd.Series], Interval], count: str
) -> pd.DataFrame:
    """Mean of every column with its interval: columns mean, low, high, and `count` of how many."""
    rows = {column: astuple(interval(wide[column])) for column in wide}
    return need("pandas", "run").DataFrame(rows, index=["mean", "low", "high", count]).T


def overview(
    frame: pd.DataFrame,
    labels: Mapping[str, str],
    references: Sequence[str],
    metric: str = "accuracy",
    **settings: Any,
) -> pd.DataFrame:
    """Mean of every method with its interval, and its gain over each reference.

    Index method; columns mean, low, high, seeds, and per reference ``gain over <reference>``, ``low
    <reference>``, ``high <reference>``, ``p <reference>`` and ``seeds <reference>``, those that
    both have; in the metric's unit.
    """
    wide = by_seed(frame, labels, metric, **settings)
    table = means(wide, mean_interval, "seeds")
    for reference in references:
        difference = gains(wide, reference)
        table[f"gain over {reference}"] = difference["gain"]
        for column in ("low", "high", "p", "seeds"):
            table[f"{column} {reference}"] = difference[column]
    return table
