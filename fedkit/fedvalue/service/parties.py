"""What a data party and a task party do as programs, from their columns to the answer."""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.checks import real
from fedkit.fedvalue.data import Columns, label_codes
from fedkit.fedvalue.protocol.keys import KEY_BYTES, derive
from fedkit.fedvalue.protocol.messages import PADDING, Counter, Job, MessageError
from fedkit.fedvalue.protocol.parties import DataParty, PartyChanged
from fedkit.fedvalue.protocol.secure import (
    AlignmentError,
    CheatingDetected,
    PartyMissing,
    SecureCounts,
    TaskParty,
)
from fedkit.fedvalue.service.client import (
    CounterError,
    CounterRefused,
    CounterUnavailable,
    RemoteCounter,
)
from fedkit.fedvalue.service.files import Database, read_secret

__all__ = ["PartyState", "answer_jobs", "read_key", "run_task"]

#: answers to one job: a server that lost one may ask again, but not for ever
_ANSWERS = 3
#: refused jobs that are named; a server may forge any number of them
_NAMED = 20
_KEPT = "What was uploaded is kept: the same command goes on"


def read_key(path: Path) -> bytes:
    """Read the key that the parties share."""
    text = read_secret(path, "key")
    with contextlib.suppress(ValueError):
        if len(key := bytes.fromhex(text)) == KEY_BYTES:
            return key
    raise ValueError(
        f"the key file {path} holds {len(text)} characters that are no key; expected are "
        f"{2 * KEY_BYTES} hexadecimal digits (fedkit fedvalue keygen)"
    )


class PartyState:
    """What a party must still know after a crash: one value of each kind and name, the first.

    All random choices of the party follow from `secret`, so that a party that was killed says the
    same when it comes back.  Without a path it lies in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        tables = "CREATE TABLE kept (kind TEXT, name TEXT, value, PRIMARY KEY (kind, name))"
        self._kept = Database(path, tables, "a party's file of what it must not forget")
        self.secret: bytes = self.keep("secret", "", secrets.token_bytes(KEY_BYTES))

    def keep(self, kind: str, name: str, value: Any) -> Any:
        """Note a value, unless there is one already; return the one that is there."""
        with self._kept.transaction() as db:
            db.execute("INSERT OR IGNORE INTO kept VALUES (?, ?, ?)", (kind, name, value))
            there = "SELECT value FROM kept WHERE kind = ? AND name = ?"
            return db.execute(there, (kind, name)).fetchone()[0]

    def all(self, kind: str) -> dict[str, Any]:
        with self._kept.transaction() as db:
            return dict(db.execute("SELECT name, value FROM kept WHERE kind = ?", (kind,)))

    def forget(self, kind: str, name: str) -> None:
        with self._kept.transaction() as db:
            db.execute("DELETE FROM kept WHERE kind = ? AND name = ?", (kind, name))

    def close(self, forget: bool = False) -> None:
        """Let go of the file, or delete it: a later run has other keys and other jobs."""
        self._kept.close()
        if forget and self.path is not None:
            self.path.unlink(missing_ok=True)


def answer_jobs(
    party: DataParty, counter: Counter, *, max_rows: int = 50_000_000, max_jobs: int | None = None,
    state: PartyState | None = None, once: bool = False, poll: float = 0.5,
    say: Callable[[str], None] = print, sleep: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Answer the jobs that wait for a data party, until stopped; return how many.

    A job that the party does not understand or agree to is reported once and left alone; a server
    that is away is waited for.  A job that was answered before gets the same answer again, byte for
    byte, and none at all if its order or the party's data have changed since.

    Parameters
    ----------
    max_rows : int
        Largest upload that the party agrees to, in encrypted IDs.
    max_jobs : int, optional
        Answer so many jobs and stop.
    state : PartyState, optional
        What it remembers of the jobs it answered; by default for this call only.
    once : bool
        Answer what waits now and stop; a server that is away is then an error
        (:class:`CounterUnavailable`).
    poll : float
        Seconds between two looks.

    Raises
    ------
    CounterRefused
        If the server does not let this party in.
    """
    real("poll", poll, 0, 86400)
    state, most = state or PartyState(), math.inf if max_jobs is None else max_jobs
    answers: dict[str, int] = {}
    left_alone: set[str] = set()
    refused, away = 0, False
    while True:
        try:
            waiting = counter.pending(party.name)
            if away:
                say("the server is back")
            away = False
            left_alone &= {job.id for job in waiting}
            for job in waiting:
                if job.id in left_alone or answers.get(job.id, 0) >= _ANSWERS:
                    continue
                if len(answers) >= most:
                    break
                try:
                    _agree(job, party, max_rows, state)
                    counter.submit(job.id, party.name, party.answer(job))
                except (ValueError, MemoryError) as error:  # refused, not opened, odd
                    left_alone.add(job.id)
                    refused += 1
                    if refused <= _NAMED:
                        say(f"job {job.id} is not answered: {error}")
                    if refused == _NAMED:
                        say(f"{_NAMED} jobs were left alone; further ones are not named")
                else:
                    answers[job.id] = answers.get(job.id, 0) + 1
                    say(f"job {job.id} is answered" + (" again" if answers[job.id] > 1 else ""))
        except (CounterUnavailable, CounterError) as error:
            if once:
                raise
            if not away:
                say(f"{error}; trying on")
            away = True
        if once or len(answers) >= most:
            return len(answers)
        sleep(poll)


def _agree(job: Job, party: DataParty, max_rows: int, state: PartyState) -> None:
    """Refuse an order that the party does not agree to, or an old job answered anew."""
    order = party.order(job)
    hardened = order.cell is None and order.hardened and order.tokens == "row"
    if not hardened:
        raise MessageError(
            "it asks for the protocol as printed: one cell, or without fresh keys, padding and "
            "tokens per row; the server would learn more"
        )
    size = party.rows_in(order) * order.duplications + order.artificial + PADDING
    if size > max_rows:
        raise MessageError(f"it asks for {size} encrypted IDs, over {max_rows} (--max-rows)")
    # seals carry no date: whoever has kept an old job can send it again, and an answer from other
    # data, under the job's old keys, would tell something new
    content = party.content(job)
    if state.keep("answered", job.id, content) != content:
        raise MessageError(
            "it was answered before, and its order or this party's data have changed since; "
            "if it is not an old job sent again, the task party must start a new one"
        )


class _Held:
    """A counter that keeps finished jobs until the run is over: it can be taken up again."""

    def __init__(
        self, counter: RemoteCounter, state: PartyState, command: str, say: Callable[[str], None]
    ) -> None:
        self.pending, self.submit, self.table = counter.pending, counter.submit, counter.table
        self._counter, self._state, self._command, self._say = counter, state, command, say
        self.jobs = list[str]()

    def open(self, job: Job) -> None:
        self.jobs.append(job.id)
        self._counter.open(job)
        self._state.keep("opened", job.id, self._command)
        # only now: a mistyped command that the server refuses must not cost another its run
        others = [j for j, command in self._state.all("opened").items() if command != self._command]
        for other in others:
            with contextlib.suppress(CounterError, CounterRefused):
                self._counter.close(other)
            self._state.forget("opened", other)
        if others:
            self._say(f"another command left a run unfinished in {self._state.path}; "
                      "it is given up")  # fmt: skip

    def close(self, job: str) -> None:
        """Not yet."""

    def end(self) -> None:
        """Forget the run: a later one has other keys and other jobs."""
        self._state.close(forget=True)
        # A server that will not close a job must not hide what the checks found.
        with contextlib.suppress(CounterError, CounterRefused, CounterUnavailable):
            for job in self.jobs:
                self._counter.close(job)


def run_task(
    columns: Columns, cells: Any, key: bytes, counter: RemoteCounter, *, name: str,
    parties: tuple[str, ...], state: Path, timeout: float = 600.0, poll: float = 0.2,
    say: Callable[[str], None] = print, **options: Any,
) -> SecureCounts:  # fmt: skip
    """Count with the data parties, as the task party; errors are those of `TaskParty.count`.

    The run's secret lies in `state` while it lasts.  A run that was killed, or gave up waiting,
    finds it there and goes on with the same jobs.  A run with other parties, options or data
    begins anew, and gives up an unfinished one there once the server has taken its first job.

    Parameters
    ----------
    columns, cells
        The task party's rows, with the label, and the code of its features in each.
    timeout, poll : float
        Seconds to wait for one job, and between two looks.
    options
        Of :class:`~fedkit.fedvalue.protocol.parties.TaskParty`.
    """
    if columns.y is None:
        raise ValueError("the task party's columns have no label; read them with label=")
    real("timeout", timeout, 0, 365 * 86400)
    real("poll", poll, 0, 86400)
    labels = label_codes(columns.y)
    rows = hashlib.sha256(repr(list(columns.ids)).encode())
    rows.update(np.stack([cells, labels]).astype("<i8").tobytes())
    about = [name, *parties, repr(sorted(options.items())), rows.hexdigest()]
    run = PartyState(state)
    known, command = run.all("opened"), hashlib.sha256(repr(about).encode()).hexdigest()
    if command in known.values():
        say(f"taking up the run that {state} remembers")
    secret = derive(run.secret, "run", *about)
    held = _Held(counter, run, command, say)
    shown = ""

    def wait() -> None:
        nonlocal shown
        line = f"job {held.jobs[-1]} waits for {', '.join(counter.missing)}"
        if counter.missing and line != shown:
            say(line)
            shown = line
        time.sleep(poll)

    with contextlib.closing(run):
        try:
            task = TaskParty(name, columns.ids, cells, labels, key, parties, secret=secret,
                             **options)  # fmt: skip
            counts = task.count(held, wait=wait, timeout=timeout)
        except PartyMissing as error:
            lacking = ", ".join(counter.missing) or "nobody: the server has not counted yet"
            raise PartyMissing(
                f"no table of job {held.jobs[-1]} after {timeout:g} s; missing: {lacking}. {_KEPT}"
            ) from error
        except CounterUnavailable as error:
            raise CounterUnavailable(f"{error}. {_KEPT}") from error
        except (CheatingDetected, AlignmentError, PartyChanged):
            held.end()
            raise
        except CounterRefused as error:
            # the server has closed or forgotten the run, or it never began
            if error.status in (404, 409, 410) or not run.all("opened"):
                held.end()
            raise
        held.end()
    return counts
