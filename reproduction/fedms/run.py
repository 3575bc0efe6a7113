"""FedMS's evaluation: its methods, its federations, what is measured, and its experiments.

Every row of Tables 1 and 2 is one :class:`~fedkit.federated.rounds.Strategy`.  Where all scores are
compared on the same rounds (``detection``, ``five_clients``) nobody is selected by value, so that
the scores cannot change what they see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedkit.estimators import GTGShapley, estimate, estimate_many
from fedkit.federated import adversaries, policies
from fedkit.federated.federation import Federation, Transform, UpdateAttack, make_federation
from fedkit.federated.history import History
from fedkit.federated.partition import IID, Dirichlet, Mavericks
from fedkit.federated.rounds import Plan, Probe, Round, Strategy
from fedkit.games.coalitions import all_coalitions
from fedkit.games.exact import leave_one_out, shapley
from fedkit.games.game import table_game, tabulate
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD
from fedkit.methods import baselines
from fedkit.methods import fedms as method
from fedkit.streams import Streams
from reproduction import common
from reproduction.common import accuracy_curve, chance_above, dataset, tested_rounds
from reproduction.fedms import experiments as given
from reproduction.fedms.experiments import EQUAL, KINDS, METHODS, OWN, SCENARIOS, TINY, Setting
from reproduction.golden import Tiny
from reproduction.records import Cell

Named = Literal["accuracy", "negative_loss", "class_accuracy"]


def adversaries_of(s: Setting, n_classes: int) -> dict[int, Transform | UpdateAttack]:
    """Return who misbehaves: the last clients, `adversaries` of each kind (section 5.1)."""
    parts: tuple[Transform | UpdateAttack, ...] = (
        adversaries.LabelFlip(n_classes), adversaries.RandomData(n_classes),
        adversaries.RandomUpdate(), adversaries.FreeRider(),
    )  # fmt: skip
    who = dict(zip(KINDS, parts, strict=True))
    return {i: part for kind, part in who.items() for i in s.groups[kind]}


def fedms(s: Setting) -> method.FedMS:
    """Return FedMS in the reading of a setting."""
    estimators = {"gtg": method.MaverickGTG, "mr": method.MaverickMR, "tmr": method.MaverickTMR}
    return method.FedMS(
        estimators[s.estimator](temperature=1e9 if s.method in EQUAL else s.temperature),
        alpha=s.alpha,
        units="fraction" if s.method == "fedms-fraction" else "percent",
        aggregate="all" if s.method.startswith("fedms-printed") else "coreset",
        tolerance=(s.tolerance, s.last_tolerance),
        against="kept" if s.method == "fedms-kept" else "found",
    )


class _FromTheStart(policies.UniformSelection):
    """Uniform selection of the control that uses FedMS's aggregation alone: all in round 0."""

    def __call__(self, table: Any, k: int, rng: np.random.Generator) -> Any:
        return table.available if table.round == 0 else super().__call__(table, k, rng)


def strategy(s: Setting, n_classes: int) -> Strategy:
    """Return the strategy of a setting."""
    if s.method in OWN:
        return fedms(s).strategy(n_classes, s.rounds)
    if s.method == "uniform-coreset":
        return replace(fedms(s).strategy(n_classes, s.rounds), select=_FromTheStart())
    mavericks, bad = tuple(range(s.mavericks)), tuple(range(s.clients, s.everybody))
    running, first = (baselines.RunningValue(s.sv_alpha, *how) for how in ((), ("first",)))
    exact = policies.Exact(normalised=False)
    gtg = partial(policies.Estimated, count="distinct", normalised=False)
    plain = Strategy(policies.UniformSelection(), policies.NoValue(), policies.SizeWeighted())
    poc = replace(plain, select=baselines.PowerOfChoice(s.poc_decay))
    valued = replace(plain, select=baselines.SFedAvg(100), value=exact, remember=running)
    greedy = replace(plain, select=baselines.GreedyFed(), remember=first)
    rows = {
        "fedavg": plain,
        "fedprox": plain,  # its local training is another
        "poc": replace(poc, aggregate=policies.UniformWeights()),
        "fedemd": replace(plain, select=baselines.FedEMD(s.emd_beta)),
        "s-fedavg": replace(valued, select=baselines.SFedAvg()),
        "s-fedavg-percent": valued,
        "s-fedavg-shuffled": replace(valued, value=policies.ShuffledValues(exact)),
        "greedyfed": replace(greedy, value=gtg(GTGShapley())),
        "greedyfed-loss": replace(greedy, value=gtg(GTGShapley(1e-4, 1e-4))),
        "oracle": replace(plain, select=baselines.Oracle(mavericks, bad)),
    }
    if s.method not in rows:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(METHODS)}")
    return rows[s.method]


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: Mavericks first, misbehaving clients last."""
    others: IID | Dirichlet = IID()
    if s.scenario in SCENARIOS:
        others = Dirichlet(SCENARIOS[s.scenario], by="class")
    scheme = Mavericks(s.mavericks, others=others, shared=s.shared, mixed=s.scenario != "iid")
    made = make_federation(
        dataset(s.data), s.everybody, scheme, seed,
        validation=s.validation, validation_from="test", empty="refill",
    )  # fmt: skip
    if s.owned < 1:
        made = _shrink(made, s, seed)
    if s.poisoned:
        made = _poison(made, s)
    return made.with_adversaries(adversaries_of(s, made.n_classes)) if s.adversaries else made


def maverick_classes(made: Federation, s: Setting) -> np.ndarray:
    """Return which classes nobody but the Mavericks holds, bool (classes,)."""
    return np.asarray(made.label_counts[s.mavericks : s.clients].sum(axis=0) == 0)


def _shrink(made: Federation, s: Setting, seed: int) -> Federation:
    """Let Mavericks keep a share of the images of their own classes, at least one each."""
    rng = Streams(seed).generator("fedms", "owned")
    rare, clients = maverick_classes(made, s)[made.y.numpy()], list(made.clients)
    for i in range(s.mavericks):
        mine = clients[i]
        special = rng.permutation(mine[rare[mine]])
        kept = special[: max(1, round(s.owned * len(special)))]
        clients[i] = np.sort(np.concatenate([mine[~rare[mine]], kept]))
    return replace(made, clients=tuple(clients))


def _poison(made: Federation, s: Setting) -> Federation:
    """Swap two validation labels: the first Maverick's, and the next that everybody may hold."""
    rare = maverick_classes(made, s)
    first = int((made.label_counts[0] * rare).argmax())
    free = np.flatnonzero(~rare)
    other = int(free[(free > first).argmax()])
    swapped = made.y_val.clone()
    swapped[made.y_val == first], swapped[made.y_val == other] = other, first
    return replace(made, y_val=swapped)


def classwise(s: Setting) -> bool:
    """Whether a method values classes."""
    return s.method in (*OWN, "uniform-coreset")


def simulate(
    s: Setting,
    federations: Sequence[Federation],
    seeds: Sequence[int],
    *,
    utility: Named | None = None,
    **options: Any,
) -> History:
    """Run the federations of a setting in lockstep; `utility` replaces the method's own."""
    n_classes = federations[0].n_classes
    how: dict[str, Any] = {s.local: s.local_rounds}
    proximal = s.mu if s.method == "fedprox" else 0.0
    by_loss = s.method == "greedyfed-loss"
    own: Named = "class_accuracy" if classwise(s) else "negative_loss" if by_loss else "accuracy"
    plan = Plan(
        rounds=s.rounds,
        participants=s.participants,
        local=LocalSGD(lr=s.lr, batch_size=s.batch_size, proximal=proximal, **how),
        utility=utility or own,
        evaluate_every=s.evaluate_every,
    )
    return common.lockstep(s, federations, strategy(s, n_classes), plan, seeds, **options)


def reward_probe(s: Setting) -> Probe:
    """Mean Shapley reward of the round's Mavericks and of its other participants, in points."""

    def probe(r: Round, v: Valuation) -> dict[str, float]:
        kinds = {"maverick": r.participants < s.mavericks}
        kinds["other"] = ~kinds["maverick"] & (r.participants < s.clients)
        if s.method in ("s-fedavg", "s-fedavg-percent", "greedyfed"):
            paid = 100 * v.values
        elif classwise(s) and not v.info.get("initial"):
            paid = method.rewards(v) * (100 if fedms(s).units == "fraction" else 1)
        else:
            return dict.fromkeys(("reward_maverick", "reward_other"), np.nan)
        return {
            f"reward_{kind}": float(paid[rows].mean()) if rows.any() else np.nan
            for kind, rows in kinds.items()
        }

    return probe


def _windows(rows: Any, ends: np.ndarray) -> dict[str, list[float]]:
    """Mean reward over the rounds up to each measured round since the one before; NaN if none."""
    place = np.searchsorted(ends, rows["round"].to_numpy())
    names = ("reward_maverick", "reward_other")
    means = rows[list(names)].groupby(place).mean().reindex(range(len(ends)))
    return {name: means[name].tolist() for name in names}


def run_cell(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = Setting.of(cell)
    federations = [federation(s, seed) for seed in cell.seeds]
    history = simulate(
        s, federations, cell.seeds, probe=reward_probe(s), device=device, progress=progress
    )
    frame, clients = history.rounds_frame(), history.clients_frame()
    architecture = build(s.model, federations[0].input_shape, federations[0].n_classes)
    seconds = history.seconds["value"] / s.rounds / len(cell.seeds)
    assert history.models is not None
    for seed, f, model in zip(cell.seeds, federations, history.models, strict=True):
        rows = frame[frame.seed == seed]
        mine = clients[(clients.seed == seed) & (clients["round"] > 1)]  # the query apart
        tested = tested_rounds(rows)
        test = Evaluator(architecture, f.x_test, f.y_test, "class_accuracy", device=device)
        by_class = test.utilities(model[None])[0]
        owned = maverick_classes(f, s)
        asked = np.bincount(mine.client, minlength=s.everybody)
        rates = {k: 100 * float(asked[ids].mean()) / (s.rounds - 1) for k, ids in s.groups.items()}
        server = Evaluator(architecture, f.x_val, f.y_val, "accuracy", device=device)
        metrics = {
            **common.accuracies(rows),
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
            # percent of the rounds in which a client of a kind took part, mean over its kind
            **{f"rate.{kind}": rate for kind, rate in rates.items()},
        }
        series = accuracy_curve(rows) | _windows(rows, tested["round"].to_numpy())
        yield common.result(seed, s.data, metrics, series, rows)


@common.each_seed
def run_partition(cell: Cell, seed: int, device: str | None, progress: bool) -> dict[str, Any]:
    """Count the labels of every client, before any training; a series per class (Figure 1)."""
    s = Setting.of(cell)
    made = federation(s, seed)
    series = {f"{c}": n.tolist() for c, n in enumerate(made.label_counts.T)}
    return common.result(seed, s.data, made.summary(), series)


def scores_of_round(r: Round, temperature: float, frequency: np.ndarray) -> pd.DataFrame:
    """Score every participant of a round, a row each, in every way from one table of accuracies.

    "MR" and "GTG" value accuracy, of classes with these frequencies; "class mean" all classes
    alike; "MS-MR" and "MS-GTG" by difficulty; "cosine" is ShapFed's score, "size" the data.
    """
    table = tabulate(r.game())
    accuracies = table(all_coalitions(table.n_players))
    accuracy = table_game(accuracies @ frequency)
    by_class = shapley(table).values
    best = accuracies[1 + int(accuracies[1:].sum(axis=1).argmax())]
    streams = r.streams.child("scores")
    (gtg,) = estimate_many(accuracy, GTGShapley(), seeds=streams.child("gtg"))
    guide = method.MaverickGTG(temperature=temperature)
    guided = estimate(table, guide, seed=streams.child("ms-gtg"))
    hard = method.class_difficulty(best, temperature)
    return pd.DataFrame({
        "MR": 100 * by_class @ frequency,
        "GTG": 100 * gtg.values,
        "class mean": 100 * by_class.mean(axis=1),
        "MS-MR": 100 * method.class_scores(by_class, hard),
        "MS-GTG": 100 * method.class_scores(guided.values, guided.info["beta"]),
        "leave-one-out": 100 * leave_one_out(accuracy).values,
        "cosine": policies.ClassCosine()([r])[0].values,
        "size": r.sizes / r.sizes.sum(),
    })  # fmt: skip


def _watch(
    s: Setting, made: dict[int, Federation], device: str | None, progress: bool = False
) -> tuple[History, pd.DataFrame]:
    """Run, and return every participant's scores as well: index seed, round and client."""
    seen = []

    def probe(r: Round, v: Valuation) -> dict[str, float]:
        f = made[r.streams.seed]
        frequency = np.bincount(f.y_val.numpy(), minlength=f.n_classes) / len(f.y_val)
        scores = scores_of_round(r, s.temperature, frequency)
        seen.append(scores.assign(seed=r.streams.seed, round=r.index, client=r.participants))
        return {}

    history = simulate(
        s, [*made.values()], [*made], utility="class_accuracy", probe=probe, device=device,
        progress=progress,
    )  # fmt: skip
    return history, pd.concat(seen).set_index(["seed", "round", "client"])


def run_detection(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """AUC of each score for each kind of misbehaviour, and for Mavericks against the rest.

    A client's score is its mean over its rounds.  The AUC is the share of pairs in which a
    misbehaving client scores below an honest one; ``maverick``, a Maverick above another honest
    client.
    """
    s = Setting.of(cell)
    _, seen = _watch(s, {seed: federation(s, seed) for seed in cell.seeds}, device, progress)
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        for name, means in seen.loc[seed].groupby("client").mean(skipna=False).items():
            mean = means.dropna()
            of = {kind: mean[mean.index.isin(ids)].to_numpy() for kind, ids in s.groups.items()}
            honest = np.concatenate([of["maverick"], of["honest"]])
            for kind in KINDS:
                metrics[f"auc.{kind}.{name}"] = chance_above(honest, of[kind])
            metrics[f"auc.maverick.{name}"] = chance_above(of["maverick"], of["honest"])
        yield common.result(seed, s.data, metrics)


def _scores(cell: Cell, device: str | None) -> dict[str, Any]:
    """Every score of every round of a golden run, of which a record of detection holds ranks."""
    s = Setting.of(cell)
    _, seen = _watch(s, {seed: federation(s, seed) for seed in cell.seeds}, device)
    rounds = [scores for _, scores in seen.groupby(["seed", "round"])]
    return {name: [scores[name].to_numpy() for scores in rounds] for name in map(str, seen)}


def run_five(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Figure 2: accuracy with and without the Maverick, and its reward by each score."""
    s = Setting.of(cell)
    made = {seed: federation(s, seed) for seed in cell.seeds}
    history, seen = _watch(s, made, device, progress)
    nobody = np.zeros(0, dtype=np.int64)
    kept = [replace(f, clients=(nobody, *f.clients[1:])) for f in made.values()]
    without = simulate(s, kept, cell.seeds, device=device, progress=progress)
    frames = [h.rounds_frame() for h in (history, without)]
    for seed in cell.seeds:
        mine, other = (tested_rounds(f[f.seed == seed]) for f in frames)
        metrics, series = {}, accuracy_curve(mine)
        series["without"] = accuracy_curve(other)["accuracy"]
        for name, scores in seen.loc[seed].items():
            table = scores.unstack("client").to_numpy()  # [rounds, clients]
            # the Maverick's score minus the mean of the others', in points
            gaps = table[:, 0] - table[:, 1:].mean(axis=1)
            metrics[f"gap.{name}"] = float(gaps.mean())
            metrics[f"last.{name}"] = 100 * float((table[:, 0] <= table[:, 1:].min(axis=1)).mean())
            if name in ("MR", "MS-MR"):
                series[f"gap.{name}"] = gaps[mine["round"].to_numpy() - 1].tolist()
        metrics["accuracy"] = series["accuracy"][-1]
        metrics["accuracy_without"] = series["without"][-1]
        yield common.result(seed, s.data, metrics, series)


_SLACK = {"metrics.accuracy*": 1.0, "series.accuracy": 1.0, "series.without": 1.0}
_DISCARDS = {"tolerance": 0.1, "last_tolerance": 0.01, "rounds": 10, "lr": 0.3}
RUN = Tiny(
    "run",
    run_cell,
    asdict(TINY),
    by="method",
    switches={
        "local": {}, "owned": {}, "shared": {}, "poisoned": {}, "adversaries": {},
        "estimator": {"method": "fedms"}, "model=lenet5": {"method": "fedms", "rounds": 2},
        "model=cnn": {"method": "fedms", "rounds": 2},
    },
    slack=_SLACK,
    more=common.tracer(Setting, federation, simulate),
    felt={
        "run.fedemd": {"emd_beta": 2.0},
        "run.fedms": _DISCARDS, "run.fedms-kept": _DISCARDS,
        # FedAvg asks few clients in four rounds, FedMS everybody in the first
        "run.owned=*": {"method": "fedms"}, "run.shared=*": {"method": "fedms"},
        "run.poisoned=*": {"method": "fedms"},
        "run.estimator=*": {"lr": 0.002},  # rounds that change nothing
    },
)  # fmt: skip
FIVE = Tiny(
    "five",
    run_five,
    asdict(replace(TINY, scenario="iid", clients=5, participants=5, mavericks=1)),
    switches={"local": {}, "scenario": {}},
    slack=_SLACK,
)
DETECTION = Tiny(
    "detection",
    run_detection,
    asdict(replace(TINY, adversaries=2, clients=8, rounds=5)),
    # one image on the other side moves a client past others; its score by less than a point, or
    # by some where the classes that are hardest count most
    slack={"metrics.auc.*": 0.15, "more.[!cs]*": 1.0, "more.class*": 1.0, "more.MS-*": 3.0},
    more=_scores,
)
PARTITION = Tiny("partition", run_partition, RUN.base, switches={"owned": {}})
for _name, _title, _golden in (
    ("table1", "Final accuracy with Mavericks", RUN),
    ("table2", "Who takes part, with misbehaving clients", RUN),
    ("five_clients", "Five clients, one Maverick (Figure 2)", FIVE),
    ("detection", "Which score finds which misbehaviour", DETECTION),
    ("study", "Other Mavericks, other validation data", RUN),
    ("tuning", "Hyper-parameters chosen on validation data", RUN),
    ("partition", "Who holds what (Figure 1)", PARTITION),
):
    common.experiment(
        "fedms", _name, _title, getattr(given, _name), partial(given.seeds_of, _name), _golden,
        block=None if _golden is PARTITION else 5,
    )  # fmt: skip
