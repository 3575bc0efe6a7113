"""One panel of FedValue's Figure 4, and one row of its Table 8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.fedvalue.baselines import MODELS, ensemble, party_values
from fedkit.papers.fedvalue.settings import (
    CONTROLS,
    ESTIMATES,
    THRESHOLDS,
    Setting,
    binned,
    correlate,
    dealt,
    identity,
    information_values,
    repetition,
    setting,
    table,
)
from fedkit.papers.registry import Cell

__all__ = ["one", "run_correlation", "run_models", "summary"]

Floats = NDArray[np.float64]


def one(s: Setting, seed: int, index: int, accuracies: Mapping[str, float]) -> dict[str, float]:
    """Return all correlations of one repetition, named ``statistic.estimate.benchmark``.

    `accuracies` decide which models are in the ensembles.
    """
    drawn = repetition(s, seed, index)
    x, y = binned(s.dataset, s.bins)[drawn.sample], table(s.dataset).y[drawn.sample]
    parties = dealt(s, seed, index)
    values, facts = information_values(s, x, y, parties, 1000 * seed + index)
    found = {f"fact.{name}": value for name, value in facts.items()}
    found.update({f"accuracy.{m}": a for m, a in drawn.accuracies.items()})
    for how in ("together", "apart"):
        shap: dict[str, Floats] = {
            m: party_values(phi.astype(np.float64), [p.tolist() for p in parties[1:]], how)
            for m, phi in drawn.phi.items()
        }
        found.update(_correlations(values, shap, how))
        for name, threshold in THRESHOLDS.items():
            mixed = ensemble(shap, accuracies, threshold)
            found.update(_correlations(values, {name: mixed}, how))
    return found


def _correlations(
    values: Mapping[str, Floats], shap: Mapping[str, Floats], how: str
) -> dict[str, float]:
    found = {}
    for benchmark, theirs in shap.items():
        for name, ours in values.items():
            if how == "together":
                pearson, spearman = correlate(ours, theirs)
                found[f"pearson.{name}.{benchmark}"] = pearson
                found[f"spearman.{name}.{benchmark}"] = spearman
            elif name == "plugin":
                found[f"apart.{name}.{benchmark}"] = correlate(ours, theirs)[0]
    return found


def run_correlation(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Run one panel of Figure 4: each seed is a batch of repetitions, recorded as their means.

    ``fact.defined`` is the share of repetitions in which the parties' values differ at all.
    """
    s = setting(cell)
    results = []
    for seed in cell.seeds:
        drawn = [repetition(s, seed, index).accuracies for index in range(s.repetitions)]
        means = {m: float(np.mean([a[m] for a in drawn])) for m in MODELS}
        each = [one(s, seed, index, means) for index in range(s.repetitions)]
        metrics = {}
        for name in each[0]:
            numbers = np.array([r[name] for r in each])
            fine = numbers[np.isfinite(numbers)]
            metrics[name] = float(fine.mean()) if len(fine) else float("nan")
        metrics["fact.defined"] = float(
            np.mean([np.isfinite(r["pearson.plugin.lr"]) for r in each])
        )
        metrics.update(summary(metrics))
        series = {
            name: [round(r[name], 4) for r in each]
            for name in each[0]
            if name.startswith(("pearson.plugin.", "pearson.permutation."))
        }
        results.append(
            {"seed": int(seed), "metrics": metrics, "series": series, "data": identity(s)}
        )
    return results


def summary(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what the paper's text says of a panel, of the means over its repetitions.

    ``above.70`` is the share of the six benchmarks (the models and SHAP-ensemble at 0.05) whose
    correlation is above 0.7, in percent; ``better`` is the correlation of accuracy and
    correlation over the five models.
    """
    found = {}
    for estimate in (*ESTIMATES, *CONTROLS):
        bars = np.array([metrics[f"pearson.{estimate}.{b}"] for b in (*MODELS, "ensemble5")])
        mark = "" if estimate == "plugin" else f".{estimate}"
        for level in (70, 80):
            found[f"above.{level}{mark}"] = 100 * float((bars > level / 100).mean())
    for name in THRESHOLDS:
        found[f"above.80.{name}"] = 100.0 * (metrics[f"pearson.plugin.{name}"] > 0.8)
    accuracies = np.array([metrics[f"accuracy.{m}"] for m in MODELS])
    bars = np.array([metrics[f"pearson.plugin.{m}"] for m in MODELS])
    found["better"] = correlate(accuracies, bars)[0]
    return found


def run_models(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Run one row of Table 8: accuracy of the models on the rows that a sample leaves out."""
    s = setting(cell)
    results = []
    for seed in cell.seeds:
        drawn = repetition(s, seed, 0, explained=False)
        metrics = {f"accuracy.{m}": a for m, a in drawn.accuracies.items()}
        results.append({"seed": int(seed), "metrics": metrics, "series": {}, "data": identity(s)})
    return results
