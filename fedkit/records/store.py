"""Records of runs: written whole or not at all, checked when read, never computed twice.

A run is cut into cells (:class:`Cell`).  Each finished cell is one small JSON file,
``results/<profile>/<paper>/<experiment>/<key>.json``, with the raw values of every seed and a
manifest of what made them.  :func:`run_cells` skips what is finished, so a run can be killed at
any moment and started again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkit.atomic import write_text
from fedkit.extras import need
from fedkit.records.cell import PROFILES, Cell, canonical_json, format_seeds, parse_seeds
from fedkit.records.manifest import repository_root
from fedkit.records.packing import (
    SCHEMA,
    NewerRecordError,
    Record,
    RecordError,
    Result,
    decode,
    encode,
)
from fedkit.records.running import CellError, Outcome, run_cells

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PROFILES",
    "SCHEMA",
    "Cell",
    "CellError",
    "NewerRecordError",
    "Outcome",
    "Record",
    "RecordError",
    "Store",
    "default_root",
    "format_seeds",
    "parse_seeds",
    "run_cells",
]


def default_root() -> Path:
    """Return the folder of records.

    It is ``FEDKIT_RESULTS`` where that is set, else ``results`` in the checkout that fedkit runs
    from, else ``results`` in the current folder.
    """
    named = os.environ.get("FEDKIT_RESULTS")
    if named:
        return Path(named)
    return (repository_root() or Path.cwd()) / "results"


# ---------------------------------------------------------------------------- the store


_STATUS = ["profile", "paper", "experiment", "key", "seeds", "state", "reason", "command"]


class Store:
    """The folder of records.

    Parameters
    ----------
    root : path, optional
        The folder; by default :func:`default_root`.  It is created at the first save.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = default_root() if root is None else Path(root)

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell's record."""
        return self.root / cell.profile / cell.paper / cell.experiment / f"{cell.key}.json"

    def save(
        self, cell: Cell, results: Sequence[Result], manifest: Mapping[str, Any] | None = None
    ) -> Path:
        """Write a record whole or not at all.

        Parameters
        ----------
        cell : Cell
        results : sequence of mapping
            One per seed of the cell, in its order: ``{"seed", "metrics", "series"}``.  Metrics
            keep all digits; series are rounded to seven.  NaN is stored as null.
        manifest : mapping, optional
            See :func:`fedkit.records.manifest.make_manifest`.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            If the results are not of this form or of other seeds.
        OSError
            If the file cannot be written, e.g. because the disk is full.  An older record stays
            as it was, and nothing half-written is left.
        """
        text = encode(cell, results, manifest or {})
        path = self.path(cell)
        for left in path.parent.glob(f".{path.name}.*.tmp"):  # of a runner killed in mid-write
            left.unlink(missing_ok=True)
        try:
            write_text(path, text)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(
                    error.errno,
                    f"the disk is full: the record of {len(text)} bytes was not written and "
                    "nothing of it is left; free some space and run again with: fedkit resume",
                    str(path),
                ) from error
            raise
        return path

    def load(self, cell: Cell) -> Record:
        """Read and check the record of a cell.

        Raises
        ------
        FileNotFoundError
            If there is none; the message holds the command that makes it.
        RecordError
            If it is damaged, of another schema, or of another cell.
        """
        path = self.path(cell)
        if not path.is_file():
            raise FileNotFoundError(
                f"no record {path.relative_to(self.root)}; make it with: {cell.command}"
            )
        record = self.read(path)
        if record.cell != cell:
            raise RecordError(
                f"{path.relative_to(self.root)} holds another cell ({record.cell.key}); "
                f"make it anew with: {cell.command}"
            )
        return record

    def read(self, path: Path) -> Record:
        """Read and check the record in a file.

        Raises
        ------
        RecordError
            See :meth:`load`.
        """
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path.name
        again = "remove it and run: fedkit resume"
        parts = path.parts[-4:-1]
        if len(parts) == 3:
            again = f"make it anew with: fedkit run {parts[1]} {parts[2]} --profile {parts[0]}"
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RecordError(f"{name} is damaged (not text); {again}") from error
        return decode(text, str(name), again)

    def paths(
        self, profile: str | None = None, paper: str | None = None, experiment: str | None = None
    ) -> list[Path]:
        """List the files of the records there are, sorted."""
        pattern = f"{profile or '*'}/{paper or '*'}/{experiment or '*'}/*.json"
        return sorted(path for path in self.root.glob(pattern) if not path.name.startswith("."))

    def records(
        self, profile: str | None = None, paper: str | None = None, experiment: str | None = None
    ) -> list[Record]:
        """Read all records of a part of the store; a damaged one raises :class:`RecordError`."""
        return [self.read(path) for path in self.paths(profile, paper, experiment)]

    def state(self, cell: Cell) -> tuple[str, str]:
        """Return ``"fresh"``, ``"stale"``, ``"missing"`` or ``"unreadable"``, and why."""
        try:
            changed = self.load(cell).stale()
        except FileNotFoundError:
            return "missing", ""
        except RecordError as error:
            return "unreadable", str(error)
        return ("stale", ", ".join(changed)) if changed else ("fresh", "")

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that have no readable record, in their order."""
        return [cell for cell in cells if self.state(cell)[0] in ("missing", "unreadable")]

    def status(self, cells: Iterable[Cell] | None = None) -> pd.DataFrame:
        """Tell for each cell whether its record is fresh, stale, missing or unreadable.

        Parameters
        ----------
        cells : iterable of Cell, optional
            By default every cell that has a record.

        Returns
        -------
        pandas.DataFrame
            Columns profile, paper, experiment, key, seeds, state, reason, command.
        """
        pd = need("pandas", extra="run")
        rows: list[dict[str, str]] = []
        for cell in cells if cells is not None else self._cells_on_disk(rows):
            state, reason = self.state(cell)
            rows.append(
                {
                    "profile": cell.profile,
                    "paper": cell.paper,
                    "experiment": cell.experiment,
                    "key": cell.key,
                    "seeds": format_seeds(cell.seeds),
                    "state": state,
                    "reason": reason,
                    "command": cell.command,
                }
            )
        return pd.DataFrame(rows, columns=_STATUS)

    def _cells_on_disk(self, rows: list[dict[str, str]]) -> list[Cell]:
        """Return the cells that have a record; unreadable files become rows at once."""
        cells = []
        for path in self.paths():
            profile, paper, experiment = path.parts[-4:-1]
            try:
                cells.append(self.read(path).cell)
            except RecordError as error:
                facts = {"profile": profile, "paper": paper, "experiment": experiment}
                rest = {"key": path.stem, "seeds": "", "state": "unreadable", "command": ""}
                rows.append({**facts, **rest, "reason": str(error)})
        return cells

    def frame(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the metrics as a tidy table: one row per seed and metric.

        Where two records hold the same seed of the same setting (blocks of seeds that overlap),
        the record with more seeds counts and the other is left out, so nothing counts twice.

        Parameters
        ----------
        paper, experiment, profile : str, optional
            Part of the store; everything by default.

        Returns
        -------
        pandas.DataFrame
            Columns profile, paper, experiment, key, the settings, seed, metric, value.
        """
        return self._table("metrics", paper, experiment, profile)

    def series(
        self, paper: str | None = None, experiment: str | None = None, profile: str | None = None
    ) -> pd.DataFrame:
        """Return the series as a tidy table: one row per seed, series and index (round).

        The parameters and the rule for overlapping blocks of seeds are those of :meth:`frame`;
        the columns end in seed, series, index, value.
        """
        return self._table("series", paper, experiment, profile)

    def _table(
        self, what: str, paper: str | None, experiment: str | None, profile: str | None
    ) -> pd.DataFrame:
        pd = need("pandas", extra="run")
        heads: list[dict[str, Any]] = []
        last: dict[str, list[Any]] = {"seed": [], "metric": [], "value": []}
        if what == "series":
            last = {"seed": [], "series": [], "index": [], "value": []}
        owner: list[int] = []  # of each row: its place in heads
        seen: set[tuple[str, int]] = set()
        records = self.records(profile, paper, experiment)
        for record in sorted(records, key=lambda item: (-len(item.cell.seeds), item.cell.key)):
            cell = record.cell
            block = canonical_json({**cell.to_dict(), "seeds": []})
            for result in record.results:
                seed = result["seed"]
                if (block, seed) in seen:
                    continue
                seen.add((block, seed))
                for name, value in result[what].items():
                    values = value if what == "series" else [value]
                    owner.extend([len(heads)] * len(values))
                    last["seed"].extend([seed] * len(values))
                    last["series" if what == "series" else "metric"].extend([name] * len(values))
                    last["value"].extend(values)
                    if what == "series":
                        last["index"].extend(range(len(values)))
            heads.append(
                {
                    "profile": cell.profile,
                    "paper": cell.paper,
                    "experiment": cell.experiment,
                    "key": cell.key,
                    **{
                        name: tuple(value) if isinstance(value, list) else value
                        for name, value in cell.settings.items()
                    },
                }
            )
        first = pd.DataFrame(heads, columns=None if heads else _STATUS[:4])
        first = first.take(owner).reset_index(drop=True)
        return pd.concat([first, pd.DataFrame(last)], axis=1)
