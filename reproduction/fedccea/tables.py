"""The tables of the pages on FedCCEA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reproduction import overviews
from reproduction import tables as pages
from reproduction.fedccea import figures, findings
from reproduction.fedccea.experiments import LABELS, METHODS, PARTIAL, WALKS
from reproduction.fedccea.findings import Evaluation, as_text, intervals, of, reduced_claims
from reproduction.overviews import measured

TOLD = "Means of three seeds with 95% intervals, 300 samples per client"

PAGE = pages.Page(Evaluation)
every = PAGE.every


def _side_by_side(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, str]]:
    return pd.concat(parts, axis=1), {"told": TOLD}


def _found(e: Evaluation, parts: Mapping[str, tuple[str, float]], *, pooled: bool = False) -> Any:
    """Who finds noisy clients, by title a metric and the least that it can be."""
    noisy = findings.compared(e.runs)
    return _side_by_side({
        title: as_text(intervals(noisy, of(metric, METHODS), (least, 1), pooled=pooled), 2)
        for title, (metric, least) in parts.items()
    })  # fmt: skip


def _shares(e: Evaluation, parts: Mapping[str, Mapping[str, str]]) -> Any:
    return _side_by_side(
        {t: as_text(intervals(e.runs, shown, (-np.inf, 1)), 2) for t, shown in parts.items()}
    )


@pages.captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """What the paper says of MNIST with two classes per client, judged on runs with 300 samples by
    the rules of this book; clients, points, or points of accuracy, with 95% intervals of three
    seeds. A star: with 40% wrong labels.{marks}
    """
    claims = e.judged.loc[[f"fedccea.{name}" for name in findings.MAIN_CLAIMS]]
    rows = {
        words: {"ours": findings.our_number(row), "verdict": pages.marked_verdict(row)}
        for words, (_, row) in zip(findings.MAIN_CLAIMS.values(), claims.iterrows(), strict=True)
    }
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


PAGE.add(lambda e: pages.choices("fedccea"), "What the paper leaves open")
PAGE.add(lambda e: pages.other_choices(reduced_claims(), e.store, "laptop"))
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


@PAGE.table()
def zeros(e: Evaluation) -> Any:
    """How many of twenty clients have index zero, in each of three seeds (the paper, MNIST
    strong non-IID: FedCCEA none, TMC-SV 11, LOO 1). Clean clients. By Adam a weight below a
    thousandth of the mean counts as zero.
    """
    clean = findings.seed_table(e.excluded).query("noise == 'none'")
    counted = {
        LABELS[m]: {
            name: ", ".join(f"{x:.0f}" for x in seeds[f"zeros.{m}"].dropna()) or "–"
            for name, seeds in findings.settings(clean)
        }
        for m in findings.EXCLUDED
    }
    return pd.DataFrame(counted)


@PAGE.table(words="An index of zero is a noisy mean, or a weight, that was cut at zero.")
def exclusions(e: Evaluation) -> Any:
    """The figure in numbers, and the standard deviation of the index in units of an equal share.
    Clean clients. {told}.
    """
    clean, spread = e.runs.query("noise == 'none'"), of("spread", (*METHODS, "adam"))
    over = {LABELS[m]: (f"excluded.{m}", f"excluded.{m}.random") for m in (*METHODS, "adam")}
    return _side_by_side(
        {
            "points over random clients out": as_text(intervals(clean, over)),
            "spread of the index": as_text(intervals(clean, spread, (0, np.inf)), 2),
        }
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
    found["random order, s.e."] = [
        f"{findings.random_spread(seeds):.1f}" for _, seeds in findings.settings(e.runs)
    ]
    return found, {"told": TOLD}


@PAGE.table(
    words="An area does not say which end it comes from. A good order loses little with its lowest "
    "and much with its highest."
)
def ends(e: Evaluation) -> Any:
    """Points lost beyond random clients, and with these, every setting. {told}."""
    ends = {"lowest 40%": "lost40", "highest 40%": "lost40.highest"}
    parts = {
        title: as_text(intervals(e.runs, findings.beyond_random(metric)))
        for title, metric in ends.items()
    }
    lost = intervals(e.runs, {"points lost": "lost40.random"}, (0, 100))
    return _side_by_side({**parts, "random 40%": as_text(lost)})


@PAGE.table()
def area_leads(e: Evaluation) -> Any:
    """FedCCEA's lead in area over those who retrain, in points. {told}; the last rows are pooled: a
    seed's mean over the settings of a row.
    """
    over = findings.over_retrained("area")
    rows = [as_text(intervals(e.runs, over, pooled=pooled)) for pooled in (False, True)]
    shown = pd.concat(rows).rename(columns=lambda name: name.replace("\n", " "))
    return shown, {"told": TOLD}


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


@PAGE.table()
def errors(e: Evaluation) -> Any:
    """Root mean squared error on the simulations of the fit, beside what remains if every round
    is predicted by its mean; the share of rounds whose a is negative, so that their data are
    said to lower later accuracies; and the seeds whose permutation p-value is 0.05, the least
    that 19 permutations can give (of fits to nothing one in twenty has it). Means of three
    seeds.
    """
    return findings.errors(e.runs.query("noise in ['none', 'label-40']"))


@PAGE.table(
    words="By chance: sizes and accuracies from different simulations. Out of sample: five-fold "
    "cross-validation over simulations; a negative R² is worse than the means of the rounds."
)
def explained(e: Evaluation) -> Any:
    """R² in the sample, by chance, and out of sample, every setting. {told}."""
    return _shares(e, findings.explained())


@PAGE.table("Do two fits agree?")
def agreement(e: Evaluation) -> Any:
    """Rank correlation of the weights of two fits, every setting. {told}."""
    shown = findings.agreeing()
    shown["with FedCCEA's weights"] = of("rank", ("connected", "adam", "same_round"))
    return _shares(e, shown)


@PAGE.table(
    "Who finds the noisy clients",
    "How probably is a clean client above a noisy one? The clients of one federation differ "
    "without any noise, so the same clients are also compared where all are clean; what the "
    "noise adds is the gain.",
)
def chances(e: Evaluation) -> Any:
    """Who finds the noisy clients, every kind of noise. {told}."""
    clean = {"the same clients, all clean": ("clean", 0.0)}
    return _found(e, {"chance with noise": ("auc", 0), **clean, "gain": ("gain", -1)})


@PAGE.table()
def pooled_chances(e: Evaluation) -> Any:
    """The same, pooled. {told}."""
    return _found(e, {"chance with noise": ("auc", 0), "gain": ("gain", -1)}, pooled=True)


PAGE.add(
    figures.budgets,
    words="Chance that a clean client is above a noisy one by the data trained, in federations "
    "with all data, after a quarter, half, three quarters and all of the budget, with 40% wrong "
    "labels; LOO has one budget. Means of three seeds.",
)


@PAGE.table(
    "Seconds",
    "The paper's Table 2 compares one simulation of FedCCEA with the whole of its rivals.",
    decimals=1,
)
def printed_times(e: Evaluation) -> Any:
    """The paper's Table 2, its times for FedCCEA multiplied by 100 simulations."""
    return findings.printed_times()


@PAGE.table(
    words="A simulation uses half of everybody's data on average, leave-one-out trains as often as "
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
    "after a look at earlier ones, and the claims of the second table with them.",
    cards=True,
)
def claims_before(e: Evaluation) -> Any:
    """Claims written down before the runs, on reduced runs."""
    return pages.claims_table(e.judged[e.judged["after_runs"] == ""])


@PAGE.table(cards=True)
def claims_after(e: Evaluation) -> Any:
    """Claims that were added or changed after runs like these, when their verdicts were known:
    they describe, and do not test.
    """
    return pages.claims_table(e.judged[e.judged["after_runs"] != ""])


@PAGE.table(
    "Claims at the paper's scale",
    "Only runs with all samples are judged in the report. Records of EMNIST are of the 26 "
    "letters, which the paper does not have, and are not judged.",
)
def table3(e: Evaluation) -> Any:
    """Table 3: the paper's number, ours, and the verdict, with all samples."""
    return pages.comparison_table(e.claims, "t3").replace("<br>", "; ")


@PAGE.table(cards=True)
def claims_in_words(e: Evaluation) -> Any:
    """What the paper says in words, with all samples."""
    words = e.claims[~e.claims.claim.str.contains(r"fedccea\.[rt][23]\.")]
    return pages.claims_table(words)
