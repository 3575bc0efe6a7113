"""The registry of experiments: which cells a table or figure has, and how one is computed.

A paper's modules (``reproduction/<paper>/``, or what an entry point names) register experiments
when they are imported, and they are imported when somebody asks for one of them.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedkit.checks import choice, warn
from reproduction import packages
from reproduction.records.cell import Cell
from reproduction.records.cluster import run_on_ray
from reproduction.records.golden import Tiny, version
from reproduction.records.outside import entered
from reproduction.records.running import Outcome, run_cells
from reproduction.records.store import Result, Store

__all__ = ["Experiment", "all_experiments", "get", "keep", "papers", "register"]

CellsFunction = Callable[[str, Sequence[int] | None], list[Cell]]
RunFunction = Callable[[Cell, Any, bool], Sequence[Result]]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper as something that can be run: ``fedkit run <paper> <name>``.

    Parameters
    ----------
    cells : callable
        ``cells(profile, seeds)`` lists the cells of a profile; ``seeds=None`` means the
        profile's own seeds.
    run : callable
        ``run(cell, device, progress)`` returns one result per seed (see
        :meth:`reproduction.records.store.Store.save`).
    golden : tuple of Tiny
        The small runs that answer for its cells.
    cores : int
        Cores that one of its cells takes on a cluster (``--engine ray``).
    gpus : float
        GPUs, or the part of one, that a cell takes there when its device is ``cuda``.
    entry : str, optional
        How a row is called that a method from outside has taken, such as ``"{}"``; left out, the
        experiment has no such rows.
    """

    paper: str
    name: str
    title: str
    cells: CellsFunction
    run: RunFunction
    golden: tuple[Tiny, ...] = ()
    cores: int = 1
    gpus: float = 1.0
    entry: str | None = None

    def behaviours(self, cell: Cell) -> dict[str, int]:
        """Return the golden runs that answer for a cell, and what each is at."""
        names = sorted({name for tiny in self.golden for name in tiny.runs(cell.settings)})
        return {name: version(self.paper, name) for name in names}

    def select(
        self, profile: str, seeds: Sequence[int] | None = None, **settings: Any
    ) -> list[Cell]:
        """Return the cells of a profile that have these settings; see :func:`keep`."""
        cells = self.cells(profile, seeds)
        for name, value in settings.items():
            cells = keep(cells, name, value)
        return cells

    def entered(self, cells: Sequence[Cell], method: str) -> list[Cell]:
        """Return cells with a method from outside in the place of their rows, each once.

        The method is as :func:`fedkit.outside.signed` writes it; an experiment that has no
        place for one raises a ValueError that lists those that have.
        """
        if self.entry is None:
            there = ", ".join(item.name for item in all_experiments(self.paper) if item.entry)
            raise ValueError(
                f"{self.paper} {self.name} takes no method from outside; in {self.paper} "
                + (f"these do: {there}" if there else "nothing does")
            )
        row = {"method": self.entry.format(method)}
        mine = (replace(cell, settings={**cell.settings, **row}) for cell in cells)
        return list(dict.fromkeys(mine))

    def execute(
        self,
        cells: Sequence[Cell],
        store: Store,
        *,
        device: Any = "cpu",
        progress: bool = True,
        anew: str = "none",
        on_error: str = "stop",
        engine: str = "here",
        address: str | None = None,
    ) -> Outcome:
        """Run the cells that have no record yet, and of the finished ones none, the stale or all.

        Parameters
        ----------
        cells, store, device, on_error
            As for :func:`reproduction.records.running.run_cells`.
        anew : {"none", "stale", "all"}
            Which finished cells are made anew.
        engine : {"here", "ray"}
            One cell after another in this process, or as Ray tasks
            (:func:`reproduction.records.cluster.run_on_ray`).
        address : str, optional
            Of the Ray cluster; one is started on this machine by default.
        """
        choice("engine", engine, ("here", "ray"))
        again = {
            "none": lambda cell: False,
            "stale": lambda cell: store.state(cell)[0] == "stale",
            "all": lambda cell: True,
        }
        common: dict[str, Any] = {
            "progress": progress, "anew": again[anew], "on_error": on_error,
            "behaviour": self.behaviours, "device": device,
        }  # fmt: skip
        if engine == "here":
            return run_cells(cells, lambda cell: self.run(cell, device, progress), store, **common)
        gpus = self.gpus if str(device).startswith("cuda") else 0.0
        return run_on_ray(
            cells, partial(_run_registered, self.paper, self.name, device), store,
            address=address, cores=self.cores, gpus=gpus, **common,
        )  # fmt: skip


def _run_registered(paper: str, name: str, device: Any, cell: Cell) -> Sequence[Result]:
    """Run a cell where nothing is registered yet: on a node of a cluster."""
    return get(paper, name).run(cell, device, False)


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


_SHOWN = 30  # values that a sentence lists

_registry: dict[tuple[str, str], Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the registry, in the place of one of the same name.

    A module that is imported again (in a notebook, say) thus replaces its own experiments.
    """
    _registry[experiment.paper, experiment.name] = experiment
    return experiment


def _load(paper: str | None = None) -> None:
    """Import the modules of all papers, or of one; of all, a broken one from outside is told."""
    for name, package in packages().items():
        if paper not in (None, name):
            continue
        try:
            module = importlib.import_module(package)
            for item in pkgutil.iter_modules(getattr(module, "__path__", [])):
                if not item.name.startswith("_"):  # such as __main__, which is for running
                    importlib.import_module(f"{package}.{item.name}")
        except Exception as error:
            if name not in entered():
                raise
            told = f"cannot be loaded: importing {package} gave {type(error).__name__}: {error}"
            if paper is not None:
                raise ValueError(f"paper {name!r} {told}") from error
            for place in [place for place in _registry if place[0] == name]:  # no half of it
                del _registry[place]
            warn(f"paper {name!r} is left out, it {told}")


def papers() -> list[str]:
    """Return the names of the papers, sorted, without importing them."""
    return sorted(packages().keys() | {paper for paper, _ in _registry})


def all_experiments(paper: str | None = None) -> list[Experiment]:
    """Return the experiments of a paper, or of all of them, in the order of registration."""
    if paper is not None and paper not in papers():
        raise ValueError(f"paper {paper!r} is unknown; choose from {', '.join(papers())}")
    _load(paper)
    return [item for item in _registry.values() if paper in (None, item.paper)]


def get(paper: str, name: str) -> Experiment:
    """Return one experiment; where it is unknown, the error lists those there are."""
    there = {item.name: item for item in all_experiments(paper)}
    if name not in there:
        raise ValueError(f"{paper} has no experiment {name!r}; choose from {', '.join(there)}")
    return there[name]
