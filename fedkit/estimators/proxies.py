"""Proxy games: cheap models of a utility, fitted to the coalitions that were evaluated.

Each family is a Gaussian process, that is, a kernel between coalitions.  All of them hold a
smooth function of log size, because utilities depend on how many there are above all.

``"linear"`` adds client effects that may change with size (``x_i``, ``x_i / s``, ``x_i s``): the
model behind Kernel SHAP, with a ridge.  ``"membership"`` adds ``rho ** (number of clients in
which two coalitions differ)``, which holds interactions of all orders, damped by order.
``"round"`` knows how a federated round makes its model: that of S is the base plus the updates
weighted by ``w_S = d_i 1_S / d(S)``, so that v(S) is a smooth function of w_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

__all__ = ["FAMILIES", "Fit", "Proxy", "candidates", "choose", "fit"]

Floats = NDArray[np.float64]

NOISES = (1e-6, 1e-4, 1e-3, 1e-2, 5e-2)  # variance of what the kernel does not explain
SIZE = 4.0  # variance of the size means, in units of the utilities' variance: hardly shrunk
FAMILIES = ("linear", "membership", "round")
TABLE = 2**24  # numbers of a table by sizes: with more, a kernel is worked out pair by pair
CHOICE_ROWS = 200  # evaluations by which kernels are compared: more change little


@dataclass(frozen=True)
class Proxy:
    """One kernel between coalitions, and the variance of the noise.

    Attributes
    ----------
    family : str
        One of ``FAMILIES``.
    shares : float64 array, shape (n,)
        Data sizes, for the averaging weights.
    scale : float
        The ridge of "linear" (variance of an effect), rho of "membership", the length scale of
        "round" in units of averaging weights.
    reach : float
        Correlation length in log size.
    rough : bool
        Matern 3/2 instead of the Gaussian kernel of "round": accuracies have kinks.
    noise : float
    """

    family: str
    shares: Floats = field(compare=False)
    scale: float
    reach: float = 5.0
    rough: bool = False
    noise: float = NOISES[0]

    def kernel(self, a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Floats:
        """Return the kernel between the rows of two sets of coalitions."""
        return self.at(*self.places(a, b))

    def places(
        self, a: NDArray[np.bool_], b: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], Floats | None]:
        """Return what a whole family's kernels need of two sets: they differ in tables only.

        Returns
        -------
        cells : int array, shape (A, B)
            The two sizes as one number and, but for "round", how many clients are in both.
        square : float64 array, shape (A, B), or None
            Squared distances between averaging weights, for "round".
        """
        n = a.shape[1]
        sizes = a.sum(axis=1)[:, None] * (n + 1) + b.sum(axis=1)
        if self.family == "round":
            u, w = self._weights(a), self._weights(b)
            square = (u**2).sum(axis=1)[:, None] + (w**2).sum(axis=1) - 2.0 * (u @ w.T)
            return sizes, np.maximum(square, 0.0, out=square)
        common = a.astype(np.float64) @ b.T.astype(np.float64)
        return sizes * (n + 1) + common.astype(np.intp), None

    def at(self, cells: NDArray[np.intp], square: Floats | None) -> Floats:
        """Return the kernel at what :meth:`places` gave."""
        n = len(self.shares)
        s = np.arange(n + 1.0)
        if square is not None:
            if self.rough:
                alike = np.sqrt(square) * (-np.sqrt(3.0) / self.scale)
                alike = (1.0 - alike) * np.exp(alike)
            else:
                alike = np.exp(square / (-2.0 * self.scale**2))
            alike += SIZE
            alike *= (
                self._near(s[:, None], s).take(cells)
                if (n + 1) ** 2 <= TABLE
                else self._near(*np.divmod(cells, n + 1))
            )
            return alike
        if (n + 1) ** 3 <= TABLE:
            return self._alike(s[:, None, None], s[:, None], s).take(cells)
        both, common = np.divmod(cells, n + 1)
        return self._alike(*np.divmod(both, n + 1), common)

    def _near(self, p: NDArray[Any], q: NDArray[Any]) -> Floats:
        """Correlation of sizes."""
        apart = np.log(np.maximum(p, 0.5)) - np.log(np.maximum(q, 0.5))
        return np.asarray(np.exp(-np.abs(apart) / self.reach))

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

    def _weights(self, coalitions: NDArray[np.bool_]) -> Floats:
        masses = coalitions * self.shares
        total = masses.sum(axis=1, keepdims=True)
        return masses / np.where(total > 0, total, 1.0)


@dataclass(frozen=True, eq=False)
class Fit:
    """A proxy fitted to utilities: ``kernel(x, rows) @ weights`` predicts them.

    Attributes
    ----------
    rows : bool array, shape (B, n)
    weights : float64 array, shape (B, m)
    precision : float64 array, shape (B, B)
        Inverse of the kernel matrix with noise; without rows L the weights are
        ``weights - precision[:, L] @ r``, r the residuals of L left out.
    """

    proxy: Proxy
    rows: NDArray[np.bool_]
    weights: Floats
    precision: Floats

    def left_out(self, groups: NDArray[np.int64]) -> Floats:
        """Return the residuals ``[k, g, m]`` of ``[k, g]`` rows, each group left out at once."""
        blocks = self.precision[groups[:, :, None], groups[:, None, :]]
        return np.linalg.solve(blocks, self.weights[groups])


def fit(proxy: Proxy, rows: NDArray[np.bool_], utilities: Floats) -> Fit:
    """Fit a proxy to utilities ``[B, m]``, up to a constant that their middle is near to."""
    matrix = proxy.kernel(rows, rows)
    matrix[np.diag_indices_from(matrix)] += proxy.noise
    factor, _ = cho_factor(matrix, lower=True, overwrite_a=True)
    lower, failed = lapack.dpotri(factor, lower=True)
    assert not failed
    precision = np.tril(lower) + np.tril(lower, -1).T
    return Fit(proxy, rows, cho_solve((factor, True), utilities), precision)


def candidates(family: str, shares: Floats) -> list[Proxy]:
    """Return the grid of a family."""
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


def choose(
    families: Sequence[str], shares: Floats, rows: NDArray[np.bool_], utilities: Floats
) -> Proxy:
    """Return the proxy that serves best: kernels by likelihood, families by cross-validation.

    Within a family the marginal likelihood chooses; between the winners of several families the
    squared error of leaving one coalition out.
    """
    best = [_likeliest(candidates(family, shares), rows, utilities) for family in families]
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda proxy: _left_out_error(proxy, rows, utilities))


def _left_out_error(proxy: Proxy, rows: NDArray[np.bool_], utilities: Floats) -> float:
    found = fit(proxy, rows, utilities)
    errors = (found.weights / np.diag(found.precision)[:, None]) ** 2
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
    matrix[np.diag_indices_from(matrix)] += noise
    factor, failed = lapack.dpotrf(matrix, lower=True, overwrite_a=True, clean=False)
    if failed:
        return -np.inf
    half, _ = lapack.dtrtrs(factor, utilities, lower=True)
    # the kernel's variance is not assumed, but profiled out, for each output
    count, outputs = utilities.shape
    misfit = np.log(np.maximum((half**2).sum(axis=0), 1e-300) / count).sum()
    return float(-0.5 * count * misfit - outputs * np.log(np.diag(factor)).sum())
