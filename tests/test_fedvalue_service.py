"""The counting service over HTTP: what it does for parties, strangers, and after a crash."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from countinghouse import PARTIES, House, error_of, job, upload  # noqa: E402

from fedkit.fedvalue.protocol.counting import CountingServer  # noqa: E402
from fedkit.fedvalue.protocol.messages import Table  # noqa: E402
from fedkit.fedvalue.service.access import TokenBook, issue_tokens  # noqa: E402
from fedkit.fedvalue.service.client import CounterError, CounterRefused, CounterUnavailable  # noqa: E402
from fedkit.fedvalue.service.demo import until  # noqa: E402
from fedkit.fedvalue.service.server import create_app  # noqa: E402
from fedkit.fedvalue.service.store import Limits  # noqa: E402
from fedkit.fedvalue.service.wire import job_to_json  # noqa: E402


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
    assert len(house.uploads()) == 3
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
    with pytest.raises(CounterError, match="is that of 'bank' and not of 'telco'"):
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


def test_a_server_takes_up_what_was_acknowledged(house: House) -> None:
    house.counter("shop").open(job())
    house.counter("shop").open(job("j2"))
    for party in ("shop", "bank"):
        house.counter(party).submit("j1", party, upload(party))
    house.counter("shop").close("j2")
    kept = house.folder / "kept"
    (kept / "incoming" / "half").write_bytes(b"half an upload")  # what a crash leaves behind
    (kept / "jobs" / "half").mkdir()
    with pytest.raises(ValueError, match="in use by another server"):
        create_app(kept, TokenBook(house.book))
    house.stop()
    house.start()
    assert list((kept / "incoming").iterdir()) == []
    assert len(house.jobs()) == 1
    assert house.counter("bank").pending("bank") == []
    house.counter("bank").submit("j1", "bank", upload())  # again, as after a lost answer
    with pytest.raises(CounterRefused, match="another upload"):
        house.counter("bank").submit("j1", "bank", upload(extra=b"!"))
    with pytest.raises(CounterRefused, match="cannot be used again"):
        house.counter("shop").open(job("j2"))
    house.counter("telco").submit("j1", "telco", upload("telco"))
    table = house.counter("shop").table("j1")
    assert table is not None
    assert int(table.counts.sum()) == 6
    house.stop()
    house.start()  # tables are worked out anew
    again = house.counter("shop").table("j1")
    assert again is not None
    assert again.to_bytes() == table.to_bytes()


def test_uploads_reach_the_disk_before_they_are_acknowledged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def spy_replace(source: Any, target: Any) -> None:
        calls.append(Path(target).suffix)
        replace(source, target)

    house.counter("shop").open(job())
    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    house.counter("bank").submit("j1", "bank", upload())
    assert calls == ["file", ".upload", "folder"]


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path, Limits(wait_seconds=0.05))
    go = threading.Event()
    count = CountingServer.table

    def slow(self: CountingServer, name: str) -> Table | None:
        if len(self._jobs[name].parties) == 3:
            assert go.wait(60)
        return count(self, name)

    monkeypatch.setattr(CountingServer, "table", slow)
    try:
        house.counter("shop").open(job())
        for party in PARTIES:
            house.counter(party).submit("j1", party, upload(party))
        made = len(house.counters)
        shop = house.counter("shop")
        assert shop.table("j1") is None
        assert shop.table("j1") is None
        assert shop.missing("j1") == ()
        assert house.counter("bank").pending("bank") == []  # others are not held up
        go.set()
        until(lambda: shop.table("j1") is not None, "the table")
        assert len(house.counters) == made + 1  # counted once
    finally:
        go.set()
        house.stop()
