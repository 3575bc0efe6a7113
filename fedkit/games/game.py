"""A game: a number of players, and a function of a batch of coalitions.

``game(coalitions)`` takes a boolean matrix with one coalition per row and returns their utilities:
numbers, or vectors of `m` numbers, which are `m` games that share their coalitions.  Whatever makes
a game is a function that returns a :class:`Game`, and here alone coalitions and utilities are
checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import brief, choice, function, one_line, plain_array, whole
from fedkit.extras import need
from fedkit.games.coalitions import (
    Coalitions,
    Utilities,
    all_coalitions,
    as_coalitions,
    bit_index,
    check_table_size,
    coalitions_between,
    ends,
)

TABLE_BATCH = 2**16  # coalitions at once: all of up to 16 players, and little memory beyond


@one_line
@dataclass(eq=False)
class Game:
    """A cooperative game; a class of one's own passes the function to ``super().__init__``.

    Parameters
    ----------
    n_players : int
        At least one.
    function : callable
        Maps ``bool[B, n]``, one coalition per row, to utilities ``float[B]`` or ``float[B, m]``.
    table : float64 array, shape (2**n,) or (2**n, m), optional
        All utilities, where they are known; bit `i` of an index says whether player `i` is in.
    scale : float64 array, shape () or (m,), optional
        Of a normalised game: what turns values into the units of the utility.
    sizes : float64 array, shape (n,), optional
        Data sizes of the clients of a federated round.
    lifted : tuple of Game and callable, optional
        A game that shows more at the price of this one, and the score that makes this one of it.
    at_once : int
        The fewest coalitions that the game likes to be asked for together.
    utility : str, optional
        What its utilities measure.

    Examples
    --------
    >>> import fedkit as fk
    >>> game = fk.Game(3, lambda coalitions: coalitions @ [1.0, 2.0, 4.0])
    >>> game([[True, False, True]])
    array([5.])
    """

    n_players: int
    function: Callable[[Coalitions], Any] = field(repr=False)
    table: Utilities | None = field(default=None, repr=False)
    scale: Utilities | None = field(default=None, repr=False)
    sizes: Utilities | None = field(default=None, repr=False)
    lifted: tuple[Game, Callable[[Any], Any]] | None = field(default=None, repr=False)
    at_once: int = field(default=1, repr=False)
    utility: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        whole("n_players", self.n_players, 1)
        function("function", self.function)

    def __call__(self, coalitions: ArrayLike) -> Utilities:
        """Return the utilities, ``float64[B]`` or ``[B, m]``, of ``bool[B, n]`` coalitions."""
        rows = as_coalitions(coalitions, self.n_players)
        return as_utilities(self.function(rows.copy()), rows)

    def like(self, function: Callable[[Coalitions], Any], **changes: Any) -> Game:
        """Return the game of another function with what is known of this one, but for a table."""
        kept = {name: getattr(self, name) for name in ("scale", "sizes", "at_once", "utility")}
        return Game(self.n_players, function, **kept | changes)


def as_utilities(utilities: ArrayLike, coalitions: Coalitions) -> Utilities:
    """Return `utilities` as finite ``float64`` with one row per coalition, or refuse them."""
    array = real_numbers("the game returned utilities", utilities)
    if array.ndim not in (1, 2) or len(array) != len(coalitions):
        raise ValueError(
            f"the game returned utilities of shape {array.shape}; expected ({len(coalitions)},) "
            f"or ({len(coalitions)}, m)"
        )
    if not np.isfinite(array).all():
        bad = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(axis=1)))
        members = np.flatnonzero(coalitions[bad]).tolist()
        raise ValueError(f"utility of coalition {members} is {brief(array[bad])}; expected finite")
    return array


def real_numbers(told: str, given: ArrayLike) -> Utilities:
    """Return a copy as ``float64``, or refuse what is not of real numbers, as `told` begins."""
    array = plain_array(given)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{told} of type {array.dtype}; expected real numbers, rows of one length")
    return array.astype(np.float64)


def as_game(game: Any) -> Game:
    """Return a game, or refuse what is none."""
    if isinstance(game, Game):
        return game
    raise ValueError(f"game is {brief(game)}; make one: fk.Game(n_players, function)")


def name_of(utility: Any) -> str:
    """Return what a utility is called: its name, or that of the function."""
    return utility if isinstance(utility, str) else getattr(utility, "__name__", "a function")


def facts_of(game: Game, weights: Callable[[int], Any]) -> dict[str, Any]:
    """Return a game's scale and utility, and which semivalue it is, by three players' weights."""
    among_three = weights(3)
    if among_three is not None:  # of another length: it is of so many players alone
        among_three = np.round(among_three, 6).tolist() if len(among_three) == 3 else None
    facts = {"scale": game.scale, "utility": game.utility, "semivalue": among_three}
    return {name: fact for name, fact in facts.items() if fact is not None}


def table_game(values: ArrayLike) -> Game:
    """Return the game of a table of all its utilities.

    Parameters
    ----------
    values : array_like, shape (2**n,) or (2**n, m)
        Utility of each coalition; bit `i` of the row index says whether player `i` is in.

    Returns
    -------
    Game
    """
    table = real_numbers("the values are", values)
    n = max(len(table) if table.ndim else 0, 1).bit_length() - 1
    if table.ndim not in (1, 2) or n < 1 or len(table) != 2**n:
        raise ValueError(f"values have shape {table.shape}; expected (2**n,) or (2**n, m)")
    check_table_size(n)
    if not np.isfinite(table).all():
        as_utilities(table, all_coalitions(n))  # names the coalition
    table.setflags(write=False)
    return Game(n, lambda rows: table[bit_index(rows)], table)


def tabulate(game: Game, *, batch_size: int = TABLE_BATCH) -> Game:
    """Return the game with all its ``2**n`` utilities evaluated, for at most 24 players.

    Parameters
    ----------
    game : Game
    batch_size : int
        Coalitions at once.

    Returns
    -------
    Game
    """
    if as_game(game).table is not None:
        return game
    n, step = game.n_players, whole("batch_size", batch_size, 1)
    check_table_size(n)
    parts: list[Utilities] = []
    for start in range(0, 2**n, step):
        parts.append(game(coalitions_between(start, min(start + step, 2**n), n)))
        check_outputs(parts[-1], parts[0])
    whole_table = table_game(np.concatenate(parts))
    return game.like(whole_table.function, table=whole_table.table, sizes=None, at_once=1)


def check_outputs(new: Utilities, before: Utilities) -> None:
    """Refuse utilities with another number of outputs than those before."""
    if new.shape[1:] != before.shape[1:]:
        raise ValueError(f"utilities of shape {new.shape}: the number of outputs must not change")


NoGainRule = Literal["shift", "absolute", "divide"]


def normalise(game: Game, *, no_gain: NoGainRule = "shift") -> Game:
    """Return the game ``(v(S) - v(empty)) / (v(N) - v(empty))``, each output by itself.

    The empty and the grand coalition are evaluated here, once, outside any budget.

    Parameters
    ----------
    game : Game
    no_gain : {"shift", "absolute", "divide"}
        Of an output without a positive gain ``v(empty)`` is subtracted alone, or it is divided by
        the absolute gain (``v(N) = -1``), or by the negative one (``v(N) = 1``).

    Returns
    -------
    Game
        Its `scale` is what the shifted utilities are divided by.
    """
    choice("no_gain", no_gain, get_args(NoGainRule))
    empty, grand = as_game(game)(ends(game.n_players))
    gain = grand - empty
    divisors = {"absolute": np.abs(gain), "divide": gain}
    divisor = divisors.get(no_gain, np.maximum(gain, 0.0))
    scale = np.where(divisor != 0, divisor, 1.0)
    whole_scale = scale if game.scale is None else scale * game.scale
    return game.like(lambda rows: (game(rows) - empty) / scale, scale=whole_scale)


def parallel(game: Game, n_jobs: int = -1) -> Game:
    """Return the game whose coalitions are divided among processes.

    Parameters
    ----------
    game : Game
        It must be picklable (joblib takes lambdas too); ``fk.remember`` goes around it.
    n_jobs : int
        Number of processes; -1 is one per core.

    Returns
    -------
    Game
    """
    as_game(game)
    if n_jobs != -1:
        whole("n_jobs", n_jobs, 1)
    joblib = need("joblib", "run")
    jobs = joblib.effective_n_jobs(n_jobs)

    def utilities(rows: Coalitions) -> NDArray[Any]:
        if len(rows) < 2 or jobs == 1:
            return game(rows)
        parts = np.array_split(rows, min(jobs, len(rows)))
        return np.concatenate(joblib.Parallel(jobs)(joblib.delayed(game)(part) for part in parts))

    return game.like(utilities, at_once=jobs)
