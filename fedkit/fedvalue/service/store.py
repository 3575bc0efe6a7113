"""What is kept: the counting server's jobs and uploads, and what a party must not forget.

Every operation may be sent again: the same content changes nothing, other content under the same
name is refused.  Each is one transaction (:class:`.files.Database`), on the disk before its sender
is told.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedkit.fedvalue.protocol.counting import count_uploads
from fedkit.fedvalue.protocol.keys import KEY_BYTES
from fedkit.fedvalue.protocol.messages import Job, MessageError, Upload
from fedkit.fedvalue.service.access import Grant, TokenBook
from fedkit.fedvalue.service.files import Database
from fedkit.fedvalue.service.wire import clean, job_to_json

__all__ = ["JobStore", "Limits", "PartyState", "Refusal"]

log = logging.getLogger("fedkit.fedvalue")
#: seconds that a request for a table waits for the counting, before "not yet" is answered
_WAIT = 5.0

_JOBS = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL,
    opened REAL NOT NULL, closed REAL, answer BLOB
);
CREATE TABLE uploads (
    number INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    place INTEGER NOT NULL, party TEXT NOT NULL, envelope BLOB, sha256 TEXT, body BLOB,
    UNIQUE (job, party)
)"""
_STATE = """
CREATE TABLE secret (value BLOB NOT NULL);
CREATE TABLE answered (job TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE opened (job TEXT PRIMARY KEY, command TEXT NOT NULL)"""


@dataclass(frozen=True)
class Limits:
    """What the server accepts.

    Attributes
    ----------
    upload_bytes, job_bytes : int
        Largest body of an upload and of a job, in bytes.
    folder_bytes : int
        Largest size of all jobs together, in bytes.
    jobs : int
        Jobs that may be open at a time.
    lifetime : float
        Seconds after which a job is closed, finished or not.
    body_seconds : float
        Seconds that a request's body may take to arrive.
    """

    upload_bytes: int = 512 << 20
    job_bytes: int = 4 << 20
    folder_bytes: int = 16 << 30
    jobs: int = 1000
    lifetime: float = 7 * 86400.0
    body_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < float("inf"):
                raise ValueError(f"the limit {name} is {value}; a number above 0 is expected")
        if self.upload_bytes > 900 << 20:  # SQLite's largest blob is 10**9 bytes
            raise ValueError(
                f"the limit upload_bytes is {self.upload_bytes}; expected are {900 << 20} at most"
            )


class Refusal(Exception):
    """A request that is not granted: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class JobStore:
    """The counting server without HTTP: who may do what, what is kept, and when it counts.

    Memory holds the uploads of one job at a time, only while they are counted.

    Parameters
    ----------
    folder : Path
        Holds ``jobs.db``, which is taken up again, and bodies while they arrive.
    tokens : TokenBook
        The parties.
    limits : Limits
        What is accepted.
    """

    def __init__(self, folder: Path, tokens: TokenBook, limits: Limits) -> None:
        self.limits, self._folder, self._tokens = limits, folder, tokens
        self._clock = time.time
        self._kept = Database(
            folder / "jobs.db", _JOBS, "a server's file of jobs", "exclusive", limits.folder_bytes
        )
        self._memory = threading.Lock()  # whoever holds bodies in memory has it
        with self._transaction() as db:
            there = _open_jobs(db)
        if there:
            log.info("took up %d open jobs", there)

    def stop(self) -> None:
        """Finish what is being counted and leave the folder to another server."""
        with self._memory:
            self._kept.close()

    def arriving(self) -> IO[bytes]:
        """Return a file for a body on its way in; it vanishes when closed, or in a crash."""
        return tempfile.TemporaryFile(dir=self._folder)

    def tidy(self) -> None:
        """Close the jobs whose time is over, and forget the names of those long closed."""
        limit = self._clock() - self.limits.lifetime
        old = "SELECT number, name FROM jobs WHERE closed IS NULL AND opened < ?"
        with self._kept.transaction() as db:
            for number, name in db.execute(old, (limit,)).fetchall():
                log.info("job %s is too old and is closed", name)
                self._end(db, number)
            db.execute("DELETE FROM jobs WHERE closed < ?", (limit,))

    def open(self, caller: Grant, job: Job) -> bool:
        """Announce a job; tell whether it is new."""
        _as_task(caller)
        if job.parties[0] != caller.party:
            raise Refusal(403, f"the task party of a job comes first, and you are {caller.party}")
        known = self._tokens.parties()
        strangers = [name for name in job.parties if name not in known]
        if strangers:
            raise Refusal(422, f"no token was ever made for {', '.join(strangers)}")
        digest = hashlib.sha256(json.dumps(job_to_json(job)).encode()).hexdigest()
        with self._transaction() as db:
            row = db.execute("SELECT sha256, closed FROM jobs WHERE name = ?", (job.id,)).fetchone()
            if row is not None:
                if row[1] is not None:
                    raise Refusal(409, f"job {job.id} was closed; its name cannot be used again")
                if row[0] != digest:
                    raise Refusal(409, f"job {job.id} is open with other content")
                return False
            there = _open_jobs(db)
            if there >= self.limits.jobs:
                raise Refusal(429, f"{there} jobs are open; close some of them first")
            number = db.execute(
                "INSERT INTO jobs (name, sha256, opened) VALUES (?, ?, ?)",
                (job.id, digest, self._clock()),
            ).lastrowid
            db.executemany(
                "INSERT INTO uploads (job, place, party, envelope) VALUES (?, ?, ?, ?)",
                [(number, i, name, job.envelopes.get(name)) for i, name in enumerate(job.parties)],
            )
        log.info("job %s opened by %s for %d parties", job.id, caller.party, len(job.parties))
        return True

    def pending(self, caller: Grant) -> list[Job]:
        """Return the jobs that wait for the caller, oldest first, with its own envelope only."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT job, name, envelope FROM uploads JOIN jobs ON jobs.number = job WHERE "
                "party = ? AND uploads.sha256 IS NULL AND closed IS NULL ORDER BY job",
                (caller.party,),
            ).fetchall()
            return [
                Job(name, _parties(db, number), {} if own is None else {caller.party: own})
                for number, name, own in rows
            ]

    def may_upload(self, caller: Grant, job: str, party: str) -> None:
        """Refuse an upload that need not be read at all."""
        if caller.party != party:
            raise Refusal(403, f"you are {caller.party} and may upload only as yourself")
        with self._transaction() as db:
            _slot(db, job, party)

    def upload(self, caller: Grant, job: str, file: IO[bytes]) -> bool:
        """Check and keep the caller's upload, which has arrived whole; tell whether it is new."""
        party = caller.party
        with self._memory:
            file.seek(0)
            body = file.read()
            try:
                upload = Upload.from_bytes(body)
            except MessageError as error:
                raise Refusal(400, f"the upload cannot be read: {clean(error)}") from error
            try:
                count_uploads([upload], (party,))
            except MessageError as error:
                raise Refusal(422, f"the upload is refused: {clean(error)}") from error
            digest = hashlib.sha256(body).hexdigest()
            with self._transaction() as db:
                number, there = _slot(db, job, party)
                if there not in (None, digest):
                    raise Refusal(409, f"{party} has handed in another upload for job {job}")
                if there is not None:
                    return False
                change = "UPDATE uploads SET sha256 = ?, body = ? WHERE number = ?"
                db.execute(change, (digest, body, number))
        log.info("job %s: upload of %s, %d rows", job, party, len(upload.ids))
        return True

    def table(self, caller: Grant, job: str) -> bytes | list[str]:
        """Return the counts, or the parties that are missing: none while it is being counted.

        The first request after the last upload counts; others are told to come again.
        """
        with self._transaction() as db:
            number = _own(db, caller, job)
            missing = db.execute(
                "SELECT party FROM uploads WHERE job = ? AND sha256 IS NULL ORDER BY place",
                (number,),
            ).fetchall()
        if missing:
            return [name for (name,) in missing]
        if not self._memory.acquire(timeout=_WAIT):
            return []
        try:
            return self._count(number, job)
        finally:
            self._memory.release()

    def close(self, caller: Grant, job: str) -> None:
        """Forget a job and its uploads, but not its name; an unknown one is ignored."""
        _as_task(caller)
        with self._transaction() as db:
            if db.execute(
                "SELECT 1 FROM jobs WHERE name = ? AND closed IS NULL", (job,)
            ).fetchone() is None:  # fmt: skip
                return
            self._end(db, _own(db, caller, job))
        log.info("job %s closed", job)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self.tidy()
        try:
            with self._kept.transaction() as db:
                yield db
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname == "SQLITE_FULL":
                full = "the server's folder is full; close finished jobs first"
                raise Refusal(507, full) from error
            raise

    def _end(self, db: sqlite3.Connection, number: int) -> None:
        db.execute("DELETE FROM uploads WHERE job = ?", (number,))
        when = self._clock()
        db.execute("UPDATE jobs SET closed = ?, answer = NULL WHERE number = ?", (when, number))

    def _count(self, number: int, job: str) -> bytes:
        """Return the counts, made now if they are not there."""
        began = time.perf_counter()
        with self._transaction() as db:
            _find(db, job)  # it may have been closed meanwhile
            rows = db.execute("SELECT answer FROM jobs WHERE number = ?", (number,)).fetchall()
            if rows != [(None,)]:
                return bytes(rows[0][0])
            parties = _parties(db, number)
            uploads = db.execute("SELECT body FROM uploads WHERE job = ? ORDER BY place", (number,))
            bodies = [body for (body,) in uploads]
        try:
            table = count_uploads([Upload.from_bytes(body) for body in bodies], parties)
        except ValueError as error:
            raise Refusal(422, f"job {job} cannot be counted: {clean(error)}") from error
        data = table.to_bytes()
        with self._transaction() as db:
            _find(db, job)
            db.execute("UPDATE jobs SET answer = ? WHERE number = ?", (data, number))
        log.info("job %s counted in %.2f s", job, time.perf_counter() - began)
        return data


def _as_task(caller: Grant) -> None:
    if caller.role != "task":
        raise Refusal(403, f"{caller.party} is a data party; only a task party may do this")


def _open_jobs(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM jobs WHERE closed IS NULL").fetchone()[0])


def _parties(db: sqlite3.Connection, job: int) -> tuple[str, ...]:
    rows = db.execute("SELECT party FROM uploads WHERE job = ? ORDER BY place", (job,))
    return tuple(name for (name,) in rows)


def _find(db: sqlite3.Connection, job: str) -> int:
    row = db.execute("SELECT number, closed FROM jobs WHERE name = ?", (job,)).fetchone()
    if row is None:
        raise Refusal(404, f"job {job} is unknown")
    if row[1] is not None:
        raise Refusal(410, f"job {job} is closed")
    return int(row[0])


def _own(db: sqlite3.Connection, caller: Grant, job: str) -> int:
    """Find a job of the caller's."""
    _as_task(caller)
    number = _find(db, job)
    if _parties(db, number)[0] != caller.party:
        raise Refusal(403, f"job {job} belongs to another task party")
    return number


def _slot(db: sqlite3.Connection, job: str, party: str) -> tuple[int, str | None]:
    """Return where a party's upload goes, and the digest of one that is there."""
    row = db.execute(
        "SELECT number, sha256 FROM uploads WHERE job = ? AND party = ?", (_find(db, job), party)
    ).fetchone()
    if row is None:
        raise Refusal(403, f"{party} takes no part in job {job}")
    return int(row[0]), row[1]


class PartyState:
    """What a party must still know after a crash; readable by its owner only.

    Parameters
    ----------
    path : Path or None
        The file, made if missing; None keeps it in memory.

    Attributes
    ----------
    secret : bytes
        All random choices of the party follow from it, so that a party that was killed says the
        same when it comes back.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._kept = Database(path, _STATE, "a party's file of what it must not forget")
        with self._kept.transaction() as db:
            row = db.execute("SELECT value FROM secret").fetchone()
            self.secret: bytes = secrets.token_bytes(KEY_BYTES) if row is None else row[0]
            if row is None:
                db.execute("INSERT INTO secret VALUES (?)", (self.secret,))

    def answer(self, job: str, content: str) -> None:
        """Note a job before its answer is sent: the replay guard of a data party.

        Seals carry no date: whoever has kept an old job can send it again.  The same answer tells
        nothing new; an answer from other data, under the job's old keys, would.  `content` is a
        digest of the order and the party's data.
        """
        with self._kept.transaction() as db:
            db.execute("INSERT OR IGNORE INTO answered VALUES (?, ?)", (job, content))
            row = db.execute("SELECT content FROM answered WHERE job = ?", (job,)).fetchone()
        if row != (content,):
            raise MessageError(
                "it was answered before, and its order or this party's data have changed since; "
                "if it is not an old job sent again, the task party must start a new one"
            )

    def opened(self, job: str, command: str) -> None:
        """Note a job that a task party has opened, and the digest of the command."""
        with self._kept.transaction() as db:
            db.execute("INSERT OR IGNORE INTO opened VALUES (?, ?)", (job, command))

    def unfinished(self) -> dict[str, str]:
        """Return the jobs that were opened and not finished, and the command of each."""
        with self._kept.transaction() as db:
            return dict(db.execute("SELECT job, command FROM opened ORDER BY rowid").fetchall())

    def finished(self, job: str) -> None:
        """Forget a job that was opened."""
        with self._kept.transaction() as db:
            db.execute("DELETE FROM opened WHERE job = ?", (job,))

    def close(self, forget: bool = False) -> None:
        """Let go of the file, or delete it: a later run has other keys and other jobs."""
        self._kept.close()
        if forget and self.path is not None:
            self.path.unlink(missing_ok=True)
