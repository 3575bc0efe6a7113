"""FedMS: its methods, baselines and controls, and the federations of its evaluation (section 5).

Every row of Tables 1 and 2 is one :class:`~fedkit.federated.rounds.Strategy`.  What the paper does
not give, or gives in two ways, is a field of :class:`Setting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedkit.estimators import Estimator, GTGShapley
from fedkit.federated.adversaries import (
    Adversaries,
    FreeRider,
    LabelFlip,
    RandomData,
    RandomUpdate,
    UpdateAttack,
)
from fedkit.federated.aggregation import Aggregation, SizeWeighted, UniformWeights
from fedkit.federated.clients import Federation, Transform, make_federation
from fedkit.federated.history import History
from fedkit.federated.partitioners import IID, Dirichlet, Mavericks
from fedkit.federated.rounds import Plan, Strategy, keep_latest, run
from fedkit.federated.selection import Selection, UniformSelection
from fedkit.federated.valuers import Estimated, Exact, NoValue, ValuePolicy
from fedkit.learning.architectures import build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedms import FedMS, MaverickGTG, MaverickMR, MaverickTMR
from fedkit.methods.selection_baselines import (
    FedEMD,
    GreedyFed,
    Oracle,
    PowerOfChoice,
    RunningValue,
    SFedAvg,
)
from fedkit.papers import common
from fedkit.papers.common import dataset
from fedkit.streams import Streams

PAPER_METHODS = ("fedavg", "fedprox", "poc", "fedemd", "s-fedavg", "greedyfed", "fedms")
READINGS = ("fedms-printed", "fedms-fraction", "fedms-kept")
CONTROLS = ("uniform-coreset", "oracle")
METHODS = PAPER_METHODS + READINGS + CONTROLS
#: gamma of the Dirichlet split by scenario
SCENARIOS = {"dir10": 10.0, "dir1": 1.0, "dir0.1": 0.1}
KINDS = ("LabelFlip", "RandomData", "RandomUpdate", "FreeRider")


@dataclass(frozen=True)
class Setting:
    """One run of FedMS's evaluation, all seeds apart.

    Attributes
    ----------
    method : str
        A row of Tables 1 and 2, another reading of FedMS, or a control.
    dataset, data : str
        Column of the paper's tables, and the data set that was loaded for it.
    scenario : str
        "dir10", "dir1" or "dir0.1".
    adversaries : int
        Clients of each of the four kinds of misbehaviour; Table 2 has 2 of each.
    mavericks, shared : int, bool
        Clients that alone hold classes, one class each; or all of them share these classes.
    owned : float
        Share of the images of their own classes that Mavericks keep; the rest is nobody's.
    poisoned : bool
        Validation images of the first Maverick's class and of the next class have swapped labels.
    clients, participants, rounds : int
        Well-behaved clients (the paper: 50), participants per round (10% of them), rounds.
    local : str
        What '5 local rounds' means: "steps", one mini-batch each (UserUpdate of Algorithm 2), or
        "epochs", passes over the data.
    local_rounds, lr, batch_size : int, float, int
        The paper: 5 (MNIST) or 1 (CIFAR-10), 0.05, 64.
    validation : float
        Share of the test images that the server holds; the paper's 20%.
    mu, poc_decay, emd_beta, sv_alpha : float
        FedProx, Power-of-Choice, FedEMD, and the decay of S-FedAvg and GreedyFed (section 5.1).
    alpha, temperature, tolerance, last_tolerance : float
        FedMS: decay of S, T, and eps_d at the first and the last round.
    estimator : str
        "gtg" (MS-GTG, as in the paper), "mr" (MS-MR, exact) or "tmr" (MS-TMR, exact where the round
        changed something).
    evaluate_every : int
        Test accuracy is measured every so many rounds.
    """

    method: str
    dataset: str
    data: str
    scenario: str
    adversaries: int = 0
    mavericks: int = 2
    shared: bool = False
    owned: float = 1.0
    poisoned: bool = False
    model: str = "mlp-200"
    clients: int = 50
    participants: int = 5
    rounds: int = 100
    local: str = "steps"
    local_rounds: int = 5
    lr: float = 0.05
    batch_size: int = 64
    validation: float = 0.2
    mu: float = 1.0
    poc_decay: float = 0.9
    emd_beta: float = 0.01
    sv_alpha: float = 0.7
    alpha: float = 0.6
    temperature: float = 0.01
    tolerance: float = 3.0
    last_tolerance: float = 0.1
    estimator: str = "gtg"
    evaluate_every: int = 5

    def __post_init__(self) -> None:
        for name, known in (
            ("local", ("steps", "epochs")),
            ("estimator", ("gtg", "mr", "tmr")),
            ("scenario", (*SCENARIOS, "iid")),
        ):
            if getattr(self, name) not in known:
                value = getattr(self, name)
                raise ValueError(f"{name} is {value!r}; expected one of {', '.join(known)}")
        if not 0 < self.owned <= 1:
            raise ValueError(f"owned is {self.owned}; it is a share, above 0 and at most 1")

    @property
    def everybody(self) -> int:
        """All clients, with those that misbehave."""
        return self.clients + len(KINDS) * self.adversaries


setting = partial(common.setting, Setting)


def adversaries_of(s: Setting, n_classes: int) -> Adversaries:
    """Return who misbehaves: the last clients, `adversaries` of each kind (section 5.1)."""
    parts: tuple[Transform | UpdateAttack, ...] = (
        LabelFlip(n_classes), RandomData(n_classes), RandomUpdate(), FreeRider(),
    )  # fmt: skip
    ids = np.arange(s.clients, s.everybody).reshape(len(KINDS), s.adversaries)
    return Adversaries.of(*((part, group.tolist()) for part, group in zip(parts, ids, strict=True)))


def fedms(s: Setting) -> FedMS:
    """Return FedMS in the reading of a setting."""
    estimators: dict[str, Estimator] = {
        "gtg": MaverickGTG(temperature=s.temperature),
        "mr": MaverickMR(temperature=s.temperature),
        "tmr": MaverickTMR(temperature=s.temperature),
    }
    return FedMS(
        estimators[s.estimator],
        alpha=s.alpha,
        units="fraction" if s.method == "fedms-fraction" else "percent",
        aggregate="all" if s.method == "fedms-printed" else "coreset",
        tolerance=(s.tolerance, s.last_tolerance),
        against="kept" if s.method == "fedms-kept" else "found",
    )


class _FromTheStart(UniformSelection):
    """Uniform selection of the control that uses FedMS's aggregation alone: all in round 0."""

    def select(self, clients: Any, k: int, rng: np.random.Generator) -> Any:
        return clients.available if clients.round == 0 else super().select(clients, k, rng)


def strategy(s: Setting, n_classes: int) -> Strategy:
    """Return the strategy of a setting."""
    if s.method in ("fedms", *READINGS):
        return fedms(s).strategy(n_classes, s.rounds)
    if s.method == "uniform-coreset":
        return replace(fedms(s).strategy(n_classes, s.rounds), select=_FromTheStart())
    mavericks = tuple(range(s.mavericks))
    bad = tuple(range(s.clients, s.everybody))
    gtg = Estimated(GTGShapley(), count="distinct", normalised=False)
    rows: dict[str, tuple[Selection, ValuePolicy, Aggregation, Any]] = {
        "fedavg": (UniformSelection(), NoValue(), SizeWeighted(), keep_latest),
        "fedprox": (UniformSelection(), NoValue(), SizeWeighted(), keep_latest),
        "poc": (PowerOfChoice(s.poc_decay, s.rounds), NoValue(), UniformWeights(), keep_latest),
        "fedemd": (FedEMD(s.emd_beta), NoValue(), SizeWeighted(), keep_latest),
        "s-fedavg": (
            SFedAvg(), Exact(normalised=False), SizeWeighted(), RunningValue(s.sv_alpha),
        ),
        "greedyfed": (GreedyFed(), gtg, SizeWeighted(), RunningValue(s.sv_alpha, "first")),
        "oracle": (Oracle(mavericks, bad), NoValue(), SizeWeighted(), keep_latest),
    }  # fmt: skip
    if s.method not in rows:
        raise ValueError(f"unknown method {s.method!r}; there are {', '.join(METHODS)}")
    return Strategy(*rows[s.method])


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting: Mavericks first, misbehaving clients last."""
    others = IID() if s.scenario == "iid" else Dirichlet(SCENARIOS[s.scenario], by="class")
    made = make_federation(
        dataset(s.data),
        s.everybody,
        Mavericks(s.mavericks, others=others, shared=s.shared, mixed=s.scenario != "iid"),
        seed,
        validation=s.validation,
        validation_from="test",
        empty="refill",
    )
    if s.owned < 1:
        made = _shrink(made, s, seed)
    if s.poisoned:
        made = _poison(made, s)
    return adversaries_of(s, made.n_classes).data(made) if s.adversaries else made


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
    return s.method in ("fedms", *READINGS, "uniform-coreset")


def simulate(
    s: Setting,
    federations: Sequence[Federation],
    seeds: Sequence[int],
    *,
    rows: Strategy | None = None,
    utility: Literal["accuracy", "class_accuracy"] | None = None,
    **options: Any,
) -> History:
    """Run the federations of a setting, one per seed, in lockstep.

    `rows` and `utility` take the place of the method's own; `options` are those of
    :func:`fedkit.federated.rounds.run`.
    """
    n_classes = federations[0].n_classes
    how: dict[str, Any] = {s.local: s.local_rounds}
    proximal = s.mu if s.method == "fedprox" else 0.0
    return run(
        federations,
        build(s.model, federations[0].input_shape, n_classes),
        rows or strategy(s, n_classes),
        Plan(
            rounds=s.rounds,
            participants=s.participants,
            local=LocalSGD(lr=s.lr, batch_size=s.batch_size, proximal=proximal, **how),
            utility=utility or ("class_accuracy" if classwise(s) else "accuracy"),
            evaluate_every=s.evaluate_every,
        ),
        seeds,
        attack=adversaries_of(s, n_classes).attack if s.adversaries else None,
        **options,
    )
