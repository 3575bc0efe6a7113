"""FedTSV's evaluation: its methods, its federations, what is measured, and its experiments.

Every row is one :class:`~fedkit.federated.rounds.Strategy` with the same uniform selection: the
methods differ in the weights of the aggregation alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from fedkit.checks import Floats, Ints
from fedkit.estimators import PermutationSampling
from fedkit.federated import policies, rounds
from fedkit.federated.adversaries import LabelPermutation
from fedkit.federated.federation import Federation, Transform, make_federation
from fedkit.federated.history import History
from fedkit.federated.partition import IID, Dirichlet, Mixed
from fedkit.federated.rounds import ClientTable, Plan, Probe, Round, Strategy
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD
from fedkit.methods import baselines
from fedkit.methods.fedtsv import ContributionWeights, TrajectoryValues
from fedkit.streams import Streams
from reproduction import common
from reproduction.common import accuracy_curve, chance_above, dataset, experiment, tested_rounds
from reproduction.fedtsv import experiments as given
from reproduction.fedtsv.experiments import KINDS, METHODS, PAIRS, TIMINGS, TINY, Setting
from reproduction.fedtsv.timings import Timing, run_timing
from reproduction.golden import Tiny
from reproduction.plugins import is_plugin
from reproduction.records import Cell


def strategy(s: Setting) -> Strategy:
    """Return the strategy of a setting; a method from outside, ``package:Name``, may be one."""
    follow, exact = ContributionWeights(), TrajectoryValues(utility=s.utility)
    calls, liars = 2 * s.participants + 2, tuple(range(s.honest, s.clients))
    sampled = TrajectoryValues(PermutationSampling(), calls, s.utility)
    latest, total = rounds.keep_latest, rounds.keep_total
    nothing, cosine, running = policies.NoValue(), baselines.CosineValues, baselines.RunningCosine()
    rows: dict[str, tuple[rounds.Value, rounds.Aggregate, rounds.Remember]] = {
        "fedavg": (nothing, policies.UniformWeights(), latest),
        "tsv": (exact, follow, total),
        "tsv-sampled": (sampled, follow, total),
        "loo": (policies.LeaveOneOut(), follow, total),
        "loo-loss": (policies.LeaveOneOut(), follow, total),  # its plan has the other utility
        "cgsv": (cosine(), follow, running),
        "cgsv-game": (cosine(exact=True), follow, running),
        "cgsv-raw": (cosine(normalised=False), follow, running),
        "mr": (policies.Exact(normalised=False), follow, total),
        "shuffled": (policies.ShuffledValues(exact), follow, total),
        "random": (policies.RandomValues(), follow, total),
        "oracle": (nothing, baselines.OracleWeights(liars), latest),
    }
    uniform = policies.UniformSelection()
    if is_plugin(s.method):
        ours = partial(policies.Estimated, budget=calls, normalised=False)
        return common.in_place(s.method, Strategy(uniform, nothing, follow, total), ours)
    if s.method not in rows:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(METHODS)}")
    return Strategy(uniform, *rows[s.method])


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: IID, then skewed, then malicious ones."""
    data = dataset(s.data)
    iid = (s.honest - s.skewed, IID())
    groups = (iid, (s.skewed, Dirichlet(s.gamma, by="client")), (s.malicious, IID()))
    made = make_federation(
        data, s.clients, Mixed(tuple(group for group in groups if group[0])), seed,
        validation=s.validation / len(data.y_test), validation_from="test", empty="refill",
    )  # fmt: skip
    if s.one_sided < 1:
        made = _one_sided(made, s.one_sided, seed)
    own = LabelPermutation(made.n_classes)
    liar: Transform = own
    if s.collusion:  # a draw that does not depend on the client
        liar = lambda x, y, _: own(x, y, Streams(seed).generator("fedtsv", "collusion"))  # noqa: E731
    return made.with_transforms(dict.fromkeys(range(s.honest, s.clients), liar))


def _one_sided(made: Federation, share: float, seed: int) -> Federation:
    """Keep a share of the validation images of the second half of the classes."""
    rng = Streams(seed).generator("fedtsv", "one-sided")
    y = made.y_val.numpy()
    kept = np.ones(len(y), dtype=bool)
    for label in range(made.n_classes // 2, made.n_classes):
        members = rng.permutation(np.flatnonzero(y == label))
        kept[members[max(1, round(share * len(members))) :]] = False
    place = torch.from_numpy(np.flatnonzero(kept))
    return replace(made, x_val=made.x_val[place], y_val=made.y_val[place])


def equal_lengths(updates: torch.Tensor, clip: bool = False) -> torch.Tensor:
    """Bring all updates of a round, float32 ``[k, P]``, to the length of the median one.

    With `clip` only longer ones are shortened.  Updates of no or no finite length stay.
    """
    lengths = updates.double().norm(dim=1)  # in float32 the square of a long update overflows
    usable = torch.isfinite(lengths) & (lengths > 0)
    if not bool(usable.any()):
        return updates
    factor = torch.ones_like(lengths)
    factor[usable] = lengths[usable].median() / lengths[usable]
    if clip:
        factor.clamp_(max=1.0)
    return (updates * factor[:, None]).to(updates.dtype)


def simulate(
    s: Setting,
    federations: Sequence[Federation],
    seeds: Sequence[int],
    *,
    rows: Strategy | None = None,
    **options: Any,
) -> History:
    """Run the federations of a setting, one per seed, in lockstep; `rows` replaces its strategy."""

    def sent(r: Round) -> torch.Tensor:
        factor = np.where(r.participants >= s.honest, s.scale, 1.0)
        scaled = r.updates * torch.as_tensor(factor).to(r.updates)[:, None]
        return equal_lengths(scaled, clip=s.even == "clip") if s.even else scaled

    plan = Plan(
        rounds=s.rounds,
        participants=s.participants,
        local=LocalSGD(lr=s.lr, batch_size=s.batch_size),
        utility="negative_loss" if s.method == "loo-loss" else "accuracy",
        weighting="uniform",
        evaluate_every=s.evaluate_every,
    )
    attack = sent if s.scale != 1 or s.even else None
    return common.lockstep(
        s, federations, rows or strategy(s), plan, seeds, attack=attack, **options
    )


class _Watch:
    """An aggregation that keeps the tables it has seen, one per replicate, and notes on all rounds.

    "fallback": no participant has a positive contribution (Eq. 13); "length_iid" and
    "length_malicious": mean lengths of updates; "reach": the malicious share of the weighted
    lengths, in percent; "closer": IID participants whose own update is worth more than standing
    still.
    """

    def __init__(self, rule: rounds.Aggregate, kinds: Ints) -> None:
        self.rule, self.kinds, self.tables = rule, kinds, dict[int, ClientTable]()
        self.notes: dict[int, list[dict[str, float]]] = {}

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> torch.Tensor:
        self.tables[r.streams.seed] = clients
        model = self.rule(r, valuation, clients)
        (weights,) = r.noted
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
        return model


def _mean(x: npt.NDArray[Any]) -> float:
    """Mean; NaN of nothing."""
    return float(x.mean()) if len(x) else float("nan")


def final_weights(s: Setting, table: ClientTable) -> Floats:
    """Weights of all clients after the last round: max(c, 0) over its sum (Figure 2)."""
    positive = np.maximum(table.values, 0.0)
    if s.method == "oracle":
        positive = (s.kinds() != KINDS.index("malicious")).astype(np.float64)
    if s.method == "fedavg" or not positive.any():
        return np.full(s.clients, 1 / s.clients)
    return positive / positive.sum()


def round_metrics(s: Setting, clients: pd.DataFrame, notes: pd.DataFrame) -> dict[str, float]:
    """What goes on in the rounds of the first and of the second half of a run.

    `clients` has a row per participant of each round (from 1), `notes` those of :class:`_Watch`.
    Shares are in percent; "length.malicious-iid.HALF" is a median over the rounds with both kinds.
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


def run_cell(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = Setting.of(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    rows = strategy(s)
    watch = _Watch(rows.aggregate, s.kinds())
    history = simulate(
        s, federations, cell.seeds, rows=replace(rows, aggregate=watch),
        probe=_losses(s, dict(zip(cell.seeds, federations, strict=True)), device),
        device=device, progress=progress,
    )  # fmt: skip
    frame, clients = history.rounds_frame(), history.clients_frame()
    seconds = {k: v / s.rounds / len(cell.seeds) for k, v in history.seconds.items()}
    kinds = {kind: s.kinds() == j for j, kind in enumerate(KINDS)}
    for seed in cell.seeds:
        table, notes = watch.tables[seed], pd.DataFrame(watch.notes[seed])
        mine = frame[frame.seed == seed]
        tested, lost = tested_rounds(mine), mine[mine.test_loss.notna()]
        weights, seen = final_weights(s, table), table.counts > 0
        score = weights if s.method in ("fedavg", "oracle") else table.values
        groups = {kind: score[those & seen] for kind, those in kinds.items()}
        weighed = {kind: weights[those & seen] for kind, those in kinds.items()}
        last = tested[tested["round"] > s.rounds * 3 // 4].accuracy
        steps = tested[tested["round"] > s.rounds // 2].accuracy.diff()[1:]
        metrics = {
            "accuracy": 100 * float(tested.accuracy.iloc[-1]),
            "accuracy_late": 100 * float(last.mean(skipna=False)),
            "accuracy_lowest_late": 100 * float(last.min(skipna=False)),
            "accuracy_mean": 100 * float(tested.accuracy.mean(skipna=False)),
            "accuracy_swing": 100 * float(steps.abs().mean(skipna=False)),
            "test_loss": float(lost.test_loss.iloc[-1]),
            **round_metrics(s, clients[clients.seed == seed], notes),
            **{f"auc.{a}-{b}": chance_above(groups[a], groups[b]) for a, b in PAIRS},
            **{f"told.{a}-{b}": chance_above(weighed[a], weighed[b]) for a, b in PAIRS},
            "positive.iid": 100 * float((weighed["iid"] > 0).mean()),
            **{f"weight.{kind}": 100 * float(weights[w].mean()) for kind, w in kinds.items()},
            "value_seconds_per_round": seconds["value"],
            "train_seconds_per_round": seconds["train"],
            "evaluations": float(mine.evaluations.mean()),
        }
        series = {
            **accuracy_curve(mine),
            "loss_round": (lost["round"] - 1).tolist(),
            "loss": lost.test_loss.tolist(),
            "weight": (100 * weights).tolist(),
            "kind": s.kinds().tolist(),
        }
        yield common.result(seed, s.data, metrics, series, mine)


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


RUN = Tiny(
    "run",
    run_cell,
    asdict(TINY),
    by="method",
    switches={
        "utility": {"method": "tsv"}, "one_sided": {"method": "tsv"}, "scale": {"method": "tsv"},
        "even": {"method": "tsv"}, "collusion": {"method": "tsv"},
        "model=lenet5": {"method": "tsv", "rounds": 1},
        "model=resnet20": {"method": "fedavg", "rounds": 1, "lr": 0.01},
    },
    slack={"metrics.accuracy*": 1.0, "series.accuracy": 1.0},
    more=common.tracer(Setting, federation, simulate),
)  # fmt: skip
experiment(
    "fedtsv", "figures", "Accuracy, loss and final weights (Figures 1 and 2)", given.figures,
    given.figures_seeds, RUN, entry="{}", block=10,
)  # fmt: skip
experiment(
    "fedtsv", "study", "Does the separation of clients survive", given.study, given.study_seeds,
    RUN, entry="{}", block=10,
)  # fmt: skip
experiment(
    "fedtsv", "timings", "Seconds and errors of exact, sampled and averaged values of a round",
    lambda profile: [Timing(k, TIMINGS[profile][1]) for k in TIMINGS[profile][0]],
    lambda profile, s: [tuple(range(TIMINGS[profile][2]))],
    Tiny("timings", run_timing, asdict(Timing(5, 200)), slack={"metrics.error.averaged": 1e-6}),
)  # fmt: skip
