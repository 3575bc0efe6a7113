"""The open choices of the papers: each reading of a paper is its claims, asked of other records.

``readings.csv`` has a row per choice: ours, where it is made, and why; and where something else is
run or planned, what is judged, the others, and which of these the paper's words admit.
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


@cache
def choices_of(paper: str) -> tuple[Mapping[str, str], ...]:
    """Read the choices that a paper leaves open, one by one."""
    with open(Path(__file__).with_name("readings.csv"), encoding="utf-8", newline="") as file:
        return tuple(row for row in csv.DictReader(file) if row["paper"] == paper)


def readings_of(paper: str) -> tuple[Reading, ...]:
    """Return the other choices that are run, or planned."""
    return tuple(
        Reading(row["choice"], row["judged"], other, other in row["admissible"].split("; "))
        for row in choices_of(paper)
        for other in row["others"].split("; ")
        if other
    )


def settings_of(text: str) -> dict[str, Any]:
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
    if any(stated.get(name, value) != value for name, value in judged.items() if name != "metric"):
        return side  # it asks for something else; what it does not state is as judged
    named = re.compile(rf"(?<![\w-]){re.escape(str(judged.get('metric')))}(?![\w-])")
    if "metric" in judged and not named.search(side["metric"]):
        return side
    changes = {n: v for n, v in other.items() if n not in ("metric", "experiment")}
    asked = {
        **side,
        "experiment": other.get("experiment", side["experiment"]),
        "metric": named.sub(other.get("metric", r"\g<0>"), side["metric"]),
        "settings": {**side.get("settings", {}), **changes},
    }
    if "protocol" in side:
        of_protocol = {n: v for n, v in changes.items() if n in side["protocol"]}
        asked["protocol"] = {**side["protocol"], **of_protocol}
    return asked


def under(claims: Claims, reading: Reading) -> Claims:
    """Return the claims with the other choice in the place of the judged one."""
    judged, other = settings_of(reading.judged), settings_of(reading.other)
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
