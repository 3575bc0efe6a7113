"""Methods of one's own, named ``module:Name`` as no row of a paper is."""

from __future__ import annotations

import importlib
from typing import Any


def is_plugin(method: object) -> bool:
    """Tell whether a method's name is of the form ``module:Name``."""
    return ":" in str(method)


def load_plugin(name: str) -> Any:
    """Import ``module:Name``; of a class, make one."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"method {name!r} is not of your own; write module:Name")
    try:
        given = getattr(importlib.import_module(module), attribute)
        return given() if isinstance(given, type) else given
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"method {name!r} cannot be made: {type(error).__name__}: {error}"
        ) from error
