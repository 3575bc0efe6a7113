"""The counting protocol: counts, join, keys, messages, what the server sees, and every attack."""

import itertools
import json
from collections import Counter as Tally
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals, refused

from fedkit.fedvalue.columns import VerticalData
from fedkit.fedvalue.information import mshapley_cmi
from fedkit.fedvalue.protocol import crypto, uploads
from fedkit.fedvalue.protocol import verification as bounds
from fedkit.fedvalue.protocol.attacks import ATTACKS, View, attempt
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples, count_uploads
from fedkit.fedvalue.protocol.messages import Job, MessageError, Order, Report, Table, Upload
from fedkit.fedvalue.protocol.parties import (
    PartyChanged,
    PartyMissing,
    TaskParty,
    count_here,
    count_securely,
    parties_of,
)
from fedkit.fedvalue.protocol.uploads import DataParty
from fedkit.fedvalue.protocol.verification import (
    AlignmentError,
)
from fedkit.streams import Streams

KEY = bytes(range(32))
PRINTED = {"variant": "cells", "hardened": False}
PRINTED_TABLE = {"hardened": False}
CELL_TOKENS = {"tokens": "cell"}
WAYS = {"hardened": {}, "cell tokens": CELL_TOKENS, "table": PRINTED_TABLE, "printed": PRINTED}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def random_codes(n: int, levels: tuple[int, ...] = (2, 2, 2), seed: int = 0):
    rng = Streams(seed).generator("codes")
    x, y, *parties = (rng.integers(0, m, n) for m in levels)
    return x, y, parties


def table_of(columns):
    return Tally(zip(*(np.asarray(c).tolist() for c in columns), strict=True))


def clear_table(codes):
    return table_of([codes[0], codes[1], *codes[2]])


def run(task: TaskParty, others: list[DataParty], server=None, **options):
    server = server or CountingServer()
    return task.count(server, wait=lambda: [party.serve(server) for party in others], **options)


def counted(task, others, server=None):
    """The table that the protocol finds, under everybody's own codes."""
    found = run(task, others, server)
    columns = [*task.task_cells[found.cells[:, 0]].T]
    columns += [party.levels[found.cells[:, 1 + d]] for d, party in enumerate(others)]
    cells = zip(*(c.tolist() for c in columns), strict=True)
    return dict(zip(cells, found.counts.tolist(), strict=True))


@settings(max_examples=25)
@given(
    n=st.integers(1, 40),
    levels=st.lists(st.integers(1, 4), min_size=3, max_size=5),
    way=st.sampled_from([{}, CELL_TOKENS, PRINTED_TABLE]),
    seed=st.integers(0, 10**6),
)
def test_counts_are_those_in_the_clear(n, levels, way, seed):
    codes = random_codes(n, tuple(levels), seed)
    assert counted(*parties_of(codes, seed=seed, **way)) == clear_table(codes)


@ways
def test_values_are_those_in_the_clear_bit_for_bit(way):
    rng = Streams(3).generator("data")
    data = VerticalData(
        rng.normal(size=(60, 1)), rng.integers(0, 2, 60),
        [rng.normal(size=(60, 1)), rng.integers(0, 2, (60, 2))],
    )  # fmt: skip
    clear = mshapley_cmi(data.x_task, data.y, data.parties, bins=2)
    found = count_securely(data, bins=2, seed=1, **way)
    assert np.array_equal(found.values().values, clear.values)
    assert found.values().task_value == clear.task_value
    assert found.counts.sum() == 60
    assert found.queries == (2 * 4 * 2 * 4 if way == PRINTED else 2)


def test_hardened_cells_are_refused():
    with pytest.raises(ValueError, match="knows the true table can deceive this count"):
        count_securely(VerticalData(*random_codes(12)), variant="cells")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(uploads, "LEAST_ROWS", 0)


def test_blocks_of_few_people_are_refused_by_every_party():
    task, others = parties_of(random_codes(3500), seed=0, blocks=4)
    words = "blocks is 4; expected one of 1000 rows at least, .*{} has 3500 rows"
    refused(words.format("task"), count_here, task, others)
    with pytest.raises(MessageError, match=words.format("party 1")):
        others[0].upload("j", Order(2, 3, block=1, blocks=4))
    assert len(others[0].upload("j", Order(2, 3, block=1, blocks=2)).ids) > 3000


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("hardened", [True, False])
def test_blocks_count_what_a_whole_table_does(hardened):
    codes = random_codes(200, (3, 2, 3, 2), 4)
    options = {"seed": 0, "hardened": hardened, "duplications": 2, "artificial": (3, 9)}
    whole = count_here(*parties_of(codes, **options))
    cut = count_here(*parties_of(codes, blocks=8, **options))
    assert np.array_equal(cut.cells, whole.cells)
    assert np.array_equal(cut.counts, whole.counts)
    assert cut.queries == 8 * whole.queries
    tiny = random_codes(3, seed=4)  # most blocks are empty
    assert counted(*parties_of(tiny, blocks=16, **options)) == clear_table(tiny)
    refused("blocks cut whole tables", parties_of, codes, variant="cells", blocks=2)


@pytest.mark.usefixtures("small_blocks")
def test_bound_of_blocks_is_that_of_the_weakest():
    codes = random_codes(40, seed=3)
    task, others = parties_of(codes, seed=0, duplications=2, artificial=30, blocks=4)
    bound = count_here(task, others).bound
    pairs = np.unique(np.stack(codes[:2]), axis=1, return_inverse=True)[1].ravel()
    parts = [np.bincount(pairs[task._roster.block(b, 4)]) for b in range(4)]
    least = [bounds.known_answers(part[part > 0], (2, 2), (30, 30)) for part in parts]
    assert min(least) < max(least) == pytest.approx(bound)
    rows = np.concatenate([task._roster.block(b, 4) for b in range(4)])
    assert np.array_equal(np.sort(rows), np.arange(40))  # each in one block


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("options", "job"),
    [({"blocks": 2, "iterations": 1}, 1), ({"blocks": 2}, 2), ({}, 1), (PRINTED, 5)],
    ids=["between blocks", "between blocks, twice each", "in one table", "cell by cell"],
)
def test_a_party_whose_cells_changed_during_a_run_is_named(options, job):
    codes = random_codes(300, (2, 2, 5), 7)
    task, (party,) = parties_of(codes, seed=0, **options)

    def returned(cells, secret=party._secret):
        return DataParty("party 1", party._roster, cells, task._key, secret=secret)

    def served_by(later):
        server = CountingServer()
        jobs = iter(range(10**6))
        return task.count(server, wait=lambda: (later, party)[next(jobs) < job].serve(server))

    column = codes[2][0]
    for later in (returned(column, bytes(32)), returned(column // 2), returned(column[::-1])):
        refused("'party 1' have changed during the run", served_by, later, error=PartyChanged)
    rows = np.arange(300)[::-1]  # the same people with the same cells, in another order
    again = DataParty("party 1", rows, column[::-1], task._key, secret=party._secret)
    assert served_by(again).counts.sum() == 300


def test_join_and_count_against_plain_sets():
    rng = Streams(1).generator("join")
    universe = rng.integers(0, 256, (40, 16), dtype=np.uint8)
    uploads, plain = [], []
    for _ in range(3):
        rows = rng.permutation(40)[:30]
        tokens = rng.integers(0, 3, 30).astype(np.uint32)
        uploads.append(Upload(universe[rows], tokens))
        names = (universe[row].tobytes() for row in rows)
        plain.append(dict(zip(names, tokens.tolist(), strict=True)))
    expected = Tally(tuple(p[k] for p in plain) for k in set.intersection(*map(set, plain)))
    table = count_uploads(uploads, ["a", "b", "c"])
    found = zip(map(tuple, table.tokens.tolist()), table.counts.tolist(), strict=True)
    assert dict(found) == expected
    half, other = np.zeros((1, 16), np.uint8), np.eye(1, 16, 15, dtype=np.uint8)
    halves = [Upload(ids, tokens[:1]) for ids in (half, other)]  # equal in their first 8 bytes
    assert len(count_uploads(halves, ["a", "b"]).counts) == 0
    nobody = Upload(universe[:0], tokens[:0])
    assert len(count_uploads([uploads[0], nobody], ["a", "b"]).counts) == 0


def test_count_tuples_on_codes_too_wide_for_one_word():
    rng = Streams(2).generator("wide")
    columns = [rng.integers(0, 3, 50) * (2**31 - 1) // 2 for _ in range(5)]
    tuples, counts = count_tuples(columns)
    found = dict(zip(map(tuple, tuples.tolist()), counts.tolist(), strict=True))
    assert found == table_of(columns)


def test_ids_hash_by_value_type_and_key():
    one = crypto.hash_ids([7, 8], KEY)
    assert np.array_equal(one, crypto.hash_ids(np.array([7, 8]), KEY))
    assert not np.array_equal(one, crypto.hash_ids([7, 8], bytes(32)))
    mixed = crypto.hash_ids([7, "7", b"7"], KEY)
    assert len({h.tobytes() for h in mixed}) == 3
    assert np.array_equal(mixed[0], one[0])
    for wrong in (1.5, None, True):
        refused("use str, int or bytes", crypto.hash_ids, [7, wrong], KEY)


def test_seals_open_in_their_context_only():
    sealed = crypto.seal(b"q = 3", KEY, "order", "j", "a")
    assert crypto.unseal(sealed, KEY, "order", "j", "a") == b"q = 3"
    for broken, key, context in [
        (sealed, KEY, ("order", "j", "b")), (sealed, bytes(32), ("order", "j", "a")),
        (sealed[:-1], KEY, ("order", "j", "a")), (b"", KEY, ("order", "j", "a")),
        (sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:], KEY, ("order", "j", "a")),
    ]:  # fmt: skip
        refused("does not open", crypto.unseal, broken, key, *context, error=crypto.SealError)
    assert crypto.seal(b"x", KEY, "ab", "c") != crypto.seal(b"x", KEY, "a", "bc")
    names = [("ab", "c"), ("a", "bc"), (b"ab", "c"), (b"str:ab", "c"), ("1",), (1,), (b"1",)]
    assert len({crypto.derive(KEY, *name) for name in names}) == len(names)


# ---- messages

REPORT = Report(4, bytes(8), b"of cells", np.array([1, -1]), np.array([3, 0]), np.array([1, 1, 0]))
UPLOAD = Upload(np.zeros((2, 16), np.uint8), np.arange(2, dtype=np.uint32), b"xyz")
TABLE = Table(np.zeros((1, 3), np.uint32), np.full(1, 6, np.int64), (b"s", b"", b"long"))


def message(kind: str, *numbers: int, body: bytes = b"") -> bytes:
    return kind.encode() + np.array(numbers, "<u4").tobytes() + body


def order(**fields) -> bytes:
    return json.dumps({"duplications": 2, "artificial": 5} | fields).ljust(256).encode()


def test_orders_reports_uploads_and_tables_survive_the_trip():
    for order in (Order(3, 5, 2, False, "cell"), Order(2, 9, block=3, blocks=4)):
        assert Order.from_bytes(order.to_bytes()) == order
    for room in (0, 3, 9):
        again = Report.from_bytes(REPORT.to_bytes(room))
        assert (again.rows, again.digest, again.artificial.tolist()) == (4, bytes(8), [1, 1, 0])
        assert again.assignment == b"of cells"
        assert (again.cells.tolist(), again.margin.tolist()) == ([1, -1], [3, 0])
    for sent in (UPLOAD, TABLE):
        again = type(sent).from_bytes(sent.to_bytes())
        assert again.sealed == sent.sealed
        assert again.to_bytes() == sent.to_bytes()


@pytest.mark.parametrize(
    "sent", [UPLOAD, TABLE, REPORT, Order(2, 5)], ids=lambda m: type(m).__name__
)
def test_a_message_cut_off_or_longer_anywhere_is_none(sent):
    data = sent.to_bytes()
    for wrong in (*(data[:end] for end in range(len(data))), data + b"x", b"FKV1" + data[4:]):
        with pytest.raises(MessageError, match=r"cut off|not the message|damaged|cannot be"):
            type(sent).from_bytes(wrong)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (Table, message("FKT2", 2**32 - 1, 1000, 0), "cut off"),
        (Order, order(duplications=0), "duplications is 0"),
        (Order, order(artificial=2 * 10**9), "artificial is 2000000000"),
        (Order, order(cell=-7), "cell is -7"),
        (Order, order(blocks=0), "blocks is 0"),
        (Order, order(blocks=3), "blocks is 3; expected a power of two"),
        (Order, order(block=4, blocks=4), "block is 4"),
        (Order, order(hardened=1), "hardened is 1"),
        (Order, order(more=1), "unexpected keyword"),
        (Order, b"{".ljust(256), "cannot be"),
        (Report, replace(REPORT, assignment=b"short").to_bytes(), "cut off"),
        (Report, replace(REPORT, artificial=np.array([2])).to_bytes(), "fit together"),
        (Report, replace(REPORT, artificial=np.array([-1])).to_bytes(), "fit together"),
        (Report, replace(REPORT, margin=np.array([3, -1])).to_bytes(), "fit together"),
    ],
)  # fmt: skip
def test_messages_that_no_party_writes(kind, data, words):
    refused(words, kind.from_bytes, data, error=MessageError)


class Watching(CountingServer):
    """Keeps every byte that it received."""

    def __init__(self):
        super().__init__()
        self.seen, self.names = b"", set()
        self.uploads: list[Upload] = []

    def open(self, job):
        self.names.add(job.id)
        self.seen += repr((job.id, job.parties)).encode() + b"".join(job.envelopes.values())
        super().open(job)

    def submit(self, job, party, upload):
        self.seen += upload.to_bytes()
        self.uploads.append(upload)
        super().submit(job, party, upload)


@ways
def test_what_the_server_receives_has_no_order_and_no_codes(way):
    codes = random_codes(64, (2, 2, 3), 9)
    codes = (codes[0] + 90001, codes[1] + 80001, [codes[2][0] + 70001])
    task, others = parties_of(codes, seed=4, **way)
    server = Watching()
    run(task, others, server)
    assert all(h.tobytes() not in server.seen for h in task._roster.hashes)
    assert task._key not in server.seen
    # a token for each of its rows would tell the task party the others' cells of that very row
    assert len(np.unique(server.uploads[0].tokens)) <= task.n_cells
    for upload in server.uploads:  # tokens are no codes, and encrypted IDs come in their own order
        assert upload.tokens.max() < 9 * 64 + 50 + 256
        words = upload.ids.view(">u8")[:, 0]
        assert np.all(words[1:] >= words[:-1])


@pytest.fixture
def party():
    return parties_of(random_codes(30), seed=0)[1][0]


@pytest.mark.parametrize(("hardened", "shared"), [(True, 0), (False, 30)])
def test_fresh_keys_unlink_iterations_and_the_printed_protocol_does_not(party, hardened, shared):
    order = Order(1, 0, hardened=hardened)
    first, second = ({row.tobytes() for row in party.upload(j, order).ids} for j in "ab")
    assert len(first & second) == shared


def test_padding_hides_the_size_of_a_set(party):
    sizes = {len(party.upload(f"j{i}", Order(2, 3)).ids) for i in range(30)}
    assert len(sizes) > 20
    assert min(sizes) >= 63
    assert {len(party.upload(f"j{i}", Order(2, 3, hardened=False)).ids) for i in range(3)} == {63}


@pytest.mark.parametrize("tokens", ["row", "cell"])
def test_the_length_of_what_is_sealed_does_not_tell_the_artificial_ids(tokens, party):
    """Of so many IDs 5 or 65 are artificial: the printed protocol shows it, by 4 bytes each."""
    for hardened, per_id in ((True, 12 if tokens == "row" else 4), (False, 0)):
        orders = [Order(q, n_r, None, hardened, tokens) for q, n_r in ((4, 5), (2, 65))]
        uploads = [party.upload("j", order) for order in orders]
        rest = {len(upload.sealed) - per_id * len(upload.ids) for upload in uploads}
        assert (len(rest) == 1) is hardened
        assert len({len(order.to_bytes()) for order in [*orders, Order(10**9, 10**9)]}) == 1


test_parties_that_cannot_be = refusals(
    (lambda: DataParty("b", [0, 4, 2, 4], np.zeros(4, int), KEY), "b holds the ID 4 more than"),
    (lambda: DataParty("b", range(6), np.zeros(5, int), KEY), "6 IDs and 5 rows"),
    (lambda: DataParty("b", range(6), np.zeros(6), KEY), "whole numbers"),
    (lambda: DataParty("b", [1], [0], b"short"), "the key is 5 bytes; expected 32 random"),
    (lambda: DataParty("b", [1], [0], KEY).answer(Job("j", ("a", "b"))), "no envelope"),
    (lambda: TaskParty("a", [1, 2], [0, 1], [0, 1], KEY, ["a"]), "different names"),
    (lambda: TaskParty("a", [1], [0], [0], KEY, ["b"], variant="cells"), "needs n_cells"),
    (lambda: TaskParty("a", [1, 2], [0, 1], [0, 1, 1], KEY, ["b"]), r"expected \(n,\)"),
    (lambda: parties_of(random_codes(4), duplications=2**31), "duplications is 2147483648"),
    (lambda: parties_of(random_codes(4), tokens="none"), "tokens is"),
    (lambda: parties_of(random_codes(4), names=["task"]), "different names, two or more"),
    (lambda: parties_of(random_codes(4), blocks=6), "blocks is 6; expected a power of two"),
)


def test_parties_that_do_not_fit_together():
    class Odd(DataParty):
        def upload(self, job, order):
            return super().upload(job, replace(order, artificial=0))

    x, y, (cells,) = random_codes(6)
    for party, error, words in [
        (DataParty("b", [0, 1, 2, 3, 4, 9], cells, KEY), AlignmentError, r"other IDs \(6 rows\)"),
        (Odd("b", range(6), cells, KEY), AlignmentError, "'b' reports 0 artificial IDs"),
        (DataParty("b", range(6), cells, bytes(32)), crypto.SealError, "keys differ"),
    ]:
        with pytest.raises(error, match=words):
            run(TaskParty("bank", list(range(6)), x, y, KEY, ["b"]), [party])


def test_party_that_drops_out_ends_in_one_clear_error():
    task, others = parties_of(random_codes(5, (2, 2, 2, 2)), seed=0)
    server = CountingServer()
    with pytest.raises(PartyMissing, match="party 1, party 2 has not answered"):
        run(task, others[:1], server, timeout=0.05)
    assert server.pending("party 2") == []  # the job was withdrawn


def test_a_server_that_will_not_forget_costs_no_table():
    class Clinging(CountingServer):
        def close(self, job):
            raise MessageError("not now")

    codes = random_codes(8, seed=1)
    assert counted(*parties_of(codes, seed=0), Clinging()) == clear_table(codes)


def example(n: int = 80, seed: int = 0):
    """Binary label and feature; a data party whose feature tells much of the label."""
    rng = Streams(seed).generator("example")
    x, y = rng.integers(0, 2, (2, n))
    flip = rng.random(n) < 0.2
    return x, y, [np.where(flip, 1 - y, y)]


def outcomes(attack, trials: int, codes=None, **options):
    attack, codes = ATTACKS.get(attack, attack), codes or example()
    return [attempt(attack, codes, seed=seed, **options) for seed in range(trials)]


def deceived(*of, **options) -> float:
    return float(np.mean([trial.changed for trial in outcomes(*of, **options)]))


def caught(attack, trials: int = 5, codes=None, **options) -> set[str]:
    return {trial.check for trial in outcomes(attack, trials, codes, **options)}


def altered(**columns):
    """An attack: the table with some of its fields made anew from it."""
    return lambda view: replace(
        view.table, **{name: make(view.table) for name, make in columns.items()}
    )


def moved(view: View):  # from one cell to another: the total stays
    counts = view.table.counts.copy()
    first, last = np.argsort(-counts)[:2]
    counts[first] -= 2
    counts[last] += 2
    return replace(view.table, counts=counts)


def stale(view: View):
    return replace(view.table, sealed=view.memory.setdefault("sealed", view.table.sealed))


def count_padding(view: View):
    tokens = view.table.tokens.copy()
    tokens[0, 1] = np.setdiff1d(np.arange(view.sizes[1]), tokens[:, 1])[0]
    return replace(view.table, tokens=tokens)


GARBAGE = [
    (altered(tokens=lambda t: t.tokens[:, :1]), "well-formed"),
    (altered(tokens=lambda t: t.tokens + np.uint32(10**6)), "well-formed"),
    (altered(counts=lambda t: t.counts + 2**60), "well-formed"),
    (altered(counts=lambda t: -t.counts), "non-negativity"),
    (altered(tokens=lambda t: t.tokens[:0], counts=lambda t: t.counts[:0]), "non-negativity"),
    (altered(sealed=lambda t: t.sealed[:-1]), "seal"),
    (altered(sealed=lambda t: t.sealed[::-1]), "seal"),
]


@pytest.mark.parametrize(
    ("attack", "way", "checks"),
    [
        *((attack, way, {check}) for attack, check in GARBAGE for way in ({}, PRINTED_TABLE)),
        # two IDs more at a known q pass the paper's checks; the total does not let them
        ("best bet", {"duplications": 2}, {"total"}),
        (moved, {"duplications": 2, **CELL_TOKENS}, {"margin"}),
        (stale, {"iterations": 2}, {"seal"}),
        (count_padding, {}, {"well-formed"}),
    ],
)
def test_the_check_that_catches_it(attack, way, checks):
    assert caught(attack, **way) == checks


def test_known_answers_bound_holds_and_is_tight():
    """The worst case: the data party's cell is the label, so any swap of rows does the same."""
    y = Streams(1).generator("y").integers(0, 2, 100)
    codes = (np.zeros(100, int), y, [y])
    rate = deceived("rank linking", 250, codes, duplications=(2, 3), artificial=50)
    bound = bounds.known_answers(np.bincount(y).tolist(), (2, 3), (50, 50))
    assert abs(rate - bound) < 0.08
    assert bounds.known_answers([50, 50], (2, 3), (50, 50)) == pytest.approx(0.8**4 * (6 / 7) ** 6)


def test_spread_makes_the_smallest_share_as_large_as_can_be():
    for sizes in ([5], [1, 1], [1, 4, 2], [7, 1, 3]):
        for extra in range(8):
            found = bounds.spread(extra, sizes)
            every = itertools.product(range(extra + 1), repeat=len(sizes))
            best = max(
                min(a / n for a, n in zip(way, sizes, strict=True))
                for way in every
                if sum(way) == extra
            )
            assert found.sum() == extra
            assert (found / np.array(sizes)).min() == pytest.approx(best)
    assert bounds.spread(3, [2, 9, 4, 8]).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("case", [(2, 2, 2), (2, 4, 2), (2, 9, 2), (2, 4, 3)])
def test_best_shift_against_all_shifts_that_could_pass(case):
    low, high, iterations = case
    draws = list(itertools.product(range(low, high + 1), repeat=iterations))
    probability, shifts = bounds.best_shift((low, high), iterations)
    passed = Tally(len({d / q for d, q in zip(shifts, q_, strict=True)}) == 1 for q_ in draws)
    assert probability == pytest.approx(passed[True] / len(draws))
    assert probability == pytest.approx((high - low + 1) ** (1 - iterations))
    size = 2 * int(np.lcm.reduce(np.arange(low, high + 1)))
    if size <= 24:  # every shift of every iteration
        every = np.array(list(itertools.product(range(1, size + 1), repeat=iterations)))
        passes = np.zeros(len(every), dtype=int)
        for q_ in draws:
            fits = (every % q_ == 0).all(axis=1)
            passes += fits & (every // q_ == every[:, :1] // q_[0]).all(axis=1)
        assert probability == pytest.approx(passes.max() / len(draws))


def test_proposition_2_and_its_step_for_one_count():
    assert bounds.proposition_2(2, 2, 16) == pytest.approx(2.0**-32)
    assert bounds.per_cell(2, 2) == 0.25
    assert bounds.best_shift((2, 9), 2, distinct=True)[0] == pytest.approx(3 / 56)


class Forgetful(CountingServer):
    """Restarts, and has forgotten everything, until what was drawn is to its liking."""

    def __init__(self, likes, patience):
        super().__init__()
        self.likes, self.patience, self.restarts, self.handed_in = likes, patience, 0, {}

    def submit(self, job, party, upload):
        self.handed_in.setdefault((job, party), []).append(upload.to_bytes())
        super().submit(job, party, upload)

    def table(self, job):
        found = super().table(job)
        if found is None or self.likes(found) or self.restarts == self.patience:
            return found
        self.restarts += 1
        CountingServer.__init__(self)
        return super().table(job)  # there is no such job


@pytest.mark.parametrize("way", [{}, PRINTED_TABLE], ids=["hardened", "printed"])
def test_a_server_that_restarts_until_it_likes_the_draw_gains_nothing(way):
    """It waits for few artificial IDs: the draws, and every byte, are the same each time."""
    codes = random_codes(40)
    drawn = {"seed": 3, "duplications": (2, 9), "artificial": (1, 50)} | way
    honest = run(*parties_of(codes, **drawn))
    least = honest.duplications[0] * 40 + 2
    server = Forgetful(lambda table: table.counts.sum() <= least, 20)
    found = run(*parties_of(codes, **drawn), server)
    assert server.restarts == 20
    assert max(map(len, server.handed_in.values())) == 21
    assert all(len(set(bodies)) == 1 for bodies in server.handed_in.values())
    assert len(server.handed_in) == 2 * 2  # two jobs, and no other was ever opened
    assert (found.duplications, found.artificial) == (honest.duplications, honest.artificial)
    assert np.array_equal(found.counts, honest.counts)
    assert found.bound == honest.bound


def test_a_count_is_safe_unless_asked_otherwise():
    data = VerticalData(*random_codes(50, (2, 2, 3)))
    for seed in range(3):
        found = count_securely(data, seed=seed)
        assert sorted(found.duplications) == [2, 3]
        assert found.artificial == (150, 150)
        assert found.bound == pytest.approx(0.4**4 * 0.5**6)  # 0.0004
    assert count_securely(data, seed=0, duplications=(2, 9), artificial=(1, 5)).bound > 0.5


def test_a_second_run_has_jobs_and_keys_of_its_own():
    task, others = parties_of(random_codes(30), seed=4)
    server = Watching()
    for _ in range(2):
        run(task, others, server)
    jobs = [{row.tobytes() for row in upload.ids} for upload in server.uploads]
    assert len(server.names) == 4
    assert not any(jobs[i] & other for i in range(0, 8, 2) for other in jobs[:i])
    second = Watching()  # another object with the same secret repeats the first
    run(parties_of(random_codes(30), seed=4)[0], others, second)
    assert second.names < server.names
