"""The open choices of the papers: each reading of a paper is its claims, asked of other records.

``readings.csv`` has a row per choice: what is judged, what else was run, which of these the paper's
words admit, and why.  :mod:`reproduction.verdicts` judges the others beside the judged one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedkit.extras import need
from reproduction.claims import Claims

Asked = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """Another choice than the judged one, where a paper leaves one open.

    ``admissible`` says that the paper's words allow it as well.
    """

    choice: str
    judged: str
    other: str
    admissible: bool
    why: str


@cache
def readings_of(paper: str) -> tuple[Reading, ...]:
    """Read the choices that a paper leaves open, one by one."""
    with open(Path(__file__).with_name("readings.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] == paper]
    return tuple(
        Reading(
            row["choice"], row["judged"], other, other in row["admissible"].split("; "), row["why"]
        )
        for row in rows
        for other in row["others"].split("; ")
    )


def _settings(text: str) -> dict[str, Any]:
    """Read settings such as ``"local=steps owned=0.1"``."""
    read = need("yaml", extra="run").safe_load
    return {name: read(value) for name, _, value in (pair.partition("=") for pair in text.split())}


def _elsewhere(side: Any, judged: Asked, other: Asked) -> Any:
    """Ask for the other choice wherever a place of our numbers asks for the judged one."""
    if isinstance(side, list):
        return [_elsewhere(part, judged, other) for part in side]
    if not isinstance(side, Mapping):
        return side
    if "pooled" in side:
        return {**side, "pooled": _elsewhere(side["pooled"], judged, other)}
    if not {"experiment", "metric"} <= side.keys():
        return side
    stated = {**side.get("settings", {}), **side.get("protocol", {}), **side}
    named = re.compile(rf"(?<![\w-]){re.escape(str(judged.get('metric')))}(?![\w-])")
    settings = {n: v for n, v in judged.items() if n != "metric" and stated.get(n, v) != v}
    if settings or ("metric" in judged and not named.search(side["metric"])):
        return side  # it asks for something else
    asked = {**side, "experiment": other.get("experiment", side["experiment"])}
    if "metric" in judged:
        asked["metric"] = named.sub(other["metric"], side["metric"])
    changes = {n: v for n, v in other.items() if n not in ("metric", "experiment")}
    for part in {"settings", "protocol"} & set(side):
        # in another experiment all that is other has to be said
        there = "experiment" in judged and part == "settings"
        asked[part] = side[part] | {n: v for n, v in changes.items() if there or n in side[part]}
    return asked


def under(claims: Claims, reading: Reading) -> Claims:
    """Return the claims with the other choice in the place of the judged one."""
    judged, other = _settings(reading.judged), _settings(reading.other)
    protocol = {name: other.get(name, value) for name, value in claims.protocol.items()}
    changed = tuple(
        replace(
            c,
            ours=_elsewhere(c.ours, judged, other),
            against=_elsewhere(c.against, judged, other),
        )
        for c in claims.claims
    )
    return replace(claims, protocol=protocol, claims=changed)
