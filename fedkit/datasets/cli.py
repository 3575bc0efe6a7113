"""The commands ``fedkit data list | get | verify``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedkit.datasets.catalogue import (
    SETS,
    FileReport,
    available,
    called,
    canonical,
    data_root,
    get,
    report,
    verify,
)
from fedkit.datasets.movielens import RATINGS, fetch, find_ratings, load_movielens
from fedkit.datasets.tabular import TABLES, Tabular, fetched, find_table, get_table, load_table

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


def _edition(name: str, root: Path | None) -> str | None:
    """Return the edition that would be read, None where there is none."""
    if name in SETS:
        return available(name, root)
    return find_table(name, root) if name in TABLES else find_ratings(name, root)


def _of_fetched(name: str, root: Path | None) -> FileReport:
    """Report on a table that was fetched; its rows and columns may stand in any order."""
    read: list[Tabular] = []
    found = report(
        fetched(name), "all of its values are as known, in an order of its own",
        lambda: read.append(load_table(name, root, verify=False)),
    )  # fmt: skip
    if read and read[0].content != TABLES[name].content:
        return replace(found, status="unchecked", detail="other values than known; structure only")
    return found


@app.command("list")
def list_sets(root: Root = None) -> None:
    """List the known data sets and the edition that is there."""
    folder = data_root(root)
    typer.echo(f"data folder: {folder}" + ("" if folder.is_dir() else ", which does not exist"))
    for heading, sets in (
        ("images, read by fedkit.load:", SETS),
        ("tables, read by fedkit.datasets.load_table:", TABLES),
        ("ratings, read by fedkit.datasets.load_movielens:", RATINGS),
    ):
        typer.echo(heading)
        for name, spec in sets.items():
            told = called(name, root) if name in SETS else name
            typer.echo(f"{told:<14}  {_edition(name, root) or 'missing':<50}  {spec.title}")


@app.command("get")
def get_sets(
    wanted: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    root: Root = None,
) -> None:
    """Download data sets, check them and put them into the data folder."""
    for name in [canonical(name, KNOWN) for name in wanted]:
        if name in RATINGS:
            edition = find_ratings(name, root)
            if edition is None:
                edition = fetch(name, root).name
            else:
                load_movielens(name, root)  # refuses what is damaged
        else:
            edition = get_table(name, root) if name in TABLES else get(name, root)
        typer.echo(f"{name}: {edition}")


@app.command("verify")
def verify_sets(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Data sets to check; default all that are there."),
    ] = None,
    root: Root = None,
) -> None:
    """Check every file or value against its digest; fails if one is damaged or missing."""
    if root is not None and not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    failed = False
    asked = [canonical(name, KNOWN) for name in wanted or []]
    for name in asked or [name for name in KNOWN if _edition(name, root)]:
        if name in SETS:
            reports, told = verify(name, root), called(name, root)
        else:  # a digest of the values, not of the files
            told = name
            load = load_table if name in TABLES else load_movielens
            edition = _edition(name, root) or name
            reports = [report(edition, "all of its values are as known", partial(load, name, root))]
            if edition == fetched(name):
                reports = [_of_fetched(name, root)]
        for one in reports:
            failed = failed or one.status in ("damaged", "missing")
            typer.echo(f"{one.status:<9}  {told:<15}  {one.name}  {one.detail}".rstrip())
    if failed:
        raise typer.Exit(1)
