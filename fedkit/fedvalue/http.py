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
is refused.  The server keeps all in memory (:class:`~.protocol.counting.CountingServer`), holds no
key, and has forgotten its jobs when it restarts; the task party then repeats the same jobs.  TLS,
slow strangers and quotas are a reverse proxy's.
"""

# no postponed annotations here: FastAPI reads those of functions that are made in a function
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
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

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

#: statuses of a proxy whose server is away
_AWAY = (502, 503, 504)
#: longest table that is read, in bytes
_LONGEST = 1 << 30
#: seconds between two looks of a party
_POLL = 0.2


@dataclass(frozen=True)
class Caller:
    """Whose token came with a request: a party, as ``task`` or ``data`` party."""

    party: str
    role: str


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
    known = {caller.party for caller in callers.values()}
    server, counting = CountingServer(), threading.Lock()
    # no pages of documentation: they would tell strangers what runs here
    app = FastAPI(title="counting server", docs_url=None, redoc_url=None, openapi_url=None)

    def who(request: Request) -> Caller:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = callers.get(_hashed(token.strip()))
        if kind.lower() != "bearer" or caller is None:
            raise HTTPException(401, "this token is unknown here: Authorization: Bearer TOKEN")
        return caller

    async def body(request: Request) -> bytes:
        """Return the body; stop as soon as it is too long."""
        text = bytearray()
        declared = request.headers.get("content-length", "")
        size = int(declared) if declared.isdigit() else 0
        if size <= max_bytes:
            async for part in request.stream():
                text += part
                size = len(text)
                if size > max_bytes:
                    break
        if size > max_bytes:
            raise HTTPException(
                413, f"the body is longer than the {max_bytes:.0f} bytes accepted here"
            )
        return bytes(text)

    def own_job(caller: Caller, name: str) -> None:
        if caller.role != "task" or server.held(name).job.parties[0] != caller.party:
            raise HTTPException(403, f"job {name} is not of {caller.party} as its task party")

    asking = Depends(who)

    @app.post("/jobs")
    async def open_job(request: Request, caller: Caller = asking) -> dict[str, str]:
        job = _job_of(await body(request))
        if caller.role != "task" or job.parties[0] != caller.party:
            raise HTTPException(
                403, f"{caller.party} is not the job's task party, which comes first"
            )
        strangers = [party for party in job.parties if party not in known]
        if strangers:
            raise HTTPException(422, f"there is no token of {', '.join(strangers)}")
        server.open(job)
        return {"job": job.id}

    @app.get("/pending")
    async def pending(caller: Caller = asking) -> dict[str, Any]:
        jobs = [
            _job_text(replace(job, envelopes={
                party: text for party, text in job.envelopes.items() if party == caller.party
            }))
            for job in server.pending(caller.party)
        ]  # fmt: skip
        return {"party": caller.party, "jobs": jobs}

    @app.put("/jobs/{job}/upload")
    async def upload(request: Request, job: str, caller: Caller = asking) -> dict[str, str]:
        if caller.party not in server.held(job).job.parties:
            raise HTTPException(403, f"{caller.party} has no part in job {job}")
        text = await body(request)
        await run_in_threadpool(_submit, server, job, caller.party, text)
        return {"job": job}

    @app.get("/jobs/{job}/table")
    def table(job: str, caller: Caller = asking) -> Any:
        own_job(caller, job)
        with counting:  # once, and one at a time
            found = server.table(job)
            missing = server.held(job).missing()
        if found is None:
            return JSONResponse({"missing": missing}, 202)
        return Response(found.to_bytes(), media_type="application/octet-stream")

    @app.delete("/jobs/{job}")
    async def close(job: str, caller: Caller = asking) -> Any:
        with contextlib.suppress(JobUnknown):
            own_job(caller, job)
            server.close(job)
        return Response(status_code=204)

    @app.exception_handler(MessageError)
    async def refused(request: Request, error: MessageError) -> Any:
        status = 404 if isinstance(error, JobUnknown) else 422
        return JSONResponse({"detail": str(error)}, status)

    return app


def _submit(server: Any, job: str, party: str, text: bytes) -> None:
    upload = Upload.from_bytes(text)
    count_uploads([upload], (party,))  # a MessageError if IDs come twice
    server.submit(job, party, upload)


def _callers(path: Path) -> dict[bytes, Caller]:
    """Read the file of tokens, which are kept as hashes."""
    callers: dict[bytes, Caller] = {}
    for line in path.read_text("utf-8").splitlines():
        if not line.strip():
            continue
        words = line.split()
        if len(words) != 3 or words[0] not in ("task", "data"):
            raise ValueError(
                f"{path} has a line of {len(words)} words; expected lines: task NAME TOKEN, or "
                "data NAME TOKEN"
            )
        role, party, token = words
        if _hashed(token) in callers or party in {known.party for known in callers.values()}:
            raise ValueError(f"{path} has {party} or its token twice; expected one line per party")
        callers[_hashed(token)] = Caller(party, role)
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
    """The counting server refuses a request; `status` is that of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


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
    plain : bool
        Allow ``http://`` to another computer, where the token can be read on the way.
    ca : Path, optional
        The certificate of the authority to trust, PEM; else any common one.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float = 60.0, tries: int = 7, plain: bool = False,
        ca: Path | None = None,
    ) -> None:  # fmt: skip
        self._httpx = need("httpx", extra="service")
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{url!r} is no address of a server; such as https://host:8765")
        if place.scheme == "http" and not plain and not _is_local(place.hostname):
            raise ValueError(
                f"{url} would carry the token in the clear; use https, or allow it (--plain) on a "
                "line that is protected otherwise"
            )
        self._tries = tries
        trusted = True if ca is None else ssl.create_default_context(cafile=ca)
        self._client = self._httpx.Client(
            base_url=url, timeout=timeout, verify=trusted,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            trust_env=not _is_local(place.hostname),  # no proxy on the way to ourselves
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
        with self._readable():
            answer = json.loads(self._ask("GET", "/pending")[1])
            jobs = [_job_of(job) for job in answer["jobs"]]
            whose = str(answer["party"])
        if whose != party:
            raise CounterRefused(403, f"the token is that of {whose!r} and not of {party!r}")
        return jobs

    def submit(self, job: str, party: str, upload: Upload) -> None:
        self._ask("PUT", f"/jobs/{job}/upload", upload.to_bytes())

    def table(self, job: str) -> Table | None:
        """Return the counts, None while uploads are missing."""
        status, body = self._ask("GET", f"/jobs/{job}/table")
        with self._readable():
            if status == 202:
                self.missing = tuple(map(str, json.loads(body)["missing"]))
                return None
            return Table.from_bytes(body)

    def close(self, job: str) -> None:
        self._ask("DELETE", f"/jobs/{job}")

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request, again where that helps; return the status and the body."""
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
                return status, answer
            trouble = f"{status}: {_sentence(answer)}"
            if status == 404 and path.startswith("/jobs/"):
                raise JobUnknown(f"the counting server does not know the job ({trouble})")
            if status not in _AWAY:
                raise CounterRefused(status, f"the counting server refuses ({trouble})")
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

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Refuse an answer that does not read as it should."""
        try:
            yield
        except JobUnknown:
            raise
        except (MessageError, json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
            raise CounterUnavailable(f"the server's answer cannot be read ({error})") from error


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
    away = False
    while True:
        try:
            waiting = counter.pending(party.name)
            away = False
        except CounterUnavailable as error:
            if once:
                raise
            if not away:
                say(f"{error}; trying on")
            waiting, away = [], True
        for job in waiting:
            if job.id in left_alone:
                continue
            try:
                _agree(party, job, max_rows)
                counter.submit(job.id, party.name, party.answer(job))
                say(f"job {job.id} is answered")
            except JobUnknown:
                say(f"job {job.id} is gone")
            except CounterUnavailable as error:
                say(f"{error}; trying on")
            except (ValueError, MemoryError) as error:  # refused, not opened, odd
                left_alone.add(job.id)
                say(f"job {job.id} is not answered: {error}")
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
Secret = Annotated[Path | None, typer.Option(help="Its own secret; default NAME.secret.")]
Plain = Annotated[bool, typer.Option("--plain", help="Allow http beyond this computer.")]
Authority = Annotated[Path | None, typer.Option(help="Certificate of the authority, PEM.")]
Bins = Annotated[int, typer.Option(help="Bins of a continuous column.", min=2)]
How = Annotated[str, typer.Option(help="Bins of equal 'width', or by 'quantile'.")]
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
    secret_file: Secret = None, plain: Plain = False, ca: Authority = None,
    once: Annotated[bool, typer.Option("--once", help="Answer what waits now, and stop.")] = False,
    max_rows: Annotated[int, typer.Option(help="Largest upload, in encrypted IDs.")] = 50_000_000,
) -> None:  # fmt: skip
    """Answer jobs as a data party, until stopped."""
    from fedkit.fedvalue.columns import cells_doubt
    from fedkit.fedvalue.protocol.crypto import derive
    from fedkit.fedvalue.protocol.parties import DataParty

    held, cells, key = _own_data(name, data, key_file, id_column, columns, None, bins, how)
    if doubt := cells_doubt(cells, name):
        typer.echo(f"{name}: warning: {doubt}")
    with RemoteCounter(url, _token(token_file, key), plain=plain, ca=ca) as counter:
        secret = own_secret(secret_file or data.with_name(f"{name}.secret"))
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
    columns: Names = None, bins: Bins = 5, how: How = "width", secret_file: Secret = None,
    plain: Plain = False, ca: Authority = None,
    correction: Annotated[
        str,
        typer.Option(help="Beside the plug-in: 'permutation', 'miller-madow', or 'plugin': none."),
    ] = "permutation",
    test: Annotated[
        bool | None, typer.Option("--test/--no-test", help="P-values; default: if quickly made.")
    ] = None,
    iterations: Annotated[int, typer.Option(help="Redundant computations (tau).", min=1)] = 2,
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
    from fedkit.fedvalue.columns import cells_doubt, label_codes, label_doubt
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
    others = [part.strip() for part in parties.split(",") if part.strip()]
    held, cells, key = _own_data(name, data, key_file, id_column, columns, label, bins, how)
    labels = label_codes(held.y, f"the label {label!r}")
    for doubt in (label_doubt(labels, f"the label {label!r}"), cells_doubt(cells)):
        if doubt:
            typer.echo(f"{name}: warning: {doubt}")
    options: dict[str, Any] = {
        "iterations": iterations, "duplications": (2, 3), "blocks": blocks,
        "artificial": safe_artificial(len(held.ids), blocks),
    }  # fmt: skip
    place = secret_file or data.with_name(f"{name}.secret")
    with RemoteCounter(url, _token(token_file, key), plain=plain, ca=ca) as counter:
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
        out.write_text(json.dumps(report.to_json(), indent=1) + "\n", "utf-8")


def _own_data(
    name: str, data: Path, key_file: Path, id_column: str, columns: str | None,
    label: str | None, bins: int, how: str,
) -> tuple[Any, Any, bytes]:  # fmt: skip
    """Read a party's columns, the cell of each row, and the key that the parties share."""
    from fedkit.columnfiles import read_columns
    from fedkit.fedvalue.columns import discretise, joint_codes

    chosen = None if columns is None else [part.strip() for part in columns.split(",")]
    held = read_columns(data, id_column=id_column, label=label, columns=chosen)
    key = read_key(key_file)
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        codes = discretise(held.x, bins, how, name=str(data))  # type: ignore[arg-type]
    for doubt in doubts:
        typer.echo(f"{name}: warning: {doubt.message}")
    return held, joint_codes(codes), key


def _token(path: Path, key: bytes) -> str:
    words = path.read_text("ascii", "replace").split()
    if len(words) != 1 or words[0] == key.hex():
        raise ValueError(f"{path} is not the file of one token, or it holds the parties' key")
    return words[0]
