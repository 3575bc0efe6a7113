"""FedValue's security, leaks and times as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedkit.extras import need
from fedkit.fedvalue.protocol.attacks import ATTACKS
from fedkit.fedvalue.protocol.bounds import best_shift, known_answers
from fedkit.intervals import mean_interval, slopes
from fedkit.papers.fedvalue.security import PROTOCOLS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["attacks", "bets", "caught", "growth", "known", "leaks", "share"]

_PLAIN = {"low": 2, "high": 9, "artificial_low": 1, "artificial_high": 50, "data": "example"}

#: Figure 6, then Figure 7
_ORDER = ["parties", "features", "rows", "duplications", "iterations", "artificial"]


def share(part: pd.DataFrame, metric: str = "deceived") -> tuple[float, float, float]:
    """Return the share of trials with its exact 95% interval (Clopper and Pearson), all in %.

    Trials are independent within and between seeds and therefore pooled.
    """
    from scipy.stats import binomtest

    trials = part[part.metric == "trials"].set_index("seed").value
    hits = part[part.metric == metric].set_index("seed").value
    n = round(float(trials.sum()))
    k = round(float((hits * trials.reindex(hits.index)).sum()))
    interval = binomtest(k, n).proportion_ci(method="exact")
    return 100 * k / n, 100 * interval.low, 100 * interval.high


def _text(numbers: tuple[float, float, float]) -> str:
    return f"{numbers[0]:.1f} [{numbers[1]:.1f}, {numbers[2]:.1f}]"


def _where(frame: pd.DataFrame, **settings: object) -> pd.DataFrame:
    for name, value in settings.items():
        frame = frame[frame[name] == value]
    return frame


def attacks(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of counts (%) in which the task party is deceived: attack by protocol."""
    pd = need("pandas", "run")
    plain = _where(frame, **_PLAIN)
    rows = {
        attack: {
            protocol: _text(share(part))
            for protocol in PROTOCOLS
            if len(part := _where(plain, attack=attack, protocol=protocol))
        }
        for attack in ATTACKS
    }
    return pd.DataFrame.from_dict(rows, orient="index").reindex(columns=list(PROTOCOLS)).fillna("-")


def caught(frame: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Which check ended the count (% of trials), attack by attack; "deceived" passed them all."""
    pd = need("pandas", "run")
    plain = _where(frame, **_PLAIN, protocol=protocol)
    checks = ["seal", "well-formed", "non-negativity", "divisibility", "total", "margin",
              "consistency", "unchanged", "deceived"]  # fmt: skip
    rows = {
        attack: {c: share(part, c)[0] for c in checks if c in set(part.metric)}
        for attack in ATTACKS
        if len(part := _where(plain, attack=attack))
    }
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(index=list(rows), columns=checks)
    table = table.fillna(0.0)
    return table.loc[:, (table > 0).any()]


def bets(frame: pd.DataFrame) -> pd.DataFrame:
    """The best bet on one count, printed protocol: measured, the paper's bounds, and ours (%)."""
    pd = need("pandas", "run")
    part = _where(frame, protocol="printed", attack="best bet")
    rows = {}
    for low, high in sorted({(int(a), int(b)) for a, b in zip(part.low, part.high, strict=True)}):
        cut = _where(part, low=low, high=high)
        value = cut.groupby("metric").value.mean()
        rows[f"{low}" if low == high else f"{low} to {high}"] = {
            "measured": _text(share(cut)),
            "the server's best (ours)": 100 * best_shift((low, high), 2)[0],
            "one count (paper's proof)": f"{100 * value['bound.per_cell']:.1f}",
            "Proposition 2": f"{100 * value['bound.paper']:.0e}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("q")


def known(frame: pd.DataFrame, data: str = "label") -> pd.DataFrame:
    """Known answers: the attacker's best case, measured and bound.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment.
    data : {"label", "cells"}
        Two task cells of about equal size, or 25 of different sizes.
    """
    part = frame[frame.data == data]
    rows = []
    for extra in sorted({int(n) for n in part.artificial_low}):
        cut = part[part.artificial_low == extra]
        value = cut.groupby("metric").value.mean()
        mean, low, high = share(cut)
        people = int(cut.people.iloc[0])
        rows.append(
            {
                "artificial IDs": extra,
                "smallest share f (q = 2)": value["share_known"],
                "overall share": extra / (2 * people + extra),
                "deceived (%)": mean, "low": low, "high": high,
                "bound (%)": 100 * value["bound.known_answers"],
                "by the overall share (%)": 100 * known_answers([people], (2, 3), (extra, extra)),
            }
        )  # fmt: skip
    return need("pandas", "run").DataFrame(rows).set_index("artificial IDs")


def leaks(frame: pd.DataFrame, **settings: object) -> pd.DataFrame:
    """What the task party concludes, and what a defence costs: means over the seeds."""
    part = _where(frame, **settings)
    wide = part.pivot_table(
        index=["dataset", "parties", "features", "defence", "level"], columns="metric",
        values="value", aggfunc="mean",
    )  # fmt: skip
    names = {
        "unique": "alone in their cell (%)", "claimed": "concluded (%)",
        "right": "of these right (%)", "guess": "right by guessing (%)",
        "revealed": "revealed (%)", "error": "error of values (%)", "rank": "rank correlation",
    }  # fmt: skip
    wide = wide.reindex(columns=list(names)).rename(columns=names)
    percent = [name for name in names.values() if "%" in name]
    wide[percent] *= 100
    return wide


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Fit how the time grows: the exponent of a power, and the factor per step, with intervals.

    The power is fitted to the upper half of the values, where the fixed part has faded, and only
    to values that every seed ran.  Each seed gives one fit; intervals are over the seeds: they show
    how runs differ, and not how far the times are from a power.
    """
    rows = {}
    seconds = frame[frame.metric == "core_seconds"]
    pairs = set(zip(seconds.protocol, seconds.varied, strict=True))
    for protocol, varied in sorted(pairs, key=lambda p: (p[0], _ORDER.index(p[1]))):
        part = _where(seconds, protocol=protocol, varied=varied)
        wide = part.pivot(index="seed", columns=varied, values="value")
        wide = wide.dropna(axis=1)
        x, took = wide.columns.to_numpy(dtype=np.float64), wide.to_numpy(dtype=np.float64)
        upper = slice(max(0, min(len(x) // 2, len(x) - 3)), None)
        power = mean_interval(slopes(np.log(x[upper]), np.log(took[:, upper])))
        factor = mean_interval(np.exp(slopes(x, np.log(took))))
        few = varied in ("parties", "features")
        rows[protocol, varied] = {
            "from": int(x[0]), "to": int(x[-1]), "runs": len(wide),
            "exponent of the power": f"{power.mean:.2f} [{power.low:.2f}, {power.high:.2f}]",
            "factor per step": f"{factor.mean:.2f} [{factor.low:.2f}, {factor.high:.2f}]"
            if few else "",
        }  # fmt: skip
    table = need("pandas", "run").DataFrame.from_dict(rows, orient="index")
    table.index.names = ["protocol", "varied"]
    return table
