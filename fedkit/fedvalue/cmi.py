"""MShapley-CMI: the value of a data party as conditional mutual information (FedValue, Eq. 2-13).

All entropies are in nats (natural logarithm) and plug-in estimates, ``p = N / n`` (Eq. 13),
unless a correction is named.  The data parties play a game that the task party has always
joined, ``v(D) = I(X_t X_D; Y)``; its Shapley values are MShapley-CMI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import choice, having, one_line, whole
from fedkit.estimators import Estimator, PermutationSampling, estimate, shapley
from fedkit.estimators.base import FEWEST_UNITS, random_orders
from fedkit.extras import need
from fedkit.fedvalue.bias import NullContributions
from fedkit.fedvalue.cells import CoalitionCells, joint_codes, sum_clogc, totals
from fedkit.fedvalue.data import How, Missing, VerticalData, coalition_cells, vertical_data
from fedkit.fedvalue.neighbours import KNNGame
from fedkit.games.coalitions import (
    MAX_TABLE_PLAYERS,
    Coalitions,
    Utilities,
    all_coalitions,
    check_coalitions,
)
from fedkit.games.exact import shapley_weights
from fedkit.games.valuation import Valuation
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EXACT_WORK", "WALKS", "CMIGame", "Correction", "PartyValues", "cells_of_table",
    "conditional_mutual_information", "entropy", "mshapley_cmi", "mshapley_from_table",
    "mutual_information",
]  # fmt: skip

Correction = Literal["plugin", "miller-madow", "permutation", "knn"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Values are exact by default while (2**d coalitions) x (rows + 5000) stays at or below this: 16
#: parties with a thousand rows, 8 with a million.  The 5000 stand for the cost of a small array.
EXACT_WORK = 4e8

#: Random permutations where nothing else is said (Eq. 16).
WALKS = 500


@one_line
@dataclass(frozen=True, eq=False)
class PartyValues:
    """MShapley-CMI of every data party, in nats.

    Attributes
    ----------
    values : float64[d]
        Value of each data party (Eq. 6), corrected as `correction` says.
    standard_errors : float64[d]
        Of the sampled groups of parties (or permutations): 0 where all groups were tried.  What
        other people (rows) would give is not in it: a value of chance may have the error 0.
    task_value : float
        ``I(X_t; Y)``, the task party's own value (Eq. 7), with the same correction.
    exact : bool
        Whether all coalitions were evaluated.
    evaluations : int
        Distinct coalitions evaluated (for "permutation": distinct marginal contributions).
    names, correction
        As of :func:`mshapley_cmi`.
    plugin : float64[d] or None
        Plug-in values from the same coalitions, where the correction works them out.
    degrees_of_freedom : float64[d] or None
        Of the standard errors, NaN where too little was sampled for an interval.
    """

    values: Floats
    standard_errors: Floats
    task_value: float
    exact: bool
    evaluations: int
    names: tuple[str, ...]
    correction: str = "plugin"
    plugin: Floats | None = None
    degrees_of_freedom: Floats | None = None

    def valuation(self) -> Valuation:
        """Return the values as a :class:`~fedkit.games.valuation.Valuation`, with plot and save.

        Its intervals are those of `standard_errors`, and `info` has the rest.
        """
        info = {"correction": self.correction, "task_value": self.task_value, "unit": "nats"}
        if self.plugin is not None:
            info["plugin"] = self.plugin.tolist()
        return Valuation(
            self.values, self.standard_errors, self.evaluations, self.evaluations, "MShapley-CMI",
            exact=self.exact, info=info, degrees_of_freedom=self.degrees_of_freedom,
            names=self.names,
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per data party; its columns are the attributes above."""
        frame: pd.DataFrame = need("pandas", extra="run").DataFrame(
            {"party": self.names, "value": self.values, "standard_error": self.standard_errors}
        )
        if self.plugin is not None:
            frame["plugin"] = self.plugin
        return frame


def entropy(codes: ArrayLike, weights: Ints | None = None) -> float:
    """Return the plug-in entropy of codes in nats (Eq. 3); a row stands for `weights` people."""
    cell = joint_codes(codes)
    counts = totals(cell, int(cell.max()) + 1, weights)
    return float(np.log(counts.sum()) - sum_clogc(counts) / counts.sum())


def mutual_information(x: ArrayLike, y: ArrayLike) -> float:
    """Return the plug-in mutual information of two columns (or matrices) of codes, in nats."""
    return max(entropy(x) + entropy(y) - entropy(joint_codes(x, y)), 0.0)


def conditional_mutual_information(
    x: ArrayLike, y: ArrayLike, z: ArrayLike, weights: Ints | None = None
) -> float:
    """Return the plug-in ``I(X; Y | Z)`` of columns (or matrices) of codes, in nats (Eq. 13)."""
    plus = entropy(joint_codes(x, z), weights) + entropy(joint_codes(y, z), weights)
    return max(plus - entropy(joint_codes(x, y, z), weights) - entropy(z, weights), 0.0)


class CMIGame:
    """The game of the data parties, ``v(D) = I(X_t X_D; Y)`` (Eq. 5).

    The arguments are those of :func:`mshapley_cmi`, with "plugin" or "miller-madow": plug-in
    entropies, or plus ``(K - 1) / 2n`` for `K` occupied cells, which is first order in ``1 / n``
    (Miller 1955), where cells hold many rows and all possible ones are occupied.

    Attributes
    ----------
    master : float
        ``v`` of no data party: ``I(X_t; Y)`` (Eq. 7), in nats.
    """

    def __init__(
        self, x_task: Any | VerticalData | CoalitionCells, y: Any = None, parties: Any = None, *,
        bins: int = 5, how: How = "width", missing: Missing = "own", correction: str = "plugin",
    ) -> None:  # fmt: skip
        choice("correction", correction, ("plugin", "miller-madow"))
        self.cells = coalition_cells(x_task, y, parties, None, bins, how, missing)
        self.correction = correction
        labels = totals(self.cells.label, self.cells.n_labels, self.cells.weights)
        # in the form of _information, so that a constant column tells exactly nothing
        together = sum_clogc(np.array([self.cells.total]))
        self._label_entropy = (together - sum_clogc(labels)) / self.cells.total
        self._occupied_labels = int((labels > 0).sum())
        self.master = float(self.value(np.zeros((1, self.n_players), dtype=np.bool_))[0])

    @property
    def n_players(self) -> int:
        return len(self.cells.parties)

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return ``I(X_t X_D; Y)`` in nats for ``bool[B, d]`` coalitions."""
        rows = check_coalitions(coalitions, self.n_players)
        return np.array([self._information(members) for members in rows])

    def _information(self, members: NDArray[np.bool_]) -> float:
        """Return ``H(Y) - H(Y | X)`` with ``H(Y | X) = H(XY) - H(X)`` from one count (Eq. 5)."""
        cells = self.cells.at(members)
        if cells.pure and self.correction == "plugin":
            return float(self._label_entropy)
        counts, split = self.cells.counts(cells)
        n = self.cells.total
        conditional = (sum_clogc(counts) - sum_clogc(split)) / n
        if self.correction == "plugin":
            cells.pure = conditional == 0.0  # more columns split cells and not labels
            return float(max(self._label_entropy - conditional, 0.0))
        extra = np.count_nonzero(counts) + self._occupied_labels - np.count_nonzero(split) - 1
        return float(self._label_entropy - conditional + extra / (2 * n))


def mshapley_cmi(
    x_task: Any | VerticalData | CoalitionCells, y: Any = None, parties: Any = None, *,
    bins: int = 5, how: How = "width", missing: Missing = "own", correction: Correction = "plugin",
    estimator: Estimator | None = None, budget: int | None = None, seed: int = 0,
    names: Sequence[str] | None = None,
) -> PartyValues:  # fmt: skip
    """Return the MShapley-CMI value of every data party (FedValue, Definition 5).

    Parameters
    ----------
    x_task, y, parties, names
        As in :class:`~fedkit.fedvalue.data.VerticalData`: `parties` is a list with one array
        or data frame per party, or a dict of them.  Row `i` must be the same person everywhere.
        Or a VerticalData alone: only that can check the order of the rows (`ids`), and say which
        columns keep their levels (`discrete`).  Or, but for "knn", CoalitionCells alone.
    bins, how, missing
        As in :func:`~fedkit.fedvalue.binning.discretise`; neither these nor `discrete` are used
        by "knn".
    correction : {"plugin", "miller-madow", "permutation", "knn"}
        The paper's plug-in estimate (Eq. 13), or one with less bias: Miller-Madow entropies, the
        expectation under independence taken off every marginal contribution
        (:mod:`~fedkit.fedvalue.bias`), or a nearest-neighbour estimate from the values
        themselves (:func:`~fedkit.fedvalue.neighbours.knn_information`).
    estimator : Estimator, optional
        How coalitions are sampled.  By default values are exact while ``2**d (n + 5000)`` is at
        most 400 million (16 parties with a thousand rows, 8 with a million; "permutation" needs
        ``2 d`` times the work) and come from 500 random permutations beyond (Eq. 16).
    budget : int, optional
        Distinct coalitions to evaluate; ``2**d`` gives exact values.  For "permutation":
        marginal contributions, repeats included, and values stay sampled whatever the budget.
    seed : int
        Seed of the permutations.
    """
    known = ("plugin", "miller-madow", "permutation")  # of counts
    choice("correction", correction, known + ("knn",) * (not isinstance(x_task, CoalitionCells)))
    whole("seed", seed, 0)
    if budget is not None:
        whole("budget", budget, 1)
    if estimator is not None:
        having("estimator", estimator, "sample", "accumulator")
    game: CMIGame | KNNGame
    if correction == "knn":
        data = vertical_data(x_task, y, parties, names)
        game, rows, titles = KNNGame(data, seed=seed), data.n_rows, data.names
    else:
        cells = coalition_cells(x_task, y, parties, names, bins, how, missing)
        if correction == "permutation":
            return _corrected(cells, estimator, budget, seed)
        game, rows, titles = CMIGame(cells, correction=correction), cells.rows, cells.names
    if estimator is None and budget is None and _affordable(game.n_players, rows + 5000):
        result = shapley(game)
    else:
        sampler = estimator or PermutationSampling(walks=WALKS if budget is None else None)
        result = estimate(game, sampler, budget, seed)
    return PartyValues(
        result.values, result.standard_errors, game.master, result.exact, result.evaluations,
        titles, correction, None, result.degrees_of_freedom,
    )  # fmt: skip


def mshapley_from_table(
    tokens: ArrayLike, task_cells: ArrayLike, counts: ArrayLike, *,
    names: Sequence[str] | None = None, **options: Any,
) -> PartyValues:  # fmt: skip
    """Return the values from a contingency table: the secure path's last step (Eq. 13).

    Equal to :func:`mshapley_cmi` on the rows that were counted where both are exact: bit for bit
    for "plugin" and "miller-madow", to about 10⁻¹² nats for "permutation".  The rows of the table,
    of which there are fewer than people, decide whether values are exact.

    The table is that of :func:`cells_of_table`; options are `correction` (but for "knn", which
    needs the values themselves), `estimator`, `budget` and `seed` of :func:`mshapley_cmi`.
    """
    return mshapley_cmi(cells_of_table(tokens, task_cells, counts, names), **options)


def _affordable(n_players: int, work: float) -> bool:
    return n_players <= MAX_TABLE_PLAYERS and 2.0**n_players * work <= EXACT_WORK


def _corrected(
    cells: CoalitionCells, estimator: Estimator | None, budget: int | None, seed: int
) -> PartyValues:
    null = NullContributions(cells)
    d = len(cells.parties)
    values, errors, freedom = np.zeros((d, 2)), np.zeros(d), np.full(d, np.inf)
    exact = estimator is None and budget is None and _affordable(d, 2 * d * (cells.rows + 5000))
    if exact:
        weights = shapley_weights(d)
        for members in all_coalitions(d):
            for party in np.flatnonzero(~members):
                values[party] += np.multiply(weights[members.sum()], null.marginal(members, party))
    else:
        walks = _walks(estimator or PermutationSampling(), budget, d)
        orders = random_orders(Streams(seed).generator("fedvalue-walks"), walks, d)
        steps = np.empty((len(orders), d, 2))
        for step, order in zip(steps, orders, strict=True):
            before = np.zeros(d, dtype=np.bool_)
            for party in order:
                step[party] = null.marginal(before, party)
                before[party] = True
        values = steps.mean(axis=0)
        errors += steps[..., 1].std(axis=0, ddof=1) / np.sqrt(walks) if walks > 1 else np.nan
        freedom[:] = walks - 1 if walks >= FEWEST_UNITS else np.nan
    plugin, corrected = values.T
    return PartyValues(
        corrected, errors, null.master, exact, null.evaluations, cells.names, "permutation",
        plugin, freedom,
    )  # fmt: skip


def _walks(sampler: Estimator, budget: int | None, d: int) -> int:
    if not isinstance(sampler, PermutationSampling) or sampler.antithetic:
        raise ValueError(
            f"estimator is {sampler!r}; the permutation correction samples by PermutationSampling "
            "only, without antithetic orders"
        )
    if budget is None:
        return sampler.walks or WALKS
    if budget < d:
        raise ValueError(f"budget is {budget}; one walk needs {d} marginal contributions")
    return min(sampler.walks or budget, budget // d)


def cells_of_table(
    tokens: ArrayLike, task_cells: ArrayLike, counts: ArrayLike, names: Sequence[str] | None = None
) -> CoalitionCells:
    """Return the cells of a contingency table, such as the secure protocol gives.

    Parameters
    ----------
    tokens : int array, shape (C, 1 + d)
        Cell of the task party and of each data party, one row per joint cell that occurs.
    task_cells : int array, shape (T, 2)
        What the task party's token stands for: codes of its features and of the label.
    counts : int array, shape (C,)
        Rows in each joint cell; cells of 0 are ignored.
    names : sequence of str, optional
        Names of the data parties.
    """
    try:
        cells, what, weights = np.asarray(tokens), np.asarray(task_cells), np.asarray(counts)
    except ValueError as error:
        raise ValueError("tokens, task_cells or counts are ragged; expected arrays") from error
    shapes = cells.ndim == 2 and cells.shape[1] > 1 and weights.shape == (len(cells),)
    if not shapes or what.shape[1:] != (2,):
        raise ValueError(
            f"tokens have shape {cells.shape}, task_cells {what.shape} and counts {weights.shape}; "
            "expected (C, 1 + d) with at least one data party, (T, 2), and (C,)"
        )
    if any(array.dtype.kind not in "iu" for array in (cells, what, weights)):
        raise ValueError("tokens, task_cells and counts must be whole numbers")
    if (weights < 0).any() or not weights.any():
        raise ValueError("counts must not be negative, and at least one must be positive")
    cells, weights = cells[weights > 0].astype(np.int64), weights[weights > 0]
    if cells[:, 0].min() < 0:
        raise ValueError(f"the table has task token {int(cells[:, 0].min())}; tokens count from 0")
    if cells[:, 0].max() >= len(what):
        raise ValueError(
            f"the table has task token {int(cells[:, 0].max())} and task_cells has {len(what)} "
            "rows; every token needs its features and label"
        )
    task, label = what[cells[:, 0]].T
    return CoalitionCells(task, label, list(cells[:, 1:].T), weights, names)
