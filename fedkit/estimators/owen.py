"""FedOwen's Algorithm 1, exactly as printed."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from scipy.special import betainc

from fedkit.estimators.base import Budget, Count, Floats, MeanAccumulator, Requests, blocks
from fedkit.estimators.lockstep import affordable, walk_together
from fedkit.estimators.permutation import check_size

__all__ = ["OwenSampling"]


@dataclass(frozen=True)
class OwenSampling:
    """Owen sampling with eta-truncation (FedOwen, Algorithm 1), line by line.

    The game must have ``v(empty) = 0`` and, for the truncation to mean what the paper says,
    ``v(N) = 1``: pass ``normalise(game)``.  v(empty) is never asked for.

    Parameters
    ----------
    levels : int
        Q, the number of inclusion levels q = 1/Q, 2/Q, ..., 1.
    draws : int, optional
        M, walks per level, for a run without a budget: lines 4 to 20 to the letter, nothing
        re-spent, divided by Q M.
    eta : float, optional
        Truncation tolerance in [0, 1]; None never truncates.

    Notes
    -----
    With a budget, `draws` is not used.  Each level gets an equal share (N x M / Q of N x M
    calls; M is then the common per-client budget of the paper's section 4), and walks are
    started until it is spent exactly: evaluations that truncation, or a mask with few clients,
    saves are re-spent on fresh walks.  A level's sum is divided by the number of its whole
    walks, which takes the place of M in line 23; a walk that the budget cuts is left out, as
    everywhere (:mod:`fedkit.estimators.driver`), so re-spending adds no bias.

    A walk visits the clients of its Bernoulli(q) mask in random order, so a visited client
    meets each other client with probability qU, U uniform.  Level q therefore has the mean
    ``integral of e_j from 0 to q``, not ``e_j(q)``, and the estimate tends to
    ``(1/Q) sum over i of the integral of e_j from 0 to i/Q``: the Shapley value for Q = 1
    alone.  :meth:`weights` gives this expectation.
    """

    levels: int = 2
    draws: int | None = None
    eta: float | None = 0.01

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"levels is {self.levels}; expected at least one inclusion level")
        check_size("draws", self.draws)
        if self.eta is not None and not 0.0 <= self.eta <= 1.0:
            raise ValueError(
                f"eta is {self.eta}; expected a number in [0, 1], or None not to truncate"
            )

    @property
    def stops(self) -> bool:
        """Whether it ends without a budget."""
        return self.draws is not None

    def minimum(self, n_players: int, count: Count) -> int:
        """One whole walk per level."""
        return self.levels * n_players

    def weights(self, n_players: int) -> Floats | None:
        """Weights of the expectation without truncation; None with it."""
        if self.eta is not None:
            return None
        n, s = n_players, np.arange(n_players)
        q = np.arange(1, self.levels + 1)[:, None] / self.levels
        # the integral of t**s (1 - t)**(n-1-s) from 0 to q is B(s+1, n-s) I_q(s+1, n-s)
        whole = np.array([1.0 / (n * comb(n - 1, k)) for k in range(n)])
        result: Floats = whole * betainc(s + 1.0, n - s, q).mean(axis=0)
        return result

    def accumulator(self, n_players: int) -> MeanAccumulator:
        """Return an empty accumulator with one stratum per level."""
        return MeanAccumulator(np.full(self.levels, 1.0 / self.levels))

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        """Run lines 1 to 23; walks of one level advance together."""
        accumulator.info.update(walks=[0] * self.levels, truncated=0, cut=0)
        for level in range(self.levels):  # line 2
            q = (level + 1) / self.levels
            limit = None if budget.total is None else budget.total * (level + 1) // self.levels
            wanted = self.draws if limit is None else None
            for size in blocks(wanted):  # line 4
                left = size
                while left and (limit is None or budget.left_until(limit)):
                    together = affordable(budget, limit, n_players, left)
                    yield from self._walks(
                        together, q, n_players, rng, accumulator, budget, level, limit
                    )
                    left -= together
                    if budget.closed:
                        return
                if limit is not None and not budget.left_until(limit):
                    break

    def _walks(
        self,
        together: int,
        q: float,
        n: int,
        rng: np.random.Generator,
        accumulator: MeanAccumulator,
        budget: Budget,
        level: int,
        limit: int | None,
    ) -> Requests:
        draws = rng.random((together, 2, n))
        mask = draws[:, 0] < q  # line 5
        orders = np.argsort(np.where(mask, draws[:, 1], 2.0), axis=1)  # line 6
        eta = -np.inf if self.eta is None else self.eta
        walks = yield from walk_together(  # lines 10 to 19
            orders,
            mask.sum(axis=1),
            np.zeros(()),  # lines 7, 9
            lambda previous: ~(1.0 - previous < eta),  # lines 8, 14, 15: Delta_left = 1 - v_prev
            budget,
            limit,
        )
        kept = walks.increments[~walks.cut]
        accumulator.add(kept, level)  # lines 13, 21, 23
        accumulator.info["walks"][level] += len(kept)
        accumulator.info["truncated"] += int(walks.truncated[~walks.cut].sum())
        accumulator.info["cut"] += int(walks.cut.sum())
