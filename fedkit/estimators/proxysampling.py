"""Regression with a correction: a proxy game's exact values, plus what the proxy gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import choice, vector
from fedkit.estimators.base import Budget, Count, Estimator, Floats, Requests
from fedkit.estimators.design import PairedDesign, coefficients
from fedkit.estimators.proxies import CHOICE_ROWS, FAMILIES, Fit, choose, fit
from fedkit.games.coalitions import all_coalitions, coalition_index
from fedkit.games.exact import banzhaf_weights, shapley_weights

__all__ = ["ProxySampling"]

ENUMERATED = 20  # players up to which a proxy is asked for all coalitions
PROXY_ROWS = 2**16  # coalitions that stand for all of them beyond
BLOCK_ENTRIES = 2**17  # of a kernel that is held at once: what a core's cache holds
FITTED_ROWS = 4096  # coalitions that a proxy is fitted to at most


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
        Data sizes of the clients, for the averaging weights; None is equal sizes.
    value : {"shapley", "banzhaf"}
        What is estimated.

    Notes
    -----
    The residual of a pair is taken from a proxy fitted without the pair (in closed form), whose
    kernel was chosen by the other half of the sample.  Given everything else a pair is uniform
    among those of its stratum that were not drawn, so the estimate is unbiased at any budget and
    for any proxy.  Shapley values add up to v(N) - v(empty) exactly.

    Standard errors are those of a stratified sample from a finite population, with the
    left-out residuals in the place of utilities; their degrees of freedom follow Satterthwaite.

    Up to 20 players the proxy's values are exact; beyond, they come from a larger sample of the
    proxy itself, whose error is part of the standard error.  The whole budget is asked for in
    one batch.
    """

    proxy: Literal["auto", "round", "membership", "linear", "mixture"] = "auto"
    sizes: Sequence[float] | None = None
    value: Literal["shapley", "banzhaf"] = "shapley"

    def __post_init__(self) -> None:
        choice("proxy", self.proxy, ("auto", *FAMILIES))
        choice("value", self.value, ("shapley", "banzhaf"))
        if self.sizes is not None:
            sizes = vector("sizes", self.sizes)
            if (sizes < 0).any():
                raise ValueError(f"sizes is {self.sizes!r}; expected numbers of at least 0")
            object.__setattr__(self, "sizes", tuple(sizes.tolist()))

    def minimum(self, n_players: int, count: Count) -> int:
        """Two pairs of each size, nobody and everybody."""
        if self.sizes is not None and len(self.sizes) != n_players:
            raise ValueError(
                f"there are {len(self.sizes)} sizes for {n_players} players; pass one per player"
            )
        return PairedDesign.minimum(n_players) - (count == "calls")

    def weights(self, n_players: int) -> Floats:
        """Weights of the semivalue."""
        rule = shapley_weights if self.value == "shapley" else banzhaf_weights
        return rule(n_players)

    def accumulator(self, n_players: int) -> ProxyAccumulator:
        """Return an empty accumulator."""
        return ProxyAccumulator()

    def sample(
        self,
        n_players: int,
        rng: np.random.Generator,
        accumulator: ProxyAccumulator,
        budget: Budget,
    ) -> Requests:
        """Ask for the whole sample, then fit and correct."""
        weights = self.weights(n_players)
        total = budget.remaining + (budget.count == "calls")  # the empty coalition is free there
        design = PairedDesign.for_budget(n_players, total, weights)
        sides, stratum = design.draw(rng)
        pairs = np.stack([sides, ~sides], axis=1).reshape(-1, n_players)
        ends = np.zeros((2, n_players), dtype=np.bool_)
        ends[1] = True
        utilities = yield np.concatenate([ends, pairs])
        families = FAMILIES if self.proxy == "auto" else (self.proxy,)
        shares = np.ones(n_players) if self.sizes is None else np.array(self.sizes)
        outputs = utilities.shape[1:]
        y = utilities.reshape(len(utilities), -1)
        sample = _Sample(
            design,
            weights,
            np.concatenate([ends, pairs]),
            y - (y[0] + y[1]) / 2,  # a semivalue does not see it, and no sampled utility is in it
            stratum,
            # pairs of a stratum are in random order: every other one makes a half
            (np.arange(len(stratum)) - np.searchsorted(stratum, stratum)) % 2,
        )
        values, variance, freedom, names = _estimate(sample, families, shares, rng)
        shape = (n_players, *outputs)
        accumulator.record(
            values.reshape(shape), variance.reshape(shape), freedom.reshape(shape), names
        )


class ProxyAccumulator:
    """The finished estimate."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self._found: tuple[Floats, Floats, Floats] | None = None

    def record(self, values: Floats, variance: Floats, freedom: Floats, names: list[str]) -> None:
        """Keep what was found, and which proxies found it."""
        self._found = values, np.sqrt(variance), freedom
        self.info["proxies"] = names

    def values(self) -> Floats | None:
        """Return the values."""
        return None if self._found is None else self._found[0]

    def standard_errors(self) -> Floats | None:
        """Return the standard errors."""
        return None if self._found is None else self._found[1]

    def degrees_of_freedom(self) -> Floats | None:
        """Return Satterthwaite's degrees of freedom."""
        return None if self._found is None else self._found[2]


@dataclass(frozen=True, eq=False)
class _Sample:
    """The pairs that were drawn, with their utilities.

    Attributes
    ----------
    rows : bool array, shape (2 + 2 K, n)
        Nobody, everybody, and the two sides of each pair.
    utilities : float64 array, shape (2 + 2 K, m)
    stratum, half : int64 arrays, shape (K,)
        Stratum of each pair, and the half of the sample to which it belongs.
    """

    design: PairedDesign
    weights: Floats
    rows: NDArray[np.bool_]
    utilities: Floats
    stratum: NDArray[np.int64]
    half: NDArray[np.int64]

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
    values = sample.parts(y[2:]).sum(axis=0) + weights[-1] * y[1] - weights[0] * y[0]
    variance, squares = np.zeros_like(values), np.zeros_like(values)
    names: list[str] = []
    sampled = np.flatnonzero(design.taken < design.pairs)
    if len(sampled):
        residuals, means = _cross_fit(sample, families, shares, rng)
        names = [fitted.proxy.family for fitted, _ in means]
        predicted, variance = _unknown(sample, means, rng)
        values = values + predicted
        rest = sample.parts(residuals)
        for s in sampled:
            mine, there, taken = rest[sample.stratum == s], design.pairs[s], design.taken[s]
            values += (there - taken) * mine.mean(axis=0)
            part = there * (there - taken) * mine.var(axis=0, ddof=1) / taken
            variance += part
            squares += part**2 / (taken - 1)
    freedom = np.divide(variance**2, squares, out=np.full_like(variance, np.inf), where=squares > 0)
    return values, variance, freedom, names


def _cross_fit(
    sample: _Sample, families: Sequence[str], shares: Floats, rng: np.random.Generator
) -> tuple[Floats, list[tuple[Fit, Floats]]]:
    """Fit a proxy for each half, chosen by the other, and leave each pair out of its own.

    Returns
    -------
    residuals : float64 array, shape (2 K, m)
        Of every coalition, from a proxy that has not seen its pair.
    means : list of (fit, weights[strata, B, m])
        For each stratum, the mean over its pairs of the proxy's weights without the pair, as
        far as the pairs belong to the half; the halves' predictions add up.
    """
    rows, y, design = sample.rows, sample.utilities, sample.design
    outputs = y.shape[1]
    limit = np.sort(rng.permutation(len(sample.half))[: FITTED_ROWS // 2])
    fitted = np.zeros(len(sample.half), dtype=np.bool_)
    fitted[limit] = True
    inside = np.concatenate([[True, True], np.repeat(fitted, 2)])
    place = np.cumsum(inside) - 1  # of a row among the fitted ones
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
    return residuals, means


def _blocks(places: NDArray[np.int64], columns: int) -> list[NDArray[np.int64]]:
    """Cut row numbers so that a kernel with so many columns stays small."""
    step = max(BLOCK_ENTRIES // columns, 1)
    return [places[start : start + step] for start in range(0, len(places), step)]


def _unknown(
    sample: _Sample, means: list[tuple[Fit, Floats]], rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the proxies' part of the values over coalitions not drawn, and its variance."""
    design, rows, weights = sample.design, sample.rows, sample.weights
    n, outputs = rows.shape[1], sample.utilities.shape[1]
    values, variance = np.zeros((n, outputs)), np.zeros((n, outputs))
    inside = means[0][0].rows

    def predict(coalitions: NDArray[np.bool_], stratum: int) -> Floats:
        result = np.empty((len(coalitions), outputs))
        for block in _blocks(np.arange(len(coalitions)), len(inside)):
            result[block] = sum(
                found.proxy.kernel(coalitions[block], inside) @ each[stratum]
                for found, each in means
            )
        return result

    if n <= ENUMERATED:
        everybody = all_coalitions(n)
        unknown = np.ones(len(everybody), dtype=np.bool_)
        unknown[coalition_index(rows)] = False
        size = everybody.sum(axis=1)
        strata = np.minimum(size, n - size) - 1
        for s in np.flatnonzero(design.taken < design.pairs):
            these = everybody[unknown & (strata == s)]
            values += coefficients(these, weights).T @ predict(these, s)
        return values, variance
    large = PairedDesign.for_budget(n, PROXY_ROWS, weights)
    sides, strata = large.draw(rng)
    for s in np.flatnonzero(design.taken < design.pairs):
        for known, sides_of, factor in (
            (False, sides[strata == s], large.pairs[s] / large.taken[s]),
            (True, rows[2::2][sample.stratum == s], -1.0),
        ):
            these = np.stack([sides_of, ~sides_of], axis=1).reshape(-1, n)
            parts = _parts(coefficients(these, weights), predict(these, s))
            values += factor * parts.sum(axis=0)
            if not known:
                finite = large.pairs[s] * (large.pairs[s] - large.taken[s]) / large.taken[s]
                variance += finite * parts.var(axis=0, ddof=1)
    return values, variance
