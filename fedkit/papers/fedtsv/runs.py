"""One run of FedTSV's evaluation: curves, final weights, and how well they tell clients apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from fedkit.extras import need
from fedkit.federated.aggregation import Aggregation
from fedkit.federated.clients import Federation
from fedkit.federated.rounds import Probe, Weigh
from fedkit.federated.selection import ClientTable
from fedkit.federated.valuers import Round
from fedkit.games.valuation import Valuation
from fedkit.learning.architectures import build
from fedkit.learning.evaluation import Evaluator
from fedkit.methods.fedtsv import ContributionWeights
from fedkit.papers.common import accuracy_curve, dataset, identity
from fedkit.papers.fedtsv.settings import (
    KINDS,
    Setting,
    federation,
    setting,
    simulate,
    strategy,
)
from fedkit.papers.separation import chance_above
from fedkit.records.cell import Cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["final_weights", "round_metrics", "run_cell"]

FloatArray = npt.NDArray[np.float64]
#: kinds of clients, of which the first should weigh more
PAIRS = (("iid", "malicious"), ("skewed", "malicious"), ("iid", "skewed"))


class _Watch:
    """An aggregation that keeps the tables it has seen, one per replicate, and notes on all rounds.

    The notes of a round: "fallback", 1 if the weights are to follow contributions and no
    participant has a positive one, so that they are uniform (Eq. 13), NaN for other rules;
    "length_iid" and "length_malicious", mean lengths of the participants' updates; "reach", the
    malicious share of the weighted lengths, in percent; "closer", the share of IID participants
    whose own update alone is worth more than standing still (FedTSV only).
    """

    def __init__(self, rule: Aggregation | Weigh, kinds: npt.NDArray[np.int64]) -> None:
        self.rule, self.kinds, self.tables = rule, kinds, dict[int, ClientTable]()
        self.notes: dict[int, list[dict[str, float]]] = {}

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        self.tables[r.streams.seed] = clients
        if callable(self.rule):
            weights = self.rule(r, valuation, clients)
        else:
            weights = self.rule.weights(valuation.values, r.sizes)
        length = r.updates.norm(dim=1).double().cpu().numpy()
        kinds = self.kinds[r.participants]
        iid, bad = (kinds == KINDS.index(kind) for kind in ("iid", "malicious"))
        led, moved = isinstance(self.rule, ContributionWeights), float(weights @ length)
        nothing = np.full(len(length), np.nan)
        note = {
            "fallback": float(clients.values[r.participants].max() <= 0) if led else np.nan,
            "length_iid": _mean(length[iid]),
            "length_malicious": _mean(length[bad]),
            "reach": 100 * float((weights * length)[bad].sum()) / moved if moved else np.nan,
            "closer": _mean(valuation.info.get("closer", nothing)[iid]),
        }
        self.notes.setdefault(r.streams.seed, []).append(note)
        return weights


def _mean(x: npt.NDArray[Any]) -> float:
    """Mean; NaN of nothing."""
    return float(x.mean()) if len(x) else float("nan")


def final_weights(s: Setting, table: ClientTable) -> FloatArray:
    """Weights of all clients after the last round: max(c, 0) over its sum (Figure 2)."""
    positive = np.maximum(table.values, 0.0)
    if s.method == "oracle":
        positive = (s.kinds() != KINDS.index("malicious")).astype(np.float64)
    if s.method == "fedavg" or not positive.any():
        return np.full(s.clients, 1 / s.clients)
    return positive / positive.sum()


def round_metrics(s: Setting, clients: pd.DataFrame, notes: pd.DataFrame) -> dict[str, float]:
    """What goes on in the rounds of the first and of the second half of a run.

    Parameters
    ----------
    s : Setting
    clients : DataFrame
        One row per participant of each round of one run: round (from 1), client, value, weight.
    notes : DataFrame
        The notes of :class:`_Watch`, one row per round.

    Returns
    -------
    dict of str to float
        In percent: "weight_malicious" and "reach_malicious", the malicious clients' share of the
        weights, and of the weighted lengths, in the second half; "fallback.HALF", rounds in which
        no participant had a positive contribution; "fallback_malicious", the part of the malicious
        weight in the second half that such rounds gave; "closer.iid.HALF", IID participants whose
        own update alone is worth more than standing still, mean over rounds.  "value.KIND.HALF":
        mean value of a participation.  "length.malicious-iid.HALF": how many times as long as those
        of IID clients the updates of malicious ones are, median over the rounds with both.  HALF is
        "first" or "second"; NaN where there is nothing of the kind.
    """
    half = s.rounds // 2
    kinds = s.kinds()[clients.client.to_numpy()]
    late, bad = (clients["round"] > half).to_numpy(), kinds == KINDS.index("malicious")
    in_fallback = (notes.fallback == 1).to_numpy()[clients["round"].to_numpy() - 1]
    given, lost = (float(clients.weight[late & bad & w].sum()) for w in (True, in_fallback))
    metrics = {
        "weight_malicious": 100 * given / (s.rounds - half),
        "reach_malicious": float(notes.reach[half:].mean()),
        "fallback_malicious": np.nan,
    }
    if notes.fallback.notna().all() and given > 0:
        metrics["fallback_malicious"] = 100 * lost / given
    for name, part in (("first", notes[:half]), ("second", notes[half:])):
        ratio = part.length_malicious / part.length_iid
        metrics[f"length.malicious-iid.{name}"] = float(ratio.median())
        metrics[f"fallback.{name}"] = 100 * float(part.fallback.mean())
        metrics[f"closer.iid.{name}"] = 100 * float(part.closer.mean())
        for k, kind in enumerate(KINDS):
            mine = (kinds == k) & (late == (name == "second"))
            metrics[f"value.{kind}.{name}"] = float(clients.value[mine].mean())
    return metrics


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    pd = need("pandas", "run")
    s = setting(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    rows = strategy(s)
    watch = _Watch(cast("Aggregation | Weigh", rows.aggregate), s.kinds())
    history = simulate(
        s, federations, cell.seeds, rows=replace(rows, aggregate=watch),
        probe=_losses(s, dict(zip(cell.seeds, federations, strict=True)), device),
        device=device, progress=progress,
    )  # fmt: skip
    frame, clients = history.rounds_frame(), history.clients_frame()
    seconds = {k: v / s.rounds / len(cell.seeds) for k, v in history.seconds.items()}
    kinds = s.kinds()
    results = []
    for seed in cell.seeds:
        table, notes = watch.tables[seed], pd.DataFrame(watch.notes[seed])
        mine = frame[frame.seed == seed]
        tested, lost = mine[mine.accuracy.notna()], mine[mine.test_loss.notna()]
        weights, seen = final_weights(s, table), table.counts > 0
        score = weights if s.method in ("fedavg", "oracle") else table.values
        groups = {kind: score[(kinds == j) & seen] for j, kind in enumerate(KINDS)}
        weighed = {kind: weights[(kinds == j) & seen] for j, kind in enumerate(KINDS)}
        last = tested[tested["round"] > s.rounds * 3 // 4].accuracy
        steps = tested[tested["round"] > s.rounds // 2].accuracy.diff()
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    "accuracy": 100 * float(tested.accuracy.iloc[-1]),
                    "accuracy_late": 100 * float(last.mean()),
                    "accuracy_lowest_late": 100 * float(last.min()),
                    "accuracy_mean": 100 * float(tested.accuracy.mean()),
                    "accuracy_swing": 100 * float(steps.abs().mean()),
                    "test_loss": float(lost.test_loss.iloc[-1]),
                    **round_metrics(s, clients[clients.seed == seed], notes),
                    **{f"auc.{a}-{b}": chance_above(groups[a], groups[b]) for a, b in PAIRS},
                    **{f"told.{a}-{b}": chance_above(weighed[a], weighed[b]) for a, b in PAIRS},
                    "positive.iid": 100 * float((weighed["iid"] > 0).mean()),
                    **{
                        f"weight.{kind}": 100 * float(weights[kinds == j].mean())
                        for j, kind in enumerate(KINDS)
                    },
                    "value_seconds_per_round": seconds["value"],
                    "train_seconds_per_round": seconds["train"],
                    "evaluations": float(mine.evaluations.mean()),
                },
                "series": {
                    **accuracy_curve(mine),
                    "loss_round": (lost["round"] - 1).tolist(),
                    "loss": lost.test_loss.tolist(),
                    "weight": (100 * weights).tolist(),
                    "kind": kinds.tolist(),
                },
                "data": identity(dataset(s.data)),
                "evaluations": int(mine.evaluations.sum()),
            }
        )
    return results


def _losses(s: Setting, federations: dict[int, Federation], device: str | None) -> Probe:
    """Return a probe of the test loss of the model that a round starts from, every few rounds."""
    tests = {}
    for seed, f in federations.items():
        network = build(s.model, f.input_shape, f.n_classes)
        tests[seed] = Evaluator(network, f.x_test, f.y_test, "negative_loss", device=device)

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        if r.index % s.evaluate_every and r.index != s.rounds - 1:
            return {"test_loss": float("nan")}
        return {"test_loss": -float(tests[r.streams.seed].utilities(r.base[None])[0])}

    return probe
