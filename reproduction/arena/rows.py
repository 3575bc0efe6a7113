"""What is recorded of a method, and of the truth.

All series are in the order of the roles, so that seeds can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.arena import Method, World, play, retraining_values, sees
from fedkit.checks import Floats
from fedkit.federated.policies import positive_shares
from reproduction import common
from reproduction.arena.federations import TRICKS, Planted, Scenario, plant

#: from the seed of a federation to the seed by which acting on values is judged
APART = 1000


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


def by_role(p: Planted, values: npt.ArrayLike) -> Floats:
    """Values by role, in the seven digits of a record: what rounding tells apart is tied."""
    rounded = [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64)]
    return np.array(rounded)[np.argsort(p.role)]


def worth(w: World, values: Floats) -> dict[str, float]:
    """Test accuracy, in percent, of training anew, by the judge's seed, with what values tell.

    "weights": averaging by their positive part; "selection": the upper half of the clients alone;
    "without_worst", "without_best": less a fifth of them; "everybody": as if there were no values.
    A client without a value counts as the mean of the others.
    """
    values = np.where(np.isnan(values), np.nanmean(values), values)
    n, sizes = w.n, w.federation.sizes
    order, fifth = np.argsort(values, kind="stable"), max(1, n // 5)
    kept = np.ones((5, n), dtype=bool)
    kept[1, order[: n // 2]] = False
    kept[2, order[:fifth]] = False
    kept[3, order[n - fifth :]] = False
    weights = kept * sizes.astype(np.float64)
    weights[0] = positive_shares(values)
    judge = replace(w, seed=w.seed + APART)
    found = 100 * judge.train(kept * sizes, weights=weights)[:, 0, 0]
    names = ("weights", "selection", "without_worst", "without_best", "everybody")
    return {f"accuracy.{name}": float(a) for name, a in zip(names, found, strict=True)}


def method_result(method: Method, s: Scenario, seed: int) -> dict[str, Any]:
    """Return one method's values on a scenario and its variants, its costs and its worth."""
    p = plant(s, seed)
    first = play(method, p.world)
    value = by_role(p, first.values)  # what is on record is judged, to the digit
    series = {"value": value}
    for variant, changed in variants(s).items():
        if variant.startswith("seen") and "training" in sees(method):
            continue  # training anew is dear, and its images are one setting among others
        other = plant(changed, seed)
        series[f"value.{variant}"] = by_role(other, play(method, other.world).values)
    told = ("evaluations", "trainings", "seconds", "held", "fidelity")
    metrics = {name: float(getattr(first, name)) for name in told}
    metrics |= worth(p.world, value[p.role])
    found = common.result(seed, s.dataset, metrics, series)
    return {**found, "evaluations": first.evaluations}


@lru_cache(maxsize=256)
def truth_result(s: Scenario, seed: int) -> dict[str, Any]:
    """Return what is known of the clients of a scenario, by role."""
    p = plant(s, seed)
    w = p.world
    found = retraining_values(w)
    group = np.full(w.n, np.nan)
    for g, members in enumerate(p.groups):
        group[list(members)] = g
    by_client = {"quality": p.quality, "bad": p.bad, "group": group}
    for column, name in enumerate(("accuracy", "loss")):
        by_client[f"retraining.{name}"] = found.values[:, column]
        by_client[f"error.{name}"] = found.standard_errors[:, column]
    series = {name: by_role(p, values) for name, values in by_client.items()}
    everybody = w.value(np.ones((1, w.n), dtype=bool))[0]
    metrics = {"accuracy": 100 * float(everybody[0]), "loss": -float(everybody[1])}
    metrics["federations"] = float(found.evaluations)
    return common.result(seed, s.dataset, metrics, series)
