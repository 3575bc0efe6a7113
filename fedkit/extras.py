"""Optional dependencies, and one clear error when one is missing."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}  # of other names


def need(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra of fedkit brings it."""
    try:
        with warnings.catch_warnings():
            # what packages say of each other when they are imported is not for our readers
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        raise ImportError(
            f"{module} is needed here and is not installed: pip install "
            f"{PACKAGES.get(root, root)} (or, in the folder of fedkit's source, all of its kind: "
            f"pip install '.[{extra}]')"
        ) from error


def bar(items: Iterable[T], show: bool, unit: str, **options: Any) -> Iterable[T]:
    """Return the items, behind a progress bar where one is to be shown and can be seen.

    It can in a terminal and in a notebook, not in a log file.  `options` are those of
    ``tqdm.tqdm``, such as ``total``.
    """
    from fedkit.checks import flag  # it imports numpy, and `import fedkit` does not

    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    visible = sys.stderr.isatty() or hasattr(shell, "kernel")  # a notebook's shell has one
    if not flag("progress", show) or not visible:
        return items
    return need("tqdm.auto", "run").tqdm(items, unit=unit, leave=False, **options)


def lazy(package: str, files: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return a package's ``__all__`` and ``__getattr__``, which import a module when it is needed.

    `files` says of each module, relative to `package`, which names it has: ``{"file": "A B"}``.
    """
    module_of = {name: file for file, names in files.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return sorted(module_of), get
