"""TMC-SV for as much training as FedCCEA's simulations take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedkit.estimators import TruncatedMonteCarlo, estimate
from fedkit.games.game import Game
from fedkit.streams import Streams

__all__ = ["Tally", "truncated_walks"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Tally:
    """A game that adds up the data of the coalitions that are asked for.

    Parameters
    ----------
    game : Game
    sizes : int64[n]
        Samples per client.

    Attributes
    ----------
    trained : float
        Sum of the coalitions' shares of all data: federations trained, in units of everybody's.
    """

    def __init__(self, game: Game, sizes: IntArray) -> None:
        self.game, self.share, self.trained = game, sizes / sizes.sum(), 0.0

    @property
    def n_players(self) -> int:
        """Number of players."""
        return self.game.n_players

    def value(self, coalitions: npt.NDArray[np.bool_]) -> FloatArray:
        """Utilities of the coalitions."""
        self.trained += float((coalitions @ self.share).sum())
        return self.game.value(coalitions)


def truncated_walks(
    game: Game, sizes: IntArray, *, tolerance: float, seed: int, limit: float
) -> tuple[FloatArray, float]:
    """Run TMC-SV for as much training as `limit`, in units of everybody's data.

    Whole walks are run, in the number whose cost comes closest.  Returns the Shapley values and
    what they cost; that is less where walks find nothing new to ask for.

    Raises
    ------
    ValueError
        If the limit is not a positive number.
    """
    if not (np.isfinite(limit) and limit > 0):
        raise ValueError(f"limit is {limit}; expected a positive number of federations")

    def run(walks: int) -> tuple[FloatArray, float]:
        tally, streams = Tally(game, sizes), Streams(seed).child("tmc")
        found = estimate(tally, TruncatedMonteCarlo(tolerance, walks), seed=streams)
        return found.values, tally.trained

    walks, idle = max(1, round(2 * limit / len(sizes))), 0  # an uncut walk trains n / 2 federations
    best = run(walks)
    step = 1 if best[1] < limit else -1
    while walks + step and idle < len(sizes):
        walks += step
        other = run(walks)
        idle = idle + 1 if other[1] == best[1] else 0
        if abs(other[1] - limit) > abs(best[1] - limit):
            break
        best = other
    return best
