"""The client of the counting service, and servers that are not what they should be."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from countinghouse import Fake, House, error_of, http, job, self_signed

from fedkit.fedvalue.protocol.messages import Table
from fedkit.fedvalue.service.client import (
    CounterError,
    CounterRefused,
    CounterUnavailable,
    RemoteCounter,
)
from fedkit.fedvalue.service.server import make_server

# --------------------------------------------------------------------------------------- TLS


def test_tls(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    house = House(tmp_path, cert=cert, key=key)
    try:
        with house.counter("bank", verify=cert) as bank:  # an open line would hold up the end
            assert bank.pending("bank") == []
        with pytest.raises(CounterUnavailable, match=r"one try: .*CERTIFICATE_VERIFY_FAILED"):
            house.counter("bank").pending("bank")
        with pytest.raises(ValueError, match=r"authority file .* cannot be used"):
            house.counter("bank", verify=tmp_path / "none.pem")
        plain = RemoteCounter(f"http://127.0.0.1:{house.port}", house.token("bank"), retries=0)
        with pytest.raises(CounterUnavailable):
            plain.pending("bank")
        with pytest.raises(ValueError, match="both a certificate and its key"):
            make_server(house.app, cert=cert)
        with pytest.raises(ValueError, match="cannot be used"):
            make_server(house.app, cert=key, key=cert)
    finally:
        house.stop()


# ------------------------------------------------------- a server that is not what it should be


TABLE = Table(np.zeros((1, 3), np.uint32), np.full(1, 6, np.int64), {"bank": b"s"}).to_bytes()
DEEP = b"FKV1" + (1500).to_bytes(4, "little") + b"[" * 1500
OTHER = Table(np.zeros((1, 3), np.uint32), np.full(1, 7, np.int64), {"bank": b"s"}).to_bytes()


@pytest.mark.parametrize(
    ("answers", "error", "words", "heard"),
    [
        ([b"220 mail server\r\n\r\n"], CounterUnavailable, "after 3 tries", 3),
        ([b""], CounterUnavailable, "after 3 tries", 3),
        ([http(b"<html>hello</html>")], CounterError, "something else than a table", 1),
        ([http(b"")], CounterError, "something else than a table", 1),
        ([http(TABLE[:-1])], CounterError, "cut off", 1),
        ([http(TABLE + TABLE)], CounterError, "longer than it says", 1),
        ([http(TABLE[:50], size=len(TABLE))], CounterUnavailable, "after 3 tries", 3),
        ([http(b"x" * 3000)], CounterError, "longer than 2000 bytes", 1),
        ([http(b"{}", "202 Accepted")], CounterError, "state of a job", 1),
        ([http(b"[]", "202 Accepted")], CounterError, "state of a job", 1),
        ([http(b'{"missing": [[3]]}', "202 Accepted")], CounterError, "state of a job", 1),
        ([http(DEEP)], CounterError, "something else than a table .*head of the message", 1),
        ([http(b"", "302 Found", "Location: http://evil.invalid/\r\n")], CounterError, "302", 1),
        ([http(b"no", "500 Oops")], CounterUnavailable, "3 tries: status 500: it does not", 3),
        ([http(b'{"error": "a\\u001b[31m\\nb"}', "422 No")], CounterRefused, r"a \[31m b", 1),
        ([http(b"[" * 100_000, "422 No")], CounterError, "longer than 2000", 1),
        ([http(b"no", "418 Teapot")], CounterRefused, "it does not say why", 1),
    ],
)
def test_a_server_that_answers_garbage(
    answers: list[bytes], error: type[Exception], words: str, heard: int
) -> None:
    fake = Fake(*answers)
    with fake.counter(max_bytes=2000) as counter, pytest.raises(error, match=words):
        counter.table("j1")
    assert fake.heard == heard
    fake.place.close()


def test_a_server_that_fails_and_comes_back() -> None:
    pauses: list[float] = []
    fake = Fake(b"", http(b"busy", "503 Busy"), b"HTTP/1.1 2", http(TABLE))
    with fake.counter(retries=3, sleep=pauses.append) as counter:
        table = counter.table("j1")
    assert table is not None
    assert table.counts.tolist() == [6]
    assert pauses == [0.25, 0.5, 1.0]
    fake.place.close()


def test_a_server_that_answers_twice() -> None:
    fake = Fake(http(TABLE), http(TABLE), http(OTHER))
    with fake.counter() as counter:
        for _ in range(2):
            assert counter.table("j1") is not None
        with pytest.raises(CounterError, match="two different tables for job j1"):
            counter.table("j1")
    doubled = http(TABLE).replace(b"Connection: close\r\n", b"")
    fake = Fake(doubled + doubled)
    with fake.counter() as counter:
        for _ in range(2):
            assert counter.table("j1") is not None


def test_a_server_that_answers_late_or_never() -> None:
    def drip(line: socket.socket) -> None:
        line.sendall(http(b"", size=10**6))
        for _ in range(10**4):
            line.sendall(b"x")
            time.sleep(0.05)

    def silent(line: socket.socket) -> None:
        line.settimeout(60)
        line.recv(1)

    def drip_header(line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(10**4):
            line.sendall(b"x")
            time.sleep(0.05)

    for answer in (drip, drip_header, silent):
        fake = Fake(answer)
        began = time.monotonic()
        late = pytest.raises(
            CounterUnavailable, match="after 2 tries: TimeoutError: no answer in time"
        )
        with fake.counter(retries=1, timeout=0.3) as counter, late:
            counter.table("j1")
        assert time.monotonic() - began < 60
        fake.place.close()
    nobody = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    nobody.close()
    with pytest.raises(CounterUnavailable, match="after 3 tries: ConnectError"):
        RemoteCounter(url, "t", retries=2, sleep=lambda _: None).pending("bank")


def test_a_server_that_lies_about_jobs() -> None:
    deep = b'[{"id": ' + b"[" * 900 + b"]" * 900 + b', "parties": ["a", "b"], "envelopes": {}}]'
    for jobs in (b"3", b"[3]", b'[{"id": "/", "parties": ["a", "b"], "envelopes": {}}]', deep):
        fake = Fake(http(b'{"party": "bank", "jobs": ' + jobs + b"}"))
        with fake.counter() as counter, pytest.raises(CounterError, match="something else than"):
            counter.pending("bank")
        fake.place.close()


def test_an_upload_in_brackets_is_refused_and_the_service_stays(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        house.counter("shop").open(job())
        deep = b"FKV1" + (10**5).to_bytes(4, "little") + b"[" * 10**5
        answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=deep)
        assert answer.status_code == 400
        assert "cannot be read" in error_of(answer)
        assert [j.id for j in house.counter("bank").pending("bank")] == ["j1"]
    finally:
        house.stop()


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("127.0.0.1:8765", "t", "no address"),
        ("ftp://127.0.0.1", "t", "no address"),
        ("http://", "t", "no address"),
        ("http://count.example.org", "t", "in the clear"),
        ("http://127.0.0.1", "", "one word"),
        ("http://127.0.0.1", "a b", "one word"),
        ("http://127.0.0.1", "a\nb", "one word"),
    ],
)
def test_addresses_and_tokens_that_cannot_be_right(url: str, token: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RemoteCounter(url, token)
    for timeout in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(ValueError, match=f"timeout is {timeout}; expected is a number from"):
            RemoteCounter("http://127.0.0.1", "t", timeout=timeout)
    RemoteCounter("http://count.example.org", "t", plain=True).disconnect()
