"""Federated training from scratch with chosen amounts of data: many federations in lockstep.

Retraining is the most literal utility of a coalition, and the dearest.  One function serves all who
need it: a coalition is a federation in which the others use no data, FedCCEA's simulator
(:mod:`fedkit.aam`) draws every client's amount anew in every round, and a removal experiment sets
some amounts to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fedkit.coalitions import Evaluator
from fedkit.extras import bar
from fedkit.masks import check_coalitions
from fedkit.models import Architecture
from fedkit.partition import Federation
from fedkit.streams import Streams
from fedkit.training import LocalSGD, train_clients

__all__ = ["InOrder", "RetrainingGame", "train_with_sizes"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class InOrder(np.random.Generator):
    """A generator whose permutations leave everything in place.

    FedCCEA never shuffles a client's samples again, "to construct identical batch for every
    simulation and test" (appendix B.1).
    """

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def permutation(self, x: int, axis: int = 0) -> IntArray:  # type: ignore[override]
        """Return 0, 1, ..., x - 1."""
        return np.arange(x, dtype=np.int64)


def train_with_sizes(
    federation: Federation,
    architecture: Architecture,
    local: LocalSGD,
    sizes: npt.ArrayLike,
    *,
    seed: int = 0,
    every_round: bool = True,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> FloatArray:
    """Train federations that differ in how much data each client uses in each round.

    Parameters
    ----------
    federation : Federation
    architecture : Architecture
    local : LocalSGD
        Local training; every client goes through its samples in the same order.
    sizes : int array (B, R, n)
        In federation b and round r client i trains on its first ``sizes[b, r, i]`` samples.
    seed : int
        Root seed of the initial model, which all B federations share.
    every_round : bool
        False: test after the last round only.
    device : optional
        None takes CUDA where it is available.
    progress : bool
        Show a progress bar.

    Returns
    -------
    float64[B, R], or float64[B, 1]
        Test accuracy after each round, in [0, 1].

    Notes
    -----
    The next global model is the mean of the clients' models weighted by the used sizes
    (FedCCEA, section 3.1); a round in which nobody uses data leaves the model as it is.

    Raises
    ------
    ValueError
        If sizes have the wrong shape, or a client is asked for more than it has.
    """
    used = np.asarray(sizes, dtype=np.int64)
    if used.ndim != 3 or used.shape[2] != federation.n_clients or not used.shape[1]:
        raise ValueError(
            f"sizes have shape {used.shape}; expected (federations, rounds, {federation.n_clients})"
        )
    if (used < 0).any() or (used > federation.sizes).any():
        raise ValueError("sizes are negative, or larger than what a client owns")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    test = Evaluator(architecture, federation.x_test, federation.y_test, "accuracy", device=place)
    data = [federation.client_data(i) for i in range(federation.n_clients)]
    start = architecture.init(Streams(seed).generator("model"))
    models = start.repeat(len(used), 1)
    accuracy, order = [], InOrder()
    for t in bar(range(used.shape[1]), progress, "round"):
        jobs = np.argwhere(used[:, t] > 0)
        if len(jobs):
            amounts = used[jobs[:, 0], t, jobs[:, 1]]
            parts = [
                (data[i][0][:k], data[i][1][:k]) for i, k in zip(jobs[:, 1], amounts, strict=True)
            ]
            owner = torch.from_numpy(jobs[:, 0])
            ended = train_clients(
                architecture, models[owner], parts, local, [order] * len(jobs), device=place
            )
            share = amounts / used[jobs[:, 0], t].sum(axis=1)
            weight = torch.as_tensor(share, dtype=torch.float32)[:, None]
            busy = torch.from_numpy(used[:, t].sum(axis=1) > 0)
            mean = torch.zeros_like(models).index_add_(0, owner, weight * ended)
            models = torch.where(busy[:, None], mean, models)
        if every_round or t + 1 == used.shape[1]:
            accuracy.append(test.utilities(models))
    return np.stack(accuracy, axis=1)


@dataclass(frozen=True, eq=False)
class RetrainingGame:
    """The coalition game of retraining: test accuracy of the federation of S alone.

    Parameters
    ----------
    federation, architecture, local, seed, device
        As in :func:`train_with_sizes`.
    rounds : int
        Communication rounds; all members take part in all of them with all their data.
    chunk : int
        Coalitions that are trained together.

    Notes
    -----
    The empty coalition keeps the initial model.  Wrap the game in
    ``fedkit.MemoGame``, or leave that to ``fk.estimate``, so that no coalition is
    trained twice.
    """

    federation: Federation
    architecture: Architecture
    local: LocalSGD
    rounds: int
    seed: int = 0
    chunk: int = 64
    device: str | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.chunk < 1:
            raise ValueError(
                f"rounds is {self.rounds} and chunk {self.chunk}; both must be at least 1"
            )

    @property
    def n_players(self) -> int:
        """Number of clients."""
        return self.federation.n_clients

    def value(self, coalitions: npt.ArrayLike) -> FloatArray:
        """Test accuracy per coalition, float64[B]."""
        members = check_coalitions(coalitions, self.n_players)
        found: list[FloatArray] = [np.zeros(0)]
        for part in _pieces(members, self.chunk):
            sizes = (part * self.federation.sizes)[:, None, :].repeat(self.rounds, axis=1)
            found.append(
                train_with_sizes(
                    self.federation,
                    self.architecture,
                    self.local,
                    sizes,
                    seed=self.seed,
                    every_round=False,
                    device=self.device,
                )[:, 0]
            )
        return np.concatenate(found)


def _pieces(rows: npt.NDArray[np.bool_], size: int) -> Sequence[npt.NDArray[np.bool_]]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]
