"""Methods of one's own, named ``module:Name``: imported, made, and blamed for what they raise."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["blamed", "is_outside", "make_method"]


def is_outside(method: object) -> bool:
    """Tell whether a method's name is of the form ``module:Name``, as no row's of a paper is."""
    return ":" in str(method)


def make_method(name: str) -> Any:
    """Import ``module:Name``, and make one of it where it is a class.

    A ValueError tells where that cannot be.
    """
    if not is_outside(name):
        raise ValueError(f"method {name!r} is not of your own; write module:Name")
    module, _, attribute = name.partition(":")
    with blamed(ValueError, f"method {name!r} cannot be imported:"):
        given = getattr(importlib.import_module(module), attribute)
    with blamed(ValueError, f"method {name!r} cannot be made:"):
        return given() if isinstance(given, type) else given


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
