"""The tables of the pages on FedOwen."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from fedkit.intervals import Interval, mean_interval
from reproduction import overviews
from reproduction import tables as pages
from reproduction.fedowen import calibration, figures, findings
from reproduction.fedowen.findings import LABELS, Evaluation, pooled
from reproduction.overviews import lead, seeds_told, where
from reproduction.tables import main_claims as claims_in_words

by_seed = partial(overviews.by_seed, labels=LABELS)
_SELECTED = {
    f"{row}-{x}": f"{words}, imbalance {x}"
    for row, words in {"adaptive": "by value", "no-adaptive": "at random"}.items()
    for x in ("0.01", "0.05")
}
PAGE = pages.Page(Evaluation, LABELS | findings.SETS | _SELECTED)
every = PAGE.every
DECLARED = "in the declared federation: accuracy in percent, mean of the last ten rounds"
BLOCKS = "in the federation of blocks: accuracy in percent after the last round"


@pages.captioned(cards=True)
def main_claims(e: Evaluation) -> Any:
    """The paper's main claims and ours, with 95% intervals over {seeds} where there are runs. Leads
    are corrected for all comparisons of a table, so one whose interval excludes zero may stay
    open.{marks}
    """
    column = f"{findings.COLUMN['dataset']}.a{findings.COLUMN['alpha']:g}"
    best = e.ours("gain.relative.best").mean
    words = {
        "unbiased": "Algorithm 1 is unbiased (error of its mean, an airport game of four)",
        "gain.share.worst": "up to 23% over baselines: over the worst, in percent of FedOwen's own "
        f"accuracy (over the best at most {best:.1f}%); arithmetic on the printed tables",
        **{
            f"p1.{data}.vs-{rival}": f"points over {LABELS[rival]}, {findings.SETS[data]}, three "
            "settings of Table 1"
            for rival, data in product(("fedavg", "banzhaf", "shapfed"), findings.SETS)
        },
        f"o3.{column}.vs-no-adaptive-0.01": "points by selecting by value (Table 3, in the "
        "federation of blocks)",
    }
    printed = e.claims.paper.map(lambda x: x if isinstance(x, str) else "–")
    rows = {
        f"fedowen.{name}": (
            said, printed[f"fedowen.{name}"], e.ours(name).text(2 if name == "unbiased" else 1)
        )
        for name, said in words.items()
    }  # fmt: skip
    return claims_in_words(e.claims, rows)


def _imbalance(table: str) -> float:
    """Return the imbalance factor of a view of Table 1 or 2, by its name."""
    return 0.01 if table.endswith("1") else 0.05


@pages.captioned()
def columns(e: Evaluation, table: str = "table1") -> Any:
    """FedOwen's lead in points of accuracy (imbalance {factor}), paired over {seeds}, with 95%
    intervals.
    """
    wide = getattr(e, table)
    fields = {"factor": _imbalance(table), "seeds": seeds_told([len(pooled(wide))])}
    parts = {f"{findings.SETS[str(d)]}, Dirichlet {a:g}": part.droplevel([0, 1])
             for (d, a), part in wide.groupby(["dataset", "alpha"])}  # fmt: skip
    parts["mean of all"] = pooled(wide)
    found = {
        f"over {words}": {name: lead(part, "fedowen", m) for name, part in parts.items()}
        for m, words in findings.AGAINST.items()
        if m in wide
    }
    return overviews.texts(found, signed=True), fields


@pages.captioned(decimals=1)
def confirmed(e: Evaluation) -> Any:
    """FedAvg in the columns that were kept back: our accuracy minus the printed one, in points,
    means over five seeds. The last lines are root mean squares: of the columns, and of what the
    Dirichlet parameter and the imbalance change in them.
    """
    reading = calibration.declared(e.calibrated)
    found = e.confirming.loc[[reading, calibration.PRESENT]]
    cells = [name for name in map(str, found) if name.split()[0] in findings.SETS]
    names = {cell: f"{findings.SETS[data]}, Dirichlet {alpha}, imbalance {factor}"
             for cell in cells for data, alpha, factor in [cell.split()]}  # fmt: skip
    names |= {"error": "all columns", "alpha": "differences by the Dirichlet parameter",
              "imbalance": "differences by the imbalance"}  # fmt: skip
    shown = found[[*cells, "error", "alpha", "imbalance"]].rename(columns=names).T
    shown.columns = pd.Index(["declared federation", "federation of blocks"])
    return shown


@pages.captioned()
def rows(e: Evaluation, table: str, words: str) -> Any:
    """{words}, with 95% intervals over {seeds}; then what the paper prints."""
    wide, shown = getattr(e, table), {}
    for (data, alpha), column in wide.groupby(["dataset", "alpha"]):
        name = f"{findings.SETS[str(data)]}, Dirichlet {alpha:g}"
        printed = e.tables[_imbalance(table), data, alpha]
        shown[name] = {
            LABELS[m]: mean_interval(column[m]).text(1)
            + (f"; {printed[m]:.1f}" if m in printed.index else "")
            for m in LABELS
            if m in column and column[m].notna().any()
        }
    fields = {"words": words, "seeds": seeds_told([len(pooled(wide))])}
    return overviews.table(shown).T, fields


@pages.captioned()
def estimators(e: Evaluation) -> Any:
    """Estimators on the same rounds (FashionMNIST, Dirichlet 0.01) at forty calls, and the
    accuracy of the model that they steer. An error of 1 is as large as the values; the best of
    ten is found by guessing in a tenth of the rounds.
    """
    names = {"error": "error", "correlation": "correlation", "same_best": "finds the best",
             "accuracy": "accuracy, %"}  # fmt: skip
    shown = findings.error_table(e)[[*names]].rename(columns=names, index=LABELS)
    return shown.rename_axis(index=None, columns=None)


@pages.captioned()
def exact_values(e: Evaluation, table: str) -> Any:
    """Points of final accuracy in the federation of blocks, means over six columns, with 95%
    intervals over seeds. A star marks a Holm-adjusted p below 0.05.
    """
    wide = pooled(getattr(e, table))
    found = overviews.gains(wide, "exact").sort_values("gain", ascending=False)
    rows = {
        LABELS[m]: {
            "over exact values": lead(wide, m, "exact").text(1, signed=True) + "*" * (p < 0.05),
            "seeds ahead": f"{(wide[m] > wide['exact']).sum()} of {len(wide)}",
        }
        for m, p in zip(map(str, found.index), found.p, strict=True)
    }
    return overviews.table(rows)


PAGE.choices(
    "fedowen",
    "The abstract links to published code, hoseinkhs/AdaptiveSelectionFL. We worked from the "
    "text alone and have not read it, so some of these lines may be settled there.",
)
PAGE.add(
    figures.calibrated,
    "Which federation the paper used",
    "FedAvg alone on MNIST, the twelve readings of the federation that come nearest to the printed "
    "accuracies, and last the federation of blocks. Three columns, means over three seeds. The "
    "other columns are kept to confirm.",
)
PAGE.add(findings.calibration_told)
PAGE.add(confirmed)
PAGE.add(lambda e: rows(e, "table1", f"Table 1 {DECLARED}"), "All rows, by federation")
PAGE.add(lambda e: rows(e, "blocks1", f"Table 1 {BLOCKS}"))
PAGE.add(lambda e: rows(e, "table2", f"Table 2 {DECLARED}"))
PAGE.add(lambda e: rows(e, "blocks2", f"Table 2 {BLOCKS}"))
PAGE.printed("t1", "t2", "t3")
PAGE.add(lambda e: exact_values(e, "blocks1"), "Exact values in the place of estimates", "Table 1:")
PAGE.add(lambda e: exact_values(e, "blocks2"), words="Table 2:")


@PAGE.table("Selecting and weighting apart", "Table 3 with controls.")
def two_uses(e: Evaluation) -> Any:
    """What the two uses of values are worth in the federation of blocks, means over six columns:
    points of final accuracy with 95% intervals over seeds. Selecting: over the same row with
    random selection; weighting: over no values. After Holm's correction over all lines none stands.
    """
    found = {f"imbalance {x}": findings.halves(e, x) for x in (0.01, 0.05)}
    return overviews.texts(found, signed=True)


PAGE.add(
    figures.sensitivity,
    "Settings that the paper does not give",
    "FedOwen's lead over FedAvg in points of final accuracy on FashionMNIST (profile laptop), "
    "one setting changed at a time; three seeds, with 95% intervals. Settings that only "
    "FedOwen has leave FedAvg as it is.",
)
PAGE.add(
    figures.sweeps,
    "Levels and exploration",
    "Final accuracy on FashionMNIST against the inclusion levels Q, with a budget that grows "
    "with Q or is fixed at forty calls (left), and against the exploration rate (right); "
    "profile laptop, three seeds, 95% bands (the paper's Figures 3 and 4).",
)


@PAGE.table("Columns at a reduced scale")
def reduced(e: Evaluation) -> Any:
    """FedOwen's lead, Dirichlet 0.1, 30 rounds, five seeds, with 95% intervals. Other data or
    another model stand in for the paper's; CIFAR-10 is a JPEG copy (quality 75). On BreastMNIST
    all rows name one class for every image.
    """
    names = {"emnist-letters": "EMNIST letters", "cifar10": "CIFAR-10, LeNet",
             "pneumoniamnist": "PneumoniaMNIST", "retinamnist": "RetinaMNIST",
             "breastmnist": "BreastMNIST"}  # fmt: skip
    frame = where(e.frame("reduced"), metric="accuracy")
    rivals = {**findings.AGAINST, "shapfed": "ShapFed-WA"}
    found: dict[str, dict[str, Interval]] = {f"over {words}": {} for words in rivals.values()}
    for data, part in frame.groupby("data"):
        wide = part.pivot_table(index="seed", columns="method", values="value")
        for m, words in rivals.items():
            found[f"over {words}"][names[str(data)]] = lead(wide, "fedowen", m)
    return overviews.texts(found, signed=True)
