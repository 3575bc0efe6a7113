"""The file in which a task party remembers a run while it lasts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("cryptography")

from fedkit.fedvalue.service.client import CounterRefused, CounterUnavailable
from fedkit.fedvalue.service.unfinished import Unfinished


def test_jobs_of_another_command_are_given_up_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.run"
    first = Unfinished(path, ["shop", "bank"])
    first.opened("a-0")
    first.opened("a-0")
    with path.open("a", encoding="ascii") as file:
        file.write("cut o")  # killed while it wrote
    again = Unfinished(path, ["shop", "bank"])
    assert again.known
    assert again.secret == first.secret
    again.opened("a-1")
    closed: list[str] = []

    def close(job: str) -> None:
        closed.append(job)
        if len(closed) == 1:
            raise CounterUnavailable("no answer")
        if len(closed) == 2:
            raise CounterRefused(410, "it is closed")

    counter: Any = SimpleNamespace(close=close)
    assert not again.give_up_others(counter)
    other = Unfinished(path, ["shop", "bank", "telco"])
    assert not other.known
    assert other.secret != first.secret
    other.opened("b-0")
    with pytest.raises(CounterUnavailable):
        other.give_up_others(counter)
    other = Unfinished(path, ["shop", "bank", "telco"])
    assert other.known
    assert other.give_up_others(counter)
    assert closed == ["a-0", "a-0", "a-1"]
    assert not other.give_up_others(counter)
    assert not Unfinished(path, ["shop", "bank"]).known
    assert Unfinished(path, ["shop", "bank", "telco"]).secret == other.secret
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_remembers_no_run(tmp_path: Path) -> None:
    path = tmp_path / "shop.run"
    for text in ("", "ab12", "z" * 64, "é" * 64):
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match=r"shop\.run does not remember a run.*delete it"):
            Unfinished(path, ["shop"])
