"""Regression with a correction: a learned game's exact values, plus what it gets wrong.

Pairs of complementary coalitions are drawn (:mod:`fedkit.estimators.design`).  A Gaussian process
learns a cheap game from their utilities; its values are summed over all coalitions; and what it
gets wrong on the coalitions that were seen, each left out in its turn, is scaled up to all and
added, shrunk (James & Stein 1961).  The sample has two halves: each learns the kernel with which
the other half is predicted, so that no residual is of a kernel that has seen it.

The model of a coalition S is the base plus updates weighted by ``w_S = d_i 1_S / d(S)``, so that a
round's utility is a smooth function of averaging weights, and the rest one of who is in.  Every
client has a rate of its own in both (automatic relevance determination, Rasmussen & Williams 2006,
section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import comb, isclose
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

from fedkit.checks import choice, flag, function, vector
from fedkit.estimators.accumulators import FinishedAccumulator
from fedkit.estimators.design import PairedDesign, coefficients
from fedkit.estimators.driver import Budget, Count, Estimator, Floats, Requests
from fedkit.games.coalitions import averaging_weights
from fedkit.games.exact import banzhaf_weights, shapley_weights
from fedkit.games.game import Game
from fedkit.games.valuation import satterthwaite
from fedkit.threads import one_thread

Rows = NDArray[np.bool_]
Places = NDArray[np.int64]
Score = Callable[[NDArray[np.floating]], Floats]
Model = tuple["Kernel", Floats, Score]  # what is fitted to numbers, and makes utilities of them

MOST_PLAYERS = 400  # squares of numbers of coalitions are floats
PREDICTED = 2**14  # coalitions that stand for all of them: up to 14 players they are all
LEARNED_ROWS = 300  # utilities by which a kernel is learned at most
FITTED_ROWS = 4096  # and to which it is fitted
STEPS = 25  # of the learning
SIZE = 4.0  # variance of the means of sizes, in units of the utilities': hardly shrunk
ALIKE = 0.5  # spread of the logs of clients' rates about their common level
BORROWED = 6  # pairs as which the clients' mean variance counts
COMPONENTS = 100  # of the outputs behind a utility
LEADING = 8  # of them are what a kernel is learned by
FOLDS = 4  # of each half, left out in turn
BLOCK = 2**17  # entries of a kernel at once: what a core's cache holds


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
        estimated variance says.  That is closer on average; without it values are unbiased.
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
        return 2 + 2 * int(PairedDesign.smallest(n_players).taken.sum()) - (count == "calls")

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
        design = PairedDesign.for_budget(n_players, total, weights)
        sides, stratum = design.draw(rng)
        sides = np.concatenate([np.zeros((1, n_players), dtype=np.bool_), sides])
        stratum = np.concatenate([[-1], stratum])
        seen = yield _both(sides)
        utilities = self._scored(seen)
        unit = _largest(utilities.reshape(len(utilities), -1))
        middle = (utilities[:2].reshape(2, -1) / unit).mean(axis=0)  # no value sees a constant

        def score(outputs: Floats) -> Floats:
            return self._scored(outputs).reshape(len(outputs), -1) / unit - middle

        shares = np.ones(n_players) if self.sizes is None else np.array(self.sizes)
        start = Kernel.start(shares / shares.max())
        behind = None if self.score is None else (seen, score)
        sample = _Sample(design, weights, start, sides, stratum, score(seen), behind)
        with one_thread(), np.errstate(under="ignore"):
            values, errors, freedom = sample.estimate(self.shrink, rng)
        shape = (n_players, *utilities.shape[1:])
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


def _largest(numbers: Floats) -> Floats:
    """Return the largest size in each column, 1 where all are 0."""
    largest = np.abs(numbers).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def _both(sides: Rows) -> Rows:
    """Return each coalition ``[K, n]`` followed by its complement."""
    return np.stack([sides, ~sides], axis=1).reshape(-1, sides.shape[1])


# --- the learned game -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """Covariance of the utilities of two coalitions, in units of their variance.

    ``near (4 + a / (1 + D)) + b exp(-H)``, where `near` falls with the lag between the logs of
    their sizes, ``D = sum_i lambda_i (w_i - w'_i)^2`` is of averaging weights, and
    ``H = sum_i mu_i |x_i - x'_i|`` of members.
    """

    shares: Floats
    logs: Floats  # of the noise, the reach of `near`, a, b, n rates lambda and n rates mu

    @classmethod
    def start(cls, shares: Floats) -> Kernel:
        """Return the kernel in which all clients have the same rates."""
        n = len(shares)
        return cls(shares, np.log([1e-3, 5.0, 1.0, 0.3, *[3.0] * n, *[0.16] * n]))

    def parts(self, rows: Rows, others: Rows) -> tuple[Floats, ...]:
        """Return lags over reach, `near`, ``a / (1 + D)`` and ``b exp(-H)``."""
        reach, a, b = np.exp(self.logs[1:4])
        lambdas, mus = np.exp(self.logs[4:].reshape(2, -1))
        one, two = (np.log(np.maximum(each.sum(axis=1), 0.5)) for each in (rows, others))
        u, w = (averaging_weights(each, self.shares) for each in (rows, others))
        lag = np.abs(one[:, None] - two) / reach
        smooth = a / (1.0 + _apart(u, w, lambdas))
        rough = b * np.exp(-_apart(rows.astype(np.float64), others.astype(np.float64), mus))
        return lag, np.exp(-lag), smooth, rough

    def between(self, rows: Rows, others: Rows) -> Floats:
        """Return the covariances ``[A, B]`` between two sets of coalitions."""
        _, near, smooth, rough = self.parts(rows, others)
        return np.asarray(near * (SIZE + smooth) + rough)

    def inverse(self, covariance: Floats) -> tuple[Floats, float]:
        """Return the inverse of covariances and noise, and the log of their determinant."""
        factor = np.linalg.cholesky(covariance + np.exp(self.logs[0]) * np.eye(len(covariance)))
        half, _ = lapack.dpotri(factor, lower=True)
        full = half + half.T
        np.einsum("ii->i", full)[:] *= 0.5
        return full, 2.0 * float(np.log(np.diagonal(factor)).sum())

    def likelihood(self, rows: Rows, y: Floats) -> tuple[float, Floats]:
        """Return the log marginal likelihood of utilities ``[B, m]``, and its slope in the logs.

        The variance of each output is not assumed, but profiled out.
        """
        lag, near, smooth, rough = self.parts(rows, rows)
        precision, height = self.inverse(near * (SIZE + smooth) + rough)
        count, outputs = y.shape
        solved = precision @ y
        misfit = np.maximum((y * solved).sum(axis=0), np.finfo(float).tiny)
        height = -0.5 * (count * np.log(misfit / count).sum() + outputs * height)
        pull = 0.5 * (count * (solved / misfit) @ solved.T - outputs * precision)
        near, rough = pull * near, pull * rough
        close = near * smooth
        first = [np.trace(pull) * np.exp(self.logs[0]), np.vdot(lag, SIZE * near + close)]
        first += [close.sum(), rough.sum()]
        lambdas, mus = np.exp(self.logs[4:].reshape(2, -1))
        slope = close * smooth / np.exp(self.logs[2])  # 1 / (1 + D) falls by its square
        rates = [-lambdas * _pulls(slope, averaging_weights(rows, self.shares))]
        rates += [-mus * _pulls(rough, rows.astype(np.float64))]
        return float(height), np.concatenate([first, *rates])

    def learned(self, rows: Rows, y: Floats) -> Kernel:
        """Return the kernel that suits utilities ``[B, m]``, by likelihood and priors on logs."""
        n = len(self.shares)
        # rates of a kind have a common level of little known size, and a small spread about it
        spread = np.array([3.0, 1.0, 2.0, 2.0] + [3.0 * n**0.5] * (2 * n))

        def loss(logs: Floats) -> tuple[float, Floats]:
            height, slope = replace(self, logs=logs).likelihood(rows, y)
            away = (logs - self.logs) / spread
            rates = logs[4:].reshape(2, -1)
            within = (rates - rates.mean(axis=1, keepdims=True)) / ALIKE
            slope -= away / spread
            slope[4:] -= within.ravel() / ALIKE
            return 0.5 * ((away**2).sum() + (within**2).sum()) - height, -slope

        bounds = [(-16.0, -1.2), (-1.0, 3.0)] + [(-8.0, 4.0)] * 2
        bounds += [(-7.0, 7.0)] * n + [(-7.0, 3.0)] * n
        options = {"maxiter": STEPS}
        found = minimize(loss, self.logs, jac=True, bounds=bounds, options=options)
        return replace(self, logs=found.x)


def _apart(u: Floats, w: Floats, rates: Floats) -> Floats:
    """Return ``sum_i rates_i (u_i - w_i)^2`` between rows, not below zero by rounding."""
    square: Floats = (u * (-2.0 * rates)) @ w.T
    square += (u**2 @ rates)[:, None]
    square += w**2 @ rates
    return np.maximum(square, 0.0, out=square)


def _pulls(pull: Floats, u: Floats) -> Floats:
    """Return ``sum over a, b of pull[a, b] (u[a, i] - u[b, i])^2``, `pull` symmetric."""
    return np.asarray(2.0 * (pull.sum(axis=1) @ u**2 - (u * (pull @ u)).sum(axis=0)))


class _Fit:
    """A process fitted to numbers ``[B, m]`` of coalitions, and to all but each fold of them.

    A fold of -1 is never left out, one of ``FOLDS`` not fitted; `score` makes utilities ``[B, q]``
    of numbers, and `guess` is what each utility is predicted to be without its fold.
    """

    def __init__(
        self, kernel: Kernel, numbers: Floats, score: Score, rows: Rows, fold: Places
    ) -> None:
        fitted = fold < FOLDS
        self.kernel, self.score, self.rows = kernel, score, rows[fitted]
        precision, _ = kernel.inverse(kernel.between(self.rows, self.rows))
        self.weights = np.repeat((precision @ numbers[fitted])[None], FOLDS + 1, axis=0)
        for k in range(FOLDS):
            here = np.flatnonzero(fold[fitted] == k)
            off = np.linalg.solve(precision[np.ix_(here, here)], self.weights[k, here])
            self.weights[k] -= precision[:, here] @ off
        self.guess = self.mean(rows, np.eye(FOLDS + 1)[fold])

    def mean(self, rows: Rows, shares: Floats) -> Floats:
        """Return utilities ``[C, q]`` predicted without each fold, summed by shares."""
        found = []
        count = len(rows) * len(self.rows) // BLOCK + 1
        blocks = np.array_split(np.arange(len(rows)), count)
        for some, parts in ((rows[block], shares[block]) for block in blocks):
            cross = self.kernel.between(some, self.rows)
            total = np.zeros((len(some), self.score(cross[:1] @ self.weights[0]).shape[1]))
            for weights, part in zip(self.weights, parts.T, strict=True):
                here = np.flatnonzero(part)  # what has no share need not be predicted
                if len(here):
                    total[here] += part[here, None] * self.score(cross[here] @ weights)
            found.append(total)
        return np.concatenate(found)


#: fits with their shares ``[q]`` of what they predict together, pairs, and folds' shares in strata
_Half = tuple[list[tuple[Any, _Fit]], Rows, Floats]


# --- the estimate -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sample:
    """The K pairs that were drawn, with their utilities; behind which there may be outputs."""

    design: PairedDesign
    weights: Floats
    start: Kernel
    sides: Rows  # [K, n]: nobody, then one of each pair
    stratum: Places  # [K], -1 of nobody and everybody
    y: Floats  # [2 K, q], of each side and its complement
    behind: tuple[Floats, Score] | None  # outputs [2 K, m], and what makes y of them

    def estimate(self, shrink: bool, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Return values, standard errors and degrees of freedom, ``[n, q]`` each."""
        design, rows = self.design, _both(self.sides)
        values = coefficients(rows, self.weights).T @ self.y
        sampled = np.flatnonzero(design.taken < design.pairs)
        if len(sampled) == 0:
            return values, np.zeros_like(values), np.full_like(values, np.inf)
        halves = [self._half(side, rng) for side in (0, 1)]
        off = self.y.copy()
        for fits, mine, _ in halves:
            off -= mine.repeat(2)[:, None] * sum(part * fit.guess for part, fit in fits)
        rest = self._parts(rows, off)
        there, taken = design.pairs[sampled, None, None], design.taken[sampled, None, None]
        parts = [rest[self.stratum == s] for s in sampled]
        correction = ((there - taken) * [each.mean(axis=0) for each in parts]).sum(axis=0)
        variances = there * (there - taken) / taken * [_spread(each) for each in parts]
        variance = variances.sum(axis=0)

        predicted, more = self._unseen(halves, sampled, rng)
        values, total, kept = values + predicted, variance + more, _kept(correction, variance)
        if not shrink:
            values += correction
        else:
            values += kept * correction
            # the error of a correction that is shrunk is between this share of it and all
            middle, error = values.mean(axis=0), (1.0 + kept) / 2.0 * total
            values = middle + _kept(values - middle, error) * (values - middle)
        return values, np.sqrt(total), satterthwaite(variances, design.taken[sampled])

    def _half(self, side: int, rng: np.random.Generator) -> _Half:
        """Return what predicts a half, which pairs are in it, and its folds' shares in the strata.

        Pairs of a stratum are in random order: every other one makes a half.
        """
        turn = np.arange(len(self.stratum)) - np.searchsorted(self.stratum, self.stratum)
        mine = (turn % 2 == side) & (self.stratum >= 0)
        order = rng.permutation(len(mine))
        others = order[~mine[order]][: LEARNED_ROWS // 2]
        fold = np.where(mine, turn // 2 % FOLDS, -1)
        fold[order[FITTED_ROWS // 2 :]] = FOLDS
        shares = np.zeros((len(self.design.taken), FOLDS + 1))
        np.add.at(shares, (self.stratum[mine], fold[mine]), 1.0)
        known = 2 * np.sort(others).repeat(2) + np.tile([0, 1], len(others))
        rows, fold = _both(self.sides), fold.repeat(2)
        models = [(part, model) for part, model in self._learned(known) if np.any(part)]
        fits = [(part, _Fit(*model, rows, fold)) for part, model in models]
        return fits, mine, shares / self.design.taken[:, None]

    def _learned(self, known: Places) -> list[tuple[Any, Model]]:
        """Learn from some rows what to fit, utilities and outputs behind them, and their shares."""
        rows = _both(self.sides)
        plain: Model = self.start.learned(rows[known], self.y[known]), self.y, np.asarray
        if self.behind is None:
            return [(1.0, plain)]
        outputs, score = self.behind
        unit = _largest(outputs)
        middle, spread = (outputs / unit)[known].mean(axis=0), (outputs / unit)[known].std(axis=0)
        spread[spread == 0] = 1.0
        centred = (outputs / unit - middle) / spread
        axes = np.linalg.svd(centred[known], full_matrices=False)[2][:COMPONENTS]
        components, basis = centred @ axes.T, axes * spread
        kernel = self.start.learned(rows[known], components[known, :LEADING])
        lifted: Model = kernel, components, lambda z: score((z @ basis + middle) * unit)
        fold = np.arange(len(known)) // 2 % FOLDS

        one, two = (
            _Fit(kernel, numbers[known], score, rows[known], fold).guess
            for kernel, numbers, score in (plain, lifted)
        )
        square = ((two - one) ** 2).sum(axis=0)
        share = ((self.y[known] - one) * (two - one)).sum(axis=0) / np.where(square > 0, square, 1)
        share = np.clip(share, 0.0, 1.0).round(1)  # so few rows tell no more
        return [(1.0 - share, plain), (share, lifted)]

    def _parts(self, rows: Rows, numbers: Floats) -> Floats:
        """Return ``[K, n, q]``: what each pair of coalitions adds to each value."""
        both = coefficients(rows, self.weights)[:, :, None] * numbers[:, None, :]
        return np.asarray(both[0::2] + both[1::2])

    def _unseen(
        self, halves: list[_Half], sampled: Places, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the predicted part of the values over pairs not drawn, and its variance.

        Of very many pairs some stand for all; what is additive is summed in closed form.
        """
        n = self.sides.shape[1]
        large = PairedDesign.for_budget(n, PREDICTED, self.weights)
        # as many more as may be drawn already, so that a pair is left in each stratum
        more = np.minimum(large.pairs, large.taken + self.design.taken).astype(np.int64)
        sides, strata = replace(large, taken=more).draw(rng)
        seen = {side.tobytes() for side in self.sides}
        fresh = np.array([side.tobytes() not in seen for side in sides]) & np.isin(strata, sampled)
        rows, strata = _both(sides[fresh]), strata[fresh]
        predicted = np.sum(
            [
                part * fit.mean(rows, shares[strata.repeat(2)])
                for fits, _, shares in halves
                for part, fit in fits
            ],
            axis=0,
        )
        slopes, values = self._additive(rows, predicted, sampled)
        mine = _both(self.sides[np.isin(self.stratum, sampled)])
        values -= coefficients(mine, self.weights).T @ _features(mine) @ slopes
        parts, variance = self._parts(rows, predicted - _features(rows) @ slopes), 0.0 * values
        for s in sampled:
            some, left = parts[strata == s], self.design.pairs[s] - self.design.taken[s]
            values += left * some.mean(axis=0)
            spread = some.var(axis=0) * len(some) / max(len(some) - 1, 1)
            variance += left * (left - len(some)) / len(some) * spread
        return values, variance

    def _additive(self, rows: Rows, numbers: Floats, sampled: Places) -> tuple[Floats, Floats]:
        """Return the game nearest to numbers that is additive in each size, and its values."""
        n, features, weights = rows.shape[1], _features(rows), self.weights
        slopes = np.linalg.lstsq(features.T @ features, features.T @ numbers, rcond=1e-9)[0]
        values = np.zeros((n, numbers.shape[1]))
        for s in np.unique([sampled + 1, n - 1 - sampled]):
            mean, member = slopes[2 * n + s - 1], slopes[:n] + slopes[n : 2 * n] / s
            others = (member.sum(axis=0) - member) / (n - 1)
            with_i, without = mean + member + (s - 1) * others, mean + s * others
            values += comb(n - 1, s - 1) * weights[s - 1] * with_i
            values -= comb(n - 1, s) * weights[s] * without
        return slopes, values


def _features(rows: Rows) -> Floats:
    """Return what a game is additive in: members, members by size, and the size."""
    size = rows.sum(axis=1, keepdims=True)
    return np.concatenate([rows, rows / size, size == np.arange(1, rows.shape[1])], axis=1)


def _spread(parts: Floats) -> Floats:
    """Return variances over pairs ``[K, n, q]``; the clients' mean one counts as six pairs more."""
    squares = ((parts - parts.mean(axis=0)) ** 2).sum(axis=0)
    pooled = squares.mean(axis=0) / (len(parts) - 1)
    return np.asarray((squares + BORROWED * pooled) / (len(parts) - 1 + BORROWED))


def _kept(estimate: Floats, variance: Floats) -> Floats:
    """Return by how much estimates ``[n, q]`` about 0 are multiplied (James & Stein 1961).

    Of n that add up to a known number n - 1 are free.
    """
    free = len(estimate) - 1
    lost = max(free - 2, 0) / max(free, 1) * variance.sum(axis=0)
    square = (estimate**2).sum(axis=0)
    return np.maximum(1.0 - lost / np.where(square > 0, square, np.inf), 0.0)
