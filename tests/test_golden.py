"""Golden runs: every experiment behaves as it did, or somebody said why it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from toyrecords import cell, compute

from fedkit.estimators.accumulators import MeanAccumulator
from reproduction.audit import audit, choose
from reproduction.records import Cell, Store, golden, run_cells
from reproduction.records.golden import GoldenRun, Tiny, differences, golden_runs, is_timing
from reproduction.records.manifest import lock_hash
from reproduction.registry import Experiment, all_experiments, get

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
        "reproduction.fedccea.runs.perf_counter",
    ):
        monkeypatch.setattr(where, lambda: next(ticks))
    assert not RUNS[name].check()
    assert next(ticks) > 2000  # it was asked


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["fedowen/run.fedowen", "fedms/run.fedms", "fedtsv/run.cgsv"])
def test_a_gpu_gives_the_numbers_of_a_cpu(name: str) -> None:
    assert not RUNS[name].check("cuda")


def test_every_file_is_declared() -> None:
    there = {p.relative_to(golden.folder()).as_posix() for p in golden.folder().glob("*/*.json")}
    assert there == {f"{name}.json" for name in RUNS}


def test_no_golden_run_stands_for_another() -> None:
    """A run whose numbers are another's cannot see that what it is named for is switched off."""
    seen: dict[tuple[str, str], str] = {}
    for name, run in RUNS.items():
        numbers = json.dumps(golden._stored(run.paper, run.name)["numbers"], sort_keys=True)
        assert seen.setdefault((run.paper, numbers), name) == name


def test_every_experiment_is_guarded() -> None:
    assert [e.name for e in all_experiments() if not e.golden] == []


def test_the_lock_file_is_the_one_that_was_verified() -> None:
    assert golden.verified_lock() == lock_hash(), (
        f"golden runs last agreed with lock file {golden.verified_lock()}: run fedkit golden"
    )


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
    monkeypatch.setattr(MeanAccumulator, "add", lambda self, x, *more: add(self, wrong(x), *more))
    assert RUNS[name].check()


# ------------------------------------------------------------------------------ the rules


def _run(cell: Cell, device: object, progress: bool) -> list[dict[str, object]]:
    return [{"seed": 0, "metrics": {"x": 1.0 * FACTOR[0], "seconds.a": 3.0}}]


FACTOR = [1.0]
TINY = Tiny("run", _run, {"method": "a", "kind": 0}, by="method", switches={"kind": {}})


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoldenRun:
    monkeypatch.setattr(golden, "folder", lambda: tmp_path / "golden")
    FACTOR[0] = 1.0
    return GoldenRun("toy", TINY, "run.a", {"method": "a", "kind": 0})


def test_accepting_raises_the_behaviour_and_makes_records_stale(toy, tmp_path):
    assert toy.accept("first") == 1
    assert "seconds" not in (tmp_path / "golden/toy/run.a.json").read_text()
    store, experiment = Store(tmp_path), Experiment("toy", "table1", "", list, _run, (TINY,))
    c = cell("a", kind=0)
    run_cells([c], compute, store, progress=False, behaviour=experiment.behaviours)
    assert store.load(c).manifest["behaviour"] == {"run.a": 1}
    assert store.state(c) == ("fresh", "")
    FACTOR[0] = -1.0
    assert toy.check() == ["metrics.x was 1.0 and is -1.0 (1 of 1 differ)"]
    assert toy.accept("the sign of Eq. 3") == 2
    assert store.state(c) == ("stale", "run.a 1 of 2")
    body = json.loads((tmp_path / "golden/toy/run.a.json").read_text())
    assert [h["why"] for h in body["history"]] == ["first", "the sign of Eq. 3"]


def test_a_change_that_concerns_some_cells_leaves_the_others_fresh(toy, tmp_path):
    toy.accept("first")
    store, experiment = Store(tmp_path), Experiment("toy", "table1", "", list, _run, (TINY,))
    cells = [cell("a", kind=0), cell("a", kind=0, rounds=7)]
    how = {"progress": False, "behaviour": experiment.behaviours}
    run_cells(cells, compute, store, **how)
    FACTOR[0] = -1.0
    with pytest.raises(ValueError, match="no setting rounds"):
        toy.accept("seven rounds", {"rounds": "7"})
    longer = replace(toy, settings={**toy.settings, "rounds": 7})
    assert longer.accept("seven rounds", {"rounds": "7"}) == 2
    closer = replace(longer, tiny=replace(TINY, more=lambda *_: {"y": 1.0}))
    assert closer.accept("watched more closely, for all") == 2
    assert [store.state(c)[0] for c in cells] == ["fresh", "stale"]
    run_cells(cells, compute, store, anew=lambda c: store.state(c)[0] == "stale", **how)
    assert store.load(cells[1]).manifest["behaviour"] == {"run.a": 2}
    assert [store.state(c)[0] for c in cells] == ["fresh", "fresh"]
    FACTOR[0] = 2.0
    assert toy.accept("all") == 3
    assert [store.state(c)[0] for c in cells] == ["stale", "stale"]


def test_more_numbers_of_the_same_run_leave_its_records_fresh(toy, tmp_path):
    toy.accept("first")
    closer = replace(toy, tiny=replace(TINY, more=lambda cell, device: {"y": 2.0 * FACTOR[0]}))
    assert closer.check() == ["more.y is new"]
    assert closer.accept("y as well") == 1
    assert closer.check() == []
    FACTOR[0] = -1.0  # what was compared before differs: no closer look, but another behaviour
    assert replace(toy, tiny=replace(TINY, more=lambda *_: {"z": 0.0})).accept("the sign") == 2
    timed = replace(toy, tiny=replace(TINY, more=lambda *_: {"z": 0.0, "seconds": 3.0}))
    assert timed.check() == []


def test_a_second_run_feels_what_the_first_does_not(toy, monkeypatch):
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
    assert not any("metrics.x was" in told for told in blind.check())
    assert felt.check() == ["felt.metrics.x was 1.0 and is 3.0 (1 of 1 differ)"]
    other = replace(felt, name="walk.a")
    assert set(other.measure()) == {"metrics.x"}


def test_which_runs_answer_for_a_cell() -> None:
    names = TINY.runs({"method": "b", "kind": 3, "rounds": 100})
    assert names == {
        "run.b": {"method": "b", "kind": 0}, "run.kind=3": {"method": "a", "kind": 3},
    }  # fmt: skip
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
    assert [is_timing(n) for n in ("seconds.loo", "value_seconds_per_round", "testing.walk")] == [
        True
    ] * 3
    assert not is_timing("second_place")


# ------------------------------------------------------------------------------ the audit


def test_the_audit_finds_what_differs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_cells([cell(m, seeds=(0, 1)) for m in "abc"], compute, store, progress=False)
    records = store.records()
    same = Experiment("toy", "table1", "", list, lambda c, d, p: compute(c))
    row = audit(records[0], 1, same)
    assert (row.verdict, row.difference, row.seed) == ("equal", 0.0, 1)

    def other(c: Cell, device: object, progress: bool) -> list[dict[str, object]]:
        return [{**r, "metrics": {k: 1.1 * v for k, v in r["metrics"].items()}} for r in compute(c)]

    row = audit(records[0], 0, Experiment("toy", "table1", "", list, other))
    assert row.verdict == "different"
    assert row.difference > 0.05

    def missing(*_: object) -> list[dict[str, object]]:
        raise FileNotFoundError("no data")

    assert audit(records[0], 0, Experiment("toy", "t", "", list, missing)).verdict == "data missing"
    assert len(choose(records, 2, np.random.default_rng(0))) == 2


def test_a_forged_commit_in_a_record_is_never_run(tmp_path: Path) -> None:
    """The audit takes a record's numbers alone: nothing of its manifest reaches a command."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    store = Store(tmp_path)
    run_cells([cell("a")], compute, store, progress=False)
    forged = replace(store.records()[0], manifest={"commit": f"--output={victim}"})
    audit(forged, forged.cell.seeds[0], Experiment("toy", "t", "", list, lambda c, d, p: [
        {**r, "metrics": {k: 2 * v for k, v in r["metrics"].items()}} for r in compute(c)
    ]))  # fmt: skip
    assert victim.read_text() == "precious"
