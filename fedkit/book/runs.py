"""Running a notebook in a kernel of its own, and the normal form of the result.

Two runs of one commit give the same text, byte for byte: timings, ids of chance and traces of
the computer are taken out, and nothing is written unless the whole notebook ran.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkit.atomic import write_text
from fedkit.book import runner as _runner
from fedkit.book.notebooks import (
    NotebookError,
    clean_cells,
    notebook_text,
    pair_text,
    set_header,
)
from fedkit.book.parameters import guard_parameters, parameters_of
from fedkit.extras import need

__all__ = ["execute", "normalise_run"]


def execute(
    source: Path, target: Path, parameters: Mapping[str, Any], limit: float, cwd: Path
) -> None:
    """Run a notebook in a fresh kernel of this interpreter and move the result into place.

    Parameters
    ----------
    source : Path
        The ``.md`` source.
    target : Path
        Where the executed, normalised ``.ipynb`` goes; untouched if the run fails.
    parameters : mapping
        Checked by :func:`guard_parameters`.
    limit : float
        Seconds for the whole notebook.
    cwd : Path
        Working directory of the kernel.

    Raises
    ------
    NotebookError
        If a cell raises, the kernel dies, a cell prints a warning, or the time is up.
    """
    parameters = guard_parameters(source, parameters)
    with tempfile.TemporaryDirectory(prefix="fedkit-run-") as folder:
        work = Path(folder)
        job = {
            "input": str(work / "in.ipynb"),
            "output": str(work / "out.ipynb"),
            "parameters": parameters,
            "limit": limit,
            "cwd": str(cwd),
        }
        (work / "in.ipynb").write_text(pair_text(source), encoding="utf-8")
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "fedkit.book.runner", str(work / "job.json")]
        process = subprocess.Popen(
            command,
            env=_runner.environment(work),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            _runner.kill_tree(process)
            raise NotebookError(
                f"{source.stem} was stopped after its limit of {limit:g} s; raise it with "
                "--limit, or choose a smaller profile"
            ) from error
        except BaseException:
            _runner.kill_tree(process)
            raise
        if process.returncode != 0:
            report = work / "error.txt"
            said = report.read_text("utf-8") if report.is_file() else output[-3000:]
            raise NotebookError(f"{source.stem} failed: {said.strip()}")
        nbformat = need("nbformat", extra="book")
        ran = nbformat.read(work / "out.ipynb", as_version=4)
    complaint = _warning_in(ran)
    if complaint:
        raise NotebookError(f"{source.stem} prints a warning, {complaint}; mend its cause")
    normalise_run(ran, source, parameters)
    write_text(target, notebook_text(ran))


def _warning_in(notebook: Any) -> str:
    """Find the first Python warning on the standard error of a run."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                found = re.search(r"^.*\w*Warning: .*$", output.text, flags=re.MULTILINE)
                if found and "expected-warning" not in cell.metadata.get("tags", []):
                    return f"in cell {index}: {found[0].strip()}"
    return ""


def normalise_run(notebook: Any, source: Path, parameters: Mapping[str, Any]) -> None:
    """Bring an executed notebook into normal form, in place.

    Timings, tool metadata and progress bars go; the cell that carried injected parameters is
    replaced by a folded table of every parameter with its value and meaning.
    """
    cells = []
    for cell in notebook.cells:
        tags = list(cell.metadata.get("tags", []))
        if "injected-parameters" in tags:
            continue
        if "parameters" in tags:
            cell.metadata["tags"] = [*tags, "hide-input"] if "hide-input" not in tags else tags
            cells += [cell, _parameter_table(source, parameters)]
            continue
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
        cells.append(cell)
    notebook.cells = cells
    set_header(notebook)
    clean_cells(notebook)


def _parameter_table(source: Path, given: Mapping[str, Any]) -> Any:
    """Build the folded table 'how this page was run'."""
    nbformat = need("nbformat", extra="book")
    known = parameters_of(source)
    values = {name: given.get(name, p.default) for name, p in known.items()}
    rows = [f"| `{n}` | `{values[n]!r}` | {known[n].help.replace('|', '/')} |" for n in known]
    flags = " ".join(f"-p {n} {values[n]}" for n in known if values[n] != known[n].default)
    command = f"fedkit book run {source.stem} {flags}".strip()
    lines = [
        "```{dropdown} How this page was run, and how to run it otherwise",
        f"`{command}`",
        "",
        "| parameter | value here | meaning |",
        "|---|---|---|",
        *rows,
        "",
        "Change any of them with `-p name value`; a name that the notebook does not know is an",
        "error.",
        "```",
    ]
    return nbformat.v4.new_markdown_cell("\n".join(lines))
