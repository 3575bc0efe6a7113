"""The parties as programs of their own: what each does between reading its file and the answer."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkit.fedvalue.columns import Columns
from fedkit.fedvalue.data import discretise, joint_codes, label_codes
from fedkit.fedvalue.protocol.keys import KEY_BYTES, unseal
from fedkit.fedvalue.protocol.messages import Counter, Job, MessageError, Table, Upload
from fedkit.fedvalue.protocol.parties import DataParty, Order
from fedkit.fedvalue.protocol.secure import (
    AlignmentError,
    CheatingDetected,
    PartyMissing,
    SecureCounts,
    TaskParty,
)
from fedkit.fedvalue.service.access import read_secret, write_secret
from fedkit.fedvalue.service.answered import Answered
from fedkit.fedvalue.service.client import (
    CounterError,
    CounterRefused,
    CounterUnavailable,
    RemoteCounter,
)
from fedkit.fedvalue.service.unfinished import Unfinished, digest_of

__all__ = ["Policy", "answer_jobs", "cells_of", "own_secret", "read_key", "run_task"]


#: to one job: a server that lost an answer may ask again, but not for ever
_ANSWERS = 3
_KEPT = "What was uploaded is kept: the same command goes on"


@dataclass(frozen=True)
class Policy:
    """What a data party agrees to.

    Attributes
    ----------
    rows : int
        Largest upload, in encrypted IDs.
    printed : bool
        Also answer queries for one cell, or without fresh keys, padding and tokens per row, as the
        paper prints them: the server then learns more.
    jobs : int or None
        Answer so many jobs and stop.
    """

    rows: int = 50_000_000
    printed: bool = False
    jobs: int | None = None


def read_key(path: Path) -> bytes:
    """Read the key that the parties share.

    Raises
    ------
    ValueError
        If the file does not hold 64 hexadecimal digits.
    """
    text = read_secret(path, "key")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"the key file {path} holds {len(text)} characters that are no key; expected are "
            f"{2 * KEY_BYTES} hexadecimal digits (fedkit fedvalue keygen)"
        )
    return key


def own_secret(path: Path) -> bytes:
    """Return the party's own secret from its file; make both if they are not there.

    All random choices of the party follow from it, so that a party that was killed says the same
    when it comes back.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_secret(path, secrets.token_hex(KEY_BYTES))
    return read_key(path)


def cells_of(columns: Columns, bins: int, how: Any, missing: Any, name: str) -> Any:
    """Return one code per row for all the features of a party, ``int64[n]``."""
    if not columns.names:
        return np.zeros(len(columns.ids), dtype=np.int64)
    codes = discretise(columns.x, bins, how, missing, name=name)
    return joint_codes(codes.reshape(len(columns.ids), -1))


def answer_jobs(
    party: DataParty,
    key: bytes,
    counter: Counter,
    *,
    policy: Policy,
    rows: int,
    once: bool = False,
    poll: float = 0.5,
    answered: Path | None = None,
    say: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Answer the jobs that wait for a data party, until stopped.

    A job that the party does not understand or agree to is reported once and left alone; a server
    that is away is waited for.  A job that was answered before gets the same answer again, byte for
    byte, and none at all if its order or the party's data have changed since.

    Parameters
    ----------
    party : DataParty
        The party, with its own data.
    key : bytes
        The key that the parties share.
    counter : Counter
        The server.
    policy : Policy
        What the party agrees to.
    rows : int
        Rows of the party.
    once : bool
        Answer what waits now and stop; a server that is away is then an error.
    poll : float
        Seconds between two looks.
    answered : Path, optional
        File of the jobs answered so far, which outlives the process; made if missing.
    say : callable
        Told what happens.
    sleep : callable
        Waits; for tests.

    Returns
    -------
    int
        Jobs answered.

    Raises
    ------
    CounterRefused
        If the server does not let this party in.
    CounterUnavailable
        With `once`, if the server does not answer.
    """
    left_alone: set[str] = set()
    times: dict[str, int] = {}
    known = Answered(answered)
    done, away = 0, False
    while True:
        try:
            waiting = counter.pending(party.name)
            if away:
                say("the server is back")
            away = False
            for job in waiting:
                if job.id in left_alone:
                    continue
                if policy.jobs is not None and done >= policy.jobs:
                    break
                try:
                    _agree(job, party.name, key, rows, policy)
                    known.remember(job, party.content(job))
                    counter.submit(job.id, party.name, party.answer(job))
                except CounterRefused as error:
                    say(f"job {job.id}: {error}")
                    left_alone.add(job.id)
                except (ValueError, MemoryError) as error:  # SealError, MessageError
                    say(f"job {job.id} is not answered: {error}")
                    left_alone.add(job.id)
                else:
                    times[job.id] = times.get(job.id, 0) + 1
                    done += times[job.id] == 1
                    say(f"job {job.id} is answered" + (" again" if times[job.id] > 1 else ""))
                    if times[job.id] == _ANSWERS:
                        left_alone.add(job.id)
        except (CounterUnavailable, CounterError) as error:
            if once:
                raise
            if not away:
                say(f"{error}; trying on")
            away = True
        if once or (policy.jobs is not None and done >= policy.jobs):
            return done
        sleep(poll)


def _agree(job: Job, name: str, key: bytes, rows: int, policy: Policy) -> None:
    """Refuse an order that the party does not agree to."""
    if name not in job.envelopes:
        raise MessageError(f"it brings no envelope for {name!r}")
    order = Order.from_bytes(unseal(job.envelopes[name], key, "order", job.id, name))
    hardened = order.cell is None and order.fresh and order.padding and order.tokens == "row"
    if not (hardened or policy.printed):
        raise MessageError(
            "it asks for the protocol as printed: one cell, or without fresh keys, padding and "
            "tokens per row (--allow-printed)"
        )
    size = rows * order.duplications + order.artificial + order.padding
    if size > policy.rows:
        raise MessageError(f"it asks for {size} encrypted IDs, over {policy.rows} (--max-rows)")


class _Held:
    """A counter that keeps finished jobs until the run is over: it can be taken up again."""

    def __init__(self, counter: RemoteCounter, run: Unfinished, say: Callable[[str], None]) -> None:
        self._counter, self._run, self._say = counter, run, say
        self._jobs = list[str]()
        self.last = ""

    def open(self, job: Job) -> None:
        self.last = job.id
        self._jobs.append(job.id)
        self._counter.open(job)
        self._run.opened(job.id)
        # only now: a mistyped command that the server refuses must not cost another its run
        if self._run.give_up_others(self._counter):
            self._say(f"another command left a run unfinished in {self._run.path}; it is given up")

    def pending(self, party: str) -> list[Job]:
        return self._counter.pending(party)

    def submit(self, job: str, party: str, upload: Upload) -> None:
        self._counter.submit(job, party, upload)

    def table(self, job: str) -> Table | None:
        return self._counter.table(job)

    def close(self, job: str) -> None:
        """Not yet."""

    def missing(self) -> tuple[str, ...]:
        return self._counter.missing(self.last)

    def close_all(self) -> None:
        for job in self._jobs:
            self._counter.close(job)


def run_task(
    columns: Columns,
    cells: Any,
    key: bytes,
    counter: RemoteCounter,
    *,
    name: str,
    parties: tuple[str, ...],
    state: Path,
    timeout: float = 600.0,
    poll: float = 0.2,
    say: Callable[[str], None] = print,
    **options: Any,
) -> SecureCounts:
    """Count with the data parties, as the task party.

    The run's secret lies in `state` while it lasts.  A run that was killed, or gave up waiting,
    finds it there and goes on with the same jobs.  A run with other parties, options or data
    begins anew, and gives up an unfinished one there once the server has taken its first job.

    Parameters
    ----------
    columns : Columns
        The task party's rows, with the label.
    cells : int64[n]
        Code of its features in each row.
    key : bytes
        The key that the parties share.
    counter : RemoteCounter
        The server.
    name, parties : str, tuple of str
        The task party, and the data parties.
    state : Path
        File of the run's secret and jobs.
    timeout, poll : float
        Seconds to wait for one job, and between two looks.
    say : callable
        Told what happens.
    **options
        Of :class:`.protocol.TaskParty`.

    Raises
    ------
    CheatingDetected
        If an answer of the server fails a check.
    AlignmentError
        If the parties hold different IDs.
    PartyMissing
        If parties have not answered in time; the message names them.
    CounterRefused, CounterError, CounterUnavailable
        If the server refuses, answers nonsense, or nothing.
    """
    assert columns.y is not None
    labels = label_codes(columns.y)
    data = digest_of(columns.ids, cells, labels)
    run = Unfinished(state, [name, *parties, repr(sorted(options.items())), data])
    if run.known:
        say(f"taking up the run that {state} remembers")
    task = TaskParty(name, columns.ids, cells, labels, key, parties, secret=run.secret, **options)
    held = _Held(counter, run, say)
    shown: tuple[str, tuple[str, ...]] = ("", ())

    def wait() -> None:
        nonlocal shown
        if held.missing() and (held.last, held.missing()) != shown:
            shown = held.last, held.missing()
            say(f"job {held.last} waits for {', '.join(held.missing())}")
        time.sleep(poll)

    try:
        counts = task.count(held, wait=wait, timeout=timeout)
    except PartyMissing as error:
        missing = ", ".join(held.missing()) or "nobody: the server has not counted yet"
        raise PartyMissing(
            f"no table of job {held.last} after {timeout:g} s; missing: {missing}. {_KEPT}"
        ) from error
    except CounterUnavailable as error:
        raise CounterUnavailable(f"{error}. {_KEPT}") from error
    except (CheatingDetected, AlignmentError):
        _end(held, run)
        raise
    except CounterRefused as error:
        if error.status in (404, 409, 410):  # the server has closed or forgotten the run
            _end(held, run)
        raise
    _end(held, run)
    return counts


def _end(held: _Held, run: Unfinished) -> None:
    """Forget a run: a later one has other keys and other jobs."""
    run.forget()
    # A server that will not close a job must not hide what the checks found.
    with contextlib.suppress(CounterError, CounterRefused, CounterUnavailable):
        held.close_all()
