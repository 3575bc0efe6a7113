"""The commands ``fedkit book build | run | parameters | sync``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fedkit.checks import choice, real
from reproduction import ROOT
from reproduction.book.build import LIMITS, Book, BookError
from reproduction.book.notebooks import NotebookError, check_pair, parameters_of, write_pair
from reproduction.book.runs import execute

app = typer.Typer(
    help="Build the book: run the notebooks, check them, render the pages.", no_args_is_help=True
)


def _profile(name: str) -> str:
    return str(choice("profile", name, tuple(LIMITS)))


class _Pairs(TyperCommand):
    """A command whose ``-p`` takes two words, which a list of options cannot: they are joined."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, joined = iter(args), []
        for word in words:
            joined.append(word)
            if word in ("-p", "--parameter"):
                name = next(words, "")
                joined.append(name if "=" in name else f"{name}={next(words, '')}")
        return super().parse_args(ctx, joined)


@app.callback()
def _book(
    context: typer.Context,
    profile: Annotated[
        str, typer.Option(callback=_profile, help=f"Scale of the runs: {', '.join(LIMITS)}.")
    ] = "smoke",
) -> None:
    context.obj = Book(ROOT, profile)


@app.command()
def build(
    context: typer.Context,
    jobs: Annotated[int, typer.Option(help="Notebooks at a time.", min=1)] = 2,
    draft: Annotated[
        bool, typer.Option("--draft", help="Build what exists, do not be strict.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="A draft with this notebook; repeat for more.")
    ] = None,
) -> None:
    """Run every notebook and render the book."""
    book: Book = context.obj
    draft = draft or bool(only)
    missing = [p for p in book.pages if not book.source(p).is_file()]
    if missing and not draft:
        raise BookError(f"_toc.yml names pages without a source: {', '.join(missing)}")
    pages = [p for p in book.pages if p not in missing]
    notebooks = [page for page in book.notebooks if page in pages]
    if only:
        chosen = [_source(book, name) for name in only]
        notebooks = [p for p in notebooks if book.source(p) in chosen or Path(p).name in only]
        pages = [p for p in pages if not p.startswith("notebooks/") or p in notebooks]
    problems = []
    for source in dict.fromkeys(map(book.source, notebooks)):
        try:
            check_pair(source)
        except NotebookError as error:
            problems.append(str(error))
    if problems and not draft:
        raise BookError("\n".join(problems))
    for text in problems:
        typer.echo(f"  note: {text}")
    typer.echo(f"Running {len(notebooks)} notebooks at profile {book.profile!r}:")
    failed = book.run_all(notebooks, jobs)
    for text in failed.values():
        typer.echo(f"\n{text}", err=True)
    if failed and not draft:
        raise BookError(f"{len(failed)} of {len(notebooks)} notebooks failed")
    pages = [p for p in pages if p not in failed]
    book.stage(pages)
    typer.echo(f"Rendering {len(pages)} pages:")
    html = book.render(strict=not draft)
    typer.echo(f"The book is in {html.relative_to(book.root)}/index.html")
    raise typer.Exit(1 if failed else 0)


def _source(book: Book, name: str) -> Path:
    """Find the source of a notebook by its name or path."""
    source = book.source(f"notebooks/{Path(name).stem}")
    if not source.is_file():
        offer = ", ".join(p.stem for p in sorted((book.root / "notebooks").glob("*.md")))
        raise BookError(f"there is no notebook {name!r}; there are {offer or 'none'}")
    return source


@app.command(cls=_Pairs)
def run(
    context: typer.Context,
    notebook: Annotated[str, typer.Argument(help="Name or path of a notebook.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--parameter", metavar="NAME VALUE", help="As listed by: fedkit book parameters."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where the executed notebook goes.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds that it may take.", min=1, max=1e7)
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Render its page as well.")] = False,
) -> None:
    """Run one notebook with your parameters."""
    book: Book = context.obj
    source = _source(book, notebook)
    if output is not None and output.suffix != ".ipynb":
        raise BookError(
            f"--output is {output}; expected a name that ends in .ipynb, which the executed "
            "notebook is (--html renders its page)"
        )
    given: dict[str, str] = {}
    for pair in parameter or []:
        name, _, value = pair.partition("=")
        if not name or name in given:
            raise BookError(f"parameter {name!r} is given twice or without a name; name each once")
        given[name] = value
    if "profile" in parameters_of(source):
        _profile(given.setdefault("profile", book.profile))
    target = output or book.root / "_runs" / f"{source.stem}.ipynb"
    if limit is not None:
        real("--limit", limit)  # the option's bounds let nan pass
    seconds = limit or LIMITS.get(given.get("profile", ""), LIMITS["smoke"])
    execute(source, target, given, seconds, source.parent)
    typer.echo(f"The executed notebook is {target}")
    if html:
        page = f"notebooks/{source.stem}"
        if source.stem == "tables":
            page += f"-{given.get('paper', parameters_of(source)['paper'].default).lower()}"
        typer.echo(f"Its page is {book.render_page(page, target)}")


@app.command()
def parameters(
    context: typer.Context,
    notebook: Annotated[list[str] | None, typer.Argument(help="All of them by default.")] = None,
) -> None:
    """List the parameters of the notebooks."""
    book: Book = context.obj
    for source in [_source(book, name) for name in notebook or []] or book.sources:
        typer.echo(source.stem)
        for p in parameters_of(source).values():
            typer.echo(f"  -p {p.name} ({p.type}, default {p.default!r})  {p.help}")


@app.command()
def sync(context: typer.Context) -> None:
    """Write the .ipynb of every source."""
    for source in context.obj.sources:
        if write_pair(source):
            typer.echo(f"  wrote notebooks/{source.stem}.ipynb")
