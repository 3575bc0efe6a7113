"""What FedMS's pages measure beyond its tables: every score on the same rounds.

In both experiments nobody is selected by value, so that the scores cannot change what they see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedkit.estimators import GTGShapley, estimate, leave_one_out, shapley
from fedkit.federated.aggregation import SizeWeighted
from fedkit.federated.rounds import Strategy
from fedkit.federated.selection import UniformSelection
from fedkit.federated.valuers import ClassCosine, NoValue, Round
from fedkit.games.game import TableGame, tabulate
from fedkit.games.valuation import Valuation
from fedkit.methods.fedms import MaverickGTG, class_difficulty, class_scores
from fedkit.papers.fedms.settings import KINDS, Setting, federation, identity, setting, simulate
from fedkit.papers.registry import Cell

__all__ = ["auc", "run_detection", "run_five", "scores_of_round"]

_WATCHED = Strategy(UniformSelection(), NoValue(), SizeWeighted())


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a positive scores above a negative, ties half; NaN if one is empty."""
    a, b = np.asarray(positive)[:, None], np.asarray(negative)[None, :]
    if not a.size or not b.size:
        return float("nan")
    return float(((a > b) + 0.5 * (a == b)).mean())


def scores_of_round(r: Round, temperature: float, frequency: np.ndarray) -> dict[str, np.ndarray]:
    """Score every participant of a round in every way, from one table of class accuracies.

    Parameters
    ----------
    r : Round
        Its evaluator has the utility "class_accuracy".
    temperature : float
        T of FedMS, Eq. 10.
    frequency : float64[classes]
        Share of each class among the validation images: accuracy is the mean of the class
        accuracies with these weights.

    Returns
    -------
    dict of str to float64[k]
        "MR" and "GTG" value accuracy; "class mean" all classes alike; "MS-MR" and "MS-GTG" by
        difficulty; "leave-one-out" accuracy; "cosine" is ShapFed's score, "size" the data.
        Values are in percentage points.
    """
    table = tabulate(r.game())
    accuracy = TableGame(table.values @ frequency)
    by_class = shapley(table).values
    nonempty = table.values[1:].sum(axis=1)
    best = table.values[1 + int(nonempty.argmax())]
    streams = r.streams.child("scores")
    gtg = estimate(accuracy, GTGShapley(), seed=streams.child("gtg"))
    guided = estimate(table, MaverickGTG(temperature=temperature), seed=streams.child("ms-gtg"))
    return {
        "MR": 100 * by_class @ frequency,
        "GTG": 100 * gtg.values,
        "class mean": 100 * by_class.mean(axis=1),
        "MS-MR": 100 * class_scores(by_class, class_difficulty(best, temperature)),
        "MS-GTG": 100 * class_scores(guided.values, guided.info["beta"]),
        "leave-one-out": 100 * leave_one_out(accuracy).values,
        "cosine": ClassCosine().value([r])[0].values,
        "size": r.sizes / r.sizes.sum(),
    }


def _watch(s: Setting, cell: Cell, device: str | None, progress: bool) -> tuple[Any, Any, Any]:
    """Run with uniform selection; return scores per seed as (round, client, score) lists."""
    federations = [federation(s, seed) for seed in cell.seeds]
    places = {id(f.x_val): i for i, f in enumerate(federations)}
    seen: dict[int, list[tuple[int, np.ndarray, dict[str, np.ndarray]]]] = {
        seed: [] for seed in cell.seeds
    }

    def probe(r: Round, v: Valuation) -> dict[str, float]:
        f = federations[cell.seeds.index(r.streams.seed)]
        frequency = np.bincount(f.y_val.numpy(), minlength=f.n_classes) / len(f.y_val)
        found = scores_of_round(r, s.temperature, frequency)
        seen[r.streams.seed].append((r.index, r.participants, found))
        return {}

    assert len(places) == len(federations)
    history = simulate(
        s, federations, cell.seeds, probe=probe, rows=_WATCHED, utility="class_accuracy",
        device=device, progress=progress,
    )  # fmt: skip
    return federations, history, seen


def run_detection(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """AUC of each score for each kind of misbehaviour, and for Mavericks against the rest.

    A client's score is its mean over the rounds in which it took part.  A misbehaving client
    should score *below* the honest ones (Mavericks included): the AUC is the share of pairs in
    which it does.  ``maverick`` is the share of pairs in which a Maverick scores *above* another
    honest client.
    """
    s = setting(cell)
    _, _, seen = _watch(s, cell, device, progress)
    results = []
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        for name in seen[seed][0][2]:
            total, count = np.zeros(s.everybody), np.zeros(s.everybody)
            for _, ids, found in seen[seed]:
                np.add.at(total, ids, found[name])
                np.add.at(count, ids, 1)
            mean = np.divide(total, count, out=np.full(s.everybody, np.nan), where=count > 0)
            honest = mean[: s.clients]
            honest = honest[np.isfinite(honest)]
            for j, kind in enumerate(KINDS):
                first = s.clients + j * s.adversaries
                bad = mean[first : first + s.adversaries]
                metrics[f"auc.{kind}.{name}"] = auc(-bad[np.isfinite(bad)], -honest)
            mavericks, others = mean[: s.mavericks], mean[s.mavericks : s.clients]
            metrics[f"auc.maverick.{name}"] = auc(
                mavericks[np.isfinite(mavericks)], others[np.isfinite(others)]
            )
        results.append({"seed": int(seed), "metrics": metrics, "series": {}, "data": identity(s)})
    return results


def run_five(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Figure 2: accuracy with and without the Maverick, and its reward by each score."""
    s = setting(cell)
    federations, history, seen = _watch(s, cell, device, progress)
    kept = [replace(f, clients=(np.zeros(0, dtype=np.int64), *f.clients[1:])) for f in federations]
    without = simulate(
        s, kept, cell.seeds, rows=_WATCHED, utility="class_accuracy", device=device,
        progress=progress,
    )  # fmt: skip
    frames = [h.rounds_frame() for h in (history, without)]
    results = []
    for seed in cell.seeds:
        mine = [f[(f.seed == seed) & f.accuracy.notna()] for f in frames]
        names = list(seen[seed][0][2])
        # Shares: the Maverick's score minus the mean of the others', in points.
        gaps = {
            name: [float(v[name][0] - v[name][1:].mean()) for _, _, v in seen[seed]]
            for name in names
        }
        last = {
            name: [int((v[name][0] <= v[name][1:]).all()) for _, _, v in seen[seed]]
            for name in names
        }
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    "accuracy": 100 * float(mine[0].accuracy.iloc[-1]),
                    "accuracy_without": 100 * float(mine[1].accuracy.iloc[-1]),
                    **{f"gap.{name}": float(np.mean(gaps[name])) for name in names},
                    **{f"last.{name}": 100 * float(np.mean(last[name])) for name in names},
                },
                "series": {
                    "round": mine[0]["round"].tolist(),
                    "accuracy": (100 * mine[0].accuracy).tolist(),
                    "without": (100 * mine[1].accuracy).tolist(),
                    **{
                        f"gap.{name}": [gaps[name][t - 1] for t in mine[0]["round"]]
                        for name in ("MR", "MS-MR")
                    },
                },
                "data": identity(s),
            }
        )
    return results
