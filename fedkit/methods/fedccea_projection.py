"""The AAM of FedCCEA fitted to convergence, by variable projection.

With the sigmoid behind the shared layer the two linear layers of the AAM are one linear function,
so the fitted accuracy after round r is, up to the constant that the zeros of later rounds add,

    acc_r = b + sum over rho <= r of a_rho h_rho,      h_rho = sigmoid(x_rho . omega) - 1/2.

For given shared weights omega the best a and b solve a linear least squares problem; what remains
is a smooth function of omega alone (Golub and Pereyra 1973).  Its normal equations need no padded
inputs: round rho reaches all of rounds rho to R, so the products of the columns of rho and rho' are
those of h times the ``R - max(rho, rho')`` rounds (from 0) that both reach.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit

__all__ = ["project", "random_starts", "shared_weights"]

FloatArray = npt.NDArray[np.float64]
#: factor on the loss, so that L-BFGS-B's tolerances are small beside it
_SCALE = 1e4
#: mean of a round's ``x . omega`` at each start: where the sigmoid is straight, bent, nearly flat
_STARTS = (0.005, 2.5, 2.5, 5.0, 5.0)
#: of a weight; with scaled sizes around 1 the sigmoid is 1 long before, and the loss flat
_MOST = 1e3
#: least pivot of the normal equations, scaled to a diagonal of 1, that Cholesky's way is good for
_PIVOT = 1e-6


def project(
    quality: FloatArray, sizes: FloatArray, accuracy: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray, float]:
    """Least mean squared error at given shared weights, its gradient and the predictions.

    Parameters
    ----------
    quality : float64[n]
        omega.
    sizes : float64[S, R, n]
    accuracy : float64[S, R]

    Returns
    -------
    loss : float
    gradient : float64[n]
        Of the loss by omega; a and b are at their best, so that they contribute nothing to it.
    predicted : float64[S, R]
    per_round : float64[R]
        a.
    constant : float
        b.
    """
    rounds, clients = sizes.shape[1:]
    flat = sizes.reshape(-1, clients)
    sigmoid = expit(flat @ quality).reshape(accuracy.shape)
    h = sigmoid - 0.5
    later = np.triu(np.ones((rounds, rounds)))  # [round, rounds that it reaches]
    reached = rounds - np.maximum.outer(np.arange(rounds), np.arange(rounds))
    normal = np.empty((rounds + 1, rounds + 1))
    normal[:-1, :-1] = (h.T @ h) * reached
    normal[-1, :-1] = normal[:-1, -1] = h.sum(axis=0) * np.diagonal(reached)
    normal[-1, -1] = accuracy.size
    right = np.append((h * (accuracy @ later.T)).sum(axis=0), accuracy.sum())
    best = _least_squares(normal, right)
    a, b = best[:-1], best[-1]
    predicted = b + (h * a) @ later
    left = predicted - accuracy
    by_h = 2 / left.size * a * (left @ later.T)
    gradient = (by_h * sigmoid * (1 - sigmoid)).reshape(-1) @ flat
    return float(np.square(left).mean()), gradient, predicted, a, float(b)


def _least_squares(normal: FloatArray, right: FloatArray) -> FloatArray:
    """Solve normal equations: by Cholesky where they are well conditioned, which they mostly are.

    Where weights vanish or all sigmoids are flat, columns are alike, and the least solution counts.
    """
    scale = np.sqrt(np.diagonal(normal))
    if scale.all():
        lower, failed = lapack.dpotrf(normal / np.multiply.outer(scale, scale), lower=1)
        if not failed and np.diagonal(lower).min() > _PIVOT:
            return np.asarray(lapack.dpotrs(lower, right / scale, lower=1)[0] / scale)
    return np.asarray(np.linalg.lstsq(normal, right, rcond=1e-12)[0])


def random_starts(sizes: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw weights to begin with, float64[5, n].

    Where sizes explain little there are many local minima, and from most starts of middling size
    the fit ends in poor ones, in which some sigmoids are flat.  Of starts that are very small, or
    so large that every sigmoid is bent, nearly all end in the best one (MNIST, 100 simulations).
    """
    n, mean = sizes.shape[2], float(sizes.mean()) or 1.0
    return np.stack([rng.uniform(0, 2 * reach / (n * mean), n) for reach in _STARTS])


def shared_weights(
    sizes: FloatArray, accuracy: FloatArray, starts: FloatArray, iterations: int = 1000
) -> tuple[FloatArray, list[float]]:
    """Fit the shared weights, at least 0, from several starts; the best local minimum counts.

    Large starts may stay where every sigmoid is 1 (:func:`random_starts` has small ones as well).

    Parameters
    ----------
    sizes : float64[S, R, n]
    accuracy : float64[S, R]
    starts : float64[starts, n]
    iterations : int
        Of L-BFGS-B, per start at most.

    Returns
    -------
    quality : float64[n]
    losses : list of float
        Mean squared errors at the start and after each iteration, of the best start.
    """

    def scaled(quality: FloatArray) -> tuple[float, FloatArray]:
        loss, gradient, *_ = project(quality, sizes, accuracy)
        return _SCALE * loss, _SCALE * gradient

    def descend(start: FloatArray) -> tuple[float, FloatArray, list[float]]:
        losses = [project(start, sizes, accuracy)[0]]

        def keep(intermediate_result: OptimizeResult) -> None:
            losses.append(float(intermediate_result.fun) / _SCALE)

        found = minimize(
            scaled, start, jac=True, method="L-BFGS-B", bounds=[(0, _MOST)] * len(start),
            options={"maxiter": iterations, "ftol": 1e-12, "gtol": 1e-8}, callback=keep,
        )  # fmt: skip
        return float(found.fun), np.asarray(found.x), losses

    _, quality, losses = min(map(descend, starts), key=lambda tried: tried[0])
    return quality, losses
