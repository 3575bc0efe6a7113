"""FedOwen's results as tables: every method beside the paper's number and beside the controls.

The claims report (:mod:`fedkit.comparing`) judges what the paper printed.  These tables add what
it did not print: controls, the corrected estimator, exact values, and paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import holm, mean_interval, paired_interval, paired_p_value

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GROUPS", "LABELS", "as_text", "by_seed", "gains", "overview", "sensitivity"]

LABELS = {
    "fedavg": "FedAvg",
    "mc": "MC-Shapley",
    "gtg": "GTG-Shapley",
    "banzhaf": "Data Banzhaf",
    "weightedshap": "WeightedSHAP",
    "shapfed": "ShapFed-WA",
    "fedowen": "FedOwen, as printed",
    "fedowen-no-adaptive": "FedOwen, random selection",
    "fedowen-corrected": "FedOwen, corrected",
    "exact": "exact Shapley values",
    "random-values": "control: random values",
    "size-values": "control: size as value",
    "uniform": "control: no values at all",
}
GROUPS = {
    **dict.fromkeys(("fedavg", "mc", "gtg", "banzhaf", "weightedshap", "shapfed"), "paper"),
    **dict.fromkeys(("fedowen", "fedowen-no-adaptive"), "paper"),
    **dict.fromkeys(("fedowen-corrected", "exact"), "ours"),
    **dict.fromkeys(("random-values", "size-values", "uniform"), "control"),
}


def by_seed(frame: pd.DataFrame, metric: str = "accuracy", **settings: Any) -> pd.DataFrame:
    """Pivot records to one row per seed and one column per method.

    Parameters
    ----------
    frame : DataFrame
        From :meth:`fedkit.records.Store.frame`.
    metric : str
        Name of the metric.
    **settings
        Keep records with these settings.

    Raises
    ------
    ValueError
        If no record fits, or several settings are mixed.
    """
    part = frame[frame.metric == metric]
    for name, value in settings.items():
        part = part[part[name] == value]
    if part.empty:
        raise ValueError(f"no record with metric {metric!r} and settings {settings}")
    if part.duplicated(["method", "seed"]).any():
        raise ValueError(f"settings {settings} leave several records per method; name more of them")
    wide = part.pivot(index="seed", columns="method", values="value")
    return wide[[m for m in LABELS if m in wide.columns]]


def gains(wide: pd.DataFrame, reference: str, level: float = 0.95) -> pd.DataFrame:
    """Difference of every method to one of them, paired by seed.

    Equal seeds share partition, initial model and client batches, so the difference is taken
    inside each seed.

    Returns
    -------
    DataFrame
        Index method; columns gain, low, high, p (Holm-adjusted over the table), seeds.
    """
    pd = need("pandas", "run")
    if reference not in wide:
        raise ValueError(f"{reference!r} has no record; there are {', '.join(wide.columns)}")
    others = [m for m in wide.columns if m != reference]
    rows, p_values = {}, []
    for method in others:
        # Rows may differ in their seeds; a difference is taken where both have run.
        difference = (wide[method] - wide[reference]).dropna().to_numpy(dtype=np.float64)
        interval = paired_interval(difference, level)
        p_values.append(paired_p_value(difference)[0])
        rows[method] = [interval.mean, interval.low, interval.high, interval.n]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["gain", "low", "high", "seeds"])
    table["p"] = holm(p_values) if others else []
    return table


def overview(
    frame: pd.DataFrame, references: Sequence[str] = ("fedavg", "random-values"), **settings: Any
) -> pd.DataFrame:
    """Accuracy of every method with its interval, and its gain over each reference.

    Returns
    -------
    DataFrame
        Index method; columns mean, low, high, seeds, and per reference ``gain over <reference>``,
        ``low <reference>``, ``high <reference>``, ``p <reference>``; in percentage points.
    """
    pd = need("pandas", "run")
    wide = by_seed(frame, **settings)
    intervals = {m: mean_interval(wide[m].dropna().to_numpy(dtype=np.float64)) for m in wide}
    table = pd.DataFrame(
        {m: [i.mean, i.low, i.high, i.n] for m, i in intervals.items()},
        index=["mean", "low", "high", "seeds"],
    ).T
    for reference in references:
        difference = gains(wide, reference)
        table[f"gain over {reference}"] = difference["gain"]
        for column in ("low", "high", "p"):
            table[f"{column} {reference}"] = difference[column]
    return table


def sensitivity(
    frame: pd.DataFrame,
    fields: Sequence[str],
    defaults: Mapping[str, Any],
    metric: str = "accuracy",
) -> pd.DataFrame:
    """One row per setting that the paper does not give: methods, and their paired difference.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``sensitivity``, and of ``table1`` for the defaults: one row
        per method, seed and setting.
    fields : sequence of str
        The settings that are varied, one at a time.
    defaults : mapping
        Our choice for each of them.
    metric : str
        Name of the metric.

    Returns
    -------
    DataFrame
        Index (setting, value), our choices first; columns fedavg, fedowen (means), gain, low,
        high (FedOwen minus FedAvg, paired by seed, 95%) and seeds.
    """
    pd = need("pandas", "run")
    part = frame[frame.metric == metric]
    rows: dict[tuple[str, str], list[float]] = {}
    for name in ("our choice", *fields):
        others = [f for f in fields if f != name]
        kept = part[np.logical_and.reduce([part[f] == defaults[f] for f in others])]
        if name != "our choice":
            kept = kept[kept[name] != defaults[name]]
        for value, group in [("", kept)] if name == "our choice" else kept.groupby(name):
            wide = group.pivot_table(index="seed", columns="method", values="value").dropna()
            difference = paired_interval((wide["fedowen"] - wide["fedavg"]).to_numpy())
            rows[name, str(value)] = [
                *(float(wide[m].mean()) for m in ("fedavg", "fedowen")),
                *(difference.mean, difference.low, difference.high, difference.n),
            ]
    index = pd.MultiIndex.from_tuples(rows, names=["setting", "value"])
    columns = ["fedavg", "fedowen", "gain", "low", "high", "seeds"]
    return pd.DataFrame(list(rows.values()), index=index, columns=columns)


def as_text(table: pd.DataFrame, paper: dict[str, float] | None = None) -> str:
    """Write an overview as a markdown table, the paper's printed numbers beside ours.

    Parameters
    ----------
    table : DataFrame
        From :func:`overview`.
    paper : dict of str to float, optional
        Printed accuracy per method.
    """
    references = [
        c.removeprefix("gain over ") for c in map(str, table) if c.startswith("gain over ")
    ]
    head = ["method", *(["paper"] if paper else []), "ours [95% CI]", "seeds"]
    head += [f"gain over {LABELS[r].removeprefix('control: ')}" for r in references]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method, row in table.iterrows():
        cells = [LABELS[str(method)]]
        if paper:
            printed = paper.get(str(method))
            cells.append("–" if printed is None else f"{printed:.2f}")
        cells.append(f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]")
        cells.append(f"{row['seeds']:.0f}")
        for r in references:
            gain = row[f"gain over {r}"]
            sure = " \\*" if row[f"p {r}"] < 0.05 else ""
            cells.append(
                "–"
                if not np.isfinite(gain)
                else f"{gain:+.2f} [{row[f'low {r}']:+.2f}, {row[f'high {r}']:+.2f}]{sure}"
            )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
