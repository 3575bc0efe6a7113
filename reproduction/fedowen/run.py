"""FedOwen's evaluation: its methods, its federations, what is measured, and its experiments.

Every row of Table 1 is :class:`~fedkit.methods.fedowen.FedOwen` with another ``value``.  Tables 1
and 2 share their methods; Table 3 adds FedOwen without adaptive selection to the same cells;
Figures 2 and 6 to 10 are the series of Tables 1 and 2; Figures 3 and 4 are sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedkit import estimators as sampling
from fedkit.checks import Ints
from fedkit.estimators import Estimator, PermutationSampling, estimate_many
from fedkit.federated import policies
from fedkit.federated.federation import Federation, make_federation
from fedkit.federated.history import History
from fedkit.federated.partition import Dirichlet, long_tail
from fedkit.federated.policies import Estimated, UniformSelection
from fedkit.federated.rounds import ClientTable, Plan, Probe, Round, Select, Strategy
from fedkit.games.coalitions import ends
from fedkit.games.exact import shapley
from fedkit.games.game import Game, tabulate
from fedkit.games.valuation import Valuation
from fedkit.intervals import kendalls_tau
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedowen import EpsilonGreedy, FedOwen, OwenSampling, OwenTwins
from fedkit.streams import Streams
from reproduction import common
from reproduction.common import accuracies, accuracy_curve, dataset
from reproduction.fedowen import experiments as given
from reproduction.fedowen.experiments import RANDOM_SELECTION, TINY, Setting
from reproduction.golden import Tiny, trace
from reproduction.plugins import is_plugin
from reproduction.records import Cell


def estimators(s: Setting) -> dict[str, Estimator]:
    """Return the sampling estimators of the comparison, by method."""
    gtg = sampling.TruncatedMonteCarlo(s.gtg_eps, s.samples_per_client, from_zero=True)
    return {
        "mc": PermutationSampling(),  # Algorithm 3
        "banzhaf": sampling.BanzhafSampling(variant="as_printed"),  # Algorithm 4
        "gtg": gtg,  # Algorithm 5
        "weightedshap": PermutationSampling(beta=(s.beta, s.beta_second)),  # Algorithm 6
        "fedowen": OwenSampling(levels=s.levels, eta=s.eta),  # Algorithm 1
        "fedowen-corrected": sampling.MultilinearSampling(levels=2),
    }


@dataclass(frozen=True)
class _Doubled:
    """Another policy's values, doubled: what Algorithm 4 gives is half the Banzhaf value."""

    policy: Estimated

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [
            replace(v, values=2 * v.values, standard_errors=2 * v.standard_errors)
            for v in self.policy(rounds)
        ]


def strategy(s: Setting) -> Strategy:
    """Return the strategy of a setting: FedOwen's with another valuation, under budget parity.

    A name that ends in ``-no-adaptive`` selects at random (Table 3); ``package:Name`` is a method
    from outside, an estimator with the budget of the others.
    """
    estimated = partial(Estimated, budget=s.budget, normalised=s.normalised, no_gain=s.no_gain)
    sampled = {method: estimated(estimator) for method, estimator in estimators(s).items()}
    ours = FedOwen(select=EpsilonGreedy(s.epsilon, s.confidence, s.floor)).strategy()
    at_random = replace(ours, select=UniformSelection())
    cosine = replace(ours, value=policies.ClassCosine())  # Algorithm 7, line 1
    blind = replace(at_random, value=policies.NoValue())
    rows = {
        "fedavg": replace(blind, aggregate=policies.SizeWeighted()),
        **{method: replace(ours, value=value) for method, value in sampled.items()},
        "fedowen-eq11": replace(ours, value=estimated(OwenTwins(levels=s.levels))),
        "banzhaf-rescaled": replace(ours, value=_Doubled(sampled["banzhaf"])),
        "shapfed": cosine,
        "shapfed-proportional": replace(cosine, aggregate=policies.Proportional()),  # its line 2
        "exact": replace(ours, value=policies.Exact(s.normalised, s.no_gain)),
        "random-values": replace(ours, value=policies.RandomValues()),
        "uniform": replace(blind, aggregate=policies.UniformWeights()),
        "size-values": replace(ours, value=policies.SizeAsValue()),
        given.DEALT: replace(ours, value=policies.ShuffledValues(sampled["fedowen"])),
    }
    method = s.method.removesuffix(RANDOM_SELECTION)
    if is_plugin(method):
        return common.in_place(method, ours if s.method == method else at_random, estimated)
    if method not in rows:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(rows)}")
    row = rows[method]
    return row if s.method == method else replace(row, select=UniformSelection())


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: long tail, then Dirichlet, and 1% held by the server."""
    made = make_federation(
        dataset(s.data), s.clients, Dirichlet(s.alpha, by=s.split), seed,
        validation=s.validation, imbalance_factor=s.imbalance,
    )  # fmt: skip
    if s.tail == "train":
        return made
    kept = long_tail(made.y_test.numpy(), s.imbalance, Streams(seed).generator("test tail"))
    return replace(made, x_test=made.x_test[kept], y_test=made.y_test[kept])


def simulate(
    s: Setting, seeds: Sequence[int], rows: Strategy | None = None, **options: Any
) -> History:
    """Run the federations of a setting in lockstep; `options` are those of ``rounds.run``."""
    federations = [federation(s, seed) for seed in seeds]
    if s.tail == "train":  # one copy for all replicates
        x_test, y_test = federations[0].x_test, federations[0].y_test
        federations = [replace(f, x_test=x_test, y_test=y_test) for f in federations]
    plan = Plan(
        rounds=s.rounds,
        participants=s.participants,
        local=LocalSGD(lr=s.lr, momentum=s.momentum, batch_size=s.batch_size, epochs=s.epochs),
        weighting=s.weighting,
        evaluate_every=s.evaluate_every,
    )
    return common.lockstep(s, federations, rows or strategy(s), plan, seeds, **options)


def _probe(s: Setting, measured: bool) -> Probe:
    """Say whether a round gains anything and, every few rounds, how far the estimate is off."""
    estimates = isinstance(strategy(s).value, Estimated | _Doubled)
    measured = measured and s.exact_every > 0 and estimates

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        empty, grand = r.game()(ends(len(r.participants)))
        result = {"error": np.nan, "correlation": np.nan, "gainless": float(grand <= empty)}
        if measured and (r.index + 1) % s.exact_every == 0:
            exact = shapley(r.game(s.normalised, s.no_gain)).values
            size = np.abs(exact).mean()
            if size > 0:  # else nobody changes any utility, and there is nothing to miss
                result["error"] = float(np.sqrt(np.mean((valuation.values - exact) ** 2)) / size)
            if exact.std() > 0 and valuation.values.std() > 0:
                result["correlation"] = float(np.corrcoef(exact, valuation.values)[0, 1])
        return result

    return probe


def run_cell(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = Setting.of(cell)
    # Exact values take as long as all estimates of a run.  They change nothing in it, so outside
    # of Table 1 the errors of the first block of seeds are enough.
    probe = _probe(s, cell.experiment == "table1" or min(cell.seeds) < given.BLOCK)
    history = simulate(s, cell.seeds, probe=probe, device=device, progress=progress)
    frame, clients = history.rounds_frame(), history.clients_frame()
    # gainless: share of rounds with v(N) <= v(empty)
    measured = ("error", "correlation", "gainless", "evaluations", "calls")
    seconds = history.seconds["value"] / s.rounds / len(cell.seeds)
    for seed in cell.seeds:
        rows, mine = frame[frame.seed == seed], clients[clients.seed == seed]
        share = mine.client.value_counts(normalize=True)
        weight = mine.groupby("round").weight
        squares = mine.weight.pow(2).groupby(mine["round"]).sum()
        metrics = {
            **accuracies(rows),
            **{name: float(rows[name].mean()) for name in measured},
            "clients_seen": int(mine.client.nunique()),
            "effective_clients": float(1 / (share**2).sum()),
            "weight_ratio": float((weight.max() / weight.min().clip(lower=1e-12)).median()),
            "effective_participants": float((1 / squares).mean()),
            "value_seconds_per_round": seconds,
        }
        yield common.result(seed, s.data, metrics, accuracy_curve(rows), rows)


#: of one table by each estimator
ESTIMATES = 50


def run_round_errors(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Value the same rounds with every estimator, `ESTIMATES` times, against their exact values."""
    s = Setting.of(cell)
    tables: dict[int, list[Game]] = {seed: [] for seed in cell.seeds}

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        if (r.index + 1) % s.exact_every == 0:
            tables[r.streams.seed].append(tabulate(r.game(s.normalised, s.no_gain)))
        return {}

    simulate(s, cell.seeds, probe=probe, device=device, progress=progress)
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        for method, estimator in estimators(s).items():
            scores = [_agreement(g, estimator, s, Streams(seed).child(t, method))
                      for t, g in enumerate(tables[seed])]  # fmt: skip
            for name in ("error", "correlation", "same_best"):
                metrics[f"{name}.{method}"] = float(np.nanmean([x[name] for x in scores]))
        yield common.result(seed, s.data, metrics, {})


def _agreement(game: Game, estimator: Estimator, s: Setting, streams: Streams) -> dict[str, float]:
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


def run_low_gain(cell: Cell, device: str | None, progress: bool) -> Iterator[dict[str, Any]]:
    """Run FedOwen under other scales of the bonus of clients below the floor (Algorithm 2, line 9).

    Metrics, by scale and for 0.1 with other draws: ``accuracy``, and ``tau``, Kendall's tau-b of
    the clients' last values with those under 0.1; without a scale the mean over the paper's grid.
    """
    s = Setting.of(cell)
    own = strategy(s)
    rules = {f"{x:g}": EpsilonGreedy(s.epsilon, s.confidence, s.floor, x) for x in given.LOW_GAINS}
    usual, *grid_ = (f"{x:g}" for x in given.LOW_GAINS[:3])

    def redrawn(table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        """The usual rule with other draws: the yardstick for what another one changes."""
        return rules[usual](table, k, np.random.default_rng(rng.integers(1 << 62)))

    selects: dict[str, Select] = {**rules, "redrawn": redrawn}
    histories = {
        name: simulate(s, cell.seeds, replace(own, select=select), device=device, progress=progress)
        for name, select in selects.items()
    }
    for seed in cell.seeds:
        metrics, last = {}, {}
        for name, history in histories.items():
            values = history.clients_frame().query("seed == @seed").groupby("client").value.last()
            last[name] = values.reindex(range(s.clients), fill_value=0.0).to_numpy()
            metrics[f"accuracy.{name}"] = 100 * history.final_accuracy()[seed]
        for name in (*selects,)[1:]:
            metrics[f"tau.{name}"] = float(kendalls_tau(last[name], last[usual]))
        metrics["tau"] = float(np.mean([metrics[f"tau.{x}"] for x in grid_]))
        yield common.result(seed, s.data, metrics)


def _traced(cell: Cell, device: Any) -> dict[str, Any]:
    """What a golden run did, and every client's chance to be selected next."""
    s, remembered = Setting.of(cell), list[Any]()
    history = simulate(s, cell.seeds, device=device, remembered=remembered)
    numbers, rule = trace(history, remembered), strategy(s).select
    if isinstance(rule, EpsilonGreedy):
        asked = np.array(numbers["client"]).reshape(s.rounds, -1)
        counts = np.stack([np.bincount(ids, minlength=s.clients) for ids in asked]).cumsum(axis=0)
        numbers["chance"] = [
            rule.probabilities(values, n, t)
            for t, (values, n) in enumerate(zip(remembered, counts, strict=True), start=1)
        ]
    return numbers


RUN = Tiny(
    "run",
    run_cell,
    asdict(TINY),
    by="method",
    switches={
        "model=lenet5": {"method": "fedowen", "rounds": 2}, "split": {},
        "model=resnet18": {"method": "fedavg", "rounds": 1}, "momentum": {"method": "fedavg"},
        "weighting": {"method": "fedowen"}, "normalised": {"method": "fedowen"},
        "budget_grows": {"method": "fedowen", "levels": 4},
        "beta": {"method": "weightedshap"}, "beta_second": {"method": "weightedshap"},
        "tail": {"method": "fedavg"}, "no_gain": {"method": "fedowen"},
    },
    slack={"metrics.accuracy*": 1.0, "series.accuracy": 1.0},
    more=_traced,
    felt={
        "run.fedowen": {"eta": 0.3, "epsilon": 0.0, "confidence": 1.0, "floor": 0.1, "rounds": 5},
        "run.gtg": {"gtg_eps": 0.3},
        "run.weighting=*": {"alpha": 0.1, "split": "class"},  # of clients of unequal sizes
        # of which some rounds gain nothing
        "run.no_gain=*": {"alpha": 0.05, "split": "client", "rounds": 6},
    },
)  # fmt: skip
ROUND_ERRORS = Tiny(
    "round-errors", run_round_errors, asdict(replace(TINY, method="uniform", exact_every=3))
)
LOW_GAIN = Tiny(
    "low-gain",
    run_low_gain,
    asdict(replace(TINY, method="fedowen")),
    slack={"metrics.accuracy*": 1.0, "metrics.tau*": 0.2},
    more=_traced,
    felt={"low-gain": {"epsilon": 0.0, "confidence": 1.0, "floor": 0.1, "rounds": 6}},
)


for _name, _title, _golden in (
    ("table1", "Final accuracy, imbalance factor 0.01", RUN),
    ("table2", "Final accuracy, imbalance factor 0.05", RUN),
    ("table3", "FedOwen without adaptive selection", RUN),
    ("sweep_levels", "Inclusion levels Q (Figure 3)", RUN),
    ("sweep_epsilon", "Exploration rate epsilon (Figure 4)", RUN),
    ("sensitivity", "Settings that the paper's text does not give", RUN),
    ("low_gain", "Scale of the bonus of clients below the floor (line 9 of Algorithm 2)", LOW_GAIN),
    ("readings", "Rows that read the text otherwise", RUN),
    ("declared", "Tables 1 and 2 in the declared reading", RUN),
    ("classwise", "Table 1 with clients of unequal size (class-wise split)", RUN),
    ("reduced", "Columns at a reduced scale", RUN),
    ("round_errors", "Every estimator on the same rounds", ROUND_ERRORS),
):
    _entry = "{}" + RANDOM_SELECTION * (_name == "table3") if _golden is RUN else None
    common.experiment(
        "fedowen", _name, _title, getattr(given, _name), partial(given.seeds_of, _name), _golden,
        block=given.BLOCK, entry=_entry,
    )  # fmt: skip
