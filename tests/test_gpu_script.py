"""What a machine with a GPU is asked to do can be asked for, and its records come home."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import gpu
from fedkit.papers.registry import get

RUNS = [words.split() for lines in gpu.STEPS.values() for words in lines if words[:3] == "run"]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_every_step_names_cells_that_there_are(words: list[str]) -> None:
    settings = [part.split("=") for text in words[4:] for part in text.split(",")]
    assert get(words[1], words[2]).select("paper", **dict(settings))


def test_new_records_are_packed_and_unpacked(tmp_path: Path) -> None:
    results, home = tmp_path / "results", tmp_path / "home"
    (results / "paper" / "toy").mkdir(parents=True)
    home.mkdir()
    (results / "paper" / "toy" / "new.json").write_text("1")
    assert gpu.pack(results, time.time() - 60, tmp_path) == 1
    gpu.bring(tmp_path, home)
    assert (home / "paper" / "toy" / "new.json").read_text() == "1"
    assert gpu.pack(results, time.time() + 60, tmp_path) == 0
