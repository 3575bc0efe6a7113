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

from collections.abc import Callable, Iterator, Sequence
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
from fedkit.games.coalitions import all_coalitions, averaging_weights, coalition_index, ends
from fedkit.games.exact import banzhaf_weights, shapley_weights
from fedkit.games.game import Game
from fedkit.threads import one_thread

__all__ = ["ProxySampling"]

Rows = NDArray[np.bool_]
Places = NDArray[np.int64]
Seen = tuple[Floats, Floats, Floats]  # of coalitions: members, averaging weights, logs of sizes
Score = Callable[[NDArray[np.floating]], Floats]

MOST_PLAYERS = 400  # squares of numbers of coalitions are floats
ENUMERATED = 14  # players up to which a learned game is asked for all coalitions
PREDICTED = 2**14  # coalitions that stand for all of them beyond
LEARNED_ROWS = 300  # utilities by which a kernel is learned at most
FITTED_ROWS = 4096  # and to which it is fitted
STEPS = 25  # of the learning
SIZE = 4.0  # variance of the means of sizes, in units of the utilities': hardly shrunk
ALIKE = 0.5  # spread of the logs of clients' rates about their common level
BORROWED = 6  # pairs as which the clients' mean variance counts
COMPONENTS = 32  # of the outputs behind a utility
LEADING = 8  # of them are what a kernel is learned by
FOLDS = 4  # of each half, left out in turn where outputs are predicted
BLOCK = 2**17  # entries of a kernel at once: what a core's cache holds


@dataclass(frozen=True)
class ProxySampling(Estimator):
    """Regression-adjusted Monte Carlo for the clients of federated rounds, and for any game.

    After Witter, Liu & Musco (2025), with the design of Leverage SHAP (Musco & Witter 2025), a
    Gaussian process on averaging weights in the place of trees, and a correction that is shrunk.

    Parameters
    ----------
    sizes : sequence of float, optional
        Data sizes of the clients, for the averaging weights; None is the game's own, as that of
        ``fk.round_game`` has them (also remembered or normalised), and equal sizes elsewhere.
    value : {"shapley", "banzhaf"} or sequence of n floats
        What is estimated; n numbers are the weights of any semivalue, those of a coalition that is
        joined by its size 0 to n - 1.
    shrink : bool
        Whether the correction is shrunk, and values towards their mean, by as much as their
        estimated variance says.  That is closer on average; without it values are unbiased, up to
        14 players exactly so, beyond up to what a sample of the learned game costs.
    score : callable, optional
        Where the game's utilities are vectors of outputs: a function of ``float[B, m]`` that
        returns what is to be valued, ``float[B]`` or ``[B, q]``.  Outputs are then predicted, and
        what is predicted is scored.  A game of ``fk.round_game`` with the utility "accuracy" is
        asked for its margins, image by image, without being told to: they come with every
        evaluation.

    Notes
    -----
    Shapley values add up to v(N) - v(empty) exactly.  The whole budget is asked for in one batch.
    Standard errors are those of a stratified sample from a finite population with the left-out
    residuals in the place of utilities, not shrunk; degrees of freedom follow Satterthwaite.  A
    game that jumps, as a vote does, may look smooth in a few dozen coalitions: its intervals hold
    too seldom there (``results/testbed.csv`` has how often).
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
        return PairedDesign.minimum(n_players) - (count == "calls")

    def prepare(self, game: Game, budget: int | None) -> tuple[Game, Estimator]:
        """Return the game with all that its evaluations show, and what makes utilities of it.

        Sizes that are not given are the game's own, if it has ``sizes``.
        """
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
        if not isinstance(self.value, str):
            return np.array(self.value)
        return (shapley_weights if self.value == "shapley" else banzhaf_weights)(n_players)

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
        rows = np.concatenate([ends(n_players), _both(sides)])
        seen = yield rows
        utilities = seen if self.score is None else _scored(self.score, seen)
        outputs = utilities.shape[1:]
        y = utilities.reshape(len(utilities), -1)
        middle = (y[0] + y[1]) / 2  # no value sees a constant
        scale = np.abs(y - middle).max(axis=0)
        scale[scale == 0] = 1.0
        y = (y - middle) / scale
        shares = np.ones(n_players) if self.sizes is None else np.array(self.sizes)
        behind, score = None, self.score
        if score is not None:
            behind = seen, lambda z: (_scored(score, z).reshape(len(z), -1) - middle) / scale
        sample = _Sample(design, weights, shares, rows, y, stratum, behind)
        with one_thread(), np.errstate(under="ignore"):
            values, errors, freedom = sample.estimate(self.shrink, rng)
        shape = (n_players, *outputs)
        accumulator.found = (
            (values * scale).reshape(shape),
            (errors * scale).reshape(shape),
            freedom.reshape(shape),
        )


def _scored(score: Score, outputs: Floats) -> Floats:
    made = np.asarray(score(outputs), dtype=np.float64)
    if made.ndim not in (1, 2) or len(made) != len(outputs) or not np.isfinite(made).all():
        raise ValueError(
            f"score made {made.shape} of outputs {outputs.shape}; it takes float[B, m] and returns "
            "finite [B] or [B, q]"
        )
    return made


def _both(sides: Rows) -> Rows:
    """Return each coalition ``[K, n]`` followed by its complement."""
    return np.stack([sides, ~sides], axis=1).reshape(-1, sides.shape[1])


# --- the learned game -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """Covariance of the utilities of two coalitions, in units of their variance.

    ``near (4 + a matern(D) + b gauss(D)) + c exp(-H)``, where `near` falls with the lag between the
    logs of their sizes, ``D = sum_i lambda_i (w_i - w'_i)^2`` is of averaging weights, and
    ``H = sum_i mu_i |x_i - x'_i|`` of members.
    """

    shares: Floats
    logs: Floats  # of the noise, the reach of `near`, a, b, c, n rates lambda and n rates mu

    @classmethod
    def start(cls, shares: Floats) -> Kernel:
        """Return the kernel in which all clients have the same rates."""
        n = len(shares)
        return cls(shares, np.log([1e-3, 5.0, 0.5, 0.5, 0.3, *[6.25] * n, *[0.16] * n]))

    @property
    def noise(self) -> float:
        """Variance of what it does not explain."""
        return float(np.exp(self.logs[0]))

    def seen(self, rows: Rows) -> Seen:
        """Return what it knows of coalitions."""
        sizes = np.log(np.maximum(rows.sum(axis=1), 0.5))
        return rows.astype(np.float64), averaging_weights(rows, self.shares), sizes

    def parts(self, one: Seen, other: Seen) -> tuple[Floats, ...]:
        """Return `near`, ``a matern``, ``b gauss``, the slope of both in D, and ``c exp(-H)``."""
        (x, u, p), (z, w, q) = one, other
        reach, a, b, c = np.exp(self.logs[1:5])
        lambdas, mus = np.exp(self.logs[5:].reshape(2, -1))
        near = np.exp(np.abs(p[:, None] - q) / -reach)
        square = _apart(u, w, lambdas)
        gauss = b * np.exp(-0.5 * square)
        root = np.sqrt(3.0 * square)
        fall = a * np.exp(-root)
        common = c * np.exp(-_apart(x, z, mus))
        return near, (1.0 + root) * fall, gauss, -1.5 * fall - 0.5 * gauss, common

    def between(self, one: Seen, other: Seen) -> Floats:
        """Return the covariances ``[A, B]`` between two sets of coalitions."""
        near, matern, gauss, _, common = self.parts(one, other)
        matern += gauss
        matern += SIZE
        matern *= near
        matern += common
        return matern

    def likelihood(self, seen: Seen, y: Floats) -> tuple[float, Floats]:
        """Return the log marginal likelihood of utilities ``[B, m]``, and its slope in the logs.

        The variance of each output is not assumed, but profiled out.
        """
        x, u, p = seen
        near, matern, gauss, slope, common = self.parts(seen, seen)
        sized = near * (SIZE + matern + gauss)
        precision, height = _inverse(sized + common, self.noise)
        if not len(precision):
            return -1e25, np.zeros_like(self.logs)
        count, outputs = y.shape
        solved = precision @ y
        misfit = np.maximum((y * solved).sum(axis=0), np.finfo(float).tiny)
        height = -0.5 * (count * np.log(misfit / count).sum() + outputs * height)
        pull = 0.5 * (count * (solved / misfit) @ solved.T - outputs * precision)
        close, joint = pull * near, pull * common
        lag = np.abs(p[:, None] - p) * np.exp(-self.logs[1])
        lambdas, mus = np.exp(self.logs[5:].reshape(2, -1))
        first = [np.trace(pull) * self.noise, np.vdot(pull * lag, sized)]
        first += [np.vdot(close, matern), np.vdot(close, gauss), joint.sum()]
        rates = [lambdas * _pulls(close * slope, u), -mus * _pulls(joint, x)]
        return float(height), np.concatenate([first, *rates])

    def learned(self, rows: Rows, y: Floats) -> Kernel:
        """Return the kernel that suits utilities ``[B, m]``, by likelihood and priors on logs."""
        seen, n = self.seen(rows), len(self.shares)
        # rates of a kind have a common level of little known size, and a small spread about it
        spread = np.array([3.0, 1.0, 2.0, 2.0, 2.0] + [3.0 * n**0.5] * (2 * n))

        def loss(logs: Floats) -> tuple[float, Floats]:
            height, slope = replace(self, logs=logs).likelihood(seen, y)
            away = (logs - self.logs) / spread
            rates = logs[5:].reshape(2, -1)
            within = (rates - rates.mean(axis=1, keepdims=True)) / ALIKE
            height -= 0.5 * ((away**2).sum() + (within**2).sum())
            slope = slope - away / spread
            slope[5:] -= within.ravel() / ALIKE
            return -height, -slope

        bounds = [(-16.0, -1.2), (-1.0, 3.0)] + [(-8.0, 4.0)] * 3
        bounds += [(-6.0, 8.0)] * n + [(-7.0, 3.0)] * n
        options = {"maxiter": STEPS}
        found = minimize(
            loss, self.logs, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
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


def _inverse(matrix: Floats, noise: float) -> tuple[Floats, float]:
    """Return the inverse of a symmetric matrix plus noise, and the log of its determinant.

    Where rounding has made it none that is positive the inverse is empty.
    """
    noisy = matrix + noise * np.eye(len(matrix))
    factor, failed = lapack.dpotrf(noisy.T, lower=True, overwrite_a=True, clean=True)
    if failed:
        return np.zeros((0, 0)), 0.0
    logarithm = 2.0 * float(np.log(np.diagonal(factor)).sum())
    half, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    full = half + half.T
    np.einsum("ii->i", full)[:] *= 0.5
    return full, logarithm


class _Fit:
    """A process fitted to numbers of some rows, and without each of their folds.

    Parameters
    ----------
    kernel : Kernel
    rows, inside : bool arrays ``[B, n]`` and ``[B]``
        Coalitions, and those that it is fitted to.
    fold : int array ``[B]``
        -1 for a row that is never left out.
    y, numbers : float64 arrays ``[B, q]`` and ``[B, m]``
        Utilities, and what is fitted in their place.
    score : callable, optional
        What makes utilities of numbers that are none themselves.

    Attributes
    ----------
    left : float64 array ``[B, q]``
        What it is off each utility without the fold of that; 0 where nothing is left out.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: Rows,
        inside: Rows,
        fold: Places,
        y: Floats,
        numbers: Floats,
        score: Score | None = None,
    ) -> None:
        self.kernel, self.seen, self.fold = kernel, kernel.seen(rows[inside]), fold[inside]
        self.score = score
        covariance, noise = kernel.between(self.seen, self.seen), kernel.noise
        self.precision, _ = _inverse(covariance, noise)
        while not len(self.precision):  # rows that the kernel hardly tells apart
            noise *= 10.0
            self.precision, _ = _inverse(covariance, noise)
        self.weights = self.precision @ numbers[inside]
        self.out, off = np.zeros_like(self.weights), np.zeros_like(numbers)
        for k in range(fold.max() + 1):
            here, beyond = np.flatnonzero(self.fold == k), (fold == k) & ~inside
            block = self.precision[np.ix_(here, here)]
            self.out[here] = np.linalg.solve(block, self.weights[here])
            if beyond.any():
                each = [cross @ self.without(k) for cross in self._blocks(rows[beyond])]
                off[beyond] = numbers[beyond] - np.concatenate(each)
        off[inside] = self.out
        self.left = off if score is None else (y - score(numbers - off)) * (fold >= 0)[:, None]

    def without(self, k: int) -> Floats:
        """Return the weights without a fold."""
        here = self.fold == k
        return np.asarray(self.weights - self.precision[:, here] @ self.out[here])

    def mean(self, rows: Rows, shares: Floats) -> Floats:
        """Return the sum of utilities ``[C, q]`` predicted without each fold, by shares."""
        if self.score is None:
            mine = np.where(self.fold >= 0, shares[self.fold], 0.0)[:, None] * self.out
            weights = shares.sum() * self.weights - self.precision @ mine
            return np.concatenate([cross @ weights for cross in self._blocks(rows)])
        folds, score = [(shares[k], self.without(k)) for k in np.flatnonzero(shares)], self.score
        return np.concatenate(
            [sum(share * score(cross @ w) for share, w in folds) for cross in self._blocks(rows)]
        )

    def _blocks(self, rows: Rows) -> Iterator[Floats]:
        """Yield the kernel between rows and those of the fit, some rows at a time."""
        for some in np.array_split(rows, len(rows) * len(self.fold) // BLOCK + 1):
            yield self.kernel.between(self.kernel.seen(some), self.seen)


#: fits, each with its share ``[q]`` of what they predict together
_Blend = list[tuple[Any, _Fit]]


# --- the estimate -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sample:
    """The K pairs that were drawn, with their utilities; behind which there may be outputs."""

    design: PairedDesign
    weights: Floats
    shares: Floats
    rows: Rows  # [2 + 2 K, n]: nobody, everybody, the two sides of each pair
    y: Floats  # [2 + 2 K, q]
    stratum: Places  # [K]
    behind: tuple[Floats, Score] | None  # outputs [2 + 2 K, m], and what makes y of them

    def estimate(self, shrink: bool, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Return values, standard errors and degrees of freedom, ``[n, q]`` each."""
        design, stratum = self.design, self.stratum
        values = coefficients(self.rows, self.weights).T @ self.y
        correction, variance, squares = np.zeros((3, *values.shape))
        sampled = np.flatnonzero(design.taken < design.pairs)
        if len(sampled):
            halves = self._halves(rng)
            left = sum(part * each.left for blend, _ in halves for part, each in blend)
            rest = self._parts(self.rows[2:], left[2:])
            for s in sampled:
                there, taken, mine = design.pairs[s], design.taken[s], rest[stratum == s]
                correction += (there - taken) * mine.mean(axis=0)
                part = there * (there - taken) / taken * _spread(mine)
                variance += part
                squares += part**2 / (taken - 1)

            def predict(rows: Rows, s: int) -> Floats:
                return sum(
                    part * each.mean(rows, shares[:, s])
                    for blend, shares in halves
                    for part, each in blend
                )

            predicted, more = self._unseen(predict, sampled, rng)
            values, total = values + predicted, variance + more
            if shrink:
                kept = _kept(correction, variance)
                values += kept * correction
                # the error of a correction that is shrunk is between this share of it and all
                middle, error = values.mean(axis=0), (1.0 + kept) / 2.0 * total
                values = middle + _kept(values - middle, error) * (values - middle)
            else:
                values += correction
        else:
            total = variance
        freedom = np.divide(
            variance**2, squares, out=np.full_like(variance, np.inf), where=squares > 0
        )
        return values, np.sqrt(total), freedom

    def _halves(self, rng: np.random.Generator) -> list[tuple[_Blend, Floats]]:
        """Return of each half what predicts it, and the shares of its folds in the strata.

        Pairs of a stratum are in random order: every other one makes a half.
        """
        pairs = len(self.stratum)
        turn = np.arange(pairs) - np.searchsorted(self.stratum, self.stratum)
        fitted = rng.permutation(pairs) < FITTED_ROWS // 2
        found = []
        for side in (0, 1):
            mine = turn % 2 == side
            some = rng.permutation(np.flatnonzero(~mine & fitted))[: LEARNED_ROWS // 2]
            make = self._learned(np.sort(some))
            fold = turn // 2 % FOLDS
            if self.behind is None:  # pair by pair; those that are not fitted to make one fold
                fold = np.where(fitted, np.cumsum(mine & fitted) - 1, (mine & fitted).sum())
            fold = np.where(mine, fold, -1)
            shares = np.zeros((fold.max() + 1, len(self.design.taken)))
            np.add.at(shares, (fold[mine], self.stratum[mine]), 1.0)
            found.append((make(fold, fitted), shares / self.design.taken))
        return found

    def _learned(self, some: Places) -> Callable[[Places, Rows], _Blend]:
        """Learn kernels by some pairs; return what fits them to others, with folds of pairs."""
        rows, y, start = self.rows, self.y, Kernel.start(self.shares)
        known = np.concatenate([[0, 1], (2 + 2 * some[:, None] + np.arange(2)).ravel()])
        kernels = [start.learned(rows[known], y[known])]
        numbers: list[tuple[Floats, Score | None]] = [(y, None)]
        if self.behind is not None:
            outputs, score = self.behind
            middle, spread = outputs[known].mean(axis=0), outputs[known].std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            centred = (outputs - middle) / spread
            basis = np.linalg.svd(centred[known], full_matrices=False)[2][:COMPONENTS]
            components = centred @ basis.T
            kernels.append(start.learned(rows[known], components[known, :LEADING]))
            numbers.append((components, lambda z: score(z @ (basis * spread) + middle)))

        def fits(fold: Places, fitted: Rows) -> list[_Fit]:
            inside = np.concatenate([[True, True], np.repeat(fitted, 2)])
            fold = np.concatenate([[-1, -1], np.repeat(fold, 2)])
            return [
                _Fit(kernel, rows, inside, fold, y, *each)
                for kernel, each in zip(kernels, numbers, strict=True)
            ]

        if self.behind is None:
            return lambda fold, fitted: [(1.0, each) for each in fits(fold, fitted)]
        # these pairs alone tell the share that serves best, each left out in its turn
        fold = np.full(len(self.stratum), -1)
        fold[some] = np.arange(len(some)) % (2 * FOLDS)
        plain, lifted = (each.left for each in fits(fold, fold >= 0))
        square = ((plain - lifted) ** 2).sum(axis=0)
        share = (plain * (plain - lifted)).sum(axis=0) / np.where(square > 0, square, 1.0)
        share = np.clip(share, 0.0, 1.0)
        return lambda fold, fitted: list(zip((1.0 - share, share), fits(fold, fitted), strict=True))

    def _parts(self, rows: Rows, numbers: Floats) -> Floats:
        """Return ``[K, n, q]``: what each pair of coalitions adds to each value."""
        both = coefficients(rows, self.weights)[:, :, None] * numbers[:, None, :]
        return np.asarray(both[0::2] + both[1::2])

    def _unseen(
        self, predict: Callable[[Rows, int], Floats], sampled: Places, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the predicted part of the values over pairs not drawn, and its variance."""
        n, q = self.rows.shape[1], self.y.shape[1]
        values, variance = np.zeros((2, n, q))
        if n <= ENUMERATED:
            everybody = all_coalitions(n)
            unseen = np.ones(len(everybody), dtype=np.bool_)
            unseen[coalition_index(self.rows)] = False
            size = everybody.sum(axis=1)
            for s in sampled:
                some = everybody[unseen & (np.minimum(size, n - size) == s + 1)]
                values += coefficients(some, self.weights).T @ predict(some, s)
            return values, variance
        large = PairedDesign.for_budget(n, PREDICTED, self.weights)
        sides, strata = large.draw(rng)
        drawn = [_both(sides[strata == s]) for s in sampled]
        predicted = [predict(rows, s) for rows, s in zip(drawn, sampled, strict=True)]
        additive, values = self._additive(np.concatenate(drawn), np.concatenate(predicted), sampled)
        for s, rows, numbers in zip(sampled, drawn, predicted, strict=True):
            there, taken = large.pairs[s], large.taken[s]
            parts = self._parts(rows, numbers - additive(rows))
            values += there * parts.mean(axis=0)
            variance += there * (there - taken) / taken * parts.var(axis=0, ddof=1)
            seen = self.rows[2:][np.repeat(self.stratum == s, 2)]
            values -= coefficients(seen, self.weights).T @ predict(seen, s)
        return values, variance

    def _additive(
        self, rows: Rows, numbers: Floats, sampled: Places
    ) -> tuple[Callable[[Rows], Floats], Floats]:
        """Return the additive game of each size nearest to numbers, and its part of the values.

        A member adds ``b_i + c_i / s`` to a coalition of s players, beside the mean of its size:
        what is sampled is only what is left.
        """
        n = rows.shape[1]

        def features(rows: Rows) -> tuple[Floats, NDArray[np.int64]]:
            size = rows.sum(axis=1)
            member = rows - (size / n)[:, None]
            return np.concatenate([member, member / size[:, None]], axis=1), size

        x, size = features(rows)
        here = [(s, np.flatnonzero(size == s)) for s in np.unique(size)]
        centred, rest = x.copy(), numbers.copy()
        for _, some in here:  # what is alike for all of a size is not the members' to explain
            centred[some] -= x[some].mean(axis=0)
            rest[some] -= numbers[some].mean(axis=0)
        slopes = np.linalg.lstsq(centred.T @ centred, centred.T @ rest, rcond=1e-9)[0]
        means = np.zeros((n + 1, numbers.shape[1]))
        for s, some in here:
            means[s] = (numbers[some] - x[some] @ slopes).mean(axis=0)
        values = np.zeros((n, numbers.shape[1]))
        for s in np.unique([sampled + 1, n - 1 - sampled]):
            b = slopes[:n] + slopes[n:] / s
            b = b - b.mean(axis=0)
            with_i = means[s] + b * (n - s) / (n - 1)  # means over coalitions of s players
            without = means[s] - b * s / (n - 1)
            values += comb(n - 1, s - 1) * self.weights[s - 1] * with_i
            values -= comb(n - 1, s) * self.weights[s] * without

        def additive(rows: Rows) -> Floats:
            x, size = features(rows)
            return np.asarray(x @ slopes + means[size])

        return additive, values


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
