"""FedCCEA: client contribution through an Accuracy Approximation Model (Shyn et al. 2021).

The *Simulator* (Algorithm 1) runs federations in which every client uses a random share of its
data in every round, and notes the test accuracies.  The *Evaluator* (Algorithm 2) fits a small
model, the AAM, that predicts these accuracies from the sizes; the weights of its first layer, one
per client, are taken for the quality of the client's data.  The paper leaves open where the AAM's
only sigmoid stands, and how it is fitted: ``fedkit/methods/optimisers.py`` has the ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedkit.checks import (
    Floats,
    Ints,
    brief,
    choice,
    function,
    having,
    numbers,
    one_line,
    real,
    vector,
    warn,
    whole,
)
from fedkit.federated.federation import Federation
from fedkit.federated.policies import positive_shares
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.games.valuation import Valuation
from fedkit.learning.models import Model
from fedkit.learning.training import LocalSGD
from fedkit.methods import optimisers
from fedkit.streams import Streams

Sigmoid = Literal["shared", "connected"]

# ------------------------------------------------------------------- Algorithm 1: the Simulator


@one_line
@dataclass(frozen=True)
class Simulations:
    """What the Simulator returns: E of Algorithm 1."""

    #: ``[S, R, n]``, scaled data sizes x; samples used, divided by the mean size of a client
    sizes: Floats
    accuracy: Floats  #: ``[S, R]``, on test data after each round, or another score in [0, 1]

    def __post_init__(self) -> None:
        sizes, accuracy = numbers("sizes", self.sizes), numbers("accuracy", self.accuracy)
        if sizes.ndim != 3 or not sizes.size or accuracy.shape != sizes.shape[:2]:
            raise ValueError(
                f"sizes are {brief(sizes)}, accuracy {brief(accuracy)}; expected [S, R, n], [S, R]"
            )
        known = np.isfinite(sizes).all() and np.isfinite(accuracy).all() and (sizes >= 0).all()
        if not known or sizes.mean(axis=2).max() > 1 + 1e-9:  # the whole federation's is 1
            raise ValueError("sizes must be finite, from 0, and divided by a client's mean size")
        if not -1e-9 <= accuracy.min() <= accuracy.max() <= 1 + 1e-9:
            raise ValueError(f"accuracy reaches {accuracy.max():g}; expected scores in [0, 1]")
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "accuracy", accuracy)


def sample_sizes(sizes: Ints, simulations: int, rounds: int, seed: int = 0) -> Ints:
    """Draw ``d = |D_i| p``, p uniform on (0, 1), rounded down, int64[S, R, n]."""
    owned = _amounts(sizes)
    whole("simulations", simulations, 1)
    whole("rounds", rounds, 1)
    streams = Streams(seed).child("fedccea")
    shares = np.stack(
        [streams.generator("sizes", s).random((rounds, len(owned))) for s in range(simulations)]
    )
    return np.floor(shares * owned).astype(np.int64)


def _amounts(sizes: npt.ArrayLike) -> Floats:
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
    """Run Algorithm 1, all simulations in lockstep; accuracies are of the federation's test images.

    Parameters
    ----------
    federation, architecture, local, seed, device, progress
        As in ``fedkit.federated.train_with_sizes``.
    simulations, rounds : int
        S and R.
    train : callable
        ``train_with_sizes``, or what stands in its place and remembers.
    """
    having("federation", federation, "sizes", "client_data")
    function("train", train)
    drawn = sample_sizes(federation.sizes, simulations, rounds, seed)
    accuracy = train(
        federation, architecture, local, drawn, seed=seed, device=device, progress=progress
    )
    return Simulations(drawn / federation.sizes.mean(), accuracy)


# ------------------------------------------------------ the AAM (section 3.2.1, appendix A)


def padded_inputs(sizes: Floats) -> Floats:
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
    layer.  `weights`, [P], or [K, P] of K networks, are `quality`, omega, at least 0, [n]; `inner`
    and its bias, [R, H] and [H]; `outer` and its bias, [H] and [].
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

    @classmethod
    def of_line(cls, quality: Floats, a: Floats, b: float) -> AccuracyApproximation:
        """The network that adds ``a (sigmoid - 1/2)`` of each round to b: one node does."""
        network = cls(len(quality), len(a), 1, rng=np.random.default_rng(0))
        weights = np.concatenate([quality, a, [0.0, 1.0, b - a.sum() / 2]])
        return network.like(torch.from_numpy(weights))

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
        """Predict accuracies ``[S, R]`` of one network from sizes ``[S, R, n]``, not padded."""
        per_round, bias = sizes @ self.quality, self.inner_bias
        if self.sigmoid == "shared":
            per_round, bias = torch.sigmoid(per_round) - 0.5, bias + self.inner.sum(dim=0) / 2
        return self._last((per_round[..., None] * self.inner).cumsum(dim=1) + bias)

    def _last(self, nodes: Tensor) -> Tensor:
        if self.sigmoid == "connected":
            nodes = torch.sigmoid(nodes)
        return (nodes @ self.outer[..., None])[..., 0] + self.outer_bias[..., None]

    @property
    def per_round(self) -> Floats | None:
        """a: what a round's sigmoid adds to the accuracy; None with it behind the nodes."""
        return None if self.sigmoid == "connected" else _numbers(self.inner @ self.outer)

    def accuracies(self, sizes: Floats) -> Floats:
        """Approximated accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        return _numbers(self.running(torch.from_numpy(sizes).to(self.weights)))


def _numbers(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().double().numpy())


# ------------------------------------------------------------------- Algorithm 2: the Evaluator


@one_line
@dataclass(frozen=True)
class Fit:
    """A fitted AAM."""

    #: ``[n]``, the shared weights omega, at least 0, up to a common factor; 0 for a client whom no
    #: simulation used
    quality: Floats
    losses: list[float] = field(repr=False)  #: mean squared error after each epoch or iteration
    predicted: Floats = field(repr=False)  #: ``[S, R]``, approximated accuracies
    #: a, ``[R]``; what a round adds per unit of its sigmoid (None with the sigmoid behind the
    #: nodes); where its sum is negative, a larger quality is a *worse* client
    per_round: Floats | None = field(default=None, repr=False)
    #: maps other scaled sizes, float64[S, R, n], to approximated accuracies, float64[S, R]
    predict: Callable[[Floats], Floats] | None = field(default=None, repr=False)

    @property
    def error(self) -> float:
        """Root mean squared error at the end, in units of accuracy."""
        return float(np.sqrt(self.losses[-1]))


def fewest_simulations(clients: int, rounds: int) -> int:
    """How many simulations can tell the clients apart at all: R equations each, but the first."""
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
        How Eq. 2 is minimised; the paper names no optimiser.
    lr : float
        Of Adam; it falls to 0.
    epochs : int
        Of Adam.
    seed : int
        Root seed of initial weights and batches.
    """
    having("simulations", simulations, "sizes", "accuracy")
    choice("sigmoid", sigmoid, ("shared", "connected"))
    choice("solver", solver, ("converged", "adam"))
    whole("epochs", epochs, 1)
    real("lr", lr, 0.0, above=True)
    x, y = simulations.sizes, simulations.accuracy
    s, rounds, clients = x.shape
    fewest = fewest_simulations(clients, rounds)
    if s < fewest:
        raise ValueError(f"{s} simulations for {clients} clients; take at least {fewest}")
    for name, array in (("sizes", x), ("accuracies", y)):
        if not np.ptp(array, axis=0).any():
            raise ValueError(f"the {name} of every round are all alike, so they say nothing")
    used = x.any(axis=(0, 1))
    if not used.all():
        warn(f"no simulation uses clients {np.flatnonzero(~used).tolist()}: their quality is 0")
    x = np.ascontiguousarray(x[..., used])
    streams = Streams(seed).child("aam")
    rng = streams.generator("weights")

    def drawn(dtype: torch.dtype) -> AccuracyApproximation:  # line 1
        network = AccuracyApproximation(x.shape[2], rounds, sigmoid=sigmoid, rng=rng, dtype=dtype)
        network.outer_bias.fill_(float(y.mean()))
        return network

    if solver == "adam":  # lines 7 and 8
        starts = [drawn(torch.float32) for _ in range(optimisers.ADAM_STARTS)]
        batches = streams.generator("batches")
        network, losses = optimisers.train_by_adam(
            starts, padded_inputs(x), y, batches, lr=lr, epochs=epochs
        )
    elif sigmoid == "connected":
        network, losses = optimisers.fit_connected(x, y, rng, lambda: drawn(torch.float64))
    else:
        best, a, b, losses = optimisers.shared_weights(x, y, optimisers.random_starts(x, rng))
        network = AccuracyApproximation.of_line(best, a, b)

    def predict(sizes: Floats) -> Floats:
        return network.accuracies(np.ascontiguousarray(sizes[..., used]))

    quality = np.zeros(clients)
    quality[used] = _numbers(network.quality)  # line 9
    return Fit(quality, losses, network.accuracies(x), network.per_round, predict)


def contribution_values(quality: npt.ArrayLike, sizes: npt.ArrayLike) -> Floats:
    """Client contribution value ``v_i = x_i omega_i``, x_i the scaled data size (section 3.2.2)."""
    amounts = _amounts(sizes)
    return amounts / amounts.mean() * vector("quality", quality, len(amounts))


def contribution_index(values: npt.ArrayLike | Valuation) -> Floats:
    """Client Contribution Index: ``max(v, 0)`` over its sum (Eq. 3); all alike if all are 0."""
    plain = values.values if isinstance(values, Valuation) else values
    return positive_shares(vector("values", plain))
