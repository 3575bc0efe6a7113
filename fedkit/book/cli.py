"""The steps of ``fedkit book``: build, run, parameters, sync, check."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedkit.book.build import DEFAULT_LIMIT, Book, BookError, say
from fedkit.book.notebooks import NotebookError, check_pair, write_pair
from fedkit.book.parameters import parameters_of
from fedkit.book.runs import execute

__all__ = ["main"]

_ABOUT = "From sources to a rendered book: fedkit book and make book."


def _build(book: Book, args: argparse.Namespace) -> int:
    """Build the whole book, or with ``--draft`` and ``--only`` what is there of it."""
    draft = args.draft or bool(args.only)
    missing = [p for p in book.pages if not (book.root / f"{p}.md").is_file()]
    if missing and not draft:
        raise BookError(f"_toc.yml names pages without a source: {', '.join(missing)}")
    pages = [p for p in book.pages if p not in missing]
    sources = [s for s in book.notebooks if s.is_file()]
    if args.only:
        sources = [s for s in sources if s.stem in args.only]
        pages = [p for p in pages if not p.startswith("notebooks/") or Path(p).stem in args.only]
    problems: dict[Path, str] = {}
    for source in sources:
        try:
            check_pair(source)
        except NotebookError as error:
            problems[source] = str(error)
    if problems and not draft:
        raise BookError("\n".join(problems.values()))
    for text in problems.values():
        say(f"  note: {text}")
    say(f"Running {len(sources)} notebooks at profile {book.profile!r}:")
    failed = book.run_all(sources, args.jobs, use_cache=not args.no_cache)
    if failed:
        for text in failed.values():
            print(f"\n{text}", file=sys.stderr)
        if not draft:
            raise BookError(f"{len(failed)} of {len(sources)} notebooks failed")
        pages = [p for p in pages if p not in {f"notebooks/{s.stem}" for s in failed}]
    book.stage(pages, draft=draft)
    say(f"Rendering {len(pages)} pages:")
    html = book.render(strict=not draft)
    say(f"The book is in {html.relative_to(book.root)}/index.html")
    return 1 if failed else 0


def _source(book: Book, name: str) -> Path:
    """Find the source of a notebook by its name or path."""
    source = book.root / "notebooks" / f"{Path(name).stem}.md"
    if not source.is_file():
        offer = ", ".join(p.stem for p in sorted((book.root / "notebooks").glob("*.md")))
        raise BookError(f"there is no notebook {name!r}; there are {offer or 'none'}")
    return source


def _run_one(book: Book, args: argparse.Namespace) -> int:
    """Execute one notebook with a reader's parameters."""
    source = _source(book, args.notebook)
    given = dict(args.parameter)
    if len(given) != len(args.parameter):
        raise BookError("a parameter is given twice; name each once")
    if "profile" in parameters_of(source):
        given.setdefault("profile", book.profile)
    target = Path(args.output) if args.output else book.root / "_runs" / f"{source.stem}.ipynb"
    limit = args.limit or Book(book.root, str(given.get("profile", "smoke"))).limit(source)
    execute(source, target, given, limit, source.parent)
    say(f"The executed notebook is {target}")
    return 0


def _describe(book: Book, args: argparse.Namespace) -> int:
    """List the parameters of notebooks."""
    named = [_source(book, name) for name in args.notebook]
    for source in named or book.notebooks:
        if source.is_file():
            say(f"{source.stem} (limit {book.limit(source):g} s at profile {book.profile!r})")
            for p in parameters_of(source).values():
                say(f"  -p {p.name} ({p.type}, default {p.default!r})  {p.help}")
    return 0


def _pairs(book: Book, args: argparse.Namespace) -> int:
    """Write (``sync``) or compare (``check``) the committed ``.ipynb`` files."""
    for source in book.notebooks:
        if not source.is_file():
            say(f"  {source.name} does not exist yet")
        elif args.step == "check":
            check_pair(source)
        elif write_pair(source):
            say(f"  wrote notebooks/{source.stem}.ipynb")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedkit book", description=_ABOUT)
    parser.add_argument("--root", type=Path, default=None, help="folder with _toc.yml")
    parser.add_argument("--profile", default="smoke", choices=sorted(DEFAULT_LIMIT))
    steps = parser.add_subparsers(dest="step", required=True)
    build = steps.add_parser("build", help="run every notebook, render the book")
    build.add_argument("--jobs", type=int, default=2, help="notebooks at a time")
    build.add_argument("--no-cache", action="store_true", help="run every notebook anew")
    build.add_argument("--draft", action="store_true", help="build what exists, do not be strict")
    build.add_argument("--only", nargs="+", metavar="NOTEBOOK", help="a draft with these alone")
    build.set_defaults(call=_build)
    run = steps.add_parser("run", help="run one notebook with your parameters")
    run.add_argument("notebook")
    run.add_argument(
        "-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
        help="as listed by: fedkit book parameters",
    )  # fmt: skip
    run.add_argument("-o", "--output", help="where the executed notebook goes")
    run.add_argument("--limit", type=float, help="seconds that it may take")
    run.set_defaults(call=_run_one)
    describe = steps.add_parser("parameters", help="list the parameters of the notebooks")
    describe.add_argument("notebook", nargs="*")
    describe.set_defaults(call=_describe)
    steps.add_parser("sync", help="write the .ipynb of every source").set_defaults(call=_pairs)
    steps.add_parser("check", help="compare the pairs by content").set_defaults(call=_pairs)
    return parser


def _find_root(start: Path) -> Path:
    """Find the folder with ``_toc.yml``: here, above, or where fedkit itself lies."""
    for folder in (start, *start.parents, Path(__file__).resolve().parents[2]):
        if (folder / "_toc.yml").is_file():
            return folder
    raise BookError(f"no _toc.yml in {start} or above it; run this inside a clone of fedkit")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of ``fedkit book`` and ``python -m fedkit.book.cli``; return the exit status."""
    args = _parser().parse_args(argv)
    if os.environ.get("FEDKIT_DATA"):  # notebooks run in another folder
        os.environ["FEDKIT_DATA"] = str(Path(os.environ["FEDKIT_DATA"]).expanduser().resolve())
    try:
        book = Book(args.root.resolve() if args.root else _find_root(Path.cwd()), args.profile)
        return int(args.call(book, args))
    except (BookError, NotebookError) as error:
        print(f"fedkit book: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
