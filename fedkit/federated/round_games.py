"""The game that the clients of one round play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.checks import choice, having, vector, warn
from fedkit.games.coalitions import Coalitions, as_coalitions, averaging_weights
from fedkit.games.game import Game
from fedkit.learning.device import as_tensor, samples_of
from fedkit.learning.evaluation import Evaluator, Named, Score, share_right
from fedkit.learning.models import Model, model_of, state_of

__all__ = ["RoundGame", "round_game"]


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
        having("evaluator", evaluator, "model", "prepare", "evaluate")
        choice("weighting", weighting, ("size", "uniform"))
        base, updates = as_tensor("base", base), as_tensor("updates", updates)
        base, updates = (t.to(evaluator.model.row_dtype) for t in (base, updates))
        p = evaluator.model.size
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


def round_game(
    module: nn.Module | Model,
    base: Any,
    trained: Sequence[Any] | Tensor | np.ndarray | None,
    sizes: Sequence[float] | np.ndarray | None,
    x: Any,
    y: Any = None,
    utility: Named | Score = "accuracy",
    *,
    updates: Sequence[Any] | Tensor | np.ndarray | None = None,
    weighting: Literal["size", "uniform"] = "size",
    device: str | torch.device | None = None,
) -> RoundGame:
    """Return the game of a round of one's own: what each client's model is worth.

    A coalition's model is the average of its members' states, running statistics among them, as a
    server averages state_dicts; whole-number buffers are those of `base`.

    Parameters
    ----------
    module : torch.nn.Module
    base : state_dict, module, path of a checkpoint or row ``[P]``
        The global model that the clients received.
    trained : list of k of these
        What they sent back.  State_dicts of some of the keys (adapters) are averaged alone, and
        the rest is that of `base` or `module`.
    sizes : k numbers
        Data sizes, by which models are averaged; None with weighting "uniform".
    x, y, utility, device
        Validation data and what is measured on them, as ``fk.Evaluator`` takes them.
    updates : list of k states or rows ``[P]``, optional
        Differences of the trained models from `base`, in the place of `trained`.
    weighting : {"size", "uniform"}

    Returns
    -------
    RoundGame

    Raises
    ------
    ValueError
        If keys are missing or too many, shapes disagree, or a number is not finite.

    Examples
    --------
    >>> import torch, fedkit as fk
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> x, y = torch.linspace(-1, 1, 80).reshape(20, 4), torch.arange(20) // 10
    >>> base = net.state_dict()
    >>> sent = [{key: t + 0.1 * i for key, t in base.items()} for i in range(3)]
    >>> fk.round_game(net, base, sent, [20, 10, 20], x, y).n_players
    3
    """
    if (trained is None) == (updates is None):
        raise ValueError("give the clients' models as trained, or their differences as updates")
    name: str = "trained" if updates is None else "updates"
    given: Any = trained if updates is None else updates
    whole, states = state_of(base), [state_of(one) for one in given]
    keys = states[0] if states and isinstance(states[0], Mapping) else None
    x, y = samples_of(x, y)
    model = model_of(module, x, keys, base=whole if isinstance(whole, Mapping) else None)
    start = model.row(whole, "base", others=True)
    rows = torch.stack([model.row(one, f"{name}[{i}]") for i, one in enumerate(states)])
    evaluator = Evaluator(model, x, y, utility, device=device)
    return RoundGame(evaluator, start, rows if trained is None else rows - start, sizes, weighting)


def _are_models(base: Tensor, updates: Tensor) -> bool:
    """Whether every update is nearer to `base`, half its length at most, than training goes."""
    square = float(base @ base)
    apart = (updates**2).sum(dim=1) - 2 * updates @ base + square  # |update - base|**2
    return square > 0 and bool((apart < square / 4).all())
