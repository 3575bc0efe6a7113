"""The settings of FedOwen's evaluation (KhademSohi et al., section 4), at every profile.

Tables 1 and 2 are judged in the settings of :func:`declared`.  ``table1`` to ``table3`` have the
defaults of :class:`Setting`, the federation of blocks; ``SCALES["paper"]`` has what varies in them,
data sets, Dirichlet parameters, imbalances and seeds; ``run.py`` makes a strategy of a row.

What the paper's text does not give (its published code was not read) is a field of :class:`Setting`
with our choice as its default, and is swept by ``sensitivity``.  Every experiment carries controls;
``classwise`` repeats Table 1 where clients' sizes are unequal, and ``reduced`` stands in, at a
smaller scale, for columns whose data or model are out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from reproduction import common

PAPER_METHODS = ("fedavg", "mc", "gtg", "banzhaf", "weightedshap", "shapfed", "fedowen")
OUR_METHODS = ("shapfed-proportional", "fedowen-corrected", "exact")
CONTROLS = ("random-values", "uniform", "size-values")
#: FedOwen's own values, dealt to other participants: as unequal as its own
DEALT = "fedowen-shuffled"
METHODS = (*PAPER_METHODS, *OUR_METHODS, *CONTROLS, DEALT)
RANDOM_SELECTION = "-no-adaptive"
#: Table 3's row, with what blind and exact values reach in the same place.
TABLE_3 = tuple(m + RANDOM_SELECTION for m in ("fedowen", "exact", "random-values", "size-values"))
#: The paper's data sets (columns of its tables) and the data that stands for each by default.
#: The paper's text does not say which MedMNIST set it used; PathMNIST is the collection's first.
DATASETS = {
    "medmnist": "pathmnist",
    "mnist": "mnist",
    "fashionmnist": "fashionmnist",
    "cifar10": "cifar10",
    "femnist": "femnist",
}

Split = Literal["class", "capped", "client", "blocks"]


@dataclass(frozen=True)
class Setting(common.Setting):
    """One run of FedOwen's evaluation (section 4), all seeds apart."""

    method: str  # a row of Tables 1 to 3, one of ours, or a control
    dataset: str  # column of the paper's tables
    data: str  # the data set that was loaded for it
    alpha: float  # Dirichlet concentration
    imbalance: float  # of the long tail
    model: str = "lenet5"
    clients: int = 100
    participants: int = 10
    rounds: int = 100
    epochs: int = 1
    samples_per_client: int = 4  # M of the budget N x M
    levels: int = 2  # Q
    epsilon: float = 0.1
    validation: float = 0.01  # share of the data set that the server holds
    # Not in the paper's text are local SGD, c and tau of Algorithm 2, eta of Algorithm 1, the
    # threshold of Algorithm 5, and the Beta parameters of Algorithm 6.
    lr: float = 0.1
    momentum: float = 0.0
    batch_size: int = 32
    confidence: float = 0.1
    floor: float = 0.0
    eta: float = 0.01
    gtg_eps: float = 0.01
    beta: float = 4.0
    # how Dirichlet(alpha) is applied; "blocks" is CReFF's, the paper's source for its long tail
    split: Split = "blocks"
    weighting: Literal["size", "uniform"] = "size"  # of the updates of S inside v(S)
    normalised: bool = True  # to v(empty) = 0 and v(N) = 1, as section 3.2 says
    # Keep the walks per level at M / 2, those of Q = 2, so that the budget grows with Q; else it is
    # N x M for every Q.  Figure 3 allows both readings.
    budget_grows: bool = False
    exact_every: int = 25  # rounds until exact values stand beside the estimate again; 0 is never
    evaluate_every: int = 5  # rounds until the test accuracy is measured again
    beta_second: float = common.later(1.0)  # of Algorithm 6
    # where the long tail is cut: of the training pool alone, or of the test set too
    tail: Literal["train", "both"] = common.later("train")
    # a round in which v(N) <= v(empty): shifted only, divided by |v(N) - v(empty)|, or by the
    # negative difference itself, which alone keeps v(N) = 1
    no_gain: Literal["shift", "absolute", "divide"] = common.later("shift")

    @property
    def budget(self) -> int:
        """Utility calls per round: N x M (section 4.2)."""
        calls = self.participants * self.samples_per_client
        return calls * self.levels // 2 if self.budget_grows else calls


@dataclass(frozen=True)
class Scale:
    """What a profile runs: a setting per data set, and what varies in the tables."""

    bases: tuple[Setting, ...]
    alphas: tuple[float, ...]
    imbalances: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def hardest(self) -> list[Setting]:
        """Every data set in its hardest column."""
        return [replace(b, alpha=self.alphas[0], imbalance=self.imbalances[0]) for b in self.bases]


_MNIST = Setting("fedavg", "mnist", "mnist", 0.01, 0.01)
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-32", clients=20, participants=6, rounds=30,
    validation=0.1, exact_every=5, evaluate_every=2, batch_size=10,
)  # fmt: skip
_COLUMNS = {
    name: replace(
        _MNIST, dataset=name, data=data, model="resnet18" if name == "cifar10" else "lenet5"
    )
    for name, data in DATASETS.items()
}
_LAPTOP = tuple(replace(_COLUMNS[name], rounds=40) for name in ("mnist", "fashionmnist"))
SCALES = {
    "smoke": Scale((_DIGITS,), (0.1,), (0.1,), (0, 1, 2)),
    "laptop": Scale(_LAPTOP, (0.01, 0.1), (0.01,), (0, 1, 2)),
    "paper": Scale(tuple(_COLUMNS.values()), (0.01, 0.05, 0.1), (0.01, 0.05), tuple(range(10))),
}
#: the most seeds of a cell
BLOCK = 5
LEVELS = (1, 2, 4, 8)
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
#: scales of the bonus below the floor: the choice, the rest of the paper's grid, and Eq. 13
LOW_GAINS = (0.1, 0.05, 0.2, 1.0)
SENSITIVITY: dict[str, tuple[Any, ...]] = {
    "lr": (0.03, 0.2),
    "momentum": (0.5,),
    "batch_size": (16, 64),
    "confidence": (0.01, 0.03, 0.3, 1.0),
    "floor": (0.05, 0.1),
    "eta": (0.0, 0.05, 0.2),
    "split": ("class", "client"),
    "weighting": ("uniform",),
    "normalised": (False,),
}
#: Beta parameters that Algorithm 6 may mean, beside (4, 1)
BETAS = ((1.0, 4.0), (1.0, 1.0), (16.0, 1.0))
REDUCED_METHODS = ("fedavg", "shapfed", "fedowen", "random-values", "uniform")
# A hundred clients and one per cent are too much of these small sets: 546 images of BreastMNIST.
_SMALL = {"clients": 20, "validation": 0.1, "batch_size": 10, "rounds": 30, "imbalance": 0.1}
REDUCED: tuple[dict[str, Any], ...] = (
    {"dataset": "femnist", "data": "emnist-letters", "rounds": 30},
    {"dataset": "cifar10", "data": "cifar10", "rounds": 30},
    *({"dataset": "medmnist", "data": d, **_SMALL}
      for d in ("breastmnist", "pneumoniamnist", "retinamnist")),
)  # fmt: skip
#: Calibration: which split and which local training have the paper's accuracies of FedAvg?
SPLITS: tuple[Split, ...] = ("blocks", "client", "capped", "class")
#: learning rate, batch size, momentum
LOCAL = (
    (0.1, 32, 0.0), (0.01, 32, 0.9), (0.01, 32, 0.0), (0.03, 32, 0.0), (0.01, 10, 0.0),
    (0.1, 64, 0.0),
)  # fmt: skip
#: alpha and imbalance of the cells on which readings are chosen; the other cells confirm
SCREENED = ((0.01, 0.01), (0.1, 0.01), (0.01, 0.05))
#: what :func:`reproduction.fedowen.calibration.declared` says of the records
DECLARED: dict[str, Any] = {"split": "client", "lr": 0.01, "batch_size": 32, "tail": "both"}
TINY = replace(
    _DIGITS, clients=10, participants=4, rounds=3, epochs=2, lr=0.1,
    alpha=1.0, imbalance=0.2, exact_every=2, evaluate_every=1, validation=0.2,
)  # fmt: skip


def seeds_of(experiment: str, profile: str, s: Setting) -> list[tuple[int, ...]]:
    """Return the blocks of seeds of a setting."""
    seeds = SCALES[profile].seeds[: 5 if experiment in ("reduced", "declared") else None]
    return common.blocks(seeds, BLOCK)


def grid(profile: str, methods: Sequence[str], imbalance: float) -> list[Setting]:
    """Every data set and alpha of a table."""
    scale = SCALES[profile]
    if profile != "paper":  # the reduced profiles stand in for both tables
        imbalance = scale.imbalances[0]
    found = common.crossed(scale.bases, alpha=scale.alphas, method=methods)
    return [replace(s, imbalance=imbalance) for s in found]


def sweep(profile: str, methods: Sequence[str], name: str, values: Sequence[Any]) -> list[Setting]:
    """One field swept in the setting of section 4.3, alpha = imbalance = 0.01."""
    return common.crossed(SCALES[profile].hardest, method=methods, **{name: values})


def table1(profile: str) -> list[Setting]:
    """Every method where the rarest class has a hundredth of the most frequent one's images.

    In the federation of blocks; the printed table is judged in that of :func:`declared`.
    """
    return grid(profile, METHODS, 0.01)


def table2(profile: str) -> list[Setting]:
    """Every method where the rarest class has a twentieth, else as :func:`table1`."""
    return grid(profile, METHODS, 0.05)


def table3(profile: str) -> list[Setting]:
    """Rows that select at random, under both imbalances."""
    imbalances = SCALES[profile].imbalances if profile == "paper" else (0.01,)
    return [s for imbalance in imbalances for s in grid(profile, TABLE_3, imbalance)]


def sweep_levels(profile: str) -> list[Setting]:
    """More levels where the budget grows with them (section 4.3), or is fixed (section 4.2).

    The corrected sampler has no Q; at Q = 2 the two budgets are one.
    """
    return [
        *(replace(s, budget_grows=grows)
          for grows, methods in ((True, ("fedowen", "fedowen-corrected")), (False, ("fedowen",)))
          for s in sweep(profile, methods, "levels", LEVELS)
          if grows or (s.levels != 2 and s.levels <= s.samples_per_client)),
        *sweep(profile, CONTROLS, "levels", (2,)),
    ]  # fmt: skip


def sweep_epsilon(profile: str) -> list[Setting]:
    """More exploration; who selects at random has no epsilon."""
    return [
        *sweep(profile, ("fedowen", "random-values", "size-values"), "epsilon", EPSILONS),
        *sweep(profile, ("uniform",), "epsilon", (0.1,)),
    ]


def sensitivity(profile: str) -> list[Setting]:
    """One setting that the paper's text does not give changed at a time."""
    methods = ("fedavg", "fedowen", "random-values", "uniform")
    return [
        s for name, values in SENSITIVITY.items() for s in sweep(profile, methods, name, values)
    ]


def low_gain(profile: str) -> list[Setting]:
    """FedOwen, whose bonus below the floor :data:`LOW_GAINS` scale."""
    found = sweep(profile, ("fedowen",), "epsilon", (0.1,))
    return [s for s in found if s.dataset in ("digits", "fashionmnist")]


def round_errors(profile: str) -> list[Setting]:
    """Rounds that no values have steered, valued by every estimator."""
    return [replace(s, exact_every=10) for s in grid(profile, ("uniform",), 0.01)]


def readings(profile: str) -> list[Setting]:
    """Rows that read the text otherwise, in two columns of the declared federation."""
    rows: list[dict[str, Any]] = [
        *({"method": method} for method in ("shapfed-proportional", "banzhaf-rescaled")),
        *({"method": "weightedshap", "beta": a, "beta_second": b} for a, b in BETAS),
        *({"method": method, "no_gain": rule}
          for method in ("fedowen", "mc", "gtg") for rule in ("absolute", "divide")),
        *({"method": method, "tail": "train"} for method in ("fedavg", "fedowen")),
    ]  # fmt: skip
    return [
        replace(base, **(DECLARED | row), exact_every=0, evaluate_every=1)
        for base in SCALES[profile].hardest
        if base.dataset in ("digits", "mnist", "fashionmnist")
        for row in rows
    ]


def classwise(profile: str) -> list[Setting]:
    """Table 1 with a Dirichlet draw per class over all clients: their sizes are very unequal."""
    return [
        replace(s, split="class")
        for s in grid(profile, METHODS, 0.01)
        if s.dataset in ("digits", "mnist", "fashionmnist") and s.alpha in (0.01, 0.1)
    ]


def reduced(profile: str) -> list[Setting]:
    """Columns with other data (letters for FEMNIST), another model (LeNet) or fewer rounds."""
    base = SCALES[profile].bases[0]
    smoke: dict[str, Any] = {"imbalance": 0.1, "rounds": 10}
    changed = [replace(base, alpha=0.1, **x) for x in ((smoke,) if profile == "smoke" else REDUCED)]
    return common.crossed(changed, method=REDUCED_METHODS)


def calibration(profile: str) -> list[Setting]:
    """FedAvg alone, on MNIST: every split with every local training, on the cells that choose."""
    base = _MNIST if profile == "paper" else SCALES[profile].bases[0]
    return _calibrated([(base, alpha, imbalance) for alpha, imbalance in SCREENED])


def confirmation(profile: str) -> list[Setting]:
    """The same in the other cells of Tables 1 and 2, of which the declared reading is run."""
    scale = SCALES[profile]
    bases = [base for base in scale.bases if base.dataset in ("digits", "mnist", "fashionmnist")]
    cells = product(bases, scale.alphas, scale.imbalances)
    return _calibrated([
        (base, alpha, imbalance) for base, alpha, imbalance in cells
        if base.dataset == "fashionmnist" or (alpha, imbalance) not in SCREENED
    ])  # fmt: skip


def declared(profile: str) -> list[Setting]:
    """Tables 1 and 2 in the reading that the calibration declares and its other cells confirm."""
    rows = (*PAPER_METHODS, "fedowen-eq11", *CONTROLS)
    return [
        replace(s, **DECLARED, exact_every=0, evaluate_every=1)  # it reports its last ten rounds
        for imbalance in SCALES[profile].imbalances
        for s in grid(profile, rows, imbalance)
    ]


def _calibrated(cells: Sequence[tuple[Setting, float, float]]) -> list[Setting]:
    """Every local training and split in these cells: data, alpha, imbalance."""
    return [
        replace(
            base, alpha=alpha, imbalance=imbalance, split=split, lr=lr, batch_size=batch,
            momentum=momentum, exact_every=0, evaluate_every=base.rounds,
        )
        for lr, batch, momentum in LOCAL
        for split in SPLITS
        for base, alpha, imbalance in cells
    ]  # fmt: skip
