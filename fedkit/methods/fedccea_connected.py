"""The AAM of FedCCEA with its sigmoid behind the nodes, by quasi-Newton steps on all simulations.

The accuracy after round r is then, with node k of the first fully connected layer,

    acc_r = b + sum_k v_k sigmoid(c_k + sum over rho <= r of u_{rho k} X_rho),
    X_rho = x_rho . omega.

What the nodes add up are running sums over the rounds, so no padded input is needed: what goes in
is smaller by a factor R, and all simulations fit into every step.

The model has R numbers per node.  Followed to its least error it learns the noise of a hundred
simulations by heart: on simulations that it has not seen it then knows less than it did on the way.
So a fifth of the simulations says how many iterations are best, and all of them make the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit

__all__ = ["Connected", "fit_connected"]

FloatArray = npt.NDArray[np.float64]
#: factor on the loss, so that L-BFGS-B's tolerances are small beside it
_SCALE = 1e4
#: iterations without a better prediction after which the search for their best number ends
_PATIENCE = 50
#: share of the simulations, one in so many, that says when to stop
_LEFT_OUT = 5


@dataclass(frozen=True, eq=False)
class Connected:
    """The network and its parameters.

    Attributes
    ----------
    quality : float64[n]
        omega, at least 0.
    inner, bias : float64[R, H] and float64[H]
        u and c: the first fully connected layer.
    outer : float64[H]
        v.
    constant : float
        b.
    """

    quality: FloatArray
    inner: FloatArray
    bias: FloatArray
    outer: FloatArray
    constant: float

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, clients: int, rounds: int, nodes: int, level: float
    ) -> Connected:
        """Draw parameters to begin with, as
        :class:`fedkit.methods.fedccea_approximation.AccuracyApproximation`."""
        reach = 1 / np.sqrt(rounds)
        return cls(
            rng.uniform(0, 1 / np.sqrt(clients), clients),
            rng.uniform(-reach, reach, (rounds, nodes)),
            np.zeros(nodes),
            rng.uniform(-1, 1, nodes) / np.sqrt(nodes),
            level,
        )

    def flat(self) -> FloatArray:
        """Return all parameters in one row."""
        parts = (self.quality, self.inner.ravel(), self.bias, self.outer, [self.constant])
        return np.concatenate(parts)

    def like(self, row: FloatArray) -> Connected:
        """Return the network of the same shape with the parameters of a row."""
        n, (rounds, nodes) = len(self.quality), self.inner.shape
        omega, u, c, v, b = np.split(row, np.cumsum([n, rounds * nodes, nodes, nodes]))
        return Connected(omega, u.reshape(rounds, nodes), c, v, float(b[0]))

    def predict(self, sizes: FloatArray) -> FloatArray:
        """Return the accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        return self._nodes(sizes)[1] @ self.outer + self.constant

    def _nodes(self, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """X, float64[S, R], and the nodes' outputs, float64[S, R, H]."""
        rounds = len(self.inner)
        x = (sizes.reshape(-1, len(self.quality)) @ self.quality).reshape(-1, rounds)
        return x, expit(np.cumsum(x[..., None] * self.inner, axis=1) + self.bias)

    def slope(self, sizes: FloatArray, accuracy: FloatArray) -> tuple[float, Connected]:
        """Return the mean squared error and its slopes, in the shape of the network."""
        x, nodes = self._nodes(sizes)
        left = nodes @ self.outer + self.constant - accuracy
        by_output = 2 / left.size * left
        by_sum = by_output[..., None] * self.outer * nodes * (1 - nodes)
        # What a round adds is in the running sums of all rounds that follow it.
        by_term = np.cumsum(by_sum[:, ::-1], axis=1)[:, ::-1]
        by_x = (by_term * self.inner).sum(axis=2)
        slopes = Connected(
            by_x.reshape(-1) @ sizes.reshape(-1, len(self.quality)),
            (x[..., None] * by_term).sum(axis=0),
            by_sum.sum(axis=(0, 1)),
            np.tensordot(by_output, nodes, axes=2),
            float(by_output.sum()),
        )
        return float(np.square(left).mean()), slopes


def _descend(
    start: Connected,
    sizes: FloatArray,
    accuracy: FloatArray,
    iterations: int,
    keep: Callable[[Connected, float], None],
) -> Connected:
    """Run L-BFGS-B with ``omega >= 0``; `keep` sees every iterate, its loss, and may stop it."""

    def scaled(row: FloatArray) -> tuple[float, FloatArray]:
        loss, slopes = start.like(row).slope(sizes, accuracy)
        return _SCALE * loss, _SCALE * slopes.flat()

    def seen(intermediate_result: OptimizeResult) -> None:
        keep(start.like(intermediate_result.x), float(intermediate_result.fun) / _SCALE)

    row, n = start.flat(), len(start.quality)
    found = minimize(
        scaled, row, jac=True, method="L-BFGS-B", callback=seen,
        bounds=[(0, None)] * n + [(None, None)] * (len(row) - n),
        options={"maxiter": iterations, "maxfun": 20 * iterations, "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    return start.like(np.asarray(found.x))


def fit_connected(
    sizes: FloatArray,
    accuracy: FloatArray,
    rng: np.random.Generator,
    *,
    nodes: int = 10,
    starts: int = 2,
    iterations: int = 500,
) -> tuple[Connected, list[float]]:
    """Fit the network, stopped where simulations that are left out are predicted best.

    Parameters
    ----------
    sizes : float64[S, R, n]
        At least two simulations.
    accuracy : float64[S, R]
    rng : numpy.random.Generator
        Initial parameters, and which simulations are left out.
    nodes : int
    starts : int
        Of several starts the one that predicts best is taken.
    iterations : int
        At most.

    Returns
    -------
    Connected
    losses : list of float
        Mean squared errors at the start and after each iteration of the final fit.
    """
    simulations, rounds, clients = sizes.shape
    order = rng.permutation(simulations)
    cut = max(1, simulations // _LEFT_OUT)
    out, rest = order[:cut], order[cut:]
    best = (np.inf, 0, Connected.drawn(rng, clients, rounds, nodes, float(accuracy.mean())))
    for _ in range(starts):
        start = Connected.drawn(rng, clients, rounds, nodes, float(accuracy.mean()))
        errors: list[float] = []

        def watch(network: Connected, _: float, errors: list[float] = errors) -> None:
            errors.append(float(np.square(network.predict(sizes[out]) - accuracy[out]).mean()))
            if len(errors) > int(np.argmin(errors)) + _PATIENCE:
                raise StopIteration

        _descend(start, sizes[rest], accuracy[rest], iterations, watch)
        if errors and min(errors) < best[0]:
            best = (min(errors), 1 + int(np.argmin(errors)), start)
    _, steps, start = best
    losses = [start.slope(sizes, accuracy)[0]]
    if not steps:
        return start, losses
    return _descend(start, sizes, accuracy, steps, lambda _, loss: losses.append(loss)), losses
