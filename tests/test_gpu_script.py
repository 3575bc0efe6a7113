"""What a machine with a GPU is asked to do can be asked for, and its records come home."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest

from benchmarks import gpu
from reproduction.experiments import get

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


def test_new_records_and_trainings_are_packed_and_unpacked(tmp_path: Path) -> None:
    results, home = tmp_path / "results", tmp_path / "home"
    record, trainings = results / "paper" / "toy" / "new.json", results / "trainings" / "toy"
    for folder in (record.parent, trainings, home):
        folder.mkdir(parents=True)
    record.write_text("1")
    for age, name in enumerate(("latest.npz", "older.npz", ".half.tmp.npz")):
        (trainings / name).write_bytes(bytes(100))
        os.utime(trainings / name, (time.time() - age,) * 2)
    assert gpu.pack(results, time.time() - 60, tmp_path) == (1, 2, 0)
    assert gpu.pack(results, time.time() - 60, tmp_path, limit=150) == (1, 1, 1)
    gpu.bring(tmp_path, home)
    assert (home / "paper" / "toy" / "new.json").read_text() == "1"
    assert [p.name for p in (home / "trainings" / "toy").iterdir()] == ["latest.npz"]
    assert gpu.pack(results, time.time() + 60, tmp_path) == (0, 0, 0)


def test_each_throughput_stands_beside_what_was_asked(tmp_path, monkeypatch, capsys) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    results.mkdir()
    monkeypatch.setenv("FEDKIT_RESULTS", str(results))

    def compute(*_: object, stdout: TextIO, **__: object) -> SimpleNamespace:
        stdout.write(
            "model    images  ratio\nmlp-200     600   1024    9   112.5x      0.0  a loop\n"
        )
        stdout.write("lenet5      600   1024    9    12.5x      0.0  a loop\n")
        stdout.flush()
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(gpu.subprocess, "run", compute)
    monkeypatch.setattr(gpu, "BENCHMARKS", gpu.BENCHMARKS[:1])
    gpu.run(["throughput"], "cpu", "smoke", 9.5, tmp_path, out)
    told = capsys.readouterr().out.splitlines()
    assert told[:-1] == [
        "mlp-200 600 1024: 112.5 times the loop, 100 asked: reached",
        "lenet5 600 1024: 12.5 times the loop, 100 asked: not reached",
    ]
    assert told[0] in (out / "log.txt").read_text()
