"""FedCCEA's experiments: the cells of its tables and figures, and the runs that answer for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from fedkit.datasets.catalogue import available
from fedkit.papers.common import experiment
from fedkit.papers.fedccea.names import DISTRIBUTIONS
from fedkit.papers.fedccea.runs import run_base, run_cost, run_dealt, run_golden, run_valued
from fedkit.papers.fedccea.settings import COST, LEARNING, SCALES, Setting
from fedkit.papers.registry import RunFunction, register
from fedkit.records.golden import Tiny

_SEEDS = (0, 1, 2)


def _everywhere(profile: str, bases: tuple[Setting, ...]) -> list[Setting]:
    """All distributions; the paper's EMNIST, by class, at the paper's scale where it is there."""
    by_class: dict[str, Any] = {"data": "femnist", "weak": 30, "strong": 5}
    settings = []
    for base in bases:
        whole = profile == "paper" and base.dataset == "emnist" and base.samples is None
        swap = by_class if whole and available("femnist") else {}
        settings += [replace(base, distribution=kind, **swap) for kind in DISTRIBUTIONS]
    return settings


def _contribution(profile: str) -> list[dict[str, Any]]:
    # fits of halves, quarters and tenths are most of a small run's time, and no table has them
    few = {"splits": 2} if profile == "smoke" else {}
    return [
        asdict(replace(s, noise=noise)) | few
        for s in _everywhere(profile, SCALES[profile].bases)
        for noise in SCALES[profile].noises
    ]


def _dealt(profile: str) -> list[dict[str, Any]]:
    """Strongly non-IID clients, where who takes turns and who does not matters most."""
    shown = ("strong", "none"), ("strong", "label-40")
    return [s for s in _contribution(profile) if (s["distribution"], s["noise"]) in shown]


def _seed_by_seed(
    name: str,
    title: str,
    settings: Callable[[str], list[dict[str, Any]]],
    run: RunFunction,
    *golden: Tiny,
) -> None:
    """Minutes each, and nothing is shared between seeds: a cell per seed, so a stop loses one."""
    made = experiment(
        "fedccea", name, title, settings, lambda *_: [(seed,) for seed in _SEEDS], run, *golden,
        block=1,
    )  # fmt: skip
    ordered = replace(
        made, cells=lambda *chosen: sorted(made.cells(*chosen), key=lambda cell: cell.seeds)
    )
    register(ordered)


_TINY = asdict(replace(SCALES["smoke"].bases[0], clients=6, rounds=4, simulations=14, samples=40))
_VALUED = _TINY | {"distribution": "strong", "noise": "label-40", "clients": 4, "strong": 3,
                   "rounds": 2, "simulations": 12, "samples": 30}  # fmt: skip
#: who holds what, and whose data are noisy, shows in a training as well as in all that follows it
_SLACK = {"metrics.*accuracy*": 1.0, "metrics.base": 1.0, "series.accuracy": 1.0}
_TRAINED = Tiny(
    "learning", run_base, _TINY, switches={"distribution": {}, "noise": {}}, slack=_SLACK
)
#: from a part of so few simulations a fit is not determined: who is above whom is rounding's choice
_PARTS = {"metrics.auc.*.0.*": 1.0}

_seed_by_seed(
    "contribution", "Indices, exclusion and removal (Tables 1 and 3, Figures 4 to 24)",
    _contribution, run_valued,
    Tiny("contribution", run_golden, _VALUED, slack=_SLACK | _PARTS), _TRAINED,
)  # fmt: skip
experiment(
    "fedccea", "learning", "Accuracy with everybody, by samples and learning rate",
    lambda profile: _everywhere(profile, LEARNING[profile]), lambda *_: [_SEEDS], run_base,
    _TRAINED,
)  # fmt: skip
experiment(
    "fedccea", "cost", "Seconds per round for 4 to 64 clients (Table 2)",
    COST.__getitem__, lambda *_: [(0,)], run_cost, Tiny("cost", run_cost, _TINY), _TRAINED,
)  # fmt: skip
_seed_by_seed(
    "dealt", "Partial participation with qualities dealt at random",
    _dealt, run_dealt, Tiny("dealt", run_dealt, _VALUED, slack=_SLACK), _TRAINED,
)  # fmt: skip
