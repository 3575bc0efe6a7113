"""The game that the clients of one round play."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.checks import brief, choice, vector, warn
from fedkit.games.coalitions import Coalitions, Utilities, averaging_weights
from fedkit.games.game import Game, name_of
from fedkit.learning.device import samples_of
from fedkit.learning.evaluation import Evaluator, Named, Score, share_right
from fedkit.learning.models import Model, model_of, state_of, states_of


def round_game(
    module: nn.Module | Model | Evaluator,
    base: Any,
    trained: Sequence[Any] | Tensor | np.ndarray | None,
    sizes: Sequence[float] | np.ndarray | None = None,
    x: Any = None,
    y: Any = None,
    utility: Named | Score = "accuracy",
    *,
    updates: Sequence[Any] | Tensor | np.ndarray | None = None,
    weighting: Literal["size", "uniform"] = "size",
    device: str | torch.device | None = None,
) -> Game:
    """Return the game of a round: what the average of each coalition's models is worth.

    The model of a coalition S is ``base + sum_{i in S} w_i(S) (trained_i - base)`` with
    ``w_i(S) = n_i / n_S`` (weighting "size", the M_S of Liu et al. 2022) or ``1 / |S|``
    ("uniform").  The empty coalition, and one whose sizes sum to 0, keeps `base`.  Running
    statistics are averaged too; whole-number buffers are those of `base`.

    Parameters
    ----------
    module : torch.nn.Module, Model or Evaluator
        An ``fk.Evaluator`` has validation data, utility and device already.
    base : state_dict, module, path of a state_dict or row ``[P]``
        The global model that the clients received.
    trained : list of k of these
        What they sent back.  State_dicts of some of the keys (adapters) are averaged alone.
    sizes : k numbers
        Data sizes; None with weighting "uniform".
    x, y, utility, device
        As ``fk.Evaluator`` takes them.
    updates : list of k states or rows ``[P]``, optional
        Differences of the trained models from `base`, in the place of `trained`.
    weighting : {"size", "uniform"}

    Returns
    -------
    Game

    Raises
    ------
    ValueError
        If keys or shapes disagree, sizes are negative, or a number is not finite.

    Warns
    -----
    UserWarning
        If the updates look like whole models, or the models like updates.

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
    choice("weighting", weighting, ("size", "uniform"))
    if not isinstance(module, nn.Module | Model | Evaluator):
        raise ValueError(f"module is {brief(module)}; expected a torch.nn.Module or fk.Evaluator")
    whole = state_of(base, "base")
    states = Sent(trained, updates)
    if isinstance(module, Evaluator):
        if x is not None or y is not None or utility != "accuracy" or device is not None:
            raise ValueError("the evaluator has x, y, utility and device; leave them out beside it")
        evaluator = module
    else:
        x, y = samples_of(x, y)
        state = whole if isinstance(whole, Mapping) else None
        model = model_of(module, x, states.keys, base=state)
        evaluator = Evaluator(model, x, y, utility, device=device)
    start = evaluator.model.row(whole, "base", others=True)
    moves = states.moves(evaluator.model, start)
    k = len(moves)
    if weighting == "size" and sizes is None:
        raise ValueError('weighting "size" needs sizes; pass them, or use "uniform"')
    shares = vector("sizes", sizes, k) if weighting == "size" else np.ones(k)
    if (shares < 0).any():
        raise ValueError(f"sizes are {brief(sizes)}; expected {k} finite numbers of at least 0")
    return game_of_updates(evaluator, start, moves, shares)


def game_of_updates(evaluator: Evaluator, base: Tensor, updates: Tensor, sizes: Utilities) -> Game:
    """Return the game of updates ``[k, P]`` that are averaged by sizes float64 ``[k]``."""
    prepared = evaluator.prepare(base, updates)

    def game_by(judge: Evaluator) -> Game:
        def utilities(coalitions: Coalitions) -> Utilities:
            return judge.evaluate(prepared, averaging_weights(coalitions, sizes))

        return Game(len(updates), utilities, sizes=sizes, utility=measured)

    measured = name_of(evaluator.utility)
    game = game_by(evaluator)
    if evaluator.utility == "accuracy":
        by_image = copy(evaluator)  # the same round image by image, at the same price
        by_image.utility = "margins"
        game.lifted = game_by(by_image), share_right
    return game


class Sent:
    """What clients sent back: their trained models, or the updates that these are of a base."""

    def __init__(self, trained: Any, updates: Any) -> None:
        if (trained is None) == (updates is None):
            raise ValueError("give the clients' models as trained, or their differences as updates")
        self.are_models = updates is None
        self.name = "trained" if self.are_models else "updates"
        self.states = states_of(trained if self.are_models else updates, self.name)

    @property
    def keys(self) -> Collection[str] | None:
        """Names of the state that travels, those of most clients; None of flat rows."""
        held = [frozenset(one) for one in self.states if isinstance(one, Mapping)]
        return max(held, key=held.count, default=None)

    def moves(self, model: Model, start: Tensor) -> Tensor:
        """Return the updates ``[k, P]`` of a model that starts from a row ``[P]``."""
        if not bool(torch.isfinite(start).all()):
            raise ValueError("base holds a NaN or an infinity: the global model has diverged")
        rows = [model.row(one, f"{self.name}[{i}]") for i, one in enumerate(self.states)]
        moves = torch.stack([row.to(start.device) for row in rows])
        if self.are_models:
            moves = moves - start
        bad = torch.nonzero(~torch.isfinite(moves.sum(dim=1))).flatten().tolist()
        if bad:
            raise ValueError(
                f"{self.name}[{bad[0]}] is not finite (so are {brief(bad)}): leave such clients out"
            )
        if self.are_models and _are_models(start, -moves):
            warn("all trained are nearer to zero than to base: hand differences in by updates=")
        if not self.are_models and _are_models(start, moves):
            warn("all updates are nearer to base than to zero, as models are: take base off them")
        return moves


def _are_models(base: Tensor, updates: Tensor) -> bool:
    """Whether every update is nearer to `base`, half its length at most, than training goes."""
    square = float(base @ base)
    apart = (updates**2).sum(dim=1) - 2 * updates @ base + square  # |update - base|**2
    return square > 0 and bool((apart < square / 4).all())
