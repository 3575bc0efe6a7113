"""Cells as Ray tasks: the records of a plain run, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reproduction import commands as cli
from reproduction import registry
from reproduction.records import Cell, CellError, Store, run_cells
from reproduction.records.cluster import run_on_ray
from reproduction.records.running import alone

ray = pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")

CELLS = [Cell("smoke", "toy", "table1", {"method": f"m{i}"}, (0, 1)) for i in range(4)]


def toy() -> Any:
    """Functions that travel by value, because workers cannot import this file."""

    def worth(cell: Cell) -> list[dict[str, Any]]:
        i = int(cell.settings["method"][1:])
        return [{"seed": s, "metrics": {"gain": i + s / 7}, "evaluations": i} for s in cell.seeds]

    def fails(cell: Cell) -> Sequence[dict[str, Any]]:
        if cell.settings["method"] == "m0":
            raise ArithmeticError("no gain")
        return worth(cell)

    return worth, fails


worth, fails = toy()


def contents(store: Store) -> list[Any]:
    return [(r.cell, r.results, r.manifest["evaluations"]) for r in store.records()]


@pytest.fixture(scope="module")
def one_machine() -> Iterator[None]:
    """Two cores, shared by the tests: starting Ray takes some 15 s of a processor."""
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ[name] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    return Store(tmp_path / "here"), Store(tmp_path / "ray")


def test_records_are_those_of_a_plain_run(one_machine: None, stores: tuple[Store, Store]) -> None:
    here, there = stores
    run_cells(CELLS, worth, here, progress=False)
    # two cores, one worker: each loads torch
    outcome = run_on_ray([*CELLS, CELLS[0]], worth, there, cores=2, progress=False)
    assert sorted(c.key for c in outcome.computed) == sorted(c.key for c in CELLS)
    assert contents(there) == contents(here)
    assert not list(there.root.rglob("*.lock"))
    again = run_on_ray(CELLS, worth, there, progress=False)
    assert (len(again.skipped), again.computed) == (4, [])


@pytest.mark.weekly
@pytest.mark.usefixtures("one_machine")
def test_a_killed_worker_loses_nothing_and_doubles_nothing(stores, tmp_path):
    here, there = stores
    run_cells(CELLS, worth, here, progress=False)
    usual, diary, victim = worth, tmp_path / "diary", tmp_path / "victim"

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


@pytest.mark.weekly
@pytest.mark.usefixtures("one_machine")
def test_cells_of_another_runner_are_left_to_it(stores: tuple[Store, Store]) -> None:
    _, store = stores
    with alone(store.path(CELLS[2]).with_suffix(".lock")):
        outcome = run_on_ray(CELLS, worth, store, progress=False)
    assert outcome.busy == [CELLS[2]]
    assert len(outcome.computed) == len(store.records()) == 3


@pytest.mark.weekly
@pytest.mark.usefixtures("one_machine")
def test_failures_stop_or_are_kept(stores: tuple[Store, Store]) -> None:
    kept, stopped = stores
    outcome = run_on_ray(CELLS, fails, kept, progress=False, on_error="continue")
    assert [(cell, str(error)) for cell, error in outcome.failed] == [(CELLS[0], "no gain")]
    assert len(kept.records()) == 3
    with pytest.raises(CellError, match=rf"cell {CELLS[0].key} failed: ArithmeticError: no gain"):
        run_on_ray(CELLS, fails, stopped, progress=False)
    assert not list(stopped.root.rglob("*.lock"))


def test_an_address_at_which_nothing_answers_is_refused_at_once(stores, monkeypatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *args, **options: pytest.fail("would wait"))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]  # bound, and nobody listens
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999"):
            with pytest.raises(ValueError, match=f"nothing answers at the Ray address {address!r}"):
                run_on_ray(CELLS, worth, stores[0], address=address, progress=False)


@pytest.mark.weekly
@pytest.mark.usefixtures("one_machine")
def test_what_cannot_run_there_is_refused(stores: tuple[Store, Store]) -> None:
    other = Cell("smoke", "fedtsv", "table1", {"method": "m1"}, (0,))  # golden runs of no checkout
    with pytest.raises(CellError, match="put both on the same commit"):
        run_on_ray([other], worth, stores[1], behaviour=lambda c: {"run": 10**6}, progress=False)
    toys = registry.Experiment(
        "toy", "table1", "Toys", lambda profile, seeds: CELLS,
        lambda cell, device, progress: worth(cell), cores=2, gpus=0.5,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"no node .* has the 2 cores and 0.5 GPUs of a cell"):
        toys.execute(CELLS, stores[1], device="cuda", progress=False, engine="ray")


@pytest.mark.weekly
@pytest.mark.usefixtures("one_machine")
def test_the_command_runs_an_experiment_of_the_registry(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    name, item = "fedtsv", registry.all_experiments("fedtsv")[0]
    command = ["run", name, item.name, "--seeds", "0", "--quiet", "--device", "cpu"]
    cell = item.cells("smoke", (0,))[0]
    only = ["--only", f"key={cell.digest}", "--engine", "ray"]
    assert cli.main([*command, *only]) == 0, capsys.readouterr().err
    assert [record.cell for record in Store(tmp_path).records()] == [cell]


@pytest.mark.parametrize("engine", ["pretended", pytest.param("ray", marks=pytest.mark.weekly)])
def test_rows_of_the_arena_are_cells_of_the_engine(engine, tmp_path, monkeypatch, request, capsys):
    """What an engine made is read; what it is asked for is what the command names."""
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    asked, execute = [], registry.Experiment.execute

    def seen(self: Any, cells: Sequence[Cell], *args: Any, **options: Any) -> Any:
        if options.get("engine", "here") != "here":
            asked.extend((c.experiment, c.settings["scenario"]) for c in cells)
            if engine == "pretended":
                options["engine"] = "here"
        return execute(self, cells, *args, **options)

    if engine == "ray":
        request.getfixturevalue("one_machine")
    monkeypatch.setattr(registry.Experiment, "execute", seen)
    command = ["arena", "--scenario", "free-riders", "--against", "random,size"]
    assert cli.main([*command, "--engine", "ray"]) == 0, capsys.readouterr().err
    place = "free-riders"
    assert asked == [("truths", place), ("methods", place), ("methods", place)]
    assert len(list(Store(tmp_path).records())) == 3
    assert "random" in capsys.readouterr().out
    assert cli.main([*command, "--address", "auto"]) == 1
    assert "add --engine ray" in capsys.readouterr().err
