"""Notebooks as sources, and their pairs.

A notebook is written once, as MyST text (``notebooks/NAME.md``), and committed a second time as
``notebooks/NAME.ipynb`` without outputs for Binder, Colab and download.  This module keeps the
two in step by content, with cell ids that do not change from one conversion to the next.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedkit.atomic import write_text
from fedkit.extras import need

__all__ = [
    "NotebookError",
    "check_pair",
    "clean_cells",
    "notebook_text",
    "pair_text",
    "read_source",
    "set_header",
    "write_pair",
]

#: Metadata of a cell that belongs to the source; everything else is dropped.
KEPT_CELL_METADATA = ("tags", "mystnb")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class NotebookError(ValueError):
    """A notebook, its pair, its parameters or its run is not as it should be."""


def read_source(path: Path) -> Any:
    """Read a MyST text notebook and give it stable cell ids.

    Parameters
    ----------
    path : Path
        The ``.md`` source.

    Returns
    -------
    nbformat.NotebookNode
        The notebook, without outputs, with ids made of position and content.

    Raises
    ------
    NotebookError
        If the file is missing, or its header does not make it a MyST notebook.
    """
    jupytext = need("jupytext", extra="book")
    if not path.is_file():
        raise NotebookError(f"{path} does not exist; write the notebook as MyST text there")
    text = path.read_text(encoding="utf-8")
    header = text.split("\n---", 1)[0]
    if not text.startswith("---") or "format_name: myst" not in header:
        raise NotebookError(
            f"{path} has no jupytext header with 'format_name: myst', so its cells would be shown "
            "as text; copy the header of another notebook"
        )
    notebook = jupytext.reads(text, fmt="md:myst")
    set_header(notebook)
    clean_cells(notebook)
    return notebook


def set_header(notebook: Any) -> None:
    """Give a notebook the one header that all of ours have."""
    notebook.metadata = {"kernelspec": dict(_KERNEL), "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5


def clean_cells(notebook: Any) -> None:
    """Give cells ids of position and content, and drop metadata that a run leaves behind."""
    for index, cell in enumerate(notebook.cells):
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()
        cell.id = f"{index:03d}-{digest[:10]}"
        cell.metadata = {k: cell.metadata[k] for k in KEPT_CELL_METADATA if cell.metadata.get(k)}
        if cell.cell_type == "code":
            cell.execution_count = None


def pair_text(source: Path) -> str:
    """Return the text of the ``.ipynb`` that belongs to a ``.md`` source (no outputs)."""
    return notebook_text(read_source(source))


def notebook_text(notebook: Any) -> str:
    """Write a notebook as text, lines apart, so that a change reads well as a difference."""
    return str(need("nbformat", extra="book").writes(notebook, version=4)).rstrip("\n") + "\n"


def write_pair(source: Path) -> bool:
    """Write the ``.ipynb`` beside its source; return whether its content changed."""
    target, text = source.with_suffix(".ipynb"), pair_text(source)
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return False
    write_text(target, text)
    return True


def check_pair(source: Path) -> None:
    """Compare a pair by content, never by time stamp.

    Raises
    ------
    NotebookError
        If the ``.ipynb`` is missing, differs from its source, or holds outputs.
    """
    target = source.with_suffix(".ipynb")
    mend = f"the source is {source.name}: run 'make sync'"
    if not target.is_file():
        raise NotebookError(f"{target.name} is missing; {mend}")
    try:
        committed = json.loads(target.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise NotebookError(f"{target.name} is not JSON ({error}); {mend}") from error
    expected = json.loads(pair_text(source))
    ours, theirs = expected["cells"], committed.get("cells", [])
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        for key in sorted(set(a) | set(b)):
            if a.get(key) != b.get(key):
                raise NotebookError(f"{target.name} differs in cell {index} ({key}); {mend}")
    if len(ours) != len(theirs) or expected != committed:
        raise NotebookError(f"{target.name} differs in its number of cells or header; {mend}")
