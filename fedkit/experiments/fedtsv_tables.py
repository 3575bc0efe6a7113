"""FedTSV's results as tables: accuracy, separation and weights; the study beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedkit import overviews
from fedkit.experiments.fedtsv_cells import CHANGES, SCALES, STUDIED, changed
from fedkit.extras import need
from fedkit.intervals import mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LABELS", "STUDY_COLUMNS", "study", "summary"]

LABELS = {
    "fedavg": "FedAvg",
    "cgsv": "CGSV",
    "loo": "LOO",
    "tsv": "FedTSV (exact)",
    "tsv-sampled": "FedTSV, sampled",
    "cgsv-game": "CGSV, its game",
    "cgsv-raw": "CGSV, not normalised",
    "mr": "control: values of accuracy (MR)",
    "random": "control: random values",
    "oracle": "control: oracle",
}
_COLUMNS = {
    "accuracy_lowest_late": "lowest late accuracy (%)",
    "test_loss": "test loss (nats)",
    "auc.iid-malicious": "iid above malicious",
    "auc.skewed-malicious": "skewed above malicious",
    "auc.iid-skewed": "iid above skewed",
    "weight_malicious": "weight of malicious (%)",
}

_TOLD = ("tsv", "cgsv", "cgsv-raw")
#: columns of :func:`study`
STUDY_COLUMNS = (
    *(LABELS[m] for m in STUDIED),
    *(f"AUC, {LABELS[m]}" for m in _TOLD),
    "AUC of skewed, FedTSV",
    "weight of malicious, FedTSV (%)",
)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method: late accuracy with its interval, and the means of the other metrics.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``figures`` in one setting.
    """
    pd = need("pandas", "run")
    late = overviews.by_seed(frame, LABELS, "accuracy_late")
    cuts = {m: mean_interval(late[m].dropna().to_numpy(dtype=np.float64)) for m in late}
    text = {m: f"{c.mean:.1f} [{c.low:.1f}, {c.high:.1f}]" for m, c in cuts.items()}
    table = pd.DataFrame({"late accuracy (%)": text})
    for metric, name in _COLUMNS.items():
        table[name] = overviews.by_seed(frame, LABELS, metric).mean()
    return table.rename(index=LABELS)


def study(frame: pd.DataFrame, profile: str = "paper") -> pd.DataFrame:
    """One row per change: late accuracy by method, and how well kinds of clients are told apart.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``study``; those of ``figures`` may stand in for its first row.
    profile : str
        Its base setting is what the changes are changes of.

    Returns
    -------
    DataFrame
        NaN where a method has no record.
    """
    pd = need("pandas", "run")
    base = SCALES[profile].bases[0]
    fields = list(dict.fromkeys(f for change in CHANGES.values() for f in change))
    rows: dict[str, dict[str, float]] = {}
    for name, change in CHANGES.items():
        s = changed(base, change)
        part = frame[np.logical_and.reduce([frame[f] == getattr(s, f) for f in fields])]
        if part.empty:
            continue
        late = overviews.by_seed(part, LABELS, "accuracy_late").mean()
        told = overviews.by_seed(part, LABELS, "auc.iid-malicious").mean()
        kinds = overviews.by_seed(part, LABELS, "auc.iid-skewed").mean()
        given = overviews.by_seed(part, LABELS, "weight_malicious").mean()
        found = [
            *(late.get(m, np.nan) for m in STUDIED),
            *(told.get(m, np.nan) for m in _TOLD),
            kinds.get("tsv", np.nan),
            given.get("tsv", np.nan),
        ]
        rows[name] = dict(zip(STUDY_COLUMNS, map(float, found), strict=True))
    return pd.DataFrame.from_dict(rows, orient="index")
