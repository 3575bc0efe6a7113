"""VF-PS: scoring the parties of vertical federated learning by groups (Jiang et al. 2022).

Parties are put into random groups, the mutual information of each group's features with the label
is estimated by nearest neighbours, and a party's score is the mean over the groups that contain
it.  The squared distances that the neighbours need are sums over the parties, so they can be added
up securely; this module computes in the clear.

The authors' code departs from this in three points: it *sums* over the groups, so that a party in
more groups scores more; it takes ``digamma(x)`` for ``ln x - 1/(2x)``; and it adds no noise to tied
values.  Neither a label nor a feature of the task party's own is conditioned on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from scipy.special import digamma

from fedkit.streams import Streams

__all__ = ["draw_groups", "mixed_information", "vfps_scores"]

FloatArray = npt.NDArray[np.float64]

#: noise that breaks ties, in units of a column's standard deviation
_TIE = 1e-10


def mixed_information(x: npt.ArrayLike, y: npt.ArrayLike, k: int = 3, seed: int = 0) -> float:
    """Estimate the mutual information of continuous features and a discrete label (Ross 2014).

    ``psi(N) - <psi(N_y)> + psi(k) - <psi(m)>``: `N_y` counts the rows with a row's label, and `m`
    all other rows as near as its k-th neighbour among these.

    Parameters
    ----------
    x : float64[n, f]
        Columns are scaled to unit variance, and ties are broken by noise of 1e-10 of that.
    y : int[n]
        Labels; where fewer than k + 1 rows have a label, fewer neighbours are taken for it, and
        a label of one row is left out.
    k : int
        Neighbours.
    seed : int
        Of the noise.

    Returns
    -------
    float
        In nats; may fall below 0 where there is no information.

    Raises
    ------
    ValueError
        If rows do not fit, a value is not finite, or fewer than two rows can be used.
    """
    features, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    if features.ndim != 2 or labels.shape != (len(features),) or not features.shape[1]:
        raise ValueError(
            f"x has shape {features.shape} and y {labels.shape}; (n, f) with f >= 1 and (n,) are "
            "expected"
        )
    if not np.isfinite(features).all():
        raise ValueError("x holds a value that is not finite; fill in what is missing first")
    if k < 1:
        raise ValueError(f"k is {k}; at least one neighbour is needed")
    _, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    used = sizes[label] > 1
    if used.sum() < 2:
        raise ValueError("every label occurs once; the estimate needs rows that share a label")
    features, label = features[used], label[used]
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    noise = Streams(seed).generator("vfps", "ties").normal(size=scaled.shape)
    scaled += _TIE * noise
    near, own, neighbours = np.empty(len(label)), np.empty(len(label)), np.empty(len(label))
    for value in np.unique(label):
        rows = np.flatnonzero(label == value)
        taken = min(k, len(rows) - 1)
        distance = cKDTree(scaled[rows]).query(scaled[rows], k=[taken + 1])[0][:, 0]
        near[rows], own[rows], neighbours[rows] = distance, len(rows), taken
    # a hair more than the distance, so that the k-th neighbour itself is counted; minus oneself
    tree = cKDTree(scaled)
    m = tree.query_ball_point(scaled, near * (1 + 1e-12), return_length=True) - 1
    terms = digamma(len(label)) - digamma(own) + digamma(neighbours) - digamma(np.maximum(m, 1))
    return float(terms.mean())


def draw_groups(parties: int, groups: int, seed: int = 0) -> list[int]:
    """Draw non-empty groups uniformly, as masks (bit i is party i), until every party is in one.

    Raises
    ------
    ValueError
        If there is no party or no group.
    """
    if parties < 1 or groups < 1:
        raise ValueError(f"{parties} parties and {groups} groups; at least one of each is needed")
    rng = Streams(seed).generator("vfps", "groups")
    found: list[int] = []
    everybody = (1 << parties) - 1
    while len(found) < groups or np.bitwise_or.reduce(found) != everybody:
        found.append(int(rng.integers(1, 1 << parties)))
    return found


def vfps_scores(
    parties: Sequence[npt.ArrayLike],
    y: npt.ArrayLike,
    *,
    groups: int = 20,
    k: int = 3,
    seed: int = 0,
) -> FloatArray:
    """Score every party by the mean information of the groups that contain it.

    Parameters
    ----------
    parties : sequence of float64[n, f]
        Features of each party, rows aligned.
    y : int[n]
        The label.
    groups : int
        Groups drawn; each is estimated once however often it is drawn.
    k, seed
        As in :func:`mixed_information` and :func:`draw_groups`.

    Returns
    -------
    float64[d]
        In nats.

    Raises
    ------
    ValueError
        As those functions.
    """
    tables = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in parties]  # type: ignore[arg-type]
    drawn = draw_groups(len(tables), groups, seed)
    information = {
        group: mixed_information(
            np.column_stack([x for i, x in enumerate(tables) if group >> i & 1]), y, k, seed
        )
        for group in sorted(set(drawn))
    }
    return np.array(
        [
            np.mean([information[group] for group in drawn if group >> i & 1])
            for i in range(len(tables))
        ]
    )
