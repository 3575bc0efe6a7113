"""FedOwen (KhademSohi et al.): its methods, and the federations of its evaluation (section 4).

Every row of Table 1 is :class:`~fedkit.methods.fedowen.FedOwen` with another ``value``.  What the
paper's text does not give (its published code was not read) is a field of :class:`Setting` with our
choice as its default, and is swept by ``sensitivity``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from fedkit import estimators as est
from fedkit.federated.aggregation import (
    Aggregation,
    Proportional,
    SizeWeighted,
    UniformWeights,
)
from fedkit.federated.clients import Federation, make_federation
from fedkit.federated.history import History
from fedkit.federated.partitioners import Dirichlet
from fedkit.federated.rounds import Plan, Strategy, run
from fedkit.federated.selection import UniformSelection
from fedkit.federated.valuers import (
    ClassCosine,
    Estimated,
    Exact,
    NoValue,
    RandomValues,
    SizeAsValue,
    ValuePolicy,
)
from fedkit.learning.architectures import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedowen import EpsilonGreedy, FedOwen, OwenSampling
from fedkit.papers import common
from fedkit.papers.common import dataset

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
    split: Literal["class", "client", "blocks"] = "blocks"
    weighting: Literal["size", "uniform"] = "size"
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


setting = partial(common.setting, Setting)


def strategy(s: Setting) -> Strategy:
    """Return the strategy of a setting: FedOwen's with another valuation, under budget parity.

    Section 4.1 has every estimator, ShapFed-WA among them, share the softmax aggregation;
    Algorithm 7 of the appendix weights by the scores themselves, which is the method
    ``shapfed-proportional``.  A name that ends in ``-no-adaptive`` selects at random (Table 3).
    """
    ours = FedOwen(select=EpsilonGreedy(s.epsilon, s.confidence, s.floor)).strategy()
    values: dict[str, ValuePolicy] = {
        "fedavg": NoValue(),
        **{
            method: Estimated(estimator, s.budget, normalised=s.normalised)
            for method, estimator in estimators(s).items()
        },
        "shapfed": ClassCosine(),  # Algorithm 7, line 1
        "shapfed-proportional": ClassCosine(),
        "exact": Exact(s.normalised),
        "random-values": RandomValues(),
        "uniform": NoValue(),
        "size-values": SizeAsValue(),
    }
    aggregate: dict[str, Aggregation] = {
        "fedavg": SizeWeighted(),
        "uniform": UniformWeights(),
        "shapfed-proportional": Proportional(),  # Algorithm 7, line 3
    }
    method = s.method.removesuffix(RANDOM_SELECTION)
    if method not in values:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(values)}")
    random = s.method in ("fedavg", "uniform") or s.method != method
    return replace(
        ours,
        select=UniformSelection() if random else ours.select,
        value=values[method],
        aggregate=aggregate.get(s.method, ours.aggregate),
    )


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: long tail, then Dirichlet, and 1% held by the server."""
    return make_federation(
        dataset(s.data),
        s.clients,
        Dirichlet(s.alpha, by=s.split),
        seed,
        validation=s.validation,
        imbalance_factor=s.imbalance,
    )


def simulate(s: Setting, seeds: Sequence[int], **options: Any) -> History:
    """Run the federations of a setting in lockstep; `options` are those of ``rounds.run``."""
    federations = [federation(s, seed) for seed in seeds]
    x_test, y_test = federations[0].x_test, federations[0].y_test  # one copy for all replicates
    federations = [replace(f, x_test=x_test, y_test=y_test) for f in federations]
    plan = Plan(
        rounds=s.rounds,
        participants=s.participants,
        local=LocalSGD(lr=s.lr, momentum=s.momentum, batch_size=s.batch_size, epochs=s.epochs),
        weighting=s.weighting,
        evaluate_every=s.evaluate_every,
    )
    network = build(s.model, federations[0].input_shape, federations[0].n_classes)
    return run(federations, network, strategy(s), plan, seeds, **options)
