"""Methods of one's own among the arena's, and what is on record of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fedkit.arena import METHODS, Entry, find_methods
from fedkit.checks import choice, one_line
from fedkit.extras import bar
from reproduction.arena import experiments
from reproduction.arena.federations import SCENARIOS, Scenario
from reproduction.arena.measures import board, measure_all
from reproduction.arena.rows import method_result, truth_result
from reproduction.experiments import get
from reproduction.records import Cell, Store

Result = dict[str, Any]
Place = tuple[Scenario, int]  # a scenario and a seed


@one_line
@dataclass(frozen=True, eq=False)
class Entered:
    """What methods said and how that measures up, as tidy frames."""

    profile: str
    values: pd.DataFrame  # dataset, scenario, seed, method, role, value
    measures: pd.DataFrame  # dataset, scenario, seed, method, measure, value
    # dataset, scenario, seed, role, and what is known of a client: quality, bad, group,
    # retraining.accuracy, retraining.loss and their standard errors
    truths: pd.DataFrame

    def board(self) -> pd.DataFrame:
        """One row per method, one column per measure: means over scenarios."""
        return board(self.measures)


def _frames(
    profile: str, found: dict[str, dict[Place, Result]], truths: dict[Place, Result]
) -> Entered:
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
        pd.concat(told, ignore_index=True) if told else pd.DataFrame(),
    )  # fmt: skip


def _recorded(
    name: str, settings: dict[str, Any], profile: str, seeds: Sequence[int], store: Store
) -> list[Result]:
    """Results of a cell, from its record, which is made where there is none."""
    cell = Cell(profile, "arena", name, settings, tuple(seeds))
    get("arena", name).execute([cell], store, progress=False)
    return store.results(cell)


def run(
    methods: Sequence[Entry] | Mapping[str, Entry] = (),
    profile: str = "smoke",
    *,
    rows: Sequence[str] | None = None,
    scenarios: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    store: Store | None = None,
    progress: bool = False,
) -> Entered:
    """Run methods through the arena, among its own rows.

    `methods` as for :func:`fedkit.arena.compare`; `rows` (the arena's own beside them), `scenarios`
    and `seeds` are all of the profile's by default.  Records of the own rows and of the truths are
    in `store`, and put there; without one they are computed and kept in memory alone.
    """
    for name in scenarios or ():
        choice("a scenario", name, SCENARIOS)
    of = experiments.seeds_of(profile)[0] if seeds is None else tuple(seeds)
    own = {name: METHODS[choice("a row", name, METHODS)]
           for name in (METHODS if rows is None else rows)}  # fmt: skip
    entered = find_methods(methods) if methods else {}
    for name, method in entered.items():
        if name in own or method is not METHODS.get(name, method):
            raise ValueError(f"a method is called {name!r}, as a row of the arena; rename it")
    found: dict[str, dict[Place, Result]] = {name: {} for name in (*own, *entered)}
    truths: dict[Place, Result] = {}
    places = experiments.scenarios(profile)
    chosen = [s for s in places if scenarios is None or s.scenario in scenarios]
    for s in bar(chosen, progress, "federation"):
        if store is None:
            known = [truth_result(s, seed) for seed in of]
        else:
            known = _recorded("truths", asdict(s), profile, of, store)
        truths |= {(s, seed): result for seed, result in zip(of, known, strict=True)}
        for name, method in {**own, **entered}.items():
            if store is not None and name in own:
                results = _recorded("methods", {"method": name, **asdict(s)}, profile, of, store)
            else:
                results = [method_result(method, s, seed) for seed in of]
            found[name] |= {(s, seed): result for seed, result in zip(of, results, strict=True)}
    return _frames(profile, found, truths)


def measures_of(store: Store, profile: str = "paper") -> Entered:
    """Measure what is on record, entries (``method@commit``) included."""

    def read(experiment: str) -> Iterable[tuple[str, Place, Result]]:
        for record in store.records(profile, "arena", experiment):
            settings, s = record.cell.settings, Scenario.of(record.cell)
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
    order = [m for m in METHODS if m in found] + [m for m in found if m not in METHODS]
    return _frames(profile, {m: found[m] for m in order}, truths)
