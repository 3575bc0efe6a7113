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

from fedkit.claims.tables import markdown, verdict_text
from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BEFORE", "changes", "changes_table", "keep_verdicts"]

BEFORE = "verdicts-before.json"
"""Name of the file inside the folder of the records."""


def _entry(row: Mapping[Any, Any]) -> dict[str, Any]:
    mean = float(row["mean"])
    return {
        "verdict": row["verdict"],
        "mean": float(f"{mean:.9g}") if math.isfinite(mean) else None,
        "seeds": int(row["seeds"]),
    }


def keep_verdicts(frames: Mapping[str, pd.DataFrame], root: Path) -> Path:
    """Write verdict, mean and seeds of every claim, and return the file.

    Parameters
    ----------
    frames : mapping of str to pandas.DataFrame
        Of each paper all rows of :func:`fedkit.claims.join.join`.
    root : Path
        Folder of the records.
    """
    kept = {
        paper: {row["claim"]: _entry(row) for row in frame.to_dict("records")}
        for paper, frame in frames.items()
    }
    path = root / BEFORE
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def changes(frames: Mapping[str, pd.DataFrame], root: Path) -> pd.DataFrame:
    """Set the verdicts of today beside those kept.

    Returns
    -------
    pandas.DataFrame
        One row per claim: paper, claim, kind, before, after, because: "" where the verdict is the
        same, else "rule" (same numbers), "runs" (other numbers), or "new claim"; a claim that has
        gone has the after "".
    """
    pd = need("pandas", extra="run")
    path = root / BEFORE
    if not path.is_file():
        raise ValueError(f"{path} does not exist; write it with: fedkit compare --keep")
    kept = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for paper, frame in frames.items():
        left = dict(kept.get(paper, {}))
        for row in frame.to_dict("records"):
            old, new = left.pop(row["claim"], None), _entry(row)
            if old is None:
                because = "new claim"
            elif old["verdict"] == new["verdict"]:
                because = ""
            else:
                same = (old["mean"], old["seeds"]) == (new["mean"], new["seeds"])
                because = "rule" if same else "runs"
            before = old["verdict"] if old else ""
            rows.append((paper, row["claim"], row["kind"], before, new["verdict"], because))
        rows += [(paper, name, "", old["verdict"], "", "gone") for name, old in left.items()]
    return pd.DataFrame(rows, columns=["paper", "claim", "kind", "before", "after", "because"])


def changes_table(changed: pd.DataFrame) -> str:
    """Count, per paper, how many verdicts became which other one, as a markdown table.

    Parameters
    ----------
    changed : pandas.DataFrame
        From :func:`changes`.
    """
    papers = list(dict.fromkeys(changed["paper"]))
    told = changed.copy()
    told.loc[told["because"].isin(["new claim", "gone"]), ["before", "after"]] = ""
    causes = {"rule": "the rules", "runs": "other runs", "new claim": "new claim", "gone": "gone"}
    rows = []
    for because, what in causes.items():
        moved = told[told["because"] == because].groupby(["before", "after"], sort=True)
        for verdicts, part in moved:
            counts = part["paper"].value_counts()
            words = (verdict_text(str(v)) if v else "–" for v in verdicts)
            rows.append([*words, what, *(counts.get(paper, "–") for paper in papers)])
    return markdown(["before", "after", "because of", *papers], rows)
