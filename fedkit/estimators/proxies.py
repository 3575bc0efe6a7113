"""Proxy games: cheap models of a utility, fitted to the coalitions that were evaluated.

Each family is a Gaussian process, that is, a kernel between coalitions.  All of them hold a
smooth function of log size, because utilities depend on how many there are above all.

``"linear"`` adds client effects that may change with size (``x_i``, ``x_i / s``, ``x_i s``): the
model behind Kernel SHAP, with a ridge.  ``"membership"`` adds ``rho ** (number of clients in
which two coalitions differ)``, which holds interactions of all orders, damped by order.
``"round"`` knows how a federated round makes its model: that of S is the base plus the updates
weighted by ``w_S = d_i 1_S / d(S)``, so that v(S) is a smooth function of w_S.
``"mixture"`` is the sum of the last two with a rate for each client, learned from the utilities
(automatic relevance determination, Rasmussen & Williams 2006, section 5.1): some clients matter
more than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, lapack
from scipy.optimize import minimize

from fedkit.games.coalitions import averaging_weights

__all__ = ["FAMILIES", "Fit", "Mixture", "Proxy", "candidates", "choose", "fit", "mixture"]

Floats = NDArray[np.float64]
Reals = NDArray[np.floating]
Places = tuple[Floats, Floats, NDArray[np.int64]]  # members, averaging weights and sizes

NOISES = (1e-6, 1e-4, 1e-3, 1e-2, 5e-2)  # variance of what the kernel does not explain
SIZE = 4.0  # variance of the size means, in units of the utilities' variance: hardly shrunk
TABLE = 2**24  # numbers of a table by sizes: with more, a kernel is worked out pair by pair
FAMILIES = ("linear", "membership", "round", "mixture")
CHOICE_ROWS = 400  # evaluations by which kernels are compared and rates are learned
CLIMB = 25  # steps of the mixture's learning


@dataclass(frozen=True)
class Proxy:
    """One kernel between coalitions, and the variance of the noise.

    `scale` is the ridge of "linear" (variance of an effect), rho of "membership", and the length
    scale of "round" in units of averaging weights.
    """

    family: str
    shares: Floats = field(compare=False)  # data sizes, for the averaging weights
    scale: float
    reach: float = 5.0  # correlation length in log size
    rough: bool = False  # Matern 3/2 in the place of the Gaussian: accuracies have kinks
    noise: float = NOISES[0]

    def kernel(self, a: NDArray[np.bool_], b: NDArray[np.bool_], single: bool = False) -> Reals:
        """Return the kernel between the rows of two sets of coalitions.

        With `single` the functions of distances, which is what takes time, have single precision:
        enough to predict many coalitions, not to solve for weights.
        """
        p, q, third = self.places(a, b)
        if self.family == "round" and single:
            third = third.astype(np.float32)
        return self.at(p, q, third)

    def places(
        self, a: NDArray[np.bool_], b: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Reals]:
        """Return what a whole family's kernels need of two sets: they differ in tables only.

        The sizes ``[A]`` and ``[B]``; and ``[A, B]``, for "round" squared distances between
        averaging weights, else numbers of clients in both.
        """
        p, q = a.sum(axis=1), b.sum(axis=1)
        if self.family == "round":
            u, w = (averaging_weights(rows, self.shares) for rows in (a, b))
            return p, q, _apart(u**2, w**2, u, w)
        return p, q, a.astype(np.float64) @ b.T.astype(np.float64)

    def at(self, p: NDArray[np.int64], q: NDArray[np.int64], third: Reals) -> Reals:
        """Return the kernel at what :meth:`places` gave, for "round" in its precision."""
        n = len(self.shares)
        if self.family == "round":
            alike, _ = _falling(third * self.scale**-2.0, self.rough)
            alike += SIZE
            alike *= _by_sizes(self._near, n, p, q, alike.dtype)
            return alike
        if (n + 1) ** 3 > TABLE:
            return self._alike(p[:, None], q, third)
        s = np.arange(n + 1.0)
        cells = (p * (n + 1))[:, None] + q
        cells *= n + 1
        cells += third.astype(np.int64)
        return self._alike(s[:, None, None], s[:, None], s).take(cells, mode="clip")

    def _near(self, p: NDArray[Any], q: NDArray[Any]) -> Floats:
        """Correlation of sizes."""
        return np.asarray(np.exp(-_lag(p, q) / self.reach))

    def _alike(self, p: NDArray[Any], q: NDArray[Any], common: NDArray[Any]) -> Floats:
        """Kernel of "linear" and "membership" by sizes and how many are in both."""
        n = len(self.shares)
        if self.family == "membership":
            alike = self.scale ** np.abs(p + q - 2.0 * common)
        else:
            # effects are centred within sizes, so that size means are not theirs to explain
            k = np.maximum(p, 1.0) * np.maximum(q, 1.0)
            growth = (1.0 + 4.0 / k + 4.0 * k / n**2) * (self.scale / n)
            alike = growth * (common - p * q / n)
        return SIZE * self._near(p, q) + alike


@dataclass(frozen=True, eq=False)
class Mixture:
    """A kernel on averaging weights plus one on membership, with a rate for each client.

    ``near (4 + e^a k(sum_i lambda_i (w_i - w'_i)^2)) + e^b exp(-sum_i mu_i |x_i - x'_i|)``, where
    `near` is correlation in log size and `k` the Gaussian or the Matern 3/2 kernel.
    """

    family: ClassVar[str] = "mixture"
    shares: Floats
    logs: Floats  # of the noise, the reach, the two variances, n rates lambda and n rates mu
    rough: bool = False

    @property
    def noise(self) -> float:
        return float(np.exp(self.logs[0]))

    def kernel(self, a: NDArray[np.bool_], b: NDArray[np.bool_], single: bool = False) -> Reals:
        """Return the kernel between the rows of two sets of coalitions, as :class:`Proxy` does."""
        near, alike, _, common = self._parts(self._places(a), self._places(b), single)
        alike *= np.exp(self.logs[2])
        alike += SIZE
        alike *= near
        common *= np.exp(self.logs[3])
        alike += common
        return alike

    def learned(self, rows: NDArray[np.bool_], utilities: Floats) -> Mixture:
        """Return the mixture whose rates suit the utilities, by likelihood and priors on logs."""

        def loss(logs: Floats) -> tuple[float, Floats]:
            height, slope = replace(self, logs=logs)._likelihood(places, lag, utilities)
            away = (logs - self.logs) / spread
            groups = logs[4:].reshape(2, -1)
            within = groups - groups.mean(axis=1, keepdims=True)
            slope = slope - away / spread
            slope[4:] -= within.ravel()
            return -(height - 0.5 * ((away**2).sum() + (within**2).sum())), -slope

        n = len(self.shares)
        places = self._places(rows)
        lag = _lag(places[2][:, None], places[2])
        # the rates of a kind have a common level, of little known size, and a spread of one
        spread = np.array([3.0, 1.0, 2.0, 2.0] + [3.0 * n**0.5] * (2 * n))
        ends = [(np.log(1e-7), np.log(0.3)), (-1.0, 3.0), (-8.0, 4.0), (-8.0, 4.0)]
        ends += [(-6.0, 8.0)] * n + [(-7.0, 3.0)] * n
        found = minimize(
            loss, self.logs, jac=True, method="L-BFGS-B", bounds=ends, options={"maxiter": CLIMB}
        )
        return replace(self, logs=found.x)

    def _places(self, rows: NDArray[np.bool_]) -> Places:
        return rows.astype(np.float64), averaging_weights(rows, self.shares), rows.sum(axis=1)

    def _parts(
        self, one: Places, other: Places, single: bool = False
    ) -> tuple[Reals, Reals, Reals | None, Reals]:
        """Return `near`, `k`, its slope in the squared distance, and the part of membership."""
        (x, u, p), (z, w, q) = one, other
        rates = np.exp(self.logs[4:].reshape(2, -1))
        kind = np.float32 if single else np.float64
        square: Reals = _apart(u**2 * rates[0], w**2 * rates[0], u * rates[0], w).astype(
            kind, copy=False
        )
        alike, slope = _falling(square, self.rough, sloping=not single)
        common = _apart(x * rates[1], z * rates[1], x * rates[1], z).astype(kind, copy=False)
        common = np.exp(np.negative(common, out=common), out=common)
        reach = np.exp(self.logs[1])
        near = _by_sizes(lambda p, q: np.exp(-_lag(p, q) / reach), x.shape[1], p, q, kind)
        return near, alike, slope, common

    def _likelihood(self, places: Places, lag: Floats, utilities: Floats) -> tuple[float, Floats]:
        """Return the log marginal likelihood as :func:`_likelihood` does, and its gradient.

        `lag` is :func:`_lag` between all sizes.
        """
        x, u, _ = places
        near, alike, slope, common = self._parts(places, places)
        assert slope is not None
        first, second = np.exp(self.logs[2:4])
        sized = first * alike
        sized += SIZE
        sized *= near
        matrix = second * common
        matrix += sized
        _diagonal(matrix)[:] += self.noise
        factor, failed = lapack.dpotrf(matrix, lower=True)
        if failed:
            return -1e25, np.zeros_like(self.logs)
        precision = _inverse(factor)
        solved = precision @ utilities
        misfit = np.maximum((utilities * solved).sum(axis=0), 1e-300)
        count, outputs = utilities.shape
        height = -0.5 * count * np.log(misfit / count).sum()
        height -= outputs * np.log(_diagonal(factor)).sum()
        pull = 0.5 * (count * (solved / misfit) @ solved.T - outputs * precision)
        sized *= lag
        close = pull * near
        slope *= close
        joint = pull * common
        gradient = np.concatenate(
            [
                [np.trace(pull) * self.noise, np.vdot(pull, sized) * np.exp(-self.logs[1])],
                [first * np.vdot(close, alike), second * joint.sum()],
                first * _pulls(slope, u**2, u),
                -second * _pulls(joint, x, x),
            ]
        )
        gradient[4:] *= np.exp(self.logs[4:])
        return float(height), gradient


def _apart(a: Floats, b: Floats, u: Floats, w: Floats) -> Floats:
    """Return squared distances ``sum a + sum b - 2 u w``, not below zero by rounding."""
    ones = np.ones((max(len(a), len(b)), 1))
    left = np.concatenate([-2.0 * u, a.sum(axis=1)[:, None], ones[: len(a)]], axis=1)
    right = np.concatenate([w, ones[: len(b)], b.sum(axis=1)[:, None]], axis=1)
    square: Floats = left @ right.T
    return np.maximum(square, 0.0, out=square)


def _falling(square: Reals, rough: bool, sloping: bool = False) -> tuple[Reals, Reals | None]:
    """Return the Gaussian or Matern 3/2 kernel at squared distances, and its slope in them."""
    if rough:
        root = np.sqrt(3.0 * square)
        fall = np.exp(-root)
        root += 1.0
        root *= fall
        return root, -1.5 * fall if sloping else None
    alike = np.exp(-0.5 * square)
    return alike, -0.5 * alike if sloping else None


def _lag(p: NDArray[Any], q: NDArray[Any]) -> Floats:
    """Return how far apart sizes are, in logs."""
    return np.asarray(np.abs(np.log(np.maximum(p, 0.5)) - np.log(np.maximum(q, 0.5))))


def _by_sizes(
    make: Callable[[NDArray[Any], NDArray[Any]], Floats],
    n: int,
    p: NDArray[np.int64],
    q: NDArray[np.int64],
    kind: Any,
) -> Reals:
    """Return ``make(p[:, None], q)`` of sizes up to n, each row worked out once."""
    if len(p) <= n:
        return make(p[:, None], q).astype(kind, copy=False)
    return make(np.arange(n + 1)[:, None], q).astype(kind, copy=False).take(p, axis=0)


def _pulls(pull: Floats, squares: Floats, u: Floats) -> Floats:
    """Return ``sum over rows a, b of pull[a, b] (u[a, i] - u[b, i])^2`` for each column i."""
    result: Floats = 2.0 * (pull.sum(axis=1) @ squares - (u * (pull @ u)).sum(axis=0))
    return result


def _diagonal(matrix: Floats) -> Floats:
    """Return a view of the diagonal, to be written to."""
    return np.einsum("ii->i", matrix)


def _inverse(factor: Floats) -> Floats:
    """Return the inverse of the matrix with this lower factor, whose upper half is zero."""
    inverse, failed = lapack.dpotri(factor, lower=True)
    assert not failed
    inverse = inverse + inverse.T
    _diagonal(inverse)[:] *= 0.5
    return np.asarray(inverse)


@dataclass(frozen=True, eq=False)
class Fit:
    """A proxy fitted to utilities: ``kernel(x, rows) @ weights`` predicts them.

    Without rows L the weights are ``weights - precision[:, L] @ r``, r the residuals of L left out.
    """

    proxy: Proxy | Mixture
    rows: NDArray[np.bool_]  # [B, n]
    weights: Floats  # [B, m]
    precision: Floats  # [B, B], inverse of the kernel matrix with noise

    def left_out(self, groups: NDArray[np.int64]) -> Floats:
        """Return the residuals ``[k, g, m]`` of ``[k, g]`` rows, each group left out at once."""
        blocks = self.precision[groups[:, :, None], groups[:, None, :]]
        return np.linalg.solve(blocks, self.weights[groups])


def fit(proxy: Proxy | Mixture, rows: NDArray[np.bool_], utilities: Floats) -> Fit:
    """Fit a proxy to utilities ``[B, m]``, up to a constant that their middle is near to."""
    matrix = proxy.kernel(rows, rows)
    _diagonal(matrix)[:] += proxy.noise
    factor = cholesky(matrix, lower=True, overwrite_a=True)
    return Fit(proxy, rows, cho_solve((factor, True), utilities), _inverse(factor))


def candidates(family: str, shares: Floats) -> list[Proxy]:
    """Return the grid of a family; the mixture sets out from that of "round"."""
    if family == "linear":
        return [Proxy(family, shares, scale) for scale in (0.01, 0.1, 1.0)]
    if family == "membership":
        return [Proxy(family, shares, rho) for rho in (0.6, 0.8, 0.9, 0.95, 0.98)]
    return [
        Proxy(family, shares, scale, reach, rough)
        for rough in (False, True)
        for scale in (0.1, 0.2, 0.4, 0.8, 1.6)
        for reach in (1.0, 5.0)
    ]


def mixture(start: Proxy) -> Mixture:
    """Return the mixture in which all clients have the rates of a proxy of a round."""
    n = len(start.shares)
    logs = np.log([start.noise, start.reach, 1.0, 0.3])
    rates = np.repeat([-2.0 * np.log(start.scale), np.log(0.16)], n)
    return Mixture(start.shares, np.concatenate([logs, rates]), start.rough)


def choose(
    families: Sequence[str], shares: Floats, rows: NDArray[np.bool_], utilities: Floats
) -> Proxy | Mixture:
    """Return the proxy that serves best: kernels by likelihood, families by cross-validation.

    Within a family the marginal likelihood chooses; between the winners of several families the
    squared error of leaving one coalition out.
    """
    best: list[Proxy | Mixture] = []
    winners: dict[str, Proxy] = {}
    for family in families:
        grid = "round" if family == "mixture" else family
        if grid not in winners:
            winners[grid] = _likeliest(candidates(grid, shares), rows, utilities)
        found = winners[grid]
        best.append(mixture(found).learned(rows, utilities) if family == "mixture" else found)
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda proxy: _left_out_error(proxy, rows, utilities))


def _left_out_error(proxy: Proxy | Mixture, rows: NDArray[np.bool_], utilities: Floats) -> float:
    found = fit(proxy, rows, utilities)
    errors = (found.weights / _diagonal(found.precision)[:, None]) ** 2
    return float(np.log(np.maximum(errors.sum(axis=0), 1e-300)).sum())  # outputs count alike


def _likeliest(grid: list[Proxy], rows: NDArray[np.bool_], utilities: Floats) -> Proxy:
    places = grid[0].places(rows, rows)
    level = len(NOISES) // 2
    best = []
    for proxy in grid:
        kernel = proxy.at(*places)
        found: dict[int, float] = {}
        around = [level - 1, level, level + 1]
        while around:  # the likelihood has one summit in the noise: climb from the last one
            for k in around:
                found[k] = _likelihood(kernel, NOISES[k], utilities)
            level = max(found, key=lambda k: (found[k], k))  # where all fail, to more noise
            reach = (max(level - 1, 0), min(level + 1, len(NOISES) - 1))
            around = [k for k in reach if k not in found]
        best.append((found[level], replace(proxy, noise=NOISES[level])))
        level = min(max(level, 1), len(NOISES) - 2)
    return max(best, key=lambda each: each[0])[1]


def _likelihood(kernel: Floats, noise: float, utilities: Floats) -> float:
    """Return the log marginal likelihood, but for a constant."""
    matrix = kernel.copy(order="F")
    _diagonal(matrix)[:] += noise
    factor, failed = lapack.dpotrf(matrix, lower=True, overwrite_a=True, clean=False)
    if failed:
        return -np.inf
    half, _ = lapack.dtrtrs(factor, utilities, lower=True)
    # the kernel's variance is not assumed, but profiled out, for each output
    count, outputs = utilities.shape
    misfit = np.log(np.maximum((half**2).sum(axis=0), 1e-300) / count).sum()
    return float(-0.5 * count * misfit - outputs * np.log(_diagonal(factor)).sum())
