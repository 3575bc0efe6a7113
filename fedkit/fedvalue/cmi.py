"""MShapley-CMI: the value of a data party as conditional mutual information (FedValue, Eq. 2-13).

All entropies are in nats (natural logarithm) and plug-in estimates, ``p = N / n`` (Eq. 13),
unless a correction is named.  The data parties play a game that the task party has always
joined, ``v(D) = I(X_t X_D; Y)``; its Shapley values are MShapley-CMI.  They are computed by
fedkit's own :func:`~fedkit.games.exact.shapley` and :func:`~fedkit.estimators.driver.estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.estimators import Budget, Estimator, PermutationSampling, estimate, shapley
from fedkit.extras import need
from fedkit.fedvalue.bias import KNNGame, NullGame
from fedkit.fedvalue.cells import CoalitionCells, sum_clogc
from fedkit.fedvalue.data import How, Missing, VerticalData, joint_codes, vertical_data
from fedkit.games.coalitions import (
    MAX_TABLE_PLAYERS,
    Coalitions,
    Memo,
    Utilities,
    check_coalitions,
    take,
)
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EXACT_WORK",
    "WALKS",
    "CMIGame",
    "Correction",
    "PartyValues",
    "cells_of_table",
    "conditional_mutual_information",
    "entropy",
    "mshapley_cmi",
    "mshapley_from_table",
    "mutual_information",
]

Correction = Literal["plugin", "miller-madow", "permutation", "knn"]
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


def entropy(codes: ArrayLike) -> float:
    """Return the plug-in entropy of a column of codes, in nats (Eq. 3)."""
    counts = np.bincount(joint_codes(codes))
    return float(np.log(counts.sum()) - sum_clogc(counts) / counts.sum())


def mutual_information(x: ArrayLike, y: ArrayLike) -> float:
    """Return the plug-in mutual information of two columns (or matrices) of codes, in nats."""
    return max(entropy(x) + entropy(y) - entropy(joint_codes(x, y)), 0.0)


def conditional_mutual_information(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> float:
    """Return the plug-in ``I(X; Y | Z)`` of columns (or matrices) of codes, in nats (Eq. 13).

    ``H(XZ) + H(YZ) - H(XYZ) - H(Z)``, never below 0.
    """
    xz, yz, xyz = joint_codes(x, z), joint_codes(y, z), joint_codes(x, y, z)
    return max(entropy(xz) + entropy(yz) - entropy(xyz) - entropy(z), 0.0)


class CMIGame:
    """The game of the data parties, ``v(D) = I(X_t X_D; Y)`` (Eq. 5).

    Parameters
    ----------
    x_task, y, parties
        As in :class:`~fedkit.fedvalue.data.VerticalData`, rows in one order; or a VerticalData
        alone.
    bins, how, missing
        As in :func:`~fedkit.fedvalue.binning.discretise`.
    correction : {"plugin", "miller-madow"}
        Plug-in entropies, or plus ``(K - 1) / 2n`` for `K` occupied cells: first order in
        ``1 / n`` (Miller 1955), where cells hold many rows and all possible ones are occupied.

    Attributes
    ----------
    master : float
        ``v`` of no data party: ``I(X_t; Y)`` (Eq. 7), in nats.

    Raises
    ------
    ValueError
        If the data or an argument are refused (see those classes).
    """

    def __init__(
        self,
        x_task: Any | VerticalData,
        y: Any = None,
        parties: Any = None,
        *,
        bins: int = 5,
        how: How = "width",
        missing: Missing = "own",
        correction: str = "plugin",
    ) -> None:
        data = vertical_data(x_task, y, parties)
        self._set(CoalitionCells(*data.codes(bins, how, missing)), correction)

    @classmethod
    def from_codes(
        cls,
        task: ArrayLike,
        label: ArrayLike,
        parties: Sequence[ArrayLike],
        weights: ArrayLike | None = None,
        correction: str = "plugin",
    ) -> CMIGame:
        """Build the game from cells ``int[n]``, each standing for `weights` people.

        Raises
        ------
        ValueError
            If there is no party, codes are no whole numbers or lengths differ, or weights are
            negative or all 0.
        """
        rows = np.shape(task)
        for name, codes in (("task", task), ("label", label), *enumerate(parties)):
            what, array = f"party {name + 1}" if isinstance(name, int) else name, np.asarray(codes)
            if array.ndim != 1 or array.shape != rows or array.dtype.kind not in "biu":
                raise ValueError(
                    f"{what} has shape {array.shape} and dtype {array.dtype} where task has shape "
                    f"{rows}; expected one whole number per row, as joint_codes gives them"
                )
        if not len(parties) or rows == (0,):
            raise ValueError(f"there are {len(parties)} parties of {rows[0]} rows; pass some")
        if weights is not None:
            often = np.asarray(weights)
            if often.shape != rows or often.dtype.kind not in "iu":
                raise ValueError(
                    f"weights have shape {often.shape} and dtype {often.dtype}; expected {rows} "
                    "whole numbers"
                )
            _check_counts(often, "weights")
        return cls.of(CoalitionCells(task, label, parties, weights), correction)

    @classmethod
    def of(cls, cells: CoalitionCells, correction: str = "plugin") -> CMIGame:
        """Build the game over cells that are at hand."""
        game = cls.__new__(cls)
        game._set(cells, correction)
        return game

    def _set(self, cells: CoalitionCells, correction: str) -> None:
        if correction not in ("plugin", "miller-madow"):
            raise ValueError(
                f"correction is {correction!r}; a game is 'plugin' or 'miller-madow' "
                "(mshapley_cmi knows the others)"
            )
        self.cells, self.correction = cells, correction
        labels = cells._bincount(cells.label, cells.n_labels)
        # in the form of _information, so that a constant column tells exactly nothing
        together = sum_clogc(np.array([cells.total]))
        self._label_entropy = (together - sum_clogc(labels)) / cells.total
        self._occupied_labels = int((labels > 0).sum())
        self._memo = Memo(self.n_players)
        self.master = float(self.value(np.zeros((1, self.n_players), dtype=np.bool_))[0])

    @property
    def n_players(self) -> int:
        """Number of data parties."""
        return len(self.cells.parties)

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return ``I(X_t X_D; Y)`` in nats for ``bool[B, d]`` coalitions."""
        rows = check_coalitions(coalitions, self.n_players)
        keys = self._memo.keys(rows)
        new = self._memo.missing(keys)
        if len(new):
            values = np.array([self._information(members) for members in rows[new]])
            self._memo.add(take(keys, new), values)
        return self._memo.utilities(keys)

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


@dataclass(frozen=True)
class _Sampling:
    """How coalitions are chosen; see :func:`mshapley_cmi`."""

    estimator: Estimator | None
    budget: int | None
    seed: int

    def exact(self, n_players: int, work: float) -> bool:
        """Whether all coalitions are to be evaluated, at `work` row passes each."""
        free = self.estimator is None and self.budget is None
        return free and n_players <= MAX_TABLE_PLAYERS and 2.0**n_players * work <= EXACT_WORK

    def value(
        self, game: CMIGame | KNNGame, rows: int, names: tuple[str, ...], correction: str
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


def mshapley_cmi(
    x_task: Any | VerticalData,
    y: Any = None,
    parties: Any = None,
    *,
    bins: int = 5,
    how: How = "width",
    missing: Missing = "own",
    correction: Correction = "plugin",
    estimator: Estimator | None = None,
    budget: int | None = None,
    seed: int = 0,
    draws: int = 20,
    names: Sequence[str] | None = None,
) -> PartyValues:
    """Return the MShapley-CMI value of every data party (FedValue, Definition 5).

    Parameters
    ----------
    x_task, y, parties, names
        As in :class:`~fedkit.fedvalue.data.VerticalData`: `parties` is a list with one array
        or data frame per party, or a dict of them.  Row `i` must be the same person everywhere.
        Or a VerticalData alone: only that can check the order of the rows (`ids`), and say which
        columns keep their levels (`discrete`).
    bins, how, missing
        As in :func:`~fedkit.fedvalue.binning.discretise`; neither these nor `discrete` are used
        by "knn".
    correction : {"plugin", "miller-madow", "permutation", "knn"}
        The paper's plug-in estimate (Eq. 13), or one with less bias: Miller-Madow entropies, the
        expectation under independence taken off every marginal contribution
        (:mod:`~fedkit.fedvalue.bias`), or a nearest-neighbour estimate from the values
        themselves (:func:`~fedkit.fedvalue.bias.knn_information`).
    estimator : Estimator, optional
        How coalitions are sampled.  By default values are exact while ``2**d (n + 5000)`` is at
        most 4e8 (16 parties with a thousand rows, 8 with a million; "permutation" needs ``2 d``
        times the work) and come from 500 random permutations beyond (Eq. 16).
    budget : int, optional
        Distinct coalitions to evaluate; ``2**d`` gives exact values.  For "permutation":
        marginal contributions, repeats included, and values stay sampled whatever the budget.
    seed : int
        Seed of the permutations and of the null's draws.
    draws : int
        Draws per marginal contribution for the z-scores of "permutation"; 0 leaves them out.

    Raises
    ------
    ValueError
        If the data are refused or an argument is unknown.
    """
    data = vertical_data(x_task, y, parties, names)
    assert data.names is not None
    how_to = _Sampling(estimator, budget, seed)
    if correction == "knn":
        game = KNNGame(data, seed=seed)
        return how_to.value(game, data.n_rows, data.names, correction)
    codes = data.codes(bins, how, missing)
    return _from_cells(CoalitionCells(*codes), correction, how_to, draws, data.names)


def mshapley_from_table(
    tokens: ArrayLike,
    task_cells: ArrayLike,
    counts: ArrayLike,
    *,
    correction: Correction = "plugin",
    estimator: Estimator | None = None,
    budget: int | None = None,
    seed: int = 0,
    draws: int = 20,
    names: Sequence[str] | None = None,
) -> PartyValues:
    """Return the values from a contingency table: the secure path's last step (Eq. 13).

    Equal to :func:`mshapley_cmi` on the rows that were counted where both are exact: bit for bit
    for "plugin" and "miller-madow", to about 1e-12 nats for "permutation" (its `z` is drawn anew).
    Whether values are exact is decided by the rows of the table, of which there are fewer than
    people, so this may be exact where the other is sampled.

    Parameters
    ----------
    tokens : int array, shape (C, 1 + d)
        Cell of the task party and of each data party, one row per joint cell that occurs.
    task_cells : int array, shape (T, 2)
        What the task party's token stands for: codes of its features and of the label.
    counts : int array, shape (C,)
        Rows in each joint cell; cells of 0 are ignored.
    correction, estimator, budget, seed, draws, names
        As in :func:`mshapley_cmi`; "knn" needs the values themselves and is refused.

    Raises
    ------
    ValueError
        If shapes do not fit, a token is unknown, a count is negative or all are 0.
    """
    joint, known = cells_of_table(tokens, task_cells, counts, names)
    return _from_cells(joint, correction, _Sampling(estimator, budget, seed), draws, known)


def _from_cells(
    cells: CoalitionCells, correction: str, how_to: _Sampling, draws: int, names: tuple[str, ...]
) -> PartyValues:
    if correction == "permutation":
        return _corrected_values(cells, how_to, draws, names)
    if correction not in ("plugin", "miller-madow"):
        raise ValueError(
            f"correction is {correction!r}; expected 'plugin', 'miller-madow', 'permutation'"
            + (" or 'knn'" if cells.weights is None else " from a table of counts")
        )
    return how_to.value(CMIGame.of(cells, correction), cells.rows, names, correction)


def _corrected_values(
    cells: CoalitionCells, how_to: _Sampling, draws: int, names: tuple[str, ...]
) -> PartyValues:
    """Return the values with the permutation null taken off; see :mod:`~fedkit.fedvalue.bias`.

    The z-score of a value divides by the weighted sum of its contributions' deviations, which by
    the triangle inequality is at least their common deviation.
    """
    game = NullGame(cells, draws, how_to.seed)
    d = game.n_players
    exact = how_to.exact(d, 2 * d * (cells.rows + 5000.0))
    if exact:
        diagonal = np.diagonal(shapley(game).values.reshape(d, 3, d), axis1=0, axis2=2)
        values, errors = diagonal.T, np.zeros(d)
    else:
        values, sampled = _walk(game, how_to)
        errors = sampled[:, 1]
    plugin, corrected, deviation = values.T
    z = None
    if draws:
        # a constant party has no deviation and no value: nothing speaks for it
        z = np.where(deviation > 0, corrected / np.where(deviation > 0, deviation, 1.0), 0.0)
    return PartyValues(
        corrected, errors, game.master, exact, game.evaluations, names, "permutation", plugin, z
    )


def _walk(game: NullGame, how_to: _Sampling) -> tuple[Floats, Floats]:
    """Run fedkit's permutation sampler on contributions that are no game's differences.

    The sampler asks for the prefixes of its walks and takes differences along each; it is
    answered with running sums of the contributions of those who join.
    """
    d = game.n_players
    estimator: Any = how_to.estimator or PermutationSampling()
    if not isinstance(estimator, PermutationSampling):
        raise ValueError(
            f"estimator is {estimator!r}; the permutation correction samples by "
            "PermutationSampling only"
        )
    walks = estimator.walks or WALKS
    unit = 2 if estimator.antithetic else 1
    if how_to.budget is not None:
        walks = min(walks, how_to.budget // d) if estimator.walks else how_to.budget // d
        walks -= walks % unit
    if walks < unit:
        raise ValueError(
            f"budget is {how_to.budget}; one walk needs {unit * d} marginal contributions"
        )
    estimator = PermutationSampling(estimator.antithetic, walks)
    accumulator = estimator.accumulator(d)
    rng = Streams(how_to.seed).generator("fedvalue-walks")
    requests = estimator.sample(d, rng, accumulator, Budget(None, "calls"))
    next(requests)
    answer = np.zeros((1, 3))
    try:
        while True:
            prefixes = requests.send(answer)
            answer = np.empty((len(prefixes), 3))
            for start in range(0, len(prefixes), d):
                before, so_far = np.zeros(d, dtype=np.bool_), np.zeros(3)
                for step in range(start, start + d):
                    party = int(np.flatnonzero(prefixes[step] & ~before)[0])
                    so_far = so_far + game.marginal(before, party)
                    answer[step], before = so_far, prefixes[step]
    except StopIteration:
        pass
    values, errors = accumulator.values(), accumulator.standard_errors()
    assert values is not None
    assert errors is not None
    return values, errors


def cells_of_table(
    tokens: ArrayLike,
    task_cells: ArrayLike,
    counts: ArrayLike,
    names: Sequence[str] | None = None,
) -> tuple[CoalitionCells, tuple[str, ...]]:
    """Return the cells of a contingency table, and the parties' names.

    Parameters and errors are those of :func:`mshapley_from_table`.
    """
    cells, what, weights = np.asarray(tokens), np.asarray(task_cells), np.asarray(counts)
    if cells.ndim != 2 or cells.shape[1] < 2 or weights.shape != (len(cells),):
        raise ValueError(
            f"tokens have shape {cells.shape} and counts {weights.shape}; expected (C, 1 + d) "
            "with at least one data party, and (C,)"
        )
    if any(array.dtype.kind not in "iu" for array in (cells, what, weights)):
        raise ValueError("tokens, task_cells and counts must be whole numbers")
    if what.ndim != 2 or what.shape[1] != 2:
        raise ValueError(f"task_cells have shape {what.shape}; expected (T, 2): features and label")
    _check_counts(weights, "counts")
    cells, weights = cells[weights > 0].astype(np.int64), weights[weights > 0]
    if cells[:, 0].max() >= len(what) or cells[:, 0].min() < 0:
        raise ValueError(
            f"the table has task token {int(cells[:, 0].max())} and task_cells has {len(what)} "
            "rows; every token needs its features and label"
        )
    d = cells.shape[1] - 1
    known = tuple(f"party {i + 1}" for i in range(d)) if names is None else tuple(names)
    if len(known) != d:
        raise ValueError(f"there are {len(known)} names for {d} data parties")
    task, label = what[cells[:, 0]].T
    return CoalitionCells(task, label, list(cells[:, 1:].T), weights), known


def _check_counts(counts: NDArray[Any], name: str) -> None:
    if (counts < 0).any() or not (counts > 0).any():
        raise ValueError(f"{name} must not be negative, and at least one must be positive")
