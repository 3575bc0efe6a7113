"""Optional dependencies, and one clear error when one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["need"]


def need(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it.

    Parameters
    ----------
    module : str
        Name of the module to import.
    extra : str
        Extra of fedkit that installs it.

    Raises
    ------
    ImportError
        If the module is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{module} is needed here and is not installed: pip install "fedkit[{extra}]"'
        ) from error
