"""Cooperative games: `n` players and the value of a batch of coalitions.

A game answers ``value(coalitions)`` for a boolean matrix with one coalition per row, so that a
device can evaluate many coalitions at once.  A value may be one number or a vector of `m`
numbers (one per class, for instance); everything in fedkit treats the columns of such a game
as `m` games that share their coalitions.

Bit ``i`` of a coalition's index says whether player ``i`` is in it: index 0 is the empty
coalition and ``2**n - 1`` the grand coalition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from fedkit.atomic import named_as, write_arrays
from fedkit.checks import choice, function, one_line, whole
from fedkit.games.coalitions import (
    Coalitions,
    Known,
    Utilities,
    all_coalitions,
    bit_index,
    check_coalitions,
    check_table_size,
    check_utilities,
    coalitions_between,
    ends,
    keys_of,
    numbers_of,
    players_of,
)

__all__ = [
    "FunctionGame", "Game", "MemoGame", "NormalisedGame", "TableGame", "normalise", "tabulate",
]  # fmt: skip

DENSE_PLAYERS = 20  # a table of 4 MiB
TABLE_BATCH = 2**16  # coalitions at once: all of up to 16 players, and little memory beyond


@runtime_checkable
class Game(Protocol):
    """What every game offers."""

    @property
    def n_players(self) -> int:
        """Number of players, at least one."""
        ...

    def value(self, coalitions: Coalitions) -> Utilities:
        """Return the utilities, shape ``(B,)`` or ``(B, m)``, of ``bool[B, n]`` coalitions."""
        ...


@one_line
@dataclass(frozen=True, eq=False)
class TableGame:
    """A game given by the table of its utilities.

    Parameters
    ----------
    values : array, shape (2**n,) or (2**n, m)
        Utility of each coalition; bit `i` of the row index says whether player `i` is in.
    """

    values: Utilities

    def __post_init__(self) -> None:
        values = numbers_of("the values are", self.values)
        n = max(len(values) if values.ndim else 0, 1).bit_length() - 1
        if values.ndim not in (1, 2) or n < 1 or len(values) != 2**n:
            raise ValueError(
                f"values have shape {values.shape}; a table of n players has (2**n,) or "
                "(2**n, m) entries with n >= 1"
            )
        check_table_size(n)
        if not np.isfinite(values).all():
            check_utilities(values, all_coalitions(n))  # names the coalition
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def n_players(self) -> int:
        return len(self.values).bit_length() - 1

    def value(self, coalitions: ArrayLike) -> Utilities:
        return self.values[bit_index(check_coalitions(coalitions, self.n_players))]


@dataclass(frozen=True, eq=False)
class FunctionGame:
    """A game given by a function of a batch of coalitions.

    Parameters
    ----------
    n_players : int
    function : callable
        Maps ``bool[B, n]`` to ``float[B]`` or ``float[B, m]``.
    """

    n_players: int
    function: Callable[[Coalitions], Any]

    def __post_init__(self) -> None:
        whole("n_players", self.n_players, 1)
        function("function", self.function)

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        return check_utilities(self.function(rows.copy()), rows)


class MemoGame:
    """A game that evaluates each distinct coalition of another game once.

    Parameters
    ----------
    game : Game
    batch_size : int, optional
        Coalitions that are asked of `game` and kept at once; all of a request by default.  Where
        one takes minutes and may fail, 1 loses none of those before.

    Attributes
    ----------
    evaluations : int
        Distinct coalitions evaluated so far.
    calls : int
        Rows asked for so far.
    """

    def __init__(self, game: Game, batch_size: int | None = None) -> None:
        self.game = game
        self.batch_size = None if batch_size is None else whole("batch_size", batch_size, 1)
        self.calls = 0
        self._known = Known(players_of(game), DENSE_PLAYERS)
        self._utilities: Utilities = np.zeros(0)

    @property
    def n_players(self) -> int:
        return self.game.n_players

    @property
    def sizes(self) -> Any:
        """Data sizes of the wrapped game; None where it has none."""
        return getattr(self.game, "sizes", None)

    @property
    def evaluations(self) -> int:
        return self._known.size

    def value(self, coalitions: ArrayLike, game: Game | None = None) -> Utilities:
        """Look utilities up; those that are new are asked of `game`, the wrapped one by default."""
        rows = check_coalitions(coalitions, self.n_players)
        keys = keys_of(rows)
        new = self._known.missing(keys)
        step = self.batch_size or max(len(new), 1)
        for start in range(0, max(len(new), not self.evaluations), step):
            some = new[start : start + step]
            self._keep(check_utilities((game or self.game).value(rows[some]), rows[some]))
            self._known.meet(keys[some])
        self.calls += len(rows)
        return self._utilities[self._known.numbers(keys)]

    def save(self, path: str | Path) -> None:
        """Write what is known to a ``.npz`` file, whole or not at all; :meth:`load` reads it."""
        known = self._utilities[: self.evaluations]
        write_arrays(
            named_as(path, ".npz"), players=self.n_players, keys=self._known.keys(), utilities=known
        )

    @classmethod
    def load(cls, path: str | Path, game: Game, batch_size: int | None = None) -> MemoGame:
        """Return a memory of `game` that begins with what :meth:`save` wrote.

        Its evaluations count those of the file.  That the utilities are of the same game is for
        the caller to know: a file tells only how many players it has.

        Raises
        ------
        ValueError
            If the file holds something else, or a game of another number of players.
        """
        memo = cls(game, batch_size)
        try:
            with np.load(path, allow_pickle=False) as file:
                players = int(file["players"])
                keys, utilities = file["keys"], file["utilities"]
        except (EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
            raise ValueError(f"{path} is no saved MemoGame: {error}") from error
        if players != memo.n_players:
            raise ValueError(
                f"{path} is of a game of {players} players and game has {memo.n_players}; load it "
                "for the game that it was saved of"
            )
        memo._keep(utilities)
        memo._known.meet(keys)
        return memo

    def _keep(self, new: Utilities) -> None:
        """Store utilities behind those that are known, with room for as many again."""
        start, stop = self.evaluations, self.evaluations + len(new)
        if not start:
            self._utilities = np.empty((0, *new.shape[1:]))
        _same_outputs(new, self._utilities)
        if stop > len(self._utilities):
            room = np.empty((max(stop, 64), *new.shape[1:]))
            self._utilities = np.concatenate([self._utilities, room])
        self._utilities[start:stop] = new


def _same_outputs(new: Utilities, before: Utilities) -> None:
    if new.shape[1:] != before.shape[1:]:
        raise ValueError(
            f"the game returned utilities of shape {new.shape} after rows of shape "
            f"{before.shape[1:]}; the number of outputs must not change"
        )


NoGainRule = Literal["shift", "absolute", "divide", "raise"]


@one_line
@dataclass(frozen=True, eq=False)
class NormalisedGame:
    """A game shifted to ``v(empty) = 0`` and scaled; see :func:`normalise`.

    Attributes
    ----------
    game : Game
        The game in its own units.
    empty : float64 array, shape () or (m,)
        Utility of the empty coalition, in the units of `game`.
    scale : float64 array, shape () or (m,)
        What the shifted utilities are divided by; negative only by the rule ``"divide"``.
    """

    game: Game
    empty: Utilities
    scale: Utilities

    @property
    def n_players(self) -> int:
        return self.game.n_players

    @property
    def sizes(self) -> Any:
        """Data sizes of the wrapped game; None where it has none."""
        return getattr(self.game, "sizes", None)

    def value(self, coalitions: ArrayLike) -> Utilities:
        rows = check_coalitions(coalitions, self.n_players)
        return (check_utilities(self.game.value(rows), rows) - self.empty) / self.scale

    def restore(self, values: ArrayLike) -> Utilities:
        """Turn values (or standard errors) of this game into the units of `game`."""
        return np.asarray(values, dtype=np.float64) * self.scale


def normalise(game: Game, *, no_gain: NoGainRule = "shift") -> NormalisedGame:
    """Return the game ``(v(S) - v(empty)) / (v(N) - v(empty))``.

    Dividing by a negative gain flips the sign of every value, so an output without a positive gain
    follows `no_gain`:

    * ``"shift"`` (the default): only ``v(empty)`` is subtracted, so signs and units stay;
    * ``"absolute"``: divide by the absolute gain, so that ``v(N) = -1``; a zero gain is shifted;
    * ``"divide"``: divide by the negative gain, so that ``v(N) = 1``; a zero gain is shifted;
    * ``"raise"``: refuse the game.

    The empty and the grand coalition are evaluated here, once; an estimator's budget does not
    see these two evaluations.  Each output of a vector-valued game is normalised by itself.

    Parameters
    ----------
    game : Game
    no_gain : {"shift", "absolute", "divide", "raise"}
        What becomes of an output without a gain to divide by.

    Returns
    -------
    NormalisedGame
    """
    choice("no_gain", no_gain, ("shift", "absolute", "divide", "raise"))
    rows = ends(players_of(game))
    empty, grand = check_utilities(game.value(rows), rows)
    gain = grand - empty
    if no_gain == "raise" and not np.all(gain > 0):
        raise ValueError(
            f"v(N) - v(empty) is {gain}, not above 0; choose no_gain='shift' or 'absolute' to "
            "value a game without gain"
        )
    divisors = {"absolute": np.abs(gain), "divide": gain}
    divisor = divisors.get(no_gain, np.maximum(gain, 0.0))
    return NormalisedGame(game, np.asarray(empty), np.where(divisor != 0, divisor, 1.0))


def tabulate(game: Game, *, batch_size: int = TABLE_BATCH) -> TableGame:
    """Evaluate all ``2**n`` coalitions of a game, in batches of `batch_size` rows.

    Parameters
    ----------
    game : Game
    batch_size : int
        Rows per call of the game.

    Returns
    -------
    TableGame

    Raises
    ------
    ValueError
        If the game has more than 24 players or a utility is not finite.
    """
    if isinstance(game, TableGame):
        return game
    n, step = players_of(game), whole("batch_size", batch_size, 1)
    check_table_size(n)
    parts = []
    for start in range(0, 2**n, step):
        rows = coalitions_between(start, min(start + step, 2**n), n)
        parts.append(check_utilities(game.value(rows), rows))
        _same_outputs(parts[-1], parts[0])
    return TableGame(np.concatenate(parts))
