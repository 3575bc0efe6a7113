"""FedOwen (KhademSohi et al.): its methods, and the cells behind Tables 1 to 3 and Figures 2 to 10.

Every row of Table 1 is one :class:`~fedkit.federated.rounds.Strategy`: the same scheduler
(Algorithm 2) and the same softmax aggregation (Eq. 14, 15), another ``value``.  What the paper's
text does not give (its published code was not read) is a field of :class:`Setting` with our choice
as its default, and is swept by ``sensitivity``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedkit import estimators as est
from fedkit.datasets.dataset import Dataset, load
from fedkit.federated.aggregation import (
    Aggregation,
    Proportional,
    SizeWeighted,
    UniformWeights,
)
from fedkit.federated.clients import Federation, make_federation
from fedkit.federated.history import History
from fedkit.federated.partitioners import Dirichlet
from fedkit.federated.rounds import Plan, Probe, Strategy, run
from fedkit.federated.selection import UniformSelection
from fedkit.federated.valuers import (
    ClassCosine,
    Estimated,
    Exact,
    NoValue,
    RandomValues,
    Round,
    SizeAsValue,
    ValuePolicy,
)
from fedkit.games.game import TableGame, tabulate
from fedkit.games.valuation import Valuation
from fedkit.learning.architectures import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedowen import EpsilonGreedy, OwenSampling, Softmax
from fedkit.papers.registry import Cell
from fedkit.streams import Streams

PAPER_METHODS = ("fedavg", "mc", "gtg", "banzhaf", "weightedshap", "shapfed", "fedowen")
OUR_METHODS = ("shapfed-proportional", "fedowen-corrected", "exact")
CONTROLS = ("random-values", "uniform", "size-values")
METHODS = PAPER_METHODS + OUR_METHODS + CONTROLS
RANDOM_SELECTION = "-no-adaptive"
#: Table 3's row, with what blind and exact values reach in the same place.
TABLE_3 = tuple(m + RANDOM_SELECTION for m in ("fedowen", "exact", "random-values", "size-values"))


@dataclass(frozen=True)
class Setting:
    """One run of FedOwen's evaluation (section 4), all seeds apart.

    Attributes
    ----------
    method : str
        A row of Tables 1 to 3, one of ours, or a control.
    dataset, data : str
        Column of the paper's tables, and the data set that was loaded for it.
    alpha, imbalance : float
        Dirichlet concentration and imbalance factor.
    clients, participants, rounds, epochs : int
        The paper: 100, 10, 100, 1.
    samples_per_client : int
        M of the budget N x M; the paper's 4.
    levels, epsilon : int, float
        Q and epsilon; the paper's 2 and 0.1.
    validation : float
        Share of the data set that the server holds; the paper's 1%.
    lr, momentum, batch_size, confidence, floor, eta, gtg_eps, beta : float or int
        Not in the paper's text: local SGD, c and tau of Algorithm 2, eta of Algorithm 1, the
        threshold of Algorithm 5, and the first Beta parameter of Algorithm 6 (the second is 1).
    split : str
        How Dirichlet(alpha) is applied (see :class:`~fedkit.federated.partitioners.Dirichlet`);
        "blocks" is the procedure of CReFF, the paper's source for its long tail.
    weighting : str
        How v(S) averages the updates of S.
    normalised : bool
        Value the game scaled to v(empty) = 0 and v(N) = 1, as section 3.2 says, or the raw one.
    budget_grows : bool
        Keep the walks per level at M / 2, those of Q = 2, so that the budget grows with Q; else
        the budget is N x M for every Q.  Figure 3 allows both readings.
    exact_every : int
        Every so many rounds the exact values are computed beside the estimate; 0 is never.
    evaluate_every : int
        Test accuracy is measured every so many rounds.
    """

    method: str
    dataset: str
    data: str
    alpha: float
    imbalance: float
    model: str = "lenet5"
    clients: int = 100
    participants: int = 10
    rounds: int = 100
    epochs: int = 1
    samples_per_client: int = 4
    levels: int = 2
    epsilon: float = 0.1
    validation: float = 0.01
    lr: float = 0.1
    momentum: float = 0.0
    batch_size: int = 32
    confidence: float = 0.1
    floor: float = 0.0
    eta: float = 0.01
    gtg_eps: float = 0.01
    beta: float = 4.0
    split: str = "blocks"
    weighting: str = "size"
    normalised: bool = True
    budget_grows: bool = False
    exact_every: int = 25
    evaluate_every: int = 5

    @property
    def budget(self) -> int:
        """Utility calls per round: N x M (section 4.2)."""
        calls = self.participants * self.samples_per_client
        return calls * self.levels // 2 if self.budget_grows else calls


def estimators(s: Setting) -> dict[str, est.Estimator]:
    """Return the sampling estimators of the comparison, by method."""
    owen = OwenSampling(levels=s.levels, eta=s.eta)
    gtg = est.GTGShapley(within=s.gtg_eps, walks=s.samples_per_client, as_printed=True)
    return {
        "mc": est.PermutationSampling(),  # Algorithm 3
        "banzhaf": est.BanzhafSampling(variant="as_printed"),  # Algorithm 4
        "gtg": gtg,  # Algorithm 5
        "weightedshap": est.BetaShapleySampling(s.beta, 1, antithetic=False),  # Algorithm 6
        "fedowen": owen,  # Algorithm 1
        "fedowen-corrected": est.MultilinearSampling(levels=2),
    }


def _value(s: Setting) -> ValuePolicy:
    """The valuation of a method, under budget parity."""
    sampled = estimators(s)
    method = s.method.removesuffix(RANDOM_SELECTION)
    others: dict[str, ValuePolicy] = {
        "fedavg": NoValue(),
        "shapfed": ClassCosine(),  # Algorithm 7, line 1
        "shapfed-proportional": ClassCosine(),
        "exact": Exact(s.normalised),
        "random-values": RandomValues(),
        "uniform": NoValue(),
        "size-values": SizeAsValue(),
    }
    if method in sampled:
        return Estimated(sampled[method], s.budget, normalised=s.normalised)
    if method not in others:
        known = ", ".join([*sampled, *others])
        raise ValueError(f"unknown method {s.method!r}; there are {known}")
    return others[method]


def strategy(s: Setting) -> Strategy:
    """Return the strategy of a setting: scheduler, valuation and aggregation.

    Section 4.1 has every estimator, ShapFed-WA among them, share the softmax aggregation;
    Algorithm 7 of the appendix weights by the scores themselves, which is the method
    ``shapfed-proportional``.  A name that ends in ``-no-adaptive`` selects at random (Table 3).
    """
    adaptive = EpsilonGreedy(s.epsilon, s.confidence, s.floor)
    random = s.method in ("fedavg", "uniform") or s.method.endswith(RANDOM_SELECTION)
    aggregate: dict[str, Aggregation] = {
        "fedavg": SizeWeighted(),
        "uniform": UniformWeights(),
        "shapfed-proportional": Proportional(),  # Algorithm 7, line 3
    }
    return Strategy(
        UniformSelection() if random else adaptive,
        _value(s),
        aggregate.get(s.method, Softmax()),
    )


@lru_cache(maxsize=2)
def _dataset(name: str) -> Dataset:
    return load(name)


def identity(s: Setting) -> dict[str, str]:
    """Return which data a setting runs on, for the record's manifest."""
    data = _dataset(s.data)
    return {"name": data.name, "source": data.source, "checksum": data.fingerprint}


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: long tail, then Dirichlet, and 1% held by the server."""
    return make_federation(
        _dataset(s.data),
        s.clients,
        Dirichlet(s.alpha, by=s.split),  # type: ignore[arg-type]
        seed,
        validation=s.validation,
        imbalance_factor=s.imbalance,
    )


def _exact_probe(s: Setting) -> Probe:
    """Measure the estimate's error inside the run: exact values of every few rounds."""
    valued = isinstance(_value(s), Estimated)

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        result = {"error": np.nan, "correlation": np.nan}
        if valued and s.exact_every and (r.index + 1) % s.exact_every == 0:
            exact = est.shapley(r.game(normalised=s.normalised)).values
            size = np.abs(exact).mean()
            if size > 0:  # else nobody changes any utility, and there is nothing to miss
                result["error"] = float(np.sqrt(np.mean((valuation.values - exact) ** 2)) / size)
            if exact.std() > 0 and valuation.values.std() > 0:
                result["correlation"] = float(np.corrcoef(exact, valuation.values)[0, 1])
        return result

    return probe


def setting(cell: Cell) -> Setting:
    """Return the setting of a cell."""
    known = {f.name for f in fields(Setting)}
    return Setting(**{k: v for k, v in cell.settings.items() if k in known})


def simulate(
    s: Setting, seeds: Sequence[int], probe: Probe | None, device: str | None, progress: bool
) -> History:
    """Run the federations of a setting, one per seed, in lockstep."""
    federations = [federation(s, seed) for seed in seeds]
    x_test, y_test = federations[0].x_test, federations[0].y_test  # one copy for all replicates
    federations = [replace(f, x_test=x_test, y_test=y_test) for f in federations]
    local = LocalSGD(lr=s.lr, momentum=s.momentum, batch_size=s.batch_size, epochs=s.epochs)
    return run(
        federations,
        build(s.model, federations[0].input_shape, federations[0].n_classes),
        strategy(s),
        Plan(
            rounds=s.rounds,
            participants=s.participants,
            local=local,
            weighting=s.weighting,  # type: ignore[arg-type]
            evaluate_every=s.evaluate_every,
        ),
        seeds,
        device=device,
        probe=probe,
        progress=progress,
    )


ESTIMATES = 50


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

    simulate(s, cell.seeds, probe, device, progress)
    results = []
    for seed in cell.seeds:
        metrics: dict[str, float] = {}
        for method, estimator in estimators(s).items():
            scores = [_agreement(g, estimator, s, Streams(seed).child(t, method))
                      for t, g in enumerate(tables[seed])]  # fmt: skip
            for name in ("error", "correlation", "same_best"):
                metrics[f"{name}.{method}"] = float(np.nanmean([x[name] for x in scores]))
        results.append({"seed": int(seed), "metrics": metrics, "series": {}, "data": identity(s)})
    return results


def _agreement(
    game: TableGame, estimator: est.Estimator, s: Setting, streams: Streams
) -> dict[str, float]:
    """Relative error, correlation and agreement on the best participant, over estimates."""
    exact = est.shapley(game).values
    if not exact.any() or exact.std() == 0:
        return dict.fromkeys(("error", "correlation", "same_best"), np.nan)
    found = est.estimate_many(
        game, estimator, s.budget, [streams.child(i) for i in range(ESTIMATES)], count="calls"
    )
    values = np.stack([v.values for v in found])
    spread = values.std(axis=1) > 0
    return {
        "error": float(np.sqrt(((values - exact) ** 2).mean(axis=1)).mean() / np.abs(exact).mean()),
        "correlation": float(np.mean([np.corrcoef(v, exact)[0, 1] for v in values[spread]] or [0])),
        "same_best": float((values.argmax(axis=1) == exact.argmax()).mean()),
    }


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting on a block of seeds, in lockstep."""
    s = setting(cell)
    history = simulate(s, cell.seeds, _exact_probe(s), device, progress)
    frame = history.rounds_frame()
    clients = history.clients_frame()
    seconds = history.seconds["value"] / s.rounds / len(cell.seeds)
    results = []
    for seed in cell.seeds:
        rows = frame[frame.seed == seed]
        mine = clients[clients.seed == seed]
        tested = rows[rows.accuracy.notna()]
        share = mine.client.value_counts(normalize=True)
        weight = mine.groupby("round").weight
        results.append(
            {
                "seed": int(seed),
                "metrics": {
                    "accuracy": 100 * float(tested.accuracy.iloc[-1]),
                    "accuracy_last_10_rounds": 100
                    * float(tested[tested["round"] > s.rounds - 10].accuracy.mean()),
                    "accuracy_best": 100 * float(tested.accuracy.max()),
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
                "series": {
                    "round": tested["round"].tolist(),
                    "accuracy": (100 * tested.accuracy).tolist(),
                },
                "data": identity(s),
                "evaluations": int(rows.evaluations.sum()),
            }
        )
    return results
