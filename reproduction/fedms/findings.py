"""What the pages on FedMS say in numbers, each computed here from the records.

An :class:`Evaluation` holds the records; :func:`differences`, :func:`amounts` and :func:`counts`
are the numbers in the text, by the names under which the pages show them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.fedms.experiments import CHANGES, KINDS, SCALES, SCENARIOS
from reproduction.overviews import by_method, by_metric, lead, told, view, where
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED

Numbers = dict[str, Interval]

#: methods in the order of the tables, as the pages call them
LABELS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "poc": "Power-of-Choice",
    "fedemd": "FedEMD",
    "s-fedavg": "S-FedAvg",
    "s-fedavg-percent": "S-FedAvg, percent",
    "s-fedavg-shuffled": "S-FedAvg, percent, shuffled",
    "greedyfed": "GreedyFed",
    "greedyfed-loss": "GreedyFed, by the loss",
    "fedms": "FedMS",
    "fedms-printed": "by score, all averaged",
    "fedms-fraction": "FedMS, fractions",
    "fedms-kept": "FedMS, locked rule",
    "fedms-equal": "FedMS, classes alike",
    "fedms-printed-equal": "by score, all averaged, classes alike",
    "uniform-coreset": "blind, coreset",
    "oracle": "oracle",
}
KIND_LABELS = dict(
    zip(KINDS, ("flipped labels", "random data", "random updates", "free-riding"), strict=True)
)
SKEWS = {name: f"Dir({alpha:g})" for name, alpha in SCENARIOS.items()}
SCORES = {
    "size": "size of its data",
    "cosine": "cosine (ShapFed)",
    "leave-one-out": "leave-one-out",
    "MR": "accuracy, exact (MR)",
    "GTG": "accuracy, sampled (GTG)",
    "class mean": "mean of classes",
    "MS-MR": "FedMS, exact (MS-MR)",
    "MS-GTG": "FedMS, sampled (MS-GTG)",
}
#: the edges of the square whose corners are FedAvg, score alone, coreset alone, and both
EDGES = {
    "score": ("fedms-printed", "fedavg"),
    "coreset": ("uniform-coreset", "fedavg"),
    "both": ("fedms", "fedavg"),
    "beside-coreset": ("fedms", "uniform-coreset"),
    "beside-score": ("fedms", "fedms-printed"),
}
READING = ("local", "owned", "dataset")
EXPERIMENTS = ("table1", "table2", "five_clients", "detection", "study", "tuning")


class Evaluation(overviews.Evaluation):
    """What the pages ask of the records."""

    paper = "fedms"
    #: the reading by which the claims are judged
    usual = view(lambda e: {name: getattr(SCALES["paper"].usual(), name) for name in READING})
    #: Tables 1 and 2 on MNIST, the second with clients that misbehave
    mnist = view(lambda e: where(e.frame("table1"), **e.usual))
    with_bad = view(lambda e: where(e.frame("table2"), **e.usual))
    #: accuracy of Table 1 by scenario and seed, and on the Mavericks' classes by seed
    accuracy = view(lambda e: by_method(e.mnist, "accuracy", ["scenario", "seed"]))
    rare = view(lambda e: by_method(e.mnist, "accuracy_maverick_classes"))
    #: chance that a score puts clients in order, by kind and score: a row per seed
    auc = view(lambda e: by_metric(e.frame("detection"), "auc."))

    @view
    def pooled(self) -> pd.DataFrame:
        """Accuracy, a seed's mean of the three scenarios, where it ran in all."""
        whole = self.accuracy.groupby("seed").filter(lambda part: len(part) == len(SCENARIOS))
        return whole.groupby("seed").mean()

    def rates(self, method: str) -> pd.DataFrame:
        """Percent of the rounds in which a client of each kind takes part, with bad ones about."""
        return by_metric(where(self.with_bad, method=method), "rate.")

    @property
    def chance(self) -> float:
        """The same in percent for a client that is drawn blindly."""
        row = self.with_bad.iloc[0]
        return float(100 * row.participants / (row.clients + len(KINDS) * row.adversaries))

    def five(self, scenario: str = "iid") -> pd.DataFrame:
        """Five clients that all take part: a row per seed, a column per metric."""
        return by_metric(where(self.frame("five_clients"), scenario=scenario))

    @cache  # noqa: B019
    def tuned(self, method: str) -> pd.DataFrame:
        """Return the runs at the point that validation data choose: a column per metric."""
        return by_metric(best_on_validation(self.frame("tuning"), method)[1])


# ------------------------------------------------------------------------ numbers in the text


def gains(e: Evaluation) -> Numbers:
    """What each edge of the square brings, mean of the three scenarios."""
    return {name: lead(e.pooled, *pair) for name, pair in EDGES.items()}


def differences(e: Evaluation) -> Numbers:
    """All differences, in points and with their sign."""
    five, accuracy, pooled, edges = e.five(), e.accuracy, e.pooled, gains(e)
    study, plain = where(e.frame("study"), metric="accuracy"), accuracy.loc["dir1"]
    exactly = where(study, method="fedms", estimator="mr").set_index("seed").value
    harm = by_method(study[study.poisoned]) - plain
    many = by_method(where(study, mavericks=5))
    rise = many["fedms"] - many["uniform-coreset"] - (plain["fedms"] - plain["uniform-coreset"])
    whole = by_method(where(study, owned=1.0))  # Mavericks own their whole class
    return {
        "ms-both": edges["both"],
        "ms-beside-score": edges["beside-score"],
        "ms-fraction": lead(pooled, "fedms-fraction", "fedms"),
        "ms-oracle-gap": lead(pooled, "fedms-printed", "oracle"),
        "ms-kept": lead(accuracy.loc["dir0.1"], "fedms-kept", "fedms"),
        "ms-poc-ahead": lead(accuracy.loc["dir10"], "poc", "fedms"),
        "ms-rare-coreset": lead(e.rare, "fedms", "fedms-printed"),
        "ms-harmed": lead(by_method(e.with_bad), "fedms", "fedavg"),
        "ms-mixed-gap": mean_interval(e.five("iid-mixed")["gap.MR"]),
        "ms-gap-mr": mean_interval(five["gap.MR"]),
        "ms-gap-ms": mean_interval(five["gap.MS-MR"]),
        "ms-paid-others": mean_interval(
            where(e.with_bad, method="fedms", metric="reward_other").value
        ),
        "tuned-poc": paired_interval(e.tuned("poc").accuracy - e.tuned("fedms").accuracy),
        "ms-exactly": paired_interval(exactly - plain.fedms),
        "ms-tenth": lead(plain, "fedms", "fedavg"),
        "ms-whole": lead(whole, "fedms", "fedavg"),
        "ms-whole-coreset": lead(whole, "uniform-coreset", "fedavg"),
        "ms-poisoned": paired_interval(harm["fedms"]),
        "ms-poisoned-blind": paired_interval(harm["uniform-coreset"]),
        "ms-rise": paired_interval(rise),
    }


def amounts(e: Evaluation) -> Numbers:
    """All percentages and chances, and differences that are said in words."""
    five = e.five()
    return {
        "ms-maverick": bounded_interval(e.rates("fedms")["maverick"], 0, 100),
        "ms-lost": paired_interval(five["accuracy"] - five["accuracy_without"]),
        "ms-weights": lead(e.pooled, "fedms", "fedms-equal"),
        "ms-tuned-rare": paired_interval(
            e.tuned("fedms").accuracy_maverick_classes - e.tuned("poc").accuracy_maverick_classes
        ),
    }


def counts(e: Evaluation) -> dict[str, Any]:
    """Means without an interval, whole numbers, and what the paper prints."""
    rates, first = e.rates("fedms"), e.mnist.iloc[0]
    means, auc = rates.mean(), e.auc.mean()
    over = {kind: paired_interval(rates[kind] - rates["honest"]).low > 0 for kind in KINDS}
    more = [means[kind] for kind in KINDS if over[kind]]
    cells = e.claims[e.claims.index.str.match(r"fedms\.t1\..*mnist")]
    fitted = ("dir10.mnist.fedavg", "dir10.mnist.poc", "dir10.mnist.fedms", "fedprox",
              "dir1.mnist.fedavg")  # fmt: skip
    predicted = cells[~cells.index.str.endswith(fitted)]
    return {
        "ms-chance": e.chance,
        "ms-all-clients": round(100 * first.participants / e.chance),
        "ms-clients": int(first.clients),
        "ms-asked": int(first.participants),
        "ms-paper-gain": f"{printed_gain(e):.1f}",
        "ms-kinds-more": "Three of the four" if len(more) == 3 else "All four",
        "ms-bad-least": min(more),
        "ms-bad-most": max(more),
        "ms-honest": means["honest"],
        "ms-paper-maverick": e.claims.paper["fedms.t2.maverick.fedms"],
        "ms-flip-sure": "sure" if over["LabelFlip"] else "not sure",
        "ms-detection-seeds": len(e.auc),
        "ms-mav-ms": auc["maverick.MS-MR"],
        "ms-flip-ms": auc["LabelFlip.MS-MR"],
        "ms-mav-mr": auc["maverick.MR"],
        "ms-flip-mr": auc["LabelFlip.MR"],
        "ms-mav-loo": auc["maverick.leave-one-out"],
        "ms-cells": len(cells),
        "ms-cells-yes": int((cells.verdict == REPRODUCED).sum()),
        "ms-cells-no": int((cells.verdict == NOT_REPRODUCED).sum()),
        "ms-predicted": len(predicted),
        "ms-predicted-yes": int((predicted.verdict == REPRODUCED).sum()),
    }


def numbers(e: Evaluation) -> dict[str, Any]:
    """All of them, intervals as text, by the names under which the pages show them."""
    plain = {name: x.item() if hasattr(x, "item") else x for name, x in counts(e).items()}
    return told(differences(e), 1, signed=True) | told(amounts(e), 1) | plain


# ------------------------------------------------------------------------ tables


def printed_gain(e: Evaluation) -> float:
    """What the paper's FedMS gains on its FedAvg, MNIST, mean of the scenarios."""
    ours, theirs = (
        [e.printed(f"t1.{scenario}.mnist.{method}") for scenario in SCENARIOS]
        for method in ("fedms", "fedavg")
    )
    return float(np.subtract(ours, theirs).mean())


def table1(e: Evaluation, methods: tuple[str, ...]) -> pd.DataFrame:
    """Accuracy on MNIST beside the paper's, by scenario and method."""
    ours, paper = {}, {}
    for scenario, method in product(SCENARIOS, methods):
        place = f"Dir({scenario.removeprefix('dir')})", LABELS[method]
        ours[place] = bounded_interval(e.accuracy.loc[scenario][method].dropna(), 0, 100)
        paper[place] = e.printed(f"t1.{scenario}.mnist.{method}")
    return overviews.intervals(ours, paper)


def table2(e: Evaluation, methods: tuple[str, ...]) -> pd.DataFrame:
    """Rounds in which a client of each kind takes part, beside the paper's."""
    ours, paper = {}, {}
    kinds = {"maverick": "Mavericks", "honest": "other honest clients", **KIND_LABELS}
    for (kind, title), method in product(kinds.items(), methods):
        if method != "oracle" or kind == "honest":
            ours[title, LABELS[method]] = bounded_interval(e.rates(method)[kind], 0, 100)
            paper[title, LABELS[method]] = e.printed(f"t2.{kind}.{method}")
    return overviews.intervals(ours, paper)


def study(e: Evaluation) -> pd.DataFrame:
    """One row per change of the study that is on record, and what FedMS gains in it.

    It is over uniform selection with the same coreset, paired by seed, with its interval.
    """
    frame, fields = e.frame("study"), set[str]().union(*CHANGES.values())
    gains = {}
    for name, change in CHANGES.items():
        part = overviews.alike(frame, replace(SCALES[e.records].usual(), **change), fields)
        if "fedms" in set(part.method):
            gains[name] = lead(by_method(part), "fedms", "uniform-coreset")
    return overviews.intervals(gains)


TUNED = ["lr", "mu", "poc_decay", "emd_beta", "sv_alpha", "alpha", "temperature"]


def best_on_validation(frame: pd.DataFrame, method: str) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the hyper-parameters of a method by mean validation accuracy, and its rows there.

    Points are compared on the seeds that all of them have, if there are any.
    """
    mine = frame[frame.method == method]
    varied = [f for f in TUNED if mine[f].nunique() > 1] or ["lr"]
    seen = mine[mine.metric == "accuracy_validation"].pivot_table(
        index=varied, columns="seed", values="value"
    )
    shared = seen.dropna(axis=1)
    best = (shared if shared.shape[1] else seen).mean(axis=1).round(9).idxmax()  # ties: the first
    chosen = dict(zip(varied, best if isinstance(best, tuple) else (best,), strict=True))
    return chosen, overviews.where(mine, **chosen)
