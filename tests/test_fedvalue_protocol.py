import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkit.fedvalue.cmi import CMIGame, mshapley_cmi
from fedkit.fedvalue.data import VerticalData
from fedkit.fedvalue.protocol import keys as crypto
from fedkit.fedvalue.protocol.counting import CountingServer, count_uploads
from fedkit.fedvalue.protocol.messages import Job, MessageError, Table, Upload
from fedkit.fedvalue.protocol.parties import Order
from fedkit.fedvalue.protocol.secure import (
    AlignmentError,
    CheatingDetected,
    DataParty,
    PartyMissing,
    TaskParty,
    count_securely,
    parties_of,
)
from fedkit.streams import Streams

KEY = bytes(range(32))
WAYS = [
    {"variant": variant, "hardened": hardened, "tokens": tokens}
    for variant, hardened, tokens in [
        ("table", True, "row"), ("table", True, "cell"), ("table", False, "cell"),
        ("cells", False, "cell"),
    ]
]  # fmt: skip


def random_codes(n: int, levels: tuple[int, ...], seed: int):
    rng = Streams(seed).generator("codes")
    x, y, *parties = (rng.integers(0, m, n) for m in levels)
    return x, y, parties


def clear_table(codes):
    columns = [codes[0], codes[1], *codes[2]]
    found = {}
    for row in zip(*(np.asarray(c).tolist() for c in columns), strict=True):
        found[row] = found.get(row, 0) + 1
    return found


def run(task: TaskParty, others: list[DataParty], server=None, **options):
    server = server or CountingServer()
    return task.count(server, wait=lambda: [party.serve(server) for party in others], **options)


def decoded(counts, task, others):
    table = {}
    for cell, n in zip(counts.cells, counts.counts.tolist(), strict=True):
        own = tuple(task.task_cells[cell[0]].tolist())
        rest = (int(party.levels[c]) for party, c in zip(others, cell[1:], strict=True))
        table[(*own, *rest)] = n
    return table


# ---- the counts


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 40),
    levels=st.lists(st.integers(1, 4), min_size=3, max_size=5),
    way=st.sampled_from(WAYS[:3]),
    seed=st.integers(0, 10**6),
)
def test_counts_are_those_in_the_clear(n, levels, way, seed):
    codes = random_codes(n, tuple(levels), seed)
    task, others = parties_of(codes, seed=seed, **way)
    assert decoded(run(task, others), task, others) == clear_table(codes)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: "-".join(map(str, w.values())))
def test_values_are_those_in_the_clear_bit_for_bit(way):
    rng = Streams(3).generator("data")
    data = VerticalData(
        rng.normal(size=(60, 1)), rng.integers(0, 2, 60),
        [rng.normal(size=(60, 1)), rng.integers(0, 2, (60, 2))],
    )  # fmt: skip
    bins = 2
    clear = mshapley_cmi(data.x_task, data.y, data.parties, bins=bins)
    found = count_securely(data, bins=bins, seed=1, **way)
    assert np.array_equal(found.values().values, clear.values)
    assert found.values().task_value == clear.task_value
    assert found.counts.sum() == 60
    queries = 2 if way["variant"] == "table" else 2 * 4 * 2 * 4
    assert found.queries == queries


def test_hardened_cells_are_refused_and_still_count_what_is_there():
    codes = random_codes(12, (2, 2, 2), 1)
    data = VerticalData(codes[0], codes[1], codes[2])
    with pytest.raises(ValueError, match="knows the true table deceives this count every time"):
        count_securely(data, variant="cells")
    task, others = parties_of(codes, seed=0, variant="cells")  # for lessons
    assert decoded(run(task, others), task, others) == clear_table(codes)


def test_parties_need_not_list_people_in_the_same_order():
    codes = random_codes(30, (2, 2, 3), 5)
    ids = np.array([f"u{i:02d}" for i in range(30)])
    mixed = Streams(5).generator("order").permutation(30)
    task = TaskParty("task", ids, codes[0], codes[1], KEY, ["a"])
    party = DataParty("a", ids[mixed].tolist(), codes[2][0][mixed], KEY)
    assert decoded(run(task, [party]), task, [party]) == clear_table(codes)


def test_table_without_task_features_and_values_from_it():
    y = np.array([0, 0, 1, 1])
    found = count_securely(VerticalData(None, y, [y.reshape(-1, 1)]), seed=0)
    game = CMIGame(None, y, [y.reshape(-1, 1)])
    assert found.values().values[0] == game.value(np.array([[True]]))[0]


def test_same_seed_same_bytes_and_no_seed_fresh_ones():
    codes = random_codes(20, (2, 2, 2), 0)
    order = Order(2, 3)

    def bytes_of(**options):
        return parties_of(codes, **options)[1][0].upload("job", order).to_bytes()

    assert bytes_of(seed=1) == bytes_of(seed=1)
    assert len({bytes_of(seed=1), bytes_of(seed=2), bytes_of(), bytes_of()}) == 4


# ---- the server


def test_rows_of_the_answer_do_not_follow_the_encrypted_ids():
    """Else the task party, who can encrypt every ID, could tell whose cell is whose."""
    codes = random_codes(50, (1, 2, 3), 0)
    task, (party,) = parties_of(codes, seed=0)
    order = Order(2, 3)
    own, other = (
        task.upload("j", dataclasses.replace(order, tokens="cell")),
        party.upload("j", order),
    )
    table = count_uploads([own, other], ["task", "party 1"])
    assert np.array_equal(np.sort(table.tokens[:, 1]), table.tokens[:, 1])
    assert not np.array_equal(np.sort(other.tokens), other.tokens)
    cells = party._cells
    made, cell_of = party._tokens(cells, 60, order, crypto.Stream(KEY, "t"))
    assert sorted(made.tolist()) == list(range(60))
    assert np.mean(made[1:] > made[:-1]) < 0.8  # tokens do not follow the rows
    assert np.array_equal(cell_of[made[:50]], cells)
    assert (cell_of[made[50:]] == -1).all()


# ---- what the server sees


class Watching(CountingServer):
    """Keeps every byte that it received."""

    def __init__(self):
        super().__init__()
        self.seen = b""
        self.uploads: list[Upload] = []
        self.names: set[str] = set()

    def open(self, job):
        self.names.add(job.id)
        self.seen += repr((job.id, job.parties)).encode() + b"".join(job.envelopes.values())
        super().open(job)

    def submit(self, job, party, upload):
        self.seen += upload.to_bytes()
        self.uploads.append(upload)
        super().submit(job, party, upload)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2], WAYS[3]], ids=["hardened", "table", "printed"])
def test_server_receives_no_id_feature_or_label(way):
    ids = np.array([f"customer-{i:05d}" for i in range(64)])
    codes = random_codes(64, (2, 2, 3), 9)
    codes = (codes[0] + 90001, codes[1] + 80001, [codes[2][0] + 70001])
    task, others = parties_of(codes, ids, seed=4, **way)
    server = Watching()
    run(task, others, server)
    low = server.seen.lower()
    for person in ids.tolist():
        assert person.encode() not in low
        assert person.encode()[::-1] not in low
    hashes = task._hashes
    assert all(h.tobytes() not in server.seen for h in hashes)
    assert all(crypto.derive(task._key, n) not in server.seen for n in ("ids", "seal", "hash"))
    assert task._key not in server.seen
    for secret in (90001, 80001, 70001, 90002, 80002):
        assert str(secret).encode() not in server.seen
        assert int(secret).to_bytes(8, "little") not in server.seen
    for upload in server.uploads:  # tokens are no codes, and encrypted IDs come in their own order
        assert upload.tokens.max() < 9 * 64 + 50 + 256
        words = upload.ids.view(">u8")[:, 0]
        assert np.all(words[1:] >= words[:-1])


def test_fresh_keys_unlink_iterations_and_the_printed_protocol_does_not():
    codes = random_codes(30, (2, 2, 2), 0)
    for hardened, shared in ((True, 0), (False, 30)):
        party = parties_of(codes, seed=0)[1][0]
        first, second = (
            {row.tobytes() for row in party.upload(job, Order(1, 0, fresh=hardened)).ids}
            for job in ("a", "b")
        )
        assert len(first & second) == shared


def test_padding_hides_the_size_of_a_set():
    party = parties_of(random_codes(30, (2, 2, 2), 0), seed=0)[1][0]
    sizes = {len(party.upload(f"j{i}", Order(2, 3)).ids) for i in range(30)}
    assert len(sizes) > 20
    assert min(sizes) >= 63
    assert {len(party.upload(f"j{i}", Order(2, 3, padding=0)).ids) for i in range(3)} == {63}


# ---- bad input


def test_unaligned_duplicate_and_missing_rows():
    codes = random_codes(6, (2, 2, 2), 0)
    task = TaskParty("bank", list(range(6)), codes[0], codes[1], KEY, ["shop"])
    other = DataParty("shop", [0, 1, 2, 3, 4, 9], codes[2][0], KEY)
    with pytest.raises(AlignmentError, match=r"'shop' holds other IDs \(6 rows\)"):
        run(task, [other])

    class Odd(DataParty):
        def upload(self, job, order):
            return super().upload(job, dataclasses.replace(order, artificial=0))

    with pytest.raises(AlignmentError, match="'shop' reports 0 artificial IDs"):
        run(task, [Odd("shop", range(6), codes[2][0], KEY)])
    with pytest.raises(ValueError, match="shop holds the ID 4 more than once"):
        DataParty("shop", [0, 4, 2, 3, 4, 5], codes[2][0], KEY)
    with pytest.raises(ValueError, match="0 IDs and 0 rows"):
        DataParty("shop", [], np.zeros(0, int), KEY)
    with pytest.raises(ValueError, match="6 IDs and 5 rows"):
        DataParty("shop", range(6), np.zeros(5, int), KEY)
    with pytest.raises(ValueError, match="whole numbers"):
        DataParty("shop", range(6), np.zeros(6), KEY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"duplications": 0}, "duplications is 0"),
        ({"duplications": (2, -3)}, "duplications is -3"),
        ({"duplications": (5, 2)}, "low at most high"),
        ({"artificial": -1}, "artificial is -1"),
        ({"artificial": (1, 2, 3)}, "a pair"),
        ({"duplications": 2.5}, "whole number"),
        ({"iterations": True}, "whole number"),
        ({"padding": -1}, "padding is -1"),
        ({"duplications": 2**31}, "whole number from 1 to 2147483647"),
        ({"tokens": "none"}, "tokens is"),
        ({"variant": "both"}, "variant is"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        parties_of(random_codes(4, (2, 2, 2), 0), seed=0, **options)


def test_names_cells_and_lengths_are_checked():
    with pytest.raises(ValueError, match="different names"):
        TaskParty("a", [1, 2], [0, 1], [0, 1], KEY, ["a"])
    with pytest.raises(ValueError, match="different names"):
        TaskParty("a", [1, 2], [0, 1], [0, 1], KEY, [])
    with pytest.raises(ValueError, match="needs n_cells"):
        TaskParty("a", [1, 2], [0, 1], [0, 1], KEY, ["b"], variant="cells")
    with pytest.raises(ValueError, match="one code per row"):
        TaskParty("a", [1, 2], [0, 1], [0, 1, 1], KEY, ["b"])
    with pytest.raises(MessageError, match="no envelope"):
        DataParty("b", [1], [0], KEY).answer(Job("j", ("a", "b")))


def test_party_that_drops_out_ends_in_one_clear_error():
    task, others = parties_of(random_codes(5, (2, 2, 2, 2), 0), seed=0)
    server = CountingServer()
    started = time.monotonic()
    with pytest.raises(PartyMissing, match="party 1, party 2 has not answered"):
        task.count(server, wait=lambda: others[0].serve(server), timeout=0.05)
    assert time.monotonic() - started < 5
    assert server.pending("party 2") == []  # the job was withdrawn


def test_a_server_that_will_not_forget_hides_nothing_and_costs_nothing():
    class Clinging(CountingServer):
        def close(self, job):
            raise MessageError("not now")

    codes = random_codes(8, (2, 2, 2), 1)
    task, others = parties_of(codes, seed=0)
    with pytest.raises(PartyMissing):
        task.count(Clinging(), wait=lambda: None, timeout=0.01)
    assert decoded(run(task, others, Clinging()), task, others) == clear_table(codes)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]], ids=["hardened", "printed"])
def test_who_counts_twice_uses_no_secret_twice(way):
    codes = random_codes(30, (2, 2, 2), 0)
    task, others = parties_of(codes, seed=4, **way)
    server, jobs = Watching(), []
    counted = [run(task, others, server) for _ in range(4)]
    for upload in server.uploads:
        jobs.append({row.tobytes() for row in upload.ids})
    if way["hardened"]:  # 4 runs, 2 iterations, 2 parties: nothing in common but within a job
        for i in range(0, 16, 2):
            for other in jobs[:i]:
                assert not jobs[i] & other
    assert len(server.names) == 8
    assert len({c.duplications + c.artificial for c in counted}) > 1
    again = parties_of(codes, seed=4, **way)[0].count  # taken up after a crash: the same jobs
    second = Watching()
    again(second, wait=lambda: [party.serve(second) for party in others])
    assert second.names < server.names
    assert all(np.array_equal(c.counts, counted[0].counts) for c in counted)


def test_late_answer_is_waited_for_and_a_second_one_not_asked_for():
    class Late(CountingServer):
        asked = 0

        def table(self, job):
            self.asked += 1
            return None if self.asked % 3 else super().table(job)

    codes = random_codes(8, (2, 2, 2), 1)
    task, others = parties_of(codes, seed=0)
    server = Late()
    assert decoded(run(task, others, server), task, others) == clear_table(codes)
    assert server.asked == 6


def test_server_that_answers_with_garbage():
    class Garbage(CountingServer):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def table(self, job):
            table = super().table(job)
            return table if table is None else self.change(table)

    def replace(**columns):
        return lambda table: dataclasses.replace(
            table, **{name: make(table) for name, make in columns.items()}
        )

    def swapped(table):
        return dict(zip(table.sealed, reversed(table.sealed.values()), strict=True))

    for change, check in [
        (replace(tokens=lambda t: t.tokens[:, :1]), "well-formed"),
        (replace(tokens=lambda t: t.tokens + np.uint32(10**6)), "well-formed"),
        (replace(counts=lambda t: t.counts + 2**60), "well-formed"),
        (replace(counts=lambda t: -t.counts), "non-negativity"),
        (replace(sealed=lambda t: {}), "seal"),
        (replace(sealed=swapped), "seal"),
        (lambda t: Table(t.tokens[:0], t.counts[:0], t.sealed), "non-negativity"),
    ]:  # fmt: skip
        for hardened in (True, False):
            task, others = parties_of(random_codes(9, (2, 2, 2), 0), seed=0, hardened=hardened)
            with pytest.raises(CheatingDetected) as caught:
                run(task, others, Garbage(change))
            assert (caught.value.check, caught.value.iteration) == (check, 1)


def test_another_key_is_noticed():
    codes = random_codes(6, (2, 2, 2), 0)
    task = TaskParty("t", range(6), codes[0], codes[1], KEY, ["a"])
    with pytest.raises(crypto.SealError, match="keys differ"):
        run(task, [DataParty("a", range(6), codes[2][0], bytes(32))])


def test_party_that_starts_again_sends_the_same_upload():
    codes = random_codes(10, (2, 2, 2), 0)
    server = CountingServer()
    for _ in range(2):  # the second time after a crash, from the same secret
        _, (party,) = parties_of(codes, seed=0)
        order = crypto.seal(Order(2, 1).to_bytes(), party._key, "order", "j", "party 1")
        job = Job("j", ("task", "party 1"), {"party 1": order})
        server.open(job)
        server.submit("j", "party 1", party.answer(job))
