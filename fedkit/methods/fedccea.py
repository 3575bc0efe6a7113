"""FedCCEA: client contribution through an Accuracy Approximation Model (Shyn et al. 2021).

The *Simulator* (Algorithm 1) runs federations in which every client uses a random share of its
data in every round, and notes the test accuracies.  The *Evaluator* (Algorithm 2) fits a small
model, the AAM, that predicts these accuracies from the sizes; its first layer has one non-negative
weight per client, shared by all rounds, which is taken for the quality of the client's data.
Quality times size is the client's value, and its positive part over the sum the index (section
3.2.2, Eq. 3).

The paper leaves open where the only sigmoid of the AAM stands: behind the shared weights, or behind
the nodes of the first fully connected layer.  The file ends with how either reading is fitted to
convergence, and with Adam for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import lapack
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedkit.checks import choice, real, vector, whole
from fedkit.federated.clients import Federation
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.learning.architectures import Architecture
from fedkit.learning.training import LocalSGD
from fedkit.streams import Streams

__all__ = [
    "AccuracyApproximation",
    "Connected",
    "Fit",
    "Simulations",
    "contribution_index",
    "contribution_values",
    "fewest_simulations",
    "fit_aam",
    "fit_connected",
    "padded_inputs",
    "project",
    "random_starts",
    "sample_sizes",
    "shared_weights",
    "simulate",
    "train_by_adam",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sigmoid = Literal["shared", "connected"]
_Watch = Callable[[FloatArray, float], None]

#: of the first fully connected layer, in the paper
NODES = 10


@dataclass(frozen=True)
class Simulations:
    """What the Simulator returns: E of Algorithm 1.

    Attributes
    ----------
    sizes : float64[S, R, n]
        Scaled data sizes x: samples used, divided by the mean size of a client.  They must vary
        independently: of a client whose amount never changes, or always in proportion to
        another's, nothing can be learnt, and that is not noticed.
    accuracy : float64[S, R]
        Test accuracy after each round, in [0, 1], or another score of that range.  The converged
        fit of the first reading does not mind other units; the others start, and stop, as
        suits this range.
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
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "accuracy", accuracy)


def sample_sizes(sizes: IntArray, simulations: int, rounds: int, seed: int = 0) -> IntArray:
    """Draw ``d = |D_i| p`` with p uniform on (0, 1), rounded down, per simulation and round.

    Simulation s has a stream of its own, so more simulations repeat the first ones.

    Returns
    -------
    int64[S, R, n]
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
    architecture: Architecture,
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

    Parameters
    ----------
    federation, architecture, local, seed, device, progress
        As in :func:`fedkit.federated.retraining.train_with_sizes`.
    simulations, rounds : int
        S and R; the paper: 100 and 50.
    train : callable
        ``train_with_sizes``, or a :class:`fedkit.federated.retraining_cache.RetrainingCache` that
        remembers.
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


class AccuracyApproximation(nn.Module):
    """The AAM: shared weights, then two fully connected layers (section 3.2.1, appendix A).

    Parameters
    ----------
    nodes : int
        Of the first fully connected layer; 10 in the paper.
    sigmoid : {"shared", "connected"}
        Layer with the only non-linearity: "the first layer of the AAM" (appendix A), so the shared
        weights (section 3.2.1), or the first fully connected one.
    rng : numpy.random.Generator
        Initial weights.
    """

    def __init__(
        self,
        clients: int,
        rounds: int,
        nodes: int = NODES,
        sigmoid: Sigmoid = "shared",
        *,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        self.sigmoid = sigmoid

        self.quality, self.inner, self.inner_bias, self.outer = (
            nn.Parameter(torch.from_numpy(weights).float())
            for weights in _drawn(rng, clients, rounds, nodes)
        )
        self.outer_bias = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Predict accuracies ``[B]`` from padded sizes ``[B, R, n]``."""
        per_round = inputs @ self.quality
        if self.sigmoid == "shared":
            per_round = torch.sigmoid(per_round)
        hidden = per_round @ self.inner + self.inner_bias
        if self.sigmoid == "connected":
            hidden = torch.sigmoid(hidden)
        return hidden @ self.outer + self.outer_bias

    @property
    def per_round(self) -> FloatArray | None:
        """a: what a round's sigmoid adds to the accuracy; None with the sigmoid behind the nodes.

        Without a sigmoid between them the two connected layers are one linear function.
        """
        if self.sigmoid == "connected":
            return None
        return np.asarray((self.inner @ self.outer).detach().double().numpy())

    @torch.no_grad()
    def accuracies(self, sizes: FloatArray) -> FloatArray:
        """Approximated accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        found = self(torch.from_numpy(padded_inputs(sizes)).float())
        return np.asarray(found.double().numpy().reshape(sizes.shape[:2]))


def _drawn(
    rng: np.random.Generator, clients: int, rounds: int, nodes: int = NODES
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Weights to begin with: the clients', those and the biases of the nodes, the last layer's."""
    return (
        rng.uniform(0, 1 / np.sqrt(clients), clients),
        rng.uniform(-1 / np.sqrt(rounds), 1 / np.sqrt(rounds), (rounds, nodes)),
        np.zeros(nodes),
        rng.uniform(-1, 1, nodes) / np.sqrt(nodes),
    )


@dataclass(frozen=True)
class Fit:
    """A fitted AAM.

    Attributes
    ----------
    quality : float64[n]
        The shared weights omega, at least 0; known up to a common factor only.  0 for a client
        whom no simulation used: nothing is known of it.
    losses : list of float
        Mean squared error after each epoch or iteration.
    predicted : float64[S, R]
        Approximated accuracies.
    per_round : float64[R] or None
        a: what a round adds to the accuracies that follow, per unit of its sigmoid; None with the
        sigmoid behind the nodes.  Where its sum is negative, so do data: a larger quality means a
        *worse* client.
    predict : callable or None
        Maps other scaled sizes, float64[S, R, n], to approximated accuracies, float64[S, R];
        raises ValueError for another number of rounds or clients.
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
    """How many simulations can tell the clients apart at all.

    A constant and one number per round fit a single simulation exactly, whatever the qualities are;
    each further simulation adds R equations for n qualities.
    """
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
        How Eq. 2 is minimised; the paper names no optimiser.  "converged" is variable projection
        (:func:`shared_weights`) where the sigmoid stands behind the shared layer, and quasi-Newton
        steps (:func:`fit_connected`) where it stands behind the nodes; "adam" trains either network
        by mini-batches (:func:`train_by_adam`).
    lr : float
        Of Adam, at first; 0.01 for MNIST and 0.05 for EMNIST in the paper.  It falls to 0.
    epochs : int
        Of Adam.  A few simulations make few steps per epoch: raise it for them.
    seed : int
        Root seed of initial weights and batches.

    Raises
    ------
    ValueError
        If there are too few simulations (:func:`fewest_simulations`), they say nothing because the
        sizes or the accuracies of every round are all alike, an argument is out of its range, or
        Adam diverges.
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
    x = np.ascontiguousarray(x[..., used])
    streams = Streams(seed).child("aam")
    rng = streams.generator("weights")
    predict: Callable[[FloatArray], FloatArray]
    per_round: FloatArray | None = None
    if solver == "adam":
        starts = [
            AccuracyApproximation(x.shape[2], rounds, sigmoid=sigmoid, rng=rng)
            for _ in range(ADAM_STARTS)
        ]
        model, losses = train_by_adam(
            starts, x, y, streams.generator("batches"), lr=lr, epochs=epochs
        )
        found = np.asarray(model.quality.detach().double().numpy())
        predict, per_round = model.accuracies, model.per_round
    elif sigmoid == "connected":
        network, losses = fit_connected(x, y, rng)
        found, predict = network.quality, network.predict
    else:
        found, losses = shared_weights(x, y, random_starts(x, rng))
        _, _, _, a, b = project(found, x, y)
        predict, per_round = partial(_accuracies, quality=found, per_round=a, constant=b), a

    def predict_checked(sizes: FloatArray) -> FloatArray:
        given = np.asarray(sizes, dtype=np.float64)
        if given.ndim != 3 or given.shape[1:] != (rounds, clients) or not np.isfinite(given).all():
            raise ValueError(
                f"sizes have shape {given.shape}; expected finite ones, (simulations, {rounds}, "
                f"{clients})"
            )
        return predict(np.ascontiguousarray(given[..., used]))

    quality = np.zeros(clients)
    quality[used] = found
    return Fit(quality, losses, predict(x), per_round, predict_checked)


def contribution_values(quality: npt.ArrayLike, sizes: npt.ArrayLike) -> FloatArray:
    """Client contribution value ``v_i = x_i omega_i``, x_i the scaled data size (section 3.2.2).

    Raises
    ------
    ValueError
        If the two are not one finite number per client, or nobody has data.
    """
    amounts = _amounts(sizes)
    return amounts / amounts.mean() * vector("quality", quality, len(amounts))


def contribution_index(values: npt.ArrayLike) -> FloatArray:
    """Client Contribution Index: ``max(v, 0)`` over its sum (Eq. 3); all alike if all are 0.

    Raises
    ------
    ValueError
        If there is not one finite value per client.
    """
    positive = np.maximum(vector("values", values), 0.0)
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
# For given shared weights omega the best a and b solve a linear least squares problem; what remains
# is a smooth function of omega alone (Golub and Pereyra 1973).  Its normal equations need no padded
# inputs: round rho reaches all of rounds rho to R, so the products of the columns of rho and rho'
# are those of h times the ``R - max(rho, rho')`` rounds (from 0) that both reach.

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

    The arguments are omega, float64[n], and what :class:`Simulations` holds.

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


def _accuracies(
    sizes: FloatArray, quality: FloatArray, per_round: FloatArray, constant: float
) -> FloatArray:
    return constant + np.cumsum((expit(sizes @ quality) - 0.5) * per_round, axis=1)


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
    sizes: FloatArray, accuracy: FloatArray, starts: FloatArray
) -> tuple[FloatArray, list[float]]:
    """Fit the shared weights, at least 0, from several starts; the best local minimum counts.

    Large starts may stay where every sigmoid is 1 (:func:`random_starts` has small ones as well).

    Parameters
    ----------
    sizes, accuracy
        As in :class:`Simulations`.
    starts : float64[starts, n]

    Returns
    -------
    quality : float64[n]
    losses : list of float
        Mean squared errors at the start and after each iteration, of the best start.
    """

    def slope(quality: FloatArray) -> tuple[float, FloatArray]:
        return project(quality, sizes, accuracy)[:2]

    def descend(start: FloatArray) -> tuple[FloatArray, list[float]]:
        losses, bounds = [slope(start)[0]], [(0, _MOST)] * len(start)
        options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
        quality = _descend(slope, start, bounds, lambda _, loss: losses.append(loss), **options)
        return quality, losses

    return min(map(descend, starts), key=lambda tried: tried[1][-1])


def _descend(
    slope: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: Sequence[tuple[float | None, float | None]],
    watch: _Watch,
    **options: float,
) -> FloatArray:
    """Run L-BFGS-B; `watch` sees every iterate and its loss, and may stop it (StopIteration)."""
    scale = 1e4  # of the loss, so that the tolerances are small beside it

    def scaled(row: FloatArray) -> tuple[float, FloatArray]:
        loss, slopes = slope(row)
        return scale * loss, scale * slopes

    def seen(intermediate_result: OptimizeResult) -> None:
        watch(intermediate_result.x, float(intermediate_result.fun) / scale)

    found = minimize(
        scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=seen, options=options
    )
    return np.asarray(found.x)


# The second reading, by quasi-Newton steps on all simulations.
#
# With the sigmoid behind the nodes the accuracy after round r is, with node k,
#
#     acc_r = b + sum_k v_k sigmoid(c_k + sum over rho <= r of u_{rho k} X_rho),
#     X_rho = x_rho . omega.
#
# What the nodes add up are running sums over the rounds, so no padded input is needed: what goes in
# is smaller by a factor R, and all simulations fit into every step.

CONNECTED_STARTS = 2
#: most iterations, and those without a better prediction after which the search for their best
#: number ends
_ITERATIONS, _PATIENCE = 500, 50
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

    def flat(self) -> FloatArray:
        """All parameters in one row."""
        return np.r_[self.quality, self.inner.ravel(), self.bias, self.outer, self.constant]

    def like(self, row: FloatArray) -> Connected:
        """The network of the same shape with the parameters of a row."""
        n, (rounds, nodes) = len(self.quality), self.inner.shape
        omega, u, c, v, b = np.split(row, np.cumsum([n, rounds * nodes, nodes, nodes]))
        return Connected(omega, u.reshape(rounds, nodes), c, v, float(b[0]))

    def predict(self, sizes: FloatArray) -> FloatArray:
        """Accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        return self._nodes(sizes)[1] @ self.outer + self.constant

    def _nodes(self, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """X, float64[S, R], and the nodes' outputs, float64[S, R, H]."""
        rounds = len(self.inner)
        x = (sizes.reshape(-1, len(self.quality)) @ self.quality).reshape(-1, rounds)
        return x, expit(np.cumsum(x[..., None] * self.inner, axis=1) + self.bias)

    def slope(self, sizes: FloatArray, accuracy: FloatArray) -> tuple[float, Connected]:
        """Mean squared error and its slopes, in the shape of the network."""
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


def fit_connected(
    sizes: FloatArray, accuracy: FloatArray, rng: np.random.Generator
) -> tuple[Connected, list[float]]:
    """Fit the network, stopped where simulations that are left out are predicted best.

    The model has R numbers per node.  Followed to its least error it learns the noise of a hundred
    simulations by heart: on simulations that it has not seen it then knows less than it did on the
    way.  So a fifth of the simulations says how many iterations are best, from the start that
    predicts best, and all of them make the fit.

    Parameters
    ----------
    sizes, accuracy
        As in :class:`Simulations`, of which there are at least two.
    rng : numpy.random.Generator
        Initial parameters, and which simulations are left out.

    Returns
    -------
    Connected
    losses : list of float
        Mean squared errors at the start and after each iteration of the final fit.
    """
    simulations, rounds, clients = sizes.shape

    def drawn() -> Connected:
        return Connected(*_drawn(rng, clients, rounds), float(accuracy.mean()))

    def descend(start: Connected, rows: IntArray, steps: int, watch: _Watch) -> Connected:
        x, y = sizes[rows], accuracy[rows]

        def slope(row: FloatArray) -> tuple[float, FloatArray]:
            loss, slopes = start.like(row).slope(x, y)
            return loss, slopes.flat()

        row = start.flat()
        bounds = [(0, None)] * clients + [(None, None)] * (len(row) - clients)
        options = {"maxiter": steps, "maxfun": 20 * steps, "ftol": 1e-13, "gtol": 1e-9}
        return start.like(_descend(slope, row, bounds, watch, **options))

    order = rng.permutation(simulations)
    cut = max(1, simulations // _LEFT_OUT)
    out, rest = order[:cut], order[cut:]

    def errors_on_the_way(start: Connected) -> list[float]:
        errors: list[float] = []

        def watch(row: FloatArray, _: float) -> None:
            left = start.like(row).predict(sizes[out]) - accuracy[out]
            errors.append(float(np.square(left).mean()))
            if len(errors) > int(np.argmin(errors)) + _PATIENCE:
                raise StopIteration

        descend(start, rest, _ITERATIONS, watch)
        return errors

    least, steps, start = np.inf, 0, drawn()
    for other in [drawn() for _ in range(CONNECTED_STARTS)]:
        errors = errors_on_the_way(other)
        if errors and min(errors) < least:
            least, steps, start = min(errors), 1 + int(np.argmin(errors)), other
    losses = [start.slope(sizes, accuracy)[0]]
    if not steps:
        return start, losses
    everything = np.arange(simulations)
    return descend(start, everything, steps, lambda _, loss: losses.append(loss)), losses


# Either reading by Adam, whose mini-batches are of padded inputs.

ADAM_STARTS, ADAM_BATCH = 5, 64
#: of the mean shared weight; less is a weight of 0
_NOTHING = 1e-3


@torch.no_grad()
def train_by_adam(
    starts: Sequence[AccuracyApproximation],
    sizes: FloatArray,
    accuracy: FloatArray,
    rng: np.random.Generator,
    *,
    lr: float,
    epochs: int,
) -> tuple[AccuracyApproximation, list[float]]:
    """Train the network from several starts at once, by mini-batches, and take the best.

    The rate falls to 0 along half a cosine.  At the paper's constant one the loss of EMNIST's model
    (0.05) does not settle, and in many starts all shared weights end at 0 for good.  A weight at
    its bound jitters a last step above it: what ends below a thousandth of the mean weight is 0.

    Parameters
    ----------
    starts : sequence of AccuracyApproximation
        Networks that differ in their initial weights only; trained in place.
    sizes, accuracy
        As in :class:`Simulations`.
    rng : numpy.random.Generator
        Order of the batches, the same for all starts.
    lr, epochs
        As in :func:`fit_aam`.

    Returns
    -------
    AccuracyApproximation
        The one with the least loss after the last epoch.
    losses : list of float
        Its mean squared error after each epoch.
    """
    whole("epochs", epochs, 1)
    real("lr", lr, 0.0, above=True)
    inputs = torch.from_numpy(padded_inputs(sizes)).float()
    targets = torch.from_numpy(accuracy.reshape(-1)).float()
    weights = torch.stack([parameters_to_vector(s.parameters()).detach() for s in starts])
    weights.grad = torch.zeros_like(weights)
    many = _Networks(weights, starts[0])
    many.outer_bias.fill_(float(targets.mean()))
    step = _adam(weights)
    history = []
    for epoch in range(epochs):
        rate = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for batch in torch.from_numpy(rng.permutation(len(targets))).split(ADAM_BATCH):
            many.slope(inputs[batch], targets[batch])
            step(rate)
            many.quality.clamp_(min=0.0)  # appendix A
        history.append((many.predict(inputs) - targets).square().mean(dim=1).double().numpy())
        if not np.isfinite(history[-1]).any():
            raise ValueError(f"Adam diverges with lr {lr}; take a smaller one")
    many.quality.mul_(many.quality >= _NOTHING * many.quality.mean(dim=1, keepdim=True))
    best = int(np.nanargmin(history[-1]))
    vector_to_parameters(weights[best], starts[best].parameters())
    return starts[best], [float(epoch[best]) for epoch in history]


def _adam(weights: Tensor) -> Callable[[float], None]:
    """Return a step of Adam (Kingma and Ba 2015, Algorithm 1) on weights with a ``grad``.

    As ``torch.optim.Adam`` with its defaults, whose import alone takes seconds.
    """
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    steps = 0

    def step(lr: float) -> None:
        nonlocal steps
        steps += 1
        assert weights.grad is not None
        first.lerp_(weights.grad, 0.1)
        second.mul_(0.999).addcmul_(weights.grad, weights.grad, value=0.001)
        root = (second.sqrt() / (1 - 0.999**steps) ** 0.5).add_(1e-8)
        weights.addcdiv_(first, root, value=-lr / (1 - 0.9**steps))

    return step


class _Networks:
    """Several networks of the same shape, and the slopes of their mean squared errors.

    The slopes are written out: on networks this small automatic differentiation takes several times
    as long as what it differentiates.

    Parameters
    ----------
    weights : float32[K, P]
        One network per row, in the order of ``like.parameters()``; with a ``grad``.
    """

    def __init__(self, weights: Tensor, like: AccuracyApproximation) -> None:
        shapes = [p.shape for p in like.parameters()]

        def parts(rows: Tensor) -> list[Tensor]:
            pieces = rows.split([shape.numel() for shape in shapes], dim=1)
            return [p.view(len(rows), *shape) for p, shape in zip(pieces, shapes, strict=True)]

        assert weights.grad is not None
        self.connected = like.sigmoid == "connected"
        self.quality, self.inner, self.inner_bias, self.outer, self.outer_bias = parts(weights)
        self.slopes = parts(weights.grad)

    def predict(self, inputs: Tensor) -> Tensor:
        """Predict ``[K, B]`` from padded sizes ``[B, R, n]``."""
        return self._layers(inputs)[2]

    def _layers(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the shared layer, ``[K, B, R]``, the nodes, ``[K, B, H]``, and the last."""
        b, r, n = inputs.shape
        shared = (self.quality @ inputs.view(-1, n).T).view(-1, b, r)
        if not self.connected:
            shared.sigmoid_()
        hidden = torch.baddbmm(self.inner_bias[:, None], shared, self.inner)
        if self.connected:
            hidden.sigmoid_()
        last = torch.baddbmm(self.outer_bias[:, None, None], hidden, self.outer[..., None])
        return shared, hidden, last[..., 0]

    def slope(self, inputs: Tensor, targets: Tensor) -> None:
        """Put the slopes of the mean squared errors of a batch into the weights' ``grad``."""
        shared, hidden, predicted = self._layers(inputs)
        left = (predicted - targets) * (2 / len(targets))
        by_hidden = left[..., None] * self.outer[:, None]
        if self.connected:
            by_hidden *= hidden * (1 - hidden)
        by_shared = by_hidden @ self.inner.mT
        if not self.connected:
            by_shared *= shared * (1 - shared)
        found = (
            by_shared.flatten(1) @ inputs.flatten(0, 1),
            shared.mT @ by_hidden,
            by_hidden.sum(dim=1),
            (hidden.mT @ left[..., None])[..., 0],
            left.sum(dim=1),
        )
        for slope, value in zip(self.slopes, found, strict=True):
            slope.copy_(value)
