"""FedTSV (Trajectory Shapley Value): clients valued by where their updates lead.

In every round the server takes SGD steps on its validation data (Eq. 10).  A coalition is worth
more, the closer the mean of its updates (Eq. 9) comes to that (Eq. 11); inner products are enough
(:mod:`fedkit.methods.gram`).
Values are added up over the rounds (Eq. 12), and weigh the updates (Eq. 13, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedkit.checks import Floats, choice, real
from fedkit.estimators import Estimator, estimate_many
from fedkit.federated.policies import Estimated, UniformSelection, positive_shares
from fedkit.federated.rounds import ClientTable, Round, Select, Strategy, Value, keep_total
from fedkit.games.coalitions import Coalitions
from fedkit.games.exact import shapley
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation
from fedkit.learning.training import train_clients
from fedkit.methods.gram import check_inner_products, gram_matrix

Utility = Literal["exponential", "rational", "gaussian", "angular"]
UTILITIES: tuple[Utility, ...] = get_args(Utility)


def reference_updates(rounds: Sequence[Round]) -> Tensor:
    """SGD on the server's validation data from the global model of each round (Eq. 10).

    It takes the rounded mean of the clients' numbers of steps, but at least one.  The updates are a
    float32 tensor ``[R, P]``.
    """
    references: list[Tensor] = []
    for r in rounds:  # rounds may differ in their steps
        steps = max(1, round(float(np.mean([r.local.n_steps(int(n)) for n in r.sizes]))))
        ended = train_clients(
            r.architecture,
            r.base[None],
            [(r.evaluator.x.cpu(), r.evaluator.y.cpu())],
            replace(r.local, steps=steps),
            [r.streams.generator("reference")],
            device=r.base.device,
        )
        references.append(ended[0].to(r.base.device) - r.base)
    return torch.stack(references)


def trajectory_game(
    gram: npt.ArrayLike, utility: Utility = "exponential", eps: float = 1e-12
) -> Game:
    """Return the game of a round: how close a coalition's mean update comes to the reference.

    Parameters
    ----------
    gram : float64[k + 1, k + 1]
        Inner products of the k updates and, last, of the reference update.
    utility : {"exponential", "rational", "gaussian", "angular"}
        With d the Euclidean distance between the coalition's mean update and the reference, and
        sigma the length of the reference plus `eps`: ``exp(-d / sigma)``, ``1 / (1 + d / sigma)``,
        ``exp(-(d / sigma)^2)``; or, with the angle between the two, ``exp(-2 angle / pi)``.
    eps : float
        Added to the length of the reference, at least 0; in units of the updates.

    Returns
    -------
    Game
    """
    choice("utility", utility, UTILITIES)
    real("eps", eps, 0.0)
    inner = check_inner_products(gram, 2)
    updates, cross, square = inner[:-1, :-1], inner[:-1, -1], inner[-1, -1]
    if square <= 0:
        raise ValueError("the reference has length zero, so no update can come closer to it")

    def closeness(members: Coalitions) -> Floats:
        share = members / np.maximum(members.sum(axis=1, keepdims=True), 1)  # Eq. 9: plain means
        own = np.maximum(((share @ updates) * share).sum(axis=1), 0.0)
        along = share @ cross
        if utility == "angular":
            length = np.sqrt(own * square)
            cosine = np.divide(along, length, out=np.zeros_like(along), where=length > 0)
            return np.exp(-2 * np.arccos(np.clip(cosine, -1, 1)) / np.pi)
        sigma = np.sqrt(square) + eps
        far = np.sqrt(np.maximum(own - 2 * along + square, 0.0)) / sigma
        if utility == "rational":
            return np.asarray(1 / (1 + far))
        return np.exp(-far if utility == "exponential" else -(far**2))

    return Game(len(cross), closeness)


@dataclass(frozen=True)
class TrajectoryValues:
    """Trajectory Shapley values of a round's participants (FedTSV, section III-A).

    Exact values carry in ``info["closer"]``, bool[k], whose own update alone is worth more than
    standing still.  Where the reference has length zero or is not finite, every value is zero.

    Parameters
    ----------
    estimator : Estimator or None
        None gives exact values from the Gram matrix; the paper samples, by another paper's method.
    budget : int or None
        Utility evaluations of the estimator per round; None without an estimator.
    utility : {"exponential", "rational", "gaussian", "angular"}
        As in :func:`trajectory_game`.
    """

    estimator: Estimator | None = None
    budget: int | None = None
    utility: Utility = "exponential"

    def __post_init__(self) -> None:
        choice("utility", self.utility, UTILITIES)
        if self.estimator is not None:
            Estimated(self.estimator, self.budget)  # refuses what is none
        elif self.budget is not None:
            raise ValueError(f"budget is {self.budget}, but exact values need no estimator")

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        if not rounds:
            return []
        references = reference_updates(rounds)
        return [self._one(r, reference) for r, reference in zip(rounds, references, strict=True)]

    def _one(self, r: Round, reference: Tensor) -> Valuation:
        k = len(r.participants)
        if not torch.isfinite(reference).all() or not reference.norm() > 0:
            nothing = np.zeros(k)
            return Valuation(nothing, nothing, 0, 0, "no reference", info={"reference": 0.0})
        gram = gram_matrix(torch.cat([r.directions, reference[None]]))
        game = trajectory_game(gram, self.utility)
        if self.estimator is not None:
            seed = r.streams.child("valuation")
            return estimate_many(game, self.estimator, self.budget, seed)[0]
        found = shapley(game)
        alone = game(np.eye(k, dtype=bool)) > game(np.zeros((1, k), dtype=bool))
        return replace(found, info={**found.info, "closer": alone})


@dataclass(frozen=True)
class ContributionWeights:
    """The average by ``max(c_i, 0)``, c_i the remembered contribution (FedTSV, Eq. 13)."""

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        return r.average(positive_shares(table.values[r.participants]))


@dataclass(frozen=True)
class FedTSV:
    """Settings of FedTSV; :meth:`strategy` makes Algorithm 2 of them."""

    value: Value = field(default_factory=TrajectoryValues)
    select: Select = field(default_factory=UniformSelection)

    def __post_init__(self) -> None:
        self.strategy()  # refuses what is no policy

    def strategy(self) -> Strategy:
        """Return the strategy: values are added up (Eq. 12), and weights follow them (Eq. 13)."""
        return Strategy(self.select, self.value, ContributionWeights(), keep_total)
