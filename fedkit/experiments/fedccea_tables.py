"""FedCCEA's results as tables: exclusion of zeros, ranking, cost; and the paper's own Table 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedkit.claims import load_claims
from fedkit.experiments.fedccea import CONTROLS, METHODS
from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LABELS", "methods_table", "printed_times"]

LABELS = {
    "fedccea": "FedCCEA",
    "tmc-sv": "TMC-SV, retrained",
    "loo": "LOO, retrained",
    "random": "control: random order",
    "size": "control: size",
    "oracle": "control: oracle",
}
_COLUMNS = {
    "zeros": "zero indices (clients)",
    "excluded": "accuracy without them (%)",
    "area": "area between removal curves (points)",
    "auc": "clean above noisy",
    "trained": "federations trained",
}


def methods_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method and control, means over the seeds of one setting.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` in one setting.
    """
    pd = need("pandas", "run")
    means = frame.groupby("metric").value.mean()
    rows = {
        LABELS[m]: {
            title: float(means.get(f"{name}.{m}", np.nan)) for name, title in _COLUMNS.items()
        }
        for m in (*METHODS, *CONTROLS)
    }
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis=1, how="all")


def printed_times(simulations: int = 100) -> pd.DataFrame:
    """The paper's Table 2, FedCCEA's times multiplied by the simulations that it needs.

    Returns
    -------
    DataFrame
        Index: clients; columns: seconds of one simulation, of all, of TMC-SV and of LOO, and the
        ratio of FedCCEA's total to TMC-SV.
    """
    pd = need("pandas", "run")
    table = load_claims("fedccea").tables["t2"]
    rows = {m: [float(x) for x in numbers] for m, numbers in table.rows.items()}
    clients = [int(c["clients"]) for c in table.columns]
    frame = pd.DataFrame(
        {
            "FedCCEA, one simulation (s)": rows["fedccea"],
            f"FedCCEA, {simulations} simulations (s)": [simulations * x for x in rows["fedccea"]],
            "TMC-SV (s)": rows["tmc-sv"],
            "LOO (s)": rows["loo"],
        },
        index=pd.Index(clients, name="clients"),
    )
    frame["FedCCEA over TMC-SV"] = frame.iloc[:, 1] / frame["TMC-SV (s)"]
    return frame
