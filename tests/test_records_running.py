from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toyrecords import cell, compute

from fedkit.papers.staleness import check_records
from fedkit.records import running as _running
from fedkit.records.locks import try_lock
from fedkit.records.store import Cell, CellError, Store, run_cells


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_finished_cells_are_skipped(store: Store) -> None:
    cells = [cell("a"), cell("b"), cell("a")]
    calls: list[str] = []

    def counted(c: Cell) -> list[dict[str, object]]:
        calls.append(str(c.settings["method"]))
        return compute(c)

    assert len(run_cells(cells, counted, store, progress=False).computed) == 2
    assert len(run_cells(cells, counted, store, progress=False).skipped) == 2
    assert calls == ["a", "b"]
    assert len(run_cells(cells, counted, store, progress=False, force=True).computed) == 2
    assert calls == ["a", "b", "a", "b"]
    manifest = store.load(cells[0]).manifest
    assert manifest["evaluations"] == 15
    assert manifest["data"] == [{"name": "toy", "source": "made here", "checksum": "0"}]


def test_what_a_cell_leaves_in_a_cycle_is_freed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large:
        """Stands for a federation: its table refers to itself."""

    left: list[weakref.ref[Large]] = []
    alive: list[int] = []

    def leaves(c: Cell) -> list[dict[str, object]]:
        alive.append(sum(item() is not None for item in left))
        large = Large()
        large.itself = large  # type: ignore[attr-defined]
        left.append(weakref.ref(large))
        return compute(c)

    monkeypatch.setattr(_running, "_COLLECT_AFTER", -1.0)
    gc.disable()
    try:
        run_cells([cell("a"), cell("b"), cell("c")], leaves, store, progress=False)
    finally:
        gc.enable()
    assert alive == [0, 0, 0]


def test_failures_stop_or_are_kept(store: Store) -> None:
    def fails(c: Cell) -> list[dict[str, object]]:
        if c.settings["method"] == "a":
            raise ZeroDivisionError("no clients")
        return compute(c)

    with pytest.raises(CellError, match=r"cell a-alpha0.1.* failed: no clients"):
        run_cells([cell("a"), cell("b")], fails, store, progress=False)
    assert not list(store.root.rglob("*.json"))
    assert not list(store.root.rglob("*.lock"))
    outcome = run_cells([cell("a"), cell("b")], fails, store, progress=False, on_error="continue")
    assert [c.settings["method"] for c, _ in outcome.failed] == ["a"]
    assert outcome.computed == [cell("b")]
    with pytest.raises(ValueError, match="on_error"):
        run_cells([], fails, store, on_error="ignore")


def test_a_cell_has_one_runner(store: Store) -> None:
    c = cell()
    lock = store.path(c).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with try_lock(lock) as first:
        assert first
        assert run_cells([c], compute, store, progress=False).busy == [c]
    lock.write_text("999999\n")  # left by a process that is gone
    assert run_cells([c], compute, store, progress=False).computed == [c]
    assert not lock.exists()


def test_a_cell_finished_while_we_waited_is_not_computed_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def late(path: Path) -> Iterator[bool]:
        store.save(cell(), compute(cell()))  # another runner, between our look and our lock
        with try_lock(path) as ours:
            yield ours

    monkeypatch.setattr(_running, "try_lock", late)
    assert run_cells([cell()], pytest.fail, store, progress=False).skipped == [cell()]


RUNNER = """
import sys, time
from pathlib import Path
from fedkit.records.store import Cell, Store, run_cells

root, log = Path(sys.argv[1]), Path(sys.argv[2])

def compute(c):
    with open(log, "a") as file:
        file.write(f"start {c.settings['method']}\\n")
    time.sleep(float(sys.argv[3]))
    with open(log, "a") as file:
        file.write(f"end {c.settings['method']}\\n")
    return [{"seed": s, "metrics": {"accuracy": s + 0.5}} for s in c.seeds]

cells = [Cell("smoke", "toy", "t", {"method": str(i)}, (0, 1)) for i in range(6)]
run_cells(cells, compute, Store(root), progress=False)
"""


def _runner(root: Path, pause: float) -> subprocess.Popen[bytes]:
    log = root / "log.txt"
    return subprocess.Popen([sys.executable, "-c", RUNNER, str(root / "r"), str(log), str(pause)])


def _lines(root: Path) -> list[str]:
    log = root / "log.txt"
    return log.read_text().split("\n")[:-1] if log.exists() else []


def test_killed_run_resumes_with_nothing_lost_or_doubled(tmp_path: Path) -> None:
    first = _runner(tmp_path, 0.3)
    deadline = time.monotonic() + 60
    while _lines(tmp_path).count("end 1") == 0 or _lines(tmp_path)[-1] != "start 2":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)  # in the middle of cell 2
    first.wait()
    folder = tmp_path / "r" / "smoke" / "toy" / "t"
    assert len(list(folder.glob("*.json"))) == 2
    assert len(list(folder.glob("*.lock"))) == 1  # the dead runner's
    before = {path.name: path.read_bytes() for path in folder.glob("*.json")}

    pair = [_runner(tmp_path, 0.05), _runner(tmp_path, 0.05)]  # two at once take it up
    assert [process.wait(timeout=60) for process in pair] == [0, 0]
    store = Store(tmp_path / "r")
    ends = [line for line in _lines(tmp_path) if line.startswith("end")]
    assert sorted(ends) == [f"end {i}" for i in range(6)]  # each finished exactly once
    assert sorted(store.frame().value) == [0.5] * 6 + [1.5] * 6
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert check_records(store) == []
    assert not [path for path in folder.iterdir() if path.suffix != ".json"]


def test_leftovers_of_a_killed_write_go(store: Store) -> None:
    c = cell()
    path = store.path(c)
    path.parent.mkdir(parents=True)
    left = path.with_name(f".{path.name}.123.tmp")
    left.write_text("half")
    assert check_records(store)
    store.save(c, compute(c))
    assert not left.exists()
