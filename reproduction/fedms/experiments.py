"""The settings of FedMS's evaluation (section 5) and of the study around it, at every profile.

What the paper does not give, or gives in two ways, is a field of :class:`Setting`.  Table 1 has
three scenarios and two data sets; Table 2 adds misbehaving clients; both readings of "5 local
rounds" are run.  Figure 2 is the setting of five clients; Figures 3 to 5 are the rewards and curves
of Table 1's cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduction import common
from reproduction.common import blocks, product

PAPER_METHODS = ("fedavg", "fedprox", "poc", "fedemd", "s-fedavg", "greedyfed", "fedms")
VARIANTS = ("fedms-printed", "fedms-fraction", "fedms-kept")
CONTROLS = ("uniform-coreset", "oracle")
#: what the unit or the utility of a rival does: S-FedAvg in percent as FedMS is, the same values
#: dealt to the participants at random (its control), and GreedyFed by the loss, as in its own code
RIVALS = ("s-fedavg-percent", "s-fedavg-shuffled", "greedyfed-loss")
#: FedMS, with the coreset and with everybody averaged, without what makes it look at Mavericks: all
#: classes weigh the same
EQUAL = ("fedms-equal", "fedms-printed-equal")
OWN = ("fedms", *VARIANTS, *EQUAL)
METHODS = PAPER_METHODS + VARIANTS + CONTROLS + RIVALS + EQUAL
#: gamma of the Dirichlet split by scenario
SCENARIOS = {"dir10": 10.0, "dir1": 1.0, "dir0.1": 0.1}
KINDS = ("LabelFlip", "RandomData", "RandomUpdate", "FreeRider")


@dataclass(frozen=True)
class Setting(common.Setting):
    """One run of FedMS's evaluation, all seeds apart."""

    method: str  # a row of Tables 1 and 2, another reading of FedMS, or a control
    dataset: str  # column of the paper's tables
    data: str  # the data set that was loaded for it
    scenario: str  # of SCENARIOS; of five clients "iid", or "iid-mixed" (Eq. 4)
    adversaries: int = 0  # of each of the four kinds; Table 2 has 2
    mavericks: int = 2  # clients that alone hold classes
    shared: bool = False  # all Mavericks hold all of these classes, not one each
    owned: float = 1.0  # share of the images of their classes that they keep; nobody has the rest
    poisoned: bool = False  # validation labels of the first Maverick's class and the next swapped
    model: str = "mlp-200"
    clients: int = 50  # well-behaved ones
    participants: int = 5
    rounds: int = 100
    # what '5 local rounds' means: "steps", one mini-batch each (UserUpdate of Algorithm 2), or
    # "epochs", passes over the data
    local: str = "steps"
    local_rounds: int = 5  # 1 for CIFAR-10
    lr: float = 0.05
    batch_size: int = 64
    validation: float = 0.2  # share of the test images that the server holds
    mu: float = 1.0  # of FedProx
    poc_decay: float = 0.9  # of Power-of-Choice
    emd_beta: float = 0.01  # of FedEMD
    sv_alpha: float = 0.7  # of S-FedAvg and GreedyFed
    alpha: float = 0.6  # FedMS's decay of S
    temperature: float = 0.01  # T of Eq. 10
    tolerance: float = 3.0  # eps_d of the first round
    last_tolerance: float = 0.1  # and of the last
    # "gtg" (MS-GTG, as in the paper), "mr" (MS-MR, exact) or "tmr" (MS-TMR, exact where the round
    # changed something)
    estimator: str = "gtg"
    evaluate_every: int = 5  # rounds until the test accuracy is measured again

    @property
    def everybody(self) -> int:
        """All clients, with those that misbehave."""
        return self.clients + len(KINDS) * self.adversaries

    @property
    def groups(self) -> dict[str, range]:
        """Who is of each kind: Mavericks first, then other honest clients, then each of KINDS."""
        groups = {"maverick": range(self.mavericks), "honest": range(self.mavericks, self.clients)}
        for j, kind in enumerate(KINDS if self.adversaries else ()):
            first = self.clients + j * self.adversaries
            groups[kind] = range(first, first + self.adversaries)
        return groups


_MNIST = Setting("fedavg", "mnist", "mnist", "dir10")
_CIFAR = replace(_MNIST, dataset="cifar10", data="cifar10", model="cnn", rounds=200, local_rounds=1)
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-32", clients=12, participants=4,
    rounds=30, batch_size=16, validation=0.4,
)  # fmt: skip
#: what "5 local rounds" are, and the share of its class that a Maverick owns: the paper does
#: not say the one, and of the other that it owns the class.  The first comes closest to FedAvg's
#: 79.13 at Dir(10); see the page.
READINGS = (("steps", 0.1), ("steps", 1.0), ("epochs", 1.0), ("epochs", 0.1))
#: CIFAR-10 for a machine without a GPU: a smaller network, fewer rounds, half the validation
_CIFAR_REDUCED = replace(_CIFAR, model="lenet5", rounds=30, validation=0.1)


@dataclass(frozen=True)
class Scale:
    """What a profile runs: its settings, and the readings in which each is run."""

    bases: Mapping[Setting, Sequence[tuple[str, float]]]
    seeds: tuple[int, ...]
    adversaries: int

    def usual(self) -> Setting:
        """Return the first setting in its first reading."""
        base, readings = next(iter(self.bases.items()))
        return replace(base, local=readings[0][0], owned=readings[0][1])


SCALES = {
    "smoke": Scale({_DIGITS: (("steps", 1.0),)}, (0, 1, 2), 1),
    "laptop": Scale(
        {replace(_MNIST, rounds=40): READINGS[:1], _CIFAR_REDUCED: (("epochs", 0.1),)}, (0, 1, 2), 2
    ),
    "paper": Scale({_MNIST: READINGS, _CIFAR: READINGS}, (0, 1, 2, 3, 4), 2),
}
#: what the paper does not vary, one change at a time
CHANGES: dict[str, dict[str, Any]] = {
    "as in Table 1": {},
    "a Maverick owns half of its class": {"owned": 0.5},
    "a Maverick owns its whole class": {"owned": 1.0},
    "two Mavericks share two classes": {"shared": True},
    "three Mavericks": {"mavericks": 3},
    "five Mavericks": {"mavericks": 5},
    "validation labels of a rare class poisoned": {"poisoned": True},
    "exact values (MS-MR)": {"estimator": "mr"},
    "exact values, still rounds skipped (MS-TMR)": {"estimator": "tmr"},
    "temperature 0.05": {"temperature": 0.05},
    "temperature 0.2": {"temperature": 0.2},
}
#: rows of the study: the value-based methods of the paper, their plain rival, and the controls
STUDIED = ("fedavg", "s-fedavg", "greedyfed", "fedms", *CONTROLS)
#: grids of section 5.1, each with the others' settings as for Table 1
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "fedavg": {},
    "fedprox": {"mu": (0.1, 1.0)},
    "poc": {"poc_decay": (0.9, 1.0)},
    "fedemd": {"emd_beta": (0.001, 0.01, 0.1)},
    "s-fedavg": {"sv_alpha": (0.6, 0.7, 0.8)},
    "greedyfed": {"sv_alpha": (0.6, 0.7, 0.8)},
    "fedms": {"alpha": (0.6, 0.7, 0.8)},
    "uniform-coreset": {},
    "oracle": {},
}
#: the learning rate, which the paper keeps at 0.05 for all: a grid with the best one inside
RATES = (0.05, 0.2, 0.8)
#: T of Eq. 10, at the first alpha: the paper's grid less its choice, and a value above it
TEMPERATURES = (0.001, 0.005, 0.05, 0.2)
#: experiments whose complete reading has 20 seeds at `paper`
_MANY_SEEDS = ("table1", "table2", "five_clients", "tuning")


def tuned(s: Setting) -> Setting:
    """The hyper-parameters that section 5.1 chose for the scenario of a setting."""
    if s.scenario == "dir10":
        return replace(s, poc_decay=1.0, emd_beta=0.001, alpha=0.8)
    last = 0.2 if s.scenario == "dir0.1" and s.dataset == "mnist" else 0.1
    return replace(s, poc_decay=0.9, emd_beta=0.01, alpha=0.6, last_tolerance=last)


TINY = tuned(replace(_DIGITS, rounds=4, scenario="dir1", evaluate_every=1, last_tolerance=0.1))


def table1(profile: str) -> list[Setting]:
    """Every method in every scenario and reading; RIVALS and EQUAL in the usual reading alone."""
    usual = SCALES[profile].usual()
    return [
        tuned(replace(base, method=method, scenario=scenario, local=local, owned=owned))
        for base, readings in SCALES[profile].bases.items()
        for local, owned in readings
        for scenario in SCENARIOS
        for method in METHODS
        if method not in RIVALS + EQUAL
        or (base.data, local, owned) == (usual.data, usual.local, usual.owned)
    ]


def table2(profile: str) -> list[Setting]:
    """MNIST alone, with misbehaving clients."""
    return [
        replace(s, adversaries=SCALES[profile].adversaries)
        for s in table1(profile)
        if s.dataset != "cifar10" and s.scenario == "dir0.1"
    ]


def study(profile: str) -> list[Setting]:
    """One change at a time, Mavericks + Dir(1); only the methods that a change can touch."""
    own = ("estimator", "temperature")  # settings of FedMS and of its control alone
    base = tuned(replace(SCALES[profile].usual(), scenario="dir1"))
    found = []
    for change in CHANGES.values():
        touched = ("fedms", "uniform-coreset") if set(change) & set(own) else STUDIED
        found += [replace(base, **{**change, "method": m}) for m in touched]
    return list(dict.fromkeys(found))  # a change that the profile has anyway


def tuning(profile: str) -> list[Setting]:
    """Every method at every point of its grid and every learning rate, Mavericks + Dir(1)."""
    base = tuned(replace(SCALES[profile].usual(), scenario="dir1"))
    grids = [
        s
        for lr in RATES
        for method, grid in GRIDS.items()
        for s in product(replace(base, method=method, lr=lr), **grid)
    ]
    return grids + product(replace(base, method="fedms"), lr=RATES, temperature=TEMPERATURES)


def five_clients(profile: str) -> list[Setting]:
    """Five clients that all take part: four alike and one Maverick, in two readings (Figure 2)."""
    alone = [
        replace(base, scenario="iid", clients=5, participants=5, mavericks=1, local=local)
        for base, readings in SCALES[profile].bases.items()
        for local in dict(readings)
    ]
    return [*alone, replace(alone[0], scenario="iid-mixed")]


def detection(profile: str) -> list[Setting]:
    """Uniform selection in Table 2's setting: every score on the same rounds."""
    return [s for s in table2(profile) if s.method == "fedavg"]


def partition(profile: str) -> list[Setting]:
    """Who holds what: nothing is trained, so local rounds do not matter."""
    return [
        replace(base, scenario=scenario, owned=owned)
        for base, readings in SCALES[profile].bases.items()
        for owned in dict.fromkeys(owned for _, owned in readings)
        for scenario in SCENARIOS
    ]


def seeds_of(experiment: str, profile: str, s: Setting) -> list[tuple[int, ...]]:
    """Return the blocks of seeds of a setting: more for the readings that tables are judged by."""
    scale = SCALES[profile]
    if experiment == "partition":
        return [(0,)]
    if profile != "paper":
        return [scale.seeds]
    if s.dataset == "cifar10":
        return [scale.seeds[:3]]
    usual = scale.usual()
    complete = s.local == usual.local and (experiment == "five_clients" or s.owned == usual.owned)
    whole = experiment in ("table1", "study") and (s.local, s.owned) == ("steps", 1.0)
    if not whole and (experiment not in _MANY_SEEDS or not complete):
        return [scale.seeds, *blocks(range(5, 10), 5)] if experiment == "table2" else [scale.seeds]
    # the tuning began with three seeds
    first = [(0, 1, 2), (3, 4)] if experiment == "tuning" else [scale.seeds]
    return [*first, *blocks(range(5, 20), 5)]
