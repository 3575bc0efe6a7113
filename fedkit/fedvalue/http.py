"""The counting protocol between organisations: a counting server over HTTP, and its commands.

======  ========================  ======================  =======================================
method  path                      who                     answer
======  ========================  ======================  =======================================
POST    ``/jobs``                 task party              200
GET     ``/pending``              any party               200 its name and its jobs, oldest first
PUT     ``/jobs/{job}/upload``    a party of the job      200
GET     ``/jobs/{job}/table``     task party of the job   200 the table, 202 who is missing
DELETE  ``/jobs/{job}``           task party of the job   204, also if unknown
======  ========================  ======================  =======================================

Every request may be sent again: the same content changes nothing, other content under the same name
is refused.  The server keeps all in memory, holds no key, and has forgotten its jobs when it
restarts; the task party then repeats the same jobs.  TLS, slow strangers and quotas are a reverse
proxy's.
"""

# no postponed annotations here: FastAPI reads those of functions that are made in a function.  What
# a command alone needs it imports itself: the server starts without torch.
import base64
import contextlib
import hashlib
import ipaddress
import json
import os
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from fedkit.atomic import write_text
from fedkit.extras import need
from fedkit.fedvalue.protocol.counting import CountingServer, count_uploads
from fedkit.fedvalue.protocol.messages import (
    KEY_BYTES,
    PADDING,
    Counter,
    Job,
    JobUnknown,
    MessageError,
    Table,
    Upload,
)

__all__ = [
    "CounterRefused", "CounterUnavailable", "RemoteCounter", "answer_jobs", "app", "create_app",
    "own_secret", "read_key",
]  # fmt: skip

#: longest table that is read, in bytes
_LONGEST = 1 << 30
#: seconds between two looks of a party
_POLL = 0.2


def create_app(tokens: Path, max_bytes: float = 512 << 20) -> Any:
    """Return the counting server, a FastAPI application.

    Parameters
    ----------
    tokens : Path
        Text file with one line per party, ``task NAME TOKEN`` or ``data NAME TOKEN``.
    max_bytes : float
        Longest body of a request.

    Raises
    ------
    ValueError
        If the file has another line, or a party or a token twice.
    """
    need("fastapi", "service")
    from fastapi import Depends, FastAPI, HTTPException, Request, Response
    from fastapi.responses import JSONResponse
    from starlette.concurrency import run_in_threadpool

    callers = _callers(tokens)
    known = {party for _, party in callers.values()}
    server, counting = CountingServer(), threading.Lock()
    # no pages of documentation: they would tell strangers what runs here
    app = FastAPI(title="counting server", docs_url=None, redoc_url=None, openapi_url=None)

    def who(request: Request) -> tuple[str, str]:
        """Return role and party of a caller."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = callers.get(_hashed(token.strip()))
        if kind.lower() != "bearer" or caller is None:
            raise HTTPException(401, "this token is unknown here: Authorization: Bearer TOKEN")
        return caller

    async def body(request: Request) -> bytes:
        """Return the body; stop as soon as it is too long."""
        text = bytearray()
        size = int(request.headers.get("content-length", 0))  # a whole number: uvicorn looks
        if size <= max_bytes:
            async for part in request.stream():
                text += part
                size = len(text)
                if size > max_bytes:
                    break
        if size > max_bytes:
            told = f"the body is longer than the {max_bytes:.0f} bytes accepted here"
            raise HTTPException(413, told)
        return bytes(text)

    def refuse_others(caller: tuple[str, str], job: Job) -> None:
        if caller != ("task", job.parties[0]):
            raise HTTPException(403, f"{caller[1]} is not the task party, the first of {job.id}")

    asking = Depends(who)

    @app.post("/jobs")
    async def open_job(request: Request, caller: tuple = asking) -> dict[str, str]:
        job = _job_of(await body(request))
        refuse_others(caller, job)
        strangers = [party for party in job.parties if party not in known]
        if strangers:
            raise HTTPException(422, f"there is no token of {', '.join(strangers)}")
        server.open(job)
        return {"job": job.id}

    @app.get("/pending")
    async def pending(caller: tuple = asking) -> dict[str, Any]:
        _, party = caller
        jobs = []
        for job in server.pending(party):
            own = {name: text for name, text in job.envelopes.items() if name == party}
            jobs.append(_job_text(replace(job, envelopes=own)))
        return {"party": party, "jobs": jobs}

    @app.put("/jobs/{job}/upload")
    async def upload(request: Request, job: str, caller: tuple = asking) -> dict[str, str]:
        _, party = caller
        if party not in server.held(job).job.parties:
            raise HTTPException(403, f"{party} has no part in job {job}")
        text = await body(request)

        def submit() -> None:
            read = Upload.from_bytes(text)
            count_uploads([read], (party,))  # a MessageError if IDs come twice
            server.submit(job, party, read)

        await run_in_threadpool(submit)
        return {"job": job}

    @app.get("/jobs/{job}/table")
    def table(job: str, caller: tuple = asking) -> Any:
        refuse_others(caller, server.held(job).job)
        with counting:  # once, and one at a time
            found = server.table(job)
            missing = server.held(job).missing()
        if found is None:
            return JSONResponse({"missing": missing}, 202)
        return Response(found.to_bytes(), media_type="application/octet-stream")

    @app.delete("/jobs/{job}")
    async def close(job: str, caller: tuple = asking) -> Any:
        with contextlib.suppress(JobUnknown):
            refuse_others(caller, server.held(job).job)
            server.close(job)
        return Response(status_code=204)

    @app.exception_handler(MessageError)
    async def refused(request: Request, error: MessageError) -> Any:
        status = 404 if isinstance(error, JobUnknown) else 422
        return JSONResponse({"detail": str(error)}, status)

    return app


def _callers(path: Path) -> dict[bytes, tuple[str, str]]:
    """Read the file of tokens: role and party by the hash of a token."""
    callers: dict[bytes, tuple[str, str]] = {}
    for words in map(str.split, path.read_text("utf-8").splitlines()):
        if not words:
            continue
        if len(words) != 3 or words[0] not in ("task", "data"):
            raise ValueError(
                f"{path} has a line of {len(words)} words; expected lines: task NAME TOKEN, or "
                "data NAME TOKEN"
            )
        role, party, token = words
        if _hashed(token) in callers or party in [name for _, name in callers.values()]:
            raise ValueError(f"{path} has {party} or its token twice; expected one line per party")
        callers[_hashed(token)] = role, party
    return callers


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _job_text(job: Job) -> dict[str, Any]:
    sealed = {name: base64.b64encode(text).decode() for name, text in job.envelopes.items()}
    return {"id": job.id, "parties": list(job.parties), "envelopes": sealed}


def _job_of(text: Any) -> Job:
    """Read a job from JSON, as bytes or parsed; its name can stand in an address."""
    try:
        data = json.loads(text) if isinstance(text, bytes) else text
        envelopes = {n: base64.b64decode(e, validate=True) for n, e in data["envelopes"].items()}
        name, parties = data["id"], tuple(data["parties"])
        known = len(parties) > 1 and all(isinstance(party, str) for party in parties)
        if known and set(envelopes) <= set(parties) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            return Job(name, parties, envelopes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MessageError("a job is JSON with id, parties and envelopes in base 64") from error
    raise MessageError("a job has a plain name, two parties or more, and envelopes for them alone")


class CounterRefused(ValueError):
    """The counting server refuses a request."""


class CounterUnavailable(ConnectionError):
    """The counting server gives no answer, or none that can be read."""


class RemoteCounter:
    """A :class:`.messages.Counter` that speaks to :func:`create_app` over HTTP.

    What failed on the way is sent again.  A request raises :class:`CounterRefused`,
    :class:`CounterUnavailable`, or :class:`.messages.JobUnknown` where the server has restarted.

    Parameters
    ----------
    url, token : str
        Address of the server, and the party's token.
    timeout : float
        Seconds to connect, and between two pieces of what is sent or received.
    tries : int
        How often a request is sent that fails; pauses double from 0.25 s up to 8 s.
    ca : Path, optional
        The certificate of the authority to trust, PEM; else any common one.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float = 60.0, tries: int = 7,
        ca: Path | None = None,
    ) -> None:  # fmt: skip
        self._httpx = need("httpx", extra="service")
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{url!r} is no address of a server; such as https://host:8765")
        local = _is_local(place.hostname)
        if place.scheme == "http" and not local:
            raise ValueError(f"{url} would carry the token in the clear; use https")
        self._tries = tries
        self._client = self._httpx.Client(
            base_url=url, timeout=timeout,
            verify=True if ca is None else ssl.create_default_context(cafile=ca),
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            trust_env=not local,  # no proxy on the way to ourselves
        )  # fmt: skip
        #: parties that the job waited for when its table was last asked for
        self.missing: tuple[str, ...] = ()

    def __enter__(self) -> "RemoteCounter":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def open(self, job: Job) -> None:
        self._ask("POST", "/jobs", json.dumps(_job_text(job)).encode())

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that wait for this party, oldest first; the token must be its own."""

        def read(status: int, body: bytes) -> tuple[str, list[Job]]:
            answer = json.loads(body)
            return str(answer["party"]), [_job_of(job) for job in answer["jobs"]]

        whose, jobs = self._ask("GET", "/pending", read=read)
        if whose != party:
            raise CounterRefused(f"the token is that of {whose!r} and not of {party!r}")
        return jobs

    def submit(self, job: str, party: str, upload: Upload) -> None:
        self._ask("PUT", f"/jobs/{job}/upload", upload.to_bytes())

    def table(self, job: str) -> Table | None:
        """Return the counts, None while uploads are missing."""

        def read(status: int, body: bytes) -> Table | None:
            if status != 202:
                return Table.from_bytes(body)
            self.missing = tuple(map(str, json.loads(body)["missing"]))
            return None

        return self._ask("GET", f"/jobs/{job}/table", read=read)

    def close(self, job: str) -> None:
        self._ask("DELETE", f"/jobs/{job}")

    def _ask(
        self, method: str, path: str, body: bytes = b"",
        read: Callable[[int, bytes], Any] = lambda status, body: None,
    ) -> Any:  # fmt: skip
        """Send a request, again where that helps, and read the answer."""
        trouble = ""
        for attempt in range(self._tries):
            if attempt:
                time.sleep(min(8.0, 0.25 * 2 ** (attempt - 1)))
            try:
                status, answer = self._once(method, path, body)
            except self._httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                try:
                    return read(status, answer)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    told = f"the server's answer cannot be read ({error})"
                    raise CounterUnavailable(told) from error
            trouble = f"{status}: {_sentence(answer)}"
            if status == 404 and path.startswith("/jobs/"):
                raise JobUnknown(f"the counting server does not know the job ({trouble})")
            if status not in (502, 503, 504):  # a proxy's, whose server is away
                raise CounterRefused(f"the counting server refuses ({trouble})")
        raise CounterUnavailable(
            f"the counting server at {self._client.base_url} gave no answer in {self._tries} "
            f"tries: {trouble}"
        )

    def _once(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with self._client.stream(method, path, content=body or None) as answer:
            heard = bytearray()
            for part in answer.iter_raw():
                heard += part
                if len(heard) > _LONGEST:
                    raise CounterUnavailable(f"the answer is longer than {_LONGEST} bytes")
            return answer.status_code, bytes(heard)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _sentence(body: bytes) -> str:
    """Return the reason of a refusal as one short printable line."""
    try:
        text = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it does not say why"
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def answer_jobs(
    party: Any, counter: Counter, *, max_rows: int = 50_000_000, once: bool = False,
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Answer the jobs that wait for a data party, until stopped.

    A job that the party does not understand or agree to is reported and left alone; a server that
    is away is waited for.  A job that a restarted server asks for again gets the same answer, byte
    for byte.

    Parameters
    ----------
    party : DataParty
        Who answers.
    max_rows : int
        Largest upload that it agrees to, in encrypted IDs.
    once : bool
        Answer what waits now and stop; a server that is away is then an error.

    Raises
    ------
    CounterRefused
        If the server does not let this party in.
    """
    left_alone: set[str] = set()
    while True:
        try:
            for job in counter.pending(party.name):
                if job.id not in left_alone:
                    _answer(party, counter, job, max_rows, say, left_alone)
        except CounterUnavailable as error:
            if once:
                raise
            say(f"{error}; trying on")
        if once:
            return
        time.sleep(_POLL)


def _answer(
    party: Any, counter: Counter, job: Job, max_rows: int, say: Callable[[str], None],
    left_alone: set[str],
) -> None:  # fmt: skip
    try:
        _agree(party, job, max_rows)
        counter.submit(job.id, party.name, party.answer(job))
        say(f"job {job.id} is answered")
    except JobUnknown:
        say(f"job {job.id} is gone")
    except (ValueError, MemoryError) as error:  # refused, not opened, odd
        left_alone.add(job.id)
        say(f"job {job.id} is not answered: {error}")


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


# ------------------------------------------------------------------- the commands

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
How = Annotated[
    Literal["width", "quantile"], typer.Option(help="Bins of equal 'width', or by 'quantile'.")
]
_HERE = "http://127.0.0.1:8765"


@app.command()
def serve(
    tokens: Annotated[Path, typer.Option(help="Lines: task NAME TOKEN, or data NAME TOKEN.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8765,
    max_upload_mb: Annotated[float, typer.Option(help="Largest upload.", min=0.001)] = 512.0,
) -> None:
    """Run the counting server: at this computer alone, unless --host says otherwise."""
    uvicorn = need("uvicorn", "service")
    made = create_app(tokens, max_upload_mb * 2**20)
    config = uvicorn.Config(made, ws="none", access_log=False, log_level="warning")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as place:
        typer.echo(f"counting server at {host}, port {place.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[place])


@app.command()
def party(
    name: Name, data: Data, key_file: KeyFile, token_file: TokenFile, url: Url = _HERE,
    id_column: IdColumn = "id", columns: Names = None, bins: Bins = 5, how: How = "width",
    ca: Authority = None,
    once: Annotated[bool, typer.Option("--once", help="Answer what waits now, and stop.")] = False,
    max_rows: Annotated[int, typer.Option(help="Largest upload, in encrypted IDs.")] = 50_000_000,
) -> None:  # fmt: skip
    """Answer jobs as a data party, until stopped."""
    from fedkit.fedvalue.columns import warn_of_cells
    from fedkit.fedvalue.protocol.crypto import derive
    from fedkit.fedvalue.protocol.parties import DataParty

    held, cells = _own_data(data, id_column, _listed(columns), None, bins, how)
    warn_of_cells(cells, name)
    key = read_key(key_file)
    with RemoteCounter(url, _token(token_file, key), ca=ca) as counter:
        secret = own_secret(data.with_name(f"{name}.secret"))
        # other data, other random numbers: an old job must not be answered with the same ones
        secret = derive(secret, name, "\n".join(held.ids), cells.astype("<i8").tobytes())
        who = DataParty(name, held.ids, cells, key, secret=secret)
        typer.echo(f"{name}: {len(held.ids)} rows, {len(held.x.columns)} features; waiting")
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
    columns: Names = None, bins: Bins = 5, how: How = "width", ca: Authority = None,
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
    import numpy as np

    from fedkit.checks import choice
    from fedkit.fedvalue.columns import label_codes, warn_of_cells, warn_of_label
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
    held, cells = _own_data(data, id_column, _listed(columns), label, bins, how)
    warn_of_cells(cells)
    labels = label_codes(held.y, f"the label {label!r}")
    warn_of_label(labels, f"the label {label!r}")
    key, others = read_key(key_file), _listed(parties) or []
    options: dict[str, Any] = {
        "duplications": (2, 3), "blocks": blocks,
        "artificial": safe_artificial(len(held.ids), blocks),
    }  # fmt: skip
    place = data.with_name(f"{name}.secret")
    with RemoteCounter(url, _token(token_file, key), ca=ca) as counter:
        counter.pending(name)  # refused before a secret is made
        rows = np.stack([cells, labels]).astype("<i8").tobytes()
        about = [name, *others, repr(options), "\n".join(held.ids), rows]
        secret = derive(own_secret(place), *about)
        task = TaskParty(name, held.ids, cells, labels, key, others, secret=secret, **options)
        typer.echo(f"{name}: {len(held.ids)} rows, label {label}; data parties: {parties}")
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


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [part.strip() for part in names.split(",") if part.strip()]


def _own_data(
    data: Path,
    id_column: str,
    columns: list[str] | None,
    label: str | None,
    bins: int,
    how: Literal["width", "quantile"],
) -> tuple[Any, Any]:
    """Read a party's columns, and the cell of each row."""
    from fedkit.columnfiles import read_columns
    from fedkit.fedvalue.columns import discretise, joint_codes

    held = read_columns(data, id_column=id_column, label=label, columns=columns)
    return held, joint_codes(discretise(held.x, bins, how, name=str(data)))


def _token(path: Path, key: bytes) -> str:
    words = path.read_text("ascii", "replace").split()
    if len(words) != 1 or words[0] == key.hex():
        raise ValueError(f"{path} is not the file of one token, or it holds the parties' key")
    return words[0]
