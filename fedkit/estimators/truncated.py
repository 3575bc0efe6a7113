"""Permutation walks that stop early: truncated Monte Carlo and GTG-Shapley."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import flag, real
from fedkit.estimators.base import (
    Budget,
    Count,
    Estimator,
    Floats,
    MeanAccumulator,
    Requests,
    check_size,
    random_orders,
)
from fedkit.estimators.lockstep import RunningMeans, walk_blocks, walk_permutations
from fedkit.games.coalitions import ends
from fedkit.games.exact import shapley_weights

__all__ = ["GTGShapley", "TruncatedMonteCarlo"]

# of the authors' code, which adds a random number from -5 to 5 to its cap
LOOKED_BACK, FEWEST_WALKS, LARGEST_SHARE = 10, 30, 0.8


@dataclass(frozen=True)
class TruncatedMonteCarlo(Estimator):
    """Permutation walks cut off near v(N) (Ghorbani & Zou 2019, Algorithm 1).

    From the first position where ``|v(N) - v(prefix)| < tolerance`` the rest of a walk gets
    nothing.  With ``tolerance=0`` no walk is truncated and this is MC-Shapley (FedOwen,
    Algorithm 3).  Truncation is biased: the skipped marginals need not be zero.  The paper's test
    of convergence is left out: say how many walks, a budget or a `stop`.

    Parameters
    ----------
    tolerance : float
        In the units of the utility.
    walks : int, optional
        Number of walks, where the budget does not stop earlier.

    Notes
    -----
    v(empty) and v(N) are asked for once; a walk costs at most ``n - 1`` more.  For a
    vector-valued game each output is truncated by itself, and a walk goes on while any is open.
    """

    tolerance: float = 0.01
    walks: int | None = None

    def __post_init__(self) -> None:
        real("tolerance", self.tolerance, 0.0)
        check_size("walks", self.walks)

    def weights(self, n_players: int) -> Floats | None:
        """Shapley's weights without truncation; none with it."""
        return shapley_weights(n_players) if self.tolerance == 0 else None

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        empty, grand = yield ends(n_players)

        def is_open(previous: Floats) -> NDArray[np.bool_]:
            return ~(np.abs(grand - previous) < self.tolerance)

        yield from walk_blocks(
            self.walks, n_players, rng, empty, is_open, budget, accumulator, grand
        )


@dataclass(frozen=True)
class GTGShapley(Estimator):
    """Guided truncated gradient Shapley, one round (Liu et al. 2022, Algorithm 1).

    If the round gained no more than `between` nobody gets anything.  Otherwise sweeps of `n`
    permutations follow, each player leading one of them, the others in random order (guided
    sampling: unbiased over a sweep).  In a walk, positions from which ``|v(N) - v(prefix)|`` is
    below `within` keep the utility.  Between sweeps the running means A_k are compared: stop
    when the mean relative change from each of the last 10 walks to the newest is at most
    `convergence`, after more than ``max(30, n)`` walks, or at the cap, ``min(2**n, max(30, n,
    0.8 * 2**n))`` walks.

    Parameters
    ----------
    within, between : float
        Tolerances in the units of the utility; 0 switches the truncation off, but for a round
        that gains exactly nothing, which gives nobody anything even so.
    convergence : float
        Largest mean relative change that counts as converged (0.05).
    as_printed : bool
        FedOwen's Algorithm 5 instead: plain permutations, walks that start from
        ``v_prev = 0`` in place of v(empty), `within` alone, `walks` of them or as many as the
        budget allows; the last position asks for v(N) again.
    walks : int, optional
        Exactly this many walks, without a test of convergence.

    Notes
    -----
    The leaders of a sweep come in random order, so a sweep that the budget stops half-way
    stays unbiased; the paper's order of leaders makes no difference to whole sweeps.  Every
    output of a vector-valued game is truncated by itself; sampling goes on until all converge.
    The authors' code also rescales values, by the round's gain over their equal-signed mass;
    where signs are mixed that loses efficiency, and it is left out.
    """

    within: float = 0.001
    between: float = 0.001
    convergence: float = 0.05
    as_printed: bool = False
    walks: int | None = None

    def __post_init__(self) -> None:
        for name in ("within", "between", "convergence"):
            real(name, getattr(self, name), 0.0)
        flag("as_printed", self.as_printed)
        check_size("walks", self.walks)

    @property
    def stops(self) -> bool:
        return self.walks is not None or not self.as_printed

    def minimum(self, n_players: int, count: Count) -> int:
        """One walk; in distinct evaluations also v(empty)."""
        if count == "calls":  # a lone player's v(N) is asked for twice, and neither time is free
            return n_players + (self.as_printed and n_players == 1)
        # Algorithm 5 asks for v(N) at the end of a walk, which must find something left to spend
        return n_players + 1 + self.as_printed

    def cap(self, n_players: int) -> int:
        """Largest number of walks."""
        if self.walks is not None:
            return self.walks
        everything = 2 ** min(n_players, 60)  # a float holds no 2**1024
        return int(min(everything, max(FEWEST_WALKS, n_players, LARGEST_SHARE * everything)))

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        n, means = n_players, RunningMeans(LOOKED_BACK)
        empty, grand = yield ends(n)
        if self.as_printed:

            def looked_at(previous: Floats) -> NDArray[np.bool_]:
                return np.abs(grand - previous) >= self.within  # line 5

            start = np.zeros_like(grand)  # line 3: v_prev <- 0
            yield from walk_blocks(self.walks, n, rng, start, looked_at, budget, accumulator)
            return
        moved = np.abs(grand - empty) > self.between  # between-round truncation
        cap = self.cap(n)
        if not np.any(moved):
            accumulator.add(np.zeros((2, n, *np.shape(grand))))
            accumulator.info.update(walks=0, converged=True)
            return
        while means.walks < cap:
            leaders = rng.permutation(n)[: cap - means.walks]
            accumulator.info["converged"] = False
            found = yield from walk_permutations(
                guided_orders(rng, leaders, n),
                empty,
                lambda previous: moved & ~(np.abs(grand - previous) < self.within),
                budget,
                accumulator,
                grand,
            )
            if budget.exhausted:
                return
            means.add(found)
            if self.walks is None and means.walks > max(FEWEST_WALKS, n):
                changes = [means.change(back) for back in range(1, LOOKED_BACK + 1)]
                if max(changes) <= self.convergence:
                    accumulator.info["converged"] = True
                    return


def guided_orders(
    rng: np.random.Generator, leaders: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Return one permutation per leader: the leader first, the others in random order."""
    orders = random_orders(rng, len(leaders), n)
    others = orders[orders != leaders[:, None]].reshape(len(leaders), n - 1)
    return np.concatenate([leaders[:, None], others], axis=1)
