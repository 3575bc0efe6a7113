"""The tables of the pages on FedMS."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import bounded_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.fedms import figures, findings
from reproduction.fedms.experiments import PAPER_METHODS, READINGS, SCENARIOS
from reproduction.fedms.findings import KIND_LABELS, LABELS, SKEWS, Evaluation
from reproduction.overviews import lead, where
from reproduction.tables import Page, captioned
from reproduction.tables import main_claims as claims_in_words
from reproduction.verdicts import REPRODUCED, UNJUDGED, join

_WORDS = {"maverick": "Mavericks", "mnist": "MNIST", "cifar10": "CIFAR-10"}
PAGE = Page(Evaluation, LABELS | KIND_LABELS | SKEWS | _WORDS)
every = PAGE.every


def _means(frame: pd.DataFrame, metric: str, least: float = 0, most: float = 100) -> pd.DataFrame:
    """Write the mean of a metric with its interval, a row per method, a column per scenario."""
    cells = frame[frame.metric == metric].groupby(["method", "scenario"]).value
    text = cells.apply(lambda x: bounded_interval(x, least, most).text(1)).unstack()
    text = text.loc[[m for m in LABELS if m in text.index], list(SCENARIOS)]
    text = text.rename(index=LABELS, columns=SKEWS)
    return text.rename_axis(index=None, columns=None)


@captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """The paper's main claims, with 95% intervals over {seeds}; accuracy is the mean of three MNIST
    settings. Rates are percent of the rounds (MNIST, Dir(0.1), eight bad clients), judged by the
    bound in the row.{marks}
    """
    both, rates = lead(e.pooled, *findings.EDGES["both"]), e.rates("fedms")
    words = "accuracy of FedMS minus FedAvg's, points"
    told = {"fedms.p1.mnist.vs-fedavg": (words, f"{findings.printed_gain(e):.1f}", both.text(1))}
    bounds = {"maverick": "a Maverick: at least 50%"}
    bounds |= {kind: f"a client with {words}: at most 2.5%" for kind, words in KIND_LABELS.items()}
    for kind, words in bounds.items():
        claim = "fedms.mavericks" if kind == "maverick" else f"fedms.suppressed.{kind}"
        printed = f"in words; {e.claims.paper[f'fedms.t2.{kind}.fedms']}"
        ours = bounded_interval(rates[kind], 0, 100).text(1)
        told[claim] = (f"rounds of {words}", printed, ours)
    return claims_in_words(e.claims, told)


PAGE.choices("fedms")


@PAGE.table(
    "Rivals in percent and by the loss",
    "S-FedAvg in percent, and FedMS whose classes all weigh the same: with both, one can tell "
    "what FedMS values from the unit of its scores. GreedyFed also by the validation loss.",
    cards=True,
)
def rivals(e: Evaluation) -> Any:
    """Mean test accuracy in percent (Table 1, MNIST), and in how many percent of the rounds a given
    client of a kind is asked (Table 2), with 95% intervals over the seeds.
    """
    rows = ("fedavg", "s-fedavg", "s-fedavg-percent", "s-fedavg-shuffled", "fedms", "fedms-equal",
            "fedms-printed", "fedms-printed-equal", "greedyfed", "greedyfed-loss")  # fmt: skip
    lines = {}
    for method in rows:
        rates = e.rates(method)
        shown = {f"Dir({s.removeprefix('dir')})": e.accuracy.loc[s][method] for s in SCENARIOS}
        for kind, words in {"maverick": "Mavericks", **KIND_LABELS}.items():
            shown[f"asks {words}"] = rates.get(kind, [])
        lines[LABELS[method]] = {k: bounded_interval(x, 0, 100) for k, x in shown.items()}
    return overviews.texts(lines).T


@PAGE.table(
    "Which reading is the paper's",
    "What five local rounds are and how much of its class a Maverick holds, each judged by "
    "Table 1. The first reading is judged in the report; it was chosen after a look at FedAvg, "
    "Power-of-Choice and FedMS under Dir(10). A reading without a row is not on record.",
    decimals=1,
)
def readings(e: Evaluation) -> Any:
    """Table 1's column of MNIST under each reading on record: cells on record, mean distance to the
    printed numbers in points, the same over the cells that all readings have, cells within the
    declared three points, cells that pass the test, and scenarios in which FedMS comes first of the
    paper's methods, of those with all seven.
    """
    claims = load_claims("fedms")
    places = [{**c.place, "claim": c.id} for c in claims.claims]
    asked = pd.DataFrame([p for p in places if p.get("table") == "t1" and p["dataset"] == "mnist"])
    rows: dict[str, dict[str, Any]] = {}
    distances: dict[str, Any] = {}
    for local, owned in READINGS:
        changed = replace(claims, protocol={**claims.protocol, "local": local, "owned": owned})
        verdicts = join(changed, e.store)[["claim", "paper", "mean", "verdict"]]
        cells = asked.merge(verdicts[~verdicts.verdict.isin(UNJUDGED)], on="claim")
        cells = cells.set_index(["scenario", "row"])
        if cells.empty:
            continue
        share = "its whole class" if owned == 1 else f"{owned:.0%} of its class"
        name = f"5 {local}, a Maverick owns {share}"
        off = distances[name] = (cells["mean"] - cells.paper.astype(float)).abs()
        whole = cells["mean"].unstack().reindex(columns=PAPER_METHODS).dropna()
        first = sum(line.idxmax() == "fedms" for _, line in whole.iterrows())
        rows[name] = {
            "cells": len(cells),
            "mean distance": off.mean(),
            "within 3 points": int((off <= 3).sum()),
            "reproduced": int((cells.verdict == REPRODUCED).sum()),
            "FedMS first": f"{first} of {len(whole)}" if len(whole) else "–",
        }
    table, common = overviews.table(rows), pd.DataFrame(distances).dropna()
    table.insert(2, f"on the {len(common)} common cells", common.mean())
    return table


@PAGE.table("What is on record")
def on_record(e: Evaluation) -> Any:
    """Rows on record (a method in a setting of Dirichlet) per experiment and reading, and the
    fewest and the most seeds of one. The reading that is judged has {seeds} seeds or more in
    Table 1.
    """
    place = ["experiment", "dataset", "local_rounds", "local", "owned"]
    frame = pd.concat(map(e.frame, findings.EXPERIMENTS))
    seeds = frame.groupby([*place, "method", "scenario"], sort=False).seed.nunique()
    shown = seeds.groupby(place, sort=False).agg(rows="size", fewest="min", most="max")
    shown.index = ["{}, {}, {} {}, owns {:.0%}".format(*at) for at in shown.index]
    return shown, {"seeds": e.accuracy.groupby("scenario").count().min().min()}


PAGE.printed("t1", "t2")
PAGE.add(
    figures.gains,
    words="Gains in points of test accuracy on MNIST, paired by seed, with 95% intervals that are "
    "not corrected for their number.",
)


@PAGE.table()
def on_rare_classes(e: Evaluation) -> Any:
    """The same runs: test accuracy in percent on the Mavericks' classes alone, with 95%
    intervals over seeds.
    """
    return _means(e.mnist, "accuracy_maverick_classes")


PAGE.add(
    figures.rewards,
    "Rewards",
    "Shapley rewards of Mavericks and of other clients, MNIST, in points of accuracy per "
    "round; mean over the rounds since the last mark in which such a client took part (the "
    "layout of the paper's Figures 3 to 5). Bands are 95% intervals over the seeds.",
)


@PAGE.table(
    words="A method that selects by value chooses when a Maverick takes part, so its two means are "
    "over different rounds.",
)
def reward_gaps(e: Evaluation) -> Any:
    """Mean reward of Mavericks in the rounds in which they took part, less that of the others in
    theirs, in points with 95% intervals over the seeds; an interval that holds zero leaves the sign
    open. They are not corrected for their number.
    """
    return _means(e.mnist.dropna(subset="value"), "reward_gap", -np.inf, np.inf)


@PAGE.table(
    "Everybody tuned on validation data",
    "Every baseline has its grid of section 5.1, and FedMS those of its α and, with 0.2 added "
    "by us, its temperature; and all have several learning rates.",
)
def tuned(e: Evaluation) -> Any:
    """Mavericks + Dir(1): the point that validation data choose, and its test accuracy in percent
    with a 95% interval over seeds. Inside: the chosen rate is neither end of those on record;
    where it is an end, the method is not tuned yet.
    """
    frame, rows = e.frame("tuning"), {}
    for method in (m for m in LABELS if m in set(frame.method)):
        chosen, there = findings.best_on_validation(frame, method)
        mine = where(frame, method=method)
        tested = bounded_interval(where(there, metric="accuracy").value, 0, 100)
        rows[LABELS[method]] = {
            "points": len(mine[list(chosen)].drop_duplicates()),
            "chosen": ", ".join(f"{f} {v:g}" for f, v in chosen.items()),
            "inside": "yes" if mine.lr.min() < there.lr.iloc[0] < mine.lr.max() else "no",
            "seeds": tested.n,
            "test accuracy": tested.text(1),
        }
    return overviews.table(rows)


@PAGE.table(
    "CIFAR-10",
    "The paper trains a single local round here. Read as one mini-batch, FedProx would be "
    "FedAvg for every μ: the only gradient is taken where the proximal term has none. The "
    "paper prints different numbers for the two, so we judge one pass over the data. Our "
    "images are a JPEG copy (quality 75).",
    cards=True,
)
def cifar(e: Evaluation) -> Any:
    """Rows that value nobody, at the paper's size ({rounds} rounds): test accuracy in percent with
    95% intervals over {seeds} seeds, by what a local round is. A number without an interval is of
    one seed.
    """
    full = where(e.frame("table1"), dataset="cifar10", metric="accuracy")
    claims, rows = load_claims("fedms"), {}
    for scenario, method in product(SCENARIOS, PAPER_METHODS):
        part = where(full, scenario=scenario, method=method)
        if len(part):
            row = {"paper": claims[f"fedms.t1.{scenario}.cifar10.{method}"].paper_value}
            for local, words in (("steps", "one mini-batch"), ("epochs", "one pass")):
                values = part[part.local == local].value
                row[words] = bounded_interval(values, 0, 100).text(1) if len(values) else "not run"
            rows[f"{LABELS[method]}, Dir({scenario.removeprefix('dir')})"] = row
    return overviews.table(rows), {"rounds": full.rounds.iloc[0], "seeds": full.seed.nunique()}
