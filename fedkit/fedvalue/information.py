"""MShapley-CMI: the value of a data party as conditional mutual information (FedValue, Eq. 2-13).

All entropies are in nats and plug-in estimates, ``p = N / n`` (Eq. 13), unless a correction is
named.  The data parties play a game that the task party has always joined, ``v(D) = I(X_t X_D; Y)``
(Eq. 5); its Shapley values are MShapley-CMI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedkit.checks import Bools, Floats, Ints, choice, having, plain_array, whole
from fedkit.estimators import Estimator, PermutationSampling, estimate
from fedkit.estimators.accumulators import FEWEST_UNITS
from fedkit.estimators.walks import random_orders
from fedkit.extras import need
from fedkit.fedvalue.columns import How, VerticalData, densify, fits, from_zero, joint_codes
from fedkit.fedvalue.corrections import null_information, totals
from fedkit.games.coalitions import MAX_TABLE_PLAYERS, Coalitions, Utilities, all_coalitions
from fedkit.games.exact import shapley, shapley_weights
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

Correction = Literal["plugin", "miller-madow", "permutation"]

#: Values are exact by default while (2**d coalitions) x (rows + 5000) stays at or below this; 16
#: parties with a thousand rows, 8 with a million.  The 5000 stand for the cost of a small array.
EXACT_WORK = 4e8

#: Random permutations where nothing else is said (Eq. 16).
WALKS = 500


class PartyValues(Valuation):
    """MShapley-CMI of every data party (Eq. 6), in nats: a :class:`Valuation` by their names.

    Standard errors are of the sampled groups of parties (or permutations); what other people (rows)
    would give is not in them.  For the correction "permutation", `evaluations` are distinct
    marginal contributions.
    """

    names: tuple[str, ...]

    @property
    def correction(self) -> str:
        """What was taken off the plug-in estimate; see :func:`mshapley_cmi`."""
        return str(self.info["correction"])

    @property
    def task_value(self) -> float:
        """``I(X_t; Y)``, the task party's own value (Eq. 7), with the same correction."""
        return float(self.info["task_value"])

    @property
    def plugin(self) -> Floats | None:
        """Plug-in values from the same coalitions, where the correction works them out."""
        plugin = self.info.get("plugin")
        return None if plugin is None else np.array(plugin)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per data party: value, standard error, perhaps plug-in."""
        told = {"value": self.values, "standard_error": self.standard_errors, "plugin": self.plugin}
        columns = {name: column for name, column in told.items() if column is not None}
        return need("pandas", extra="run").DataFrame({"party": self.names, **columns})


def mshapley_cmi(
    x_task: Any | VerticalData | CoalitionCells, y: Any = None, parties: Any = None, *,
    bins: int = 5, how: How = "width", correction: Correction = "plugin",
    estimator: Estimator | None = None, seed: int = 0,
) -> PartyValues:  # fmt: skip
    """Return the MShapley-CMI value of every data party (FedValue, Definition 5).

    Parameters
    ----------
    x_task, y, parties
        As in :class:`~fedkit.fedvalue.columns.VerticalData`: `parties` is a list with one array
        or data frame per party, or a dict of them.  Row `i` must be the same person everywhere.
        Or a VerticalData alone, which can check the order of the rows (`ids`), and say which
        columns keep their levels (`discrete`).  Or CoalitionCells alone.
    bins, how
        As in :func:`~fedkit.fedvalue.columns.discretise`.
    correction : {"plugin", "miller-madow", "permutation"}
        The paper's plug-in estimate (Eq. 13), or one with less bias: Miller-Madow entropies, or the
        expectation under independence taken off every marginal contribution
        (:mod:`~fedkit.fedvalue.corrections`).
    estimator : Estimator, optional
        How coalitions are sampled.  By default values are exact while ``2**d (n + 5000)`` is at
        most 400 million (16 parties with a thousand rows, 8 with a million; "permutation" needs
        ``2 d`` times the work) and come from 500 random permutations beyond (Eq. 16).
    seed : int
        Seed of the permutations.
    """
    choice("correction", correction, ("plugin", "miller-madow", "permutation"))
    whole("seed", seed, 0)
    if estimator is not None:
        having("estimator", estimator, "sample", "accumulator")
    cells = coalition_cells(x_task, y, parties, bins, how)
    if correction == "permutation":
        return _corrected(cells, estimator, seed)
    game = _game_of_cells(cells, correction)
    task_value = float(game(np.zeros((1, game.n_players), dtype=np.bool_))[0])
    if estimator is None and _affordable(game.n_players, cells.rows + 5000):
        result = shapley(game)
    else:
        result = estimate(game, estimator or PermutationSampling(walks=WALKS), seed=seed)
    return _party_values(result, correction, task_value, cells.names)


def _party_values(found: Valuation, correction: str, task_value: float, names: Any) -> PartyValues:
    facts = {**found.info, "correction": correction, "task_value": task_value, "unit": "nats"}
    known = {"method": "MShapley-CMI", "seed": None, "info": facts, "names": names}
    return PartyValues(**vars(found) | known)


def mshapley_from_table(
    tokens: ArrayLike, task_cells: ArrayLike, counts: ArrayLike, *,
    names: Sequence[str] | None = None, **options: Any,
) -> PartyValues:  # fmt: skip
    """Return the values from a contingency table: the secure path's last step (Eq. 13).

    Equal to :func:`mshapley_cmi` on the rows that were counted where both are exact: bit for bit
    for "plugin" and "miller-madow", to about 10⁻¹² nats for "permutation".

    The table is that of :func:`cells_of_table`; options are `correction`, `estimator` and `seed` of
    :func:`mshapley_cmi`.
    """
    return mshapley_cmi(cells_of_table(tokens, task_cells, counts, names), **options)


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


def sum_clogc(counts: Ints) -> float:
    """Return the sum of ``c log c`` over cell counts (natural logarithm).

    Equal counts are taken together: the order in which cells were found changes no bit.
    """
    if fits(counts.max(initial=0), len(counts)):
        how_many = np.bincount(counts)
        sizes = np.flatnonzero(how_many)
        how_many = how_many[sizes]
    else:
        sizes, how_many = np.unique(counts, return_counts=True)
    sizes, how_many = sizes[sizes > 1], how_many[sizes > 1]  # 0 log 0 = 1 log 1 = 0
    return float((how_many * (sizes * np.log(sizes))).sum())


@dataclass(eq=False)
class Cells:
    """The cells of one coalition of data parties."""

    members: Bools
    key: Ints  # of each row, below `size`
    size: int
    # set by the user when each cell has one label: a larger coalition can then add nothing, and its
    # cells are not worked out (its key has no rows)
    pure: bool = False


class CoalitionCells:
    """Cells of coalitions of data parties, each together with the task party.

    A coalition's cells are split cells of a smaller one: each is built by one pass over the rows.

    Parameters
    ----------
    task, label : int[n]
        Cell of each row at the task party, and its label.
    parties : sequence of int[n]
        Cell of each row at each data party.
    weights : int[n], optional
        How many people a row stands for; 1 by default.
    names : sequence of str, optional
        Names of the data parties; "party 1", "party 2", ... by default.
    """

    def __init__(
        self, task: ArrayLike, label: ArrayLike, parties: Sequence[ArrayLike],
        weights: ArrayLike | None = None, names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        d = len(parties)
        given = [f"party {i + 1}" for i in range(d)] if names is None else names
        if not isinstance(given, list | tuple) or len(given) != d:
            raise ValueError(f"names is {names!r}; expected one for each of {d} data parties")
        self.names = tuple(given)
        self.label, self.n_labels = from_zero(label)
        self.parties = [from_zero(party) for party in parties]
        self.weights = None if weights is None else np.asarray(weights, dtype=np.int64)
        self.rows = len(self.label)
        self.total = self.rows if self.weights is None else int(self.weights.sum())
        self.task = Cells(np.zeros(d, dtype=np.bool_), *from_zero(task))
        self._stack = [self.task]

    def at(self, members: Bools) -> Cells:
        """Return the cells of a coalition.

        The coalitions between the empty one and the last are kept, at most d + 1 of them.  So
        the walks of a permutation, and all coalitions in the order of their index, cost one pass
        each; an arbitrary order costs as many as there are parties to add.
        """
        while (self._stack[-1].members & ~members).any():
            self._stack.pop()
        start = self._stack[-1]
        added = np.flatnonzero(members & ~start.members)
        if not len(added):
            return start
        key, size = start.key, start.size
        for party in added if not start.pure else ():
            key, size = densify(key, size)
            code, levels = self.parties[party]
            key, size = key * levels + code, size * levels
        cells = Cells(members.copy(), key[:0] if start.pure else key, size, start.pure)
        self._stack.append(cells)
        return cells

    def counts(self, cells: Cells) -> tuple[Ints, Ints]:
        """Return the counts of the cells, and of the cells split by label (some may be 0)."""
        key, size, labels = cells.key, cells.size, self.n_labels
        if fits(size * labels, self.rows):
            split = totals(key * labels + self.label, size * labels, self.weights)
            return split.reshape(size, labels).sum(axis=1), split
        key, size = densify(key, size)
        both, found = densify(key * labels + self.label, size * labels)
        return totals(key, size, self.weights), totals(both, found, self.weights)


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
    cells = _whole_numbers("tokens", tokens, 2)
    what = _whole_numbers("task_cells", task_cells, 2)
    weights = _whole_numbers("counts", counts, 1)
    if len(weights) != len(cells) or not weights.any() or what.shape[1] != 2 or cells.shape[1] < 2:
        raise ValueError(
            f"tokens have shape {cells.shape}, task_cells {what.shape} and counts {weights.shape}; "
            "expected (C, 1 + d) with at least one data party, (T, 2), and (C,), not all 0"
        )
    cells, weights = cells[weights > 0], weights[weights > 0]
    if cells[:, 0].max() >= len(what):
        raise ValueError(f"tokens go up to {cells[:, 0].max()}; task_cells have {len(what)} rows")
    task, label = what[cells[:, 0]].T
    return CoalitionCells(task, label, list(cells[:, 1:].T), weights, names)


def _whole_numbers(name: str, values: Any, dimensions: int) -> Ints:
    array = plain_array(values)
    if array.dtype.kind not in "iu" or array.ndim != dimensions or (array < 0).any():
        raise ValueError(
            f"{name} are {array.dtype}{list(array.shape)}; expected whole numbers from 0, of "
            f"{dimensions} axes"
        )
    return array.astype(np.int64)


def coalition_cells(x_task: Any, y: Any, parties: Any, bins: int, how: How) -> CoalitionCells:
    """Return the cells of a call: of data, of their parts, or those of :class:`CoalitionCells`."""
    if isinstance(x_task, VerticalData | CoalitionCells) != (y is None and parties is None):
        raise ValueError(
            f"x_task is a {type(x_task).__name__}; expected the task party's columns with y and "
            "parties, or VerticalData with nothing beside it"
        )
    if isinstance(x_task, CoalitionCells):  # the walk and the marks of a game are its own
        columns = [code for code, _ in x_task.parties]
        return CoalitionCells(x_task.task.key, x_task.label, columns, x_task.weights, x_task.names)
    data = x_task if isinstance(x_task, VerticalData) else VerticalData(x_task, y, parties)
    task, label, others = data.codes(bins, how)
    return CoalitionCells(task, label, others, names=data.names)


def cmi_game(
    x_task: Any | VerticalData | CoalitionCells, y: Any = None, parties: Any = None, *,
    bins: int = 5, how: How = "width", correction: str = "plugin",
) -> Game:  # fmt: skip
    """Return the game of the data parties, ``v(D) = I(X_t X_D; Y)`` in nats (Eq. 5).

    ``v`` of no data party is ``I(X_t; Y)`` (Eq. 7).  Entropies are plug-in ones, or by
    "miller-madow" plus ``(K - 1) / 2n`` for `K` occupied cells (Miller 1955); the other arguments
    are those of :func:`mshapley_cmi`.
    """
    choice("correction", correction, ("plugin", "miller-madow"))
    return _game_of_cells(coalition_cells(x_task, y, parties, bins, how), correction)


def _game_of_cells(cells: CoalitionCells, correction: str) -> Game:
    n = cells.total
    labels = totals(cells.label, cells.n_labels, cells.weights)
    # in the form of what is taken off it, so that a constant column tells exactly nothing
    label_entropy = (sum_clogc(np.array([n])) - sum_clogc(labels)) / n
    occupied_labels = int((labels > 0).sum())

    def information(members: Bools) -> float:
        """Return ``H(Y) - H(Y | X)`` with ``H(Y | X) = H(XY) - H(X)`` from one count (Eq. 5)."""
        at = cells.at(members)
        if at.pure and correction == "plugin":
            return float(label_entropy)
        counts, split = cells.counts(at)
        conditional = (sum_clogc(counts) - sum_clogc(split)) / n
        if correction == "plugin":
            at.pure = conditional == 0.0  # more columns split cells and not labels
            return float(max(label_entropy - conditional, 0.0))
        extra = np.count_nonzero(counts) + occupied_labels - np.count_nonzero(split) - 1
        return float(label_entropy - conditional + extra / (2 * n))

    def informations(rows: Coalitions) -> Utilities:
        return np.array([information(members) for members in rows], dtype=np.float64)

    return Game(len(cells.parties), informations)


def _affordable(n_players: int, work: float) -> bool:
    return n_players <= MAX_TABLE_PLAYERS and 2.0**n_players * work <= EXACT_WORK


def _corrected(cells: CoalitionCells, estimator: Estimator | None, seed: int) -> PartyValues:
    """Return Shapley values of marginal contributions, each less its null."""
    d, label = len(cells.parties), cells.label
    known: dict[tuple[bytes, int], tuple[float, float]] = {}

    def marginal(members: Bools, party: int) -> tuple[float, float]:
        """Return one contribution: plug-in, and corrected."""
        key = (members.tobytes(), int(party))
        if key not in known:
            base = cells.at(members)
            if not base.pure:
                base.key, base.size = densify(base.key, base.size)
                some = np.empty(base.size, dtype=np.int64)  # the label of some row of each cell
                some[base.key] = label
                base.pure = bool((some[base.key] == label).all())
            plugin = mean = 0.0
            if not base.pure:
                codes, _ = cells.parties[party]
                plugin, mean = null_information(base.key, codes, label, cells.weights)
            known[key] = plugin, plugin - mean
        return known[key]

    values, errors, freedom = np.zeros((d, 2)), np.zeros(d), np.full(d, np.inf)
    exact = estimator is None and _affordable(d, 2 * d * (cells.rows + 5000))
    if exact:
        weights = shapley_weights(d)
        for members in all_coalitions(d):
            for party in np.flatnonzero(~members):
                values[party] += np.multiply(weights[members.sum()], marginal(members, party))
    else:
        walks = _walks(estimator or PermutationSampling())
        orders = random_orders(Streams(seed).generator("fedvalue-walks"), walks, d)
        steps = np.empty((len(orders), d, 2))
        for step, order in zip(steps, orders, strict=True):
            before = np.zeros(d, dtype=np.bool_)
            for party in order:
                step[party] = marginal(before, party)
                before[party] = True
        values = steps.mean(axis=0)
        errors += steps[..., 1].std(axis=0, ddof=1) / np.sqrt(walks) if walks > 1 else np.nan
        freedom[:] = walks - 1 if walks >= FEWEST_UNITS else np.nan
    plugin, corrected = values.T
    found = Valuation(
        corrected, errors, len(known), len(known), "", exact=exact,
        info={"plugin": plugin.tolist()}, degrees_of_freedom=freedom,
    )  # fmt: skip
    task = cells.task.key
    told, chance = null_information(np.zeros_like(task), task, label, cells.weights)
    return _party_values(found, "permutation", told - chance, cells.names)


def _walks(sampler: Estimator) -> int:
    if not isinstance(sampler, PermutationSampling) or sampler.antithetic or sampler.beta:
        raise ValueError(
            f"estimator is {sampler!r}; the permutation correction samples by PermutationSampling "
            "only, without antithetic orders or beta"
        )
    return sampler.walks or WALKS
