"""Records: written whole or not at all, checked when read, shown as tables.

Each finished cell is one small JSON file, ``results/<profile>/<paper>/<experiment>/<key>.json``,
with the raw values of every seed and a manifest of what made them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.atomic import write_text
from fedkit.extras import need
from reproduction.records.cell import Cell, canonical_json
from reproduction.records.golden import version
from reproduction.records.manifest import default_root

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "NewerRecordError", "Record", "RecordError", "Result", "Store"]

SCHEMA = 1
"""Version of the form of a record; a change that old readers would misread raises it."""

Result = Mapping[str, Any]
"""One seed's outcome: ``seed``, ``metrics``, ``series``, and optionally ``data`` (identity of
the data set) and ``evaluations``, which move to the manifest."""

_HEAD = ["profile", "paper", "experiment", "key"]


class RecordError(ValueError):
    """A record that cannot be trusted: damaged, of another schema, or of another cell."""


class NewerRecordError(RecordError):
    """A record that a newer fedkit wrote; it is never replaced."""


@dataclass(frozen=True)
class Record:
    """A finished cell as read from its file.

    Attributes
    ----------
    results : tuple of dict
        Per seed: ``seed``, ``metrics`` (name -> float, NaN where there was none) and ``series``
        (name -> list of float).
    manifest : dict
        See :func:`reproduction.records.manifest.make_manifest`.
    """

    cell: Cell
    results: tuple[dict[str, Any], ...]
    manifest: Mapping[str, Any]

    def stale(self) -> list[str]:
        """Say which golden runs are others than the record's; empty when it is fresh."""
        then = self.manifest.get("behaviour")
        if then is None:
            return ["(no golden run recorded)"]
        now = {name: version(self.cell.paper, name) for name in then}
        if ahead := [name for name in then if then[name] > now[name] > 0]:
            raise NewerRecordError(
                f"record {self.cell.key} is ahead of this checkout in {', '.join(ahead)}; update "
                "it, or take the record out"
            )
        gone = [f"{name}, which is there no longer" for name in then if not now[name]]
        since = {name: version(self.cell.paper, name, self.cell.settings) for name in then}
        older = (name for name in then if then[name] < since[name])
        return gone + [f"{name} {then[name]} of {now[name]}" for name in older]


# ------------------------------------------------------------------- the form of a record


def _number(value: Any, where: str, digits: int | None = None) -> int | float | str | None:
    """Write one number: NaN as null, infinities as text, floats to `digits` when given."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if not isinstance(value, float):
        raise ValueError(f"{where} holds {value!r}; metrics and series hold numbers")
    if not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if digits is None else float(f"{value:.{digits}g}")


def _pack(results: Sequence[Result], cell: Cell) -> list[dict[str, Any]]:
    """Check the results of a cell and make them plain JSON."""
    packed = []
    for result in results:
        unknown = set(result) - {"seed", "metrics", "series", "data", "evaluations"}
        if unknown or "seed" not in result or "metrics" not in result:
            raise ValueError(
                f"a result of {cell.key} has the fields {sorted(result)}; it needs seed and "
                "metrics, and may have series, data and evaluations"
            )
        series = {}
        for name, values in (result.get("series") or {}).items():
            if np.ndim(values) != 1:
                raise ValueError(f"series {name} has shape {np.shape(values)}; a series is a list")
            series[str(name)] = [_number(x, f"series {name}", 7) for x in np.asarray(values)]
        metrics = {str(k): _number(v, f"metric {k}") for k, v in result["metrics"].items()}
        packed.append({"seed": int(result["seed"]), "metrics": metrics, "series": series})
    seeds = [item["seed"] for item in packed]
    if seeds != list(cell.seeds):
        raise ValueError(
            f"results of {cell.key} are of seeds {seeds}; the cell asks for {list(cell.seeds)}, "
            "in this order, each once"
        )
    return packed


def _unpack(item: Mapping[str, Any]) -> dict[str, Any]:
    def real(value: Any) -> float:
        return math.nan if value is None else float(value)

    return {
        "seed": int(item["seed"]),
        "metrics": {name: real(value) for name, value in item["metrics"].items()},
        "series": {name: [*map(real, values)] for name, values in item["series"].items()},
    }


def _checksum(body: Mapping[str, Any]) -> str:
    content = {name: body[name] for name in ("schema", "cell", "results", "manifest")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=4096)
def _read(path: Path, changed_ns: int, size: int) -> bytes:
    """Read a record once for each state of its file: a page asks for the same one many times.

    It is kept as a pickle, of which every reader has a copy.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] > SCHEMA:
            raise NewerRecordError(
                f"{path.name} has a newer schema; install the fedkit that wrote it"
            )
        if body["schema"] != SCHEMA:
            raise ValueError(f"its schema is {body['schema']}, this fedkit reads {SCHEMA}")
        if body["checksum"] != _checksum(body):
            raise ValueError("its checksum differs")
        results = tuple(_unpack(item) for item in body["results"])
        return pickle.dumps(Record(Cell(**body["cell"]), results, body["manifest"]))
    except NewerRecordError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        profile, paper, experiment, name = path.parts[-4:]
        raise RecordError(
            f"{profile}/{paper}/{experiment}/{name} is damaged ({error}); delete it, and make it "
            f"anew as it was made, such as with: fedkit run {paper} {experiment} --profile "
            f"{profile}"
        ) from error


# ----------------------------------------------------------------------------- the store

_ABANDONED = 3600.0  # seconds after which a file that is being written is nobody's


class Store:
    """The folder of records, by default :func:`default_root`; the first save creates it."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = default_root() if root is None else Path(root)

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell's record."""
        return self.root / cell.profile / cell.paper / cell.experiment / f"{cell.key}.json"

    def save(
        self, cell: Cell, results: Sequence[Result], manifest: Mapping[str, Any] | None = None
    ) -> Path:
        """Write a record whole or not at all, and return its file.

        Parameters
        ----------
        results : sequence of mapping
            One per seed of the cell, in its order: ``{"seed", "metrics", "series"}``.  Metrics
            keep all digits; series are rounded to seven.  NaN is stored as null.
        manifest : mapping, optional
            See :func:`reproduction.records.manifest.make_manifest`.

        Raises
        ------
        ValueError
            If the results are not of this form or of other seeds.
        """
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "cell": cell.to_dict(),
            "results": _pack(results, cell),
            "manifest": dict(manifest or {}),
        }
        body["checksum"] = _checksum(body)
        path = self.path(cell)
        for left in path.parent.glob(f".{path.name}.*.tmp"):  # of a runner killed in mid-write
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - _ABANDONED:
                    left.unlink()
        write_text(path, json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n")
        return path

    def load(self, cell: Cell) -> Record:
        """Read and check the record of a cell.

        Raises
        ------
        FileNotFoundError
            If there is none; the message holds the command that makes it.
        RecordError
            If it is damaged, of another schema, or of another cell.
        """
        path = self.path(cell)
        if not path.is_file():
            name = path.relative_to(self.root)
            raise FileNotFoundError(f"no record {name}; make it with: {cell.command}")
        record = self.read(path)
        if record.cell != cell:
            raise RecordError(f"{path} holds another cell; make it anew with: {cell.command}")
        return record

    def read(self, path: Path) -> Record:
        """Read and check the record in a file; what is returned is the caller's own."""
        there = path.stat()
        record: Record = pickle.loads(_read(path, there.st_mtime_ns, there.st_size))
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
        """Read all records of a part of the store.

        A damaged one, or one in the place of another cell's, raises :class:`RecordError`.
        """
        found = []
        for path in self.paths(profile, paper, experiment):
            found.append(record := self.read(path))
            if path != self.path(record.cell):
                raise RecordError(f"{path} holds the record of {self.path(record.cell)}; move it")
        return found

    def holding(self, cell: Cell) -> list[Record]:
        """Return the records that hold all seeds of a cell: its own, or fresh ones of its setting.

        The list is empty where some seed is in none.  A record of its own that cannot be trusted
        raises :class:`RecordError`; others of that kind are passed over.
        """
        with suppress(FileNotFoundError):
            return [self.load(cell)]
        setting, _, _ = cell.key.rpartition("-s")  # what a key starts with, before its seeds
        found, left = [], set(cell.seeds)
        for path in sorted(self.path(cell).parent.glob(f"{setting}-s*.json" if setting else "s*")):
            with suppress(RecordError):
                record = self.read(path)
                same = replace(record.cell, seeds=cell.seeds) == cell and not record.stale()
                if same and left & {*record.cell.seeds}:
                    left -= {*record.cell.seeds}
                    found.append(record)
        return [] if left else found

    def state(self, cell: Cell) -> tuple[str, str]:
        """Return ``"fresh"``, ``"stale"``, ``"missing"`` or ``"unreadable"``, and why.

        Of a cell whose seeds lie in other records of its setting, these are meant.
        """
        try:
            there = self.holding(cell)
            changed = dict.fromkeys(change for record in there for change in record.stale())
        except RecordError as error:
            return "unreadable", str(error)
        if not there:
            return "missing", ""
        return ("stale", ", ".join(changed)) if changed else ("fresh", "")

    def frame(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the metrics as a tidy table: one row per seed and metric.

        Where two records hold the same seed of the same setting (blocks of seeds that overlap),
        the fresh record counts, of two the one with more seeds, so nothing counts twice.

        The columns are profile, paper, experiment, key, the settings, seed, metric, value.  The
        table is empty where there is no record of this name; ``fedkit list`` says what there is.
        """

        def rows(result: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return [(result["seed"], name, value) for name, value in result["metrics"].items()]

        return self._table(rows, ["seed", "metric", "value"], (profile, paper, experiment))

    def series(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the series as a tidy table: one row per seed, series and index (round).

        The parameters and the rule for overlapping blocks of seeds are those of :meth:`frame`;
        the columns end in seed, series, index, value.
        """

        def rows(result: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return [
                (result["seed"], name, index, value)
                for name, values in result["series"].items()
                for index, value in enumerate(values)
            ]

        return self._table(rows, ["seed", "series", "index", "value"], (profile, paper, experiment))

    def _table(
        self,
        rows_of: Callable[[Mapping[str, Any]], list[tuple[Any, ...]]],
        columns: list[str],
        part: tuple[str | None, str | None, str | None],
    ) -> pd.DataFrame:
        """Set the rows of each seed, once, beside what tells its cell from others."""
        pd = need("pandas", extra="run")
        heads: list[dict[str, Any]] = []
        owner: list[int] = []  # of each row: its place in heads
        rows: list[tuple[Any, ...]] = []
        seen: set[tuple[str, int]] = set()
        best_first = sorted(
            self.records(*part), key=lambda r: (bool(r.stale()), -len(r.cell.seeds), r.cell.key)
        )
        for record in best_first:
            cell = record.cell
            block = canonical_json({**cell.to_dict(), "seeds": []})
            for result in record.results:
                if (block, result["seed"]) not in seen:
                    seen.add((block, result["seed"]))
                    rows += rows_of(result)
            owner += [len(heads)] * (len(rows) - len(owner))
            settings = {k: tuple(v) if isinstance(v, list) else v for k, v in cell.settings.items()}
            heads.append({name: getattr(cell, name) for name in _HEAD} | settings)
        first = pd.DataFrame(heads, columns=None if heads else _HEAD)
        first = first.take(owner).reset_index(drop=True)
        return pd.concat([first, pd.DataFrame(rows, columns=columns)], axis=1)
