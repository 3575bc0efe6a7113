"""The cells of FedTSV's figures and of the study around them, at every profile."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fedkit.papers.common import experiment
from fedkit.papers.fedtsv.runs import run_cell
from fedkit.papers.fedtsv.settings import (
    METHODS,
    PAPER_METHODS,
    Setting,
    federation,
    setting,
    simulate,
)
from fedkit.papers.fedtsv.timings import Timing, run_timing
from fedkit.records.cell import Cell
from fedkit.records.golden import Tiny, trace

_MNIST = Setting("fedavg", "mnist", "mnist")
_CIFAR = Setting(
    "fedavg", "cifar10", "cifar10", model="resnet20", rounds=1000, batch_size=8, lr=0.1
)
#: CIFAR-10 for a machine without a GPU: a smaller network, larger batches, a tenth of the rounds
_CIFAR_REDUCED = replace(_CIFAR, model="lenet5", rounds=100, batch_size=32, lr=0.05)
_DIGITS = Setting(
    "fedavg", "digits", "digits", model="mlp-32", clients=20, skewed=3, malicious=5, rounds=40,
    lr=0.1, batch_size=16, validation=100, evaluate_every=5,
)  # fmt: skip


BASES = {
    "smoke": (_DIGITS,),
    "laptop": (replace(_MNIST, rounds=100), _CIFAR_REDUCED),
    "paper": (_MNIST, _CIFAR),
}
SEEDS = {"smoke": (0, 1, 2), "laptop": (0, 1, 2), "paper": tuple(range(10))}
#: one change at a time of what the paper leaves open or does not try
CHANGES: dict[str, dict[str, Any]] = {
    "as in Figure 1": {},
    "utility 1 / (1 + d / sigma)": {"utility": "rational"},
    "utility exp(-(d / sigma)^2)": {"utility": "gaussian"},
    "utility of the angle": {"utility": "angular"},
    "100 validation images": {"validation": 100},
    "validation short of five classes": {"one_sided": 0.1},
    "40% malicious": {"malicious": 40},
    "malicious updates times 10": {"scale": 10.0},
    "updates of equal length": {"even": True},
    "long updates clipped": {"even": "clip"},
    "one permutation for all": {"collusion": True},
    "Dirichlet parameter 0.1": {"gamma": 0.1},
    "learning rate 0.0002": {"lr": 0.0002},
    "learning rate 0.001": {"lr": 0.001},
    "learning rate 0.1": {"lr": 0.1},
}
#: changes on which a sentence turns: ten seeds at paper scale, where the others have three
TEN_SEEDS = (
    "malicious updates times 10", "updates of equal length", "long updates clipped",
    "learning rate 0.0002",
)  # fmt: skip
STUDIED = ("fedavg", "cgsv", "cgsv-raw", "loo", "loo-loss", "tsv", "oracle")


def changed(s: Setting, change: dict[str, Any]) -> Setting:
    """Apply a change of the study, in proportion where the federation is a small one."""
    if "malicious" in change:
        change = {"malicious": change["malicious"] * s.clients // 100}
    if "validation" in change:
        change = {"validation": min(change["validation"], s.validation // 2)}
    return replace(s, **change)


def _figures(profile: str) -> list[Setting]:
    return [
        replace(base, method=method)
        for base in BASES[profile]
        for method in (METHODS if base.dataset != "cifar10" else (*PAPER_METHODS, "oracle"))
    ]


def _study(profile: str) -> list[Setting]:
    found = [
        replace(changed(BASES[profile][0], change), method=method)
        for change in CHANGES.values()
        if change  # the figures have the runs without one
        for method in (("tsv",) if "utility" in change else STUDIED)
    ]
    return list(dict.fromkeys(found))


def _seeds(profile: str, s: Setting) -> list[tuple[int, ...]]:
    return [SEEDS[profile]]


def _study_seeds(profile: str, s: Setting) -> list[tuple[int, ...]]:
    base = replace(BASES[profile][0], method=s.method)
    if profile != "paper" or s.utility != base.utility:
        return [SEEDS[profile]]
    ten = s in [changed(base, CHANGES[name]) for name in TEN_SEEDS]
    return [(0, 1, 2), tuple(range(3, 10))] if ten else [(0, 1, 2)]


_TINY = replace(_DIGITS, clients=10, skewed=2, malicious=2, participants=4, rounds=4,
                evaluate_every=1)  # fmt: skip


def _more(cell: Cell, device: Any) -> dict[str, Any]:
    s = setting(cell)
    made = [federation(s, seed) for seed in cell.seeds]
    return trace(simulate(s, made, cell.seeds, device=device))


RUN = Tiny(
    "run",
    run_cell,
    asdict(_TINY),
    by="method",
    switches={
        "utility": {"method": "tsv"}, "one_sided": {"method": "tsv"}, "scale": {"method": "tsv"},
        "even": {"method": "tsv"}, "collusion": {"method": "tsv"},
    },
    slack={"metrics.accuracy*": 1.0, "series.accuracy": 1.0},
    more=_more,
)  # fmt: skip

#: participants, parameters, and draws of the sampling
TIMINGS = {"smoke": ((3, 5), 200, 3), "laptop": ((), 0, 0), "paper": ((5, 10, 15, 20), 50_890, 20)}


def _timings(profile: str) -> list[Timing]:
    participants, parameters, _ = TIMINGS[profile]
    return [Timing(k, parameters) for k in participants]


experiment(
    "fedtsv", "figures", "Accuracy, loss and final weights (Figures 1 and 2)",
    _figures, _seeds, run_cell, RUN,
)  # fmt: skip
experiment(
    "fedtsv", "study", "Does the separation of clients survive", _study, _study_seeds, run_cell, RUN
)
experiment(
    "fedtsv", "timings", "Seconds and errors of exact, sampled and averaged values of a round",
    _timings, lambda profile, s: [tuple(range(TIMINGS[profile][2]))], run_timing,
    Tiny(
        "timings", run_timing, asdict(Timing(5, 200)), slack={"metrics.error.averaged": 1e-6}
    ),
)  # fmt: skip
