"""What a paper claims, one by one, and how each claim is to be tested.

One file per paper, ``claims.yaml``, is the only place where a paper's numbers are written down.
Tables are transcribed as blocks and expanded here: each cell becomes a claim with an id, a place in
the paper, the number as printed, the way to our number, and a rule whose margin was declared before
any run.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from fedkit.extras import need
from reproduction.judging.printed import PRINTED, STATISTICS, printed_statistic

__all__ = [
    "KINDS", "POOLS", "RULES", "SCALES", "Claim", "Claims", "ClaimsError", "PrintedTable",
    "parse_claims",
]  # fmt: skip

KINDS = ("identity", "value", "ordering", "trend", "bound", "cost")
POOLS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda x: math.fsum(x) / len(x), "max": max,
}  # fmt: skip
"""What a claim may take of several settings, seed by seed."""

SCALES: dict[str, Callable[..., Any]] = {
    "linear": np.asarray, "log2": np.log2, "log10": np.log10,
}  # fmt: skip
"""What a slope may be taken on."""

RULES = {
    "value": ("margin", "min_seeds level paper_seeds of_few"),
    "ordering": ("margin", "min_seeds level paper_seeds sign family"),
    "mean_gain": ("margin", "min_seeds level paper_seeds family"),
    "slope": ("margin sign scale", "min_seeds level"),
    "taper": ("margin sign", "min_seeds level"),
    "at_most": ("", "min_seeds level bound limit of_few"),
    "at_least": ("", "min_seeds level bound limit of_few"),
    "concordance": ("bound min_columns", "min_seeds level"),
    "rank_agreement": ("bound", "min_seeds level"),
    "best_share": ("bound", "min_seeds level"),
    "equal": ("rtol", "min_seeds"),
    "never": ("", "min_seeds paper_seeds"),
    "exact": ("tolerance", ""),
    "printed": ("statistic margin", PRINTED),
    "printed_below": ("statistic", f"bound {PRINTED}"),
    "printed_above": ("statistic", f"bound {PRINTED}"),
    "shown": ("", ""),
}
"""Of each rule the keys that it needs, and those that it may have.

``of_few``: a percentage of few things, so that a seed often has all of them or none.
"""

#: rules with a bound: the printed number, or one of ours
BOUNDED = {rule for rule, keys in RULES.items() if "bound" in " ".join(keys).split()}

_Check = tuple[Callable[[Any], bool], str]


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) and math.isfinite(x)  # no truth value, which counts as 0 or 1


def _one_of(*words: Any) -> _Check:
    return lambda x: type(x) is type(words[0]) and x in words, f"one of {[*words]}"


_SIZE = lambda x: _is_number(x) and x >= 0, "a number of at least 0"
_COUNT = lambda x: type(x) is int and x >= 1, "a whole number of at least 1"
_TRUTH = lambda x: type(x) is bool, "true or false"
_VALUES: dict[str, _Check] = {
    **dict.fromkeys(("margin", "rtol", "tolerance"), _SIZE),
    **dict.fromkeys(("bound", "limit"), (_is_number, "a finite number")),
    **dict.fromkeys(("min_seeds", "paper_seeds", "min_columns", "of"), _COUNT),
    **dict.fromkeys(("of_few", "relative", "by_construction"), _TRUTH),
    "level": (lambda x: _is_number(x) and 0 < x < 1, "a number between 0 and 1"),
    "sign": _one_of(1, -1),
    "family": _one_of("column"),
    "scale": _one_of(*SCALES),
    "pool": _one_of(*POOLS),
    "statistic": _one_of(*STATISTICS),
    "after_runs": (lambda x: isinstance(x, str), "a text"),
    "what": (lambda x: isinstance(x, str) and bool(x), "a text"),
    "rows": (lambda x: isinstance(x, list) and bool(x), "a list of rows"),
    "columns": (lambda x: isinstance(x, dict) and bool(x), "columns and their values"),
}
"""What the keys of a test, a place and a mark may hold."""

_PLACE = "experiment metric settings protocol pool of over sweep check methods experiments"
_MARKS = "after_runs by_construction"
_SCHEMA = {
    "claims file": (
        "paper",
        "protocol data untestable names experiments reduced tables orderings pooled stars claims "
        "columns value transcription",  # the last three: what blocks share by reference
    ),
    "paper": ("key", "title authors code seeds spread elsewhere"),
    "experiments": ("metrics settings", "methods"),
    "reduced": ("experiment", "settings"),
    "tables": (
        "id where unit columns ours test rows transcription",
        f"settings row_lookup row_test {_MARKS}",
    ),
    "orderings": ("id table row against says test", f"unit {_MARKS}"),
    "pooled": ("id table by says test", f"row against only unit {_MARKS}"),
    "stars": ("id table row unit says test marks", _MARKS),
    "claims": (
        "id where says kind paper_value test",
        f"each unit ours against family untestable {_MARKS}",
    ),
    "row_lookup": ("", "experiment metric settings"),
    "marks": ("what", "rows columns"),
}
"""Of each part of a claims file the keys that it needs, and those that it may have."""

STARS = {"*": 0.9, "**": 0.95, "***": 0.99}
"""Level of the test behind each mark of significance."""


class ClaimsError(ValueError):
    """A claims file, or what the records hold for a claim, is not as declared."""


def _known(given: Iterable[Any], known: Iterable[Any], what: str) -> None:
    """Refuse words that nothing reads or has, for they are misspelt."""
    choice = list(dict.fromkeys(known))
    unknown = sorted(str(word) for word in given if word not in choice)
    if unknown:
        raise ClaimsError(f"{what} has {unknown}; choose from {sorted(choice, key=str)}")


def _conform(given: Mapping[str, Any], keys: tuple[str, str], what: str) -> None:
    """Refuse keys that nothing reads, and the lack of one."""
    needed, optional = (words.split() for words in keys)
    _known(given, [*needed, *optional], what)
    lacking = sorted(set(needed) - set(given))
    if lacking:
        raise ClaimsError(f"{what} lacks {lacking}")


def _check_values(given: Mapping[str, Any], what: str) -> None:
    """Refuse a value that its key cannot have, by :data:`_VALUES`."""
    for key, value in given.items():
        fits, words = _VALUES.get(key, (lambda _: True, ""))
        if not fits(value):
            raise ClaimsError(f"{what}: {key} is {value!r}, and not {words}")


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
    ours : mapping
        Where our number is: ``experiment``, ``settings``, ``metric``, or ``check``.
    test : mapping
        ``rule`` with its margin, seeds and level, declared before running; a ``bound`` of ours.
    against : mapping, optional
        The second place, for a paired difference.
    family : str
        Claims of one family are corrected together (Holm).
    untestable : str
        Why no run can test the claim; empty otherwise.
    place : mapping
        Block, row and column of a table's cell, for pivoted tables.
    spread : str or None
        What is printed behind the number's "±"; None where nothing is.
    after_runs : str
        What was done to the claim when its numbers could be known ("added", or what was changed);
        empty for one that was declared before the runs.
    by_construction : bool
        It holds whatever the data are: a budget, arithmetic on printed numbers, an identity.
    paper_seeds : int
        Runs behind the printed number.
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
    spread: str | None = None
    after_runs: str = ""
    by_construction: bool = False
    paper_seeds: int = 1

    def __post_init__(self) -> None:
        for given, known in ((self.kind, KINDS), (self.rule, RULES)):
            if given not in known:
                raise ClaimsError(f"claim {self.id} has {given!r}; choose from {sorted(known)}")
        needed, optional = RULES[self.rule]
        _conform(self.test, (f"rule {needed}", optional), f"the rule of {self.id}")
        _check_values(self.test, f"the rule of {self.id}")
        told = {name: getattr(self, name) for name in (*_MARKS.split(), "paper_seeds")}
        _check_values(told, f"claim {self.id}")
        if "family" in self.test and not self.family:
            raise ClaimsError(f"the rule of {self.id} has a family; only orderings and gains do")
        if self.rule in BOUNDED and (self.paper_value is None) != ("bound" in self.test):
            raise ClaimsError(f"claim {self.id} needs a printed number or a bound of ours")

    @property
    def rule(self) -> str:
        """One of :data:`RULES`."""
        return str(self.test.get("rule"))

    @property
    def number(self) -> float | None:
        """The printed number as a float; None where none is printed."""
        return None if self.paper_value is None else float(self.paper_value)

    @property
    def bound(self) -> float:
        """The printed number, or the bound that we read a sentence as."""
        return float(self.test["bound"] if self.paper_value is None else self.paper_value)

    def places(self) -> Iterator[Mapping[str, Any]]:
        """Yield every place of our numbers that the claim names."""
        for side in (self.ours, self.against or {}):
            if "pooled" in side:
                yield from itertools.chain.from_iterable(side["pooled"])
            elif "experiments" in side:
                yield from ({**side, "experiment": name} for name in side["experiments"])
            elif "experiment" in side:
                yield side

    def exact(self) -> Callable[[], float]:
        """Import the computation that a claim about an exact game names."""
        place = str(self.ours.get("check"))
        module, _, name = place.partition(":")
        try:
            found: Callable[[], float] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ClaimsError(f"claim {self.id} has no check {place!r}: {error}") from None
        return found


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
    """All claims of a paper, with the tables they come from and the paper's protocol."""

    paper: Mapping[str, Any]
    protocol: Mapping[str, Any]
    data: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, PrintedTable]
    claims: tuple[Claim, ...]
    experiments: Mapping[str, Mapping[str, frozenset[str]]]
    """Of each experiment that a claim may name its metrics, methods and settings."""
    reduced: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of an experiment the one whose runs, with some settings, are shown where it has no record."""

    def __getitem__(self, claim_id: str) -> Claim:
        for claim in self.claims:
            if claim.id == claim_id:
                return claim
        raise KeyError(claim_id)


def parse_claims(text: str) -> Claims:
    """Expand the text of a claims file."""
    yaml = need("yaml", extra="run")
    # printed numbers keep their digits: those of a row are one text
    source = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # 8 times faster
    _check_keys(source)
    experiments = {
        name: {kind: frozenset(_braces(words)) for kind, words in known.items()}
        for name, known in source.get("experiments", {}).items()
    }
    _check_head(source, experiments)
    tables = {block["id"]: _table(block) for block in source.get("tables", [])}
    claims = _Expansion(source, tables).claims
    ids = [claim.id for claim in claims]
    double = sorted({name for name in ids if ids.count(name) > 1})
    if double:
        raise ClaimsError(f"claim ids {double} are used twice")
    for claim in claims:
        for place in claim.places():
            _check_place(claim.id, place, experiments)
            unknown = sorted(set(place.get("protocol", {})) - set(source.get("protocol", {})))
            if unknown:
                raise ClaimsError(f"claim {claim.id}: the paper's protocol has no {unknown}")
    data = {name: tuple(sets) for name, sets in source.get("data", {}).items()}
    _check_datasets(claims, data)
    protocol = source.get("protocol", {})
    parsed = Claims(
        source["paper"], protocol, data, tables, tuple(claims), experiments,
        source.get("reduced", {}),
    )  # fmt: skip
    for claim in claims:
        if claim.rule.startswith("printed"):
            _check_printed(claim, parsed)
    return parsed


# ------------------------------------------------------------------------------ spelling


def _check_keys(source: Mapping[str, Any]) -> None:
    """Hold every part of a claims file to its keys."""
    _conform(source, _SCHEMA["claims file"], "the claims file")
    _conform(source["paper"], _SCHEMA["paper"], "paper")
    for name, known in source.get("experiments", {}).items():
        _conform(known, _SCHEMA["experiments"], f"experiments: {name}")
    for name, there in source.get("reduced", {}).items():
        _conform(there, _SCHEMA["reduced"], f"reduced: {name}")
        if unknown := sorted({name, there["experiment"]} - set(source.get("experiments", {}))):
            raise ClaimsError(f"reduced: {name}: the paper has no experiment {unknown}")
    for section in ("tables", "orderings", "pooled", "stars", "claims"):
        for block in source.get(section, []):
            name = f"{section}: {block.get('id')}"
            _conform(block, _SCHEMA[section], name)
            for part in ("ours", "against"):
                if isinstance(block.get(part), Mapping):
                    _conform(block[part], ("", _PLACE), f"{part} of {name}")
            for row, lookup in block.get("row_lookup", {}).items():
                _conform(lookup, _SCHEMA["row_lookup"], f"row {row} of {name}")


def _check_head(
    source: Mapping[str, Any], experiments: Mapping[str, Mapping[str, frozenset[str]]]
) -> None:
    """Refuse what no experiment or claim of the file has: nothing would ever look it up."""
    protocol = source.get("protocol", {})
    settings = [name for known in experiments.values() for name in known.get("settings", ())]
    _known(protocol, settings, "protocol")
    _check_by_dataset(protocol, source.get("data", {}), "protocol")
    for name, there in source.get("reduced", {}).items():
        known = experiments[there["experiment"]].get("settings", ())
        _known(there.get("settings", {}), known, f"settings of reduced: {name}")
    columns, fields = (
        [value for block in source.get(section, []) for values in block.get(axes, {}).values()
         for value in values]
        for section, axes in (("tables", "columns"), ("claims", "each"))
    )  # fmt: skip
    _known(map(str, source.get("untestable", {})), map(str, columns + fields), "untestable")
    _known(source.get("names", {}), fields, "names")


def _check_by_dataset(protocol: Mapping[str, Any], data: Iterable[str], what: str) -> None:
    """Hold what a protocol sets by data set to those that there are."""
    for name, value in protocol.items():
        if isinstance(value, Mapping):
            _known(value, data, f"{what}: {name}")


def _check_datasets(claims: Iterable[Claim], data: Mapping[str, Any]) -> None:
    """Hold the data sets of claims and those of ``data`` to each other.

    A record of any data would be judged against one that ``data`` does not have.
    """
    named: list[str] = []
    for claim in claims:
        for place in claim.places():
            settings, sweep = place.get("settings", {}), place.get("sweep", {})
            here = [settings["dataset"]] if "dataset" in settings else sweep.get("dataset", [])
            if not claim.untestable:
                _known(here, data, f"dataset of {claim.id}")
            _check_by_dataset(place.get("protocol", {}), data, f"protocol of {claim.id}")
            named += here
    _known(data, named, "data")


def _braces(words: str) -> Iterator[str]:
    """Expand words such as ``"{accuracy,auc}.{1,2} calls"``."""
    for word in words.split():
        head, opened, rest = word.partition("{")
        choices, _, tail = rest.partition("}")
        for choice in choices.split(","):
            yield from _braces(f"{head}{choice}{tail}") if opened else [word]


def _check_place(
    claim: str, place: Mapping[str, Any], experiments: Mapping[str, Mapping[str, frozenset[str]]]
) -> None:
    """Refuse an experiment, metric, setting or method that no run of the paper has."""
    _check_values(place, f"claim {claim}")
    if ("pool" in place) != ("of" in place):
        raise ClaimsError(f"claim {claim}: 'pool' needs 'of', the settings that it is to find")
    name = place["experiment"]
    if name not in experiments:
        raise ClaimsError(
            f"claim {claim} names the experiment {name!r}; choose from {list(experiments)}"
        )
    settings = {**place.get("settings", {}), **place.get("sweep", {})}
    methods = [*place.get("methods", []), settings.get("method")]
    names = [*settings, place.get("over")]
    named = {"metrics": [place["metric"]], "settings": names, "methods": methods}
    for kind, words in named.items():
        known = experiments[name].get(kind, frozenset())
        for word in words:
            if word is not None and word not in known:
                raise ClaimsError(
                    f"claim {claim}: {name} has no {word!r}; its {kind} are {sorted(known)}"
                )


def _check_printed(claim: Claim, claims: Claims) -> None:
    """Refuse a table, row or column that a statistic of the printed tables does not find."""
    try:
        printed_statistic(claims, claim.test)
    except Exception as error:
        told = f"{claim.test['statistic']} gives {type(error).__name__}: {error}"
        raise ClaimsError(f"the rule of {claim.id} fits no printed table: {told}") from error


def _check_columns(
    named: Mapping[str, Sequence[Any]], columns: Sequence[Mapping[str, Any]], what: str
) -> None:
    """Hold names of columns, and values of each, to those that there are."""
    _known(named, columns[0], what)
    for name, values in named.items():
        _known(values, [column[name] for column in columns], what)


def _check_marks(
    block: Mapping[str, Any], what: str, rows: Iterable[str], columns: Sequence[Mapping[str, Any]]
) -> None:
    """Hold the marks of a block to the rows and columns that it has claims of."""
    for kind in _MARKS.split():
        marks, name = block.get(kind, []), f"{kind} of {what}"
        if not isinstance(marks, list | str) or marks == "":
            raise ClaimsError(f"{name} is {marks!r}, and neither a text nor a list of marks")
        for mark in marks if isinstance(marks, list) else []:
            _conform(mark, _SCHEMA["marks"], name)
            _check_values(mark, name)
            _known(mark.get("rows", []), rows, name)
            values = {column: [value] for column, value in mark.get("columns", {}).items()}
            _check_columns(values, columns, name)


# ------------------------------------------------------------------------------ expansion


def _product(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _table(block: Mapping[str, Any]) -> PrintedTable:
    columns = tuple(_product(block["columns"]))
    rows, spreads = {}, {}
    for name, line in block["rows"].items():
        place = f"{block['where']}, row {name}"
        pairs = [entry.partition("±") for entry in str(line).split()]
        numbers = tuple(number for number, _, _ in pairs)
        spread = tuple(text for _, mark, text in pairs if mark)
        try:
            whole = [Decimal(number) for number in numbers + spread]
        except InvalidOperation:
            raise ClaimsError(f"{place}: {line!r} holds no numbers") from None
        if not all(n.is_finite() for n in whole) or min(whole[len(numbers) :], default=0) < 0:
            raise ClaimsError(f"{place}: {line!r} holds a number that is none, or a spread below 0")
        if len(numbers) != len(columns):
            raise ClaimsError(f"{place} has {len(numbers)} numbers for {len(columns)} columns")
        if len(spread) not in (0, len(numbers)):
            raise ClaimsError(f"{place}: give all numbers a spread, or none")
        rows[str(name)] = numbers
        if spread:
            spreads[str(name)] = spread
    settings = block.get("settings", {})
    return PrintedTable(block["id"], block["where"], columns, rows, settings, spreads)


def _words(column: Mapping[str, Any]) -> str:
    return ", ".join(v if isinstance(v, str) else f"{name} {v}" for name, v in column.items())


def _dotted(*parts: str | Mapping[str, Any]) -> str:
    texts: list[str] = []
    for part in parts:
        column = {"": part} if isinstance(part, str) else part
        texts += [v if isinstance(v, str) else f"{name[0]}{v}" for name, v in column.items()]
    return ".".join(filter(None, texts))


def _mark(block: Mapping[str, Any], name: str, row: str, column: Mapping[str, Any]) -> str:
    """Return what a mark of a block says of one of its cells; empty if nothing.

    A mark is a text for the whole block, or a list of texts for some rows or columns of it.
    """
    marks = block.get(name, "")
    if isinstance(marks, str):
        return marks
    return "; ".join(
        mark["what"]
        for mark in marks
        if row in mark.get("rows", [row]) and mark.get("columns", {}).items() <= column.items()
    )


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
        self.cells: dict[tuple[Any, ...], Claim] = {}
        self.claims: list[Claim] = []
        for section, expand in {
            "tables": self._cells,
            "orderings": self._compared,
            "pooled": self._compared,
            "stars": self._stars,
            "claims": self._worded,
        }.items():
            for block in source.get(section, []):
                self.claims.extend(expand(block, f"{section}: {block['id']}"))

    def _claim(self, name: str, test: Mapping[str, Any], **fields: Any) -> Claim:
        seeds = test.get("paper_seeds", self.source["paper"].get("seeds", 1))
        return Claim(id=f"{self.key}.{name}", test=test, paper_seeds=seeds, **fields)

    def _table(self, block: Mapping[str, Any], what: str) -> PrintedTable:
        """Return the table of a block that compares rows of one."""
        _known([block["table"]], self.tables, f"table of {what}")
        table = self.tables[block["table"]]
        row = [block["row"]] if "row" in block else []
        _known([*row, *block.get("against", [])], table.rows, what)
        return table

    def _cell(self, table: PrintedTable, row: str, column: Mapping[str, Any]) -> Claim:
        return self.cells[table.id, row, *column.values()]

    def _reason(self, values: Iterable[Any]) -> str:
        reasons = {str(value): why for value, why in self.source.get("untestable", {}).items()}
        return next((reasons[str(v)] for v in values if str(v) in reasons), "")

    def _cells(self, block: Mapping[str, Any], what: str) -> Iterator[Claim]:
        table = self.tables[block["id"]]
        _check_marks(block, what, table.rows, table.columns)
        for part in ("row_lookup", "row_test"):
            _known(block.get(part, {}), table.rows, f"{part} of {what}")
        for row, numbers in table.rows.items():
            lookup = block.get("row_lookup", {}).get(row, {"settings": {"method": row}})
            lookup = {**block["ours"], **lookup}
            # may name a column: "rate.{kind}"
            metric = str(lookup["metric"])
            spreads = table.spreads.get(row, (None,) * len(numbers))
            for column, number, spread in zip(table.columns, numbers, spreads, strict=True):
                named = {k: v for k, v in column.items() if f"{{{k}}}" not in metric}
                settings = {**table.settings, **lookup.get("settings", {}), **named}
                claim = self.cells[table.id, row, *column.values()] = self._claim(
                    _dotted(table.id, column, row),
                    block.get("row_test", {}).get(row, block["test"]),
                    where=f"{table.where}, row {row}, {_words(column)}",
                    says=f"{table.where}: {row} reaches {number} {block['unit']} "
                    f"({_words(column)})",
                    kind="value",
                    paper_value=number,
                    unit=block["unit"],
                    ours={
                        "experiment": lookup["experiment"],
                        "metric": metric.format(**column),
                        "settings": settings,
                    },
                    untestable=self._reason(column.values()),
                    place={"table": table.id, "row": row, **column},
                    spread=spread,
                    after_runs=_mark(block, "after_runs", row, column),
                    by_construction=bool(_mark(block, "by_construction", row, column)),
                )
                yield claim

    def _compared(self, block: Mapping[str, Any], what: str) -> Iterator[Claim]:
        """Rows against each other: in each column, or in all columns that share what ``by`` names.

        One row is compared with each of those in ``against``; without these the order of all rows
        is claimed, or that one of them is the best.
        """
        table = self._table(block, what)
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        by = block.get("by", list(table.columns[0]))
        _known(by, table.columns[0], f"by of {what}")
        _check_columns(block.get("only", {}), table.columns, f"only of {what}")
        for column in table.columns:
            if all(column[name] in values for name, values in block.get("only", {}).items()):
                groups.setdefault(tuple(column[name] for name in by), []).append(column)
        named = [dict(zip(by, values, strict=True)) for values in groups]
        _check_marks(block, what, block.get("against", []), named)
        for group, columns in zip(named, groups.values(), strict=True):
            name = _dotted(block["id"], group)
            family = f"{self.key}.{name}" if block["test"].get("family") == "column" else ""
            for against in block.get("against", [""]):
                rows = [block.get("row"), against]
                if not against:  # the row that is claimed to be the best stands first
                    rows = sorted(table.rows, key=lambda row: row != block.get("row"))
                cells = [[self._cell(table, row, column) for row in rows] for column in columns]
                pooled = {
                    "experiment": cells[0][0].ours["experiment"],
                    "settings": table.settings,
                    "pooled": [[claim.ours for claim in line] for line in cells],
                    "printed": [[claim.number for claim in line] for line in cells],
                }
                one, *others = (claim.ours for claim in cells[0])
                yield self._claim(
                    f"{name}.vs-{against}" if against else name,
                    block["test"],
                    where=", ".join(filter(None, (table.where, _words(group)))),
                    says=block["says"].format(against=against, settings=len(columns), **group),
                    kind="ordering" if against else "bound",
                    paper_value=_mean_gain(cells) if against else None,
                    unit=block.get("unit", "points" if against else "tau"),
                    ours=pooled if "by" in block else one,
                    against=None if "by" in block else others[0],
                    family=family if against else "",
                    untestable=next(
                        (c.untestable for line in cells for c in line if c.untestable), ""
                    ),
                    place={
                        "table": block["id"],
                        "row": f"vs {against}" if against else "order",
                        **group,
                    },
                    after_runs=_mark(block, "after_runs", against, group),
                    by_construction=bool(_mark(block, "by_construction", against, group)),
                )

    def _stars(self, block: Mapping[str, Any], what: str) -> Iterator[Claim]:
        """Marks of significance: the row is better than the second best of each column."""
        table, marks = self._table(block, what), block["marks"].split()
        if len(marks) != len(table.columns) or set(marks) - {*STARS, "-"}:
            raise ClaimsError(
                f"{self.key}.{block['id']} has the marks {marks}; give one of {[*STARS, '-']} for "
                f"each of {len(table.columns)} columns"
            )
        starred = {n: mark for n, mark in enumerate(marks) if mark != "-"}
        _check_marks(block, what, [block["row"]], [table.columns[n] for n in starred])
        for n, mark in starred.items():
            column = table.columns[n]
            cells = {row: self._cell(table, row, column) for row in table.rows}
            first = cells.pop(block["row"])
            against = max(cells, key=lambda row: float(cells[row].paper_value or 0))
            p = f"{1 - STARS[mark]:.2g}"
            yield self._claim(
                _dotted(block["id"], column),
                {**block["test"], "level": STARS[mark]},
                where=f"{table.where}, {_words(column)}, {mark}",
                says=block["says"].format(against=against, p=p, column=_words(column)),
                kind="ordering",
                paper_value=None,
                unit=block["unit"],
                ours=first.ours,
                against=cells[against].ours,
                place={"table": block["id"], "row": block["row"], **column},
                untestable=first.untestable or cells[against].untestable,
                after_runs=_mark(block, "after_runs", block["row"], column),
                by_construction=bool(_mark(block, "by_construction", block["row"], column)),
            )

    def _worded(self, block: Mapping[str, Any], _: str) -> Iterator[Claim]:
        names = self.source.get("names", {})
        for fields in _product(block.get("each", {})):
            entry = _fill(block, fields) if fields else dict(block)
            entry.pop("each", None)
            if fields:  # for people: FedTSV, not tsv
                words = {name: names.get(value, value) for name, value in fields.items()}
                entry["says"] = _fill(block["says"], words)
            name, test = entry.pop("id"), entry.pop("test")
            entry["place"] = {"table": "words", "row": name}
            entry.setdefault("untestable", self._reason(fields.values()))
            if "family" in entry:
                entry["family"] = f"{self.key}.{entry['family']}"
            yield self._claim(name, test, **{"unit": "", "ours": {}, **entry})
