"""A result, where it came from, and whether it is still true."""

from fedkit.records.cell import PROFILES, Cell, canonical_json, format_seeds, parse_seeds
from fedkit.records.cluster import run_on_ray
from fedkit.records.golden import GoldenRun, Tiny, trace
from fedkit.records.manifest import default_root, make_manifest, stamp
from fedkit.records.running import CellError, Outcome, run_cells
from fedkit.records.store import Record, RecordError, Store

__all__ = [
    "PROFILES", "Cell", "CellError", "GoldenRun", "Outcome", "Record", "RecordError", "Store",
    "Tiny", "canonical_json", "default_root", "format_seeds", "make_manifest", "parse_seeds",
    "run_cells", "run_on_ray", "stamp", "trace",
]  # fmt: skip
