"""What verdicts rest on: the open choices of the papers, and the margins, each tried otherwise.

``readings.csv`` has a row per choice that a paper leaves open, ``rules.csv`` one per rule.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkit.extras import need
from reproduction.claims import Claims, load_claims, rules
from reproduction.measured import Numbers, measure
from reproduction.records import Store
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED, UNJUDGED, judge_all, verdict_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["margins", "readings", "under", "verdicts_by_reading"]


def _choice(text: str) -> dict[str, Any]:
    """Read settings such as ``"local=steps owned=0.1"``."""
    read = need("yaml", extra="run").safe_load
    return {name: read(value) for name, _, value in (pair.partition("=") for pair in text.split())}


def _asked(side: Any, judged: Mapping[str, Any], other: Mapping[str, Any]) -> Any:
    """Ask for the other choice wherever a place of our numbers asks for the judged one."""
    if isinstance(side, list):
        return [_asked(part, judged, other) for part in side]
    if not isinstance(side, Mapping):
        return side
    asked = {name: _asked(part, judged, other) for name, part in side.items()}
    for name, value in judged.items():
        if name in asked and asked[name] == value:
            asked[name] = other[name]
    if "metric" in judged and "metric" in side:
        parts = side["metric"].split(".")
        asked["metric"] = ".".join(other["metric"] if p == judged["metric"] else p for p in parts)
    return asked


def under(claims: Claims, judged: Mapping[str, Any], other: Mapping[str, Any]) -> Claims:
    """Return the claims with another choice in the place of the judged one."""
    protocol = {name: other.get(name, value) for name, value in claims.protocol.items()}
    changed = tuple(
        replace(
            c, **{side: _asked(getattr(c, side), judged, other) for side in ("ours", "against")}
        )
        for c in claims.claims
    )
    return replace(claims, protocol=protocol, claims=changed)


def verdicts_by_reading(paper: str, store: Store) -> list[dict[str, Any]]:
    """Judge a paper's claims under each other choice: choice, other, claim, before and after.

    A claim counts where it is judged under both and the other choice asks for other records.
    """
    claims = load_claims(paper)
    numbers = measure(claims, store, "paper")
    before = judge_all(claims, numbers)
    found = []
    with open(Path(__file__).with_name("readings.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] == paper]
    for row in rows:
        for text in row["others"].split("; "):
            other = under(claims, _choice(row["judged"]), _choice(text))
            there = measure(other, store, "paper")
            after = judge_all(other, there)
            for claim in claims.claims:
                one, two = (numbers.get(claim.id), there.get(claim.id))
                if not (one and two) or _same(one, two) or claim.by_construction:
                    continue
                pair = before[claim.id][1].verdict, after[claim.id][1].verdict
                if not set(pair) & set(UNJUDGED):
                    found.append({**row, "other": text, "claim": claim.id,
                                  "before": pair[0], "after": pair[1]})  # fmt: skip
    return found


def _same(one: Numbers, two: Numbers) -> bool:
    return one.keys == two.keys and one.values.tolist() == two.values.tolist()


def readings(paper: str, store: Store) -> pd.DataFrame:
    """Tell each open choice of a paper: what is judged and why, and the verdicts otherwise.

    ``turned`` counts claims that are reproduced under one choice and not under the other: they
    turn on what the paper leaves open.
    """
    found = verdicts_by_reading(paper, store)
    with open(Path(__file__).with_name("readings.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] == paper]
    lines = []
    for row in rows:
        for text in row["others"].split("; "):
            here = [f for f in found if (f["choice"], f["other"]) == (row["choice"], text)]
            after = Counter(f["after"] for f in here)
            ends = {REPRODUCED, NOT_REPRODUCED}
            lines.append({
                "choice": row["choice"],
                "judged": row["judged"],
                "other": text,
                "claims judged under both": len(here),
                "verdicts under the other": ", ".join(
                    f"{n} {verdict_text(v)}" for v, n in after.most_common()
                ) or "no records",
                "moved": sum(f["before"] != f["after"] for f in here),
                "turned": sum({f["before"], f["after"]} == ends for f in here),
                "why": row["why"],
            })  # fmt: skip
    table: pd.DataFrame = need("pandas", extra="run").DataFrame(lines)
    return table.set_index("choice")


def margins(paper: str, store: Store) -> pd.DataFrame:
    """Tell each margin of a paper with its reason, and what half and twice of it would judge."""
    claims = load_claims(paper)
    numbers = measure(claims, store, "paper")
    counts: dict[str, dict[str, str]] = {}
    for factor, name in ((0.5, "at half"), (1, "as declared"), (2, "at twice")):
        scaled = tuple(
            replace(c, test={**c.test, "margin": factor * c.test["margin"]})
            for c in claims.claims
            if "margin" in c.test and not c.rule.startswith("printed")
        )
        judged = judge_all(replace(claims, claims=scaled), numbers)
        for row in {c.test["named"] for c in scaled}:
            told = Counter(
                judged[c.id][1].verdict for c in scaled
                if c.test["named"] == row and not c.by_construction
            )  # fmt: skip
            yes, no = told[REPRODUCED], told[NOT_REPRODUCED]
            rest = sum(n for verdict, n in told.items() if verdict not in UNJUDGED) - yes - no
            counts.setdefault(row, {})[name] = f"{yes} ✓, {no} ✗, {rest} open"
    lines = [
        {"rule": row["rule"], "margin": f"{row['margin']} {row['unit']}", **counts[row["rule"]],
         "reason": row["reason"]}
        for (key, _), row in rules().items()
        if key == paper and row["margin"]
    ]  # fmt: skip
    table: pd.DataFrame = need("pandas", extra="run").DataFrame(lines)
    return table.set_index("rule")
