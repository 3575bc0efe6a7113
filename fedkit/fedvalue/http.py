"""The counting protocol over HTTP: a server, and a counter that speaks to it.

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

# no postponed annotations here: FastAPI reads those of functions that are made in a function
import base64
import contextlib
import hashlib
import ipaddress
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedkit.extras import need
from fedkit.fedvalue.protocol.counting import CountingServer, count_uploads
from fedkit.fedvalue.protocol.messages import (
    Job,
    JobUnknown,
    MessageError,
    Table,
    Upload,
)

__all__ = ["CounterRefused", "CounterUnavailable", "RemoteCounter", "create_app"]

#: longest table that is read, in bytes
_LONGEST = 1 << 30


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
