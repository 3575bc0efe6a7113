"""FedValue's results on tables: models, correlations, shares above a level, approximations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fedkit.datasets import TABLES
from fedkit.extras import need
from fedkit.fedvalue.shap import MODELS
from fedkit.intervals import Interval, mean_interval
from reproduction.claims import Claims
from reproduction.fedvalue.correlation import CONTROLS, ESTIMATES, FEATURES, READINGS, Setting
from reproduction.figures import Picture, forests
from reproduction.overviews import alike, table, where

if TYPE_CHECKING:
    import pandas as pd

#: the six benchmarks of Figure 4; Figure 5 has the last of THRESHOLDS
BENCHMARKS = (*MODELS, "ensemble5")
BENCHMARK_LABELS = {**MODELS, "ensemble5": "ensemble, 0.05", "ensemble2": "ensemble, 0.02"}
ESTIMATE_LABELS = {
    "plugin": "MShapley-CMI, plug-in",
    "permutation": "MShapley-CMI, bias taken off",
    "alone": "each party's own information",
    "entropy": "control: entropy of the party's cells, no label",
    "shuffled": "control: MShapley-CMI of shuffled labels",
}
#: panels in the order of Table 2
PANELS = tuple(product(TABLES, FEATURES))


def reading(frame: pd.DataFrame, name: str = "as in Figure 4") -> pd.DataFrame:
    """Return the records of one reading of the setting (a name of ``correlation.READINGS``)."""
    return alike(frame, Setting("", **READINGS[name]), set[str]().union(*READINGS.values()))


def bars(frame: pd.DataFrame, estimate: str = "plugin") -> pd.DataFrame:
    """Return the mean correlations, the bars of Figure 4, over all repetitions.

    Columns dataset, features, benchmark, mean, low, high (95% over the batches), seeds.
    """
    rows = []
    for benchmark in (*BENCHMARKS, "ensemble2"):
        part = frame[frame.metric == f"pearson.{estimate}.{benchmark}"]
        found = dict(list(part.groupby(["dataset", "features"]).value))
        for panel in (p for p in PANELS if p in found):
            cut = mean_interval(found[panel])
            rows.append((*panel, benchmark, cut.mean, cut.low, cut.high, cut.n))
    columns = ["dataset", "features", "benchmark", "mean", "low", "high", "seeds"]
    return need("pandas", "run").DataFrame(rows, columns=columns)


def shares(frame: pd.DataFrame, name: str = "as in Figure 4") -> pd.DataFrame:
    """Return how many of the bars are above 0.7 and 0.8, in percent, and their mean.

    One row per estimate and control, of one reading of the setting.
    """
    part = reading(frame, name)
    rows = {ESTIMATE_LABELS[e]: _share(bars(part, e)) for e in (*ESTIMATES, *CONTROLS)}
    return table(rows).dropna(how="all")


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
            behind = repetitions(part).to_numpy()
            few, many = int(np.nanmin(behind)), int(np.nanmax(behind))
            rows[name] = {
                "above 0.7 (%)": found.pop("above 0.7 (%)"),
                "control above 0.7 (%)": _share(bars(part, "alone"))["above 0.7 (%)"],
                **found,
                "repetitions": str(many) if few == many else f"{few} to {many}",
            }
    return table(rows)


def _share(shown: pd.DataFrame) -> dict[str, Any]:
    """Shares of the bars of :func:`bars` above 0.7 and 0.8; nothing of no bars."""
    means = shown[shown.benchmark.isin(BENCHMARKS)]["mean"]
    if means.empty:
        return {}
    return {
        "above 0.7 (%)": 100 * float((means > 0.7).mean()),
        "above 0.8 (%)": 100 * float((means > 0.8).mean()),
        "mean correlation": float(means.mean()),
        "bars": len(means),
    }


def by_model(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of the bars over the numbers of features, a row per data set."""
    wide = bars(frame).pivot_table(index="dataset", columns="benchmark", values="mean", sort=False)
    return wide.rename(columns=BENCHMARK_LABELS).rename_axis(index="data set", columns=None)


def better_models(frame: pd.DataFrame) -> tuple[pd.Series, Interval]:
    """Return the correlation of the models' accuracies with their bars, a mean per data set.

    And the mean over the data sets, with a t-interval: another table, not another draw of rows from
    the same, is what could speak for better models in general.
    """
    found = frame[frame.metric == "better"].groupby("dataset").value.mean()
    found = found.reindex([d for d in TABLES if d in found.index])
    return found, mean_interval(found)


def gains(frame: pd.DataFrame, after: str = "permutation", before: str = "plugin") -> pd.DataFrame:
    """Return what each of the six benchmarks' bars changes from one estimate to another.

    Columns dataset, features, benchmark, before, after, gain (of the correlation).
    """
    place = ["dataset", "features", "benchmark"]
    sides = [bars(frame, e)[[*place, "mean"]] for e in (before, after)]
    both = sides[0].rename(columns={"mean": "before"}).merge(sides[1], on=place)
    both = both.rename(columns={"mean": "after"})
    both = both[both.benchmark.isin(BENCHMARKS)].reset_index(drop=True)
    return both.assign(gain=both.after - both.before)


def beaten(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the value, plug-in and corrected, beside the parties' own information, by reading.

    Columns are mean correlations, and in how many of the bars (%) the own information's is larger.
    """
    rows = {}
    for name in names:
        part = reading(frame, name)
        plugin, corrected = (gains(part, "alone", e) for e in ("plugin", "permutation"))
        if len(plugin) and len(corrected):
            rows[name] = {
                "plug-in": plugin.before.mean(),
                "bias taken off": corrected.before.mean(),
                "own information": plugin.after.mean(),
                "own beats plug-in (%)": 100 * (plugin.gain > 0).mean(),
                "own beats corrected (%)": 100 * (corrected.gain > 0).mean(),
            }
    return table(rows)


def repetitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how many repetitions are behind each bar: data sets by features per party."""
    runs = frame.drop_duplicates(["key", "seed"])
    wide = runs.groupby(["dataset", "features"]).repetitions.sum().unstack()
    wide = wide.reindex([d for d in TABLES if d in wide.index])
    return wide.rename_axis(index="data set", columns="features per party")


def accuracy(frame: pd.DataFrame, claims: Claims) -> pd.DataFrame:
    """Return Table 8, claimed beside measured: mean and standard deviation over the splits."""
    of_paper = claims.tables["t8"]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    names = {f"accuracy.{c['model']}": MODELS[str(c["model"])] for c in of_paper.columns}
    for dataset, printed in of_paper.rows.items():
        beside = zip(names.values(), printed, of_paper.spreads[dataset], strict=True)
        rows[dataset, "paper"] = {name: f"{n} ± {s}" for name, n, s in beside}
        for inputs, label in (("binned", "five bins"), ("raw", "numbers")):
            part = where(frame, dataset=dataset, inputs=inputs)
            if len(part):
                values = part.groupby("metric").value.agg(["mean", "std"]).T
                rows[dataset, label] = {
                    name: "{:.3f} ± {:.3f}".format(*values[metric])
                    for metric, name in names.items()
                }
    return table(rows).rename_axis(["data set", "models see"])


def distance(frame: pd.DataFrame, claims: Claims) -> dict[str, float]:
    """Return the root mean squared distance of our accuracies to Table 8's, by inputs.

    Over the data sets on which the models have seen both.
    """
    of_paper = claims.tables["t8"]
    printed = {
        (dataset, f"accuracy.{c['model']}"): float(n)
        for dataset, row in of_paper.rows.items()
        for c, n in zip(of_paper.columns, row, strict=True)
    }
    frame = frame.groupby("dataset").filter(lambda part: part.inputs.nunique() == 2)
    means = frame.groupby(["inputs", "dataset", "metric"]).value.mean()
    found = {}
    for inputs in ("binned", "raw"):
        here = means.get(inputs, {})
        errors = [here[place] - n for place, n in printed.items() if place in here]
        found[inputs] = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return found


def facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the panels have in common, by data set and features per party (means)."""
    names = {
        "parties": "data parties", "exact": "exact", "error": "sampling error / mean value",
        "cells_per_row": "joint cells per row", "left": "H(Y | all columns) / H(Y)",
        "task_share": "task party's share of H(Y)", "shuffled_share": "shuffled / real labels",
        "bias_share": "taken off by the null / plug-in total",
        "defined": "repetitions with a correlation",
    }  # fmt: skip
    wide = frame.pivot_table(index=["dataset", "features"], columns="metric", values="value")
    wide = wide.loc[[panel for panel in PANELS if panel in wide.index]]
    wide = wide.rename(columns=lambda name: names.get(name.removeprefix("fact."), name))
    wide = wide[[name for name in names.values() if name in wide]]
    wide = wide.assign(exact=np.where(wide["exact"], "yes", "no")).astype({"data parties": int})
    return wide.rename_axis(index=["data set", "features"], columns=None)


def approximations(frame: pd.DataFrame, what: str, number: str) -> pd.DataFrame:
    """Return a tidy table of one approximation, "sampling" or "pca".

    Columns: dataset, seed, `number` (of permutations or components), and each metric.
    """
    parts = frame[frame.metric.str.fullmatch(rf"{what}\.[a-z]+\.\d+")]
    names = parts.metric.str.extract(r"\.(?P<metric>[a-z]+)\.(?P<number>\d+)")
    tidy = parts.assign(metric=names.metric, **{number: names.number.astype(int)})
    wide = tidy.pivot_table(index=["dataset", "seed", number], columns="metric", values="value")
    return wide.reset_index()


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what a party's components cost to count (Figure 9b): cells and seconds, means."""
    tidy = approximations(frame, "pca", "components")
    wide = tidy.groupby(["dataset", "components"])[["cells", "occupied", "seconds"]].mean()
    wide = wide.astype({"cells": int}).rename_axis(["data set", "components"])
    names = {"cells": "possible cells of a party", "occupied": "occupied cells of a party"}
    return wide.rename_axis(columns=None).rename(columns=names)


def slope_of_error(frame: pd.DataFrame) -> float:
    """Return the slope of log error over log permutations, pooled over data sets and seeds."""
    tidy = approximations(frame, "sampling", "permutations")
    return float(stats.linregress(np.log(tidy.permutations), np.log(tidy.mape))[0])


def figure4(tables: Mapping[str, pd.DataFrame], benchmarks: Sequence[str] = BENCHMARKS) -> Picture:
    """Draw mean correlations by data set: a panel per number of features per party.

    `tables` are those of :func:`bars`; several estimates stand beside each other.
    """
    frames = {}
    for (estimate, shown), benchmark in product(tables.items(), benchmarks):
        part = shown[shown.benchmark == benchmark]
        panel = part.features.map(lambda n: f"{n} feature{'s' * (n > 1)} per party")
        names = [estimate] * (len(tables) > 1)
        names += [BENCHMARK_LABELS[benchmark]] * (not names or len(benchmarks) > 1)
        frames[", ".join(names)] = part.set_index([panel, "dataset"])
    return forests(frames, "correlation", level=(0.7, 0.8))
