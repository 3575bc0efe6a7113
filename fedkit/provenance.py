"""What a record was made with, and whether the code that made it has changed since.

A source file is hashed as its syntax tree without docstrings: comments, blank lines and
documentation can be improved without making a single record stale, and any change of what the
code does makes every record that used it stale.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["changed_sources", "lock_hash", "make_manifest", "source_hashes", "sources_of", "stamp"]

_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def repository_root() -> Path | None:
    """Return the checkout that this package runs from, or None when it is installed."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() else None


# ------------------------------------------------------------------------------ hashing


def _tree(node: Any) -> str:
    """Write a syntax tree as text that does not depend on the version of Python.

    ``ast.dump`` differs between versions (new empty fields come and go), so we leave out empty
    fields, positions, contexts and docstrings ourselves.
    """
    if isinstance(node, list):
        return "[" + ",".join(map(_tree, node)) + "]"
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    if not isinstance(node, ast.AST):
        return repr(node)
    body = getattr(node, "body", None)
    if isinstance(node, _DEFINITIONS) and body and ast.get_docstring(node, clean=False) is not None:
        body = body[1:]
    parts = []
    for name, value in ast.iter_fields(node):
        value = body if name == "body" else value
        empty = value is None or value == []
        if not empty and name not in ("ctx", "type_comment", "type_ignores", "kind"):
            parts.append(f"{name}={_tree(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def hash_source(text: str) -> str:
    """Return sixteen hexadecimal digits that name what a piece of Python source does."""
    return hashlib.sha256(_tree(ast.parse(text)).encode()).hexdigest()[:16]


@cache
def _hash_file(path: str, size: int, changed_ns: int) -> str:
    return hash_source(Path(path).read_text(encoding="utf-8"))


def _files(module: str) -> dict[str, Path]:
    """Return the source files of a module, or of a package and all that it contains."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin)
    if path.name != "__init__.py":
        return {module: path}
    files = {}
    for file in sorted(path.parent.rglob("*.py")):
        parts = [module, *file.relative_to(path.parent).with_suffix("").parts]
        files[".".join(parts).removesuffix(".__init__")] = file
    return files


def source_hashes(modules: Iterable[str]) -> dict[str, str]:
    """Hash the sources of some modules; a package stands for everything inside it.

    Parameters
    ----------
    modules : iterable of str
        Names such as ``"fedkit.federation"``.  A package (``"fedkit.estimators"``) means all of
        its modules.  A module that does not exist is left out, so that a record whose module
        was since removed is seen as changed.

    Returns
    -------
    dict
        Sixteen hexadecimal digits by module name, sorted by name.
    """
    hashes = {}
    for module in modules:
        for name, path in _files(module).items():
            facts = path.stat()
            hashes[name] = _hash_file(str(path), facts.st_size, facts.st_mtime_ns)
    return dict(sorted(hashes.items()))


def _imports(path: Path, module: str) -> set[str]:
    """Return the modules of our own package that a file imports, wherever in it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return {name for name in found if name.startswith("fedkit.")}


def sources_of(*modules: str, skip: Iterable[str] = ()) -> tuple[str, ...]:
    """List the modules of fedkit that some modules need, themselves included.

    The imports are read from the sources, also those inside functions, without running them.

    Parameters
    ----------
    *modules : str
        Where to start, e.g. ``"fedkit.experiments.fedowen"``.
    skip : iterable of str
        Modules that compute nothing and are therefore not followed; bookkeeping, plots and the
        command line are always among them.

    Returns
    -------
    tuple of str
        Sorted module names.
    """
    skipped = {*skip, *_BOOKKEEPING}
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module in seen or module in skipped:
            continue
        spec_files = _files(module)
        if module not in spec_files:
            continue
        seen.add(module)
        todo.extend(_imports(spec_files[module], module))
    return tuple(sorted(seen))


_BOOKKEEPING = frozenset(
    {
        "fedkit._cells",
        "fedkit._locks",
        "fedkit._measured",
        "fedkit._packing",
        "fedkit._runner",
        "fedkit._running",
        "fedkit.bookbuild",
        "fedkit.bookcli",
        "fedkit.claims",
        "fedkit.cli",
        "fedkit.comparing",
        "fedkit.experiments",
        "fedkit.extras",
        "fedkit.intervals",
        "fedkit.notebooks",
        "fedkit.plotclients",
        "fedkit.plots",
        "fedkit.plotstyle",
        "fedkit.printed",
        "fedkit.provenance",
        "fedkit.records",
        "fedkit.staleness",
        "fedkit.verdicts",
    }
)


def lock_hash() -> str | None:
    """Hash the lock file of the checkout, or return None where there is none."""
    root = repository_root()
    path = root / "requirements.lock" if root else None
    if path is None or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# ------------------------------------------------------------------------------ manifests


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> int:
    """Return the threads in use; torch is asked only where it is loaded already."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


def _peak_memory() -> float | None:
    """Return the most memory that this process has held so far, in MiB; None where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def device_class(device: object) -> str:
    """Return the class of a device: ``"cpu"`` or ``"cuda"``, never its address or name."""
    return str(device).split(":")[0]


def make_manifest(
    sources: Iterable[str] | Mapping[str, str],
    *,
    device: object = "cpu",
    data: Iterable[Mapping[str, Any]] = (),
    seconds: float | None = None,
    evaluations: int | None = None,
) -> dict[str, Any]:
    """Describe how a record was made, without a word on where.

    Parameters
    ----------
    sources : iterable of str, or mapping
        Modules whose code the numbers depend on, or their hashes where these were taken before.
    device : str or torch.device
        Device of the run; only its class is kept.
    data : iterable of mapping
        Identity of each data set: ``name``, ``source``, ``checksum``.
    seconds : float, optional
        Wall time.  It is kept out of every comparison of results.
    evaluations : int, optional
        Utility evaluations spent.

    Returns
    -------
    dict
        JSON data; "peak_memory_mib" is that of the process so far, all of its cells together.
    """
    hashes = dict(sources) if isinstance(sources, Mapping) else source_hashes(sources)
    return {
        "sources": hashes,
        "lock": lock_hash(),
        "data": [dict(item) for item in data],
        "versions": {
            "fedkit": _version("fedkit"),
            "python": platform.python_version(),
            "numpy": _version("numpy"),
            "torch": _version("torch"),
        },
        "device": device_class(device),
        "threads": _threads(),
        "seconds": None if seconds is None else round(float(seconds), 3),
        "evaluations": None if evaluations is None else int(evaluations),
        "peak_memory_mib": _peak_memory(),
    }


def changed_sources(manifest: Mapping[str, Any]) -> list[str]:
    """Name the modules that changed since a manifest was written.

    A module that was removed since, or whose hash differs, counts; so does a new module inside
    a package that the record names.  A manifest that names no source cannot be trusted and
    gives ``["(no sources recorded)"]``.

    Parameters
    ----------
    manifest : mapping
        The manifest of a record.

    Returns
    -------
    list of str
        Sorted names; empty for a fresh record.
    """
    then: Mapping[str, str] = manifest.get("sources") or {}
    if not then:
        return ["(no sources recorded)"]
    packages = [name for name in then if any(other.startswith(f"{name}.") for other in then)]
    now = source_hashes([*then, *packages])
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def _commit() -> str | None:
    root = repository_root()
    if root is None or not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def stamp(profile: str = "smoke", *, device: object = "cpu") -> pd.DataFrame:
    """Return the table at the foot of a notebook: what its numbers were made with.

    It holds versions, profile, device class, threads and the commit, and neither paths nor the
    name of a computer, so that two builds of one commit show the same table.

    Parameters
    ----------
    profile : str
        Profile that the notebook ran at.
    device : str or torch.device
        Device that it ran on.

    Returns
    -------
    pandas.DataFrame
        One column, ``value``, indexed by item.
    """
    import pandas as pd

    rows = {
        "profile": profile,
        "device": device_class(device),
        "threads": str(_threads()),
        "fedkit": _version("fedkit") or "not installed",
        "commit": _commit() or "not in a git checkout",
        "lock file": lock_hash() or "none",
        "python": platform.python_version(),
        **{name: _version(name) or "not installed" for name in ("numpy", "scipy", "torch")},
    }
    frame = pd.DataFrame({"value": list(rows.values())}, index=list(rows))
    frame.index.name = "item"
    return frame
