"""How FedCCEA's Accuracy Approximation Model is fitted; the paper names no optimiser.

With the sigmoid behind the shared weights by variable projection, with it behind the nodes by
quasi-Newton steps that stop before they learn noise, and either by Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit

from fedkit.checks import Floats, Ints

if TYPE_CHECKING:
    from fedkit.methods.fedccea import AccuracyApproximation

#: the network, and its mean squared errors on the way
Found = tuple["AccuracyApproximation", list[float]]

# The first reading to convergence, by variable projection (Golub and Pereyra 1973).  Up to the
# constant that the zeros of later rounds add, the fitted accuracy after round r is
#
#     acc_r = b + sum over rho <= r of a_rho h_rho,      h_rho = sigmoid(x_rho . omega) - 1/2,
#
# and a and b solve a linear least squares problem at given shared weights omega.

#: mean of a round's ``x . omega`` at each start; where the sigmoid is straight, bent, nearly flat
_STARTS = (0.005, 2.5, 2.5, 5.0, 5.0)
#: of a weight; with scaled sizes around 1 the sigmoid is 1 long before, and the loss flat
_MOST = 1e3
#: least pivot of the normal equations, scaled to a diagonal of 1, that Cholesky's way is good for
_PIVOT = 1e-6


def project(
    quality: Floats, sizes: Floats, accuracy: Floats
) -> tuple[float, Floats, Floats, Floats, float]:
    """Least mean squared error at given omega, its gradient, the predictions, a and b."""
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


def _least_squares(normal: Floats, right: Floats) -> Floats:
    """Solve normal equations, by Cholesky where they are well conditioned."""
    scale = np.sqrt(np.diagonal(normal))
    if scale.all():
        lower, failed = lapack.dpotrf(normal / np.multiply.outer(scale, scale), lower=1)
        if not failed and np.diagonal(lower).min() > _PIVOT:
            return np.asarray(lapack.dpotrs(lower, right / scale, lower=1)[0] / scale)
    return np.asarray(np.linalg.lstsq(normal, right, rcond=1e-12)[0])


def random_starts(sizes: Floats, rng: np.random.Generator) -> Floats:
    """Draw weights to begin with, float64[5, n]: tiny, or so large that all sigmoids bend."""
    n, mean = sizes.shape[2], float(sizes.mean()) or 1.0
    return np.stack([rng.uniform(0, 2 * reach / (n * mean), n) for reach in _STARTS])


def shared_weights(
    sizes: Floats, accuracy: Floats, starts: Floats
) -> tuple[Floats, Floats, float, list[float]]:
    """Fit omega from several starts, float64[starts, n]: omega, a, b and losses of the best."""

    def slope(quality: Floats) -> tuple[float, Floats]:
        return project(quality, sizes, accuracy)[:2]

    bounds = [(0, _MOST)] * starts.shape[1]
    tried = [
        _descend(slope, start, bounds, maxiter=1000, ftol=1e-12, gtol=1e-8) for start in starts
    ]
    quality, losses = min(tried, key=lambda found: found[1][-1])
    _, _, _, a, b = project(quality, sizes, accuracy)
    return quality, a, b, losses


def _descend(
    slope: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    bounds: Sequence[tuple[float | None, float | None]],
    watch: Callable[[Floats], None] | None = None,
    **options: float,
) -> tuple[Floats, list[float]]:
    """Run L-BFGS-B: its end and losses; `watch` sees every iterate, and may raise StopIteration."""
    scale, losses = 1e4, [slope(start)[0]]  # scaled, so that the tolerances are small beside it

    def scaled(row: Floats) -> tuple[float, Floats]:
        loss, slopes = slope(row)
        return scale * loss, scale * slopes

    def seen(intermediate_result: OptimizeResult) -> None:
        losses.append(float(intermediate_result.fun) / scale)
        if watch is not None:
            watch(intermediate_result.x)

    found = minimize(
        scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=seen, options=options
    )
    return np.asarray(found.x), losses


# The second reading, by quasi-Newton steps on all simulations.

CONNECTED_STARTS = 2
#: most iterations, and those without a better prediction after which the search for their best
#: number ends
_ITERATIONS, _PATIENCE = 500, 50
#: share of the simulations, one in so many, that says when to stop
_LEFT_OUT = 5


def fit_connected(
    sizes: Floats,
    accuracy: Floats,
    rng: np.random.Generator,
    drawn: Callable[[], AccuracyApproximation],
) -> Found:
    """Fit a drawn network, stopped where simulations that are left out are predicted best.

    A fifth of them says from which start and how far; all of them make the fit.
    """
    simulations, _, clients = sizes.shape

    def descend(start: AccuracyApproximation, rows: Ints, steps: int, watch: Any = None) -> Found:
        x, y = torch.from_numpy(sizes[rows]), torch.from_numpy(accuracy[rows])

        def slope(row: Floats) -> tuple[float, Floats]:
            weights = torch.from_numpy(row).requires_grad_()
            loss = (start.like(weights).running(x) - y).square().mean()
            (slopes,) = torch.autograd.grad(loss, weights)
            return loss.item(), slopes.numpy()

        row = start.weights.numpy()
        bounds = [(0, None)] * clients + [(None, None)] * (len(row) - clients)
        most = {"maxiter": steps, "maxfun": 20 * steps}
        row, losses = _descend(slope, row, bounds, watch, **most, ftol=1e-13, gtol=1e-9)
        return start.like(torch.from_numpy(row)), losses

    def error(network: AccuracyApproximation, rows: Ints) -> float:
        return float(np.square(network.accuracies(sizes[rows]) - accuracy[rows]).mean())

    order = rng.permutation(simulations)
    cut = max(1, simulations // _LEFT_OUT)
    out, rest = order[:cut], order[cut:]

    def errors_on_the_way(start: AccuracyApproximation) -> list[float]:
        errors: list[float] = []

        def watch(row: Floats) -> None:
            errors.append(error(start.like(torch.from_numpy(row)), out))
            if len(errors) > int(np.argmin(errors)) + _PATIENCE:
                raise StopIteration

        descend(start, rest, _ITERATIONS, watch)
        return errors

    least, steps, start = np.inf, 0, drawn()
    for other in [drawn() for _ in range(CONNECTED_STARTS)]:
        errors = errors_on_the_way(other)
        if errors and min(errors) < least:
            least, steps, start = min(errors), 1 + int(np.argmin(errors)), other
    everything = np.arange(simulations)
    if not steps:
        return start, [error(start, everything)]
    return descend(start, everything, steps)


# Either reading by Adam, whose mini-batches are of padded inputs.

ADAM_STARTS, ADAM_BATCH = 5, 64
#: of the mean shared weight; less is a weight of 0
_NOTHING = 1e-3


def train_by_adam(
    starts: Sequence[AccuracyApproximation],
    padded: Floats,
    accuracy: Floats,
    rng: np.random.Generator,
    *,
    lr: float,
    epochs: int,
) -> Found:
    """Train the network from several starts at once, by mini-batches, and take the best.

    `padded` are its inputs, float64[S * R, R, n], and `accuracy` what it is to predict, [S, R].
    The rate falls to 0 along half a cosine.  A weight at its bound jitters above it: what ends
    below a thousandth of the mean weight is 0.
    """
    inputs = torch.from_numpy(padded).float()
    targets = torch.from_numpy(accuracy.reshape(-1)).float()
    many = starts[0].like(torch.stack([start.weights for start in starts]))
    many.outer_bias.fill_(float(targets.mean()))
    adam, history = torch.optim.Adam([many.weights]), []
    for epoch in range(epochs):
        adam.param_groups[0]["lr"] = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for batch in torch.from_numpy(rng.permutation(len(targets))).split(ADAM_BATCH):
            weights = many.weights.clone().requires_grad_()
            left = many.like(weights)(inputs[batch]) - targets[batch]
            loss = left.square().mean(dim=1).sum()
            (many.weights.grad,) = torch.autograd.grad(loss, weights)
            adam.step()
            many.quality.clamp_(min=0.0)  # appendix A
        history.append((many(inputs) - targets).square().mean(dim=1).double().numpy())
        if not np.isfinite(history[-1]).any():
            raise ValueError(f"Adam diverges with lr {lr}; take a smaller one")
    many.quality.mul_(many.quality >= _NOTHING * many.quality.mean(dim=1, keepdim=True))
    best = int(np.nanargmin(history[-1]))
    return many.like(many.weights[best]), [float(epoch[best]) for epoch in history]
