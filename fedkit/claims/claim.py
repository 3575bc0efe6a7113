"""What a paper claims, one by one, and how each claim is to be tested.

One file per paper, ``fedkit/papers/<paper>/claims.yaml``, is the only place where a paper's
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
#: arguments of a statistic of the printed tables
PRINTED = {"against", "relative", "table", "tables", "row", "column"}
_SEEDS = {"min_seeds", "level"}
_SIZE = _SEEDS | {"paper_seeds"}
RULES: dict[str, tuple[set[str], set[str]]] = {
    "value": ({"margin"}, _SIZE),
    "ordering": ({"margin"}, _SIZE | {"sign", "family"}),
    "mean_gain": ({"margin"}, _SIZE | {"family"}),
    "slope": ({"margin", "sign", "scale"}, _SEEDS),
    "taper": ({"margin", "sign"}, _SEEDS),
    "at_most": (set(), _SEEDS | {"bound", "limit"}),
    "at_least": (set(), _SEEDS | {"bound", "limit"}),
    "concordance": ({"bound", "min_columns"}, _SEEDS),
    "rank_agreement": ({"bound"}, _SEEDS),
    "best_share": ({"bound"}, _SEEDS),
    "equal": ({"rtol"}, {"min_seeds"}),
    "never": (set(), {"min_seeds"}),
    "exact": ({"tolerance"}, set()),
    "printed": ({"statistic", "margin"}, PRINTED),
    "printed_below": ({"statistic"}, {"bound", *PRINTED}),
    "printed_above": ({"statistic"}, {"bound", *PRINTED}),
    "shown": (set(), set()),
}
"""Of each rule the keys that it needs, and those that it may have."""

#: rules with a bound: the printed number, or one of ours
BOUNDED = {
    "at_most", "at_least", "concordance", "rank_agreement", "best_share", "printed_below",
    "printed_above",
}  # fmt: skip

_MARKS = {"after_runs", "by_construction"}
_KEYS = {
    "a claims file": {
        "paper", "protocol", "data", "untestable", "names", "experiments", "tables", "orderings",
        "pooled", "stars", "claims",
        "columns", "value", "transcription",  # for what several blocks share by reference
    },
    "a table": {
        "id", "where", "unit", "columns", "settings", "ours", "row_lookup", "test", "row_test",
        "transcription", "rows", *_MARKS,
    },
    "an ordering": {"id", "table", "row", "against", "unit", "says", "test", *_MARKS},
    "a pooled block": {"id", "table", "row", "against", "by", "only", "unit", "says", "test",
                       *_MARKS},
    "a block of stars": {"id", "table", "row", "unit", "says", "test", "marks", *_MARKS},
    "a claim": {
        "id", "each", "where", "says", "kind", "paper_value", "unit", "ours", "against", "family",
        "test", "untestable", *_MARKS,
    },
    "a place of our numbers": {
        "experiment", "metric", "settings", "pool", "over", "sweep", "check", "methods",
        "experiments",
    },
    "a row's place": {"experiment", "metric", "settings"},
    "an experiment": {"metrics", "methods", "settings"},
    "a mark": {"what", "rows", "columns"},
}  # fmt: skip


class ClaimsError(ValueError):
    """A claims file, or what the records hold for a claim, is not as declared."""


def _only(given: Mapping[str, Any], known: set[str], what: str) -> None:
    """Refuse keys that nothing reads: they are misspelt."""
    unknown = sorted(str(key) for key in set(given) - known)
    if unknown:
        raise ClaimsError(f"{what} has {unknown}; choose from {sorted(known)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


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
    after_runs : str
        What was done to the claim when its numbers could be known ("added", or what was changed);
        empty for one that was declared before the runs.
    by_construction : bool
        It holds whatever the data are: a budget, arithmetic on printed numbers, an identity.
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
    after_runs: str = ""
    by_construction: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ClaimsError(f"claim {self.id} is of kind {self.kind!r}; choose from {KINDS}")
        if self.test.get("rule") not in RULES:
            raise ClaimsError(
                f"claim {self.id} has the rule {self.test.get('rule')!r}; "
                f"choose from {sorted(RULES)}"
            )
        needed, optional = RULES[self.test["rule"]]
        _only(self.test, {"rule"} | needed | optional, f"the rule of {self.id}")
        lacking = sorted(needed - set(self.test))
        if lacking:
            raise ClaimsError(f"the rule of {self.id} lacks {lacking}")
        for name in ("margin", "rtol", "tolerance"):
            if name in self.test and not _is_number(self.test[name]):
                raise ClaimsError(f"{name} of {self.id} is {self.test[name]!r}; it is a number")
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
    experiments: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """Of each experiment that a claim may name its metrics, methods and settings."""

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
    folder = resources.files("fedkit.papers")
    return sorted(f.name for f in folder.iterdir() if (f / "claims.yaml").is_file())


def load_claims(paper: str) -> Claims:
    """Read the claims of a paper.

    Raises
    ------
    ClaimsError
        If the paper has no claims file, or the file is not of the declared form.
    """
    if paper not in claims_papers():
        raise ClaimsError(f"paper {paper!r} has no claims file; choose from {claims_papers()}")
    text = (resources.files("fedkit.papers") / paper / "claims.yaml").read_text("utf-8")
    return parse_claims(text)


def parse_claims(text: str) -> Claims:
    """Expand the text of a claims file; see :func:`load_claims`."""
    yaml = need("yaml", extra="run")
    # BaseLoader would keep every digit but also every "true"; only the tables need digits, and
    # these are text already (several numbers in one entry).
    source = yaml.safe_load(text)
    _check_keys(source)
    key = source["paper"]["key"]
    untestable = source.get("untestable", {})
    tables = {block["id"]: _table(block) for block in source.get("tables", [])}
    claims: list[Claim] = []
    for block in source.get("tables", []):
        claims.extend(_table_claims(key, block, tables[block["id"]], untestable))
    by_place = {_place(c.place): c for c in claims}
    for block in source.get("orderings", []):
        claims.extend(_ordering_claims(key, block, tables[block["table"]], by_place))
    for block in source.get("pooled", []):
        claims.extend(_pooled_claims(key, block, tables[block["table"]], by_place))
    for block in source.get("stars", []):
        claims.extend(_star_claims(key, block, tables[block["table"]], by_place))
    for block in source.get("claims", []):
        claims.extend(_worded_claims(key, block, untestable, source.get("names", {})))
    ids = [claim.id for claim in claims]
    double = sorted({name for name in ids if ids.count(name) > 1})
    if double:
        raise ClaimsError(f"claim ids {double} are used twice")
    experiments = {
        name: {kind: frozenset(_braces(words)) for kind, words in known.items()}
        for name, known in source.get("experiments", {}).items()
    }
    for claim in claims:
        for place in _places(claim):
            _check_place(claim.id, place, experiments)
    return Claims(
        paper=source["paper"],
        protocol=source.get("protocol", {}),
        data={name: tuple(sets) for name, sets in source.get("data", {}).items()},
        tables=tables,
        claims=tuple(claims),
        experiments=experiments,
    )


# ------------------------------------------------------------------------------ spelling


def _check_keys(source: Mapping[str, Any]) -> None:
    """Refuse a key that nothing reads, anywhere in a claims file."""
    _only(source, _KEYS["a claims file"], "the claims file")
    blocks = {"tables": "a table", "orderings": "an ordering", "pooled": "a pooled block",
              "stars": "a block of stars", "claims": "a claim"}  # fmt: skip
    for section, kind in blocks.items():
        for block in source.get(section, []):
            name = f"{kind} ({block.get('id')})"
            _only(block, _KEYS[kind], name)
            for part in ("ours", "against"):
                if isinstance(block.get(part), Mapping):
                    _only(block[part], _KEYS["a place of our numbers"], f"{part} of {name}")
            for row, lookup in block.get("row_lookup", {}).items():
                _only(lookup, _KEYS["a row's place"], f"row {row} of {name}")
            for row in (*block.get("row_lookup", {}), *block.get("row_test", {})):
                if row not in block["rows"]:
                    raise ClaimsError(f"{name} looks up the row {row!r}, which it does not have")
    for name, known in source.get("experiments", {}).items():
        _only(known, _KEYS["an experiment"], f"the experiment {name}")


def _braces(words: str) -> Iterator[str]:
    """Expand words such as ``"{accuracy,auc}.{1,2} calls"``."""
    for word in words.split():
        head, opened, rest = word.partition("{")
        if not opened:
            yield word
            continue
        choices, _, tail = rest.partition("}")
        for choice in choices.split(","):
            yield from _braces(f"{head}{choice}{tail}")


def _places(claim: Claim) -> Iterator[Mapping[str, Any]]:
    for side in (claim.ours, claim.against or {}):
        if "pooled" in side:
            yield from itertools.chain.from_iterable(side["pooled"])
        elif "experiments" in side:
            yield from ({**side, "experiment": name} for name in side["experiments"])
        elif "experiment" in side:
            yield side


def _check_place(
    claim: str, place: Mapping[str, Any], experiments: Mapping[str, Mapping[str, frozenset[str]]]
) -> None:
    """Refuse an experiment, metric, setting or method that no run of the paper has."""
    name = place["experiment"]
    if name not in experiments:
        raise ClaimsError(
            f"claim {claim} names the experiment {name!r}; choose from {list(experiments)}"
        )
    known = experiments[name]
    settings = {**place.get("settings", {}), **place.get("sweep", {})}
    methods = [*place.get("methods", []), settings.get("method")]
    wanted = {"metrics": [place["metric"]], "settings": list(settings),
              "methods": [m for m in methods if m is not None]}  # fmt: skip
    for kind, words in wanted.items():
        for word in words:
            if word not in known.get(kind, ()):
                there = sorted(known.get(kind, ()))
                raise ClaimsError(f"claim {claim}: {name} has no {word!r}; its {kind} are {there}")


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


def _mark(block: Mapping[str, Any], name: str, row: str, column: Mapping[str, Any]) -> str:
    """Return what a mark of a block says of one of its cells; empty if nothing.

    A mark is a text for the whole block, or a list of texts for some rows or columns of it.
    """
    marks = block.get(name, "")
    if isinstance(marks, str):
        return marks
    found = []
    for mark in marks:
        _only(mark, _KEYS["a mark"], f"{name} of {block['id']}")
        there = all(column.get(key) == value for key, value in mark.get("columns", {}).items())
        if row in mark.get("rows", [row]) and there:
            found.append(mark["what"])
    return "; ".join(found)


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
                test=block.get("row_test", {}).get(row, block["test"]),
                untestable=_reason(column, untestable),
                place={"table": table.id, "row": row, **column},
                transcription=block.get("transcription", {}),
                spread=spread,
                after_runs=_mark(block, "after_runs", row, column),
                by_construction=bool(_mark(block, "by_construction", row, column)),
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
                after_runs=_mark(block, "after_runs", against, column),
            )


def _pooled_claims(
    key: str, block: Mapping[str, Any], table: PrintedTable, by_place: Mapping[str, Claim]
) -> Iterator[Claim]:
    """Expand claims on several columns at once: a mean gain, or the order of the rows."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for column in table.columns:
        if all(column[name] in values for name, values in block.get("only", {}).items()):
            groups.setdefault(_place({n: column[n] for n in block["by"]}), []).append(column)
    rule = block["test"]["rule"]
    units = {"rank_agreement": "tau", "best_share": "share of the settings"}
    for text, columns in groups.items():
        group = json.loads(text)
        family = ".".join(filter(None, (key, block["id"], _column_id(group))))
        for against in block["against"] if rule == "mean_gain" else [None]:
            rows = list(table.rows) if against is None else [block["row"], against]
            if rule == "best_share":
                rows.sort(key=lambda row: row != block["row"])
            cells = [
                [by_place[_place({"table": table.id, "row": row, **column})] for row in rows]
                for column in columns
            ]
            printed = [[Decimal(str(claim.paper_value)) for claim in line] for line in cells]
            gain = sum((first - second for first, second, *_ in printed), Decimal()) / len(cells)
            digits = max(-int(number.as_tuple().exponent) for line in printed for number in line)
            first, line_of = cells[0][0], f"vs {against}" if against else "order"
            untestable = (c.untestable for line in cells for c in line if c.untestable)
            yield Claim(
                id=family + (f".vs-{against}" if against else ""),
                where=", ".join(filter(None, (table.where, _column_words(group)))),
                says=block["says"].format(against=against, settings=len(columns), **group),
                kind="ordering" if against else "bound",
                paper_value=f"{gain:+.{digits + 1}f}" if against else None,
                unit=block.get("unit", "points") if against else units[rule],
                ours={
                    "experiment": first.ours["experiment"],
                    "settings": table.settings,
                    "pooled": [[claim.ours for claim in line] for line in cells],
                    "printed": [[float(number) for number in line] for line in printed],
                },
                test=block["test"],
                family=family if against and block["test"].get("family") == "column" else "",
                untestable=next(untestable, ""),
                place={"table": block["id"], "row": line_of, **group},
                transcription=first.transcription,
                after_runs=block.get("after_runs", ""),
            )


STARS = {"*": 0.9, "**": 0.95, "***": 0.99}
"""Level of the test behind each mark of significance."""


def _star_claims(
    key: str, block: Mapping[str, Any], table: PrintedTable, by_place: Mapping[str, Claim]
) -> Iterator[Claim]:
    """Expand marks of significance: the row is better than the second best of each column."""
    marks = block["marks"].split()
    if len(marks) != len(table.columns) or set(marks) - {*STARS, "-"}:
        raise ClaimsError(
            f"{key}.{block['id']} has the marks {marks}; give one of {[*STARS, '-']} for each of "
            f"{len(table.columns)} columns"
        )
    for column, mark in zip(table.columns, marks, strict=True):
        if mark == "-":
            continue
        cells = {row: by_place[_place({"table": table.id, "row": row, **column})]
                 for row in table.rows}  # fmt: skip
        first = cells.pop(block["row"])
        against = max(cells, key=lambda row: float(cells[row].paper_value or 0))
        level = STARS[mark]
        yield Claim(
            id=f"{key}.{block['id']}.{_column_id(column)}",
            where=f"{table.where}, {_column_words(column)}, {mark}",
            says=block["says"].format(
                against=against, p=f"{1 - level:.2g}", column=_column_words(column)
            ),
            kind="ordering",
            paper_value=None,
            unit=block["unit"],
            ours=first.ours,
            against=cells[against].ours,
            test={**block["test"], "level": level},
            place={"table": block["id"], "row": block["row"], **column},
            transcription=first.transcription,
            after_runs=block.get("after_runs", ""),
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
            after_runs=entry.get("after_runs", ""),
            by_construction=bool(entry.get("by_construction", False)),
        )
