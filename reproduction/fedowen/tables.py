"""FedOwen's results as tables: every method beside the paper's number and beside the controls.

The claims report judges what the paper printed.  These tables add what it
did not print: controls, the corrected estimator, exact values, and paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedkit.intervals import paired_interval
from reproduction import overviews

if TYPE_CHECKING:
    import pandas as pd

LABELS = {
    "fedavg": "FedAvg",
    "mc": "MC-Shapley",
    "gtg": "GTG-Shapley",
    "banzhaf": "Data Banzhaf",
    "weightedshap": "WeightedSHAP",
    "shapfed": "ShapFed-WA",
    "shapfed-proportional": "ShapFed-WA, weights as in Algorithm 7",
    "fedowen": "FedOwen, as printed",
    "fedowen-no-adaptive": "FedOwen, random selection",
    "fedowen-corrected": "FedOwen, corrected",
    "fedowen-eq11": "FedOwen, as in its text (Eq. 11)",
    "banzhaf-rescaled": "Data Banzhaf, twice the printed values",
    "exact": "oracle: exact Shapley values",
    "random-values": "control: random values",
    "fedowen-shuffled": "control: FedOwen's values, shuffled",
    "size-values": "control: size as value",
    "exact-no-adaptive": "oracle: exact values, random selection",
    "random-values-no-adaptive": "control: random values, random selection",
    "size-values-no-adaptive": "control: size as value, random selection",
    "uniform": "control: no values at all",
}
by_seed = partial(overviews.by_seed, labels=LABELS)
overview = partial(overviews.overview, labels=LABELS, references=("fedavg", "random-values"))
as_text = partial(overviews.as_text, labels=LABELS)
gains = overviews.gains


def sensitivity(
    frame: pd.DataFrame, fields: Sequence[str], defaults: Mapping[str, Any], rival: str = "fedavg"
) -> pd.DataFrame:
    """One row per setting that the paper does not give: methods, and their paired difference.

    `frame` holds records of the experiment ``sensitivity``, in which `fields` are varied one at a
    time, and of ``table1`` for the defaults.

    Index (setting, value), our choices first; columns fedavg, fedowen, random-values, uniform
    (means; NaN without a record), gain, low, high (FedOwen minus its rival, paired by seed, 95%)
    and seeds.
    """
    shown = ["fedavg", "fedowen", "random-values", "uniform"]
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for name in ("", *fields):
        kept = overviews.where(frame[frame.metric == "accuracy"],
                               **{f: defaults[f] for f in fields if f != name})  # fmt: skip
        varied = kept[kept[name] != defaults[name]].groupby(name) if name else [("", kept)]
        for value, group in varied:
            wide = group.pivot_table(index="seed", columns="method", values="value")
            wide = wide.reindex(columns=shown).dropna(subset=[rival, "fedowen"])
            cut = paired_interval(wide["fedowen"] - wide[rival])
            rows[name or "our choice", str(value)] = {
                **wide.mean(), "gain": cut.mean, "low": cut.low, "high": cut.high, "seeds": cut.n,
            }  # fmt: skip
    return overviews.table(rows).rename_axis(["setting", "value"])
