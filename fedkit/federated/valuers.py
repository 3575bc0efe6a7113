"""Policies that value the participants of a federated round; :class:`Estimated` plays a game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import torch

from fedkit.checks import choice, flag, having, one_line, whole
from fedkit.estimators import Estimator, estimate_many
from fedkit.federated.round_games import game_of_updates
from fedkit.games.exact import shapley
from fedkit.games.game import Game, NoGainRule, normalise
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import Model
from fedkit.learning.training import LocalSGD
from fedkit.streams import Streams

__all__ = [
    "ClassCosine", "Estimated", "Exact", "NoValue", "RandomValues", "Round", "ShuffledValues",
    "SizeAsValue", "ValuePolicy",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@one_line
@dataclass(frozen=True)
class Round:
    """One round of one federation, as the server sees it after local training.

    Attributes
    ----------
    index : int
        From 0.
    architecture : Model
        The network; a row of P numbers is its travelling state.
    base : float32[P]
        Global model that the participants started from.
    updates : float32[k, P]
        Local model minus `base`, per participant.
    participants, sizes : int64[k]
        Client indices, and their training samples.
    evaluator : Evaluator
        Utility on the server's validation set.
    local : LocalSGD
        How the participants trained.
    weighting : {"size", "uniform"}
        How a coalition's updates are averaged.
    streams : Streams
        Random streams of this round.
    left_out : tuple of int
        Clients that were selected and whose update was not usable (:meth:`finite`).
    """

    index: int
    architecture: Model
    base: torch.Tensor
    updates: torch.Tensor
    participants: IntArray
    sizes: IntArray
    evaluator: Evaluator
    local: LocalSGD
    weighting: Literal["size", "uniform"]
    streams: Streams
    left_out: tuple[int, ...] = ()

    def game(self, normalised: bool = False, no_gain: NoGainRule = "shift") -> Game:
        """The coalition game of the round: v(S) is the utility of the model of S.

        Normalised, v(empty) = 0 and v(N) = 1; a round without a gain follows `no_gain`
        (:func:`fedkit.games.game.normalise`), by default it is only shifted.
        """
        sizes = self.sizes if self.weighting == "size" else np.ones(len(self.sizes))
        game = game_of_updates(self.evaluator, self.base, self.updates, sizes.astype(np.float64))
        return normalise(game, no_gain=no_gain) if normalised else game

    @property
    def directions(self) -> torch.Tensor:
        """The parameters' part of `updates`, on which cosines, lengths and distances act."""
        return self.architecture.parameters_of(self.updates)

    def with_updates(self, updates: torch.Tensor | np.ndarray) -> Round:
        """The round with other updates, float32[k, P], in the place of the trained ones."""
        if not isinstance(updates, torch.Tensor | np.ndarray):
            raise ValueError(
                f"updates is a {type(updates).__name__}; expected a tensor or array, also of "
                "an attack"
            )
        updates = torch.as_tensor(updates, dtype=self.updates.dtype, device=self.updates.device)
        if updates.shape != self.updates.shape:
            raise ValueError(
                f"updates have shape {tuple(updates.shape)}, expected "
                f"{tuple(self.updates.shape)}: one update per participant"
            )
        return replace(self, updates=updates)

    def finite(self) -> Round:
        """The round without the participants whose update is not finite; one must be left.

        Nor is one used whose squared length overflows: distances to it would not be finite.
        """
        good = torch.isfinite(self.updates.square().sum(dim=1))
        if good.all():
            return self
        if not good.any():
            raise ValueError(
                f"round {self.index + 1}: no participant's update is finite (clients "
                f"{self.participants.tolist()}); local training diverged, lower the learning "
                f"rate (it is {self.local.lr})"
            )
        kept = good.cpu().numpy()
        return replace(
            self,
            updates=self.updates[good],
            participants=self.participants[kept],
            sizes=self.sizes[kept],
            left_out=(*self.left_out, *self.participants[~kept].tolist()),
        )


class ValuePolicy(Protocol):
    """Values the participants of a round."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        """One valuation per round, over its participants; rounds are read, and not changed."""


def _given(values: FloatArray, method: str) -> Valuation:
    """Values that cost no utility evaluation."""
    return Valuation(values, np.full_like(values, np.nan), 0, 0, method)


def check_policy(value: object) -> None:
    """Refuse what values no rounds; an estimator, which values games, is told how it would."""
    if isinstance(value, Estimator):
        name = type(value).__name__
        raise ValueError(
            f"value is {name}(), which estimates a game; wrap it for rounds: "
            f"fk.Estimated(fk.{name}(), budget=60)"
        )
    having("value", value, "value")


@dataclass(frozen=True)
class NoValue:
    """FedAvg: nobody is valued; every value is 0."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [_given(np.zeros(len(r.participants)), "none") for r in rounds]


@dataclass(frozen=True)
class SizeAsValue:
    """Control: a participant's share of the round's training samples."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [_given(r.sizes / r.sizes.sum(), "size") for r in rounds]


@dataclass(frozen=True)
class RandomValues:
    """Control: a uniform draw from the simplex; like normalised Shapley values it sums to 1."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        drawn = [
            r.streams.generator("random values").dirichlet(np.ones(len(r.participants)))
            for r in rounds
        ]
        return [_given(values, "random") for values in drawn]


@dataclass(frozen=True)
class ShuffledValues:
    """Control: another policy's values, dealt to the round's participants at random.

    The values are as unequal as the policy's own: whatever differs then comes from *whose* they
    are.

    Parameters
    ----------
    policy : ValuePolicy
        For instance :class:`Exact`.
    """

    policy: ValuePolicy

    def __post_init__(self) -> None:
        check_policy(self.policy)

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        dealt = []
        for r, v in zip(rounds, self.policy.value(rounds), strict=True):
            order = r.streams.generator("shuffled values").permutation(len(v.values))
            fields = ("values", "standard_errors", "degrees_of_freedom")  # the last may be None
            theirs = {name: getattr(v, name) for name in fields if getattr(v, name) is not None}
            dealt.append(replace(v, **{name: each[order] for name, each in theirs.items()}))
        return dealt


@dataclass(frozen=True)
class ClassCosine:
    """ShapFed's class-specific scores (Tastan et al. 2024; FedOwen's Algorithm 7, line 1).

    The score of a participant, in [-1, 1], is the mean over classes of the cosine between its
    last-layer update for the class (row of the weight matrix and bias) and the averaged one.

    Notes
    -----
    The average is by data size, as in Algorithm 7.  Tastan et al. weigh it with the scores of the
    rounds before, and keep a running mean of these.
    """

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        scores = []
        for r in rounds:
            weight, bias = r.architecture.last_layer(r.updates)
            rows = torch.cat([weight, bias[..., None]], dim=-1).double()  # [k, classes, d + 1]
            share = torch.as_tensor(r.sizes / r.sizes.sum(), device=rows.device)
            mean = torch.einsum("k,kcd->cd", share, rows)
            norms = rows.norm(dim=-1) * mean.norm(dim=-1)
            cosine = torch.einsum("kcd,cd->kc", rows, mean) / norms.clamp_min(1e-30)
            scores.append(_given(cosine.mean(dim=1).cpu().numpy(), "class cosine"))
        return scores


@dataclass(frozen=True)
class Estimated:
    """Values from an estimator on the coalition game of the round.

    Parameters
    ----------
    estimator : Estimator
    budget : int or None
        Utility evaluations per round; FedOwen's N x M.
    count : {"calls", "distinct"}
        What the budget counts; FedOwen counts calls.
    normalised : bool
        Value the normalised game, as FedOwen does.  Evaluating the empty and the grand coalition
        for that is outside the budget, for every estimator alike.
    no_gain : {"shift", "absolute", "divide", "raise"}
        What is done in a round without a gain, see :func:`fedkit.games.game.normalise`.
    """

    estimator: Estimator
    budget: int | None = None
    count: Literal["distinct", "calls"] = "calls"
    normalised: bool = True
    no_gain: NoGainRule = "shift"

    def __post_init__(self) -> None:
        having("estimator", self.estimator, "sample", "accumulator")
        if self.budget is not None:
            whole("budget", self.budget, 1)
        choice("count", self.count, ("distinct", "calls"))
        flag("normalised", self.normalised)
        choice("no_gain", self.no_gain, get_args(NoGainRule))

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
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

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [shapley(r.game(self.normalised, self.no_gain)) for r in rounds]
