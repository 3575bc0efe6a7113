"""What the commands of the service share: words, lists in options, and a line to the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fedkit.fedvalue.columns import Columns
    from fedkit.fedvalue.service.client import RemoteCounter

__all__ = [
    "admit", "check_bins", "connect", "listed", "pair", "plainly", "say", "several", "size_of",
    "telling",
]  # fmt: skip


@contextmanager
def plainly() -> Iterator[None]:
    """Turn what may go wrong into one line and an exit status."""
    from fedkit.fedvalue.protocol.verification import AlignmentError, CheatingDetected

    try:
        yield
    except CheatingDetected as error:
        typer.echo(f"fedkit: the server's answer is refused: {error}", err=True)
        raise typer.Exit(3) from error
    except AlignmentError as error:
        hint = ", or write the IDs alike (007 is not 7)" if "other IDs" in str(error) else ""
        raise ValueError(f"{error}{hint}") from error
    except OSError as error:  # without its number
        words = error.strerror or str(error)
        raise ValueError(f"{error.filename}: {words}" if error.filename else words) from error
    except KeyboardInterrupt:
        typer.echo("fedkit: stopped", err=True)
        raise typer.Exit(130) from None


def say(line: str) -> None:
    """Print one line at once: the reader may be a log."""
    print(line, flush=True)


def connect(url: str, token: Path, ca: Path | None, plain: bool, **options: Any) -> RemoteCounter:
    """Return the server at an address, spoken to with the token in a file."""
    from fedkit.fedvalue.service.access import read_secret
    from fedkit.fedvalue.service.client import RemoteCounter

    verify: bool | Path = True if ca is None else ca
    return RemoteCounter(url, read_secret(token, "token"), verify=verify, plain=plain, **options)


def admit(counter: RemoteCounter, name: str, role: str, poll: float | None = None) -> None:
    """Have the server say whose token this is, before a secret is made or used.

    With `poll`, wait for a server that is away.
    """
    from fedkit.fedvalue.service.client import CounterUnavailable

    away = False
    while True:
        try:
            counter.pending(name)
            if counter.role != role:
                takes = "task party, which asks (value)"
                takes = takes if counter.role == "task" else "data party, which answers (party)"
                raise ValueError(f"by its token, {name} is a {takes}")
            return
        except CounterUnavailable as error:
            if poll is None:
                raise
            if not away:
                say(f"{name}: {error}; trying on")
            away = True
            time.sleep(poll)


def telling(name: str) -> Callable[[float], None]:
    """Wait between the tries of a request; say so once in each row of pauses, which double."""

    def sleep(seconds: float) -> None:
        if 1 <= seconds < 2:
            say(f"{name}: the server does not answer; trying on")
        time.sleep(seconds)

    return sleep


def several(number: int, what: str) -> str:
    """Return such as "1 row", "2 rows"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size_of(held: Columns) -> str:
    """Return how many rows and features a party has, in words."""
    return f"{several(len(held.ids), 'row')}, {several(len(held.names), 'feature')}"


def check_bins(bins: int) -> None:
    """Refuse a single bin: a mistake, at the command line."""
    if bins == 1:
        raise ValueError(
            "bins is 1, and in one bin a continuous column tells nothing; give at least 2"
        )


def pair(text: str) -> tuple[int, int]:
    """Return LOW,HIGH (or one number for both)."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ValueError(f"artificial is {text!r}; expected LOW,HIGH, such as 500,1000")
    return numbers[0], numbers[-1]


def listed(text: str | None) -> list[str] | None:
    """Return the parts of a,b,c."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
