"""From sources to a rendered book: ``fedkit book`` and ``make book``.

Notebooks are compared with their pairs, run (:mod:`reproduction.book.runs`) unless a run of the
same key is kept, staged under their paths in the repository, and rendered by jupyter-book without
a network, every warning an error; each step stops the build when it fails.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import typer

from fedkit.atomic import write_text
from fedkit.datasets import data_root
from fedkit.extras import need
from reproduction import NAMES
from reproduction.book.notebooks import NotebookError, parameters_of
from reproduction.book.runs import execute
from reproduction.manifest import commit

#: Seconds that a notebook may take.
LIMITS = {"smoke": 600.0, "laptop": 7200.0, "paper": 86400.0}
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


class BookError(ValueError):
    """The book cannot be built; the message says what to mend."""


@dataclass(frozen=True)
class Book:
    """The book whose sources lie in `root`.

    The profile is handed to every notebook that declares a parameter ``profile``.
    """

    root: Path
    profile: str = "smoke"

    @property
    def pages(self) -> list[str]:
        """Every page of the table of contents, in order, without suffix."""
        toc = (self.root / "_toc.yml").read_text(encoding="utf-8")
        return re.findall(r"^[\s-]*(?:root|file): *(\S+)", toc, flags=re.MULTILINE)

    @property
    def notebooks(self) -> list[str]:
        """Pages of the table of contents that are executed notebooks."""
        return [page for page in self.pages if page.startswith("notebooks/")]

    def source(self, page: str) -> Path:
        """Return the source of a page; the tables of all papers have one."""
        name = "notebooks/tables" if page.startswith("notebooks/tables-") else page
        return self.root / f"{name}.md"

    @property
    def sources(self) -> list[Path]:
        """Sources of the notebooks, each once."""
        return list(dict.fromkeys(self.source(page) for page in self.notebooks))

    def parameters(self, page: str) -> dict[str, Any]:
        """Return what the pipeline hands to a notebook."""
        known = parameters_of(self.source(page))
        given = {"profile": self.profile} if "profile" in known else {}
        if page.startswith("notebooks/tables-"):
            given["paper"] = NAMES[page.removeprefix("notebooks/tables-")]
        return given

    def executed(self, page: str) -> Path:
        """Return where the executed form of a notebook is kept."""
        return self.root / "_runs" / self.profile / f"{Path(page).name}.ipynb"

    def key(self, page: str) -> str:
        """Hash everything that the run of a notebook depends on."""
        parts = [self._shared, _hash_files([self.source(page)], self.root)]
        parts.append(f"{self.parameters(page)}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def _shared(self) -> str:
        """What all notebooks depend on; of data, whose loaders verify them, names and sizes."""
        records = Path(os.environ.get("FEDKIT_RESULTS") or self.root / "results")
        records = records.expanduser().resolve()
        passing = r"(^|/)(\.|__pycache__/)|\.lock$"  # by itself: .NAME.tmp, byte code, NAME.lock
        files = [
            path
            for folder in {*(self.root / n for n in ("fedkit", "reproduction", "results")), records}
            for path in folder.rglob("*")
            if not re.search(passing, path.relative_to(folder).as_posix())
        ]
        files.append(self.root / "requirements.lock")
        data = [data_root(), *sorted(data_root().rglob("*"))]
        parts = [_hash_files(files, self.root), _installed_packages()]
        parts += [f"{path} {path.is_file() and path.stat().st_size}" for path in data]
        parts += [sys.version, f"{commit()}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def run(self, page: str) -> str:
        """Execute one notebook unless an identical run is kept; return what was done."""
        target, key, source = self.executed(page), self.key(page), self.source(page)
        stamp = target.with_suffix(".key")
        if target.is_file() and stamp.is_file() and stamp.read_text("utf-8") == key:
            return "kept"
        stamp.unlink(missing_ok=True)
        begin = time.perf_counter()
        execute(source, target, self.parameters(page), LIMITS[self.profile], source.parent)
        write_text(stamp, key)
        return f"ran in {time.perf_counter() - begin:.0f} s"

    def run_all(self, pages: Sequence[str], jobs: int) -> dict[str, str]:
        """Execute notebooks side by side; return the error message of each that failed."""
        failed: dict[str, str] = {}
        if pages:
            self.key(pages[0])  # before the threads: what they share is hashed once
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            futures = {pool.submit(self.run, page): page for page in pages}
            try:
                for future in concurrent.futures.as_completed(futures):
                    page = futures[future]
                    try:
                        typer.echo(f"  {Path(page).name}: {future.result()}")
                    except NotebookError as error:
                        failed[page] = str(error)
                        typer.echo(f"  {Path(page).name}: FAILED")
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return failed

    def stage(
        self, pages: Iterable[str], stage: Path | None = None, executed: Path | None = None
    ) -> Path:
        """Copy prose, assets and executed notebooks to a folder, same relative paths.

        The folder is ``_stage`` unless another is named; `executed` stands for the kept runs.
        """
        from reproduction.book.api import expand

        stage = stage or self.root / "_stage"
        shutil.rmtree(stage, ignore_errors=True)
        hidden = shutil.ignore_patterns(".*", "__pycache__")
        shutil.copytree(self.root / "book", stage / "book", ignore=hidden)
        (stage / "notebooks").mkdir(parents=True)
        shutil.copy(self.root / "_config.yml", stage)
        kept = set(pages)
        (stage / "_toc.yml").write_text(_only(self.root / "_toc.yml", kept), encoding="utf-8")
        for page in kept.intersection(self.notebooks):
            shutil.copy(executed or self.executed(page), stage / f"{page}.ipynb")
        for name, text in expand(stage / "book").items():
            (stage / "book" / f"{name}.md").write_text(text, encoding="utf-8")
        return stage

    def render_page(self, page: str, executed: Path) -> Path:
        """Render one executed notebook; links to pages that are not there stay plain text."""
        folder = self.root / "_runs" / "pages" / Path(page).name
        shutil.rmtree(folder, ignore_errors=True)
        stage = self.stage([page], folder / "stage", executed)
        command, env = rendering(stage, folder, strict=False)
        ran = subprocess.run(
            command, env=env, cwd=self.root, capture_output=True, text=True, check=False
        )
        html = folder / "_build" / "html" / f"{page}.html"
        if ran.returncode != 0 or not html.is_file():
            raise BookError(f"jupyter-book cannot render {Path(page).name}: {ran.stderr[-1000:]}")
        return html

    def render(self, *, strict: bool = True) -> Path:
        """Render the stage with jupyter-book; return the folder of the HTML."""
        stage, build = self.root / "_stage", self.root / "_build"
        html, stamp = build / "html", build / "stage.sha256"
        digest = _hash_files(stage.rglob("*"), stage) + self._shared + str(strict)
        if html.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
            typer.echo("Nothing changed since the last rendering.")
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


def _hash_files(files: Iterable[Path], root: Path) -> str:
    """Hash names (below `root`) and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        if path.is_file():
            name = path.relative_to(root) if path.is_relative_to(root) else path
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _installed_packages() -> str:
    return "\n".join(sorted({f"{d.name}=={d.version}" for d in distributions()}))


def _only(toc: Path, pages: set[str]) -> str:
    """Reduce a table of contents to the pages at hand."""
    yaml = need("yaml", extra="run")
    tree = yaml.safe_load(toc.read_text(encoding="utf-8"))
    for part in tree.get("parts", []):
        files = [f for c in part["chapters"] for f in (c, *c.get("sections", []))]
        if not {file["file"] for file in files} <= pages:
            part["chapters"] = [{"file": f["file"]} for f in files if f["file"] in pages]
    tree["parts"] = [part for part in tree.get("parts", []) if part["chapters"]]
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
