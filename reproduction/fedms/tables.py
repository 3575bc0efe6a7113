"""FedMS's results as tables: readings of the paper beside each other, the study, the tuning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import bounded_interval, paired_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.fedms.settings import (
    CHANGES,
    PAPER_METHODS,
    READINGS,
    SCALES,
    STUDIED,
    VARIANTS,
)
from reproduction.verdicts import REPRODUCED, UNJUDGED, join

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.records import Store

LABELS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "poc": "Power-of-Choice",
    "fedemd": "FedEMD",
    "s-fedavg": "S-FedAvg",
    "s-fedavg-percent": "S-FedAvg, percent",
    "s-fedavg-shuffled": "control: S-FedAvg, percent, shuffled",
    "greedyfed": "GreedyFed",
    "greedyfed-loss": "GreedyFed, by the loss",
    "fedms": "FedMS (coreset, percent)",
    "fedms-printed": "FedMS, all aggregated",
    "fedms-fraction": "FedMS, fractions",
    "fedms-kept": "FedMS, locked rule",
    "fedms-equal": "FedMS, classes weighed alike",
    "fedms-printed-equal": "FedMS, all aggregated, classes alike",
    "uniform-coreset": "control: uniform selection, coreset",
    "oracle": "oracle (knows who is who)",
}

by_seed = partial(overviews.by_seed, labels=LABELS)
overview = partial(overviews.overview, labels=LABELS, references=("fedavg", "uniform-coreset"))


def reading_name(local: str, owned: float) -> str:
    """Say in words how "5 local rounds" and a Maverick's data are read."""
    share = "its whole class" if owned == 1 else f"{owned:.0%} of its class"
    return f"5 {local}, a Maverick owns {share}"


def readings(store: Store) -> pd.DataFrame:
    """Judge Table 1 on MNIST under every reading of what the paper leaves open.

    Index: the readings on record; columns ``cells`` (of 21), ``mean distance`` to the printed
    numbers in points, the same over the cells that all these readings have, ``within 3 points``,
    ``reproduced``, and ``FedMS first`` (scenarios in which its mean is the highest of the paper's
    methods, of those on record).
    """
    pd = need("pandas", "run")
    claims = load_claims("fedms")
    places = [dict(c.place) | {"claim": c.id} for c in claims.claims]
    asked = pd.DataFrame([p for p in places if p.get("table") == "t1" and p["dataset"] == "mnist"])
    rows: dict[str, list[Any]] = {}
    distances: dict[str, Any] = {}
    for local, owned in READINGS:
        changed = replace(claims, protocol={**claims.protocol, "local": local, "owned": owned})
        verdicts = join(changed, store)[["claim", "paper", "mean", "verdict"]]
        cells = judged(asked.merge(verdicts, on="claim")).set_index(["scenario", "row"])
        if cells.empty:
            continue
        name = reading_name(local, owned)
        off = distances[name] = (cells["mean"] - cells.paper.astype(float)).abs()
        whole = cells["mean"].unstack().reindex(columns=PAPER_METHODS).dropna()
        first = int((whole.idxmax(axis=1) == "fedms").sum()) if len(whole) else 0
        rows[name] = [
            len(cells),
            off.mean(),
            int((off <= 3).sum()),
            int((cells.verdict == REPRODUCED).sum()),
            f"{first} of {len(whole)}" if len(whole) else "–",
        ]
    columns = ["cells", "mean distance", "within 3 points", "reproduced", "FedMS first"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    common = pd.DataFrame(distances).dropna()
    table.insert(2, f"on the {len(common)} common cells", common.mean() if len(common) else np.nan)
    return table


def by_variant(store: Store) -> pd.DataFrame:
    """Judge all claims on FedMS with another reading of the method in its place.

    One row per claim and reading: ``claim``, ``mean``, ``verdict`` and ``reading``, the name of a
    method.  Claims that hold by construction, and those that are not judged, are left out.
    """
    claims = load_claims("fedms")

    def of(method: str, asked: Any) -> Any:
        if isinstance(asked, dict):
            return {
                k: method if (k, v) == ("method", "fedms") else of(method, v)
                for k, v in asked.items()
            }
        return [of(method, each) for each in asked] if isinstance(asked, list) else asked

    about = [c for c in claims.claims if of("", [c.ours, c.against]) != [c.ours, c.against]]
    frames = []
    for method in ("fedms", *VARIANTS):
        read = [replace(c, ours=of(method, c.ours), against=of(method, c.against)) for c in about]
        frame = join(replace(claims, claims=tuple(read)), store)
        frame = frame[~frame.verdict.isin(UNJUDGED) & ~frame.by_construction]
        frames.append(frame[["claim", "mean", "verdict"]].assign(reading=method))
    return need("pandas", "run").concat(frames, ignore_index=True)


def study(frame: pd.DataFrame, profile: str = "paper") -> pd.DataFrame:
    """One row per change of the study, and what FedMS gains in it.

    Index: the changes on record; a column of mean accuracy per method, then ``gain`` of FedMS over
    uniform selection with the same coreset, ``low`` and ``high`` (paired by seed, 95%), and
    ``Maverick rate`` of FedMS in percent of the rounds.
    """
    fields = set[str]().union(*CHANGES.values())
    rows: dict[str, dict[str, float]] = {}
    for name, change in CHANGES.items():
        part = overviews.alike(frame, replace(SCALES[profile].usual(), **change), fields)
        if "fedms" not in set(part.method) or name in rows:
            continue
        wide = by_seed(part)
        gain = paired_interval(wide["fedms"] - wide["uniform-coreset"])
        mine = part[(part.method == "fedms") & (part.metric == "rate.maverick")]
        rows[name] = {
            **{LABELS[m]: float(wide[m].mean()) for m in STUDIED if m in wide},
            "gain": gain.mean,
            "low": gain.low,
            "high": gain.high,
            "Maverick rate": float(mine.value.mean()),
        }
    return overviews.table(rows)


TUNED = ["lr", "mu", "poc_decay", "emd_beta", "sv_alpha", "alpha", "temperature"]


def best_on_validation(frame: pd.DataFrame, method: str) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the hyper-parameters of a method by mean validation accuracy, and its rows there.

    Its points are compared on the seeds that all of them have, if there are any.
    """
    mine = frame[frame.method == method]
    varied = [f for f in TUNED if mine[f].nunique() > 1] or ["lr"]
    seen = mine[mine.metric == "accuracy_validation"].pivot_table(
        index=varied, columns="seed", values="value"
    )
    shared = seen.dropna(axis=1)
    best = (shared if shared.shape[1] else seen).mean(axis=1).round(9).idxmax()  # ties: the first
    chosen = dict(zip(varied, best if isinstance(best, tuple) else (best,), strict=True))
    return chosen, overviews.where(mine, **chosen)


def tuned_on_validation(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose every method's hyper-parameters by mean validation accuracy, and test those.

    Index: methods; columns ``points`` (tried), ``chosen``, ``inside`` (the chosen learning rate is
    neither end of those tried), and the test accuracy at the chosen point with its 95% interval and
    the number of its seeds: ``mean``, ``low``, ``high``, ``seeds``.
    """
    rows = {}
    for method in (m for m in LABELS if m in set(frame.method)):
        chosen, there = best_on_validation(frame, method)
        mine = frame[frame.method == method]
        rates = sorted(set(mine.lr))
        tested = bounded_interval(there[there.metric == "accuracy"].value.to_numpy(), 0, 100)
        rows[LABELS[method]] = {
            "points": len(mine[list(chosen)].drop_duplicates()),
            "chosen": ", ".join(f"{f} {v:g}" for f, v in chosen.items()),
            "inside": bool(rates[0] < there.lr.iloc[0] < rates[-1]),
            "mean": tested.mean,
            "low": tested.low,
            "high": tested.high,
            "seeds": tested.n,
        }
    return overviews.table(rows)


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the claims that have a verdict of their own."""
    return frame[~frame.verdict.isin(UNJUDGED)]
