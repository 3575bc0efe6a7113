"""What the counting service decides, without HTTP: who may do what, what is kept, when it counts.

Every operation may be sent again: the same content changes nothing, other content under the same
name is refused.  Counting is left to a :class:`.messages.Counter` made for one job at a time, so
that memory holds the uploads of one job only while they are counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fedkit.fedvalue.protocol.messages import Counter, Job, MessageError, Table, Upload
from fedkit.fedvalue.service.access import Grant, TokenBook
from fedkit.fedvalue.service.shelf import Shelf
from fedkit.fedvalue.service.wire import clean, job_to_json

__all__ = ["Desk", "Limits", "Refusal"]

log = logging.getLogger("fedkit.fedvalue")


@dataclass(frozen=True)
class Limits:
    """What the server accepts.

    Attributes
    ----------
    upload_bytes, job_bytes : int
        Largest body of an upload and of a job, in bytes.
    folder_bytes : int
        Largest size of the server's folder, in bytes.
    jobs : int
        Jobs that may be open at a time.
    lifetime : float
        Seconds after which a job is closed, finished or not.
    body_seconds : float
        Seconds that a request's body may take to arrive.
    idle_seconds : float
        Seconds that a connection may stay open without a complete request.
    connections : int
        Connections at a time; further ones are answered 503.
    wait_seconds : float
        Seconds that a request for a table waits for the counting, before "not yet" is answered.
    """

    upload_bytes: int = 512 << 20
    job_bytes: int = 4 << 20
    folder_bytes: int = 16 << 30
    jobs: int = 1000
    lifetime: float = 7 * 86400.0
    body_seconds: float = 600.0
    idle_seconds: float = 20.0
    connections: int = 200
    wait_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"the limit {name} is {value}; a number above 0 is expected")


class Refusal(Exception):
    """A request that is not granted: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(eq=False)
class _Entry:
    job: Job
    opened: float
    uploaded: set[str]
    table: Future[Path] | None = None
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Desk:
    """The counting server's state.

    Parameters
    ----------
    shelf : Shelf
        Where jobs and uploads are kept; what it holds is taken up again.
    tokens : TokenBook
        The parties.
    new_counter : callable
        Makes an empty counting server in this process.
    limits : Limits
        What is accepted.
    clock : callable
        Seconds since 1970.
    """

    def __init__(
        self,
        shelf: Shelf,
        tokens: TokenBook,
        new_counter: Callable[[], Counter],
        limits: Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.shelf, self.tokens, self.limits = shelf, tokens, limits
        self._new_counter, self._clock = new_counter, clock
        self._lock = threading.Lock()  # of the list of jobs
        self._one = threading.Semaphore()  # one upload or job at a time takes memory
        self._counting = ThreadPoolExecutor(1, "counting")
        self._entries = {
            kept.job.id: _Entry(kept.job, kept.opened, set(kept.uploaded)) for kept in shelf.load()
        }
        if self._entries:
            log.info("took up %d open jobs", len(self._entries))
        self._tidied = -1e9
        self.tidy()

    def stop(self) -> None:
        """Finish what is being counted and leave the folder to another server."""
        self._counting.shutdown(cancel_futures=True)
        self.shelf.release()

    def tidy(self) -> None:
        """Close the jobs whose time is over.  Looks at most every half minute."""
        now = self._clock()
        with self._lock:
            if now - self._tidied < min(30.0, self.limits.lifetime / 4):
                return
            self._tidied = now
            old = [e for e in self._entries.values() if now - e.opened > self.limits.lifetime]
        for entry in old:
            log.info("job %s is too old and is closed", entry.job.id)
            self._forget(entry)
        self.shelf.forget_closed(now - self.limits.lifetime)

    def open(self, caller: Grant, job: Job) -> bool:
        """Announce a job; tell whether it is new."""
        self.tidy()
        self._as_task(caller)
        if job.parties[0] != caller.party:
            raise Refusal(403, f"the task party of a job comes first, and you are {caller.party}")
        strangers = [name for name in job.parties if not self.tokens.knows(name)]
        if strangers:
            raise Refusal(422, f"no token was ever made for {', '.join(strangers)}")
        with self._lock:
            known = self._entries.get(job.id)
            if known is not None:
                if job_to_json(known.job) != job_to_json(job):
                    raise Refusal(409, f"job {job.id} is open with other content")
                return False
            if self.shelf.was_closed(job.id):
                raise Refusal(409, f"job {job.id} was closed; its name cannot be used again")
            if len(self._entries) >= self.limits.jobs:
                raise Refusal(429, f"{len(self._entries)} jobs are open; close some of them first")
            self._check_room()
            now = self._clock()
            self.shelf.put_job(job, now)
            self._entries[job.id] = _Entry(job, now, set())
        log.info("job %s opened by %s for %d parties", job.id, caller.party, len(job.parties))
        return True

    def pending(self, caller: Grant) -> list[Job]:
        """Return the jobs that wait for the caller, oldest first, with its own envelope only."""
        self.tidy()
        with self._lock:  # oldest first: so they were opened, and so the shelf gives them back
            entries = [
                e for e in self._entries.values()
                if caller.party in e.job.parties and caller.party not in e.uploaded
            ]  # fmt: skip
        return [
            Job(e.job.id, e.job.parties,
                {k: v for k, v in e.job.envelopes.items() if k == caller.party})
            for e in entries
        ]  # fmt: skip

    def may_upload(self, caller: Grant, job: str, party: str) -> None:
        """Refuse an upload that need not be read at all."""
        if caller.party != party:
            raise Refusal(403, f"you are {caller.party} and may upload only as yourself")
        entry = self._entry(job)
        if party not in entry.job.parties:
            raise Refusal(403, f"{party} takes no part in job {job}")
        if party not in entry.uploaded:
            self._check_room()

    def upload(self, caller: Grant, job: str, party: str, path: Path, digest: str) -> bool:
        """Check and keep an upload that has arrived whole; tell whether it is new."""
        self.may_upload(caller, job, party)
        entry = self._entry(job)
        with entry.lock:
            if entry.closed:
                raise self._gone(job)
            if party in entry.uploaded:
                if self.shelf.digest(entry.job, party) != digest:
                    raise Refusal(409, f"{party} has handed in another upload for job {job}")
                return False
            with self._one:
                rows = self._check(entry.job, party, path)
            self._check_room()  # again: its bytes are in the folder now
            self.shelf.put_upload(entry.job, party, path)
            entry.uploaded.add(party)
        log.info("job %s: upload of %s, %d rows", job, party, rows)
        return True

    def table(self, caller: Grant, job: str) -> Future[Path] | list[str]:
        """Return the file of the counts, on its way, or the parties that are missing."""
        self._as_task(caller)
        entry = self._entry(job)
        if entry.job.parties[0] != caller.party:
            raise Refusal(403, f"job {job} belongs to another task party")
        with entry.lock:
            if entry.closed:
                raise self._gone(job)
            missing = [name for name in entry.job.parties if name not in entry.uploaded]
            if missing:
                return missing
            if entry.table is None or (entry.table.done() and entry.table.exception()):
                entry.table = self._counting.submit(self._count, entry.job)
            return entry.table

    def close(self, caller: Grant, job: str) -> None:
        """Forget a job and its uploads; an unknown one is ignored."""
        self._as_task(caller)
        with self._lock:
            entry = self._entries.get(job)
        if entry is None:
            return
        if entry.job.parties[0] != caller.party:
            raise Refusal(403, f"job {job} belongs to another task party")
        self._forget(entry)
        log.info("job %s closed", job)

    def _forget(self, entry: _Entry) -> None:
        with entry.lock:
            entry.closed = True
            self.shelf.close(entry.job.id, self._clock())
        with self._lock:
            self._entries.pop(entry.job.id, None)

    def _check(self, job: Job, party: str, path: Path) -> int:
        """Let a counter look at one upload, before it is acknowledged; return its rows."""
        try:
            upload = Upload.from_bytes(path.read_bytes())
        except MessageError as error:
            raise Refusal(400, f"the upload cannot be read: {clean(error)}") from error
        try:  # counted alone, so that its sender learns at once if it cannot be counted
            counter = self._new_counter()
            counter.open(Job(job.id, (party,)))
            counter.submit(job.id, party, upload)
            counter.table(job.id)
        except (ValueError, KeyError) as error:
            raise Refusal(422, f"the upload is refused: {clean(error)}") from error
        return len(upload.ids)

    def _count(self, job: Job) -> Path:
        began = time.perf_counter()
        with self._one:
            counter = self._new_counter()
            counter.open(job)
            for party in job.parties:
                counter.submit(job.id, party, Upload.from_bytes(self.shelf.upload(job, party)))
            table: Table | None = counter.table(job.id)
        if table is None:
            raise RuntimeError(f"job {job.id} has all uploads and no table")
        log.info("job %s counted in %.2f s", job.id, time.perf_counter() - began)
        return self.shelf.put_table(job, table.to_bytes())

    def _entry(self, job: str) -> _Entry:
        self.tidy()
        with self._lock:
            entry = self._entries.get(job)
        if entry is not None:
            return entry
        if self.shelf.was_closed(job):
            raise self._gone(job)
        raise Refusal(404, f"job {job} is unknown")

    def _gone(self, job: str) -> Refusal:
        return Refusal(410, f"job {job} is closed")

    def _as_task(self, caller: Grant) -> None:
        if caller.role != "task":
            raise Refusal(403, f"{caller.party} is a data party; only a task party may do this")

    def _check_room(self) -> None:
        if self.shelf.size() > self.limits.folder_bytes:
            raise Refusal(507, "the server's folder is full; close finished jobs first")
