"""FedValue's evaluation on tables (section 5): models, correlations with SHAP, approximations.

A repetition draws 80% of the rows, trains the models on them (Table 8), explains some of them,
deals the columns to parties, and correlates the parties' MShapley-CMI with their SHAP values
(Figures 4 and 5).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkit.checks import Floats, Ints
from fedkit.datasets import load_table
from fedkit.estimators import PermutationSampling
from fedkit.extras import need
from fedkit.fedvalue.columns import discretise, joint_codes, pca
from fedkit.fedvalue.information import PartyValues, entropy, mshapley_cmi, mutual_information
from fedkit.fedvalue.shap import MODELS, ensemble, explain, party_values, train
from fedkit.streams import Streams
from reproduction.common import each_seed, experiment, identity
from reproduction.fedvalue import experiments as given
from reproduction.fedvalue.experiments import Approximation, Setting
from reproduction.golden import Tiny
from reproduction.records import Cell

table = lru_cache(maxsize=2)(load_table)  # read once


@lru_cache(maxsize=2)
def binned(name: str, bins: int) -> Ints:
    """Return all rows of a table in bins of equal width, ``int64[n, f]``."""
    return discretise(table(name).x, bins, discrete=table(name).discrete.tolist())


def split(s: Setting, seed: int, index: int) -> tuple[Ints, Ints]:
    """Return the rows of the sample and the rest, which tests; the same for all features."""
    rows = len(table(s.dataset).y)
    order = Streams(seed).generator("fedvalue", "sample", index).permutation(rows)
    cut = round(s.sample * rows)
    return order[:cut], order[cut:]


def deal(s: Setting, columns: int, rng: np.random.Generator) -> list[Ints]:
    """Deal columns to parties at random, the task party first; those left over are nobody's."""
    own = s.features if s.task_has == "columns" else 0
    parties = (columns - own) // s.features
    order = rng.permutation(columns)
    parties = min(parties, s.data_parties) if s.data_parties else parties
    given = order[own : own + parties * s.features].reshape(parties, s.features)
    return [np.sort(order[:own]), *np.sort(given, axis=1)]


def dealt(s: Setting, seed: int, index: int) -> list[Ints]:
    """Return the columns of each party in one repetition, the task party first."""
    rng = Streams(seed).generator("fedvalue", "deal", index, s.features)
    return deal(s, table(s.dataset).x.shape[1], rng)


# ------------------------------------------------------------------- one repetition


#: sampled rows; by model, accuracy on the rest, and SHAP values of some rows
Repetition = tuple[Ints, dict[str, float], dict[str, NDArray[np.float32]]]


def repetition(s: Setting, seed: int, index: int, explained: bool = True) -> Repetition:
    """Train and explain the five models of one repetition."""
    seen = range(table(s.dataset).x.shape[1])
    if s.trained_on == "dealt":
        seen = np.sort(np.concatenate(dealt(s, seed, index))).tolist()
    # settings that differ in what the models do not see share them
    known = {n: getattr(s, n) for n in ("inputs", "sample", "bins", "rows", "background")}
    return _repetition(Setting(s.dataset, **known), tuple(seen), seed, index, explained)


@lru_cache(maxsize=50)
def _repetition(
    s: Setting, columns: tuple[int, ...], seed: int, index: int, explained: bool
) -> Repetition:
    data, seen = table(s.dataset), np.array(columns)
    x = data.x if s.inputs == "raw" else binned(s.dataset, s.bins).astype(np.float64)
    chosen, rest = split(s, seed, index)
    # the sample is in random order: its first rows are explained, its last are the background
    some, base = x[np.ix_(chosen[: s.rows], seen)], x[np.ix_(chosen[-s.background :], seen)]
    accuracies, phi = {}, {}
    for name in MODELS:
        fitted = train(name, x[np.ix_(chosen, seen)], data.y[chosen], seed)
        accuracies[name] = fitted.accuracy(x[np.ix_(rest, seen)], data.y[rest])
        if explained:
            found = explain(fitted, some, base, seed)
            phi[name] = np.zeros((len(some), x.shape[1], found.shape[2]), dtype=np.float32)
            phi[name][:, seen] = found
    return chosen, accuracies, phi


def information_values(
    s: Setting, x: Ints, y: Ints, parties: Sequence[Ints], seed: int
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return the parties' values by every estimate and control, and facts about them."""
    task, data = x[:, parties[0]] if len(parties[0]) else None, [x[:, p] for p in parties[1:]]
    levels = int(x.max()) + 1  # codes have at most so many levels and are not binned again
    sampling = None if len(data) <= given.EXACT else PermutationSampling(walks=s.walks)

    def value(labels: Ints, correction: Any) -> PartyValues:
        return mshapley_cmi(
            task, labels, data, bins=levels, correction=correction, estimator=sampling, seed=seed
        )  # fmt: skip

    corrected = value(y, "permutation")
    plain = corrected.plugin  # of the same coalitions
    assert plain is not None
    shuffled = Streams(seed).generator("fedvalue", "shuffled").permutation(y)
    values = {
        "plugin": plain,
        "permutation": corrected.values,
        "alone": np.array([mutual_information(part, y) for part in data]),
        "entropy": np.array([entropy(joint_codes(part)) for part in data]),
        "shuffled": value(shuffled, "plugin").values,
    }
    everything, labels = joint_codes(x), entropy(y)
    facts = {
        "parties": float(len(data)),
        "exact": float(corrected.exact),
        # standard error of the corrected values, of the order of the mean plug-in value
        "error": float(corrected.standard_errors.mean() / max(plain.mean(), 1e-12)),
        # how much of the label is left once all columns are known, and cells per row
        "left": max(labels - mutual_information(everything, y), 0.0) / labels,
        "cells_per_row": float(everything.max() + 1) / len(y),
        "shuffled_share": float(values["shuffled"].sum() / max(plain.sum(), 1e-12)),
        "bias_share": float(1 - corrected.values.sum() / max(plain.sum(), 1e-12)),
        "task_share": mutual_information(task, y) / labels if task is not None else 0.0,
    }
    return values, facts


def correlate(a: Floats, b: Floats) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation; NaN where one side does not vary.

    Differences below the rounding of the sums behind the values count as none.
    """
    if min(np.ptp(a), np.ptp(b)) <= 1e-9 * max(np.abs(a).max(), np.abs(b).max(), 1e-12):
        return float("nan"), float("nan")
    return float(stats.pearsonr(a, b)[0]), float(stats.spearmanr(a, b)[0])


def one(s: Setting, seed: int, index: int, accuracies: Mapping[str, float]) -> dict[str, float]:
    """Return all correlations of one repetition, named ``statistic.estimate.benchmark``.

    "apart" makes SHAP values absolute before it sums them; `accuracies` decide on the ensembles.
    """
    sample, accurate, explained = repetition(s, seed, index)
    x, y = binned(s.dataset, s.bins)[sample], table(s.dataset).y[sample]
    parties = dealt(s, seed, index)
    values, facts = information_values(s, x, y, parties, 1000 * seed + index)
    found = {f"fact.{name}": value for name, value in facts.items()}
    found |= {f"accuracy.{m}": a for m, a in accurate.items()}
    columns = [p.tolist() for p in parties[1:]]
    for how in ("together", "apart"):
        shap = {m: party_values(phi.astype(float), columns, how) for m, phi in explained.items()}
        mixed = {
            name: ensemble(shap, accuracies, level) for name, level in given.THRESHOLDS.items()
        }
        for benchmark, theirs in {**shap, **mixed}.items():
            if how == "apart":
                found[f"apart.plugin.{benchmark}"] = correlate(values["plugin"], theirs)[0]
                continue
            for name, ours in values.items():
                at = f"{name}.{benchmark}"
                found[f"pearson.{at}"], found[f"spearman.{at}"] = correlate(ours, theirs)
    return found


# ------------------------------------------------------------------- Figures 4 and 5, Table 8


@each_seed
def run_correlation(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run one panel of Figure 4: a batch of repetitions, recorded as their means.

    ``fact.defined`` is the share of repetitions in which the parties' values differ at all.
    """
    s = Setting.of(cell)
    drawn = [repetition(s, seed, index)[1] for index in range(s.repetitions)]
    means = {m: float(np.mean([a[m] for a in drawn])) for m in MODELS}
    each = need("pandas", "run").DataFrame(
        [one(s, seed, index, means) for index in range(s.repetitions)]
    )
    metrics = each.mean().to_dict()  # of the repetitions in which a number is defined
    metrics["fact.defined"] = float(each["pearson.plugin.lr"].notna().mean())
    drawn_ones = each.filter(regex=r"^pearson\.(plugin|permutation)\.").round(4)
    series = {str(name): column.tolist() for name, column in drawn_ones.items()}
    data = identity(table(s.dataset))
    return {"metrics": {**metrics, **summary(metrics)}, "series": series, "data": data}


def summary(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what the paper's text says of a panel, of the means over its repetitions.

    ``above.70``: percent of the benchmarks whose correlation is above 0.7; ``better``: correlation
    of accuracy and correlation over the five models.
    """
    found = {
        f"above.80.{name}": 100.0 * (metrics[f"pearson.plugin.{name}"] > 0.8)
        for name in given.THRESHOLDS
    }
    for estimate, level in product((*given.ESTIMATES, *given.CONTROLS), (70, 80)):
        bars = np.array([metrics[f"pearson.{estimate}.{b}"] for b in (*MODELS, "ensemble5")])
        mark = "" if estimate == "plugin" else f".{estimate}"
        found[f"above.{level}{mark}"] = 100 * float((bars > level / 100).mean())
    accuracies = np.array([metrics[f"accuracy.{m}"] for m in MODELS])
    bars = np.array([metrics[f"pearson.plugin.{m}"] for m in MODELS])
    found["better"] = correlate(accuracies, bars)[0]
    return found


@each_seed
def run_models(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run one row of Table 8: accuracy of the models on the rows that a sample leaves out."""
    s = Setting.of(cell)
    accuracies = repetition(s, seed, 0, explained=False)[1]
    metrics = {f"accuracy.{m}": a for m, a in accuracies.items()}
    return {"metrics": metrics, "series": {}, "data": identity(table(s.dataset))}


# ------------------------------------------------------------------- Figures 8 and 9


def mape(estimate: Floats, truth: Floats) -> float:
    """Return the mean absolute percentage error over the parties whose true value is not zero."""
    some = np.abs(truth) > 1e-9 * np.abs(truth).max()
    return 100 * float(np.mean(np.abs(estimate[some] - truth[some]) / np.abs(truth[some])))


def reduce(x: Floats, components: int, bins: int) -> Ints:
    """Return a party's first principal components in bins."""
    # equal-width bins do not see a column's unit, so neither should the components
    spread = x.std(axis=0)
    standard = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return discretise(pca(standard, components), bins, discrete=False)


@each_seed
def run_approximation(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Measure both approximations against exact values on the same rows and parties."""
    a = Approximation.of(cell)
    data = table(a.dataset)
    rows = split(Setting(a.dataset, sample=a.sample), seed, 0)[0]
    x, y = data.x[rows], data.y[rows]
    # edges from these rows, as those of components are: other edges alone move values as much
    codes = discretise(x, a.bins, discrete=data.discrete.tolist())
    levels = int(codes.max()) + 1

    def parties(features: int) -> list[Ints]:
        rng = Streams(seed).generator("fedvalue", "approximation", features)
        return deal(Setting(a.dataset, features), x.shape[1], rng)

    def timed(held: Sequence[Any], **options: Any) -> tuple[PartyValues, float]:
        start = time.perf_counter()
        return mshapley_cmi(held[0], y, held[1:], **options), time.perf_counter() - start

    # Figure 8: error, evaluated coalitions and seconds by number of permutations
    held = [codes[:, p] for p in parties(a.features)]
    exact, seconds = timed(held, bins=levels)
    assert exact.exact
    found = {
        "sampling.parties": float(len(held) - 1),
        "sampling.exact.evaluations": float(exact.evaluations),
        "sampling.exact.seconds": seconds,
    }
    for walks in a.samplings:
        near, seconds = timed(
            held, bins=levels, estimator=PermutationSampling(walks=walks), seed=seed
        )
        found[f"sampling.mape.{walks}"] = mape(near.values, exact.values)
        found[f"sampling.evaluations.{walks}"] = float(near.evaluations)
        found[f"sampling.seconds.{walks}"] = seconds
    if {100, 1200} <= set(a.samplings):
        found["sampling.ratio"] = found["sampling.mape.1200"] / found["sampling.mape.100"]

    # Figure 9: error, rank correlation and cells by number of components per party
    wide = parties(a.wide)
    whole, seconds = timed([codes[:, p] for p in wide], bins=levels)
    found |= {"pca.parties": float(len(wide) - 1), "pca.whole.seconds": seconds}
    for components in a.components:
        held = [reduce(x[:, p], components, a.bins) for p in wide]
        near, seconds = timed(held, bins=a.bins)
        found[f"pca.mape.{components}"] = mape(near.values, whole.values)
        found[f"pca.rank.{components}"] = correlate(near.values, whole.values)[1]
        found[f"pca.seconds.{components}"] = seconds
        # what the protocol has to count: cells of one data party, and occupied ones
        occupied = [len(np.unique(part, axis=0)) for part in held[1:]]
        found[f"pca.cells.{components}"] = float(a.bins**components)
        found[f"pca.occupied.{components}"] = float(np.mean(occupied))
    found["pca.zero_share"] = float(np.mean(np.abs(whole.values) < 1e-9))
    return {"metrics": found, "series": {}, "data": identity(data)}


# ------------------------------------------------------------------- cells

_TINY = asdict(Setting("wine", features=3, repetitions=1, rows=10, background=5, walks=25))
_SWITCHES = ("inputs", "features", "task_has", "data_parties", "trained_on")
experiment(
    "fedvalue", "models", "Accuracy of the models (Table 8)", given.models, given.seeds_of_models,
    Tiny("models", run_models, _TINY, switches={"inputs": {}}),
)  # fmt: skip
experiment(
    "fedvalue", "correlation", "MShapley-CMI beside SHAP values (Figures 4 and 5)",
    given.correlation, given.seeds_of_tables,
    Tiny(
        "correlation", run_correlation, _TINY, switches={name: {} for name in _SWITCHES},
        felt={"correlation.data_parties=*": {"features": 1}},  # columns for more parties than that
    ),
)  # fmt: skip
experiment(
    "fedvalue", "approximation", "Shapley sampling and PCA (Figures 8 and 9)", given.approximation,
    given.seeds_of_tables,
    Tiny(
        "approximation", run_approximation,
        asdict(Approximation("breast", features=4, samplings=(25,), components=(2, 3))),
    ),
)  # fmt: skip
