"""The commands ``fedkit data list | get | verify``."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from fedkit.datasets.catalogue import SETS, available, canonical, data_root, names
from fedkit.datasets.fetch import get, verify
from fedkit.datasets.files import DownloadError
from fedkit.datasets.movielens import MovieLens, fetch, load_movielens
from fedkit.datasets.tabular import TABLES, Tabular, find_table, get_table, load_table

__all__ = ["app"]

#: ratings of movies; read by :func:`fedkit.datasets.movielens.load_movielens`
RATINGS = {"ml-1m": "MovieLens 1M", "ml-100k": "MovieLens 100K"}

app = typer.Typer(
    help="Data sets: what is there, fetch what is missing, check the files.",
    no_args_is_help=True,
)

Root = Annotated[
    Path | None,
    typer.Option(help="Data folder; default FEDKIT_DATA, else the user's cache folder."),
]


def _checked(wanted: list[str]) -> list[str]:
    """Turn the names of the command line into known ones, or stop with one clear sentence."""
    known = (*names(), *TABLES, *RATINGS)
    chosen = [name.lower().replace("_", "-") for name in wanted]
    for name, key in zip(wanted, chosen, strict=True):
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        try:
            canonical(name)  # may know better why not
        except ValueError as error:
            sentence = str(error)
            if sentence.startswith("unknown"):
                sentence = f"unknown data set {name!r}{hint}; expected one of {', '.join(known)}"
            typer.echo(f"error: {sentence}", err=True)
            raise typer.Exit(2) from error
    return chosen


@app.command("list")
def list_sets(root: Root = None) -> None:
    """List the known data sets and the edition that is there."""
    width = max(len(name) for name in (*names(), *TABLES, *RATINGS))
    typer.echo(f"data folder: {data_root(root)}")
    typer.echo("images, read by fedkit.load:")
    for name, spec in SETS.items():
        edition = available(name, root) or "missing"
        typer.echo(f"{name:<{width}}  {len(spec.classes):>2} classes  {edition:<50}  {spec.title}")
    typer.echo("tables, read by fedkit.datasets.load_table:")
    for name, table in TABLES.items():
        edition = find_table(name, root) or "missing"
        classes = f"{len(table.counts):>2} classes"
        typer.echo(f"{name:<{width}}  {classes}  {edition:<50}  {table.title}")
    typer.echo("ratings, read by fedkit.datasets.load_movielens:")
    for name, title in RATINGS.items():
        edition = _find_ratings(name, root) or "missing"
        typer.echo(f"{name:<{width}}  {'':>10}  {edition:<50}  {title}")


@app.command("get")
def get_sets(
    wanted: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    root: Root = None,
) -> None:
    """Download data sets, check them and put them into the data folder."""
    for name in _checked(wanted):
        try:
            if name in RATINGS:
                edition = _find_ratings(name, root) or fetch(name, root).name
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
    chosen = _checked(wanted or []) or [
        *(name for name in names() if available(name, root)),
        *(name for name in TABLES if find_table(name, root)),
        *(name for name in RATINGS if _find_ratings(name, root)),
    ]
    failed = False
    for name in chosen:
        if name in TABLES or name in RATINGS:
            failed = not _verify_table(name, root) or failed
            continue
        for report in verify(name, root):
            failed = failed or report.status in ("damaged", "missing")
            typer.echo(f"{report.status:<9}  {name:<15}  {report.name}  {report.detail}".rstrip())
    if failed:
        raise typer.Exit(1)


def _find_ratings(name: str, root: Path | None) -> str | None:
    """Return the folder or archive that is there."""
    found = (place for place in (name, f"{name}.zip") if (data_root(root) / place).exists())
    return next(found, None)


def _verify_table(name: str, root: Path | None) -> bool:
    """Read the files of a table or of ratings (no digests are published), and say the result."""
    try:
        if name in RATINGS:
            table: MovieLens | Tabular = load_movielens(name, root)
            what = "users, movies and stars"
        else:
            table, what = load_table(name, root), "shape, gaps and classes (Table 2)"
        typer.echo(f"{'ok':<9}  {name:<15}  {table.source}  {what}")
    except (FileNotFoundError, ValueError) as error:
        state = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        typer.echo(f"{state:<9}  {name:<15}  {error}")
        return False
    return True
