"""Estimators that walk through permutations: whole walks, and walks that are cut short.

A semivalue weighs the positions of a whole walk.  Truncated walks advance side by side, one
coalition of every walk per step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln

from fedkit.checks import Bools, Floats, Ints, flag, real, vector, whole_or_none
from fedkit.estimators.accumulators import MeanAccumulator
from fedkit.estimators.driver import Budget, Count, Estimator, Requests, Rng
from fedkit.games.coalitions import ends
from fedkit.games.exact import beta_weights, shapley_weights

IsOpen = Callable[[Floats], Bools]

LARGEST_BLOCK = 128
COARSE = 0.1  # tolerance over gain from which a truncated walk hands out noticeably less
# of the authors' code of GTG-Shapley, which adds a random number from -5 to 5 to its cap
LOOKED_BACK, FEWEST_WALKS, LARGEST_SHARE = 10, 30, 0.8


def blocks(limit: int | None, unit: int = 1, largest: int = LARGEST_BLOCK) -> Iterator[int]:
    """Yield sizes of successive blocks of walks, growing from `unit` to `largest`."""
    done, size = 0, unit
    while limit is None or done < limit:
        take = size if limit is None else min(size, limit - done)
        yield take
        done += take
        if done >= 2 * size:
            size = min(2 * size, max(largest // unit, 1) * unit)


def groups(budget: Budget, limit: int | None, walks: int, cost: int) -> Iterator[int]:
    """Cut `walks` into groups that surely fit into the budget up to `limit`; of one at least."""
    while walks:
        affordable = max(budget.left(limit) // max(cost, 1), 1)
        together = int(min(walks, affordable, LARGEST_BLOCK))
        yield together
        walks -= together


def random_orders(rng: Rng, k: int, n: int) -> Ints:
    """Return `k` uniform permutations of the players, shape ``(k, n)``."""
    return rng.permuted(np.tile(np.arange(n), (k, 1)), axis=1)


def prefixes(orders: Ints) -> Bools:
    """Return the n non-empty prefixes of each order, walk after walk: ``bool[k * n, n]``."""
    k, n = orders.shape
    ranks = np.argsort(orders, axis=1)
    return (ranks[:, None, :] <= np.arange(n)[:, None]).reshape(k * n, n)


def walk_marginals(
    orders: Ints, utilities: Floats, empty: Floats, weights: Floats | None = None
) -> Floats:
    """Return every player's marginal ``[k, n(, m)]`` of whole walks; `weights` are of positions."""
    n, outputs = orders.shape[1], utilities.shape[1:]
    k = len(utilities) // n
    start = np.broadcast_to(empty, (k, 1, *outputs))
    steps = utilities[: k * n].reshape(k, n, *outputs)
    marginals = np.diff(np.concatenate([start, steps], axis=1), axis=1)
    if weights is not None:
        marginals *= weights.reshape(1, n, *(1,) * len(outputs))
    result = np.empty_like(marginals)
    result[np.arange(k)[:, None], orders[:k]] = marginals
    return result


@dataclass(frozen=True)
class PermutationSampling(Estimator):
    """Mean marginal over random permutations (Castro et al. 2009; FedOwen, Algorithm 3).

    With `beta` the j-th marginal of a walk is weighted ``w_j = n p_j`` (FedOwen, Algorithm 6): the
    expectation is the Beta(alpha, beta) semivalue of Kwon & Zou (2022).

    Parameters
    ----------
    antithetic : bool
        Walk each permutation forwards and backwards (Mitchell et al. 2022).
    walks : int, optional
        Number of walks, where the budget does not stop earlier; even with `antithetic`.
    beta : tuple of float, optional
        Positive alpha and beta; a large alpha favours small coalitions, (1, 1) is Shapley.
    """

    antithetic: bool = False
    walks: int | None = None
    beta: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        flag("antithetic", self.antithetic)
        whole_or_none("walks", self.walks)
        if self.antithetic and self.walks is not None and self.walks % 2:
            raise ValueError(f"walks is {self.walks}; antithetic walks come in pairs")
        if self.beta is not None:
            if not (vector("beta", self.beta, 2) > 0).all():
                raise ValueError(f"beta is {self.beta}; expected two positive numbers")
            beta_weights(1, *self.beta)  # refuses what is too extreme

    def minimum(self, n_players: int, count: Count) -> int:
        """One walk, or one pair of walks."""
        if count == "calls":
            return (2 if self.antithetic else 1) * n_players
        return n_players + 1 + (n_players - 1) * self.antithetic

    def weights(self, n_players: int) -> Floats:
        if self.beta is None:
            return shapley_weights(n_players)
        return beta_weights(n_players, *self.beta)

    def position_weights(self, n: int) -> Floats | None:
        """Return n p_j: how often a position's size counts, over how often walks visit it."""
        if self.beta is None:
            return None
        weights, plain = self.weights(n), shapley_weights(n)
        if min(weights.min(), plain.min()) >= np.finfo(np.float64).tiny:
            return weights / plain
        # of a thousand players both are too small for a float; their ratio is not
        (alpha, beta), s = self.beta, np.arange(n)
        logs = betaln(s + beta, n - 1 - s + alpha) - betaln(alpha, beta)
        return np.asarray(np.exp(logs - betaln(s + 1, n - s)))

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        n, unit = n_players, 2 if self.antithetic else 1
        position_weights = self.position_weights(n)
        empty = yield np.zeros((1, n), dtype=np.bool_)
        for size in blocks(self.walks, unit):
            orders = random_orders(rng, size // unit, n)
            if self.antithetic:  # a walk and the same walk backwards
                orders = np.stack([orders, orders[:, ::-1]], axis=1).reshape(size, n)
            utilities = yield prefixes(orders)
            samples = walk_marginals(orders, utilities, empty[0], position_weights)
            if self.antithetic:  # half a pair is left out
                samples = (samples[: len(samples) // 2 * 2 : 2] + samples[1::2]) / 2
            accumulator.add(samples)
            accumulator.info["walks"] = int(accumulator.counts[0]) * unit
            if len(utilities) < len(orders) * n:
                return


# --------------------------------------------------------------------------- truncated walks


def walk(
    orders: Ints,
    start: Floats,
    is_open: IsOpen,
    budget: Budget,
    accumulator: MeanAccumulator,
    grand: Floats | None = None,
) -> Generator[Bools, Floats, list[Floats]]:
    """Walk permutations ``[W, n]`` while the budget lasts; return what each whole walk credits.

    From the utility `start` the players of a walk are added one by one, and each is credited with
    the increment.  `is_open` says of the utilities before a step, ``[W]`` or ``[W, m]``, whether
    the step is looked at; an output for which it is not keeps its utility.  `grand` is not asked
    for where it is known.  Whole walks are added to the accumulator, whose info counts them.
    """
    n, info = orders.shape[1], accumulator.info
    credited: list[Floats] = []
    for size in groups(budget, None, len(orders), n - (grand is not None)):
        group, orders = orders[:size], orders[size:]
        ranks = np.argsort(group, axis=1)
        previous = np.array(np.broadcast_to(start, (size, *np.shape(start))))
        credit = np.zeros((size, n, *np.shape(start)))
        cut, truncated = np.zeros((2, size), dtype=np.bool_)
        for step in range(n):
            opened = is_open(previous)
            truncated |= ~opened.reshape(size, -1).all(axis=1)
            going = np.flatnonzero(opened.reshape(size, -1).any(axis=1))
            if len(going) == 0:
                break
            if grand is not None and step == n - 1:
                utilities = np.broadcast_to(grand, (len(going), *np.shape(grand)))
            elif budget.left() == 0:
                cut[going] = True
                break
            else:
                utilities = yield ranks[going] <= step
            gained = np.where(opened[going], utilities - previous[going], 0.0)
            credit[going, group[going, step]] = gained
            previous[going] += gained
        accumulator.add(credit[~cut])
        credited.extend(credit[~cut])
        info["walks"] = int(accumulator.counts[0])
        info["truncated"] = info.get("truncated", 0) + int(truncated[~cut].sum())
        if budget.exhausted:
            break
    return credited


def doubt_of(name: str, tolerance: float, gain: Floats) -> str | None:
    """Say that a tolerance is coarse beside what the players gain together, where it is."""
    ratio = np.divide(tolerance, np.abs(gain), out=np.zeros_like(gain), where=gain != 0).max()
    if ratio <= COARSE:
        return None
    return (
        f"{name} is {tolerance:g}, {ratio:.0%} of what all players gain together: walks end where "
        "much is left to hand out, values are too small, and their intervals do not say so; "
        f"give it fk.normalise(game), or a smaller {name}"
    )


@dataclass(frozen=True)
class TruncatedMonteCarlo(Estimator):
    """Permutation walks cut off near v(N) (Ghorbani & Zou 2019, Algorithm 1).

    From the first position where ``|v(N) - v(prefix)| < tolerance`` the rest of a walk gets
    nothing, which is biased; each output of a vector-valued game is truncated by itself.  With
    ``tolerance=0`` this is MC-Shapley (FedOwen, Algorithm 3).

    Parameters
    ----------
    tolerance : float
        In the units of the utility: a tenth of what all gain together is much.
    walks : int, optional
        Number of walks, where the budget does not stop earlier.
    from_zero : bool
        FedOwen's Algorithm 5, which it calls GTG-Shapley: walks start from ``v_prev = 0`` in place
        of v(empty), and their last position asks for v(N) again.
    """

    tolerance: float = 0.01
    walks: int | None = None
    from_zero: bool = False

    def __post_init__(self) -> None:
        real("tolerance", self.tolerance, 0.0)
        whole_or_none("walks", self.walks)
        flag("from_zero", self.from_zero)

    def minimum(self, n_players: int, count: Count) -> int:
        """One walk, which must find something left to spend at its last position."""
        if count == "calls":  # a lone player's v(N) is asked for twice, and neither time is free
            return n_players + (self.from_zero and n_players == 1)
        return n_players + 1 + self.from_zero

    def weights(self, n_players: int) -> Floats | None:
        """Shapley's weights without truncation; none with it."""
        plain = self.tolerance == 0 and not self.from_zero
        return shapley_weights(n_players) if plain else None

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        empty, grand = yield ends(n_players)
        if doubt := doubt_of("tolerance", self.tolerance, grand - empty):
            accumulator.info["doubt"] = doubt
        start = np.zeros_like(grand) if self.from_zero else empty  # Algorithm 5, line 3
        known = None if self.from_zero else grand

        def is_open(previous: Floats) -> Bools:  # Algorithm 5, line 5
            return ~(np.abs(grand - previous) < self.tolerance)

        for size in blocks(self.walks):
            asked, orders = budget.calls, random_orders(rng, size, n_players)
            yield from walk(orders, start, is_open, budget, accumulator, known)
            if budget.exhausted or budget.calls == asked:
                return  # no walk looks at anything: all walks are equal


@dataclass(frozen=True)
class GTGShapley(Estimator):
    """Guided truncated gradient Shapley, one round (Liu et al. 2022, Algorithm 1).

    If the round gained no more than `between` nobody gets anything.  Otherwise sweeps of `n`
    permutations follow, each player leading one of them.  In a walk, positions from which
    ``|v(N) - v(prefix)|`` is below `within` keep the utility.  It stops when the mean relative
    change of the running means from each of the last 10 walks to the newest is at most
    `convergence`, after more than ``max(30, n)`` walks, or at ``min(2**n, max(30, 0.8 * 2**n))``.
    Each output of a vector-valued game is truncated by itself.

    Parameters
    ----------
    within, between : float
        Tolerances in the units of the utility.
    convergence : float
        Largest mean relative change that counts as converged.
    walks : int, optional
        Exactly this many walks, without a test of convergence.
    """

    within: float = 0.001
    between: float = 0.001
    convergence: float = 0.05
    walks: int | None = None

    stops = True

    def __post_init__(self) -> None:
        for name in ("within", "between", "convergence"):
            real(name, getattr(self, name), 0.0)
        whole_or_none("walks", self.walks)

    def cap(self, n_players: int) -> int:
        """Largest number of walks."""
        if self.walks is not None:
            return self.walks
        everything = 2 ** min(n_players, 60)  # a float holds no 2**1024
        return int(min(everything, max(FEWEST_WALKS, n_players, LARGEST_SHARE * everything)))

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        n, means = n_players, RunningMeans(LOOKED_BACK)
        empty, grand = yield ends(n)
        moved = np.abs(grand - empty) > self.between  # between-round truncation
        if not np.any(moved):
            accumulator.add(np.zeros((2, n, *np.shape(grand))))
            accumulator.info.update(walks=0, converged=True)
            return
        if doubt := doubt_of("within", self.within, np.where(moved, grand - empty, 0.0)):
            accumulator.info["doubt"] = doubt

        def is_open(previous: Floats) -> Bools:
            return moved & ~(np.abs(grand - previous) < self.within)

        while means.walks < self.cap(n):
            leaders = rng.permutation(n)[: self.cap(n) - means.walks]
            accumulator.info["converged"] = False
            orders = guided_orders(rng, leaders, n)
            means.add((yield from walk(orders, empty, is_open, budget, accumulator, grand)))
            if budget.exhausted:
                return
            if self.walks is None and means.walks > max(FEWEST_WALKS, n):
                changes = [means.change(back) for back in range(1, LOOKED_BACK + 1)]
                if max(changes) <= self.convergence:
                    accumulator.info["converged"] = True
                    return


def guided_orders(rng: Rng, leaders: Ints, n: int) -> Ints:
    """Return one permutation per leader: the leader first, the others in random order."""
    orders = random_orders(rng, len(leaders), n)
    others = orders[orders != leaders[:, None]].reshape(len(leaders), n - 1)
    return np.concatenate([leaders[:, None], others], axis=1)


class RunningMeans:
    """The running means A_k after each of the last walks, for rules that look back on so many."""

    def __init__(self, last: int) -> None:
        self.walks = 0
        self.means: deque[Floats] = deque(maxlen=last + 1)
        self._sum: Floats | float = 0.0

    def add(self, credited: list[Floats]) -> None:
        for credit in credited:
            self._sum = self._sum + credit
            self.walks += 1
            self.means.append(self._sum / self.walks)

    def change(self, back: int) -> float:
        """Return the mean relative change since `back` walks ago, worst output."""
        last, then = self.means[-1], self.means[-1 - back]
        relative = np.abs(then - last) / (np.abs(last) + 1e-12)
        return float(relative.mean(axis=0).max())
