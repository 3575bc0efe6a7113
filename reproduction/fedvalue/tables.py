"""The tables of the pages on FedValue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from fedkit.fedvalue.protocol.verification import best_shift
from fedkit.intervals import Interval, bounded_interval
from reproduction import figures as plots
from reproduction import overviews
from reproduction import tables as pages
from reproduction.fedvalue import findings
from reproduction.fedvalue.experiments import MAIN, MILD, PLACES
from reproduction.fedvalue.findings import STRATEGIES, Evaluation
from reproduction.figures import Shown
from reproduction.overviews import where

# ------------------------------------------------------------------------ claims

#: by claim its words, how the paper puts it, decimals, and our unit
Told = Mapping[str, tuple[str, str, int, float]]
#: the main claims
_VALUE = {
    "correlations-above-70": ("correlations with one model's SHAP above 0.7 (%)", "91.7", 1, 1),
    "correlations-above-80": ("correlations with one model's SHAP above 0.8 (%)", "65.7", 1, 1),
    "deceived.3": ("a lie about a count passes, q of 2 or 3 (%)", "100·2⁻³²", 1, 100),
    "excluded.redundant": ("paid to redundant parties, each run's worst column (%)", "0", 1, 1),
    "excluded.free-riders": ("paid to free-riders, each run's worst column (%)", "0", 1, 1),
    "p5.auc.vs-volume": ("AUC, lead over VOLUME, all honest", "+0.016", 3, 1),
    "p5.auc.vs-vf-ps": ("AUC, lead over VF-PS, all honest", "+0.006", 3, 1),
    "p7.auc.vs-vf-ps": ("AUC, lead over VF-PS, free-riders", "+0.007", 3, 1),
}


#: claims of section 6 in words
_MARKET = {
    "excluded.redundant": ("redundant among the paid, each run's worst column (%)", "0", 1, 1),
    "excluded.free-riders": ("free-riders among the paid, each run's worst column (%)", "0", 1, 1),
    "tight.accuracy": ("lead over VF-PS is larger with 1α than with 3α: accuracy", "above 0", 3, 1),
    "tight.auc": ("lead over VF-PS is larger with 1α than with 3α: AUC", "above 0", 3, 1),
    "cheaper.fix": ("accuracy with 2α is above VF-PS's with 3α, FIX", "above 0", 3, 1),
    "cheaper.var": ("accuracy with 2α is above VF-PS's with 3α, VAR", "above 0", 3, 1),
    "larger-with-redundant": ("redundant parties add to the lead, accuracy", "above 0", 3, 1),
}
#: claims of section 5
_EXPERIMENTS = {
    "correlations-above-70": ("correlations above 0.7 (%)", "91.7", 1, 1),
    "correlations-above-80": ("correlations above 0.8 (%)", "65.7", 1, 1),
    "ensemble-above-80.5": ("those with SHAP-ensemble 0.05 above 0.8 (%)", "at least 90", 1, 1),
    "ensemble-above-80.2": ("those with SHAP-ensemble 0.02 above 0.8 (%)", "at least 90", 1, 1),
    "better-models": ("correlation of accuracy and bar", "above 0", 2, 1),
    "sampling.breast": ("Breast: error left by 1200 orders, of that by 100", "at most 0.5", 2, 1),
    "sampling.music": ("Music: error left by 1200 orders, of that by 100", "at most 0.5", 2, 1),
    "sampling-converges.breast": ("Breast: error with 2400 orders (%)", "at most 5", 1, 1),
    "sampling-converges.music": ("Music: error with 2400 orders (%)", "at most 5", 1, 1),
    "pca.breast": ("Breast: MAPE is larger with 2 components than with 4", "above 0", 1, 1),
    "pca.music": ("Music: MAPE is larger with 2 components than with 4", "above 0", 1, 1),
}
#: the claims that a page shows, and what it says of them
_CLAIMS: dict[str, tuple[Told, str]] = {
    "value": (
        _VALUE,
        "What the paper says, and what our records of runs at its scale give, with 95% intervals. "
        "VOLUME and VF-PS are the paper's other ways to choose suppliers; leads in AUC are means "
        "over the cells of a table.",
    ),
    "market": (
        _MARKET,
        "What the text of section 6 claims for FedValue, and our means with 95% intervals over "
        "the repetitions. The two shares are means of the worst of six columns.",
    ),
    "experiments": (
        _EXPERIMENTS,
        "The claims of section 5 with our means and 95% intervals, over five batches or seeds, for "
        "better models over six data sets. Where the paper has words only, the number claimed is "
        "our reading of them.",
    ),
}


def claims(e: Evaluation, page: str) -> Shown:
    """Show the claims of a page: the paper's words, our number, and the verdict."""
    told, caption = _CLAIMS[page]
    rows = {}
    for name, (words, printed, digits, times) in told.items():
        i = e.ours(name)
        ours = Interval(times * i.mean, times * i.low, times * i.high, i.n).text(digits)
        rows[f"fedvalue.{name}"] = (words, printed, ours)
    frame, fields = pages.main_claims(e.claims, rows)
    return plots.table(frame, caption + fields["marks"], cards=True)


# ------------------------------------------------------------------------ the market


@pages.captioned(decimals=3)
def levels(e: Evaluation) -> Any:
    """By how much our AUC is above the printed one, means over price lists and budgets, with
    XGBoost's default trees and with milder ones. The agency knows occupations here too.
    """
    found: dict[str, dict[str, float]] = {}
    for (number, usual), trees in product(zip((5, 6, 7), MAIN, strict=True), ({}, MILD)):
        case = replace(usual, **trees)
        frame = e.played(case)
        found[f"Table {number}, depth {case.trees_depth}, rate {case.trees_rate}"] = {
            STRATEGIES[name]: float(np.mean([
                findings.cut(frame, "auc", name, [f"{scheme}.{budget}"]).mean
                - e.printed(f"t{number}.{scheme}.auc.b{budget}.{name}")
                for scheme, budget in PLACES
            ]))
            for name in ("random", "volume", "vf-ps", "fedvalue")
        }  # fmt: skip
    return overviews.table(found)


@pages.captioned(cards=True)
def tested(e: Evaluation) -> Any:
    """Who passes the test, in percent of the sellers of a kind, and in how many repetitions nobody
    does; and by how much the AUC with 3α under FIX is above that of two strategies which spend all
    of it. Means over 20 repetitions with 95% intervals.
    """
    kinds = {"high": "honest, high volume", "low": "honest, low volume", "odd": "odd",
             "nobody": "nobody passes"}  # fmt: skip
    lines = {}
    for (crowd, records), case in product(
        (("MovieLens-1M", e.records), ("MovieLens-100K", "laptop")), findings.JUDGED_MARKET
    ):
        mine = e.played(case, records, "tested")
        found = {k: findings.per_seed(mine, f"passes.{k}") for k in kinds}
        line = {
            words: bounded_interval(found[k], 0, 100).text(0) if len(found[k]) else "–"
            for k, words in kinds.items()
        }
        for rival in ("fedvalue-corrected", "vf-ps"):
            ahead = findings.ahead_when_tested(e, case, rival, records)
            line[f"AUC against {STRATEGIES[rival]}"] = ahead.text(3, signed=True)
        lines[f"{crowd}, {case.scenario}"] = line
    return overviews.table(lines)


# ------------------------------------------------------------------------ SHAP


@pages.captioned(decimals=0)
def readings_of_figure4(e: Evaluation) -> Any:
    """Correlations with SHAP under five readings of the setting; the last three without Credit. The
    paper has 91.7% and 65.7%, with 50 repetitions per bar. A bar is the mean of all its
    repetitions here; the claims take five batches of ten, whose shares are a point or so apart.
    """
    columns = {
        "above 0.7 (%)": "MShapley-CMI above 0.7 (%)",
        "above 0.8 (%)": "above 0.8 (%)",
        "control above 0.7 (%)": "own information above 0.7 (%)",
        "repetitions": "repetitions per bar",
    }
    return findings.by_reading(e)[[*columns]].rename(columns=columns)


@pages.captioned()
def sizes(e: Evaluation) -> Any:
    """What the panels of Figure 4 have in common, means over the repetitions. Values are exact
    where the table says so, and elsewhere sampled with the error shown. Joint cells per row are 1
    where no two rows agree in all columns.
    """
    return findings.facts(findings.reading(e)).round(12)


# ------------------------------------------------------------------------ the protocol


@pages.captioned(decimals=1)
def bets(e: Evaluation) -> Any:
    """The best bet against Algorithm 1 as printed, by the numbers that q is drawn from: share of
    counts falsified unnoticed (%) with exact 95% intervals, from records, and three bounds. Two
    iterations, 16 cells.
    """
    rows = {}
    part = where(e.frame("security"), protocol="printed", attack="best bet")
    for low, high in sorted(set(zip(part.low, part.high, strict=True))):
        found = where(part, low=low, high=high)
        value = found.groupby("metric").value.mean()
        power = str(round(np.log(value["bound.paper"]) / np.log(low)))  # too small for a percentage
        rows[f"{low}" if low == high else f"{low} to {high}"] = {
            "measured": findings.passed(found).text(1),
            "the server's best (ours)": 100 * best_shift((low, high), 2)[0],
            "one count (paper's proof)": f"{100 * value['bound.per_cell']:.1f}",
            "Proposition 2": f"100·{low}{power.translate(pages.RAISED)}",
        }
    return overviews.table(rows)


@pages.captioned(decimals=1)
def noise(e: Evaluation) -> Any:
    """Three data parties with 1 feature each, whose few cells can all be given noise, by data set,
    defence and its level (of noise: epsilon). Means over ten random deals of columns.
    """
    names = {
        "certain": "certain (%)", "guessed": "best guess right (%)",
        "blind": "right without counts (%)", "error": "error of values (%)",
    }  # fmt: skip
    rows: dict[str, dict[str, float]] = {}
    for (metric, dataset, defence, level), i in findings.leaks(e, 3, 1).items():
        if metric in names:
            place = f"{dataset}, {defence}" + f" {level:g}" * (defence != "none")
            rows.setdefault(place, {})[names[metric]] = i.mean
    return overviews.table(rows)[[*names.values()]].sort_index()


PAGE = pages.Page(Evaluation, findings.STRATEGIES)
PAGE.choices("fedvalue")
PAGE.add(sizes, "Sizes of the values")
PAGE.printed(
    "t8", "t5", "t6", "t6s", "t7", "t7s", "t9.movies", "t9.candidates", "t9.features", "t9.high",
    "t9.redundant", "t9.free-riders",
)  # fmt: skip
PAGE.add(noise, "Leaks and defences")
every = PAGE.every
