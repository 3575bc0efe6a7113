"""Coalitions as bit masks: checks, indices, and the numbers of those met so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import having, plain_array, whole

__all__ = [
    "Coalitions", "Known", "Utilities", "all_coalitions", "averaging_weights", "bit_index",
    "check_coalitions", "check_table_size", "check_utilities", "coalition_index",
    "coalitions_between", "ends", "numbers_of", "players_of",
]  # fmt: skip

Coalitions = NDArray[np.bool_]
Utilities = NDArray[np.float64]

MAX_TABLE_PLAYERS = 24  # 2**24 coalitions: 128 MiB of utilities, 384 MiB of coalition rows
MAX_INDEX_PLAYERS = 62  # the index of a coalition is a non-negative int64


def players_of(game: Any) -> int:
    """Return the number of players of a game, or refuse what is none."""
    having("game", game, "n_players", "value")
    return whole("n_players of the game", game.n_players, 1)


def _array(told: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return plain_array(given)
    except ValueError as error:  # ragged
        raise ValueError(f"{told} of unequal lengths; expected rows of one length") from error


def numbers_of(told: str, given: ArrayLike) -> NDArray[np.float64]:
    """Return a copy as ``float64``, or refuse what is not of real numbers, as `told` begins."""
    array = _array(told, given)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{told} of type {array.dtype}; expected real numbers")
    return array.astype(np.float64)


def check_coalitions(coalitions: ArrayLike, n_players: int) -> Coalitions:
    """Return `coalitions` as ``bool[B, n_players]``, or refuse them."""
    array = _array("coalitions are", coalitions)
    if array.ndim != 2 or array.shape[1] != n_players:
        raise ValueError(
            f"coalitions have shape {array.shape}; expected (B, {n_players}), one row per "
            "coalition and one column per player"
        )
    if array.dtype != np.bool_:
        if not np.isin(array, (0, 1)).all():
            raise ValueError(
                f"coalitions have dtype {array.dtype} with entries other than 0 and 1; "
                "pass a boolean matrix"
            )
        array = array.astype(np.bool_)
    return array


def check_utilities(utilities: ArrayLike, coalitions: Coalitions) -> Utilities:
    """Return `utilities` as finite ``float64`` with one row per coalition, or refuse them.

    A utility that is not finite is never averaged away: the first coalition that has one is
    named in the error.
    """
    array = numbers_of("the game returned utilities", utilities)
    if array.ndim not in (1, 2) or len(array) != len(coalitions):
        raise ValueError(
            f"the game returned utilities of shape {array.shape} for {len(coalitions)} "
            f"coalitions; expected ({len(coalitions)},) or ({len(coalitions)}, m)"
        )
    finite = np.isfinite(array) if array.ndim == 1 else np.isfinite(array).all(axis=1)
    if not finite.all():
        bad = int(np.argmin(finite))
        members = np.flatnonzero(coalitions[bad]).tolist()
        raise ValueError(
            f"the utility of coalition {members} is {array[bad]}; utilities must be finite, so "
            "replace it inside the game (by a floor, say) if its model has diverged"
        )
    return array


def averaging_weights(coalitions: Coalitions, sizes: Utilities) -> Utilities:
    """Return what each client weighs in each coalition, ``[B, n]``; of nobody, or no data, 0."""
    masses = coalitions * sizes
    total = masses.sum(axis=1, keepdims=True)
    return masses / np.where(total > 0, total, 1.0)


def coalition_index(coalitions: ArrayLike) -> NDArray[np.int64]:
    """Return the bit-mask index of each row of ``bool[B, n]``, for `n` up to 62.

    Parameters
    ----------
    coalitions : array_like of bool
        ``[B, n]``.

    Returns
    -------
    int64[B]

    Examples
    --------
    >>> coalition_index([[True, False, True]])
    array([5])
    """
    array = _array("coalitions are", coalitions)
    if array.ndim != 2 or array.shape[1] > MAX_INDEX_PLAYERS:
        raise ValueError(
            f"coalitions have shape {array.shape}; an index needs (B, n) with "
            f"n <= {MAX_INDEX_PLAYERS} (MemoGame packs any n)"
        )
    return bit_index(check_coalitions(array, array.shape[1]))


def bit_index(rows: Coalitions) -> NDArray[np.int64]:
    """Return the indices of rows that are checked already."""
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


def all_coalitions(n_players: int) -> Coalitions:
    """Return every coalition as ``bool[2**n, n]``; row `k` is the coalition of index `k`.

    Parameters
    ----------
    n_players : int

    Returns
    -------
    bool[2**n, n]

    Raises
    ------
    ValueError
        If ``n_players`` is below 1 or above 24.
    """
    check_table_size(n_players)
    return coalitions_between(0, 2**n_players, n_players)


def coalitions_between(start: int, stop: int, n_players: int) -> Coalitions:
    """Return the coalitions of indices `start` to ``stop - 1``."""
    codes = np.arange(start, stop, dtype="<u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(codes, axis=1, bitorder="little", count=n_players)
    return bits.view(np.bool_)


def ends(n_players: int) -> Coalitions:
    """Return the empty and the grand coalition."""
    return np.repeat([[False], [True]], n_players, axis=1)


def check_table_size(n_players: int) -> None:
    """Refuse a table of all coalitions that would not fit."""
    whole("n_players", n_players, 1)
    if n_players > MAX_TABLE_PLAYERS:
        raise ValueError(
            f"n_players is {n_players}: 2**{n_players} coalitions; a table holds at most "
            f"{MAX_TABLE_PLAYERS} players, so use a sampling estimator"
        )


class Known:
    """Coalitions met so far, by bit mask, each with a number in the order of meeting.

    Of few players a dense table of numbers is used, of more a dictionary.
    """

    def __init__(self, n_players: int, dense_players: int) -> None:
        self.size = 0
        self._table: NDArray[np.int32] | None = None
        self._numbers: dict[int | bytes, int] = {}
        if n_players <= dense_players:
            self._table = np.full(2**n_players, -1, dtype=np.int32)

    def numbers(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of each key, -1 where it is not known."""
        if self._table is not None:
            return self._table[keys].astype(np.int64)
        return np.array([self._numbers.get(key, -1) for key in keys.tolist()], dtype=np.int64)

    def missing(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of unknown keys, first occurrences only, in order."""
        unknown = np.flatnonzero(self.numbers(keys) < 0)
        return unknown[np.sort(np.unique(keys[unknown], return_index=True)[1])]

    def keys(self) -> NDArray[Any]:
        """Return the keys met so far, in the order of their numbers."""
        if self._table is None:
            return np.array(list(self._numbers))  # a dictionary keeps the order of meeting
        keys = np.flatnonzero(self._table >= 0)
        return keys[np.argsort(self._table[keys])]

    def meet(self, keys: NDArray[Any]) -> None:
        """Number new distinct keys."""
        numbers = np.arange(self.size, self.size + len(keys), dtype=np.int32)
        if self._table is not None:
            self._table[keys] = numbers
        else:
            self._numbers.update(zip(keys.tolist(), numbers.tolist(), strict=True))
        self.size += len(keys)
