"""The counting server as an HTTP service (FastAPI, uvicorn).

======  ===============================  ==========================  =============================
method  path                             who                         answer
======  ===============================  ==========================  =============================
POST    ``/jobs``                        task party                  201 new, 200 the same again
GET     ``/pending``                     any party                   200 its jobs, oldest first
PUT     ``/jobs/{job}/uploads/{party}``  that party                  201 new, 200 the same again
GET     ``/jobs/{job}/table``            task party of the job       200 table, 202 not yet
DELETE  ``/jobs/{job}``                  task party of the job       204, also if unknown
GET     ``/health``                      anyone                      200
======  ===============================  ==========================  =============================

A refusal is ``{"error": sentence}``.  The server holds no key: IDs, cells and sealed messages mean
nothing to it.  Tokens are never logged.  Slow and greedy strangers are left to a reverse proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fedkit.extras import need
from fedkit.fedvalue.protocol.messages import MessageError
from fedkit.fedvalue.service.access import Grant, Refusal, TokenBook
from fedkit.fedvalue.service.store import JobStore, Limits
from fedkit.fedvalue.service.wire import check_name, clean, job_from_json, job_to_json

for _module in ("fastapi", "uvicorn", "h11"):
    need(_module, extra="service")

import uvicorn  # noqa: E402
from fastapi import Depends, FastAPI, Request, Response  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from starlette.concurrency import run_in_threadpool  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402
from starlette.requests import ClientDisconnect  # noqa: E402

__all__ = ["create_app", "listen", "make_server"]

log = logging.getLogger("fedkit.fedvalue")
#: connections at a time; further ones are answered 503
_CONNECTIONS = 200


def create_app(folder: Path, tokens: TokenBook, limits: Limits | None = None) -> FastAPI:
    """Make the service, whose state is a :class:`.store.JobStore` at ``app.state.store``.

    A folder that another server uses, or that holds another file of that name, is a ValueError.
    """
    limits = limits or Limits()
    store = JobStore(folder, tokens, limits)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tidier = asyncio.create_task(_tidy(store))
        yield
        tidier.cancel()
        await run_in_threadpool(store.stop)

    # no pages of documentation: they would tell strangers what runs here
    app = FastAPI(title="fedkit counting server", docs_url=None, redoc_url=None, openapi_url=None,
                  lifespan=lifespan)  # fmt: skip
    app.state.store = store
    _answer_errors(app)
    arriving: dict[str, asyncio.Timeout] = {}

    def who(request: Request) -> Grant:
        """Say who asks; nothing of the request's body has been read by then."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN")
        try:
            return tokens.whose(token.strip())
        except (OSError, ValueError) as error:
            log.error("the file of tokens cannot be used: %s", error)
            raise Refusal(503, "the server's file of tokens cannot be used") from error

    asking = Depends(who)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "upload_bytes": limits.upload_bytes}

    @app.post("/jobs")
    async def open_job(request: Request, caller: Grant = asking) -> Response:
        async with asyncio.timeout(limits.body_seconds):
            body = b"".join([chunk async for chunk in _body(request, limits.job_bytes)])
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "the job is not valid JSON") from error
        job = job_from_json(data)
        new = await run_in_threadpool(store.open, caller, job)
        return JSONResponse({"job": job.id, "new": new}, 201 if new else 200)

    @app.get("/pending")
    def pending(caller: Grant = asking) -> Response:
        jobs = [job_to_json(job) for job in store.pending(caller)]
        return JSONResponse({"party": caller.party, "role": caller.role, "jobs": jobs})

    @app.put("/jobs/{job}/uploads/{party}")
    async def upload(request: Request, job: str, party: str, caller: Grant = asking) -> Response:
        await run_in_threadpool(store.may_upload, caller, check_name("job", job), party)
        with await run_in_threadpool(store.arriving) as file:
            try:
                async with asyncio.timeout(limits.body_seconds) as patience:
                    # A party sends one body at a time, so that what is not yet checked takes
                    # little of the disk.  The newest counts: an older one that stalls is a dead
                    # connection's, and must not keep its party out.
                    older = arriving.get(party)
                    if older is not None and not older.expired():
                        older.reschedule(0.0)
                    arriving[party] = patience
                    async for chunk in _body(request, limits.upload_bytes):
                        await run_in_threadpool(file.write, chunk)
            finally:
                if arriving.get(party) is patience:
                    del arriving[party]
            new = await run_in_threadpool(store.upload, caller, job, file)
        return JSONResponse({"job": job, "new": new}, 201 if new else 200)

    @app.get("/jobs/{job}/table")
    def table(job: str, caller: Grant = asking) -> Response:
        found = store.table(caller, check_name("job", job))
        if isinstance(found, list):
            return JSONResponse({"missing": found}, 202)
        return Response(found, media_type="application/octet-stream")

    @app.delete("/jobs/{job}")
    def close(job: str, caller: Grant = asking) -> Response:
        store.close(caller, check_name("job", job))
        return Response(status_code=204)

    return app


def make_server(
    app: FastAPI, *, cert: Path | None = None, key: Path | None = None
) -> uvicorn.Server:
    """Return the uvicorn server, which runs until SIGINT or SIGTERM: ``run(sockets=[listen()])``.

    With a certificate chain and a private key, both PEM, it speaks HTTPS.
    """
    if (cert is None) != (key is None):
        raise ValueError("TLS needs both a certificate and its key: --tls-cert and --tls-key")
    config = uvicorn.Config(
        app, http="h11", ws="none", loop="asyncio", server_header=False, access_log=False,
        limit_concurrency=_CONNECTIONS, timeout_keep_alive=10,
        log_level="warning", timeout_graceful_shutdown=10,
        proxy_headers=False, ssl_certfile=cert, ssl_keyfile=key,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:  # ssl.SSLError among them
        raise ValueError(f"certificate {cert} and key {key} cannot be used: {error}") from error
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Open the port, without the delay of small packets that would slow every answer."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.create_server((host, port), family=family, backlog=128)
    place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit it
    return place


async def _body(request: Request, limit: float) -> AsyncIterator[bytes]:
    """Yield the body piece by piece; stop as soon as it is too large."""
    declared = request.headers.get("content-length", "0")
    size = int(declared) if declared.isdigit() else 0
    if size <= limit:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                break
            yield chunk
    if size > limit:
        raise Refusal(413, f"the body is larger than the {limit:.0f} bytes accepted here")


def _answer_errors(app: FastAPI) -> None:
    """Answer every error with one sentence, and tell strangers nothing about the inside."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        where = request.client.host if request.client else "?"
        asked = f"{request.method} {clean(request.url.path, 120)}"
        log.info("%s: %s refused (%d): %s", where, asked, error.status_code, error.detail)
        headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else error.headers
        return JSONResponse({"error": error.detail}, error.status_code, headers)

    @app.exception_handler(MessageError)
    async def malformed(request: Request, error: MessageError) -> Response:
        return await refused(request, HTTPException(422, str(error)))

    def say(kind: type[Exception], status: int, sentence: str) -> None:
        app.add_exception_handler(kind, lambda *_: JSONResponse({"error": sentence}, status))

    say(TimeoutError, 408, "the body took too long to arrive, or a newer one came")
    say(ClientDisconnect, 400, "the sender went away")  # nobody reads it
    say(Exception, 500, "the server failed; its log says why")


async def _tidy(store: JobStore) -> None:
    """Close old jobs even when nobody asks for anything."""
    while True:
        await asyncio.sleep(60)
        try:
            await run_in_threadpool(store.tidy)
        except Exception:
            log.exception("old jobs could not be closed")
