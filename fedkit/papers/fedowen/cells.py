"""The cells of FedOwen's tables and figures, at every profile.

Tables 1 and 2 share their methods; Table 3 adds FedOwen without adaptive selection to the same
cells; Figures 2 and 6 to 10 are the series of Tables 1 and 2; Figures 3 and 4 are sweeps.  Every
experiment carries controls; ``classwise`` repeats Table 1 where clients' sizes are unequal, and
``reduced`` stands in, at a smaller scale, for columns whose data or model are out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedkit.papers.common import blocks, experiment
from fedkit.papers.fedowen.runs import run_cell, run_round_errors
from fedkit.papers.fedowen.settings import (
    CONTROLS,
    METHODS,
    TABLE_3,
    Setting,
    setting,
    simulate,
)
from fedkit.papers.registry import RunFunction
from fedkit.records.cell import Cell
from fedkit.records.golden import Tiny, trace

#: The paper's data sets (columns of its tables) and the data that stands for each by default.
#: The paper's text does not say which MedMNIST set it used; PathMNIST is the collection's first.
DATASETS = {
    "medmnist": "pathmnist",
    "mnist": "mnist",
    "fashionmnist": "fashionmnist",
    "cifar10": "cifar10",
    "femnist": "femnist",
}
#: the most seeds of a cell
BLOCK = 5


@dataclass(frozen=True)
class Scale:
    """What a profile runs: a setting per data set, and what varies in the tables."""

    bases: tuple[Setting, ...]
    alphas: tuple[float, ...]
    imbalances: tuple[float, ...]
    seeds: tuple[int, ...]


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


def _grid(profile: str, methods: Sequence[str], imbalance: float) -> list[Setting]:
    scale = SCALES[profile]
    if profile != "paper":  # the reduced profiles stand in for both tables
        imbalance = scale.imbalances[0]
    return [
        replace(base, method=method, alpha=alpha, imbalance=imbalance)
        for base in scale.bases
        for alpha in scale.alphas
        for method in methods
    ]


def _sweep(profile: str, methods: Sequence[str], name: str, values: Sequence[Any]) -> list[Setting]:
    """One field swept at the paper's hardest setting (section 4.3: alpha = imbalance = 0.01)."""
    scale = SCALES[profile]
    hardest: dict[str, Any] = {"alpha": scale.alphas[0], "imbalance": scale.imbalances[0]}
    return [
        replace(base, method=method, **hardest, **{name: value})
        for base in scale.bases
        for method in methods
        for value in values
    ]


LEVELS = (1, 2, 4, 8)
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
SENSITIVITY: dict[str, tuple[Any, ...]] = {
    "lr": (0.03, 0.2),
    "batch_size": (16, 64),
    "confidence": (0.01, 0.03, 0.3, 1.0),
    "floor": (0.05, 0.1),
    "eta": (0.0, 0.05, 0.2),
    "split": ("class", "client"),
    "weighting": ("uniform",),
    "normalised": (False,),
}

_TINY = replace(
    _DIGITS, clients=10, participants=4, rounds=3, epochs=2, lr=0.1,
    alpha=1.0, imbalance=0.2, exact_every=2, evaluate_every=1, validation=0.2,
)  # fmt: skip


def _more(cell: Cell, device: Any) -> dict[str, Any]:
    return trace(simulate(setting(cell), cell.seeds, device=device))


RUN = Tiny(
    "run",
    run_cell,
    asdict(_TINY),
    by="method",
    switches={
        "model=lenet5": {"method": "fedowen", "rounds": 2}, "split": {},
        "weighting": {"method": "fedowen"}, "normalised": {"method": "fedowen"},
        "budget_grows": {"method": "fedowen", "levels": 4},
    },
    slack={"metrics.accuracy*": 1.0, "series.accuracy": 1.0},
    more=_more,
)  # fmt: skip
ROUND_ERRORS = Tiny(
    "round-errors", run_round_errors, asdict(replace(_TINY, method="uniform", exact_every=3))
)


def _classwise(profile: str) -> list[Setting]:
    """Table 1 with a Dirichlet draw per class over all clients: their sizes are very unequal."""
    return [
        replace(s, split="class")
        for s in _grid(profile, METHODS, 0.01)
        if s.dataset in ("digits", "mnist", "fashionmnist") and s.alpha in (0.01, 0.1)
    ]


REDUCED_METHODS = ("fedavg", "shapfed", "fedowen", "random-values", "uniform")
# A hundred clients and one per cent are too much of these small sets: 546 images of BreastMNIST.
_SMALL = {"clients": 20, "validation": 0.1, "batch_size": 10, "rounds": 30, "imbalance": 0.1}
REDUCED: tuple[dict[str, Any], ...] = (
    {"dataset": "femnist", "data": "emnist-letters", "rounds": 30},
    {"dataset": "cifar10", "data": "cifar10", "rounds": 30},
    *({"dataset": "medmnist", "data": d, **_SMALL}
      for d in ("breastmnist", "pneumoniamnist", "retinamnist")),
)  # fmt: skip


def _reduced(profile: str) -> list[Setting]:
    """Columns with other data (letters for FEMNIST), another model (LeNet) or fewer rounds."""
    base = SCALES[profile].bases[0]
    if profile == "smoke":
        return [replace(base, method=m, alpha=0.1, imbalance=0.1, rounds=10)
                for m in REDUCED_METHODS]  # fmt: skip
    return [
        replace(base, method=m, alpha=0.1, **changes)
        for changes in REDUCED
        for m in REDUCED_METHODS
    ]


def _register(
    name: str,
    title: str,
    settings: Callable[[str], list[Setting]],
    run: RunFunction = run_cell,
    golden: Tiny = RUN,
) -> None:
    def seeds(profile: str, s: Setting) -> list[tuple[int, ...]]:
        return blocks((0, 1, 2) if name == "reduced" else SCALES[profile].seeds, BLOCK)

    experiment("fedowen", name, title, settings, seeds, run, golden, block=BLOCK)


_register("table1", "Final accuracy, imbalance factor 0.01", lambda p: _grid(p, METHODS, 0.01))
_register("table2", "Final accuracy, imbalance factor 0.05", lambda p: _grid(p, METHODS, 0.05))
_register(
    "table3",
    "FedOwen without adaptive selection",
    lambda p: [
        s
        for imbalance in (SCALES[p].imbalances if p == "paper" else (0.01,))
        for s in _grid(p, TABLE_3, imbalance)
    ],
)
_register(
    "sweep_levels",
    "Inclusion levels Q (Figure 3)",
    # Section 4.3: more levels cost more computation, so the walks per level are fixed; section
    # 4.2: every method has N x M calls, so the budget is.  Controls have no levels: one cell each.
    lambda p: [
        *(replace(s, budget_grows=grows)
          for grows in (True, False)
          for s in _sweep(p, ("fedowen", "fedowen-corrected"), "levels", LEVELS)
          # at Q = 2 the two budgets are one; more than M levels leave not one walk for each
          if grows or (s.levels != 2 and s.levels <= s.samples_per_client)),
        *_sweep(p, CONTROLS, "levels", (2,)),
    ],
)  # fmt: skip
_register(
    "sweep_epsilon",
    "Exploration rate epsilon (Figure 4)",
    lambda p: [
        *_sweep(p, ("fedowen", "random-values", "size-values"), "epsilon", EPSILONS),
        *_sweep(p, ("uniform",), "epsilon", (0.1,)),  # selects at random: no epsilon
    ],
)
_register(
    "sensitivity",
    "Settings that the paper's text does not give",
    lambda p: [
        s
        for name, values in SENSITIVITY.items()
        for s in _sweep(p, ("fedavg", "fedowen", "random-values", "uniform"), name, values)
    ],
)
_register("classwise", "Table 1 with clients of unequal size (class-wise split)", _classwise)
_register("reduced", "Columns at a reduced scale", _reduced)
_register(
    "round_errors",
    "Every estimator on the same rounds",
    lambda p: [replace(s, exact_every=10) for s in _grid(p, ("uniform",), 0.01)],
    run_round_errors,
    ROUND_ERRORS,
)
