"""The bias of plug-in information taken off: what chance alone would give, marginal by marginal.

With few rows per cell a plug-in ``I(X_d; Y | X_t X_D)`` is large even for noise.  Its bias is
estimated by what it would be if the data party knew nothing new:

    The rows of the data party are permuted within every cell of ``(x_t, x_D)``.

That keeps what the party holds, the label, and everything that the others know about either, and
breaks only the link of ``X_d`` to ``Y`` given the others.  If there is no such link, the permuted
data have the same distribution as the real ones, so the plug-in value minus the mean over
permutations has expectation exactly 0, with any number of rows.  "No link" is about the codes:
``X_d`` independent of the label given the *binned* ``X_t X_D``.  So it covers noise, and a party
whose codes follow from the others' (there a permutation of all rows would subtract too much).  It
does not cover the same quantity in other bins, such as the logarithm of a column that is cut at
equal widths: its bins refine the others' and may tell something new.

The mean over permutations needs no drawing: within a cell the counts are hypergeometric, and the
expectation is a finite sum (Vinh, Epps & Bailey 2010, who adjust the mutual information of
clusterings by it).  The standard deviation, for z-scores, is drawn.

The corrected marginal contributions are not differences of one utility, so their Shapley average
no longer sums to ``I(X_t X_D; Y) - I(X_t; Y)``: efficiency (Eq. 8) is lost by the mean that was
taken off, which is the estimate of how much of the plug-in total is bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fedkit.estimators import Budget, PermutationSampling, shapley
from fedkit.fedvalue.cells import CoalitionCells, densify
from fedkit.fedvalue.partyvalues import WALKS, PartyValues, Sampling
from fedkit.games.coalitions import Coalitions, Utilities, check_coalitions
from fedkit.streams import Streams

__all__ = ["NullGame", "corrected_values", "expected_clogc", "null_information"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2**21  # numbers held at once


def null_information(
    z: Ints, x: Ints, y: Ints, weights: Ints | None = None, *, draws: int = 0,
    rng: np.random.Generator | None = None,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the plug-in ``I(X; Y | Z)`` and its mean and deviation under permutations within Z.

    Parameters
    ----------
    z, x, y : int64[n]
        Codes from 0.
    weights : int64[n], optional
        How many rows each stands for; 1 by default.
    draws : int
        Permutations drawn for the standard deviation; below 2 it is NaN.
    rng : Generator, optional
        Source of the draws.

    Returns
    -------
    plugin, mean, deviation : float
        In nats.
    """
    weights = np.ones(len(z), dtype=np.int64) if weights is None else weights
    total = float(weights.sum())
    # a cell with one label, or one x, tells nothing, permuted or not
    z, strata = densify(z, int(z.max(initial=0)) + 1)
    mixed = np.ones(len(z), dtype=np.bool_)
    for column in (y, x):
        mixed &= (np.bincount(_group(z, column, weights)[2], minlength=strata) > 1)[z]
    if not mixed.any():
        return 0.0, 0.0, 0.0 if draws > 1 else np.nan
    z, x, y, weights = z[mixed], x[mixed], y[mixed], weights[mixed]
    z, strata = densify(z, strata)
    zx, n_zx, z_of_zx = _group(z, x, weights)
    _, n_zy, z_of_zy = _group(z, y, weights)
    _, n_zxy, _ = _group(zx, y, weights)
    n_z = _totals(z, weights, strata)
    fixed = _clogc(n_z).sum() - _clogc(n_zx).sum() - _clogc(n_zy).sum()
    plugin = (_clogc(n_zxy).sum() + fixed) / total

    # every pair of an x and a y of the same cell z
    width = np.bincount(z_of_zy, minlength=strata)
    reps = width[z_of_zx]
    first = (np.cumsum(width) - width)[z_of_zx]
    step = np.arange(reps.sum()) - np.repeat(np.cumsum(reps) - reps, reps)
    pairs = n_zy[np.repeat(first, reps) + step]
    mean = expected_clogc(np.repeat(n_z[z_of_zx], reps), np.repeat(n_zx, reps), pairs)
    deviation = np.nan
    if draws > 1:
        rng = np.random.default_rng(0) if rng is None else rng
        sums = _drawn_sums(z, zx, y, weights, draws, rng)
        deviation = float(sums.std(ddof=1)) / total
    return float(max(plugin, 0.0)), float((mean + fixed) / total), deviation


def expected_clogc(n: Ints, a: Ints, b: Ints) -> float:
    """Return the sum of ``E[h log h]`` for ``h`` hypergeometric: `a` of `n` drawn, `b` marked.

    Parameters
    ----------
    n, a, b : int64[k]
        One distribution each; ``h`` is how many of the `a` drawn are among the `b` marked.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    n, low, high, times = _distinct(n, low, high)
    start = np.maximum(2, low + high - n)  # h log h is 0 up to 1
    length = np.maximum(low - start + 1, 0)
    log_factorial = gammaln(np.arange(int(n.max(initial=0)) + 1) + 1.0)
    known = (
        log_factorial[low] + log_factorial[high] + log_factorial[n - low]
        + log_factorial[n - high] - log_factorial[n]
    )  # fmt: skip
    ends = np.cumsum(length)
    total, begin = 0.0, 0
    while begin < len(n):
        stop = max(int(np.searchsorted(ends, ends[begin] - length[begin] + CHUNK)), begin + 1)
        part = slice(begin, stop)
        reps = length[part]
        which = np.repeat(np.arange(begin, stop), reps)
        h = start[which] + np.arange(len(which)) - np.repeat(np.cumsum(reps) - reps, reps)
        log_p = known[which] - (
            log_factorial[h] + log_factorial[low[which] - h] + log_factorial[high[which] - h]
            + log_factorial[n[which] - low[which] - high[which] + h]
        )  # fmt: skip
        total += float((times[which] * np.exp(log_p) * h * np.log(h)).sum())
        begin = stop
    return total


def _distinct(n: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the distinct triples, and how often each occurs."""
    order = np.lexsort((high, low, n))
    n, low, high = n[order], low[order], high[order]
    new = np.ones(len(n), dtype=np.bool_)
    new[1:] = (np.diff(n) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
    starts = np.flatnonzero(new)
    return n[starts], low[starts], high[starts], np.diff(starts, append=len(n))


def _drawn_sums(
    z: Ints, zx: Ints, y: Ints, weights: Ints, draws: int, rng: np.random.Generator
) -> Floats:
    """Return the sum of ``c log c`` over cells (z, x, y) for labels permuted within z."""
    order = np.argsort(z, kind="stable")
    order = np.repeat(order, weights[order])  # a row that stands for many is many rows
    z, zx, y = z[order], zx[order], y[order]
    labels = int(y.max()) + 1
    size = (int(zx.max()) + 1) * labels
    table = _clogc(np.arange(int(np.bincount(zx).max()) + 1))
    sums = np.empty(draws)
    batch = max(1, CHUNK // max(len(z), size))
    for begin in range(0, draws, batch):
        some = min(batch, draws - begin)
        shuffled = np.argsort(z + rng.random((some, len(z))), axis=1)
        key = zx * labels + y[shuffled] + size * np.arange(some)[:, None]
        counts = np.bincount(key.ravel(), minlength=some * size).reshape(some, size)
        sums[begin : begin + some] = table[counts].sum(axis=1)
    return sums


def _pure(z: Ints, y: Ints) -> bool:
    """Whether every cell has one label, so that nobody can add anything."""
    some = np.empty(int(z.max()) + 1 if len(z) else 0, dtype=np.int64)
    some[z] = y
    return bool((some[z] == y).all())


def _group(z: Ints, x: Ints, weights: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the cell (z, x) of each row, the counts of the cells, and the z of each cell."""
    levels = int(x.max(initial=0)) + 1
    cell, m = densify(z * levels + x, (int(z.max(initial=0)) + 1) * levels)
    z_of = np.empty(m, dtype=np.int64)
    z_of[cell] = z
    return cell, _totals(cell, weights, m), z_of


def _totals(cell: Ints, weights: Ints, size: int) -> Ints:
    totals = np.zeros(size, dtype=np.int64)
    np.add.at(totals, cell, weights)
    return totals


def _clogc(counts: Ints) -> Floats:
    return counts * np.log(np.maximum(counts, 1))


class NullGame:
    """Marginal contributions beside their null, for :func:`~fedkit.estimators.shapley`.

    Player `i` has three games of its own, in each of which only it matters: joining `D` adds its
    plug-in contribution, its corrected one, or the standard deviation of the null.  The values
    are the diagonal of the ``(d, 3, d)`` Shapley values.

    Parameters
    ----------
    cells : CoalitionCells
        The parties' cells.
    draws : int
        Permutations drawn per contribution; 0 for no standard deviations.
    seed : int
        Seed of the draws.
    """

    def __init__(self, cells: CoalitionCells, draws: int = 20, seed: int = 0) -> None:
        if draws < 0 or draws == 1:
            raise ValueError(f"draws is {draws}; expected 0 (no z-scores) or at least 2")
        self.cells, self.draws = cells, draws
        self._rng = Streams(seed).generator("fedvalue-null")
        self._known: dict[tuple[int, int], tuple[float, float, float]] = {}
        task = cells.at(np.zeros(self.n_players, dtype=np.bool_)).key
        plugin, mean, _ = null_information(np.zeros_like(task), task, cells.label, cells.weights)
        self.master = plugin - mean

    @property
    def n_players(self) -> int:
        """Number of data parties."""
        return len(self.cells.parties)

    @property
    def evaluations(self) -> int:
        """Distinct marginal contributions worked out."""
        return len(self._known)

    def marginal(self, members: NDArray[np.bool_], party: int) -> tuple[float, float, float]:
        """Return plug-in, corrected and deviation (0 without draws) of one contribution."""
        key = (int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little"), party)
        if key not in self._known:
            base = self.cells.at(members)
            if not base.pure:
                base.pure = _pure(base.key, self.cells.label)
            answer = 0.0, 0.0, 0.0
            if not base.pure:
                plugin, mean, deviation = null_information(
                    base.key, self.cells.parties[party][0], self.cells.label, self.cells.weights,
                    draws=self.draws, rng=self._rng,
                )  # fmt: skip
                answer = plugin, plugin - mean, deviation if self.draws else 0.0
            self._known[key] = answer
        return self._known[key]

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return ``float64[B, 3 * d]`` for ``bool[B, d]`` coalitions."""
        rows = check_coalitions(coalitions, self.n_players)
        d = self.n_players
        utilities = np.zeros((len(rows), 3, d))
        pairs = []
        for b, row in enumerate(rows):
            for party in np.flatnonzero(row):
                without = row.copy()
                without[party] = False
                index = np.packbits(without, bitorder="little").tobytes()[::-1]
                pairs.append((index, b, int(party), without))
        for _, b, party, without in sorted(pairs, key=lambda pair: pair[:3]):
            utilities[b, :, party] = self.marginal(without, party)
        return utilities.reshape(len(rows), 3 * d)


def corrected_values(
    cells: CoalitionCells, how_to: Sampling, draws: int, names: tuple[str, ...]
) -> PartyValues:
    """Return the values with the permutation null taken off; see this module.

    Exact where ``2 d 2**d (n + 5000)`` stays below :data:`~fedkit.fedvalue.partyvalues.EXACT_WORK`;
    beyond, from random permutations of the parties (Eq. 16), one contribution per step.  The
    z-score of a value divides by the weighted sum of its contributions' deviations; by the
    triangle inequality their common deviation is at most that.  So it errs on the small side where
    several contributions are added, and not for one: the null is skewed.  Where the drawn
    deviation is 0, or rounding, it is 0 or huge.  A rough guide; for tests see
    :mod:`~fedkit.fedvalue.significance`.

    Raises
    ------
    ValueError
        If another estimator than permutation sampling is asked for, or the budget (in marginal
        contributions) is below one walk.
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


def _walk(game: NullGame, how_to: Sampling) -> tuple[Floats, Floats]:
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
    tally = estimator.tally(d)
    rng = Streams(how_to.seed).generator("fedvalue-walks")
    requests = estimator.sample(d, rng, tally, Budget(None, "calls"))
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
    values, errors = tally.values(), tally.standard_errors()
    assert values is not None
    assert errors is not None
    return values, errors
