"""Measures of a method, from what it said (:mod:`reproduction.arena.rows`) and the truths.

Agreement is Kendall's tau-b, and 0 where one side says the same of everybody; stability is then
NaN, and so is fairness where nothing positive is paid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedkit.arena import agreement
from fedkit.checks import Bools, Floats, choice
from fedkit.intervals import Interval, bounded_interval, finite, mean_interval
from fedkit.methods.fedccea import contribution_index
from reproduction.arena.federations import SKEWED
from reproduction.common import chance_above
from reproduction.overviews import gains

Result = Mapping[str, Any]

_TABLE = pd.read_csv(Path(__file__).with_name("measures.csv"), index_col="measure")
MEASURES: dict[str, str] = dict(zip(_TABLE.index, _TABLE["says"], strict=True))
"""The measures, and what each says."""

BETTER: dict[str, bool] = dict(zip(_TABLE.index, _TABLE["more is better"], strict=True))
"""Whether more is better; of "fairness.copying" and "fairness.splitting" nothing is best, and
"mavericks" and "late" are told without a judgement."""

_LEAST = {"fidelity": -1.0, "stability": -1.0, "detection": 0.0, "mavericks": 0.0, "late": 0.0}
_SIGNED = ("fairness.copying", "fairness.splitting")
_APART = ("mavericks", "late")


def _pay(values: Floats) -> Floats:
    """Shares of the pay; NaN where nothing is positive, which is blindness and not fairness."""
    values = np.nan_to_num(values)
    return contribution_index(values) if values.max() > 0 else values * np.nan


def _expelling(value: Floats, bad: Bools) -> dict[str, float]:
    """What comes of expelling the worst; ties go by lot."""
    value, bad = value[np.isfinite(value)], bad[np.isfinite(value)]
    if not bad.any() or bad.all():  # nobody to find, or among whom
        return dict.fromkeys(("detection.fifth", "detection.lost", "detection.below"), math.nan)
    fifth = max(1, len(value) // 5)
    last = np.sort(value)[fifth - 1]
    out = np.where(value == last, (fifth - (value < last).sum()) / (value == last).sum(), 0.0)
    out[value < last] = 1.0
    return {
        "detection.fifth": float(out[bad].sum() / fifth),
        "detection.lost": float((value[~bad] <= value[bad].max()).mean()),
        "detection.below": float((value[bad] < 0).mean()),
    }


def measure(scenario: str, mine: Result, truth: Result) -> dict[str, float]:
    """Measure one method, by its result, on one federation and seed, by their truth."""
    series = {k: np.array(v, dtype=np.float64) for k, v in mine["series"].items()}
    known = {k: np.array(v, dtype=np.float64) for k, v in truth["series"].items()}
    value, metrics = series["value"], mine["metrics"]
    found: dict[str, float] = {"fidelity.rounds": metrics["fidelity"]}
    if scenario != "late":
        found["fidelity.retraining"] = agreement(value, known["retraining.accuracy"])
        found["fidelity.retraining-loss"] = agreement(value, known["retraining.loss"])
    if np.ptp(known["quality"]) > 0 and scenario not in _APART:
        found["fidelity.planted"] = agreement(value, known["quality"])
    sound = known["bad"] == 0
    if scenario in _APART:
        sound = known["quality"] == known["quality"].max()
    if not sound.all():
        name = scenario if scenario in _APART else "detection"
        found[name] = chance_above(finite(value[sound]), finite(value[~sound]))
    if known["bad"].any():
        found |= _expelling(value, known["bad"] > 0)
    found["detection.alarm"] = float((finite(value[known["bad"] == 0]) < 0).mean())
    for name, better, worse in (
        ("weights", "weights", "everybody"), ("selection", "selection", "everybody"),
        ("worst", "without_worst", "everybody"), ("best", "without_best", "everybody"),
        ("removal", "without_worst", "without_best"),
    ):  # fmt: skip
        found[f"worth.{name}"] = metrics[f"accuracy.{better}"] - metrics[f"accuracy.{worse}"]

    pay = _pay(value)
    if "value.before" in series:
        # in units of the mean pay before the trick, when there was one client less
        before = _pay(series["value.before"])
        trick = "copying" if scenario == "duplicates" else "splitting"
        found[f"fairness.{trick}"] = float((pay[0] + pay[-1] - before[0]) * len(before))
    if scenario == "duplicates":
        found["fairness.apart"] = float(abs(pay[0] - pay[-1]) * len(pay))
    groups = [known["group"] == g for g in np.unique(finite(known["group"]))]
    if groups:
        spread = [float(np.std(pay[g], ddof=1)) * len(pay) for g in groups]
        found["fairness.alike"] = float(np.mean(spread))
    for name, other in series.items():
        if name.startswith("value.") and name != "value.before":
            found[f"stability.{name.removeprefix('value.')}"] = agreement(value, other, np.nan)
    return found | {
        f"cost.{name}": float(metrics[name])
        for name in ("evaluations", "trainings", "seconds", "held")
    }


def measure_all(
    rows: Mapping[tuple[str, str, int, str], Result], truths: Mapping[tuple[str, str, int], Result]
) -> pd.DataFrame:
    """Measure every method on every federation and seed.

    The columns are dataset, scenario, seed, method, measure, value; `rows` has results by the first
    four, `truths` by the first three.
    """
    table = []
    values: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for (data, scenario, seed, method), mine in rows.items():
        values.setdefault((data, scenario, method), {})[seed] = mine["series"]["value"]
    for (data, scenario, seed, method), mine in rows.items():
        found = measure(scenario, mine, truths[data, scenario, seed])
        series = {} if scenario in SKEWED else values[data, scenario, method]
        if len(series) > 1 and np.ptp(truths[data, scenario, seed]["series"]["quality"]) > 0:
            others = [x for t, x in series.items() if t != seed]
            heard = finite([agreement(series[seed], x, np.nan) for x in others])
            found["stability.seeds"] = float(heard.mean()) if len(heard) else float("nan")
        table += [(data, scenario, seed, method, name, x) for name, x in found.items()]
    return pd.DataFrame(
        table, columns=["dataset", "scenario", "seed", "method", "measure", "value"]
    )


def _comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """Methods that have run wherever most have, on these federations and seeds alone.

    Means over different ones are not to be compared.  Where none has a majority, those of the first
    method count.
    """
    place = frame.groupby(["dataset", "scenario", "seed"]).ngroup()
    ran = pd.crosstab(place, frame.method) > 0
    common = ran.mean(axis=1) > 0.5
    if not common.any():
        common = ran[frame.method.iloc[0]]
    return frame[place.map(common) & frame.method.map(ran[common].all())]


def _by_unit(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row per scenario (per seed where there is a single one), a column per method: means."""
    if name not in set(frame.measure):
        raise ValueError(f"no measure {name!r}; there are {', '.join(sorted(set(frame.measure)))}")
    part = _comparable(frame[frame.measure == name])
    unit = "scenario" if part.scenario.nunique() > 1 else "seed"
    wide = part.pivot_table(index=unit, columns="method", values="value")
    return wide[[m for m in dict.fromkeys(part.method) if m in wide]]


def interval(name: str, values: npt.ArrayLike) -> Interval:
    """Mean of a measure over units with its 95% interval, within what the measure can be."""
    kind = name.split(".")[0]
    if kind in _LEAST:
        return bounded_interval(values, _LEAST[kind], 1.0)
    return mean_interval(values)


def summary(frame: pd.DataFrame, name: str, reference: str = "random") -> pd.DataFrame:
    """Compare methods by one measure, over scenarios; where there is a single one, over its seeds.

    Index method, best first; columns mean, low, high (95% over the units), units, and against the
    reference, paired by unit: gain, gain low, gain high, and p, Holm-corrected within this measure.
    Stability has no reference.
    """
    wide = _by_unit(frame, name)
    rows = {method: astuple(interval(name, wide[method])) for method in wide}
    table = pd.DataFrame.from_dict(rows, "index", columns=["mean", "low", "high", "units"])
    if reference != "random":
        choice("reference", reference, list(wide))
    if reference in wide and not name.startswith("stability"):
        against = gains(wide, reference)
        table[["gain", "gain low", "gain high", "p"]] = against[["gain", "low", "high", "p"]]
    # nothing is best where a trick should neither gain nor lose
    key = pd.Series.abs if name in _SIGNED else None
    ascending = name in _SIGNED or not BETTER[name]
    return table.sort_values("mean", ascending=ascending, kind="stable", key=key)


def board(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method and one column per measure: means over scenarios.

    Methods that lack federations of a measure are left out of it (:func:`_comparable`).
    """
    names = [m for m in MEASURES if m in set(frame.measure)]
    table = pd.DataFrame({m: _by_unit(frame, m).mean() for m in names})
    return table.reindex([m for m in dict.fromkeys(frame.method) if m in table.index])
