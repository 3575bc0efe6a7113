"""Golden runs: small runs whose numbers are committed, so that a change of behaviour is seen.

An experiment declares by a :class:`Tiny` which small runs answer for a cell of it.  Their numbers
stand in ``results/golden/<paper>/<name>.json`` with a version, the *behaviour* that records keep.
The audit runs recorded cells again at full scale.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain, product, zip_longest
from typing import Any

import numpy as np

from fedkit.atomic import write_text
from reproduction import golden_folder
from reproduction.manifest import commit
from reproduction.plugins import is_plugin
from reproduction.records import PROFILES, SHIPPED, Cell, Record, Result, golden_numbers, plain

# Shares of itself, and of the largest entry of its list, by which a number may differ on another
# processor.
_RELATIVE, _ABSOLUTE, _ZERO = 1e-3, 1e-4, 1e-12

_FELT = "felt."  # before the names of numbers of a second run
_TIMING = re.compile(r"(^|[._])(\w*seconds|testing)([._]|$)")
Numbers = dict[str, Any]
RunFunction = Callable[[Cell, Any, bool], Iterable[Result]]
"""``run(cell, device, progress)`` gives one result per seed of a cell."""


def is_timing(name: str) -> bool:
    """Whether a metric or series is a wall time, which no two runs have in common."""
    return _TIMING.search(name) is not None


# ------------------------------------------------------------------- which runs there are


def _word(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).lower()


@dataclass(frozen=True)
class Tiny:
    """The small runs of one run function, and which of them answer for a cell.

    Every cell is answered for by the run of its method, and by one run for each setting that turns
    on other code than the base does.
    """

    name: str  # first part of the names of the golden runs
    run: RunFunction
    base: Mapping[str, Any]  # settings of a small cell: seconds, data that are always there
    by: str | None = None  # the setting that names the method
    # settings that choose code, "name" or "name=value" for this value alone, each with what else
    # its run changes in the base
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # by pattern of a name: by how much a number may differ in all, where it counts images
    slack: Mapping[str, float] = field(default_factory=dict)
    # ``more(cell, device)``: numbers to compare beside what the run function records
    more: Callable[[Cell, Any], Mapping[str, Any]] | None = None
    # by name of a golden run, or a pattern: settings of a second small run, in which what it is
    # named for acts where the first hardly feels it (a tolerance that is reached, say)
    felt: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def runs(self, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the golden runs that answer for a cell with these settings: name to settings."""
        base = dict(self.base)
        runs = {self.name: base}
        if self.by is not None:
            method = settings[self.by]
            if is_plugin(method):  # it has none of its own; what runs it must not have changed
                method = base[self.by]
            runs = {f"{self.name}.{_word(method)}": {**base, self.by: method}}
        for key, changes in self.switches.items():
            switch, _, only = key.partition("=")
            value = settings.get(switch, base[switch])
            if value != base[switch] and only in ("", str(value)):
                runs[f"{self.name}.{switch}={_word(value)}"] = {**base, **changes, switch: value}
        return runs


def golden_runs(experiments: Sequence[Any]) -> dict[str, GoldenRun]:
    """Return the golden runs that answer for the cells of some experiments, by ``paper/name``."""
    runs: dict[str, GoldenRun] = {}
    for experiment in experiments:
        cells = [c for profile in PROFILES for c in experiment.cells(profile, None)]
        for cell, tiny in product(cells, experiment.golden):
            for name, settings in tiny.runs(cell.settings).items():
                run = GoldenRun(experiment.paper, tiny, name, settings)
                if runs.setdefault(run.id, run).settings != settings:
                    raise ValueError(f"golden run {run.id} is declared twice, differently")
    return dict(sorted(runs.items()))


@dataclass(frozen=True)
class GoldenRun:
    """One golden run: a small cell, and the file with its numbers."""

    paper: str
    tiny: Tiny
    name: str
    settings: Mapping[str, Any]

    @property
    def id(self) -> str:
        """``paper/name``, as the command line takes it."""
        return f"{self.paper}/{self.name}"

    def measure(self, device: object = "cpu") -> Numbers:
        """Run it and return its numbers; those committed are a CPU's."""
        numbers = self._measured(self.settings, device)
        for pattern, changes in self.tiny.felt.items():
            if fnmatchcase(self.name, pattern):
                again = self._measured({**self.settings, **changes}, device)
                numbers |= {f"{_FELT}{name}": value for name, value in again.items()}
        return numbers

    def _measured(self, settings: Mapping[str, Any], device: object) -> Numbers:
        cell = Cell("smoke", self.paper, self.tiny.name, settings, (0,))
        numbers = numbers_of(next(iter(self.tiny.run(cell, device, False))))
        more = self.tiny.more(cell, device) if self.tiny.more is not None else {}
        more = {f"more.{name}": _json(x) for name, x in more.items() if not is_timing(name)}
        return {**numbers, **more}

    def check(self, device: object = "cpu") -> list[str]:
        """Run it and say where its numbers differ from those committed; empty where they agree."""
        then = golden_numbers(self.paper, self.name)["numbers"]
        if not then:
            return [f"no numbers of {self.id} are committed; {SHIPPED}"]
        return differences(then, self.measure(device), self.tiny.slack)

    def accept(self, why: str, only: Mapping[str, str] | None = None) -> int:
        """Run it, commit its new numbers, and return the behaviour that it is at from now on.

        Numbers that are compared for the first time, beside former ones that all agree, raise no
        behaviour; a change of cells with some settings `only` leaves other records fresh.
        """
        stored = golden_numbers(self.paper, self.name)
        then, now = stored["numbers"], self.measure()
        shared = {name: value for name, value in now.items() if name in then}
        added = {name: value for name, value in now.items() if name not in then}
        closer = bool(then) and not differences(then, shared, self.tiny.slack)
        n = int(stored["behaviour"]) + (not closer)
        change: dict[str, Any] = {"n": n, "why": why.strip(), "commit": commit()}
        if only and not closer:
            if unknown := [key for key in only if key not in self.settings]:
                raise ValueError(f"{self.id} has no setting {', '.join(unknown)} to limit it by")
            change["only"] = dict(only)
        body = {
            "behaviour": n,
            "history": [*stored["history"], change],
            "settings": dict(self.settings),
            "numbers": {**then, **added} if closer else now,
        }
        write_text(golden_folder(self.paper) / f"{self.name}.json", _lines(body))
        return n


def _lines(body: Mapping[str, Any]) -> str:
    """Write JSON with one number or list a line, so that a change reads well in a diff."""

    def part(value: Any, depth: int) -> str:
        if isinstance(value, Mapping) and value and depth < 2:
            pad = " " * (depth + 1)
            rows = [f"{pad}{json.dumps(k)}: {part(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}"
        return json.dumps(value, allow_nan=False, separators=(", ", ": "))

    return part(body, 0) + "\n"


# ------------------------------------------------------------------- what is compared


def numbers_of(result: Result) -> Numbers:
    """Flatten one seed's result to numbers and lists by name, without wall times."""
    numbers = {f"metrics.{name}": value for name, value in result["metrics"].items()}
    numbers |= {f"series.{name}": values for name, values in (result.get("series") or {}).items()}
    if result.get("evaluations") is not None:
        numbers["spent"] = result["evaluations"]
    return {name: _json(value) for name, value in numbers.items() if not is_timing(name)}


def _json(value: Any) -> Any:
    """Write numbers as records do, floats with nine digits."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_json(item) for item in value]
    return plain(value, 9)


def trace(history: Any, remembered: Sequence[Any] = ()) -> Numbers:
    """Return what a federated run did: who took part, values, weights, and the final models.

    `remembered` is what the server kept of every client after each round.  A model is told by its
    length and its products with three fixed random directions.
    """
    models = history.models.double().cpu().numpy()
    directions = np.random.default_rng(0).standard_normal((models.shape[1], 3))
    return {
        **{name: [row[name] for row in history.clients] for name in ("client", "value", "weight")},
        "model": [*np.linalg.norm(models, axis=1), *(models @ directions).ravel()],
        **({"remembered": [*remembered]} if remembered else {}),
    }


def differences(
    then: Mapping[str, Any], now: Mapping[str, Any], slack: Mapping[str, float] | None = None
) -> list[str]:
    """Say where numbers differ by more than another processor explains; empty where nowhere.

    Whole numbers must be equal, unless `slack` names them.  Other numbers may differ by a
    thousandth of themselves plus a ten thousandth of the largest entry of their list; numbers
    below a millionth of a millionth are zero but for rounding.
    """
    found = []
    for name in dict.fromkeys([*then, *now]):
        if name not in now or name not in then:
            found.append(f"{name} is {'gone' if name in then else 'new'}")
            continue
        old, new = _flat(then[name]), _flat(now[name])
        if len(old) != len(new):
            found.append(f"{name} has {len(new)} entries and had {len(old)}")
            continue
        plain = name.removeprefix(_FELT)
        allowed = max((v for p, v in (slack or {}).items() if fnmatchcase(plain, p)), default=None)
        largest = max((abs(x) for x in old if _finite(x)), default=0.0)
        floor = max(_ABSOLUTE * (min(largest, 1.0) if len(old) == 1 else largest), _ZERO)
        pairs = zip(old, new, strict=True)
        if far := [(a, b) for a, b in pairs if not _close(a, b, floor, allowed)]:
            a, b = far[0]
            found.append(f"{name} was {a} and is {b} ({len(far)} of {len(old)} differ)")
    return found


def _flat(x: Any) -> list[Any]:
    return [item for part in x for item in _flat(part)] if isinstance(x, list) else [x]


def _finite(x: Any) -> bool:
    return isinstance(x, int | float) and math.isfinite(x)


def _close(a: Any, b: Any, floor: float, slack: float | None) -> bool:
    if not (_finite(a) and _finite(b)):
        return bool(a == b)
    if slack is not None:
        return bool(abs(a - b) <= slack)
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(abs(a - b) <= _RELATIVE * max(abs(a), abs(b)) + floor)


# ------------------------------------------------------------------- the audit


def choose(records: Sequence[Record], k: int, rng: np.random.Generator) -> list[tuple[Record, int]]:
    """Draw k records spread over the experiments, and a seed of each.

    Experiments take turns in random order, so none is drawn twice before all were drawn once.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for place in rng.permutation(len(records)):
        record = records[place]
        groups.setdefault((record.cell.paper, record.cell.experiment), []).append(record)
    turns = [record for record in chain(*zip_longest(*groups.values())) if record is not None]
    return [(record, int(rng.choice(record.cell.seeds))) for record in turns[:k]]


def audit(record: Record, seed: int, run: RunFunction) -> list[str]:
    """Run one seed of a record again, on the CPU, and say where its numbers differ."""
    then = numbers_of(next(result for result in record.results if result["seed"] == seed))
    now = numbers_of(next(iter(run(replace(record.cell, seeds=(seed,)), "cpu", False))))
    return differences(then, {name: value for name, value in now.items() if name in then})
