"""The cells of FedCCEA's tables and figures, at every profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from fedkit.experiments import Cell, Experiment, register
from fedkit.experiments.fedccea import DISTRIBUTIONS, Setting
from fedkit.experiments.fedccea_runs import run_cell
from fedkit.experiments.fedms_cells import NOT_HASHED
from fedkit.provenance import sources_of

NOISES = ("none", "label-10", "label-20", "label-40", "backdoor-20")
_MNIST = Setting("mnist", "mnist", "iid")
#: EMNIST by class is not at hand everywhere; the letters are another data set, and marked as such
_EMNIST = replace(
    _MNIST, dataset="emnist", data="emnist-letters", model="mlp-128", weak=13, strong=3, epochs=1,
    batch_size=256, lr=0.05, aam_lr=0.05,
)  # fmt: skip
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-16", clients=8, rounds=6, simulations=24,
    samples=60, epochs=2, batch_size=16, lr=0.2, budget=24,
)  # fmt: skip
#: 300 samples per client (appendix C.1) and ten times the learning rate, for a tenth of the steps
_MNIST_300, _EMNIST_300 = (
    replace(_MNIST, samples=300, lr=0.01),
    replace(_EMNIST, samples=300, lr=0.5),
)
#: what a CPU manages in minutes: 100 samples, 50 simulations, 50 coalitions
_MNIST_100 = replace(_MNIST, samples=100, lr=0.03, simulations=50, budget=50)
_EMNIST_100 = replace(_EMNIST, samples=100, lr=0.5, simulations=50, budget=50)


@dataclass(frozen=True)
class Scale:
    """What a profile runs."""

    bases: tuple[Setting, ...]
    noises: tuple[str, ...]
    seeds: tuple[int, ...]


SCALES = {
    "smoke": Scale((_DIGITS,), ("none", "label-40"), (0, 1, 2)),
    "laptop": Scale((_MNIST_300, _EMNIST_300, _MNIST_100, _EMNIST_100), NOISES, (0, 1, 2)),
    "paper": Scale((_MNIST, _EMNIST), NOISES, (0, 1, 2)),
}


def _cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    if profile not in SCALES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(SCALES)}")
    scale = SCALES[profile]
    chosen = tuple(scale.seeds if seeds is None else seeds)
    return [
        Cell(profile, "fedccea", "contribution", asdict(s), chosen)
        for base in scale.bases
        for distribution in DISTRIBUTIONS
        for noise in scale.noises
        for s in [replace(base, distribution=distribution, noise=noise)]
    ]


register(
    Experiment(
        "fedccea",
        "contribution",
        "Indices, exclusion and removal (Tables 1 and 3, Figures 4 to 24)",
        sources_of(
            "fedkit.experiments.fedccea", "fedkit.experiments.fedccea_runs", skip=NOT_HASHED
        ),
        _cells,
        run_cell,
    )
)
