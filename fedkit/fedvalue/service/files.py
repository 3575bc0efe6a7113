"""What the programs of the service keep: secrets in text files, and databases, for their owner."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["TOKEN", "Database", "read_secret", "write_secret"]

TOKEN = "fkv_"  # with which tokens begin, and keys do not


def write_secret(path: Path, text: str) -> None:
    """Write a secret that only its owner may read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(f"{path} is there already, and a secret is never overwritten") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def read_secret(path: Path, what: str) -> str:
    """Read a secret from its file, without the line break at its end."""
    words = path.read_text("ascii", "replace").split()
    if len(words) != 1:
        raise ValueError(f"the {what} file {path} holds {len(words)} words; one is expected")
    return words[0]


class Database:
    """One SQLite file, whose every change is a transaction that is on the disk when it ends.

    What is deleted leaves the file, which shrinks.  The file is made for its owner alone by the
    statements of `schema`; without a path all is in memory.  A file of other tables is refused
    (ValueError) as not being `what` it should be.  `exclusive`: every other process is kept out
    until it is closed or the process ends.  Beyond `most` bytes a transaction fails with
    ``SQLITE_FULL``.
    """

    def __init__(
        self, path: Path | None, schema: str, what: str, exclusive: bool = False,
        most: float | None = None,
    ) -> None:  # fmt: skip
        self._what, self._path, self._lock = what, path, threading.RLock()
        self._begin = "BEGIN EXCLUSIVE" if exclusive else "BEGIN IMMEDIATE"
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            if 0 < path.stat().st_size < 512:  # SQLite would take it for empty
                raise ValueError(f"{path} is not {what}")
        self._db = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False,
            timeout=0.0 if exclusive else 60.0,
        )  # fmt: skip
        settings = ["auto_vacuum = FULL", "secure_delete = FAST", "synchronous = EXTRA"]
        if exclusive:  # its journal stays, and must not keep what was deleted
            settings += ["locking_mode = EXCLUSIVE", "journal_mode = TRUNCATE"]
        if most is not None:
            settings.append(f"max_page_count = {max(1, int(most) // 4096)}")  # of 4 KiB each
        tables = [statement.strip() for statement in schema.split(";")]
        mine = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        try:
            with self._explained():
                for setting in settings:
                    self._db.execute(f"PRAGMA {setting}")
            with self.transaction() as db:
                there = [statement for (statement,) in db.execute(mine)]
                for statement in tables if not there else ():
                    db.execute(statement)
                if there not in ([], tables):
                    raise ValueError(f"{path} is not {what}")
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all of a block, or nothing of it, while no other thread or process writes."""
        with self._lock, self._explained():
            self._db.execute(self._begin)
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_NOTADB":
                raise ValueError(f"{self._path} is not {self._what}") from error
            if name == "SQLITE_BUSY":
                raise ValueError(f"{self._path} is in use by another process") from error
            raise
