"""FedCCEA's removal experiments as tables: areas between the curves, and who leads by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.experiments.fedccea import FITS, METHODS, RANDOM_ORDERS
from fedkit.experiments.fedccea_dealt import DEALS
from fedkit.experiments.fedccea_fits import READINGS
from fedkit.experiments.fedccea_pictures import wide
from fedkit.experiments.fedccea_removal import PARTIAL
from fedkit.experiments.fedccea_tables import DATA, SHORT, places, setting_name, titled
from fedkit.extras import need
from fedkit.intervals import mean_interval, paired_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "areas_table", "dealt_table", "leads_table", "losses_table", "partial_table", "random_spread",
]  # fmt: skip

#: share of the clients, in percent, whose loss the metrics "lost40" tell
_LOST = 40.0


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


def _lead(seeds: pd.DataFrame, a: str, b: str, metric: str = "area") -> str:
    if not {f"{metric}.{a}", f"{metric}.{b}"} <= set(seeds):  # a ranking that ranks nobody has none
        return "–"
    return paired_interval(seeds[f"{metric}.{a}"] - seeds[f"{metric}.{b}"]).text(1)


def losses_table(frame: pd.DataFrame, series: pd.DataFrame) -> pd.DataFrame:
    """What is lost with the lowest 40% of the clients, beside as many random clients.

    Parameters
    ----------
    frame, series : DataFrame
        Metrics and series of the experiment ``contribution``.

    Returns
    -------
    DataFrame
        One row per setting, in points: what random clients take with them (the mean removal curve
        of all random orders), and how much more a method's lowest do, paired by seed.
    """
    pd = need("pandas", "run")
    rows = {}
    for place, seeds in places(frame):
        here = dict(zip(("dataset", "distribution", "noise"), place, strict=True))
        curves = wide(series, **here).dropna(subset=["removed"]).set_index("seed")
        chance = curves.random[curves.removed == 0] - curves.random[curves.removed == _LOST]
        seeds = seeds.assign(**{"lost40.random": chance})
        rows[setting_name(*place)] = {
            "seeds": str(len(seeds)),
            "random clients": mean_interval(seeds["lost40.random"]).text(1),
            **{
                f"{SHORT[m]}, more": _lead(seeds, m, "random", "lost40")
                for m in (*METHODS, *READINGS, "oracle")
            },
        }
    return pd.DataFrame.from_dict(rows, orient="index")


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

    Returns
    -------
    DataFrame
        One row per setting, in points: areas, the lead in area over the control of amounts, and how
        much more than by that control is lost with the lowest 40%, paired by seed.
    """
    table = titled(frame, {f"area.{m}": SHORT[m] for m in PARTIAL}, digits=1, count=True)
    amounts = PARTIAL[-1]
    for metric, title in (("area", f"over {SHORT[amounts]}"), ("lost40", "lost more")):
        for m in PARTIAL[:-1]:
            leads = [_lead(seeds, m, amounts, metric) for _, seeds in places(frame)]
            table[f"{SHORT[m]}, {title}"] = leads  # rows of both are in the order of `places`
    return table


def dealt_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What worthless qualities show where clients use random shares of their data.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``dealt``.

    Returns
    -------
    DataFrame
        One row per setting, in points: areas of the learnt qualities, of the dealt ones (a seed's
        mean over its deals) with the standard deviation of single deals, and of the amounts alone;
        how many more points than by the amounts alone go with the lowest 40%; and the lead of the
        learnt over the dealt in both, paired by seed.
    """
    pd = need("pandas", "run")
    rows = {}
    for place, seeds in places(frame):
        found: dict[str, dict[str, Any]] = {}
        for name in ("area", "lost40"):
            deals = seeds[[f"{name}.dealt{k}" for k in range(DEALS)]]
            found[name] = {"learnt": seeds[f"{name}.learnt"], "amounts": seeds[f"{name}.amounts"]}
            found[name] |= {"dealt": deals.mean(axis=1), "sd": deals.to_numpy().std(ddof=1)}
        area, lost = found["area"], found["lost40"]
        rows[setting_name(*place)] = {
            "seeds": str(len(seeds)),
            "area, learnt": mean_interval(area["learnt"]).text(1),
            "area, dealt": f"{mean_interval(area['dealt']).text(1)}, one ±{area['sd']:.1f}",
            "area, amounts alone": mean_interval(area["amounts"]).text(1),
            "area, learnt over dealt": paired_interval(area["learnt"] - area["dealt"]).text(1),
            "lost more, learnt": paired_interval(lost["learnt"] - lost["amounts"]).text(1),
            "lost more, dealt": paired_interval(lost["dealt"] - lost["amounts"]).text(1),
            "lost, learnt less dealt": paired_interval(lost["learnt"] - lost["dealt"]).text(1),
        }
    return pd.DataFrame.from_dict(rows, orient="index")
