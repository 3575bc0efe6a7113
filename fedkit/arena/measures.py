"""Seven measures of a method, from what it said (:mod:`fedkit.arena.cells`) and the truths.

``fidelity`` to the rounds' exact values, and to retraining; ``detection`` of who misbehaves;
``worth`` of acting on the values; ``fairness``; ``stability``; ``cost``.  Agreement is Kendall's
tau-b, and 0 where one side says the same of everybody.  What is paid for values is their positive
part, divided by its sum (:func:`~fedkit.methods.fedccea.contribution_index`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedkit.extras import need
from fedkit.intervals import finite, kendalls_tau, mean_interval
from fedkit.methods.fedccea import contribution_index
from fedkit.papers.common import chance_above
from fedkit.papers.overviews import gains
from fedkit.plots import Picture, dots_with_intervals

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BETTER",
    "MEASURES",
    "agreement",
    "board",
    "measure",
    "measure_all",
    "picture",
    "ranking",
    "summary",
]

FloatArray = npt.NDArray[np.float64]
Result = Mapping[str, Any]

MEASURES = {
    "fidelity.rounds": "agreement with the exact values of the rounds",
    "fidelity.retraining": "agreement with the values of retraining, by accuracy",
    "fidelity.retraining-loss": "agreement with the values of retraining, by loss",
    "fidelity.planted": "agreement with what was planted",
    "detection": "chance that a sound client is above a bad one (a Maverick above the others)",
    "worth.weights": "accuracy with averaging by value, less that of plain averages, in points",
    "worth.selection": "accuracy of the upper half alone, less everybody's, in points",
    "worth.removal": "accuracy without the worst fifth, less that without the best, in points",
    "fairness.apart": "how far the pay of two copies is apart, over a client's mean pay",
    "fairness.copying": "pay that a copy adds, over a client's mean pay",
    "fairness.splitting": "pay that splitting in two adds, over a client's mean pay",
    "fairness.alike": "spread of the pay of like clients, over a client's mean pay",
    "stability.seeds": "agreement of two seeds",
    "stability.rounds": "agreement with the values of half of the rounds",
    "stability.rate": "agreement with the values at half the learning rate",
    "stability.seen-50": "agreement with the values by 50 validation images",
    "stability.seen-200": "agreement with the values by 200 validation images",
    "cost.evaluations": "utility evaluations",
    "cost.trainings": "federations trained beside the one",
    "cost.seconds": "processor seconds",
    "cost.held": "MiB that the server holds",
}
"""The measures, and what each says."""

BETTER = {name: name.split(".")[0] not in ("cost", "fairness") for name in MEASURES}
"""Whether more is better; of "fairness.copying" and "fairness.splitting" nothing is best."""


def agreement(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Kendall's tau-b of two valuations of the same clients; 0 where one says nothing.

    NaN for valuations of different clients.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape:
        return float("nan")
    return float(np.nan_to_num(kendalls_tau(x, y)))


def measure(scenario: str, mine: Result, exact: Result | None, truth: Result) -> dict[str, float]:
    """Measure one method on one federation and seed.

    Parameters
    ----------
    scenario : str
    mine, exact : mapping
        What the method and what the exact values of the rounds gave
        (:func:`~fedkit.arena.cells.method_result`); without the second one, fidelity to it is left
        out.
    truth : mapping
        :func:`~fedkit.arena.cells.truth_result` of the same federation.
    """
    series = {k: np.array(v, dtype=np.float64) for k, v in mine["series"].items()}
    known = {k: np.array(v, dtype=np.float64) for k, v in truth["series"].items()}
    value, metrics = series["value"], mine["metrics"]
    found: dict[str, float] = {}
    if exact is not None:
        found["fidelity.rounds"] = agreement(value, exact["series"]["value"])
    found["fidelity.retraining"] = agreement(value, known["retraining.accuracy"])
    found["fidelity.retraining-loss"] = agreement(value, known["retraining.loss"])
    if np.ptp(known["quality"]) > 0:
        found["fidelity.planted"] = agreement(value, known["quality"])
    sound = known["quality"] > 0 if scenario == "mavericks" else known["bad"] == 0
    if not sound.all():
        found["detection"] = chance_above(value[sound], value[~sound])
    accuracy = {k.removeprefix("accuracy."): v for k, v in metrics.items() if "accuracy." in k}
    found["worth.weights"] = accuracy["weights"] - accuracy["everybody"]
    found["worth.selection"] = accuracy["selection"] - accuracy["everybody"]
    found["worth.removal"] = accuracy["without_worst"] - accuracy["without_best"]

    pay = contribution_index(value)
    if "value.before" in series:
        # in units of the mean pay before the trick, when there was one client less
        before = contribution_index(series["value.before"])
        trick = "copying" if scenario == "duplicates" else "splitting"
        gain = (pay[0] + pay[-1] - before[0]) * len(before)
        found[f"fairness.{trick}"] = float(gain)
    if scenario == "duplicates":
        found["fairness.apart"] = float(abs(pay[0] - pay[-1]) * len(pay))
    groups = [known["group"] == g for g in np.unique(finite(known["group"]))]
    if groups:
        spread = [float(np.std(pay[g], ddof=1)) * len(pay) for g in groups]
        found["fairness.alike"] = float(np.mean(spread))
    for name, other in series.items():
        if name.startswith("value.") and name != "value.before":
            found[f"stability.{name.removeprefix('value.')}"] = agreement(value, other)
    return found | {
        f"cost.{name}": float(metrics[name])
        for name in ("evaluations", "trainings", "seconds", "held")
    }


def measure_all(
    rows: Mapping[tuple[str, str, int, str], Result], truths: Mapping[tuple[str, str, int], Result]
) -> pd.DataFrame:
    """Measure every method on every federation and seed.

    Parameters
    ----------
    rows : mapping of (dataset, scenario, seed, method) to result
    truths : mapping of (dataset, scenario, seed) to result

    Returns
    -------
    DataFrame
        Columns dataset, scenario, seed, method, measure, value.
    """
    pd = need("pandas", "run")
    table = []
    for (data, scenario, seed, method), mine in rows.items():
        exact = rows.get((data, scenario, seed, "exact"))
        found = measure(scenario, mine, exact, truths[data, scenario, seed])
        others = [
            agreement(mine["series"]["value"], other["series"]["value"])
            for (d, s, t, m), other in rows.items()
            if (d, s, m) == (data, scenario, method) and t != seed
        ]
        if others and np.ptp(truths[data, scenario, seed]["series"]["quality"]) > 0:
            found["stability.seeds"] = float(np.mean(others))
        table += [(data, scenario, seed, method, name, x) for name, x in found.items()]
    return pd.DataFrame(
        table, columns=["dataset", "scenario", "seed", "method", "measure", "value"]
    )


def _by_federation(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Means over seeds: a row per federation, a column per method."""
    part = frame[frame.measure == name]
    if part.empty:
        raise ValueError(f"no measure {name!r}; there are {', '.join(sorted(set(frame.measure)))}")
    wide = part.pivot_table(index=["dataset", "scenario"], columns="method", values="value")
    return wide[[m for m in dict.fromkeys(part.method) if m in wide]]


def summary(frame: pd.DataFrame, name: str, reference: str = "random") -> pd.DataFrame:
    """Compare methods by one measure, over federations.

    Federations are the unit: seeds of one are averaged before.

    Returns
    -------
    DataFrame
        Index method, best first; columns mean, low, high (95% over federations), federations, and
        against the reference, paired by federation: gain, gain low, gain high, and p (Holm's over
        all methods).
    """
    pd = need("pandas", "run")
    wide = _by_federation(frame, name)
    rows = {m: mean_interval(wide[m]) for m in wide}
    table = pd.DataFrame(
        {m: [i.mean, i.low, i.high, i.n] for m, i in rows.items()},
        index=["mean", "low", "high", "federations"],
    ).T
    if reference in wide:
        against = gains(wide, reference)
        table[["gain", "gain low", "gain high", "p"]] = against[["gain", "low", "high", "p"]]
    return table.sort_values("mean", ascending=not BETTER[name], kind="stable")


def ranking(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Say how far the order of the methods hangs on single federations.

    Returns
    -------
    DataFrame
        Index: the federation that is left out; columns ``agreement`` (tau-b of the order of all
        methods with that from all federations) and ``first`` (the best method without it).
    """
    pd = need("pandas", "run")
    wide = _by_federation(frame, name).dropna(axis=1)
    sign = 1 if BETTER[name] else -1
    whole = sign * wide.mean()
    rows = {}
    for left in wide.index if len(wide) > 1 else []:
        rest = sign * wide.drop(index=[left]).mean()
        rows[" ".join(left)] = [agreement(rest, whole), str(rest.idxmax())]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["agreement", "first"])


def board(frame: pd.DataFrame, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """Return one row per method and one column per measure: means over federations."""
    names = [m for m in MEASURES if m in set(frame.measure)]
    table = need("pandas", "run").DataFrame({m: _by_federation(frame, m).mean() for m in names})
    order = methods or list(dict.fromkeys(frame.method))
    return table.reindex([m for m in order if m in table.index])


def picture(frame: pd.DataFrame, name: str, reference: str = "random") -> Picture:
    """Draw all methods by one measure, best first, with intervals over federations."""
    table = summary(frame, name, reference).reset_index(names="label")
    return dots_with_intervals(table, xlabel=MEASURES[name])
