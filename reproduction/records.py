"""Records: what one method at one setting gave, seed by seed, and what it was made with.

A record is one JSON file, ``results/<profile>/<paper>/<experiment>/<key>.json``.  It is *stale*
once a golden run that answers for it is at another behaviour than when it was made.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.atomic import write_text
from fedkit.extras import need
from reproduction import golden_folder, results_folder

if TYPE_CHECKING:
    import pandas as pd

PROFILES = ("smoke", "laptop", "paper")
"""Sizes at which an experiment exists, smallest first."""

SHIPPED = "what fedkit has on record lies in results/ of its source: FEDKIT_RESULTS may name it"
"""Where to look for what a folder of records lacks."""

SCHEMA = 1
"""Version of the form of a record; a change that old readers would misread raises it."""

Result = Mapping[str, Any]
"""One seed's outcome: ``seed``, ``metrics`` (name to number), ``series`` (name to numbers), and
optionally ``data`` (identity of the data set) and ``evaluations``, which go to the manifest."""

# ------------------------------------------------------------------- what a record is of


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
        named = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if len(named) > _MOST_SEEDS:
            raise ValueError(f"seeds {text!r} are more than {_MOST_SEEDS:,}; take fewer")
        if not named:
            raise ValueError(f"seeds {text!r} cannot be read; write them as 0-4 or 0,2,5-7")
        seeds.extend(named)
    return tuple(dict.fromkeys(seeds))


_LEAD = ("method", "dataset", "alpha", "imbalance")  # what a file name tells, where it is set
_COLUMNS = frozenset({"profile", "paper", "experiment", "key", "seed", "seeds", "metric", "value",
                      "series", "index"})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cell:
    """One method at one setting over one block of seeds: what one record holds.

    Cells are equal when their fields say the same, in any order, a number written 1 or 1.0.
    """

    profile: str
    paper: str
    experiment: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        # numpy's numbers and tuples become plain ones and lists
        settings = json.loads(json.dumps(dict(self.settings), default=np.generic.item))
        if hidden := sorted(_COLUMNS & set(settings)):
            raise ValueError(f"settings {hidden} would hide columns of the tables; rename them")
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "seeds", tuple(int(seed) for seed in self.seeds))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data; ``Cell(**data)`` is the cell again."""
        return {**vars(self), "settings": dict(self.settings), "seeds": list(self.seeds)}

    @property
    def identity(self) -> str:
        """Canonical text of the cell; equal cells have equal text."""
        return canonical_json(self.to_dict())

    @property
    def setting(self) -> str:
        """Canonical text of all but the seeds."""
        return canonical_json({**self.to_dict(), "seeds": []})

    @property
    def digest(self) -> str:
        """Ten hexadecimal digits that tell this cell from all others."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:10]

    @property
    def slug(self) -> str:
        """What a reader recognises in the name of a record; other settings may have the same."""
        words = [
            f"{'' if name in _LEAD[:2] else name}{_canonical(self.settings[name])}"
            for name in _LEAD
            if name in self.settings
        ]
        return re.sub(r"[^a-z0-9.+]+", "-", "-".join(words).lower())[:60].strip("-.")

    @property
    def key(self) -> str:
        """File name of the record: its slug, its seeds and its digest."""
        seeds = format_seeds(self.seeds).replace(",", ".")
        seeds = seeds if len(seeds) <= 12 else f"{len(self.seeds)}seeds"
        return "-".join([*([self.slug] if self.slug else []), f"s{seeds}", self.digest])

    @property
    def name(self) -> str:
        """``profile/paper/experiment/key``."""
        return f"{self.profile}/{self.paper}/{self.experiment}/{self.key}"

    @property
    def command(self) -> str:
        """The shell command that computes this cell anew."""
        method = str(self.settings.get("method"))
        own = f"--method {method} " if ":" in method else ""
        return (
            f"fedkit run {self.paper} {self.experiment} --profile {self.profile} {own}"
            f"--seeds {format_seeds(self.seeds)} --only key={self.digest} --force"
        )

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, Cell) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)


# ------------------------------------------------------------------- what it is held to


@cache
def _golden(path: Path, changed_ns: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return body


def golden_numbers(paper: str, name: str) -> dict[str, Any]:
    """Return what is committed of a golden run: its behaviour, history and numbers."""
    path = golden_folder(paper) / f"{name}.json"
    if not path.is_file():
        return {"behaviour": 0, "history": [], "numbers": {}}
    return _golden(path, path.stat().st_mtime_ns)


def behaviour(paper: str, name: str, settings: Mapping[str, Any] | None = None) -> int:
    """Return the behaviour that a golden run is at; 0 where none is committed.

    With the settings of a cell, it is the last change that concerned such cells; to be watched
    more closely, with the same number as before, is no change.
    """
    stored = golden_numbers(paper, name)
    if settings is None:
        return int(stored["behaviour"])
    concerned = [0]
    for before, change in pairwise([{"n": 0}, *stored["history"]]):
        named = change.get("only", {}).items()
        if change["n"] > before["n"] and all(str(settings.get(k)) == v for k, v in named):
            concerned.append(int(change["n"]))
    return max(concerned)


# ------------------------------------------------------------------- one record


class RecordError(ValueError):
    """A record that cannot be trusted: damaged, misplaced, or of a newer checkout."""


@dataclass(frozen=True)
class Record:
    """A finished cell as read from its file.

    `results` has a dictionary per seed: ``seed``, ``metrics`` (name to float, NaN where there was
    none) and ``series`` (name to list of float); `manifest` is as
    :func:`reproduction.manifest.make_manifest` makes it.  Both are shared: change neither.
    """

    cell: Cell
    results: tuple[dict[str, Any], ...]
    manifest: Mapping[str, Any]

    def stale(self) -> list[str]:
        """Say which golden runs are others than the record's; empty when it is fresh."""
        then: Mapping[str, int] | None = self.manifest.get("behaviour")
        if then is None:
            return ["(no golden run recorded)"]
        now = {name: behaviour(self.cell.paper, name) for name in then}
        if ahead := [name for name in then if then[name] > now[name] > 0]:
            raise RecordError(
                f"record {self.cell.key} is ahead of this checkout in {', '.join(ahead)}; update "
                "it, or take the record out"
            )
        changed = [f"{name}, which is there no longer" for name in then if not now[name]]
        for name, n in then.items():
            if n < behaviour(self.cell.paper, name, self.cell.settings):
                changed.append(f"{name} {n} of {now[name]}")
        return changed


def _rank(record: Record) -> tuple[bool, int, str]:
    """Which of two records of a seed counts: the fresh one, then that of more seeds."""
    return bool(record.stale()), -len(record.cell.seeds), record.cell.key


def plain(value: Any, digits: int | None = None) -> int | float | str | None:
    """Write one number: NaN as null, infinities as text, floats to `digits` when given."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value  # type: ignore[no-any-return]
    if not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if digits is None else float(f"{value:.{digits}g}")


def _real(value: Any) -> float:
    return math.nan if value is None else float(value)


def _checksum(body: Mapping[str, Any]) -> str:
    content = {name: body[name] for name in ("schema", "cell", "results", "manifest")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=4096)
def _read(path: Path, changed_ns: int, size: int) -> Record:
    """Read a record once for each state of its file: a page asks for the same one many times."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            raise ValueError(f"its schema is {body['schema']}, this checkout reads {SCHEMA}")
        if body["checksum"] != _checksum(body):
            raise ValueError("its checksum differs")
        results = tuple(
            {
                "seed": int(item["seed"]),
                "metrics": {name: _real(value) for name, value in item["metrics"].items()},
                "series": {name: [*map(_real, values)] for name, values in item["series"].items()},
            }
            for item in body["results"]
        )
        return Record(Cell(**body["cell"]), results, body["manifest"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        name = "/".join(path.parts[-4:])
        raise RecordError(f"{name} is damaged ({error}); delete it and run again") from error


# ------------------------------------------------------------------- the folder of records


class Store:
    """A folder of records, by default that of the checkout or ``FEDKIT_RESULTS``."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = results_folder() if root is None else Path(root)

    def path(self, cell: Cell) -> Path:
        """Return where the record of a cell is, or will be."""
        return self.root / f"{cell.name}.json"

    def save(
        self, cell: Cell, results: Sequence[Result], manifest: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the record of a cell: results of its seeds, in their order.

        Metrics keep all digits, series seven.
        """
        seeds = [int(result["seed"]) for result in results]
        if seeds != list(cell.seeds):
            raise ValueError(f"results of {cell.key} are of seeds {seeds}, not {list(cell.seeds)}")
        packed = [
            {
                "seed": int(result["seed"]),
                "metrics": {str(k): plain(v) for k, v in result["metrics"].items()},
                "series": {
                    str(k): [plain(x, 7) for x in np.asarray(values)]
                    for k, values in (result.get("series") or {}).items()
                },
            }
            for result in results
        ]
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "cell": cell.to_dict(),
            "results": packed,
            "manifest": dict(manifest or {}),
        }
        body["checksum"] = _checksum(body)
        path = self.path(cell)
        write_text(path, json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n")
        return path

    def read(self, path: Path) -> Record:
        """Read and check the record in a file, and that it lies in its place."""
        there = path.stat()
        record = _read(path, there.st_mtime_ns, there.st_size)
        if path != self.path(record.cell):
            raise RecordError(f"{path} holds the record {record.cell.name}; move it there")
        return record

    def paths(
        self, profile: str | None = None, paper: str | None = None, experiment: str | None = None
    ) -> list[Path]:
        """List the files of the records there are, sorted."""
        pattern = f"{profile or '*'}/{paper or '*'}/{experiment or '*'}/*.json"
        return sorted(path for path in self.root.glob(pattern) if not path.name.startswith("."))

    def records(
        self, profile: str | None = None, paper: str | None = None, experiment: str | None = None
    ) -> list[Record]:
        """Read all records of a part of the folder."""
        return [self.read(path) for path in self.paths(profile, paper, experiment)]

    def held(self, cell: Cell) -> dict[int, Record]:
        """Return, by seed, the record that counts of all that have the setting of a cell."""
        names = f"{cell.slug}-s*.json" if cell.slug else "s*.json"
        near = [self.read(path) for path in self.path(cell).parent.glob(names)]
        same = [record for record in near if record.cell.setting == cell.setting]
        worst_first = sorted(same, key=_rank, reverse=True)
        return {seed: record for record in worst_first for seed in record.cell.seeds}

    def state(self, cell: Cell) -> str:
        """Return "done", "stale" or "missing", in whatever records the seeds of a cell lie."""
        held = self.held(cell)
        if not set(cell.seeds) <= set(held):
            return "missing"
        return "stale" if any(held[seed].stale() for seed in cell.seeds) else "done"

    def results(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the results of a cell's seeds, in whatever records they lie."""
        held = self.held(cell)
        if missing := [seed for seed in cell.seeds if seed not in held]:
            part = replace(cell, seeds=tuple(missing))
            raise FileNotFoundError(f"no record {part.name}; make it with: {part.command}")
        return [
            next(result for result in held[seed].results if result["seed"] == seed)
            for seed in cell.seeds
        ]

    def frame(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the metrics as a tidy table: one row per seed and metric.

        A seed that two records of a setting hold counts once: the fresh record, then the one with
        more seeds.  Columns are profile, paper, experiment, key, the settings, seed, metric, value.
        """
        return self._table(
            lambda result: result["metrics"].items(),
            ["seed", "metric", "value"], (profile, paper, experiment),
        )  # fmt: skip

    def series(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the series as :meth:`frame` does; columns end in seed, series, index, value."""
        return self._table(
            lambda result: (
                (name, index, value)
                for name, values in result["series"].items()
                for index, value in enumerate(values)
            ),
            ["seed", "series", "index", "value"], (profile, paper, experiment),
        )  # fmt: skip

    def _table(
        self,
        rows_of: Callable[[Mapping[str, Any]], Iterable[tuple[Any, ...]]],
        columns: list[str],
        part: tuple[str | None, str | None, str | None],
    ) -> pd.DataFrame:
        """Set the rows of each seed, once, beside what tells its cell from others."""
        pd = need("pandas", extra="run")
        lead = ["profile", "paper", "experiment", "key"]
        heads: list[dict[str, Any]] = []
        rows: list[tuple[Any, ...]] = []  # the first of each: the place of its cell in heads
        seen: set[tuple[str, int]] = set()
        for record in sorted(self.records(*part), key=_rank):
            cell, setting = record.cell, record.cell.setting
            for result in record.results:
                if (setting, result["seed"]) not in seen:
                    seen.add((setting, result["seed"]))
                    rows += [(len(heads), result["seed"], *row) for row in rows_of(result)]
            settings = {k: tuple(v) if isinstance(v, list) else v for k, v in cell.settings.items()}
            heads.append({name: getattr(cell, name) for name in lead} | settings)
        last = pd.DataFrame(rows, columns=["owner", *columns])
        first = pd.DataFrame(heads, columns=None if heads else lead).take(last.pop("owner"))
        return pd.concat([first.reset_index(drop=True), last], axis=1)


def frame(paper: str, experiment: str | None = None, profile: str = "paper") -> pd.DataFrame:
    """Return the metrics on record as a tidy table; see :meth:`Store.frame`."""
    return Store().frame(paper, experiment, profile)
