"""The arena as experiments: every scenario with every method, and the truths beside them.

Neighbouring cells find rounds and tables made (:func:`fedkit.arena.truths.world`).  All series are
in the order of the roles, so that seeds can be compared.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.arena.federations import SCENARIOS, TRICKS, Scenario
from fedkit.arena.methods import METHODS, Method, Simulated, View, find_method, play
from fedkit.arena.truths import World, retraining_values, world
from fedkit.checks import choice
from fedkit.federated.aggregation import Proportional
from fedkit.federated.valuers import Round
from reproduction import common
from reproduction.golden import Tiny
from reproduction.records import Cell

__all__ = ["method_result", "scenarios", "seeds_of", "truth_result", "variants"]

FloatArray = npt.NDArray[np.float64]

#: from the seed of a federation to the seed by which acting on values is judged
APART = 1000

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


def variants(s: Scenario) -> dict[str, Scenario]:
    """Return what a method's values should not hang on, one change at a time.

    "rounds": half as many; "rate": half the learning rate; "seen-50" and "seen-200": as many of
    the validation images; and, where somebody plays a trick, "before" it.
    """
    found = {
        "rounds": replace(s, rounds=max(2, s.rounds // 2)),
        "rate": replace(s, lr=s.lr / 2),
        **{f"seen-{m}": replace(s, seen=m) for m in (50, 200) if m < s.seen},
    }
    return found | ({"before": replace(s, before=True)} if s.scenario in TRICKS else {})


def _by_role(w: World, values: npt.ArrayLike) -> FloatArray:
    """Values by role, in the seven digits of a record: what rounding tells apart is tied."""
    rounded = [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64)]
    return np.array(rounded)[np.argsort(w.planted.role)]


def worth(w: World, values: FloatArray) -> dict[str, float]:
    """Test accuracy, in percent, of training anew with what a method's values tell.

    "weights": averaging by their positive part; "selection": the upper half of the clients alone;
    "without_worst", "without_best": less a fifth of them; "everybody": as if there were no values.
    A client without a value counts as the mean of the others.  The seed of these trainings is the
    judge's own, which no method has seen.
    """
    values = np.where(np.isnan(values), np.nanmean(values), values)
    n, sizes = w.n, w.planted.federation.sizes
    order, fifth = np.argsort(values, kind="stable"), max(1, n // 5)
    kept = np.ones((5, n), dtype=bool)
    kept[1, order[: n // 2]] = False
    kept[2, order[:fifth]] = False
    kept[3, order[n - fifth :]] = False
    weights = kept * sizes.astype(np.float64)
    weights[0] = Proportional().weights(values, sizes)
    judge = World(w.scenario, w.seed + APART, w.planted)
    found = 100 * judge.train(kept * sizes, weights=weights)[:, 0, 0]
    names = ("weights", "selection", "without_worst", "without_best", "everybody")
    return {f"accuracy.{name}": float(a) for name, a in zip(names, found, strict=True)}


def method_result(
    name: str, method: Method, s: Scenario, seed: int, limit: float = 600.0
) -> dict[str, Any]:
    """Return one method's values on a scenario and its variants, its costs and its worth.

    A method that fails raises as in :func:`~fedkit.arena.methods.play`.
    """
    w = world(s, seed)
    first = play(name, method, w, limit)
    value = _by_role(w, first.values)  # what is on record is judged, to the digit
    series = {"value": value}
    for variant, changed in variants(s).items():
        if variant.startswith("seen") and "training" in method.sees:
            continue  # training anew is dear, and its images are one setting among others
        other = world(changed, seed)
        series[f"value.{variant}"] = _by_role(other, play(name, method, other, limit).values)
    told = ("evaluations", "trainings", "seconds", "held", "fidelity")
    metrics = {name: float(getattr(first, name)) for name in told}
    metrics |= worth(w, value[w.planted.role])
    found = common.result(seed, s.dataset, metrics, series)
    return {**found, "evaluations": first.evaluations}


@lru_cache(maxsize=256)
def truth_result(s: Scenario, seed: int) -> dict[str, Any]:
    """Return what is known of the clients of a scenario, by role."""
    w = world(s, seed)
    p = w.planted
    found = retraining_values(w)
    group = np.full(w.n, np.nan)
    for g, members in enumerate(p.groups):
        group[list(members)] = g
    by_client = {"quality": p.quality, "bad": p.bad, "group": group}
    for column, name in enumerate(("accuracy", "loss")):
        by_client[f"retraining.{name}"] = found.values[:, column]
        by_client[f"error.{name}"] = found.standard_errors[:, column]
    series = {name: _by_role(w, values) for name, values in by_client.items()}
    everybody = w.value(np.ones((1, w.n), dtype=bool))[0]
    metrics = {"accuracy": 100 * float(everybody[0]), "loss": -float(everybody[1])}
    metrics["federations"] = float(found.evaluations)
    return common.result(seed, s.dataset, metrics, series)


@common.each_seed
def run_truths(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run a cell of the truths."""
    return truth_result(common.setting_of(Scenario, cell), seed)


@common.each_seed
def run_method(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run a cell of a method."""
    name, method = find_method(cell.settings["method"])
    return method_result(name, method, common.setting_of(Scenario, cell), seed)


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

    _output = 1

    def rounds(self, utility: str = "accuracy") -> list[Round]:
        return super().rounds("negative_loss" if utility == "accuracy" else utility)


def _by_loss(cell: Cell, device: Any) -> dict[str, Any]:
    """Values of the same method, by loss; a network's fit to losses hangs on rounding."""
    w, (_, method) = (
        world(common.setting_of(Scenario, cell), 0),
        find_method(cell.settings["method"]),
    )
    if isinstance(method, Simulated):
        return {}
    return {"by_loss": _by_role(w, method.values(_ByLoss(w, method.sees)))}


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
# what others submitted: nobody runs it here
common.experiment(
    "arena", "entries", "Methods from outside", lambda profile: [], seeds_of, ROWS,
    run=run_method,
)  # fmt: skip
