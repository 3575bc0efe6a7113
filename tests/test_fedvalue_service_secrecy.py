"""What reaches the counting server, searched for every ID, feature value and label."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from countinghouse import PARTIES, House, job

from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.data import discretise, joint_codes, label_codes
from fedkit.fedvalue.protocol.messages import Upload
from fedkit.fedvalue.protocol.secure import DataParty, TaskParty
from fedkit.streams import Streams


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    yield found
    found.stop()


def plaintexts(ids: list[str], columns: np.ndarray, labels: list[str]) -> set[bytes]:
    """Every ID, feature value and label, as text and as the bytes of a number."""
    found = {text.encode() for text in [*ids, *set(labels)]}
    for x in columns.ravel().tolist():
        found |= {str(x).encode(), np.float64(x).tobytes(), np.float32(x).tobytes()}
    return found


def occurring(patterns: set[bytes], texts: list[bytes]) -> set[bytes]:
    everything = b"\n".join(texts)
    return {pattern for pattern in patterns if pattern in everything}


def opened(texts: list[bytes]) -> list[bytes]:
    """The texts, and what hides in base 64 inside them."""
    found = list(texts)
    for text in texts:
        if text.startswith(b"{"):
            data = json.loads(text)
            envelopes = data.get("job", data).get("envelopes", {})
            found += [base64.b64decode(envelope) for envelope in envelopes.values()]
    return found


def test_the_server_receives_no_id_no_feature_and_no_label(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    random = Streams(3).generator("people")
    rows = 150
    ids = [f"person-{i:04d}" for i in random.permutation(10_000)[:rows]]
    x = random.normal(size=(rows, 6)).round(7)
    labels = ["malignant" if v else "benignant" for v in x[:, 0] + x[:, 2] * x[:, 4] > 0]
    secret = plaintexts(ids, x, labels)
    key = bytes(range(32))
    cells = [joint_codes(discretise(x[:, i : i + 2]).reshape(rows, -1)) for i in (0, 2, 4)]
    task = TaskParty("shop", ids, cells[0], label_codes(np.array(labels)), key, PARTIES[1:])
    others = [DataParty(n, ids, c, key) for n, c in zip(PARTIES[1:], cells[1:], strict=True)]
    counters = {party: house.counter(party) for party in PARTIES}
    on_disk: list[bytes] = []

    def wait() -> None:
        for party in others:
            party.serve(counters[party.name])
        folder = house.folder / "kept"
        on_disk.extend(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    found = task.count(counters["shop"], wait=wait).values()
    clear = mshapley_cmi(x[:, :2], labels, [x[:, 2:4], x[:, 4:]], names=PARTIES[1:])
    assert found.values.tolist() == clear.values.tolist()
    assert found.task_value == clear.task_value
    assert sum(map(len, on_disk)) > 3 * 2 * rows * 20
    texts = opened(house.received) + opened(on_disk)
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
