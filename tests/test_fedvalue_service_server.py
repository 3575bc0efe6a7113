"""The counting service over HTTP: what it does for parties, strangers, and after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from countinghouse import PARTIES, House, error_of, job, self_signed, upload  # noqa: E402

from fedkit.fedvalue.protocol.counting import CountingServer  # noqa: E402
from fedkit.fedvalue.protocol.messages import MessageError, Table  # noqa: E402
from fedkit.fedvalue.service import store  # noqa: E402
from fedkit.fedvalue.service.access import AccessDenied, TokenBook, issue_tokens  # noqa: E402
from fedkit.fedvalue.service.client import (  # noqa: E402
    CounterRefused,
    CounterUnavailable,
)
from fedkit.fedvalue.service.demo import until  # noqa: E402
from fedkit.fedvalue.service.files import Database, read_secret  # noqa: E402
from fedkit.fedvalue.service.server import create_app, listen  # noqa: E402
from fedkit.fedvalue.service.store import Limits  # noqa: E402
from fedkit.fedvalue.service.wire import (  # noqa: E402
    check_job_id,
    check_party,
    job_from_json,
    job_to_json,
)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    yield found
    found.stop()


# ------------------------------------------------------------------- the protocol's operations


def test_a_job_from_opening_to_closing_gives_what_a_counter_here_gives(house: House) -> None:
    remote = {party: house.counter(party) for party in PARTIES}
    here = CountingServer()
    for counter in (remote["shop"], here):
        counter.open(job())
        counter.open(job())  # again: nothing changes
    bank = remote["bank"].pending("bank")
    assert [(j.id, j.parties, j.envelopes) for j in bank] == [("j1", PARTIES, {"bank": b"sealed"})]
    for i, party in enumerate(PARTIES):
        assert remote["shop"].table("j1") is None
        assert remote["shop"].missing("j1") == PARTIES[i:]
        for _ in range(2):
            remote[party].submit("j1", party, upload(party))
            here.submit("j1", party, upload(party))
        assert remote[party].pending(party) == []
    mine, theirs = here.table("j1"), remote["shop"].table("j1")
    assert mine is not None
    assert theirs is not None
    assert theirs.to_bytes() == mine.to_bytes()
    assert int(theirs.counts.sum()) == 6
    assert remote["shop"].missing("j1") == ()
    assert house.uploads() == list(PARTIES)
    remote["shop"].close("j1")
    remote["shop"].close("j1")
    remote["shop"].close("never-opened")
    assert house.jobs() == []
    with pytest.raises(CounterRefused, match="closed") as refused:
        remote["shop"].table("j1")
    assert refused.value.status == 410


def test_statuses_tell_new_from_again(house: House) -> None:
    body = json.dumps(job_to_json(job()))
    assert [house.ask("shop", "POST", "/jobs", content=body).status_code for _ in "ab"] == [
        201,
        200,
    ]
    path, content = "/jobs/j1/uploads/bank", upload().to_bytes()
    assert [house.ask("bank", "PUT", path, content=content).status_code for _ in "ab"] == [201, 200]
    answer = house.ask("shop", "GET", "/jobs/j1/table")
    assert (answer.status_code, answer.json()) == (202, {"missing": ["shop", "telco"]})
    health = httpx.get(house.url + "/health")
    assert health.json() == {"status": "ok", "upload_bytes": Limits().upload_bytes}
    assert error_of(httpx.get(house.url + "/docs")) == "Not Found"


def test_pending_jobs_come_oldest_first(house: House) -> None:
    shop = house.counter("shop")
    for name in ("z", "a", "m"):
        shop.open(job(name))
        house.clock += 1
    for _ in range(2):
        assert [j.id for j in house.counter("telco").pending("telco")] == ["z", "a", "m"]
        house.stop()
        house.start()


def test_other_content_under_the_same_name_is_refused(house: House) -> None:
    shop, bank = house.counter("shop"), house.counter("bank")
    shop.open(job())
    with pytest.raises(CounterRefused, match="other content") as refused:
        shop.open(job(note=b"changed"))
    assert refused.value.status == 409
    bank.submit("j1", "bank", upload())
    with pytest.raises(CounterRefused, match="another upload for job j1") as refused:
        bank.submit("j1", "bank", upload(extra=b"!"))
    assert refused.value.status == 409
    assert len(house.uploads()) == 1


def test_replayed_and_stale_messages_are_refused(house: House) -> None:
    shop, bank = house.counter("shop"), house.counter("bank")
    shop.open(job())
    bank.submit("j1", "bank", upload())
    shop.close("j1")
    with pytest.raises(CounterRefused, match="j1 is closed") as refused:
        bank.submit("j1", "bank", upload())  # stale
    assert refused.value.status == 410
    with pytest.raises(CounterRefused, match="cannot be used again") as refused:
        shop.open(job())  # an old request, heard again, does not bring the job back
    assert refused.value.status == 409
    with pytest.raises(CounterRefused, match="unknown") as refused:
        bank.submit("j2", "bank", upload())
    assert refused.value.status == 404
    assert house.uploads() == []


# --------------------------------------------------------------------------- who may do what


def test_strangers_learn_nothing(house: House) -> None:
    house.counter("shop").open(job())
    token = house.token("bank")
    for said in (None, "Bearer fkv_wrong", f"Basic {token}", f"Bearer {token[:-1]}"):
        headers = {} if said is None else {"Authorization": said}
        for method, path in (("POST", "/jobs"), ("GET", "/pending"), ("GET", "/jobs/j1/table"),
                             ("PUT", "/jobs/j1/uploads/bank"), ("DELETE", "/jobs/j1")):  # fmt: skip
            answer = house.client.request(method, house.url + path, headers=headers, content=b"{}"
                                   if method in ("POST", "PUT") else None)  # fmt: skip
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "token" in error_of(answer)
    assert len(house.jobs()) == 1


def test_every_party_does_its_own_part_only(house: House) -> None:
    shop, bank, rival = (house.counter(p) for p in ("shop", "bank", "rival"))
    shop.open(job())
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: bank.open(job("j2")), "data party"),
        (lambda: bank.table("j1"), "data party"),
        (lambda: bank.close("j1"), "data party"),
        (lambda: bank.submit("j1", "telco", upload("telco")), "only as yourself"),
        (lambda: shop.submit("j1", "bank", upload()), "only as yourself"),
        (lambda: rival.open(job("j2")), "comes first"),
        (lambda: rival.table("j1"), "another task party"),
        (lambda: rival.close("j1"), "another task party"),
        (lambda: rival.submit("j1", "rival", upload()), "takes no part"),
    ]
    for action, words in cases:
        with pytest.raises(CounterRefused, match=words) as refused:
            action()
        assert refused.value.status == 403
    assert len(house.jobs()) == 1
    with pytest.raises(CounterRefused, match="no token was ever made for pharmacy"):
        shop.open(job("j2", parties=("shop", "bank", "telco", "pharmacy")))
    with pytest.raises(CounterRefused, match="is that of 'bank' and not of 'telco'"):
        bank.pending("telco")


def test_tokens_expire_and_are_renewed_without_a_restart(house: House) -> None:
    bank = house.counter("bank")
    assert bank.pending("bank") == []
    house.clock += 86400 + 5
    with pytest.raises(CounterRefused, match=r"the token of bank expired at .*--renew") as refused:
        bank.pending("bank")
    assert refused.value.status == 401
    issue_tokens(house.book, house.folder, data=["bank"], days=9, renew=True)
    with pytest.raises(CounterRefused, match="unknown"):
        bank.pending("bank")
    assert house.counter("bank").pending("bank") == []


def test_a_broken_file_of_tokens_locks_everybody_out(house: House) -> None:
    good = house.book.read_bytes()
    house.book.write_text("{", "utf-8")
    with pytest.raises(CounterUnavailable, match="file of tokens cannot be used"):
        house.counter("bank", retries=1).pending("bank")
    house.book.write_bytes(good)
    assert house.counter("bank").pending("bank") == []


# -------------------------------------------------------------------------------- durability


def test_what_was_acknowledged_survives_a_crash(house: House, tmp_path: Path) -> None:
    shop, bank = house.counter("shop"), house.counter("bank")
    for name in ("j1", "j2"):
        shop.open(job(name))
    shop.close("j2")
    bank.submit("j1", "bank", upload())
    with house.app.state.store.arriving() as body:
        body.write(b"half an upload")
    with pytest.raises(ValueError, match=r"jobs\.db is in use by another process"):
        create_app(house.folder / "kept", TokenBook(house.book))
    # the disk as a power cut leaves it: nobody had time to close anything
    shutil.copytree(house.folder / "kept", tmp_path / "crashed")
    house.stop()
    shutil.rmtree(house.folder / "kept")
    (tmp_path / "crashed").rename(house.folder / "kept")
    house.start()
    assert house.jobs() == ["j1"]
    assert {path.name[:7] for path in (house.folder / "kept").iterdir()} == {"jobs.db"}
    assert house.counter("bank").pending("bank") == []
    house.counter("bank").submit("j1", "bank", upload())  # again, as after a lost answer
    with pytest.raises(CounterRefused, match="another upload"):
        house.counter("bank").submit("j1", "bank", upload(extra=b"!"))
    with pytest.raises(CounterRefused, match="cannot be used again"):
        house.counter("shop").open(job("j2"))
    for party in ("shop", "telco"):
        house.counter(party).submit("j1", party, upload(party))
    table = house.counter("shop").table("j1")
    assert table is not None
    assert int(table.counts.sum()) == 6
    house.stop()
    house.start()
    again = house.counter("shop").table("j1")
    assert again is not None
    assert again.to_bytes() == table.to_bytes()


def test_a_transaction_is_done_whole_or_not_at_all(tmp_path: Path) -> None:
    kept = Database(tmp_path / "kept", "CREATE TABLE t (a)", "a file of a test")
    with pytest.raises(sqlite3.OperationalError), kept.transaction() as db:
        [db.execute(words) for words in ("INSERT INTO t VALUES (1)", "and then no SQL")]
    with kept.transaction() as db:
        assert db.execute("SELECT * FROM t").fetchall() == []
    kept.close()


def test_a_failure_of_the_server_is_not_acknowledged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.counter("shop").open(job())

    def dying(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(store, "count_uploads", dying)
        with pytest.raises(CounterUnavailable, match="one try: status 500: the server failed"):
            house.counter("bank", retries=0).submit("j1", "bank", upload())
    assert house.uploads() == []
    bank = house.counter("bank")  # which tries again where the server closed its connection
    assert [found.id for found in bank.pending("bank")] == ["j1"]
    bank.submit("j1", "bank", upload())
    assert house.uploads() == ["bank"]


def test_what_is_deleted_leaves_the_file(house: House) -> None:
    shop, file = house.counter("shop"), house.folder / "kept" / "jobs.db"
    shop.open(job())
    empty = file.stat().st_size
    house.counter("bank").submit("j1", "bank", upload(extra=b"secret" * 20_000))
    assert file.stat().st_size > empty + 100_000
    shop.close("j1")
    assert file.stat().st_size <= empty
    assert b"secret" not in b"".join(path.read_bytes() for path in file.parent.iterdir())


def test_old_jobs_are_closed(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(lifetime=1000))
    try:
        issue_tokens(house.book, house.folder, task=["shop"], data=["bank"], days=99, renew=True)
        house.counter("shop").open(job())
        house.counter("bank").submit("j1", "bank", upload())
        house.clock += 900
        assert house.counter("shop").table("j1") is None
        house.clock += 300
        with pytest.raises(CounterRefused, match="j1 is closed"):
            house.counter("shop").table("j1")
        assert house.jobs() == []
        house.clock += 5000
        with pytest.raises(CounterRefused, match="unknown"):
            house.counter("shop").table("j1")
    finally:
        house.stop()


def test_a_count_that_takes_long_is_asked_for_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, counted, count = threading.Event(), list[int](), store.count_uploads

    def slow(uploads: Any, parties: Any) -> Table:
        if len(parties) == 3:
            counted.append(1)
            assert go.wait(60)
        return count(uploads, parties)

    monkeypatch.setattr(store, "_WAIT", 0.05)
    monkeypatch.setattr(store, "count_uploads", slow)
    house.counter("shop").open(job())
    for party in PARTIES:
        house.counter(party).submit("j1", party, upload(party))
    first = threading.Thread(target=house.counter("shop").table, args=("j1",))
    first.start()
    try:
        until(lambda: counted == [1], "the count")
        shop = house.counter("shop")
        assert shop.table("j1") is None
        assert shop.missing("j1") == ()
        assert house.counter("bank").pending("bank") == []  # others are not held up
    finally:
        go.set()
        first.join(60)
    assert shop.table("j1") is not None
    assert counted == [1]


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
    cases = [
        (b"", 400, "not a message"),
        (good[:-1], 400, "cut off"),
        (good + b"x", 400, "longer than it says"),
        (twice.to_bytes(), 422, "twice"),
    ]
    for body, status, words in cases:
        answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=body)
        assert (answer.status_code, words in error_of(answer)) == (status, True), answer.text
    assert house.uploads() == []
    answer = house.ask("bank", "PUT", "/jobs/..%2Fj1/uploads/bank", content=good)
    assert answer.status_code in (404, 422)
    house.counter("bank").submit("j1", "bank", upload())  # and the party may mend it


def chunks(count: int, sent: list[int]) -> Iterator[bytes]:
    for i in range(count):
        sent.append(i)
        yield bytes(8192)


def test_oversized_bodies_are_refused_while_they_arrive(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(upload_bytes=100_000, job_bytes=2_000))
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
        assert house.uploads() == []
    finally:
        house.stop()


def stalled(house: House, content: bytes, name: str = "j1") -> socket.socket:
    """A connection of bank's that has sent the first bytes of an upload."""
    line = socket.create_connection(("127.0.0.1", house.port), timeout=60)
    head = (
        f"PUT /jobs/{name}/uploads/bank HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Length: {len(content)}\r\nAuthorization: Bearer {house.token('bank')}\r\n\r\n"
    )
    heard = len(house.received)
    line.sendall(head.encode() + content[:50])
    until(lambda: content[:50] in house.received[heard:], "the first bytes")
    return line


def test_an_upload_that_stalls_keeps_nobody_out(house: House) -> None:
    for name in ("j1", "j2"):
        house.counter("shop").open(job(name))
    body = upload().to_bytes()
    with stalled(house, body) as first, stalled(house, body) as second:
        assert first.recv(12)[9:12] == b"408"  # one at a time from each party: the newest counts
        house.counter("shop").submit("j1", "shop", upload("shop"))
        house.counter("bank", retries=0).submit("j2", "bank", upload())
        assert second.recv(12)[9:12] == b"408"
    house.counter("bank", retries=0).submit("j1", "bank", upload())
    assert house.uploads() == ["shop", "bank", "bank"]


def test_a_body_that_takes_too_long_is_cut_off(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(body_seconds=0.3))
    try:
        house.counter("shop").open(job())
        with stalled(house, upload().to_bytes()) as line:
            assert line.recv(12)[9:12] == b"408"
    finally:
        house.stop()


def test_answers_are_not_held_back() -> None:
    with listen("127.0.0.1", 0) as place, socket.create_connection(place.getsockname()):
        line, _ = place.accept()
        with line:
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


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
    for limits, words in (
        ({"jobs": 0}, "jobs is 0"),
        ({"lifetime": float("nan")}, "is nan"),
        ({"body_seconds": float("inf")}, "is inf"),
        ({"upload_bytes": 1 << 40}, "expected are 943718400 at most"),
    ):
        with pytest.raises(ValueError, match=words):
            Limits(**limits)  # type: ignore[arg-type]


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
    book = tmp_path / "server" / "tokens.db"
    files = issue_tokens(book, tmp_path, task=["shop"], data=["bank"], days=None)
    tokens = [read_secret(file, "token") for file in files]
    assert len(set(tokens)) == 2
    assert not any(token.encode() in book.read_bytes() for token in tokens)
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
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE t (a)")
    (tmp_path / "text").write_text("{}" * 600)
    for name in ("other.db", "text"):
        with pytest.raises(ValueError, match="is not a file of tokens"):
            TokenBook(tmp_path / name)
    with pytest.raises(ValueError, match="none is not there"):
        TokenBook(tmp_path / "none")


def test_tokens_made_at_once_are_all_kept(tmp_path: Path) -> None:
    names = [f"bank {i}" for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: issue_tokens(tmp_path / "b.db", tmp_path, data=[name]), names))
    book = TokenBook(tmp_path / "b.db")
    assert book.parties() == set(names)
    for file in tmp_path.glob("*.token"):
        assert book.whose(read_secret(file, "token")).party == file.stem


# ------------------------------------------------------------------------------ reverse proxy

BOOK = Path(__file__).parents[1] / "book" / "fedvalue-service.md"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_of_the_page(house: House, tmp_path: Path) -> None:
    """A job through the page's own configuration, and a stranger who says nothing."""
    self_signed(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = BOOK.read_text("utf-8").split("```nginx\n")[1].split("```")[0]
    for here, there in (
        ("listen              443", f"listen 127.0.0.1:{port}"),
        ("/etc/ssl/count", str(tmp_path)),
        ("127.0.0.1:8765", f"127.0.0.1:{house.port}"),
        ("client_header_timeout 20s", "client_header_timeout 1s"),
    ):
        assert here in text
        text = text.replace(here, there)
    places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    text = "".join(f"{place}_temp_path {tmp_path}/{place};\n" for place in places) + text
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{text}}}\n"
    )
    proxy = subprocess.Popen(
        ["nginx", "-p", str(tmp_path), "-e", str(tmp_path / "log"), "-c", str(file)]
    )
    try:
        house.url = f"https://127.0.0.1:{port}"
        until(lambda: proxy.poll() is None and (tmp_path / "pid").exists(), "nginx")
        trusted = {"verify": tmp_path / "server.crt"}
        house.counter("shop", **trusted).open(job())
        for party in PARTIES:
            house.counter(party, **trusted).submit("j1", party, upload(party))
        assert house.counter("shop", **trusted).table("j1") is not None
        with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
            assert silent.recv(1) == b""
    finally:
        proxy.terminate()
        proxy.wait(60)
