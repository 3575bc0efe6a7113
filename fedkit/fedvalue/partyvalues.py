"""Values of data parties: the result, and the choice between exact and sampled coalitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators import Estimator, PermutationSampling, estimate, shapley
from fedkit.extras import need
from fedkit.games.coalitions import MAX_TABLE_PLAYERS, Coalitions, Utilities

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EXACT_WORK", "WALKS", "PartyValues", "Sampling"]

Floats = NDArray[np.float64]

#: Values are exact by default while (2**d coalitions) x (rows + 5000) stays at or below this: 16
#: parties with a thousand rows, 8 with a million.  The 5000 stand for the cost of a small array.
EXACT_WORK = 4e8

#: Random permutations where nothing else is said (Eq. 16).
WALKS = 500


@dataclass(frozen=True, eq=False)
class PartyValues:
    """MShapley-CMI of every data party, in nats.

    Attributes
    ----------
    values : float64[d]
        Value of each data party (Eq. 6), corrected as `correction` says.
    standard_errors : float64[d]
        Over sampled permutations; 0 when exact.  The sampling of the rows is not in it.
    task_value : float
        ``I(X_t; Y)``, the task party's own value (Eq. 7), with the same correction.
    exact : bool
        Whether all coalitions were evaluated.
    evaluations : int
        Distinct coalitions evaluated (for "permutation": distinct marginal contributions).
    names : tuple of str
        Names of the data parties.
    correction : str
        "plugin", "miller-madow", "permutation" or "knn".
    plugin : float64[d] or None
        Plug-in values from the same coalitions, where the correction works them out.
    z : float64[d] or None
        For "permutation": the corrected value over the summed deviations of its null, a rough
        guide and no test.  It is 0 or huge where the drawn null hardly varies (a rare label, a
        constant column); it errs on the small side only where several contributions are added,
        and with one or few parties noise exceeds 2 oftener than a normal score would.  For
        decisions use :func:`~fedkit.fedvalue.significance.permutation_p_values`.
    """

    values: Floats
    standard_errors: Floats
    task_value: float
    exact: bool
    evaluations: int
    names: tuple[str, ...]
    correction: str = "plugin"
    plugin: Floats | None = None
    z: Floats | None = None

    @property
    def ranking(self) -> tuple[str, ...]:
        """Names of the parties, the most valuable first."""
        return tuple(self.names[i] for i in np.argsort(-self.values, kind="stable"))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per data party."""
        frame: pd.DataFrame = need("pandas", extra="run").DataFrame(
            {"party": self.names, "value": self.values, "standard_error": self.standard_errors}
        )
        for name, column in (("plugin", self.plugin), ("z", self.z)):
            if column is not None:
                frame[name] = column
        return frame


class MasterGame(Protocol):
    """A game of the data parties that knows what the task party has alone."""

    @property
    def n_players(self) -> int:
        """Number of data parties."""
        ...

    @property
    def master(self) -> float:
        """Utility of no data party."""
        ...

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return the utilities of ``bool[B, d]`` coalitions."""
        ...


@dataclass(frozen=True)
class Sampling:
    """How coalitions are chosen; see :func:`~fedkit.fedvalue.cmi.mshapley_cmi`."""

    estimator: Estimator | None = None
    budget: int | None = None
    seed: int = 0

    def exact(self, n_players: int, work: float) -> bool:
        """Whether all coalitions are to be evaluated, at `work` row passes each."""
        free = self.estimator is None and self.budget is None
        return free and n_players <= MAX_TABLE_PLAYERS and 2.0**n_players * work <= EXACT_WORK

    def value(
        self, game: MasterGame, rows: int, names: tuple[str, ...], correction: str
    ) -> PartyValues:
        """Return the values of the players of a game over `rows` rows."""
        if self.exact(game.n_players, rows + 5000):
            result = shapley(game)
        else:
            walks = WALKS if self.budget is None else None
            estimator = self.estimator or PermutationSampling(walks=walks)
            result = estimate(game, estimator, self.budget, self.seed)
        return PartyValues(
            result.values, result.standard_errors, game.master, result.exact, result.evaluations,
            names, correction,
        )  # fmt: skip
