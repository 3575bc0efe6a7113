"""The programs of FedValue between organisations: a counting server, data parties, a task party."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedkit.atomic import write_text
from fedkit.checks import choice
from fedkit.columnfiles import read_columns
from fedkit.extras import need
from fedkit.fedvalue import columns as tables
from fedkit.fedvalue.columns import How
from fedkit.fedvalue.http import CounterUnavailable, RemoteCounter, create_app
from fedkit.fedvalue.protocol.messages import (
    KEY_BYTES,
    PADDING,
    Counter,
    Job,
    JobUnknown,
    MessageError,
)

# ciphers and torch are imported where they are needed: the server does without

#: seconds between two looks of a party
_POLL = 0.2

app = typer.Typer(
    help="FedValue between organisations: a counting server, data parties, a task party.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option(help="This party's name.")]
Url = Annotated[str, typer.Option(help="Address of the counting server.")]
Data = Annotated[Path, typer.Option(help="CSV file of this party's own columns.")]
IdColumn = Annotated[str, typer.Option(help="Column of the IDs.")]
Names = Annotated[str | None, typer.Option(help="Features, such as a,b,c; default: all others.")]
KeyFile = Annotated[Path, typer.Option(help="The key that the parties share, 64 hex digits.")]
TokenFile = Annotated[Path, typer.Option(help="This party's token, and nothing else.")]
Authority = Annotated[Path | None, typer.Option(help="Certificate of the authority, PEM.")]
Bins = Annotated[int, typer.Option(help="Bins of a continuous column.", min=2)]
Binning = Annotated[How, typer.Option(help="Bins of equal 'width', or by 'quantile'.")]
_HERE = "http://127.0.0.1:8765"


@app.command()
def serve(
    tokens: Annotated[Path, typer.Option(help="Lines: task NAME TOKEN, or data NAME TOKEN.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port.", min=1, max=65535)] = 8765,
    max_upload_mb: Annotated[float, typer.Option(help="Largest upload.", min=0.001)] = 512.0,
) -> None:
    """Run the counting server: at this computer alone, unless ``--host`` says otherwise."""
    uvicorn = need("uvicorn", "service")
    made = create_app(tokens, max_upload_mb * 2**20)
    typer.echo(f"counting server at {host}, port {port}")
    uvicorn.run(made, host=host, port=port, ws="none", access_log=False, log_level="warning")


@app.command()
def party(
    name: Name, data: Data, key_file: KeyFile, token_file: TokenFile, url: Url = _HERE,
    id_column: IdColumn = "id", columns: Names = None, bins: Bins = 5, how: Binning = "width",
    ca: Authority = None,
    once: Annotated[bool, typer.Option("--once", help="Answer what waits now, and stop.")] = False,
    max_rows: Annotated[int, typer.Option(help="Largest upload, in encrypted IDs.")] = 50_000_000,
) -> None:  # fmt: skip
    """Answer jobs as a data party, until stopped."""
    from fedkit.fedvalue.protocol.crypto import derive
    from fedkit.fedvalue.protocol.uploads import DataParty

    ids, cells, _ = _own_data(name, data, id_column, columns, None, bins, how)
    key = read_key(key_file)
    with RemoteCounter(url, _token(token_file, key), ca=ca) as counter:
        # other data, other random numbers: an old job must not be answered with the same ones
        about = [name, "\n".join(ids), cells.astype("<i8").tobytes()]
        secret = derive(own_secret(data.with_name(f"{name}.secret")), *about)
        who = DataParty(name, ids, cells, key, secret=secret)
        typer.echo(f"{name}: {len(ids)} rows; waiting")
        answer_jobs(
            who, counter, max_rows=max_rows, once=once, say=lambda s: typer.echo(f"{name}: {s}")
        )


@app.command()
def value(
    name: Name,
    parties: Annotated[str, typer.Option(help="Names of the data parties, such as bank,telco.")],
    data: Data,
    label: Annotated[str, typer.Option(help="Column of the label.")],
    key_file: KeyFile, token_file: TokenFile, url: Url = _HERE, id_column: IdColumn = "id",
    columns: Names = None, bins: Bins = 5, how: Binning = "width", ca: Authority = None,
    correction: Annotated[
        str,
        typer.Option(help="Beside the plug-in: 'permutation', 'miller-madow', or 'plugin': none."),
    ] = "permutation",
    test: Annotated[
        bool | None, typer.Option("--test/--no-test", help="P-values; default: if quickly made.")
    ] = None,
    blocks: Annotated[int, typer.Option(help="Parts to count in, a power of 2.", min=1)] = 1,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for one job.")] = 600.0,
    out: Annotated[Path | None, typer.Option("--json", help="Write the values there.")] = None,
) -> None:  # fmt: skip
    """Value the data parties, as the task party.

    Start it before or after the data parties: it waits for them.
    After a failure the same command repeats the same jobs.
    """
    from fedkit.fedvalue.protocol.crypto import derive
    from fedkit.fedvalue.protocol.parties import (
        PartyChanged,
        PartyMissing,
        TaskParty,
        safe_artificial,
    )
    from fedkit.fedvalue.protocol.verification import AlignmentError, CheatingDetected
    from fedkit.fedvalue.report import CORRECTIONS, assess

    choice("correction", correction, CORRECTIONS)
    ids, cells, labels = _own_data(name, data, id_column, columns, label, bins, how)
    key, others = read_key(key_file), _listed(parties)
    options: dict[str, Any] = {
        "duplications": (2, 3), "blocks": blocks, "artificial": safe_artificial(len(ids), blocks),
    }  # fmt: skip
    place = data.with_name(f"{name}.secret")
    with RemoteCounter(url, _token(token_file, key), ca=ca) as counter:
        counter.pending(name)  # refused before a secret is made
        rows = np.stack([cells, labels]).astype("<i8").tobytes()
        secret = derive(own_secret(place), name, *others, repr(options), "\n".join(ids), rows)
        task = TaskParty(name, ids, cells, labels, key, others, secret=secret, **options)
        typer.echo(f"{name}: {len(ids)} rows, label {label}; data parties: {parties}")
        try:
            counts = task.count(counter, wait=lambda: time.sleep(_POLL), timeout=timeout)
        except PartyMissing as error:
            told = ", ".join(counter.missing) or "nobody: the server has not counted"
            raise PartyMissing(
                f"{error}; missing: {told}. The same command repeats the same jobs"
            ) from error
        except (CheatingDetected, AlignmentError, PartyChanged) as error:
            place.unlink(missing_ok=True)  # the run has ended: another has other secrets
            if isinstance(error, CheatingDetected):
                typer.echo(f"fedkit: the server's answer is refused: {error}", err=True)
                raise typer.Exit(3) from error
            raise
    place.unlink(missing_ok=True)
    report = assess(counts, correction=correction, test=test, label=label)
    typer.echo(str(report))
    if out is not None:
        write_text(out, json.dumps(report.to_json(), indent=1) + "\n")


def _listed(names: str) -> list[str]:
    return [part.strip() for part in names.split(",") if part.strip()]


def _own_data(
    name: str, data: Path, id_column: str, columns: str | None, label: str | None, bins: int,
    how: How,
) -> tuple[list[str], Any, Any]:  # fmt: skip
    """Read a party's IDs, the cell of each row, and a task party's labels."""
    chosen = None if columns is None else _listed(columns)
    ids, x, y = read_columns(data, id_column=id_column, label=label, columns=chosen)
    cells = tables.joint_codes(tables.discretise(x, bins, how, name=str(data)))
    tables.warn_of_cells(cells, name if label is None else None)
    if label is None:
        return ids, cells, None
    labels = tables.label_codes(y, f"the label {label!r}")
    tables.warn_of_label(labels, f"the label {label!r}")
    return ids, cells, labels


def _token(path: Path, key: bytes) -> str:
    words = path.read_text("ascii", "replace").split()
    if len(words) != 1 or words[0] == key.hex():
        raise ValueError(f"{path} is not the file of one token, or it holds the parties' key")
    return words[0]


# ------------------------------------------------------------------- what they are made of


def answer_jobs(
    party: Any, counter: Counter, *, max_rows: int = 50_000_000, once: bool = False,
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Answer the jobs that wait for a data party, until stopped, or with `once` those of now.

    A job that the party does not understand or agree to, as it would send more than `max_rows`
    encrypted IDs, is reported and left alone; a server that is away is waited for (with `once` that
    is an error).  A job that a restarted server asks for again gets the same answer.  A
    CounterRefused tells that the server does not let this party in.
    """
    left_alone: set[str] = set()
    away = False
    while True:
        try:
            for job in counter.pending(party.name):
                if job.id in left_alone:
                    continue
                try:
                    _agree(party, job, max_rows)
                    counter.submit(job.id, party.name, party.answer(job))
                    say(f"job {job.id} is answered")
                except JobUnknown:
                    say(f"job {job.id} is gone")
                except (ValueError, MemoryError) as error:  # refused, not opened, odd
                    left_alone.add(job.id)
                    say(f"job {job.id} is not answered: {error}")
            away = False
        except CounterUnavailable as error:
            if once:
                raise
            if not away:
                say(f"{error}; trying on")
            away = True
        if once:
            return
        time.sleep(_POLL)


def _agree(party: Any, job: Job, max_rows: int) -> None:
    """Refuse an order from which the server would learn more, or that is too large."""
    order = party.order(job)
    if order.cell is not None or not order.hardened or order.tokens != "row":
        raise MessageError(
            "it asks for the protocol as printed: one cell, or without fresh keys, padding and "
            "tokens per row; the server would learn more"
        )
    size = party.rows_in(order) * order.duplications + order.artificial + PADDING
    if size > max_rows:
        raise MessageError(f"it asks for {size} encrypted IDs, over {max_rows} (--max-rows)")


def read_key(path: Path) -> bytes:
    """Read 32 bytes from a file of 64 hexadecimal digits."""
    text = path.read_text("ascii", "replace").strip()
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", text):
        raise ValueError(
            f"{path} holds {len(text)} characters; expected {2 * KEY_BYTES} hexadecimal digits "
            f"(openssl rand -hex {KEY_BYTES})"
        )
    return bytes.fromhex(text)


def own_secret(path: Path) -> bytes:
    """Return the secret in a file, which is made, whole or not at all, where there is none."""
    if not path.exists():
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
                f.write(secrets.token_hex(KEY_BYTES) + "\n")
            with contextlib.suppress(FileExistsError):  # another process has made it meanwhile
                os.link(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    return read_key(path)
