"""What the findings of all papers are made of: records, methods side by side, leads by seed.

``labels`` names the methods of a paper and puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fedkit.intervals import Interval, holm, paired_interval, paired_p_value, settled
from reproduction.claims import Claims, load_claims
from reproduction.plugins import is_plugin
from reproduction.records import Record, Store
from reproduction.verdicts import join


@dataclass(frozen=True)
class Evaluation:
    """The records of a paper at a profile, and the claims judged by them."""

    paper: ClassVar[str]
    records: str = "paper"
    store: Store = field(default_factory=Store)

    def __hash__(self) -> int:
        return id(self)

    @cache  # noqa: B019  (one or two evaluations in a process)
    def frame(self, experiment: str, profile: str = "") -> Any:
        """Return the metrics of an experiment, all readings."""
        profile = profile or self.records
        found = self.store.frame(self.paper, experiment, profile)
        if found.empty:
            raise ValueError(
                f"no record of {experiment} at profile {profile!r} in {self.store.root}; make it "
                f"with: fedkit run {self.paper} {experiment} --profile {profile}"
            )
        return found

    def series(self, experiment: str, profile: str = "", **settings: Any) -> Any:
        """Return the series of an experiment that have these settings."""
        self.frame(experiment, profile)  # says so where nothing is on record
        return where(self.store.series(self.paper, experiment, profile or self.records), **settings)

    @cached_property
    def entries(self) -> Claims:
        """The claims themselves, with the printed tables."""
        return load_claims(self.paper)

    @cached_property
    def claims(self) -> Any:
        """All claims with their verdicts, by name."""
        found = join(self.entries, self.store, profile=self.records)
        return found.set_index("claim", drop=False)

    def printed(self, claim: str) -> float:
        """Return a number of the paper; NaN where it has none."""
        found = self.entries.by_id.get(f"{self.paper}.{claim}")
        return np.nan if found is None or found.number is None else found.number

    def ours(self, claim: str) -> Interval:
        """Return our number for a claim."""
        return measured(self.claims.loc[f"{self.paper}.{claim}"])


def measured(claim: Any) -> Interval:
    """Our number for a claim, a row of :func:`reproduction.verdicts.join`."""
    return Interval(claim["mean"], claim["low"], claim["high"], int(claim["seeds"]))


def view(made: Callable[[Any], Any]) -> Any:
    """Make what an evaluation works out once, when it is first asked for."""
    return cached_property(made)


def where(frame: pd.DataFrame, **settings: Any) -> pd.DataFrame:
    """Keep the rows with these settings."""
    for name, value in settings.items() if len(frame) else ():  # without records, no columns
        frame = frame[frame[name] == value]
    return frame


def alike(frame: pd.DataFrame, setting: Any, fields: Iterable[str]) -> pd.DataFrame:
    """Keep the rows that have the same in these fields as a setting."""
    return where(frame, **{name: getattr(setting, name) for name in fields})


def table(rows: Mapping[Any, Mapping[str, Any]]) -> pd.DataFrame:
    """Make a table of rows by name, each a number or text by column."""
    return pd.DataFrame.from_dict(dict(rows), orient="index")


def by_method(frame: pd.DataFrame, metric: str = "accuracy", index: Any = "seed") -> pd.DataFrame:
    """Pivot one metric to a column per method and a row per seed (or seed and more)."""
    part = frame[frame.metric == metric]
    return part.pivot_table(index=index, columns="method", values="value")


def by_metric(frame: pd.DataFrame, prefix: str = "") -> pd.DataFrame:
    """Pivot to a row per seed and a column per metric that begins so, without its beginning."""
    part = frame[frame.metric.str.startswith(prefix)]
    wide = part.pivot(index="seed", columns="metric", values="value")
    return wide.rename(columns=lambda name: name.removeprefix(prefix))


def lead(wide: Any, a: str, b: str) -> Interval:
    """How much more a has than b, paired by seed."""
    return paired_interval(wide[a] - wide[b])


def intervals(
    cuts: Mapping[Any, Interval], printed: Mapping[Any, float] | None = None
) -> pd.DataFrame:
    """Make a table of intervals: columns mean, low, high, and paper where numbers are printed."""
    rows = {key: {"mean": i.mean, "low": i.low, "high": i.high} for key, i in cuts.items()}
    if printed is not None:
        for key, row in rows.items():
            row["paper"] = printed.get(key, np.nan)
    return table(rows)


def texts(cuts: Mapping[Any, Mapping[Any, Interval]], signed: bool = False) -> pd.DataFrame:
    """Write intervals by column and row as a table of texts."""
    return pd.DataFrame(cuts).map(lambda cut: cut.text(1, signed=signed))


def told(cuts: Mapping[str, Interval], digits: int, signed: bool = False) -> dict[str, str]:
    """Write intervals as pages quote them, by name."""
    return {name: i.text(digits, signed=signed).replace("-", "−") for name, i in cuts.items()}


def seeds_told(counts: Iterable[int]) -> str:
    """Say how many seeds stand behind numbers, but for those that have none: '5 to 10 seeds'."""
    some = [int(n) for n in counts if n > 0]
    low, high = min(some), max(some)
    return f"{low} seeds" if low == high else f"{low} to {high} seeds"


def machines_told(records: Iterable[Record]) -> str:
    """Say in a sentence on which processors recorded times were measured, where it is kept."""
    kept = [record.manifest.get("machine") for record in records]
    named = sorted({machine for machine in kept if machine})
    if not named:
        return "We did not record which processor this ran on."
    rest = f"; of {kept.count(None)} of {len(kept)} records it was not kept" * (None in kept)
    return f"Measured on {' and '.join(named)}{rest}."


def by_seed(
    frame: pd.DataFrame, labels: Mapping[str, str], metric: str = "accuracy", **settings: Any
) -> pd.DataFrame:
    """Pivot records with these settings to one row per seed and one column per method.

    The methods are those of `labels` in their order, then methods from outside; `frame` is from
    :meth:`reproduction.records.Store.frame`.
    """
    part = where(frame, metric=metric, **settings)
    if part.empty:
        raise ValueError(f"no record with metric {metric!r} and settings {settings}")
    if part.duplicated(["method", "seed"]).any():
        raise ValueError(f"settings {settings} leave several records per method; name more of them")
    wide = part.pivot(index="seed", columns="method", values="value")
    return wide[[m for m in labels if m in wide.columns] + [m for m in wide if is_plugin(m)]]


def gains(wide: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Difference of every method to one of them, paired by seed, where both have run.

    Index method; columns gain, low, high, p (Holm-adjusted over the table), seeds.
    """
    if reference not in wide:
        raise ValueError(f"{reference!r} has no record; there are {', '.join(wide.columns)}")
    others = [m for m in wide.columns if m != reference]
    rows, p_values = {}, []
    for method in others:
        # Rows may differ in their seeds; a difference is taken where both have run.
        pair = wide[[method, reference]].dropna().to_numpy(dtype=np.float64)
        difference = settled(pair[:, 0] - pair[:, 1], of=pair)
        p_values.append(paired_p_value(difference)[0])
        rows[method] = astuple(paired_interval(difference))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["gain", "low", "high", "seeds"])
    return table.assign(p=holm(p_values) if others else [])
