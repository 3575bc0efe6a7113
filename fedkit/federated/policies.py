"""Policies that no paper of its own brings: selections, values of rounds, and aggregations.

Each is a function, or an object that is called, of the form that ``fk.Strategy`` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fedkit.checks import Floats, Ints, choice, flag, having, whole, whole_or_none
from fedkit.estimators import Estimator, estimate_many
from fedkit.federated.rounds import ClientTable, Round, Value, check_policy
from fedkit.games.exact import leave_one_out, shapley
from fedkit.games.game import NoGainRule
from fedkit.games.valuation import Valuation

# ------------------------------------------------------------------------------- selections


def draw(pool: Ints, k: int, rng: np.random.Generator) -> Ints:
    """`k` clients of the pool, uniformly without replacement, sorted."""
    return np.sort(rng.permutation(pool)[: whole("k", k, 1)])


def top(pool: Ints, scores: Floats, k: int) -> Ints:
    """The clients of the k largest scores, float64[len(pool)], the first of equal ones, sorted."""
    return np.sort(pool[np.argsort(-scores, kind="stable")[: whole("k", k, 1)]])


@dataclass(frozen=True)
class UniformSelection:
    """`k` clients uniformly without replacement, among those that own data."""

    def __call__(self, table: ClientTable, k: int, rng: np.random.Generator) -> Ints:
        return draw(table.available, k, rng)


# --------------------------------------------------------------------------- values of rounds


def unsampled(values: Floats, method: str) -> Valuation:
    """Values that cost no utility evaluation and have no error that is known."""
    return Valuation(values, np.full_like(values, np.nan), 0, 0, method)


@dataclass(frozen=True)
class NoValue:
    """FedAvg: nobody is valued; every value is 0."""

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [unsampled(np.zeros(len(r.sizes)), "none") for r in rounds]


@dataclass(frozen=True)
class SizeAsValue:
    """Control: a participant's share of the round's training samples."""

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [unsampled(r.sizes / r.sizes.sum(), "size") for r in rounds]


@dataclass(frozen=True)
class RandomValues:
    """Control: a uniform draw from the simplex; like normalised Shapley values it sums to 1."""

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        draws = [r.streams.generator("random values") for r in rounds]
        ones = [np.ones(len(r.sizes)) for r in rounds]
        return [unsampled(rng.dirichlet(x), "random") for rng, x in zip(draws, ones, strict=True)]


@dataclass(frozen=True)
class ShuffledValues:
    """Control: another policy's values, dealt to the round's participants at random.

    Parameters
    ----------
    policy : callable
        For instance ``fk.Exact()``.
    """

    policy: Value

    def __post_init__(self) -> None:
        check_policy("value", self.policy)

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        dealt = []
        for r, v in zip(rounds, self.policy(rounds), strict=True):
            order = r.streams.generator("shuffled values").permutation(len(v.values))
            freedom = None if v.degrees_of_freedom is None else v.degrees_of_freedom[order]
            moved = {"values": v.values[order], "standard_errors": v.standard_errors[order]}
            dealt.append(replace(v, **moved, degrees_of_freedom=freedom))
        return dealt


@dataclass(frozen=True)
class ClassCosine:
    """ShapFed's class-specific scores (Tastan et al. 2024; FedOwen's Algorithm 7, line 1).

    The score of a participant, in [-1, 1], is the mean over classes of the cosine between its
    last-layer update for the class (row of the weight matrix and bias) and the average by size.
    """

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        scores = []
        for r in rounds:
            weight, bias = r.architecture.last_layer(r.updates)
            rows = torch.cat([weight, bias[..., None]], dim=-1).double()  # [k, classes, d + 1]
            share = torch.as_tensor(r.sizes / r.sizes.sum(), device=rows.device)
            mean = torch.einsum("k,kcd->cd", share, rows)
            norms = rows.norm(dim=-1) * mean.norm(dim=-1)
            cosine = torch.einsum("kcd,cd->kc", rows, mean) / norms.clamp_min(1e-30)
            scores.append(unsampled(cosine.mean(dim=1).cpu().numpy(), "class cosine"))
        return scores


@dataclass(frozen=True)
class Estimated:
    """Values from an estimator on the coalition game of the round.

    Parameters
    ----------
    estimator : Estimator
    budget : int or None
        Utility evaluations per round.
    count : {"calls", "distinct"}
        What the budget counts.
    normalised : bool
        Value the normalised game, whose ends cost nothing.
    no_gain : str
        As of ``fk.normalise``.
    """

    estimator: Estimator
    budget: int | None = None
    count: Literal["distinct", "calls"] = "calls"
    normalised: bool = True
    no_gain: NoGainRule = "shift"

    def __post_init__(self) -> None:
        having("estimator", self.estimator, "sample", "accumulator")
        whole_or_none("budget", self.budget, 1)
        choice("count", self.count, ("distinct", "calls"))
        flag("normalised", self.normalised)
        choice("no_gain", self.no_gain, get_args(NoGainRule))

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return estimate_many(
            [r.game(self.normalised, self.no_gain) for r in rounds],
            self.estimator,
            budget=self.budget,
            seeds=[r.streams.child("valuation") for r in rounds],
            count=self.count,
        )


@dataclass(frozen=True)
class Exact:
    """The exact Shapley value of the round from all 2**k coalitions."""

    normalised: bool = True
    no_gain: NoGainRule = "shift"

    def __post_init__(self) -> None:
        flag("normalised", self.normalised)
        choice("no_gain", self.no_gain, get_args(NoGainRule))

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [shapley(r.game(self.normalised, self.no_gain)) for r in rounds]


@dataclass(frozen=True)
class LeaveOneOut:
    """``v(N) - v(N without i)`` on the round's reconstructed models (Wang et al. 2019)."""

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [leave_one_out(r.game()) for r in rounds]


# ------------------------------------------------------------------------------ aggregations


@dataclass(frozen=True)
class SizeWeighted:
    """FedAvg: weights proportional to the clients' numbers of samples (McMahan et al. 2017)."""

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        return r.average(r.sizes / r.sizes.sum())


@dataclass(frozen=True)
class UniformWeights:
    """The plain mean of the updates."""

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        return r.average(np.full(len(r.sizes), 1 / len(r.sizes)))


@dataclass(frozen=True)
class Proportional:
    """Weights proportional to ``max(value, 0)`` (ShapFed-WA; FedOwen, Algorithm 7, line 2)."""

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        return r.average(positive_shares(valuation.values))


def positive_shares(values: Floats) -> Floats:
    """``max(value, 0)`` over its sum, float64[k]; all alike where nothing is positive."""
    positive = np.maximum(values, 0.0)
    if not positive.any():
        return np.full(len(positive), 1 / len(positive))
    if positive.max() > 1e300:  # lest the sum is infinite
        positive = positive / positive.max()
    return np.asarray(positive / positive.sum())
