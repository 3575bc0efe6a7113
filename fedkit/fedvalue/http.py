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
import contextlib
import hashlib
import json
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
from fedkit.fedvalue.protocol.messages import Job, JobUnknown, MessageError, Table, Upload

#: longest answer that is read, in bytes
_LONGEST = 1 << 30
#: how often a request is sent that fails; pauses double from 0.25 s up to 8 s
_TRIES = 7

_pydantic = need("pydantic", "service")
_JOB = _pydantic.TypeAdapter(Job)
#: a party's name, and the jobs that wait for it
_WAITING = _pydantic.TypeAdapter(tuple[str, list[Job]])


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
    from fastapi.security import HTTPBearer
    from starlette.concurrency import run_in_threadpool

    callers = _callers(tokens)
    known = {party for _, party in callers.values()}
    server, counting = CountingServer(), threading.Lock()
    # no pages of documentation: they would tell strangers what runs here
    app = FastAPI(title="counting server", docs_url=None, redoc_url=None, openapi_url=None)

    bearer = Depends(HTTPBearer(auto_error=False))

    def who(given: Any = bearer) -> tuple[str, str]:
        """Return role and party of a caller."""
        caller = callers.get(_hashed(given.credentials)) if given else None
        if caller is None:
            raise HTTPException(401, "this token is unknown here: Authorization: Bearer TOKEN")
        return caller

    async def body(request: Request) -> bytes:
        """Return the body; stop as soon as it is too long."""
        text = bytearray()
        async for part in request.stream():
            text += part
            if len(text) > max_bytes:
                told = f"the body is longer than the {max_bytes:.0f} bytes accepted here"
                raise HTTPException(413, told)
        return bytes(text)

    def refuse_others(caller: tuple[str, str], job: Job) -> None:
        if caller != ("task", *job.parties[:1]):
            raise HTTPException(403, f"{caller[1]} is not the task party, the first of {job.id}")

    asking = Depends(who)

    @app.post("/jobs")
    async def open_job(request: Request, caller: tuple = asking) -> dict[str, str]:
        job = _JOB.validate_json(await body(request))
        refuse_others(caller, job)
        strangers = [party for party in job.parties if party not in known]
        if strangers:
            raise HTTPException(422, f"there is no token of {', '.join(strangers)}")
        server.open(job)
        return {"job": job.id}

    @app.get("/pending")
    async def pending(caller: tuple = asking) -> Any:
        _, party = caller
        jobs = [
            replace(job, envelopes={n: e for n, e in job.envelopes.items() if n == party})
            for job in server.pending(party)
        ]
        return Response(_WAITING.dump_json((party, jobs)), media_type="application/json")

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

    @app.exception_handler(_pydantic.ValidationError)
    async def no_job(request: Request, error: ValueError) -> Any:
        told = "a job is JSON with id, parties and envelopes in base 64"
        return JSONResponse({"detail": told}, 422)

    return app


def _callers(path: Path) -> dict[bytes, tuple[str, str]]:
    """Read the file of tokens: role and party by the hash of a token."""
    callers: dict[bytes, tuple[str, str]] = {}
    lines = [words for line in path.read_text("utf-8").splitlines() if (words := line.split())]
    for words in lines:
        if len(words) != 3 or words[0] not in ("task", "data"):
            raise ValueError(f"{path} has a line of {len(words)} words, not task|data NAME TOKEN")
        callers[_hashed(words[2])] = words[0], words[1]
    if len({party for _, party in callers.values()}) < len(lines):
        raise ValueError(f"{path} has a party or a token twice; expected one line per party")
    return callers


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


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
    ca : Path, optional
        The certificate of the authority to trust, PEM; else any common one.
    """

    def __init__(self, url: str, token: str, *, ca: Path | None = None) -> None:
        self._httpx = need("httpx", extra="service")
        place = urlsplit(url)
        local = place.hostname in ("localhost", "127.0.0.1", "::1")
        if place.scheme != "https" and not (local and place.scheme == "http"):
            raise ValueError(
                f"{url!r} is no address to send a token to; expected https://, or http:// at this "
                "computer, such as http://127.0.0.1:8765"
            )
        self._client = self._httpx.Client(
            base_url=url, timeout=60.0,
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
        self._ask("POST", "/jobs", _JOB.dump_json(job))

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that wait for this party, oldest first; the token must be its own."""
        whose, jobs = self._ask("GET", "/pending", read=_WAITING.validate_json)
        if whose != party:
            raise CounterRefused(f"the token is that of {whose!r} and not of {party!r}")
        return jobs

    def submit(self, job: str, party: str, upload: Upload) -> None:
        self._ask("PUT", f"/jobs/{job}/upload", upload.to_bytes())

    def table(self, job: str) -> Table | None:
        """Return the counts, None while uploads are missing."""

        def read(body: bytes) -> Table | None:
            if body[:1] != b"{":
                return Table.from_bytes(body)
            self.missing = tuple(map(str, json.loads(body)["missing"]))
            return None

        return self._ask("GET", f"/jobs/{job}/table", read=read)

    def close(self, job: str) -> None:
        self._ask("DELETE", f"/jobs/{job}")

    def _ask(
        self, method: str, path: str, body: bytes = b"",
        read: Callable[[bytes], Any] = lambda body: None,
    ) -> Any:  # fmt: skip
        """Send a request, again where that helps, and read the answer."""
        trouble = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(min(8.0, 0.25 * 2 ** (attempt - 1)))
            try:
                status, answer = self._once(method, path, body)
            except self._httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                try:
                    return read(answer)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    told = f"the server's answer cannot be read ({error})"
                    raise CounterUnavailable(told) from error
            trouble = f"{status}: {_reason(answer)}"
            if status == 404 and path.startswith("/jobs/"):
                raise JobUnknown(f"the counting server does not know the job ({trouble})")
            if status not in (502, 503, 504):  # a proxy's, whose server is away
                raise CounterRefused(f"the counting server refuses ({trouble})")
        raise CounterUnavailable(
            f"{self._client.base_url} gave no answer {_TRIES} times: {trouble}"
        )

    def _once(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with self._client.stream(method, path, content=body or None) as answer:
            heard = bytearray()
            for part in answer.iter_bytes():
                heard += part
                if len(heard) > _LONGEST:
                    raise CounterUnavailable(f"the answer is longer than {_LONGEST} bytes")
            return answer.status_code, bytes(heard)


def _reason(body: Any) -> str:
    """Return the reason of a refusal as one short printable line."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        body = json.loads(body)["detail"]
    return repr(body)[:300]
