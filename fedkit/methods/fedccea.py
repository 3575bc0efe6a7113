"""FedCCEA: client contribution through an Accuracy Approximation Model (Shyn et al. 2021).

The *Simulator* (Algorithm 1) runs federations in which every client uses a random share of its
data in every round, and notes the test accuracies.  The *Evaluator* (Algorithm 2) fits a small
model, the AAM, that predicts these accuracies from the sizes; the weights of its first layer, one
per client, are taken for the quality of the client's data.

The paper leaves open where the only sigmoid of the AAM stands, and how "until convergence" is
reached; the file ends with a way for either reading, and with Adam for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import lapack
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit
from torch import Tensor

from fedkit.checks import choice, one_line, real, vector, warn, whole
from fedkit.federated.federation import Federation
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.games.valuation import Valuation
from fedkit.learning.models import Model
from fedkit.learning.training import LocalSGD
from fedkit.streams import Streams

__all__ = [
    "AccuracyApproximation", "Fit", "Simulations", "contribution_index", "contribution_values",
    "fewest_simulations", "fit_aam", "fit_connected", "padded_inputs", "project", "sample_sizes",
    "shared_weights", "simulate", "train_by_adam",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sigmoid = Literal["shared", "connected"]
#: the network, and its mean squared errors on the way
Found = tuple["AccuracyApproximation", list[float]]


@one_line
@dataclass(frozen=True)
class Simulations:
    """What the Simulator returns: E of Algorithm 1.

    Attributes
    ----------
    sizes : float64[S, R, n]
        Scaled data sizes x: samples used, divided by the mean size of a client.  They must vary
        independently, or nothing can be learnt, and that is not noticed.
    accuracy : float64[S, R]
        Test accuracy after each round, or another score in [0, 1].
    """

    sizes: FloatArray
    accuracy: FloatArray

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        accuracy = np.asarray(self.accuracy, dtype=np.float64)
        if sizes.ndim != 3 or not sizes.size or accuracy.shape != sizes.shape[:2]:
            raise ValueError(
                f"sizes have shape {sizes.shape} and accuracy {accuracy.shape}; expected (S, R, n) "
                "and (S, R), and none of the three may be 0"
            )
        if not (np.isfinite(sizes).all() and (sizes >= 0).all() and np.isfinite(accuracy).all()):
            raise ValueError("a size is negative, or a size or an accuracy is not finite")
        if sizes.mean(axis=2).max() > 1 + 1e-9:  # the whole federation's is 1
            raise ValueError(
                "a round uses more than all data: divide the numbers of samples by the mean size "
                "of a client, as fedkit.methods.fedccea.simulate does"
            )
        if not -1e-9 <= accuracy.min() <= accuracy.max() <= 1 + 1e-9:
            worst = accuracy.flat[np.abs(accuracy - 0.5).argmax()]
            raise ValueError(
                f"an accuracy is {worst:g}; expected scores in [0, 1]: divide percentages by 100, "
                "and a loss is none"
            )
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "accuracy", accuracy)


def sample_sizes(sizes: IntArray, simulations: int, rounds: int, seed: int = 0) -> IntArray:
    """Draw ``d = |D_i| p``, p uniform on (0, 1), rounded down, per simulation and round: [S, R, n].

    So a client with one sample is never used, and none with all of its samples.  Simulation s has a
    stream of its own, so more simulations repeat the first ones.
    """
    owned = _amounts(sizes)
    whole("simulations", simulations, 1)
    whole("rounds", rounds, 1)
    streams = Streams(seed).child("fedccea")
    shares = np.stack(
        [streams.generator("sizes", s).random((rounds, len(owned))) for s in range(simulations)]
    )
    return np.floor(shares * owned).astype(np.int64)


def _amounts(sizes: npt.ArrayLike) -> FloatArray:
    owned = vector("sizes", sizes)
    if owned.min() < 0 or not owned.any():
        raise ValueError(f"sizes are {sizes!r}; expected numbers of samples from 0, not all 0")
    return owned


def simulate(
    federation: Federation,
    architecture: Model,
    local: LocalSGD,
    *,
    simulations: int = 100,
    rounds: int = 50,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool = False,
    train: TrainWithSizes = train_with_sizes,
) -> Simulations:
    """Run Algorithm 1, all simulations in lockstep.

    Accuracies are of the federation's *test* images, as in the paper; to keep these for the end,
    hand over ``dataclasses.replace(federation, x_test=federation.x_val, y_test=federation.y_val)``.

    Parameters
    ----------
    federation, architecture, local, seed, device, progress
        As in :func:`fedkit.federated.retraining.train_with_sizes`.
    simulations, rounds : int
        S and R; the paper: 100 and 50.
    train : callable
        ``train_with_sizes``, or a
        :class:`fedkit.federated.retraining_cache.RetrainingCache` that remembers.
    """
    drawn = sample_sizes(federation.sizes, simulations, rounds, seed)
    accuracy = train(
        federation, architecture, local, drawn, seed=seed, device=device, progress=progress
    )
    return Simulations(drawn / federation.sizes.mean(), accuracy)


def padded_inputs(sizes: FloatArray) -> FloatArray:
    """Inputs of the AAM: for every round what was used up to it, and zeros behind (Figure 3).

    From float64[S, R, n] to float64[S * R, R, n]; row ``s * R + r`` holds rounds 0 to r of
    simulation s.
    """
    s, r, n = sizes.shape
    past = np.tril(np.ones((r, r)))[None, :, :, None]  # [1, now, round, 1]
    return np.asarray((past * sizes[:, None]).reshape(s * r, r, n))


class AccuracyApproximation:
    """The AAM: shared weights, then two fully connected layers (section 3.2.1, appendix A).

    The only non-linearity stands behind the "shared" weights, or behind the first fully "connected"
    layer.

    Attributes
    ----------
    weights : tensor [P], or [K, P] of K networks side by side
        All of them in one row; what follows are views of it.
    quality, inner, inner_bias, outer, outer_bias : tensors [n], [R, H], [H], [H] and []
        omega, at least 0, and the connected layers.
    """

    def __init__(
        self,
        clients: int,
        rounds: int,
        nodes: int = 10,
        sigmoid: Sigmoid = "shared",
        *,
        rng: np.random.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.sigmoid = sigmoid
        self.shapes = ((clients,), (rounds, nodes), (nodes,), (nodes,), ())
        width = 1 / np.sqrt(rounds)
        drawn = (
            rng.uniform(0, 1 / np.sqrt(clients), clients),
            rng.uniform(-width, width, rounds * nodes),
            np.zeros(nodes),
            rng.uniform(-1, 1, nodes) / np.sqrt(nodes),
            np.zeros(1),
        )
        self._take(torch.from_numpy(np.concatenate(drawn)).to(dtype))

    def _take(self, weights: Tensor) -> None:
        pieces = weights.split([math.prod(shape) for shape in self.shapes], dim=-1)
        self.weights = weights
        self.quality, self.inner, self.inner_bias, self.outer, self.outer_bias = (
            piece.view((*weights.shape[:-1], *shape))
            for piece, shape in zip(pieces, self.shapes, strict=True)
        )

    def like(self, weights: Tensor) -> AccuracyApproximation:
        """Return a network of the same shape, or several, with other weights."""
        other = copy(self)
        other._take(weights)
        return other

    def __call__(self, inputs: Tensor) -> Tensor:
        """Predict accuracies ``[..., B]`` from padded sizes ``[B, R, n]``."""
        per_round = torch.tensordot(self.quality, inputs, dims=([-1], [-1]))
        if self.sigmoid == "shared":
            per_round = torch.sigmoid(per_round)
        return self._last(per_round @ self.inner + self.inner_bias[..., None, :])

    def running(self, sizes: Tensor) -> Tensor:
        """Predict accuracies ``[S, R]`` of one network from sizes ``[S, R, n]``, not padded.

        Nodes add up running sums; rounds that have not come add sigmoid(0) if that is before them.
        """
        per_round, bias = sizes @ self.quality, self.inner_bias
        if self.sigmoid == "shared":
            per_round, bias = torch.sigmoid(per_round) - 0.5, bias + self.inner.sum(dim=0) / 2
        return self._last((per_round[..., None] * self.inner).cumsum(dim=1) + bias)

    def _last(self, nodes: Tensor) -> Tensor:
        if self.sigmoid == "connected":
            nodes = torch.sigmoid(nodes)
        return (nodes @ self.outer[..., None])[..., 0] + self.outer_bias[..., None]

    @property
    def per_round(self) -> FloatArray | None:
        """a: what a round's sigmoid adds to the accuracy; None with it behind the nodes."""
        return None if self.sigmoid == "connected" else _numbers(self.inner @ self.outer)

    def accuracies(self, sizes: FloatArray) -> FloatArray:
        """Approximated accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        return _numbers(self.running(torch.from_numpy(sizes).to(self.weights)))


def _numbers(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().double().numpy())


@one_line
@dataclass(frozen=True)
class Fit:
    """A fitted AAM.

    Attributes
    ----------
    quality : float64[n]
        The shared weights omega, at least 0, up to a common factor; 0 for a client whom no
        simulation used.
    losses : list of float
        Mean squared error after each epoch or iteration.
    predicted : float64[S, R]
        Approximated accuracies.
    per_round : float64[R] or None
        a: what a round adds to the accuracies that follow, per unit of its sigmoid (None with the
        sigmoid behind the nodes).  Where its sum is negative, a larger quality is a *worse* client.
    predict : callable or None
        Maps other scaled sizes, float64[S, R, n], to approximated accuracies, float64[S, R].
    """

    quality: FloatArray
    losses: list[float] = field(repr=False)
    predicted: FloatArray = field(repr=False)
    per_round: FloatArray | None = field(default=None, repr=False)
    predict: Callable[[FloatArray], FloatArray] | None = field(default=None, repr=False)

    @property
    def error(self) -> float:
        """Root mean squared error at the end, in units of accuracy."""
        return float(np.sqrt(self.losses[-1]))


def fewest_simulations(clients: int, rounds: int) -> int:
    """How many simulations can tell the clients apart at all: R equations each, but the first."""
    whole("clients", clients, 1)
    whole("rounds", rounds, 1)
    return 1 + -(-clients // rounds)


def fit_aam(
    simulations: Simulations,
    *,
    sigmoid: Sigmoid = "shared",
    solver: Literal["converged", "adam"] = "converged",
    lr: float = 0.01,
    epochs: int = 200,
    seed: int = 0,
) -> Fit:
    """Run Algorithm 2: fit the AAM and take its shared weights.

    Parameters
    ----------
    simulations : Simulations
    sigmoid : {"shared", "connected"}
        As in :class:`AccuracyApproximation`.
    solver : {"converged", "adam"}
        How Eq. 2 is minimised; the paper names no optimiser.  "converged" is
        :func:`shared_weights` or :func:`fit_connected`, "adam" is :func:`train_by_adam`.
    lr : float
        Of Adam, at first; 0.01 for MNIST and 0.05 for EMNIST in the paper.  It falls to 0.
    epochs : int
        Of Adam.  A few simulations make few steps per epoch: raise it for them.
    seed : int
        Root seed of initial weights and batches.

    Raises
    ------
    ValueError
        If there are too few simulations (:func:`fewest_simulations`), the sizes or the accuracies
        of every round are all alike, or Adam diverges.
    """
    choice("sigmoid", sigmoid, ("shared", "connected"))
    choice("solver", solver, ("converged", "adam"))
    x, y = simulations.sizes, simulations.accuracy
    s, rounds, clients = x.shape
    fewest = fewest_simulations(clients, rounds)
    if s < fewest:
        raise ValueError(
            f"{s} simulations of {rounds} rounds for {clients} clients; take at least {fewest} "
            "simulations"
        )
    for name, numbers in (("sizes", x), ("accuracies", y)):
        if not np.ptp(numbers, axis=0).any():
            raise ValueError(f"the {name} of every round are all alike, so they say nothing")
    used = x.any(axis=(0, 1))
    if not used.all():
        warn(
            f"no simulation uses a sample of clients {np.flatnonzero(~used).tolist()}: their "
            "quality is told as 0"
        )
    x = np.ascontiguousarray(x[..., used])
    streams = Streams(seed).child("aam")
    rng = streams.generator("weights")
    if solver == "adam":  # lines 1, 7 and 8
        starts = [
            AccuracyApproximation(x.shape[2], rounds, sigmoid=sigmoid, rng=rng)
            for _ in range(ADAM_STARTS)
        ]
        network, losses = train_by_adam(
            starts, x, y, streams.generator("batches"), lr=lr, epochs=epochs
        )
    elif sigmoid == "connected":
        network, losses = fit_connected(x, y, rng)
    else:
        network, losses = shared_weights(x, y, random_starts(x, rng))

    def predict(sizes: FloatArray) -> FloatArray:
        amounts = np.asarray(sizes, np.float64)
        if amounts.ndim != 3 or amounts.shape[1:] != (rounds, clients):
            raise ValueError(f"sizes have shape {amounts.shape}; expected (S, {rounds}, {clients})")
        return network.accuracies(np.ascontiguousarray(amounts[..., used]))

    quality = np.zeros(clients)
    quality[used] = _numbers(network.quality)  # line 9
    return Fit(quality, losses, network.accuracies(x), network.per_round, predict)


def contribution_values(quality: npt.ArrayLike, sizes: npt.ArrayLike) -> FloatArray:
    """Client contribution value ``v_i = x_i omega_i``, x_i the scaled data size (section 3.2.2)."""
    amounts = _amounts(sizes)
    return amounts / amounts.mean() * vector("quality", quality, len(amounts))


def contribution_index(values: npt.ArrayLike | Valuation) -> FloatArray:
    """Client Contribution Index: ``max(v, 0)`` over its sum (Eq. 3); all alike if all are 0."""
    plain = values.values if isinstance(values, Valuation) else values
    positive = np.maximum(vector("values", plain), 0.0)
    if not positive.any():
        return np.full(len(positive), 1 / len(positive))
    positive /= positive.max()  # so that a sum of large values is finite
    return np.asarray(positive / positive.sum())


# The first reading to convergence, by variable projection.
#
# With the sigmoid behind the shared layer the two linear layers of the AAM are one linear function,
# so the fitted accuracy after round r is, up to the constant that the zeros of later rounds add,
#
#     acc_r = b + sum over rho <= r of a_rho h_rho,      h_rho = sigmoid(x_rho . omega) - 1/2.
#
# For given shared weights omega the best a and b solve a linear least squares problem, whose normal
# equations need no padded inputs: rounds rho and rho' both reach ``R - max(rho, rho')`` rounds.
# What remains is a smooth function of omega alone (Golub and Pereyra 1973).

#: mean of a round's ``x . omega`` at each start: where the sigmoid is straight, bent, nearly flat
_STARTS = (0.005, 2.5, 2.5, 5.0, 5.0)
#: of a weight; with scaled sizes around 1 the sigmoid is 1 long before, and the loss flat
_MOST = 1e3
#: least pivot of the normal equations, scaled to a diagonal of 1, that Cholesky's way is good for
_PIVOT = 1e-6


def project(
    quality: FloatArray, sizes: FloatArray, accuracy: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray, float]:
    """Least mean squared error at given shared weights, its gradient, the predictions, a and b.

    a and b are at their best, so that they contribute nothing to the gradient by omega.
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
    """Draw weights to begin with, float64[5, n]: tiny, or so large that all sigmoids bend.

    From starts between them the fit often ends in poor minima, in which some sigmoids are flat.
    """
    n, mean = sizes.shape[2], float(sizes.mean()) or 1.0
    return np.stack([rng.uniform(0, 2 * reach / (n * mean), n) for reach in _STARTS])


def shared_weights(sizes: FloatArray, accuracy: FloatArray, starts: FloatArray) -> Found:
    """Fit the shared weights from several starts, float64[starts, n]; the best minimum counts."""

    def slope(quality: FloatArray) -> tuple[float, FloatArray]:
        return project(quality, sizes, accuracy)[:2]

    options: dict[str, Any] = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
    bounds = [(0, _MOST)] * starts.shape[1]
    tried = [_descend(slope, start, bounds, **options) for start in starts]
    quality, losses = min(tried, key=lambda found: found[1][-1])
    _, _, _, a, b = project(quality, sizes, accuracy)
    # of the network one node is as good as ten
    network = AccuracyApproximation(len(quality), len(a), 1, rng=np.random.default_rng(0))
    weights = np.concatenate([quality, a, [0.0, 1.0, b - a.sum() / 2]])
    return network.like(torch.from_numpy(weights)), losses


def _descend(
    slope: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: Sequence[tuple[float | None, float | None]],
    watch: Callable[[FloatArray], None] | None = None,
    **options: float,
) -> tuple[FloatArray, list[float]]:
    """Run L-BFGS-B: its end and losses; `watch` sees every iterate, and may raise StopIteration."""
    scale, losses = 1e4, [slope(start)[0]]  # scaled, so that the tolerances are small beside it

    def scaled(row: FloatArray) -> tuple[float, FloatArray]:
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


def fit_connected(sizes: FloatArray, accuracy: FloatArray, rng: np.random.Generator) -> Found:
    """Fit the network, stopped where simulations that are left out are predicted best.

    Followed to its least error it learns noise by heart.  So a fifth of the simulations says how
    many iterations are best, from the start that predicts best, and all of them make the fit.
    """
    simulations, rounds, clients = sizes.shape

    def drawn() -> AccuracyApproximation:
        start = AccuracyApproximation(
            clients, rounds, sigmoid="connected", rng=rng, dtype=torch.float64
        )
        start.outer_bias.fill_(float(accuracy.mean()))
        return start

    def descend(
        start: AccuracyApproximation, rows: IntArray, steps: int, watch: Any = None
    ) -> Found:
        x, y = torch.from_numpy(sizes[rows]), torch.from_numpy(accuracy[rows])

        def slope(row: FloatArray) -> tuple[float, FloatArray]:
            weights = torch.from_numpy(row).requires_grad_()
            loss = (start.like(weights).running(x) - y).square().mean()
            (slopes,) = torch.autograd.grad(loss, weights)
            return loss.item(), slopes.numpy()

        row = start.weights.numpy()
        bounds = [(0, None)] * clients + [(None, None)] * (len(row) - clients)
        options: dict[str, Any] = {
            "maxiter": steps,
            "maxfun": 20 * steps,
            "ftol": 1e-13,
            "gtol": 1e-9,
        }
        row, losses = _descend(slope, row, bounds, watch, **options)
        return start.like(torch.from_numpy(row)), losses

    def error(network: AccuracyApproximation, rows: IntArray) -> float:
        return float(np.square(network.accuracies(sizes[rows]) - accuracy[rows]).mean())

    order = rng.permutation(simulations)
    cut = max(1, simulations // _LEFT_OUT)
    out, rest = order[:cut], order[cut:]

    def errors_on_the_way(start: AccuracyApproximation) -> list[float]:
        errors: list[float] = []

        def watch(row: FloatArray) -> None:
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
    sizes: FloatArray,
    accuracy: FloatArray,
    rng: np.random.Generator,
    *,
    lr: float,
    epochs: int,
) -> Found:
    """Train the network from several starts at once, by mini-batches, and take the best.

    The rate falls to 0 along half a cosine: at the paper's constant one the loss does not settle.
    A weight at its bound jitters above it: what ends below a thousandth of the mean weight is 0.
    """
    whole("epochs", epochs, 1)
    real("lr", lr, 0.0, above=True)
    inputs = torch.from_numpy(padded_inputs(sizes)).float()
    targets = torch.from_numpy(accuracy.reshape(-1)).float()
    many = starts[0].like(torch.stack([start.weights for start in starts]))
    many.outer_bias.fill_(float(targets.mean()))
    step, history = _adam(many.weights), []
    for epoch in range(epochs):
        rate = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for batch in torch.from_numpy(rng.permutation(len(targets))).split(ADAM_BATCH):
            weights = many.weights.clone().requires_grad_()
            left = many.like(weights)(inputs[batch]) - targets[batch]
            step(torch.autograd.grad(left.square().mean(dim=1).sum(), weights)[0], rate)
            many.quality.clamp_(min=0.0)  # appendix A
        history.append(_numbers((many(inputs) - targets).square().mean(dim=1)))
        if not np.isfinite(history[-1]).any():
            raise ValueError(f"Adam diverges with lr {lr}; take a smaller one")
    many.quality.mul_(many.quality >= _NOTHING * many.quality.mean(dim=1, keepdim=True))
    best = int(np.nanargmin(history[-1]))
    return many.like(many.weights[best]), [float(epoch[best]) for epoch in history]


def _adam(weights: Tensor) -> Callable[[Tensor, float], None]:
    """Return a step of Adam (Kingma and Ba 2015, Algorithm 1), which changes the weights in place.

    As ``torch.optim.Adam`` with its defaults, whose import alone takes seconds.
    """
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    steps = 0

    def step(slopes: Tensor, lr: float) -> None:
        nonlocal steps
        steps += 1
        first.lerp_(slopes, 0.1)
        second.mul_(0.999).addcmul_(slopes, slopes, value=0.001)
        root = (second.sqrt() / (1 - 0.999**steps) ** 0.5).add_(1e-8)
        weights.addcdiv_(first, root, value=-lr / (1 - 0.9**steps))

    return step
