"""The commands ``fedkit data list | get | verify``."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from fedkit.datasets.catalogue import SETS, FileReport, available, data_root, get, verify
from fedkit.datasets.movielens import RATINGS, fetch, find_ratings, load_movielens
from fedkit.datasets.readers import DownloadError
from fedkit.datasets.tabular import TABLES, find_table, get_table, load_table

__all__ = ["app"]

app = typer.Typer(
    help="Data sets: what is there, fetch what is missing, check the files.",
    no_args_is_help=True,
)

Root = Annotated[
    Path | None,
    typer.Option(help="Data folder; default FEDKIT_DATA, else the user's cache folder."),
]
KNOWN = (*SETS, *TABLES, *RATINGS)


def _chosen(wanted: list[str]) -> list[str]:
    """Turn the names of the command line into known ones, or stop with one clear sentence."""
    chosen = [name.lower().replace("_", "-") for name in wanted]
    for name, key in zip(wanted, chosen, strict=True):
        if key not in KNOWN:
            near = difflib.get_close_matches(key, KNOWN, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            sentence = f"unknown data set {name!r}{hint}; expected one of {', '.join(KNOWN)}"
            typer.echo(f"error: {sentence}", err=True)
            raise typer.Exit(2)
    return chosen


def _edition(name: str, root: Path | None) -> str | None:
    """Return the edition that would be read, None where there is none."""
    if name in SETS:
        return available(name, root)
    return find_table(name, root) if name in TABLES else find_ratings(name, root)


@app.command("list")
def list_sets(root: Root = None) -> None:
    """List the known data sets and the edition that is there."""
    typer.echo(f"data folder: {data_root(root)}")
    images = {name: (f"{len(spec.classes)} classes", spec.title) for name, spec in SETS.items()}
    tables = {name: (f"{len(spec.counts)} classes", spec.title) for name, spec in TABLES.items()}
    for heading, sets in (
        ("images, read by fedkit.load:", images),
        ("tables, read by fedkit.datasets.load_table:", tables),
        (
            "ratings, read by fedkit.datasets.load_movielens:",
            {name: ("", title) for name, title in RATINGS.items()},
        ),
    ):
        typer.echo(heading)
        for name, (classes, title) in sets.items():
            edition = _edition(name, root) or "missing"
            typer.echo(f"{name:<14}  {classes:>10}  {edition:<50}  {title}")


@app.command("get")
def get_sets(
    wanted: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    root: Root = None,
) -> None:
    """Download data sets, check them and put them into the data folder."""
    for name in _chosen(wanted):
        try:
            if name in RATINGS:
                edition = find_ratings(name, root) or fetch(name, root).name
            else:
                edition = get_table(name, root) if name in TABLES else get(name, root)
            typer.echo(f"{name}: {edition}")
        except (DownloadError, ImportError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


@app.command("verify")
def verify_sets(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Data sets to check; default all that are there."),
    ] = None,
    root: Root = None,
) -> None:
    """Check every file against its published digest; fails if one is damaged or missing."""
    if root is not None and not root.is_dir():
        typer.echo(f"error: there is no folder {root}", err=True)
        raise typer.Exit(2)
    failed = False
    for name in _chosen(wanted or []) or [name for name in KNOWN if _edition(name, root)]:
        for report in verify(name, root) if name in SETS else [_verify_table(name, root)]:
            failed = failed or report.status in ("damaged", "missing")
            typer.echo(f"{report.status:<9}  {name:<15}  {report.name}  {report.detail}".rstrip())
    if failed:
        raise typer.Exit(1)


def _verify_table(name: str, root: Path | None) -> FileReport:
    """Read the files of a table or of ratings, for which no digests are published."""
    try:
        if name in RATINGS:
            return FileReport(load_movielens(name, root).source, "ok", "users, movies and stars")
        source = load_table(name, root).source
        return FileReport(source, "ok", "shape, gaps and classes (Table 2)")
    except (FileNotFoundError, ValueError) as error:
        state = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        return FileReport(str(error), state)
