"""Entering the arena with methods of one's own, and keeping what they said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkit.arena.federations import SCENARIOS, Scenario
from fedkit.arena.methods import METHODS, Entry, MethodError, find_methods
from fedkit.checks import choice, flag, having, one_line, real, whole
from fedkit.extras import bar, need
from reproduction.arena.cells import method_result, seeds_of, truth_result
from reproduction.arena.cells import scenarios as every
from reproduction.arena.measures import board, measure_all, shared
from reproduction.common import setting_of
from reproduction.experiments import CellError, get
from reproduction.manifest import make_manifest
from reproduction.records import Cell, Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Entered", "measures_of", "run", "submit"]

Result = dict[str, Any]
Place = tuple[Scenario, int]  # a scenario and a seed


@one_line
@dataclass(frozen=True, eq=False)
class Entered:
    """What methods said and how that measures up.

    Attributes
    ----------
    profile : str
    values : DataFrame
        Columns dataset, scenario, seed, method, role, value.
    measures : DataFrame
        Columns dataset, scenario, seed, method, measure, value (``arena.MEASURES``).
    truths : DataFrame
        What is known of the clients: columns dataset, scenario, seed, role, and ``quality``,
        ``bad``, ``group``, ``retraining.accuracy``, ``retraining.loss`` and their standard errors.
    failures : dict of str to str
        One sentence for each method that is out, by name.
    results : dict
        What is recorded, by method, scenario and seed.
    """

    profile: str
    values: pd.DataFrame
    measures: pd.DataFrame
    truths: pd.DataFrame
    failures: dict[str, str]
    results: dict[str, dict[Place, Result]]

    def board(self) -> pd.DataFrame:
        """One row per method, one column per measure: means over scenarios."""
        return board(self.measures)


def _frames(
    profile: str, found: dict[str, dict[Place, Result]], truths: dict[Place, Result],
    failures: dict[str, str],
) -> Entered:  # fmt: skip
    pd = need("pandas", "run")
    rows = {
        (s.dataset, s.scenario, seed, name): result
        for name, results in found.items()
        for (s, seed), result in results.items()
    }
    values = [
        (*place, role, value)
        for place, result in rows.items()
        for role, value in enumerate(result["series"]["value"])
    ]
    columns = ["dataset", "scenario", "seed", "method", "role", "value"]
    known = {(s.dataset, s.scenario, seed): result for (s, seed), result in truths.items()}
    told = [
        pd.DataFrame(result["series"], dtype=float)
        .rename_axis("role")
        .reset_index()
        .assign(dataset=data, scenario=scenario, seed=seed)
        for (data, scenario, seed), result in known.items()
    ]
    return Entered(
        profile, pd.DataFrame(values, columns=columns), measure_all(rows, known),
        pd.concat(told, ignore_index=True) if told else pd.DataFrame(), failures, found,
    )  # fmt: skip


def _recorded(cell: Cell, store: Store) -> list[Result]:
    """Results of a cell, from its record, which is made where there is none."""
    get("arena", cell.experiment).execute([cell], store, progress=False)
    return store.results(cell)


def run(
    methods: Sequence[Entry] | Mapping[str, Entry] = (),
    profile: str = "smoke",
    *,
    rows: Sequence[str] | None = None,
    scenarios: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    store: Store | None = None,
    limit: float = 120.0,
    progress: bool = False,
) -> Entered:
    """Run methods through the arena, among its own rows.

    Parameters
    ----------
    methods : sequence or dict
        Each one ``"package:Class"``, a class, an object with ``values`` and ``sees``, or a policy
        of rounds (``fedkit.federated.ValuePolicy``).  A dict gives them names of your own.
    profile : {"smoke", "laptop", "paper"}
    rows : sequence of str, optional
        The arena's own methods that stand beside them, all by default.
    scenarios : sequence of str, optional
        Names of ``fk.arena.SCENARIOS``, all by default.
    seeds : sequence of int, optional
        The profile's own by default.
    store : Store, optional
        Where records of the own rows and of the truths are, and are put; left out, they are
        computed and kept in memory alone.
    limit : float
        Seconds that a method of yours may take for one federation.

    Notes
    -----
    A method that cannot be imported or made, raises, peeks, takes too long or returns something
    else than finite numbers is out: one sentence in ``failures``, and the others go on.

    Raises
    ------
    ValueError
        If an argument is none of these, none of the methods can be imported and made, or two have
        one name.
    """
    for what, given in (("rows", rows), ("scenarios", scenarios), ("seeds", seeds)):
        if given is not None and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise ValueError(f"{what} is {given!r}; expected a list of them")
        if given is not None and not given and what != "rows":
            raise ValueError(f"{what} is {given!r}; expected at least one")
    if store is not None:
        having("store", store, "results", "paths")
    flag("progress", progress)
    real("limit", limit, 0.0, above=True)
    for name in scenarios or ():
        choice("a scenario", name, SCENARIOS)
    places = [s for s in every(profile) if scenarios is None or s.scenario in scenarios]
    of = seeds_of(profile)[0] if seeds is None else tuple(whole("a seed", s, 0) for s in seeds)
    own = list(METHODS) if rows is None else [choice("a row", r, METHODS) for r in rows]
    entered, failures = find_methods(methods)
    for name, method in entered:
        if name in own or method is not METHODS.get(name, method):
            raise ValueError(f"a method is called {name!r}, as a row of the arena; rename it")
    playing = [*((row, METHODS[row]) for row in own), *entered]
    found: dict[str, dict[Place, Result]] = {name: {} for name, _ in playing}
    truths: dict[Place, Result] = {}
    for s in bar(places, progress, "federation"):
        if store is None:
            known = [truth_result(s, seed) for seed in of]
        else:
            known = _recorded(Cell(profile, "arena", "truths", asdict(s), of), store)
        truths |= {(s, seed): result for seed, result in zip(of, known, strict=True)}
        for name, method in playing:
            if name in failures:
                continue
            try:
                if store is not None and name in own:
                    settings = {"method": name, **asdict(s)}
                    results = _recorded(Cell(profile, "arena", "methods", settings, of), store)
                else:
                    most = {} if name in own else {"limit": limit}
                    results = [method_result(name, method, s, seed, **most) for seed in of]
            except (MethodError, CellError) as error:
                if isinstance(error, CellError) and not isinstance(error.__cause__, MethodError):
                    raise  # not the method's doing
                failures[name] = " ".join(str(error).split())
                continue
            found[name] |= {(s, seed): result for seed, result in zip(of, results, strict=True)}
    kept = {name: results for name, results in found.items() if name not in failures}
    return _frames(profile, kept, truths, failures)


def measures_of(store: Store, profile: str = "paper") -> Entered:
    """Measure what is on record at a profile, entries that were submitted included.

    Entries are called ``method@commit``.  Among the failures are rows and entries that lack
    federations or seeds which most of the others have run; all are measured on
    what they have in common.
    """

    def read(experiment: str) -> Iterable[tuple[str, Place, Result]]:
        for record in store.records(profile, "arena", experiment):
            settings, s = record.cell.settings, setting_of(Scenario, record.cell)
            name = str(settings.get("method", ""))
            if experiment == "entries":
                name = f"{name}@{settings.get('commit')}"
            for result in record.results:
                yield name, (s, result["seed"]), dict(result)

    truths = {place: result for _, place, result in read("truths")}
    found: dict[str, dict[Place, Result]] = {}
    for experiment in ("methods", "entries"):
        for name, place, result in read(experiment):
            if place in truths:
                found.setdefault(name, {})[place] = result
    common, lacking = shared(found)
    order = [m for m in METHODS if m in found] + [m for m in found if m not in METHODS]
    kept = {
        m: {place: result for place, result in found[m].items() if place in common}
        for m in order
        if m not in lacking
    }
    return _frames(profile, kept, truths, lacking)


def submit(entered: Entered, method: str, commit: str, store: Store | None = None) -> list[Path]:
    """Write one method's results as records, a file per federation, to be sent in.

    Parameters
    ----------
    entered : Entered
        From :func:`run`.
    method : str
        Its name there; best ``package:Class``.
    commit : str
        The commit of the method's own source that ran.
    """
    if method in METHODS:
        raise ValueError(f"{method} is a row of the arena; only methods from outside are sent in")
    if not entered.results.get(method):
        there = ", ".join(entered.results) or "none"
        raise ValueError(
            f"{entered.failures.get(method, f'{method} has no results')}; {there} have"
        )
    if not isinstance(commit, str) or not commit.strip():
        raise ValueError(f"commit is {commit!r}; expected the commit of the method's source")
    place, paths = store or Store(), []
    by_scenario: dict[Scenario, list[Result]] = {}
    for (s, _), result in entered.results[method].items():
        by_scenario.setdefault(s, []).append(result)
    for s, results in by_scenario.items():
        settings = {"method": method, "commit": commit, **asdict(s)}
        seeds = tuple(r["seed"] for r in results)
        cell = Cell(entered.profile, "arena", "entries", settings, seeds)
        data = [r["data"] for r in results[:1] if r.get("data")]
        manifest = make_manifest(get("arena", "entries").behaviours(cell), data=data)
        paths.append(place.save(cell, results, manifest))
    return paths
