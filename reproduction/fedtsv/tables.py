"""The tables of the pages on FedTSV."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reproduction.claims import load_claims
from reproduction.fedtsv import figures, findings
from reproduction.fedtsv.findings import CLIP, EVEN, FIRST, LABELS, LOUD, RATES, RIVALS, Evaluation
from reproduction.overviews import machines_told
from reproduction.tables import (
    Page,
    by_declaration,
    captioned,
    choices,
    claims_table,
    marked_verdict,
    marks_told,
    other_choices,
)

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

PAGE = Page(Evaluation)
every = PAGE.every


def _claim(e: Evaluation, name: str | None, digits: int) -> str:
    if name is None:
        return "–"
    row: Any = e.claims.loc[f"fedtsv.{name}"]
    number, low, high = (f"{row[end]:.{digits}f}" for end in ("mean", "low", "high"))
    ends = "" if row["low"] == row["high"] else f" [{low}, {high}]"
    return f"{number}{ends} {marked_verdict(row)}"


@captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """What the paper says, in few words, and our numbers with 95% intervals and verdicts: MNIST,
    ten seeds. A number without an interval is the same in all seeds; a dash is not asked, because
    the rate was chosen by that number.{marks}
    """
    lines = {
        heading: {
            words: _claim(e, names[side], 1 if words.endswith("%)") or "75%" in words else 2)
            for words, names in ASKED.items()
        }
        for side, heading in enumerate(("at 0.01, our guess", "at 0.0002"))
    }
    kept = [f"fedtsv.{name}" for pair in ASKED.values() for name in pair if name]
    return pd.DataFrame(lines), {"marks": marks_told(e.claims.loc[kept])}


PAGE.add(lambda e: choices("fedtsv"), "What the paper leaves open")
PAGE.add(lambda e: other_choices(load_claims("fedtsv"), e.store, e.records))


@PAGE.table(
    "All claims",
    "Judged under four readings of what is lost (three formulas of Eq. 11, and a slow rate); "
    "several of them are one finding.",
)
def declared(e: Evaluation) -> Any:
    """All claims of the paper, each reading of one counted, by verdict and by when they were
    written down.
    """
    return by_declaration(e.claims)


PAGE.add(
    lambda e: claims_table(e.claims[e.claims.after_runs == ""]),
    words="Written down before the runs:",
)


PAGE.add(
    lambda e: claims_table(e.claims[e.claims.after_runs != ""]),
    words="Added or reworded when the numbers could be known; they describe, and do not test:",
)


@PAGE.table(
    "The runs of Figure 1 on MNIST",
    "Late accuracy is the mean test accuracy over the last quarter of the rounds.",
)
def summary(e: Evaluation) -> Any:
    """Late accuracy with its 95% interval over seeds, and means of the other metrics. "a above b"
    is the probability that a client of the first kind has a higher score than one of the second;
    the weight of malicious clients is their share of the aggregation in the second half.
    """
    return findings.summary(e.mnist)


PAGE.add(
    lambda e: figures.curves(e.drawn, ("fedavg", "cgsv", "loo", "tsv", "oracle")),
    words="Test accuracy and loss on MNIST at the paper's scale (the paper's Figure 1), with 95% "
    "bands over the seeds.",
)


@PAGE.table()
def weights(e: Evaluation) -> Any:
    """Probability that a client of the first kind has a larger final weight than one of the
    second (ties count half), and the share of clients of each kind whose weight is zero; 95%
    intervals over the seeds.
    """
    return findings.weights_table(e.drawn)


@PAGE.table()
def rounds(e: Evaluation) -> Any:
    """Lengths are in lengths of IID updates; a round without a contribution falls back to equal
    weights. Means over the seeds with 95% intervals.
    """
    return findings.rounds_table(e.mnist)


@PAGE.table("Learning rates")
def leads(e: Evaluation) -> Any:
    """FedAvg's late accuracy, and FedTSV's lead over each method (points), by learning rate.
    The rate 0.0002 was chosen because FedAvg ends near the printed number there.
    """
    rows = {
        f"{rate:g}": {
            "FedAvg (%)": f"{e.mean('fedavg', 'accuracy_late', change):.1f}",
            "seeds": str(len(e.values("tsv", change=change))),
            **{f"over {LABELS[m]}": e.lead("tsv", m, change).text(2) for m in RIVALS},
        }
        for rate, change in RATES.items()
    }
    return pd.DataFrame(rows).T


@PAGE.table("One change at a time")
def study(e: Evaluation) -> Any:
    """One change at a time, MNIST: late test accuracy (%) per method, means with 95% intervals over
    as many seeds as the first column says. A dash is not on record.
    """
    return findings.study_text(e.study)[["seeds", *findings.ACCURACY_COLUMNS]]


@PAGE.table()
def scores_in_study(e: Evaluation) -> Any:
    """The same runs: probability that an IID client scores above a malicious one, by method, and of
    FedTSV the same for the two other pairs.
    """
    return findings.study_text(e.study)[[*findings.SEPARATION_COLUMNS[:6]]]


@PAGE.table()
def weights_in_study(e: Evaluation) -> Any:
    """The same runs, FedTSV: what its final weights tell apart, the share of rounds in which nobody
    present has a positive contribution, and the malicious clients' share.
    """
    return findings.study_text(e.study)[[*findings.SEPARATION_COLUMNS[6:]]]


@PAGE.table("Long updates, and what shortening does")
def treated(e: Evaluation) -> Any:
    """Bringing all updates of a round to the length of the median one, shortening only the
    longer ones (clipped), and long malicious updates; paired by seed, 95% intervals.
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
    rows |= {
        f"FedTSV over {LABELS[m]}, malicious updates times ten": {
            "late accuracy (points)": e.lead("tsv", m, LOUD).text(1, signed=True),
            "test loss (nats)": e.lead("tsv", m, LOUD, "test_loss").text(3, signed=True),
        }
        for m in RIVALS
    }
    return pd.DataFrame(rows).T


@PAGE.table("What exact values cost")
def timings(e: Evaluation) -> Any:
    """Seconds per round by the number of participants, on one thread, without the reference update.
    Sampling asks for twice as many coalitions as there are participants, and two. {machines}
    """
    shown = findings.timings_table(e.frame("timings")).rename_axis(None)
    shown["difference of averaging"] = shown["difference of averaging"].astype(float)
    timed = e.store.records(e.records, "fedtsv", "timings")
    return shown, {"machines": machines_told(timed)}


@PAGE.table("CIFAR-10, reduced")
def cifar(e: Evaluation) -> Any:
    """CIFAR-10 (a JPEG copy, quality 75), reduced to LeNet-5, 100 rounds and three seeds. Not
    judged.
    """
    frame = e.frame("figures", "laptop")
    return findings.summary(frame[frame.dataset == "cifar10"])
