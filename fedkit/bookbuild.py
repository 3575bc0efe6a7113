"""From sources to a rendered book: ``fedkit book`` and ``make book``.

The steps, each of which stops the build when it fails:

1. every notebook of ``_toc.yml`` is compared with its committed ``.ipynb``, by content;
2. its parameters are checked, it runs in a fresh kernel, and the result is brought into normal
   form (:mod:`fedkit.notebookruns`), unless an identical run is at hand;
3. prose and executed notebooks are staged under the paths that they have in the repository, so
   that launch buttons point to committed files;
4. jupyter-book renders the stage, with execution off, every warning an error, and no network.

A run is *identical* if its key is: a hash of fedkit's sources, the notebook, its parameters, the
lock file, the installed packages, the recorded results and the data folder's listing.  Nothing
older is ever shown.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkit._identity import commit_of, data_identity, hash_files, installed_packages
from fedkit.extras import need
from fedkit.notebookparameters import parameters_of
from fedkit.notebookruns import execute
from fedkit.notebooks import NotebookError, check_pair, write_atomically, write_pair

__all__ = ["Book", "BookError", "main", "rendering"]

#: Seconds that a notebook may take, unless pyproject.toml says otherwise.
DEFAULT_LIMIT = {"smoke": 180.0, "laptop": 7200.0, "paper": 86400.0}
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


class BookError(RuntimeError):
    """The book cannot be built; the message says what to mend."""


@dataclass(frozen=True)
class Book:
    """The book whose sources lie in `root`.

    Parameters
    ----------
    root : Path
        Folder with ``_toc.yml``, ``_config.yml``, ``book/`` and ``notebooks/``.
    profile : str
        Handed to every notebook that declares a parameter ``profile``.
    """

    root: Path
    profile: str = "smoke"
    _digests: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def pages(self) -> list[str]:
        """Every page of the table of contents, in order, without suffix."""
        yaml = need("yaml", extra="run")
        found: list[str] = []

        def walk(node: Any) -> None:
            if isinstance(node, dict):
                found.extend(node[key] for key in ("root", "file") if key in node)
                for value in node.values():
                    walk(value)
            elif isinstance(node, list):
                for value in node:
                    walk(value)

        walk(yaml.safe_load((self.root / "_toc.yml").read_text(encoding="utf-8")))
        return found

    @property
    def notebooks(self) -> list[Path]:
        """Sources of the notebooks in the table of contents."""
        return [self.root / f"{p}.md" for p in self.pages if p.startswith("notebooks/")]

    def limit(self, source: Path) -> float:
        """Return the advertised time limit of a notebook, in seconds."""
        path = self.root / "pyproject.toml"
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        limits = table.get("tool", {}).get("fedkit", {}).get("limits", {}).get(self.profile, {})
        return float(limits.get(source.stem, DEFAULT_LIMIT.get(self.profile, 180.0)))

    def parameters(self, source: Path) -> dict[str, Any]:
        """Return what the pipeline hands to a notebook."""
        return {"profile": self.profile} if "profile" in parameters_of(source) else {}

    def executed(self, source: Path) -> Path:
        """Return where the executed form of a notebook is kept."""
        return self.root / "_runs" / self.profile / f"{source.stem}.ipynb"

    def key(self, source: Path) -> str:
        """Hash everything that the run of a notebook depends on."""
        parts = [self._shared(), hash_files([source], self.root), f"{self.parameters(source)}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _shared(self) -> str:
        """Hash what all notebooks depend on (once per build)."""
        if "shared" not in self._digests:
            files = [*(self.root / "fedkit").rglob("*"), *(self.root / "results").rglob("*")]
            # neither byte code nor what an experiment that runs right now keeps under .pending
            files = [p for p in files if not _passing(p.relative_to(self.root))]
            files.append(self.root / "requirements.lock")
            parts = [hash_files(files, self.root), installed_packages(), data_identity()]
            parts += [sys.version, commit_of(self.root)]
            self._digests["shared"] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return self._digests["shared"]

    def run(self, source: Path, *, use_cache: bool = True, limit: float | None = None) -> str:
        """Execute one notebook unless an identical run is kept; return what was done."""
        target, key = self.executed(source), self.key(source)
        stamp = target.with_suffix(".json")
        if use_cache and target.is_file() and stamp.is_file():
            kept = json.loads(stamp.read_text(encoding="utf-8"))
            if kept.get("key") == key and kept.get("sha256") == hash_files([target], self.root):
                return f"kept ({kept['seconds']:.0f} s when it ran)"
        stamp.unlink(missing_ok=True)
        begin = time.perf_counter()
        execute(
            source,
            target,
            self.parameters(source),
            self.limit(source) if limit is None else limit,
            source.parent,
        )
        seconds = time.perf_counter() - begin
        if Book(self.root, self.profile).key(source) != key:
            return f"ran in {seconds:.0f} s; sources changed meanwhile, so it will run again"
        record = {
            "key": key,
            "sha256": hash_files([target], self.root),
            "seconds": round(seconds, 1),
        }
        write_atomically(stamp, json.dumps(record, indent=1) + "\n")
        return f"ran in {seconds:.0f} s"

    def run_all(
        self, sources: Sequence[Path], jobs: int, *, use_cache: bool = True
    ) -> dict[Path, str]:
        """Execute notebooks side by side; return the error message of each that failed."""
        failed: dict[Path, str] = {}
        if sources:
            self._shared()  # before the threads: hashed once
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            futures = {pool.submit(self.run, s, use_cache=use_cache): s for s in sources}
            for future in concurrent.futures.as_completed(futures):
                source = futures[future]
                try:
                    say(f"  {source.stem}: {future.result()}")
                except NotebookError as error:
                    failed[source] = str(error)
                    say(f"  {source.stem}: FAILED")
        return failed

    def stage(self, pages: Iterable[str], *, draft: bool = False) -> Path:
        """Copy prose, assets and executed notebooks to ``_stage``, same relative paths."""
        from fedkit import _api

        stage = self.root / "_stage"
        shutil.rmtree(stage, ignore_errors=True)
        hidden = shutil.ignore_patterns(".*", "__pycache__")
        shutil.copytree(self.root / "book", stage / "book", ignore=hidden)
        (stage / "notebooks").mkdir(parents=True)
        shutil.copy(self.root / "_config.yml", stage)
        kept = set(pages)
        (stage / "_toc.yml").write_text(_only(self.root / "_toc.yml", kept), encoding="utf-8")
        for source in self.notebooks:
            if f"notebooks/{source.stem}" in kept:
                shutil.copy(self.executed(source), stage / "notebooks" / f"{source.stem}.ipynb")
        api = stage / "book" / "api.md"
        if api.is_file():
            text = _api.expand(api.read_text(encoding="utf-8"), draft=draft)
            api.write_text(text, encoding="utf-8")
        return stage

    def render(self, *, strict: bool = True) -> Path:
        """Render the stage with jupyter-book; return the folder of the HTML."""
        stage, build = self.root / "_stage", self.root / "_build"
        html, stamp = build / "html", build / "stage.sha256"
        digest = hash_files(stage.rglob("*"), stage) + self._shared() + str(strict)
        if html.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
            say("Nothing changed since the last rendering.")
            return html
        for old in (html, build / ".doctrees", build / "jupyter_execute"):
            shutil.rmtree(old, ignore_errors=True)
        stamp.unlink(missing_ok=True)
        command, env = rendering(stage, self.root, strict=strict)
        code = subprocess.run(command, env=env, cwd=self.root, check=False).returncode
        if code != 0 or not (html / "index.html").is_file():
            raise BookError(
                "jupyter-book reported the problems above; the book is not published, "
                f"what was rendered is in {html.relative_to(self.root)} for a look"
            )
        stamp.write_text(digest, encoding="utf-8")
        return html


def rendering(
    stage: Path, output: Path, *, strict: bool = True
) -> tuple[list[str], dict[str, str]]:
    """Return the command (and its environment) that renders a stage to ``output/_build/html``."""
    command = [sys.executable, "-c", _JUPYTER_BOOK, "build", str(stage), "--path-output"]
    command += [str(output), "--quiet", *(["-n", "-W", "--keep-going"] if strict else [])]
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore::SyntaxWarning"}
    env.pop("SOURCE_DATE_EPOCH", None)  # it would rewrite the year of copyright
    return command, env


def _passing(path: Path) -> bool:
    """Tell files that come and go by themselves."""
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def say(text: str) -> None:
    """Print one line of progress."""
    print(text, flush=True)


def _only(toc: Path, pages: set[str]) -> str:
    """Reduce a table of contents to the pages at hand."""
    yaml = need("yaml", extra="run")
    tree = yaml.safe_load(toc.read_text(encoding="utf-8"))
    for part in tree.get("parts", []):
        part["chapters"] = [c for c in part["chapters"] if c["file"] in pages]
    tree["parts"] = [part for part in tree.get("parts", []) if part["chapters"]]
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


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


def _run_one(book: Book, args: argparse.Namespace) -> int:
    """Execute one notebook with a reader's parameters."""
    source = book.root / "notebooks" / f"{Path(args.notebook).stem}.md"
    if not source.is_file():
        offer = ", ".join(p.stem for p in sorted((book.root / "notebooks").glob("*.md")))
        raise BookError(f"there is no notebook {args.notebook!r}; there are {offer or 'none'}")
    given = dict(args.parameter)
    if len(given) != len(args.parameter):
        raise BookError("a parameter is given twice; name each once")
    target = Path(args.output) if args.output else book.root / "_runs" / f"{source.stem}.ipynb"
    limit = args.limit or Book(book.root, str(given.get("profile", "smoke"))).limit(source)
    execute(source, target, given, limit, source.parent)
    say(f"The executed notebook is {target}")
    return 0


def _describe(book: Book, args: argparse.Namespace) -> int:
    """List the parameters of notebooks."""
    for source in book.notebooks:
        if source.is_file() and (not args.notebook or source.stem in args.notebook):
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
    parser = argparse.ArgumentParser(prog="fedkit book", description=__doc__.splitlines()[0])
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
    run.add_argument("-p", "--parameter", nargs=2, action="append", default=[])
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
    for folder in (start, *start.parents, Path(__file__).resolve().parent.parent):
        if (folder / "_toc.yml").is_file():
            return folder
    raise BookError(f"no _toc.yml in {start} or above it; run this inside a clone of fedkit")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of ``fedkit book`` and ``python -m fedkit.bookbuild``; return the exit status."""
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
