"""FedValue's security, leaks and times as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binomtest

from fedkit.fedvalue.protocol.attacks import ATTACKS
from fedkit.fedvalue.protocol.verification import best_shift, known_answers
from fedkit.intervals import Interval, mean_interval, slopes
from reproduction.fedvalue.security import PROTOCOLS
from reproduction.overviews import table, where

if TYPE_CHECKING:
    import pandas as pd

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = {"low": 2, "high": 9, "artificial_low": 1, "artificial_high": 50, "data": "example"}


def share(part: pd.DataFrame, metric: str = "deceived") -> Interval:
    """Return the share of trials with its exact 95% interval (Clopper and Pearson), all in %.

    Trials are independent within and between seeds and therefore pooled.
    """
    wide = part.pivot(index="seed", columns="metric", values="value")
    n, k = round(float(wide.trials.sum())), round(float((wide[metric] * wide.trials).sum()))
    ends = binomtest(k, n).proportion_ci(method="exact")
    return Interval(100 * k / n, 100 * ends.low, 100 * ends.high, n)


def attacks(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of counts (%) in which the task party is deceived: attack by protocol."""
    groups = dict(list(where(frame, **_PLAIN).groupby(["attack", "protocol"])))
    return table({
        a: {p: share(groups[a, p]).text(1) if (a, p) in groups else "-" for p in PROTOCOLS}
        for a in ATTACKS
    })  # fmt: skip


def caught(frame: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Which check ended the count (% of trials), attack by attack; "deceived" passed them all."""
    plain = where(frame, **_PLAIN, protocol=protocol)
    checks = ["seal", "well-formed", "non-negativity", "divisibility", "total", "margin",
              "consistency", "unchanged", "deceived"]  # fmt: skip
    rows = {
        attack: {c: share(part, c).mean for c in checks if c in set(part.metric)}
        for attack in ATTACKS
        if len(part := where(plain, attack=attack))
    }
    found = table(rows).reindex(index=[*rows], columns=checks).fillna(0.0)  # in this order
    return found.loc[:, (found > 0).any()]


def bets(frame: pd.DataFrame) -> pd.DataFrame:
    """The best bet on one count, printed protocol: measured, the paper's bounds, and ours (%)."""
    part = where(frame, protocol="printed", attack="best bet")
    rows = {}
    for _, cut in part.groupby(["low", "high"]):
        low, high = (int(cut[end].iloc[0]) for end in ("low", "high"))
        value = cut.groupby("metric").value.mean()
        power = str(round(np.log(value["bound.paper"]) / np.log(low)))  # too small for a percentage
        rows[f"{low}" if low == high else f"{low} to {high}"] = {
            "measured": share(cut).text(1),
            "the server's best (ours)": 100 * best_shift((low, high), 2)[0],
            "one count (paper's proof)": f"{100 * value['bound.per_cell']:.1f}",
            "Proposition 2": f"100·{low}{power.translate(_RAISED)}",
        }
    return table(rows).rename_axis("q")


def known(frame: pd.DataFrame, data: str = "label") -> pd.DataFrame:
    """Known answers: the attacker's best case, measured and bound.

    `data` is "label", two task cells of about equal size, or "cells", 25 of different sizes.
    """
    rows = {}
    for _, cut in frame[frame.data == data].groupby("artificial_low"):
        value, deceived = cut.groupby("metric").value.mean(), share(cut)
        people, n = (int(cut[name].iloc[0]) for name in ("people", "artificial_low"))
        rows[n] = {
            "smallest share f (q = 2)": value["share_known"],
            "overall share": n / (2 * people + n),
            "deceived (%)": deceived.mean, "low": deceived.low, "high": deceived.high,
            "bound (%)": 100 * value["bound.known_answers"],
            "by the overall share (%)": 100 * known_answers([people], (2, 3), (n, n)),
        }  # fmt: skip
    return table(rows).rename_axis("artificial IDs")


def leaks(frame: pd.DataFrame, **settings: object) -> pd.DataFrame:
    """What the task party knows or guesses, and what a defence costs: means over the seeds."""
    wide = where(frame, **settings).pivot_table(
        index=["dataset", "parties", "features", "defence", "level"], columns="metric",
        values="value",
    )  # fmt: skip
    names = {
        "unique": "alone in their cell (%)", "certain": "certain (%)",
        "guessed": "best guess right (%)", "blind": "right without counts (%)",
        "error": "error of values (%)", "rank": "rank correlation",
    }  # fmt: skip
    wide = wide.reindex(columns=list(names)).rename(columns=names)
    return wide * [100 if "%" in str(name) else 1 for name in wide]


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Fit how the time grows: the exponent of a power, and the factor per step, with intervals.

    The power is fitted to the upper half of the values, where the fixed part has faded, and only
    to values that every seed ran.  Each seed gives one fit; intervals are over the seeds: they show
    how runs differ, and not how far the times are from a power.
    """
    rows = {}
    seconds = frame[frame.metric == "core_seconds"]
    present = set(zip(seconds.protocol, seconds.varied, strict=True))
    # Figure 6, then Figure 7
    order = ("parties", "features", "rows", "duplications", "iterations", "artificial")
    for protocol in sorted({p for p, _ in present}):
        for varied in (v for v in order if (protocol, v) in present):
            part = where(seconds, protocol=protocol, varied=varied)
            wide = part.pivot(index="seed", columns=varied, values="value").dropna(axis=1)
            x, took = wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)
            upper = slice(max(0, min(len(x) // 2, len(x) - 3)), None)
            power = mean_interval(slopes(np.log(x[upper]), np.log(took[:, upper])))
            factor = mean_interval(np.exp(slopes(x, np.log(took))))
            rows[protocol, varied] = {
                "from": int(x[0]), "to": int(x[-1]), "runs": len(wide),
                "exponent of the power": power.text(),
                "factor per step": factor.text() if varied in ("parties", "features") else "",
            }  # fmt: skip
    return table(rows).rename_axis(["protocol", "varied"])
