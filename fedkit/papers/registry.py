"""The registry of experiments: which cells a table or figure has, and how one is computed.

A paper's module (``fedkit/papers/<paper>/``) registers its experiments when it is
imported, and it is imported when somebody asks for one of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkit.records.golden import Tiny, behaviours
from fedkit.records.store import PROFILES, Cell, CellError, Outcome, RecordError, Store, run_cells

__all__ = [
    "PROFILES",
    "Cell",
    "CellError",
    "Experiment",
    "Outcome",
    "RecordError",
    "Store",
    "all_experiments",
    "get",
    "papers",
    "register",
    "run_cells",
    "unregister",
]

CellsFunction = Callable[[str, Sequence[int] | None], list[Cell]]
RunFunction = Callable[[Cell, Any, bool], Sequence[dict[str, Any]]]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper as something that can be run.

    Parameters
    ----------
    paper, name : str
        Names as on the command line: ``fedkit run <paper> <name>``.
    title : str
        One line for people.
    cells : callable
        ``cells(profile, seeds)`` lists the cells of a profile; ``seeds=None`` means the
        profile's own seeds.
    run : callable
        ``run(cell, device, progress)`` returns one result per seed (see
        :meth:`fedkit.records.store.Store.save`).
    golden : tuple of Tiny
        The small runs that answer for its cells.
    """

    paper: str
    name: str
    title: str
    cells: CellsFunction
    run: RunFunction
    golden: tuple[Tiny, ...] = ()

    def behaviours(self, cell: Cell) -> dict[str, int]:
        """Return the golden runs that answer for a cell, and what each is at."""
        names = [name for tiny in self.golden for name in tiny.runs(cell.settings)]
        return behaviours(self.paper, names)

    def select(
        self, profile: str, seeds: Sequence[int] | None = None, **settings: Any
    ) -> list[Cell]:
        """Return the cells of a profile that have these settings.

        Raises
        ------
        ValueError
            If a setting is unknown, or no cell has its value; the message lists those there are.
        """
        cells = self.cells(profile, seeds)
        for name, value in settings.items():
            kept = [cell for cell in cells if cell.settings.get(name) == value]
            if not kept:
                there = sorted({str(c.settings[name]) for c in cells if name in c.settings})
                raise ValueError(
                    f"{name} is {value!r}, and {self.paper} {self.name} at profile {profile!r} has "
                    + (f"only {', '.join(there)}" if there else "no such setting")
                )
            cells = kept
        return cells

    def execute(
        self,
        cells: Sequence[Cell],
        store: Store,
        *,
        device: Any = "cpu",
        progress: bool = True,
        force: bool = False,
        on_error: str = "stop",
    ) -> Outcome:
        """Run the cells that have no record yet (:func:`fedkit.records.running.run_cells`)."""
        return run_cells(
            cells,
            lambda cell: self.run(cell, device, progress),
            store,
            progress=progress,
            force=force,
            on_error=on_error,
            behaviour=self.behaviours,
            device=device,
        )


_registry: dict[tuple[str, str], Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the registry, in the place of one of the same name.

    A module that is imported again (in a notebook, say) thus replaces its own experiments.
    """
    _registry[experiment.paper, experiment.name] = experiment
    return experiment


def unregister(paper: str, name: str) -> None:
    """Remove an experiment from the registry; unknown names are ignored."""
    _registry.pop((paper, name), None)


def _paper_modules() -> list[str]:
    """Return the papers: the packages beside this file."""
    folder = str(Path(__file__).parent)
    return sorted(item.name for item in pkgutil.iter_modules([folder]) if item.ispkg)


def _load(paper: str | None = None) -> None:
    for name in _paper_modules():
        if paper in (None, name):
            package = importlib.import_module(f"fedkit.papers.{name}")
            for item in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{package.__name__}.{item.name}")


def papers() -> list[str]:
    """Return the papers that have experiments, sorted."""
    _load()
    return sorted({paper for paper, _ in _registry})


def all_experiments(paper: str | None = None) -> list[Experiment]:
    """Return the experiments of a paper, or of all of them, in the order of registration.

    Raises
    ------
    ValueError
        If the paper is unknown; the message lists those there are.
    """
    _load(paper)
    found = [item for item in _registry.values() if paper in (None, item.paper)]
    if paper is not None and not found:
        raise ValueError(f"paper {paper!r} is unknown; choose from {papers()}")
    return found


def get(paper: str, name: str) -> Experiment:
    """Return one experiment.

    Raises
    ------
    ValueError
        If the paper or the experiment is unknown; the message lists those there are.
    """
    found = {item.name: item for item in all_experiments(paper)}
    if name not in found:
        raise ValueError(f"{paper} has no experiment {name!r}; choose from {list(found)}")
    return found[name]
