"""The tables of the pages on FedTSV."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reproduction import overviews
from reproduction import tables as pages
from reproduction.fedtsv import figures, findings
from reproduction.fedtsv.experiments import STUDIED
from reproduction.fedtsv.findings import CLIP, EVEN, FIRST, LABELS, Evaluation, text
from reproduction.overviews import by_seed, machines_told

#: main claims in few words: the claim at our rate, and at the rate where FedAvg ends as printed
ASKED = {
    "FedAvg ends at 75%": ("fedavg.mnist", None),
    "FedTSV is more accurate than FedAvg (points)": (
        "above-fedavg.tsv.mnist", "at-its-rate.tsv.fedavg"),
    "than CGSV": ("best.cgsv.mnist", "best-at-its-rate.cgsv"),
    "than leave-one-out by accuracy": ("best.loo.mnist", "best-at-its-rate.loo"),
    "than leave-one-out by loss": ("loss-best", "best-at-its-rate.loo-loss"),
    "IID scores above malicious (probability)": (
        "separates.iid-malicious", "separates-at-its-rate.iid-malicious"),
    "skewed scores above malicious": (
        "separates.skewed-malicious", "separates-at-its-rate.skewed-malicious"),
    "IID weighs more than malicious": (
        "separates-weights.iid-malicious", "separates-weights-at-its-rate.iid-malicious"),
    "skewed weighs more than malicious": (
        "separates-weights.skewed-malicious", "separates-weights-at-its-rate.skewed-malicious"),
    "IID clients of positive weight (%)": ("positive", "positive-at-its-rate"),
}  # fmt: skip

#: columns of the study that are seeds and accuracies
ACCURACIES = 1 + len(STUDIED)
PAGE = pages.Page(Evaluation)
every = PAGE.every


def _claim(e: Evaluation, name: str | None, digits: int) -> str:
    if name is None:
        return "–"
    i = e.ours(name)
    number = f"{i.mean:.{digits}f}" if i.low == i.high else i.text(digits)
    return f"{number} {pages.marked_verdict(e.claims.loc[f'fedtsv.{name}'])}"


@pages.captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """What the paper says, in few words, and our numbers with 95% intervals and verdicts: MNIST,
    ten seeds, fifty at 0.01. A number without an interval is the same in all seeds; a dash is not
    asked, because the rate was chosen by that number.{marks}
    """
    lines = {
        heading: {
            words: _claim(e, names[side], 1 if words.endswith("%)") or "75%" in words else 2)
            for words, names in ASKED.items()
        }
        for side, heading in enumerate(("at 0.01, our guess", "at 0.0002"))
    }
    kept = [f"fedtsv.{name}" for pair in ASKED.values() for name in pair if name]
    return pd.DataFrame(lines), {"marks": pages.marks_told(e.claims.loc[kept])}


PAGE.choices("fedtsv")


@PAGE.table(
    "The runs of Figure 1 on MNIST",
    "Late accuracy is the mean test accuracy over the last quarter of the rounds.",
)
def summary(e: Evaluation) -> Any:
    """Late accuracy with its 95% interval over seeds, and means of the other metrics. "a above b"
    is the probability that a client of the first kind has a higher score than one of the second;
    the weight of malicious clients is their share of the aggregation in the second half.
    """
    metrics = {
        "lowest late accuracy (%)": "accuracy_lowest_late",
        "change between tests (points)": "accuracy_swing",
        "test loss (nats)": "test_loss",
        "iid above malicious": "auc.iid-malicious",
        "skewed above malicious": "auc.skewed-malicious",
        "iid above skewed": "auc.iid-skewed",
        "weight of malicious (%)": "weight_malicious",
    }
    late = by_seed(e.mnist, LABELS, "accuracy_late")
    shown: dict[str, Any] = {"late accuracy (%)": {m: text(late[m], 1, 100) for m in late}}
    shown |= {words: by_seed(e.mnist, LABELS, x).mean() for words, x in metrics.items()}
    return pd.DataFrame(shown).dropna(how="all").rename(index=LABELS)


PAGE.add(
    lambda e: figures.curves(e.drawn, ("fedavg", "cgsv", "loo", "tsv", "oracle")),
    words="Test accuracy and loss on MNIST at the paper's scale (the paper's Figure 1), with 95% "
    "bands over the seeds.",
)


@PAGE.table("One change at a time")
def study(e: Evaluation) -> Any:
    """One change at a time, MNIST: late test accuracy (%) per method, means with 95% intervals over
    as many seeds as the first column says. A dash is not on record.
    """
    return e.study.iloc[:, :ACCURACIES]


@PAGE.table()
def scores_in_study(e: Evaluation) -> Any:
    """The same runs: probability that an IID client scores above a malicious one, by method, and of
    FedTSV the same for the two other pairs.
    """
    return e.study.iloc[:, ACCURACIES:]


@PAGE.table("Long updates, and what shortening does")
def treated(e: Evaluation) -> Any:
    """Bringing all updates of a round to the length of the median one, and shortening only the
    longer ones (clipped); paired by seed, 95% intervals.
    """
    words = {FIRST: "as printed", EVEN: "equal lengths", CLIP: "clipped"}
    pairs = (("fedavg", EVEN, "tsv", FIRST), ("fedavg", EVEN, "tsv", EVEN),
             ("fedavg", EVEN, "oracle", EVEN), ("oracle", EVEN, "oracle", FIRST),
             ("fedavg", CLIP, "tsv", FIRST), ("cgsv", FIRST, "oracle", FIRST),
             ("cgsv", CLIP, "oracle", CLIP))  # fmt: skip
    rows = {
        f"{LABELS[a]}, {words[x]}, over {LABELS[b]}, {words[y]}": {
            "late accuracy (points)": e.lead(a, b, x, other=y).text(2, signed=True),
            "test loss (nats)": e.lead(a, b, x, "test_loss", y).text(3, signed=True),
        }
        for a, x, b, y in pairs
    }
    return overviews.table(rows)


@PAGE.table("What exact values cost")
def timings(e: Evaluation) -> Any:
    """Seconds per round by the number of participants, on one thread, without the reference update.
    Sampling asks for twice as many coalitions as there are participants, and two. {machines}
    """
    shortest, rows = findings.timings(e), {}
    for k, part in e.frame("timings").groupby("participants"):
        wide, took = overviews.by_metric(part), shortest.loc[k].filter(like="seconds.")
        seconds = {name: f"{float(f'{x:.2g}'):g}" for name, x in took.items()}  # no exponents
        rows[k] = {
            "exact (s)": seconds["seconds.exact"],
            "sampled (s)": seconds["seconds.sampled"],
            "error of sampling": text(wide["error.sampled"], 3),
            "size of a value": f"{wide['size'].mean():.3f}",
            "averaging (s)": seconds["seconds.averaged"],
            "difference of averaging": float(f"{wide['error.averaged'].max():.0e}"),
        }
    timed = e.store.records(e.records, "fedtsv", "timings")
    return overviews.table(rows), {"machines": machines_told(timed)}
