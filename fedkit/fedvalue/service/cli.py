"""The commands ``fedkit fedvalue keygen | tokens | serve | party | value | demo``."""

from __future__ import annotations

import json
import logging
import re
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkit.checks import choice, real

if TYPE_CHECKING:
    from fedkit.fedvalue.service.client import RemoteCounter

__all__ = ["app"]

app = typer.Typer(
    help="FedValue between organisations: a counting server, data parties, a task party.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option(help="This party's name.")]
Url = Annotated[str, typer.Option(help="Address of the counting server.")]
Data = Annotated[Path, typer.Option(help="CSV file of this party's own columns.")]
IdColumn = Annotated[str, typer.Option(help="Column of the IDs.")]
Columns = Annotated[str | None, typer.Option(help="Features, such as a,b,c; default: all others.")]
KeyFile = Annotated[Path, typer.Option(help="The key that the parties share (keygen).")]
TokenFile = Annotated[Path, typer.Option(help="This party's token (tokens).")]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="Certificate of the authority to trust, PEM.")
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Allow http beyond this computer (a protected line).")
]
Bins = Annotated[int, typer.Option(help="Bins of a continuous column.")]
How = Annotated[str, typer.Option(help="Bins of equal 'width', or by 'quantile'.")]
Missing = Annotated[str, typer.Option(help="Missing values: a level of their 'own', or 'refuse'.")]
_HERE = "http://127.0.0.1:8765"
say = typer.echo


@app.command()
def keygen(out: Annotated[Path, typer.Argument(help="File to write; never overwritten.")]) -> None:
    """Make the key that the parties share and the server never sees.

    One party makes it and gives every other, the task party too, a copy,
    by a channel that is not the server's: it is their --key-file.
    Whoever has it can read what the parties send. Keep it from the server.
    """
    from fedkit.fedvalue.protocol.keys import new_key
    from fedkit.fedvalue.service.files import write_secret

    write_secret(out, new_key().hex())
    say(f"{out}: give every party a copy (--key-file), by a channel that is not the server's")


@app.command()
def tokens(
    book: Annotated[
        Path, typer.Argument(help="The server's file, made or added to.", metavar="TOKENS.db")
    ],
    task: Annotated[list[str] | None, typer.Option(help="A task party (repeatable).")] = None,
    data: Annotated[list[str] | None, typer.Option(help="A data party (repeatable).")] = None,
    folder: Annotated[Path, typer.Option(help="Where PARTY.token files go.")] = Path("."),
    days: Annotated[float, typer.Option(help="Days until they expire; 0 for never.")] = 90.0,
    renew: Annotated[bool, typer.Option("--renew", help="Replace tokens that exist.")] = False,
) -> None:
    """Make tokens, as the one who runs the server: hashes for it, one file for each party.

    Give each PARTY.token to its party only, by a channel of its own, and
    delete it here: it is that party's --token-file.
    TOKENS.db stays at the server: it is for serve --tokens.
    """
    from fedkit.fedvalue.service.access import issue_tokens

    made = issue_tokens(
        book, folder, task=task or (), data=data or (), days=days or None, renew=renew
    )
    for path in made:
        say(f"{path}: give it to {path.stem} only (--token-file), and delete it here")
    say(f"{book}: for the server (serve --tokens); it holds hashes only")


@app.command()
def serve(
    folder: Annotated[Path, typer.Option(help="Where jobs and uploads are kept.")],
    tokens: Annotated[Path, typer.Option(help="The file of tokens' hashes (tokens).")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8765,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Allow other hosts without TLS (behind a proxy).")
    ] = False,
    max_upload_mb: Annotated[float, typer.Option(help="Largest upload.")] = 512.0,
    max_folder_gb: Annotated[float, typer.Option(help="Largest size of the folder.")] = 16.0,
    max_jobs: Annotated[int, typer.Option(help="Jobs open at a time.")] = 1000,
    job_days: Annotated[float, typer.Option(help="Days after which a job is closed.")] = 7.0,
    body_seconds: Annotated[float, typer.Option(help="Time for a request's body.")] = 600.0,
) -> None:
    """Run the counting server: at this computer alone, unless --host says otherwise."""
    from fedkit.fedvalue.service import server
    from fedkit.fedvalue.service.access import TokenBook
    from fedkit.fedvalue.service.client import is_local
    from fedkit.fedvalue.service.store import Limits

    if tls_cert is None and not plain and not is_local(host):
        raise ValueError(
            f"{host} can be reached from elsewhere, and without TLS every token could be read on "
            "the way: give --tls-cert and --tls-key, or --plain behind a proxy that does TLS"
        )
    limits = Limits(
        upload_bytes=max_upload_mb * 2**20, folder_bytes=max_folder_gb * 2**30,
        jobs=max_jobs, lifetime=job_days * 86400, body_seconds=body_seconds,
    )  # fmt: skip
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("fedkit.fedvalue").setLevel("INFO")
    made = server.create_app(folder, TokenBook(tokens), limits)
    running = server.make_server(made, cert=tls_cert, key=tls_key)
    with server.listen(host, port) as place:
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if tls_cert is None else "https"
        say(f"counting server at {scheme}://{shown}:{place.getsockname()[1]}")
        running.run(sockets=[place])


@app.command()
def party(
    name: Name, data: Data, key_file: KeyFile, token_file: TokenFile, url: Url = _HERE,
    id_column: IdColumn = "id", columns: Columns = None,
    bins: Bins = 5, how: How = "width", missing: Missing = "own",
    state_file: Annotated[
        Path | None, typer.Option(help="Its secret and what it answered; default NAME.state.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Answer what waits now, and stop.")] = False,
    max_jobs: Annotated[
        int | None, typer.Option(help="Answer so many jobs and stop.", min=1)
    ] = None,
    max_rows: Annotated[
        int, typer.Option(help="Largest upload, in encrypted IDs.", min=1)
    ] = 50_000_000,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 60.0,
    ca: Authority = None, plain: Plain = False,
) -> None:  # fmt: skip
    """Answer jobs as a data party, until stopped."""
    from fedkit.fedvalue.binning import cells_doubt
    from fedkit.fedvalue.protocol.parties import DataParty
    from fedkit.fedvalue.service.parties import PartyState, answer_jobs

    held, cells, key = own_data(
        name, data, key_file, bins, how, missing, id_column=id_column, columns=listed(columns)
    )
    doubt = cells_doubt(cells, name)
    if doubt is not None:
        say(f"{name}: warning: {doubt}")
    with connect(url, token_file, ca, plain, timeout) as counter:
        admit(counter, name, "data", wait=not once)
        place = state_file or data.with_name(f"{name}.state")
        if place.exists():
            say(f"{name}: taking up with the secret in {place}")
        state = PartyState(place)
        who = DataParty(name, held.ids, cells, key, secret=state.secret)
        say(f"{name}: {len(held.ids)} rows, features: {len(held.names)}; waiting for jobs")
        answered = answer_jobs(
            who, counter, max_rows=max_rows, max_jobs=max_jobs,
            state=state, once=once, say=lambda line: say(f"{name}: {line}"),
        )  # fmt: skip
    say(f"{name}: jobs answered: {answered}")


@app.command()
def value(
    name: Name,
    parties: Annotated[str, typer.Option(help="Names of the data parties, such as bank,telco.")],
    data: Data,
    label: Annotated[str, typer.Option(help="Column of the label.")],
    key_file: KeyFile, token_file: TokenFile, url: Url = _HERE,
    id_column: IdColumn = "id", columns: Columns = None,
    bins: Bins = 5, how: How = "width", missing: Missing = "own",
    correction: Annotated[
        str,
        typer.Option(help="Beside the plug-in: 'permutation', 'miller-madow', or 'plugin': none."),
    ] = "permutation",
    test: Annotated[
        bool | None,
        typer.Option("--test/--no-test", help="Permutation p-values; default: if quickly made."),
    ] = None,
    draws: Annotated[int, typer.Option(help="Permutations of each test.", min=1)] = 999,
    iterations: Annotated[int, typer.Option(help="Redundant computations (tau).")] = 2,
    artificial: Annotated[
        str | None,
        typer.Option(help="LOW,HIGH: artificial IDs; default: as many as rows. The paper: 1,50."),
    ] = None,
    blocks: Annotated[
        int, typer.Option(help="Parts to count in, a power of 2: more take less memory.", min=1)
    ] = 1,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for one job.")] = 600.0,
    answer_timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 60.0,
    state_file: Annotated[
        Path | None, typer.Option(help="Remembers a run while it lasts; default NAME.run.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write the values there.")] = None,
    ca: Authority = None, plain: Plain = False,
) -> None:  # fmt: skip
    """Value the data parties, as the task party.

    Start it before or after the data parties: it waits for them.
    Stopped, it goes on where it was when the same command is given again.
    """
    from fedkit.fedvalue.binning import cells_doubt, label_codes, label_doubt
    from fedkit.fedvalue.protocol.parties import TaskParty
    from fedkit.fedvalue.protocol.verification import CheatingDetected
    from fedkit.fedvalue.report import CORRECTIONS, assess
    from fedkit.fedvalue.service.parties import run_task

    names = tuple(listed(parties) or ())
    choice("correction", correction, CORRECTIONS)
    real("timeout", timeout, 0.01, 365 * 86400)
    if out is not None and not out.absolute().parent.is_dir():
        raise ValueError(f"{out} cannot be written: there is no folder {out.parent}")
    known_answers = None if artificial is None else pair(artificial)
    held, cells, key = own_data(
        name, data, key_file, bins, how, missing,
        id_column=id_column, columns=listed(columns), label=label,
    )  # fmt: skip
    options: dict[str, Any] = {
        "iterations": iterations, "blocks": blocks,
        # as many as rows: the bound on undetected cheating is then small, the work hardly larger
        "artificial": known_answers or -(-len(held.ids) // blocks),
    }  # fmt: skip
    TaskParty(name, ["?"], [0], [0], key, names, **options)  # refuses what is out of range
    say(
        f"{name}: {len(held.ids)} rows, features: {len(held.names)}, label: {label}, "
        f"data parties: {', '.join(names)}"
    )
    for doubt in (label_doubt(label_codes(held.y), f"the label {label!r}"), cells_doubt(cells)):
        if doubt is not None:
            say(f"{name}: warning: {doubt}")
    with connect(url, token_file, ca, plain, answer_timeout) as counter:
        admit(counter, name, "task")
        try:
            counts = run_task(
                held, cells, key, counter, name=name, parties=names, timeout=timeout,
                state=state_file or data.with_name(f"{name}.run"),
                say=lambda line: say(f"{name}: {line}"), **options,
            )  # fmt: skip
        except CheatingDetected as error:
            say(f"fedkit: the server's answer is refused: {error}", err=True)
            raise typer.Exit(3) from error
    report = assess(counts, correction=correction, test=test, draws=draws, label=label)
    for line in report.lines():
        say(line)
    if out is not None:
        out.write_text(json.dumps(report.to_json(), indent=1) + "\n", "utf-8")


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option(help="Empty folder for all files; kept.")] = None,
) -> None:
    """Show the whole: five programs on this computer, two of them killed on the way."""
    from fedkit.fedvalue.service.demo import run_demo

    run_demo(keep, say)


def own_data(
    name: str, data: Path, key_file: Path, bins: int, how: str, missing: str, **options: Any
) -> tuple[Any, Any, bytes]:
    """Read a party's columns, its cells, and the key that the parties share."""
    from fedkit.fedvalue.binning import column_doubts
    from fedkit.fedvalue.data import discretise, joint_codes, read_columns
    from fedkit.fedvalue.service.parties import read_key

    held = read_columns(data, **options)
    if bins == 1:  # a mistake, at the command line
        raise ValueError(
            "bins is 1, and in one bin a continuous column tells nothing; give at least 2"
        )
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        codes = discretise(held.x, bins, how, missing, name=str(data))  # type: ignore[arg-type]
    key = read_key(key_file)
    for doubt in (*column_doubts(held.x, str(data)), *(told.message for told in doubts)):
        say(f"{name}: warning: {doubt}")
    return held, joint_codes(codes), key


def connect(url: str, token: Path, ca: Path | None, plain: bool, timeout: float) -> RemoteCounter:
    """Return the server at an address, spoken to with the token in a file."""
    from fedkit.fedvalue.service.client import RemoteCounter
    from fedkit.fedvalue.service.files import TOKEN, read_secret

    secret = read_secret(token, "token")
    if not secret.startswith(TOKEN):  # the server must not see what may be the parties' key
        raise ValueError(f"{token} holds no token, which begins with {TOKEN}; nothing was sent")
    return RemoteCounter(url, secret, ca=ca, plain=plain, timeout=timeout)


def admit(counter: RemoteCounter, name: str, role: str, wait: bool = False) -> None:
    """Have the server say whose token this is, before a secret is made or used.

    With `wait`, a server that is away is waited for.
    """
    from fedkit.fedvalue.service.client import CounterUnavailable

    told = False
    while counter.role is None:
        try:
            counter.pending(name)
        except CounterUnavailable as error:
            if not wait:
                raise
            if not told:
                say(f"{name}: {error}; trying on")
            told = True
            time.sleep(0.5)
    if counter.role != role:
        command = "value" if counter.role == "task" else "party"
        raise ValueError(
            f"by its token, {name} is a {counter.role} party: fedkit fedvalue {command}"
        )


def pair(text: str) -> tuple[int, int]:
    """Return LOW,HIGH (or one number for both)."""
    if not re.fullmatch(r" *-?\d+ *(, *-?\d+ *)?", text):
        raise ValueError(f"artificial is {text!r}; expected LOW,HIGH, such as 500,1000")
    low, _, high = text.partition(",")
    return int(low), int(high or low)


def listed(text: str | None) -> list[str] | None:
    """Return the parts of a,b,c."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
