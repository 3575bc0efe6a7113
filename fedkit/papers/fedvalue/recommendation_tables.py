"""Federated recommendation as tables: strategies and controls, tests, other readings, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from fedkit.claims.claim import Claims
from fedkit.extras import need
from fedkit.intervals import Interval, holm, mean_interval
from fedkit.papers.fedvalue.budgets import BUDGETS, SCHEMES
from fedkit.papers.fedvalue.recommendation import Setting
from fedkit.papers.fedvalue.recommendation_case import Case, Trees
from fedkit.papers.fedvalue.recommendation_cells import MAIN, READINGS, TABLE9

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABELS", "MILD", "against_best", "explanation", "levels", "performance", "readings",
    "robustness", "rows", "share_interval",
]  # fmt: skip

#: those of the paper first
LABELS = {
    "random": "RANDOM",
    "volume": "VOLUME",
    "vf-ps": "VF-PS",
    "fedvalue": "FedValue",
    "fedvalue-corrected": "FedValue, bias-corrected",
    "fedvalue-thrifty": "FedValue, thrifty",
    "fedvalue-corrected-thrifty": "bias-corrected, thrifty",
    "validated": "control: best on held-out users",
    "hindsight": "bound: best on test users",
    "none": "control: no data party",
    "all": "control: all data parties",
}
BENCHMARKS = ("random", "volume", "vf-ps")
#: scikit-learn's settings for gradient boosting
MILD = Trees(depth=3, rate=0.1)
PLACES = tuple((scheme, budget) for scheme in SCHEMES for budget in BUDGETS)


def rows(frame: pd.DataFrame, case: Case, trees: Trees | None = None) -> pd.DataFrame:
    """Return the records of one case (and trees), of whatever data."""
    wanted = Setting("", case, trees or Trees()).to_dict()
    for name in ("dataset", "validated"):
        wanted.pop(name)
    kept = np.ones(len(frame), dtype=bool)
    for name, value in wanted.items():
        kept &= frame[name].to_numpy() == value
    return frame[kept]


def per_seed(frame: pd.DataFrame, metric: str) -> np.ndarray:
    """Return a metric of each repetition, by seed; empty where it is not on record."""
    found = frame[frame.metric == metric].sort_values("seed")
    return found.value.to_numpy(dtype=np.float64)


def _text(interval: Interval, digits: int) -> str:
    middle, low, high = (f"{x:.{digits}f}" for x in (interval.mean, interval.low, interval.high))
    return f"{middle} [{low},\N{NO-BREAK SPACE}{high}]"


def share_interval(values: np.ndarray) -> Interval:
    """Return mean and 95% interval of a share in percent, one value per repetition.

    The interval is cut at 0 and 100.  Where every repetition gives 0 (or 100) the t-interval has
    no width, which says too much: the exact binomial interval for "0 of n repetitions" takes its
    place, up to 16.8% for 20.
    """
    cut = mean_interval(values)
    if np.ptp(values) == 0 and values[0] in (0.0, 100.0):
        missed = 100 * (1 - 0.025 ** (1 / len(values)))  # Clopper-Pearson at 0 of n
        low, high = (0.0, missed) if values[0] == 0 else (100 - missed, 100.0)
        return Interval(cut.mean, low, high, cut.n)
    return cut.within(0.0, 100.0)


def performance(
    frame: pd.DataFrame, measure: str, names: Mapping[str, str] = LABELS
) -> pd.DataFrame:
    """One row per strategy and control, one column per scheme and budget: mean and 95% interval.

    Parameters
    ----------
    frame : DataFrame
        Records of one case (:func:`rows`).
    measure : {"accuracy", "auc", "rpsp", "frsp", "spent"}
        Shares (rpsp, frsp) in percent with the intervals of :func:`share_interval`.
    """
    digits = 3 if measure in ("accuracy", "auc") else 1
    interval = share_interval if measure in ("rpsp", "frsp") else mean_interval
    table: dict[str, dict[str, str]] = {}
    for scheme, budget in PLACES:
        column = table.setdefault(f"{scheme.upper()}, {budget}α", {})
        for name, label in names.items():
            values = per_seed(frame, f"{measure}.{scheme}.{budget}.{name}")
            if not len(values):
                values = per_seed(frame, f"{measure}.{name}")  # the same at every budget
            if len(values):
                column[label] = _text(interval(values), digits)
    made: pd.DataFrame = need("pandas", "run").DataFrame(table)
    return made


def against_best(
    frame: pd.DataFrame, name: str = "fedvalue", measures: tuple[str, ...] = ("accuracy", "auc")
) -> pd.DataFrame:
    """Compare a strategy with the best of the paper's benchmarks in each column.

    The paired t-test stands beside Holm's correction over the columns shown and the t-interval of
    the difference.  Choosing the best benchmark on the same repetitions favours it.
    """
    found: dict[str, dict[str, Any]] = {}
    raw: list[float] = []
    for measure in measures:
        for scheme, budget in PLACES:
            place = f"{measure}.{scheme}.{budget}"
            ours = per_seed(frame, f"{place}.{name}")
            others = {b: per_seed(frame, f"{place}.{b}") for b in BENCHMARKS}
            if len(ours) < 2:
                continue
            best = max(others, key=lambda b: float(others[b].mean()))
            d = ours - others[best]
            raw.append(1.0 if np.ptp(d) == 0 else float(stats.ttest_1samp(d, 0.0).pvalue))
            found[f"{measure}, {scheme.upper()}, {budget}α"] = {
                "best benchmark": LABELS[best],
                "difference": _text(mean_interval(d), 3),
                "p (paired t)": raw[-1],
            }
    made: pd.DataFrame = need("pandas", "run").DataFrame.from_dict(found, orient="index")
    if raw:
        made["p (Holm)"] = holm(raw)
    return made


#: a changed field of a case in words; other values than those named are put in
_FIELDS = {
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
}


def _words(case: Case) -> str:
    default = Case(scenario=case.scenario)
    changed = []
    for name, value in Setting("", case, Trees()).to_dict().items():
        if hasattr(default, name) and getattr(default, name) != value:
            words = _FIELDS.get((name, str(value)), _FIELDS.get(name, f"{name} {{}}"))
            changed.append(words.format(value))
    return ": ".join([case.scenario, *([", ".join(changed)] if changed else [])])


def robustness(
    frame: pd.DataFrame, measure: str, names: tuple[str, ...] = (*BENCHMARKS, "fedvalue")
) -> pd.DataFrame:
    """Table 9: means under FIX with 2 alpha, one parameter changed at a time."""
    return _lines(frame, measure, [(_words(c), c, Trees()) for c in (*MAIN, *TABLE9)], names)


def readings(
    frame: pd.DataFrame, measure: str, names: tuple[str, ...] = tuple(LABELS)[:5]
) -> pd.DataFrame:
    """The same for other readings of what the paper does not say, and for milder trees."""
    lines = [(_words(c), c, Trees()) for c in (*MAIN, *READINGS)]
    lines += [(f"{c.scenario}: milder trees", c, MILD) for c in MAIN]
    return _lines(frame, measure, lines, names)


def levels(frame: pd.DataFrame, claims: Claims, measure: str = "auc") -> pd.DataFrame:
    """Compare the level of the printed numbers with ours, by settings of the trees.

    Returns
    -------
    DataFrame
        One row per table and trees, one column per strategy: ours minus printed, the mean over
        schemes and budgets.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for table, case in zip(("t5", "t6", "t7"), MAIN, strict=True):
        for words, trees in (("depth 6, rate 0.3", Trees()), ("depth 3, rate 0.1", MILD)):
            part = rows(frame, case, trees)
            for name in (*BENCHMARKS, "fedvalue"):
                gaps = [
                    per_seed(part, f"{measure}.{scheme}.{budget}.{name}").mean()
                    - claims[f"fedvalue.{table}.{scheme}.{measure}.b{budget}.{name}"].number
                    for scheme, budget in PLACES
                    if len(part)
                ]
                if gaps:
                    row = found.setdefault((f"Table {table[1:]}", words), {})
                    row[LABELS[name]] = float(np.mean(gaps))
    made: pd.DataFrame = need("pandas", "run").DataFrame.from_dict(found, orient="index")
    return made


def _lines(
    frame: pd.DataFrame, measure: str, lines: list[tuple[str, Case, Trees]], names: tuple[str, ...]
) -> pd.DataFrame:
    table: dict[str, dict[str, float]] = {}
    for words, case, trees in lines:
        part = rows(frame, case, trees)
        found = {n: per_seed(part, f"{measure}.fix.2.{n}") for n in names}
        if all(len(values) for values in found.values()):
            table[words] = {LABELS[n]: float(values.mean()) for n, values in found.items()}
    made: pd.DataFrame = need("pandas", "run").DataFrame.from_dict(table, orient="index")
    return made


def explanation(series: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the scores follow: means by kind of party, and rank correlations within repetitions.

    Parameters
    ----------
    series : DataFrame
        Series of one case (:func:`rows` of :meth:`~fedkit.records.store.Store.series`).

    Returns
    -------
    DataFrame
        One row per kind (low volume, high volume, redundant or free-riding): gain in AUC when
        alone, cells that its bins occupy, and its scores.
    DataFrame
        One row per score: mean rank correlation, over repetitions, with the gain and the cells.
    """
    pd = need("pandas", "run")
    wide = series.pivot_table(index=["seed", "index"], columns="series", values="value")
    kind = np.where(wide.odd == 1, "odd", np.where(wide.high == 1, "high volume", "low volume"))
    scores = [c for c in wide.columns if c.startswith("score.") and c != "score.volume"]
    means = wide[["gain", "cells", *scores]].groupby(kind).mean()
    pairs: dict[str, dict[str, list[float]]] = {}
    for _, party in wide.groupby(level="seed"):
        for score in scores:
            for other in ("gain", "cells"):
                if np.ptp(party[score]) > 0 and np.ptp(party[other]) > 0:
                    rank = float(stats.spearmanr(party[score], party[other]).statistic)
                    pairs.setdefault(score, {}).setdefault(other, []).append(rank)
    table = {
        LABELS[score.removeprefix("score.")]: {
            f"rank correlation with {other}": _text(mean_interval(found), 2)
            for other, found in by_other.items()
        }
        for score, by_other in pairs.items()
    }
    names = {s: LABELS[s.removeprefix("score.")] for s in scores}
    means = means.rename(columns=names).rename_axis(columns=None)
    return means, pd.DataFrame.from_dict(table, orient="index")
