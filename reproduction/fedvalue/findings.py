"""What the pages on FedValue say in numbers, each computed here from the records.

``numbers_of_...`` are the numbers in the text of a page, by the names under which it shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedkit.datasets import TABLES
from fedkit.fedvalue.protocol import verification as bounds
from fedkit.fedvalue.shap import MODELS
from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.fedvalue import experiments as given
from reproduction.fedvalue.correlation import correlate
from reproduction.fedvalue.experiments import FEATURES, MAIN, PLACES, SHAP_READINGS, Case
from reproduction.overviews import alike, machines_told, where
from reproduction.statistics import slopes
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED

Numbers = dict[str, Any]

#: strategies and controls of the recommendation case, those of the paper first
STRATEGIES = {
    "random": "RANDOM",
    "volume": "VOLUME",
    "vf-ps": "VF-PS",
    "fedvalue": "FedValue",
    "fedvalue-corrected": "FedValue, chance taken off",
    "fedvalue-thrifty": "FedValue, thrifty",
    "fedvalue-corrected-thrifty": "chance taken off, thrifty",
    "validated": "forward selection on held-out users",
    "hindsight": "oracle: best on test users",
    "none": "no data party",
    "all": "all data parties",
}
#: the judged reading: the paper's words are gender and age
JUDGED_MARKET = tuple(replace(case, demographics="gender-age") for case in MAIN)
IDEAL, REDUNDANT, RIDERS = JUDGED_MARKET
#: price list and budget of the columns of Tables 5 to 7
COLUMNS = tuple(f"{scheme}.{budget}" for scheme, budget in PLACES)


class Evaluation(overviews.Evaluation):
    """The records of a profile, and the claims judged by them."""

    paper = "fedvalue"

    def played(self, case: Case, records: str = "", experiment: str = "") -> pd.DataFrame:
        """Return the repetitions of one case of the market, of whatever data."""
        worded = case.demographics == "gender-age"
        experiment = experiment or ("gender_age" if worded else "recommendation")
        return alike(self.frame(experiment, records), case, PLAYED)


#: settings of a case that say what is played; the data and one control are not among them
PLAYED = asdict(MAIN[0]).keys() - {"dataset", "validated"}

# ------------------------------------------------------------------------ the market


def per_seed(frame: pd.DataFrame, metric: str) -> np.ndarray:
    """Return a metric of each repetition, by seed; empty where it is not on record."""
    return where(frame, metric=metric).sort_values("seed").value.to_numpy(dtype=np.float64)


def cut(
    frame: pd.DataFrame, measure: str, name: str, columns: Sequence[str] = COLUMNS[:1]
) -> Interval:
    """Return a measure of a strategy in the mean of some columns, with its 95% interval."""
    values = in_mean(frame, measure, name, columns)
    if measure in ("frsp", "rpsp"):
        return bounded_interval(values, 0.0, 100.0)
    return mean_interval(values).within(0, 1)


def in_mean(frame: pd.DataFrame, measure: str, name: str, columns: Sequence[str]) -> np.ndarray:
    """Return a measure of a strategy in the mean of some columns, by repetition."""
    return np.mean([per_seed(frame, f"{measure}.{c}.{name}") for c in columns], axis=0)


def lead(
    frame: pd.DataFrame, a: str, b: str, measure: str = "auc", columns: Sequence[str] = COLUMNS[:1]
) -> Interval:
    """Return by how much a strategy is ahead of another, paired by repetition."""
    ahead = in_mean(frame, measure, a, columns) - in_mean(frame, measure, b, columns)
    return paired_interval(ahead)


def ahead_when_tested(e: Evaluation, case: Case, rival: str, records: str = "") -> Interval:
    """Return by how much AUC grows where only those that pass are paid, 3α under FIX, paired."""
    mine, theirs = e.played(case, records, "tested"), e.played(case, records)
    theirs = theirs[theirs.seed.isin(mine.seed)]
    rest = per_seed(theirs, f"auc.fix.3.{rival}")
    return paired_interval(per_seed(mine, "auc.fix.3") - rest)


#: readings of the scenario with free-riders that the paper leaves open, by what is read otherwise
RIDER_READINGS: dict[str, dict[str, Any]] = {
    "gender and age": {},
    "gender and age, everybody's labels": {"known": "all"},
    "occupation too": {"demographics": "levels"},
    "occupation too, everybody's labels": {"demographics": "levels", "known": "all"},
    "occupation too, in bins": {"demographics": "bins"},
    "occupation too, free-riders shuffle a true table":
        {"demographics": "levels", "fabrication": "permuted"},
    "occupation too, free-riders draw every place":
        {"demographics": "levels", "fabrication": "uniform"},
}  # fmt: skip


def riders_by_reading(e: Evaluation) -> pd.DataFrame:
    """Return the share paid to free-riders, in percent: index the reading and the strategy."""
    frames = {words: e.played(replace(RIDERS, **read)) for words, read in RIDER_READINGS.items()}
    found = {
        (words, STRATEGIES[name]): cut(frame, "frsp", name)
        for words, frame in frames.items()
        for name in ("fedvalue", "fedvalue-corrected")
    }
    return overviews.intervals(found)


# ------------------------------------------------------------------------ SHAP

#: the six benchmarks of Figure 4; Figure 5 has the ensemble at 0.02
BENCHMARKS = (*MODELS, "ensemble5")
BENCHMARK_LABELS = {**MODELS, "ensemble5": "ensemble, 0.05", "ensemble2": "ensemble, 0.02"}
ESTIMATES = {
    "plugin": "MShapley-CMI, plug-in",
    "permutation": "MShapley-CMI, chance taken off",
    "alone": "each party's own information",
    "entropy": "control: entropy of the party's cells, no label",
    "shuffled": "control: MShapley-CMI of shuffled labels",
}
JUDGED, LABEL_ONLY = "as in Figure 4", "task party has the label only"


def reading(e: Evaluation, name: str = JUDGED) -> pd.DataFrame:
    """Return the correlations of one reading of the setting (a name of ``SHAP_READINGS``)."""
    fields = set[str]().union(*SHAP_READINGS.values())
    return alike(e.frame("correlation"), given.Setting("", **SHAP_READINGS[name]), fields)


def bars(frame: pd.DataFrame, estimate: str = "plugin") -> pd.DataFrame:
    """Return the mean correlations, the bars of Figure 4, over all repetitions.

    Columns dataset, features, benchmark, mean, low, high (95% over the batches), seeds.
    """
    columns = ["dataset", "features", "benchmark", "mean", "low", "high", "seeds"]
    found = dict(list(frame.groupby(["dataset", "features", "metric"]).value))
    rows = [
        (*panel, b, *astuple(mean_interval(found[*panel, f"pearson.{estimate}.{b}"])))
        for b, panel in product((*BENCHMARKS, "ensemble2"), product(TABLES, FEATURES))
        if (*panel, f"pearson.{estimate}.{b}") in found
    ]
    return pd.DataFrame(rows, columns=columns)


def shares(frame: pd.DataFrame, estimate: str = "plugin") -> dict[str, float]:
    """Return how many of the six benchmarks' bars are above 0.7 and 0.8, in percent."""
    found = bars(frame, estimate)
    means = found[found.benchmark.isin(BENCHMARKS)]["mean"]
    return {
        **{f"above {level} (%)": 100 * float((means > level).mean()) for level in (0.7, 0.8)},
        "mean correlation": float(means.mean()),
    }


def above(frame: pd.DataFrame, estimate: str = "plugin") -> Interval:
    """Return the percentage of bars above 0.7 in a batch of repetitions: its mean."""
    wanted = [f"pearson.{estimate}.{b}" for b in BENCHMARKS]
    part = frame[frame.metric.isin(wanted)].dropna(subset="value")
    return mean_interval(100 * (part.value > 0.7).groupby(part.seed).mean()).within(0, 100)


@cache
def by_reading(e: Evaluation) -> pd.DataFrame:
    """Return the shares of the plug-in value by reading of the setting, and a control's.

    The control is the information that each party has alone; `repetitions` are behind a bar.
    """
    rows = {}
    for name in SHAP_READINGS:
        part = reading(e, name)
        runs = part.drop_duplicates(["key", "seed"]).groupby(["dataset", "features"])
        behind = runs.repetitions.sum()
        few, many = behind.min(), behind.max()
        rows[name] = {
            **shares(part),
            "control above 0.7 (%)": shares(part, "alone")["above 0.7 (%)"],
            "repetitions": f"{many}" if few == many else f"{few} to {many}",
        }
    return overviews.table(rows)


def gains(frame: pd.DataFrame, before: str, after: str) -> pd.Series:
    """Return by how much the six benchmarks' bars grow from one estimate to another."""
    place = ["dataset", "features", "benchmark"]
    sides = [bars(frame, x).set_index(place)["mean"] for x in (before, after)]
    return (sides[1] - sides[0]).loc[:, :, list(BENCHMARKS)]


def distance(e: Evaluation) -> dict[str, float]:
    """Return the root mean squared distance of our accuracies to Table 8's, by inputs.

    Over the data sets on which the models have seen both; in percentage points.
    """
    printed, frame = e.entries.tables["t8"], e.frame("models")
    ours = frame.groupby(["dataset", "metric", "inputs"]).value.mean().unstack().dropna()
    theirs = [
        float(printed.rows[dataset][list(MODELS).index(metric.removeprefix("accuracy."))])
        for dataset, metric in ours.index
    ]
    return (100 * ours.sub(theirs, axis=0).pow(2).mean().pow(0.5)).to_dict()


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
    wide = wide.loc[[panel for panel in product(TABLES, FEATURES) if panel in wide.index]]
    wide = wide.rename(columns=lambda name: names.get(name.removeprefix("fact."), name))
    wide = wide[[name for name in names.values() if name in wide]]
    wide = wide.assign(exact=np.where(wide["exact"], "yes", "no")).astype({"data parties": int})
    return wide.rename_axis(index=["data set", "features per party"], columns=None)


def approximations(e: Evaluation, what: str, number: str) -> pd.DataFrame:
    """Return the metrics of "sampling" or "pca" by dataset, seed, and `number` of parts."""
    frame = e.frame("approximation")
    parts = frame[frame.metric.str.fullmatch(rf"{what}\.[a-z]+\.\d+")]
    names = parts.metric.str.extract(r"\.(?P<metric>[a-z]+)\.(?P<number>\d+)")
    tidy = parts.assign(metric=names.metric, **{number: names.number.astype(int)})
    wide = tidy.pivot_table(index=["dataset", "seed", number], columns="metric", values="value")
    return wide.reset_index()


# ------------------------------------------------------------------------ numbers in the text


def numbers_of_value(e: Evaluation) -> Numbers:
    """What the page on the value says."""
    riders = e.played(RIDERS)
    read = riders_by_reading(e)["mean"].unstack()[STRATEGIES["fedvalue"]]
    label_only = by_reading(e).loc[LABEL_ONLY]
    return {
        "rider-plain": cut(riders, "frsp", "fedvalue").mean,
        "rider-fixed": cut(riders, "frsp", "fedvalue-corrected").mean,
        "rider-least": read.min(),
        "rider-most": read.max(),
        "label-only": label_only["above 0.7 (%)"],
    }


def numbers_of_market(e: Evaluation) -> Numbers:
    """What the page on the movie agency says."""
    ideal, riders = e.played(IDEAL), e.played(RIDERS)
    each = np.array([per_seed(riders, f"frsp.{c}.fedvalue") for c in COLUMNS])
    read = riders_by_reading(e)["mean"].unstack()[STRATEGIES["fedvalue"]]
    fewer = e.played(RIDERS, "laptop")
    means = explanation(e)[0]
    low = means.loc["low volume"]
    leads = (
        e.claims[e.claims.index.str.match(r"fedvalue\.o[5679]\..*vs-")].paper.astype(float).abs()
    )
    return {
        "frsp-fedvalue": cut(riders, "frsp", "fedvalue").mean,
        "frsp-corrected": cut(riders, "frsp", "fedvalue-corrected").mean,
        "behind-volume": lead(ideal, "volume", "fedvalue").mean,
        "frsp-least-column": float(each.mean(axis=1).min()),
        "frsp-worst-column": float(each.mean(axis=1).max()),
        "frsp-paid-seeds": int((each.max(axis=0) > 0).sum()),
        "frsp-seeds": each.shape[1],
        "rider-least": float(read.min()),
        "rider-most": float(read.max()),
        "riders-occupation": read["occupation too"],
        "most-lead": e.ours("o9.redundant.r0.6.auc.vs-vf-ps").mean,
        "most-lead-printed": float(e.claims.paper["fedvalue.o9.redundant.r0.6.auc.vs-vf-ps"]),
        "bias-share": 100 * (1 - low[STRATEGIES["fedvalue-corrected"]] / low["FedValue"]),
        "fewer-mean-corrected": cut(fewer, "frsp", "fedvalue-corrected", COLUMNS).mean,
        "fewer-mean-plain": cut(fewer, "frsp", "fedvalue", COLUMNS).mean,
        "lead-within": 100 * float((leads < 0.03).mean()),
        **printed_market(e),
    }


def printed_market(e: Evaluation) -> Numbers:
    """What Tables 5 to 7 reveal of choices that the paper does not tell."""
    useful = 0.8 * e.printed("t5.fix.auc.b1.random")
    alone = {t: (e.printed(f"{t}.fix.auc.b1.random") - useful) / 0.2 for t in ("t6", "t7")}
    unpaired = []
    for (scheme, b), measure in product(PLACES, ("accuracy", "auc")):
        cells = [e.entries[f"fedvalue.t5.{scheme}.{measure}.b{b}.{name}"]
                 for name in ("fedvalue", "vf-ps", "volume", "random")]  # fmt: skip
        mine, *rest = ((float(c.number or 0), float(c.spread or 0), 20) for c in cells)
        unpaired.append(stats.ttest_ind_from_stats(*mine, *max(rest), equal_var=False).pvalue)
    return {
        "printed-redundant": alone["t6"],
        "printed-free-riding": alone["t7"],
        "printed-p": float(min(unpaired)),
    }


@cache
def explanation(e: Evaluation) -> tuple[pd.DataFrame, dict[tuple[str, str], Interval]]:
    """Return what the scores follow beside free-riders: means by kind, and rank correlations.

    Kinds begin with "odd" for free-riders; correlations, by score and what it is compared with, are
    means over repetitions.
    """
    series = alike(e.series("gender_age"), RIDERS, PLAYED)
    wide = series.pivot_table(index=["seed", "index"], columns="series", values="value")
    wide = wide.drop(columns="score.volume").rename(columns=lambda c: c.removeprefix("score."))
    wide = wide.rename(columns=STRATEGIES).rename_axis(columns=None)
    volume = np.where(wide.high == 1, "high volume", "low volume")
    kind = np.where(wide.odd == 1, np.char.add("odd, ", volume), volume)
    scores = [label for label in STRATEGIES.values() if label in wide]
    ranks = {}
    for score, other in product(scores, ("gain", "cells")):
        found = [correlate(*p[[score, other]].to_numpy().T)[1] for _, p in wide.groupby("seed")]
        ranks[score, other] = mean_interval(found).within(-1.0, 1.0)
    return wide[["gain", "cells", *scores]].groupby(kind).mean(), ranks


def numbers_of_experiments(e: Evaluation) -> Numbers:
    """What the page on SHAP says."""
    base, label = reading(e), reading(e, LABEL_ONLY)
    both = approximations(e, "sampling", "permutations")
    rank = approximations(e, "pca", "components").groupby(["dataset", "components"])["rank"].mean()
    table8 = e.claims.verdict[e.claims.index.str.startswith("fedvalue.t8.")]
    far = distance(e)
    return {
        "fvx-base-70": above(base).mean,
        "fvx-label-70": above(label).mean,
        "fvx-own-base-plugin": 100 * float((gains(base, "plugin", "alone") > 0).mean()),
        "fvx-own-base-corrected": 100 * float((gains(base, "permutation", "alone") > 0).mean()),
        "fvx-rise": 100 * float((gains(base, "plugin", "permutation") > 0).mean()),
        "fvx-far-binned": far["binned"],
        "fvx-far-raw": far["raw"],
        "fvx-slope": float(stats.linregress(np.log(both.permutations), np.log(both.mape))[0]),
        "fvx-rank-breast": float(rank["breast"].iloc[-1]),
        "fvx-rank-music": float(rank["music"].iloc[-1]),
        "fvx-t8-reproduced": int((table8 == REPRODUCED).sum()),
        "fvx-t8-open": int((~table8.isin([REPRODUCED, NOT_REPRODUCED])).sum()),
        **{
            f"fvx-{key}-mean": shares(base, key)["mean correlation"]
            for key in ("plugin", "entropy", "shuffled")
        },
    }


# ------------------------------------------------------------------------ the protocol


def passed(part: pd.DataFrame) -> Interval:
    """Return the share of all counts that deceive, with its exact 95% interval, in percent."""
    wide = part.pivot(index="seed", columns="metric", values="value")
    n, k = round(float(wide.trials.sum())), round(float((wide.deceived * wide.trials).sum()))
    ends = stats.binomtest(k, n).proportion_ci(method="exact")
    return Interval(100 * k / n, 100 * ends.low, 100 * ends.high, n)


def attacked(e: Evaluation, protocol: str, attack: str, **settings: Any) -> Interval:
    """Return how often an attack on a protocol passes; settings in place of the usual ones."""
    case = given.Attacked(protocol, attack, **settings)
    return passed(alike(e.frame("security"), case, asdict(case).keys() - {"people", "trials"}))


def known_answers(e: Evaluation, data: str = "label") -> pd.DataFrame:
    """Return the attacker's best case by the number of artificial IDs, measured and bound, in %.

    `data` is "label", two task cells of about equal size, or "cells", 25 of different sizes.
    """
    rows = {}
    frame = where(e.frame("security"), data=data)
    for n in sorted(map(int, frame.artificial_low.unique())):
        part = where(frame, artificial_low=n)
        value, i = part.groupby("metric").value.mean(), passed(part)
        people = int(part.people.iloc[0])
        rows[n] = {
            "deceived (%)": i.mean,
            "low": i.low,
            "high": i.high,
            "bound (%)": 100 * value["bound.known_answers"],
            "by the overall share (%)": 100 * bounds.known_answers([people], (2, 3), (n, n)),
        }
    return overviews.table(rows)


def leaks(e: Evaluation, parties: int = 5, features: int = 2) -> dict[Any, Interval]:
    """Return what the task party knows or guesses in percent, and what a defence costs.

    By metric, data set, defence and level.
    """
    shown = where(e.frame("leak"), parties=parties, features=features)
    groups = shown.groupby(["metric", "dataset", "defence", "level"]).value
    shares = {at: 100 * v.to_numpy() for at, v in groups if at[0] != "rank"}
    return {at: bounded_interval(v, 0, max(100, v.max())) for at, v in shares.items()}


def growth(e: Evaluation, protocol: str, varied: str) -> float:
    """By what factor the time of a protocol grows with one more of what is varied, mean of runs."""
    part = where(e.frame("scaling"), metric="core_seconds", protocol=protocol, varied=varied)
    wide = part.pivot(index="seed", columns=varied, values="value").dropna(axis=1)
    return float(np.exp(slopes(wide.columns.to_numpy(), np.log(wide.to_numpy()))).mean())


def numbers_of_protocol(e: Evaluation) -> Numbers:
    """What the page on counting and lies says."""
    return {
        "fvp-lie-gcd": attacked(e, "printed", "gcd").mean,
        "fvp-lie-23": attacked(e, "printed", "best bet", high=3).mean,
    }


def numbers_of_hardening(e: Evaluation) -> Numbers:
    """What the page on the hardened protocol says."""
    timed, few, seen = e.frame("scaling"), known_answers(e), leaks(e)
    million = timed[(timed.varied == "rows") & (timed.rows == 10**6)].groupby("metric").value
    counted, valued = (float(million.median()[m]) for m in ("core_seconds", "seconds.values"))
    return {
        "fvp-million": counted,
        "fvp-million-values": valued,
        "fvp-faster": 4 * 3600 / (counted + valued),
        "fvp-machine": machines_told(e.store.records(e.records, "fedvalue", "scaling")),
        "fvp-feature-cells": growth(e, "printed", "features"),
        "fvp-feature-whole": growth(e, "hardened", "features"),
        "fvp-few-lie": float(few["deceived (%)"].iloc[0]),
        "fvp-credit-error": seen["error", "credit", "joint", 5].mean,
        "fvp-breast-guess": seen["guessed", "breast", "none", 0].mean,
        "fvp-breast-joint": seen["guessed", "breast", "joint", 5].mean,
    }
