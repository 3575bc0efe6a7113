"""The arena's experiments: every scenario with every method, and the truths beside them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fedkit.arena import METHODS, Simulated, View
from fedkit.checks import choice
from fedkit.federated.rounds import Round
from reproduction import common
from reproduction.arena.federations import SCENARIOS, Scenario, plant
from reproduction.arena.rows import by_role, method_result, truth_result
from reproduction.golden import Tiny
from reproduction.records import Cell

_DIGITS = Scenario(
    "digits", "sizes", model="mlp-16", clients=8, participants=8, rounds=4, samples=40,
    validation=300, seen=300, test=300, batch_size=10, lr=0.2,
)  # fmt: skip
_MNIST = Scenario("mnist", "sizes")
_IMAGES = (_MNIST, replace(_MNIST, dataset="fashionmnist"))
SCALES: dict[str, tuple[tuple[Scenario, ...], int]] = {
    "smoke": ((_DIGITS,), 2),
    "laptop": (_IMAGES, 3),
    "paper": (_IMAGES, 10),
}
"""Data sets and sizes of a profile, and its number of seeds."""


def scenarios(profile: str) -> list[Scenario]:
    """Return every scenario of a profile."""
    choice("profile", profile, tuple(SCALES))
    found = []
    for base in SCALES[profile][0]:
        for name in SCENARIOS:
            many: dict[str, Any] = {"clients": 20, "participants": 10} if name == "twenty" else {}
            found.append(replace(base, scenario=name, **many))
    return found


def seeds_of(profile: str, setting: object = None) -> list[tuple[int, ...]]:
    """Return the seeds of a profile, in one block."""
    return [tuple(range(SCALES[profile][1]))]


@common.each_seed
def run_truths(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run a cell of the truths."""
    return truth_result(Scenario.of(cell), seed)


@common.each_seed
def run_method(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run a cell of a method."""
    method = METHODS[cell.settings["method"]]
    return method_result(method, Scenario.of(cell), seed)


def _guarded(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Run a cell, and keep what other processors repeat.

    The steps of FedCCEA's connected reading make the first digit of its values from the 14th of the
    accuracies, on as few simulations as here; its fit has a golden run of its own.
    """
    results = [dict(found) for found in run_method(cell, device, progress)]
    if cell.settings["method"] == "fedccea-connected":
        steady = ("evaluations", "trainings", "held", "accuracy.everybody")
        for found in results:
            found |= {"metrics": {name: found["metrics"][name] for name in steady}, "series": {}}
    return results


_TINY = replace(
    _DIGITS, scenario="label-noise", clients=5, participants=5, rounds=3, samples=20,
    validation=60, seen=60, test=60, model="mlp-8",
)  # fmt: skip
#: accuracies of 60 images, and what hangs on them: an image may fall on the other side
_SLACK = {
    "metrics.accuracy*": 4.0, "metrics.trainings": 1.0, "metrics.evaluations": 12, "spent": 12,
    "series.value*": 0.02, "series.*.accuracy": 0.02, "metrics.fidelity": 0.4,
    "series.value.r*": 0.1,  # a network fitted to a few such accuracies
}  # fmt: skip


class _ByLoss(View):
    """What coalitions are worth by minus the loss, which does not hang on an image."""

    output = 1

    def rounds(self, utility: str = "accuracy") -> list[Round]:
        return super().rounds("negative_loss" if utility == "accuracy" else utility)


def _by_loss(cell: Cell, device: Any) -> dict[str, Any]:
    """Values of the same method, by loss; a network's fit to losses hangs on rounding."""
    method, planted = METHODS[cell.settings["method"]], plant(Scenario.of(cell), 0)
    if isinstance(method, Simulated):
        return {}
    return {"by_loss": by_role(planted, method.values(_ByLoss(planted.world)))}


def _switches(**changes: Any) -> dict[str, dict[str, Any]]:
    some = {"twenty": {"clients": 6, "participants": 4}}
    return {f"scenario={name}": {**changes, **some.get(name, {})} for name in SCENARIOS}


TRUTHS = Tiny("truths", run_truths, asdict(_TINY), switches=_switches(), slack=_SLACK)
ROWS = Tiny(
    "methods", _guarded, {"method": "exact", **asdict(_TINY)}, by="method",
    switches=_switches(method="exact"), slack=_SLACK, more=_by_loss,
    felt={
        "methods.size": {"scenario": "sizes"},  # elsewhere all have as much
        "methods.complementary": {"clients": 6, "participants": 6},  # of five there are no halves
    },
)  # fmt: skip


common.experiment(
    "arena", "truths", "What clients are worth, planted and by retraining", scenarios, seeds_of,
    TRUTHS,
)  # fmt: skip
common.experiment(
    "arena", "methods", "Every method on every federation",
    lambda profile: [{"method": m, **asdict(s)} for s in scenarios(profile) for m in METHODS],
    seeds_of, ROWS, run=run_method,
)  # fmt: skip
# what others sent in, on record: nobody runs it here
common.experiment(
    "arena", "entries", "Methods from outside", lambda profile: [], seeds_of, ROWS,
    run=run_method,
)  # fmt: skip
