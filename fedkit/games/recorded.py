"""Recorded games: all utilities of real rounds, to measure estimators of values on.

Twelve players each, made by ``benchmarks/recorded.py``: federated rounds by accuracy and by loss,
retraining, and the attribution of a forest's prediction to columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import choice
from fedkit.games.game import Game, table_game

_ROUNDS = {
    "choosing": ("digits-a", "digits-b", "mnist-a", "fashion-a", "cancer-a", "cifar-a"),
    "final": ("digits-c", "wine-a", "mnist-b", "fashion-b", "cancer-b", "digits-d"),
}
_OTHERS = {
    "choosing": ("cancer-retrained-accuracy", "cancer-retrained-loss", "cancer-attribution"),
    "final": ("digits-retrained-accuracy", "digits-retrained-loss", "wine-attribution"),
}

#: names of the games for choosing a design by, and of those kept for its final table
RECORDED = {
    half: tuple(f"{name}-{utility}" for name in names for utility in ("accuracy", "loss"))
    + _OTHERS[half]
    for half, names in _ROUNDS.items()
}


def recorded(name: str) -> Game:
    """Return a recorded game of twelve players, with the clients' data sizes.

    Parameters
    ----------
    name : str
        One of ``fk.games.RECORDED["choosing"]`` or of ``fk.games.RECORDED["final"]``:
        ``"digits-a-accuracy"``, ``"digits-a-loss"`` (its negative), and so on.

    Returns
    -------
    Game
        With its `table`, float64 ``[4096]``, and where there are clients their `sizes`.

    Examples
    --------
    >>> import fedkit as fk
    >>> game = fk.games.recorded("digits-a-accuracy")
    >>> found = fk.estimate(game, fk.ProxySampling(), budget=100, seed=0)
    >>> bool(abs(found.values - fk.shapley(game).values).max() < 0.01)
    True
    """
    choice("name", name, RECORDED["choosing"] + RECORDED["final"])
    arrays = _arrays()
    game = table_game(arrays[name])
    sizes = arrays.get(name.rpartition("-")[0] + "-sizes")
    return game if sizes is None else replace(game, sizes=sizes.astype(np.float64))


@cache
def _arrays() -> dict[str, NDArray[np.float32]]:
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        return dict(file)
