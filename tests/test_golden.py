"""Golden runs: every experiment behaves as it did, or somebody said why it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused
from toyrecords import cell, compute

from fedkit.estimators.accumulators import MeanAccumulator
from reproduction import ROOT, golden
from reproduction.experiments import Experiment, all_experiments, get
from reproduction.golden import (
    GoldenRun,
    Tiny,
    audit,
    choose,
    differences,
    golden_runs,
    is_timing,
)
from reproduction.records import Cell, Store, golden_numbers

RUNS = golden_runs(all_experiments())


@pytest.mark.parametrize("name", RUNS)
def test_golden_run(name: str) -> None:
    told = RUNS[name].check()
    assert not told, (
        f"{name} behaves otherwise: {'; '.join(told)}.  Mend the code, or if this is meant: "
        f"fedkit golden {name} --accept --why '...'"
    )


@pytest.mark.parametrize(
    "name",
    ["fedccea/cost", "fedtsv/timings", "fedvalue/approximation", "fedvalue/scaling"],
)
def test_a_wall_time_alone_makes_no_record_stale(name: str, monkeypatch) -> None:
    """By another clock the same numbers are compared, and they agree."""
    ticks = accumulate(cycle([1e3, 7.0]))
    for where in (
        "time.perf_counter",
        "time.process_time",
        "reproduction.fedccea.run.perf_counter",
    ):
        monkeypatch.setattr(where, lambda: next(ticks))
    assert not RUNS[name].check()
    assert next(ticks) > 2000  # it was asked


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["fedowen/run.fedowen", "fedms/run.fedms", "fedtsv/run.cgsv"])
def test_a_gpu_gives_the_numbers_of_a_cpu(name: str) -> None:
    assert not RUNS[name].check("cuda")


def test_every_file_is_declared() -> None:
    folder = ROOT / "results" / "golden"
    there = {p.relative_to(folder).as_posix() for p in folder.glob("*/*.json")}
    assert there == {f"{name}.json" for name in RUNS}


def test_no_golden_run_stands_for_another() -> None:
    """A run whose numbers are another's cannot see that what it is named for is switched off."""
    seen: dict[tuple[str, str], str] = {}
    for name, run in RUNS.items():
        numbers = json.dumps(golden_numbers(run.paper, run.name)["numbers"], sort_keys=True)
        assert seen.setdefault((run.paper, numbers), name) == name


def test_every_experiment_is_guarded() -> None:
    assert [e.name for e in all_experiments() if not e.golden] == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda increments: -increments, "fedowen/run.fedowen"),
        (lambda increments: increments[1:], "fedowen/run.mc"),
        (lambda increments: -increments, "fedowen/run.mc"),
    ],
    ids=["sign", "walk", "mc"],
)
def test_a_broken_estimator_is_seen(wrong, name, monkeypatch):
    """A sign that is changed, and a walk of each batch that is dropped."""
    add = MeanAccumulator.add
    monkeypatch.setattr(MeanAccumulator, "add", lambda self, x, **more: add(self, wrong(x), **more))
    assert RUNS[name].check()


# ------------------------------------------------------------------------------ the rules


def _run(cell: Cell, device: object, progress: bool) -> list[dict[str, object]]:
    return [{"seed": 0, "metrics": {"x": 1.0 * FACTOR[0], "seconds.a": 3.0}}]


FACTOR = [1.0]
TINY = Tiny("run", _run, {"method": "a", "kind": 0}, by="method", switches={"kind": {}})


TOY = Experiment("toy", "table1", "", lambda profile, seeds: [], compute, (TINY,))


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoldenRun:
    folder = tmp_path / "golden"
    monkeypatch.setattr("reproduction.records.golden_folder", lambda paper: folder)
    monkeypatch.setattr(golden, "golden_folder", lambda paper: folder)
    FACTOR[0] = 1.0
    return GoldenRun("toy", TINY, "run.a", {"method": "a", "kind": 0})


def test_accepting_raises_the_behaviour_and_makes_records_stale(toy, tmp_path):
    assert toy.accept("first") == 1
    assert "seconds" not in (tmp_path / "golden/run.a.json").read_text()
    store, c = Store(tmp_path), cell("a", kind=0)
    TOY.execute([c], store, progress=False)
    assert store.records()[0].manifest["behaviour"] == {"run.a": 1}
    assert store.state(c) == "done"
    FACTOR[0] = -1.0
    assert toy.check() == ["metrics.x was 1.0 and is -1.0 (1 of 1 differ)"]
    assert toy.accept("the sign of Eq. 3") == 2
    assert store.records()[0].stale() == ["run.a 1 of 2"]
    assert store.state(c) == "stale"
    body = json.loads((tmp_path / "golden/run.a.json").read_text())
    assert [h["why"] for h in body["history"]] == ["first", "the sign of Eq. 3"]


def test_a_change_that_concerns_some_cells_leaves_the_others_fresh(toy, tmp_path):
    toy.accept("first")
    store = Store(tmp_path)
    cells = [cell("a", kind=0), cell("a", kind=0, rounds=7)]
    TOY.execute(cells, store, progress=False)
    FACTOR[0] = -1.0
    refused("no setting rounds", toy.accept, "seven rounds", {"rounds": "7"})
    longer = replace(toy, settings={**toy.settings, "rounds": 7})
    assert longer.accept("seven rounds", {"rounds": "7"}) == 2
    closer = replace(longer, tiny=replace(TINY, more=lambda *_: {"y": 1.0}))
    assert closer.accept("watched more closely, for all") == 2
    assert [store.state(c) for c in cells] == ["done", "stale"]
    assert TOY.execute(cells, store, progress=False, anew="stale").computed == cells[1:]
    assert [store.state(c) for c in cells] == ["done", "done"]
    FACTOR[0] = 2.0
    assert toy.accept("all") == 3
    assert [store.state(c) for c in cells] == ["stale", "stale"]


def test_more_numbers_of_the_same_run_leave_its_records_fresh(toy):
    toy.accept("first")
    closer = replace(toy, tiny=replace(TINY, more=lambda cell, device: {"y": 2.0 * FACTOR[0]}))
    assert closer.check() == ["more.y is new"]
    assert closer.accept("y as well") == 1
    assert closer.check() == []
    FACTOR[0] = -1.0  # what was compared before differs: no closer look, but another behaviour
    assert replace(toy, tiny=replace(TINY, more=lambda *_: {"z": 0.0})).accept("the sign") == 2
    timed = replace(toy, tiny=replace(TINY, more=lambda *_: {"z": 0.0, "seconds": 3.0}))
    assert timed.check() == []


def test_a_second_run_feels_what_the_first_does_not(toy):
    def run(cell: Cell, device: object, progress: bool) -> list[dict[str, object]]:
        reached = cell.settings.get("tolerance", 0.1) > 1
        metrics = {"x": 3.0 if reached and FACTOR[0] < 0 else 1.0}
        return [{"seed": 0, "metrics": metrics}]

    blind = replace(toy, tiny=replace(TINY, run=run, slack={"metrics.x": 0.5}))
    felt = replace(blind, tiny=replace(blind.tiny, felt={"run.*": {"tolerance": 2.0}}))
    assert blind.accept("first") == 1
    assert felt.check() == ["felt.metrics.x is new"]
    assert felt.accept("with a tolerance that is reached") == 1
    FACTOR[0] = -1.0
    assert not any("metrics.x was" in difference for difference in blind.check())
    assert felt.check() == ["felt.metrics.x was 1.0 and is 3.0 (1 of 1 differ)"]
    other = replace(felt, name="walk.a")
    assert set(other.measure()) == {"metrics.x"}


def test_which_runs_answer_for_a_cell() -> None:
    names = TINY.runs({"method": "b", "kind": 3, "rounds": 100})
    assert names == {
        "run.b": {"method": "b", "kind": 0}, "run.kind=3": {"method": "a", "kind": 3},
    }  # fmt: skip
    assert list(TINY.runs({"method": "mine:Values"})) == ["run.a"]
    found = get("fedms", "table2").behaviours(get("fedms", "table2").cells("paper", (0,))[0])
    assert set(found) == {"run.fedavg", "run.owned=0.1", "run.adversaries=2"}


def test_tolerances() -> None:
    then = {"a": [1.0, 1e-9], "n": 3, "share": 0.2, "none": None}
    assert differences(then, {"a": [1.0005, 5e-5], "n": 3, "share": 0.2001, "none": None}) == []
    assert len(differences(then, {"a": [1.01, 1e-3], "n": 4, "share": 0.21, "none": 0.0})) == 4
    assert differences({"x": 1}, {"y": 1}) == ["x is gone", "y is new"]
    assert differences({"hits": 90.0}, {"hits": 90.4}, {"hit*": 0.5}) == []
    assert differences({"left": 4e-16, "of": [0, 0.0]}, {"left": 0.0, "of": [0, 1e-17]}) == []
    assert differences({"v": [0.0, [50.0, 1e-15]]}, {"v": [0.0, [50.0, -4e-15]]}) == []
    timings = ("seconds.loo", "value_seconds_per_round", "testing.walk")
    assert all(is_timing(name) for name in timings)
    assert not is_timing("second_place")


# ------------------------------------------------------------------------------ the audit


def test_the_audit_finds_what_differs_and_takes_a_record_s_numbers_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    store = Store(tmp_path)
    TOY.execute([cell(m, seeds=(0, 1)) for m in "abc"], store, progress=False)
    records = [replace(r, manifest={"commit": f"--output={victim}"}) for r in store.records()]
    assert audit(records[0], 1, compute) == []

    def other(c: Cell, device: object, progress: bool) -> list[dict[str, object]]:
        changed = [{k: 1.1 * v for k, v in r["metrics"].items()} for r in compute(c)]
        return [
            {**r, "metrics": {**m, "more": 1.0}} for r, m in zip(compute(c), changed, strict=True)
        ]

    assert audit(records[0], 0, other) == ["metrics.accuracy was 1.0 and is 1.1 (1 of 1 differ)"]
    drawn = choose(records, 2, np.random.default_rng(0))
    assert len({record.cell for record, _ in drawn}) == 2
    assert victim.read_text() == "precious"
