"""Information by nearest neighbours: from the values themselves, without bins (Ross 2014)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma

from fedkit.fedvalue.binning import columns_of, label_codes
from fedkit.fedvalue.data import VerticalData
from fedkit.games.coalitions import Coalitions, Utilities, check_coalitions
from fedkit.streams import Streams

__all__ = ["JITTER", "KNNGame", "in_range", "knn_information", "numbers", "ross", "standardise"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

JITTER = 1e-10  # of a column's spread: breaks ties and changes no distance that matters


def knn_information(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> float:
    """Return Ross's estimate of ``I(X; Y)`` for numbers `x` and a discrete label `y`, in nats.

    The mean over rows of ``psi(N) - psi(N_q) + psi(k) - psi(m_q)``: ``N_q`` rows have the label
    of row `q`, the k-th nearest of them (k is 3) is at some distance, and ``m_q`` rows of any label
    (not counting `q`) are no farther.  Labels with a single row are left out, as they have no
    neighbour; labels with few rows use all they have.  It may be below 0: cutting it there would
    give noise a positive value.

    Parameters
    ----------
    x : float array, shape (n,) or (n, f)
        Finite numbers on comparable scales (see :func:`standardise`).
    y : array, shape (n,)
        Discrete labels.
    seed : int
        Of the tiny noise that breaks ties (columns without ties get none).
    """
    points = in_range(numbers(x, "x"))
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
    values = in_range(numbers(x, name))
    rounding = 8 * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0.0)
    values = values[:, np.ptp(values, axis=0) > rounding]
    return (values - values.mean(axis=0)) / values.std(axis=0)


def in_range(values: Floats) -> Floats:
    """Return columns in units in which squares neither overflow nor vanish; most as they are."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    extreme = (largest > 1e100) | (largest < 1e-100) & (largest > 0)
    return values / np.where(extreme, largest, 1.0) if extreme.any() else values


def numbers(x: Any, name: str) -> Floats:
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


class KNNGame:
    """The game of the data parties with ``v(D) = I(X_t X_D; Y)`` from nearest neighbours.

    Marginal contributions, differences of two such estimates, tend to be negative for noise, which
    stretches all distances.  Data are numbers, none missing; each column is standardised.
    """

    def __init__(self, data: VerticalData, seed: int = 0) -> None:
        self._task = standardise(data.x_task)
        named = zip(data.parties, data.names, strict=True)
        self._parties = [standardise(x, name) for x, name in named]
        self._label, self._seed = label_codes(data.y), seed
        self.n_players = len(self._parties)
        self.master = float(self.value(np.zeros((1, self.n_players), dtype=np.bool_))[0])

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return the estimates for ``bool[B, d]`` coalitions, in nats."""
        rows = check_coalitions(coalitions, self.n_players)
        values = np.empty(len(rows))
        for b, members in enumerate(rows):
            chosen = [x for x, taken in zip(self._parties, members, strict=True) if taken]
            points = np.concatenate([self._task, *chosen], axis=1)
            values[b] = knn_information(points, self._label, seed=self._seed)
        return values
