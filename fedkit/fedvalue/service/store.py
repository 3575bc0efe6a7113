"""The counting server without HTTP: who may do what, what is kept, and when it counts.

Every operation may be sent again: the same content changes nothing, other content under the same
name is refused.  Each is one transaction, on the disk before its sender is told.  The name of a
closed job stays, and no other job ever has it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from fedkit.checks import real
from fedkit.fedvalue.protocol.counting import count_uploads
from fedkit.fedvalue.protocol.messages import Job, Upload
from fedkit.fedvalue.service.access import Grant, Refusal, TokenBook
from fedkit.fedvalue.service.files import Database
from fedkit.fedvalue.service.wire import job_from_json, job_to_json

__all__ = ["JobStore", "Limits"]

log = logging.getLogger("fedkit.fedvalue")
#: bytes of an upload or a table, at most: a row of SQLite holds 10**9
_BLOB = 900 << 20
#: seconds that a request for a table waits for the counting, before "not yet" is answered
_WAIT = 5.0

_SCHEMA = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, content TEXT NOT NULL,
    opened REAL NOT NULL, closed REAL, answer BLOB
);
CREATE TABLE parties (
    job INTEGER NOT NULL REFERENCES jobs, party TEXT NOT NULL, PRIMARY KEY (party, job)
);
CREATE TABLE uploads (
    job INTEGER NOT NULL REFERENCES jobs, party TEXT NOT NULL, sha256 TEXT NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (job, party)
)"""


@dataclass(frozen=True)
class Limits:
    """What the server accepts: sizes in bytes, times in seconds."""

    upload_bytes: float = 512 << 20  # of one body, as of a job
    job_bytes: float = 4 << 20
    folder_bytes: float = 16 << 30  # of all jobs together
    jobs: int = 1000  # open at a time
    lifetime: float = 7 * 86400.0  # after which a job is closed, finished or not
    body_seconds: float = 600.0  # that a request's body may take to arrive

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            most = _BLOB if name == "upload_bytes" else float("inf")
            real(f"the limit {name}", value, 0, most, above=True)


class JobStore:
    """Jobs and uploads, in ``folder/jobs.db``; memory holds one job's, while they are counted."""

    def __init__(self, folder: Path, tokens: TokenBook, limits: Limits) -> None:
        self.limits, self._folder, self._tokens = limits, folder, tokens
        self._clock = time.time
        self._kept = Database(
            folder / "jobs.db", _SCHEMA, "a server's file of jobs", True, limits.folder_bytes
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
        """Close the jobs whose time is over."""
        limit = self._clock() - self.limits.lifetime
        old = "SELECT id, name FROM jobs WHERE closed IS NULL AND opened < ?"
        with self._kept.transaction() as db:
            for number, job in db.execute(old, (limit,)).fetchall():
                log.info("job %s is too old and is closed", job)
                self._end(db, number)

    def open(self, caller: Grant, job: Job) -> bool:
        """Announce a job; tell whether it is new."""
        _as_task(caller)
        if job.parties[0] != caller.party:
            raise Refusal(403, f"the task party of a job comes first, and you are {caller.party}")
        known = self._tokens.parties()
        strangers = [name for name in job.parties if name not in known]
        if strangers:
            raise Refusal(422, f"no token was ever made for {', '.join(strangers)}")
        content = json.dumps(job_to_json(job))
        with self._transaction() as db:
            known_as = "SELECT content, closed FROM jobs WHERE name = ?"
            row = db.execute(known_as, (job.id,)).fetchone()
            if row is not None:
                if row[1] is not None:
                    raise Refusal(409, f"job {job.id} was closed; its name cannot be used again")
                if row[0] != content:
                    raise Refusal(409, f"job {job.id} is open with other content")
                return False
            there = _open_jobs(db)
            if there >= self.limits.jobs:
                raise Refusal(429, f"{there} jobs are open; close some of them first")
            new = "INSERT INTO jobs (name, content, opened) VALUES (?, ?, ?)"
            number = db.execute(new, (job.id, content, self._clock())).lastrowid
            take_part = "INSERT INTO parties VALUES (?, ?)"
            db.executemany(take_part, [(number, party) for party in job.parties])
        log.info("job %s opened by %s for %d parties", job.id, caller.party, len(job.parties))
        return True

    def pending(self, caller: Grant) -> list[Job]:
        """Return the jobs that wait for the caller, oldest first, with its own envelope only."""
        with self._transaction() as db:
            waiting = db.execute(
                "SELECT content FROM jobs WHERE id IN (SELECT job FROM parties WHERE party = ?) "
                "AND id NOT IN (SELECT job FROM uploads WHERE party = ?) AND closed IS NULL "
                "ORDER BY id", (caller.party, caller.party),
            )  # fmt: skip
            jobs = [job_from_json(json.loads(content)) for (content,) in waiting]
        own = [{n: text for n, text in j.envelopes.items() if n == caller.party} for j in jobs]
        return [replace(j, envelopes=mine) for j, mine in zip(jobs, own, strict=True)]

    def may_upload(self, caller: Grant, job: str, party: str) -> None:
        """Refuse an upload that need not be read at all."""
        if caller.party != party:
            raise Refusal(403, f"you are {caller.party} and may upload only as yourself")
        with self._transaction() as db:
            _handed_in(db, *_find(db, job), party)

    def upload(self, caller: Grant, job: str, file: IO[bytes]) -> bool:
        """Check and keep the caller's upload, which has arrived whole; tell whether it is new."""
        party = caller.party
        with self._memory:
            file.seek(0)
            body = file.read()
            upload = Upload.from_bytes(body)
            count_uploads([upload], (party,))  # a MessageError if IDs come twice
            digest = hashlib.sha256(body).hexdigest()
            with self._transaction() as db:
                number, found = _find(db, job)  # it may have been closed meanwhile
                there = _handed_in(db, number, found, party)
                if there is not None:
                    if there != digest:
                        raise Refusal(409, f"{party} has handed in another upload for job {job}")
                    return False
                db.execute("INSERT INTO uploads VALUES (?, ?, ?, ?)", (number, party, digest, body))
        log.info("job %s: upload of %s, %d rows", job, party, len(upload.ids))
        return True

    def table(self, caller: Grant, job: str) -> bytes | list[str]:
        """Return the counts, or the parties that are missing: none while it is being counted."""
        with self._transaction() as db:
            number, found = _own(db, caller, job)
            there = dict(db.execute("SELECT party, 1 FROM uploads WHERE job = ?", (number,)))
        if len(there) < len(found.parties):
            return [party for party in found.parties if party not in there]
        if not self._memory.acquire(timeout=_WAIT):
            return []
        try:
            return self._count(job)
        finally:
            self._memory.release()

    def close(self, caller: Grant, job: str) -> None:
        """Forget a job and its uploads, but not its name; an unknown one is ignored."""
        _as_task(caller)
        with self._transaction() as db:
            there = "SELECT 1 FROM jobs WHERE name = ? AND closed IS NULL"
            if db.execute(there, (job,)).fetchone() is None:
                return
            self._end(db, _own(db, caller, job)[0])
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
        for table in ("parties", "uploads"):
            db.execute(f"DELETE FROM {table} WHERE job = ?", (number,))
        over = "UPDATE jobs SET closed = ?, content = '', answer = NULL WHERE id = ?"
        db.execute(over, (self._clock(), number))

    def _count(self, job: str) -> bytes:
        """Return the counts, made now if they are not there."""
        began = time.perf_counter()
        with self._transaction() as db:
            number, found = _find(db, job)
            (answer,) = db.execute("SELECT answer FROM jobs WHERE id = ?", (number,)).fetchone()
            if answer is not None:
                return bytes(answer)
            bodies = dict(db.execute("SELECT party, body FROM uploads WHERE job = ?", (number,)))
        uploads = [Upload.from_bytes(bodies.pop(party)) for party in found.parties]
        data = count_uploads(uploads, found.parties).to_bytes()
        if len(data) > _BLOB:
            much = f"the table of job {job} has {len(data)} bytes, more than {_BLOB} are not kept"
            raise Refusal(413, f"{much}; start anew with more --blocks")
        with self._transaction() as db:
            _find(db, job)
            db.execute("UPDATE jobs SET answer = ? WHERE id = ?", (data, number))
        log.info("job %s counted in %.2f s", job, time.perf_counter() - began)
        return data


def _as_task(caller: Grant) -> None:
    if caller.role != "task":
        raise Refusal(403, f"{caller.party} is a data party; only a task party may do this")


def _open_jobs(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM jobs WHERE closed IS NULL").fetchone()[0])


def _find(db: sqlite3.Connection, name: str) -> tuple[int, Job]:
    """Return an open job and its number; refuse one that is closed."""
    row = db.execute("SELECT id, content, closed FROM jobs WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise Refusal(404, f"job {name} is unknown")
    if row[2] is not None:
        raise Refusal(410, f"job {name} is closed")
    return row[0], job_from_json(json.loads(row[1]))


def _own(db: sqlite3.Connection, caller: Grant, name: str) -> tuple[int, Job]:
    """Return an open job of the caller's, or refuse it."""
    _as_task(caller)
    number, job = _find(db, name)
    if job.parties[0] != caller.party:
        raise Refusal(403, f"job {name} belongs to another task party")
    return number, job


def _handed_in(db: sqlite3.Connection, number: int, job: Job, party: str) -> str | None:
    """Return the digest of a party's upload, None if it is still to come."""
    if party not in job.parties:
        raise Refusal(403, f"{party} takes no part in job {job.id}")
    asked = "SELECT sha256 FROM uploads WHERE job = ? AND party = ?"
    row = db.execute(asked, (number, party)).fetchone()
    return None if row is None else str(row[0])
