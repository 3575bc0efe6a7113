"""The comparison as tables for a page: markdown, verdicts as icon and words, never colour."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from fedkit.extras import need
from reproduction import overviews, widgets
from reproduction import verdicts as v
from reproduction.claims import Claims, rules
from reproduction.measured import Measured
from reproduction.readings import choices_of
from reproduction.records import Store
from reproduction.widgets import Shown, typeset

#: digits of an exponent
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: What may stand beside a verdict, and what it says.
_MARKS = {
    "‡": "written or reworded after the runs, when its numbers could be known, so the claim "
    "describes and does not test",
    "by construction": "the claim holds or fails whatever the data are",
    "†": "from records that the code no longer gives",
}


def marked_verdict(row: Any) -> str:
    """Write the verdict of one row of :func:`reproduction.verdicts.join` with its marks."""
    return _with_remarks(row) + (" †" if row["stale"] else "")


def _with_remarks(row: Any) -> str:
    words = v.verdict_text(row["verdict"]) + " ‡" * bool(row["after_runs"])
    return words + ", by construction" * bool(row["by_construction"])


def marks_told(frame: pd.DataFrame) -> str:
    """Explain the marks of these claims, as the last sentence of a table's caption."""
    rows = frame.to_dict("records")
    shown = " ".join(map(marked_verdict, rows))
    found = [f"{mark}: {told}" for mark, told in _MARKS.items() if mark in shown]
    return f" Beside a verdict, {'; '.join(found)}." if found else ""


def _fits(row: Any) -> str:
    """Say how many other rows of its column a reproduced number fits too; empty elsewhere."""
    if not math.isfinite(row["also_fits"]):
        return ""
    if not row["also_fits"]:
        return "fits no other row"
    return f"also fits {row['also_fits']:.0f} of {row['other_rows']:.0f} other rows"


def _copied(row: Any) -> str:
    """Say of what copy of the paper's data a row's numbers are; empty where it is the paper's."""
    return v.copy_told(row["entry"]) if row["profile"] else ""


def _says(row: Any) -> str:
    """Return the sentence of a claim with what is to be known of it."""
    marks = [f"after the runs: {row['after_runs']}"] if row["after_runs"] else []
    marks += ["holds or fails by construction"] if row["by_construction"] else []
    return f"{row['says']} [{'; '.join(marks)}]" if marks else str(row["says"])


def powers(text: str) -> str:
    """Write numbers such as 4e-08 as powers of ten."""
    return re.sub(
        r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)\b",
        lambda m: f"{m[1]}·10{str(int(m[2])).translate(RAISED)}",
        text,
    )


def _number(value: float, digits: int) -> str:
    """Write a number with some decimals; whole ones plain, tiny ones by their leading digits."""
    if digits == 2 and value == int(value):
        return str(int(value))
    if value != 0 and abs(value) < 0.5 * 10**-digits:
        return powers(f"{value:.1e}")
    return f"{value:.{digits}f}"


def _ours(row: Any) -> tuple[str, str, str]:
    """Write the numbers of one claim: the printed one, ours, and the difference.

    Ours is ``mean [low, high], n = k``; a dash stands for no number, a dagger marks records
    that the code no longer gives.  Decimals are those of the printed number, but two at the least.
    """
    printed = row["paper"] if isinstance(row["paper"], str) else ""
    # a power of ten has no decimals to keep
    digits = 2 if "e" in printed else max(len(printed.partition(".")[2]), 2)
    text = "–"
    if math.isfinite(row["mean"]):
        text = _number(row["mean"], digits)
        if math.isfinite(row["low"]):
            text += f" [{_number(row['low'], digits)}, {_number(row['high'], digits)}]"
        text += f", n = {int(row['seeds'])}" if row["seeds"] else ""
        text += " †" if row["stale"] else ""
    off = row.get("difference", math.nan)
    return printed, text, _number(off, digits) if math.isfinite(off) else ""


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def choices(paper: str) -> str:
    """Write the table of what a paper leaves open: our choice with its reason, and where it is."""
    rows = [
        (row["choice"], ": ".join(filter(None, (row["ours"], row["why"]))), row["where"])
        for row in choices_of(paper)
    ]
    return markdown(["open point", "our choice", "where"], rows)


def captioned(**look: Any) -> Callable[[Callable[..., Any]], Callable[..., Shown]]:
    """Make a table of a page of what a function returns; its docstring is the caption.

    The function returns a frame, or a frame and the fields of its caption; `look` are options of
    :func:`reproduction.widgets.table`.
    """

    def decorate(made: Callable[..., Any]) -> Callable[..., Shown]:
        @wraps(made)
        def shown(*arguments: Any) -> Shown:
            found = made(*arguments)
            frame, fields = found if isinstance(found, tuple) else (found, {})
            caption = re.sub(r"\s*\n\s*", " ", str(made.__doc__)).strip()
            return widgets.table(frame, caption.format(**fields), **look)

        return shown

    return decorate


@dataclass(frozen=True)
class Page:
    """The page of all tables of a paper, in the order in which they are declared.

    `evaluation` makes, of a profile, what its tables are made of; `names` are how rows and columns
    of the printed tables are written.
    """

    evaluation: Callable[[str], Any]
    names: Mapping[str, str] = field(default_factory=dict)
    parts: list[tuple[str, str, Callable[[Any], Any]]] = field(default_factory=list)

    def add(self, show: Callable[[Any], Any], title: str = "", words: str = "") -> None:
        """Add text or a figure, below a heading and a few words; those of a figure caption it."""
        self.parts.append((title, words, show))

    def table(
        self, title: str = "", words: str = "", **look: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Shown]]:
        """Add a table, as :func:`captioned` makes it, below a heading and a few words."""

        def declare(made: Callable[..., Any]) -> Callable[..., Shown]:
            shown = captioned(**look)(made)
            self.add(shown, title, words)
            return shown

        return declare

    def choices(
        self,
        paper: str,
        words: str = "",
        judged: Callable[[Any], Any] = attrgetter("entries", "records"),
    ) -> None:
        """Add what a paper leaves open, and the verdicts under other choices that are on record.

        `judged` makes, of the evaluation, the claims and the profile of their records.
        """
        caption = "Open points, our choices with reasons, and where they are."
        self.add(lambda e: _numbered(caption, choices(paper)), "What the paper leaves open", words)
        self.add(lambda e: other_choices(e.store, *judged(e)))

    def printed(self, *tables: str) -> None:
        """Add tables of the paper by their ids, cell by cell; parts of one stand below each other.

        Shown are columns of which some cell is judged.
        """
        for number, parts in itertools.groupby(tables, lambda table: table[1]):
            for k, part in enumerate(parts):
                title = "" if k else f"Table {number}, cell by cell"
                self.add(partial(_cells, table=part, names=self.names), title)

    def every(self, records: str = "paper") -> Iterator[tuple[str, str, Any]]:
        """List title, words, and table or figure."""
        e = self.evaluation(records)
        return ((title, words, show(e)) for title, words, show in self.parts)


def _cells(e: Any, table: str, names: Mapping[str, str]) -> str:
    """Write a printed table of an evaluation's paper: printed, ours, and the verdict."""
    claims = e.claims[[c.place.get("table") == table for c in e.claims.entry]]
    places = [{**c.place, "row": ""} for c in claims.entry]
    judged = [place for place, x in zip(places, claims.verdict, strict=True) if x not in v.UNJUDGED]
    shown = claims[[place in judged for place in places]]
    words = f"The paper's {e.entries.tables[table].where}: printed, ours with its 95% interval, "
    words += "and the verdict; beside a tick, how many other rows of its column our number would "
    words += f"fit.{marks_told(shown)}"
    told = _numbered(words, comparison_table(shown, table, names))
    return f"::::{{div}} full-width fedkit-cells\n{told}\n::::"


def _numbered(words: str, table: str) -> str:
    """Give a table in Markdown the caption with which the book numbers it."""
    return f":::{{table}} {words}\n\n{table}\n\n:::"


def main_claims(
    judged: pd.DataFrame, claims: Mapping[str, tuple[str, str, str]]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return a table of claims, by name in words, as printed and as ours.

    Beside it what its caption says: the marks of the verdicts, and how many seeds there are.
    """
    rows = {
        words: {
            "paper": printed,
            "ours": ours.replace(" ", "\u00a0"),
            "verdict": marked_verdict(judged.loc[name]),
        }
        for name, (words, printed, ours) in claims.items()
    }
    told = judged.loc[[*claims]]
    return overviews.table(rows), {
        "marks": marks_told(told), "seeds": overviews.seeds_told(told.seeds),
    }  # fmt: skip


def show(paper: str, every: Iterable[tuple[str, str, Any]]) -> None:
    """Show all tables of a paper in a notebook: a heading, a few words, and the table or figure.

    An empty title goes on with the section before. The words of a figure are its caption; text is
    markdown, whose ``{ref}`` and the like are followed. A section's label is the paper and its
    title, such as ``fedms-one-change-at-a-time``.
    """
    display = need("IPython.display", extra="book")
    for title, words, shown in every:
        label = "-".join([paper.lower(), *re.findall(r"[a-z0-9]+", title.lower())])
        picture = hasattr(shown, "savefig")
        heading = f"({label})=\n## {title}" if title else ""
        parts = (heading, "" if picture else words, shown if isinstance(shown, str) else "")
        if any(parts):
            display.display(display.Markdown("\n\n".join(filter(None, parts))))
        if picture:
            figure = {"figure": {"caption": words}, "image": {"alt": words}}
            display.display(shown, metadata={"mystnb": figure})
        elif not isinstance(shown, str):
            display.display(shown)


def claims_table(frame: pd.DataFrame, *, commands: bool = False) -> str:
    """Write rows of :func:`reproduction.verdicts.join`, one per line, as a markdown table.

    With `commands` each has the command that produces our number.
    """
    head = ["claim", "where", "paper", "ours [95% CI]", "difference", "rule", "verdict"]
    head += ["other rows", *(["command"] if commands else [])]
    rows = []
    for row in frame.to_dict("records"):
        printed, ours, off = _ours(row)
        note = f" ({row['note']})" if row["note"] else ""
        paper = f"{printed} {row['unit']}".strip() if printed else "not printed"
        verdict = v.verdict_text(row["verdict"]) + note
        line = [_says(row), row["where"], paper, ours, off or "–", row["rule"], verdict]
        line.append(_fits(row) or "–")
        line = [*map(powers, line)]
        command = f"`{row['command']}`" if row["command"] else "–"
        rows.append([*line, command] if commands else line)
    told = [k for k in range(len(head)) if any(line[k] != "–" for line in rows)]
    return markdown([head[k] for k in told], [[line[k] for k in told] for line in rows])


def claims_listed(frames: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """List every claim of several papers as text, what is judged first.

    Also returns how `reproduction.figures.finder` shows it: the columns that filter, the numbers
    that sort, and rule, note, place and command, which are folded below each claim.
    """
    rows = []
    for paper, frame in frames.items():
        for row in frame.to_dict("records"):
            printed, ours, off = _ours(row)
            apart = "after the runs" if row["after_runs"] else "before the runs"
            said = {
                "where": row["where"], "unit": row["unit"], "rule": row["rule"],
                "difference": off, "note": row["note"], "after the runs": row["after_runs"],
                "ticks": _fits(row),
            }  # fmt: skip
            told = powers("\n".join(f"{k}: {v}" for k, v in said.items() if v))
            told += row["command"] and f"\ncommand: `{row['command']}`"
            rows.append({
                "paper": paper,
                "table": str(row["where"]).split(",")[0],
                "claim": row["says"],
                "printed": powers(printed).replace("-", "−") or "–",
                "ours [95% CI]": ours.replace("-", "−"),
                "verdict": v.verdict_text(row["verdict"]),
                "declared": "by construction" if row["by_construction"] else apart,
                "judged": row["verdict"] not in v.UNJUDGED,
                "key": row["mean"],
                "printed key": float(printed) if printed else math.nan,
                "below": told,
            })  # fmt: skip
    shown = pd.DataFrame(rows).sort_values("judged", ascending=False, kind="stable")
    columns = ["paper", "table", "claim", "printed", "ours [95% CI]", "verdict", "declared"]
    return shown[columns], {
        "filters": ["paper", "table", "verdict", "declared"],
        "keys": {"printed": list(shown["printed key"]), "ours [95% CI]": list(shown["key"])},
        "fold": {"claim": list(shown["below"])},
    }


def claims_listing(frame: pd.DataFrame) -> str:
    """Write claims for a terminal: a sentence each, and below it paper, ours and verdict."""
    lines = []
    for row in frame.to_dict("records"):
        printed, ours, _ = _ours(row)
        told = [f"paper {printed}"] * bool(printed) + [f"ours {ours}", _with_remarks(row)]
        told += filter(None, [_copied(row), _fits(row)])
        lines += [row["says"], f"    {'; '.join(told)}"]
    return "\n".join(lines)


def comparison_table(
    frame: pd.DataFrame, table: str, names: Mapping[str, str] = MappingProxyType({}), **column: Any
) -> str:
    """Write one of the paper's tables, as markdown: paper, ours and the verdict in each cell.

    `table` is the id of a block of claims, such as "t1", or "o1" of orderings; `names` are how its
    rows and columns are written; `column` keeps the columns with these values only.
    """
    cells: dict[str, dict[str, str]] = {}
    heads: dict[str, None] = {}
    for row in frame.to_dict("records"):
        place = dict(row["entry"].place)
        if place.pop("table", None) != table or not column.items() <= place.items():
            continue
        name = str(place.pop("row"))
        shown = [(k, v) for k, v in place.items() if k not in column]
        head = ", ".join(names.get(v, v) if isinstance(v, str) else f"{k} {v}" for k, v in shown)
        heads[head] = None
        # A number that is not judged stands beside the paper's all the same: it must say why.
        why = f": {row['note']}" if row["verdict"] == v.NOT_JUDGED else ""
        else_told = "" if why else _copied(row)
        why += else_told and f"<br>{else_told}"
        why += f"<br>{_fits(row)}" if _fits(row) else ""
        told = f"{row['paper']}<br>{_ours(row)[1]}<br>{_with_remarks(row)}{why}"
        cells.setdefault(names.get(name, name), {})[head] = powers(typeset(told))
    if not cells:
        known = sorted({str(claim.place.get("table")) for claim in frame["entry"]})
        where = f" with {column}" if column else ""
        raise ValueError(f"no claims in table {table!r}{where}; tables are {known}")
    body = [[name, *(line.get(head, "") for head in heads)] for name, line in cells.items()]
    return markdown(["paper / ours / verdict", *heads], body)


def too_wide(frame: pd.DataFrame) -> pd.DataFrame:
    """List the claims whose printed spread no run of ours can be held against, and their verdicts.

    What is not reproduced all the same is further away than even that width.
    """
    lines = [
        {
            "claim": row["says"],
            "printed": f"{row['paper']} ± {row['entry'].spread}",
            "runs": row["entry"].paper_seeds,
            "half-width at least": v.printed_half_width(row["entry"]),
            "margin": row["entry"].test["margin"],
            "verdict": marked_verdict(row),
        }
        for row in frame.to_dict("records")
        if v.cannot_be_decided(row["entry"])
    ]
    table: pd.DataFrame = pd.DataFrame(lines)
    return table.set_index("claim") if lines else table


def _counted(frame: pd.DataFrame, by: pd.Series, columns: Any = None) -> pd.DataFrame:
    """Count the verdicts of claims: a row each, a column for each value of `by`."""
    counts = pd.crosstab(frame["verdict"], by)
    counts = counts.reindex(list(v.VERDICTS), columns=columns, fill_value=0)
    return counts.rename_axis(index=None, columns=None)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts, a column each, by kind of claim, what holds by construction apart."""
    kinds = frame["kind"].mask(frame["by_construction"].astype(bool), "by construction")
    return _counted(frame, kinds).rename(index=v.verdict_text).T.rename_axis("kind")


def by_finding(frame: pd.DataFrame) -> pd.DataFrame:
    """Give one vote to each finding: claims that say one thing in several readings.

    It has the verdict that its decided claims share; where some hold and others fail it turns on
    the reading; where none is decided, the first of the list that one of its claims has.
    """

    def vote(verdicts: pd.Series) -> str:
        found = set(verdicts)
        if v.TURNS in found or (found & {*v.HOLDS} and found & {*v.FAILS}):
            return v.TURNS
        return next(x for x in (*v.FAILS, *reversed(v.HOLDS), *v.VERDICTS) if x in found)

    told = frame.groupby("finding", sort=False)["verdict"]
    return pd.DataFrame({"verdict": told.agg(vote), "claims": told.size()})


def of_papers(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Set claims, or findings, of several papers below each other, named in ``paper_key``."""
    return pd.concat([frame.assign(paper_key=name) for name, frame in frames.items()])


def by_paper(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts of claims, or of findings: a row each, a column per paper and all.

    `frame` has the columns verdict and paper_key.
    """
    table = _counted(frame, frame["paper_key"], list(dict.fromkeys(frame["paper_key"])))
    return table.assign(all=table.sum(axis=1))


def readings(claims: Claims, store: Store, profile: str = "paper") -> pd.DataFrame:
    """Tell each open choice of a paper: what is judged, and the verdicts otherwise.

    ``turned`` counts claims that hold under one choice and not under the other.
    """
    lines = []
    for reading, moved in v.Judged(claims, store, profile, profile).otherwise():
        after = Counter(m.after for m in moved)
        lines.append({
            "choice": reading.choice,
            "judged": reading.judged,
            "other": reading.other,
            "admissible": "yes" if reading.admissible else "no",
            "claims judged under both": len(moved),
            "verdicts under the other": ", ".join(
                f"{n} {v.verdict_text(verdict)}" for verdict, n in after.most_common()
            ) or "no records",
            "moved": sum(m.before != m.after for m in moved),
            "turned": sum(m.turned for m in moved),
        })  # fmt: skip
    return pd.DataFrame(lines).set_index("choice")


@captioned(cards=True)
def other_choices(store: Store, claims: Claims, profile: str = "paper") -> Any:
    """The other choices that are run. Counted are claims that are judged under both and rest on
    other records; moved are those with another verdict, turned those that hold under one choice
    and fail under the other. Admissible is what the paper's words allow.
    """
    found = readings(claims, store, profile).rename(columns={"claims judged under both": "claims"})
    return found.loc[found["claims"] > 0, ["other", "admissible", "claims", "moved", "turned"]]


def planned() -> pd.DataFrame:
    """Return the runs that are planned and not on record, with their hours on one core."""
    return pd.read_csv(Path(__file__).with_name("planned.csv"), index_col="paper", dtype=str)


def margins(claims: Claims, store: Store, profile: str = "paper") -> pd.DataFrame:
    """Tell each margin of a paper with its reason, and what half and twice of it would judge."""
    numbers = Measured(claims, store, profile, profile).numbers()
    counts: dict[str, dict[str, str]] = {}
    for factor, name in ((0.5, "at half"), (1, "as declared"), (2, "at twice")):
        scaled = tuple(
            replace(c, test={**c.test, "margin": factor * c.test["margin"]})
            for c in claims.claims
            if "margin" in c.test and not c.rule.startswith("printed")
        )
        judged = v.judge_all(replace(claims, claims=scaled), numbers, profile, profile)
        for row in {c.test["named"] for c in scaled}:
            told = Counter(
                judged[c.id][1].verdict for c in scaled
                if c.test["named"] == row and not c.by_construction
            )  # fmt: skip
            yes, no = told[v.REPRODUCED], told[v.NOT_REPRODUCED]
            rest = sum(n for verdict, n in told.items() if verdict not in v.UNJUDGED) - yes - no
            counts.setdefault(row, {})[name] = f"{yes} ✓, {no} ✗, {rest} open"
    lines = [
        {"rule": row["rule"], "margin": f"{row['margin']} {row['unit']}", **counts[row["rule"]],
         "reason": row["reason"]}
        for (key, _), row in rules().items()
        if key == claims.paper["key"] and row["margin"]
    ]  # fmt: skip
    return pd.DataFrame(lines).set_index("rule")
