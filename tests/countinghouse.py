"""A counting service in a thread, and a server that answers what a test wants."""

import contextlib
import shutil
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

for _module in ("httpx", "fastapi", "uvicorn", "cryptography", "pandas", "typer"):
    pytest.importorskip(_module)

import httpx  # noqa: E402

from fedkit.fedvalue.protocol.messages import ID_BYTES, Job, Upload  # noqa: E402
from fedkit.fedvalue.service.access import TokenBook, issue_tokens  # noqa: E402
from fedkit.fedvalue.service.client import RemoteCounter  # noqa: E402
from fedkit.fedvalue.service.demo import until  # noqa: E402
from fedkit.fedvalue.service.files import read_secret  # noqa: E402
from fedkit.fedvalue.service.server import create_app, listen, make_server  # noqa: E402
from fedkit.fedvalue.service.store import Limits  # noqa: E402

PARTIES = ("shop", "bank", "telco")


class House:
    """A server in a thread, its folder, and tokens for all parties."""

    def __init__(self, folder, limits=None, **tls):
        self.folder, self.limits, self.tls = folder, limits or Limits(), tls
        self.book = folder / "tokens.db"
        self.clock = time.time()
        issue_tokens(self.book, folder, task=["shop", "rival"], data=["bank", "telco"], days=1)
        self.received = []
        self.client = httpx.Client(timeout=60, verify=False, trust_env=False)
        self.start()

    def start(self, port=0):
        self.app = create_app(
            self.folder / "kept", TokenBook(self.book, lambda: self.clock),
            limits=self.limits,
        )  # fmt: skip
        self.app.state.store._clock = lambda: self.clock
        self.server = make_server(self.app, **self.tls)
        self.server.config.loaded_app = self.spy(self.server.config.loaded_app)
        place = listen("127.0.0.1", port)
        self.port = place.getsockname()[1]
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [place]})
        self.thread.start()
        until(lambda: self.server.started, "the server")

    def spy(self, app):
        """Keep every byte that reaches the server."""

        async def wrapped(scope, receive, send):
            if scope["type"] == "http":
                self.received += [scope["raw_path"], scope["query_string"]]
                self.received += [part for header in scope["headers"] for part in header]

            async def heard():
                message = await receive()
                self.received.append(message.get("body", b""))
                return message

            await app(scope, heard, send)

        return wrapped

    def stop(self):
        self.client.close()
        self.client = httpx.Client(timeout=60, verify=False, trust_env=False)
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()

    def token(self, party):
        return read_secret(self.folder / f"{party}.token", "token")

    def counter(self, party, **options):
        return RemoteCounter(self.url, self.token(party), **{"sleep": lambda _: None} | options)

    def ask(self, party, method, path, **options):
        headers = {} if party is None else {"Authorization": f"Bearer {self.token(party)}"}
        return self.client.request(method, self.url + path, headers=headers, **options)

    def _rows(self, query):
        with self.app.state.store._kept.transaction() as db:
            return [name for (name,) in db.execute(query)]

    def jobs(self):
        """The jobs that are open."""
        return self._rows("SELECT name FROM jobs WHERE closed IS NULL")

    def uploads(self):
        """The parties of all uploads that are kept."""
        return self._rows("SELECT party FROM uploads WHERE body IS NOT NULL")


def self_signed(folder):
    """Make a certificate for this computer that vouches for itself; return it and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "server.crt", folder / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def job(name="j1", note=b"sealed", parties=PARTIES):
    return Job(name, parties, {"bank": note, "telco": b"for telco"})


def upload(party="bank", rows=6, extra=b""):
    ids = np.repeat(np.arange(rows, dtype=np.uint8), ID_BYTES).reshape(rows, ID_BYTES)
    tokens = np.arange(rows, dtype=np.uint32) % (2 + PARTIES.index(party))
    return Upload(ids, tokens, b"report of " + party.encode() + extra)


def error_of(answer):
    body = answer.json()
    assert set(body) == {"error"}
    assert body["error"]
    return str(body["error"])


class Fake:
    """A server that answers each request with the next of some bytes."""

    def __init__(self, *answers):
        self.answers, self.heard = list(answers), 0
        self.place = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.place.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                line, _ = self.place.accept()
            except OSError:
                return
            with line:
                line.recv(1 << 20)
                answer = self.answers[min(self.heard, len(self.answers) - 1)]
                self.heard += 1
                with contextlib.suppress(OSError):
                    line.sendall(answer) if isinstance(answer, bytes) else answer(line)

    def counter(self, **options):
        return RemoteCounter(
            self.url, "token", **{"retries": 2, "timeout": 60, "sleep": lambda _: None} | options
        )


def http(body, status="200 OK", extra="", size=None):
    length = len(body) if size is None else size
    head = f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{extra}\r\n"
    return head.encode() + body
