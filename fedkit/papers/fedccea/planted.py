"""Who finds the clients with planted noise: beside the same clients when all are clean.

Which clients are noisy is fixed, and they need not be like the others: where classes are few,
theirs may be held by others too.  Then they are below the others without any noise, so what counts
is the gain over that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import Interval, mean_interval, paired_interval
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.settings import FITS, METHODS, PARTS
from fedkit.papers.fedccea.tables import (
    LABELS,
    SHORT,
    places,
    pool_name,
    pooled,
    seed_text,
    setting_name,
)
from fedkit.papers.separation import chance_above

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "all_clean", "decided_leads", "equal_quality_table", "parts_table", "planted_table",
    "pooled_gains",
]  # fmt: skip


def all_clean(series: pd.DataFrame) -> pd.DataFrame:
    """Probability that the clients that stay clean are above those that others' runs make noisy.

    Parameters
    ----------
    series : DataFrame
        Series of the experiment ``contribution``; its clean settings count.

    Returns
    -------
    DataFrame
        Index: data set, distribution and seed; one column per method of METHODS.
    """
    pd = need("pandas", "run")
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    clean = series[(series.noise == "none") & series.series.isin([f"value.{m}" for m in METHODS])]
    place = ["dataset", "distribution", "seed"]
    for (*where, name, share), part in clean.groupby([*place, "series", "noisy"]):
        values = part.sort_values("index").value.to_numpy()
        first = len(values) - round(float(str(share)) * len(values))  # as Setting.noisy_clients
        row = rows.setdefault(tuple(where), dict.fromkeys(METHODS, np.nan))
        row[str(name).removeprefix("value.")] = chance_above(values[:first], values[first:])
    found = pd.DataFrame.from_dict(rows, orient="index", columns=list(METHODS))
    found.index = pd.MultiIndex.from_tuples(rows, names=place)
    return found


def _gains(
    seeds: pd.DataFrame, place: tuple[str, str, str], clean: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Per method: with noise, all clean, and the gain; one row per seed, NaN where missing."""
    pd = need("pandas", "run")
    base = clean.reindex([(*place[:2], seed) for seed in seeds.index]).set_axis(seeds.index)
    found = {}
    for m in METHODS:
        noisy = seeds[f"auc.{m}"] if f"auc.{m}" in seeds else pd.Series(np.nan, seeds.index)
        both = pd.DataFrame({"noisy": noisy, "clean": base[m]})
        found[m] = both.assign(gain=both.noisy - both.clean)
    return found


def _gain(differences: pd.Series[float]) -> str:
    return paired_interval(differences).within(-1.0, 1.0).text(2)


def planted_table(frame: pd.DataFrame, series: pd.DataFrame) -> pd.DataFrame:
    """Probability that a clean client is above a noisy one, and how much of it is due to the noise.

    Parameters
    ----------
    frame, series : DataFrame
        Metrics and series of the experiment ``contribution``.

    Returns
    -------
    DataFrame
        One row per noisy setting and method.
    """
    pd = need("pandas", "run")
    rows, clean = {}, all_clean(series)
    for place, seeds in places(frame):
        if place[2] == "none":
            continue
        for m, both in _gains(seeds, place, clean).items():
            rows[setting_name(*place), LABELS[m]] = {
                "seeds": str(len(seeds)),
                "with noise": seed_text(both, "noisy", 2, (0.0, 1.0)),
                "the same clients, all clean": seed_text(both, "clean", 2, (0.0, 1.0)),
                "gain": _gain(both.gain),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def pooled_gains(frame: pd.DataFrame, series: pd.DataFrame) -> pd.DataFrame:
    """The probability and the gain, pooled: a seed's mean over noisy settings with all seeds.

    Parameters
    ----------
    frame, series : DataFrame
        As in :func:`planted_table`.

    Returns
    -------
    DataFrame
        Index: data set and distribution with the number of settings, and "with noise" or "gain";
        columns: methods, and the leads of FedCCEA's readings over those who retrain, paired by
        seed, with 95% t-intervals over the seeds.  No row for one such setting, or one seed.
    """
    pd = need("pandas", "run")
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, mean in _pools(frame, series):
        for kind, title in (("noisy", "with noise"), ("gain", "gain")):
            one = {m: mean[m, kind] for m in METHODS}
            least = 0.0 if kind == "noisy" else -1.0
            rows[name, title] = {
                LABELS[m]: mean_interval(x).within(least, 1.0).text(2) for m, x in one.items()
            } | {f"{a}, over {b}": cut.text(2) for (a, b), cut in _leads(mean, kind).items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def decided_leads(
    frame: pd.DataFrame, series: pd.DataFrame
) -> dict[tuple[str, str, str], tuple[Interval, Interval]]:
    """Find the pooled leads on which probability and gain agree: both leave out 0, on one side.

    Parameters
    ----------
    frame, series : DataFrame
        As in :func:`planted_table`.

    Returns
    -------
    dict
        By pool, reading and rival: the lead in probability, and in gain.
    """
    found = {}
    for name, mean in _pools(frame, series):
        gains = _leads(mean, "gain")
        for pair, noisy in _leads(mean, "noisy").items():
            cuts = noisy, gains[pair]
            if all(cut.low > 0 for cut in cuts) or all(cut.high < 0 for cut in cuts):
                found[name, *pair] = cuts
    return found


def _leads(mean: pd.DataFrame, kind: str) -> dict[tuple[str, str], Interval]:
    """Leads of FedCCEA's readings over those who retrain, paired by seed."""
    return {
        (SHORT[ours], SHORT[m]): paired_interval(mean[ours, kind] - mean[m, kind])
        for ours in FITS
        for m in ("tmc-sv", "loo")
    }


def _pools(frame: pd.DataFrame, series: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    pd = need("pandas", "run")
    clean = all_clean(series)
    parts = (
        (pool_name(*place[:2]), pd.concat(_gains(seeds, place, clean), axis=1).dropna())
        for place, seeds in places(frame)
        if place[2] != "none"
    )
    return pooled(parts)


def equal_quality_table(frame: pd.DataFrame, series: pd.DataFrame) -> pd.DataFrame:
    """What TMC-SV trains to find the noisy clients as well as FedCCEA does with all simulations.

    Parameters
    ----------
    frame, series : DataFrame
        As in :func:`planted_table`.

    Returns
    -------
    DataFrame
        One row per noisy setting; costs in federations with all data, means over the seeds.  TMC-SV
        is on record at four budgets, of which the first that is as good counts; a dash where what
        is to be reached is a half at most, which a coin has.
    """
    pd = need("pandas", "run")
    rows, clean = {}, all_clean(series)
    for place, seeds in places(frame):
        means = seeds.mean()
        if place[2] == "none" or "auc.tmc-sv" not in means:
            continue
        row = {"seeds": str(len(seeds)), "simulations trained": f"{means['trained.fedccea']:.1f}"}
        gains = _gains(seeds, place, clean)
        for m in (*FITS, "tmc-sv", "loo"):
            row[f"{SHORT[m]} (gain)"] = f"{means[f'auc.{m}']:.2f} ({gains[m].gain.mean():+.2f})"
        for m in FITS:
            spent = [
                means[f"trained.tmc-sv{end}"]
                for end in (*(f".{share:g}" for share in PARTS), "")
                if means[f"auc.tmc-sv{end}"] >= means[f"auc.{m}"]
            ]
            most = means["trained.tmc-sv"]
            words = f"{min(spent):.1f}" if spent else f"not with {most:.1f}"
            row[f"TMC-SV as good as {SHORT[m]} with"] = "–" if means[f"auc.{m}"] <= 0.5 else words
        better = [SHORT[m] for m in FITS if means["auc.loo"] >= means[f"auc.{m}"]]
        row |= {"LOO trained": f"{means['trained.loo']:.1f}"}
        row |= {"LOO is as good as": ", ".join(better) or "neither"}
        rows[setting_name(*place)] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def parts_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Chance of a clean client above a noisy one, by the share of the budget that is spent.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` with noisy clients.

    Returns
    -------
    DataFrame
        One row per setting and share; what the simulations, and TMC-SV, trained for it stands
        beside it, in federations.
    """
    pd = need("pandas", "run")
    rows = {}
    for place, seeds in places(frame):
        shares = {f".{share:g}": f"{share:.0%}" for share in PARTS} | {"": "all"}
        for end, title in shares.items():
            sampled = {SHORT[m]: f"auc.{m}{end}" for m in (*FITS, "tmc-sv")}
            others = {} if end else {SHORT[m]: f"auc.{m}" for m in ("loo", *READINGS)}
            found = {
                name: seed_text(seeds, k, 2, (0.0, 1.0)) for name, k in (sampled | others).items()
            }
            trained = {
                "simulations trained": f"trained.fedccea{end}",
                "TMC-SV trained": f"trained.tmc-sv{end}",
            }
            found |= {
                name: f"{seeds[metric].mean():.1f}" if metric in seeds else "–"
                for name, metric in trained.items()
            }
            rows[setting_name(*place), title] = {"seeds": str(len(seeds))} | found
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")
