"""The counting service over HTTP: parties, strangers, crashes, secrecy, and servers gone bad."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from countinghouse import PARTIES, Fake, House, error_of, http, job, self_signed, upload

from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.data import discretise, joint_codes, label_codes
from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.messages import Job, Table, Upload
from fedkit.fedvalue.protocol.secure import DataParty, TaskParty
from fedkit.fedvalue.service import access, store
from fedkit.fedvalue.service.access import Refusal, TokenBook, issue_tokens
from fedkit.fedvalue.service.client import (
    CounterError,
    CounterRefused,
    CounterUnavailable,
    RemoteCounter,
)
from fedkit.fedvalue.service.demo import until
from fedkit.fedvalue.service.files import read_secret, write_secret
from fedkit.fedvalue.service.server import create_app
from fedkit.fedvalue.service.store import Limits
from fedkit.fedvalue.service.wire import job_to_json
from fedkit.streams import Streams


@pytest.fixture
def house(tmp_path, request):
    """A running service; with a parameter: its limits."""
    found = House(tmp_path, getattr(request, "param", None))
    yield found
    found.stop()


@contextlib.contextmanager
def refuses(status, words):
    with pytest.raises(CounterRefused, match=words) as refused:
        yield
    assert refused.value.status == status


def limited(**limits):
    return pytest.mark.parametrize("house", [Limits(**limits)], indirect=True, ids=["limited"])


def test_a_job_from_opening_to_closing_gives_what_a_counter_here_gives(house):
    remote = {party: house.counter(party) for party in PARTIES}
    here = CountingServer()
    for counter in (remote["shop"], here):
        counter.open(job())
        counter.open(job())  # again: nothing changes
    for name in ("z", "a"):
        remote["shop"].open(job(name))
    bank = remote["bank"].pending("bank")
    assert bank[0] == Job("j1", PARTIES, {"bank": b"sealed"})
    assert [j.id for j in bank] == ["j1", "z", "a"]  # oldest first
    for name in ("z", "a"):
        remote["shop"].close(name)
    for i, party in enumerate(PARTIES):
        assert remote["shop"].table("j1") is None
        assert remote["shop"].missing == PARTIES[i:]
        for _ in range(2):
            remote[party].submit("j1", party, upload(party))
            here.submit("j1", party, upload(party))
        assert remote[party].pending(party) == []
    mine, theirs = here.table("j1"), remote["shop"].table("j1")
    assert theirs.to_bytes() == mine.to_bytes()
    assert int(theirs.counts.sum()) == 6
    assert remote["shop"].missing == ()
    assert house.uploads() == list(PARTIES)
    for name in ("j1", "j1", "never-opened"):
        remote["shop"].close(name)
    assert house.jobs() == []
    with refuses(410, "closed"):
        remote["shop"].table("j1")
    assert house.ask(None, "GET", "/health").json()["status"] == "ok"
    assert error_of(house.ask(None, "GET", "/docs")) == "Not Found"


def test_other_content_stale_and_replayed_messages_are_refused(house):
    shop, bank = house.counter("shop"), house.counter("bank")
    for who, *asked, body in (
        ("shop", "POST", "/jobs", json.dumps(job_to_json(job()))),
        ("bank", "PUT", "/jobs/j1/uploads/bank", upload().to_bytes()),
    ):
        assert [house.ask(who, *asked, content=body).status_code for _ in "ab"] == [201, 200]
    with refuses(409, "other content"):
        shop.open(job(note=b"changed"))
    with refuses(409, "another upload for job j1"):
        bank.submit("j1", "bank", upload(extra=b"!"))
    assert len(house.uploads()) == 1
    shop.close("j1")
    with refuses(410, "j1 is closed"):
        bank.submit("j1", "bank", upload())  # stale
    with refuses(409, "cannot be used again"):
        shop.open(job())  # an old request, heard again, does not bring the job back
    with refuses(404, "unknown"):
        bank.submit("j2", "bank", upload())
    assert house.uploads() == []


def test_strangers_learn_nothing(house):
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


def test_every_party_does_its_own_part_only(house):
    shop, bank, rival = (house.counter(p) for p in ("shop", "bank", "rival"))
    shop.open(job())
    cases = [
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
        with refuses(403, words):
            action()
    assert len(house.jobs()) == 1
    with pytest.raises(CounterRefused, match="no token was ever made for pharmacy"):
        shop.open(job("j2", parties=("shop", "bank", "telco", "pharmacy")))
    with pytest.raises(CounterRefused, match="is that of 'bank' and not of 'telco'"):
        bank.pending("telco")


def test_tokens_expire_and_are_renewed_without_a_restart(house):
    bank = house.counter("bank")
    assert bank.pending("bank") == []
    house.clock += 86400 + 5
    with refuses(401, r"the token of bank expired at .*--renew"):
        bank.pending("bank")
    issue_tokens(house.book, house.folder, data=["bank"], days=9, renew=True)
    with pytest.raises(CounterRefused, match="unknown"):
        bank.pending("bank")
    assert house.counter("bank").pending("bank") == []
    house.book.write_text("{", "utf-8")  # broken, it locks everybody out
    with pytest.raises(CounterUnavailable, match="file of tokens cannot be used"):
        house.counter("bank", retries=1).pending("bank")


def test_what_was_acknowledged_survives_a_crash(house, tmp_path):
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
    house.stop()
    house.start()
    again = house.counter("shop").table("j1")
    assert again.to_bytes() == table.to_bytes()


def test_a_failure_of_the_server_is_not_acknowledged(house, monkeypatch):
    house.counter("shop").open(job())

    def dying(*_):
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


def test_what_is_deleted_leaves_the_file(house):
    shop, file = house.counter("shop"), house.folder / "kept" / "jobs.db"
    shop.open(job())
    empty = file.stat().st_size
    house.counter("bank").submit("j1", "bank", upload(extra=b"secret" * 20_000))
    assert file.stat().st_size > empty + 100_000
    shop.close("j1")
    assert file.stat().st_size <= empty
    assert b"secret" not in b"".join(path.read_bytes() for path in file.parent.iterdir())


@limited(lifetime=1000)
def test_old_jobs_are_closed(house):
    issue_tokens(house.book, house.folder, task=["shop"], data=["bank"], days=99, renew=True)
    house.counter("shop").open(job())
    house.counter("bank").submit("j1", "bank", upload())
    house.clock += 900
    assert house.counter("shop").table("j1") is None
    content = upload("bank").to_bytes()
    with stalled(house, content) as line:
        house.clock += 300
        with refuses(410, "j1 is closed"):
            house.counter("shop").table("j1")
        line.sendall(content[50:])
        assert line.recv(12)[9:12] == b"410"
    assert house.jobs() == house.uploads() == []
    house.clock += 5000  # its name is not free again
    with refuses(409, "cannot be used again"):
        house.counter("shop").open(job(note=b"another"))


def test_a_count_that_takes_long_is_asked_for_again(house, monkeypatch):
    go, counted, count = threading.Event(), [], store.count_uploads

    def slow(uploads, parties):
        if len(parties) == 3:
            counted.append(1)
            assert go.wait(60)
        return count(uploads, parties)

    monkeypatch.setattr(store, "_WAIT", 0.05)
    monkeypatch.setattr(store, "count_uploads", slow)
    shop = house.counter("shop")
    shop.open(job())
    for party in PARTIES:
        house.counter(party).submit("j1", party, upload(party))
    first = threading.Thread(target=house.counter("shop").table, args=("j1",))
    first.start()
    try:
        until(lambda: counted == [1], "the count")
        assert shop.table("j1") is None
        assert shop.missing == ()
        assert house.counter("bank").pending("bank") == []  # others are not held up
    finally:
        go.set()
        first.join(60)
    assert shop.table("j1") is not None
    assert counted == [1]


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


def test_malformed_jobs(house):
    for body, status, words in MALFORMED_JOBS:
        answer = house.ask("shop", "POST", "/jobs", content=body)
        assert (answer.status_code, words in error_of(answer)) == (status, True), answer.text
    assert house.jobs() == []


def test_malformed_uploads(house):
    house.counter("shop").open(job())
    good = upload().to_bytes()
    twice = upload()
    twice.ids[1] = twice.ids[0]
    cases = [
        (b"", "not the message"),
        (good[:-1], "cut off"),
        (good + b"x", "longer than it says"),
        (twice.to_bytes(), "twice"),
    ]
    for body, words in cases:
        answer = house.ask("bank", "PUT", "/jobs/j1/uploads/bank", content=body)
        assert (answer.status_code, words in error_of(answer)) == (422, True), answer.text
    assert house.uploads() == []
    answer = house.ask("bank", "PUT", "/jobs/..%2Fj1/uploads/bank", content=good)
    assert answer.status_code in (404, 422)
    house.counter("bank").submit("j1", "bank", upload())  # and the party may mend it


@limited(upload_bytes=100_000, job_bytes=2_000)
def test_oversized_bodies_are_refused_while_they_arrive(house):
    house.counter("shop").open(job())
    with refuses(413, "larger than the 100000 bytes"):
        house.counter("bank").submit("j1", "bank", upload(rows=200, extra=bytes(100_000)))
    # its size was declared: nothing of it was read
    assert not any(b"report of bank" in part for part in house.received)
    assert sum(map(len, house.received)) < 10_000
    house.received.clear()
    answer = house.ask(
        "bank", "PUT", "/jobs/j1/uploads/bank", content=(bytes(8192) for _ in range(100))
    )
    assert answer.status_code == 413
    # chunked, so its size was not known: reading stopped soon after the limit
    assert sum(map(len, house.received)) < 400_000
    with pytest.raises(CounterRefused, match="larger than the 2000 bytes"):
        house.counter("shop").open(job("j2", note=bytes(3_000)))
    assert house.uploads() == []


def test_a_table_too_large_to_be_kept_is_refused_in_one_sentence(house, monkeypatch):
    shop = house.counter("shop", retries=0)
    shop.open(job())
    for party in PARTIES:
        house.counter(party).submit("j1", party, upload(party))
    monkeypatch.setattr(store, "_BLOB", 10)
    with refuses(413, "more than 10 are not kept; start anew with more --blocks"):
        shop.table("j1")
    monkeypatch.undo()
    assert shop.table("j1") is not None


def stalled(house, content, name="j1"):
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


def test_an_upload_that_stalls_keeps_nobody_out(house):
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


@limited(body_seconds=0.3)
def test_a_body_that_takes_too_long_is_cut_off(house):
    house.counter("shop").open(job())
    with stalled(house, upload().to_bytes()) as line:
        assert line.recv(12)[9:12] == b"408"


@limited(jobs=2, folder_bytes=60_000)
def test_limits_on_jobs_and_on_the_folder(house):
    shop = house.counter("shop", retries=1)
    shop.open(job("a"))
    shop.open(job("b"))
    with pytest.raises(CounterUnavailable, match="2 jobs are open; close some"):
        shop.open(job("c"))
    with refuses(507, "folder is full"):
        house.counter("bank").submit("a", "bank", upload(extra=bytes(80_000)))
    assert house.uploads() == []
    shop.close("a")
    shop.open(job("c"))


def test_tokens_are_kept_as_hashes_and_files_are_private(tmp_path):
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
        with pytest.raises(Refusal, match="unknown"):
            found.whose(wrong)
    with pytest.raises(ValueError, match=r"bank has a token .*--renew"):
        issue_tokens(book, tmp_path, data=["bank"])
    issue_tokens(book, tmp_path, data=["telco"])
    assert found.whose(tokens[0]).party == "shop"
    for wrong in ({"data": ["../a"]}, {"data": ["new"], "days": -1}):
        with pytest.raises(ValueError, match=r"cannot name a party|days is -1"):
            issue_tokens(book, tmp_path, **wrong)
    (tmp_path / "text").write_text("{}" * 600)
    with pytest.raises(ValueError, match="is not a file of tokens"):
        TokenBook(tmp_path / "text")


@pytest.mark.parametrize("renew", [True, False])
def test_tokens_are_made_for_all_parties_or_for_none(tmp_path, monkeypatch, renew):
    book = tmp_path / "tokens.db"
    kept = issue_tokens(book, tmp_path, data=["bank", "shop"]) if renew else []
    tokens = [file.read_text() for file in kept]
    before = set(tmp_path.iterdir()) | {book}

    def full(path, token, **options):
        if "shop" in path.name:
            raise OSError("No space left on device")
        write_secret(path, token, **options)

    with monkeypatch.context() as patched:
        patched.setattr(access, "write_secret", full)
        with pytest.raises(ValueError, match="all stays as it was: No space left"):
            issue_tokens(book, tmp_path, data=["bank", "shop"], renew=renew)
    assert set(tmp_path.iterdir()) == before
    assert [file.read_text() for file in kept] == tokens
    assert TokenBook(book).parties() == ({"bank", "shop"} if renew else set())
    if renew:
        (bank,) = issue_tokens(book, tmp_path, data=["bank"], renew=True)
        assert TokenBook(book).whose(read_secret(bank, "token")).party == "bank"
        assert set(tmp_path.iterdir()) == before
    (tmp_path / "telco.token").mkdir()
    with pytest.raises(ValueError, match=r"telco\.token is a folder"):
        issue_tokens(book, tmp_path, data=["new", "telco"], renew=True)
    assert not (tmp_path / "new.token").exists()


def test_retries_are_a_whole_number():
    with pytest.raises(ValueError, match="retries is -1"):
        RemoteCounter("http://127.0.0.1:9", "token", retries=-1)


def test_tls(tmp_path):
    cert, key = self_signed(tmp_path)
    house = House(tmp_path, cert=cert, key=key)
    try:
        with house.counter("bank", ca=cert) as bank:  # an open line would hold up the end
            assert bank.pending("bank") == []
        with pytest.raises(CounterUnavailable, match=r"one try: .*CERTIFICATE_VERIFY_FAILED"):
            house.counter("bank").pending("bank")
        plain = RemoteCounter(f"http://127.0.0.1:{house.port}", house.token("bank"), retries=0)
        with pytest.raises(CounterUnavailable):
            plain.pending("bank")
    finally:
        house.stop()


TABLE = Table(np.zeros((1, 3), np.uint32), np.full(1, 6, np.int64), (b"s",)).to_bytes()
OTHER = Table(np.zeros((1, 3), np.uint32), np.full(1, 7, np.int64), (b"s",)).to_bytes()


@pytest.mark.parametrize(
    ("answer", "error", "words", "heard"),
    [
        (b"220 mail server\r\n\r\n", CounterUnavailable, "after 3 tries", 3),
        (http(b"<html>hello</html>"), CounterError, "something else than a table", 1),
        (http(TABLE[:-1]), CounterError, "cut off", 1),
        (http(TABLE + TABLE), CounterError, "longer than it says", 1),
        (http(TABLE[:30], size=len(TABLE)), CounterUnavailable, "after 3 tries", 3),
        (http(b"x" * 3000), CounterError, "longer than 2000 bytes", 1),
        (http(b"[" * 1900, "202 Accepted"), CounterError, "state of a job", 1),
        (http(b"[]", "202 Accepted"), CounterError, "state of a job", 1),
        (http(b"", "302 Found", "Location: http://evil.invalid/\r\n"), CounterError, "302", 1),
        (http(b"no", "500 Oops"), CounterUnavailable, "3 tries: status 500: it does not", 3),
        (http(b'{"error": "a\\u001b[31m\\nb"}', "422 No"), CounterRefused, r"a \[31m b", 1),
    ],
)
def test_a_server_that_answers_garbage(answer, error, words, heard):
    fake = Fake(answer)
    with fake.counter(max_bytes=2000) as counter, pytest.raises(error, match=words):
        counter.table("j1")
    assert fake.heard == heard


def test_a_server_that_fails_and_comes_back():
    pauses = []
    fake = Fake(b"", http(b"busy", "503 Busy"), b"HTTP/1.1 2", http(TABLE))
    with fake.counter(retries=3, sleep=pauses.append) as counter:
        table = counter.table("j1")
    assert table.counts.tolist() == [6]
    assert pauses == [0.25, 0.5, 1.0]


def test_a_server_that_answers_twice():
    fake = Fake(http(TABLE), http(TABLE), http(OTHER))
    with fake.counter() as counter:
        for _ in range(2):
            assert counter.table("j1") is not None
        with pytest.raises(CounterError, match="two different tables for job j1"):
            counter.table("j1")


@pytest.mark.parametrize("head", [http(b"", size=10**6), b"HTTP/1.1 200 OK\r\nX-Slow: ", b""])
def test_a_server_that_answers_drop_by_drop_or_never(head):
    def drip(line):
        line.sendall(head)
        for _ in range(1200):
            line.sendall(head and b"x")
            time.sleep(0.05)

    fake = Fake(drip)
    late = pytest.raises(CounterUnavailable, match="after 2 tries: TimeoutError: no answer in time")
    with fake.counter(retries=1, timeout=0.3) as counter, late:
        counter.table("j1")


def occurring(patterns, texts):
    everything = b"\n".join(texts)
    return {pattern for pattern in patterns if pattern in everything}


def test_the_server_receives_no_id_no_feature_and_no_label(house, caplog):
    caplog.set_level("DEBUG")
    random = Streams(3).generator("people")
    rows = 150
    ids = [f"{i:04d}-person" for i in random.permutation(10_000)[:rows]]
    x = random.normal(size=(rows, 6)).round(7)
    labels = ["malignant" if v else "benignant" for v in x[:, 0] + x[:, 2] * x[:, 4] > 0]
    numbers = x.ravel().tolist()  # every one as text and as the bytes of a number
    secret = {text.encode() for text in [*ids, *labels, *map(str, numbers)]}
    secret |= {np.float64(number).tobytes() for number in numbers}
    key = bytes(range(32))
    cells = [joint_codes(discretise(x[:, i : i + 2]).reshape(rows, -1)) for i in (0, 2, 4)]
    task = TaskParty("shop", ids, cells[0], label_codes(np.array(labels)), key, PARTIES[1:])
    others = [DataParty(n, ids, c, key) for n, c in zip(PARTIES[1:], cells[1:], strict=True)]
    counters = {party: house.counter(party) for party in PARTIES}
    on_disk = []

    def wait():
        for party in others:
            party.serve(counters[party.name])
        folder = house.folder / "kept"
        on_disk.extend(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    found = task.count(counters["shop"], wait=wait).values()
    clear = mshapley_cmi(x[:, :2], labels, [x[:, 2:4], x[:, 4:]], names=PARTIES[1:])
    assert found.values.tolist() == clear.values.tolist()
    assert found.task_value == clear.task_value
    assert sum(map(len, on_disk)) > 3 * 2 * rows * 20
    texts = house.received + on_disk
    assert occurring(secret, texts) == set()
    assert key not in b"\n".join(texts)
    # the search can fail: what a careless party would send is found
    careless = Upload(np.frombuffer(b"".join(i.encode().ljust(16) for i in ids), np.uint8)
                      .reshape(-1, 16), np.zeros(rows, np.uint32), x.tobytes())  # fmt: skip
    counters["shop"].open(job("careless"))
    counters["bank"].submit("careless", "bank", careless)
    assert len(occurring(secret, house.received)) >= rows + x.size
    # tokens reach the server, and neither its disk nor its log
    written = [text.encode() for text in caplog.messages]
    written += [path.read_bytes() for path in (house.folder / "kept").rglob("*") if path.is_file()]
    written.append(house.book.read_bytes())
    tokens = {house.token(party).encode() for party in PARTIES}
    assert occurring(tokens, written) == set()
    assert any(b"careless" in text for text in written)


# ------------------------------------------------------------------------------ reverse proxy

BOOK = Path(__file__).parents[1] / "book" / "fedvalue-service.md"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_of_the_page(house, tmp_path):
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
        trusted = {"ca": tmp_path / "server.crt"}
        house.counter("shop", **trusted).open(job())
        for party in PARTIES:
            house.counter(party, **trusted).submit("j1", party, upload(party))
        assert house.counter("shop", **trusted).table("j1") is not None
        with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
            assert silent.recv(1) == b""
    finally:
        proxy.terminate()
        proxy.wait(60)
