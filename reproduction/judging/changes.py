"""Verdicts before a change of rules, and what the change did to them.

``fedkit compare --keep`` writes the verdicts of the moment, ``fedkit compare --changes`` sets those
of today beside them.  A claim whose numbers are the same has changed by its rule; where our numbers
are others than then, the runs may be the reason, and it is counted apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkit.extras import need
from reproduction.judging.tables import markdown, verdict_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BEFORE", "changes", "changes_table", "keep_verdicts"]

BEFORE = "verdicts-before.json"
"""Name of the file inside the folder of the records."""

Verdicts = dict[str, dict[str, Any]]


def _verdicts(frame: pd.DataFrame) -> Verdicts:
    """Verdict, mean (nine digits; None where there is none) and seeds of every claim."""
    return {
        claim: {
            "verdict": verdict,
            "mean": float(f"{mean:.9g}") if math.isfinite(mean) else None,
            "seeds": int(seeds),
        }
        for claim, verdict, mean, seeds in zip(
            *(frame[name] for name in ("claim", "verdict", "mean", "seeds")), strict=True
        )
    }


def keep_verdicts(frames: Mapping[str, pd.DataFrame], root: Path) -> Path:
    """Write verdict, mean and seeds of every claim into the folder of the records.

    `frames` are of each paper all rows of :func:`~.join.join`; the file is returned.
    """
    kept = {paper: _verdicts(frame) for paper, frame in frames.items()}
    path = root / BEFORE
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def changes(frames: Mapping[str, pd.DataFrame], root: Path) -> pd.DataFrame:
    """Set the verdicts of today beside those kept.

    Returns
    -------
    pandas.DataFrame
        One row per claim: paper, claim, before, after, because: "" where the verdict is the same,
        else "rule" (same numbers), "runs" (other numbers), or "new claim" and "gone", whose before
        and after are "".
    """
    path = root / BEFORE
    if not path.is_file():
        raise ValueError(f"{path} does not exist; write it with: fedkit compare --keep")
    kept: dict[str, Verdicts] = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for paper, frame in frames.items():
        then, now = kept.get(paper, {}), _verdicts(frame)
        for claim in dict.fromkeys([*now, *then]):
            if claim not in then or claim not in now:
                rows.append((paper, claim, "", "", "new claim" if claim in now else "gone"))
                continue
            before, after = (side[claim].pop("verdict") for side in (then, now))
            moved = "rule" if then[claim] == now[claim] else "runs"
            rows.append((paper, claim, before, after, "" if before == after else moved))
    columns = ["paper", "claim", "before", "after", "because"]
    made: pd.DataFrame = need("pandas", extra="run").DataFrame(rows, columns=columns)
    return made


def changes_table(changed: pd.DataFrame) -> str:
    """Count, per paper, how many verdicts became which other one, as a markdown table."""
    papers = list(dict.fromkeys(changed["paper"]))
    causes = {"rule": "the rules", "runs": "other runs", "new claim": "new claim", "gone": "gone"}
    rows = []
    for because, what in causes.items():
        moved = changed[changed["because"] == because].groupby(["before", "after"], sort=True)
        for verdicts, part in moved:
            counts = part["paper"].value_counts()
            words = (verdict_text(str(v)) if v else "–" for v in verdicts)
            rows.append([*words, what, *(counts.get(paper, "–") for paper in papers)])
    return markdown(["before", "after", "because of", *papers], rows)
