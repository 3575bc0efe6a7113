"""Our side of a claim: its numbers, one per seed, from the records, and what bars a judgement."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.intervals import settled
from reproduction.claims import Claim, Claims, ClaimsError
from reproduction.plugins import is_plugin
from reproduction.records import Store, canonical_json
from reproduction.statistics import slopes

OF_TABLES = ("concordance", "rank_agreement", "best_share")
"""Rules about tables of means: of each seed they need the whole table."""

FloatArray = npt.NDArray[np.float64]
Place = Mapping[str, Any]

_POOLS: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "max": max}
_SCALES: dict[str, Callable[..., Any]] = {
    "linear": np.asarray, "log2": np.log2, "log10": np.log10,
}  # fmt: skip

#: What a claim may ask of a series, as ``mean(<series>)``, from its indices and entries: their
#: mean, and how far their least-squares line rises from the first to the last.
_OF_SERIES: dict[str, Callable[[FloatArray, FloatArray], float]] = {
    "mean": lambda x, y: float(y.mean()),
    "rise": lambda x, y: float(slopes(x / (x[-1] - x[0]), y)),
}


@dataclass(frozen=True)
class Numbers:
    """Numbers of a claim, the profile and the keys of their records, and what bars a judgement.

    Values are float64[seeds]; for places and the rules of :data:`OF_TABLES` scores, [seeds,
    columns, rows].
    """

    values: FloatArray
    keys: frozenset[str] = frozenset()
    bar: str = ""
    profile: str = ""
    stale: bool = False

    def alike(self, other: Numbers) -> bool:
        """Whether both are the same numbers of the same records."""
        return self.keys == other.keys and np.array_equal(self.values, other.values)


class Measured:
    """Our numbers of a paper's claims: of `profile`, else what is shown.

    Shown and not judged are reduced runs that the claims name, then those of profile laptop.
    """

    def __init__(self, claims: Claims, store: Store, profile: str, scale: str = "paper") -> None:
        passes = [(profile, False)]
        if profile == scale:
            passes += [(profile, True)] * bool(claims.reduced)
            passes += [("laptop", False)] * (profile != "laptop")
        self.lookups = [_Lookup(claims, store, size, reduced) for size, reduced in passes]

    def numbers(
        self, other: Claims | None = None, only: Container[str] | None = None
    ) -> dict[str, Numbers]:
        """Return our numbers by claim, for those with records.

        `other` is another reading of the claims; with `only` these claims are looked up.
        """
        found: dict[str, Numbers] = {}
        for lookup in self.lookups:
            if other is not None:
                lookup = lookup.of(other)
            for claim in lookup.claims.claims:
                wanted = claim.id not in found and (only is None or claim.id in only)
                numbers = lookup.numbers(claim) if wanted else None
                if numbers is not None and (len(numbers.values) or lookup.reduced is None):
                    found[claim.id] = numbers
        return found


class _Lookup:
    """The records of one paper at one profile, searched by experiment and settings."""

    def __init__(self, claims: Claims, store: Store, profile: str, reduced: bool) -> None:
        self.claims = claims
        self.profile = profile
        self.reduced = claims.reduced if reduced else None
        self.keys: dict[str, list[str]] = {}  # of each experiment
        self.values: dict[tuple[str, str], dict[int, float]] = {}
        paper = str(claims.paper["key"])
        self.records = {
            record.cell.key: record
            for record in store.records(profile, paper)
            if not is_plugin(record.cell.settings.get("method"))  # which is none of the paper's
        }
        for key, record in self.records.items():
            self.keys.setdefault(record.cell.experiment, []).append(key)
        self.settings = {key: record.cell.settings for key, record in self.records.items()}
        self.stale = {key for key, record in self.records.items() if record.stale()}
        frame = store.frame(paper=paper, profile=profile)
        self._add(frame[name] for name in ("key", "seed", "metric", "value"))
        self.read: set[str] = set()  # metrics of series that have been computed
        self._series = cache(partial(store.series, paper=paper, profile=profile))

    def of(self, claims: Claims) -> _Lookup:
        """Return the same records, for the claims in another reading."""
        other = copy.copy(self)
        other.claims = claims
        return other

    def _add(self, columns: Iterable[Any]) -> None:
        for key, seed, metric, value in zip(*columns, strict=True):
            self.values.setdefault((key, metric), {})[int(seed)] = float(value)

    def _read_series(self, metric: str) -> None:
        """Compute what is asked of a series, as ``mean(random)``."""
        name, _, series = metric.rstrip(")").partition("(")
        if not series or metric in self.read:
            return
        self.read.add(metric)
        lines = self._series().dropna(subset="value")
        for group, part in lines[lines["series"] == series].groupby(["key", "seed"]):
            value = _OF_SERIES[name](part["index"].to_numpy(), part["value"].to_numpy())
            self._add([[column] for column in (*group, metric, value)])

    def grid(self, claim: Claim) -> Sequence[Sequence[Place]]:
        """Return the places whose numbers a claim takes together: columns of rows of tables.

        A difference or a sweep is one column.  A concordance has all columns of the paper's tables
        on its experiments, with the rows of its methods.
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
            for cell in self.claims.claims:
                place = dict(cell.place)
                if (
                    place.get("table") in self.claims.tables
                    and place.pop("row") in ours["methods"]
                    and cell.ours["experiment"] in ours["experiments"]
                    and not cell.untestable
                ):
                    columns.setdefault(canonical_json(place), []).append(cell.ours)
            return list(columns.values())
        if "experiment" not in ours:
            return []
        return [[ours] if claim.against is None else [ours, claim.against]]

    def numbers(self, claim: Claim) -> Numbers | None:
        """Return our numbers for a claim, of seeds that all places have; None without records."""
        found = [[self._find(place) for place in line] for line in self.grid(claim)]
        complete = [[f for f in line if f is not None] for line in found if None not in line]
        several = {"sweep", "pooled"} & set(claim.ours)
        there = [f for line in (found if several else complete) for f in line if f is not None]
        if not there:
            return None
        keys = frozenset[str]().union(*(keys for _, keys, _ in there))
        bar = next((bar for _, _, bar in there if bar), "") or self._copies(keys)
        least = claim.test.get("min_columns", len(found))
        values = np.empty(0)
        if len(complete) >= least:
            seeds = sorted(set.intersection(*(set(by_seed) for by_seed, _, _ in there)))
            scores = np.array([[[f[0][s] for f in line] for line in complete] for s in seeds])
            shape = (len(seeds), len(complete), len(complete[0]))
            values = _per_seed(claim, scores.reshape(shape))
        elif "sweep" in claim.ours:
            bar = bar or (
                f"{len(there)} of {len(found[0])} values of {next(iter(claim.ours['sweep']))}"
            )
        else:
            bar = bar or f"{len(complete)} of {least} settings on record"
        return Numbers(values, keys, bar, self.profile, bool(keys & self.stale))

    def _find(self, place: Place) -> tuple[dict[Any, float], frozenset[str], str] | None:
        """Return a place's numbers by seed, their records, and what bars a judgement on them."""
        experiment, wanted = place["experiment"], place.get("settings", {})
        if self.reduced is not None:
            instead = self.reduced.get(experiment)
            if instead is None:
                return None
            experiment, wanted = instead["experiment"], {**wanted, **instead.get("settings", {})}
        metric = place["metric"]
        self._read_series(metric)
        keys = [
            key
            for key in self.keys.get(experiment, ())
            if (key, metric) in self.values and wanted.items() <= self.settings[key].items()
        ]
        if not keys:
            return None
        # an experiment of the paper's own may have another protocol, in some settings
        protocol = {**self.claims.protocol, **place.get("protocol", {})}
        protocol = {name: v for name, v in protocol.items() if name not in place.get("sweep", {})}
        # Readings of what a paper leaves open stand beside each other; the protocol names one.
        within = [key for key in keys if not self._departure([key], protocol)]
        apart = set(self._differing(keys))
        if not within and apart and apart <= set(self.claims.protocol):
            return None
        keys = within or keys
        differing = self._differing(keys)
        if differing and "pool" not in place:
            raise ClaimsError(
                f"records of {experiment} with {dict(wanted)} differ in {differing}; "
                "add these to 'settings' in the claims file"
            )
        # What a claim is about may be repeated over a setting, the data sets, and not over seeds;
        # without that a seed counts where all of the pooled settings have it.
        over = place.get("over")
        seeds: dict[str, set[int]] = {}
        for key in keys:
            there = seeds.setdefault(canonical_json(self.settings[key]), set())
            there |= {n for n, x in self.values[key, metric].items() if math.isfinite(x)}
        everywhere = set.intersection(*seeds.values())
        lists: dict[Any, list[float]] = {}
        for key in keys:
            for seed, value in self.values[key, metric].items():
                if math.isfinite(value) and (over is not None or seed in everywhere):
                    replicate = seed if over is None else self.settings[key][over]
                    lists.setdefault(replicate, []).append(value)
        bar = self._departure(keys, protocol)
        if not bar and len(seeds) < place.get("of", 0):
            bar = f"{len(seeds)} of {place['of']} settings on record"
        if not bar and self.reduced is not None:
            bar = "a reduced run"
        pool = _POOLS[place.get("pool", "mean")]
        return {name: pool(lists[name]) for name in sorted(lists)}, frozenset(keys), bar

    def _copies(self, keys: Iterable[str]) -> str:
        """Say whether records had different files as the same data set; empty if none had."""
        sums: dict[str, set[str]] = {}
        for key in keys:
            for data in self.records[key].manifest.get("data", ()):
                sums.setdefault(data["name"], set()).add(data["checksum"])
        double = sorted(name for name, found in sums.items() if len(found) > 1)
        return f"run on different copies of {', '.join(double)}" if double else ""

    def _differing(self, keys: Sequence[str]) -> list[str]:
        """Name the settings in which some records differ."""
        names = dict.fromkeys(name for key in keys for name in self.settings[key])
        texts = {n: {canonical_json(self.settings[key].get(n)) for key in keys} for n in names}
        return [name for name, there in texts.items() if len(there) > 1]

    def _departure(self, keys: Sequence[str], protocol: Mapping[str, Any]) -> str:
        """Say in what records depart from the paper's protocol; empty if in nothing."""
        for settings in map(self.settings.__getitem__, keys):
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


def _per_seed(claim: Claim, scores: FloatArray) -> FloatArray:
    """Turn scores [seeds, columns, rows] into what the rule judges."""
    if claim.rule in (*OF_TABLES, "place"):
        return scores
    if "sweep" in claim.ours:
        y = scores[:, 0]
        if claim.rule == "taper":
            return settled((y[:, 1] - y[:, 0]) - (y[:, -1] - y[:, -2]), of=scores)
        (levels,) = claim.ours["sweep"].values()
        return slopes(_SCALES[claim.test["scale"]](np.asarray(levels, dtype=np.float64)), y)
    if scores.shape[2] == 1:
        return scores[:, 0, 0]
    # The same seed is the same partition and the same initial model in both.
    return settled((scores[:, :, 0] - scores[:, :, 1]).mean(axis=1), of=scores)
