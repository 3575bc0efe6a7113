"""FedCCEA: client contribution through an Accuracy Approximation Model (Shyn et al. 2021).

The *Simulator* (Algorithm 1) runs federations in which every client uses a random share of its
data in every round, and notes the test accuracies.  The *Evaluator* (Algorithm 2) fits a small
model that predicts these accuracies from the sizes; its first layer has one non-negative weight per
client, shared by all rounds, which is taken for the quality of the client's data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from fedkit.federated.clients import Federation
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.learning.architectures import Architecture
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedccea_approximation import AccuracyApproximation, padded_inputs, train_by_adam
from fedkit.methods.fedccea_connected import fit_connected
from fedkit.methods.fedccea_projection import project, random_starts, shared_weights
from fedkit.streams import Streams

__all__ = [
    "AccuracyApproximation",
    "Fit",
    "Simulations",
    "contribution_index",
    "contribution_values",
    "fewest_simulations",
    "fit_aam",
    "padded_inputs",
    "sample_sizes",
    "simulate",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


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
        fit of the first reading (``solver="projection"``) does not mind other units; the other
        fits start, and stop, as suits this range.
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

    Raises
    ------
    ValueError
        If a number is out of its range, or nobody has data.
    """
    owned = np.asarray(sizes, dtype=np.float64)
    if owned.ndim != 1 or not (np.isfinite(owned) & (owned >= 0)).all() or not owned.any():
        raise ValueError("sizes are the clients' numbers of samples, from 0, and not all 0")
    _whole(simulations=simulations, rounds=rounds)
    streams = Streams(seed).child("fedccea")
    shares = np.stack(
        [streams.generator("sizes", s).random((rounds, len(owned))) for s in range(simulations)]
    )
    return np.floor(shares * owned).astype(np.int64)


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

    Returns
    -------
    Simulations
    """
    drawn = sample_sizes(federation.sizes, simulations, rounds, seed)
    accuracy = train(
        federation, architecture, local, drawn, seed=seed, device=device, progress=progress
    )
    return Simulations(drawn / federation.sizes.mean(), accuracy)


def _whole(**numbers: int) -> None:
    """Refuse what is no whole number from 1."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} is {value!r}; expected a whole number from 1")


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
    """Return how many simulations can tell the clients apart at all.

    A constant and one number per round fit a single simulation exactly, whatever the qualities are;
    each further simulation adds R equations for n qualities.
    """
    _whole(clients=clients, rounds=rounds)
    return 1 + -(-clients // rounds)


def fit_aam(
    simulations: Simulations,
    *,
    solver: Literal["projection", "quasi-newton", "adam"] | None = None,
    lr: float = 0.01,
    batch_size: int = 64,
    epochs: int = 200,
    starts: int = 5,
    sigmoid: Literal["shared", "connected"] = "shared",
    nodes: int = 10,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> Fit:
    """Run Algorithm 2: fit the AAM and take its shared weights.

    Parameters
    ----------
    simulations : Simulations
    solver : {"projection", "quasi-newton", "adam"}, optional
        How Eq. 2 is minimised; the paper names no optimiser.  "projection"
        (:mod:`fedkit.methods.fedccea_projection`, five starts) is the default where the sigmoid
        stands behind the shared layer, and "quasi-newton" (:mod:`fedkit.methods.fedccea_connected`,
        two starts) where it stands behind the nodes; "adam" trains either network by mini-batches.
    lr : float
        Of Adam, at first; 0.01 for MNIST and 0.05 for EMNIST in the paper.  It falls to 0.
    batch_size, epochs, starts : int
        Of Adam; of several starts, trained at once, the best counts.  A few simulations make few
        steps per epoch: raise `epochs` for them.
    sigmoid, nodes
        As in :class:`AccuracyApproximation`.
    seed : int
        Root seed of initial weights and batches.
    watch : callable, optional
        Called with the epoch (of projection: the iteration) and its loss.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        If there are too few simulations (:func:`fewest_simulations`), they say nothing because the
        sizes or the accuracies of every round are all alike, the solver cannot serve the sigmoid, a
        number is out of its range, or Adam diverges.
    """
    s, rounds, clients = simulations.sizes.shape
    _whole(starts=starts, nodes=nodes, batch_size=batch_size, epochs=epochs)
    if s < fewest_simulations(clients, rounds):
        raise ValueError(
            f"{s} simulations of {rounds} rounds for {clients} clients; take at least "
            f"{fewest_simulations(clients, rounds)} simulations"
        )
    x, y = simulations.sizes, simulations.accuracy
    for name, found in (("sizes", x), ("accuracies", y)):
        if not np.ptp(found, axis=0).any():
            raise ValueError(f"the {name} of every round are all alike, so they say nothing")
    used = x.any(axis=(0, 1))
    x, clients = _used_alone(x, used), int(used.sum())
    streams = Streams(seed).child("aam")
    if sigmoid not in ("shared", "connected"):
        raise ValueError(f'sigmoid is {sigmoid!r}; expected "shared" or "connected"')
    fitting = {"shared": "projection", "connected": "quasi-newton"}[sigmoid]
    solver = solver or fitting  # type: ignore[assignment]
    if solver == "adam":
        rng = streams.generator("weights")
        drawn = [
            AccuracyApproximation(clients, rounds, nodes, sigmoid, rng=rng) for _ in range(starts)
        ]
        model, losses, predicted = train_by_adam(
            drawn, x, y, streams.generator("batches"), lr=lr, batch_size=batch_size, epochs=epochs,
            watch=watch,
        )  # fmt: skip
        weights = np.asarray(model.quality.detach().double().numpy())
        fit = Fit(weights, losses, predicted, model.per_round, model.accuracies)
        return _of_everybody(fit, used)
    if solver != fitting:
        raise ValueError(
            f'solver is {solver!r}; expected "adam", or {fitting!r} with sigmoid={sigmoid!r}'
        )
    rng = streams.generator("weights")
    if solver == "quasi-newton":
        network, losses = fit_connected(x, y, rng, nodes=nodes)
        fit = Fit(network.quality, losses, network.predict(x), None, network.predict)
    else:
        quality, losses = shared_weights(x, y, random_starts(x, rng))
        _, _, predicted, a, b = project(quality, x, y)

        def predict(sizes: FloatArray) -> FloatArray:
            return b + np.cumsum((expit(sizes @ quality) - 0.5) * a, axis=1)

        fit = Fit(quality, losses, predicted, a, predict)
    if watch is not None:
        for i, loss in enumerate(losses):
            watch(i, loss)
    return _of_everybody(fit, used)


def _used_alone(sizes: FloatArray, used: npt.NDArray[np.bool_]) -> FloatArray:
    return sizes if used.all() else np.ascontiguousarray(sizes[..., used])


def _of_everybody(fit: Fit, used: npt.NDArray[np.bool_]) -> Fit:
    """Add the clients whom no simulation used, with a weight of 0, and check what is predicted."""
    quality, inner = np.zeros(len(used)), fit.predict
    quality[used] = fit.quality
    expected = (fit.predicted.shape[1], len(used))

    def predict(sizes: FloatArray) -> FloatArray:
        x = np.asarray(sizes, dtype=np.float64)
        if x.ndim != 3 or x.shape[1:] != expected or not np.isfinite(x).all():
            raise ValueError(
                f"sizes have shape {x.shape}; expected finite ones, (simulations, {expected[0]}, "
                f"{expected[1]})"
            )
        assert inner is not None
        return inner(_used_alone(x, used))

    return replace(fit, quality=quality, predict=predict)


def contribution_values(quality: npt.ArrayLike, sizes: npt.ArrayLike) -> FloatArray:
    """Client contribution value ``v_i = x_i omega_i``, x_i the scaled data size (section 3.2.2).

    Raises
    ------
    ValueError
        If the two are not one finite number per client, or nobody has data.
    """
    amounts, weights = (np.asarray(v, dtype=np.float64) for v in (sizes, quality))
    if (
        amounts.ndim != 1
        or amounts.shape != weights.shape
        or not (np.isfinite(amounts) & np.isfinite(weights) & (amounts >= 0)).all()
        or not amounts.any()
    ):
        raise ValueError(
            f"sizes have shape {amounts.shape} for {weights.shape} weights; expected one finite "
            "weight and one number of samples per client, not all zero"
        )
    return np.asarray(amounts / amounts.mean() * weights)


def contribution_index(values: npt.ArrayLike) -> FloatArray:
    """Client Contribution Index: ``max(v, 0)`` over its sum (Eq. 3); all alike if all are 0.

    Raises
    ------
    ValueError
        If there is not one finite value per client.
    """
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or not v.size or not np.isfinite(v).all():
        raise ValueError(f"values have shape {v.shape}; expected one finite value per client")
    positive = np.maximum(v, 0.0)
    if not positive.any():
        return np.full(len(v), 1 / len(v))
    positive /= positive.max()  # so that a sum of large values is finite
    return np.asarray(positive / positive.sum())
