"""The cells of FedMS's tables and figures, at every profile.

Table 1 has three scenarios and two data sets; Table 2 adds misbehaving clients; both readings of
"5 local rounds" are run.  Figure 2 is the setting of five clients; Figures 3 to 5 are the rewards
and curves of Table 1's cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedkit.experiments import Cell, Experiment, register
from fedkit.experiments.fedms import METHODS, SCENARIOS, Setting, run_cell
from fedkit.experiments.fedms_values import run_detection, run_five
from fedkit.provenance import sources_of

_MNIST = Setting("fedavg", "mnist", "mnist", "dir10")
_CIFAR = replace(_MNIST, dataset="cifar10", data="cifar10", model="cnn", rounds=200, local_rounds=1)
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-32", clients=12, participants=4,
    rounds=30, batch_size=16, validation=0.4,
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """What a profile runs."""

    bases: tuple[Setting, ...]
    readings: tuple[str, ...]
    seeds: tuple[int, ...]
    adversaries: int


SCALES = {
    "smoke": Scale((_DIGITS,), ("steps",), (0, 1, 2), 1),
    "laptop": Scale((replace(_MNIST, rounds=40),), ("steps",), (0, 1, 2), 2),
    "paper": Scale((_MNIST, _CIFAR), ("steps", "epochs"), (0, 1, 2, 3, 4), 2),
}


def _scale(profile: str) -> Scale:
    if profile not in SCALES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(SCALES)}")
    return SCALES[profile]


def tuned(s: Setting) -> Setting:
    """The hyper-parameters that section 5.1 chose for the scenario of a setting."""
    if s.scenario == "dir10":
        return replace(s, poc_decay=1.0, emd_beta=0.001, alpha=0.8)
    last = 0.2 if s.scenario == "dir0.1" and s.dataset == "mnist" else 0.1
    return replace(s, poc_decay=0.9, emd_beta=0.01, alpha=0.6, last_tolerance=last)


def _grid(profile: str, scenarios: Iterable[str], adversaries: bool) -> list[Setting]:
    scale = _scale(profile)
    return [
        tuned(
            replace(
                base,
                method=method,
                scenario=scenario,
                local=local,
                adversaries=scale.adversaries if adversaries else 0,
            )
        )
        for base in scale.bases
        if not adversaries or base.dataset != "cifar10"  # Table 2 is MNIST alone
        for local in scale.readings
        for scenario in scenarios
        for method in METHODS
    ]


def _five(profile: str) -> list[Setting]:
    """Five clients that all take part: four alike and one Maverick (Figure 2)."""
    scale = _scale(profile)
    return [
        replace(base, scenario="iid", clients=5, participants=5, mavericks=1, local=local)
        for base in scale.bases
        for local in scale.readings
    ]


def _detection(profile: str) -> list[Setting]:
    """Uniform selection in Table 2's setting: every score on the same rounds."""
    return [s for s in _grid(profile, ("dir0.1",), True) if s.method == "fedavg"]


_SOURCES = sources_of(
    "fedkit.experiments.fedms",
    "fedkit.experiments.fedms_values",
    skip=(
        *("fedkit.dataregistry", "fedkit.datalayouts", "fedkit.datafiles", "fedkit.datafetch"),
        *("fedkit.closed_forms", "fedkit.checkpoints"),
    ),
)


def _register(
    name: str, title: str, settings: Callable[[str], list[Setting]], run: Callable[..., Any]
) -> None:
    def cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
        chosen = tuple(_scale(profile).seeds if seeds is None else seeds)
        return [Cell(profile, "fedms", name, asdict(s), chosen) for s in settings(profile)]

    register(Experiment("fedms", name, title, _SOURCES, cells, run))


_register("table1", "Final accuracy with Mavericks", lambda p: _grid(p, SCENARIOS, False), run_cell)
_register(
    "table2",
    "Who takes part, with misbehaving clients",
    lambda p: _grid(p, ("dir0.1",), True),
    run_cell,
)
_register("five_clients", "Five clients, one Maverick (Figure 2)", _five, run_five)
_register("detection", "Which score finds which misbehaviour", _detection, run_detection)
