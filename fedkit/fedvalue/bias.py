"""Information with less bias than the plug-in: a null by permutation, and nearest neighbours.

With few rows per cell a plug-in ``I(X_d; Y | X_t X_D)`` is large even for noise.  Its bias is
estimated by what it would be if the data party knew nothing new:

    The rows of the data party are permuted within every cell of ``(x_t, x_D)``.

If the party tells nothing about ``Y`` given the *binned* ``X_t X_D``, the permuted data have the
same distribution as the real ones, so the plug-in value minus the mean over permutations has
expectation exactly 0, with any number of rows.  That mean needs no drawing: within a cell the
counts are hypergeometric, and the expectation is a finite sum (Vinh, Epps & Bailey 2010).  The
standard deviation, for z-scores, is drawn.  Corrected contributions are not differences of one
utility, so efficiency (Eq. 8) is lost by the mean that was taken off.

The nearest-neighbour estimate works on the values themselves, without bins (Ross 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from fedkit.fedvalue.binning import columns_of, label_codes
from fedkit.fedvalue.cells import CoalitionCells, densify
from fedkit.fedvalue.data import VerticalData, vertical_data
from fedkit.games.coalitions import Coalitions, Utilities, check_coalitions
from fedkit.streams import Streams

__all__ = [
    "KNNGame",
    "NullGame",
    "expected_clogc",
    "knn_information",
    "null_information",
    "standardise",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2**21  # numbers held at once
JITTER = 1e-10  # of a column's mean size: breaks ties and changes no distance that matters


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
    """Marginal contributions beside their null, for :func:`~fedkit.games.exact.shapley`.

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


def knn_information(x: ArrayLike, y: ArrayLike, neighbours: int = 3, *, seed: int = 0) -> float:
    """Return Ross's estimate of ``I(X; Y)`` for numbers `x` and a discrete label `y`, in nats.

    The mean over rows of ``psi(N) - psi(N_q) + psi(k) - psi(m_q)``: ``N_q`` rows have the label
    of row `q`, the k-th nearest of them is at some distance, and ``m_q`` rows of any label (not
    counting `q`) are no farther.  Labels with a single row are left out, as they have no
    neighbour; labels with few rows use all they have.

    Parameters
    ----------
    x : float array, shape (n,) or (n, f)
        Finite numbers on comparable scales (see :func:`standardise`).
    y : array, shape (n,)
        Discrete labels.
    neighbours : int
        The number `k` of neighbours.
    seed : int
        Seed of the tiny noise that breaks ties; columns without ties get none.

    Returns
    -------
    float
        May be below 0: cutting it there would give noise a positive value.

    Raises
    ------
    ValueError
        If a value is not finite, lengths differ, or `neighbours` is below 1.
    """
    if neighbours < 1:
        raise ValueError(f"neighbours is {neighbours}; expected at least 1")
    points = numbers(x, "x")
    labels = label_codes(y)
    if len(labels) != len(points):
        raise ValueError(f"x has {len(points)} rows and y has {len(labels)}; align them")
    if points.shape[1] == 0:
        return 0.0
    kept = np.bincount(labels)[labels] > 1
    return ross(_untied(points[kept], seed), labels[kept], neighbours)


def ross(points: Floats, labels: Ints, neighbours: int) -> float:
    """Return Ross's mean over rows, of which no label has a single one."""
    if not len(points):
        return 0.0
    sizes = np.bincount(labels)
    reach, k = np.empty(len(points)), np.empty(len(points))
    for label in np.flatnonzero(sizes):
        own = labels == label
        nearest = min(neighbours, int(sizes[label]) - 1)
        tree = cKDTree(points[own])
        reach[own] = tree.query(points[own], k=[nearest + 1])[0][:, 0]  # the first is the row
        k[own] = nearest
    # a hair more than the distance, so that the k-th neighbour itself counts; less the row
    tree = cKDTree(points)
    m = tree.query_ball_point(points, reach * (1 + 1e-12), return_length=True) - 1
    terms = digamma(len(points)) - digamma(sizes[labels]) + digamma(k) - digamma(np.maximum(m, 1))
    return float(terms.mean())


def standardise(x: Any, name: str = "x") -> Floats:
    """Return the columns with mean 0 and standard deviation 1, ``float64[n, f]``.

    Columns that are constant up to rounding are left out: they are worth nothing and have no scale.

    Raises
    ------
    ValueError
        If a value is missing, infinite or not a number.
    """
    found = numbers(x, name)
    rounding = 8 * np.finfo(np.float64).eps * np.abs(found).max(axis=0, initial=0.0)
    found = found[:, np.ptp(found, axis=0) > rounding]
    scaled: Floats = (found - found.mean(axis=0)) / found.std(axis=0)
    return scaled


def numbers(x: Any, name: str) -> Floats:
    """Return finite numbers ``float64[n, f]``, or refuse what is not."""
    columns = columns_of(x, name)
    try:
        found = np.array(columns, dtype=np.float64).T
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds text; nearest neighbours need numbers") from error
    if not np.isfinite(found).all():
        raise ValueError(
            f"{name} has missing or infinite values; nearest neighbours need all of them, so fill "
            "them in or use a correction that works with bins"
        )
    return found if columns else np.zeros((len(x), 0))


def _untied(points: Floats, seed: int) -> Floats:
    """Add tiny noise to the columns in which a value occurs twice."""
    tied = [j for j, c in enumerate(points.T) if len(np.unique(c)) < len(c)]
    if not tied:
        return points
    points = points.copy()
    scale = JITTER * np.maximum(np.abs(points[:, tied]).mean(axis=0), 1.0)
    rng = Streams(seed).generator("fedvalue-ties")
    points[:, tied] += scale * rng.normal(size=(len(points), len(tied)))
    return points


class KNNGame:
    """The game of the data parties with ``v(D) = I(X_t X_D; Y)`` from nearest neighbours.

    A marginal contribution, a conditional mutual information, is the difference of two such
    estimates; it may be negative, and it tends to be for noise, which stretches all distances.

    Parameters
    ----------
    x_task, y, parties
        As in :class:`~fedkit.fedvalue.data.VerticalData`, or one of these alone; numbers only,
        none missing.  Each column is standardised.
    neighbours : int
        The number `k` of neighbours.
    seed : int
        Seed of the noise that breaks ties.

    Attributes
    ----------
    master : float
        ``I(X_t; Y)``; 0 where the task party has no features.
    """

    def __init__(
        self, x_task: Any | VerticalData, y: Any = None, parties: Any = None, neighbours: int = 3,
        seed: int = 0,
    ) -> None:  # fmt: skip
        data = vertical_data(x_task, y, parties)
        self._task = standardise(data.x_task)
        named = zip(data.parties, data.names or (), strict=True)
        self._parties = [standardise(x, name) for x, name in named]
        self._label = label_codes(data.y)
        self.neighbours, self.seed = neighbours, seed
        self.master = float(self.value(np.zeros((1, self.n_players), dtype=np.bool_))[0])

    @property
    def n_players(self) -> int:
        """Number of data parties."""
        return len(self._parties)

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return the estimates for ``bool[B, d]`` coalitions, in nats."""
        rows = check_coalitions(coalitions, self.n_players)
        values = np.empty(len(rows))
        for b, members in enumerate(rows):
            chosen = [x for x, taken in zip(self._parties, members, strict=True) if taken]
            points = np.concatenate([self._task, *chosen], axis=1)
            values[b] = knn_information(points, self._label, self.neighbours, seed=self.seed)
        return values
