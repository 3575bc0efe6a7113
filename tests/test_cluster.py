"""Cells as Ray tasks: the records of a plain run, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedkit import cli
from fedkit.papers import registry
from fedkit.records import Cell, CellError, Store, run_cells
from fedkit.records.cluster import run_on_ray
from fedkit.records.running import alone

ray = pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")

CELLS = [Cell("smoke", "toy", "table1", {"method": f"m{i}"}, (0, 1)) for i in range(4)]


def toy() -> Any:
    """A function that travels by value, because workers cannot import this file."""

    def worth(cell: Cell) -> list[dict[str, Any]]:
        i = int(cell.settings["method"][1:])
        return [{"seed": s, "metrics": {"gain": i + s / 7}, "evaluations": i} for s in cell.seeds]

    return worth


worth = toy()


def contents(store: Store) -> list[Any]:
    return [(r.cell, r.results, r.manifest["evaluations"]) for r in store.records()]


@pytest.fixture(scope="module", autouse=True)
def one_machine() -> Iterator[None]:
    """Two cores, shared by the tests: starting Ray takes seconds."""
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ[name] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    return Store(tmp_path / "here"), Store(tmp_path / "ray")


def test_records_are_those_of_a_plain_run(stores: tuple[Store, Store]) -> None:
    here, there = stores
    run_cells(CELLS, worth, here, progress=False)
    outcome = run_on_ray([*CELLS, CELLS[0]], worth, there, progress=False)
    assert sorted(c.key for c in outcome.computed) == sorted(c.key for c in CELLS)
    assert contents(there) == contents(here)
    assert not list(there.root.rglob("*.lock"))
    again = run_on_ray(CELLS, worth, there, progress=False)
    assert (len(again.skipped), again.computed) == (4, [])


def test_a_killed_worker_loses_nothing_and_doubles_nothing(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    here, there = stores
    run_cells(CELLS, worth, here, progress=False)
    usual, diary, victim = toy(), tmp_path / "diary", tmp_path / "victim"

    def told(cell: Cell) -> Sequence[dict[str, Any]]:
        def note(word: str) -> None:
            with diary.open("a") as file:
                file.write(f"{cell.settings['method']} {word}\n")

        note("began")
        if cell.settings["method"] == "m1" and not victim.exists():
            part = victim.with_suffix(".part")
            part.write_text(str(os.getpid()))
            part.rename(victim)
            time.sleep(120)  # until it is killed
        note("ended")
        return usual(cell)

    def kill() -> None:
        for _ in range(1200):
            if victim.exists():
                return os.kill(int(victim.read_text()), signal.SIGKILL)
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = run_on_ray(CELLS, told, there, progress=False)
    killer.join()
    assert len(outcome.computed) == 4
    assert contents(there) == contents(here)
    lines = diary.read_text().splitlines()
    assert lines.count("m1 began") == 2
    ended = sorted(line for line in lines if line.endswith("ended"))
    assert ended == [f"m{i} ended" for i in range(4)]


def test_cells_of_another_runner_are_left_to_it(stores: tuple[Store, Store]) -> None:
    _, store = stores
    with alone(store.path(CELLS[2]).with_suffix(".lock")):
        outcome = run_on_ray(CELLS, worth, store, progress=False)
    assert outcome.busy == [CELLS[2]]
    assert len(outcome.computed) == len(store.records()) == 3


def test_failures_stop_or_are_kept(stores: tuple[Store, Store]) -> None:
    def fails(cell: Cell) -> Sequence[dict[str, Any]]:
        if cell.settings["method"] == "m0":
            raise ArithmeticError("no gain")
        return [{"seed": s, "metrics": {"gain": 1.0}} for s in cell.seeds]

    kept, stopped = stores
    outcome = run_on_ray(CELLS, fails, kept, progress=False, on_error="continue")
    assert [(cell, str(error)) for cell, error in outcome.failed] == [(CELLS[0], "no gain")]
    assert len(kept.records()) == 3
    many = [Cell("smoke", "toy", "t", {"method": f"m{i}"}, (0,)) for i in range(40)]
    with pytest.raises(CellError, match=rf"cell {many[0].key} failed: no gain"):
        run_on_ray(many, fails, stopped, progress=False)
    assert not list(stopped.root.rglob("*.lock"))


def test_a_node_with_other_behaviour_refuses(stores: tuple[Store, Store]) -> None:
    cell = Cell("smoke", "fedtsv", "table1", {"method": "m1"}, (0,))
    with pytest.raises(CellError, match="put both on the same commit"):
        run_on_ray([cell], worth, stores[1], behaviour=lambda cell: {"run": 10**6}, progress=False)


def test_what_no_node_has_is_refused(stores: tuple[Store, Store]) -> None:
    with pytest.raises(ValueError, match=r"needs 1 cores and 2 GPUs, and .* have 2 and 0"):
        run_on_ray(CELLS, worth, stores[1], needs=lambda cell: (1, 2), progress=False)


def test_an_experiment_declares_what_its_cells_take(stores: tuple[Store, Store]) -> None:
    toys = registry.Experiment(
        "toy", "table1", "Toys", lambda profile, seeds: CELLS,
        lambda cell, device, progress: worth(cell), cores=2, gpus=0.5,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"needs 2 cores and 0.5 GPUs"):
        toys.execute(CELLS, stores[1], device="cuda", progress=False, engine="ray")


def test_the_command_runs_an_experiment_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    name, item = "fedtsv", registry.all_experiments("fedtsv")[0]
    command = ["run", name, item.name, "--seeds", "0", "--quiet", "--device", "cpu"]
    cell = item.cells("smoke", (0,))[0]
    only = ["--only", f"key={cell.digest}", "--engine", "ray"]
    assert cli.main([*command, *only]) == 0, capsys.readouterr().err
    assert [record.cell for record in Store(tmp_path).records()] == [cell]
    assert cli.main([*command, "--address", "auto"]) == 1
    assert "add --engine ray" in capsys.readouterr().err
    assert cli.main([*command, "--engine", "spark"]) == 1
    assert "engine is 'spark'" in capsys.readouterr().err
