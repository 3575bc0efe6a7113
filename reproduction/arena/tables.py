"""The tables of the page on methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedkit.arena import METHODS, sees
from reproduction import ROOT, overviews
from reproduction.arena import findings
from reproduction.arena.federations import SCENARIOS
from reproduction.arena.findings import LABELS, TAKEN, Evidence
from reproduction.arena.measures import MEASURES, summary
from reproduction.tables import Page, captioned

STAR = "means with 95% intervals; a star: unlike random values, Holm-corrected, p < 0.05"

PAGE = Page(Evidence)
every = PAGE.every


@captioned(cards=True)
def evidence(e: Evidence) -> Any:
    """The methods of the decision table: chance that a sound client ranks above a bad one,
    Kendall's tau with retraining, chance that a Maverick ranks above others, pay that a trick
    adds in units of a client's mean pay, and the kind of bad client that each ranks worst.
    Means over federations with 95% intervals.
    """
    columns = {
        "ranks sound above bad": "detection",
        "agrees with retraining (accuracy)": "fidelity.retraining",
        "agrees with retraining (loss)": "fidelity.retraining-loss",
        "Maverick above others": "mavericks",
        "a copy adds": "fairness.copying",
        "a split adds": "fairness.splitting",
    }
    kinds = e.units("detection")
    rows = {
        LABELS[m]: {
            **{words: e.mean(measure, m).text() for words, measure in columns.items()},
            "worst at": f"{kinds[m].idxmin().replace('-', ' ')} ({kinds[m].min():.2f})",
        }
        for m in TAKEN
    }
    return overviews.table(rows)


@captioned(cards=True)
def beside_fedavg() -> Any:
    """What valuing a round costs, in percent of the processor time of that round of FedAvg, and
    in seconds of one thread. Each client trains a two-layer network on 600 images for one
    epoch, and the server has 1,000 validation images (record of `python -m benchmarks.costs`).
    Samplers have six tests per client, FedOwen four; FedTSV is sampled beyond a dozen clients.
    Retraining is counted in trainings instead.
    """
    seconds = findings.costs()
    found: dict[str, dict[str, str]] = {}
    for clients, took in seconds.items():
        for name, spent in took.items():
            share = f"{100 * spent / took['fedavg']:,.0f}% ({spent:.2f}\u00a0s)"
            row = "FedAvg, the round itself" if name == "fedavg" else LABELS[name]
            found.setdefault(row, {})[f"{clients} clients"] = share
        counted = f"{LABELS['proxy-retrained']}, counted"
        trainings = 6 * int(clients) / 2  # coalitions of half of the clients
        found.setdefault(counted, {})[f"{clients} clients"] = f"{100 * trainings:,.0f}%"
    return overviews.table(found).fillna("too many coalitions")


@captioned()
def planted(e: Evidence) -> Any:
    """The federations on record. Each is made of two data sets with ten seeds."""
    there = set(e.measures.scenario)
    return pd.Series({k: words for k, words in SCENARIOS.items() if k in there}, name="planted")


def named(table: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """Return a table of methods, or some measures of it, with their names in words."""
    shown = table[list(measures)] if measures else table
    return shown.rename(index=LABELS, columns=MEASURES)


def by_federation(e: Evidence, measure: str, methods: Sequence[str] = tuple(LABELS)) -> Any:
    """Return one measure, a row per method, best first, and a column per federation."""
    wide = e.units(measure).T
    wide.columns = wide.columns.str.replace("-", " ").rename(None)
    rows = findings.ranked(e, measure, tuple(m for m in methods if m in wide.index))
    return wide.loc[rows].rename_axis(None).rename(index=LABELS)


@captioned()
def kinds(e: Evidence) -> Any:
    """Chance that a sound client stands above a bad one, by kind of misbehaviour; 0.5 is a
    coin, and below it bad clients are preferred. The methods of the decision table and those that
    the text names, by their mean, best first.
    """
    return by_federation(e, "detection", (*TAKEN, "banzhaf", "fedtsv", "shapfed"))


def kind(e: Evidence, name: str) -> Any:
    """Return all measures of a kind: mean [interval], a column for each."""
    columns = {}
    for measure in [m for m in MEASURES if m.split(".")[0] == name]:
        table: Any = summary(e.measures, measure)
        sure = table["p"] < 0.05 if "p" in table else table["mean"].isna()
        star = sure.map({True: " *", False: ""})
        columns[measure.split(".")[-1].replace("-", " ")] = {
            LABELS[method]: "1, by construction" if name == "fidelity" and row["mean"] == 1
            else f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" + star[method]
            for method, row in table.dropna(subset=["mean", "low"]).iterrows()
        }  # fmt: skip
    return pd.DataFrame(columns)


@PAGE.table("What each row sees")
def rows(e: Evidence) -> Any:
    """What each row declares to see, what its coalitions are judged by, and what it estimates.
    Fidelity to rounds is to Shapley values, by loss for rows of loss and else by accuracy: of rows
    that estimate something else, or by class accuracy, it is no error. Kernel SHAP of the package
    shap was entered from outside.
    """
    estimates = {
        "banzhaf": "Banzhaf value", "beta": "Beta Shapley value", "ms-mr": "FedMS's value",
        "ms-gtg": "FedMS's value, sampled", "fedtsv": "likeness to the server's own steps",
        "cgsv": "direction towards the others' mean", "shapfed": "the same, of the last layer",
        "loo": "leave-one-out", "loo-loss": "leave-one-out", "loo-retrained": "leave-one-out",
        "fedccea": "FedCCEA's weights", "fedccea-connected": "FedCCEA's weights",
        **dict.fromkeys(findings.CONTROLS, "nothing"),
    }  # fmt: skip

    def utility(name: str, method: Any) -> str:
        if name == "fedtsv":
            return "distance of updates"
        if "training" in sees(method):
            return "accuracy of retraining"
        if "validation" not in sees(method):
            return "none"
        return str(getattr(method, "utility", "accuracy")).replace("_", " ")

    seen = {
        LABELS[name]: {
            "row": name,
            "sees": ", ".join(sees(method)) or "nothing",
            "utility": utility(name, method),
            "estimates": estimates.get(name, "Shapley value"),
        }
        for name, method in METHODS.items()
    }
    return overviews.table(seen)


@PAGE.table("What each measure says")
def measures(e: Evidence) -> Any:
    """The measures of the arena."""
    return pd.Series(MEASURES, name="what it says")


@PAGE.table(
    "How well the truths are known",
    "A method that agrees with retraining by accuracy as well as retraining by loss does has "
    "done all that these truths can tell apart.",
)
def known(e: Evidence) -> Any:
    """By federation: agreement (Kendall's tau-b) of the values of retraining by accuracy with those
    by loss, and with what was planted; the most that an order without ties can have with what was
    planted, where some clients are planted alike; spread (standard deviation) of the values of
    retraining and their mean standard error, in points of accuracy. The error is 0 where all
    coalitions were trained; of 20 clients 600 coalitions were.
    """
    return findings.known(e).rename_axis(None)


@PAGE.table("Fidelity")
def fidelity(e: Evidence) -> Any:
    """Kendall's tau-b: {star}."""
    return kind(e, "fidelity"), {"star": STAR}


@PAGE.table(
    "Detection",
    "A client that comes late is known by presence alone, so nothing is merit in that column.",
)
def detection(e: Evidence) -> Any:
    """Chance to rank rightly (detection, mavericks, late); shares of bad clients among the worst
    fifth (fifth) and below zero (below), and of sound ones that go with the last bad one (lost) and
    below zero (alarm): {star}.
    """
    parts = [kind(e, name) for name in ("detection", "mavericks", "late")]
    return pd.concat(parts, axis=1), {"star": STAR}


@PAGE.table()
def detection_by_federation(e: Evidence) -> Any:
    """Chance that a sound client stands above a bad one, by kind of misbehaviour; 0.5 is a coin."""
    return by_federation(e, "detection").round(2)


@PAGE.table("What acting on values is worth")
def worth(e: Evidence) -> Any:
    """Points of test accuracy: {star}."""
    return kind(e, "worth"), {"star": STAR}


@PAGE.table("Weights", decimals=1)
def weights(e: Evidence) -> Any:
    """Accuracy with averaging by the positive part of the values, less that of plain averages, in
    points.
    """
    return by_federation(e, "worth.weights").round(1)


@PAGE.table("Fairness")
def fairness(e: Evidence) -> Any:
    """In units of a client's mean pay: {star}."""
    return kind(e, "fairness"), {"star": STAR}


@PAGE.table()
def pay(e: Evidence) -> Any:
    """What bad clients are paid, in units of a client's mean pay, over seeds with 95%
    intervals: those that send five times their update, random directions, or nothing (also
    under label skew). 1 is the pay of equal shares.
    """
    places = ("scaled-updates", "random-updates", "free-riders", "skewed-free-riders")
    methods = [m for m in LABELS if m in set(e.paid.method)]
    found = {LABELS[m]: {p: e.bad_pay(m, p).text() for p in places} for m in methods}
    return overviews.table(found)


@PAGE.table(
    "Stability",
    "Rows that train again were not asked for values by fewer validation images. Another seed "
    "draws other images for clients and server and trains anew; fewer images are some of the "
    "same ones, on the same rounds. Under label skew every seed draws other labels for a "
    "role, and those three federations are left out of the comparison of seeds.",
)
def stability(e: Evidence) -> Any:
    """Kendall's tau-b of a method with itself under a change, means with 95% intervals over the
    federations. To be more alike than chance is no merit, so there are no stars: equal shares are
    stable.
    """
    return kind(e, "stability")


@PAGE.table(
    "Cost",
    "Seconds and memory are of the computer that made the records; evaluations and trainings "
    "are not.",
)
def costs(e: Evidence) -> Any:
    """Means over federations, eight rounds long and one of them of twenty clients: utility
    evaluations, further trainings in units of everybody's data in all rounds, processor seconds,
    and MiB that the server must hold. Memory (`python -m benchmarks.memory`): MiB by which a row's
    own process grows at most, on a federation of ten clients and on the one of twenty. {machines}
    """
    names = [m for m in MEASURES if m.startswith("cost")]
    table = pd.DataFrame({m.split(".")[1]: summary(e.measures, m)["mean"] for m in names})
    table["evaluations"] = table["evaluations"].round().astype(int)
    memory = json.loads((ROOT / "results" / "memory.json").read_text("utf-8"))["MiB"]
    columns = {"labels": "memory, ten", "twenty": "memory, twenty"}
    table = table.join(pd.DataFrame(memory).T.rename(columns=columns))
    timed = e.store.records(e.records, "arena", "methods")
    machines = overviews.machines_told(timed)
    return table.rename_axis(None).rename(index=LABELS), {"machines": machines}
