"""The report on all five papers: every claim judged, counted, and what was found in numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedkit.intervals import Interval, mean_interval
from reproduction import NAMES, claims_file, overviews
from reproduction import figures as plots
from reproduction import verdicts as v
from reproduction.claims import load_claims
from reproduction.fedccea.findings import reduced_claims
from reproduction.fedms.findings import Evaluation as FedMS
from reproduction.fedms.findings import differences
from reproduction.records import Store
from reproduction.tables import (
    by_finding,
    by_paper,
    captioned,
    marked_verdict,
    marks_told,
    of_papers,
    powers,
)

if TYPE_CHECKING:
    from fedkit.plots import Picture

#: the papers with claims, and how each is written
WRITTEN = {paper: name for paper, name in NAMES.items() if claims_file(paper) is not None}
_HERE = Path(__file__).parent
#: what each paper promises first, by the name of the claim
HEADLINES = pd.read_csv(_HERE / "headlines.csv", index_col="claim")["promise"].to_dict()
#: what the head of the report says in numbers: by name a claim, decimals, sign, and a factor
FOUND = pd.read_csv(_HERE / "quoted.csv", index_col="name")
#: beside which the gain stands where a Maverick holds its whole class
WHOLE = "fedms.p1.mnist.vs-fedavg"
#: the words by which the page's numbers name a verdict
WORDS = {
    "yes": v.REPRODUCED, "part": v.DIRECTION, "turn": v.TURNS, "no": v.NOT_REPRODUCED,
    "not_run": v.NOT_ATTEMPTED, "shown": v.NOT_JUDGED, "never": v.UNDECIDABLE,
}  # fmt: skip
#: of what the page says how many have which verdict
SAID = {
    "n_headlines": ("yes", "part", "turn", "no"),
    "findings": ("yes", "turn", "no", "not_run", "shown", "never"),
}


@dataclass(frozen=True)
class Report:
    """All claims, judged by the records of one profile; FedCCEA's headlines by reduced runs."""

    records: str = "paper"
    store: Store = field(default_factory=Store)

    @cached_property
    def papers(self) -> dict[str, v.Judged]:
        """The claims of each paper, judged in our reading and in others, by its name."""
        return {
            name: v.Judged(load_claims(paper), self.store, self.records, "paper")
            for paper, name in WRITTEN.items()
        }

    @cached_property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The claims of each paper with their verdicts, by its name."""
        return {name: judged.frame() for name, judged in self.papers.items()}

    @cached_property
    def everything(self) -> pd.DataFrame:
        """All claims, by id."""
        return of_papers(self.frames).set_index("claim", drop=False)

    @cached_property
    def claims(self) -> pd.DataFrame:
        """Those that do not hold or fail by construction."""
        return self.everything[~self.everything["by_construction"].astype(bool)]

    @cached_property
    def judged(self) -> pd.DataFrame:
        """Those of them that are judged."""
        return self.claims[~self.claims["verdict"].isin(v.UNJUDGED)]

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One vote per finding, with its paper."""
        papers = self.claims.groupby("paper_key", sort=False)
        return of_papers({str(name): by_finding(frame) for name, frame in papers})

    @cached_property
    def headlines(self) -> pd.DataFrame:
        """What each paper promises first, FedCCEA's as its chapter judges it."""
        few = v.join(reduced_claims(), self.store, profile="laptop", scale="laptop")
        few = few[few["claim"].isin(HEADLINES)].set_index("claim", drop=False)
        rest = self.everything.drop(few.index)
        return pd.concat([rest, few.assign(paper_key="FedCCEA*")]).loc[list(HEADLINES)]

    @cached_property
    def fedms(self) -> Mapping[str, Interval]:
        """FedMS's differences, with its Mavericks' whole class among them."""
        return differences(FedMS(self.records, self.store))

    @property
    def counted_headlines(self) -> pd.DataFrame:
        """Those that the report counts: runs of the paper's scale, and nothing by construction."""
        table = self.headlines
        ours = table["paper_key"].isin(WRITTEN.values()) & table.index.isin(self.claims.index)
        return table[ours]


def decided(told: pd.DataFrame) -> tuple[int, int, int]:
    """Count what is decided of claims or findings, what can be with our records, what is testable.

    Decided is what holds, fails, or turns on a lost number.  It cannot be by a printed spread that
    is too wide, and not without a record.
    """
    verdicts = told["verdict"]
    yes = int(verdicts.isin(v.DECIDED).sum())
    can = int((~verdicts.isin([*v.UNJUDGED, v.UNDECIDABLE])).sum())
    return yes, can, int((verdicts != v.NOT_TESTABLE).sum())


def numbers(report: Report) -> dict[str, Any]:
    """What the page says in numbers, by the names under which it shows them."""
    claims, findings = report.claims, report.findings
    later = claims["after_runs"] != ""
    early = report.judged["verdict"][~later[report.judged.index]]
    counted = report.counted_headlines
    good = counted[counted["verdict"].isin(v.HOLDS)]
    ticks = claims["also_fits"].dropna()
    found: dict[str, Any] = {
        "n_claims": len(report.everything),
        "n_construction": len(report.everything) - len(claims),
        "n_findings": len(findings),
        "n_judged": len(report.judged),
        "n_ccea": int((report.judged["paper_key"] == "FedCCEA").sum()),
        "n_later_judged": int(later[report.judged.index].sum()),
        "n_early_judged": len(early),
        "n_early_holds": int(early.isin(v.HOLDS).sum()),
        "n_early_no": int((early == v.NOT_REPRODUCED).sum()),
        "n_later_yes": int((claims[later]["verdict"] == v.REPRODUCED).sum()),
        "n_ticks": len(ticks),
        "n_telling": int((ticks == 0).sum()),
        "n_headlines": len(counted),
        "n_headlines_good": len(good),
        "n_headlines_later": int((good["after_runs"] != "").sum()),
    }
    for part, frame in (("n_headlines", counted), ("findings", findings)):
        for word in SAID[part]:
            found[f"{part}_{word}"] = int((frame["verdict"] == WORDS[word]).sum())
    for basis, frame in (("claims", claims), ("findings", findings)):
        yes, can, testable = decided(frame)
        never = int((frame["verdict"] == v.UNDECIDABLE).sum())
        for share, whole in (("can", can), ("decidable", testable - never), ("testable", testable)):
            found[f"{basis}_{share}_share"] = f"{100 * yes / max(whole, 1):.1f}"
    idle = findings["verdict"].isin([v.NOT_ATTEMPTED, v.NOT_JUDGED]).sum()
    found["findings_idle_share"] = f"{100 * idle / max(decided(findings)[2], 1):.1f}"
    return found | _measured(report)


def _shown(cut: Interval, digits: int, signed: bool) -> str:
    """Write a mean with its interval; one without width says in how many runs all were alike."""
    text = cut.text(digits, signed=signed)
    if cut.low == cut.high:
        text = f"{cut.mean:.{digits}f} (in each of {cut.n} runs)"
    return text.replace("-", "−")


def _measured(report: Report) -> dict[str, str]:
    told = {}
    quoted: Any
    for quoted in FOUND.itertuples():
        cut = overviews.measured(report.everything.loc[quoted.claim])
        mean, low, high = (quoted.scale * end for end in (cut.mean, cut.low, cut.high))
        cut = Interval(mean, low, high, cut.n)
        told[f"find-{quoted.Index}"] = _shown(cut, quoted.digits, quoted.signed)
    for name in ("owen", "owen-too", "ms"):
        told[f"find-{name}-printed"] = f"{float(report.everything.paper[FOUND.claim[name]]):+.1f}"
    told["find-ms-whole"] = _shown(report.fedms["ms-whole"], 1, True)
    unseen = report.store.frame("fedccea", "contribution", "laptop")
    for name, metric in (("ccea", "unseen.fedccea"), ("ccea-second", "unseen.connected")):
        part = unseen[unseen.metric == metric]
        share = part.groupby(["dataset", "distribution", "noise"]).value.mean()
        told[f"find-{name}"] = _shown(mean_interval(100 * share), 1, False)
    return told


# ------------------------------------------------------------------- tables and the figure


def _printed(row: Any) -> str:
    """Write a printed number, powers of ten as such and a mean of several with two decimals."""
    text = row["paper"]
    if not isinstance(text, str):
        return "in words"
    return f"{float(text):+.2f}" if abs(float(text)) > 1 else powers(text)


@captioned(cards=True)
def headlines(report: Report) -> Any:
    """The headline claims of the five papers: the number as printed, ours with its 95% interval
    over n seeds (of FedValue's correlations over batches of repetitions), and the verdict. An
    asterisk: runs with 300 samples per client, which are not counted on this page.{marks}
    """
    rows = {}
    for claim, row in report.headlines.iterrows():
        digits = 1 if abs(row["mean"]) >= 1.5 or row["unit"].startswith(("%", "points")) else 3
        digits = 2 if row["paper_key"] == "FedTSV" else digits
        cut = overviews.measured(row)
        ours = f"{cut.text(digits)}, n = {cut.n}" if cut.n else f"{cut.mean:.{digits}f}"
        if claim == WHOLE:
            whole = report.fedms["ms-whole"]
            ours += f"; with its whole class (one setting) {whole.text(digits)}, n = {whole.n}"
        rows[f"{row['paper_key']}: {HEADLINES[str(claim)]}"] = {
            "printed": _printed(row), "ours": ours, "verdict": marked_verdict(row),
        }  # fmt: skip
    return overviews.table(rows), {"marks": marks_told(report.headlines)}


@captioned(cards=True)
def headlines_otherwise(report: Report) -> Any:
    """The headline claims that other readings on record judge as well: the verdict in the judged
    reading, how many others there are, and those with another verdict. Readings that the paper's
    words do not allow are shown for comparison.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, judged in report.papers.items():
        for moved in (m for _, told in judged.otherwise() for m in told if m.claim in HEADLINES):
            here = {
                "verdict": v.verdict_text(report.everything.verdict[moved.claim]),
                "readings": 0,
                "another verdict in": [],
            }
            row = rows.setdefault(f"{name}: {HEADLINES[moved.claim]}", here)
            row["readings"] += 1
            if moved.before != moved.after:
                ours = "" if moved.reading.admissible else " (not the paper's words)"
                reading = re.sub(r"experiment=\w+ ", "", moved.reading.other)
                if "split=blocks lr=0.1" in moved.reading.other:  # many settings at once
                    reading = "the federation of blocks"
                verdict = f"{reading}{ours}: {v.verdict_text(moved.after)}"
                row["another verdict in"].append(verdict)
    for row in rows.values():
        row["another verdict in"] = "; ".join(row["another verdict in"]) or "none"
    return overviews.table(rows)


@captioned()
def verdicts(report: Report) -> Any:
    """Verdicts: claims / findings. Claims that say one thing in several readings are one finding
    with one vote. Claims that hold or fail by construction are left out of both.
    """
    claims, findings = (by_paper(told).astype(str) for told in (report.claims, report.findings))
    return (claims + " / " + findings).rename(index=v.verdict_text)


def bars(report: Report) -> Picture:
    """Draw a bar per paper: the share of its findings with each verdict."""
    counts = by_paper(report.findings).drop(columns="all").T
    return plots.stacked(counts, v.LOOKS, "share of the paper's findings, %")


@captioned()
def rules(report: Report) -> Any:
    """The rules by which claims were judged, as a claim and the policy name them; how many claims
    each judged, and how many of these were written or changed after the runs.
    """
    judged = report.judged.assign(rule=report.judged["rule"].str.split(" ").str[0])
    later = judged[judged["after_runs"] != ""]
    counts = {"judged claims": judged["rule"], "of them after the runs": later["rule"]}
    table = pd.DataFrame({name: rows.value_counts() for name, rows in counts.items()})
    table = table.fillna(0).astype(int).sort_values("judged claims", ascending=False)
    return table.rename_axis(None)
