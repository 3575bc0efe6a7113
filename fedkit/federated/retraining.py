"""Federated training from scratch with chosen amounts of data: many federations in lockstep.

A coalition is a federation in which the others use no data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedkit.checks import Floats, Ints, brief, flag, function, having, numbers, whole
from fedkit.extras import bar
from fedkit.federated.federation import Federation
from fedkit.games.coalitions import Coalitions
from fedkit.games.game import Game
from fedkit.learning.device import find_device
from fedkit.learning.evaluation import Evaluator, Score
from fedkit.learning.models import Model
from fedkit.learning.training import LocalSGD, train_clients
from fedkit.streams import Streams

#: coalitions that are trained together
_TOGETHER = 64


class InOrder(np.random.Generator):
    """A generator whose permutations leave everything in place (FedCCEA, appendix B.1)."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def permutation(self, x: int, axis: int = 0) -> Ints:  # type: ignore[override]
        """Return 0, 1, ..., x - 1."""
        return np.arange(x, dtype=np.int64)


def train_with_sizes(
    federation: Federation,
    architecture: Model,
    local: LocalSGD,
    sizes: npt.ArrayLike,
    *,
    seed: int = 0,
    every_round: bool = True,
    device: str | torch.device | None = None,
    progress: bool = False,
    weights: npt.ArrayLike | None = None,
    utility: Literal["accuracy"] | Score = "accuracy",
) -> Floats:
    """Train federations that differ in how much data each client uses in each round.

    Parameters
    ----------
    federation, architecture, local
        Clients, their model, and local training; a client goes through its samples in one order.
    sizes : int array (B, R, n)
        In federation b and round r client i trains on its first ``sizes[b, r, i]`` samples.
    seed : int
        Root seed of the initial model, which all B federations share.
    every_round : bool
        False: test after the last round only.
    weights : float array (B, n), optional
        Weights of the clients' models in the place of the used sizes, at least 0; in each round
        they are shared out among those who use data.
    utility : {"accuracy"} or callable
        What is measured on the test data, as ``fk.Evaluator`` takes it.

    Returns
    -------
    float64[B, R], or float64[B, 1]
        Test accuracy after each round, in [0, 1]; with a last axis where a utility is a vector.
        A federation that overflows is taken to answer class 0 always.
    """
    _check_parts(federation, architecture, local)
    used = check_sizes(federation, sizes)
    flag("every_round", every_round)
    place = find_device(device)
    test = Evaluator(architecture, federation.x_test, federation.y_test, utility, device=place)
    mass = used if weights is None else _check_weights(weights, used)
    data = [federation.client_data(i) for i in range(federation.n_clients)]
    start = architecture.init(Streams(seed).generator("model"))
    models = start.repeat(len(used), 1)
    chance = float((federation.y_test == 0).double().mean())
    accuracy = []
    for t in bar(range(used.shape[1]), progress, "round"):
        total = mass[:, t].sum(axis=1, keepdims=True)
        share = np.divide(mass[:, t], total, out=np.zeros(mass[:, t].shape), where=total > 0)
        busy, taking = total[:, 0] > 0, used[:, t] * (mass[:, t] > 0)
        jobs, clients = np.nonzero(taking)
        first = zip(clients, taking[jobs, clients], strict=True)
        parts = [(data[i][0][:amount], data[i][1][:amount]) for i, amount in first]
        begun, rngs = models[jobs], [InOrder()] * len(jobs)
        ended = train_clients(architecture, begun, parts, local, rngs, device=place)
        if federation.attacks:
            streams = Streams(seed).child("round", t)
            ended = begun + federation.sent(ended - begun, clients.tolist(), streams)
        weight = torch.as_tensor(share[jobs, clients], dtype=torch.float32)[:, None]
        mean = torch.zeros_like(models).index_add_(0, torch.from_numpy(jobs), weight * ended)
        models[busy] = mean[busy]
        if every_round or t + 1 == used.shape[1]:
            found = test.utilities(models)
            accuracy.append(np.nan_to_num(found, nan=chance) if utility == "accuracy" else found)
    return np.stack(accuracy, axis=1)


def _check_parts(federation: Federation, architecture: Model, local: LocalSGD) -> None:
    having("federation", federation, "client_data", "x_test")
    having("architecture", architecture, "init", "size")
    having("local", local, "batches", "lr")


def check_sizes(federation: Federation, sizes: npt.ArrayLike) -> Ints:
    """Used amounts as int64[B, R, n], whole and at most what a client owns."""
    used = numbers("sizes", sizes)
    if used.ndim != 3 or used.shape[2] != federation.n_clients or not used.shape[1]:
        raise ValueError(f"sizes are {brief(sizes)}; expected [B, R, {federation.n_clients}]")
    if not ((used == np.floor(used)) & (used >= 0) & (used <= federation.sizes)).all():
        raise ValueError("sizes are no whole numbers from 0 to what a client owns")
    return used.astype(np.int64)


def _check_weights(weights: npt.ArrayLike, used: Ints) -> Floats:
    """Weights of the clients in each round, float64[B, R, n]; 0 for those who use no data."""
    given = numbers("weights", weights)
    if given.shape != (len(used), used.shape[2]) or not (np.isfinite(given) & (given >= 0)).all():
        raise ValueError(f"weights are {brief(weights)}; expected [B, n] numbers of at least 0")
    return np.asarray(given[:, None] * (used > 0))


#: :func:`train_with_sizes`, or what stands in its place and remembers
TrainWithSizes = Callable[..., Floats]


def federation_game(
    federation: Federation,
    architecture: Model,
    local: LocalSGD,
    rounds: int,
    seed: int = 0,
    *,
    device: str | torch.device | None = None,
    train: TrainWithSizes = train_with_sizes,
) -> Game:
    """Return the game of retraining: test accuracy of the federation of each coalition alone.

    The empty coalition keeps the initial model; members use all their data in all rounds.

    Parameters
    ----------
    federation, architecture, local, seed, device
        As in ``fedkit.federated.train_with_sizes``.
    rounds : int
        Communication rounds.
    train : callable
        ``train_with_sizes``, or what stands in its place and remembers.

    Returns
    -------
    Game
    """
    whole("rounds", rounds, 1)
    whole("seed", seed, 0)
    _check_parts(federation, architecture, local)
    find_device(device)
    function("train", train)

    def accuracies(coalitions: Coalitions) -> Floats:
        amounts = coalitions * federation.sizes
        sizes = amounts[:, None, :].repeat(rounds, axis=1)
        values = np.zeros(len(sizes))
        for lo in range(0, len(sizes), _TOGETHER):
            part = sizes[lo : lo + _TOGETHER]
            reached = train(
                federation, architecture, local, part, seed=seed, every_round=False, device=device
            )
            values[lo : lo + _TOGETHER] = reached[:, 0]
        return values

    return Game(federation.n_clients, accuracies, utility="accuracy")
