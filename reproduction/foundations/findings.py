"""How often intervals hold the exact value, counted by ``python -m benchmarks.coverage``."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fedkit.intervals import Interval, mean_interval
from reproduction import ROOT
from reproduction import figures as plots


def coverage() -> Any:
    """A row per estimator, game and budget, but for those where few runs have an interval."""
    every = pd.read_json(ROOT / "results" / "coverage.json")
    return every[every.given >= 0.5]


def counted_often(frame: Any) -> Any:
    """Rows with the most runs: of single players the few runs of regressions tell too little."""
    return frame[frame.runs == frame.runs.max()]


def proxy_held(frame: Any) -> Interval:
    """How often, in percent, ProxySampling's intervals held the exact value, over games."""
    part = frame[frame.estimator == "ProxySampling"]
    return mean_interval(100 * part.groupby(["players", "game"]).held.mean().to_numpy())


def numbers() -> dict[str, Any]:
    """Return what pages quote, by name."""
    frame = coverage()
    many = counted_often(frame)
    least = 100 * many.groupby("estimator").least.min()
    budgets = frame.groupby("players").budget.agg(["min", "max"])
    return {
        "proxy-held": proxy_held(frame).text(0),
        "proxy-held-mean": f"{proxy_held(frame).mean:.0f}",
        "least-of": f"{100 * many.held.min():.0f}",
        "held-runs": int(frame.runs.max()),
        "held-fits": int(frame.runs.min()),
        "held-budgets": ", ".join(f"{a:,} to {b:,} ({n})" for n, a, b in budgets.itertuples()),
        "one-walks": f"{least['permutation']:.0f}",
        "one-draws": f"{least['Banzhaf, marginal']:.0f}",
    }


def held() -> plots.Shown:
    """Show how often 95% intervals held, by estimator and number of players."""
    frame = coverage()
    shown = 100 * frame.groupby(["estimator", "players"], sort=False).held.mean().unstack()
    shown.columns = [f"{n} players" for n in shown.columns]
    worst = frame.loc[frame.groupby("estimator").held.idxmin()].set_index("estimator")
    shown["least of all"], shown["on"] = 100 * worst.held, worst.game
    shown["of one player"] = 100 * counted_often(frame).groupby("estimator").least.min()
    return plots.table(
        shown.rename_axis(None),
        "How often, in percent, 95% intervals held the exact value: means over games and budgets, "
        "the least of any game and budget, and of any player in them. Blank where there were "
        "mostly fewer than ten walks, pairs or draws, which get no interval; ProxySampling of 20 "
        "players was not measured.",
        decimals=0,
    )
