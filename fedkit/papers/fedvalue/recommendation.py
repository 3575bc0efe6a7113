"""Repetitions of FedValue's federated recommendation (section 6), with the controls that it lacks.

Schemes, budgets and strategies of one repetition share the task, the parties and the models: each
set of parties is trained once, whoever selects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from fedkit.datasets.movielens import MovieLens, load_movielens, made_up_ratings
from fedkit.extras import bar
from fedkit.fedvalue.data import discretise, joint_codes
from fedkit.papers.fedvalue.budgets import (
    BUDGETS,
    SCHEMES,
    affordable,
    greedy,
    members,
    odd_share,
    prices,
)
from fedkit.papers.fedvalue.recommendation_case import (
    Case,
    Recommender,
    Repetition,
    Trees,
    configure,
    values,
)
from fedkit.papers.registry import Cell

__all__ = ["CONTROLS", "STRATEGIES", "Setting", "play", "run_cell"]

#: by score until the budget is used up; those that end in "-thrifty" pay no party of score <= 0
STRATEGIES = (
    "random", "volume", "vf-ps", "fedvalue", "fedvalue-corrected", "fedvalue-thrifty",
    "fedvalue-corrected-thrifty",
)  # fmt: skip
#: no party; all of them; forward selection by AUC on held-out training users, which needs every
#: party's features; and the affordable set of the best AUC on the test users, which is a bound
CONTROLS = ("none", "all", "validated", "hindsight")
#: name of the share of odd parties among those selected
_SHARE = {"redundant": "rpsp", "free-riders": "frsp"}


@dataclass(frozen=True)
class Setting:
    """What a cell runs: data, the case, the trees, and whether forward selection takes part."""

    dataset: str
    case: Case
    trees: Trees
    validated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of a cell."""
        parts = {f.name: getattr(self.case, f.name) for f in fields(Case)}
        parts["validated"] = self.validated
        return {"dataset": self.dataset, **parts, **{f"trees_{f.name}": getattr(self.trees, f.name)
                for f in fields(Trees)}}  # fmt: skip


def setting(cell: Cell) -> Setting:
    """Return the setting of a cell."""
    s = cell.settings
    return Setting(
        str(s["dataset"]),
        Case(**{f.name: s[f.name] for f in fields(Case) if f.name in s}),
        Trees(**{f.name: s[f"trees_{f.name}"] for f in fields(Trees) if f"trees_{f.name}" in s}),
        bool(s.get("validated", True)),
    )


@lru_cache(maxsize=2)
def dataset(name: str) -> MovieLens:
    """Load a data set, or make up the one of the quick runs."""
    return made_up_ratings() if name == "made-up" else load_movielens(name)


def _choices(
    scores: dict[str, np.ndarray], recommender: Recommender, validated: bool
) -> Iterator[tuple[str, int, str, dict[int, float]]]:
    """Yield scheme, budget, strategy, and the sets that it selects."""
    high = recommender.repetition.high
    for scheme in SCHEMES:
        price = prices(high, scheme)
        for budget in BUDGETS:
            for name in STRATEGIES:
                score = scores[name.removesuffix("-thrifty")]
                pays = not name.endswith("-thrifty")
                yield scheme, budget, name, greedy(score, price, budget, worthless=pays)
            if validated:
                yield scheme, budget, "validated", {_validated(recommender, price, budget): 1.0}
            sets = affordable(price, budget)
            best = max(sets, key=lambda mask: recommender.test(mask)[1])
            yield scheme, budget, "hindsight", {best: 1.0}


def _validated(recommender: Recommender, price: np.ndarray, budget: int) -> int:
    """Add the party whose model does best on held-out training users, until nothing is left."""
    chosen, left = 0, budget
    while True:
        more = [i for i, p in enumerate(price) if p <= left and not chosen >> i & 1]
        if not more:
            return chosen
        best = max(more, key=lambda i: recommender.validate(chosen | 1 << i))
        chosen, left = chosen | 1 << best, left - int(price[best])


def play(data: MovieLens, s: Setting, seed: int) -> dict[str, Any]:
    """Run one repetition: every scheme, budget, strategy and control.

    Returns
    -------
    dict
        ``metrics``: ``"auc.fix.2.fedvalue"`` and so on, for accuracy and AUC (both in [0, 1]),
        money spent (in alpha), and in percent the share of redundant (rpsp) or free-riding
        (frsp) parties among those selected; ``"auc.none"``, ``"auc.all"``; ``"targets"``, the
        share of target customers; and what :func:`summarise` adds.  ``series``: of each party
        its scores, how many cells it occupies, and its gain in AUC when alone.
    """
    repetition = configure(data, s.case, seed)
    scores = values(repetition, s.case, seed)
    recommender = Recommender(repetition, s.trees)
    everybody = (1 << s.case.candidates) - 1
    metrics = {"targets": float(repetition.label.mean())}
    for name, mask in (("none", 0), ("all", everybody)):
        metrics[f"accuracy.{name}"], metrics[f"auc.{name}"] = recommender.test(mask)
    share = _SHARE.get(s.case.scenario)
    for scheme, budget, name, selected in _choices(scores, recommender, s.validated):
        place = f"{scheme}.{budget}.{name}"
        accuracy, area = recommender.expected(selected)
        price = prices(repetition.high, scheme)
        spent = sum(p * float(price[members(mask)].sum()) for mask, p in selected.items())
        metrics |= {f"accuracy.{place}": accuracy, f"auc.{place}": area, f"spent.{place}": spent}
        if share is not None:
            metrics[f"{share}.{place}"] = 100 * odd_share(selected, repetition.odd)
    summarise(metrics, share)
    nobody = recommender.test(0)[1]
    series = {
        "high": repetition.high.astype(int).tolist(),
        "odd": repetition.odd.astype(int).tolist(),
        "gain": [recommender.test(1 << i)[1] - nobody for i in range(s.case.candidates)],
        "cells": occupied(repetition, s.case.bins),
        **{f"score.{name}": score.tolist() for name, score in scores.items() if score.any()},
    }
    return {"metrics": metrics, "series": series}


def summarise(metrics: dict[str, float], share: str | None) -> None:
    """Add FedValue's lead over VF-PS, and each strategy's largest share of odd parties."""
    places = [f"{scheme}.{budget}" for scheme in SCHEMES for budget in BUDGETS]
    for measure in ("accuracy", "auc"):
        for place in places:
            lead = metrics[f"{measure}.{place}.fedvalue"] - metrics[f"{measure}.{place}.vf-ps"]
            metrics[f"lead.{measure}.{place}"] = lead
    if share is not None:
        for name in STRATEGIES:
            metrics[f"{share}.worst.{name}"] = max(metrics[f"{share}.{p}.{name}"] for p in places)


def occupied(repetition: Repetition, bins: int) -> list[int]:
    """Return how many cells each party's binned features occupy among the users with labels."""
    train = repetition.train
    return [int(joint_codes(discretise(x[train], bins)).max()) + 1 for x in repetition.features]


def run_cell(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting, one repetition after another."""
    s = setting(cell)
    data = dataset(s.dataset)
    identity = {"name": data.name, "source": data.source, "checksum": data.fingerprint}
    return [
        {"seed": int(seed), **play(data, s, seed), "data": identity}
        for seed in bar(cell.seeds, progress, "repetition")
    ]
