"""FedCCEA's results as tables, from records.

Most tables take a :func:`seed_table`, all runs of an experiment side by side, and have a row per
setting: means over its seeds with 95% intervals, differences paired by seed.  Pooled rows are a
seed's mean over several settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import Interval, mean_interval, paired_interval
from fedkit.papers import overviews
from fedkit.papers.claims import load_claims
from fedkit.papers.common import chance_above
from fedkit.papers.fedccea.names import (
    DATA,
    DEALS,
    DISTRIBUTIONS,
    ENDS,
    FITS,
    LABELS,
    METHODS,
    PARTIAL,
    PARTS,
    RANDOM_ORDERS,
    READINGS,
    SHORT,
    setting_name,
)

if TYPE_CHECKING:
    import pandas as pd

RUN = ["dataset", "distribution", "noise", "seed"]
#: metric of what goes with the 40% of the clients at one end of an order
_LOST = {"lowest": "lost40", "highest": "lost40.highest"}
_RETRAINED = ("tmc-sv", "loo")
_CHANCE = (0.0, 1.0)


def seed_table(frame: pd.DataFrame, series: pd.DataFrame | None = None) -> pd.DataFrame:
    """Put the runs of an experiment below each other, their metrics side by side.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` or ``dealt``.
    series : DataFrame, optional
        Series of the same records, for tables of losses and of planted noise.

    Returns
    -------
    DataFrame
        Index: data set, distribution, noise and seed, in the paper's order; one column per metric.
        From the series: "lost40.highest.M", "lost40.random" and "lost40.highest.random", points
        lost with the highest and with random clients; "clean.M", the probability that clients that
        stay clean are above those that others' runs make noisy, where all are clean, and "gain.M",
        how much more it is with noise.
    """
    table = frame.pivot(index=RUN, columns="metric", values="value")
    if series is not None:
        table = table.join(_losses(series)).join(
            _without_noise(series), on=[RUN[0], RUN[1], "seed"]
        )
        noisy = table.reindex(columns=[f"auc.{m}" for m in METHODS]).to_numpy()
        clean = table[[f"clean.{m}" for m in METHODS]].to_numpy()
        table[[f"gain.{m}" for m in METHODS]] = noisy - clean

    def rank(run: tuple[Any, ...]) -> tuple[Any, ...]:
        dataset, distribution, noise, seed = run
        return (
            [*DATA].index(dataset),
            [*DISTRIBUTIONS].index(distribution),
            noise != "none",
            noise,
            seed,
        )

    return table.loc[sorted(table.index, key=rank)]


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
    pd = need("pandas", "run")
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    clean = series[(series.noise == "none") & series.series.isin([f"value.{m}" for m in METHODS])]
    place = ["dataset", "distribution", "seed"]
    for (*run, name, share), part in clean.groupby([*place, "series", "noisy"]):
        values = part.sort_values("index").value.to_numpy()
        first = len(values) - round(float(str(share)) * len(values))  # as Setting.noisy_clients
        row = rows.setdefault(tuple(run), {})
        row[f"clean.{str(name).removeprefix('value.')}"] = chance_above(
            values[:first], values[first:]
        )
    index = pd.MultiIndex.from_tuples([*rows] or np.empty((0, 3)), names=place)
    return pd.DataFrame([*rows.values()], index, [f"clean.{m}" for m in METHODS])


def _settings(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every setting's name and metrics, one row per seed."""
    for place, seeds in table.groupby(RUN[:3], sort=False):
        yield setting_name(*map(str, place)), seeds.droplevel([0, 1, 2])


def _pools(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
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


def _rows(
    parts: Iterator[tuple[str, pd.DataFrame]], row: Callable[[pd.DataFrame], dict[str, str]]
) -> pd.DataFrame:
    return overviews.table({name: row(seeds) for name, seeds in parts})


def _seeds(seeds: pd.DataFrame) -> dict[str, str]:
    return {"seeds": str(len(seeds))}


def _text(
    seeds: pd.DataFrame, metric: str, digits: int, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> str:
    """A metric's mean with its interval over the seeds; a dash where there is none.

    Where not all seeds have a finite number, how many do is said.
    """
    found = mean_interval(seeds.get(metric, []))
    words = found.within(*bounds).text(digits)
    return f"{words}, n = {found.n}" if 0 < found.n < len(seeds) else words


def _lead(seeds: pd.DataFrame, metric: str, a: str, b: str) -> Interval:
    """How much more a has than b, paired by seed; a ranking that ranks nobody has nothing."""
    if not {f"{metric}.{a}", f"{metric}.{b}"} <= set(seeds):
        return paired_interval([])
    return paired_interval(seeds[f"{metric}.{a}"] - seeds[f"{metric}.{b}"])


# Indices, and what is left without the clients of index zero (Tables 1 and 3)


def methods_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method and control, means over the seeds of one setting.

    `frame`: records of the experiment ``contribution`` in one setting.
    """
    means = frame.groupby("metric").value.mean()
    columns = {
        "zeros": "zero indices (clients)",
        "excluded": "accuracy without them (%)",
        "area": "area between removal curves (points)",
        "auc": "clean above noisy",
        "trained": "federations trained",
    }
    rows = {
        LABELS[m]: {title: means.get(f"{k}.{m}", np.nan) for k, title in columns.items()}
        for m in (*METHODS, *READINGS, "size", "oracle")
        if f"area.{m}" in means
    }
    return overviews.table(rows).dropna(axis=1, how="all")


def exclusion_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What Table 3 shows, one row per method: accuracy without the clients of index zero.

    `frame`: records of the experiment ``contribution``; clean settings are shown.
    """
    claims, clients = load_claims("fedccea"), float(frame.clients.max())
    printed = claims.tables["t3"]
    rows = {}
    clean = frame[frame.noise == "none"]
    for where, part in seed_table(clean).groupby(RUN[:2], sort=False):
        dataset, distribution = map(str, where)
        place = {"dataset": dataset, "distribution": distribution}
        # the paper's numbers belong to its own data: not to the letters
        used = set(frame[frame.dataset == dataset]["data"])
        same = place in printed.columns and used <= set(claims.data[dataset])
        for m in ("base", *METHODS, "adam"):
            base, row = m == "base", "fedccea" if m in (*FITS, "adam") else m
            seeds = part.droplevel([0, 1, 2])
            if f"excluded.{m}.random" in seeds:
                over = seeds[f"excluded.{m}"] - seeds[f"excluded.{m}.random"]
                seeds = seeds.assign(over=over)
            column = "everybody" if base else LABELS[m]
            rows[setting_name(dataset, distribution), column] = {
                **_seeds(seeds),
                "paper (%)": str(printed.rows[row][printed.columns.index(place)]) if same else "–",
                "accuracy (%)": _text(seeds, "base" if base else f"excluded.{m}", 1, (0, 100)),
                "without as many random clients (%)": _text(
                    seeds, f"excluded.{m}.random", 1, (0, 100)
                ),
                "less these (points)": _text(seeds, "over", 1),
                "clients of index zero": _text(seeds, f"zeros.{m}", 1, (0, clients)),
                "spread of the index": _text(seeds, f"spread.{m}", 2, (0, np.inf)),
            }
    return overviews.table(rows)


# Areas between removal curves, and what goes with either end of an order (Figures 5, 6, 13 to 24)


def random_spread(seeds: pd.DataFrame) -> float:
    """Return the standard error of the mean area of random orders, in points, one order per seed.

    An order read from its other end has the opposite area, so a random order's is 0 on average.
    The root mean square of all single orders is divided by the root of the number of seeds, as the
    methods' areas are means over them.

    `seeds`: metrics of a setting, one row per seed.
    """
    areas = seeds[[f"area.random{k}" for k in range(RANDOM_ORDERS)]].to_numpy()
    return float(np.sqrt(np.square(areas).mean() / len(areas)))


def areas_table(table: pd.DataFrame) -> pd.DataFrame:
    """Area between the removal curves in points, and a random order's standard error."""

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        areas = {t: _text(seeds, f"area.{m}", 1) for m, t in SHORT.items() if m not in PARTIAL}
        return {**_seeds(seeds), **areas, "a random order, s.e.": f"{random_spread(seeds):.1f}"}

    return _rows(_settings(table), row)


def leads_table(table: pd.DataFrame) -> pd.DataFrame:
    """FedCCEA's lead in area over those who retrain, in both readings; below, pooled."""

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        return _leads(seeds, "area", 1)

    pd = need("pandas", "run")
    return pd.concat([_rows(_settings(table), row), _rows(_pools(table), row)])


def _leads(seeds: pd.DataFrame, metric: str, digits: int) -> dict[str, str]:
    return {
        f"{SHORT[ours]}, over {SHORT[m]}": _lead(seeds, metric, ours, m).text(digits)
        for ours in FITS
        for m in _RETRAINED
    }


def losses_table(table: pd.DataFrame, end: str = "lowest", *, pooled: bool = False) -> pd.DataFrame:
    """What is lost with the lowest or the highest 40%, beside as many random clients.

    Parameters
    ----------
    table : DataFrame
        A :func:`seed_table` with series.
    end : {"lowest", "highest"}
        Who goes.
    pooled : bool
        Whether a row is a pool of settings.

    Returns
    -------
    DataFrame
        In points: what random clients take with them (the mean removal curve of all random orders),
        and how much more a method's lowest, or highest, do.
    """

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        more = {
            f"{SHORT[m]}, more": _lead(seeds, _LOST[end], m, "random").text(1)
            for m in (*METHODS, *READINGS, "oracle")
        }
        return {**_seeds(seeds), "random clients": _text(seeds, "lost40.random", 1), **more}

    return _rows(_pools(table) if pooled else _settings(table), row)


def costlier(table: pd.DataFrame, end: str = "lowest") -> dict[tuple[str, str], Interval]:
    """Find the methods and pools where one end costs more than random clients, by the interval.

    Parameters
    ----------
    table, end
        As in :func:`losses_table`.

    Returns
    -------
    dict
        By the names of pool and method, how many more points go with that end.
    """
    more = {
        (name, SHORT[m]): _lead(mean, _LOST[end], m, "random")
        for name, mean in _pools(table)
        for m in (*METHODS, *READINGS)
    }
    return {place: cut for place, cut in more.items() if cut.low > 0}


def partial_table(table: pd.DataFrame) -> pd.DataFrame:
    """Areas with partial participation in points, and what the qualities add to the amounts alone.

    The lead in area over that control, and how much more than by it is lost with the lowest 40%.
    """
    *learnt, amounts = PARTIAL

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        leads = {
            f"{SHORT[m]}, {title}": _lead(seeds, metric, m, amounts).text(1)
            for metric, title in (("area", f"over {SHORT[amounts]}"), ("lost40", "lost more"))
            for m in learnt
        }
        areas = {SHORT[m]: _text(seeds, f"area.{m}", 1) for m in PARTIAL}
        return {**_seeds(seeds), **areas, **leads}

    return _rows(_settings(table), row)


def dealt_table(table: pd.DataFrame) -> pd.DataFrame:
    """What worthless qualities show where clients use random shares of their data.

    `table`: a :func:`seed_table` of the experiment ``dealt``.

    One row per setting and reading, in points: areas of the learnt qualities, of the dealt ones (a
    seed's mean over its deals) with the standard deviation of single deals, and of the amounts
    alone; how many more points than by the amounts alone go with the lowest 40%; and the lead of
    the learnt over the dealt in both.
    """
    rows = {}
    for name, seeds in _settings(table):
        for reading, end in ENDS.items():
            if f"area.learnt{end}" not in seeds:
                continue
            single = seeds[[f"area.dealt{end}{k}" for k in range(DEALS)]].to_numpy().std(ddof=1)
            named = {"learnt": f"learnt{end}", "dealt": "dealt", "amounts": "amounts"}
            for metric in ("area", "lost40"):
                deals = seeds[[f"{metric}.dealt{end}{k}" for k in range(DEALS)]]
                seeds = seeds.assign(**{f"{metric}.dealt": deals.mean(axis=1)})
            area = {title: _text(seeds, f"area.{m}", 1) for title, m in named.items()}
            rows[name, SHORT[reading]] = {
                **_seeds(seeds),
                "area, learnt": area["learnt"],
                "area, dealt": f"{area['dealt']}, one ±{single:.1f}",
                "area, amounts alone": area["amounts"],
                **{
                    title: _lead(seeds, metric, named[a], b).text(1)
                    for title, metric, a, b in (
                        ("area, learnt over dealt", "area", "learnt", "dealt"),
                        ("lost more, learnt", "lost40", "learnt", "amounts"),
                        ("lost more, dealt", "lost40", "dealt", "amounts"),
                        ("lost, learnt less dealt", "lost40", "learnt", "dealt"),
                    )
                },
            }
    return overviews.table(rows)


# What the fits explain, and agree in (Figure 7)


def errors_table(table: pd.DataFrame) -> pd.DataFrame:
    """Error of the AAM beside that of the round's mean, and in how many seeds chance does worse."""

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        above = (seeds["explained.p"] <= 0.05).sum()
        return {
            **_seeds(seeds),
            "error of the round's mean (points)": _text(seeds, "round_error", 2),
            "error of the AAM (points)": _text(seeds, "aam_error", 2),
            "rounds that take off": _text(seeds, "falling", 2, _CHANCE),
            "FedCCEA, more than chance (seeds)": f"{above} of {len(seeds)}",
        }

    return _rows(_settings(table), row)


def shares_table(table: pd.DataFrame) -> pd.DataFrame:
    """What the sizes explain of the accuracies within a round, to the AAM and to others.

    Two rows per setting: the simulations of the fit, and such as it has not seen.
    """
    fits = ("fedccea", "connected", "adam", "same_round")
    fitted = {m: "explained" if m == "fedccea" else f"explained.{m}" for m in fits}
    rows = {}
    for name, seeds in _settings(table):
        for title, metrics, chance in (
            ("in the sample", fitted, "explained.chance"),
            ("unseen", {m: f"unseen.{m}" for m in fits}, ""),
        ):
            named = {SHORT[m]: metric for m, metric in metrics.items()}
            named["FedCCEA, by chance"] = chance
            rows[name, title] = {t: _text(seeds, k, 2, (-np.inf, 1)) for t, k in named.items()}
    return overviews.table(rows)


def fits_table(table: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of the weights of two fits; one row per setting and kind of fit."""
    columns = {
        "rank.0.1": "two tenths", "rank.0.25": "two quarters", "rank.0.5": "two halves",
        "rank.seeds": "all, two starts",
    }  # fmt: skip
    rows = {}
    for name, seeds in _settings(table):
        for m in ("fedccea", "connected", "same_round", "adam"):
            end = "" if m == "fedccea" else f".{m}"
            named = {f"{k}{end}": title for k, title in columns.items()}
            named[f"rank.{m}"] = "and FedCCEA"
            rows[name, LABELS[m]] = {t: _text(seeds, k, 2, (-1, 1)) for k, t in named.items()}
    return overviews.table(rows)


# Who finds the clients with planted noise: beside the same clients when all are clean


def planted_table(table: pd.DataFrame) -> pd.DataFrame:
    """Probability that a clean client is above a noisy one, and how much of it is due to the noise.

    `table`: a :func:`seed_table` with series; of its settings the noisy ones are shown.
    """
    rows = {}
    for name, seeds in _settings(_noisy(table)):
        for m in METHODS:
            rows[name, LABELS[m]] = {
                **_seeds(seeds),
                "with noise": _text(seeds, f"auc.{m}", 2, _CHANCE),
                "the same clients, all clean": _text(seeds, f"clean.{m}", 2, _CHANCE),
                "gain": paired_interval(seeds[f"gain.{m}"]).within(-1, 1).text(2),
            }
    return overviews.table(rows)


def _noisy(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.index.get_level_values("noise") != "none"]


def gains_table(table: pd.DataFrame) -> pd.DataFrame:
    """The probability and the gain, pooled, and FedCCEA's leads in both over those who retrain.

    `table`: as in :func:`planted_table`.

    Index: pool, and "with noise" or "gain".
    """
    rows = {}
    for name, mean in _pools(_compared(table)):
        for metric, title, least in (("auc", "with noise", 0), ("gain", "gain", -1)):
            each = {LABELS[m]: _text(mean, f"{metric}.{m}", 2, (least, 1)) for m in METHODS}
            rows[name, title] = each | _leads(mean, metric, 2)
    return overviews.table(rows)


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Noisy runs with a clean one beside them, for every method."""
    return _noisy(table).dropna(subset=[f"gain.{m}" for m in METHODS])


def decided_leads(table: pd.DataFrame) -> dict[tuple[str, str, str], tuple[Interval, Interval]]:
    """Find the pooled leads on which probability and gain agree: both leave out 0, on one side.

    By pool, reading and rival: the lead in probability, and in gain.
    """
    decided = {}
    for name, mean in _pools(_compared(table)):
        for ours in FITS:
            for m in _RETRAINED:
                cuts = _lead(mean, "auc", ours, m), _lead(mean, "gain", ours, m)
                if all(cut.low > 0 for cut in cuts) or all(cut.high < 0 for cut in cuts):
                    decided[name, SHORT[ours], SHORT[m]] = cuts
    return decided


def equal_quality_table(table: pd.DataFrame) -> pd.DataFrame:
    """What TMC-SV trains to find the noisy clients as well as FedCCEA does with all simulations.

    One row per noisy setting; costs in federations with all data, means over the seeds.  TMC-SV is
    on record at four budgets, of which the first that is as good counts; a dash where what is to be
    reached is a half at most, which a coin has.
    """

    def row(seeds: pd.DataFrame) -> dict[str, str]:
        means = seeds.mean()
        shown = {**_seeds(seeds), "simulations trained": f"{means['trained.fedccea']:.1f}"}
        for m in METHODS:
            shown[f"{SHORT[m]} (gain)"] = f"{means[f'auc.{m}']:.2f} ({means[f'gain.{m}']:+.2f})"
        for m in FITS:
            goal = means[f"auc.{m}"]
            spent = [
                means[f"trained.tmc-sv{end}"]
                for end in (*(f".{share:g}" for share in PARTS), "")
                if means[f"auc.tmc-sv{end}"] >= goal
            ]
            most = f"not with {means['trained.tmc-sv']:.1f}"
            words = f"{min(spent):.1f}" if spent else most
            shown[f"TMC-SV as good as {SHORT[m]} with"] = "–" if goal <= 0.5 else words
        better = [SHORT[m] for m in FITS if means["auc.loo"] >= means[f"auc.{m}"]]
        shown["LOO trained"] = f"{means['trained.loo']:.1f}"
        return shown | {"LOO is as good as": ", ".join(better) or "neither"}

    return _rows(_settings(_noisy(table)), row)


def parts_table(table: pd.DataFrame) -> pd.DataFrame:
    """Chance of a clean client above a noisy one, by the share of the budget that is spent.

    What the simulations, and TMC-SV, trained for it stands beside it, in federations.
    """
    rows = {}
    for name, seeds in _settings(_noisy(table)):
        for share in (*PARTS, 1.0):
            end = "" if share == 1 else f".{share:g}"
            methods = {m: f"auc.{m}{end}" for m in (*FITS, "tmc-sv")}
            methods |= {m: "" if end else f"auc.{m}" for m in ("loo", *READINGS)}
            trained = {
                f"{title} trained": f"{seeds[metric].mean():.1f}" if metric in seeds else "–"
                for title, metric in (
                    ("simulations", f"trained.fedccea{end}"),
                    ("TMC-SV", f"trained.tmc-sv{end}"),
                )
            }
            rows[name, "all" if share == 1 else f"{share:.0%}"] = {
                **_seeds(seeds),
                **{SHORT[m]: _text(seeds, metric, 2, _CHANCE) for m, metric in methods.items()},
                **trained,
            }
    return overviews.table(rows)


# Scales and seconds


def learning_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy with everybody by samples, batches and rate, one column per distribution.

    `frame`: records of the experiment ``learning``.
    """
    rows: dict[str, dict[str, str]] = {}
    part = frame[frame.metric == "base"]
    part = part.assign(samples=part.samples.astype(float).fillna(np.inf))
    scale = ["dataset", "data", "samples", "batch_size", "lr"]
    part = part.sort_values(scale, ascending=False, kind="stable")
    for (dataset, data, samples, batch, lr, distribution), seeds in part.groupby(
        [*scale, "distribution"], sort=False
    ):
        amount = "all samples" if samples == np.inf else f"{samples:.0f} samples"
        name = "EMNIST by class" if data == "femnist" else DATA[str(dataset)]
        words = f"{name}, {amount}, batches of {batch}, learning rate {lr:g}"
        reached = mean_interval(seeds.value).within(0, 100)
        rows.setdefault(words, {})[DISTRIBUTIONS[str(distribution)]] = reached.text(1)
    table = overviews.table(rows).fillna("–")
    return table[[name for name in DISTRIBUTIONS.values() if name in table]]


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

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``cost``.
    simulations : int
        How many of them FedCCEA needs.
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
    if "testing.loo" in found:
        training = {m: found[f"seconds.{m}"] - found[f"testing.{m}"] for m in ("lockstep", "loo")}
        table["training alone"] = simulations * training["lockstep"] / training["loo"]
    table["data trained on"] = simulations * found["trained.lockstep"] / found["trained.loo"]
    return table
