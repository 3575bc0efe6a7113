"""FedCCEA's removal experiments as tables: areas between the curves, and who leads by how much."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import Interval, mean_interval, paired_interval
from fedkit.papers.fedccea.dealt import DEALS, ENDS
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.pictures import wide
from fedkit.papers.fedccea.removal import PARTIAL
from fedkit.papers.fedccea.settings import FITS, METHODS, RANDOM_ORDERS
from fedkit.papers.fedccea.tables import (
    SHORT,
    places,
    pool_name,
    pooled,
    setting_name,
    titled,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "areas_table", "costlier", "dealt_table", "leads_table", "losses_table", "partial_table",
    "pooled_losses", "random_spread",
]  # fmt: skip

#: share of the clients, in percent, whose loss the metrics "lost40" tell
_LOST = 40.0

#: metric of what goes with the clients at one end of an order
_LOST_WITH = {"lowest": "lost40", "highest": "lost40.highest"}


def random_spread(seeds: pd.DataFrame) -> float:
    """Return the standard error of the mean area of random orders, in points, one order per seed.

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
    """Area between the removal curves in points, per setting, and a random order's standard error.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    titles = {f"area.{m}": title for m, title in SHORT.items() if m not in PARTIAL}
    table = titled(frame, titles, digits=1, count=True)
    spread = {setting_name(*place): random_spread(seeds) for place, seeds in places(frame)}
    return table.assign(**{"a random order, s.e.": [f"{spread[name]:.1f}" for name in table.index]})


def _lead(seeds: pd.DataFrame, a: str, b: str, metric: str = "area") -> Interval:
    if not {f"{metric}.{a}", f"{metric}.{b}"} <= set(seeds):  # a ranking that ranks nobody has none
        return paired_interval([])
    return paired_interval(seeds[f"{metric}.{a}"] - seeds[f"{metric}.{b}"])


def losses_table(frame: pd.DataFrame, series: pd.DataFrame, end: str = "lowest") -> pd.DataFrame:
    """What is lost with the lowest or the highest 40%, beside as many random clients.

    Parameters
    ----------
    frame, series : DataFrame
        Metrics and series of the experiment ``contribution``.
    end : {"lowest", "highest"}
        Who goes.

    Returns
    -------
    DataFrame
        One row per setting, in points: what random clients take with them (the mean removal curve
        of all random orders), and how much more a method's lowest, or highest, do, paired by seed.
    """
    pd = need("pandas", "run")
    rows = {setting_name(*place): _lost(seeds, end) for place, seeds in _with_lost(frame, series)}
    return pd.DataFrame.from_dict(rows, orient="index")


def pooled_losses(frame: pd.DataFrame, series: pd.DataFrame, end: str = "lowest") -> pd.DataFrame:
    """The same pooled: a seed's mean over the settings of a pool that have all seeds.

    Parameters
    ----------
    frame, series, end
        As in :func:`losses_table`.
    """
    pd = need("pandas", "run")
    rows = {name: _lost(mean, end) for name, mean in _pools(frame, series)}
    return pd.DataFrame.from_dict(rows, orient="index")


def costlier(
    frame: pd.DataFrame, series: pd.DataFrame, end: str = "lowest"
) -> dict[tuple[str, str], Interval]:
    """Find the methods and pools where one end costs more than random clients, by the interval.

    Parameters
    ----------
    frame, series, end
        As in :func:`losses_table`.

    Returns
    -------
    dict
        By the names of pool and method, how many more points go with that end.
    """
    found = {
        (name, SHORT[m]): _lead(mean, m, "random", _LOST_WITH[end])
        for name, mean in _pools(frame, series)
        for m in (*METHODS, *READINGS)
    }
    return {place: cut for place, cut in found.items() if cut.low > 0}


def _pools(frame: pd.DataFrame, series: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    parts = ((pool_name(*place[:2]), seeds) for place, seeds in _with_lost(frame, series))
    return pooled(parts)


def _with_lost(
    frame: pd.DataFrame, series: pd.DataFrame
) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Yield every setting's metrics with what goes with random and with the highest clients."""
    for place, seeds in places(frame):
        here = dict(zip(("dataset", "distribution", "noise"), place, strict=True))
        curves = wide(series, **here).dropna(subset=["removed"]).set_index("seed")
        lost = curves[curves.removed == 0] - curves[curves.removed == _LOST]
        highest = {
            f"{_LOST_WITH['highest']}.{m}": lost[f"{m}.highest"]
            for m in (*METHODS, *READINGS, "oracle")
            if f"{m}.highest" in lost
        }
        random = {f"{metric}.random": lost.random for metric in _LOST_WITH.values()}
        yield place, seeds.assign(**highest, **random)


def _lost(seeds: pd.DataFrame, end: str) -> dict[str, str]:
    more = {
        f"{SHORT[m]}, more": _lead(seeds, m, "random", _LOST_WITH[end]).text(1)
        for m in (*METHODS, *READINGS, "oracle")
    }
    shown = mean_interval(seeds["lost40.random"]).text(1)
    return {"seeds": str(len(seeds)), "random clients": shown, **more}


def leads_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FedCCEA's lead in area over those who retrain, paired by seed, in both readings.

    The last rows pool: the mean lead of a seed over the settings of a pool that have all seeds, and
    its interval over the seeds.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    pd = need("pandas", "run")
    pairs = [
        (ours, m, f"{SHORT[ours]}, over {SHORT[m]}") for ours in FITS for m in ("tmc-sv", "loo")
    ]
    found = [*places(frame)]
    named = [(setting_name(*place), seeds) for place, seeds in found]
    parts = ((pool_name(*place[:2]), seeds) for place, seeds in found)
    rows = {
        name: {title: _lead(seeds, a, b).text(1) for a, b, title in pairs}
        for name, seeds in (*named, *pooled(parts))
    }
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
            leads = [_lead(seeds, m, amounts, metric).text(1) for _, seeds in places(frame)]
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
        One row per setting and reading, in points: areas of the learnt qualities, of the dealt
        ones (a seed's mean over its deals) with the standard deviation of single deals, and of the
        amounts alone; how many more points than by the amounts alone go with the lowest 40%; and
        the lead of the learnt over the dealt in both, paired by seed.
    """
    pd = need("pandas", "run")
    rows = {}
    for (place, seeds), (reading, end) in itertools.product(places(frame), ENDS.items()):
        if f"area.learnt{end}" not in seeds:
            continue
        found: dict[str, dict[str, Any]] = {}
        for name in ("area", "lost40"):
            deals = seeds[[f"{name}.dealt{end}{k}" for k in range(DEALS)]]
            found[name] = {"learnt": seeds[f"{name}.learnt{end}"]}
            found[name] |= {"amounts": seeds[f"{name}.amounts"]}
            found[name] |= {"dealt": deals.mean(axis=1), "sd": deals.to_numpy().std(ddof=1)}
        area, lost = found["area"], found["lost40"]
        rows[setting_name(*place), SHORT[reading]] = {
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
