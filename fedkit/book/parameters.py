"""The parameters cell of a notebook: what it declares, and whether a run may have it so."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkit.book.notebooks import NotebookError, read_source
from fedkit.extras import need

__all__ = ["Parameter", "guard_parameters", "parameters_of"]

_LINE = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)\s*(?::\s*(?P<type>[^=#]+?))?\s*=\s*(?P<value>.*?)\s*"
    r"(?:\#\s*(?P<help>.*))?$"
)
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
        If a line is not ``name: type = literal  # help``.
    """
    cells = [c for c in read_source(source).cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) > 1:
        raise NotebookError(f"{source.name} has {len(cells)} parameters cells; only one counts")
    found: dict[str, Parameter] = {}
    for line in cells[0].source.splitlines() if cells else []:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None or not match["type"]:
            raise NotebookError(
                f"{source.name}: {line!r} is not of the form 'name: type = literal  # help'"
            )
        try:
            value = ast.literal_eval(match["value"])
        except (ValueError, SyntaxError) as error:
            raise NotebookError(
                f"{source.name}: the default of {match['name']} is not a literal; compute what "
                "follows from it in the next cell"
            ) from error
        found[match["name"]] = Parameter(
            match["name"], match["type"].strip(), value, (match["help"] or "").strip()
        )
    return found


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
    yaml = need("yaml", extra="run")
    kind = _TYPES.get(parameter.type)
    if isinstance(value, str) and kind is not str:
        value = yaml.safe_load(value)
    if kind is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # YAML reads 1e-3 as text
            value = float(value)
    wrong = kind is not None and (
        not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))
    )
    if wrong:
        raise NotebookError(
            f"{source.stem}: parameter {parameter.name} is {value!r}; expected {parameter.type}, "
            f"for example {parameter.default!r}"
        )
    return value
