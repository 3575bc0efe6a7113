"""Experiments: which cells a table or figure has, how one is computed, and running them.

The modules of a paper's folder register its experiments when they are imported.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedkit.extras import bar, need
from reproduction import PAPERS
from reproduction.golden import RunFunction, Tiny
from reproduction.manifest import make_manifest
from reproduction.records import Cell, RecordError, Result, Store, behaviour, canonical_json

ENGINES = ("here", "ray")
SIZE_LIMIT = 250_000
"""Bytes that a committed record may have at the most."""

_COLLECT_AFTER = 2.0  # seconds that a cell took
_SHOWN = 30  # values that a sentence lists


class CellError(ValueError):
    """The computation of a cell failed; the message names the cell."""


@dataclass
class Outcome:
    """What a run did with each cell."""

    computed: list[Cell] = field(default_factory=list)
    finished: list[Cell] = field(default_factory=list)
    failed: list[tuple[Cell, Exception]] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper that can be run: ``fedkit run <paper> <name>``."""

    paper: str
    name: str
    title: str
    cells: Callable[[str, Sequence[int] | None], list[Cell]]  # of profile and seeds, None: its own
    run: RunFunction
    golden: tuple[Tiny, ...] = ()  # the small runs that answer for its cells
    entry: str | None = None  # how a row with a method of your own is called; None: there is none

    def behaviours(self, cell: Cell) -> dict[str, int]:
        """Return the golden runs that answer for a cell, and what each is at."""
        names = sorted({name for tiny in self.golden for name in tiny.runs(cell.settings)})
        return {name: behaviour(self.paper, name) for name in names}

    def select(
        self, profile: str, seeds: Sequence[int] | None = None, **settings: Any
    ) -> list[Cell]:
        """Return the cells of a profile that have these settings; see :func:`keep`."""
        cells = self.cells(profile, seeds)
        for name, value in settings.items():
            cells = keep(cells, name, value)
        return cells

    def entered(self, cells: Sequence[Cell], method: str) -> list[Cell]:
        """Return cells with a method ``module:Name`` in the place of their rows, each once."""
        if self.entry is None:
            takers = ", ".join(item.name for item in all_experiments(self.paper) if item.entry)
            raise ValueError(
                f"{self.paper} {self.name} takes no method from outside; in {self.paper} "
                + (f"these do: {takers}" if takers else "nothing does")
            )
        row = {"method": self.entry.format(method)}
        mine = (replace(cell, settings={**cell.settings, **row}) for cell in cells)
        return list(dict.fromkeys(mine))

    def execute(
        self,
        cells: Sequence[Cell],
        store: Store,
        *,
        anew: str = "missing",
        device: Any = "cpu",
        jobs: int = 1,
        engine: str = "here",
        progress: bool = True,
        on_error: str = "stop",
    ) -> Outcome:
        """Compute the seeds that no record holds, and record each cell as soon as it is done.

        `anew`: "missing" seeds, those of "stale" records too, or "all". `engine` "ray" hands the
        cells to the cluster that ``RAY_ADDRESS`` names, else to Ray on this machine; this process
        alone writes. With `on_error` "stop" the first failure raises CellError, with "continue" the
        outcome keeps it.
        """
        outcome, waiting = Outcome(), []
        for cell in dict.fromkeys(cells):
            seeds = wanted(cell, store, anew)
            if seeds:
                waiting.append(replace(cell, seeds=seeds))
            else:
                outcome.finished.append(cell)
        # what the golden runs are at when the code is read: a change during the run is not what ran
        now = [self.behaviours(cell) for cell in waiting]
        where = PAPERS.get(self.paper, Path(self.paper))
        if engine == "ray" or jobs > 1:
            job: Job = partial(_elsewhere, str(where), self.name, device)
            ends = on_ray(job, waiting, now, device) if engine == "ray" else (
                in_processes(job, waiting, now, jobs)
            )  # fmt: skip
        else:
            job = partial(compute, lambda cell: self.run(cell, device, progress), device)
            ends = map(job, waiting, now)
        for cell, found in bar(ends, progress, "cell", total=len(waiting)):
            if not isinstance(found, Exception):
                store.save(cell, *found)
                outcome.computed.append(cell)
            elif on_error == "stop":
                raise CellError(f"cell {cell.key} failed: {described(found)}") from found
            else:
                outcome.failed.append((cell, found))
        return outcome


def described(error: BaseException) -> str:
    """What went wrong, with the kind of exception where its text alone may say little."""
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return f"{kind}{error}"


def wanted(cell: Cell, store: Store, anew: str) -> tuple[int, ...]:
    """Return the seeds of a cell that are to be computed."""
    if anew == "all":
        return cell.seeds
    held = store.held(cell)
    return tuple(
        seed for seed in cell.seeds
        if seed not in held or (anew == "stale" and held[seed].stale())
    )  # fmt: skip


# ------------------------------------------------------------------- computing cells

Found = tuple[Sequence[Result], dict[str, Any]]
"""Results of a cell, and their manifest."""
Job = Callable[[Cell, Mapping[str, int]], tuple[Cell, Found | Exception]]
Ends = Iterator[tuple[Cell, Found | Exception]]


def compute(
    run: Callable[[Cell], Iterable[Result]], device: Any, cell: Cell, now: Mapping[str, int]
) -> tuple[Cell, Found | Exception]:
    """Compute one cell; return it with its results and their manifest, or what went wrong."""
    start = time.perf_counter()
    try:
        results = list(run(cell))
    except Exception as error:
        return cell, error
    seconds = time.perf_counter() - start
    data = {canonical_json(r["data"]): r["data"] for r in results if r.get("data")}
    spent = [r["evaluations"] for r in results if r.get("evaluations") is not None]
    manifest = make_manifest(
        now, device=device, data=data.values(), seconds=seconds,
        evaluations=sum(spent) if spent else None,
    )  # fmt: skip
    if seconds > _COLLECT_AFTER:
        gc.collect()  # federations sit in reference cycles; tensors do not alarm Python
    return cell, (results, manifest)


def _elsewhere(
    where: str, name: str, device: Any, cell: Cell, now: Mapping[str, int]
) -> tuple[Cell, Found | Exception]:
    """Compute a cell in another process, where nothing is registered yet."""
    if cell.paper not in PAPERS:
        enter(Path(where))
    item = get(cell.paper, name)
    if item.behaviours(cell) != now:
        return cell, ValueError("other golden runs are committed there; put both on one commit")
    return compute(lambda cell: item.run(cell, device, False), device, cell, now)


def in_processes(
    job: Job, cells: Sequence[Cell], now: Sequence[Mapping[str, int]], jobs: int
) -> Ends:
    """Compute cells in some processes of this machine, and yield them as they end."""
    joblib = need("joblib", extra="run")
    parallel = joblib.Parallel(jobs, return_as="generator_unordered")
    yield from parallel(joblib.delayed(job)(*pair) for pair in zip(cells, now, strict=True))


def on_ray(job: Job, cells: Sequence[Cell], now: Sequence[Mapping[str, int]], device: Any) -> Ends:
    """Compute cells as Ray tasks, and yield them as they end; Ray repeats what a dead node had."""
    # no statistics for others, and no tip on what a task without a GPU sees of one
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ.setdefault(name, "0")
    ray = need("ray", extra="ray")
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS", "local")
        ray.init(address, log_to_driver=False, logging_level="error")
    gpus = int(str(device).startswith("cuda"))
    task = ray.remote(num_gpus=gpus)(lambda cell, versions: job(cell, versions))
    under_way = [task.remote(*pair) for pair in zip(cells, now, strict=True)]
    while under_way:
        ended, under_way = ray.wait(under_way)
        yield ray.get(ended[0])


# ------------------------------------------------------------------- which there are


def keep(cells: Sequence[Cell], name: str, value: Any) -> list[Cell]:
    """Keep the cells whose setting `name` is `value`, or is written so on the command line.

    The name ``key`` stands for the name of a record, or its ten digits alone.  Where no cell is
    kept, a ValueError lists the settings or values there are.
    """
    try:
        read = json.loads(value)
    except (ValueError, TypeError):  # a word, or no text at all
        read = value

    def fits(cell: Cell) -> bool:
        if name == "key":
            return value in (cell.key, cell.digest)
        there = cell.settings.get(name)
        return name in cell.settings and (there in (value, read) or str(there) == value)

    if not cells:
        raise ValueError("there are no cells: give one seed at least")
    if kept := [cell for cell in cells if fits(cell)]:
        return kept
    if name == "key":
        there = {cell.digest for cell in cells}
    else:
        there = {str(cell.settings[name]) for cell in cells if name in cell.settings}
    if not there:
        names = ", ".join(dict.fromkeys(name for cell in cells for name in cell.settings))
        raise ValueError(f"no cell has a setting {name!r}; settings are {names}, key")
    some = ", ".join(sorted(there)[:_SHOWN]) + ", ..." * (len(there) > _SHOWN)
    raise ValueError(f"no cell has {name} {value!r}; {name} is one of {some}")


_registry: dict[tuple[str, str], Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the registry, in the place of one of the same name."""
    _registry[experiment.paper, experiment.name] = experiment
    return experiment


def enter(folder: Path) -> str:
    """Load a paper of your own, ``experiments.py`` in its folder; return the folder's name."""
    place = folder.expanduser().resolve()
    if PAPERS.get(place.name, place) != place:
        raise ValueError(f"a paper is called {place.name} already; rename the folder {folder}")
    file = place / "experiments.py"
    if not file.is_file():
        raise ValueError(f"{folder} holds no experiments.py, where a paper registers its own")
    name = f"{place.name}_experiments"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(place))  # for its other modules
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    PAPERS[place.name] = place
    return place.name


def all_experiments(paper: str | None = None) -> list[Experiment]:
    """Return the experiments of a paper, or of all of them, in the order of registration."""
    for name, home in PAPERS.items():
        if paper in (None, name) and home.parent == Path(__file__).parent:
            for item in pkgutil.iter_modules([str(home)]):
                importlib.import_module(f"reproduction.{name}.{item.name}")
    found = [item for item in _registry.values() if paper in (None, item.paper)]
    if not found:
        raise ValueError(f"paper {paper!r} is unknown; choose from {', '.join(sorted(PAPERS))}")
    return found


def get(paper: str, name: str) -> Experiment:
    """Return one experiment; where it is unknown, the error lists those there are."""
    there = {item.name: item for item in all_experiments(paper)}
    if name not in there:
        raise ValueError(f"{paper} has no experiment {name!r}; choose from {', '.join(there)}")
    return there[name]


# ------------------------------------------------------------------- sound records


def stale_records(store: Store) -> dict[str, list[str]]:
    """Name the stale records of a store, each with the golden runs that changed since."""
    found = {record.cell.name: record.stale() for record in store.records()}
    return {name: changed for name, changed in found.items() if changed}


def check_records(store: Store) -> list[str]:
    """Return one sentence per problem of a store; an empty list means that all is well.

    Problems are records that are unreadable, misplaced or over the size limit, or do not name the
    golden runs that answer for them. A stale record is none: it is shown as stale.
    """
    problems = []
    for path in store.paths():
        name = path.relative_to(store.root)
        try:
            record = store.read(path)
        except RecordError as error:
            problems.append(str(error))
            continue
        cell, size = record.cell, path.stat().st_size
        if size > SIZE_LIMIT:
            problems.append(
                f"{name} has {size} bytes, over the limit of {SIZE_LIMIT}; use smaller blocks of "
                "seeds or fewer series"
            )
        try:
            answering = set(get(cell.paper, cell.experiment).behaviours(cell))
        except ValueError:  # an experiment that was removed, or somebody's own
            continue
        named = set(record.manifest.get("behaviour") or {})
        if named != answering:
            problems.append(
                f"{name} names the golden runs {sorted(named)}; those that answer for its cell "
                f"are {sorted(answering)}: make it anew with: {cell.command}"
            )
    return problems
