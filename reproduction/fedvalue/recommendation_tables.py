"""Federated recommendation as tables: strategies and controls, tests, other readings, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fedkit.extras import need
from fedkit.intervals import bounded_interval, holm, mean_interval
from reproduction import overviews
from reproduction.claims import Claims
from reproduction.fedvalue.correlation import correlate
from reproduction.fedvalue.recommendation import MAIN, MILD, PLACES, READINGS, TABLE9, Case

if TYPE_CHECKING:
    import pandas as pd

#: those of the paper first
LABELS = {
    "random": "RANDOM",
    "volume": "VOLUME",
    "vf-ps": "VF-PS",
    "fedvalue": "FedValue",
    "fedvalue-corrected": "FedValue, bias-corrected",
    "fedvalue-thrifty": "FedValue, thrifty",
    "fedvalue-corrected-thrifty": "bias-corrected, thrifty",
    "validated": "forward selection on held-out users",
    "hindsight": "oracle: best on test users",
    "none": "no data party",
    "all": "all data parties",
}
BENCHMARKS = ("random", "volume", "vf-ps")


def rows(frame: pd.DataFrame, case: Case) -> pd.DataFrame:
    """Return the records of one case, of whatever data, with or without forward selection."""
    return overviews.alike(frame, case, asdict(case).keys() - {"dataset", "validated"})


def per_seed(frame: pd.DataFrame, metric: str) -> np.ndarray:
    """Return a metric of each repetition, by seed; empty where it is not on record."""
    found = frame[frame.metric == metric].sort_values("seed")
    return found.value.to_numpy(dtype=np.float64)


#: of a share in percent, one value per repetition; none of 20 is not never: up to 16.8% is possible
share_interval = partial(bounded_interval, least=0.0, most=100.0)


def performance(
    frame: pd.DataFrame, measure: str, names: Mapping[str, str] = LABELS
) -> pd.DataFrame:
    """One row per strategy and control, one column per scheme and budget: mean and 95% interval.

    `frame` holds records of one case (:func:`rows`); measures are "accuracy", "auc", "spent", and
    the shares "rpsp" and "frsp" in percent, with the intervals of :func:`share_interval`.
    """
    digits = 3 if measure in ("accuracy", "auc") else 1
    interval = share_interval if measure in ("rpsp", "frsp") else mean_interval
    table: dict[str, dict[str, str]] = {}
    for scheme, budget in PLACES:
        column = table.setdefault(f"{scheme.upper()}, {budget}α", {})
        for name, label in names.items():
            for metric in (f"{measure}.{scheme}.{budget}.{name}", f"{measure}.{name}"):
                values = per_seed(frame, metric)  # the latter is the same at every budget
                if len(values):
                    column[label] = interval(values).text(digits)
    return need("pandas", "run").DataFrame(table)


def against_best(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare FedValue with the best of the paper's benchmarks in each column.

    The paired t-test stands beside Holm's correction over the columns shown and the t-interval of
    the difference.  Choosing the best benchmark on the same repetitions favours it.
    """
    found: dict[str, dict[str, Any]] = {}
    for measure in ("accuracy", "auc"):
        for scheme, budget in PLACES:
            place = f"{measure}.{scheme}.{budget}"
            others = {b: per_seed(frame, f"{place}.{b}") for b in BENCHMARKS}
            best = max(others, key=lambda b: float(others[b].mean()))
            d = per_seed(frame, f"{place}.fedvalue") - others[best]
            found[f"{measure}, {scheme.upper()}, {budget}α"] = {
                "best benchmark": LABELS[best],
                "difference": mean_interval(d).text(3),
                "p (paired t)": float(stats.ttest_1samp(d, 0.0).pvalue) if np.ptp(d) else 1.0,
            }
    table = overviews.table(found)
    return table.assign(**{"p (Holm)": holm([*table["p (paired t)"]])})


#: a changed field of a case in words; other values than those named are put in
_WORDS = {
    "movies": "{} new movies",
    "candidates": "{} candidates",
    "features": "components per party: {}",
    "high": "high volume {:.0%}",
    "ratio": "{:.0%} of the parties",
    ("redundancy", "copy"): "they offer the demographics",
    ("redundancy", "given"): "the agency has their features already",
    ("fabrication", "permuted"): "rows of a true table shuffled",
    ("fabrication", "uniform"): "a random number from 0 to 5 in every place",
    ("demographics", "bins"): "age and occupation in five bins",
    ("known", "all"): "scores from everybody's labels",
    "trees_depth": "trees of depth {}",
    "trees_rate": "rate {}",
}


def _words(case: Case) -> str:
    usual = asdict(Case(scenario=case.scenario))
    changed = [
        _WORDS.get((name, value), _WORDS.get(name, f"{name} {{}}")).format(value)
        for name, value in asdict(case).items()
        if value != usual[name]
    ]
    return ": ".join([case.scenario, *([", ".join(changed)] if changed else [])])


def _means(
    frame: pd.DataFrame, measure: str, cases: Sequence[Case], names: Sequence[str]
) -> pd.DataFrame:
    """Means under FIX with 2 alpha: a row per case that is on record, a column per strategy."""
    table: dict[str, dict[str, float]] = {}
    for case in cases:
        part = rows(frame, case)
        found = {LABELS[n]: per_seed(part, f"{measure}.fix.2.{n}") for n in names}
        if all(map(len, found.values())):
            table[_words(case)] = {label: float(v.mean()) for label, v in found.items()}
    return overviews.table(table)


def robustness(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Table 9: means under FIX with 2 alpha, one parameter changed at a time."""
    return _means(frame, measure, (*MAIN, *TABLE9), (*BENCHMARKS, "fedvalue"))


def readings(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The same for other readings of what the paper does not say, and for milder trees."""
    names = (*BENCHMARKS, "fedvalue", "fedvalue-corrected")
    return _means(frame, measure, (*MAIN, *READINGS), names)


def levels(frame: pd.DataFrame, claims: Claims) -> pd.DataFrame:
    """Compare the level of the printed AUC with ours, by settings of the trees.

    One row per table and trees, one column per strategy: ours minus printed, the mean over schemes
    and budgets.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for (number, usual), trees in product(zip((5, 6, 7), MAIN, strict=True), ({}, MILD)):
        case = replace(usual, **trees)
        part = rows(frame, case)
        if not len(part):
            continue
        found[f"Table {number}", f"depth {case.trees_depth}, rate {case.trees_rate}"] = {
            LABELS[name]: float(np.mean([
                per_seed(part, f"auc.{scheme}.{budget}.{name}").mean()
                - claims[f"fedvalue.t{number}.{scheme}.auc.b{budget}.{name}"].number
                for scheme, budget in PLACES
            ]))
            for name in (*BENCHMARKS, "fedvalue")
        }  # fmt: skip
    return overviews.table(found)


def explanation(series: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the scores follow: means by kind of party, and rank correlations within repetitions.

    The first table has a row per kind (of low or high volume; "odd" are the redundant or the
    free-riding): gain in AUC when alone, cells that its bins occupy, and its scores.  The second
    has a row per score and what it is compared with, the gain or the cells: mean rank correlation
    over the repetitions in which both vary, with a 95% interval.
    """
    wide = series.pivot_table(index=["seed", "index"], columns="series", values="value")
    wide = wide.drop(columns="score.volume").rename(columns=lambda c: c.removeprefix("score."))
    wide = wide.rename(columns=LABELS).rename_axis(columns=None)
    volume = np.where(wide.high == 1, "high volume", "low volume")
    kind = np.where(wide.odd == 1, np.char.add("odd, ", volume), volume)
    scores = [label for label in LABELS.values() if label in wide]
    ranks = {}
    for score, other in product(scores, ("gain", "cells")):
        found = [correlate(*p[[score, other]].to_numpy().T)[1] for _, p in wide.groupby("seed")]
        cut = mean_interval(found).within(-1.0, 1.0)
        ranks[score, other] = {"mean": cut.mean, "low": cut.low, "high": cut.high}
    means = wide[["gain", "cells", *scores]].groupby(kind).mean()
    return means, overviews.table(ranks)
