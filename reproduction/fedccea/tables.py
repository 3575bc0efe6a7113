"""The tables of the pages on FedCCEA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import Interval
from reproduction import overviews
from reproduction import tables as pages
from reproduction.fedccea import figures, findings
from reproduction.fedccea.experiments import DATA, DISTRIBUTIONS, LABELS, METHODS, PARTIAL, WALKS
from reproduction.fedccea.findings import Evaluation, as_text, intervals, of, reduced_claims
from reproduction.overviews import measured

TOLD = "Means of three seeds with 95% intervals, 300 samples per client"

PAGE = pages.Page(Evaluation, LABELS | DATA | DISTRIBUTIONS)
every = PAGE.every


def _side_by_side(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, str]]:
    return pd.concat(parts, axis=1), {"told": TOLD}


@pages.captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """What the paper says of MNIST with two classes per client, judged on runs with 300 samples by
    the rules of this book; clients, points, or points of accuracy, with 95% intervals of three
    seeds. A star: with 40% wrong labels.{marks}
    """
    claims, rows = e.judged.loc[[f"fedccea.{name}" for name in findings.MAIN_CLAIMS]], {}
    for words, (name, row) in zip(findings.MAIN_CLAIMS.values(), claims.iterrows(), strict=True):
        i = measured(row)
        if "same-as-base" in str(name):  # a difference, below 0 where there is a loss
            i = Interval(-i.mean, -i.high, -i.low, i.n)
        by_seed = f"{findings.in_order(row['values'])} (by seed)"
        ours = by_seed if "zeros" in str(name) else i.text(1)
        rows[words] = {"ours": ours, "verdict": pages.marked_verdict(row)}
    return overviews.table(rows), {"marks": pages.marks_told(claims)}


@pages.captioned(cards=True)
def rivals(e: Evaluation) -> Any:
    """What the paper says of TMC-SV and LOO, in both readings of how they value: by retraining, and
    in every round of one training, with {walks} walks a round of TMC-SV. MNIST, 300 samples per
    client; clients, points or shares with 95% intervals over three seeds.{marks}
    """
    rows = {}
    for name in e.judged_by_rounds.index:
        if "connected" in name:  # FedCCEA's own second reading is another table's
            continue
        here, there = e.judged.loc[name], e.judged_by_rounds.loc[name]
        cells = {"where": here["where"], "paper": here["paper"] or "–"}
        for title, row in (("by retraining", here), ("round by round", there)):
            cells[title] = f"{measured(row).text(1)}; {pages.marked_verdict(row)}"
        rows[here["says"].partition(" (MNIST")[0]] = cells
    return overviews.table(rows), {"walks": WALKS, "marks": pages.marks_told(e.judged_by_rounds)}


PAGE.choices("fedccea", judged=lambda e: (reduced_claims(), "laptop"))
PAGE.add(
    figures.learning,
    "Is the federation trained?",
    "Test accuracy after 50 rounds with everybody, measured and as the paper prints it "
    "(hollow, MNIST). Means of three seeds with 95% intervals.",
)
PAGE.add(rivals, "Every claim on the rivals")
PAGE.add(
    lambda e: figures.all_indices(e.drawn),
    "Indices",
    "Contribution indices in falling order, clean clients, 300 samples each; means with 95% "
    "bands (the paper's Figures 4, 11 and 12).",
)


@PAGE.table(
    "Removals",
    "The area is the mean difference, in points, between the accuracy after removing the "
    "lowest clients and after removing the highest: large for a ranking that matters, zero "
    "for one that does not. Intervals of this page are not adjusted for how many there are.",
)
def areas(e: Evaluation) -> Any:
    """Area between the removal curves in points, every setting. {told}. The last column is the
    standard error that the mean of a ranking without knowledge has.
    """
    found = as_text(intervals(e.runs, of("area")))
    areas = e.runs.filter(regex=r"^area\.random\d")  # one order per seed
    spread = [np.sqrt(np.square(x[[*areas]].to_numpy()).mean() / len(x))
              for _, x in findings.settings(e.runs)]  # fmt: skip
    found["random order, s.e."] = [f"{x:.1f}" for x in spread]
    return found, {"told": TOLD}


@PAGE.table(
    words="An area does not say which end it comes from. A good order loses little with its lowest "
    "and much with its highest."
)
def ends(e: Evaluation) -> Any:
    """Points lost beyond random clients, and with these, every setting. {told}."""
    parts = {}
    for title, metric in (("lowest 40%", "lost40"), ("highest 40%", "lost40.highest")):
        over = {label: (name, f"{metric}.random") for label, name in of(metric).items()}
        parts[title] = as_text(intervals(e.runs, over))
    lost = intervals(e.runs, {"points lost": "lost40.random"}, (0, 100))
    return _side_by_side({**parts, "random 40%": as_text(lost)})


@PAGE.table(
    "Partial participation",
    "Clients use random shares of their data and are ranked by share times weight anew in "
    "every round, so that order follows the drawn amounts, which nobody had to learn. Amounts "
    "alone is the control.",
)
def partial(e: Evaluation) -> Any:
    """Partial participation in every setting, in points. {told}."""
    *learnt, alone = PARTIAL
    parts = {"area": as_text(intervals(e.runs, of("area", PARTIAL)))}
    for title, x in (
        ("area over amounts alone", "area"),
        ("lowest 40% cost more than by amounts alone", "lost40"),
    ):
        over = {LABELS[m]: (f"{x}.{m}", f"{x}.{alone}") for m in learnt}
        parts[title] = as_text(intervals(e.runs, over))
    return _side_by_side(parts)


PAGE.add(
    figures.dealt,
    words="Partial participation with learnt qualities, with the same qualities dealt to the "
    "clients at random, and by amounts alone, strong non-IID. Means of three seeds with 95% "
    "intervals.",
)
PAGE.add(
    lambda e: figures.misses(e.drawn),
    "What the sizes explain",
    "Approximated minus true accuracy over the rounds, IID clients without noise, in both "
    "readings (the paper's Figure 7); median over the simulations with the 5% and 95% "
    "quantiles, means over the seeds.",
)


@PAGE.table(
    words="By chance: sizes and accuracies from different simulations. Out of sample: five-fold "
    "cross-validation over simulations; a negative R² is worse than the means of the rounds."
)
def explained(e: Evaluation) -> Any:
    """R² in the sample, by chance, and out of sample, every setting. {told}."""
    inside = of("explained", ("connected", "adam", "same_round"))
    parts = {
        "in the sample": {LABELS["fedccea"]: "explained", **inside},
        "in the sample, by chance": {LABELS["fedccea"]: "explained.chance"},
        "out of sample": of("unseen", ("fedccea", "connected", "same_round")),
    }
    return _side_by_side({
        title: as_text(intervals(e.runs, shown, (-np.inf, 1)), 2) for title, shown in parts.items()
    })  # fmt: skip


@PAGE.table(
    "Who finds the noisy clients",
    "How probably is a clean client above a noisy one? The clients of one federation differ "
    "without any noise, so the same clients are also compared where all are clean; what the "
    "noise adds is the gain.",
)
def chances(e: Evaluation) -> Any:
    """Who finds the noisy clients, every kind of noise. {told}."""
    noisy, parts = findings.compared(e.runs), {
        "chance with noise": ("auc", 0), "the same clients, all clean": ("clean", 0),
        "gain": ("gain", -1),
    }  # fmt: skip
    return _side_by_side({
        title: as_text(intervals(noisy, of(metric, METHODS), (least, 1)), 2)
        for title, (metric, least) in parts.items()
    })  # fmt: skip


@PAGE.table(
    "Time",
    "The paper's Table 2 compares one simulation of FedCCEA with the whole of its rivals. "
    "A simulation uses half of everybody's data on average, leave-one-out trains as often as "
    "there are clients on all data, a walk of Monte Carlo half as often.",
    decimals=1,
)
def measured_times(e: Evaluation) -> Any:
    """Our Table 2: milliseconds per round on one core with 300 MNIST samples per client, measured
    once, training and testing together; `training alone` leaves the tests out, `data trained on`
    counts data instead of time. The last three columns are ratios of 100 simulations to LOO.
    {machines}
    """
    timed = e.store.records(e.records, "fedccea", "cost")
    return e.measured, {"machines": overviews.machines_told(timed)}


@PAGE.table(
    "Claims on the reduced runs",
    "The paper's claims on MNIST by the rules of the report, judged on runs with 300 samples. "
    "They do not enter the report, and are not the first such runs: settings were changed "
    "after a look at earlier ones, and some claims with them, which then describe and do not test.",
    cards=True,
)
def claims(e: Evaluation) -> Any:
    """Claims on reduced runs; those added or changed after runs like these say so."""
    return pages.claims_table(e.judged)


PAGE.printed("t3")
