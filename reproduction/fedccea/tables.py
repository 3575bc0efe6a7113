"""FedCCEA's results as intervals and tables, from records.

Most take a :func:`seed_table`, all runs of an experiment side by side: :func:`intervals` are means
over the seeds of a setting, differences paired by seed.  A pool is a seed's mean over several
settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.common import chance_above
from reproduction.fedccea.settings import (
    DATA,
    DEALS,
    DISTRIBUTIONS,
    ENDS,
    FITS,
    LABELS,
    METHODS,
    RANDOM_ORDERS,
    READINGS,
    setting_name,
)

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.claims import Claims

RUN = ["dataset", "distribution", "noise", "seed"]
#: metric of what goes with the 40% of the clients at one end of an order
_LOST = {"lowest": "lost40", "highest": "lost40.highest"}
_RETRAINED = ("tmc-sv", "loo")


def seed_table(frame: pd.DataFrame, series: pd.DataFrame | None = None) -> pd.DataFrame:
    """Put the runs of an experiment below each other, their metrics side by side.

    `frame` holds records of the experiment ``contribution`` or ``dealt``, and `series` what tables
    of losses and of planted noise need.

    Index: data set, distribution, noise and seed, in the paper's order; one column per metric.
    From the series: "lost40.highest.M", "lost40.random" and "lost40.highest.random", points lost
    with the highest and with random clients; "clean.M", the probability that clients that stay
    clean are above those that others' runs make noisy, where all are clean, and "gain.M", how much
    more it is with noise.
    """
    table = frame.pivot(index=RUN, columns="metric", values="value")
    if series is not None:
        table = table.join(_losses(series)).join(
            _without_noise(series), on=[RUN[0], RUN[1], "seed"]
        )
        for m in METHODS:
            table[f"gain.{m}"] = table.get(f"auc.{m}", np.nan) - table[f"clean.{m}"]
    place = {name: k for k, name in enumerate([*DATA, *DISTRIBUTIONS])} | {"none": ""}
    return table.loc[sorted(table.index, key=lambda run: [place.get(x, x) for x in run])]


def _losses(series: pd.DataFrame) -> pd.DataFrame:
    """Points lost when 40% of the clients have gone, the highest or random ones."""
    names = {f"{m}.highest": f"{_LOST['highest']}.{m}" for m in (*METHODS, *READINGS, "oracle")}
    names["random"] = "lost40.random"
    drawn = series[series.series.isin(["removed", *names])]
    curves = drawn.pivot(index=[*RUN, "index"], columns="series", values="value")
    curves = curves.set_index("removed", append=True).droplevel("index")
    share = curves.index.get_level_values("removed")
    everybody, rest = (curves[share == gone].droplevel("removed") for gone in (0.0, 40.0))
    lost = (everybody - rest).reindex(columns=[*names]).rename(columns=names)
    return lost.assign(**{"lost40.highest.random": lost["lost40.random"]})


def _without_noise(series: pd.DataFrame) -> pd.DataFrame:
    """The clients that others' runs make noisy, where all are clean.

    They need not be like the others: where classes are few, theirs may be held by others too.
    """

    def told(part: pd.DataFrame) -> float:
        values = part.sort_values("index").value.to_numpy()
        first = len(values) - round(part.noisy.iloc[0] * len(values))  # as Setting.noisy_clients
        return chance_above(values[:first], values[first:])

    names = {f"value.{m}": f"clean.{m}" for m in METHODS}
    clean = series[(series.noise == "none") & series.series.isin(names)]
    rows = clean.groupby([RUN[0], RUN[1], "seed", "series"])[["index", "value", "noisy"]]
    return rows.apply(told).unstack("series").reindex(columns=[*names]).rename(columns=names)


def settings(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every setting's name and metrics, one row per seed."""
    for place, seeds in table.groupby(RUN[:3], sort=False):
        yield setting_name(*map(str, place)), seeds.droplevel([0, 1, 2])


def pools(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a seed's mean over the settings of a pool that have all seeds.

    A pool holds a data set where few classes per client decide much, or where not.  NaN where one
    of the settings lacks a metric, as the others would differ.  Nothing for one setting, or seed.
    """
    few, many = DISTRIBUTIONS["strong"], f"{DISTRIBUTIONS['iid']} and {DISTRIBUTIONS['weak']}"
    pools: dict[str, list[pd.DataFrame]] = {}
    for place, seeds in table.groupby(RUN[:3], sort=False):
        name = f"{DATA[str(place[0])]}, {few if place[1] == 'strong' else many}"
        pools.setdefault(name, []).append(seeds.droplevel([0, 1, 2]))
    for name, members in pools.items():
        most = max(map(len, members))
        whole = [seeds for seeds in members if len(seeds) == most]
        if most > 1 and len(whole) > 1:
            yield f"{name}, mean of {len(whole)} settings", reduce(add, whole) / len(whole)


def intervals(
    table: pd.DataFrame,
    shown: Mapping[str, str | tuple[str, str]],
    bounds: tuple[float, float] = (-np.inf, np.inf),
    *,
    pooled: bool = False,
) -> pd.DataFrame:
    """Means over the seeds of every setting, or pool, with their 95% intervals.

    `table` is a :func:`seed_table`; `shown` has by label a metric, or two of which the second is
    taken from the first, paired by seed; `bounds` are what a metric can be, not for differences.

    Index: setting (or pool) and label.  Columns: mean, low, high (NaN without seeds) and n, the
    seeds that have a finite number.
    """
    rows = {
        (place, label): asdict(
            _metric(seeds, what, bounds) if isinstance(what, str) else _lead(seeds, *what)
        )
        for place, seeds in (pools if pooled else settings)(table)
        for label, what in shown.items()
    }
    return overviews.table(rows)


def _metric(seeds: pd.DataFrame, metric: str, bounds: tuple[float, float]) -> Interval:
    found: Any = seeds.get(metric, [])
    if np.isfinite(bounds).all():
        return bounded_interval(found, *bounds)
    return mean_interval(found).within(*bounds)


def _lead(seeds: pd.DataFrame, a: str, b: str) -> Interval:
    """How much more a is than b, paired by seed; a ranking that ranks nobody has nothing."""
    if not {a, b} <= set(seeds):
        return paired_interval([])
    return paired_interval(seeds[a] - seeds[b])


def as_text(found: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Write :func:`intervals` as text, a row per setting and a column per label.

    Where not all seeds have a finite number, how many do is said.
    """
    most = found["n"].max()
    words = {}
    for place, row in found.iterrows():
        said = Interval(row["mean"], row["low"], row["high"], int(row["n"])).text(digits)
        words[place] = f"{said}, n = {row['n']:.0f}" if 0 < row["n"] < most else said
    wide = need("pandas", "run").Series(words).unstack(sort=False)
    return wide.loc[:, (wide != "–").any()]


# Beside the paper's numbers (Table 3)


def _printed(claims: Claims, row: str, place: Mapping[str, str], data: Iterable[str]) -> float:
    """Return a number of Table 3; NaN where there is none, or the paper has other data than ours.

    The letters are another data set.
    """
    printed = claims.tables["t3"]
    if place not in printed.columns or not {*data} <= {*claims.data.get(place["dataset"], ())}:
        return np.nan
    return float(printed.rows[row][printed.columns.index(place)])


def exclusions(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy without the clients of index zero, clean clients, beside Table 3.

    `frame`: records of the experiment ``contribution``.
    """
    claims, clean = load_claims("fedccea"), frame[frame.noise == "none"]
    rows = {"everybody": "base"} | {LABELS[m]: m for m in (*METHODS, "adam")}
    shown = {t: m if m == "base" else f"excluded.{m}" for t, m in rows.items()}
    paper = {}
    for (dataset, distribution), part in clean.groupby(RUN[:2]):
        place = {"dataset": str(dataset), "distribution": str(distribution)}
        for label, m in rows.items():
            row = "fedccea" if m in (*FITS, "adam") else m
            paper[setting_name(**place), label] = _printed(claims, row, place, part["data"])
    found = intervals(seed_table(clean), shown, (0, 100))
    return found.assign(paper=[paper[place] for place in found.index])


def learning(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy with everybody beside the paper's: all samples, fewer, and fewer with more steps.

    `frame`: records of the experiment ``learning``; all samples have the printed batches and rate.
    """
    claims, rows = load_claims("fedccea"), {}
    part = frame[frame.metric == "base"]
    part = part.assign(samples=part.samples.astype(float).fillna(np.inf))
    for dataset, distribution in product(DATA, DISTRIBUTIONS):
        place = {"dataset": dataset, "distribution": distribution}
        here = overviews.where(part, **place)
        here = here.sort_values(["samples", "lr", "batch_size"], ascending=[False, True, False])
        for (samples, *how), seeds in here.groupby(["samples", "batch_size", "lr"], sort=False):
            amount = "all samples" if samples == np.inf else f"{samples:.0f} samples"
            as_printed = how == [here.batch_size.iloc[0], here.lr.iloc[0]]
            label = amount if as_printed else f"{amount}, as run here"
            rows[setting_name(**place), label] = {
                **asdict(bounded_interval(seeds.value, 0, 100)),
                "paper": _printed(claims, "base", place, here["data"]),
            }
    return overviews.table(rows)


# Areas between removal curves, and what goes with either end of an order (Figures 5, 6, 13 to 24)


def random_spread(seeds: pd.DataFrame) -> float:
    """Return the standard error of the mean area of random orders, in points, one order per seed.

    An order read from its other end has the opposite area, so a random order's is 0 on average.
    The root mean square of all single orders is divided by the root of the number of seeds, as the
    methods' areas are means over them.
    """
    areas = seeds[[f"area.random{k}" for k in range(RANDOM_ORDERS)]].to_numpy()
    return float(np.sqrt(np.square(areas).mean() / len(areas)))


def costlier(table: pd.DataFrame, end: str = "lowest") -> dict[tuple[str, str], Interval]:
    """Find the methods and pools where one end costs more than random clients, by the interval.

    By the names of pool and method, how many more points go with the "lowest" or "highest" end.
    """
    more = {
        (name, LABELS[m]): _lead(mean, f"{_LOST[end]}.{m}", f"{_LOST[end]}.random")
        for name, mean in pools(table)
        for m in (*METHODS, *READINGS)
    }
    return {place: cut for place, cut in more.items() if cut.low > 0}


def mean_deals(table: pd.DataFrame) -> pd.DataFrame:
    """Add a seed's mean over its deals of worthless qualities, "area.dealt" and "lost40.dealt".

    `table`: a :func:`seed_table` of the experiment ``dealt``.
    """
    names = [f"{metric}.dealt{end}" for metric in ("area", "lost40") for end in ENDS.values()]
    deals = {name: [f"{name}{k}" for k in range(DEALS)] for name in names}
    return table.assign(**{
        name: table[each].mean(axis=1) for name, each in deals.items() if each[0] in table
    })  # fmt: skip


# What the fits explain (Figure 7)


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """Error of the AAM beside that of the round's mean, and in how many seeds chance does worse."""
    rows = {
        name: {
            "error of the round's mean (points)": seeds["round_error"].mean(),
            "error of the AAM (points)": seeds["aam_error"].mean(),
            "rounds that take off (share)": seeds["falling"].mean(),
            "more than chance (seeds)": f"{(seeds['explained.p'] <= 0.05).sum()} of {len(seeds)}",
        }
        for name, seeds in settings(table)
    }
    return overviews.table(rows)


# Who finds the clients with planted noise: beside the same clients when all are clean


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the noisy runs that have a clean one beside them, for every method."""
    noisy = table[table.index.get_level_values("noise") != "none"]
    return noisy.dropna(subset=[f"gain.{m}" for m in METHODS])


def decided_leads(table: pd.DataFrame) -> dict[tuple[str, str, str], tuple[Interval, Interval]]:
    """Find the pooled leads on which probability and gain agree: both leave out 0, on one side.

    By pool, reading and rival: the lead in probability, and in gain.
    """
    decided = {}
    for name, mean in pools(compared(table)):
        for ours in FITS:
            for m in _RETRAINED:
                cuts = (
                    _lead(mean, f"auc.{ours}", f"auc.{m}"),
                    _lead(mean, f"gain.{ours}", f"gain.{m}"),
                )
                if all(cut.low > 0 for cut in cuts) or all(cut.high < 0 for cut in cuts):
                    decided[name, LABELS[ours], LABELS[m]] = cuts
    return decided


# Seconds


def printed_times(simulations: int = 100) -> pd.DataFrame:
    """The paper's Table 2, FedCCEA's times multiplied by the simulations that it needs.

    Index: clients; columns: seconds of one simulation, of all, of TMC-SV and of LOO, and the ratio
    of FedCCEA's total to TMC-SV.
    """
    pd = need("pandas", "run")
    printed = load_claims("fedccea").tables["t2"]
    clients = pd.Index([int(c["clients"]) for c in printed.columns], name="clients")
    rows = pd.DataFrame(printed.rows, clients).astype(float)
    table = pd.DataFrame(
        {
            "FedCCEA, one simulation (s)": rows["fedccea"],
            f"FedCCEA, {simulations} simulations (s)": simulations * rows["fedccea"],
            "TMC-SV (s)": rows["tmc-sv"],
            "LOO (s)": rows["loo"],
        }
    )
    return table.assign(**{"FedCCEA over TMC-SV": table.iloc[:, 1] / rows["tmc-sv"]})


def measured_times(frame: pd.DataFrame, simulations: int = 100) -> pd.DataFrame:
    """Our Table 2: milliseconds per round, by number of clients.

    `frame`: records of the experiment ``cost``; `simulations`: how many FedCCEA needs.
    """
    pd = need("pandas", "run")
    found = frame.pivot_table(index="clients", columns="metric", values="value")
    total, loo = simulations * found["seconds.lockstep"], found["seconds.loo"]
    table = pd.DataFrame(
        {
            "one simulation (ms)": 1000 * found["seconds.simulation"],
            "one of many in lockstep (ms)": 1000 * found["seconds.lockstep"],
            f"FedCCEA, {simulations} simulations (ms)": 1000 * total,
            "one walk of Monte Carlo (ms)": 1000 * found["seconds.walk"],
            "LOO (ms)": 1000 * loo,
            "FedCCEA over LOO": total / loo,
        }
    )
    training = {m: found[f"seconds.{m}"] - found[f"testing.{m}"] for m in ("lockstep", "loo")}
    table["training alone"] = simulations * training["lockstep"] / training["loo"]
    table["data trained on"] = simulations * found["trained.lockstep"] / found["trained.loo"]
    return table
