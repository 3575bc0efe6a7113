"""The cells of FedCCEA's tables and figures, at every profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from fedkit.datasets.catalogue import available
from fedkit.papers.fedccea.dealt import run_dealt
from fedkit.papers.fedccea.runs import run_base, run_cell, run_cost, run_golden
from fedkit.papers.fedccea.settings import DISTRIBUTIONS, Setting
from fedkit.papers.registry import Cell, Experiment, register
from fedkit.records.golden import Tiny

NOISES = ("none", "label-10", "label-20", "label-40", "pattern-20")
_MNIST = Setting("mnist", "mnist", "iid")
#: EMNIST by class is not at hand everywhere; the letters are another data set, and marked as such:
#: 13 and 2 of 26 classes per client for the 30 and 5 of 62
_EMNIST = replace(
    _MNIST, dataset="emnist", data="emnist-letters", model="mlp-128", weak=13, strong=2, epochs=1,
    batch_size=256, lr=0.05, aam_lr=0.05,
)  # fmt: skip
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-16", clients=8, rounds=6, simulations=24,
    samples=60, epochs=2, batch_size=16, lr=0.2,
)  # fmt: skip
#: 300 samples per client (appendix C.1).  MNIST's clients have a tenth of their samples and make up
#: for it by ten times the rate.  At EMNIST's batch size they would make two steps; batches of 32
#: leave the amount of data what it is in the paper, a number of steps.
_MNIST_300, _EMNIST_300 = (
    replace(_MNIST, samples=300, lr=0.01),
    replace(_EMNIST, samples=300, batch_size=32),
)


@dataclass(frozen=True)
class Scale:
    """What a profile runs."""

    bases: tuple[Setting, ...]
    noises: tuple[str, ...]
    seeds: tuple[int, ...]


SCALES = {
    "smoke": Scale((_DIGITS,), ("none", "label-40"), (0, 1, 2)),
    "laptop": Scale((_MNIST_300, _EMNIST_300), NOISES, (0, 1, 2)),
    "paper": Scale((_MNIST, _EMNIST), NOISES, (0, 1, 2)),
}

#: is a federation with fewer samples trained as far as the paper's?
LEARNING = {
    "smoke": (_DIGITS, replace(_DIGITS, lr=0.02)),
    "laptop": (),
    "paper": (
        *(_MNIST, replace(_MNIST_300, lr=_MNIST.lr), _MNIST_300),
        *(_EMNIST, replace(_EMNIST, samples=300), _EMNIST_300),
    ),
}
#: Table 2: seconds per round with 300 samples per client
CLIENTS = (4, 8, 12, 16, 32, 64)
COST = {
    "smoke": [replace(_DIGITS, clients=n, rounds=2, simulations=8, samples=20) for n in (4, 8, 16)],
    "laptop": [],
    "paper": [replace(_MNIST_300, clients=n, rounds=2, simulations=20) for n in CLIENTS],
}


def _listed(
    name: str, profile: str, settings: Iterable[Setting], seeds: Sequence[int]
) -> list[Cell]:
    return [Cell(profile, "fedccea", name, asdict(s), tuple(seeds)) for s in settings]


def _at_hand(profile: str, base: Setting) -> Setting:
    """Return the paper's EMNIST, by class, at the paper's scale where it is there."""
    whole = profile == "paper" and base.dataset == "emnist" and base.samples is None
    if not whole or available("femnist") is None:
        return base
    return replace(base, data="femnist", weak=30, strong=5)


def _check(profile: str) -> None:
    if profile not in SCALES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(SCALES)}")


def _contribution(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    _check(profile)
    scale = SCALES[profile]
    settings = [
        replace(_at_hand(profile, base), distribution=distribution, noise=noise)
        for base in scale.bases
        for distribution in DISTRIBUTIONS
        for noise in scale.noises
    ]
    chosen = scale.seeds if seeds is None else seeds
    # minutes each, and nothing is shared between seeds: a cell per seed, so a stop loses one
    cells = [c for seed in chosen for c in _listed("contribution", profile, settings, (seed,))]
    # fits of halves, quarters and tenths are most of a small run's time, and no table has them
    few = {"splits": 2} if profile == "smoke" else {}
    return [replace(c, settings={**c.settings, **few}) for c in cells]


def _dealt(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    """Strongly non-IID clients, where who takes turns and who does not matters most."""
    cells = _contribution(profile, seeds)
    chosen = [c for c in cells if c.settings["distribution"] == "strong"]
    chosen = [c for c in chosen if c.settings["noise"] in ("none", "label-40")]
    return [replace(c, experiment="dealt") for c in chosen]


def _learning(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    _check(profile)
    settings = [
        replace(_at_hand(profile, base), distribution=distribution)
        for base in LEARNING[profile]
        for distribution in DISTRIBUTIONS
    ]
    return _listed("learning", profile, settings, (0, 1, 2) if seeds is None else seeds)


def _cost(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    _check(profile)
    return _listed("cost", profile, COST[profile], (0,) if seeds is None else seeds)


_TINY = asdict(
    replace(_DIGITS, distribution="iid", clients=6, rounds=4, simulations=14, samples=40)
)
#: who holds what, and whose data are noisy, shows in a training as well as in all that follows it
_SLACK = {"metrics.*accuracy*": 1.0, "metrics.base": 1.0, "series.accuracy": 1.0}
_TRAINED = Tiny(
    "learning", run_base, _TINY, switches={"distribution": {}, "noise": {}}, slack=_SLACK
)
#: from a part of so few simulations a fit is not determined: who is above whom is rounding's choice
_PARTS = {"metrics.auc.*.0.*": 1.0}
_VALUED = _TINY | {"distribution": "strong", "noise": "label-40", "clients": 4, "strong": 3,
                   "rounds": 2, "simulations": 12, "samples": 30}  # fmt: skip
for _name, _title, _made, _run, _golden in (
    (
        "contribution",
        "Indices, exclusion and removal (Tables 1 and 3, Figures 4 to 24)",
        _contribution,
        run_cell,
        (Tiny("contribution", run_golden, _VALUED, slack=_SLACK | _PARTS), _TRAINED),
    ),
    (
        "learning",
        "Accuracy with everybody, by samples and learning rate",
        _learning,
        run_base,
        (_TRAINED,),
    ),
    (
        "cost",
        "Seconds per round for 4 to 64 clients (Table 2)",
        _cost,
        run_cost,
        (Tiny("cost", run_cost, _TINY), _TRAINED),
    ),
):
    register(Experiment("fedccea", _name, _title, _made, _run, _golden))
register(
    Experiment(
        "fedccea",
        "dealt",
        "Partial participation with qualities dealt at random",
        _dealt,
        run_dealt,
        (Tiny("dealt", run_dealt, _VALUED, slack=_SLACK), _TRAINED),
    )
)
