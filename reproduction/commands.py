"""The command line: ``fedkit list``, ``run``, ``arena``, ``compare``, ``golden``, ..."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import filter as matching
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkit.__main__ import complain
from fedkit.checks import choice
from reproduction import PAPERS
from reproduction.claims import all_claims, claims_papers, load_claims
from reproduction.experiments import ENGINES, all_experiments, described, enter, get, keep
from reproduction.plugins import is_plugin, load_plugin
from reproduction.records import PROFILES, SHIPPED, Store, parse_seeds

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer()
GROUPS = {"book": "reproduction.book.cli"}
"""Commands with commands of their own, and the module of each."""


def _one_of(name: str, *options: str) -> Callable[[str], str]:
    """Make a check of what an option was given."""
    return lambda given: str(choice(name, given, options))


def _find_device(name: str) -> str:
    """Turn ``auto`` into what there is, and refuse a device that is not there."""
    if name == "cpu":
        return name
    from fedkit.learning.device import find_device

    return find_device(None if name == "auto" else name).type


def _settings(only: Sequence[str] | None) -> list[tuple[str, str]]:
    """Read what --only was given, ``name=value[,name=value...]``, as pairs."""
    pairs = []
    for part in ",".join(only).split(",") if only else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals):
            raise ValueError(f"--only {part!r} cannot be read; write name=value")
        pairs.append((name, value))
    return pairs


def _named(paper: str | None) -> str | None:
    """Take the folder of a paper of one's own wherever the name of a paper may stand."""
    if paper is None or paper in PAPERS or not Path(paper).is_dir():
        return paper
    return enter(Path(paper))


Paper = Annotated[
    str,
    typer.Argument(
        callback=_named, help="A paper, as 'fedkit list' shows it, or the folder of your own."
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        callback=_one_of("profile", *PROFILES),
        help=f"Size of the run: {', '.join(PROFILES)}; paper is the paper's own, but for what "
        "the book's policy lists.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="name=value[,name=value...]: the cells with these settings."),
]
Engine = Annotated[
    str,
    typer.Option(
        callback=_one_of("engine", *ENGINES),
        help="here, or ray: on the cluster that RAY_ADDRESS names, else on this machine.",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes of this machine that share the cells.")]
Device = Annotated[
    str,
    typer.Option(callback=_one_of("device", "auto", "cpu", "cuda"), help="auto, cpu or cuda."),
]


@app.command("list")
def list_command(
    paper: Annotated[
        str | None,
        typer.Argument(callback=_named, help="One paper: cells done, missing and stale."),
    ] = None,
) -> None:
    """List the papers and their records; or the experiments of one, their cells counted."""
    store = Store()
    if paper is None:
        there = Counter(path.relative_to(store.root).parts[:3] for path in store.paths())
        for name in sorted({*PAPERS, *(p for _, p, _ in there)}):
            typer.echo(name)
            for experiment in sorted({e for _, p, e in there if p == name}):
                counts = {profile: there[profile, name, experiment] for profile in PROFILES}
                text = ", ".join(f"{n} at profile {p}" for p, n in counts.items() if n)
                typer.echo(f"  {experiment}: records {text}")
        if not there:
            typer.echo(f"no records in {store.root}; {SHIPPED}")
        typer.echo("fedkit list PAPER counts the cells of each experiment: done, missing, stale")
        return
    experiments = all_experiments(paper)
    width = max(len(item.name) for item in experiments)
    for item in experiments:
        typer.echo(f"{item.name:<{width}}  {item.title}")
        for profile in PROFILES:
            states = Counter(store.state(cell) for cell in item.cells(profile, None))
            words = ("done", "stale", "missing")
            text = ", ".join(f"{states[word]} {word}" for word in words if states[word])
            if text:
                typer.echo(f"{'':<{width}}  {profile:<7} {states.total()} cells: {text}")


@app.command()
def run(
    paper: Paper,
    experiment: Annotated[
        str | None, typer.Argument(help="Name of an experiment; all of the paper's by default.")
    ] = None,
    profile: Profile = "smoke",
    device: Device = "auto",
    seeds: Annotated[
        str | None, typer.Option(help="Such as 0-4 or 0,2,7; the profile's own by default.")
    ] = None,
    only: Only = None,
    method: Annotated[
        str | None, typer.Option(help="module:Name, yours, in the place of the paper's rows.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells, run none.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Make finished cells anew.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Also make anew what this code no longer gives.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a cell that fails.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
    jobs: Jobs = 1,
    engine: Engine = "here",
) -> None:
    """Run the cells of a paper, or of one experiment, that have no record yet.

    A run that was stopped goes on with the same command.
    """
    chosen = parse_seeds(seeds) if seeds is not None else None
    plan, errors = [], []
    if method is not None:
        if engine != "here":
            raise ValueError(f"method {method!r} runs here: a cluster may lack it, drop --engine")
        sys.path.insert(0, os.getcwd())  # it may lie in the current folder
        load_plugin(method)
    for item in all_experiments(paper) if experiment is None else [get(paper, experiment)]:
        cells = item.cells(profile, chosen)
        try:
            if method is not None:
                cells = item.entered(cells, method)
            for name, value in _settings(only):
                cells = keep(cells, name, value)
        except ValueError as error:  # another experiment of the paper may have the setting
            errors.append(error)
        else:
            plan += [(item, cells)] if cells else []
    if not plan:
        raise errors[0] if errors else ValueError(f"{paper} has no cells at profile {profile}")
    store = Store()
    if dry_run:
        for item, cells in plan:
            for cell in cells:
                told = " ".join(f"{name}={value}" for name, value in cell.settings.items())
                typer.echo(f"{item.name}  {cell.key}  {store.state(cell)}  {told}")
        return
    # the nodes of a cluster may have what this machine lacks
    where = device if engine == "ray" and device == "cuda" else _find_device(device)
    failed = False
    for item, cells in plan:
        typer.echo(f"{paper} {item.name}, profile {profile}, on {where}; cells: {len(cells)}")
        old = sum(store.state(cell) == "stale" for cell in cells)
        if old and not (force or stale):
            typer.echo(
                f"{old} finished cells are what this code no longer gives; --stale makes them anew"
            )
        outcome = item.execute(
            cells, store, anew="all" if force else "stale" if stale else "missing", device=where,
            jobs=jobs, engine=engine, progress=not quiet,
            on_error="continue" if keep_going else "stop",
        )  # fmt: skip
        typer.echo(
            f"{len(outcome.computed)} computed, {len(outcome.finished)} finished before, "
            f"{len(outcome.failed)} failed"
        )
        for cell, problem in outcome.failed:
            complain(f"cell {cell.key} failed: {described(problem)}")
        failed |= bool(outcome.failed)
    folder = store.root / profile / paper / (experiment or "")
    judged = paper in claims_papers()
    follow = f"fedkit compare {paper} --profile {profile}" if judged else f"fedkit list {paper}"
    if method is not None:
        typer.echo(f"in the tables of {paper}'s records this method is {method}")
    typer.echo(f"records: {folder}; next: {'the same again' if failed else follow}")
    if failed:
        raise typer.Exit(1)


def _remarks(paper: str, store: Store, profile: str, frame: pd.DataFrame) -> Iterator[str]:
    """Say what the listed claims leave unsaid: the dagger, what is left out, where to look."""
    if left := int(frame["mean"].isna().sum()):
        yield f"claims without a number of ours: {left}; the page on claims lists them"
    for other, where in load_claims(paper).paper.get("elsewhere", {}).items():
        if store.paths(other, paper):
            yield f"records at profile {other}: {where}"
    again = f"fedkit run {paper} --profile {profile}"
    if frame["stale"].any():
        yield (
            "† by records that this code no longer gives (fedkit golden shows why); "
            f"{again} --stale makes them anew"
        )
    found, folder = len(store.paths(profile, paper)), store.root / profile / paper
    if not found:
        yield f"no record of {paper} at profile {profile} in {folder}: {again} makes them"
        yield SHIPPED
    elif not frame["profile"].any():
        yield f"records at profile {profile} in {folder}: {found}; no claim is judged from them"
    elif profile != "paper":
        yield f"numbers of profile {profile} are shown and never judged; only those of paper are"


@app.command()
def golden(
    names: Annotated[
        list[str] | None, typer.Argument(help="paper/name, may hold *; all by default.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Commit to what they give now; needs --why.")
    ] = False,
    why: Annotated[str, typer.Option(help="Why the numbers differ, for --accept.")] = "",
    only: Annotated[
        list[str] | None, typer.Option(help="name=value: the cells that --accept concerns.")
    ] = None,
    device: Device = "cpu",
) -> None:
    """Run the golden runs: do the experiments still behave as they did?"""
    from reproduction.golden import GoldenRun, golden_runs
    from reproduction.records import behaviour

    parts = [name.rpartition("/") for name in names or ["*"]]
    wanted = [f"{_named(paper)}/{name}" if slash else name for paper, slash, name in parts]
    there = golden_runs(all_experiments())
    chosen: dict[str, GoldenRun] = {}
    for pattern in wanted:
        chosen |= {name: there[name] for name in matching(there, pattern)}
        if not matching(there, pattern):
            near = ", ".join(sorted({f"{run.paper}/*" for run in there.values()}))
            raise ValueError(f"no golden run is called {pattern!r}; there are {near}")
    if (why or only) and not accept:
        raise ValueError("--why and --only say what --accept is for; give it as well, or neither")
    if accept and not (names and why.strip()):
        raise ValueError("--accept needs the names of golden runs, and the reason with --why")
    device = _find_device(device)
    if accept and device != "cpu":
        raise ValueError(f"--accept with device {device}: what is committed is what a CPU gives")
    changed = 0
    for item in chosen.values():
        differing = item.check(device)
        changed += bool(differing)
        if differing and accept:
            before, n = behaviour(item.paper, item.name), item.accept(why, dict(_settings(only)))
            meant = "older records are stale" if n > before else "it is watched more closely"
            typer.echo(f"{item.id}: behaviour {n} from now on; {meant}")
        elif differing:
            typer.echo(f"{item.id}: {'; '.join(differing)}")
    typer.echo(f"{len(chosen)} golden runs, {changed} differ")
    if accept and not changed:
        raise ValueError("nothing differs: nothing to accept")
    if changed and not accept:
        complain("mend the code; or, if this is meant: fedkit golden NAME --accept --why '...'")
        raise typer.Exit(1)


@app.command("audit")
def audit_command(
    runs: Annotated[int, typer.Argument(min=1, help="How many recorded runs to run again.")] = 3,
    paper: Annotated[
        str | None, typer.Option(callback=_named, help="One paper only, or the folder of your own.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="One experiment only.")] = None,
    profile: Profile = "paper",
    seed: Annotated[int, typer.Option(help="Decides which runs and seeds.", min=0)] = 0,
    only: Only = None,
) -> None:
    """Run some recorded runs again with today's code, one seed each, and compare.

    Fails if one is different, or if nothing was compared.
    """
    from numpy.random import default_rng

    from reproduction.golden import audit, choose

    wanted = _settings(only)
    # a method from outside is not here to be run again
    records = [
        record
        for record in Store().records(profile, paper, experiment)
        if record.cell.experiment != "entries" and not is_plugin(record.cell.settings.get("method"))
    ]
    if not records:
        what = " ".join(filter(None, (paper, experiment))) or "any paper"
        raise ValueError(f"no record of {what} at profile {profile} to audit; see: fedkit list")
    for name, value in wanted:
        kept = set(keep([record.cell for record in records], name, value))
        records = [record for record in records if record.cell in kept]
    failed, compared = False, 0
    for record, chosen in choose(records, runs, default_rng(seed)):
        cell = record.cell
        try:
            differing = audit(record, chosen, get(cell.paper, cell.experiment).run)
        except FileNotFoundError as error:
            verdict = f"data missing: {error}"
        else:
            compared += 1
            failed |= bool(differing)
            verdict = "; ".join(["different", *differing]) if differing else "equal"
        stale = " (stale)" if record.stale() else ""
        typer.echo(f"{cell.name} seed {chosen}{stale}: {verdict}")
    if failed or not compared:
        raise typer.Exit(1)


@app.command()
def arena(
    method: Annotated[
        list[str] | None, typer.Option(help="package:Class, or a row of the arena.")
    ] = None,
    profile: Profile = "smoke",
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="Of this federation only, once for each; all by default."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Rows beside it, with commas; all by default.")
    ] = None,
) -> None:
    """Run methods through the arena and print their rows among the others.

    Rows of the arena are computed once and kept as records; a run that was stopped goes on.
    """
    from fedkit.arena import METHODS
    from reproduction.arena import SCENARIOS, run

    store, chosen = Store(), method or []
    others = list(METHODS) if against is None else [r.strip() for r in against.split(",")]
    rows = list(dict.fromkeys([*filter(None, others), *(m for m in chosen if m in METHODS)]))
    entered = [m for m in chosen if m not in METHODS]
    if not rows and not entered:
        raise ValueError("nothing to run: give --method or --against")
    for name in scenario or []:
        choice("scenario", name, SCENARIOS)
    for name in rows:
        choice("against", name, METHODS)
    sys.path.insert(0, os.getcwd())  # the method may lie in the current folder
    mine = {name: load_plugin(name) for name in entered}
    typer.echo(
        f"{len(rows) + len(entered)} rows, profile {profile}; what has no record is computed first",
        err=True,  # the bars are seen in a terminal alone
    )
    found = run(mine, profile, rows=rows, scenarios=scenario, store=store, progress=True)
    shown = found.board().rename_axis(index=None)
    kinds = shown.columns.str.partition(".").get_level_values(0)
    for kind in dict.fromkeys(kinds):
        part = shown.loc[:, kinds == kind].rename(columns=lambda name: name.split(".")[-1])
        form = "{:.3g}" if kind == "cost" else "{:.2f}"
        table = part.rename_axis(columns=kind).to_string(float_format=form.format, na_rep="–")
        typer.echo(f"{table}\n")


@app.command()
def compare(
    paper: Annotated[
        str | None, typer.Argument(help="One paper; all, counted, by default.")
    ] = None,
    profile: Profile = "paper",
    markdown: Annotated[
        bool, typer.Option("--markdown", help="All columns, as markdown, with each command.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Fail if a record is damaged or misplaced; count the stale."),
    ] = False,
) -> None:
    """Set a paper's claims beside the records, with a verdict on each; or count those of all."""
    from reproduction.experiments import check_records, stale_records
    from reproduction.tables import by_paper, claims_listing, claims_table, of_papers, summary
    from reproduction.verdicts import join, verdict_text

    store = Store()
    if paper is None:
        if markdown or check:
            raise ValueError(
                "--markdown and --check are for the claims of one paper, such as: "
                "fedkit compare fedowen --markdown"
            )
        frames = {
            name: join(claims, store, profile=profile) for name, claims in all_claims().items()
        }
        every = of_papers(frames).set_index("claim")
        counts = by_paper(every[~every["by_construction"].astype(bool)])
        typer.echo(counts.rename(index=verdict_text).to_string())
        if without := [name for name in frames if not store.paths(profile, name)]:
            names = ", ".join(without)
            typer.echo(f"no record of {names} at profile {profile} in {store.root}; {SHIPPED}")
        return
    frame = join(load_claims(paper), store, profile=profile)
    shown = frame[frame["mean"].notna()]
    typer.echo(f"{summary(frame).T.to_string()}\n")
    typer.echo(claims_table(shown, commands=True) if markdown else claims_listing(shown))
    for line in _remarks(paper, store, profile, frame):
        typer.echo(line)
    if check:
        problems = check_records(store)
        for problem in problems:
            complain(problem)
        if problems:
            raise typer.Exit(1)
        typer.echo(f"all records are sound; stale: {len(stale_records(store))}")


if __name__ == "__main__":
    from fedkit.__main__ import main

    sys.exit(main())
