"""FedCCEA: client contribution through an Accuracy Approximation Model (Shyn et al. 2021).

The *Simulator* (Algorithm 1) runs federations in which every client uses a random share of its
data in every round, and notes the test accuracies.  The *Evaluator* (Algorithm 2) fits a small
model that predicts these accuracies from the sizes; its first layer has one non-negative weight per
client, shared by all rounds, which is taken for the quality of the client's data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedkit.models import Architecture
from fedkit.partition import Federation
from fedkit.projection import project, shared_weights
from fedkit.retraining import train_with_sizes
from fedkit.streams import Streams
from fedkit.training import LocalSGD

__all__ = [
    "AccuracyApproximation",
    "Fit",
    "Simulations",
    "contribution_index",
    "contribution_values",
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
        Scaled data sizes x: samples used, divided by the mean size of a client.
    accuracy : float64[S, R]
        Test accuracy after each round, in [0, 1].
    """

    sizes: FloatArray
    accuracy: FloatArray

    def __post_init__(self) -> None:
        if self.sizes.ndim != 3 or self.accuracy.shape != self.sizes.shape[:2]:
            raise ValueError(
                f"sizes have shape {self.sizes.shape} and accuracy {self.accuracy.shape}; expected "
                "(S, R, n) and (S, R)"
            )
        if not (np.isfinite(self.sizes).all() and np.isfinite(self.accuracy).all()):
            raise ValueError("a size or an accuracy is not finite; a simulation has diverged")


def sample_sizes(sizes: IntArray, simulations: int, rounds: int, seed: int = 0) -> IntArray:
    """Draw ``d = |D_i| p`` with p uniform on (0, 1), rounded down, per simulation and round.

    Simulation s has a stream of its own, so more simulations repeat the first ones.

    Returns
    -------
    int64[S, R, n]
    """
    if simulations < 1 or rounds < 1:
        raise ValueError(
            f"simulations is {simulations} and rounds {rounds}; both must be at least 1"
        )
    streams = Streams(seed).child("fedccea")
    shares = np.stack(
        [streams.generator("sizes", s).random((rounds, len(sizes))) for s in range(simulations)]
    )
    return np.floor(shares * np.asarray(sizes)).astype(np.int64)


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
) -> Simulations:
    """Run Algorithm 1, all simulations in lockstep.

    Parameters
    ----------
    federation, architecture, local, seed, device, progress
        As in :func:`fedkit.retraining.train_with_sizes`.
    simulations, rounds : int
        S and R; the paper: 100 and 50.

    Returns
    -------
    Simulations
    """
    drawn = sample_sizes(federation.sizes, simulations, rounds, seed)
    accuracy = train_with_sizes(
        federation, architecture, local, drawn, seed=seed, device=device, progress=progress
    )
    return Simulations(drawn / federation.sizes.mean(), accuracy)


def padded_inputs(sizes: FloatArray) -> FloatArray:
    """Inputs of the AAM: for every round what was used up to it, and zeros behind (Figure 3).

    Parameters
    ----------
    sizes : float64[S, R, n]

    Returns
    -------
    float64[S * R, R, n]; row ``s * R + r`` holds rounds 0 to r of simulation s
    """
    s, r, n = sizes.shape
    past = np.tril(np.ones((r, r)))[None, :, :, None]  # [1, now, round, 1]
    return np.asarray((past * sizes[:, None]).reshape(s * r, r, n))


class AccuracyApproximation(nn.Module):
    """The AAM: shared weights, then two fully connected layers (section 3.2.1, appendix A).

    Parameters
    ----------
    clients, rounds : int
    nodes : int
        Nodes of the first fully connected layer; 10 in the paper.
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
        nodes: int = 10,
        sigmoid: Literal["shared", "connected"] = "shared",
        *,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        if sigmoid not in ("shared", "connected"):
            raise ValueError(f'sigmoid is {sigmoid!r}; expected "shared" or "connected"')
        self.sigmoid = sigmoid

        def uniform(*shape: int, low: float, high: float) -> nn.Parameter:
            return nn.Parameter(torch.from_numpy(rng.uniform(low, high, shape)).float())

        reach = 1 / np.sqrt(rounds)
        self.quality = uniform(clients, low=0.0, high=1 / np.sqrt(clients))  # omega
        self.inner = uniform(rounds, nodes, low=-reach, high=reach)
        self.inner_bias = nn.Parameter(torch.zeros(nodes))
        self.outer = uniform(nodes, low=-1 / np.sqrt(nodes), high=1 / np.sqrt(nodes))
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

    @torch.no_grad()
    def constrain(self) -> None:
        """Set negative shared weights to 0 (appendix A)."""
        self.quality.clamp_(min=0.0)


@dataclass(frozen=True)
class Fit:
    """A fitted AAM, as of the least loss.

    Attributes
    ----------
    quality : float64[n]
        The shared weights omega, at least 0; known up to a common factor only.
    losses : list of float
        Mean squared error after each epoch or iteration.
    predicted : float64[S, R]
        Approximated accuracies.
    """

    quality: FloatArray
    losses: list[float] = field(repr=False)
    predicted: FloatArray = field(repr=False)

    @property
    def error(self) -> float:
        """Least root mean squared error, in units of accuracy."""
        return float(np.sqrt(min(self.losses)))


def fit_aam(
    simulations: Simulations,
    *,
    solver: Literal["projection", "adam"] | None = None,
    lr: float = 0.01,
    batch_size: int = 64,
    epochs: int = 200,
    patience: int = 20,
    sigmoid: Literal["shared", "connected"] = "shared",
    nodes: int = 10,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> Fit:
    """Run Algorithm 2: fit the AAM and take its shared weights.

    Parameters
    ----------
    simulations : Simulations
    solver : {"projection", "adam"}, optional
        How Eq. 2 is minimised; the paper names no optimiser.  "projection"
        (:mod:`fedkit.projection`, three starts) is the default where the sigmoid stands behind the
        shared layer; "adam" trains the network by mini-batches.
    lr : float
        Of Adam; 0.01 for MNIST and 0.05 for EMNIST in the paper.
    batch_size, epochs, patience : int
        Of Adam; it ends when the loss has not fallen by a thousandth for `patience` epochs, and the
        best epoch counts.  A few simulations make few steps per epoch: raise `epochs` for them.
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
        If there are fewer simulated rounds than clients, or the solver cannot serve the sigmoid.
    """
    s, rounds, clients = simulations.sizes.shape
    if s * rounds < clients:
        raise ValueError(
            f"{s} simulations of {rounds} rounds for {clients} clients; take at least "
            f"{-(-clients // rounds)} simulations"
        )
    streams = Streams(seed).child("aam")
    solver = solver or ("projection" if sigmoid == "shared" else "adam")
    if solver == "adam":
        model = AccuracyApproximation(
            clients, rounds, nodes, sigmoid, rng=streams.generator("weights")
        )
        return _by_adam(
            model,
            simulations,
            streams.generator("batches"),
            lr,
            batch_size,
            epochs,
            patience,
            watch,
        )
    if solver != "projection" or sigmoid != "shared":
        raise ValueError(
            f'solver is {solver!r} and sigmoid {sigmoid!r}; expected "adam", or "projection" with '
            'sigmoid="shared"'
        )
    x, y = simulations.sizes, simulations.accuracy
    starts = streams.generator("weights").uniform(0, 1 / np.sqrt(clients), (3, clients))
    quality, losses = shared_weights(x, y, starts)
    if watch is not None:
        for i, loss in enumerate(losses):
            watch(i, loss)
    return Fit(quality, losses, project(quality, x, y)[2])


def _by_adam(
    model: AccuracyApproximation,
    simulations: Simulations,
    rng: np.random.Generator,
    lr: float,
    batch_size: int,
    epochs: int,
    patience: int,
    watch: Callable[[int, float], None] | None,
) -> Fit:
    inputs = torch.from_numpy(padded_inputs(simulations.sizes)).float()
    targets = torch.from_numpy(simulations.accuracy.reshape(-1)).float()
    with torch.no_grad():
        model.outer_bias.fill_(float(targets.mean()))
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    losses: list[float] = []
    mark, since, best, kept = np.inf, 0, np.inf, model.state_dict()
    for epoch in range(epochs):
        for batch in torch.from_numpy(rng.permutation(len(targets))).split(batch_size):
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
            loss.backward()
            optimiser.step()
            model.constrain()
        with torch.no_grad():
            losses.append(float(nn.functional.mse_loss(model(inputs), targets)))
        if watch is not None:
            watch(epoch, losses[-1])
        if losses[-1] < best:  # the last epoch need not be the best one
            best, kept = losses[-1], {k: v.clone() for k, v in model.state_dict().items()}
        mark, since = (best, 0) if best < 0.999 * mark else (mark, since + 1)
        if since >= patience:
            break
    model.load_state_dict(kept)
    with torch.no_grad():
        predicted = model(inputs).double().numpy().reshape(simulations.accuracy.shape)
    return Fit(model.quality.detach().double().numpy(), losses, predicted)


def contribution_values(quality: FloatArray, sizes: npt.ArrayLike) -> FloatArray:
    """Client contribution value ``v_i = x_i omega_i``, x_i the scaled data size (section 3.2.2)."""
    amounts = np.asarray(sizes, dtype=np.float64)
    if amounts.shape != np.shape(quality) or (amounts < 0).any() or amounts.sum() == 0:
        raise ValueError(
            f"sizes have shape {amounts.shape} for {np.shape(quality)} weights; expected one "
            "number of samples per client, not all zero"
        )
    return np.asarray(amounts / amounts.mean() * quality)


def contribution_index(values: npt.ArrayLike) -> FloatArray:
    """Client Contribution Index: ``max(v, 0)`` over its sum (Eq. 3); all alike if all are 0."""
    positive = np.maximum(np.asarray(values, dtype=np.float64), 0.0)
    if not np.isfinite(positive).all():
        raise ValueError("a contribution value is not finite")
    total = positive.sum()
    return positive / total if total > 0 else np.full(len(positive), 1 / len(positive))
