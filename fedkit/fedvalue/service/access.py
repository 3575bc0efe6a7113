"""Who may speak to the counting service: one token per party, kept as a hash only."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedkit.checks import real
from fedkit.extras import need
from fedkit.fedvalue.service.files import TOKEN, Database, write_secret
from fedkit.fedvalue.service.wire import check_name

__all__ = ["Grant", "TokenBook", "issue_tokens"]

#: a request that is not granted: an HTTP status and one sentence
Refusal = need("starlette.exceptions", extra="service").HTTPException
_WHAT = "a file of tokens, as made by: fedkit fedvalue tokens"
# A token holds 256 random bits, so that a plain hash cannot be searched.
_SCHEMA = """
CREATE TABLE tokens (
    party TEXT PRIMARY KEY, role TEXT NOT NULL, sha256 TEXT NOT NULL UNIQUE, expires REAL
)"""


@dataclass(frozen=True)
class Grant:
    """What a token allows: to speak as one party, in the role of ``task`` or ``data``."""

    party: str
    role: str


class TokenBook:
    """The tokens' hashes in a file, which is read at each request; another is a ValueError."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self.parties()

    def parties(self) -> set[str]:
        return {party for party, *_ in self._rows("")}

    def whose(self, token: str) -> Grant:
        """Return the grant that belongs to a token; a ``Refusal`` if none does by now."""
        rows = self._rows("WHERE sha256 = ?", _digest(token))
        if not rows:
            raise Refusal(401, "this token is unknown here")
        ((party, role, expires),) = rows
        if expires is not None and self._clock() >= expires:
            raise Refusal(
                401,
                f"the token of {party} expired at {datetime.fromtimestamp(expires, UTC):%F %T} "
                "UTC; make a new one with: fedkit fedvalue tokens --renew",
            )
        return Grant(party, role)

    def _rows(self, where: str, *values: str) -> list[tuple[str, str, float | None]]:
        asked = f"SELECT party, role, expires FROM tokens {where}"
        if not self._path.is_file():
            raise ValueError(f"{self._path} is not there; expected is {_WHAT}")
        try:
            with closing(sqlite3.connect(self._path, timeout=60.0)) as db:
                return db.execute(asked, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self._path} is not {_WHAT} ({error})") from error


def issue_tokens(
    book: Path, folder: Path, *, task: Iterable[str] = (), data: Iterable[str] = (),
    days: float | None = 90.0, renew: bool = False,
) -> list[Path]:  # fmt: skip
    """Make tokens: hashes into the server's file, each token into a file of its own.

    Several processes may do so at once.  Parties that the server's file holds already stay.

    Parameters
    ----------
    folder : Path
        Where ``PARTY.token`` files go, one to be handed to each party; they are returned.
    task, data : iterable of str
        Names of the task parties and of the data parties.
    days : float or None
        Until the tokens expire; None for never.
    renew : bool
        Replace the token of a party that has one; otherwise that is an error.
    """
    wanted = [(name, "task") for name in task] + [(name, "data") for name in data]
    names = [check_name("party", name) for name, _ in wanted]
    if not names:
        raise ValueError("no party is named; give --task NAME and --data NAME")
    if len(set(names)) < len(names):
        raise ValueError("a party is named twice; each has one token and one role")
    if days is not None:
        real("days", days, 0, 36500, above=True)
    files = [folder / f"{name}.token" for name in names]
    # beside the files until all hashes are kept: a token in use is never lost half-way
    beside = [file.with_name(f".{file.name}.{secrets.token_hex(8)}") for file in files]
    database = Database(book, _SCHEMA, _WHAT)
    try:
        with closing(database), database.transaction() as db:
            known = {party for (party,) in db.execute("SELECT party FROM tokens")}
            twice = sorted(known & set(names))
            if twice and not renew:
                raise ValueError(f"{', '.join(twice)} has a token in {book}; --renew replaces it")
            for file in files:
                if file.is_dir():
                    raise ValueError(f"{file} is a folder; a token would go there")
                if file.exists() and not renew:  # all of them or none
                    raise ValueError(f"{file} is there already; --renew replaces it")
            folder.mkdir(parents=True, exist_ok=True)
            for new, (name, role) in zip(beside, wanted, strict=True):
                token = TOKEN + secrets.token_urlsafe(32)
                end = None if days is None else time.time() + 86400 * days
                row = name, role, _digest(token), end
                db.execute("REPLACE INTO tokens VALUES (?, ?, ?, ?)", row)
                write_secret(new, token)
    except BaseException as error:
        for new in beside:
            new.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ValueError(
                f"the tokens cannot be written to {folder}, and all stays as it was: {error}"
            ) from error
        raise
    for new, file in zip(beside, files, strict=True):
        try:
            os.replace(new, file)
        except OSError as error:  # the hash is kept: the token must not be lost
            raise ValueError(f"{new} is the new token and cannot become {file}: {error}") from error
    return files


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
