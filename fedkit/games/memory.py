"""Games that are asked for each coalition once, also after a kill."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.atomic import file_at, open_table
from fedkit.checks import brief
from fedkit.games.coalitions import Coalitions, Known, Utilities, keys_of
from fedkit.games.game import Game, as_game, check_outputs

DENSE_PLAYERS = 20  # a table of 4 MiB
SECONDS = 1.0  # of evaluations that a kill may lose
ASKED_AGAIN = 3  # coalitions by which a game is recognised
Told = Callable[[int], None] | None
SAME = 1e-6  # relative difference up to which a utility is that of the same game


def remember(game: Game, path: str | Path | None = None) -> Game:
    """Return the game with a memory: each coalition is asked of `game` once.

    Parameters
    ----------
    game : Game
        With a path it must give a coalition the same utility every time, up to ``1e-6``.
    path : str or Path, optional
        A file that keeps what was evaluated, but for about the last second, also when the process
        is killed, and that several processes may share.  Of a few coalitions that it holds `game`
        is asked again: a file of another game is refused.

    Returns
    -------
    Game
    """
    memory = Memory(as_game(game), None if path is None else file_at(path))
    if memory.path is not None:
        memory.recognise()
    return game.like(memory)


class Memory:
    """The function of a game that remembers; `told` hears how many were asked for at a time."""

    def __init__(self, game: Game, path: Path | None = None, told: Told = None) -> None:
        self.game, self.path, self.told = game, path, told
        self._known = Known(game.n_players, DENSE_PLAYERS)
        self._utilities: Utilities = np.zeros(0)
        self._file: sqlite3.Connection | None = None
        self._read = 0  # rows of the file
        self._step = game.at_once

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None}  # each process opens the file for itself

    @property
    def evaluations(self) -> int:
        return self._known.size

    def __call__(self, rows: Coalitions) -> Utilities:
        """Look utilities up; those that are new are asked of the game."""
        keys = keys_of(rows)
        new = self._known.missing(keys)
        try:
            if not self.evaluations and not len(rows):
                return self.game(rows)
            while len(new):
                if self.path is not None:
                    self._read_file()
                    new = new[self._known.numbers(keys[new]) < 0]
                in_pieces = self.path is not None or self.told is not None
                step = self._step if in_pieces else len(new)
                if len(new):
                    self._evaluate(rows[new[:step]], keys[new[:step]])
                new = new[step:]
        except BaseException as error:
            if self.path is not None:
                error.add_note(f"{self.evaluations} coalitions are remembered in {self.path}")
            raise
        return self._utilities[self._known.numbers(keys)]

    def _evaluate(self, rows: Coalitions, keys: NDArray[Any]) -> None:
        start = time.monotonic()
        utilities = self.game(rows)
        seconds = time.monotonic() - start
        self._keep(keys, utilities)
        if self.path is not None:
            self._write_file(rows, utilities)
        if self.told is not None:
            self.told(len(rows))
        if seconds < SECONDS / 2 and len(rows) >= self._step:
            self._step *= 2
        elif seconds > 2 * SECONDS:
            self._step = max(self._step // 2, self.game.at_once)

    def _keep(self, keys: NDArray[Any], new: Utilities) -> None:
        """Store utilities behind those that are known, with room for as many again."""
        start, stop = self.evaluations, self.evaluations + len(new)
        if not start:
            self._utilities = np.empty((0, *new.shape[1:]))
        check_outputs(new, self._utilities)
        if stop > len(self._utilities):
            room = np.empty((max(stop, 64), *new.shape[1:]))
            self._utilities = np.concatenate([self._utilities, room])
        self._utilities[start:stop] = new
        self._known.meet(keys)

    # ------------------------------------------------------------------------ the file

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            assert self.path is not None
            columns = "players INTEGER, members BLOB UNIQUE, outputs INTEGER, utility BLOB"
            self._file = open_table(self.path, "utilities", columns, "a game")
        return self._file

    def _read_file(self) -> Coalitions:
        """Learn what the file holds beyond what was read before: another process may write."""
        n = self.game.n_players
        found = self._open().execute(
            "SELECT number, players, members, outputs, utility FROM utilities WHERE number > ? "
            "ORDER BY number",
            (self._read,),
        )
        entries = found.fetchall()
        if not entries:
            return np.zeros((0, n), dtype=np.bool_)
        if entries[0][1] != n:
            raise ValueError(
                f"{self.path} is of a game of {entries[0][1]} players, and this one has {n}; pass "
                "another path"
            )
        self._read = entries[-1][0]
        packed = np.frombuffer(b"".join(entry[2] for entry in entries), dtype=np.uint8)
        bits = np.unpackbits(packed.reshape(len(entries), -1), axis=1, bitorder="little", count=n)
        rows = bits.view(np.bool_)
        keys = keys_of(rows)
        utilities = np.frombuffer(b"".join(entry[4] for entry in entries), dtype="<f8")
        if entries[0][3]:  # 0 outputs: the utility is one number and no vector
            utilities = utilities.reshape(len(entries), -1)
        new = self._known.missing(keys)
        if len(new):
            self._keep(keys[new], utilities[new].astype(np.float64))
        return rows

    def _write_file(self, rows: Coalitions, utilities: Utilities) -> None:
        packed = np.packbits(rows, axis=1, bitorder="little")
        outputs = 0 if utilities.ndim == 1 else utilities.shape[1]
        entries = [
            (rows.shape[1], members.tobytes(), outputs, utility.astype("<f8").tobytes())
            for members, utility in zip(packed, utilities, strict=True)
        ]
        with self._open() as file:
            file.executemany(
                "INSERT OR IGNORE INTO utilities (players, members, outputs, utility) "
                "VALUES (?, ?, ?, ?)",
                entries,
            )

    def recognise(self) -> None:
        """Refuse a file of another game, by a few coalitions of about half the players."""
        there, n = self._read_file(), self.game.n_players
        if not len(there):
            return
        middle = np.argsort(np.abs(there.sum(axis=1) - n / 2), kind="stable")[:ASKED_AGAIN]
        found, kept = self.game(there[middle]), self._utilities[middle]
        if found.shape != kept.shape or not np.allclose(found, kept, rtol=SAME, atol=1e-12):
            raise ValueError(
                f"{self.path} is of another game: a few coalitions have {brief(kept)} there and "
                f"{brief(found)} in this one; pass another path"
            )
