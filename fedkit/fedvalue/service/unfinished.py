"""What a task party remembers of a run while it lasts: NAME.run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.fedvalue.protocol.keys import KEY_BYTES, derive
from fedkit.fedvalue.service.access import write_secret
from fedkit.fedvalue.service.client import CounterError, CounterRefused, RemoteCounter

__all__ = ["Unfinished", "digest_of"]


class Unfinished:
    """A run's secret, and the jobs that were opened with it.

    The first line of the file is the secret.  Each other names a job, after a digest of the
    command that opened it: the parties, the options and the data.

    Parameters
    ----------
    path : Path
        The file, made if missing.
    about : sequence of str
        What the command is about.

    Attributes
    ----------
    known : bool
        Whether this command opened jobs before.
    secret : bytes
        Secret of this command's run.

    Raises
    ------
    ValueError
        If the file does not begin with a secret.
    OSError
        If it cannot be read or written.
    """

    def __init__(self, path: Path, about: Sequence[str]) -> None:
        self.path, self._digest = path, hashlib.sha256(repr(tuple(about)).encode()).hexdigest()
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_secret(path, secrets.token_hex(KEY_BYTES))
        try:
            self._first, *lines = path.read_text("ascii").splitlines() or [""]
            key = bytes.fromhex(self._first)
        except ValueError:  # UnicodeDecodeError among them
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(
                f"{path} does not remember a run; if you need no unfinished run, delete it"
            )
        pairs = [line.split(" ", 1) for line in lines if line[64:65] == " "]  # none cut off
        self._own = [job for digest, job in pairs if digest == self._digest]
        self._others = [job for digest, job in pairs if digest != self._digest]
        self.known = bool(self._own)
        self.secret = derive(key, "run", *about)

    def opened(self, job: str) -> None:
        """Note a job of this command, once the server has it."""
        if job not in self._own:
            self._own.append(job)
            with self.path.open("a", encoding="ascii") as file:
                file.write(f"\n{self._digest} {job}\n")  # first end a line that was cut off

    def give_up_others(self, counter: RemoteCounter) -> bool:
        """Close the jobs of another command; return whether there were any.

        Raises
        ------
        CounterUnavailable
            If the server does not answer; they are then still remembered.
        """
        if not self._others:
            return False
        for job in self._others:
            with contextlib.suppress(CounterError, CounterRefused):
                counter.close(job)
        self._others = []
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        write_secret(draft, "\n".join([self._first, *(f"{self._digest} {j}" for j in self._own)]))
        os.replace(draft, self.path)
        return True

    def forget(self) -> None:
        """Delete the file: a later run has other keys and other jobs."""
        self.path.unlink(missing_ok=True)


def digest_of(ids: list[str], *codes: Any) -> str:
    """Return a digest of a party's rows: IDs, and whole numbers for each."""
    total = hashlib.sha256()
    for text in ids:
        total.update(f"{len(text)}:{text}".encode())
    for array in codes:
        total.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
    return total.hexdigest()
