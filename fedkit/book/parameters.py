"""The parameters cell of a notebook: what it declares, and whether a run may have it so."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkit.book.notebooks import NotebookError, read_source

__all__ = ["Parameter", "guard_parameters", "parameters_of"]

_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell: ``name: type = literal  # help``."""

    name: str
    type: str
    default: Any
    help: str


def parameters_of(source: Path) -> dict[str, Parameter]:
    """Read the parameters cell of a notebook.

    Returns
    -------
    dict of str to Parameter
        In the order of the cell; empty if the notebook has no cell tagged ``parameters``.

    Raises
    ------
    NotebookError
        If a line is not ``name: type = literal  # help``, or there are several such cells.
    """
    notebook = read_source(source)
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) > 1:
        raise NotebookError(f"{source.name} has {len(cells)} parameters cells; only one counts")
    known: dict[str, Parameter] = {}
    for cell in cells:
        lines = cell.source.splitlines()
        for node in ast.parse(cell.source).body:
            line = lines[node.lineno - 1]
            odd = NotebookError(
                f"{source.name}: {line!r} is not of the form 'name: type = literal  # help' with "
                f"a type of {', '.join(_TYPES)}; compute what follows from it in the next cell"
            )
            if not isinstance(node, ast.AnnAssign) or node.value is None:
                raise odd
            name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
            if kind not in _TYPES:
                raise odd
            try:
                default = ast.literal_eval(node.value)
            except ValueError:
                raise odd from None
            known[name] = Parameter(
                name, kind, default, line[node.end_col_offset or 0 :].strip(" #")
            )
    return known


def guard_parameters(source: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of the parameters of a run before anything runs.

    Parameters
    ----------
    source : Path
        The ``.md`` source.
    given : mapping of str to object
        Values by name; strings (as typed on a command line) are read as the declared type.

    Raises
    ------
    NotebookError
        If a name is unknown to the notebook or a value is not of its declared type.
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
