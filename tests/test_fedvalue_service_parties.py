"""The parties as programs, what they agree to, and runs that are interrupted."""

import contextlib
import os
import stat
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from countinghouse import PARTIES, House

from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.data import discretise, joint_codes, read_columns
from fedkit.fedvalue.protocol import parties as taskparty
from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.keys import seal
from fedkit.fedvalue.protocol.messages import PADDING, Job, Order
from fedkit.fedvalue.protocol.parties import PartyChanged
from fedkit.fedvalue.protocol.secure import CheatingDetected, DataParty, PartyMissing
from fedkit.fedvalue.service import store
from fedkit.fedvalue.service.client import CounterRefused, CounterUnavailable, RemoteCounter
from fedkit.fedvalue.service.parties import PartyState, answer_jobs, run_task
from fedkit.streams import Streams

KEY = bytes(range(32))
ROWS = 60


class Federation:
    """A service and the files of three parties."""

    def __init__(self, house):
        self.house, self.folder = house, house.folder
        random = Streams(11).generator("federation")
        self.x = random.normal(size=(ROWS, 6)).round(3)
        self.y = (self.x[:, 0] + self.x[:, 2] > 0).astype(int)
        rows = pd.DataFrame(self.x).assign(id=[f"{i:05d}" for i in range(ROWS)], label=self.y)
        for party, own in (("shop", [0, 1, "label"]), ("bank", [2, 3]), ("telco", [4, 5])):
            mixed = rows[["id", *own]].iloc[random.permutation(ROWS)]
            mixed.to_csv(self.folder / f"{party}.csv", index=False)
        self.said = []

    def columns(self, party):
        label = "label" if party == "shop" else None
        return read_columns(self.folder / f"{party}.csv", label=label)

    def party(self, name):
        held = self.columns(name)
        secret = PartyState(self.folder / f"{name}.state").secret
        return DataParty(name, held.ids, joint_codes(discretise(held.x)), KEY, secret=secret)

    def answer(self, name, **options):
        options = {"once": True, "poll": 0.01, "say": self.said.append} | options
        with self.house.counter(name, retries=1) as counter:
            return answer_jobs(self.party(name), counter, **options)

    def run(self, held=None, **options):
        held = held or self.columns("shop")
        options = {"timeout": 60.0, "poll": 0.01, "parties": PARTIES[1:]} | options
        with self.house.counter("shop", retries=1) as counter:
            return run_task(
                held, joint_codes(discretise(held.x)), KEY, counter, name="shop",
                state=self.folder / "shop.run", say=self.said.append, **options,
            )  # fmt: skip

    @contextlib.contextmanager
    def answers(self, jobs, telco=None):
        """Bank and telco answer so many jobs, and the block ends when they have."""
        most = {"bank": jobs, "telco": jobs if telco is None else telco}
        threads = [
            threading.Thread(
                target=self.answer, args=(name,), kwargs={"once": False, "max_jobs": n}, daemon=True
            )
            for name, n in most.items() if n
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(60)

    def check(self, counts):
        clear = mshapley_cmi(self.x[:, :2], self.y, [self.x[:, 2:4], self.x[:, 4:]])
        found = counts.values()
        assert found.values.tolist() == clear.values.tolist()
        assert found.task_value == clear.task_value
        assert not (self.folder / "shop.run").exists()
        assert self.house.jobs() == []


@pytest.fixture
def federation(tmp_path):
    house = House(tmp_path)
    yield Federation(house)
    house.stop()


def test_a_party_that_drops_out_is_named_and_the_run_goes_on_later(federation, monkeypatch):
    end = time.monotonic() + 60

    def now():  # time stands still until only telco is missing, in the second job
        there = any("-1 waits for telco" in line for line in federation.said)
        return 1e9 if there or time.monotonic() > end else 0.0

    with monkeypatch.context() as patched, federation.answers(2, telco=1):
        patched.setattr(taskparty, "time", SimpleNamespace(monotonic=now))
        with pytest.raises(PartyMissing, match=r"missing: telco\. .*the same command goes on"):
            federation.run()
    assert (federation.folder / "shop.run").exists()
    assert len(federation.house.jobs()) == 2
    assert len(federation.house.uploads()) == 5
    with federation.answers(0, telco=1):
        federation.check(federation.run())
    assert any("taking up the run" in line for line in federation.said)
    # nobody but telco had to send anything again
    assert sum("is answered" in line for line in federation.said) == 4


def test_a_task_party_that_was_killed_goes_on(federation, monkeypatch):
    class Killed(BaseException):
        pass

    with federation.answers(2):
        real = RemoteCounter.submit

        def dying(counter, job, party, upload):
            if job.endswith("-1") and party == "shop":
                raise Killed
            real(counter, job, party, upload)

        monkeypatch.setattr(RemoteCounter, "submit", dying)
        with pytest.raises(Killed):
            federation.run()
        monkeypatch.setattr(RemoteCounter, "submit", real)
        assert len(federation.house.jobs()) == 2
        federation.check(federation.run())


def test_a_run_with_other_options_begins_anew(federation):
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
    with federation.answers(1):
        federation.check(federation.run(iterations=1))


def test_a_server_that_closed_the_jobs_ends_the_run_for_good(federation):
    with pytest.raises(PartyMissing):
        federation.run(timeout=0.1)
    federation.house.clock += 8 * 86400
    federation.house.app.state.store._tokens._clock = lambda: 0.0
    with pytest.raises(CounterRefused, match="cannot be used again"):
        federation.run(timeout=0.1)
    assert not (federation.folder / "shop.run").exists()


def test_a_server_that_is_gone_ends_the_run_which_goes_on_later(federation):
    with pytest.raises(PartyMissing):
        federation.run(timeout=0.1)
    federation.house.stop()
    with pytest.raises(CounterUnavailable, match="the same command goes on"):
        federation.run()
    federation.house.start(federation.house.port)
    with federation.answers(2):
        federation.check(federation.run())


def test_a_party_that_lost_its_state_file_between_two_jobs_ends_the_run(federation, monkeypatch):
    monkeypatch.setattr(taskparty, "LEAST_ROWS", 0)

    def lost():
        federation.answer("bank", max_jobs=1, once=False)
        (federation.folder / "bank.state").unlink()
        federation.answer("bank", max_jobs=1, once=False)

    bank = threading.Thread(target=lost, daemon=True)
    bank.start()
    with federation.answers(0, telco=2), pytest.raises(PartyChanged, match="the cells of 'bank'"):
        federation.run(blocks=2, iterations=1)
    bank.join(60)
    assert not (federation.folder / "shop.run").exists()
    assert federation.house.jobs() == []


@pytest.mark.parametrize("closes", [True, False])
def test_a_cheating_server_is_found_out(federation, monkeypatch, closes):
    honest = store.count_uploads

    def cheat(uploads, parties):
        table = honest(uploads, parties)
        return replace(table, counts=table.counts + (len(parties) == 3))

    def refuse(self, job):
        raise CounterUnavailable("no answer")

    monkeypatch.setattr(store, "count_uploads", cheat)
    if not closes:  # must not hide what was found
        monkeypatch.setattr(RemoteCounter, "close", refuse)
    with federation.answers(1), pytest.raises(CheatingDetected):
        federation.run()
    assert not (federation.folder / "shop.run").exists()
    assert (federation.house.jobs() == []) is closes


def sealed_for(party, order, job="j1", key=KEY):
    text = order if isinstance(order, bytes) else order.to_bytes()
    return Job(job, PARTIES, {party: seal(text, key, "order", job, party)})


GOOD = Order(2, 5)
ODD = GOOD.to_bytes().replace(b'"duplications": 2', b'"duplications": 0')
DISAGREED = [
    (sealed_for("bank", Order(2, 5, cell=3), "j0"), "as printed"),
    (sealed_for("bank", Order(2, 5, hardened=False), "j1"), "as printed"),
    (sealed_for("bank", Order(2, 5, tokens="cell"), "j2"), "as printed"),
    (sealed_for("bank", Order(10**7, 5), "j3"), "encrypted IDs, over 50000000"),
    (sealed_for("bank", GOOD, "j4", key=bytes(32)), "does not open"),
    (Job("j5", PARTIES, sealed_for("bank", GOOD).envelopes), "does not open"),  # of another job
    (Job("j6", PARTIES, {"bank": sealed_for("telco", GOOD, "j6").envelopes["telco"]}),
     "does not open"),
    (sealed_for("telco", GOOD, "j7"), "no envelope for 'bank'"),
    (sealed_for("bank", ODD, "j8"), "order cannot be: duplications is 0; expected a whole number"),
    (sealed_for("bank", b"[" * 10**5, "j9"), "order is damaged, or of another version"),
]  # fmt: skip


def test_a_party_leaves_alone_what_it_does_not_agree_to(federation):
    shop = federation.house.counter("shop")
    for job, _ in DISAGREED:
        shop.open(job)
    shop.open(sealed_for("bank", GOOD, "good"))
    assert federation.answer("bank") == 1  # the last, whatever the others ask for
    assert federation.said.pop() == "job good is answered"
    for (job, words), line in zip(DISAGREED, federation.said, strict=True):
        assert f"job {job.id} is not answered" in line
        assert words in line


def test_the_largest_upload_is_compared_with_the_rows_of_the_block(federation, monkeypatch):
    monkeypatch.setattr(taskparty, "LEAST_ROWS", 0)
    shop = federation.house.counter("shop")
    for block in range(4):
        order = Order(2, 5, block=block, blocks=4)
        shop.open(sealed_for("bank", order, f"j{block}"))
    mean = ROWS // 4 * 2 + 5 + PADDING  # blocks are parts of the hashes, not of the rows
    assert 0 < federation.answer("bank", max_rows=mean) < 4
    assert f"encrypted IDs, over {mean}" in " ".join(federation.said)


def test_a_server_that_asks_for_ever_is_answered_three_times(federation):
    federation.house.counter("shop").open(sealed_for("bank", GOOD))
    asked = federation.house.counter("bank").pending("bank")
    sent = []
    deaf = SimpleNamespace(pending=lambda _: asked, submit=lambda job, *_: sent.append(job))
    looks = iter(range(5))
    with pytest.raises(StopIteration):
        answer_jobs(
            federation.party("bank"), deaf, max_jobs=2, poll=0,
            say=federation.said.append, sleep=lambda _: next(looks),
        )  # fmt: skip
    assert sent == ["j1"] * 3  # and they count as one
    assert federation.said == ["job j1 is answered"] + 2 * ["job j1 is answered again"]


def test_a_party_waits_for_a_server_that_is_away(federation):
    house = federation.house
    house.counter("shop").open(sealed_for("bank", GOOD))
    house.stop()
    with pytest.raises(CounterUnavailable):
        federation.answer("bank")
    looks = 0

    def sleep(_):
        nonlocal looks
        looks += 1
        if looks == 2:
            house.start(house.port)

    assert federation.answer("bank", once=False, max_jobs=1, sleep=sleep) == 1
    assert ["trying on" in line for line in federation.said] == [True, False, False]
    assert "the server is back" in federation.said


def test_a_party_whose_token_has_expired_stops(federation):
    federation.house.clock += 2 * 86400
    with pytest.raises(CounterRefused, match="expired"):
        federation.answer("bank", once=False)


def test_an_old_job_gets_the_same_answer_or_none(tmp_path):
    kept, said = tmp_path / "bank.state", []
    job, other = sealed_for("bank", GOOD), sealed_for("bank", Order(3, 5))
    later = sealed_for("bank", Order(3, 5), "j2")

    def answer(job, cells):
        """What a party says that starts anew, to a server that forgot everything."""
        state = PartyState(kept)  # as after a crash: the one before was never closed
        party = DataParty("bank", range(4), np.array(cells), KEY, secret=state.secret)
        server = CountingServer()
        server.open(job)
        answer_jobs(party, server, once=True, state=state, say=said.append)
        upload = server._uploads[job.id].get("bank")
        return None if upload is None else upload.to_bytes()

    first = answer(job, [0, 1, 1, 2])
    assert answer(job, [0, 1, 1, 2]) == first
    assert answer(job, [0, 1, 1, 0]) is None
    assert "its order or this party's data have changed since" in said[-1]
    assert answer(other, [0, 1, 1, 2]) is None
    assert answer(later, [0, 1, 1, 0]) is not None
    assert answer(later, [0, 1, 1, 2]) is None
    assert answer(job, [0, 1, 1, 2]) == first
    if os.name != "nt":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_text("z" * 64)
    with pytest.raises(ValueError, match="is not a party's file of what it must not forget"):
        PartyState(kept)


def test_a_flood_of_forged_jobs_is_twenty_lines(federation):
    looks, numbers = iter(range(10)), iter(range(10**6))
    flood = SimpleNamespace(
        pending=lambda _: [Job(f"f{next(numbers)}", PARTIES, {}) for _ in range(30)],
    )
    with pytest.raises(StopIteration):
        answer_jobs(
            federation.party("bank"), flood, poll=0, say=federation.said.append,
            sleep=lambda _: next(looks),
        )  # fmt: skip
    assert len(federation.said) == 21
    assert federation.said[-1] == "20 jobs were left alone; further ones are not named"
