"""What FedCCEA costs: the paper's Table 2, and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedkit.extras import need
from fedkit.papers.claims import load_claims

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["measured_times", "printed_times"]


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


def measured_times(frame: pd.DataFrame, simulations: int = 100) -> pd.DataFrame:
    """Our Table 2: milliseconds per round, by number of clients.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``cost``.
    simulations : int
        How many of them FedCCEA needs.
    """
    pd = need("pandas", "run")
    wide = frame.pivot_table(index="clients", columns="metric", values="value")
    table = pd.DataFrame(
        {
            "one simulation (ms)": 1000 * wide["seconds.simulation"],
            "one of many in lockstep (ms)": 1000 * wide["seconds.lockstep"],
            f"FedCCEA, {simulations} simulations (ms)": 1000
            * simulations
            * wide["seconds.lockstep"],
            "one walk of Monte Carlo (ms)": 1000 * wide["seconds.walk"],
            "LOO (ms)": 1000 * wide["seconds.loo"],
        }
    )
    table["FedCCEA over LOO"] = table.iloc[:, 2] / table["LOO (ms)"]
    if "testing.loo" in wide:
        training = {m: wide[f"seconds.{m}"] - wide[f"testing.{m}"] for m in ("lockstep", "loo")}
        table["training alone"] = simulations * training["lockstep"] / training["loo"]
    data = simulations * wide["trained.lockstep"] / wide["trained.loo"]
    table["data trained on"] = data
    return table
