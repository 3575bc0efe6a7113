"""Coalitions as rows of a boolean matrix, their bit-mask indices, and those met so far.

Bit ``i`` of a coalition's index says whether player ``i`` is in it: index 0 is the empty
coalition and ``2**n - 1`` the grand coalition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import Ints, plain_array, whole

Coalitions = NDArray[np.bool_]
Utilities = NDArray[np.float64]

MAX_TABLE_PLAYERS = 24  # 2**24 coalitions: 128 MiB of utilities, 384 MiB of coalition rows
MAX_INDEX_PLAYERS = 62  # the index of a coalition is a non-negative int64


def as_coalitions(coalitions: ArrayLike, n_players: int) -> Coalitions:
    """Return `coalitions` as ``bool[B, n_players]``, or refuse them."""
    array = plain_array(coalitions)
    if array.ndim != 2 or array.shape[1] != n_players:
        raise ValueError(f"coalitions have shape {array.shape}; expected (B, {n_players})")
    if array.dtype != np.bool_:
        if not np.isin(array, (0, 1)).all():
            raise ValueError("coalitions have entries other than 0 and 1; pass a boolean matrix")
        array = array.astype(np.bool_)
    return array


def all_coalitions(n_players: int) -> Coalitions:
    """Return every coalition as ``bool[2**n, n]``; row `k` is the coalition of index `k`.

    Parameters
    ----------
    n_players : int
        From 1 to 24.

    Returns
    -------
    bool[2**n, n]
    """
    check_table_size(n_players)
    return coalitions_between(0, 2**n_players, n_players)


def coalition_index(coalitions: ArrayLike) -> Ints:
    """Return the index ``int64[B]`` of each row: bit i says whether player i is in.

    Parameters
    ----------
    coalitions : array_like of bool[B, n]
        For `n` up to 62.

    Returns
    -------
    int64[B]
    """
    shape = np.shape(coalitions)
    if len(shape) != 2 or shape[1] > MAX_INDEX_PLAYERS:
        raise ValueError(f"coalitions have shape {shape}; expected (B, n <= {MAX_INDEX_PLAYERS})")
    return bit_index(as_coalitions(coalitions, shape[1]))


def check_table_size(n_players: int) -> None:
    """Refuse a table of all coalitions that would not fit."""
    whole("n_players", n_players, 1)
    if n_players > MAX_TABLE_PLAYERS:
        raise ValueError(
            f"n_players is {n_players}; a table holds at most {MAX_TABLE_PLAYERS} players: use a "
            "sampling estimator"
        )


def coalitions_between(start: int, stop: int, n_players: int) -> Coalitions:
    """Return the coalitions of indices `start` to ``stop - 1``."""
    codes = np.arange(start, stop, dtype="<u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(codes, axis=1, bitorder="little", count=n_players)
    return bits.view(np.bool_)


def ends(n_players: int) -> Coalitions:
    """Return the empty and the grand coalition."""
    return np.repeat([[False], [True]], n_players, axis=1)


def bit_index(rows: Coalitions) -> Ints:
    """Return the indices of rows of at most 62 players."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    wide = np.zeros((len(packed), 8), dtype=np.uint8)
    wide[:, : packed.shape[1]] = packed
    return wide.view("<i8").astype(np.int64, copy=False).reshape(-1)


def keys_of(rows: Coalitions) -> NDArray[Any]:
    """Return one hashable key per row: its index, of many players its packed bits."""
    if rows.shape[1] <= MAX_INDEX_PLAYERS:
        return bit_index(rows)
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    return packed.view(f"S{packed.shape[1]}").reshape(-1)


def averaging_weights(coalitions: Coalitions, sizes: Utilities) -> Utilities:
    """Return what each client weighs in each coalition, ``[B, n]``; of nobody, or no data, 0."""
    masses = coalitions * sizes
    total = masses.sum(axis=1, keepdims=True)
    return masses / np.where(total > 0, total, 1.0)


class Known:
    """Coalitions met so far, by key, numbered: in a table up to `dense_players`, else in a dict."""

    def __init__(self, n_players: int, dense_players: int) -> None:
        self.size = 0
        self._table: NDArray[np.int32] | None = None
        self._numbers: dict[int | bytes, int] = {}
        if n_players <= dense_players:
            self._table = np.full(2**n_players, -1, dtype=np.int32)

    def numbers(self, keys: NDArray[Any]) -> Ints:
        """Return the number of each key, -1 where it is not known."""
        if self._table is not None:
            return self._table[keys].astype(np.int64)
        return np.array([self._numbers.get(key, -1) for key in keys.tolist()], dtype=np.int64)

    def missing(self, keys: NDArray[Any]) -> Ints:
        """Return the positions of unknown keys, first occurrences only, in order."""
        unknown = np.flatnonzero(self.numbers(keys) < 0)
        return unknown[np.sort(np.unique(keys[unknown], return_index=True)[1])]

    def meet(self, keys: NDArray[Any]) -> None:
        """Number new distinct keys."""
        numbers = np.arange(self.size, self.size + len(keys), dtype=np.int32)
        if self._table is not None:
            self._table[keys] = numbers
        else:
            self._numbers.update(zip(keys.tolist(), numbers.tolist(), strict=True))
        self.size += len(keys)
