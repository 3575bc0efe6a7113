"""Jobs and uploads in a folder: what was acknowledged is on the disk, whatever happens next.

A file is written under another name, flushed to the disk and renamed; only then is the sender
told.  After a crash the folder holds whole jobs and whole uploads, and leftovers that the next
start removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedkit.fedvalue.protocol.messages import Job, MessageError
from fedkit.fedvalue.service.wire import job_from_json, job_to_json, read_json
from fedkit.records.locks import try_lock

__all__ = ["Kept", "Shelf"]


@dataclass(frozen=True)
class Kept:
    """A job as it was found at the start.

    Attributes
    ----------
    job : Job
        The job.
    opened : float
        When it was opened, in seconds since 1970.
    uploaded : frozenset of str
        The parties whose uploads are there.
    """

    job: Job
    opened: float
    uploaded: frozenset[str]


class Shelf:
    """The server's folder.  One server at a time.

    Parameters
    ----------
    folder : Path
        Created when missing, readable by its owner only.

    Raises
    ------
    ValueError
        If another server uses the folder.
    OSError
        If it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._jobs, self._closed = self.folder / "jobs", self.folder / "closed"
        self._incoming = self.folder / "incoming"
        for place in (self.folder, self._jobs, self._closed, self._incoming):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stack = ExitStack()
        if not self._stack.enter_context(try_lock(self.folder / "lock")):
            raise ValueError(f"{self.folder} is in use by another server; give this one its own")
        for left in self._incoming.iterdir():
            left.unlink()

    def release(self) -> None:
        """Let another server use the folder."""
        self._stack.close()

    def load(self) -> list[Kept]:
        """Return the jobs that are open, oldest first, and remove what a crash left behind.

        Raises
        ------
        ValueError
            If a job's file is damaged.
        """
        found = []
        for place in self._jobs.iterdir():
            file = place / "job.json"
            if not file.exists() or (self._closed / place.name).exists():
                shutil.rmtree(place)  # a crash while it was opened, or closed
                continue
            (place / "table").unlink(missing_ok=True)
            data = read_json(file, "a job of the counting server")
            try:
                job, opened = job_from_json(data["job"]), float(data["opened"])
            except (KeyError, TypeError, MessageError) as error:
                raise ValueError(f"{file} is damaged: {error}; remove its folder") from error
            there = (n for i, n in enumerate(job.parties) if (place / f"{i}.upload").exists())
            found.append(Kept(job, opened, frozenset(there)))
        return sorted(found, key=lambda kept: (kept.opened, kept.job.id))

    def incoming(self) -> tuple[Path, BinaryIO]:
        """Open a file for bytes that are on their way in."""
        path = self._incoming / secrets.token_hex(8)
        return path, path.open("wb")

    def put_job(self, job: Job, opened: float) -> None:
        """Keep a job."""
        place = self._place(job.id)
        place.mkdir(mode=0o700, exist_ok=True)
        path, file = self.incoming()
        with file:
            file.write(json.dumps({"job": job_to_json(job), "opened": opened}).encode())
            _flush(file)
        os.replace(path, place / "job.json")
        _flush_folder(place)
        _flush_folder(self._jobs)

    def put_upload(self, job: Job, party: str, path: Path) -> None:
        """Keep an upload that lies, whole, in a file made by :meth:`incoming`."""
        with path.open("rb") as file:
            _flush(file)
        os.replace(path, self._upload(job, party))
        _flush_folder(self._place(job.id))

    def put_table(self, job: Job, data: bytes) -> Path:
        """Write down a table for sending; a crash may lose it, and it is counted anew."""
        path, file = self.incoming()
        with file:
            file.write(data)
        try:
            return path.replace(self._place(job.id) / "table")
        except FileNotFoundError:  # the job was closed meanwhile
            path.unlink()
            raise

    def upload(self, job: Job, party: str) -> bytes:
        """Return an upload as it was received."""
        return self._upload(job, party).read_bytes()

    def digest(self, job: Job, party: str) -> str:
        """Return the SHA-256 of an upload."""
        with self._upload(job, party).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def close(self, job: str, when: float) -> None:
        """Forget a job and its uploads, and remember that its name was used."""
        mark = self._closed / self._place(job).name
        with mark.open("wb") as file:
            _flush(file)
        os.utime(mark, (when, when))
        _flush_folder(self._closed)
        shutil.rmtree(self._place(job), ignore_errors=True)

    def was_closed(self, job: str) -> bool:
        """Tell whether the name belonged to a job that is closed."""
        return (self._closed / self._place(job).name).exists()

    def forget_closed(self, before: float) -> None:
        """Forget the names of the jobs that were closed before a time."""
        for mark in self._closed.iterdir():
            if mark.stat().st_mtime < before:
                mark.unlink()

    def size(self) -> int:
        """Return the bytes that jobs and uploads take."""
        total = 0
        for root, _, names in os.walk(self.folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(root, name)).st_size
                except FileNotFoundError:  # closed or moved meanwhile
                    continue
        return total

    def _place(self, job: str) -> Path:
        # a hash: no name of a job can lead out of the folder
        return self._jobs / hashlib.sha256(job.encode()).hexdigest()[:40]

    def _upload(self, job: Job, party: str) -> Path:
        return self._place(job.id) / f"{job.parties.index(party)}.upload"


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and needs no flush of one
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
