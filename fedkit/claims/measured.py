"""Our side of a claim: per-seed numbers from the records, and what bars a judgement on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.claims.claim import Claim, Claims, ClaimsError
from fedkit.intervals import slopes
from fedkit.records.cell import canonical_json
from fedkit.records.store import Store

__all__ = ["Lookup", "Numbers", "numbers_of"]

FloatArray = npt.NDArray[np.float64]

_SCALES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda x: x,
    "log2": np.log2,
    "log10": np.log10,
}
_POOLS: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "mean": lambda values: math.fsum(values) / len(values),
}


@dataclass(frozen=True)
class Numbers:
    """Per-seed numbers of a claim, the records they come from, and what bars a judgement."""

    values: FloatArray
    keys: frozenset[str] = frozenset()
    bar: str = ""


@dataclass(frozen=True)
class Found:
    """Numbers by seed (or data set) of the records that fit one place of the paper."""

    by_seed: Mapping[Any, float]
    keys: frozenset[str]
    bar: str


class Lookup:
    """The records of one paper at one profile, searched by experiment and settings.

    Parameters
    ----------
    claims : Claims
        Its protocol and data sets decide what may be judged.
    store : Store
    profile : str
    """

    def __init__(self, claims: Claims, store: Store, profile: str) -> None:
        self.claims = claims
        self.stale: set[str] = set()
        self.settings: dict[str, Mapping[str, Any]] = {}
        self.keys: dict[str, list[str]] = {}  # of each experiment
        for record in store.records(profile, claims.paper["key"]):
            cell = record.cell
            self.settings[cell.key] = cell.settings
            self.keys.setdefault(cell.experiment, []).append(cell.key)
            if record.stale():
                self.stale.add(cell.key)
        self.values: dict[tuple[str, str], dict[int, float]] = {}
        frame = store.frame(paper=claims.paper["key"], profile=profile)
        for key, seed, metric, value in zip(
            frame["key"], frame["seed"], frame["metric"], frame["value"], strict=True
        ):
            self.values.setdefault((key, metric), {})[int(seed)] = float(value)
        self._add_means(store, profile)

    def _add_means(self, store: Store, profile: str) -> None:
        """Add the means of series over their rounds that claims ask for, as ``mean(<series>)``."""
        places = [p for c in self.claims.claims for p in (c.ours, c.against or {})]
        wanted = {p["metric"] for p in places if str(p.get("metric")).startswith("mean(")}
        if not wanted:
            return
        lines = store.series(paper=self.claims.paper["key"], profile=profile)
        lines = lines[lines["series"].map("mean({})".format).isin(wanted)]
        means = lines.groupby(["key", "seed", "series"])["value"].mean().reset_index()
        columns = (means[name] for name in ("key", "seed", "series", "value"))
        for key, seed, name, value in zip(*columns, strict=True):
            self.values.setdefault((key, f"mean({name})"), {})[int(seed)] = float(value)

    def fitting(self, experiment: str, metric: str, wanted: Mapping[str, Any]) -> list[str]:
        """Return the records of an experiment with these settings and this metric."""
        return [
            key
            for key in self.keys.get(experiment, ())
            if (key, metric) in self.values
            and all(
                name in self.settings[key] and self.settings[key][name] == value
                for name, value in wanted.items()
            )
        ]

    def find(self, ours: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> Found | None:
        """Return the numbers of one place of the paper; None where there is no record.

        Raises
        ------
        ClaimsError
            If records of several settings fit and the claim does not pool them.
        """
        wanted = {**ours.get("settings", {}), **(extra or {})}
        keys = self.fitting(ours["experiment"], ours["metric"], wanted)
        if not keys:
            return None
        swept = ours.get("sweep", {})
        # Readings of what a paper leaves open stand beside each other; the protocol names one.
        within = [key for key in keys if not self.bar([key], swept)]
        if not within and len(keys) > 1 and self._only_the_protocol_differs(keys):
            return None
        keys = within or keys
        if "pool" not in ours:
            self._require_one_setting(keys, ours["experiment"], wanted)
        # What a claim is about may be repeated over a setting, the data sets, and not over seeds.
        over = ours.get("over")
        lists: dict[Any, list[float]] = {}
        for key in keys:
            for seed, value in self.values[key, ours["metric"]].items():
                if math.isfinite(value):
                    replicate = seed if over is None else self.settings[key][over]
                    lists.setdefault(replicate, []).append(value)
        pool = _POOLS[ours.get("pool", "mean")]
        by_seed = {replicate: pool(lists[replicate]) for replicate in sorted(lists)}
        return Found(by_seed, frozenset(keys), self.bar(keys, swept))

    def _several(self, keys: Iterable[str]) -> list[str]:
        """Name the settings in which some records differ."""
        texts = {
            name: {canonical_json(self.settings[key].get(name)) for key in keys}
            for name in dict.fromkeys(name for key in keys for name in self.settings[key])
        }
        return [name for name, found in texts.items() if len(found) > 1]

    def _only_the_protocol_differs(self, keys: Iterable[str]) -> bool:
        return set(self._several(keys)) <= set(self.claims.protocol)

    def _require_one_setting(
        self, keys: Iterable[str], experiment: str, wanted: Mapping[str, Any]
    ) -> None:
        several = self._several(keys)
        if several:
            raise ClaimsError(
                f"records of {experiment} with {dict(wanted)} differ in {several}; add these to "
                "'settings' in the claims file"
            )

    def bar(self, keys: Iterable[str], swept: Mapping[str, Any]) -> str:
        """Say in what records depart from the paper's protocol; empty if in nothing."""
        for key in keys:
            settings = self.settings[key]
            for name, value in self.claims.protocol.items():
                # several values: readings of what the paper leaves open
                readings = value if isinstance(value, list) else [value]
                if name in settings and name not in swept and settings[name] not in readings:
                    has = f"the paper has {value}"
                    if isinstance(value, list):
                        has = f"its readings are {', '.join(map(str, value))}"
                    return f"run with {name} {settings[name]}, {has}"
            dataset, data = settings.get("dataset"), settings.get("data")
            accepted = self.claims.data.get(str(dataset))
            if accepted is not None and data is not None and data not in accepted:
                return f"run on {data}, the paper has {dataset}"
        return ""


def numbers_of(claim: Claim, lookup: Lookup) -> Numbers | None:
    """Return our per-seed numbers for a claim; None where there are no records."""
    if claim.test["rule"] == "concordance":
        return _concordance(claim, lookup)
    if "sweep" in claim.ours:
        return _sweep(claim, lookup)
    if "pooled" in claim.ours:
        return _pooled(claim, lookup)
    if "experiment" not in claim.ours:
        return None
    first = lookup.find(claim.ours)
    if first is None:
        return None
    if claim.against is None:
        return Numbers(np.array(list(first.by_seed.values())), first.keys, first.bar)
    second = lookup.find(claim.against)
    if second is None:
        return None
    # The same seed is the same partition and the same initial model in both.
    common = [seed for seed in first.by_seed if seed in second.by_seed]
    difference = np.array([first.by_seed[seed] - second.by_seed[seed] for seed in common])
    return Numbers(difference, first.keys | second.keys, first.bar or second.bar)


def _sweep(claim: Claim, lookup: Lookup) -> Numbers | None:
    """Return one slope, or one difference of two steps, per seed of a sweep."""
    ((name, levels),) = claim.ours["sweep"].items()
    found = [f for level in levels if (f := lookup.find(claim.ours, {name: level})) is not None]
    if not found:
        return None
    keys = frozenset[str]().union(*(f.keys for f in found))
    if len(found) < len(levels):
        return Numbers(np.empty(0), keys, f"{len(found)} of {len(levels)} values of {name}")
    common = [s for s in found[0].by_seed if all(s in f.by_seed for f in found)]
    y = np.array([[f.by_seed[s] for f in found] for s in common]).reshape(-1, len(levels))
    if claim.test["rule"] == "taper":
        values = (y[:, 1] - y[:, 0]) - (y[:, -1] - y[:, -2])
    else:
        scale = _SCALES[claim.test.get("scale", "linear")]
        values = slopes(scale(np.asarray(levels, dtype=np.float64)), y)
    return Numbers(values, keys, next((f.bar for f in found if f.bar), ""))


def _pooled(claim: Claim, lookup: Lookup) -> Numbers | None:
    """Return one mean gain per seed, or scores [seeds, columns, rows], of several columns.

    A seed counts where it has run in every cell, so that no column weighs more in one than in
    another; all columns must be there, for the printed number is of all of them.
    """
    found = [[lookup.find(place) for place in column] for column in claim.ours["pooled"]]
    there = [f for column in found for f in column if f is not None]
    if not there:
        return None
    keys = frozenset[str]().union(*(f.keys for f in there))
    bar = next((f.bar for f in there if f.bar), "")
    complete = [[f for f in column if f is not None] for column in found if None not in column]
    if len(complete) < len(found):
        return Numbers(
            np.empty(0), keys, bar or f"{len(complete)} of {len(found)} settings on record"
        )
    seeds = sorted(set.intersection(*(set(f.by_seed) for f in there)))
    scores = np.array([[[f.by_seed[s] for f in line] for line in complete] for s in seeds])
    scores = scores.reshape(len(seeds), len(complete), len(complete[0]))
    if claim.test["rule"] == "mean_gain":
        return Numbers((scores[:, :, 0] - scores[:, :, 1]).mean(axis=1), keys, bar)
    if claim.test["rule"] == "best_share":
        return Numbers((scores.argmax(axis=2) == 0).mean(axis=1), keys, bar)
    return Numbers(scores, keys, bar)


def _concordance(claim: Claim, lookup: Lookup) -> Numbers | None:
    """Return scores [seeds, columns, methods] of the columns in which every method has run.

    Only the paper's own data sets take part.
    """
    methods = list(claim.ours["methods"])
    columns: dict[str, dict[str, list[str]]] = {}
    for experiment in claim.ours["experiments"]:
        for key in lookup.fitting(experiment, claim.ours["metric"], {}):
            settings = dict(lookup.settings[key])
            method = settings.pop("method", None)
            if method in methods and settings.get("dataset") in lookup.claims.data:
                place = {name: settings.get(name) for name in ("dataset", "alpha", "imbalance")}
                column = columns.setdefault(canonical_json([experiment, place]), {})
                column.setdefault(method, []).append(key)
    complete = [column for column in columns.values() if len(column) == len(methods)]
    if not complete:
        return None
    keys = [key for column in complete for group in column.values() for key in group]
    if len(complete) < claim.test["min_columns"]:
        return Numbers(np.empty(0), frozenset(keys), f"{len(complete)} complete columns")
    metric = claim.ours["metric"]
    merged = [
        [
            {s: v for key in column[m] for s, v in lookup.values[key, metric].items()}
            for m in methods
        ]
        for column in complete
    ]
    seeds = sorted(set.intersection(*(set(part) for column in merged for part in column)))
    scores = np.array([[[part[s] for part in column] for column in merged] for s in seeds])
    scores = scores.reshape(len(seeds), len(complete), len(methods))
    fine = np.isfinite(scores).all(axis=(1, 2))
    return Numbers(scores[fine], frozenset(keys), lookup.bar(keys, {}))
