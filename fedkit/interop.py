"""Neighbours: games as shapiq and pyDVL have them, values as shap and shapiq draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedkit.checks import brief, function, having, whole
from fedkit.extras import need
from fedkit.games.coalitions import Coalitions, Utilities
from fedkit.games.game import Game, as_game
from fedkit.games.valuation import Valuation


def to_shapiq(game: Game) -> Any:
    """Return a game of single numbers as a ``shapiq.Game``, with utilities as they are."""
    _single(game)
    base = need("shapiq", "bench").Game

    class Shared(base):  # type: ignore[misc, valid-type]
        def value_function(self, coalitions: Coalitions) -> Utilities:
            return game(coalitions)

    return Shared(game.n_players, normalize=False)


def _single(game: Game) -> Game:
    """Return a game of single numbers, or refuse it: the empty coalition is asked for."""
    outputs = as_game(game)(np.zeros((1, game.n_players), dtype=np.bool_)).shape[1:]
    if outputs:
        raise ValueError(f"game has utilities of {outputs[0]} numbers; give one: game(rows)[:, 0]")
    return game


def from_shapiq(game: Any) -> Game:
    """Return a ``shapiq.Game``, such as an imputer or a benchmark, as ours."""
    having("game", game, "n_players", "value_function")
    return Game(game.n_players, lambda rows: np.asarray(game(rows), dtype=np.float64))


def to_pydvl(game: Game) -> tuple[Any, Any]:
    """Return the game as a utility of pyDVL, and the data set whose points are its players.

    ``ShapleyValuation(utility, ...).fit(data)`` values the players of a game of single numbers.
    """
    n = _single(game).n_players
    base = need("pydvl.valuation.utility.base", "bench").UtilityBase

    class Shared(base):  # type: ignore[misc, valid-type]
        def __call__(self, sample: Any) -> float:
            row = np.zeros((1, n), dtype=np.bool_)
            if sample is not None:
                row[0, np.asarray(sample.subset, dtype=np.int64)] = True
            return float(game(row)[0])

    players = np.arange(n)
    return Shared(), need("pydvl.valuation", "bench").Dataset(players[:, None], players)


def from_pydvl(utility: Any, n_players: int) -> Game:
    """Return a utility of pyDVL that knows its data as a game of its points, or of groups."""
    function("utility", utility)
    whole("n_players", n_players, 1)
    sample = need("pydvl.valuation.types", "bench").Sample

    def utilities(coalitions: Coalitions) -> list[float]:
        return [utility(sample(None, np.flatnonzero(row))) for row in coalitions]

    return Game(n_players, utilities)


def to_shap(
    valuations: Valuation | Sequence[Valuation], base: ArrayLike = 0.0, data: Any = None
) -> Any:
    """Return values as a ``shap.Explanation``, for the plots of shap.

    Parameters
    ----------
    valuations : Valuation or sequence of them
        One has a waterfall; several, of the same clients (rounds, seeds), a beeswarm.  The outputs
        of a vector-valued game are several too.
    base : float or float array ``[rows]``
        Utility of the empty coalition, at which a waterfall begins.
    data : array, optional
        What stands beside a client, or colours it: data sizes ``[n]``, or ``[rows, n]``.
    """
    given = [valuations] if isinstance(valuations, Valuation) else valuations
    several = isinstance(given, Sequence) and all(isinstance(v, Valuation) for v in given)
    if not several or len({(v.values.shape, v.names) for v in given}) != 1:
        raise ValueError(f"valuations is {brief(valuations)}; expected fk.Valuation, all alike")
    n = given[0].n_players
    units = [v.in_units() for v in given]
    values, errors = (
        np.concatenate([each.reshape(n, -1).T for each in column])
        for column in ([v.values for v in units], [v.standard_errors for v in units])
    )
    if len(values) == 1:
        values, errors = values[0], errors[0]
    start = np.broadcast_to(np.asarray(base, dtype=np.float64), values.shape[:-1])
    if data is not None and np.shape(data) not in ((n,), values.shape):
        raise ValueError(f"data has shape {np.shape(data)}; expected {(n,)} or {values.shape}")
    shown = None if data is None else np.broadcast_to(data, values.shape)
    names = given[0].names or tuple(map(str, range(n)))
    return need("shap", "vertical").Explanation(
        values, start if start.ndim else float(start), shown,
        feature_names=list(names), error_std=errors,
    )  # fmt: skip
