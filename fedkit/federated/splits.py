"""Steps between a data set and its clients: hold out, thin to a long tail, mend empty clients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedkit.federated.schemes import check_labels

__all__ = ["MissingClassWarning", "fill_empty", "hold_out", "long_tail"]


class MissingClassWarning(UserWarning):
    """A class of the data has no image in the server's validation set."""


def hold_out(
    y: np.ndarray,
    fraction: float,
    rng: np.random.Generator,
    stratified: bool = True,
    missing: Literal["warn", "error"] = "warn",
) -> tuple[np.ndarray, np.ndarray]:
    """Take a fraction of the samples away from training.

    Stratified, class c gives max(1, its share of round(fraction * N)) images, shares being
    rounded by largest remainder; a class of one image keeps it for training.  So every class
    of two or more images is in both parts, if need be with more images than the fraction says.

    Parameters
    ----------
    y : int array (N,)
        Labels, from 0.
    fraction : float
        Fraction held out, above 0 and below 1.
    rng : numpy.random.Generator
        Source of randomness.
    stratified : bool
        False draws without regard to class.
    missing : {"warn", "error"}
        What to do when a class of `y` has no held-out image: warn with
        :class:`MissingClassWarning`, or raise.

    Returns
    -------
    train, held : int64 arrays
        Sorted positions in `y`; disjoint, together all of them.

    Raises
    ------
    ValueError
        If the fraction is out of range, nothing would be left on either side, or a class is
        missing and ``missing="error"``.
    """
    labels = check_labels(y)
    if not 0 < fraction < 1:
        raise ValueError(f"validation fraction is {fraction}; expected above 0 and below 1")
    if missing not in ("warn", "error"):
        raise ValueError(f"missing is {missing!r}; expected 'warn' or 'error'")
    classes, counts = np.unique(labels, return_counts=True)
    total = max(1, round(fraction * len(labels)))
    if stratified:
        exact = total * counts / len(labels)
        quota = np.floor(exact).astype(np.int64)
        quota[np.argsort(quota - exact, kind="stable")[: total - int(quota.sum())]] += 1
        quota = np.minimum(np.maximum(quota, 1), counts - 1)
        chosen = [
            rng.permutation(np.flatnonzero(labels == c))[:q]
            for c, q in zip(classes, quota, strict=True)
        ]
        held = np.sort(np.concatenate(chosen)).astype(np.int64)
    else:
        held = np.sort(rng.permutation(len(labels))[:total]).astype(np.int64)
    if not 0 < len(held) < len(labels):
        raise ValueError(
            f"holding out {fraction} of {len(labels)} samples leaves {len(labels) - len(held)} for "
            f"training and {len(held)} for validation; take more data or another fraction"
        )
    absent = np.setdiff1d(classes, labels[held]).tolist()
    if absent:
        message = (
            f"classes {absent} have no validation image, so class-wise utilities are undefined "
            "for them; hold out a larger fraction or add images of these classes"
        )
        if missing == "error":
            raise ValueError(message)
        warnings.warn(message, MissingClassWarning, stacklevel=2)
    return np.setdiff1d(np.arange(len(labels)), held), held


def long_tail(
    y: np.ndarray,
    imbalance_factor: float,
    rng: np.random.Generator,
    order: Literal["index", "random"] | Sequence[int] = "index",
) -> np.ndarray:
    """Thin the classes so that their sizes fall off exponentially.

    The class of rank r among C keeps ``floor(n_max * factor ** (r / (C - 1)))`` images, at most
    what it has and at least one.  ``n_max`` is the mean class size N / C, as in the code of
    CReFF (Shang et al. 2022), which FedOwen cites; for data of equal class sizes it is also
    the largest.

    Parameters
    ----------
    y : int array (N,)
        Labels, from 0.
    imbalance_factor : float
        Size of the last class relative to the first, above 0 and at most 1.
    rng : numpy.random.Generator
        Draws which images stay, and the order of the classes if it is random.
    order : {"index", "random"} or sequence of int
        Classes from the most to the least frequent; by default by index, as in CReFF.

    Returns
    -------
    int64 array
        Sorted positions in `y` that stay.
    """
    labels = check_labels(y)
    if not 0 < imbalance_factor <= 1:
        raise ValueError(f"imbalance_factor is {imbalance_factor}; expected above 0 and at most 1")
    classes = np.unique(labels)
    if isinstance(order, str):
        if order not in ("index", "random"):
            raise ValueError(f"order is {order!r}; expected 'index', 'random' or a list of classes")
        ranking = classes if order == "index" else rng.permutation(classes)
    else:
        ranking = np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(ranking), classes):
            raise ValueError(f"order is {list(order)}; expected each of {classes.tolist()} once")
    n_max = len(labels) / len(classes)
    kept = []
    for rank, label in enumerate(ranking):
        target = n_max * imbalance_factor ** (rank / max(len(classes) - 1, 1))
        # The small term keeps a whole number whole when the power is a rounding below it.
        members = rng.permutation(np.flatnonzero(labels == label))
        kept.append(members[: max(1, int(target + 1e-9))])
    return np.sort(np.concatenate(kept)).astype(np.int64)


def fill_empty(
    parts: Sequence[np.ndarray],
    rule: Literal["keep", "refill", "error"],
    rng: np.random.Generator,
    min_size: int = 1,
) -> list[np.ndarray]:
    """Apply the rule for clients with too little data.

    Parameters
    ----------
    parts : sequence of int64 array
        Positions held by each client.
    rule : {"keep", "refill", "error"}
        ``"keep"`` leaves the parts as they are: a client without data takes part in a round and
        returns the model unchanged.  ``"refill"`` moves one random sample at a time from the
        largest client to the smallest until each has `min_size`.  ``"error"`` raises.
    rng : numpy.random.Generator
        Chooses the samples that move.
    min_size : int
        Smallest size wanted.

    Returns
    -------
    list of int64 array
        The same samples, each held once.
    """
    if rule not in ("keep", "refill", "error"):
        raise ValueError(f"empty is {rule!r}; expected 'keep', 'refill' or 'error'")
    if min_size < 1:
        raise ValueError(f"min_size is {min_size}; expected at least 1")
    sizes = np.array([len(p) for p in parts])
    short = np.flatnonzero(sizes < min_size)
    if rule == "keep" or not len(short):
        return list(parts)
    if rule == "error":
        raise ValueError(
            f"{len(short)} of {len(parts)} clients have fewer than {min_size} samples (the first "
            f"is client {short[0]}); choose another scheme, fewer clients or empty='refill'"
        )
    if sizes.sum() < min_size * len(parts):
        raise ValueError(
            f"{sizes.sum()} samples cannot give {len(parts)} clients {min_size} each; take fewer "
            "clients or a smaller min_size"
        )
    held = [list(rng.permutation(p)) for p in parts]
    while sizes.min() < min_size:
        poorest, richest = int(np.argmin(sizes)), int(np.argmax(sizes))
        held[poorest].append(held[richest].pop())
        sizes[poorest] += 1
        sizes[richest] -= 1
    return [np.sort(np.array(h, dtype=np.int64)) for h in held]
