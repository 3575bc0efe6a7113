"""FedTSV: its methods, baselines and controls, and the federations of its evaluation (section IV).

Every row is one :class:`~fedkit.federated.rounds.Strategy` with the same uniform selection: the
methods differ in the weights of the aggregation alone.  What the paper does not give is a field of
:class:`Setting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from fedkit.estimators import PermutationSampling
from fedkit.federated.adversaries import LabelPermutation
from fedkit.federated.aggregation import Aggregation, UniformWeights
from fedkit.federated.clients import Federation, Transform, make_federation
from fedkit.federated.history import History
from fedkit.federated.partitioners import IID, Dirichlet, Mixed
from fedkit.federated.rounds import (
    Plan,
    Remember,
    Strategy,
    Weigh,
    keep_latest,
    keep_total,
    run,
)
from fedkit.federated.selection import UniformSelection
from fedkit.federated.valuers import Exact, NoValue, RandomValues, Round, ValuePolicy
from fedkit.learning.architectures import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.cgsv import (
    CosineValues,
    LeaveOneOut,
    OracleWeights,
    RunningCosine,
    ShuffledValues,
)
from fedkit.methods.fedtsv import ContributionWeights, TrajectoryValues, Utility, equal_lengths
from fedkit.papers import common
from fedkit.papers.common import dataset
from fedkit.streams import Streams

PAPER_METHODS = ("fedavg", "cgsv", "loo", "tsv")
#: LOO by the other utility of Eq. 5; TSV by sampling as in the paper; CGSV by its game, and without
#: its normalisation
READINGS = ("loo-loss", "tsv-sampled", "cgsv-game", "cgsv-raw")
#: exact values of the round by accuracy; FedTSV's values, shuffled; values that know nothing; a
#: server that knows who lies
CONTROLS = ("mr", "shuffled", "random", "oracle")
METHODS = PAPER_METHODS + READINGS + CONTROLS
KINDS = ("iid", "skewed", "malicious")


@dataclass(frozen=True)
class Setting:
    """One run of FedTSV's evaluation, all seeds apart.

    Attributes
    ----------
    method : str
        A method of the paper, another reading of one, or a control.
    dataset, data : str
        Column of the paper's figures, and the data set that was loaded for it.
    clients, skewed, malicious : int
        All clients; those with a Dirichlet split of their own; those with permuted labels.  The
        paper: 100, 10, 20.
    gamma : float
        The Dirichlet parameter, lost in every copy of the paper.
    participants, rounds : int
        5, and 400 (MNIST) or 1000 (CIFAR-10).
    lr : float
        Learning rate, lost too.
    batch_size : int
        64 (MNIST) or 8 (CIFAR-10); one local epoch.
    validation : int
        Images that the server holds, taken from the test set.
    one_sided : float
        Share of the second half of the classes that stays in the validation set; 1 is unbiased.
    scale : float
        Factor of what malicious clients send.
    even : bool or "clip"
        True: the server brings the updates of a round to the length of the median one before it
        does anything else, as CGSV's authors do before they average; "clip": it shortens those that
        are longer.  The paper names "gradient clipping or norm regularization" and tries neither
        (section IV-B).
    collusion : bool
        All malicious clients apply the same permutation; the paper's "a fixed label-shuffling
        mapping" can mean either.
    utility : str
        Utility of the trajectory game, see
        :class:`~fedkit.methods.fedtsv.TrajectoryGame`.
    evaluate_every : int
        Test accuracy and loss are measured every so many rounds.
    """

    method: str
    dataset: str
    data: str
    model: str = "mlp-64"
    clients: int = 100
    skewed: int = 10
    malicious: int = 20
    gamma: float = 0.5
    participants: int = 5
    rounds: int = 400
    lr: float = 0.01
    batch_size: int = 64
    validation: int = 1000
    one_sided: float = 1.0
    scale: float = 1.0
    even: bool | Literal["clip"] = False
    collusion: bool = False
    utility: Utility = "exponential"
    evaluate_every: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.skewed + self.malicious < self.clients:
            raise ValueError(
                f"skewed is {self.skewed} and malicious {self.malicious} of {self.clients} "
                "clients; leave at least one IID client"
            )
        if self.even not in (False, True, "clip"):
            raise ValueError(f'even is {self.even!r}; expected False, True or "clip"')
        if not 0 < self.one_sided <= 1:
            raise ValueError(f"one_sided is {self.one_sided}; it is a share, above 0")
        if self.validation < 1:
            raise ValueError(f"validation is {self.validation}; the reference needs images")

    @property
    def honest(self) -> int:
        """Number of clients that do not misbehave; they come first."""
        return self.clients - self.malicious

    def kinds(self) -> np.ndarray:
        """Kind of every client, as a place in :data:`KINDS`: IID first, malicious last."""
        iid = self.honest - self.skewed
        return np.repeat([0, 1, 2], [iid, self.skewed, self.malicious])


setting = partial(common.setting, Setting)


def strategy(s: Setting) -> Strategy:
    """Return the strategy of a setting."""
    follow, exact = ContributionWeights(), TrajectoryValues(utility=s.utility)
    sampled = TrajectoryValues(PermutationSampling(), 2 * s.participants + 2, s.utility)
    rows: dict[str, tuple[ValuePolicy, Aggregation | Weigh, Remember]] = {
        "fedavg": (NoValue(), UniformWeights(), keep_latest),
        "tsv": (exact, follow, keep_total),
        "tsv-sampled": (sampled, follow, keep_total),
        "loo": (LeaveOneOut(), follow, keep_total),
        "loo-loss": (LeaveOneOut(), follow, keep_total),  # its plan has the other utility
        "cgsv": (CosineValues(), follow, RunningCosine()),
        "cgsv-game": (CosineValues(exact=True), follow, RunningCosine()),
        "cgsv-raw": (CosineValues(normalised=False), follow, RunningCosine()),
        "mr": (Exact(normalised=False), follow, keep_total),
        "shuffled": (ShuffledValues(exact), follow, keep_total),
        "random": (RandomValues(), follow, keep_total),
        "oracle": (NoValue(), OracleWeights(tuple(range(s.honest, s.clients))), keep_latest),
    }
    if s.method not in rows:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(METHODS)}")
    value, aggregate, remember = rows[s.method]
    return Strategy(UniformSelection(), value, aggregate, remember)


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: IID, then skewed, then malicious ones."""
    data = dataset(s.data)
    groups: list[tuple[int, Any]] = [(s.honest - s.skewed, IID())]
    if s.skewed:
        groups.append((s.skewed, Dirichlet(s.gamma, by="client")))
    if s.malicious:
        groups.append((s.malicious, IID()))
    made = make_federation(
        data,
        s.clients,
        Mixed(tuple(groups)),
        seed,
        validation=s.validation / len(data.y_test),
        validation_from="test",
        empty="refill",
    )
    if s.one_sided < 1:
        made = _one_sided(made, s.one_sided, seed)
    permutation = LabelPermutation(made.n_classes)
    liar: Transform = _SamePermutation(permutation, seed) if s.collusion else permutation
    return made.with_transforms(dict.fromkeys(range(s.honest, s.clients), liar))


@dataclass(frozen=True)
class _SamePermutation:
    """A permutation that does not depend on the client: the rule's draw from one stream."""

    rule: LabelPermutation
    seed: int

    def __call__(
        self, x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rule(x, y, Streams(self.seed).generator("fedtsv", "collusion"))


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


def simulate(
    s: Setting,
    federations: Sequence[Federation],
    seeds: Sequence[int],
    *,
    rows: Strategy | None = None,
    **options: Any,
) -> History:
    """Run the federations of a setting, one per seed, in lockstep.

    `rows` takes the place of the method's own strategy; `options` are those of
    :func:`fedkit.federated.rounds.run`.
    """

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
    network = build(s.model, federations[0].input_shape, federations[0].n_classes)
    attack = sent if s.scale != 1 or s.even else None
    return run(federations, network, rows or strategy(s), plan, seeds, attack=attack, **options)
