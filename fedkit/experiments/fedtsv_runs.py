"""One run of FedTSV's evaluation: curves, final weights, and how well they tell clients apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.aggregation import Aggregation
from fedkit.coalitions import Evaluator
from fedkit.contribution import Round
from fedkit.experiments import Cell
from fedkit.experiments.fedtsv import (
    KINDS,
    Setting,
    federation,
    identity,
    setting,
    simulate,
    strategy,
)
from fedkit.experiments.separation import chance_above
from fedkit.federation import Probe, Weigh
from fedkit.models import build
from fedkit.partition import Federation
from fedkit.selection import ClientTable
from fedkit.valuation import Valuation

__all__ = ["run_cell"]

FloatArray = npt.NDArray[np.float64]
#: kinds of clients, of which the first should weigh more
PAIRS = (("iid", "malicious"), ("skewed", "malicious"), ("iid", "skewed"))


class _Watch:
    """An aggregation that keeps hold of the tables it has seen, one per replicate."""

    def __init__(self, rule: Aggregation | Weigh) -> None:
        self.rule, self.tables = rule, list[ClientTable]()

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        if not any(clients is seen for seen in self.tables):
            self.tables.append(clients)
        if callable(self.rule):
            return self.rule(r, valuation, clients)
        return self.rule.weights(valuation.values, r.sizes)


def final_weights(s: Setting, table: ClientTable) -> FloatArray:
    """Weights of all clients after the last round: max(c, 0) over its sum (Figure 2)."""
    if s.method == "fedavg":
        return np.full(s.clients, 1 / s.clients)
    if s.method == "oracle":
        good = (s.kinds() != KINDS.index("malicious")).astype(np.float64)
        return good / good.sum()
    positive = np.maximum(table.values, 0.0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(s.clients, 1 / s.clients)


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = setting(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    rows = strategy(s)
    watch = _Watch(rows.aggregate)
    history = simulate(
        s, federations, cell.seeds, rows=replace(rows, aggregate=watch),
        probe=_losses(s, dict(zip(cell.seeds, federations, strict=True)), device),
        device=device, progress=progress,
    )  # fmt: skip
    frame, clients = history.rounds_frame(), history.clients_frame()
    seconds = {k: v / s.rounds / len(cell.seeds) for k, v in history.seconds.items()}
    kinds = s.kinds()
    results = []
    for seed, table in zip(cell.seeds, watch.tables, strict=True):
        mine = frame[frame.seed == seed]
        tested, lost = mine[mine.accuracy.notna()], mine[mine.test_loss.notna()]
        part = clients[clients.seed == seed]
        late = part[part["round"] > s.rounds // 2]
        bad = late[kinds[late.client.to_numpy()] == KINDS.index("malicious")]
        weights, seen = final_weights(s, table), table.counts > 0
        score = weights if s.method in ("fedavg", "oracle") else table.values
        groups = {kind: score[(kinds == j) & seen] for j, kind in enumerate(KINDS)}
        last = tested[tested["round"] > s.rounds * 3 // 4].accuracy
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    "accuracy": 100 * float(tested.accuracy.iloc[-1]),
                    "accuracy_late": 100 * float(last.mean()),
                    "accuracy_lowest_late": 100 * float(last.min()),
                    "accuracy_mean": 100 * float(tested.accuracy.mean()),
                    "test_loss": float(lost.test_loss.iloc[-1]),
                    "weight_malicious": 100 * float(bad.weight.sum()) / (s.rounds - s.rounds // 2),
                    **{f"auc.{a}-{b}": chance_above(groups[a], groups[b]) for a, b in PAIRS},
                    **{
                        f"weight.{kind}": 100 * float(weights[kinds == j].mean())
                        for j, kind in enumerate(KINDS)
                    },
                    "value_seconds_per_round": seconds["value"],
                    "train_seconds_per_round": seconds["train"],
                    "evaluations": float(mine.evaluations.mean()),
                },
                "series": {
                    "round": tested["round"].tolist(),
                    "accuracy": (100 * tested.accuracy).tolist(),
                    "loss_round": (lost["round"] - 1).tolist(),
                    "loss": lost.test_loss.tolist(),
                    "weight": (100 * weights).tolist(),
                    "kind": kinds.tolist(),
                },
                "data": identity(s),
                "evaluations": int(mine.evaluations.sum()),
            }
        )
    return results


def _losses(s: Setting, federations: dict[int, Federation], device: str | None) -> Probe:
    """Return a probe of the test loss of the model that a round starts from, every few rounds."""
    tests = {
        seed: Evaluator(
            build(s.model, f.input_shape, f.n_classes),
            f.x_test,
            f.y_test,
            "negative_loss",
            device=device,
        )
        for seed, f in federations.items()
    }

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        if r.index % s.evaluate_every and r.index != s.rounds - 1:
            return {"test_loss": float("nan")}
        return {"test_loss": -float(tests[r.streams.seed].utilities(r.base[None])[0])}

    return probe
