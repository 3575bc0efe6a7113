"""One run of FedMS's evaluation: what is measured of a cell of Tables 1 and 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkit.federated.rounds import Probe
from fedkit.federated.valuers import Round
from fedkit.games.valuation import Valuation
from fedkit.learning.architectures import build
from fedkit.learning.evaluation import Evaluator
from fedkit.methods.fedms import rewards
from fedkit.papers.common import accuracies, accuracy_curve, dataset, each_seed, identity
from fedkit.papers.fedms.settings import (
    KINDS,
    Setting,
    classwise,
    federation,
    fedms,
    maverick_classes,
    setting,
    simulate,
)
from fedkit.records.cell import Cell

__all__ = ["reward_probe", "run_cell", "run_partition"]


def reward_probe(s: Setting) -> Probe:
    """Mean Shapley reward of the round's Mavericks and of its other participants, in points."""

    def probe(r: Round, v: Valuation) -> dict[str, float]:
        kinds = {"maverick": r.participants < s.mavericks}
        kinds["other"] = ~kinds["maverick"] & (r.participants < s.clients)
        if s.method in ("s-fedavg", "greedyfed"):
            paid = 100 * v.values
        elif classwise(s) and not v.info.get("initial"):
            paid = rewards(v) * (100 if fedms(s).units == "fraction" else 1)
        else:
            return dict.fromkeys(("reward_maverick", "reward_other"), np.nan)
        return {
            f"reward_{kind}": float(paid[rows].mean()) if rows.any() else np.nan
            for kind, rows in kinds.items()
        }

    return probe


def _rates(s: Setting, participants: np.ndarray, rounds: int) -> dict[str, float]:
    """Percent of the rounds in which a client of each kind took part, mean over its kind."""
    counts = np.bincount(participants, minlength=s.everybody)
    groups = {"maverick": slice(0, s.mavericks), "honest": slice(s.mavericks, s.clients)}
    for j, kind in enumerate(KINDS if s.adversaries else ()):
        first = s.clients + j * s.adversaries
        groups[kind] = slice(first, first + s.adversaries)
    return {f"rate.{k}": 100 * float(counts[rows].mean()) / rounds for k, rows in groups.items()}


def _windows(rows: Any, ends: np.ndarray) -> dict[str, list[float]]:
    """Mean reward over the rounds up to each measured round since the one before; NaN if none."""
    place = np.searchsorted(ends, rows["round"].to_numpy())
    names = ("reward_maverick", "reward_other")
    means = rows[list(names)].groupby(place).mean().reindex(range(len(ends)))
    return {name: means[name].tolist() for name in names}


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = setting(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    history = simulate(
        s, federations, cell.seeds, probe=reward_probe(s), device=device, progress=progress
    )
    frame, clients = history.rounds_frame(), history.clients_frame()
    architecture = build(s.model, federations[0].input_shape, federations[0].n_classes)
    seconds = history.seconds["value"] / s.rounds / len(cell.seeds)
    assert history.models is not None
    results = []
    for seed, f, model in zip(cell.seeds, federations, history.models, strict=True):
        rows = frame[frame.seed == seed]
        mine = clients[(clients.seed == seed) & (clients["round"] > 1)]  # the query apart
        tested = rows[rows.accuracy.notna()]
        test = Evaluator(architecture, f.x_test, f.y_test, "class_accuracy", device=device)
        by_class = test.utilities(model[None])[0]
        owned = maverick_classes(f, s)
        server = Evaluator(architecture, f.x_val, f.y_val, "accuracy", device=device)
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    **accuracies(rows),
                    "accuracy_validation": 100 * float(server.utilities(model[None])[0]),
                    "accuracy_maverick_classes": 100 * float(by_class[owned].mean()),
                    "accuracy_other_classes": 100 * float(by_class[~owned].mean()),
                    "reward_gap": float(rows.reward_maverick.mean() - rows.reward_other.mean()),
                    "reward_maverick": float(rows.reward_maverick.mean()),
                    "reward_other": float(rows.reward_other.mean()),
                    "rewards_maverick_total": float(rows.reward_maverick.sum()),
                    "coreset_share": float((mine.weight > 0).mean()),
                    "evaluations": float(rows.evaluations.mean()),
                    "value_seconds_per_round": seconds,
                    **_rates(s, mine.client.to_numpy(), s.rounds - 1),
                },
                "series": {
                    **accuracy_curve(rows),
                    **_windows(rows, tested["round"].to_numpy()),
                },
                "data": identity(dataset(s.data)),
                "evaluations": int(rows.evaluations.sum()),
            }
        )
    return results


@each_seed
def run_partition(cell: Cell, seed: int, device: str | None, progress: bool) -> dict[str, Any]:
    """Count the labels of every client, before any training; a series per class (Figure 1)."""
    s = setting(cell)
    made = federation(s, seed)
    return {
        "metrics": made.summary(),
        "series": {f"{c}": n.tolist() for c, n in enumerate(made.label_counts.T)},
        "data": identity(dataset(s.data)),
    }
