"""The counting service and what it refuses: malformed, oversized, slow, too much, odd names."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from countinghouse import House, error_of, job, upload  # noqa: E402

from fedkit.fedvalue.protocol.messages import MessageError, Table  # noqa: E402
from fedkit.fedvalue.service.access import (  # noqa: E402
    AccessDenied,
    TokenBook,
    issue_tokens,
    read_secret,
    write_secret,
)
from fedkit.fedvalue.service.client import CounterRefused, CounterUnavailable  # noqa: E402
from fedkit.fedvalue.service.demo import until  # noqa: E402
from fedkit.fedvalue.service.store import Limits  # noqa: E402
from fedkit.fedvalue.service.wire import check_job_id, check_party, job_from_json, job_to_json  # noqa: E402


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    yield found
    found.stop()


# --------------------------------------------------------------------------------- bad input


MALFORMED_JOBS = [
    (b"", 400, "JSON"),
    (b"\xff\x00", 400, "JSON"),
    (b"[" * 100_000, 400, "JSON"),
    (b"[]", 422, "fields"),
    (b'{"id": "a", "parties": ["shop"], "envelopes": {}}', 422, "at least one data party"),
    (b'{"id": "../up", "parties": ["shop", "bank"], "envelopes": {}}', 422, "name a job"),
    (b'{"id": "a", "parties": ["shop", "b/../k"], "envelopes": {}}', 422, "name a party"),
    (b'{"id": "a", "parties": ["shop", "bank", "bank"], "envelopes": {}}', 422, "twice"),
    (b'{"id": "a", "parties": ["shop", "bank"], "envelopes": {"x": ""}}', 422, "nobody else"),
    (b'{"id": "a", "parties": ["shop", "bank"], "envelopes": {"bank": "?"}}', 422, "base 64"),
    (b'{"id": 3, "parties": ["shop", "bank"], "envelopes": {}}', 422, "name a job"),
]


def test_malformed_jobs(house: House) -> None:
    for body, status, words in MALFORMED_JOBS:
        answer = house.ask("shop", "POST", "/jobs", content=body)
        assert (answer.status_code, words in error_of(answer)) == (status, True), answer.text
    assert house.jobs() == []


def test_malformed_uploads(house: House) -> None:
    house.counter("shop").open(job())
    good = upload().to_bytes()
    twice = upload()
    twice.ids[1] = twice.ids[0]
    table = Table(np.zeros((1, 3), np.uint32), np.ones(1, np.int64)).to_bytes()
    head = b'{"kind": "upload", "rows": 0, "sizes": [0, 0, 0, 0]}'
    four = good[:4] + len(head).to_bytes(4, "little") + head
    cases = [
        (b"", 400, "not a message"),
        (b"PK\x03\x04" + bytes(50), 400, "not a message"),
        (good[:-1], 400, "cut off"),
        (good + b"x", 400, "longer than it says"),
        (good[:6] + b"\xff\xff" + good[8:], 400, "head"),
        (table, 400, "kind 'upload'"),
        (good.replace(b'"rows": 6', b'"rows": 7'), 400, "do not hold"),
        (four, 400, "has 4 parts"),
        (twice.to_bytes(), 422, "twice"),
    ]
    for body, status, words in cases:
        answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=body)
        assert (answer.status_code, words in error_of(answer)) == (status, True), answer.text
    assert house.uploads() == []
    assert list((house.folder / "kept" / "incoming").iterdir()) == []
    answer = house.ask("bank", "PUT", "/jobs/..%2Fj1/uploads/bank", content=good)
    assert answer.status_code in (404, 422)
    house.counter("bank").submit("j1", "bank", upload())  # and the party may mend it


def chunks(count: int, sent: list[int]) -> Iterator[bytes]:
    for i in range(count):
        sent.append(i)
        yield bytes(8192)


def test_oversized_bodies_are_refused_while_they_arrive(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(upload_bytes=100_000, job_bytes=2_000, idle_seconds=0.5))
    try:
        house.counter("shop").open(job())
        with pytest.raises(CounterRefused, match="larger than the 100000 bytes") as refused:
            house.counter("bank").submit("j1", "bank", upload(rows=200, extra=bytes(100_000)))
        assert refused.value.status == 413
        # its size was declared: nothing of it was read
        assert not any(b"report of bank" in part for part in house.received)
        assert sum(map(len, house.received)) < 10_000
        house.received.clear()
        answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=chunks(100, []))
        assert answer.status_code == 413
        # chunked, so its size was not known: reading stopped soon after the limit
        assert sum(map(len, house.received)) < 400_000
        with pytest.raises(CounterRefused, match="larger than the 2000 bytes"):
            house.counter("shop").open(job("j2", note=bytes(3_000)))
        # a sender who never ends is cut off
        sent: list[int] = []
        endless = (chunk for chunk in chunks(10**9, sent) if not time.sleep(0.01))
        with contextlib.suppress(httpx.TransportError):
            answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=endless)
            assert answer.status_code == 413
        assert len(sent) < 10**6
        assert house.uploads() == []
        assert list((house.folder / "kept" / "incoming").iterdir()) == []
    finally:
        house.stop()


def test_a_party_sends_one_body_at_a_time(house: House) -> None:
    house.counter("shop").open(job())
    content = upload().to_bytes()
    head = (
        "PUT /jobs/j1/uploads/bank HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Length: {len(content)}\r\nAuthorization: Bearer {house.token('bank')}\r\n\r\n"
    )
    incoming = house.folder / "kept" / "incoming"
    lines = [socket.create_connection(("127.0.0.1", house.port), timeout=60) for _ in range(3)]
    for line in lines:
        line.sendall(head.encode() + content[:50])
    until(lambda: len(list(incoming.iterdir())) == 1, "the first body")
    house.counter("shop").submit("j1", "shop", upload("shop"))  # others are not held up
    assert len(list(incoming.iterdir())) == 1
    for line in lines:
        line.sendall(content[50:])
    statuses = []
    for line in lines:
        statuses.append(line.recv(12)[9:12])
        line.close()
    assert sorted(statuses) == [b"200", b"200", b"201"]
    assert list(incoming.iterdir()) == []


def test_slow_senders_are_cut_off(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(idle_seconds=0.3, body_seconds=0.3))
    try:
        house.counter("shop").open(job())
        head = f"PUT /jobs/j1/uploads/bank HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n" \
               f"Authorization: Bearer {house.token('bank')}\r\n"  # fmt: skip
        for text, expected in ((head + "\r\nab", b"408"), (head, b""), ("", b"")):
            with socket.create_connection(("127.0.0.1", house.port), timeout=60) as line:
                line.sendall(text.encode())
                assert line.recv(12)[9:12] == expected
        until(lambda: not list((house.folder / "kept" / "incoming").iterdir()), "tidying")
    finally:
        house.stop()


def test_limits_on_jobs_and_on_the_folder(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(jobs=2, folder_bytes=60_000))
    try:
        shop = house.counter("shop", retries=1)
        shop.open(job("a"))
        shop.open(job("b"))
        with pytest.raises(CounterUnavailable, match="2 jobs are open; close some"):
            shop.open(job("c"))
        with pytest.raises(CounterRefused, match="folder is full") as refused:
            house.counter("bank").submit("a", "bank", upload(extra=bytes(80_000)))
        assert refused.value.status == 507
        assert house.uploads() == []
        shop.close("a")
        shop.open(job("c"))
    finally:
        house.stop()
    with pytest.raises(ValueError, match="limit jobs is 0"):
        Limits(jobs=0)


# -------------------------------------------------------------------------- names and secrets


def test_names_that_cannot_travel() -> None:
    for name in ("a", "9f.a_B-c", "x" * 128):
        assert check_job_id(name) == name
    for name in ("", ".", "..", "-a", "a/b", "a b", "é", "x" * 129, "a\n", 3, None):
        with pytest.raises(MessageError, match="cannot name a job"):
            check_job_id(name)
    for name in ("a", "Bank of X", "Zürich 2", "x" * 64):
        assert check_party(name) == name
    for name in ("", " a", "a ", ".a", "a/b", "a\\b", "a\n", "a\x00", "x" * 65, 3, None):
        with pytest.raises(MessageError, match="cannot name a party"):
            check_party(name)
    assert job_to_json(job_from_json(job_to_json(job()))) == job_to_json(job())


def test_tokens_are_kept_as_hashes_and_files_are_private(tmp_path: Path) -> None:
    book = tmp_path / "server" / "tokens.json"
    files = issue_tokens(book, tmp_path, task=["shop"], data=["bank"], days=None)
    tokens = [read_secret(file, "token") for file in files]
    assert len(set(tokens)) == 2
    assert not any(token in book.read_text("utf-8") for token in tokens)
    if os.name != "nt":
        assert {stat.S_IMODE(file.stat().st_mode) for file in [book, *files]} == {0o600}
    found = TokenBook(book)
    assert [(found.whose(t).party, found.whose(t).role) for t in tokens] == [
        ("shop", "task"), ("bank", "data")
    ]  # fmt: skip
    for wrong in ("", tokens[0] + "x", tokens[0].upper(), "\udcff"):
        with pytest.raises(AccessDenied, match="unknown"):
            found.whose(wrong)
    with pytest.raises(ValueError, match=r"bank has a token .*--renew"):
        issue_tokens(book, tmp_path, data=["bank"])
    issue_tokens(book, tmp_path, data=["telco"])
    assert found.whose(tokens[0]).party == "shop"
    (tmp_path / "left.token").write_text("of another book")
    with pytest.raises(ValueError, match=r"left\.token is there already"):
        issue_tokens(book, tmp_path, data=["new", "left"])
    assert not (tmp_path / "new.token").exists()  # all of them or none
    for options, words in (
        ({}, "no party is named"),
        ({"task": ["a"], "data": ["a"]}, "named twice"),
        ({"data": ["../a"]}, "cannot name a party"),
        ({"data": ["new"], "days": -1}, "days is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            issue_tokens(book, tmp_path, **options)  # type: ignore[arg-type]
    for text, words in (
        ("[]", "object"),
        ("{}", "not a file of tokens"),
        (book.read_text("utf-8").replace('"role": "data"', '"role": "king"'), "damaged entry"),
    ):
        book.write_text(text, "utf-8")
        with pytest.raises(ValueError, match=words):
            TokenBook(book)


def test_secrets_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_secret(path, "first")
    with pytest.raises(ValueError, match="never overwritten"):
        write_secret(path, "second")
    assert read_secret(path, "key") == "first"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not plain text"):
        read_secret(path, "key")
    path.write_text("two words")
    with pytest.raises(ValueError, match="holds 2 words"):
        read_secret(path, "key")
    with pytest.raises(ValueError, match="cannot be read"):
        read_secret(tmp_path / "none", "key")
