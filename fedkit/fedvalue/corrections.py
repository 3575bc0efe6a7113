"""What the plug-in gives to chance: its mean over all permutations of a party's rows.

Rows are permuted within every cell of ``(x_t, x_D)``; the mean is known exactly (Vinh, Epps &
Bailey 2010).
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, kl_div

from fedkit.checks import Floats, Ints
from fedkit.fedvalue.columns import densify, joint_codes

CHUNK = 2**21  # numbers held at once


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
