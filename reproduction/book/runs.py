"""Running a notebook in a kernel of its own, and the normal form of the result.

Two runs of one commit give the same text, byte for byte; nothing is written unless the whole
notebook ran.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedkit.atomic import write_text
from fedkit.extras import need
from reproduction.book.notebooks import (
    NotebookError,
    guard_parameters,
    normal_form,
    notebook_text,
    pair_text,
    parameters_of,
)

#: One thread per library unless the caller says more: results do not depend on how many cores
#: are free.
_THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")]
_PROMPTS = ("code_prompt_show", "code_prompt_hide")


def execute(
    source: Path, target: Path, parameters: Mapping[str, Any], limit: float, cwd: Path
) -> None:
    """Run a notebook in a fresh kernel of this interpreter, in the folder `cwd`.

    `target` stays as it is if the run fails or takes more than `limit` seconds.
    """
    parameters = guard_parameters(source, parameters)
    papermill, nbformat = need("papermill", extra="book"), need("nbformat", extra="book")
    from reproduction.book.kernels import Kernel

    logging.getLogger("papermill").setLevel(logging.ERROR)  # it reads our parameters' help as code

    with tempfile.TemporaryDirectory(prefix="fedkit-run-") as folder:
        work = Path(folder)
        ran = work / "out.ipynb"
        (work / "in.ipynb").write_text(pair_text(source), encoding="utf-8")
        kernel = Kernel(work, cwd, _environment(work))
        watch, begun = threading.Timer(limit, kernel.end), time.monotonic()
        watch.start()
        try:
            papermill.execute_notebook(
                work / "in.ipynb", ran, parameters, kernel_name="python3", km=kernel,
                start_timeout=int(limit) + 60, progress_bar=False,
                request_save_on_cell_execute=False,
            )  # fmt: skip
        except Exception as error:
            if time.monotonic() - begun >= limit:
                raise NotebookError(
                    f"{source.stem} was stopped after its limit of {limit:g} s; raise it with "
                    "--limit, or choose a smaller profile"
                ) from error
            output = f"{kernel.log_file.read_text(encoding='utf-8')}\n{error}"
            raise NotebookError(f"{source.stem} failed: {_failure(error, output)}") from error
        finally:
            watch.cancel()
            kernel.close()
        notebook = nbformat.read(ran, as_version=4)
    complaint = _warning_in(notebook)
    if complaint:
        raise NotebookError(f"{source.stem} prints a warning, {complaint}; mend its cause")
    _normalise(notebook, source, parameters)
    write_text(target, notebook_text(notebook))


def _failure(error: Any, output: str) -> str:
    """Say what went wrong in a run, from its error and what was printed."""
    if isinstance(error, need("nbclient.exceptions", extra="book").DeadKernelError):
        return "the kernel died in mid-notebook (out of memory, or killed); nothing was written"
    if not isinstance(error, need("papermill", extra="book").PapermillExecutionError):
        return output[-3000:].strip()
    told = f"cell {error.cell_index} raised {error.ename}: {error.evalue}"
    if error.ename == "AssertionError" and not error.evalue.strip():
        told = f"a finding that the page asserts in cell {error.cell_index} does not hold"
    return f"{told}\n--- the cell ---\n{error.source.strip()}"


def _warning_in(notebook: Any) -> str:
    """Find the first Python warning on the standard error of a run."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                found = re.search(r"^.*\w*Warning: .*$", output.text, flags=re.MULTILINE)
                if found:
                    return f"in cell {index}: {found[0].strip()}"
    return ""


def _normalise(notebook: Any, source: Path, given: Mapping[str, Any]) -> None:
    """Bring an executed notebook into normal form, in place.

    Timings, tool metadata and progress bars go; the parameters cell has the values of this run, and
    sentences have the numbers that the notebook itself gave a name.
    """
    numbers = {  # what the run glued: the text of each by its name
        glued["name"]: output.data.get(f"{glued['mime_prefix']}text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if (glued := output.get("metadata", {}).get("scrapbook"))
    }
    cells = []
    for cell in _sections(notebook.cells):
        tags = list(cell.metadata.get("tags", []))
        if "injected-parameters" in tags:
            continue
        cells.append(cell)
        if cell.cell_type == "markdown":
            for name, value in given.items():
                cell.source = cell.source.replace(f"{{{{{name}}}}}", f"{value}")
            cell.source = _with_numbers(cell.source, numbers)
            continue
        if "parameters" in tags:
            cell.source = _as_run(source, given)
            cell.metadata["mystnb"] = dict.fromkeys(_PROMPTS, "How this page was run")
        cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output.execution_count = None
    notebook.cells = cells
    normal_form(notebook)


def _with_numbers(text: str, numbers: Mapping[str, str]) -> str:
    """Write numbers where a text names them, so that Jupyter shows what the book shows."""
    from reproduction.widgets import typeset  # and pandas, which other commands do not need

    formatted = need("myst_nb.core.variables", extra="book").format_plain_text

    def written(role: re.Match[str]) -> str:
        if role["name"] not in numbers:
            return role[0]  # of another page
        return typeset(formatted(numbers[role["name"]], role["form"] or "s"))

    return re.sub(r"\{glue:text\}`(?P<name>[^`:]+)(?::(?P<form>[^`:]*))?`", written, text)


def _sections(cells: Iterable[Any]) -> Iterator[Any]:
    """Give every output of a cell tagged ``sections`` a cell of its own: text becomes a text cell.

    So a heading that a program writes is one of the page, and a reference in its text is followed.
    """
    v4 = need("nbformat", extra="book").v4
    for cell in cells:
        if "sections" not in cell.metadata.get("tags", []):
            yield cell
            continue
        shown, cell.outputs = cell.outputs, []
        yield cell
        for output in shown:
            text = output.get("data", {}).get("text/markdown")
            if text is not None:
                yield v4.new_markdown_cell(text)
            elif output.get("name") != "stderr":
                own = v4.new_code_cell("# as the program showed it", outputs=[output])
                wide = "text/html" in output.get("data", {})
                own.metadata["tags"] = ["remove-input", *["full-width"] * wide]
                own.metadata["mystnb"] = output.get("metadata", {}).pop("mystnb", {})
                yield own


def _as_run(source: Path, given: Mapping[str, Any]) -> str:
    """Return the parameters cell of a run, below the command that repeats it."""
    known = parameters_of(source)
    values = {name: given.get(name, p.default) for name, p in known.items()}
    flags = [f"-p {name} {values[name]}" for name in known if values[name] != known[name].default]
    lines = [f"{n}: {p.type} = {_literal(values[n])}  # {p.help}" for n, p in known.items()]
    return "\n".join([f"# {' '.join(['fedkit book run', source.stem, *flags])}", *lines])


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _environment(work: Path) -> dict[str, str]:
    values = {**dict.fromkeys(_THREADS, "1"), **os.environ}
    values |= {
        "JUPYTER_CONFIG_DIR": str(work / "config"),
        "IPYTHONDIR": str(work / "ipython"),
        "PYTHONHASHSEED": "0",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    values.pop("MPLBACKEND", None)
    for name in ("FEDKIT_DATA", "FEDKIT_RESULTS"):
        if values.get(name):  # the kernel works in another folder
            values[name] = str(Path(values[name]).expanduser().resolve())
    return values
