"""The audit: recorded cells run again at full scale, one seed each, and compared.

A golden run is small, so it cannot see what depends on size: chunks, truncation, other paths.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.atomic import write_text
from fedkit.checks import whole
from fedkit.datasets.readers import data_root
from fedkit.outside import is_outside
from reproduction.records.golden import is_timing
from reproduction.records.manifest import commit, lock_hash, repository_root
from reproduction.records.store import Record, Store
from reproduction.registry import Experiment, get, keep

__all__ = ["KERNELS", "TOLERANCE", "Audited", "audit", "audited", "choose", "compare", "saved"]

TOLERANCE = 1e-3
"""Largest relative difference at which a cell counts as equal."""


KERNELS = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
)  # fmt: skip
"""Environment variables that give a processor the kernels of an older one: training amplifies last
digits, so a cell that is different may be equal with the kernels of the processor it was made on.
"""


@dataclass(frozen=True)
class Audited:
    """One cell that was run again.

    Attributes
    ----------
    cell : str
        ``profile/paper/experiment/key``.
    compared : int
        How many numbers were.
    difference : float
        The largest difference of two numbers, as a share of the larger; NaN if none was compared.
    worst, verdict : str
        Name of that number; "equal", "different", or "data missing".
    stale : bool
        Whether the record is older than a golden run, so that a difference is expected.
    record : str
        Digest of what the record held of that seed; once it holds other numbers, the audit says
        nothing of it.
    kernels : str
        The variables that :data:`KERNELS` names, where they are set; empty for the processor's own.
    code : str
        Of a cell that is different: "same" where the code of the record's own commit gives today's
        numbers on this processor, so that the processor moved them; "other" where it does not;
        "cannot tell" where the record names no commit, or the commit is not here or does not run.
    """

    cell: str
    seed: int
    compared: int
    difference: float
    worst: str
    verdict: str
    seconds: float
    stale: bool
    record: str
    kernels: str
    code: str = ""


def choose(records: Sequence[Record], k: int, rng: np.random.Generator) -> list[tuple[Record, int]]:
    """Draw k records spread over the experiments, and a seed of each.

    Experiments take turns in random order, so none is drawn twice before all were drawn once.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for place in rng.permutation(len(records)):
        record = records[place]
        groups.setdefault((record.cell.paper, record.cell.experiment), []).append(record)
    turns = [record for record in chain(*zip_longest(*groups.values())) if record is not None]
    return [(record, int(rng.choice(record.cell.seeds))) for record in turns[:k]]


def _numbers(result: dict[str, Any]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in result["metrics"].items()}
    for name, values in (result.get("series") or {}).items():
        numbers |= {f"{name}[{i}]": float(f"{v:.7g}") for i, v in enumerate(values)}
    return {name: value for name, value in numbers.items() if not is_timing(name)}


def compare(then: dict[str, Any], now: dict[str, Any]) -> tuple[int, float, str]:
    """Return how many numbers were compared, the largest relative difference, and where it is.

    Numbers below a millionth count as that, so that rounding about zero is none.
    """
    old, new = _numbers(then), _numbers(now)
    worst, where = 0.0, ""
    for name, a in old.items():
        b = new.get(name, np.inf)
        if a == b or (np.isnan(a) and np.isnan(b)):
            continue
        far = abs(a - b) / max(abs(a), abs(b), 1e-6) if np.isfinite(a) and np.isfinite(b) else 1.0
        if far > worst:
            worst, where = far, name
    return len(old), worst, where


def _digest(result: dict[str, Any]) -> str:
    """Tell what can be compared of a seed's result."""
    text = json.dumps(_numbers(result), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_THEN = """
import json, sys
from reproduction.registry import get
from reproduction.records.cell import Cell
with open(sys.argv[1]) as file:
    cell = Cell(**json.load(file))
result = get(cell.paper, cell.experiment).run(cell, "cpu", False)[0]
told = {
    "metrics": {k: float(v) for k, v in result["metrics"].items()},
    "series": {k: list(map(float, v)) for k, v in (result.get("series") or {}).items()},
}
with open(sys.argv[2], "w") as file:
    json.dump(told, file)
"""


def at_its_commit(record: Record, seed: int) -> dict[str, Any] | None:
    """Run one seed of a record by the code of the commit that it names, unpacked for the purpose.

    None where it names no commit, or only what was not committed; where there is no checkout that
    has it; and where that code does not run here.
    """
    then, root = record.manifest.get("commit"), repository_root()
    if not then or record.manifest.get("uncommitted") or root is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        tree, asked, told = (Path(folder) / name for name in ("tree", "cell.json", "result.json"))
        packed = subprocess.run(
            ["git", "archive", f"--output={folder}/code.tar", then, "fedkit", "pyproject.toml"],
            cwd=root, capture_output=True,
        )  # fmt: skip
        if packed.returncode:
            return None
        with tarfile.open(f"{folder}/code.tar") as code:
            code.extractall(tree, filter="data")
        asked.write_text(json.dumps(replace(record.cell, seeds=(seed,)).to_dict()))
        own = {
            "PYTHONPATH": str(tree),
            "FEDKIT_RESULTS": f"{folder}/results",
            "FEDKIT_DATA": str(data_root().absolute()),  # it runs in another folder
        }
        run = subprocess.run(
            [sys.executable, "-c", _THEN, asked, told], cwd=tree, env=os.environ | own,
            capture_output=True,
        )  # fmt: skip
        return None if run.returncode else json.loads(told.read_text())


def audit(record: Record, seed: int, experiment: Experiment | None = None) -> Audited:
    """Run one seed of a recorded cell again, on the CPU, and compare it with the record.

    Wall times are left out.  Data that are not there are the verdict "data missing".  Where
    numbers differ, the code of the record's own commit runs too, and tells code from processor.
    """
    cell = record.cell
    run = (experiment or get(cell.paper, cell.experiment)).run
    name = f"{cell.profile}/{cell.paper}/{cell.experiment}/{cell.key}"
    then = next(r for r in record.results if r["seed"] == seed)
    held = _digest(then)
    kernels = " ".join(f"{name}={os.environ[name]}" for name in KERNELS if name in os.environ)
    start, stale = time.perf_counter(), bool(record.stale())
    try:
        now = dict(run(replace(cell, seeds=(seed,)), "cpu", False)[0])
    except FileNotFoundError as error:
        return Audited(
            name, seed, 0, float("nan"), str(error), "data missing", 0.0, stale, held, kernels
        )
    seconds = round(time.perf_counter() - start, 1)
    compared, difference, worst = compare(then, now)
    row = Audited(name, seed, compared, difference, worst, "equal", seconds, stale, held, kernels)
    if difference <= TOLERANCE:
        return row
    own = at_its_commit(record, seed)
    code = "cannot tell" if own is None else "same" if _alike(own, now) else "other"
    return replace(row, verdict="different", code=code)


def _alike(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return compare(a, b)[1] <= TOLERANCE


def audited(
    store: Store,
    k: int,
    *,
    paper: str | None = None,
    experiment: str | None = None,
    profile: str = "paper",
    seed: int = 0,
    only: Sequence[tuple[str, str]] = (),
    save: bool = False,
) -> Iterator[Audited]:
    """Audit k random cells of a part of a store, one after another.

    Parameters
    ----------
    k : int
        Cells, spread over the experiments; `seed` decides which, and which of their seeds.
    only : sequence of (name, value)
        Settings, as for :func:`reproduction.registry.keep`.
    save : bool
        Add each to ``audit.json`` of the store, in the place of an older one of the same cell and
        seed, and of those whose records were made anew since.
    """
    if k < 1:
        raise ValueError(f"--cells is {k}; at least one cell is audited")
    whole("seed", seed, 0)
    # a method from outside is not here to be run again
    records = [
        record
        for record in store.records(profile, paper, experiment)
        if record.cell.experiment != "entries"
        and not is_outside(record.cell.settings.get("method"))
    ]
    if not records:
        what = " ".join(filter(None, (paper, experiment))) or "any paper"
        raise ValueError(f"no record of {what} at profile {profile} to audit; see: fedkit list")
    for name, value in only:
        kept = set(keep([record.cell for record in records], name, value))
        records = [record for record in records if record.cell in kept]
    for record, chosen in choose(records, k, np.random.default_rng(seed)):
        row = audit(record, chosen)
        if save:
            _save(store, row)
        yield row


def _save(store: Store, row: Audited) -> None:
    rows = {(r["cell"], r["seed"]): r for r in saved(store)}
    rows[row.cell, row.seed] = {**asdict(row), "commit": commit(), "lock": lock_hash()}
    lines = ",\n".join(json.dumps(rows[place]) for place in sorted(rows))
    write_text(store.root / "audit.json", f"[\n{lines}\n]\n")


def saved(store: Store) -> list[dict[str, Any]]:
    """Return the rows of ``audit.json`` whose records hold what they held then."""
    path = store.root / "audit.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return [row for row in rows if row["record"] == _held(store, row["cell"], row["seed"])]


def _held(store: Store, cell: str, seed: int) -> str:
    """Return the digest of a seed of a record as it is; empty where it is gone."""
    path = store.root / f"{cell}.json"
    results = store.read(path).results if path.is_file() else ()
    return next((_digest(result) for result in results if result["seed"] == seed), "")
