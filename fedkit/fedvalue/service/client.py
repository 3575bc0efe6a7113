"""A counting server elsewhere, used like one in the same process."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from fedkit.checks import real, whole
from fedkit.extras import need
from fedkit.fedvalue.protocol.messages import Job, Table, Upload
from fedkit.fedvalue.service.wire import clean, job_from_json, job_to_json

__all__ = ["CounterError", "CounterRefused", "CounterUnavailable", "RemoteCounter", "is_local"]

# worth another try: the server is busy, restarting, or behind a proxy that is
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
#: longest answer that is not a table, in bytes; as JSON it may take 25 times as much memory
_WORDS = 8 << 20


class CounterUnavailable(ConnectionError):
    """The counting server did not answer, or only with its own failures, at every try."""


class CounterError(ValueError):
    """The counting server answered something that makes no sense."""


class CounterRefused(ValueError):
    """The counting server refused a request, in its own words and with an HTTP status.

    401 token unknown or expired, 403 not allowed, 404 and 410 no such job, 409 in conflict with
    what is there, 413 too large, 422 malformed, 507 no room.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RemoteCounter:
    """A :class:`.messages.Counter` that speaks to :mod:`.server` over HTTP.

    Every request is idempotent, so what failed on the way is simply sent again.  Each raises
    :class:`CounterRefused`, :class:`CounterError` or :class:`CounterUnavailable`.

    Parameters
    ----------
    url, token : str
        Address of the server, and the party's token.
    ca : Path, optional
        The certificate of the authority to trust, PEM; else any common one.
    timeout : float
        Seconds to connect and to send a piece; and from then on until the whole answer is there.
    retries : int
        Further tries after a failure; waits (`sleep`) double from 0.25 s up to 10 s.
    max_bytes : int
        Longest table that is read, in bytes.
    plain : bool
        Allow ``http://`` to another computer, where the token can be read on the way.
    """

    def __init__(
        self, url: str, token: str, *, ca: Path | None = None, timeout: float = 60.0,
        retries: int = 6, max_bytes: int = 1 << 30, plain: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._httpx = need("httpx", extra="service")
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{url!r} is no address of a server; such as https://host:8765")
        if place.scheme == "http" and not plain and not is_local(place.hostname):
            raise ValueError(
                f"{url} would carry the token in the clear; use https, or allow it (--plain) on a "
                "line that is protected otherwise"
            )
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("the token is not one word of plain text; read it from its file")
        real("timeout", timeout, 0.001, 86400)
        whole("retries", retries, 0)
        self.url, self._timeout, self._retries = url.rstrip("/"), timeout, retries
        self._max_bytes, self._sleep = max_bytes, sleep
        self.role: str | None = None  # of the token, once the server has said it
        self._tables: dict[str, bytes] = {}
        #: parties that the job waited for when its table was last asked for
        self.missing: tuple[str, ...] = ()
        trusted: ssl.SSLContext | bool = place.scheme == "https"  # plain http loads no certificates
        try:
            if trusted and ca is not None:
                trusted = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise ValueError(f"the authority file {ca} cannot be used: {error}") from error
        self._client = self._httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"},
            verify=trusted,
            timeout=None,  # one limit for all of an answer: its head may come drop by drop, too
            trust_env=not is_local(place.hostname),  # no proxy on the way to ourselves
        )
        # a loop of its own, as a notebook has one already
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def __enter__(self) -> RemoteCounter:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def open(self, job: Job) -> None:
        self._ask("POST", "/jobs", json.dumps(job_to_json(job)).encode())

    def pending(self, party: str) -> list[Job]:
        """Return the jobs that wait for this party, oldest first; the token must be its own."""
        _, body = self._ask("GET", "/pending")
        with self._expecting("the list of jobs"):
            data = json.loads(body)
            whose, self.role = str(data["party"]), str(data["role"])
            jobs = [job_from_json(job) for job in data["jobs"]]
        if whose != party:
            told = f"the token is that of {clean(whose, 64)!r} and not of {party!r}"
            raise CounterRefused(403, told)
        return jobs

    def submit(self, job: str, party: str, upload: Upload) -> None:
        self._ask("PUT", f"/jobs/{job}/uploads/{quote(party, safe='')}", upload.to_bytes())

    def table(self, job: str) -> Table | None:
        """Return the counts, or None while uploads are missing; never another table than before."""
        status, body = self._ask("GET", f"/jobs/{job}/table")
        if status == 202:
            with self._expecting("the state of a job"):
                self.missing = tuple(clean(name, 64) for name in json.loads(body)["missing"])
            return None
        with self._expecting("a table"):
            table = Table.from_bytes(body)
        digest = hashlib.sha256(body).digest()
        if self._tables.setdefault(job, digest) != digest:
            raise CounterError(f"the server gave two different tables for job {job}")
        self.missing = ()
        return table

    def close(self, job: str) -> None:
        self._ask("DELETE", f"/jobs/{job}")
        self._tables.pop(job, None)

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes | bytearray]:
        """Send a request, again where that helps; return the status and the body."""
        trouble = ""
        for attempt in range(self._retries + 1):
            if attempt:
                self._sleep(min(10.0, 0.25 * 2 ** (attempt - 1)))
            try:
                status, answer = asyncio.run_coroutine_threadsafe(
                    self._once(method, path, body), self._loop
                ).result()
            except (self._httpx.TransportError, TimeoutError) as error:
                trouble = f"{type(error).__name__}: {clean(error) or 'no answer in time'}"
                if "CERTIFICATE_VERIFY_FAILED" in trouble:
                    break  # trying again will not make it trustworthy
                continue
            except self._httpx.HTTPError as error:
                raise self._garbage("HTTP", error) from error
            if status in _AGAIN:
                trouble = f"status {status}: {_sentence(answer)}"
                continue
            if 200 <= status < 300:
                return status, answer
            if 400 <= status < 600:
                raise CounterRefused(
                    status, f"the counting server refuses ({status}): {_sentence(answer)}"
                )
            raise self._garbage("an answer", f"status {status}")
        tries = f"{attempt + 1} tries" if attempt else "one try"
        raise CounterUnavailable(
            f"the counting server at {self.url} gave no answer after {tries}: {trouble}"
        )

    async def _once(self, method: str, path: str, body: bytes) -> tuple[int, bytes | bytearray]:
        async with asyncio.timeout(self._timeout) as patience:

            async def pieces() -> AsyncIterator[bytes]:
                for i in range(0, len(body), 1 << 18):
                    yield body[i : i + (1 << 18)]
                    patience.reschedule(asyncio.get_running_loop().time() + self._timeout)

            asked = self._client.stream(
                method, self.url + path, content=pieces() if body else None,
                headers={"Content-Length": str(len(body))} if body else None,
            )  # fmt: skip
            async with asked as answer:
                heard, table = bytearray(), answer.status_code == 200 and path.endswith("/table")
                most = self._max_bytes if table else min(_WORDS, self._max_bytes)
                async for part in answer.aiter_raw():
                    heard += part
                    if len(heard) > most:
                        raise self._garbage("an answer", f"it is longer than {most} bytes")
                return answer.status_code, heard

    @contextmanager
    def _expecting(self, what: str) -> Iterator[None]:
        """Refuse an answer that does not read as it should."""
        try:
            yield
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # [[[[...
            raise self._garbage(what, error) from error

    def _garbage(self, what: str, why: object) -> CounterError:
        return CounterError(
            f"the server at {self.url} answered something else than {what} ({clean(why)})"
        )


def is_local(host: str) -> bool:
    """Tell whether a host is this computer."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _sentence(body: bytes | bytearray) -> str:
    try:
        return clean(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it does not say why"
