"""The tables of the pages on FedMS."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import bounded_interval, mean_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.fedms import figures, findings
from reproduction.fedms.experiments import METHODS, PAPER_METHODS, SCENARIOS
from reproduction.fedms.findings import EXPERIMENTS, KIND_LABELS, LABELS, SCORES, Evaluation
from reproduction.overviews import lead, where
from reproduction.tables import Page, captioned, choices, marked_verdict, marks_told, other_choices
from reproduction.tables import main_claims as claims_in_words

PAGE = Page(Evaluation)
every = PAGE.every


@captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """The paper's main claims, with 95% intervals over {seeds}; accuracy is the mean of three MNIST
    settings. Rates are percent of the rounds (MNIST, Dir(0.1), eight bad clients), judged by the
    bound in the row.{marks}
    """
    told = findings.main_claims(e)
    table, marks = claims_in_words(e.claims, told)
    return table, {"seeds": overviews.seeds_told(e.claims.loc[[*told]].seeds), **marks}


PAGE.add(lambda e: choices("fedms"), "What the paper leaves open")
PAGE.add(lambda e: other_choices(load_claims("fedms"), e.store, e.records))


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
    return findings.readings(e.store)


@PAGE.table(
    words="FedMS in several readings: the coreset is averaged (section 4.2), or everybody (line 16 "
    "of Algorithm 2); scores are fractions; a coreset is compared with the last one kept.",
)
def variants(e: Evaluation) -> Any:
    """FedMS on MNIST by how it is read: its three accuracies of Table 1 with their verdicts, and
    the verdicts of all claims on FedMS that are judged, counted.
    """
    found = e.variants
    cells = found[found.claim.str.match(r"fedms\.t1\..*\.mnist\.fedms")]
    cells = cells.assign(
        claim="Mavericks + " + cells.claim.str.extract(r"t1\.(.*)\.mnist")[0],
        told=cells["mean"].map("{:.1f}, ".format) + cells.verdict,
    )
    cells = cells.pivot(index="reading", columns="claim", values="told")
    counted = found.groupby(["reading", "verdict"]).size().unstack(fill_value=0)
    order = [method for method in METHODS if method in counted.index]
    shown = cells.join(counted).loc[order].rename(index=LABELS)
    return shown.rename_axis(index=None, columns=None)


@PAGE.table("What is on record")
def on_record(e: Evaluation) -> Any:
    """Methods and seeds on record per experiment and reading, the fewest and the most of its rows.
    The reading that is judged has {seeds} seeds or more in Table 1.
    """
    rows = {}
    for name in EXPERIMENTS:
        frame = e.frame(name)
        for place, part in frame.groupby(["dataset", "local_rounds", "local"]):
            for share in part.owned.unique() if name.startswith("table") else [None]:
                mine = part if share is None else part[part.owned == share]
                seeds = mine.groupby(["method", "scenario"]).seed.nunique()
                least, most = seeds.min(), seeds.max()
                owns = "" if share is None else f", owns {share:.0%}"
                rows["{}, {}, {} {}{}".format(name, *place, owns)] = {
                    "methods": mine.method.nunique(),
                    "seeds": f"{least}" if least == most else f"{least} to {most}",
                }
    return overviews.table(rows), {"seeds": e.accuracy.groupby("scenario").count().min().min()}


def _cells(e: Evaluation, table: str, unit: str) -> Any:
    """Return a table of the paper cell by cell, printed and measured; its cells on MNIST alone."""
    claims = findings.judged(e.claims)
    claims = claims[claims.index.str.startswith(f"fedms.{table}.")]
    claims = claims[~claims.index.str.contains(".cifar10.", regex=False)]
    rows = {}
    for row in claims.to_dict("records"):
        place = dict(row["entry"].place)
        column = place.get("scenario") or place["kind"]
        rows[f"{LABELS[place['row']]}, {KIND_LABELS.get(column, column)}"] = {
            "paper": row["paper"],
            f"ours, {unit}": f"{row['mean']:.2f} [{row['low']:.2f},\u00a0{row['high']:.2f}]",
            "seeds": int(row["seeds"]),
            "verdict": marked_verdict(row),
            "other rows it fits": f"{row['also_fits']:.0f}" if row["also_fits"] >= 0 else "–",
        }
    return overviews.table(rows), {"marks": marks_told(claims)}


@PAGE.table("Table 1, cell by cell", cards=True)
def cells_of_table1(e: Evaluation) -> Any:
    """Table 1, cell by cell on MNIST: accuracy in %, with 95% intervals over seeds and
    verdicts; a number that is reproduced may fit other rows of its column as well.{marks}
    """
    return _cells(e, "t1", "accuracy in %")


PAGE.add(
    figures.gains,
    words="Gains in points of test accuracy on MNIST, paired by seed, with 95% intervals: over "
    "FedAvg (above), and over blind selection with the coreset (below). A filled dot is "
    "significant at 5% after Holm's correction within its panel.",
)


@PAGE.table()
def edges(e: Evaluation) -> Any:
    """The edges of the chapter's four corners by setting: differences in points, paired by seed,
    with 95% intervals over the seeds.
    """
    words = {
        "score": "drawn by score, all averaged, minus FedAvg",
        "coreset": "drawn blindly, coreset, minus FedAvg",
        "both": "FedMS (both) minus FedAvg",
        "beside-coreset": "FedMS less drawn blindly, coreset",
        "beside-score": "FedMS less drawn by score, all averaged",
    }
    found = {
        scenario: {
            said: lead(e.accuracy.loc[scenario], *findings.EDGES[name])
            for name, said in words.items()
        }
        for scenario in SCENARIOS
    }
    return overviews.texts(found, signed=True)


@PAGE.table()
def on_rare_classes(e: Evaluation) -> Any:
    """The same runs: test accuracy in percent on the Mavericks' classes alone, with 95%
    intervals over seeds.
    """
    return findings.means(e.mnist, "accuracy_maverick_classes")


@PAGE.table()
def shares_averaged(e: Evaluation) -> Any:
    """How many of the participants' updates are averaged at all, in percent, with 95% intervals
    over seeds.
    """
    kept = e.mnist[e.mnist.metric == "coreset_share"]
    shown = findings.means(kept.assign(value=100 * kept.value), "coreset_share")
    return shown.loc[[LABELS[m] for m in ("fedms", "fedms-kept", "uniform-coreset")]]


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
    return findings.means(e.mnist.dropna(subset="value"), "reward_gap", -np.inf, np.inf)


@PAGE.table(cards=True)
def five_clients(e: Evaluation) -> Any:
    """Five clients on MNIST, all of them in every round, by score and by what the Maverick owns:
    its score minus the mean of the others', in points of accuracy per round (the cosine and the
    size in their own units), and in how many of the rounds it is last; 95% intervals over the
    seeds.
    """
    parts = []
    for owns, scenario in (("its class alone", "iid"), ("the others too", "iid-mixed")):
        runs = e.five(scenario)
        gaps = {name: mean_interval(runs[f"gap.{name}"]) for name in SCORES}
        last = {name: bounded_interval(runs[f"last.{name}"], 0, 100) for name in SCORES}
        parts += [overviews.texts({f"minus others, {owns}": gaps}, 2)]
        parts += [overviews.texts({f"last (%), {owns}": last})]
    return pd.concat(parts, axis=1)


@PAGE.table("Table 2, cell by cell", cards=True)
def cells_of_table2(e: Evaluation) -> Any:
    """Table 2, cell by cell on MNIST: % of the rounds, with 95% intervals over seeds and
    verdicts; a number that is reproduced may fit other rows of its column as well.{marks}
    """
    return _cells(e, "t2", "% of the rounds")


@PAGE.table(decimals=1)
def everybody_asked(e: Evaluation) -> Any:
    """All our rows and controls in the same runs, means in percent: of the rounds (round 0, in
    which FedMS asks everybody, left out), and the final accuracy. The oracle knows who is who.
    """
    names = {"maverick": "Maverick", "honest": "honest", **KIND_LABELS}
    rows: dict[str, dict[Any, Any]] = {}
    for method in (m for m in LABELS if m in set(e.with_bad.method)):
        rows[LABELS[method]] = e.rates(method).mean().rename(names)[[*names.values()]].to_dict()
        part = where(e.with_bad, method=method, metric="accuracy")
        rows[LABELS[method]]["accuracy"] = part.value.mean()
    return overviews.table(rows)


@PAGE.table("Which score finds which misbehaviour")
def detection(e: Evaluation) -> Any:
    """Blind selection, every score on the same rounds: chance that a Maverick scores above another
    honest client, and that a misbehaving client scores below an honest one; 0.5 is a coin. 95%
    intervals over the seeds, within 0 and 1.
    """
    shown = overviews.texts(findings.detection(e), 2).set_axis([*SCORES])
    return shown.rename(columns={"Mavericks": "Maverick"})


@PAGE.table("One change at a time", decimals=1)
def study(e: Evaluation) -> Any:
    """Mavericks + Dir(1), means: test accuracy in percent, the gain of FedMS over blind selection
    with the same coreset, paired by seed, with its 95% interval, and in how many percent of the
    rounds FedMS takes a Maverick. The oracle knows who the Mavericks are.
    """
    found = findings.study(e)
    gain = [f"{r.gain:+.1f} [{r.low:.1f},\u00a0{r.high:.1f}]" for r in found.itertuples()]
    shown = found.drop(columns=["low", "high"]).assign(gain=gain)
    return shown.rename(columns={"Maverick rate": "rounds"})


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
    return findings.tuned_on_validation(e.frame("tuning"))


@PAGE.table(decimals=1)
def by_learning_rate(e: Evaluation) -> Any:
    """Mean validation accuracy at each learning rate on record, in percent, of the best of the
    method's other settings.
    """
    part = e.frame("tuning").query("metric == 'accuracy_validation'")
    others = [name for name in findings.TUNED if name != "lr"]
    points = part.groupby(["method", *others, "lr"]).value.mean()
    shown = points.groupby(["method", "lr"]).max().unstack()
    shown = shown.rename(index=LABELS, columns="rate {:g}".format)
    return shown.rename_axis(index=None, columns=None)


@PAGE.table(decimals=1)
def by_temperature(e: Evaluation) -> Any:
    """FedMS at α = 0.6 by temperature and learning rate: mean validation accuracy in percent."""
    part = where(e.frame("tuning"), metric="accuracy_validation", method="fedms", alpha=0.6)
    shown = part.groupby(["temperature", "lr"]).value.mean().unstack()
    shown = shown.rename(index="T = {:g}".format, columns="rate {:g}".format)
    return shown.rename_axis(index=None, columns=None)


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


@PAGE.table("CIFAR-10, reduced", "A smaller network and fewer rounds; not judged.")
def cifar_reduced(e: Evaluation) -> Any:
    """Test accuracy in percent after {first.rounds} rounds of {first.model}, means with 95%
    t-intervals, which for {seeds} seeds say little; {first.clients} clients, {first.participants}
    per round. Reading: {how}.
    """
    part = where(e.frame("table1", "laptop"), dataset="cifar10")
    first = part.iloc[0]
    how = findings.reading_name(first.local, first.owned)
    how = how.replace("5 epochs", f"{first.local_rounds} epoch")
    fields = {"first": first, "seeds": part.seed.nunique(), "how": how}
    return findings.means(part, "accuracy"), fields
