"""Permutation walks that stop early: truncated Monte Carlo and GTG-Shapley."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import flag, real, whole
from fedkit.estimators.base import (
    Budget,
    Count,
    Estimator,
    Floats,
    MeanAccumulator,
    Requests,
    blocks,
    random_orders,
)
from fedkit.estimators.lockstep import affordable, walk_together
from fedkit.estimators.permutation import check_size
from fedkit.games.exact import shapley_weights

__all__ = ["GTGShapley", "TruncatedMonteCarlo"]


def _ends(n: int) -> NDArray[np.bool_]:
    rows = np.zeros((2, n), dtype=np.bool_)
    rows[1] = True
    return rows


class _RunningMeans:
    """The running means A_k after each of the last k walks, for rules of convergence."""

    def __init__(self) -> None:
        self.walks = 0
        self._sum: Floats | None = None
        self._means: list[Floats] = []

    def add(self, increments: Floats) -> None:
        for increment in increments:
            self._sum = increment.copy() if self._sum is None else self._sum + increment
            self.walks += 1
            self._means.append(self._sum / self.walks)

    def change(self, back: int) -> float:
        """Return the mean relative change since `back` walks ago, worst output."""
        last, then = self._means[-1], self._means[-1 - back]
        relative = np.abs(then - last) / (np.abs(last) + 1e-12)
        return float(relative.mean(axis=0).max())

    def forget(self, keep: int) -> None:
        del self._means[:-keep]


@dataclass(frozen=True)
class TruncatedMonteCarlo(Estimator):
    """Permutation walks cut off near v(N) (Ghorbani & Zou 2019, Algorithm 1).

    From the first position where ``|v(N) - v(prefix)| < tolerance`` the rest of a walk gets
    nothing.  With ``tolerance=0`` no walk is truncated and this is MC-Shapley (FedOwen,
    Algorithm 3).  Truncation is biased: the skipped marginals need not be zero.

    Parameters
    ----------
    tolerance : float
        In the units of the utility.
    walks : int, optional
        Number of walks, where nothing else stops earlier.
    convergence : float, optional
        Stop when the mean relative change of the values over the last `window` walks is below
        this (0.05 in the paper).  Looked at after each block of walks.
    window : int
        Walks over which convergence is judged (100 in the paper).

    Notes
    -----
    v(empty) and v(N) are asked for once; a walk costs at most ``n - 1`` more.  For a
    vector-valued game each output is truncated by itself, and a walk goes on while any is open.
    A walk that the budget cuts is left out.
    """

    tolerance: float = 0.01
    walks: int | None = None
    convergence: float | None = None
    window: int = 100

    def __post_init__(self) -> None:
        real("tolerance", self.tolerance, 0.0)
        check_size("walks", self.walks)
        whole("window", self.window, 1)
        if self.convergence is not None:
            real("convergence", self.convergence, 0.0)

    @property
    def stops(self) -> bool:
        """Whether it ends without a budget."""
        return super().stops or self.convergence is not None

    def weights(self, n_players: int) -> Floats | None:
        """Shapley's weights without truncation; none with it."""
        return shapley_weights(n_players) if self.tolerance == 0 else None

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        """Walk through random permutations until each is within the tolerance of v(N)."""
        n = n_players
        empty, grand = yield _ends(n)
        means = _RunningMeans()
        truncated = 0
        sizes = blocks(self.walks)
        for size in sizes:
            left = size
            while left and (not budget.exhausted or not accumulator.counts[0]):
                together = affordable(budget, budget.total, n - 1, left)
                asked = budget.calls
                walks = yield from walk_together(
                    random_orders(rng, together, n),
                    np.full(together, n),
                    empty,
                    lambda previous: ~(np.abs(grand - previous) < self.tolerance),
                    budget,
                    budget.total,
                    grand,
                )
                whole = walks.increments[~walks.cut]
                accumulator.add(whole)
                truncated += int(walks.truncated[~walks.cut].sum())
                left -= together
                accumulator.info.update(walks=int(accumulator.counts[0]), truncated=truncated)
                if budget.calls == asked and not walks.cut.any():
                    return  # no walk looks at anything: all walks are equal
                if self.convergence is not None:
                    means.add(whole)
            if budget.exhausted:
                return
            if self.convergence is not None and means.walks > self.window:
                if means.change(self.window) < self.convergence:
                    accumulator.info["converged"] = True
                    return
                means.forget(self.window + 1)


@dataclass(frozen=True)
class GTGShapley(Estimator):
    """Guided truncated gradient Shapley, one round (Liu et al. 2022, Algorithm 1).

    If the round gained no more than `between` nobody gets anything.  Otherwise sweeps of `n`
    permutations follow, each player leading one of them, the others in random order (guided
    sampling: unbiased over a sweep).  In a walk, positions from which ``|v(N) - v(prefix)|`` is
    below `within` keep the utility.  Between sweeps the running means A_k are compared: stop
    when the mean relative change from each of the last `last` walks to the newest is at most
    `convergence`, after more than ``max(min_walks, n)`` walks, or at the cap.

    Parameters
    ----------
    within, between : float
        Tolerances in the units of the utility; 0 switches the truncation off.
    convergence : float
        Largest mean relative change that counts as converged (0.05).
    last : int
        Walks looked back upon (10).
    min_walks : int
        Fewest walks before convergence is judged (30).
    max_share : float
        The cap is ``min(2**n, max(min_walks, n, max_share * 2**n))`` walks.  The authors' code
        adds a random number from -5 to 5 to it; ours is deterministic.
    official_normalisation : bool
        Rescale the values as the authors' code does: by the round's gain over the sum of the
        positive values if the round gained, of the negative ones if it lost.  Efficiency is
        lost where the signs are mixed.  Standard errors are rescaled with them.
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
    """

    within: float = 0.001
    between: float = 0.001
    convergence: float = 0.05
    last: int = 10
    min_walks: int = 30
    max_share: float = 0.8
    official_normalisation: bool = False
    as_printed: bool = False
    walks: int | None = None

    def __post_init__(self) -> None:
        for name in ("within", "between", "convergence"):
            real(name, getattr(self, name), 0.0)
        real("max_share", self.max_share, 0.0, 1.0, above=True)
        flag("official_normalisation", self.official_normalisation)
        flag("as_printed", self.as_printed)
        check_size("walks", self.walks)
        whole("last", self.last, 1)
        whole("min_walks", self.min_walks, 1)
        if self.as_printed and self.official_normalisation:
            raise ValueError("as_printed has no official_normalisation; choose one of the two")

    @property
    def stops(self) -> bool:
        """Whether it ends without a budget: always, but for Algorithm 5 without `walks`."""
        return self.walks is not None or not self.as_printed

    def minimum(self, n_players: int, count: Count) -> int:
        """One walk; in distinct evaluations also v(empty)."""
        if count == "calls":
            return n_players
        # Algorithm 5 asks for v(N) at the end of a walk, which must find something left to spend
        return n_players + 1 + self.as_printed

    def accumulator(self, n_players: int) -> MeanAccumulator:
        """Return an empty accumulator."""
        return _GainAccumulator() if self.official_normalisation else MeanAccumulator()

    def cap(self, n_players: int) -> int:
        """Largest number of walks."""
        if self.walks is not None:
            return self.walks
        everything = 2**n_players
        return int(min(everything, max(self.min_walks, n_players, self.max_share * everything)))

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        """Sweep until converged, or follow Algorithm 5."""
        if self.as_printed:
            yield from self._algorithm_5(n_players, rng, accumulator, budget)
            return
        n = n_players
        empty, grand = yield _ends(n)
        if isinstance(accumulator, _GainAccumulator):
            accumulator.gain = grand - empty
        moved = np.abs(grand - empty) > self.between  # between-round truncation
        means = _RunningMeans()
        cap = self.cap(n)
        if not np.any(moved):
            accumulator.add(np.zeros((2, n, *np.shape(grand))))
            accumulator.info.update(walks=0, converged=True)
            return
        while means.walks < cap:
            leaders = rng.permutation(n)[: cap - means.walks]
            orders = guided_orders(rng, leaders, n)
            while len(orders):
                together = affordable(budget, budget.total, n - 1, len(orders))
                walks = yield from walk_together(
                    orders[:together],
                    np.full(together, n),
                    empty,
                    lambda previous: moved & ~(np.abs(grand - previous) < self.within),
                    budget,
                    budget.total,
                    grand,
                )
                orders = orders[together:]
                whole = walks.increments[~walks.cut]
                accumulator.add(whole)
                means.add(whole)
                accumulator.info.update(walks=means.walks, converged=False)
                if budget.exhausted:
                    return
            if self.walks is None and means.walks > max(self.min_walks, n, self.last):
                changes = [means.change(back) for back in range(1, self.last + 1)]
                if max(changes) <= self.convergence:
                    accumulator.info["converged"] = True
                    return
            means.forget(self.last + 1)

    def _algorithm_5(
        self, n: int, rng: np.random.Generator, accumulator: MeanAccumulator, budget: Budget
    ) -> Requests:
        _, grand = yield _ends(n)  # line 1
        for size in blocks(self.walks):  # line 2
            left = size
            while left and (not budget.exhausted or not accumulator.counts[0]):
                together = affordable(budget, budget.total, n, left)
                asked = budget.calls
                walks = yield from walk_together(
                    random_orders(rng, together, n),  # line 3
                    np.full(together, n),
                    np.zeros_like(grand),  # line 3: v_prev <- 0
                    lambda previous: np.abs(grand - previous) >= self.within,  # line 5
                    budget,
                    budget.total,
                )
                accumulator.add(walks.increments[~walks.cut])
                accumulator.info["walks"] = int(accumulator.counts[0])
                left -= together
                if budget.calls == asked and not walks.cut.any():
                    return  # v(N) is within the threshold of 0: no walk looks at anything
            if budget.exhausted:
                return


def guided_orders(
    rng: np.random.Generator, leaders: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Return one permutation per leader: the leader first, the others in random order."""
    orders = random_orders(rng, len(leaders), n)
    others = orders[orders != leaders[:, None]].reshape(len(leaders), n - 1)
    return np.concatenate([leaders[:, None], others], axis=1)


class _GainAccumulator(MeanAccumulator):
    """Values rescaled so that their equal-signed mass is the round's gain."""

    gain: Floats | float = 0.0

    def _rescale(self, values: Floats) -> Floats:
        gained = np.asarray(self.gain) >= 0
        mass = np.where(gained, values.clip(min=0).sum(axis=0), values.clip(max=0).sum(axis=0))
        usable = np.abs(mass) > 1e-9  # the authors' guard; without mass the values stay
        return np.where(usable, self.gain / np.where(usable, mass, 1.0), 1.0)

    def values(self) -> Floats | None:
        plain = super().values()
        return None if plain is None else plain * self._rescale(plain)

    def standard_errors(self) -> Floats | None:
        plain, errors = super().values(), super().standard_errors()
        if plain is None or errors is None:
            return None
        return errors * np.abs(self._rescale(plain))
