"""A result, where it came from, and whether it is still true."""

from reproduction.records.cell import PROFILES, Cell, canonical_json, format_seeds, parse_seeds
from reproduction.records.cluster import run_on_ray
from reproduction.records.golden import GoldenRun, Tiny, trace
from reproduction.records.manifest import default_root, make_manifest, stamp
from reproduction.records.running import CellError, Outcome, run_cells
from reproduction.records.store import Record, RecordError, Store

__all__ = [
    "PROFILES", "Cell", "CellError", "GoldenRun", "Outcome", "Record", "RecordError", "Store",
    "Tiny", "canonical_json", "default_root", "format_seeds", "make_manifest", "parse_seeds",
    "run_cells", "run_on_ray", "stamp", "trace",
]  # fmt: skip
