"""Notebooks as sources: their pairs and their parameters.

A notebook is written as MyST text (``notebooks/NAME.md``) and committed a second time, without
outputs, as ``notebooks/NAME.ipynb``; cell ids follow from position and content.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkit.atomic import write_text
from fedkit.extras import need

_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


class NotebookError(ValueError):
    """A notebook, its pair, its parameters or its run is not as it should be."""


def read_source(path: Path) -> Any:
    """Read a MyST text notebook as nbformat's node, in normal form."""
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
    try:
        notebook = jupytext.reads(text, fmt="md:myst")
    except Exception as error:  # of several kinds; such as a caption with a colon and no quotes
        raise NotebookError(f"{path}: {' '.join(str(error).split())}") from error
    normal_form(notebook)
    return notebook


def normal_form(notebook: Any) -> None:
    """Give a notebook our header, ids of position and content, and no metadata of tools."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()
        cell.id = f"{index:03d}-{digest[:10]}"
        kept = ("tags", "mystnb")
        cell.metadata = {name: cell.metadata[name] for name in kept if cell.metadata.get(name)}
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
    """Compare a pair by content, never by time stamp."""
    target = source.with_suffix(".ipynb")
    if not target.is_file() or target.read_text(encoding="utf-8") != pair_text(source):
        what = "differs from its source" if target.is_file() else "is missing"
        raise NotebookError(f"{target.name} {what}, {source.name}: run 'make sync'")


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell: ``name: type = literal  # help``."""

    name: str
    type: str
    default: Any
    help: str


def parameters_of(source: Path) -> dict[str, Parameter]:
    """Read the cell tagged ``parameters`` of a notebook; empty if it has none."""
    notebook = read_source(source)
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) > 1:
        raise NotebookError(f"{source.name} has {len(cells)} parameters cells; only one counts")
    known: dict[str, Parameter] = {}
    for cell in cells:
        lines = cell.source.splitlines()
        node: Any
        for node in ast.parse(cell.source).body:
            line = lines[node.lineno - 1]
            try:
                name, kind = node.target.id, _TYPES[ast.unparse(node.annotation)]
                default = ast.literal_eval(node.value)
            except (AttributeError, KeyError, ValueError):
                raise NotebookError(
                    f"{source.name}: {line!r} is not of the form 'name: type = literal  # help' "
                    f"with a type of {', '.join(_TYPES)}; compute the rest in the next cell"
                ) from None
            help_ = line[node.end_col_offset or 0 :].strip(" #")
            known[name] = Parameter(name, kind.__name__, default, help_)
    return known


def guard_parameters(source: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of the parameters of a run before anything runs.

    Strings (as typed on a command line) are read as the declared type.
    """
    known = parameters_of(source)
    unknown = sorted(set(given) - set(known))
    if unknown:
        offer = ", ".join(known) or "no parameter at all"
        raise NotebookError(
            f"{source.stem} has no parameter {', '.join(map(repr, unknown))}; it knows {offer}"
        )
    return {name: _typed(source, known[name], value) for name, value in given.items()}


def _typed(source: Path, parameter: Parameter, value: Any) -> Any:
    """Read one value as the declared type of its parameter."""
    kind: Any = _TYPES[parameter.type]
    read = value
    try:
        if isinstance(value, str) and kind is bool:
            read = {"true": True, "false": False}[value.lower()]
        elif isinstance(value, str) and kind is not str:
            read = kind(value)
        elif kind is float and type(value) is int:
            read = float(value)
    except (ValueError, KeyError):
        pass  # it is not of the type, as is said below
    if type(read) is not kind or (kind is float and not math.isfinite(read)):
        raise NotebookError(
            f"{source.stem}: parameter {parameter.name} is {value!r}; expected {parameter.type}, "
            f"for example {parameter.default!r}"
        )
    return read
