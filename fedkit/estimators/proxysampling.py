"""Regression with a correction: a proxy game's exact values, plus what the proxy gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import choice, function, vector
from fedkit.estimators.accumulators import FinishedAccumulator
from fedkit.estimators.design import PairedDesign, coefficients
from fedkit.estimators.driver import Budget, Count, Estimator, Floats, Requests
from fedkit.estimators.lifted import FOLDS, Blend, Lifted, Plain, Score
from fedkit.estimators.proxies import CHOICE_ROWS, FAMILIES, Fit, choose, fit
from fedkit.games.coalitions import all_coalitions, coalition_index, ends
from fedkit.games.exact import banzhaf_weights, shapley_weights
from fedkit.games.game import Game
from fedkit.threads import one_thread

__all__ = ["ProxySampling"]

ENUMERATED = 16  # players up to which a proxy is asked for all coalitions
WORTH_IT = 20  # the same where a sample of them would be felt
DOUBLE = 12  # players up to which proxies predict in double precision
PROXY_ROWS = 2**16  # coalitions that stand for all of them beyond
PILOT_ROWS = 2**12  # coalitions that tell how far these would be off
FEWEST_PAIRS = 8  # of a stratum that is looked at beside what is additive
PER_PLAYER = 6  # pairs of a stratum for each player that tell what each adds at this size
FELT = 0.05  # share of the variance, which a pilot overstates threefold: 1 % of the standard error
TOGETHER = 12  # players up to which every proxy predicts every coalition
CROWDED = 8  # so many coalitions not drawn for one that was, and one proxy will do for each
BLOCK_ENTRIES = 2**17  # of a kernel that is held at once: what a core's cache holds
FITTED_ROWS = 4096  # coalitions that a proxy is fitted to at most
SMALL_ROWS = 1024  # coalitions up to which a second thread costs more than it does
MOST_PLAYERS = 400  # squares of numbers of coalitions are floats


#: what proxies say of coalitions of a stratum: the mean over its pairs of what left them out
_Predict = Callable[[NDArray[np.bool_], int], Floats]


@dataclass(frozen=True)
class ProxySampling(Estimator):
    """Regression-adjusted Monte Carlo (Witter, Liu & Musco 2025), cross-fitted, with proxies
    that know what a federated round is.

    Complementary pairs of coalitions are drawn without replacement, stratified by size (the
    design of Leverage SHAP, Musco & Witter 2025).  A proxy game is fitted to their utilities,
    its values are computed exactly, and the Horvitz-Thompson estimate of the residual's values
    is added, so that a bad proxy costs precision and never accuracy.

    Parameters
    ----------
    proxy : {"auto", "round", "membership", "linear", "mixture"}
        ``"round"``: a Gaussian process on the averaging weights of a coalition, for the clients
        of a federated round.  ``"linear"``: client effects with a ridge, as Kernel SHAP and
        kernel Banzhaf (Liu et al. 2024) have, but corrected.  ``"membership"``: interactions of
        all orders, damped, for any game.  ``"mixture"``: the sum of "round" and "membership",
        with a rate for each client that is learned.  ``"auto"`` lets cross-validation choose.
    sizes : sequence of float, optional
        Data sizes of the clients, for the averaging weights; None is the game's own, as that of
        ``fk.round_game`` has them (also remembered or normalised), and equal sizes elsewhere.
    value : {"shapley", "banzhaf"}
        What is estimated.
    score : callable, optional
        Where the game's utilities are vectors of outputs: a function of ``float[B, m]`` that
        returns what is to be valued, ``float[B]`` or ``[B, q]``.  The proxy then predicts outputs
        and scores what it predicts.  The game of ``fk.round_game`` with the utility "accuracy" is
        asked for its margins, image by image, without being told to: they come with every
        evaluation.  What wraps a game shows its utilities alone.

    Notes
    -----
    The residual of a pair is taken from a proxy fitted without the pair (in closed form), whose
    kernel was chosen by the other half of the sample.  Given everything else a pair is uniform
    among those of its stratum that were not drawn, so the estimate is unbiased at any budget and
    for any proxy.  Shapley values add up to v(N) - v(empty) exactly.

    Standard errors are those of a stratified sample from a finite population, with the
    left-out residuals in the place of utilities; their degrees of freedom follow Satterthwaite.
    That is an approximation, for the fits that leave out a pair differ and are correlated;
    ``benchmarks/coverage.py`` counts how often its intervals hold: too seldom where a game jumps,
    as a vote does, and the budget is near the smallest.  The same holds above it while few pairs
    are drawn of a size and residuals take two or three values, which a few pairs may not show
    (about 70 % of 95 % intervals in votes of five at 16 of 32 coalitions).

    Up to 16 players the proxy's values are exact.  Beyond, they come from a larger sample of the
    proxy itself, beside what is additive in it, which is summed in closed form; the error is part
    of the standard error.  Where that would add more than 1 % to it, because the proxy knows the
    game well, they are exact up to 20 players (not with a score, nor by margins).  The whole
    budget is asked for in one batch.
    """

    proxy: Literal["auto", "round", "membership", "linear", "mixture"] = "auto"
    sizes: Sequence[float] | None = None
    value: Literal["shapley", "banzhaf"] = "shapley"
    score: Score | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.score is not None:
            function("score", self.score)
        choice("proxy", self.proxy, ("auto", *FAMILIES))
        choice("value", self.value, ("shapley", "banzhaf"))
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
        if self.sizes is not None and len(self.sizes) != n_players:
            raise ValueError(
                f"there are {len(self.sizes)} sizes for {n_players} players; pass one per player"
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
        """Weights of the semivalue; None where it is none, or outputs are scored first."""
        return self._weights(n_players) if self.score is None else None

    def _weights(self, n_players: int) -> Floats:
        rule = shapley_weights if self.value == "shapley" else banzhaf_weights
        return rule(n_players)

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
        families = FAMILIES if self.proxy == "auto" else (self.proxy,)
        shares = np.ones(n_players) if self.sizes is None else np.array(self.sizes)
        outputs = utilities.shape[1:]
        y = utilities.reshape(len(utilities), -1)
        # no value sees a constant, and none is sampled in this one; scores are predicted whole
        middle = (y[0] + y[1]) / 2 if self.score is None else 0.0
        sample = _Sample(
            design,
            weights,
            rows,
            y - middle,
            stratum,
            # pairs of a stratum are in random order: every other one makes a half
            np.arange(len(stratum)) - np.searchsorted(stratum, stratum),
            None if self.score is None else (seen, self.score),
        )
        small = one_thread() if len(rows) <= SMALL_ROWS else nullcontext()
        with small, np.errstate(under="ignore"):  # of kernels between unlike coalitions
            *found, accumulator.info["proxies"] = _estimate(sample, families, shares, rng)
        values, variance, freedom = (each.reshape(len(each), *outputs) for each in found)
        accumulator.found = values, np.sqrt(variance), freedom


def _scored(score: Score, outputs: Floats) -> Floats:
    made = np.asarray(score(outputs), dtype=np.float64)
    if made.ndim not in (1, 2) or len(made) != len(outputs) or not np.isfinite(made).all():
        raise ValueError(
            f"score made {made.shape} of outputs {outputs.shape}; it takes float[B, m] and returns "
            "finite [B] or [B, q]"
        )
    return made


def _both(sides: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return each coalition ``[K, n]`` followed by its complement."""
    return np.stack([sides, ~sides], axis=1).reshape(-1, sides.shape[1])


@dataclass(frozen=True, eq=False)
class _Sample:
    """The K pairs that were drawn, with their utilities."""

    design: PairedDesign
    weights: Floats
    rows: NDArray[np.bool_]  # [2 + 2 K, n]: nobody, everybody, the two sides of each pair
    utilities: Floats  # [2 + 2 K, m]
    stratum: NDArray[np.int64]  # [K]
    turn: NDArray[np.int64]  # [K], place within the stratum
    lift: tuple[Floats, Score] | None = None  # outputs, and what makes utilities of them

    @property
    def half(self) -> NDArray[np.int64]:
        """The half of the sample to which each pair belongs."""
        return self.turn % 2

    def fitted(
        self, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
        """Draw the pairs that proxies are fitted to; return them, their rows, and rows' places."""
        pairs = np.zeros(len(self.turn), dtype=np.bool_)
        pairs[rng.permutation(len(pairs))[: FITTED_ROWS // 2]] = True
        rows = np.concatenate([[True, True], np.repeat(pairs, 2)])
        return pairs, rows, np.cumsum(rows) - 1

    @property
    def columns(self) -> int:
        """How many numbers a coalition takes where it is predicted."""
        return max(min(len(self.rows), FITTED_ROWS), coefficients(self.rows[:1], self.weights).size)

    def parts(self, numbers: Floats) -> Floats:
        """Return ``[K, n, m]``: what each pair's two coalitions ``[2 K, m]`` add to each value."""
        return _parts(coefficients(self.rows[2:], self.weights), numbers)


def _parts(a: Floats, numbers: Floats) -> Floats:
    both: Floats = a[:, :, None] * numbers[:, None, :]
    return both[0::2] + both[1::2]


def _estimate(
    sample: _Sample, families: Sequence[str], shares: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, list[str]]:
    """Return values, variances and degrees of freedom ``[n, m]``, and the names of the proxies."""
    design, y, weights = sample.design, sample.utilities, sample.weights
    values = sample.parts(y[2:]).sum(axis=0) + coefficients(sample.rows[:2], weights).T @ y[:2]
    variance, squares = np.zeros_like(values), np.zeros_like(values)
    names: list[str] = []
    sampled = np.flatnonzero(design.taken < design.pairs)
    if len(sampled):
        make = _cross_fit if sample.lift is None else _cross_lift
        residuals, names, predict = make(sample, families, shares, rng)
        rest = sample.parts(residuals)
        for s in sampled:
            mine, there, taken = rest[sample.stratum == s], design.pairs[s], design.taken[s]
            values += (there - taken) * mine.mean(axis=0)
            part = there * (there - taken) * _spread(mine) / taken
            variance += part
            squares += part**2 / (taken - 1)
        predicted, more = _unknown(sample, predict, rng, variance)
        values, variance = values + predicted, variance + more
    freedom = np.divide(variance**2, squares, out=np.full_like(variance, np.inf), where=squares > 0)
    return values, variance, freedom, names


def _spread(parts: Floats) -> Floats:
    """Variance over pairs ``[K, n, m]``, pooled as one pair more: two alike say nothing."""
    squares = ((parts - parts.mean(axis=0)) ** 2).sum(axis=0)
    pooled = squares.mean(axis=0) / (len(parts) - 1)
    return np.asarray((squares + pooled) / len(parts))


def _cross_fit(
    sample: _Sample, families: Sequence[str], shares: Floats, rng: np.random.Generator
) -> tuple[Floats, list[str], _Predict]:
    """Fit a proxy for each half, chosen by the other, and leave each pair out of its own.

    Returns residuals ``[2 K, m]`` by what has not seen a pair, the families, and what they predict.
    """
    rows, y, design = sample.rows, sample.utilities, sample.design
    outputs = y.shape[1]
    fitted, inside, place = sample.fitted(rng)
    residuals = np.empty((len(rows) - 2, outputs))
    means: list[tuple[Fit, Floats]] = []
    for side in (0, 1):
        pool = 2 + np.flatnonzero(np.repeat(sample.half != side, 2))
        pool = rng.permutation(pool)[:CHOICE_ROWS]
        seen = np.concatenate([[0, 1], np.sort(pool)])
        proxy = choose(families, shares, rows[seen], y[seen])
        if means and means[0][0].proxy == proxy:
            found, weights = means[0]
        else:
            found = fit(proxy, rows[inside], y[inside])
            weights = np.zeros((len(design.taken), int(inside.sum()), outputs))
            means.append((found, weights))
        mine = sample.half == side
        for s in np.flatnonzero(design.taken < design.pairs):
            here = mine & (sample.stratum == s)
            weights[s] += here.sum() / design.taken[s] * found.weights
            groups = 2 + 2 * np.flatnonzero(here & fitted)[:, None] + np.arange(2)
            out = found.left_out(place[groups])
            residuals[groups - 2] = out
            left = found.precision[:, place[groups].ravel()] @ out.reshape(-1, outputs)
            weights[s] -= left / design.taken[s]
        others = 2 + np.flatnonzero(np.repeat(mine & ~fitted, 2))
        for block in _blocks(others, len(found.weights)):
            guess = proxy.kernel(rows[block], rows[inside]) @ found.weights
            residuals[block - 2] = y[block] - guess
    kept = rows[inside]
    single = rows.shape[1] > DOUBLE and _fine_enough(means, kept, residuals)

    def predict(coalitions: NDArray[np.bool_], stratum: int) -> Floats:
        result = np.zeros((len(coalitions), outputs))
        for block in _blocks(np.arange(len(coalitions)), sample.columns):
            for each, w in means:
                result[block] += each.proxy.kernel(coalitions[block], kept, single) @ w[stratum]
        return result

    return residuals, [each.proxy.family for each, _ in means], predict


def _fine_enough(
    means: list[tuple[Fit, Floats]], rows: NDArray[np.bool_], residuals: Floats
) -> bool:
    """Whether single precision changes predictions by less than a tenth of the mean's error.

    Where a proxy leaves next to nothing, its weights are large and of both signs, and rounding
    would be a bias: residuals are of double precision.
    """
    some = rows[:: max(1, len(rows) // 64)]
    gap = sum(
        (each.proxy.kernel(some, rows, True) - each.proxy.kernel(some, rows)) @ weights.mean(axis=0)
        for each, weights in means
    )
    allowed = 0.1 * residuals.std(axis=0) / np.sqrt(len(residuals))
    return bool((np.abs(gap).max(axis=0) <= allowed).all())


def _cross_lift(
    sample: _Sample, families: Sequence[str], shares: Floats, rng: np.random.Generator
) -> tuple[Floats, list[str], _Predict]:
    """The same with proxies of the outputs, of which whole folds of pairs are left out.

    The score of a prediction is not linear, so that leaving out pair by pair would need a
    prediction of every coalition for every pair.  Where many coalitions stand for each one drawn,
    each is predicted by one of the proxies, by lot and in their shares of the mean: the estimate
    stays unbiased, and the lot adds little to an error that comes from the few.
    """
    assert sample.lift is not None
    (outputs, score), rows, y, design = sample.lift, sample.rows, sample.utilities, sample.design
    taken = design.taken
    fitted, inside, place = sample.fitted(rng)
    fold = sample.turn % (2 * FOLDS)  # every other one is of the same half
    residuals = np.empty((len(rows) - 2, y.shape[1]))
    halves: list[tuple[Blend, Floats]] = []
    effect = np.sqrt(design.pairs * (design.pairs - taken)) / taken  # of a pair on the error

    def cost(places: NDArray[np.int64], predictions: Floats) -> Floats:
        these = np.flatnonzero(inside)[places]
        parts = _parts(coefficients(rows[these], sample.weights), y[these] - predictions)
        return effect[sample.stratum[(these[::2] - 2) // 2], None, None] * parts

    # what predicts the number needs no rates of its own beside what predicts outputs: to learn them
    # takes a fifth of the time among many players (errors of recorded rounds hardly change)
    simple = families
    if rows.shape[1] > TOGETHER and len(families) > 1:
        simple = [family for family in families if family != "mixture"]
    for side in (0, 1):
        pool = np.flatnonzero((sample.half != side) & fitted)
        pool = np.sort(rng.permutation(pool)[: CHOICE_ROWS // 2])
        seen = np.concatenate([[0, 1], _rows(pool)])
        behind = Lifted.choose(families, shares, rows[seen], outputs[seen], score)
        plain = Plain.choose(simple, shares, rows[seen], y[seen])
        members = [_rows(np.flatnonzero(fold == k)) for k in range(side, 2 * FOLDS, 2)]
        left = [place[group[inside[group]]] for group in members]
        data = rows[inside], outputs[inside], y[inside], left
        found = Blend.choose(behind(*data), plain(*data), left, cost)
        counts = np.zeros((FOLDS, len(taken)))
        for k, group in enumerate(members):
            for block in _blocks(group, int(inside.sum())):
                residuals[block - 2] = y[block] - found.predict(rows[block], k)
            np.add.at(counts[k], sample.stratum[fold == 2 * k + side], 1.0)
        halves.append((found, counts / taken))

    def predict(coalitions: NDArray[np.bool_], stratum: int) -> Floats:
        result = np.zeros((len(coalitions), y.shape[1]))
        if rows.shape[1] <= TOGETHER or len(coalitions) < CROWDED * 2 * taken[stratum]:
            for block in _blocks(np.arange(len(coalitions)), sample.columns):
                for found, each in halves:
                    result[block] += found.mean(coalitions[block], each[:, [stratum]])
            return result
        shares = np.concatenate([each[:, stratum] for _, each in halves])
        # a random start makes the numbers of coalitions right on average
        cuts = np.cumsum(shares[:-1]) * len(coalitions) + rng.random()
        dealt = np.split(rng.permutation(len(coalitions)), cuts.astype(np.int64))
        for k, places in enumerate(dealt):
            for block in _blocks(places, sample.columns):
                result[block] = halves[k // FOLDS][0].predict(coalitions[block], k % FOLDS)
        return result

    return residuals, [found.name for found, _ in halves], predict


def _rows(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of pairs: nobody and everybody come before them."""
    return (2 + 2 * pairs[:, None] + np.arange(2)).ravel()


def _blocks(places: NDArray[np.int64], columns: int) -> list[NDArray[np.int64]]:
    """Cut row numbers so that a kernel with so many columns stays small."""
    step = max(BLOCK_ENTRIES // columns, 1)
    return [places[start : start + step] for start in range(0, len(places), step)]


def _unknown(
    sample: _Sample, predict: _Predict, rng: np.random.Generator, rest: Floats
) -> tuple[Floats, Floats]:
    """Return the proxies' part of the values over coalitions not drawn, and its variance.

    `rest` is the variance of what the proxies leave.
    """
    n = sample.rows.shape[1]
    if n > ENUMERATED and (n > WORTH_IT or sample.lift is not None):
        return _unknown_sampled(sample, predict, rng, PROXY_ROWS)
    if n > ENUMERATED:  # a sample of its own decides, so that the estimate stays unbiased
        pilot = _unknown_sampled(sample, predict, rng, PILOT_ROWS)[1] * PILOT_ROWS / PROXY_ROWS
        if (pilot.sum(axis=0) <= FELT * rest.sum(axis=0)).all():
            return _unknown_sampled(sample, predict, rng, PROXY_ROWS)
    design, rows, weights = sample.design, sample.rows, sample.weights
    targets = coefficients(rows[:1], weights).shape[1]
    values = np.zeros((targets, sample.utilities.shape[1]))
    everybody = all_coalitions(n)
    unknown = np.ones(len(everybody), dtype=np.bool_)
    unknown[coalition_index(rows)] = False
    size = everybody.sum(axis=1)
    strata = np.minimum(size, n - size) - 1
    for s in np.flatnonzero(design.taken < design.pairs):
        some = everybody[unknown & (strata == s)]
        predicted = predict(some, s)
        for block in _blocks(np.arange(len(some)), sample.columns):
            values += coefficients(some[block], weights).T @ predicted[block]
    return values, np.zeros_like(values)


def _unknown_sampled(
    sample: _Sample, predict: _Predict, rng: np.random.Generator, total: int
) -> tuple[Floats, Floats]:
    """The same from so many coalitions."""
    design, rows, weights = sample.design, sample.rows, sample.weights
    n, outputs = rows.shape[1], sample.utilities.shape[1]
    values, variance = np.zeros((2, coefficients(rows[:1], weights).shape[1], outputs))
    large = PairedDesign.for_budget(n, total, weights)
    sides, strata = large.draw(rng)
    drawn: list[tuple[int, NDArray[np.bool_], Floats]] = []
    for s in np.flatnonzero(design.taken < design.pairs):
        these = _both(sides[strata == s])
        drawn.append((s, these, predict(these, s)))
    slopes = _common_slopes([part[1:] for part in drawn])
    for s, these, predicted in drawn:
        there, taken = large.pairs[s], large.taken[s]
        if FEWEST_PAIRS <= taken < there:
            everything, parts = _beside_additive(these, weights, predicted, there, slopes)
            values += everything
        else:
            parts = _parts(coefficients(these, weights), predicted)
            values += there / taken * parts.sum(axis=0)
        variance += there * (there - taken) / taken * parts.var(axis=0, ddof=1)
        known = _both(rows[2::2][sample.stratum == s])
        values -= _parts(coefficients(known, weights), predict(known, s)).sum(axis=0)
    return values, variance


def _halves(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Two halves ``[2, 2 K]`` of the pairs of a stratum, which are in random order."""
    second = np.repeat(np.arange(len(rows) // 2) % 2 == 1, 2)
    return np.stack([~second, second])


def _slope_equations(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Normal equations of y on x, and a constant that stands beside them."""
    x = x - x.mean(axis=0)
    return x.T @ x, x.T @ (y - y.mean(axis=0))


def _solved(equations: tuple[Floats, Floats]) -> Floats:
    """Slopes ``[n, m]`` of least norm: they are known up to a constant, which changes nothing."""
    return np.asarray(np.linalg.lstsq(*equations, rcond=1e-9)[0])


def _common_slopes(strata: list[tuple[NDArray[np.bool_], Floats]]) -> list[Floats]:
    """What each client adds to predictions ``[n, m]`` at any size, by each half of the pairs."""
    (rows, predicted), found = strata[0], []
    for k in (0, 1):
        left, right = np.zeros((rows.shape[1],) * 2), np.zeros((rows.shape[1], predicted.shape[1]))
        for rows, predicted in strata:
            sizes = rows.sum(axis=1)
            for size in np.unique(sizes):
                here = _halves(rows)[k] & (sizes == size)
                more = _slope_equations(rows[here] - size / rows.shape[1], predicted[here])
                left, right = left + more[0], right + more[1]
        found.append(_solved((left, right)))
    return found


def _beside_additive(
    rows: NDArray[np.bool_], weights: Floats, predicted: Floats, there: float, common: list[Floats]
) -> tuple[Floats, Floats]:
    """Sum parts of values ``[n, m]`` over all `there` pairs of a stratum, of which `rows` are some.

    What is additive in the predictions is summed in closed form, the rest as the sample has it.
    The additive part of one half of the pairs is taken off the other, of which a half is a sample
    of the pairs that the first does not have: the sum is unbiased.  Returns also what is left of
    each pair's parts ``[K, n, m]``.
    """
    a, sizes = coefficients(rows, weights), rows.sum(axis=1)
    n, outputs, pairs = rows.shape[1], predicted.shape[1], len(rows) // 2
    total, rest = np.zeros((n, outputs)), np.zeros((pairs, n, outputs))
    for seen, slopes in zip(_halves(rows), common, strict=True):
        left = predicted.copy()
        for size in np.unique(sizes):
            here, share = sizes == size, size / n
            x, y = rows[here & seen] - share, predicted[here & seen]
            if pairs >= PER_PLAYER * n:
                own = _solved(_slope_equations(x, y))
            else:  # too few pairs for slopes of their own, but not for how steep they are
                line = (x - x.mean(axis=0)) @ slopes
                along = (line * (y - y.mean(axis=0))).sum(axis=0)
                own = slopes * along / np.maximum((line**2).sum(axis=0), np.finfo(float).tiny)
            mean = y.mean(axis=0) - x.mean(axis=0) @ own  # over all coalitions of this size
            left[here] -= mean + (rows[here] - share) @ own
            inside, outside = weights[size - 1], -weights[size]
            others = (own.sum(axis=0) - own) / (n - 1)
            alike = mean * (inside * share + outside * (1 - share))
            count = there * (1 + (2 * size == n))
            total += count * (alike + share * (1 - share) * (inside - outside) * (own - others))
        parts, mine = _parts(a, left), seen[::2]
        rest[~mine] = parts[~mine]
        total += parts[mine].sum(axis=0) + (there - mine.sum()) * parts[~mine].mean(axis=0)
    return total / 2, rest
