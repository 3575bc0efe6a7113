"""What FedMS's pages measure beyond its tables: every score on the same rounds.

In both experiments nobody is selected by value, so that the scores cannot change what they see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.estimators import GTGShapley, estimate, leave_one_out, shapley
from fedkit.federated.aggregation import SizeWeighted
from fedkit.federated.clients import Federation
from fedkit.federated.history import History
from fedkit.federated.rounds import Strategy
from fedkit.federated.selection import UniformSelection
from fedkit.federated.valuers import ClassCosine, NoValue, Round
from fedkit.games.game import TableGame, tabulate
from fedkit.games.valuation import Valuation
from fedkit.intervals import finite
from fedkit.methods.fedms import MaverickGTG, class_difficulty, class_scores
from fedkit.papers.common import accuracy_curve, dataset, identity
from fedkit.papers.fedms.settings import KINDS, Setting, federation, setting, simulate
from fedkit.papers.separation import chance_above
from fedkit.records.cell import Cell

__all__ = ["run_detection", "run_five", "scores_of_round"]

IntArray = npt.NDArray[np.int64]
Scores = dict[str, npt.NDArray[np.float64]]
_WATCHED = Strategy(UniformSelection(), NoValue(), SizeWeighted())


def scores_of_round(r: Round, temperature: float, frequency: np.ndarray) -> Scores:
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


def _watch(
    s: Setting, cell: Cell, federations: list[Federation], device: str | None, progress: bool
) -> tuple[History, dict[int, list[tuple[IntArray, Scores]]]]:
    """Run with uniform selection; return the rounds of each seed with their scores as well."""
    made = dict(zip(cell.seeds, federations, strict=True))
    seen: dict[int, list[tuple[IntArray, Scores]]] = {seed: [] for seed in cell.seeds}

    def probe(r: Round, v: Valuation) -> dict[str, float]:
        f = made[r.streams.seed]
        frequency = np.bincount(f.y_val.numpy(), minlength=f.n_classes) / len(f.y_val)
        scores = scores_of_round(r, s.temperature, frequency)
        seen[r.streams.seed].append((r.participants, scores))
        return {}

    history = simulate(
        s, federations, cell.seeds, probe=probe, rows=_WATCHED, utility="class_accuracy",
        device=device, progress=progress,
    )  # fmt: skip
    return history, seen


def run_detection(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """AUC of each score for each kind of misbehaviour, and for Mavericks against the rest.

    A client's score is its mean over the rounds in which it took part.  A misbehaving client
    should score *below* the honest ones (Mavericks included): the AUC is the share of pairs in
    which it does.  ``maverick`` is the share of pairs in which a Maverick scores *above* another
    honest client.
    """
    s = setting(cell)
    _, seen = _watch(s, cell, [federation(s, seed) for seed in cell.seeds], device, progress)
    cheats = np.arange(s.clients, s.everybody).reshape(len(KINDS), s.adversaries)
    results = []
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        ids = np.concatenate([participants for participants, _ in seen[seed]])
        count = np.bincount(ids, minlength=s.everybody)
        for name in seen[seed][0][1]:
            total = np.bincount(
                ids, np.concatenate([scores[name] for _, scores in seen[seed]]), s.everybody
            )
            mean = np.divide(total, count, out=np.full(s.everybody, np.nan), where=count > 0)
            honest = finite(mean[: s.clients])
            for kind, bad in zip(KINDS, cheats, strict=True):
                metrics[f"auc.{kind}.{name}"] = chance_above(honest, finite(mean[bad]))
            metrics[f"auc.maverick.{name}"] = chance_above(
                finite(mean[: s.mavericks]), finite(mean[s.mavericks : s.clients])
            )
        results.append({"seed": int(seed), "metrics": metrics, "data": identity(dataset(s.data))})
    return results


def run_five(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Figure 2: accuracy with and without the Maverick, and its reward by each score."""
    s = setting(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    history, seen = _watch(s, cell, federations, device, progress)
    kept = [replace(f, clients=(np.zeros(0, dtype=np.int64), *f.clients[1:])) for f in federations]
    without = simulate(
        s, kept, cell.seeds, rows=_WATCHED, utility="class_accuracy", device=device,
        progress=progress,
    )  # fmt: skip
    frames = [h.rounds_frame() for h in (history, without)]
    results = []
    for seed in cell.seeds:
        mine, other = (f[(f.seed == seed) & f.accuracy.notna()] for f in frames)
        metrics, series = {}, accuracy_curve(mine)
        series["without"] = accuracy_curve(other)["accuracy"]
        for name in seen[seed][0][1]:
            scores = np.array([found[name] for _, found in seen[seed]])  # [rounds, clients]
            # the Maverick's score minus the mean of the others', in points
            gaps = scores[:, 0] - scores[:, 1:].mean(axis=1)
            metrics[f"gap.{name}"] = float(gaps.mean())
            metrics[f"last.{name}"] = 100 * float(
                (scores[:, 0] <= scores[:, 1:].min(axis=1)).mean()
            )
            if name in ("MR", "MS-MR"):
                series[f"gap.{name}"] = gaps[mine["round"].to_numpy() - 1].tolist()
        metrics["accuracy"], metrics["accuracy_without"] = (
            series["accuracy"][-1],
            series["without"][-1],
        )
        results.append(
            {"seed": int(seed), "metrics": metrics, "series": series,
             "data": identity(dataset(s.data))}
        )  # fmt: skip
    return results
