"""The parties as programs: their files, what they agree to, and runs that are interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")
pytest.importorskip("pandas")

from countinghouse import PARTIES, House

from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.columns import Columns, read_columns
from fedkit.fedvalue.protocol import task_party as taskparty
from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.keys import seal
from fedkit.fedvalue.protocol.messages import Job, Table
from fedkit.fedvalue.protocol.parties import Order
from fedkit.fedvalue.protocol.secure import (
    AlignmentError,
    CheatingDetected,
    DataParty,
    PartyMissing,
    SecureCounts,
)
from fedkit.fedvalue.service import parties as agents
from fedkit.fedvalue.service.client import CounterRefused, CounterUnavailable, RemoteCounter
from fedkit.fedvalue.service.parties import Policy, answer_jobs, cells_of, own_secret, run_task
from fedkit.fedvalue.service.store import Limits
from fedkit.streams import Streams

KEY = bytes(range(32))
ROWS = 60


class Federation:
    """A service and the files of three parties."""

    def __init__(self, house: House) -> None:
        self.house, self.folder = house, house.folder
        random = Streams(11).generator("federation")
        self.x = random.normal(size=(ROWS, 6)).round(3)
        self.y = (self.x[:, 0] + self.x[:, 2] > 0).astype(int)
        for i, party in enumerate(PARTIES):
            lines = [f"id,a,b{',label' if party == 'shop' else ''}"]
            for row in random.permutation(ROWS):
                a, b = self.x[row, 2 * i : 2 * i + 2]
                label = f",{self.y[row]}" if party == "shop" else ""
                lines.append(f"{row:05d},{a},{b}{label}")
            (self.folder / f"{party}.csv").write_text("\n".join(lines), "utf-8")
        self.said: list[str] = []

    def columns(self, party: str) -> Columns:
        label = "label" if party == "shop" else None
        return read_columns(self.folder / f"{party}.csv", label=label)

    def party(self, name: str, key: bytes = KEY) -> DataParty:
        held = self.columns(name)
        secret = own_secret(self.folder / f"{name}.secret")
        return DataParty(
            name, held.ids, cells_of(held, 5, "width", "own", name), key, secret=secret
        )

    def answer(self, name: str, key: bytes = KEY, **options: Any) -> int:
        policy = options.pop("policy", Policy())
        with self.house.counter(name, retries=1) as counter:
            return answer_jobs(
                self.party(name, key), key, counter, policy=policy, rows=ROWS, poll=0.01,
                say=self.said.append, **{"once": True} | options,
            )  # fmt: skip

    def run(self, **options: Any) -> SecureCounts:
        held = options.pop("held", None) or self.columns("shop")
        retries = options.pop("retries", 1)
        with self.house.counter("shop", retries=retries) as counter:
            return run_task(
                held, cells_of(held, 5, "width", "own", "shop"), KEY, counter, name="shop",
                state=self.folder / "shop.run", poll=0.01,
                say=self.said.append, **{"timeout": 60.0, "parties": PARTIES[1:]} | options,
            )  # fmt: skip

    def answering(self, name: str, jobs: int) -> threading.Thread:
        """A data party in a thread that answers so many jobs and leaves."""
        thread = threading.Thread(
            target=self.answer, args=(name,), daemon=True,
            kwargs={"once": False, "policy": Policy(jobs=jobs)},
        )  # fmt: skip
        thread.start()
        return thread

    def check(self, counts: SecureCounts) -> None:
        clear = mshapley_cmi(self.x[:, :2], self.y, [self.x[:, 2:4], self.x[:, 4:]])
        found = counts.values()
        assert found.values.tolist() == clear.values.tolist()
        assert found.task_value == clear.task_value
        assert not (self.folder / "shop.run").exists()
        assert self.house.jobs() == []


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    house = House(tmp_path)
    yield Federation(house)
    house.stop()


# ------------------------------------------------------------------------ runs, whole and broken


def test_values_equal_those_in_the_clear(federation: Federation) -> None:
    threads = [federation.answering(name, 2) for name in PARTIES[1:]]
    federation.check(federation.run())
    for thread in threads:
        thread.join(60)
    assert sum("is answered" in line for line in federation.said) == 4


def test_a_party_that_drops_out_is_named_and_the_run_goes_on_later(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = time.monotonic() + 60

    def now() -> float:  # time stands still until only telco is missing, in the second job
        there = any("-1 waits for telco" in line for line in federation.said)
        return 1e9 if there or time.monotonic() > end else 0.0

    threads = [federation.answering("bank", 2), federation.answering("telco", 1)]
    with monkeypatch.context() as patched:
        clock = SimpleNamespace(monotonic=now, perf_counter=time.perf_counter)
        patched.setattr(taskparty, "time", clock)
        with pytest.raises(PartyMissing, match=r"missing: telco\. .*the same command goes on"):
            federation.run()
    for thread in threads:
        thread.join(60)
    assert (federation.folder / "shop.run").exists()
    jobs = {place.name for place in federation.house.jobs()}
    assert len(jobs) == 2
    assert len(federation.house.uploads()) == 5
    telco = federation.answering("telco", 1)
    federation.check(federation.run())
    telco.join(60)
    assert any("taking up the run" in line for line in federation.said)
    # nobody but telco had to send anything again
    assert sum("is answered" in line for line in federation.said) == 4


def test_a_task_party_that_was_killed_goes_on(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    threads = [federation.answering(name, 2) for name in PARTIES[1:]]
    real = agents._Held.open

    def dying(held: Any, job: Job) -> None:
        real(held, job)
        if job.id.endswith("-1"):
            raise Killed

    monkeypatch.setattr(agents._Held, "open", dying)
    with pytest.raises(Killed):
        federation.run()
    monkeypatch.setattr(agents._Held, "open", real)
    assert len(federation.house.jobs()) == 2
    federation.check(federation.run())
    for thread in threads:
        thread.join(60)


def test_a_run_with_other_options_begins_anew(federation: Federation) -> None:
    with pytest.raises(PartyMissing, match="missing: bank, telco"):
        federation.run(timeout=0.1)
    (old,) = federation.house.jobs()
    assert not any("taking up" in line or "given up" in line for line in federation.said)
    with pytest.raises(CounterRefused):  # a slip of the pen costs the run nothing
        federation.run(parties=("bank", "telko"))
    assert federation.house.jobs() == [old]
    for options, words in (
        ({}, "taking up the run"),
        ({"iterations": 1}, "shop.run; it is given up"),
        ({"iterations": 1}, "taking up the run"),
    ):
        federation.said.clear()
        with pytest.raises(PartyMissing):
            federation.run(timeout=0.1, **options)
        said = [line for line in federation.said if "waits for" not in line]
        assert len(said) == 1
        assert words in said[0]
        assert len(federation.house.jobs()) == 1
    assert federation.house.jobs() != [old]
    threads = [federation.answering(name, 1) for name in PARTIES[1:]]
    federation.check(federation.run(iterations=1))
    for thread in threads:
        thread.join(60)


def test_a_server_that_closed_the_jobs_ends_the_run_for_good(federation: Federation) -> None:
    with pytest.raises(PartyMissing):
        federation.run(timeout=0.1)
    federation.house.clock += 8 * 86400
    federation.house.app.state.desk.tokens._clock = lambda: 0.0
    with pytest.raises(CounterRefused, match="cannot be used again"):
        federation.run(timeout=0.1)
    assert not (federation.folder / "shop.run").exists()


def test_a_server_that_is_gone_ends_the_run_which_goes_on_later(federation: Federation) -> None:
    with pytest.raises(PartyMissing):
        federation.run(timeout=0.1)
    federation.house.stop()
    with pytest.raises(CounterUnavailable, match="the same command goes on"):
        federation.run()
    federation.house.start(federation.house.port)
    threads = [federation.answering(name, 2) for name in PARTIES[1:]]
    federation.check(federation.run())
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("closes", [True, False])
def test_a_cheating_server_is_found_out(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    honest = CountingServer.table

    def cheat(self: CountingServer, job: str) -> Table | None:
        table = honest(self, job)
        if table is None or table.tokens.shape[1] < 3:
            return table
        counts = table.counts.copy()
        counts[0] += 1
        return replace(table, counts=counts)

    def refuse(self: RemoteCounter, job: str) -> None:
        raise CounterUnavailable("no answer")

    monkeypatch.setattr(CountingServer, "table", cheat)
    if not closes:  # must not hide what was found
        monkeypatch.setattr(RemoteCounter, "close", refuse)
    threads = [federation.answering(name, 1) for name in PARTIES[1:]]
    with pytest.raises(CheatingDetected):
        federation.run()
    for thread in threads:
        thread.join(60)
    assert not (federation.folder / "shop.run").exists()
    assert (federation.house.jobs() == []) is closes


def test_parties_with_other_people_are_refused(federation: Federation) -> None:
    file = federation.folder / "bank.csv"
    file.write_text(file.read_text("utf-8").replace("\n00007,", "\n7,"), "utf-8")
    threads = [federation.answering(name, 1) for name in PARTIES[1:]]
    with pytest.raises(AlignmentError, match="'bank' holds other IDs"):
        federation.run()
    for thread in threads:
        thread.join(60)
    assert federation.house.jobs() == []


# --------------------------------------------------------------------- what a party agrees to


def order_for(name: str, order: Order, job: str = "j1", key: bytes = KEY) -> Job:
    return Job(job, PARTIES, {name: seal(order.to_bytes(), key, "order", job, name)})


DISAGREED = [
    (Order(2, 5, cell=3), "as printed"),
    (Order(2, 5, fresh=False), "as printed"),
    (Order(2, 5, padding=0), "as printed"),
    (Order(2, 5, tokens="cell"), "as printed"),
    (Order(10**7, 5), "encrypted IDs, over 50000000"),
    (Order(2, 10**9), "encrypted IDs, over 50000000"),
    (Order(2, 5, padding=10**9), "encrypted IDs, over 50000000"),
]


def test_a_party_leaves_alone_what_it_does_not_agree_to(federation: Federation) -> None:
    cases = [
        (order_for("bank", order, f"j{i}"), words) for i, (order, words) in enumerate(DISAGREED)
    ]
    sealed = order_for("bank", Order(2, 5)).envelopes
    cases += [
        (order_for("bank", Order(2, 5), "k0", key=bytes(32)), "does not open"),
        (Job("k1", PARTIES, sealed), "does not open"),  # sealed for another job
        (Job("k2", PARTIES, {"bank": order_for("telco", Order(2, 5), "k2").envelopes["telco"]}),
         "does not open"),
        (order_for("telco", Order(2, 5), "k3"), "no envelope for 'bank'"),
    ]  # fmt: skip
    shop = federation.house.counter("shop")
    for job, _ in cases:
        shop.open(job)
    shop.open(order_for("bank", Order(2, 5), "good"))
    assert federation.answer("bank") == 1  # the last, whatever the others ask for
    assert federation.said.pop() == "job good is answered"
    for (job, words), line in zip(cases, federation.said, strict=True):
        assert f"job {job.id} is not answered" in line
        assert words in line
    assert federation.answer("bank", policy=Policy(printed=True)) == 4


def test_a_server_that_asks_for_ever_is_answered_three_times(federation: Federation) -> None:
    federation.house.counter("shop").open(order_for("bank", Order(2, 5)))
    asked = federation.house.counter("bank").pending("bank")
    sent: list[str] = []
    deaf = SimpleNamespace(
        pending=lambda _: asked, submit=lambda job, *_: sent.append(job), job=None
    )
    looks = iter(range(5))
    with pytest.raises(StopIteration):
        answer_jobs(
            federation.party("bank"), KEY, deaf, policy=Policy(jobs=2), rows=ROWS, poll=0,
            say=federation.said.append, sleep=lambda _: next(looks),
        )  # fmt: skip
    assert sent == ["j1"] * 3  # and they count as one
    assert federation.said == ["job j1 is answered"] + 2 * ["job j1 is answered again"]


def test_an_upload_that_the_server_refuses_is_reported_once(tmp_path: Path) -> None:
    house = House(tmp_path, Limits(upload_bytes=500))
    federation = Federation(house)
    looks: list[float] = []

    class Enough(Exception):
        pass

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise Enough

    try:
        house.counter("shop").open(order_for("bank", Order(2, 5)))
        with pytest.raises(Enough):
            federation.answer("bank", once=False, sleep=sleep)
        assert len(federation.said) == 1
        assert "refuses (413): the body is larger" in federation.said[0]
    finally:
        house.stop()


def test_a_party_waits_for_a_server_that_is_away(federation: Federation) -> None:
    house = federation.house
    house.counter("shop").open(order_for("bank", Order(2, 5)))
    house.stop()
    with pytest.raises(CounterUnavailable):
        federation.answer("bank")
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            house.start(house.port)

    assert federation.answer("bank", once=False, policy=Policy(jobs=1), sleep=sleep) == 1
    assert ["trying on" in line for line in federation.said] == [True, False, False]
    assert "the server is back" in federation.said


def test_a_party_whose_token_has_expired_stops(federation: Federation) -> None:
    federation.house.clock += 2 * 86400
    with pytest.raises(CounterRefused, match="expired"):
        federation.answer("bank", once=False)


def test_a_party_answers_again_in_the_same_words(federation: Federation) -> None:
    job = order_for("bank", Order(3, 7))
    first, second = (federation.party("bank").answer(job).to_bytes() for _ in range(2))
    assert first == second
    (federation.folder / "bank.secret").unlink()
    assert federation.party("bank").answer(job).to_bytes() != first
