"""What the pages on FedMS say in numbers, each computed here from the records.

An :class:`Evaluation` holds the records; :func:`differences`, :func:`amounts` and :func:`counts`
are the numbers in the text, by the names under which the pages show them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.fedms.experiments import (
    CHANGES,
    KINDS,
    PAPER_METHODS,
    READINGS,
    SCALES,
    SCENARIOS,
    STUDIED,
    VARIANTS,
)
from reproduction.overviews import by_method, by_metric, lead, told, where
from reproduction.records import Store
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED, UNJUDGED, join

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
EXPERIMENTS = ("table1", "table2", "five_clients", "detection", "study", "tuning")


class Evaluation(overviews.Evaluation):
    """What the pages ask of the records."""

    paper = "fedms"

    @cached_property
    def usual(self) -> dict[str, Any]:
        """The reading by which the claims are judged."""
        usual = SCALES["paper"].usual()
        return {"local": usual.local, "owned": usual.owned, "dataset": usual.dataset}

    @cached_property
    def mnist(self) -> pd.DataFrame:
        """Table 1 on MNIST."""
        return where(self.frame("table1"), **self.usual)

    @cached_property
    def with_bad(self) -> pd.DataFrame:
        """Table 2, with clients that misbehave."""
        return where(self.frame("table2"), **self.usual)

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """Accuracy of Table 1 by scenario and seed."""
        return by_method(self.mnist, "accuracy", ["scenario", "seed"])

    @cached_property
    def pooled(self) -> pd.DataFrame:
        """Accuracy, a seed's mean of the three scenarios, where it ran in all."""
        whole = self.accuracy.groupby("seed").filter(lambda part: len(part) == len(SCENARIOS))
        return whole.groupby("seed").mean()

    @cached_property
    def rare(self) -> pd.DataFrame:
        """Accuracy on the Mavericks' classes, a seed's mean of the scenarios."""
        return by_method(self.mnist, "accuracy_maverick_classes")

    def rates(self, method: str) -> pd.DataFrame:
        """Percent of the rounds in which a client of each kind takes part, with bad ones about."""
        return by_metric(where(self.with_bad, method=method), "rate.")

    @cached_property
    def variants(self) -> pd.DataFrame:
        """All claims on FedMS with another reading of it in its place; see :func:`by_variant`."""
        return by_variant(self.store)

    @property
    def chance(self) -> float:
        """The same in percent for a client that is drawn blindly."""
        row = self.with_bad.iloc[0]
        return float(100 * row.participants / (row.clients + len(KINDS) * row.adversaries))

    def five(self, scenario: str = "iid") -> pd.DataFrame:
        """Five clients that all take part: a row per seed, a column per metric."""
        return by_metric(where(self.frame("five_clients"), scenario=scenario))

    @cached_property
    def auc(self) -> pd.DataFrame:
        """Chance that a score puts clients in order, by kind and score: a row per seed."""
        return by_metric(self.frame("detection"), "auc.")

    @cache  # noqa: B019
    def tuned(self, method: str) -> tuple[pd.Series, pd.Series]:
        """Accuracy at the point that validation data choose, and on the Mavericks' classes."""
        there = best_on_validation(self.frame("tuning"), method)[1]
        first, second = (
            there[there.metric == metric].set_index("seed").value
            for metric in ("accuracy", "accuracy_maverick_classes")
        )
        return first, second


# ------------------------------------------------------------------------ numbers in the text


def gains(e: Evaluation) -> Numbers:
    """What each edge of the square brings, mean of the three scenarios."""
    return {name: lead(e.pooled, *pair) for name, pair in EDGES.items()}


def differences(e: Evaluation) -> Numbers:
    """All differences, in points and with their sign."""
    five, accuracy, pooled, edges = e.five(), e.accuracy, e.pooled, gains(e)
    paid = where(e.with_bad, method="fedms", metric="reward_other").value
    found = {
        **{f"ms-{name}": edges[name] for name in ("both", "beside-score")},
        "ms-fraction": lead(pooled, "fedms-fraction", "fedms"),
        "ms-oracle-gap": lead(pooled, "fedms-printed", "oracle"),
        "ms-kept": lead(accuracy.loc["dir0.1"], "fedms-kept", "fedms"),
        "ms-poc-ahead": lead(accuracy.loc["dir10"], "poc", "fedms"),
        "ms-rare-coreset": lead(e.rare, "fedms", "fedms-printed"),
        "ms-harmed": lead(by_method(e.with_bad), "fedms", "fedavg"),
        "ms-mixed-gap": mean_interval(e.five("iid-mixed")["gap.MR"]),
        "ms-gap-mr": mean_interval(five["gap.MR"]),
        "ms-gap-ms": mean_interval(five["gap.MS-MR"]),
        "ms-paid-others": mean_interval(paid),
        "tuned-poc": paired_interval(e.tuned("poc")[0] - e.tuned("fedms")[0]),
    }
    return found | _of_study(e)


def _of_study(e: Evaluation) -> Numbers:
    study, plain = where(e.frame("study"), metric="accuracy"), e.accuracy.loc["dir1"]
    exactly = where(study, method="fedms", estimator="mr").set_index("seed").value
    harm = by_method(study[study.poisoned], "accuracy") - plain
    many = by_method(where(study, mavericks=5), "accuracy")
    rise = many["fedms"] - many["uniform-coreset"] - (plain["fedms"] - plain["uniform-coreset"])
    whole = by_method(where(e.frame("study"), owned=1.0))  # Mavericks own their whole class
    return {
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
        "ms-equal-maverick": bounded_interval(e.rates("fedms-equal")["maverick"], 0, 100),
        "ms-lost": paired_interval(five["accuracy"] - five["accuracy_without"]),
        "ms-weights": lead(e.pooled, "fedms", "fedms-equal"),
        "ms-tuned-rare": paired_interval(e.tuned("fedms")[1] - e.tuned("poc")[1]),
    }


def counts(e: Evaluation) -> dict[str, Any]:
    """Means without an interval, whole numbers, and what the paper prints."""
    rates, first, greedy = e.rates("fedms"), e.mnist.iloc[0], e.accuracy.loc["dir10"].greedyfed
    means = rates.mean()
    more = [means[k] for k in KINDS if paired_interval(rates[k] - rates["honest"]).low > 0]
    flip = paired_interval(rates["LabelFlip"] - rates["honest"])
    found = {
        "ms-chance": e.chance,
        "ms-all-clients": round(100 * first.participants / e.chance),
        "ms-clients": int(first.clients),
        "ms-asked": int(first.participants),
        "ms-paper-gain": f"{np.mean([printed_gain(e, s) for s in SCENARIOS]):.1f}",
        "ms-kinds-more": "Three of the four" if len(more) == 3 else "All four",
        "ms-bad-least": min(more),
        "ms-bad-most": max(more),
        "ms-honest": means["honest"],
        "ms-paper-maverick": e.claims.paper["fedms.t2.maverick.fedms"],
        "ms-flip-sure": "sure" if flip.low > 0 else "not sure",
        "ms-runs": len(rates),
        "ms-data-least": rates["RandomData"].min(),
        "ms-greedy": f"{e.rates('greedyfed')['maverick'].mean():.1f}%",
        "ms-greedy-printed": e.claims.paper["fedms.t2.maverick.greedyfed"],
        "ms-greedy-worst": f"{greedy.min():.0f}",
        "ms-greedy-best": f"{greedy.max():.0f}",
        "ms-detection-seeds": len(e.auc),
    }
    for key, name in (("ms", "MS-MR"), ("mr", "MR")):
        found[f"ms-mav-{key}"] = e.auc[f"maverick.{name}"].mean()
        found[f"ms-flip-{key}"] = e.auc[f"LabelFlip.{name}"].mean()
    found["ms-mav-loo"] = e.auc["maverick.leave-one-out"].mean()
    return found | _of_verdicts(e)


def _of_verdicts(e: Evaluation) -> dict[str, Any]:
    cells = e.claims[e.claims.index.str.match(r"fedms\.t1\..*mnist")]
    fitted = ("dir10.mnist.fedavg", "dir10.mnist.poc", "dir10.mnist.fedms", "fedprox",
              "dir1.mnist.fedavg")  # fmt: skip
    predicted = cells[~cells.index.str.endswith(fitted)]
    return {
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


def printed_gain(e: Evaluation, scenario: str) -> float:
    """What the paper's FedMS gains on its FedAvg, MNIST."""
    return e.printed(f"t1.{scenario}.mnist.fedms") - e.printed(f"t1.{scenario}.mnist.fedavg")


def main_claims(e: Evaluation) -> dict[str, tuple[str, str, Interval]]:
    """Name the main claims: by claim its words, the paper's number, and ours."""
    gain = f"{np.mean([printed_gain(e, s) for s in SCENARIOS]):.1f}"
    both = lead(e.pooled, *EDGES["both"])
    found = {"p1.mnist.vs-fedavg": ("accuracy of FedMS minus FedAvg's, points", gain, both)}
    rates, bounds = e.rates("fedms"), {"maverick": ("mavericks", "a Maverick: at least 50%")}
    for kind, words in KIND_LABELS.items():
        bounds[kind] = (f"suppressed.{kind}", f"a client with {words}: at most 2.5%")
    for kind, (claim, words) in bounds.items():
        printed = f"in words; {e.claims.paper[f'fedms.t2.{kind}.fedms']}"
        found[claim] = (f"rounds of {words}", printed, bounded_interval(rates[kind], 0, 100))
    return {f"fedms.{name}": row for name, row in found.items()}


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


def detection(e: Evaluation) -> pd.DataFrame:
    """Chance that a score finds a Maverick, or a client that misbehaves."""
    kinds = {"maverick": "Mavericks", **KIND_LABELS}
    found = {
        (title, words): bounded_interval(e.auc[f"{kind}.{score}"], 0, 1)
        for (kind, title), (score, words) in product(kinds.items(), SCORES.items())
    }
    return overviews.intervals(found)


def study_table(e: Evaluation) -> pd.DataFrame:
    """Return the study of one change at a time; see :func:`study`."""
    return study(e.frame("study"), e.records)


def means(frame: pd.DataFrame, metric: str, least: float = 0, most: float = 100) -> pd.DataFrame:
    """Write the mean of a metric with its interval, a row per method, a column per scenario."""
    cells = frame[frame.metric == metric].groupby(["method", "scenario"]).value
    text = cells.apply(lambda x: bounded_interval(x, least, most).text(1)).unstack()
    text = text.loc[[m for m in LABELS if m in text.index], list(SCENARIOS)]
    return text.rename(index=LABELS).rename_axis(index=None, columns=None)


def reading_name(local: str, owned: float) -> str:
    """Say in words how "5 local rounds" and a Maverick's data are read."""
    share = "its whole class" if owned == 1 else f"{owned:.0%} of its class"
    return f"5 {local}, a Maverick owns {share}"


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the claims that have a verdict of their own."""
    return frame[~frame.verdict.isin(UNJUDGED)]


def readings(store: Store) -> pd.DataFrame:
    """Judge Table 1 on MNIST under every reading of what the paper leaves open.

    Index: the readings on record; columns ``cells``, ``mean distance`` to the printed numbers in
    points, the same over the cells that all have, ``within 3 points``, ``reproduced``, and ``FedMS
    first``, scenarios in which its mean is the highest of all seven methods.
    """
    claims = load_claims("fedms")
    places = [dict(c.place) | {"claim": c.id} for c in claims.claims]
    asked = pd.DataFrame([p for p in places if p.get("table") == "t1" and p["dataset"] == "mnist"])
    rows: dict[str, list[Any]] = {}
    distances: dict[str, Any] = {}
    for local, owned in READINGS:
        changed = replace(claims, protocol={**claims.protocol, "local": local, "owned": owned})
        verdicts = join(changed, store)[["claim", "paper", "mean", "verdict"]]
        cells = judged(asked.merge(verdicts, on="claim")).set_index(["scenario", "row"])
        if cells.empty:
            continue
        name = reading_name(local, owned)
        off = distances[name] = (cells["mean"] - cells.paper.astype(float)).abs()
        whole = cells["mean"].unstack().reindex(columns=PAPER_METHODS).dropna()
        first = int((whole.idxmax(axis=1) == "fedms").sum()) if len(whole) else 0
        rows[name] = [
            len(cells),
            off.mean(),
            int((off <= 3).sum()),
            int((cells.verdict == REPRODUCED).sum()),
            f"{first} of {len(whole)}" if len(whole) else "–",
        ]
    columns = ["cells", "mean distance", "within 3 points", "reproduced", "FedMS first"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    common = pd.DataFrame(distances).dropna()
    table.insert(2, f"on the {len(common)} common cells", common.mean() if len(common) else np.nan)
    return table


def by_variant(store: Store) -> pd.DataFrame:
    """Judge all claims on FedMS with another reading of the method in its place.

    One row per claim and reading: ``claim``, ``mean``, ``verdict`` and ``reading``, the name of a
    method.  Claims that hold by construction, and those that are not judged, are left out.
    """
    claims = load_claims("fedms")

    def of(method: str, asked: Any) -> Any:
        if isinstance(asked, dict):
            return {
                k: method if (k, v) == ("method", "fedms") else of(method, v)
                for k, v in asked.items()
            }
        return [of(method, each) for each in asked] if isinstance(asked, list) else asked

    about = [c for c in claims.claims if of("", [c.ours, c.against]) != [c.ours, c.against]]
    frames = []
    for method in ("fedms", *VARIANTS):
        read = [replace(c, ours=of(method, c.ours), against=of(method, c.against)) for c in about]
        frame = join(replace(claims, claims=tuple(read)), store)
        frame = frame[~frame.verdict.isin(UNJUDGED) & ~frame.by_construction]
        frames.append(frame[["claim", "mean", "verdict"]].assign(reading=method))
    return pd.concat(frames, ignore_index=True)


def study(frame: pd.DataFrame, profile: str = "paper") -> pd.DataFrame:
    """One row per change of the study, and what FedMS gains in it.

    Index: the changes on record; a column of mean accuracy per method, then ``gain`` of FedMS over
    uniform selection with the same coreset, ``low`` and ``high`` (paired by seed, 95%), and
    ``Maverick rate`` of FedMS in percent of the rounds.
    """
    fields = set[str]().union(*CHANGES.values())
    rows: dict[str, dict[str, float]] = {}
    for name, change in CHANGES.items():
        part = overviews.alike(frame, replace(SCALES[profile].usual(), **change), fields)
        if "fedms" not in set(part.method) or name in rows:
            continue
        wide = overviews.by_seed(part, LABELS)
        gain = paired_interval(wide["fedms"] - wide["uniform-coreset"])
        mine = part[(part.method == "fedms") & (part.metric == "rate.maverick")]
        rows[name] = {
            **{LABELS[m]: float(wide[m].mean()) for m in STUDIED if m in wide},
            "gain": gain.mean,
            "low": gain.low,
            "high": gain.high,
            "Maverick rate": float(mine.value.mean()),
        }
    return overviews.table(rows)


TUNED = ["lr", "mu", "poc_decay", "emd_beta", "sv_alpha", "alpha", "temperature"]


def best_on_validation(frame: pd.DataFrame, method: str) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the hyper-parameters of a method by mean validation accuracy, and its rows there.

    Its points are compared on the seeds that all of them have, if there are any.
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


def tuned_on_validation(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose every method's hyper-parameters by mean validation accuracy, and test those.

    Columns ``points`` tried, ``chosen``, ``inside`` (the rate is neither end of those tried), and
    the test accuracy there: ``mean``, ``low``, ``high``, ``seeds``.
    """
    rows = {}
    for method in (m for m in LABELS if m in set(frame.method)):
        chosen, there = best_on_validation(frame, method)
        mine = frame[frame.method == method]
        rates = sorted(set(mine.lr))
        tested = bounded_interval(there[there.metric == "accuracy"].value.to_numpy(), 0, 100)
        rows[LABELS[method]] = {
            "points": len(mine[list(chosen)].drop_duplicates()),
            "chosen": ", ".join(f"{f} {v:g}" for f, v in chosen.items()),
            "inside": bool(rates[0] < there.lr.iloc[0] < rates[-1]),
            "mean": tested.mean,
            "low": tested.low,
            "high": tested.high,
            "seeds": tested.n,
        }
    return overviews.table(rows)
