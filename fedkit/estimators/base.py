"""What an estimator is: a generator that asks for utilities and accumulates what it learns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import whole
from fedkit.games.game import Game

__all__ = [
    "Accumulator", "Budget", "ContrastAccumulator", "Count", "Estimator", "FinishedAccumulator",
    "MeanAccumulator", "Requests",
]  # fmt: skip

Count = Literal["distinct", "calls"]
Floats = NDArray[np.float64]
Requests = Generator[NDArray[np.bool_], Floats, None]

PATIENCE = 100  # calls per unit of a budget in distinct evaluations before giving up
UNLIMITED = 2**62
LARGEST_BLOCK = 128
FEWEST_UNITS = 10  # independent samples that an interval needs, by measured coverage
BORROWED = 6  # samples as which the players' mean variance counts, by the same
SIZES = ("walks", "draws", "rounds")  # fields by which an estimator ends without a budget


@dataclass
class Budget:
    """What may be spent and what has been; kept by the driver, read by the estimator.

    Attributes
    ----------
    total : int or None
        The budget; None is unlimited.
    count : {"distinct", "calls"}
        ``"distinct"`` counts distinct coalitions, the empty one included.  ``"calls"`` counts
        every non-empty coalition asked for, as FedOwen's N x M does.
    evaluations, calls : int
        Spent so far in either way of counting.
    closed : bool
        True once a request could not be granted in full: nothing more will be answered.
    """

    total: int | None
    count: Count
    evaluations: int = 0
    calls: int = 0
    closed: bool = False

    @property
    def spent(self) -> int:
        """What has been spent, in the budget's own way of counting."""
        return self.evaluations if self.count == "distinct" else self.calls

    @property
    def remaining(self) -> int:
        """What is left, in the budget's own way of counting."""
        return UNLIMITED if self.total is None else self.total - self.spent

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will be answered."""
        return self.closed or (self.total is not None and self.left_until(self.total) == 0)

    def out_of_patience(self, limit: int) -> bool:
        """Whether as many calls as belong to distinct evaluations up to `limit` are made."""
        return self.count == "distinct" and self.calls >= PATIENCE * limit

    def left_until(self, limit: int) -> int:
        """What is left of the part of the budget that ends at `limit`; 0 out of patience."""
        return 0 if self.out_of_patience(limit) else max(limit - self.spent, 0)


class Accumulator(Protocol):
    """Running estimate of the values; what an estimator writes and the driver reads.

    Before the first sample there are no values (None), and nobody asks for their errors.
    """

    info: dict[str, Any]

    def values(self) -> Floats | None: ...

    def standard_errors(self) -> Floats: ...

    def degrees_of_freedom(self) -> Floats | None:
        """Return those of the standard errors, infinite where these are exact."""
        ...


class Estimator:
    """What every estimator offers; the defaults suit a mean over walks or draws of one's own.

    An estimator of your own needs :meth:`sample` alone.  Those of fedkit are frozen dataclasses
    that say in a field (``walks``, ``draws`` or ``rounds``) where to end without a budget.
    """

    @property
    def stops(self) -> bool:
        """Whether it ends by itself, without a budget."""
        return any(getattr(self, size, None) is not None for size in SIZES)

    def minimum(self, n_players: int, count: Count) -> int:
        """Smallest budget that is accepted; by default that of one walk, a value for everyone."""
        return n_players + (count == "distinct")

    def weights(self, n_players: int) -> Floats | None:
        """Weight of a coalition of each size in the expectation; None when not of this form."""
        return None

    def prepare(self, game: Game, budget: int | None) -> tuple[Game, Estimator]:
        """Return the game that is asked, and who asks: one may use more than the utilities."""
        return game, self

    def accumulator(self, n_players: int) -> Accumulator:
        """Return an empty accumulator for a game of `n_players`."""
        return MeanAccumulator()

    def sample(
        self, n_players: int, rng: np.random.Generator, accumulator: Any, budget: Budget
    ) -> Requests:
        """Yield ``bool[b, n]``, receive ``float[b]`` or ``[b, m]``, write into `accumulator`.

        An answer shorter than the request means that the budget is spent: it holds the first
        rows, and nothing more will be answered.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample")


class MeanAccumulator:
    """Mean of independent samples ``[n]`` or ``[n, m]``, within weighted strata.

    Means and sums of squares are merged block by block (Chan, Golub & LeVeque 1983), so that a
    large common offset does not cancel the variance.  Each player's sum of squares counts the
    players' mean variance as six samples more where that makes it larger: a player whose rare large
    marginals were not met has otherwise no spread at all, and its interval holds nothing.

    Parameters
    ----------
    weights : float64 array, shape (strata,)
        Weight of each stratum's mean in the estimate.
    certain : int
        How many strata, the first ones, are not sampled: their samples are always the same.
    """

    def __init__(self, weights: Floats | None = None, certain: int = 0) -> None:
        self.weights = np.ones(1) if weights is None else weights
        self.certain = certain
        self.counts = np.zeros(len(self.weights), dtype=np.int64)
        self.info: dict[str, Any] = {}
        self.owner = "the estimator"  # this and the next as the driver knows them
        self.n_players: int | None = None
        self._mean: Floats | None = None
        self._squares: Floats = np.zeros(0)

    def add(self, samples: Floats, stratum: int = 0) -> None:
        """Add ``[k, n]`` or ``[k, n, m]`` independent samples of one stratum."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.ndim not in (2, 3) or self.n_players not in (None, samples.shape[1]):
            fault = f"of shape {samples.shape}"
        else:
            fault = "" if np.isfinite(samples).all() else "with a NaN or an infinity"
        if fault:
            raise ValueError(
                f"{self.owner} added samples {fault}; expected finite numbers [k, n] or "
                "[k, n, m], one column per player"
            )
        k = len(samples)
        if k == 0:
            return
        if self._mean is None:
            self._mean = np.zeros((len(self.weights), *samples.shape[1:]))
            self._squares = np.zeros_like(self._mean)
        # walks of nobody are zeros that do not know yet how many outputs the game has
        if samples.ndim > self._mean.ndim:
            self._mean = np.repeat(self._mean[..., None], samples.shape[-1], axis=-1)
            self._squares = np.repeat(self._squares[..., None], samples.shape[-1], axis=-1)
        elif samples.ndim < self._mean.ndim:
            samples = np.repeat(samples[..., None], self._mean.shape[-1], axis=-1)
        before = int(self.counts[stratum])
        mean = samples.mean(axis=0)
        shift = mean - self._mean[stratum]
        self._mean[stratum] += shift * (k / (before + k))
        self._squares[stratum] += ((samples - mean) ** 2).sum(axis=0)
        self._squares[stratum] += shift**2 * (before * k / (before + k))
        self.counts[stratum] += k

    def values(self) -> Floats | None:
        """Return the weighted sum of the strata's means; NaN while a stratum is empty."""
        if self._mean is None:
            return None
        result: Floats = np.tensordot(self.weights, self._mean, axes=1)
        return np.full_like(result, np.nan) if (self.counts == 0).any() else result

    def standard_errors(self) -> Floats:
        """Return the standard errors; NaN while a stratum has fewer than two samples.

        And where fewer than ten are all the same, up to rounding: a walk and its repetition.
        """
        if (self.counts < 2).any() or self._repeats():
            return np.full(self._squares.shape[1:], np.nan)
        return np.asarray(np.sqrt(self._variances().sum(axis=0)))

    def _repeats(self) -> bool:
        sampled = slice(self.certain, None)
        if self._mean is None or not 0 < self.counts[sampled].sum() < FEWEST_UNITS:
            return False
        size = np.square(self._mean[sampled]).max(initial=0.0)
        return bool(self._squares[sampled].max(initial=0.0) <= 1e-24 * size)

    def degrees_of_freedom(self) -> Floats | None:
        """Return Satterthwaite's; NaN if all strata together have too few samples beyond one."""
        if (self.counts < 2).any():
            return None
        sampled = self.counts[self.certain :]
        if len(sampled) and (sampled - 1).sum() < FEWEST_UNITS - 1:
            return np.full(self._squares.shape[1:], np.nan)
        return satterthwaite(self._variances(), self.counts)

    def _variances(self) -> Floats:
        """Return what each stratum adds to the variance."""
        counts = self.counts.reshape(-1, *(1,) * (self._squares.ndim - 1))
        weights = self.weights.reshape(counts.shape)
        own = self._squares / (counts - 1.0)
        pooled = own.mean(axis=1, keepdims=True)
        borrowed = (self._squares + BORROWED * pooled) / (counts - 1.0 + BORROWED)
        # the players' mean is no reason to trust a client more that varies more than others
        return weights**2 / counts * np.maximum(own, borrowed)


@dataclass
class FinishedAccumulator:
    """An estimate that comes in one piece, or an exact value."""

    found: tuple[Floats | None, Any, Floats | None] = (None, None, None)
    names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def values(self) -> Floats | None:
        return self.found[0]

    def standard_errors(self) -> Floats:
        return np.asarray(self.found[1])

    def degrees_of_freedom(self) -> Floats | None:
        return self.found[2]


class ContrastAccumulator:
    """Mean utility of the coalitions with a player minus that of those without.

    Every utility informs all players: Wang & Jia's (2023) maximum sample reuse.  The mean variance
    over players and sides counts as six coalitions more on each side where it is larger than a
    player's own: a few utilities that happen to be equal have no spread.
    """

    def __init__(self, n_players: int) -> None:
        self.n_players = n_players
        self.info: dict[str, Any] = {}
        self._counts = np.zeros((2, n_players), dtype=np.int64)  # without, with
        self._sums = self._squares = np.zeros((2, n_players))  # later [2, n(, m)]
        self._origin: Floats | float = 0.0

    def add(self, coalitions: NDArray[np.bool_], utilities: Floats) -> None:
        """Add the utilities of independent random coalitions."""
        if len(utilities) == 0:
            return
        if not self._counts.any():
            self._sums = np.zeros((2, self.n_players, *utilities.shape[1:]))
            self._squares = np.zeros_like(self._sums)
            self._origin = utilities[0].copy()  # centred sums of squares do not cancel
        centred = utilities - self._origin
        for side, mask in enumerate((~coalitions, coalitions)):
            self._sums[side] += mask.T.astype(np.float64) @ centred
            self._squares[side] += mask.T.astype(np.float64) @ centred**2
            self._counts[side] += mask.sum(axis=0)

    def values(self) -> Floats | None:
        """Return the contrasts; NaN for a player seen on one side only."""
        if not self._counts.any():
            return None
        counts = self._wide(self._counts)
        means = np.where(counts > 0, self._sums / np.maximum(counts, 1), np.nan)
        return means[1] - means[0]

    def standard_errors(self) -> Floats:
        """Return the standard errors; NaN with fewer than two coalitions on a side."""
        return np.asarray(np.sqrt(self._variances().sum(axis=0)))

    def degrees_of_freedom(self) -> Floats:
        """Return Welch's degrees of freedom; NaN with fewer than ten coalitions on a side."""
        found = satterthwaite(self._variances(), np.maximum(self._counts, 2))
        found[(self._counts < FEWEST_UNITS).any(axis=0)] = np.nan
        return found

    def _wide(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return counts.reshape(2, self.n_players, *(1,) * (self._sums.ndim - 2))

    def _variances(self) -> Floats:
        counts = self._wide(self._counts)
        safe = np.maximum(counts, 1)
        squares = np.maximum(self._squares - self._sums**2 / safe, 0.0)
        pooled = squares.sum(axis=(0, 1)) / max(int((safe - 1).sum()), 1)
        own = squares / np.maximum(safe - 1, 1)
        borrowed = (squares + BORROWED * pooled) / (safe - 1 + BORROWED)
        # as of means: pooling is no reason to trust a client more that varies more than others
        return np.where(counts >= 2, np.maximum(own, borrowed) / safe, np.nan)


def satterthwaite(variances: Floats, counts: NDArray[Any]) -> Floats:
    """Degrees of freedom of a sum of variances ``[strata, ...]`` from so many samples each.

    Infinite where the variance is zero (Satterthwaite 1946).  Variances that come with degrees of
    freedom count one sample more.
    """
    each = np.asarray(counts - 1.0)
    each = each.reshape(*each.shape, *(1,) * (variances.ndim - each.ndim))
    squares = (variances**2 / each).sum(axis=0)
    total = variances.sum(axis=0) ** 2
    return np.divide(total, squares, out=np.full_like(total, np.inf), where=squares > 0)


def blocks(limit: int | None, unit: int = 1, largest: int = LARGEST_BLOCK) -> Iterator[int]:
    """Yield sizes of successive blocks of walks, growing from `unit` to `largest`.

    Small first blocks give a fine trace and keep small budgets cheap; the schedule is fixed, so
    results do not depend on how the driver batches the requests.
    """
    done, size = 0, unit
    while limit is None or done < limit:
        take = size if limit is None else min(size, limit - done)
        yield take
        done += take
        if done >= 2 * size:
            size = min(2 * size, max(largest // unit, 1) * unit)


def check_size(name: str, size: int | None) -> None:
    """Refuse a number of walks or draws below one."""
    if size is not None:
        whole(name, size, 1)


def random_orders(rng: np.random.Generator, k: int, n: int) -> NDArray[np.int64]:
    """Return `k` uniform permutations of the players, shape ``(k, n)``."""
    return rng.permuted(np.tile(np.arange(n), (k, 1)), axis=1)


def prefixes(orders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the n non-empty prefixes of each order, walk after walk: ``bool[k * n, n]``."""
    k, n = orders.shape
    ranks = np.argsort(orders, axis=1)
    return (ranks[:, None, :] <= np.arange(n)[:, None]).reshape(k * n, n)


def walk_marginals(
    orders: NDArray[np.int64], utilities: Floats, empty: Floats, weights: Floats | None = None
) -> Floats:
    """Return every player's marginal ``[k, n(, m)]`` from the utilities of :func:`prefixes`.

    Only walks whose prefixes are all there count; `weights` are those of a walk's positions.
    """
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


def neighbourhoods(coalitions: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return each coalition followed by its n neighbours, player by player changed.

    Shape ``(k * (n + 1), n)`` for ``bool[k, n]`` coalitions.
    """
    k, n = coalitions.shape
    changes = np.concatenate([np.zeros((1, n), dtype=np.bool_), np.eye(n, dtype=np.bool_)])
    rows: NDArray[np.bool_] = np.logical_xor(coalitions[:, None, :], changes)
    return rows.reshape(k * (n + 1), n)


def neighbour_marginals(coalitions: NDArray[np.bool_], utilities: Floats) -> Floats:
    """Return every player's marginal at each coalition from :func:`neighbourhoods`.

    Only coalitions whose neighbours are all there count.
    """
    n = coalitions.shape[1]
    whole = len(utilities) // (n + 1)
    outputs = utilities.shape[1:]
    groups = utilities[: whole * (n + 1)].reshape(whole, n + 1, *outputs)
    sign: Floats = np.where(coalitions[:whole], 1.0, -1.0).reshape(whole, n, *(1,) * len(outputs))
    marginals: Floats = sign * (groups[:, :1] - groups[:, 1:])
    return marginals
