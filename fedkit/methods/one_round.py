"""The value of each client of a round of one's own, without choosing an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.checks import flag, whole, whole_or_none
from fedkit.estimators import (
    Estimator,
    MultilinearSampling,
    PermutationSampling,
    ProxySampling,
    estimate,
)
from fedkit.federated.round_games import Sent, round_game
from fedkit.games.memory import remember
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator, Named, Score
from fedkit.learning.models import Model, states_only
from fedkit.methods.baselines import CosineValues

EXACT = 12  # clients up to which all coalitions are evaluated
REGRESSED = 400  # clients up to which a regression serves; beyond, walks do
MANY = 100  # clients from which walks are ahead where there are twenty evaluations for each
PER_CLIENT = 6  # evaluations of a regression for each client
WALKS = 20  # ten antithetic pairs have an interval


def value(
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
    budget: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> Valuation:
    """Return the Shapley values of the clients of one round, and say how they were found.

    Up to 12 clients the values are exact.  Beyond, they come from a regression (`ProxySampling`)
    with six evaluations per client, and of more than 400 clients from random walks with twenty.
    Without validation data they are CGSV's cosines of updates.

    Parameters
    ----------
    module, base, trained, sizes, x, y, utility, updates, weighting, device
        As ``fk.round_game`` takes them: the model, its state that the clients received, what they
        sent back, their data sizes, and validation data.
    budget : int, optional
        Coalitions that may be evaluated, in the place of the numbers above.
    seed : int
        Of what is sampled; every round needs its own where rounds are added up.
    progress : bool
        Show evaluations, their rate and the time left.

    Returns
    -------
    Valuation
        In the order of the clients and in the utility's units (cosines have none).

    Examples
    --------
    >>> import torch, fedkit as fk
    >>> net = torch.nn.Linear(4, 2)
    >>> x, y = torch.linspace(-1, 1, 80).reshape(20, 4), torch.arange(20) // 10
    >>> sent = [{key: t + i for key, t in net.state_dict().items()} for i in range(3)]
    >>> fk.value(net, net.state_dict(), sent, [20, 10, 20], x, y).method
    'Shapley values by accuracy, exact'
    """
    whole("seed", seed, 0)
    flag("progress", progress)
    whole_or_none("budget", budget)
    if x is None and not isinstance(module, Evaluator):
        if y is not None or budget is not None or utility != "accuracy":
            raise ValueError("without x there is no utility and no budget; give x with y")
        return _by_direction(module, base, trained, updates)
    game = round_game(
        module, base, trained, sizes, x, y, utility,
        updates=updates, weighting=weighting, device=device,
    )  # fmt: skip
    measured = module.utility if isinstance(module, Evaluator) else utility
    told = f"Shapley values by {measured if isinstance(measured, str) else 'your utility'}"
    n = game.n_players
    if n <= EXACT and (budget is None or budget >= 2**n):
        found = estimate(game, PermutationSampling(), 2**n, seed, progress=progress)  # all of them
        return replace(found, method=f"{told}, exact")
    enough = budget is not None and n >= MANY and budget >= WALKS * n  # walks lead there
    regressed = n <= REGRESSED and not enough
    estimator: Estimator = ProxySampling() if regressed else MultilinearSampling()
    game, spent = remember(game), budget or (PER_CLIENT if regressed else WALKS) * n + 1
    found = estimate(game, estimator, spent, seed, progress=progress)
    while budget is None and not found.has_intervals:
        spent *= 2
        found = estimate(game, estimator, spent, seed, progress=progress)
    way = "regression" if regressed else "random walks"
    return replace(found, method=f"{told}, {'exact' if found.exact else f'by {way}'}")


def _by_direction(module: nn.Module | Model, base: Any, trained: Any, updates: Any) -> Valuation:
    states = Sent(trained, updates)
    model = states_only(module, states.keys)
    start = torch.zeros(model.size, dtype=model.row_dtype)
    if states.are_models or base is not None:
        start = model.row(base, "base", others=True)
    seen: Any = SimpleNamespace(directions=model.parameters_of(states.moves(model, start)))
    (found,) = CosineValues()([seen])
    told = "cosines of updates with their sum (CGSV), no validation data"
    return replace(found, method=told)
