"""What the papers claim: the files of a paper's folder become one list of claims.

``claims.yaml`` has the claims block by block, ``printed/<table>.csv`` the tables as printed, and
``reproduction/margins.csv`` the margins.  Every cell of a table is a claim, and so are orderings of
its rows, marks of significance, and what the text says in words.
"""

from __future__ import annotations

import csv
import itertools
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fedkit.extras import need
from reproduction import PAPERS, claims_file

STARS = {"*": 0.9, "**": 0.95, "***": 0.99}
"""Level of the test behind each mark of significance."""

KINDS = {
    "value": "value", "place": "value", "ordering": "ordering", "mean_gain": "ordering",
    "slope": "trend", "taper": "trend", "equal": "identity", "exact": "identity",
    "printed": "identity", "printed_above": "identity", "printed_below": "identity",
}  # fmt: skip
"""What kind of claim each rule judges; all other rules judge bounds."""


class ClaimsError(ValueError):
    """A claims file, or what the records hold for a claim, is not as declared."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    ``paper_value`` and ``spread`` are texts with the printed digits, None where nothing is printed;
    ``ours`` (and ``against``, for a paired difference) is where our number is: an experiment, its
    settings and a metric.  ``test`` holds the rule with its margin, seeds and level; claims of one
    ``family`` are corrected together.  ``place`` is the cell of a table.  ``after_runs`` says what
    was done to the claim when its numbers could be known; ``untestable`` why no run can test it.
    Claims that say one thing in several readings are one ``finding``.
    """

    id: str
    where: str
    says: str
    test: Mapping[str, Any]
    paper_value: str | None = None
    unit: str = ""
    ours: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] | None = None
    family: str = ""
    untestable: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    spread: str | None = None
    after_runs: str = ""
    by_construction: bool = False
    paper_seeds: int = 1
    finding: str = ""

    @property
    def rule(self) -> str:
        """Name of the function that judges the claim, in :data:`reproduction.verdicts.RULES`."""
        return str(self.test["rule"])

    @property
    def kind(self) -> str:
        """Identity, value, ordering, trend or bound."""
        return KINDS.get(self.rule, "bound")

    @property
    def number(self) -> float | None:
        """The printed number as a float; None where none is printed."""
        return None if self.paper_value is None else float(self.paper_value)

    @property
    def bound(self) -> float:
        """The printed number, or the bound that we read a sentence as."""
        return float(self.test["bound"] if self.paper_value is None else self.paper_value)

    def exact(self) -> float:
        """Compute what a claim about an exact game names as ``module:function``."""
        return float(pkgutil.resolve_name(self.ours["check"])())


@dataclass(frozen=True)
class PrintedTable:
    """A table as printed: rows of numbers as text, over named columns; spreads where given."""

    id: str
    where: str
    columns: tuple[Mapping[str, Any], ...]
    rows: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any]
    spreads: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Claims:
    """All claims of a paper, its printed tables, and what a record must share with the paper.

    ``protocol`` names settings, ``data`` of each data set those that stand for it, and ``reduced``
    of an experiment the runs that are shown, and not judged, where it has no record.
    """

    paper: Mapping[str, Any]
    protocol: Mapping[str, Any]
    data: Mapping[str, Sequence[str]]
    tables: Mapping[str, PrintedTable]
    claims: tuple[Claim, ...]
    reduced: Mapping[str, Mapping[str, Any]]

    @cached_property
    def by_id(self) -> dict[str, Claim]:
        """The claims by their names."""
        return {claim.id: claim for claim in self.claims}

    def __getitem__(self, claim_id: str) -> Claim:
        return self.by_id[claim_id]


# -------------------------------------------------------------------------------- files


def claims_papers() -> list[str]:
    """Return the papers that have a claims file, sorted."""
    return [paper for paper in sorted(PAPERS) if claims_file(paper) is not None]


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper; ClaimsError if there are none, or they cannot be read."""
    file = claims_file(paper)
    if file is None:
        raise ClaimsError(
            f"paper {paper!r} has no claims file; choose from {', '.join(claims_papers())}"
        )
    return read_claims(file)


def all_claims() -> dict[str, Claims]:
    """Read the claims of all papers."""
    return {paper: load_claims(paper) for paper in claims_papers()}


def read_claims(file: Path) -> Claims:
    """Read ``claims.yaml`` and the printed tables in the folder beside it."""
    yaml = need("yaml", extra="run")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 8 times faster
    try:
        source = yaml.load(file.read_text("utf-8"), Loader=loader)
        folder = file.parent / "printed"
        tables = {block["id"]: _table(block, folder) for block in source.get("tables", [])}
        late = source.get("chosen_late", {})
        claims = tuple(_marked(claim, late) for claim in _Expansion(source, tables))
    except Exception as error:  # no YAML, or of another form in the middle of it
        name = type(error).__name__
        raise ClaimsError(f"the claims in {file} cannot be read: {name}: {error}") from error
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids):
        double = sorted({name for name in ids if ids.count(name) > 1})
        raise ClaimsError(f"the claims in {file} use {double} twice; give each claim its own id")
    protocol, data, reduced = (source.get(part, {}) for part in ("protocol", "data", "reduced"))
    return Claims(source["paper"], protocol, data, tables, claims, reduced)


def _marked(claim: Claim, late: Mapping[str, str]) -> Claim:
    """Mark a claim that is asked of an experiment whose reading was chosen when runs were known."""
    asked = repr((claim.ours, claim.against))  # also the parts of what is pooled
    told = [text for experiment, text in late.items() if repr(experiment) in asked]
    return replace(claim, after_runs="; ".join(filter(None, (claim.after_runs, *told))))


@cache
def rules() -> dict[tuple[str, str], dict[str, str]]:
    """Read ``margins.csv``: by paper and name the margin, its reason, the level and the seeds."""
    with open(Path(__file__).with_name("margins.csv"), encoding="utf-8", newline="") as file:
        return {(row["paper"], row["rule"]): row for row in csv.DictReader(file)}


def _table(block: Mapping[str, Any], folder: Path) -> PrintedTable:
    """Read a printed table: a head row for each name in ``columns``, then the paper's rows."""
    scalar = need("yaml", extra="run").safe_load
    with open(folder / f"{block['id']}.csv", encoding="utf-8", newline="") as file:
        lines = {line[0]: line[1:] for line in csv.reader(file)}
    heads = [[scalar(value) for value in lines.pop(axis)] for axis in block["columns"]]
    columns = tuple(
        dict(zip(block["columns"], values, strict=True)) for values in zip(*heads, strict=True)
    )
    rows, spreads = {}, {}
    for name, line in lines.items():
        pairs = [cell.strip().partition("±") for cell in line]
        rows[name] = tuple(number for number, _, _ in pairs)
        if pairs[0][2]:
            spreads[name] = tuple(spread for _, _, spread in pairs)
        if len(line) != len(columns) or any(not Decimal(n).is_finite() for n in rows[name]):
            raise ClaimsError(f"row {name} of {block['id']} needs {len(columns)} numbers")
    return PrintedTable(
        block["id"], block["where"], columns, rows, block.get("settings", {}), spreads
    )


# ------------------------------------------------------------------------------ expansion


def _words(column: Mapping[str, Any]) -> str:
    return ", ".join(v if isinstance(v, str) else f"{name} {v}" for name, v in column.items())


def _dotted(*parts: str | Mapping[str, Any]) -> str:
    texts: list[str] = []
    for part in parts:
        column = {"": part} if isinstance(part, str) else part
        texts += [v if isinstance(v, str) else f"{name[0]}{v}" for name, v in column.items()]
    return ".".join(filter(None, texts))


def _marks(block: Mapping[str, Any], row: str, column: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a block's marks, each a text or a list of texts for some cells, say of a cell."""
    told = {}
    for name in ("after_runs", "by_construction"):
        marks = block.get(name, "")
        if isinstance(marks, list):
            marks = "; ".join(
                mark["what"]
                for mark in marks
                if row in mark.get("rows", [row])
                and mark.get("columns", {}).items() <= column.items()
            )
        told[name] = bool(marks) if name == "by_construction" else marks
    return told


def _mean_gain(cells: Sequence[Sequence[Claim]]) -> str:
    """Write the mean of first minus second, with a digit more than printed if of several."""
    pairs = [[Decimal(str(claim.paper_value)) for claim in line] for line in cells]
    gain = sum((one - other for one, other in pairs), Decimal()) / len(pairs)
    digits = max(-int(number.as_tuple().exponent) for pair in pairs for number in pair)
    return f"{gain:+.{digits + (len(pairs) > 1)}f}"


def _fill(value: Any, fields: Mapping[str, Any]) -> Any:
    """Put the fields of an expansion into every text of a claim."""
    if isinstance(value, str):
        return value.format(**fields)
    if isinstance(value, Mapping):
        return {name: _fill(item, fields) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, fields) for item in value]
    return value


class _Expansion:
    """The claims of a file, block by block; later blocks refer to the cells of its tables."""

    def __init__(self, source: Mapping[str, Any], tables: Mapping[str, PrintedTable]) -> None:
        self.source = source
        self.key = str(source["paper"]["key"])
        self.tables = tables
        self.same = source.get("same", {})
        self.cells: dict[tuple[Any, ...], Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        expand: dict[str, Callable[[Mapping[str, Any]], Iterator[Claim]]] = {
            "tables": self._cells, "orderings": self._compared, "pooled": self._compared,
            "stars": self._stars, "claims": self._worded,
        }  # fmt: skip
        for section, function in expand.items():
            for block in self.source.get(section, []):
                yield from function(block)

    def _claim(self, name: str, test: Mapping[str, Any], **fields: Any) -> Claim:
        seeds = test.get("paper_seeds", self.source["paper"].get("seeds", 1))
        fields["finding"] = f"{self.key}.{fields.get('finding', name)}"
        return Claim(id=f"{self.key}.{name}", test=self._test(test), paper_seeds=seeds, **fields)

    def _test(self, test: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a test by its row of the rules."""
        row = rules().get((self.key, test["rule"]), {})
        declared = {
            key: read(row[column])
            for key, column, read in (
                ("margin", "margin", float), ("min_seeds", "seeds", int), ("level", "level", float),
            )
            if row.get(column)
        }  # fmt: skip
        return {**declared, **test, "rule": test["rule"].split()[0], "named": test["rule"]}

    def _reason(self, values: Iterable[Any]) -> str:
        reasons = self.source.get("untestable", {})
        return next((reasons[str(v)] for v in values if str(v) in reasons), "")

    def _cells(self, block: Mapping[str, Any]) -> Iterator[Claim]:
        table = self.tables[block["id"]]
        plain: list[tuple[str, Mapping[str, Any], Claim]] = []
        for row, numbers in table.rows.items():
            lookup = block.get("row_lookup", {}).get(row, {"settings": {"method": row}})
            ours = {"settings": {}, **block["ours"], **lookup}
            # a metric may name a column: "rate.{kind}"
            named = [name for name in table.columns[0] if f"{{{name}}}" in ours["metric"]]
            spreads = table.spreads.get(row, (None,) * len(numbers))
            for column, number, spread in zip(table.columns, numbers, spreads, strict=True):
                settings = {k: v for k, v in column.items() if k not in named}
                claim = self.cells[table.id, row, *column.values()] = self._claim(
                    _dotted(table.id, column, row),
                    block.get("row_test", {}).get(row, block["test"]),
                    where=f"{table.where}, row {row}, {_words(column)}",
                    says=f"{table.where}: {row} reaches {number} {block['unit']} "
                    f"({_words(column)})",
                    paper_value=number,
                    unit=block["unit"],
                    ours={
                        "experiment": ours["experiment"],
                        "metric": ours["metric"].format(**column),
                        "settings": {**table.settings, **ours["settings"], **settings},
                    },
                    untestable=self._reason(column.values()),
                    place={"table": table.id, "row": row, **column},
                    spread=spread,
                    finding=_dotted(block.get("finding", table.id), column, self._one(row)),
                    **_marks(block, row, column),
                )
                plain.append((row, column, claim))
        for row, column, claim in plain:
            others = [other for other in table.rows if other != row]
            yield self._placed(claim, [self.cells[table.id, r, *column.values()] for r in others])

    def _placed(self, claim: Claim, others: Sequence[Claim]) -> Claim:
        """Judge a cell by its place where its column is narrower than the margin of levels.

        The test names the rule of places as ``narrow``; without it nothing changes.
        """
        numbers = [float(c.paper_value or 0) for c in (claim, *others)]
        rule = claim.test.get("narrow")
        if rule is None or max(numbers) - min(numbers) >= claim.test["margin"]:
            return claim
        columns = {"pooled": [[claim.ours, *(c.ours for c in others)]], "printed": [numbers]}
        changed = "changed: judged by its place, as its printed column is narrower than the margin"
        return replace(
            claim,
            test=self._test({"rule": rule, "paper_seeds": claim.paper_seeds}),
            ours={**claim.ours, **columns},
            after_runs="; ".join(filter(None, (claim.after_runs, changed))),
        )

    def _one(self, value: Any) -> Any:
        """Return the reading that stands for all readings of the same."""
        return self.same.get(value, value)

    def _compared(self, block: Mapping[str, Any]) -> Iterator[Claim]:
        """Rows against each other: in each column, or in all columns that share what ``by`` names.

        One row is compared with each of those in ``against``; without these the order of all rows
        is claimed, or that one of them is the best.
        """
        table = self.tables[block["table"]]
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        by = block.get("by", list(table.columns[0]))
        for column in table.columns:
            if all(column[name] in values for name, values in block.get("only", {}).items()):
                groups.setdefault(tuple(column[name] for name in by), []).append(column)
        for values, columns in groups.items():
            group = dict(zip(by, values, strict=True))
            name = _dotted(block["id"], group)
            for against in block.get("against", [""]):
                rows = [block.get("row"), against]
                if not against:  # the row that is claimed to be the best stands first
                    rows = sorted(table.rows, key=lambda row: row != block.get("row"))
                cells = [[self.cells[table.id, r, *c.values()] for r in rows] for c in columns]
                pooled = {
                    "experiment": cells[0][0].ours["experiment"],
                    "settings": table.settings,
                    "pooled": [[claim.ours for claim in line] for line in cells],
                    "printed": [[claim.number for claim in line] for line in cells],
                }
                one, *others = (claim.ours for claim in cells[0])
                corrected = against and block["test"].get("family") == "column"
                reasons = [claim.untestable for line in cells for claim in line]
                yield self._claim(
                    f"{name}.vs-{against}" if against else name,
                    block["test"],
                    where=", ".join(filter(None, (table.where, _words(group)))),
                    says=block["says"].format(against=against, settings=len(columns), **group),
                    paper_value=_mean_gain(cells) if against else None,
                    unit=block.get("unit", "points" if against else "tau"),
                    ours=pooled if "by" in block else one,
                    against=None if "by" in block else others[0],
                    family=f"{self.key}.{name}" if corrected else "",
                    untestable=next(filter(None, reasons), ""),
                    place={
                        "table": block["id"],
                        "row": f"vs {against}" if against else "order",
                        **group,
                    },
                    **_marks(block, against, group),
                )

    def _stars(self, block: Mapping[str, Any]) -> Iterator[Claim]:
        """Marks of significance: the row is better than the second best of each column."""
        table = self.tables[block["table"]]
        for column, mark in zip(table.columns, block["marks"].split(), strict=True):
            if mark == "-":
                continue
            cells = {row: self.cells[table.id, row, *column.values()] for row in table.rows}
            first = cells.pop(block["row"])
            against = max(cells, key=lambda row: float(cells[row].paper_value or 0))
            p = f"{1 - STARS[mark]:.2g}"
            yield self._claim(
                _dotted(block["id"], column),
                {**block["test"], "level": STARS[mark]},
                where=f"{table.where}, {_words(column)}, {mark}",
                says=block["says"].format(against=against, p=p, column=_words(column)),
                unit=block["unit"],
                ours=first.ours,
                against=cells[against].ours,
                place={"table": block["id"], "row": block["row"], **column},
                untestable=first.untestable or cells[against].untestable,
                **_marks(block, block["row"], column),
            )

    def _worded(self, block: Mapping[str, Any]) -> Iterator[Claim]:
        names = self.source.get("names", {})
        axes = block.get("each", {})
        for values in itertools.product(*axes.values()):
            fields = dict(zip(axes, values, strict=True))
            entry = {key: value for key, value in block.items() if key != "each"}
            if fields:  # for people: FedTSV, not tsv
                words = {name: names.get(value, value) for name, value in fields.items()}
                entry = {**_fill(entry, fields), "says": _fill(block["says"], words)}
            name, test = entry.pop("id"), entry.pop("test")
            ones = {axis: self._one(value) for axis, value in fields.items()}
            entry["finding"] = str(block.get("finding", block["id"])).format(**ones)
            entry.setdefault("untestable", self._reason(fields.values()))
            if "family" in entry:
                entry["family"] = f"{self.key}.{entry['family']}"
            yield self._claim(name, test, place={"table": "words", "row": name}, **entry)
