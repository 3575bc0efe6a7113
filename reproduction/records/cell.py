"""The unit of recorded work: one method, one setting, one block of seeds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.checks import whole

__all__ = ["PROFILES", "Cell", "canonical_json", "format_seeds", "parse_seeds", "told_apart"]

PROFILES = ("smoke", "laptop", "paper")
"""Sizes at which an experiment exists, smallest first."""

_RESERVED = frozenset(
    {"profile", "paper", "experiment", "key", "seed", "seeds", "metric", "value", "series", "index"}
)
_LEAD = ("method", "dataset", "alpha", "imbalance")  # what a file name tells, where it is set
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def _canonical(value: Any) -> Any:
    """Write 1.0 and 1 alike, so that equal settings have equal text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """Write JSON data as one text: sorted names, no blanks, 1.0 written as 1; no NaN."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as the command line takes them: ``0-4`` or ``0,2,7``."""
    numbers = list(seeds)
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


_MOST_SEEDS = 100_000  # of a range: more is a slip, and fills the memory


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds written as ``3``, ``0-4`` or ``0,2,5-7``, each once."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        there = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if len(there) > _MOST_SEEDS:
            raise ValueError(f"seeds {text!r} are more than {_MOST_SEEDS:,}; take fewer")
        if not there:
            raise ValueError(f"seeds {text!r} cannot be read; write them as 0-4 or 0,2,5-7")
        seeds.extend(there)
    return tuple(dict.fromkeys(seeds))


@dataclass(frozen=True, eq=False)
class Cell:
    """One method at one setting over one block of seeds: what one record holds.

    Two cells are equal when their five fields say the same, whatever the order in which the
    settings were given and whether a number was written 1 or 1.0.

    Parameters
    ----------
    paper, experiment : str
        Names as in the registry, e.g. ``"fedowen"`` and ``"table1"``.
    settings : mapping
        JSON-able values by name, with at least what tells this cell from its neighbours
        (``method``, ``dataset``, ``alpha``, ...).
    seeds : tuple of int
        Root seeds, non-negative, each once.

    Examples
    --------
    >>> cell = Cell("smoke", "fedowen", "table1", {"method": "fedowen", "alpha": 0.1}, (0, 1))
    >>> cell.key.rsplit("-", 1)[0]
    'fedowen-alpha0.1-s0-1'
    """

    profile: str
    paper: str
    experiment: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"profile {self.profile!r} is unknown; choose from {list(PROFILES)}")
        for name in (self.paper, self.experiment):  # of folders
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name; use letters, digits, '_', '.' and '-'")
        try:  # numpy's numbers and tuples become plain ones and lists
            text = json.dumps(dict(self.settings), default=np.generic.item, allow_nan=False)
        except (ValueError, TypeError) as error:
            told = f"settings {self.settings} are not JSON data, such as finite numbers"
            raise ValueError(told) from error
        settings = json.loads(text)
        clash = sorted(_RESERVED & set(settings))
        if clash:
            raise ValueError(f"settings {clash} would hide columns of the tables; rename them")
        seeds = tuple(whole("seeds", seed, 0) for seed in self.seeds)
        if not seeds or len(set(seeds)) != len(seeds):
            raise ValueError(f"seeds are {list(self.seeds)}; a cell has at least one, each once")
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "seeds", seeds)

    def to_dict(self) -> dict[str, Any]:
        """Return the five fields as JSON data; ``Cell(**data)`` is the cell again."""
        return {**vars(self), "settings": dict(self.settings), "seeds": list(self.seeds)}

    @property
    def identity(self) -> str:
        """Canonical text of the cell; equal cells have equal text."""
        return canonical_json(self.to_dict())

    @property
    def key(self) -> str:
        """File name of the record: what a reader recognises, then ten hexadecimal digits."""
        words = [
            f"{'' if name in _LEAD[:2] else name}{_canonical(self.settings[name])}"
            for name in _LEAD
            if name in self.settings
        ]
        slug = re.sub(r"[^a-z0-9.+]+", "-", "-".join(words).lower())[:60].strip("-.")
        seeds = format_seeds(self.seeds).replace(",", ".")
        seeds = seeds if len(seeds) <= 12 else f"{len(self.seeds)}seeds"
        return "-".join([*([slug] if slug else []), f"s{seeds}", self.digest])

    @property
    def digest(self) -> str:
        """Ten hexadecimal digits that tell this cell from all others."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:10]

    @property
    def command(self) -> str:
        """The shell command that computes this cell anew."""
        name, signed, _ = str(self.settings.get("method")).partition("@")
        method = f"--method {name} " if signed else ""
        return (
            f"fedkit run {self.paper} {self.experiment} --profile {self.profile} {method}"
            f"--seeds {format_seeds(self.seeds)} --only key={self.digest} --force"
        )

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, Cell) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)


def told_apart(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return, for each cell, the settings that tell it from cells of a like key.

    Keys are alike that differ in their ten digits alone.
    """
    names = [cell.key.removesuffix(cell.digest) for cell in cells]
    seen: dict[tuple[str, str], set[str]] = {}
    for name, cell in zip(names, cells, strict=True):
        for key, value in cell.settings.items():
            seen.setdefault((name, key), set()).add(canonical_json(value))
    return [
        {key: value for key, value in cell.settings.items() if len(seen[name, key]) > 1}
        for name, cell in zip(names, cells, strict=True)
    ]
