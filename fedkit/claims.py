"""What a paper claims, one by one, and how each claim is to be tested.

One file per paper, ``fedkit/experiments/claims/<paper>.yaml``, is the only place where a paper's
numbers are written down.  Tables are transcribed as blocks and expanded here: each cell becomes
a claim with an id, a place in the paper, the number as printed, the way to our number, and a
rule whose margin was declared before any run.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any

from fedkit.extras import need

__all__ = [
    "KINDS",
    "RULES",
    "Claim",
    "Claims",
    "ClaimsError",
    "PrintedTable",
    "claims_papers",
    "load_claims",
]

KINDS = ("identity", "value", "ordering", "trend", "bound", "cost")
RULES = {
    "value", "ordering", "slope", "taper", "at_most", "at_least", "equal", "exact", "concordance",
    "never", "printed", "printed_below", "printed_above", "shown",
}  # fmt: skip

#: rules with a bound: the printed number, or one of ours
BOUNDED = {"at_most", "at_least", "concordance", "printed_below", "printed_above"}


class ClaimsError(ValueError):
    """A claims file, or what the records hold for a claim, is not as declared."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes
    ----------
    id : str
        E.g. ``"fedowen.t1.fashionmnist.a0.01.fedowen"``.
    where, says : str
        Place in the paper, and the claim in our words.
    kind : str
        One of :data:`KINDS`.
    paper_value : str or None
        As printed, digits kept; None where it is only plotted or said.
    unit : str
    spread : str or None
        What is printed behind the number's "±"; None where nothing is.
    ours : mapping
        Where our number is: ``experiment``, ``settings``, ``metric``, or ``check``.
    against : mapping, optional
        The second place, for a paired difference.
    test : mapping
        ``rule`` with its margin, seeds and level, declared before running; a ``bound`` of ours.
    family : str
        Claims of one family are corrected together (Holm).
    untestable : str
        Why no run can test the claim; empty otherwise.
    place : mapping
        Block, row and column of a table's cell, for pivoted tables.
    transcription : mapping
        Who entered the number and who checked it.
    """

    id: str
    where: str
    says: str
    kind: str
    paper_value: str | None
    unit: str
    ours: Mapping[str, Any]
    test: Mapping[str, Any]
    against: Mapping[str, Any] | None = None
    family: str = ""
    untestable: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    transcription: Mapping[str, str] = field(default_factory=dict)
    spread: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ClaimsError(f"claim {self.id} is of kind {self.kind!r}; choose from {KINDS}")
        if self.test.get("rule") not in RULES:
            raise ClaimsError(
                f"claim {self.id} has the rule {self.test.get('rule')!r}; "
                f"choose from {sorted(RULES)}"
            )
        if not self.where or not self.says:
            raise ClaimsError(f"claim {self.id} needs 'where' and 'says'")
        if self.test["rule"] in BOUNDED and (self.paper_value is None) != ("bound" in self.test):
            raise ClaimsError(f"claim {self.id} needs a printed number or a bound of ours")

    @property
    def number(self) -> float | None:
        """The printed number as a float; None where none is printed."""
        return None if self.paper_value is None else float(self.paper_value)

    @property
    def bound(self) -> float:
        """The printed number, or the bound that we read a sentence as."""
        return float(self.test["bound"] if self.paper_value is None else self.paper_value)


@dataclass(frozen=True)
class PrintedTable:
    """A table as printed: rows of numbers as text, over named columns; spreads where given."""

    id: str
    where: str
    columns: tuple[Mapping[str, Any], ...]
    rows: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any]
    spreads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Claims:
    """All claims of a paper, with the tables they come from and the paper's protocol."""

    paper: Mapping[str, Any]
    protocol: Mapping[str, Any]
    data: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, PrintedTable]
    claims: tuple[Claim, ...]

    def __getitem__(self, claim_id: str) -> Claim:
        for claim in self.claims:
            if claim.id == claim_id:
                return claim
        raise KeyError(claim_id)

    def select(self, prefix: str = "", kind: str | None = None) -> list[Claim]:
        """Return the claims whose id starts with `prefix`, of one kind if given."""
        return [c for c in self.claims if c.id.startswith(prefix) and kind in (None, c.kind)]


def claims_papers() -> list[str]:
    """Return the papers that have a claims file, sorted."""
    folder = resources.files("fedkit.experiments") / "claims"
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper.

    Raises
    ------
    ClaimsError
        If the paper has no claims file, or the file is not of the declared form.
    """
    if paper not in claims_papers():
        raise ClaimsError(f"paper {paper!r} has no claims file; choose from {claims_papers()}")
    text = (resources.files("fedkit.experiments") / "claims" / f"{paper}.yaml").read_text("utf-8")
    return parse_claims(text)


def parse_claims(text: str) -> Claims:
    """Expand the text of a claims file; see :func:`load_claims`."""
    yaml = need("yaml", extra="run")
    # BaseLoader would keep every digit but also every "true"; only the tables need digits, and
    # these are text already (several numbers in one entry).
    source = yaml.safe_load(text)
    key = source["paper"]["key"]
    untestable = source.get("untestable", {})
    tables = {block["id"]: _table(block) for block in source.get("tables", [])}
    claims: list[Claim] = []
    for block in source.get("tables", []):
        claims.extend(_table_claims(key, block, tables[block["id"]], untestable))
    by_place = {_place(c.place): c for c in claims}
    for block in source.get("orderings", []):
        claims.extend(_ordering_claims(key, block, tables[block["table"]], by_place))
    for block in source.get("claims", []):
        claims.extend(_worded_claims(key, block, untestable, source.get("names", {})))
    ids = [claim.id for claim in claims]
    double = sorted({name for name in ids if ids.count(name) > 1})
    if double:
        raise ClaimsError(f"claim ids {double} are used twice")
    return Claims(
        paper=source["paper"],
        protocol=source.get("protocol", {}),
        data={name: tuple(sets) for name, sets in source.get("data", {}).items()},
        tables=tables,
        claims=tuple(claims),
    )


# ------------------------------------------------------------------------------ expansion


def _product(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _table(block: Mapping[str, Any]) -> PrintedTable:
    columns = tuple(_product(block["columns"]))
    rows, spreads = {}, {}
    for name, line in block["rows"].items():
        pairs = [entry.partition("±") for entry in str(line).split()]
        numbers = tuple(number for number, _, _ in pairs)
        spread = tuple(text for _, mark, text in pairs if mark)
        try:
            [Decimal(number) for number in numbers + spread]
        except InvalidOperation:
            raise ClaimsError(f"{block['where']}, row {name}: {line!r} holds no numbers") from None
        if len(numbers) != len(columns):
            raise ClaimsError(
                f"{block['where']}, row {name} has {len(numbers)} numbers "
                f"for {len(columns)} columns"
            )
        if len(spread) not in (0, len(numbers)):
            raise ClaimsError(f"{block['where']}, row {name}: give all numbers a spread, or none")
        rows[str(name)] = numbers
        if spread:
            spreads[str(name)] = spread
    return PrintedTable(
        block["id"], block["where"], columns, rows, block.get("settings", {}), spreads
    )


def _place(place: Mapping[str, Any]) -> str:
    return json.dumps(place, sort_keys=True)


def _column_id(column: Mapping[str, Any]) -> str:
    return ".".join(
        str(value) if isinstance(value, str) else f"{name[0]}{value}"
        for name, value in column.items()
    )


def _column_words(column: Mapping[str, Any]) -> str:
    return ", ".join(
        str(value) if isinstance(value, str) else f"{name} {value}"
        for name, value in column.items()
    )


def _reason(settings: Mapping[str, Any], untestable: Mapping[str, str]) -> str:
    return next((untestable[v] for v in settings.values() if str(v) in untestable), "")


def _table_claims(
    key: str, block: Mapping[str, Any], table: PrintedTable, untestable: Mapping[str, str]
) -> Iterator[Claim]:
    lookups = block.get("row_lookup", {})
    for row, numbers in table.rows.items():
        lookup = lookups.get(row, {"settings": {"method": row}})
        # may name a column: "rate.{kind}"
        metric = str(lookup.get("metric", block["ours"]["metric"]))
        spreads = table.spreads.get(row, (None,) * len(numbers))
        for column, number, spread in zip(table.columns, numbers, spreads, strict=True):
            named = {k: v for k, v in column.items() if f"{{{k}}}" not in metric}
            settings = {**table.settings, **lookup.get("settings", {}), **named}
            yield Claim(
                id=f"{key}.{table.id}.{_column_id(column)}.{row}",
                where=f"{table.where}, row {row}, {_column_words(column)}",
                says=f"{table.where}: {row} reaches {number} {block['unit']} "
                f"({_column_words(column)})",
                kind="value",
                paper_value=number,
                unit=block["unit"],
                ours={
                    "experiment": lookup.get("experiment", block["ours"]["experiment"]),
                    "metric": metric.format(**column),
                    "settings": settings,
                },
                test=block["test"],
                untestable=_reason(column, untestable),
                place={"table": table.id, "row": row, **column},
                transcription=block.get("transcription", {}),
                spread=spread,
            )


def _ordering_claims(
    key: str, block: Mapping[str, Any], table: PrintedTable, by_place: Mapping[str, Claim]
) -> Iterator[Claim]:
    for column in table.columns:
        first = by_place[_place({"table": table.id, "row": block["row"], **column})]
        for against in block["against"]:
            second = by_place[_place({"table": table.id, "row": against, **column})]
            printed = Decimal(str(first.paper_value)) - Decimal(str(second.paper_value))
            family = f"{key}.{block['id']}.{_column_id(column)}"
            yield Claim(
                id=f"{family}.vs-{against}",
                where=f"{table.where}, {_column_words(column)}",
                says=block["says"].format(against=against, **column),
                kind="ordering",
                paper_value=f"{printed:+}",
                unit=block.get("unit", "points"),
                ours=first.ours,
                against=second.ours,
                test=block["test"],
                family=family if block["test"].get("family") == "column" else "",
                untestable=first.untestable,
                place={"table": block["id"], "row": f"vs {against}", **column},
                transcription=first.transcription,
            )


def _fill(value: Any, fields: Mapping[str, Any]) -> Any:
    """Put the fields of an expansion into every text of a claim."""
    if isinstance(value, str):
        return value.format(**fields) if fields else value
    if isinstance(value, Mapping):
        return {name: _fill(item, fields) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, fields) for item in value]
    return value


def _worded_claims(
    key: str, block: Mapping[str, Any], untestable: Mapping[str, str], names: Mapping[str, str]
) -> Iterator[Claim]:
    block = dict(block)
    for fields in _product(block.pop("each", {})):
        entry = _fill(block, fields)
        if fields:  # for people: FedTSV, not tsv
            words = {field: names.get(value, value) for field, value in fields.items()}
            entry["says"] = _fill(block["says"], words)
        yield Claim(
            id=f"{key}.{entry['id']}",
            where=entry["where"],
            says=entry["says"],
            kind=entry["kind"],
            paper_value=entry["paper_value"],
            unit=entry.get("unit", ""),
            ours=entry.get("ours", {}),
            against=entry.get("against"),
            family=f"{key}.{entry['family']}" if "family" in entry else "",
            test=entry["test"],
            untestable=entry.get("untestable", "") or _reason(fields, untestable),
            place={"table": "words", "row": entry["id"]},
        )
