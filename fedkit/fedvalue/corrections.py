"""Information with less bias than the plug-in.

*Permutation*: less its mean over all permutations of a party's rows within every cell of
``(x_t, x_D)``, which is known exactly (Vinh, Epps & Bailey 2010).  *Nearest neighbours*: from the
values themselves, without bins (Ross 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln, kl_div

from fedkit.fedvalue.columns import columns_of, densify, joint_codes, label_codes
from fedkit.streams import Streams

__all__ = [
    "expected_excess", "finite_numbers", "in_range", "knn_information", "null_information", "ross",
    "standardise", "totals",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2**21  # numbers held at once
JITTER = 1e-10  # of a column's spread: breaks ties and changes no distance that matters


def null_information(z: Ints, x: Ints, y: Ints, weights: Ints | None = None) -> tuple[float, float]:
    """Return the plug-in ``I(X; Y | Z)`` and its mean under permutations within Z, in nats.

    `z`, `x` and `y` are codes from 0, ``int64[n]``; a row stands for `weights` people, or for one.
    """
    weights = np.ones(len(z), dtype=np.int64) if weights is None else weights
    total = float(weights.sum())
    # a cell with one label, or one x, tells nothing, permuted or not
    z, strata = densify(z, int(z.max(initial=0)) + 1)
    mixed = np.ones(len(z), dtype=np.bool_)
    for column in (y, x):
        mixed &= (np.bincount(_grouped(z, column, weights)[2], minlength=strata) > 1)[z]
    if not mixed.any():
        return 0.0, 0.0
    z, x, y, weights = z[mixed], x[mixed], y[mixed], weights[mixed]
    z, strata = densify(z, strata)
    zx, n_zx, z_of_zx = _grouped(z, x, weights)
    _, n_zy, z_of_zy = _grouped(z, y, weights)
    _, n_zxy, _ = _grouped(zx, y, weights)
    n_z = totals(z, strata, weights)
    fixed = clogc(n_z).sum() - clogc(n_zx).sum() - clogc(n_zy).sum()
    plugin = (clogc(n_zxy).sum() + fixed) / total

    # every pair of an x and a y of the same cell z
    width = np.bincount(z_of_zy, minlength=strata)
    reps = width[z_of_zx]
    first = (np.cumsum(width) - width)[z_of_zx]
    pairs = n_zy[np.repeat(first, reps) + _steps(reps)]
    mean = expected_excess(np.repeat(n_z[z_of_zx], reps), np.repeat(n_zx, reps), pairs) / total
    plugin = float(max(plugin, 0.0))
    # an ID tells the same in every order: no more than rounding is left of it
    return plugin, plugin if abs(plugin - mean) < 1e-12 else mean


def expected_excess(n: Ints, a: Ints, b: Ints) -> float:
    """Return the sum of ``E[h log(h/m) - (h - m)]``, where h has the mean ``m = ab/n``.

    Of `n` things `a` are drawn, `h` of them of `b` marked.  Over all pairs of a table this is the
    mean of the differences of ``c log c``, from terms that are not negative: no digits are lost.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    _, first, times = np.unique(joint_codes(n, low, high), return_index=True, return_counts=True)
    n, low, high = n[first], low[first], high[first]
    mean = low * (high / n)
    # beyond 40 deviations, and 40 more for those of few marked, lies nothing that doubles can hold
    reach = 40 + 40 * np.sqrt(mean * (n - low) / n * (n - high) / np.maximum(n - 1, 1))
    start = np.maximum(np.maximum(0, low + high - n), np.floor(mean - reach).astype(np.int64))
    length = np.minimum(low, np.ceil(mean + reach).astype(np.int64)) - start + 1
    cuts = np.searchsorted(np.cumsum(length), np.arange(CHUNK, length.sum(), CHUNK))
    total = 0.0
    for part in np.split(np.arange(len(n)), np.unique(cuts)):
        each, steps = length[part], _steps(length[part])
        h, drawn, marked, things = (
            np.repeat(column[part], each) for column in (start, low, high, n)
        )
        h += steps
        log_p = -sum(
            gammaln(count + 1.0)
            for count in (h, drawn - h, marked - h, things - drawn - marked + h)
        )
        begins = np.cumsum(each) - each
        p = np.exp(log_p - np.repeat(np.maximum.reduceat(log_p, begins), each))
        excess = np.add.reduceat(p * kl_div(h, np.repeat(mean[part], each)), begins)
        total += float((times[part] * excess / np.add.reduceat(p, begins)).sum())
    return total


def clogc(counts: Ints) -> Floats:
    """Return ``c log c`` of each count."""
    return counts * np.log(np.maximum(counts, 1))


def totals(key: Ints, size: int, weights: Ints | None = None) -> Ints:
    """Return how many rows, or how much weight, each key in ``0..size-1`` has."""
    if weights is None:
        return np.bincount(key, minlength=size)
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, key, weights)  # whole numbers: bincount would go through floats
    return sums


def _steps(lengths: Ints) -> Ints:
    """Return 0, 1, ... for each length in turn."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _grouped(z: Ints, x: Ints, weights: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the cell (z, x) of each row, the counts of the cells, and the z of each cell."""
    levels = int(x.max(initial=0)) + 1
    cell, m = densify(z * levels + x, (int(z.max(initial=0)) + 1) * levels)
    z_of = np.empty(m, dtype=np.int64)
    z_of[cell] = z
    return cell, totals(cell, m, weights), z_of


def knn_information(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> float:
    """Return Ross's estimate of ``I(X; Y)`` for numbers `x` and a discrete label `y`, in nats.

    The mean over rows of ``psi(N) - psi(N_q) + psi(k) - psi(m_q)``: ``N_q`` rows have the label
    of row `q`, and ``m_q`` other rows of any label are no farther than the k-th nearest of them (k
    is 3, or less where a label has few rows; labels of one row are left out).  It may be below 0.

    `x` is finite, ``(n,)`` or ``(n, f)``, on comparable scales (see :func:`standardise`); `seed` is
    of the tiny noise that breaks ties.
    """
    points = in_range(finite_numbers(x, "x"))
    labels = label_codes(y)
    if len(labels) != len(points):
        raise ValueError(f"x has {len(points)} rows and y has {len(labels)}; align them")
    if points.shape[1] == 0:
        return 0.0
    kept = np.bincount(labels)[labels] > 1
    points, labels = points[kept], labels[kept]
    tied = [j for j, c in enumerate(points.T) if len(np.unique(c)) < len(c)]
    if tied:
        spread = points[:, tied].std(axis=0)
        scale = JITTER * np.where(spread > 0, spread, 1.0)
        rng = Streams(seed).generator("fedvalue-ties")
        points[:, tied] += scale * rng.normal(size=(len(points), len(tied)))
    return ross(points, labels)


def ross(points: Floats, labels: Ints) -> float:
    """Return Ross's mean over rows, of which no label has a single one, with k = 3."""
    if not len(points):
        return 0.0
    sizes = np.bincount(labels)
    reach, k = np.empty(len(points)), np.empty(len(points))
    for label in np.flatnonzero(sizes):
        own = labels == label
        nearest = min(3, int(sizes[label]) - 1)
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
    """
    values = in_range(finite_numbers(x, name))
    rounding = 8 * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0.0)
    values = values[:, np.ptp(values, axis=0) > rounding]
    return (values - values.mean(axis=0)) / values.std(axis=0)


def in_range(values: Floats) -> Floats:
    """Return columns in units in which squares neither overflow nor vanish; most as they are."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    extreme = (largest > 1e100) | (largest < 1e-100) & (largest > 0)
    return values / np.where(extreme, largest, 1.0) if extreme.any() else values


def finite_numbers(x: Any, name: str) -> Floats:
    """Return finite numbers ``float64[n, f]``, or refuse what is not."""
    columns = columns_of(x, name)
    try:
        values = np.array(columns, dtype=np.float64).T
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds text; nearest neighbours need numbers") from error
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} has missing or infinite values; nearest neighbours need all of them, so fill "
            "them in or use a correction that works with bins"
        )
    return values if columns else np.zeros((len(x), 0))
