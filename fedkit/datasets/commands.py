"""The commands ``fedkit data list`` and ``fedkit data get``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkit.datasets import IMAGES, RATINGS, TABLES, data_root, find, get

app = typer.Typer(help="Data sets: what is there, and fetch what is missing.", no_args_is_help=True)

Root = Annotated[
    Path | None,
    typer.Option(help="Data folder; default FEDKIT_DATA, else the user's cache folder."),
]


@app.command("list")
def list_sets(root: Root = None) -> None:
    """List the known data sets and the copy that is there."""
    folder = data_root(root)
    typer.echo(f"data folder: {folder}" + ("" if folder.is_dir() else ", which does not exist"))
    for heading, sets in (
        ("images, read by fedkit.load:", IMAGES),
        ("tables, read by fedkit.datasets.load_table:", TABLES),
        ("ratings, read by fedkit.datasets.load_movielens:", RATINGS),
    ):
        typer.echo(heading)
        for name, spec in sets.items():
            typer.echo(f"{name:<14}  {find(name, root) or 'missing':<50}  {spec.title}")


@app.command("get")
def get_sets(
    wanted: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to fetch.")],
    root: Root = None,
) -> None:
    """Download data sets, check them and put them into the data folder; check those there are."""
    for name in wanted:
        typer.echo(f"{name}: {get(name, root)}")
