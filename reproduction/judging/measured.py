"""Our side of a claim: per-seed numbers from the records, and what bars a judgement on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.intervals import settled, slopes
from fedkit.outside import is_outside
from reproduction.judging.claim import POOLS, SCALES, Claim, Claims, ClaimsError
from reproduction.records.cell import canonical_json
from reproduction.records.store import Store

__all__ = ["OF_TABLES", "Lookup", "Numbers", "grid", "numbers_of"]

OF_TABLES = ("concordance", "rank_agreement", "best_share")
"""Rules about tables of means: of each seed they need the whole table."""

FloatArray = npt.NDArray[np.float64]
Place = Mapping[str, Any]

#: What a claim may ask of a series, as ``mean(<series>)``, from its indices and entries: their
#: mean, and how far their least-squares line rises from the first to the last.
_OF_SERIES: dict[str, Callable[[FloatArray, FloatArray], float]] = {
    "mean": lambda x, y: float(y.mean()),
    "rise": lambda x, y: float(slopes(x / (x[-1] - x[0]), y)),
}


@dataclass(frozen=True)
class Numbers:
    """Numbers of a claim, the records they come from, and what bars a judgement on them.

    Values are float64[seeds]; for the rules of :data:`OF_TABLES` scores, [seeds, columns, rows].
    """

    values: FloatArray
    keys: frozenset[str] = frozenset()
    bar: str = ""


@dataclass(frozen=True)
class _Found:
    """What the records hold for one place: a number by seed (or data set)."""

    by_seed: Mapping[Any, float]
    keys: frozenset[str]
    bar: str


class Lookup:
    """The records of one paper at one profile, searched by experiment and settings.

    The protocol and data sets of the claims decide what may be judged.  With `reduced`, places are
    looked up in the reduced runs that the claims name for their experiments, which nothing judges.
    """

    def __init__(
        self, claims: Claims, store: Store, profile: str, *, reduced: bool = False
    ) -> None:
        self.claims = claims
        self._reduced = claims.reduced if reduced else None
        self.stale: set[str] = set()
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._data: dict[str, Sequence[Mapping[str, Any]]] = {}  # what manifests say of it
        self._keys: dict[str, list[str]] = {}  # of each experiment
        self._values: dict[tuple[str, str], dict[int, float]] = {}
        paper = str(claims.paper["key"])
        for record in store.records(profile, paper):
            cell = record.cell
            if is_outside(cell.settings.get("method")):
                continue  # in the place of a row, and none of the paper's
            self._settings[cell.key] = cell.settings
            self._data[cell.key] = record.manifest.get("data", ())
            self._keys.setdefault(cell.experiment, []).append(cell.key)
            if record.stale():
                self.stale.add(cell.key)
        frame = store.frame(paper=paper, profile=profile)
        self._add(frame[name] for name in ("key", "seed", "metric", "value"))
        wanted = {str(p["metric"]) for c in claims.claims for p in c.places()}
        for name, of in _OF_SERIES.items():
            if any(metric.startswith(f"{name}(") for metric in wanted):
                lines = store.series(paper=paper, profile=profile).dropna(subset="value")
                lines["series"] = lines["series"].map(f"{name}({{}})".format)
                lines = lines[lines["series"].isin(wanted)]
                for group, part in lines.groupby(["key", "seed", "series"], as_index=False):
                    value = of(part["index"].to_numpy(), part["value"].to_numpy())
                    self._add([[column] for column in (*group, value)])

    def _add(self, columns: Iterable[Any]) -> None:
        for key, seed, metric, value in zip(*columns, strict=True):
            self._values.setdefault((key, metric), {})[int(seed)] = float(value)

    def find(self, place: Place) -> _Found | None:
        """Return the numbers of one place of the paper; None where there is no record."""
        if self._reduced is not None:
            instead = self._reduced.get(place["experiment"])
            if instead is None:
                return None
            settings = {**place.get("settings", {}), **instead.get("settings", {})}
            place = {**place, "experiment": instead["experiment"], "settings": settings}
        metric, wanted = place["metric"], place.get("settings", {})
        keys = [
            key
            for key in self._keys.get(place["experiment"], ())
            if (key, metric) in self._values and wanted.items() <= self._settings[key].items()
        ]
        if not keys:
            return None
        # an experiment of the paper's own may have another protocol, in some settings
        protocol = {**self.claims.protocol, **place.get("protocol", {})}
        protocol = {name: v for name, v in protocol.items() if name not in place.get("sweep", {})}
        # Readings of what a paper leaves open stand beside each other; the protocol names one.
        within = [key for key in keys if not self._bar([key], protocol)]
        apart = set(self._differing(keys))
        if not within and apart and apart <= set(self.claims.protocol):
            return None
        keys = within or keys
        differing = self._differing(keys)
        if differing and "pool" not in place:
            raise ClaimsError(
                f"records of {place['experiment']} with {dict(wanted)} differ in {differing}; "
                "add these to 'settings' in the claims file"
            )
        # What a claim is about may be repeated over a setting, the data sets, and not over seeds.
        over = place.get("over")
        # without it a seed counts where all of the pooled settings have it
        seeds: dict[str, set[int]] = {}
        for key in keys:
            there = seeds.setdefault(canonical_json(self._settings[key]), set())
            there |= {n for n, x in self._values[key, metric].items() if math.isfinite(x)}
        everywhere = set.intersection(*seeds.values())
        lists: dict[Any, list[float]] = {}
        for key in keys:
            for seed, value in self._values[key, metric].items():
                if math.isfinite(value) and (over is not None or seed in everywhere):
                    replicate = seed if over is None else self._settings[key][over]
                    lists.setdefault(replicate, []).append(value)
        bar = self._bar(keys, protocol)
        if not bar and len(seeds) < place.get("of", 0):
            bar = f"{len(seeds)} of {place['of']} settings on record"
        if not bar and self._reduced is not None:
            bar = "a reduced run"
        pool = POOLS[place.get("pool", "mean")]
        by_seed = {replicate: pool(lists[replicate]) for replicate in sorted(lists)}
        return _Found(by_seed, frozenset(keys), bar)

    def copies(self, keys: Iterable[str]) -> str:
        """Say whether records had different files as the same data set; empty if none had."""
        sums: dict[str, set[str]] = {}
        for data in (data for key in keys for data in self._data[key]):
            sums.setdefault(data["name"], set()).add(data["checksum"])
        double = sorted(name for name, found in sums.items() if len(found) > 1)
        return f"run on different copies of {', '.join(double)}" if double else ""

    def _differing(self, keys: Sequence[str]) -> list[str]:
        """Name the settings in which some records differ."""
        names = dict.fromkeys(name for key in keys for name in self._settings[key])
        texts = {n: {canonical_json(self._settings[key].get(n)) for key in keys} for n in names}
        return [name for name, there in texts.items() if len(there) > 1]

    def _bar(self, keys: Sequence[str], protocol: Mapping[str, Any]) -> str:
        """Say in what records depart from the paper's protocol; empty if in nothing."""
        for settings in map(self._settings.__getitem__, keys):
            for name, value in protocol.items():
                if isinstance(value, Mapping):  # by data set
                    value = value.get(settings.get("dataset"), settings.get(name))
                # several values: readings of what the paper leaves open
                readings = value if isinstance(value, list) else [value]
                if name in settings and settings[name] not in readings:
                    has = "the paper sets none" if value is None else f"the paper has {value}"
                    if isinstance(value, list):
                        has = f"its readings are {', '.join(map(str, value))}"
                    return f"run with {name} {settings[name]}, {has}"
            dataset, data = settings.get("dataset"), settings.get("data")
            accepted = self.claims.data.get(str(dataset))
            if accepted is not None and data is not None and data not in accepted:
                return f"run on {data}, the paper has {dataset}"
        return ""


def grid(claim: Claim, claims: Claims) -> Sequence[Sequence[Place]]:
    """Return the places whose numbers a claim takes together: columns of rows of tables.

    A difference or a sweep is one column.  A concordance has all columns of the paper's tables on
    its experiments, with the rows of its methods.
    """
    ours = claim.ours
    if "pooled" in ours:
        return ours["pooled"]
    if "sweep" in ours:
        ((name, levels),) = ours["sweep"].items()
        settings = ours.get("settings", {})
        return [[{**ours, "settings": {**settings, name: level}} for level in levels]]
    if claim.rule == "concordance":
        columns: dict[str, list[Place]] = {}
        for cell in claims.claims:
            place = dict(cell.place)
            if (
                place.get("table") in claims.tables
                and place.pop("row") in ours["methods"]
                and cell.ours["experiment"] in ours["experiments"]
                and not cell.untestable
            ):
                columns.setdefault(canonical_json(place), []).append(cell.ours)
        return list(columns.values())
    if "experiment" not in ours:
        return []
    return [[ours] if claim.against is None else [ours, claim.against]]


def _per_seed(claim: Claim, scores: FloatArray) -> FloatArray:
    """Turn scores [seeds, columns, rows] into what the rule judges."""
    if claim.rule in OF_TABLES:
        return scores
    if "sweep" in claim.ours:
        y = scores[:, 0]
        if claim.rule == "taper":
            return settled((y[:, 1] - y[:, 0]) - (y[:, -1] - y[:, -2]), of=scores)
        (levels,) = claim.ours["sweep"].values()
        return slopes(SCALES[claim.test["scale"]](np.asarray(levels, dtype=np.float64)), y)
    if scores.shape[2] == 1:
        return scores[:, 0, 0]
    # The same seed is the same partition and the same initial model in both.
    return settled((scores[:, :, 0] - scores[:, :, 1]).mean(axis=1), of=scores)


def numbers_of(claim: Claim, lookup: Lookup) -> Numbers | None:
    """Return our per-seed numbers for a claim; None where there are no records.

    A seed counts where it has run in every place, so that no column weighs more in one than in
    another; all columns must be there, for the printed number is of all of them.
    """
    found = [[lookup.find(place) for place in line] for line in grid(claim, lookup.claims)]
    complete = [[f for f in line if f is not None] for line in found if None not in line]
    several = {"sweep", "pooled"} & set(claim.ours)
    there = [f for line in (found if several else complete) for f in line if f is not None]
    if not there:
        return None
    keys = frozenset[str]().union(*(f.keys for f in there))
    bar = next((f.bar for f in there if f.bar), "") or lookup.copies(keys)
    least = claim.test.get("min_columns", len(found))
    if len(complete) < least:
        lack = f"{len(complete)} of {least} settings on record"
        if "sweep" in claim.ours:
            lack = f"{len(there)} of {len(found[0])} values of {next(iter(claim.ours['sweep']))}"
        return Numbers(np.empty(0), keys, bar or lack)
    seeds = sorted(set.intersection(*(set(f.by_seed) for f in there)))
    scores = np.array([[[f.by_seed[s] for f in line] for line in complete] for s in seeds])
    shape = (len(seeds), len(complete), len(complete[0]))
    return Numbers(_per_seed(claim, scores.reshape(shape)), keys, bar)
