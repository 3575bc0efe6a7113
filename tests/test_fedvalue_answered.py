"""What a data party does with orders that cannot be, and with jobs that it has answered before."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("pandas")

from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.keys import seal
from fedkit.fedvalue.protocol.messages import Job
from fedkit.fedvalue.protocol.parties import Order
from fedkit.fedvalue.protocol.secure import DataParty
from fedkit.fedvalue.service.parties import Policy, answer_jobs

KEY = bytes(range(32))
PARTIES = ("shop", "bank", "telco")


def sealed_job(order: bytes, name: str = "j1") -> Job:
    return Job(name, PARTIES, {"bank": seal(order, KEY, "order", name, "bank")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"duplications": 2.5}, "duplications = 2.5"),
        ({"duplications": -3}, "duplications = -3"),
        ({"duplications": True}, "duplications = True"),
        ({"duplications": 10**30}, "duplications = 1000"),
        ({"duplications": 1e400}, "duplications = inf"),
        ({"duplications": "3"}, "duplications = '3'"),
        ({"artificial": None}, "artificial = None"),
        ({"artificial": 1.0}, "artificial = 1.0"),
        ({"padding": [[1]]}, "padding = a list"),
        ({"cell": 2**70}, "cell = 1180"),
        ({"cell": "0"}, "cell = '0'"),
        ({"fresh": 1}, "fresh = 1"),
        ({"tokens": ["row"]}, "tokens = a list"),
        ({"date": 3}, "damaged"),
    ],
)
def test_an_order_that_cannot_be_is_one_clear_refusal(change: dict[str, Any], words: str) -> None:
    server, said = CountingServer(), list[str]()
    good = sealed_job(Order(2, 5).to_bytes(), "good")
    server.open(sealed_job(json.dumps(asdict(Order(2, 5)) | change).encode(), "odd"))
    server.open(sealed_job(b"[" * 10**5, "deep"))
    server.open(good)
    party = DataParty("bank", range(8), np.arange(8), KEY)
    for printed in (False, True):
        said.clear()
        policy = Policy(printed=printed)
        server._uploads["good"].pop("bank", None)
        assert answer_jobs(party, KEY, server, policy=policy, rows=8, once=True, say=said.append)
        assert said[0].startswith("job odd is not answered: the task party's order ")
        assert words in said[0]
        assert said[1:] == [
            "job deep is not answered: the task party's order is damaged", "job good is answered"
        ]  # fmt: skip
    assert len(party.answer(good).ids) >= 21


def test_an_old_job_gets_the_same_answer_or_none(tmp_path: Path) -> None:
    kept, secret, said = tmp_path / "bank.answered", bytes(32), list[str]()
    job, other = sealed_job(Order(2, 5).to_bytes()), sealed_job(Order(3, 5).to_bytes())

    def answer(job: Job, cells: list[int], path: Path | None = kept) -> bytes | None:
        """What a party says that starts anew, to a server that forgot everything."""
        party = DataParty("bank", range(4), np.array(cells), KEY, secret=secret)
        server = CountingServer()
        server.open(job)
        answer_jobs(
            party, KEY, server, policy=Policy(), rows=4, once=True, answered=path, say=said.append
        )
        upload = server._uploads[job.id].get("bank")
        return None if upload is None else upload.to_bytes()

    first = answer(job, [0, 1, 1, 2])
    assert first is not None
    assert answer(job, [0, 1, 1, 2]) == first
    with kept.open("a") as file:
        file.write("killed while wri")
    assert answer(job, [0, 1, 1, 0]) is None
    assert "its order or this party's data have changed since" in said[-1]
    assert answer(other, [0, 1, 1, 2]) is None
    assert answer(sealed_job(Order(3, 5).to_bytes(), "j2"), [0, 1, 1, 0]) is not None
    assert answer(sealed_job(Order(3, 5).to_bytes(), "j2"), [0, 1, 1, 2]) is None
    assert answer(job, [0, 1, 1, 2]) == first
    assert answer(job, [0, 1, 1, 0], None) is not None  # nothing to remember by
