"""The game that the clients of one round play."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedkit.checks import choice, having, vector, warn
from fedkit.games.coalitions import Coalitions, as_coalitions, averaging_weights
from fedkit.games.game import Game
from fedkit.learning.device import as_tensor
from fedkit.learning.evaluation import Evaluator, share_right

__all__ = ["RoundGame"]


class RoundGame(Game):
    """The cooperative game of one round: clients are players, the value is the model's utility.

    The model of a coalition S is ``base + sum_{i in S} w_i(S) updates_i`` with
    ``w_i(S) = n_i / n_S`` (weighting "size", the M_S of Liu et al., 2022) or ``1 / |S|``
    ("uniform").  The empty coalition keeps `base`, so ``v(empty) = utility(base)``.

    Parameters
    ----------
    evaluator : Evaluator
    base : float32 tensor or array ``[P]``
        Global model that the clients received.
    updates : float32 tensor or array ``[k, P]``, or a list of k rows
        Client models minus `base`.
    sizes : array of k numbers, optional
        Data sizes; needed for weighting "size".  A coalition whose sizes sum to zero holds no
        data: its model is `base`.
    weighting : {"size", "uniform"}

    Attributes
    ----------
    sizes : float64 array ``[k]``
        By which updates are averaged; ones if uniformly.

    Raises
    ------
    ValueError
        If shapes disagree, sizes are negative, or anything is not finite.

    Warns
    -----
    UserWarning
        If the updates look like whole models.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        base: Tensor | np.ndarray,
        updates: Tensor | np.ndarray | Sequence[Tensor] | Sequence[np.ndarray],
        sizes: Sequence[float] | np.ndarray | None = None,
        weighting: Literal["size", "uniform"] = "size",
    ) -> None:
        having("evaluator", evaluator, "arch", "prepare", "evaluate")
        choice("weighting", weighting, ("size", "uniform"))
        base = as_tensor("base", base, torch.float32)
        updates = as_tensor("updates", updates, torch.float32)
        p = evaluator.arch.n_parameters
        if base.shape != (p,) or updates.dim() != 2 or updates.shape[1] != p or not len(updates):
            raise ValueError(
                f"base has shape {tuple(base.shape)} and updates {tuple(updates.shape)}; "
                f"({p},) and (k, {p}) with k >= 1 are expected"
            )
        if not bool(torch.isfinite(base).all()):
            raise ValueError("base holds a NaN or an infinity: the global model has diverged")
        bad = torch.nonzero(~torch.isfinite(updates.sum(dim=1))).flatten().tolist()
        if bad:
            raise ValueError(
                f"the update of client {bad[0]} holds a NaN or an infinity ({len(bad)} of "
                f"{len(updates)} clients): leave it out, or lower the learning rate"
            )
        if _are_models(base, updates):
            warn(
                "all updates are nearer to base than to zero, as whole models are: updates are "
                "the clients' models minus base"
            )
        if weighting == "size" and sizes is None:
            raise ValueError('weighting "size" needs sizes; pass them, or use "uniform"')
        k = len(updates)
        shares = vector("sizes", sizes, k) if weighting == "size" else np.ones(k)
        if (shares < 0).any():
            raise ValueError(f"sizes are {sizes}; {k} finite numbers of at least 0 are expected")
        self.evaluator = evaluator
        self.prepared = evaluator.prepare(base, updates)
        super().__init__(k, self._utilities, sizes=shares)
        if getattr(evaluator, "utility", None) == "accuracy":
            by_image = copy(evaluator)  # the same round image by image, at the same price
            by_image.utility = "margins"
            margins = Game(k, lambda rows: by_image.evaluate(self.prepared, self.weights(rows)))
            self.lifted = margins, share_right

    def weights(self, coalitions: np.ndarray) -> np.ndarray:
        """Weight of each client in each coalition, float64 ``[B, k]``; rows sum to 1 (or 0)."""
        assert self.sizes is not None
        return averaging_weights(as_coalitions(coalitions, self.n_players), self.sizes)

    def _utilities(self, coalitions: Coalitions) -> np.ndarray:
        return self.evaluator.evaluate(self.prepared, self.weights(coalitions))


def _are_models(base: Tensor, updates: Tensor) -> bool:
    """Whether every update is nearer to `base`, half its length at most, than training goes."""
    square = float(base @ base)
    apart = (updates**2).sum(dim=1) - 2 * updates @ base + square  # |update - base|**2
    return square > 0 and bool((apart < square / 4).all())
