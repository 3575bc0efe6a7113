"""FedCCEA's removal experiments as tables: areas between the curves, and who leads by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.experiments.fedccea import FITS, RANDOM_ORDERS
from fedkit.experiments.fedccea_removal import PARTIAL
from fedkit.experiments.fedccea_tables import DATA, SHORT, places, setting_name, titled
from fedkit.extras import need
from fedkit.intervals import paired_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["areas_table", "leads_table", "partial_table", "random_spread"]


def random_spread(seeds: pd.DataFrame) -> float:
    """How far the mean area of random orders is from 0, in points, one order per seed.

    An order read from its other end has the opposite area, so a random order's is 0 on average.
    The root mean square of all single orders is divided by the root of the number of seeds, as the
    methods' areas are means over them.

    Parameters
    ----------
    seeds : DataFrame
        Metrics, one row per seed.
    """
    areas = seeds[[f"area.random{k}" for k in range(RANDOM_ORDERS)]].to_numpy()
    return float(np.sqrt(np.square(areas).mean() / len(areas)))


def areas_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Area between the removal curves in points, per setting, and what random orders scatter.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    titles = {f"area.{m}": title for m, title in SHORT.items() if m not in PARTIAL}
    table = titled(frame, titles, digits=1, count=True)
    spread = {setting_name(*place): random_spread(seeds) for place, seeds in places(frame)}
    return table.assign(**{"a random order, ±": [f"{spread[name]:.1f}" for name in table.index]})


def _lead(seeds: pd.DataFrame, a: str, b: str) -> str:
    if not {f"area.{a}", f"area.{b}"} <= set(seeds):  # a ranking that ranks nobody has none
        return "–"
    return paired_interval(seeds[f"area.{a}"] - seeds[f"area.{b}"]).text(1)


def leads_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FedCCEA's lead in area over those who retrain, paired by seed, in both readings.

    The last rows pool: the mean lead of a seed over the settings of a data set, clean or noisy,
    that have all seeds, and its interval over the seeds.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    pd = need("pandas", "run")
    pairs = [
        (ours, m, f"{SHORT[ours]}, over {SHORT[m]}") for ours in FITS for m in ("tmc-sv", "loo")
    ]
    rows: dict[str, dict[str, str]] = {}
    pools: dict[str, list[Any]] = {}
    for place, seeds in places(frame):
        rows[setting_name(*place)] = {title: _lead(seeds, a, b) for a, b, title in pairs}
        pool = f"{DATA[place[0]]}, mean of the {'clean' if place[2] == 'none' else 'noisy'}"
        pools.setdefault(pool, []).append(seeds)
    for pool, members in pools.items():
        most = max(len(seeds) for seeds in members)
        whole = [seeds for seeds in members if len(seeds) == most]
        if most < 2 or len(whole) < 2:
            continue
        # A ranking that ranks nobody in one of the settings is not pooled: the others would differ.
        mean = pd.concat(whole).groupby(level=0).agg(lambda found: found.mean(skipna=False))
        rows[f"{pool} settings ({len(whole)})"] = {t: _lead(mean, a, b) for a, b, t in pairs}
    return pd.DataFrame.from_dict(rows, orient="index")


def partial_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Areas with partial participation, and what the qualities add to the amounts.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    table = titled(frame, {f"area.{m}": SHORT[m] for m in PARTIAL}, digits=1, count=True)
    for m in PARTIAL[:-1]:
        leads = {setting_name(*place): _lead(s, m, PARTIAL[-1]) for place, s in places(frame)}
        table[f"{SHORT[m]}, over {SHORT[PARTIAL[-1]]}"] = [leads[name] for name in table.index]
    return table
