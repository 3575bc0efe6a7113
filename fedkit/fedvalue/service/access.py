"""Who may speak to the counting service: one token per party, kept as a hash only."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedkit.fedvalue.service.wire import check_party, read_json

__all__ = ["AccessDenied", "Grant", "TokenBook", "issue_tokens", "read_secret", "write_secret"]

ROLES = ("task", "data")
_FORMAT = "fedkit fedvalue tokens 1"


class AccessDenied(Exception):
    """The token is unknown or has expired."""


@dataclass(frozen=True)
class Grant:
    """What a token allows: to speak as one party, in one role, for some time.

    Attributes
    ----------
    party : str
        The party's name.
    role : str
        ``task`` (may open jobs, read tables, close) or ``data``.
    digest : str
        SHA-256 of the token, in hexadecimal digits.  A token holds 256 random bits, so a plain
        hash cannot be searched.
    expires : datetime or None
        End of its time, with a time zone.
    """

    party: str
    role: str
    digest: str
    expires: datetime | None = None


class TokenBook:
    """The tokens' hashes in a file, read again whenever the file changes.

    Raises
    ------
    ValueError
        If the file is not one that ``fedkit fedvalue tokens`` writes.  A file that breaks while
        the server runs locks everybody out until it is mended.
    OSError
        If it cannot be read.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = Path(path), clock
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._grants: tuple[Grant, ...] = ()
        self.grants()

    def grants(self) -> tuple[Grant, ...]:
        """Return what the file holds now."""
        with self._lock:
            state = self._path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self._seen:
                self._grants, self._seen = _read(self._path), seen
            return self._grants

    def knows(self, party: str) -> bool:
        """Tell whether a party holds a token."""
        return any(grant.party == party for grant in self.grants())

    def whose(self, token: str) -> Grant:
        """Return the grant that belongs to a token.

        Raises
        ------
        AccessDenied
            If there is none, or if its time is over.
        """
        digest = _digest(token)
        found = None
        for grant in self.grants():  # all of them: the time taken says nothing about the match
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        if found is None:
            raise AccessDenied("this token is unknown here")
        if found.expires is not None and self._clock() >= found.expires.timestamp():
            raise AccessDenied(
                f"the token of {found.party} expired at {found.expires.isoformat()}; "
                "make a new one with: fedkit fedvalue tokens --renew"
            )
        return found


def issue_tokens(
    book: Path,
    folder: Path,
    *,
    task: Iterable[str] = (),
    data: Iterable[str] = (),
    days: float | None = 90.0,
    renew: bool = False,
    clock: Callable[[], float] = time.time,
) -> list[Path]:
    """Make tokens: hashes into the server's file, each token into a file of its own.

    Parameters
    ----------
    book : Path
        The server's file; parties that it holds already stay.
    folder : Path
        Where ``PARTY.token`` files go, one to be handed to each party.
    task, data : iterable of str
        Names of the task parties and of the data parties.
    days : float or None
        Days until the tokens expire; None for never.
    renew : bool
        Replace the token of a party that has one; otherwise that is an error.

    Returns
    -------
    list of Path
        The token files.

    Raises
    ------
    ValueError
        If nobody is named, a name is odd or comes twice, or a party has a token already.
    """
    wanted = [(name, "task") for name in task] + [(name, "data") for name in data]
    names = [check_party(name) for name, _ in wanted]
    if not names:
        raise ValueError("no party is named; give --task NAME and --data NAME")
    if len(set(names)) < len(names):
        raise ValueError("a party is named twice; each has one token and one role")
    if days is not None and not 0 < days <= 36500:
        raise ValueError(f"days is {days}; a number between 0 and 36500 is expected")
    known = {grant.party: grant for grant in _read(book)} if book.exists() else {}
    twice = sorted(set(names) & set(known))
    if twice and not renew:
        raise ValueError(f"{', '.join(twice)} has a token in {book}; --renew replaces it")
    end = None
    if days is not None:
        end = datetime.fromtimestamp(clock(), UTC).replace(microsecond=0) + timedelta(days=days)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.token" for name in names]
    for file in files:
        if file.exists() and not renew:  # all of them or none
            raise ValueError(f"{file} is there already; --renew replaces it")
    for file, (name, role) in zip(files, wanted, strict=True):
        token = "fkv_" + secrets.token_urlsafe(32)
        known[name] = Grant(name, role, _digest(token), end)
        write_secret(file, token, replace=renew)
    _write(book, known.values())
    return files


def write_secret(path: Path, text: str, replace: bool = False) -> None:
    """Write a secret that only its owner may read.

    Raises
    ------
    ValueError
        If the file is there and is not to be replaced.
    """
    if replace:
        path.unlink(missing_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(f"{path} is there already, and a secret is never overwritten") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def read_secret(path: Path, what: str) -> str:
    """Read a secret from its file, without the line break at its end.

    Raises
    ------
    ValueError
        If the file is missing, empty, or holds more than one word of plain text.
    """
    try:
        words = path.read_text("ascii").split()
    except OSError as error:
        raise ValueError(f"the {what} file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the {what} file {path} is not plain text") from error
    if len(words) != 1:
        raise ValueError(f"the {what} file {path} holds {len(words)} words; one is expected")
    return words[0]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> tuple[Grant, ...]:
    data = read_json(path, "a file of tokens")
    parties = data.get("parties")
    if data.get("format") != _FORMAT or not isinstance(parties, dict):
        raise ValueError(f"{path} is not a file of tokens; make one with: fedkit fedvalue tokens")
    grants = []
    for name, entry in parties.items():
        try:
            end = entry["expires"]
            expires = None if end is None else datetime.fromisoformat(end)
            if expires is not None and expires.tzinfo is None:
                raise ValueError("no time zone")
            if entry["role"] not in ROLES or len(bytes.fromhex(entry["sha256"])) != 32:
                raise ValueError("role or hash")
            grants.append(Grant(check_party(name), entry["role"], entry["sha256"].lower(), expires))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} holds a damaged entry for {name!r}: {error}") from error
    return tuple(grants)


def _write(path: Path, grants: Iterable[Grant]) -> None:
    parties = {
        grant.party: {
            "role": grant.role,
            "sha256": grant.digest,
            "expires": None if grant.expires is None else grant.expires.isoformat(),
        }
        for grant in grants
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_secret(fresh, json.dumps({"format": _FORMAT, "parties": parties}, indent=1))
    os.replace(fresh, path)
