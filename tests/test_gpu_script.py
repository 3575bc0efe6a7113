"""What a machine with a GPU is asked to do can be asked for, and its records come home."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from fedkit.papers.registry import get

RUNS = [words.split() for lines in gpu.STEPS.values() for words in lines if words[:3] == "run"]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_every_step_names_cells_that_there_are(words: list[str]) -> None:
    settings = [part.split("=") for text in words[4:] for part in text.split(",")]
    assert get(words[1], words[2]).select("paper", **dict(settings))


@pytest.mark.parametrize("step", gpu.DATA)
def test_the_data_of_a_step_are_carried(step: str) -> None:
    folders = {
        "MNIST/raw": {"mnist"}, "FashionMNIST/raw": {"fashionmnist"}, "cifar10": {"cifar10"},
        "EMNIST-subset/raw": {"emnist", "femnist"},
    }  # fmt: skip
    carried = set[str]().union(*(folders[part] for part in gpu.DATA[step]))
    needed = set()
    for words in (line.split() for line in gpu.STEPS[step]):
        settings = [part.split("=") for text in words[4:] for part in text.split(",")]
        cells = get(words[1], words[2]).select("paper", **dict(settings))
        needed |= {str(cell.settings["dataset"]) for cell in cells}
    assert needed <= carried


def test_a_second_run_brings_home_what_the_first_one_made(tmp_path, monkeypatch) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    results.mkdir()
    monkeypatch.setenv("FEDKIT_RESULTS", str(results))
    made = iter(("one", "two"))

    def compute(*_: object, **__: object) -> SimpleNamespace:
        (results / f"{next(made)}.json").write_text("1")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(gpu.subprocess, "run", compute)
    for _ in range(2):
        gpu.run(["equality"], "cpu", "smoke", 9.5, tmp_path, out)
    gpu.bring(out, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.json")} == {"one", "two"}


def test_new_records_are_packed_and_unpacked(tmp_path: Path) -> None:
    results, home = tmp_path / "results", tmp_path / "home"
    (results / "paper" / "toy").mkdir(parents=True)
    home.mkdir()
    (results / "paper" / "toy" / "new.json").write_text("1")
    assert gpu.pack(results, time.time() - 60, tmp_path) == 1
    gpu.bring(tmp_path, home)
    assert (home / "paper" / "toy" / "new.json").read_text() == "1"
    assert gpu.pack(results, time.time() + 60, tmp_path) == 0
