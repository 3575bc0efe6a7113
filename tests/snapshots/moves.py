"""``python -m tests.snapshots.moves`` writes which verdicts moved and why, from git.

Every commit that changed the snapshot of claims has a cause here, and the next one is added when
the snapshot is accepted anew.
"""

from __future__ import annotations

import csv
import io
import subprocess

from reproduction.verdicts import DECIDED

from .rooms import HERE

MOVES = HERE.parents[1] / "book" / "verdict-moves.csv"
FIRST = "62f1fc46"
CAUSES = (
    ("286b53ee", "rule", "what cannot be decided by the printed spread is told apart"),
    ("4bdba4a4", "rule", "what holds in one admissible reading and fails in another turns"),
    ("558f6dbb", "rule", "cells of narrow columns are judged by their places"),
    ("32753b10", "reading, seeds", "FedValue's market with gender and age, ten times the draws"),
    ("f4759ce9", "seeds", "more repetitions of FedValue's Table 9"),
    ("97afdfdd", "reading", "readings that rest on a default find the records that there are"),
    ("5c08a152", "rule", "what cannot be decided is so before there are seeds enough"),
    ("914d2512", "seeds", "all 200 repetitions of FedValue's Table 9"),
    ("4951f311", "a new claim", "one reading more of the 23% in FedOwen's abstract"),
)


def verdicts(commit: str) -> dict[str, str]:
    """Read the verdict of every claim as it was at a commit."""
    command = ["git", "show", f"{commit}:tests/snapshots/claims.csv"]
    text = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout
    return {row["claim"]: row["verdict"] for row in csv.DictReader(io.StringIO(text))}


def decided(told: dict[str, str]) -> set[str]:
    """Return the claims that hold, fail, or turn."""
    return {claim for claim, verdict in told.items() if verdict in DECIDED}


def moves() -> list[dict[str, str | int]]:
    """Count, cause by cause, the claims whose verdict moved, and those that are decided since."""
    before, rows = verdicts(FIRST), []
    for commit, cause, what in CAUSES:
        after = verdicts(commit)
        moved = {claim for claim, verdict in after.items() if verdict != before.get(claim, verdict)}
        was, now = decided(before), decided(after)
        rows.append({
            "cause": cause, "what changed": what, "decided before": len(was),
            "moved": len(moved), "decided since": len(now - was), "open again": len(was - now),
            "decided otherwise": len(moved & was & now), "decided after": len(now),
        })  # fmt: skip
        before = after
    return rows


if __name__ == "__main__":
    found = moves()
    with MOVES.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
