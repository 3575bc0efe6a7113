"""Estimators that walk through whole permutations: Shapley and Beta-Shapley."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from fedkit.checks import flag
from fedkit.estimators.base import (
    Budget,
    Count,
    Estimator,
    Floats,
    MeanAccumulator,
    Requests,
    blocks,
    check_size,
    prefixes,
    random_orders,
    walk_marginals,
)
from fedkit.games.exact import beta_weights, shapley_weights

__all__ = ["BetaShapleySampling", "PermutationSampling"]


def full_walks(
    n: int,
    rng: np.random.Generator,
    accumulator: MeanAccumulator,
    limit: int | None,
    antithetic: bool,
    position_weights: Floats | None = None,
) -> Requests:
    """Walk through whole permutations and accumulate the marginals of every walk."""
    empty = yield np.zeros((1, n), dtype=np.bool_)
    unit = 2 if antithetic else 1
    for size in blocks(limit, unit):
        orders = random_orders(rng, size // unit, n)
        if antithetic:  # a walk and the same walk backwards
            orders = np.stack([orders, orders[:, ::-1]], axis=1).reshape(size, n)
        utilities = yield prefixes(orders)
        samples = walk_marginals(orders, utilities, empty[0], position_weights)
        if antithetic:  # half a pair is left out
            samples = (samples[: len(samples) // 2 * 2 : 2] + samples[1::2]) / 2
        accumulator.add(samples)
        accumulator.info["walks"] = int(accumulator.counts[0]) * unit
        if len(utilities) < len(orders) * n:
            return


@dataclass(frozen=True)
class PermutationSampling(Estimator):
    """Mean marginal over random permutations (Castro et al. 2009; FedOwen, Algorithm 3).

    Parameters
    ----------
    antithetic : bool
        Walk each permutation forwards and backwards (Mitchell et al. 2022); the pair is then
        the independent unit of the standard error.
    walks : int, optional
        Number of walks, where the budget does not stop earlier; even with `antithetic`.

    Notes
    -----
    A walk costs `n` calls.  In distinct evaluations the first costs ``n + 1`` with the empty
    coalition, later ones at most ``n - 1``.
    """

    antithetic: bool = False
    walks: int | None = None

    def __post_init__(self) -> None:
        flag("antithetic", self.antithetic)
        check_size("walks", self.walks)
        if self.antithetic and self.walks is not None and self.walks % 2:
            raise ValueError(f"walks is {self.walks}; antithetic walks come in pairs")

    def minimum(self, n_players: int, count: Count) -> int:
        """One walk, or one pair of walks."""
        if count == "calls":
            return (2 if self.antithetic else 1) * n_players
        return n_players + 1 + (n_players - 1) * self.antithetic

    def weights(self, n_players: int) -> Floats:
        return shapley_weights(n_players)

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        yield from full_walks(n_players, rng, accumulator, self.walks, self.antithetic)


@dataclass(frozen=True)
class BetaShapleySampling(Estimator):
    """Permutation walks whose j-th marginal is weighted ``w_j = n p_j`` (FedOwen, Algorithm 6).

    The expectation is the Beta(alpha, beta) semivalue of Kwon & Zou (2022), the family from
    which their WeightedSHAP chooses.

    Parameters
    ----------
    alpha, beta : float
        Positive; large `alpha` favours small coalitions, ``alpha = beta = 1`` is Shapley.
    antithetic : bool
        Walk each permutation forwards and backwards; off in FedOwen's Algorithm 6.
    walks : int, optional
        Number of walks, where the budget does not stop earlier.
    """

    alpha: float = 4.0
    beta: float = 1.0
    antithetic: bool = True
    walks: int | None = None

    def __post_init__(self) -> None:
        beta_weights(1, self.alpha, self.beta)  # refuses bad parameters
        PermutationSampling(self.antithetic, self.walks)

    def minimum(self, n_players: int, count: Count) -> int:
        return PermutationSampling(self.antithetic).minimum(n_players, count)

    def weights(self, n_players: int) -> Floats:
        return beta_weights(n_players, self.alpha, self.beta)

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        # n p_j: how often a position's size class should count, over how often walks visit it
        weights, plain = self.weights(n_players), shapley_weights(n_players)
        if min(weights.min(), plain.min()) >= np.finfo(np.float64).tiny:
            ratio = weights / plain
        else:  # of a thousand players both are too small for a float; their ratio is not
            s, n = np.arange(n_players), n_players
            ratio = betaln(s + self.beta, n - 1 - s + self.alpha) - betaln(self.alpha, self.beta)
            ratio = np.exp(ratio - betaln(s + 1, n - s))
        yield from full_walks(n_players, rng, accumulator, self.walks, self.antithetic, ratio)
