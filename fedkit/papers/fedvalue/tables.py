"""FedValue's results on tables: models, correlations, shares above a level, approximations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fedkit.claims.claim import Claims
from fedkit.datasets.tabular import TABLES
from fedkit.extras import need
from fedkit.fedvalue.baselines import MODELS
from fedkit.intervals import Interval, mean_interval
from fedkit.papers.fedvalue.cells import FEATURES, READINGS
from fedkit.papers.fedvalue.settings import CONTROLS, ESTIMATES
from fedkit.plots.style import INK, Picture, finish, looks, panels

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BENCHMARKS", "ESTIMATE_LABELS", "accuracy", "approximations", "bars", "beaten",
    "better_models", "by_model", "by_reading", "distance", "facts", "figure4", "gains", "growth",
    "reading", "repetitions", "shares", "slope_of_error",
]  # fmt: skip

#: the six benchmarks of Figure 4; Figure 5 has the last of THRESHOLDS
BENCHMARKS = (*MODELS, "ensemble5")
BENCHMARK_LABELS = {**MODELS, "ensemble5": "ensemble, 0.05", "ensemble2": "ensemble, 0.02"}
ESTIMATE_LABELS = {
    "plugin": "MShapley-CMI, plug-in",
    "permutation": "MShapley-CMI, bias taken off",
    "alone": "control: each party's own information",
    "entropy": "control: entropy of the party's cells, no label",
    "shuffled": "control: MShapley-CMI of shuffled labels",
}
#: panels in the order of Table 2
PANELS = tuple((d, k) for d in TABLES for k in FEATURES)
_FIELDS = ("task_has", "inputs", "data_parties", "trained_on")
_BASE = {"task_has": "columns", "inputs": "binned", "data_parties": 0, "trained_on": "all"}


def reading(frame: pd.DataFrame, name: str = "as in Figure 4") -> pd.DataFrame:
    """Return the records of one reading (``fedvalue_cells.READINGS``)."""
    wanted = {**_BASE, **READINGS[name]}
    if frame.empty:
        return frame
    return frame[np.logical_and.reduce([frame[f] == wanted[f] for f in _FIELDS])]


def bars(frame: pd.DataFrame, estimate: str = "plugin", statistic: str = "pearson") -> pd.DataFrame:
    """Return the mean correlations, the bars of Figure 4, over all repetitions.

    Returns
    -------
    DataFrame
        Columns dataset, features, benchmark, mean, low, high (95% over the batches), seeds.
    """
    pd = need("pandas", "run")
    rows = []
    for benchmark in (*BENCHMARKS, "ensemble2") if len(frame) else ():
        part = frame[frame.metric == f"{statistic}.{estimate}.{benchmark}"]
        panels = dict(list(part.groupby(["dataset", "features"])))
        for dataset, features in (p for p in PANELS if p in panels):
            group = panels[dataset, features]
            found = group.value.dropna().to_numpy(dtype=np.float64)
            cut = mean_interval(found) if len(found) > 1 else None
            rows.append(
                {
                    "dataset": dataset,
                    "features": features,
                    "benchmark": benchmark,
                    "mean": float(found.mean()) if len(found) else np.nan,
                    "low": np.nan if cut is None else cut.low,
                    "high": np.nan if cut is None else cut.high,
                    "seeds": len(found),
                }
            )
    columns = ["dataset", "features", "benchmark", "mean", "low", "high", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def shares(frame: pd.DataFrame, name: str = "as in Figure 4") -> pd.DataFrame:
    """Return how many of the bars are above 0.7 and 0.8, in percent, and their mean.

    One row per estimate and control, of one reading of the setting.
    """
    part = reading(frame, name)
    rows = {ESTIMATE_LABELS[e]: _share(bars(part, e)) for e in (*ESTIMATES, *CONTROLS)}
    return need("pandas", "run").DataFrame.from_dict(rows, orient="index").dropna(how="all")


def by_reading(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the plug-in value by reading of the setting, and a control's.

    The control is the information that each party has alone.  `repetitions` are those behind a
    bar: they differ between data sets in the readings that are run in full.
    """
    rows = {}
    for name in READINGS:
        part = reading(frame, name)
        found = _share(bars(part))
        if found:
            behind = repetitions(part)
            few, many = (int(f(behind.to_numpy())) for f in (np.nanmin, np.nanmax))
            rows[name] = {
                "above 0.7 (%)": found.pop("above 0.7 (%)"),
                "control above 0.7 (%)": _share(bars(part, "alone"))["above 0.7 (%)"],
                **found,
                "repetitions": str(many) if few == many else f"{few} to {many}",
            }
    return need("pandas", "run").DataFrame.from_dict(rows, orient="index")


def _share(table: pd.DataFrame) -> dict[str, Any]:
    """Return the shares of the bars of :func:`bars` above 0.7 and 0.8; nothing of no bars."""
    means = table[table.benchmark.isin(BENCHMARKS)]["mean"].to_numpy(dtype=np.float64)
    if not len(means):
        return {}
    return {
        "above 0.7 (%)": 100 * float((means > 0.7).mean()),
        "above 0.8 (%)": 100 * float((means > 0.8).mean()),
        "mean correlation": float(np.nanmean(means)),
        "bars": len(means),
    }


def by_model(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of the bars over the numbers of features, a row per data set."""
    wide = bars(frame).pivot_table(index="dataset", columns="benchmark", values="mean", sort=False)
    made: pd.DataFrame = wide.rename(columns=BENCHMARK_LABELS)
    return made.rename_axis(index="data set", columns=None)


def better_models(frame: pd.DataFrame) -> tuple[pd.Series, Interval]:
    """Return the correlation of the models' accuracies with their bars, a mean per data set.

    And the mean over the data sets, with a t-interval: another table, not another draw of rows from
    the same, is what could speak for better models in general.
    """
    part = frame[frame.metric == "better"] if len(frame) else frame.assign(dataset=[], value=[])
    found = part.groupby("dataset").value.mean().astype(float)
    found = found.reindex([d for d in TABLES if d in found.index])
    return found, mean_interval(found)


def gains(frame: pd.DataFrame, after: str = "permutation", before: str = "plugin") -> pd.DataFrame:
    """Return what each of the six benchmarks' bars changes from one estimate to another.

    Returns
    -------
    DataFrame
        Columns dataset, features, benchmark, before, after, gain (of the correlation).
    """
    place = ["dataset", "features", "benchmark"]
    sides = [
        bars(frame, estimate)[[*place, "mean"]].rename(columns={"mean": side})
        for estimate, side in ((before, "before"), (after, "after"))
    ]
    both = sides[0].merge(sides[1], on=place)
    both = both[both.benchmark.isin(BENCHMARKS)].reset_index(drop=True)
    return both.assign(gain=both.after - both.before)


def beaten(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the value, plug-in and corrected, beside the parties' own information, by reading.

    Columns are mean correlations, and in how many of the bars (%) the own information's is larger.
    """
    rows = {}
    for name in names:
        part = reading(frame, name)
        sides = {e: gains(part, "alone", e) for e in ("plugin", "permutation")}
        if not all(map(len, sides.values())):
            continue
        means = {e: side.before.mean() for e, side in sides.items()}
        rows[name] = {
            "plug-in": means["plugin"],
            "bias taken off": means["permutation"],
            "own information": sides["plugin"].after.mean(),
            "own beats plug-in (%)": 100 * (sides["plugin"].gain > 0).mean(),
            "own beats corrected (%)": 100 * (sides["permutation"].gain > 0).mean(),
        }
    return need("pandas", "run").DataFrame.from_dict(rows, orient="index")


def repetitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how many repetitions are behind each bar: data sets by features per party."""
    runs = frame.drop_duplicates(["key", "seed"])
    wide = runs.groupby(["dataset", "features"]).repetitions.sum().unstack()
    made: pd.DataFrame = wide.reindex([d for d in TABLES if d in wide.index])
    return made.rename_axis(index="data set", columns="features per party")


def accuracy(frame: pd.DataFrame, claims: Claims) -> pd.DataFrame:
    """Return Table 8, claimed beside measured: mean and standard deviation over the splits."""
    pd = need("pandas", "run")
    table = claims.tables["t8"]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for dataset, printed in table.rows.items():
        spreads = table.spreads[dataset]
        rows[dataset, "paper"] = {
            MODELS[str(c["model"])]: f"{n} ± {s}"
            for c, n, s in zip(table.columns, printed, spreads, strict=True)
        }
        for inputs, label in (("binned", "five bins"), ("raw", "numbers")):
            part = frame[(frame.dataset == dataset) & (frame.inputs == inputs)]
            values = {m: part[part.metric == f"accuracy.{m}"].value for m in MODELS}
            if all(len(v) for v in values.values()):
                rows[dataset, label] = {
                    MODELS[m]: f"{v.mean():.3f} ± {v.std():.3f}" for m, v in values.items()
                }
    found = pd.DataFrame.from_dict(rows, orient="index")
    found.index = pd.MultiIndex.from_tuples(list(rows), names=["data set", "models see"])
    return found


def distance(frame: pd.DataFrame, claims: Claims) -> dict[str, float]:
    """Return the root mean squared distance of our accuracies to Table 8's, by inputs.

    Over the data sets on which the models have seen both.
    """
    table, found = claims.tables["t8"], {}
    frame = frame.groupby("dataset").filter(lambda part: part.inputs.nunique() == 2)
    for inputs in ("binned", "raw"):
        means = frame[frame.inputs == inputs].groupby(["dataset", "metric"]).value.mean()
        errors = [
            means[dataset, f"accuracy.{c['model']}"] - float(n)
            for dataset, row in table.rows.items()
            for c, n in zip(table.columns, row, strict=True)
            if (dataset, f"accuracy.{c['model']}") in means.index
        ]
        found[inputs] = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return found


def facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the panels have in common, by data set and features per party (means)."""
    pd = need("pandas", "run")
    part = frame[frame.metric.str.startswith("fact.")]
    wide = part.assign(metric=part.metric.str.removeprefix("fact."))
    wide = wide.pivot_table(
        index=["dataset", "features"], columns="metric", values="value", sort=False
    )
    names = {
        "parties": "data parties", "exact": "exact", "error": "sampling error / mean value",
        "cells_per_row": "joint cells per row", "left": "H(Y | all columns) / H(Y)",
        "task_share": "task party's share of H(Y)", "shuffled_share": "shuffled / real labels",
        "bias_share": "bias in the plug-in total", "defined": "repetitions with a correlation",
    }  # fmt: skip
    order = [panel for panel in PANELS if panel in wide.index]
    wide = wide.reindex(pd.MultiIndex.from_tuples(order, names=["data set", "features"]))
    wide = wide.assign(parties=wide.parties.astype(int), exact=np.where(wide.exact, "yes", "no"))
    return wide[[n for n in names if n in wide]].rename(columns=names).rename_axis(columns=None)


def approximations(frame: pd.DataFrame, what: str, number: str) -> pd.DataFrame:
    """Return a tidy table of one approximation: dataset, seed, `number`, and each metric.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``approximation``.
    what : {"sampling", "pca"}
    number : str
        Name for the column of permutations or components.
    """
    parts = frame[frame.metric.str.fullmatch(rf"{what}\.[a-z]+\.\d+")]
    names = parts.metric.str.extract(r"\.(?P<metric>[a-z]+)\.(?P<number>\d+)")
    tidy = parts.assign(metric=names.metric, **{number: names.number.astype(int)})
    wide = tidy.pivot_table(index=["dataset", "seed", number], columns="metric", values="value")
    return wide.reset_index()


def figure4(tables: Mapping[str, pd.DataFrame], benchmarks: Sequence[str] = BENCHMARKS) -> Picture:
    """Draw mean correlations by data set: a panel per number of features per party.

    Parameters
    ----------
    tables : mapping from label to DataFrame
        Of :func:`bars`; several estimates stand beside each other.
    benchmarks : sequence of str
        Which bars.
    """
    pd = need("pandas", "run")
    everything = pd.concat([t.assign(estimate=name) for name, t in tables.items()])
    everything = everything[everything.benchmark.isin(benchmarks)]
    datasets = [d for d in TABLES if d in set(everything.dataset)]
    series = [(e, b) for e in tables for b in benchmarks]
    names = [BENCHMARK_LABELS[b] if len(tables) == 1 else e for e, b in series]
    picture, axes = panels(len(FEATURES), 1, height=2.3 * len(FEATURES), share_y=True)
    style = looks(names, names)
    handles: list[Any] = []
    for axis, features in zip(axes[:, 0], FEATURES, strict=True):
        handles = []
        for j, ((estimate, benchmark), name) in enumerate(zip(series, names, strict=True)):
            part = everything[
                (everything.features == features)
                & (everything.benchmark == benchmark)
                & (everything.estimate == estimate)
            ].set_index("dataset")
            place = np.array([datasets.index(d) for d in part.index], dtype=float)
            place += (j - (len(series) - 1) / 2) * 0.8 / len(series)
            middle = part["mean"].to_numpy(dtype=float)
            ends = np.abs(part[["low", "high"]].to_numpy(dtype=float).T - middle)
            look = {k: v for k, v in style[name].items() if k in ("color", "marker")}
            handles.append(
                axis.errorbar(
                    place, middle, yerr=np.nan_to_num(ends), linestyle="none", markersize=5,
                    linewidth=1.2, label=name, **look,
                )
            )  # fmt: skip
        for level in (0.7, 0.8):
            axis.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
        axis.set_xticks(range(len(datasets)), datasets)
        axis.set_xlim(-0.5, len(datasets) - 0.5)
        plural = "" if features == 1 else "s"
        finish(axis, f"{features} feature{plural} per party", "correlation", ())
    finish(axes[-1, 0], f"{FEATURES[-1]} features per party", "correlation", handles, below=True)
    return picture


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what a party's components cost to count (Figure 9b): cells and seconds, means."""
    tidy = approximations(frame, "pca", "components")
    wide = tidy.groupby(["dataset", "components"])[["cells", "occupied", "seconds"]].mean()
    wide = wide.astype({"cells": int}).rename_axis(["data set", "components"])
    return wide.rename_axis(columns=None).rename(
        columns={"cells": "possible cells of a party", "occupied": "occupied cells of a party"}
    )


def slope_of_error(frame: pd.DataFrame) -> float:
    """Return the slope of log error over log permutations, pooled over data sets and seeds."""
    tidy = approximations(frame, "sampling", "permutations")
    return float(stats.linregress(np.log(tidy.permutations), np.log(tidy.mape))[0])
