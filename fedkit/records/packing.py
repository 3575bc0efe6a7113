"""The form of a record: numbers as JSON and back, with a checksum."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.records.cell import Cell, canonical_json
from fedkit.records.golden import version

__all__ = ["SCHEMA", "NewerRecordError", "Record", "RecordError", "Result", "decode", "encode"]

SCHEMA = 1
"""Version of the form of a record; a change that old readers would misread raises it."""

Result = Mapping[str, Any]
"""One seed's outcome: ``seed``, ``metrics``, ``series``, and optionally ``data`` (identity of
the data set) and ``evaluations``, which move to the manifest."""


class RecordError(ValueError):
    """A record that cannot be trusted: damaged, of another schema, or of another cell."""


class NewerRecordError(RecordError):
    """A record that a newer fedkit wrote; it is never replaced."""


def _number(value: Any, where: str, digits: int | None = None) -> int | float | str | None:
    """Write one number: NaN as null, infinities as text, floats to `digits` when given."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if not isinstance(value, float):
        raise ValueError(f"{where} holds {value!r}; metrics and series hold numbers")
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value if digits is None else float(f"{value:.{digits}g}")


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _pack(results: Sequence[Result], cell: Cell) -> list[dict[str, Any]]:
    """Check the results of a cell and make them plain JSON."""
    packed = []
    for result in results:
        unknown = sorted(set(result) - {"seed", "metrics", "series", "data", "evaluations"})
        if unknown or "seed" not in result or "metrics" not in result:
            raise ValueError(
                f"a result of {cell.key} has the fields {sorted(result)}; it needs seed and "
                "metrics, and may have series, data and evaluations"
            )
        seed = int(result["seed"])
        metrics = {
            str(name): _number(value, f"metric {name}") for name, value in result["metrics"].items()
        }
        series = {}
        for name, values in (result.get("series") or {}).items():
            array = np.asarray(values)
            if array.ndim != 1:
                raise ValueError(f"series {name} has shape {array.shape}; a series is a list")
            series[str(name)] = [_number(item, f"series {name}", digits=7) for item in array]
        packed.append({"seed": seed, "metrics": metrics, "series": series})
    seeds = [item["seed"] for item in packed]
    if seeds != list(cell.seeds):
        raise ValueError(
            f"results of {cell.key} are of seeds {seeds}; the cell asks for {list(cell.seeds)}, "
            "in this order, each once"
        )
    return packed


def _checksum(body: Mapping[str, Any]) -> str:
    content = {name: body[name] for name in ("schema", "cell", "results", "manifest")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Record:
    """A finished cell as read from its file.

    Attributes
    ----------
    cell : Cell
    results : tuple of dict
        Per seed: ``seed``, ``metrics`` (name -> float, NaN where there was none) and ``series``
        (name -> list of float).
    manifest : dict
        See :func:`fedkit.records.manifest.make_manifest`.
    """

    cell: Cell
    results: tuple[dict[str, Any], ...]
    manifest: Mapping[str, Any]

    def stale(self) -> list[str]:
        """Say which golden runs changed since the record was made; empty when it is fresh.

        Raises
        ------
        NewerRecordError
            If a golden run is older than the record: the checkout is behind.
        """
        then = self.manifest.get("behaviour")
        if then is None:
            return ["(no golden run recorded)"]
        now = {name: version(self.cell.paper, name) for name in then}
        ahead = sorted(name for name in then if then[name] > now[name])
        if ahead:
            name = ahead[0]
            raise NewerRecordError(
                f"record {self.cell.key} is of behaviour {then[name]} of {name} and this checkout "
                f"has {now[name]}; update it, or take the record out"
            )
        return [f"{name} {then[name]} of {now[name]}" for name in then if then[name] < now[name]]

    def same_results(self, other: Record) -> bool:
        """Tell whether two records hold equal numbers, whatever their wall times and dates."""
        mine, theirs = (
            [
                {
                    "seed": item["seed"],
                    "metrics": {k: _number(v, k) for k, v in item["metrics"].items()},
                    "series": {k: [_number(v, k) for v in vs] for k, vs in item["series"].items()},
                }
                for item in record.results
            ]
            for record in (self, other)
        )
        return self.cell == other.cell and canonical_json(mine) == canonical_json(theirs)


def encode(cell: Cell, results: Sequence[Result], manifest: Mapping[str, Any]) -> str:
    """Write a record as text; `results` hold one entry per seed of the cell, in its order."""
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "cell": cell.to_dict(),
        "results": _pack(results, cell),
        "manifest": dict(manifest),
    }
    body["checksum"] = _checksum(body)
    return json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n"


def decode(text: str, name: str, again: str) -> Record:
    """Read and check a record.

    Parameters
    ----------
    text : str
        What :func:`encode` wrote.
    name, again : str
        How errors call the file, and what they advise.

    Raises
    ------
    RecordError
        If the text is damaged, or of another schema (:class:`NewerRecordError` if of a newer one).
    """
    try:
        body = json.loads(text)
        schema = body["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{name} is damaged (not a whole record); {again}") from error
    if schema != SCHEMA:
        message = f"{name} is of schema {schema!r} and this fedkit reads schema {SCHEMA}; "
        if isinstance(schema, int) and schema > SCHEMA:
            raise NewerRecordError(message + "install the fedkit that wrote it")
        raise RecordError(message + again)
    try:
        intact = body["checksum"] == _checksum(body)
        cell = Cell.from_dict(body["cell"])
        results = tuple(
            {
                "seed": int(item["seed"]),
                "metrics": {k: _float(v) for k, v in item["metrics"].items()},
                "series": {k: [_float(v) for v in vs] for k, vs in item["series"].items()},
            }
            for item in body["results"]
        )
        manifest = dict(body["manifest"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{name} is damaged ({error}); {again}") from error
    if not intact:
        raise RecordError(f"{name} is damaged (its checksum differs); {again}")
    return Record(cell, results, manifest)
