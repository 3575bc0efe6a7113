"""Federated recommendation: which suppliers of ratings should a movie agency pay (section 6)?

An agency knows the demographics of all its members, and which members of a small part liked one
of its new movies.  Suppliers offer ratings of other movies.  The agency pays some of them, within
a budget, and trains gradient-boosted trees on what it then has, to find who else would like one.

Sets of parties are masks: bit i of the whole number is party i.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Bools, Floats, Ints
from fedkit.datasets import MovieLens, load_movielens, made_up_ratings
from fedkit.extras import need
from fedkit.fedvalue.columns import VerticalData, discretise, joint_codes, pca
from fedkit.fedvalue.information import Correction, mshapley_cmi
from fedkit.fedvalue.report import LEVEL
from fedkit.fedvalue.shap import vfps_scores
from fedkit.fedvalue.significance import permutation_p_values
from fedkit.streams import Streams
from reproduction.common import chance_above, each_seed, experiment, identity
from reproduction.fedvalue import experiments as given
from reproduction.fedvalue.experiments import PLACES, SHARE, STRATEGIES, Case
from reproduction.golden import Tiny
from reproduction.records import Cell

Ratings = npt.NDArray[np.uint8]

# ------------------------------------------------------------------- who offers what


@dataclass(frozen=True, eq=False)
class Repetition:
    """One draw of the task and of its candidates: U users, d data parties."""

    label: Ints  # [U]: 1 for target customers
    train: Bools  # [U]: whose label is known; the others are the test set
    demographics: Ints  # [U, 3]: gender, age band, occupation; or [U, 2] without the last
    own: Floats  # [U, F], of the task party; F = 0 but for redundant scenarios
    features: tuple[Floats, ...]  # [U, K] that each data party offers
    high: Bools  # [d]: who is of high volume
    odd: Bools  # [d]: who is redundant or rides free
    volume: Ints  # [d]: movies that each party says it holds


def configure(data: MovieLens, case: Case, seed: int) -> Repetition:
    """Draw the new movies, the users with labels, and the data parties.

    The draws do not depend on the scenario.  Of an odd number of parties fewer are of high volume.
    """
    users, movies = data.ratings.shape
    small, large = (max(1, round(share * movies)) for share in (case.low, case.high))
    streams = Streams(seed).child("fedvalue", "recommendation")
    shuffled = streams.generator("movies").permutation(movies)
    new, others = shuffled[: case.movies], shuffled[case.movies :]
    label = (data.ratings[:, new] >= 4).any(axis=1).astype(np.int64)
    train = np.zeros(users, dtype=bool)
    train[streams.generator("users").permutation(users)[: round(case.train * users)]] = True

    def table(name: str, size: int) -> Ratings:
        return data.ratings[:, streams.generator("party", name).permutation(others)[:size]]

    high = np.arange(case.candidates) >= (case.candidates + 1) // 2
    volume = np.where(high, large, small).astype(np.int64)
    how_many = 0 if case.scenario == "ideal" else round(case.ratio * case.candidates)
    odd = np.zeros(case.candidates, dtype=bool)
    odd[streams.generator("roles").permutation(case.candidates)[:how_many]] = True
    redundancy = case.redundancy if case.scenario == "redundant" else ""
    people = data.demographics[:, : 2 if case.demographics == "gender-age" else None]
    own = pca(table("own", small), case.features) if redundancy == "own" else np.zeros((users, 0))
    copied = {"own": own, "copy": people.astype(np.float64)}
    offered = []
    for i in range(case.candidates):
        ratings = table(str(i), int(volume[i]))
        if odd[i] and case.scenario == "free-riders":
            ratings = fabricate(ratings, case.fabrication, streams.generator("made up", i))
        copies = odd[i] and redundancy in copied
        offered.append(copied[redundancy] if copies else pca(ratings, case.features))
    if redundancy == "given":
        own = np.column_stack([own, *(x for x, held in zip(offered, odd, strict=True) if held)])
    return Repetition(label, train, people, own, tuple(offered), high, odd, volume)


def fabricate(ratings: Ratings, how: str, rng: np.random.Generator) -> Ratings:
    """Make up a table of ratings in the place of a true one; see :class:`Case`."""
    if how == "permuted":
        return ratings[rng.permutation(len(ratings))]
    if how == "uniform":
        return rng.integers(0, 6, size=ratings.shape, dtype=np.uint8)
    rated = rng.random(ratings.shape) < (ratings > 0).mean()
    return (rated * rng.integers(1, 6, size=ratings.shape)).astype(np.uint8)


# ------------------------------------------------------------------- whom the agency pays


def asked(repetition: Repetition, case: Case) -> VerticalData:
    """Return the users with labels: what the agency knows of them, and what is offered."""
    train = repetition.train | (case.known == "all")
    keep = None if case.demographics == "bins" else True
    # What the task party knows is one column of joint cells.
    known = discretise(repetition.demographics[train], case.bins, discrete=keep)
    if repetition.own.shape[1]:
        known = np.column_stack([known, discretise(repetition.own[train], case.bins)])
    offered = [x[train] for x in repetition.features]
    levels = (True, *(None,) * len(offered))
    return VerticalData(joint_codes(known), repetition.label[train], offered, discrete=levels)


def values(repetition: Repetition, case: Case, seed: int) -> dict[str, Floats]:
    """Score the data parties by each strategy, on the users whose labels are known."""
    data = asked(repetition, case)

    def fedvalue(correction: Correction) -> Floats:
        return mshapley_cmi(data, bins=case.bins, correction=correction, seed=seed).values

    return {
        "random": np.zeros(case.candidates),  # all alike: such ties are broken at random
        "volume": repetition.volume.astype(np.float64),
        "vf-ps": vfps_scores(data.parties, data.y, groups=case.groups, seed=seed),
        "fedvalue": fedvalue("plugin"),
        "fedvalue-corrected": fedvalue("permutation"),
    }


def prices(high: Bools, scheme: str) -> Ints:
    """Return what each party asks, in units of alpha: FIX 1, VAR 1 or 2 by volume."""
    return np.where(high & (scheme == "var"), 2, 1).astype(np.int64)


def greedy(scores: Floats, price: Ints, budget: int, *, worthless: bool = True) -> dict[int, float]:
    """Select parties by falling score; those that cannot be paid any more are passed over.

    Equal scores (to twelve digits of the largest) come in random order, so the result is the
    probability of each set.  `worthless`: whether a party of score 0 or less is paid too.
    """
    d = len(scores)
    rounded = np.round(scores / (float(np.abs(scores).max()) or 1.0), 12)
    ties = len(np.unique(rounded)) < d
    found: Counter[int] = Counter()
    for order in itertools.permutations(range(d)) if ties else [tuple(range(d))]:
        left, chosen = budget, 0
        for i in sorted(order, key=lambda i: -rounded[i]):
            if price[i] <= left and (worthless or rounded[i] > 0):
                left, chosen = left - int(price[i]), chosen | 1 << i
        found[chosen] += 1
    return {mask: count / found.total() for mask, count in sorted(found.items())}


def affordable(price: Ints, budget: int) -> list[int]:
    """Return every set of parties that the budget pays, as masks."""
    return [m for m in range(1 << len(price)) if price[members(m)].sum() <= budget]


def members(mask: int) -> list[int]:
    """Return the parties of a mask, ascending."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def odd_share(selected: dict[int, float], odd: Bools) -> float:
    """Return RPSP or FRSP: the mean share of odd parties among those selected (0 of none)."""
    return sum(p * float(odd[members(mask)].mean()) for mask, p in selected.items() if mask)


class Recommender:
    """Models of one repetition, one for each set of parties, trained when first asked for."""

    def __init__(self, case: Case, repetition: Repetition) -> None:
        self.case, self.repetition = case, repetition
        self._marks: dict[tuple[int, bool], tuple[float, float]] = {}

    def table(self, mask: int) -> Floats:
        """Return what the task party has with these parties, float64[U, F]."""
        r = self.repetition
        return np.column_stack([r.demographics, r.own, *(r.features[i] for i in members(mask))])

    def mark(self, mask: int, held_out: bool = False) -> tuple[float, float]:
        """Return accuracy and AUC on the test users.

        Or on every third user with a label, of a model of the other two thirds (`held_out`).
        """
        if (mask, held_out) not in self._marks:
            x, label, fitted = self.table(mask), self.repetition.label, self.repetition.train
            marked = ~fitted
            if held_out:
                marked = np.isin(np.arange(len(label)), np.flatnonzero(fitted)[::3])
                fitted = fitted & ~marked
            chance, truth = self.chance(x[fitted], label[fitted], x[marked]), label[marked]
            area = chance_above(chance[truth == 1], chance[truth == 0])
            self._marks[mask, held_out] = float(((chance > 0.5) == truth).mean()), area
        return self._marks[mask, held_out]

    def chance(self, x: Floats, y: Ints, wanted: Floats) -> Floats:
        """Train trees on (x, y) with one thread and return the probability of label 1."""
        xgboost = need("xgboost", extra="vertical")
        options = {
            "objective": "binary:logistic", "max_depth": self.case.trees_depth,
            "eta": self.case.trees_rate, "nthread": 1, "tree_method": "hist", "seed": 0,
        }  # fmt: skip
        fitted = xgboost.train(options, xgboost.DMatrix(x, y, nthread=1), self.case.trees_rounds)
        return np.asarray(fitted.predict(xgboost.DMatrix(wanted, nthread=1)), dtype=np.float64)


def bought(recommender: Recommender, selected: dict[int, float], price: Ints) -> dict[str, float]:
    """Return accuracy, AUC and the money spent, averaged over how ties are broken."""
    each = [(*recommender.mark(m), float(price[members(m)].sum())) for m in selected]
    means = np.array(list(selected.values())) @ np.array(each)
    return dict(zip(("accuracy", "auc", "spent"), means.tolist(), strict=True))


def forward_selection(recommender: Recommender, price: Ints, budget: int) -> int:
    """Add the party whose model does best on held-out training users, until nothing is left."""
    chosen, left = 0, budget
    while more := [i for i, p in enumerate(price) if p <= left and not chosen >> i & 1]:
        best = max(more, key=lambda i: recommender.mark(chosen | 1 << i, held_out=True)[1])
        chosen, left = chosen | 1 << best, left - int(price[best])
    return chosen


# ------------------------------------------------------------------- runs and cells


def play(data: MovieLens, case: Case, seed: int) -> dict[str, Any]:
    """Run one repetition: every scheme, budget, strategy and control.

    Metrics are named ``"auc.fix.2.fedvalue"``: accuracy, AUC, money spent in alpha, and in percent
    the share of redundant (rpsp) or free-riding (frsp) parties among those selected.
    """
    r = configure(data, case, seed)
    scores = values(r, case, seed)
    recommender = Recommender(case, r)
    metrics = {"targets": float(r.label.mean())}
    for name, mask in (("none", 0), ("all", (1 << case.candidates) - 1)):
        metrics[f"accuracy.{name}"], metrics[f"auc.{name}"] = recommender.mark(mask)
    share = SHARE.get(case.scenario, "")
    for scheme, budget in PLACES:
        price, place = prices(r.high, scheme), f"{scheme}.{budget}"
        paid = {
            name: greedy(
                scores[name.removesuffix("-thrifty")], price, budget,
                worthless=not name.endswith("-thrifty"),
            )
            for name in STRATEGIES
        }  # fmt: skip
        if case.validated:
            paid["validated"] = {forward_selection(recommender, price, budget): 1.0}
        best = max(affordable(price, budget), key=lambda mask: recommender.mark(mask)[1])
        paid["hindsight"] = {best: 1.0}
        for name, selected in paid.items():
            found = bought(recommender, selected, price)
            if share:
                found[share] = 100 * odd_share(selected, r.odd)
            metrics |= {f"{measure}.{place}.{name}": mean for measure, mean in found.items()}
        for measure in ("accuracy", "auc"):
            ours, theirs = (metrics[f"{measure}.{place}.{n}"] for n in ("fedvalue", "vf-ps"))
            metrics[f"lead.{measure}.{place}"] = ours - theirs
    for name in STRATEGIES if share else ():
        of_name = [metrics[f"{share}.{scheme}.{b}.{name}"] for scheme, b in PLACES]
        metrics[f"{share}.worst.{name}"] = max(of_name)
    nobody = recommender.mark(0)[1]
    bins = [discretise(x[r.train], case.bins) for x in r.features]
    series = {
        "high": r.high.astype(int).tolist(),
        "odd": r.odd.astype(int).tolist(),
        "gain": [recommender.mark(1 << i)[1] - nobody for i in range(case.candidates)],
        "cells": [int(joint_codes(codes).max()) + 1 for codes in bins],
        **{f"score.{name}": score.tolist() for name, score in scores.items() if score.any()},
    }
    return {"metrics": metrics, "series": series}


@lru_cache(maxsize=2)
def _ratings(name: str) -> MovieLens:
    return made_up_ratings() if name == "made-up" else load_movielens(name)


@each_seed
def run_recommendation(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run one repetition of a case."""
    case = Case(**cell.settings)
    data = _ratings(case.dataset)
    return {**play(data, case, seed), "data": identity(data)}


@each_seed
def run_tested(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Pay those who pass a permutation test, in the order of the corrected value, and nobody else.

    "passes.KIND" are, in percent, the parties of a kind that pass.
    """
    case = Case(**cell.settings)
    data = _ratings(case.dataset)
    r = configure(data, case, seed)
    known = asked(r, case)
    passes = permutation_p_values(known, bins=case.bins, seed=seed).adjusted <= LEVEL
    value = mshapley_cmi(known, bins=case.bins, correction="permutation", seed=seed).values
    kinds = {"high": r.high & ~r.odd, "low": ~r.high & ~r.odd, "odd": r.odd}
    metrics = {f"passes.{k}": 100 * float(passes[w].mean()) for k, w in kinds.items() if w.any()}
    metrics["passes.nobody"] = 100 * float(not passes.any())
    recommender = Recommender(case, r)
    for scheme, budget in PLACES:
        price, place = prices(r.high, scheme), f"{scheme}.{budget}"
        selected = greedy(np.where(passes, value, 0.0), price, budget, worthless=False)
        found = bought(recommender, selected, price) | {"odd": 100 * odd_share(selected, r.odd)}
        metrics |= {f"{measure}.{place}": mean for measure, mean in found.items()}
    return {"metrics": metrics, "series": {}, "data": identity(data)}


experiment(
    "fedvalue", "tested",
    "Federated recommendation: who passes a test is paid, and nobody else",
    given.tested, given.repetitions,
    Tiny(
        "tested", run_tested, asdict(Case(scenario="free-riders", validated=False, **given.SMALL)),
        switches={"scenario": {}},
    ),
)  # fmt: skip
_PLAYED = Tiny(
    "recommendation", run_recommendation,
    asdict(Case(candidates=4, validated=False, **given.SMALL)),
    by="scenario",
    switches={
        "redundancy": {"scenario": "redundant"}, "fabrication": {"scenario": "free-riders"},
        "demographics": {}, "known": {}, "validated": {},
    },
)  # fmt: skip
experiment(
    "fedvalue", "recommendation",
    "Federated recommendation: which parties to pay (Tables 5, 6, 7 and 9)",
    given.recommendation, given.repetitions, _PLAYED, block=20,
)  # fmt: skip
experiment(
    "fedvalue", "gender_age",
    "Federated recommendation: the task party knows gender and age alone (Tables 5, 6, 7 and 9)",
    given.gender_age, given.many_repetitions, _PLAYED, block=20,
)  # fmt: skip
