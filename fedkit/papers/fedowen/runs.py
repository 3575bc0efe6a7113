"""One run of FedOwen's evaluation, and every estimator on the same rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkit.estimators import Estimator, estimate_many, shapley
from fedkit.federated.rounds import Probe
from fedkit.federated.valuers import Estimated, Round
from fedkit.games.game import TableGame, tabulate
from fedkit.games.valuation import Valuation
from fedkit.papers.common import accuracies, accuracy_curve, dataset, identity
from fedkit.papers.fedowen.settings import Setting, estimators, setting, simulate, strategy
from fedkit.records.cell import Cell
from fedkit.streams import Streams

__all__ = ["run_cell", "run_round_errors"]

#: of one table by each estimator
ESTIMATES = 50


def _exact_probe(s: Setting) -> Probe:
    """Measure the estimate's error inside the run: exact values of every few rounds."""
    valued = isinstance(strategy(s).value, Estimated)

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        result = {"error": np.nan, "correlation": np.nan}
        if valued and s.exact_every and (r.index + 1) % s.exact_every == 0:
            exact = shapley(r.game(normalised=s.normalised)).values
            size = np.abs(exact).mean()
            if size > 0:  # else nobody changes any utility, and there is nothing to miss
                result["error"] = float(np.sqrt(np.mean((valuation.values - exact) ** 2)) / size)
            if exact.std() > 0 and valuation.values.std() > 0:
                result["correlation"] = float(np.corrcoef(exact, valuation.values)[0, 1])
        return result

    return probe


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = setting(cell)
    history = simulate(s, cell.seeds, probe=_exact_probe(s), device=device, progress=progress)
    frame, clients = history.rounds_frame(), history.clients_frame()
    seconds = history.seconds["value"] / s.rounds / len(cell.seeds)
    results = []
    for seed in cell.seeds:
        rows, mine = frame[frame.seed == seed], clients[clients.seed == seed]
        share = mine.client.value_counts(normalize=True)
        weight = mine.groupby("round").weight
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    **accuracies(rows),
                    "error": float(rows.error.mean()),
                    "correlation": float(rows.correlation.mean()),
                    "evaluations": float(rows.evaluations.mean()),
                    "calls": float(rows.calls.mean()),
                    "clients_seen": int(mine.client.nunique()),
                    "effective_clients": float(1 / (share**2).sum()),
                    "weight_ratio": float((weight.max() / weight.min().clip(lower=1e-12)).median()),
                    "effective_participants": float(
                        (1 / mine.weight.pow(2).groupby(mine["round"]).sum()).mean()
                    ),
                    "value_seconds_per_round": seconds,
                },
                "series": accuracy_curve(rows),
                "data": identity(dataset(s.data)),
                "evaluations": int(rows.evaluations.sum()),
            }
        )
    return results


def run_round_errors(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Value the same rounds with every estimator, many times over.

    The federation runs under the cell's own method.  Every ``exact_every`` rounds the utilities
    of all coalitions are tabulated; each estimator then values that table `ESTIMATES` times at
    the budget N x M, and is compared with the exact values of the same table.
    """
    s = setting(cell)
    tables: dict[int, list[TableGame]] = {seed: [] for seed in cell.seeds}

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        if (r.index + 1) % s.exact_every == 0:
            tables[r.streams.seed].append(tabulate(r.game(normalised=s.normalised)))
        return {}

    simulate(s, cell.seeds, probe=probe, device=device, progress=progress)
    results = []
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        for method, estimator in estimators(s).items():
            scores = [_agreement(g, estimator, s, Streams(seed).child(t, method))
                      for t, g in enumerate(tables[seed])]  # fmt: skip
            for name in ("error", "correlation", "same_best"):
                metrics[f"{name}.{method}"] = float(np.nanmean([x[name] for x in scores]))
        results.append(
            {"seed": int(seed), "metrics": metrics, "series": {}, "data": identity(dataset(s.data))}
        )
    return results


def _agreement(
    game: TableGame, estimator: Estimator, s: Setting, streams: Streams
) -> dict[str, float]:
    """Relative error, correlation and agreement on the best participant, over estimates."""
    exact = shapley(game).values
    if not exact.any() or exact.std() == 0:
        return dict.fromkeys(("error", "correlation", "same_best"), np.nan)
    found = estimate_many(
        game, estimator, s.budget, [streams.child(i) for i in range(ESTIMATES)], count="calls"
    )
    values = np.stack([v.values for v in found])
    spread = values.std(axis=1) > 0
    return {
        "error": float(np.sqrt(((values - exact) ** 2).mean(axis=1)).mean() / np.abs(exact).mean()),
        "correlation": float(np.mean([np.corrcoef(v, exact)[0, 1] for v in values[spread]] or [0])),
        "same_best": float((values.argmax(axis=1) == exact.argmax()).mean()),
    }
