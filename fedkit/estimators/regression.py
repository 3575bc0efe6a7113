"""Regression with a correction: a learned game's exact values, plus what it gets wrong.

Pairs of complementary coalitions are drawn, stratified by size and without replacement, as Leverage
SHAP does (Musco & Witter 2025).  A Gaussian process learns a cheap game from their utilities; its
values are summed over all coalitions; and what it gets wrong on the pairs that were seen, each left
out in its turn, is scaled up to all and added, shrunk (James & Stein 1961).  The sample has two
halves: each learns the kernel with which the other half is predicted, so that no residual is of a
kernel that has seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from math import comb, isclose
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

from fedkit.checks import Bools, Floats, Ints, choice, flag, function, vector
from fedkit.estimators.accumulators import FinishedAccumulator
from fedkit.estimators.driver import Budget, Count, Estimator, Requests
from fedkit.games.coalitions import averaging_weights
from fedkit.games.exact import banzhaf_weights, shapley_weights
from fedkit.games.game import Game
from fedkit.games.valuation import satterthwaite
from fedkit.threads import one_thread

Score = Callable[[NDArray[np.floating]], Floats]

MOST_PLAYERS = 400  # squares of numbers of coalitions are floats
FEWEST = 2  # pairs of a stratum: one has no variance
SINGLES = 8  # single players are all taken where they are at most this part of the pairs
PREDICTED = 2**14  # coalitions that stand for all of them: up to 14 players they are all
LEARNED_ROWS = 300  # utilities by which a kernel is learned at most
FITTED_ROWS = 4096  # and to which it is fitted
STEPS = 25  # of the learning
SIZE = 4.0  # variance of the mean utility, in units of the utilities': hardly shrunk
ALIKE = 0.3  # spread of the logs of clients' rates about their common level
BORROWED = 6  # pairs as which the clients' mean variance counts
COMPONENTS = 100  # of the outputs behind a utility
LEADING = 8  # of them are what a kernel is learned by
BLOCK = 2**17  # entries of a kernel at once: what a core's cache holds

#: start, prior spread, least and most of the logs of a kernel's noise, reach, a, b, lambda and mu;
#: those of b and mu are narrow, lest few coalitions of a game that jumps be taken for a smooth one
PRIORS = np.array([
    [-5.8, 3.0, -12.0, 0.0],
    [1.6, 1.0, -1.0, 8.0],
    [0.0, 2.0, -4.0, 9.0],
    [0.0, 1.0, -4.0, 9.0],
    [1.1, 3.0, -7.0, 7.0],
    [-1.8, 1.0, -7.0, 7.0],
])  # fmt: skip


@dataclass(frozen=True)
class ProxySampling(Estimator):
    """Regression-adjusted Monte Carlo for the clients of federated rounds, and for any game.

    After Witter, Liu & Musco (2025), with the design of Leverage SHAP (Musco & Witter 2025), a
    Gaussian process on averaging weights in the place of trees, and a correction that is shrunk.

    Parameters
    ----------
    sizes : sequence of float, optional
        Data sizes of the clients; by default the game's own, as that of ``fk.round_game`` has them,
        and equal sizes elsewhere.
    value : {"shapley", "banzhaf"} or sequence of n floats
        What is estimated; n numbers are the weights of any semivalue, those of a coalition that is
        joined by its size 0 to n - 1.
    shrink : bool
        Whether the correction is shrunk, and values towards their mean, by as much as their
        estimated variance says.  That is closer on average; without it values are unbiased, with a
        `score` but for its curvature between fits that differ by one pair.
    score : callable, optional
        Where the game's utilities are vectors of outputs: a function of ``float[B, m]`` that
        returns what is to be valued, ``float[B]`` or ``[B, q]``.  Outputs are then predicted, and
        what is predicted is scored, where that is closer.  A game of ``fk.round_game`` with the
        utility "accuracy" is asked for its margins, image by image, without being told to.

    Notes
    -----
    Shapley values add up to v(N) - v(empty) exactly.  The whole budget is asked for in one batch.
    Standard errors are those of a stratified sample of the residuals, not shrunk (Cochran 1977);
    degrees of freedom follow Satterthwaite.  A game that jumps, as a vote does, may look smooth in
    a few dozen coalitions: its intervals hold too seldom there.
    """

    sizes: Sequence[float] | None = None
    value: Literal["shapley", "banzhaf"] | Sequence[float] = "shapley"
    shrink: bool = True
    score: Score | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        flag("shrink", self.shrink)
        if self.score is not None:
            function("score", self.score)
        if isinstance(self.value, str):
            choice("value", self.value, ("shapley", "banzhaf"))
        else:
            object.__setattr__(self, "value", tuple(vector("value", self.value).tolist()))
        if self.sizes is not None:
            sizes = vector("sizes", self.sizes)
            if (sizes < 0).any() or not sizes.any():
                raise ValueError(
                    f"sizes is {self.sizes!r}; expected numbers of at least 0, and not 0 alone"
                )
            object.__setattr__(self, "sizes", tuple(sizes.tolist()))

    def minimum(self, n_players: int, count: Count) -> int:
        """Two pairs of each size, nobody and everybody."""
        if n_players > MOST_PLAYERS:
            raise ValueError(
                f"the game has {n_players} players; ProxySampling takes at most {MOST_PLAYERS}, so "
                "sample walks (MultilinearSampling)"
            )
        for name, given in (("sizes", self.sizes), ("weights as value", self.value)):
            if given is not None and not isinstance(given, str) and len(given) != n_players:
                raise ValueError(
                    f"there are {len(given)} {name} for {n_players} players; pass one per player"
                )
        if isinstance(self.value, tuple):
            whole = sum(comb(n_players - 1, s) * w for s, w in enumerate(self.value))
            if min(self.value) < 0 or not isclose(whole, 1.0, rel_tol=1e-6):
                raise ValueError(
                    f"value has weights w[s] with sum of binomial(n - 1, s) w[s] = {whole:.6g}; "
                    "expected weights of at least 0 for which it is 1, as of every semivalue"
                )
        return 2 + 2 * int(np.minimum(pairs_there(n_players), FEWEST).sum()) - (count == "calls")

    def prepare(self, game: Game, budget: int | None) -> tuple[Game, Estimator]:
        """Return the game with all that its evaluations show, and what makes utilities of it."""
        if self.sizes is None and game.sizes is not None and np.any(game.sizes):
            return replace(self, sizes=tuple(game.sizes.tolist())).prepare(game, budget)
        whole = isinstance(budget, int | np.integer) and budget >= 2**game.n_players
        if game.lifted is None or self.score or whole:
            return game, self
        return game.lifted[0], replace(self, score=game.lifted[1])

    def weights(self, n_players: int) -> Floats | None:
        """Weights of the semivalue; None where outputs are scored first."""
        return self._weights(n_players) if self.score is None else None

    def _weights(self, n_players: int) -> Floats:
        rules = {"shapley": shapley_weights, "banzhaf": banzhaf_weights}
        return rules[self.value](n_players) if self.value in rules else np.array(self.value)

    def accumulator(self, n_players: int) -> FinishedAccumulator:
        return FinishedAccumulator()

    def sample(
        self,
        n_players: int,
        rng: np.random.Generator,
        accumulator: FinishedAccumulator,
        budget: Budget,
    ) -> Requests:
        weights = self._weights(n_players)
        total = budget.left() + (budget.count == "calls")  # the empty coalition is free there
        taken = allocation(n_players, total, weights)
        rows, stratum = drawn(n_players, taken, rng)
        outputs = yield _flat(rows)
        utilities = self._scored(outputs)
        shape = (n_players, *utilities.shape[1:])
        y = utilities.reshape(len(rows), 2, -1)
        unit = _largest(_flat(y))
        middle = (y[0] / unit).mean(axis=0)  # no value sees a constant

        behind = None
        if self.score is not None:
            components, back = _components(outputs)

            def made(found: Floats) -> Floats:
                return self._scored(back(found)).reshape(len(found), -1) / unit - middle

            behind = components.reshape(len(rows), 2, -1), made
        shares = np.ones(n_players) if self.sizes is None else np.array(self.sizes)
        start = Kernel.start(shares / shares.max())
        sample = _Sample(weights, taken, rows, stratum, y / unit - middle, behind, start)
        with one_thread(), np.errstate(under="ignore"):
            values, errors, freedom = sample.estimate(self.shrink, rng)
        values, errors = ((each * unit).reshape(shape) for each in (values, errors))
        accumulator.found = (values, errors, freedom.reshape(shape))

    def _scored(self, outputs: Floats) -> Floats:
        if self.score is None:
            return outputs
        made = np.asarray(self.score(outputs), dtype=np.float64)
        if made.ndim not in (1, 2) or len(made) != len(outputs) or not np.isfinite(made).all():
            raise ValueError(
                f"score made {made.shape} of outputs {outputs.shape}; it takes float[B, m] and "
                "returns finite [B] or [B, q]"
            )
        return made


# --- the sample -------------------------------------------------------------------------------


def coefficients(coalitions: Bools, weights: Floats) -> Floats:
    """Return ``a[..., n]`` with ``value_i = sum over all S of a_i(S) v(S)`` for a semivalue.

    `weights` are those of a marginal by the size of the coalition that is joined (0..n-1): a
    member `i` of `S` has ``weights[s - 1]``, everybody else ``-weights[s]``.
    """
    sizes = coalitions.sum(axis=-1, keepdims=True)
    padded = np.concatenate([[0.0], weights, [0.0]])
    return np.where(coalitions, padded[sizes], -padded[sizes + 1])


def pairs_there(n: int) -> Floats:
    """Return how many pairs each stratum has; of n/2 players both sides of a pair have as many."""
    return np.array([comb(n, s) / (1 + (2 * s == n)) for s in range(1, n // 2 + 1)])


def allocation(n: int, budget: int, weights: Floats) -> Ints:
    """Return how many pairs of each stratum `budget` evaluations are spread over.

    Nobody and everybody are two of them.  One pair after another goes where it lowers the variance
    most if residuals have equal spread (Neyman's allocation in whole numbers, Wright 2012);
    `weights` are as for :func:`coefficients`.
    """
    pairs, left = pairs_there(n), (budget - 2) // 2
    taken = np.minimum(pairs, FEWEST).astype(np.int64)
    if SINGLES * n <= left:
        taken[:1] = pairs[:1]  # who is alone is like nobody else, whatever the weights
    some = np.arange(n) < np.arange(1, n // 2 + 1)[:, None]  # of each size one stands for all
    square = coefficients(some, weights) ** 2 + coefficients(~some, weights) ** 2
    step = np.arange(1.0, left + 1)  # pairs of a size before another one is taken
    gain = (pairs * np.sqrt(square.sum(axis=1)))[:, None] / np.sqrt(step * (step + 1))
    gain[(step < taken[:, None]) | (step >= pairs[:, None])] = -1.0
    more = min(left, int(pairs.sum())) - taken.sum()
    best = np.argsort(-gain, axis=None, kind="stable")[:more]
    return np.asarray(taken + np.bincount(best // left, minlength=len(pairs)))


def drawn(n: int, taken: Ints, rng: np.random.Generator) -> tuple[Bools, Ints]:
    """Return pairs of coalitions ``[K, 2, n]`` that complement each other, and their strata.

    Nobody and everybody come first, of stratum -1; the others are in random order.
    """
    sides = [_subsets(rng, n, s, int(count)) for s, count in enumerate(taken, 1)]
    one = np.concatenate([np.zeros((1, n), dtype=np.bool_), *sides])
    strata = np.repeat(np.arange(-1, len(taken)), [1, *taken])
    order = np.concatenate([[0], 1 + rng.permutation(len(one) - 1)])
    return np.stack([one, ~one], axis=1)[order], strata[order]


def _subsets(rng: np.random.Generator, n: int, size: int, count: int) -> Bools:
    """Return `count` distinct subsets of a size, uniform; of a half, those that hold player 0."""
    half = 2 * size == n
    there = comb(n, size) // (1 + half)
    if there <= 4 * count:  # in the order of `combinations` those that hold player 0 come first
        listed = np.array(list(islice(combinations(range(n), size), there)))
        found = np.zeros((there, n), dtype=np.bool_)
        found[np.arange(there)[:, None], listed] = True
    else:  # few are drawn twice
        found = np.zeros((0, n), dtype=np.bool_)
        while len(found) < count:
            ranks = rng.random((2 * (count - len(found)) + 8, n)).argsort(axis=1)
            more = ranks < size
            more ^= half & ~more[:, :1]
            found = np.unique(np.concatenate([found, more]), axis=0)
    return rng.choice(found, count, replace=False)


def _flat(pairs: NDArray[Any]) -> NDArray[Any]:
    """Return one row for each coalition of pairs ``[K, 2, m]``."""
    return pairs.reshape(-1, pairs.shape[2])


def _largest(numbers: Floats) -> Floats:
    """Return the largest size in each column, 1 where all are 0."""
    largest = np.abs(numbers).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


# --- the learned game -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """Covariance of the utilities of two coalitions, in units of their variance.

    ``near (4 + a / (1 + D) + b / (1 + H))``, where `near` falls with the lag between the logs of
    their sizes, ``D = sum_i lambda_i (w_i - w'_i)^2`` and ``H = sum_i mu_i (x_i - x'_i)^2``.  The
    model of a coalition is the base plus updates with averaging weights w, so that a round's
    utility is a smooth function of these, and the rest one of the members x.  Every client has a
    rate of its own (automatic relevance determination, Rasmussen & Williams 2006, section 5.1).
    """

    shares: Floats
    logs: Floats  # of the noise, the reach of `near`, a, b, n rates lambda and n rates mu

    @classmethod
    def start(cls, shares: Floats) -> Kernel:
        """Return the kernel in which all clients have the same rates."""
        return cls(shares, _priors(len(shares))[0])

    def views(self, rows: Bools) -> Floats:
        """Return averaging weights and members, ``[2, B, n]``."""
        return np.stack([averaging_weights(rows, self.shares), rows])

    def parts(self, u: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return `near` ``[A, B]`` of two sets by their views, and both terms ``[2, A, B]``."""
        one, two = (np.log(np.maximum(view[1].sum(axis=1), 0.5)) for view in (u, w))
        near = np.exp(-np.abs(one[:, None] - two) / np.exp(self.logs[1]))
        rates = np.exp(self.logs[4:]).reshape(2, -1, 1)
        apart = (-2.0 * u * rates.transpose(0, 2, 1)) @ w.transpose(0, 2, 1)
        apart += u**2 @ rates
        apart += (w**2 @ rates).transpose(0, 2, 1)
        np.maximum(apart, 0.0, out=apart)  # what rounding makes of two that are alike
        return near, np.exp(self.logs[2:4, None, None]) / (1.0 + apart)

    def between(self, u: Floats, w: Floats) -> Floats:
        """Return the covariances ``[A, B]`` between two sets of coalitions, by their views."""
        found = np.empty((u.shape[1], w.shape[1]))
        count = found.size // BLOCK + 1
        for block in np.array_split(np.arange(len(found)), count):
            near, terms = self.parts(u[:, block], w)
            found[block] = near * (SIZE + terms[0] + terms[1])
        return found

    def inverse(self, covariance: Floats) -> tuple[Floats, float]:
        """Return the inverse of covariances and noise, and the log of their determinant."""
        factor = np.linalg.cholesky(covariance + np.exp(self.logs[0]) * np.eye(len(covariance)))
        half, _ = lapack.dpotri(factor, lower=True)
        full = half + half.T
        np.einsum("ii->i", full)[:] *= 0.5
        return full, 2.0 * float(np.log(np.diagonal(factor)).sum())

    def likelihood(self, rows: Bools, y: Floats) -> tuple[float, Floats]:
        """Return the log marginal likelihood of utilities ``[B, m]``, and its slope in the logs.

        The variance of each output is not assumed, but profiled out.
        """
        view = self.views(rows)
        near, terms = self.parts(view, view)
        covariance = near * (SIZE + terms[0] + terms[1])
        precision, height = self.inverse(covariance)
        count, outputs = y.shape
        solved = precision @ y
        misfit = np.maximum((y * solved).sum(axis=0), np.finfo(float).tiny)
        height = -0.5 * (count * np.log(misfit / count).sum() + outputs * height)
        pull = 0.5 * (count * (solved / misfit) @ solved.T - outputs * precision)
        noise = np.trace(pull) * np.exp(self.logs[0])
        reach = -np.vdot(pull * covariance, np.log(near))
        pulls = pull * near * terms
        fall = pulls * terms / np.exp(self.logs[2:4, None, None])  # 1 / (1 + D) falls by its square
        rates = (view * (fall @ view)).sum(axis=1) - (fall.sum(axis=1)[:, None] @ view**2)[:, 0]
        rates *= 2.0 * np.exp(self.logs[4:]).reshape(2, -1)
        slopes = [noise, reach, *pulls.sum(axis=(1, 2)), *rates.ravel()]
        return float(height), np.array(slopes)

    def learned(self, rows: Bools, y: Floats) -> Kernel:
        """Return the kernel that suits utilities ``[B, m]``, by likelihood and priors on logs."""
        first, spread, least, most = _priors(len(self.shares))
        spread = np.append(spread[:4], spread[4:] * len(self.shares) ** 0.5)  # of a kind's level

        def loss(logs: Floats) -> tuple[float, Floats]:
            height, slope = replace(self, logs=logs).likelihood(rows, y)
            away, rates = (logs - first) / spread, logs[4:].reshape(2, -1)
            within = (rates - rates.mean(axis=1, keepdims=True)).ravel() / ALIKE
            slope -= away / spread
            slope[4:] -= within / ALIKE
            return 0.5 * (away @ away + within @ within) - height, -slope

        bounds = np.stack([least, most], axis=1)
        found = minimize(loss, self.logs, jac=True, bounds=bounds, options={"maxiter": STEPS})
        return replace(self, logs=found.x)


def _priors(n: int) -> Floats:
    """Return the columns of ``PRIORS``, ``[4, 4 + 2 n]``, with a rate of each kind per client."""
    return PRIORS.repeat([1, 1, 1, 1, n, n], axis=0).T


class _Fit:
    """A process fitted to numbers ``[K, 2, m]`` of pairs, and to all but each, in closed form.

    `guess` is what each pair's numbers are predicted to be without it.  Of very many pairs it is
    fitted to the first, which are in random order.
    """

    def __init__(self, kernel: Kernel, rows: Bools, numbers: Floats) -> None:
        many = FITTED_ROWS // 2
        self.kernel, self.view = kernel, kernel.views(_flat(rows[:many]))
        self.precision, _ = kernel.inverse(kernel.between(self.view, self.view))
        self.weights = self.precision @ _flat(numbers[:many])
        at = np.arange(len(self.weights)).reshape(-1, 2)
        blocks = self.precision[at[:, :, None], at[:, None, :]]
        self.off = np.linalg.solve(blocks, self.weights.reshape(len(at), 2, -1))
        rest = kernel.between(kernel.views(_flat(rows[many:])), self.view) @ self.weights
        self.guess = np.concatenate(
            [numbers[:many] - self.off, rest.reshape(-1, *numbers.shape[1:])]
        )

    def without(self, pairs: Ints, rows: Bools) -> Floats:
        """Return the mean of the numbers ``[C, m]`` that are predicted without one of the pairs."""
        fitted = pairs[pairs < len(self.off)]
        here = (2 * fitted[:, None] + [0, 1]).ravel()
        weights = self.weights - self.precision[:, here] @ _flat(self.off[fitted]) / len(pairs)
        return np.asarray(self.kernel.between(self.kernel.views(rows), self.view) @ weights)


def _components(outputs: Floats) -> tuple[Floats, Score]:
    """Return principal components of outputs ``[2 K, m]``, and what makes outputs of such."""
    unit = _largest(outputs)
    some = outputs[:LEARNED_ROWS] / unit
    middle, spread = some.mean(axis=0), some.std(axis=0)
    spread[spread == 0] = 1.0
    axes = np.linalg.svd((some - middle) / spread, full_matrices=False)[2][:COMPONENTS]
    basis, origin = axes * (spread * unit), middle * unit
    return (outputs / unit - middle) / spread @ axes.T, lambda z: z @ basis + origin


# --- the estimate -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sample:
    """The K pairs that were drawn, with their utilities; behind which there may be outputs."""

    weights: Floats
    taken: Ints  # [strata], pairs that were drawn
    rows: Bools  # [K, 2, n], as of `drawn`
    stratum: Ints  # [K]
    y: Floats  # [K, 2, q], utilities
    behind: tuple[Floats, Score] | None  # components [K, 2, m], and what makes y of such
    start: Kernel

    def estimate(self, shrink: bool, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Return values, standard errors and degrees of freedom, ``[n, q]`` each."""
        there = pairs_there(self.rows.shape[2])
        values = self._parts(self.rows, self.y).sum(axis=0)
        sampled = np.flatnonzero(self.taken < there)
        if len(sampled) == 0:
            return values, np.zeros_like(values), np.full_like(values, np.inf)
        unseen, strata = self._unseen(rng)
        predicted, off = np.zeros((*unseen.shape[:2], self.y.shape[2])), self.y.copy()
        for half in (0, 1):
            mine = (np.arange(len(off)) % 2 == half) & (self.stratum >= 0)
            fit, score = self._fitted(np.flatnonzero(~mine))
            off[mine] -= score(_flat(fit.guess[mine])).reshape(off[mine].shape)
            for s in sampled:
                out, here = np.flatnonzero(mine & (self.stratum == s)), strata == s
                if len(out):
                    made = score(fit.without(out, _flat(unseen[here])))
                    predicted[here] += len(out) / self.taken[s] * made.reshape(-1, *off.shape[1:])

        parts = self._parts(self.rows, off)
        others = [_others(parts[self.stratum == s], there[s]) for s in sampled]
        correction, variances = (np.array(each) for each in zip(*others, strict=True))
        correction, variance = correction.sum(axis=0), variances.sum(axis=0)
        summed, more = self._summed(unseen, strata, predicted)
        kept = _kept(correction, variance) if shrink else 1.0
        values += summed + kept * correction
        if shrink:  # the error of a correction that is shrunk is between most of it and all
            around = values - values.mean(axis=0)
            values += (_kept(around, (2.0 + kept) / 3.0 * (variance + more)) - 1.0) * around
        return values, np.sqrt(variance + more), satterthwaite(variances, self.taken[sampled])

    def _fitted(self, others: Ints) -> tuple[_Fit, Score]:
        """Return a fit to all pairs by a kernel of these, and what makes utilities of numbers."""
        known, y = others[: LEARNED_ROWS // 2], self.y
        rows, mine = _flat(self.rows[known]), _flat(y[known])
        if self.behind is None:
            return _Fit(self.start.learned(rows, mine), self.rows, y), np.asarray
        components, made = self.behind
        numbers, q = np.concatenate([y, components], axis=2), y.shape[2]
        kernel = self.start.learned(rows, _flat(numbers[known])[:, : q + LEADING])
        fit = _Fit(kernel, self.rows, numbers)

        def more(numbers: Floats) -> Floats:
            return made(numbers[:, q:]) - numbers[:, :q]

        guess = _flat(fit.guess[known])
        change = more(guess)
        square = (change**2).sum(axis=0)
        share = ((mine - guess[:, :q]) * change).sum(axis=0) / np.where(square > 0, square, 1.0)
        share = np.clip(share, 0.0, 1.0)  # utilities are predicted by this much from outputs
        return fit, lambda numbers: numbers[:, :q] + share * more(numbers)

    def _parts(self, rows: Bools, numbers: Floats) -> Floats:
        """Return ``[K, n, q]``: what each pair of coalitions adds to each value."""
        return np.einsum("kci,kcq->kiq", coefficients(rows, self.weights), numbers)

    def _unseen(self, rng: np.random.Generator) -> tuple[Bools, Ints]:
        """Return pairs ``[C, 2, n]`` not drawn, and their strata: all, or a sample of very many."""
        n = self.rows.shape[2]
        # as many more as may be drawn already, so that a pair is left in each stratum
        large = allocation(n, PREDICTED, self.weights) + self.taken
        rows, strata = drawn(n, np.minimum(pairs_there(n), large).astype(np.int64), rng)
        seen = {side.tobytes() for side in self.rows[:, 0]}
        fresh = np.array([side.tobytes() not in seen for side in rows[:, 0]])
        return rows[fresh], strata[fresh]

    def _summed(self, rows: Bools, strata: Ints, predicted: Floats) -> tuple[Floats, Floats]:
        """Return the predicted part of the values over all pairs not drawn, and its variance.

        What is additive in it, by members, their mean and the size, is summed in closed form.
        """
        n, features = rows.shape[2], _features(rows)
        flat = _flat(features)
        slopes = np.linalg.lstsq(flat.T @ flat, flat.T @ _flat(predicted), 1e-9)[0]
        member, mean, size = np.split(slopes, [n, 2 * n])
        often = self.weights * [float(comb(n - 1, s)) for s in range(n)]  # by size that is joined
        values = member + often[0] * mean + often @ np.diff(size, axis=0, prepend=0.0, append=0.0)
        others = (mean.sum(axis=0) - mean) / (n - 1)
        values += (often[1:] / np.arange(2, n + 1)).sum() * (mean - others)
        values -= self._parts(self.rows, _features(self.rows) @ slopes).sum(axis=0)
        parts, variance = self._parts(rows, predicted - features @ slopes), 0.0 * values
        for s in np.unique(strata):
            here = parts[strata == s]
            rest, spread = _others(here, pairs_there(n)[s] - self.taken[s])
            values += here.sum(axis=0) + rest
            variance += spread
        return values, variance


def _features(rows: Bools) -> Floats:
    """Return what a game is additive in: members, members by size, and the size."""
    size = rows.sum(axis=-1, keepdims=True)
    sizes = size == np.arange(1, rows.shape[-1])
    return np.concatenate([rows, rows / np.maximum(size, 1), sizes], axis=-1)


def _others(parts: Floats, there: float) -> tuple[Floats, Floats]:
    """Estimate the sum over a stratum's other pairs by parts ``[K, n, q]`` of some; its variance.

    The clients' mean variance counts as six pairs more.
    """
    count, free = len(parts), max(len(parts) - 1, 1)
    squares = ((parts - parts.mean(axis=0)) ** 2).sum(axis=0)
    spread = (squares + BORROWED / free * squares.mean(axis=0)) / (free + BORROWED)
    left = there - count
    return left * parts.mean(axis=0), there * left / count * spread


def _kept(estimate: Floats, variance: Floats) -> Floats:
    """Return by how much estimates ``[n, q]`` about 0 are multiplied (James & Stein 1961).

    Of n that add up to a known number n - 1 are free.
    """
    free = len(estimate) - 1
    lost = max(free - 2, 0) / max(free, 1) * variance.sum(axis=0)
    square = (estimate**2).sum(axis=0)
    return np.maximum(1.0 - lost / np.where(square > 0, square, np.inf), 0.0)
