"""The server's join, keys and seals, and how messages are read."""

import dataclasses

import numpy as np
import pytest

from fedkit.fedvalue.protocol import keys as crypto
from fedkit.fedvalue.protocol.counting import CountingServer, count_tuples, count_uploads
from fedkit.fedvalue.protocol.messages import Job, MessageError, Table, Upload
from fedkit.fedvalue.protocol.parties import Order, Report
from fedkit.streams import Streams

KEY = bytes(range(32))

# ---- the server


def test_join_and_count_against_plain_sets():
    rng = Streams(1).generator("join")
    universe = rng.integers(0, 256, (40, 16), dtype=np.uint8)
    universe[:20, :8] = 7  # many share their first 8 bytes: all 16 count
    uploads, plain = [], []
    for _ in range(3):
        rows = rng.permutation(40)[:30]
        tokens = rng.integers(0, 3, 30).astype(np.uint32)
        uploads.append(Upload(universe[rows], tokens))
        plain.append(dict(zip((universe[r].tobytes() for r in rows), tokens.tolist(), strict=True)))
    expected: dict = {}
    for key in set.intersection(*map(set, plain)):
        name = tuple(p[key] for p in plain)
        expected[name] = expected.get(name, 0) + 1
    table = count_uploads(uploads, ["a", "b", "c"])
    assert (
        dict(zip(map(tuple, table.tokens.tolist()), table.counts.tolist(), strict=True)) == expected
    )


def test_count_tuples_on_codes_too_wide_for_one_word():
    rng = Streams(2).generator("wide")
    columns = [rng.integers(0, 3, 50) * (2**31 - 1) // 2 for _ in range(5)]
    tuples, counts = count_tuples(columns)
    plain: dict = {}
    for row in zip(*(c.tolist() for c in columns), strict=True):
        plain[row] = plain.get(row, 0) + 1
    assert dict(zip(map(tuple, tuples.tolist()), counts.tolist(), strict=True)) == plain


def test_server_refuses_strangers_second_thoughts_and_unknown_jobs():
    server = CountingServer()
    job = Job("j", ("a", "b"))
    server.open(job)
    server.open(Job("j", ("a", "b")))
    with pytest.raises(MessageError, match="another"):
        server.open(Job("j", ("a", "c")))
    with pytest.raises(MessageError, match="each once"):
        server.open(Job("k", ("a", "a")))
    upload = Upload(np.zeros((1, 16), np.uint8), np.zeros(1, np.uint32))
    server.submit("j", "a", upload)
    server.submit("j", "a", Upload(upload.ids.copy(), upload.tokens.copy()))
    with pytest.raises(MessageError, match="already sent"):
        server.submit("j", "a", Upload(upload.ids + np.uint8(1), upload.tokens))
    with pytest.raises(MessageError, match="no part"):
        server.submit("j", "c", upload)
    with pytest.raises(MessageError, match="no job"):
        server.submit("x", "a", upload)
    assert server.table("j") is None
    assert [j.id for j in server.pending("b")] == ["j"]
    server.submit("j", "b", Upload(np.zeros((2, 16), np.uint8), np.zeros(2, np.uint32)))
    with pytest.raises(MessageError, match="twice"):
        server.table("j")
    server.close("j")
    server.close("j")
    with pytest.raises(MessageError, match="no job"):
        server.table("j")


# ---- keys, seals, messages


def test_ids_hash_by_value_type_and_key():
    one = crypto.hash_ids([7, 8], KEY)
    assert np.array_equal(one, crypto.hash_ids(np.array([7, 8]), KEY))
    assert np.array_equal(one, crypto.hash_ids(list(np.array([7, 8])), KEY))
    assert not np.array_equal(one, crypto.hash_ids(["7", "8"], KEY))
    assert not np.array_equal(one, crypto.hash_ids([7, 8], bytes(32)))
    mixed = crypto.hash_ids([7, "7", b"7"], KEY)
    assert len({h.tobytes() for h in mixed}) == 3
    assert np.array_equal(mixed[0], one[0])
    with pytest.raises(ValueError, match="use str, int or bytes"):
        crypto.hash_ids([1.5], KEY)
    with pytest.raises(ValueError, match="32 random bytes"):
        crypto.hash_ids([1], b"short")


def test_aes_matches_a_published_vector():
    key = bytes(range(32))  # FIPS 197, C.3
    text = bytes.fromhex("00112233445566778899aabbccddeeff")
    out = crypto.encrypt_blocks(np.frombuffer(text, np.uint8).reshape(1, 16), key)
    assert out.tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_seals_open_in_their_context_only():
    sealed = crypto.seal(b"q = 3", KEY, "order", "j", "a")
    assert crypto.unseal(sealed, KEY, "order", "j", "a") == b"q = 3"
    for broken, key, context in [
        (sealed, KEY, ("order", "j", "b")), (sealed, bytes(32), ("order", "j", "a")),
        (sealed[:-1], KEY, ("order", "j", "a")), (b"", KEY, ("order", "j", "a")),
        (sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:], KEY, ("order", "j", "a")),
    ]:  # fmt: skip
        with pytest.raises(crypto.SealError, match="does not open"):
            crypto.unseal(broken, key, *context)
    assert crypto.seal(b"x", KEY, "ab", "c") != crypto.seal(b"x", KEY, "a", "bc")
    names = [("ab", "c"), ("a", "bc"), (b"ab", "c"), (b"str:ab", "c"), ("1",), (1,), (b"1",)]
    assert len({crypto.derive(KEY, *name) for name in names}) == len(names)


def test_streams_are_fair_and_repeatable():
    stream = crypto.Stream(KEY, "s")
    draws = stream.integers(2, 10, 8000)
    assert set(draws.tolist()) == set(range(2, 10))
    assert abs(np.bincount(draws)[2:] - 1000).max() < 150
    assert sorted(stream.permutation(50).tolist()) == list(range(50))
    assert crypto.Stream(KEY, "s").integer(0, 10**9) == crypto.Stream(KEY, "s").integer(0, 10**9)


def test_orders_and_reports_survive_the_trip():
    order = Order(3, 5, 2, False, 0, "cell")
    assert Order.from_bytes(order.to_bytes()) == order
    for wrong in (b"{}", b"[1]", b"not json", b"[" * 10**5, b'{"duplications": 2, "q": 1}'):
        with pytest.raises(MessageError, match="damaged"):
            Order.from_bytes(wrong)
    report = Report(4, "ab", np.array([1, -1]), np.array([3, 0]), np.array([1, 1, 0]))
    again = Report.from_bytes(report.to_bytes())
    assert (again.rows, again.digest, again.artificial.tolist()) == (4, "ab", [1, 1, 0])
    assert again.cells.tolist() == [1, -1]
    assert again.margin.tolist() == [3, 0]


def message(kind: bytes, head: str, body: bytes = b"") -> bytes:
    return b"FKV1" + len(head).to_bytes(4, "little") + head.encode() + body


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("[" * 10**5, "damaged"),
        ('{"kind": "table", "x": ' + "[" * 10**5, "damaged"),
        (" " * 2**21, "are allowed"),
        ('{"kind": "table", "rows": 0, "parties": 10000, "sealed": [], "sizes": [0, 0]}',
         "10000 parties; expected 1 to 1000"),
        ('{"kind": "table", "rows": 0, "parties": 2.5, "sealed": [], "sizes": [0, 0]}',
         "parties is 2.5"),
        ('{"kind": "table", "rows": 10000000000000000000, "parties": 0, "sealed": [],'
         ' "sizes": [0, 0]}', "0 parties; expected"),
        ('{"kind": "table", "rows": 10000000000000000000, "parties": 1, "sealed": [],'
         ' "sizes": [0, 0]}', "do not hold"),
        ('{"kind": "table", "rows": 0, "parties": 2, "sealed": [[]], "sizes": [0, 0, 0]}',
         "do not match their names"),
    ],
)  # fmt: skip
def test_heads_that_no_party_writes(head, words):
    with pytest.raises(MessageError, match=words):
        Table.from_bytes(message(b"table", head))
    with pytest.raises(MessageError):
        Upload.from_bytes(message(b"upload", head))


def test_an_upload_of_four_parts_is_no_upload():
    good = Upload(np.zeros((2, 16), np.uint8), np.arange(2, dtype=np.uint32), b"").to_bytes()
    head = '{"kind": "upload", "rows": 2, "sizes": [32, 8, 0, 3]}'
    body = good[-40:] + b"xyz"
    with pytest.raises(MessageError, match="has 4 parts"):
        Upload.from_bytes(message(b"upload", head, body))
    assert len(Upload.from_bytes(message(b"upload", head.replace(", 3]", "]"), body[:-3])).ids) == 2


def test_reports_that_do_not_fit_together():
    good = Report(4, "ab", np.array([1, -1]), np.array([3, 0]), np.array([1, 1, 0]))
    for wrong, words in [
        (b"[" * 10**5, "damaged"), (b"{}", "damaged"), (b'[4, "ab", 2.5]\n', "damaged"),
        (b'[4, "ab", 9]\n' + bytes(12), "fit together"), (b'[4, 5, 0]\n', "fit together"),
        (dataclasses.replace(good, artificial=np.array([2])).to_bytes(), "fit together"),
        (dataclasses.replace(good, artificial=np.array([-1])).to_bytes(), "fit together"),
        (dataclasses.replace(good, margin=np.array([3, -1])).to_bytes(), "fit together"),
    ]:  # fmt: skip
        with pytest.raises(MessageError, match=words):
            Report.from_bytes(wrong)
