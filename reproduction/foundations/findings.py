"""What the page on foundations says in numbers: how often intervals hold, and two contests.

Intervals are counted by ``python -m benchmarks.coverage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

import fedkit as fk
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


def without_jumps(frame: Any) -> Any:
    """Rows of the games in which no large gain is rare: not of gloves, and of no vote."""
    return frame[~frame.game.isin(["gloves", "vote"])]


def proxy_held(frame: Any) -> Interval:
    """How often, in percent, ProxySampling's intervals held the exact value, over games."""
    part = frame[frame.estimator == "ProxySampling"]
    return mean_interval(100 * part.groupby(["players", "game"]).held.mean().to_numpy())


def numbers() -> dict[str, Any]:
    """Return what pages quote, by name."""
    frame = coverage()
    many = counted_often(without_jumps(frame))
    least = 100 * many.groupby("estimator").least.min()
    gloves = 100 * frame[frame.game == "gloves"].groupby("estimator").held.min()
    return {
        "proxy-held": proxy_held(frame).text(0),
        "proxy-held-mean": f"{proxy_held(frame).mean:.0f}",
        "least-of": f"{100 * many.held.min():.0f}",
        "held-runs": int(frame.runs.max()),
        "held-fits": int(frame.runs.min()),
        "one-walks": f"{least['permutation']:.0f}",
        "one-draws": f"{least['Banzhaf, marginal']:.0f}",
        "gloves-walks": f"{gloves['permutation']:.0f}",
        "gloves-proxy": f"{gloves['ProxySampling']:.0f}",
        "gloves-draws": f"{gloves['Banzhaf, marginal']:.0f}",
    }


def relative_error(found: Any, exact: Any) -> float:
    """Root mean square of the errors, as a share of the mean absolute value."""
    return float(np.sqrt(np.mean((found - exact) ** 2)) / np.abs(exact).mean())


def corrected(
    game: fk.Game, exact: Any, sizes: tuple[int, ...], seed: int, steps: Mapping[str, Any]
) -> plots.Shown:
    """Root mean squared error of ten values from 99 evaluations of a real round, in percent of the
    mean absolute value.
    """
    walks, regression = (
        fk.estimate(game, estimator, 99, seed).values
        for estimator in (fk.PermutationSampling(), fk.ProxySampling(sizes))
    )
    tried = {"permutations": walks, **steps, "ProxySampling": regression}
    shown = {name: 100 * relative_error(found, exact) for name, found in tried.items()}
    assert shown["with what is kept of it"] < shown["permutations"]
    caption = " ".join((corrected.__doc__ or "").split())
    return plots.table(pd.DataFrame({"error (%)": shown}), caption, decimals=1)


def with_margins(game: fk.Game, estimator: Any, seeds: Iterable[int]) -> dict[str, Any]:
    """Error of an estimator that sees a round's margins, and of one that sees accuracies alone."""
    counted = fk.tabulate(game)
    exact = fk.shapley(counted).values
    margins, blind = (
        100 * np.array([
            relative_error(e.values, exact)
            for e in fk.estimate_many(asked, estimator, 240, seeds)
        ])
        for asked in (game, counted)
    )  # fmt: skip
    cut = mean_interval(margins)
    assert cut.high < blind.mean()
    return {"margin-error": cut.text(1), "blind-error": float(blind.mean())}
