"""Methods from outside: imported by their names, known by their source, blamed for what they raise.

A record says ``package:Name@digits``; the digits are of the source of the whole package, so that
what its author changes since is another method.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["blamed", "is_outside", "make_method", "signed"]


def is_outside(method: object) -> bool:
    """Tell whether a method's name is of the form ``package:Name``, as no row's of a paper is."""
    return ":" in str(method)


def make_method(name: str) -> Any:
    """Import ``package:Name``, and make one of it where it is a class.

    A ValueError tells where that cannot be, or `name` ends in ``@`` and the digits of another
    source.
    """
    place, at, _ = name.partition("@")
    module, _, attribute = place.partition(":")
    with blamed(ValueError, f"method {place!r} cannot be imported:"):
        given = getattr(importlib.import_module(module), attribute)
    if at and name != (now := f"{place}@{_digits_of(re.split('[.:]', place)[0])}"):
        raise ValueError(f"method {name} has another source by now, which makes it {now}")
    with blamed(ValueError, f"method {place!r} cannot be made:"):
        return given() if isinstance(given, type) else given


def signed(name: str) -> str:
    """Return ``package:Name@digits`` for a method that can be imported and made."""
    if not is_outside(name) or "@" in name:
        raise ValueError(f"method {name!r} is not of your own; write package:Name")
    make_method(name)
    return f"{name}@{_digits_of(re.split('[.:]', name)[0])}"


@cache  # what was imported stays what it was, whatever happens to its file
def _digits_of(top: str) -> str:
    """Hash the source of a package (or single module)."""
    package = sys.modules[top]
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    files = {file.relative_to(f).as_posix(): file for f in folders for file in f.rglob("*.py")}
    if alone := not folders and getattr(package, "__file__", None):
        files = {"": Path(alone)}
    if not files:
        raise ValueError(f"module {top!r} has no source file; put the method into one")
    whole = hashlib.sha256()
    for name, file in sorted(files.items()):
        whole.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:10]


@contextmanager
def blamed(kind: type[ValueError], told: str) -> Iterator[None]:
    """Turn what a method raises into one sentence.

    A `kind` of one's own (not ValueError itself) is a sentence already, and passes as it is.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, kind) and kind is not ValueError:
            raise
        said = f": {error}" if str(error) else ""
        raise kind(f"{told} {type(error).__name__}{said}") from error
