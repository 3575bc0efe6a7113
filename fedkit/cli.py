"""The command line: ``fedkit list``, ``run``, ``compare``, ``golden``, ``audit``, ``book``, ..."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from fedkit.extras import need

need("typer", extra="run")

import typer  # noqa: E402

from fedkit.claims.claim import claims_papers  # noqa: E402
from fedkit.papers.registry import all_experiments, get, papers  # noqa: E402
from fedkit.papers.requests import Request, check_profile, find_device, pending, select  # noqa: E402
from fedkit.records.store import PROFILES, CellError, Outcome, RecordError, Store, parse_seeds  # noqa: E402

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["app", "main"]

app = typer.Typer(
    name="fedkit",
    help="Run the experiments of the book, resume them, and compare them with the papers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Paper = Annotated[str, typer.Argument(help="Name of a paper, as 'fedkit list' shows it.")]
Profile = Annotated[
    str,
    typer.Option(
        help=f"Size of the run: {', '.join(PROFILES)}; paper is the paper's own, but for what "
        "the book's policy lists."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Go on after a cell that fails.")]


def _complain(message: object) -> None:
    """Print one line on standard error, whatever line breaks the message holds."""
    typer.echo(f"fedkit: {' '.join(str(message).split())}", err=True)


def _report(outcome: Outcome) -> bool:
    """Print what happened to the cells; tell whether none failed."""
    typer.echo(
        f"{len(outcome.computed)} computed, {len(outcome.skipped)} finished before, "
        f"{len(outcome.busy)} in another run, {len(outcome.failed)} failed"
    )
    for cell, error in outcome.failed:
        _complain(f"cell {cell.key} failed: {error}")
    return not outcome.failed


@app.command("list")
def list_command(
    paper: Annotated[str | None, typer.Argument(help="One paper only.")] = None,
) -> None:
    """List the experiments: cells done, missing and stale at each profile."""
    store = Store()
    width = max((len(e.name) for e in all_experiments(paper)), default=0)
    for name in papers() if paper is None else [paper]:
        typer.echo(name)
        for experiment in all_experiments(name):
            typer.echo(f"  {experiment.name:<{width}}  {experiment.title}")
            for profile in PROFILES:
                cells = experiment.cells(profile, None)
                if not cells:
                    continue
                states = [store.state(cell)[0] for cell in cells]
                counts = {state: states.count(state) for state in dict.fromkeys(states)}
                counts["done"] = counts.pop("fresh", 0)
                text = ", ".join(
                    f"{counts[state]} {state}"
                    for state in ("done", "stale", "missing", "unreadable")
                    if counts.get(state)
                )
                typer.echo(f"  {'':<{width}}  {profile:<7} {len(cells)} cells: {text}")


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
    only: Annotated[
        list[str] | None,
        typer.Option(help="name=value[,name=value...]: the cells with these settings."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells, run none.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Make finished cells anew.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Also make anew the cells older than the code.")
    ] = False,
    keep_going: KeepGoing = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Run the cells of a paper, or of one experiment, that have no record yet."""
    chosen = parse_seeds(seeds) if seeds is not None else None
    check_profile(profile)
    experiments = all_experiments(paper) if experiment is None else [get(paper, experiment)]
    anew = "all" if force else "stale" if stale else "none"
    requests: list[Request] = []
    errors: list[ValueError] = []
    for item in experiments:
        try:
            cells = select(item.cells(profile, chosen), only or ())
        except ValueError as error:  # another experiment of the paper may have the setting
            errors.append(error)
            continue
        if cells:
            requests.append(Request(item, tuple(cells), anew))
    if not requests:
        raise errors[0] if errors else ValueError(f"{paper} has no cells at profile {profile}")
    store = Store()
    if dry_run:
        for request in requests:
            for cell in request.cells:
                typer.echo(f"{request.experiment.name}  {cell.key}  {store.state(cell)[0]}")
        return
    where = find_device(device)
    fine = True
    for request in requests:
        name = request.experiment.name
        typer.echo(f"{paper} {name}, profile {profile}, on {where}; cells: {len(request.cells)}")
        old = sum(store.state(cell)[0] == "stale" for cell in request.cells)
        if old and anew == "none":
            typer.echo(f"{old} finished cells are older than the code; --stale makes them anew")
        fine &= _report(request.run(store, where, keep_going=keep_going, quiet=quiet))
    folder = store.root / profile / paper / (experiment or "")
    if not fine:
        follow = "resume"
    elif paper in claims_papers():
        follow = f"compare {paper} --profile {profile}"
    else:
        follow = f"list {paper}"
    typer.echo(f"records: {folder}; next: fedkit {follow}")
    if not fine:
        raise typer.Exit(1)


@app.command()
def resume(
    paper: Annotated[str | None, typer.Argument(help="One paper only.")] = None,
    profile: Annotated[str | None, typer.Option(help="One profile only.")] = None,
    device: Device = "auto",
    keep_going: KeepGoing = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Continue every run that was stopped, killed or failed: its cells, and no others."""
    if paper is not None:
        all_experiments(paper)  # or an error that lists the papers
    store = Store()
    requests = pending(store, paper, None if profile is None else check_profile(profile))
    if not requests:
        typer.echo("nothing is left of an earlier run; start one with: fedkit run PAPER")
        return
    where = find_device(device)
    fine = True
    for request in requests:
        cell = request.cells[0]
        left = len(store.missing(request.cells))
        typer.echo(
            f"{cell.paper} {cell.experiment}, profile {cell.profile}: "
            f"{left} of {len(request.cells)} cells missing, on {where}"
        )
        fine &= _report(request.run(store, where, keep_going=keep_going, quiet=quiet))
    if not fine:
        raise typer.Exit(1)


def _width() -> int | None:
    """Return the characters of a line; None where the output is a pipe or a file."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size((120, 24)).columns
    return None


def _remarks(
    paper: str, store: Store, profile: str, frame: pd.DataFrame, shown: pd.DataFrame
) -> Iterator[str]:
    """Say what the table leaves unsaid: the dagger, what is left out, where else to look."""
    if shown["mean"].notna().all() and len(shown) == frame["mean"].notna().sum() < len(frame):
        left = len(frame) - len(shown)
        yield f"claims without a number of ours: {left}; see --verdict 'not attempted'"
    for other, where in frame.attrs["claims"].paper.get("elsewhere", {}).items():
        if store.paths(other, paper):
            yield f"records at profile {other}: {where}"

    again = f"fedkit run {paper} --profile {profile}"
    if shown["stale"].any():
        yield (
            "† by records that this code no longer gives (fedkit golden shows why); "
            f"{again} --stale makes them anew"
        )
    found = len(store.paths(profile, paper))
    folder = store.root / profile / paper
    if not found:
        yield f"no record of {paper} at profile {profile} in {folder}: {again} makes them"
    elif not frame["profile"].any():
        yield f"records at profile {profile} in {folder}: {found}; no claim is judged from them"
    elif profile != "paper":
        yield f"numbers of profile {profile} are shown and never judged; only those of paper are"


def _compare_all(
    papers_: Sequence[str], store: Store, profile: str, keep: bool, changed: bool, power_: bool
) -> None:
    """Count the verdicts of papers; what has changed, and what their seeds can decide."""
    import pandas as pd

    from fedkit.claims.changes import changes, changes_table, keep_verdicts
    from fedkit.claims.join import join
    from fedkit.claims.power import power
    from fedkit.claims.tables import by_paper

    frames = {name: join(name, store, profile=profile) for name in papers_}
    if power_:
        table = pd.concat([power(frame) for frame in frames.values()], ignore_index=True)
        typer.echo(table.to_string(index=False, float_format=lambda x: f"{x:.3g}"))
        return
    typer.echo(by_paper(frames).to_string())
    if changed:
        typer.echo("\n" + changes_table(changes(frames, store.root)))
    if keep:
        typer.echo(f"kept in {keep_verdicts(frames, store.root)}")


@app.command()
def golden(
    names: Annotated[
        list[str] | None, typer.Argument(help="paper/name, may hold *; all by default.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Commit to what they give now; needs --why.")
    ] = False,
    why: Annotated[str, typer.Option(help="Why the numbers differ, for --accept.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto; --accept takes a CPU's.")] = "cpu",
) -> None:
    """Run the golden runs: do the experiments still behave as they did?"""
    from fedkit.records.golden import golden_runs, verify_lock

    there = golden_runs(all_experiments())
    chosen = [run for name, run in there.items() if _named(name, names or ["*"])]
    if not chosen:
        raise ValueError(f"no golden run is called {names}; there are {', '.join(there)}")
    if accept and not (names and why.strip()):
        raise ValueError("--accept needs the names of golden runs, and the reason with --why")
    device = find_device(device)
    if accept and device != "cpu":
        raise ValueError(f"--accept with device {device}: what is committed is what a CPU gives")
    changed = 0
    for item in chosen:
        told = item.check(device)
        changed += bool(told)
        if told and accept:
            n = item.accept(why)
            typer.echo(f"{item.id}: behaviour {n} from now on; older records are stale")
        elif told:
            typer.echo(f"{item.id}: {'; '.join(told)}")
    typer.echo(f"{len(chosen)} golden runs, {changed} differ")
    if accept and not changed:
        raise ValueError("nothing differs: nothing to accept")
    if changed and not accept:
        _complain("mend the code; or, if this is meant: fedkit golden NAME --accept --why '...'")
        raise typer.Exit(1)
    if len(chosen) == len(there) and device == "cpu":
        verify_lock()


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@app.command()
def audit(
    cells: Annotated[int, typer.Option(help="How many recorded cells to run again.")] = 3,
    paper: Annotated[str | None, typer.Option(help="One paper only.")] = None,
    experiment: Annotated[str | None, typer.Option(help="One experiment only.")] = None,
    profile: Profile = "paper",
    seed: Annotated[int, typer.Option(help="Decides which cells and seeds.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(help="name=value[,...]: among cells with these settings.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Add the table to audit.json beside the records.")
    ] = False,
) -> None:
    """Run some recorded cells again at full scale, one seed each, and compare."""
    from fedkit.papers.audit import audited, table

    store = Store()
    found = audited(
        store, cells, paper=paper, experiment=experiment, profile=check_profile(profile),
        seed=seed, only=only or (), save=save,
    )  # fmt: skip
    rows = []
    for row in found:
        rows.append(row)
        typer.echo(f"{row.cell} seed {row.seed}: {row.verdict} ({row.seconds:.0f} s)")
    typer.echo(table(rows).to_string(index=False))
    if any(row.verdict == "different" for row in rows):
        raise typer.Exit(1)


@app.command()
def compare(
    paper: Annotated[
        str | None, typer.Argument(help="One paper; all, counted, by default.")
    ] = None,
    profile: Profile = "paper",
    table: Annotated[
        str | None, typer.Option(help="Write one table of the paper as markdown, e.g. words.")
    ] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Only the claims of one verdict, e.g. 'not reproduced'.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="All columns, as markdown, with each command.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Fail if a record is damaged or misplaced; count the stale."),
    ] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Verdicts now and as kept, counted.")
    ] = False,
    power: Annotated[
        bool, typer.Option("--power", help="What the seeds of each table can decide.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the verdicts of all papers for --changes.")
    ] = False,
) -> None:
    """Set a paper's claims beside the records, with a verdict on each; or count those of all."""
    from fedkit.claims.join import join
    from fedkit.claims.tables import (
        claims_table,
        comparison_table,
        summary,
        terminal_table,
        with_verdict,
    )
    from fedkit.papers.staleness import check_records, stale_records

    if table is not None and (verdict is not None or markdown):
        raise ValueError("--table is markdown of a whole table; leave out --verdict and --markdown")
    if keep and paper is not None:
        raise ValueError(f"--keep keeps the verdicts of all papers; leave out {paper!r}")
    store = Store()
    if paper is None or changes or power:
        if table is not None or verdict is not None or markdown or check:
            raise ValueError(
                "--table, --verdict, --markdown and --check are for the claims of one paper"
            )
        names = claims_papers() if paper is None else [paper]
        _compare_all(names, store, check_profile(profile), keep, changes, power)
        return
    frame = join(paper, store, profile=check_profile(profile))
    if table is not None:
        shown = frame
        typer.echo(comparison_table(frame, table))
    else:
        shown = frame[frame["mean"].notna()] if verdict is None else with_verdict(frame, verdict)
        typer.echo(summary(frame).T.to_string() + "\n")
        if markdown and len(shown):
            typer.echo(claims_table(shown, commands=True))
        elif len(shown):
            typer.echo(terminal_table(shown, _width()))
    for line in _remarks(paper, store, profile, frame, shown):
        typer.echo(line)
    if check:
        problems = check_records(store)
        for problem in problems:
            _complain(problem)
        if problems:
            raise typer.Exit(1)
        typer.echo(f"all records are sound; stale: {len(stale_records(store))}")


# the modules import what their commands need when they are called
for name, module in (
    ("data", "fedkit.datasets.cli"),
    ("fedvalue", "fedkit.fedvalue.service.cli"),
    ("book", "fedkit.book.cli"),
):
    app.add_typer(importlib.import_module(module).app, name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status, with one line on what went wrong."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        _complain("stopped; finished cells are kept, go on with: fedkit resume")
        code = 130
    except (ValueError, RecordError, CellError, OSError, ImportError) as error:
        _complain(error)
        code = 1
    except Exception as error:
        # click's own errors (unknown command or option) know how to show themselves
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        code = getattr(error, "exit_code", 2)
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
