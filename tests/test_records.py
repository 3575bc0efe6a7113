"""Records: written whole or not at all, checked when read, computed once, shown as tables."""

from __future__ import annotations

import errno
import getpass
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from toyrecords import cell, compute

from reproduction.overviews import machines_told
from reproduction.records import (
    PROFILES,
    Cell,
    CellError,
    RecordError,
    Store,
    parse_seeds,
    run_cells,
)
from reproduction.records import manifest as provenance
from reproduction.records import store as records
from reproduction.registry import all_experiments
from reproduction.staleness import SIZE_LIMIT, check_records, stale_records


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


# ---------------------------------------------------------------------------------- cells


def test_key_depends_on_content_alone() -> None:
    one = Cell("smoke", "toy", "table1", {"method": "b", "alpha": 1, "rounds": 3}, (0, 1))
    settings = {"rounds": 3, "alpha": np.float64(1.0), "method": "b"}
    two = Cell("smoke", "toy", "table1", settings, (0, 1))
    assert (one, one.key, hash(one)) == (two, two.key, hash(two))
    assert one.key.startswith("b-alpha1-s0-1-")
    different = [
        Cell("laptop", "toy", "table1", one.settings, (0, 1)),
        Cell("smoke", "toy", "table2", one.settings, (0, 1)),
        Cell("smoke", "toy", "table1", {**one.settings, "rounds": 4}, (0, 1)),
        Cell("smoke", "toy", "table1", one.settings, (1, 0)),
    ]
    assert len({c.key for c in [one, *different]}) == 5
    assert Cell(**json.loads(json.dumps(one.to_dict()))) == one
    odd = cell("a/../b c", seeds=tuple(range(0, 60, 2)), text="x" * 500).key  # a file name
    assert len(odd) < 120
    assert "/" not in odd
    assert not odd.startswith(".")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"profile": "huge"}, "profile 'huge'"),
        ({"paper": "../up"}, "not a name"),
        ({"settings": {"alpha": math.nan}}, "not JSON data"),
        ({"settings": {"alpha": {1, 2}}}, "not JSON data"),
        ({"settings": {"seed": 3}}, "rename"),
        ({"seeds": ()}, "at least one"),
        ({"seeds": (1, 1)}, "each once"),
        ({"seeds": (-1,)}, "seeds is -1"),
        ({"seeds": (0.5,)}, "seeds is 0.5"),
        ({"seeds": (True,)}, "seeds is True"),
    ],
)
def test_bad_cells_are_refused(change: dict[str, object], word: str) -> None:
    fields = {"profile": "smoke", "paper": "p", "experiment": "e", "settings": {}, "seeds": (0,)}
    with pytest.raises(ValueError, match=word):
        Cell(**{**fields, **change})  # type: ignore[arg-type]


def test_seeds_are_read() -> None:
    assert parse_seeds("0-3") == (0, 1, 2, 3)
    assert parse_seeds("7, 1-2, 1") == (7, 1, 2)
    for text in ("", "x", "3-1", "-2", "0--1"):
        with pytest.raises(ValueError, match="seeds"):
            parse_seeds(text)


# ------------------------------------------------------------------------------ the store


def test_round_trip(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    record = store.load(c)
    assert path == store.root / "smoke" / "toy" / "table1" / f"{c.key}.json"
    assert record.cell == c
    assert [r["metrics"]["accuracy"] for r in record.results] == [2 + s / 7 for s in range(3)]
    assert math.isnan(record.results[0]["metrics"]["absent"])
    assert record.results[1]["series"]["accuracy"] == [0.6666667, math.inf, 1.0]
    assert "NaN" not in path.read_text()
    assert "null" in path.read_text()
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("results", "word"),
    [
        ([{"seed": 0, "metrics": {}}], "asks for"),
        ([{"seed": 0}] * 3, "needs seed and metrics"),
        ([{"seed": s, "metrics": {}, "curve": []} for s in range(3)], "curve"),
        ([{"seed": s, "metrics": {"a": "good"}} for s in range(3)], "numbers"),
        ([{"seed": s, "metrics": {}, "series": {"a": [[1.0]]}} for s in range(3)], "shape"),
    ],
)
def test_bad_results_are_refused(store: Store, results: list[dict], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        store.save(cell(), results)
    assert not list(store.root.rglob("*.json"))


def test_damage_is_found_and_named_and_made_anew(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    whole = path.read_text()
    broken = {
        "truncated": whole[: len(whole) // 2],
        "one digit": whole.replace("0.6666667", "0.6666668"),
        "empty": "",
        "no fields": "[]",
        "of another form": whole.replace('"schema":1', '"schema":0'),
        "other cell": whole.replace('"method":"b"', '"method":"a"'),
        "not text": "\udcff",
    }
    for damage, text in broken.items():
        path.write_text(text, errors="surrogateescape")
        with pytest.raises(RecordError, match=r"damaged.*fedkit run toy table1 --profile smoke"):
            store.load(c)
        assert store.state(c)[0] == "unreadable", damage
    assert run_cells([c], compute, store, progress=False).computed == [c]
    store.load(c).results[0]["metrics"].clear()  # what was read is the caller's own
    assert store.load(c).results[0]["metrics"]


def test_a_record_of_a_newer_fedkit_is_never_replaced(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    text = path.read_text().replace('"schema":1', '"schema":2')
    path.write_text(text)
    with pytest.raises(CellError, match="install the fedkit that wrote it"):
        run_cells([c], compute, store, progress=False, anew=lambda _: True)
    assert path.read_text() == text


def test_a_record_that_is_elsewhere_missing_or_too_large(store: Store) -> None:
    a, b = cell("a"), cell("b")
    os.rename(store.save(a, compute(a)), store.path(b))
    with pytest.raises(RecordError, match="another cell"):
        store.load(b)
    assert any("move it" in problem for problem in check_records(store))
    values = list(np.linspace(0.1, 0.9, SIZE_LIMIT // 6))
    store.save(cell(seeds=(0,)), [{"seed": 0, "metrics": {}, "series": {"x": values}}])
    assert any("over the limit" in problem for problem in check_records(store))
    with pytest.raises(FileNotFoundError, match=r"fedkit run toy table1 .*--seeds 0-2"):
        store.load(a)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_leaves_the_old_record(store, monkeypatch, call):
    c = cell()
    path = store.save(c, compute(c))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    other = [{"seed": s, "metrics": {"accuracy": 9.0}} for s in c.seeds]
    with pytest.raises(OSError, match="No space left"):
        store.save(c, other)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_tables_are_tidy(store: Store) -> None:
    run_cells([cell("a"), cell("b", levels=[1, 2])], compute, store, progress=False)
    frame = store.frame("toy", "table1")
    assert len(frame) == 2 * 3 * 2
    row = frame[(frame.method == "b") & (frame.seed == 2) & (frame.metric == "accuracy")]
    assert row.value.item() == 2 + 2 / 7
    assert row.levels.item() == (1, 2)
    series = store.series("toy")
    assert list(series[(series.method == "a") & (series.seed == 1)]["index"]) == [0, 1, 2]
    assert store.frame("none").empty


def test_overlapping_blocks_of_seeds_count_once(store: Store) -> None:
    run_cells([cell(seeds=(1, 2, 3)), cell(seeds=(0, 1))], compute, store, progress=False)
    frame = store.frame()
    assert sorted(frame[frame.metric == "accuracy"].seed) == [0, 1, 2, 3]


def test_a_fresh_block_counts_before_a_stale_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cell(seeds=(0, 1, 2, 3))
    store.save(old, [{**r, "metrics": {"accuracy": -1.0}} for r in compute(old)])  # no golden run
    run_cells([cell(seeds=(0, 1))], compute, store, progress=False)
    frame = store.frame()
    found = frame[frame.metric == "accuracy"].set_index("seed").value
    assert (found[[2, 3]] == -1).all()
    assert (found[[0, 1]] > 0).all()


def test_a_record_in_the_place_of_another_is_found(store: Store) -> None:
    path = store.save(cell(), compute(cell()))
    there = store.root / "paper" / "toy" / "table1" / path.name
    there.parent.mkdir(parents=True)
    there.write_bytes(path.read_bytes())
    with pytest.raises(RecordError, match=r"holds the record of .*smoke.toy.table1"):
        store.frame()


def test_a_golden_run_that_is_gone_makes_stale(store: Store) -> None:
    run_cells([cell()], compute, store, progress=False)
    record = store.load(cell())
    record = replace(record, manifest={**record.manifest, "behaviour": {"run.renamed": 2}})
    assert record.stale() == ["run.renamed, which is there no longer"]


def test_default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    assert Store().root == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDKIT_RESULTS", "~/kept")
    assert Store().root == tmp_path / "kept"
    monkeypatch.delenv("FEDKIT_RESULTS")
    assert Store().root == Path(records.__file__).parents[2] / "results"


# ------------------------------------------------------------------------------ soundness


def test_stale_records_are_sound_and_shown(store: Store) -> None:
    run_cells([cell("a")], compute, store, progress=False)
    store.save(cell("b"), compute(cell("b")))
    assert store.load(cell("a")).stale() == []
    assert store.load(cell("b")).stale() == ["(no golden run recorded)"]
    assert check_records(store) == []
    (key,) = stale_records(store)
    assert key.startswith("smoke/toy/table1/b-")


def test_committed_records_are_sound() -> None:
    """Every record in the repository is whole, small, in its place, and fresh or excused."""
    assert check_records(Store(Path(records.__file__).parents[2] / "results")) == []


# -------------------------------------------------------------------------------- running


def test_finished_cells_are_skipped(store: Store) -> None:
    cells = [cell("a"), cell("b"), cell("a")]
    calls: list[str] = []

    def counted(c: Cell) -> list[dict[str, object]]:
        calls.append(str(c.settings["method"]))
        return compute(c)

    assert len(run_cells(cells, counted, store, progress=False).computed) == 2
    assert len(run_cells(cells, counted, store, progress=False).skipped) == 2
    assert calls == ["a", "b"]
    again = run_cells(cells, counted, store, progress=False, anew=lambda c: c == cells[1])
    assert (again.computed, again.skipped) == ([cells[1]], [cells[0]])
    assert calls == ["a", "b", "b"]
    manifest = store.load(cells[0]).manifest
    assert manifest["evaluations"] == 15
    assert manifest["data"] == [{"name": "toy", "source": "made here", "checksum": "0"}]
    assert "fedkit." not in json.dumps(manifest)  # moving a module makes no record stale


def test_failures_stop_or_are_kept(store: Store) -> None:
    def fails(c: Cell) -> list[dict[str, object]]:
        if c.settings["method"] == "a":
            raise ZeroDivisionError("no clients")
        return compute(c)

    with pytest.raises(CellError, match=r"cell a-alpha0.1.* failed: ZeroDivisionError: no clients"):
        run_cells([cell("a"), cell("b")], fails, store, progress=False)
    assert not [path for path in store.root.rglob("*") if path.is_file()]
    outcome = run_cells([cell("a"), cell("b")], fails, store, progress=False, on_error="continue")
    assert [c.settings["method"] for c, _ in outcome.failed] == ["a"]
    assert outcome.computed == [cell("b")]
    with pytest.raises(ValueError, match="on_error"):
        run_cells([], fails, store, on_error="ignore")


def test_a_cell_has_one_runner(store: Store) -> None:
    c = cell()
    lock = store.path(c).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        assert run_cells([c], compute, store, progress=False).busy == [c]
    lock.write_text("left by a process that is gone")
    assert run_cells([c], compute, store, progress=False).computed == [c]
    assert not lock.exists()


RUNNER = """
import sys, time
from pathlib import Path
from reproduction.records import Cell, Store, run_cells

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


def test_a_killed_run_goes_on_with_nothing_lost_or_doubled(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.touch()

    def runner(pause: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", RUNNER, str(tmp_path / "r"), str(log), str(pause)]
        return subprocess.Popen(command)

    first = runner(0.3)
    deadline = time.monotonic() + 60
    while not log.read_text().endswith("end 1\nstart 2\n"):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)  # in the middle of cell 2
    first.wait()
    folder = tmp_path / "r" / "smoke" / "toy" / "t"
    before = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    assert len(before) == 2
    assert len(list(folder.glob("*.lock"))) == 1  # the dead runner's

    pair = [runner(0.05), runner(0.05)]  # two at once take it up
    assert [process.wait(timeout=60) for process in pair] == [0, 0]
    store = Store(tmp_path / "r")
    ends = [line for line in log.read_text().splitlines() if line.startswith("end")]
    assert sorted(ends) == [f"end {i}" for i in range(6)]  # each finished exactly once
    assert sorted(store.frame().value) == [0.5] * 6 + [1.5] * 6
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert check_records(store) == []
    assert not [path for path in folder.iterdir() if path.suffix != ".json"]


def test_leftovers_of_a_killed_write_go_and_other_writers_are_left_alone(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    live, left = (path.with_name(f".{path.name}.{i}-1.tmp") for i in (1, 2))
    live.touch()
    left.touch()
    os.utime(left, (0, 0))  # long ago
    store.save(c, compute(c))
    assert live.exists()
    assert not left.exists()


# ----------------------------------------------------------------------------- provenance


def test_a_manifest_tells_whether_the_code_is_that_of_its_commit(tmp_path, monkeypatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    monkeypatch.setattr(provenance, "repository_root", lambda: tmp_path)
    told = provenance.uncommitted.__wrapped__
    assert told() is None  # no checkout
    (tmp_path / "fedkit").mkdir()
    code = tmp_path / "fedkit" / "a.py"
    code.write_text("x = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    (tmp_path / "results.json").write_text("{}")
    assert told() is False  # a record beside it changes no code
    code.write_text("x = 2\n")
    assert told() is True
    git("commit", "-am", "b")
    code.with_name("new.py").write_text("")
    assert told() is True


def test_the_book_names_every_field_of_a_manifest() -> None:
    page = Path(__file__).parents[1] / "book" / "provenance.md"
    table = page.read_text("utf-8").partition("| field |")[2].partition("```")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    assert set(provenance.make_manifest({})) <= set(first.replace(",", " ").split())


def test_manifest_and_stamp_tell_how_and_never_where() -> None:
    manifest = provenance.make_manifest(
        {"run.fedms": 2}, device="cuda:0", seconds=1.23456, evaluations=7
    )
    assert manifest["behaviour"] == {"run.fedms": 2}
    assert (manifest["device"], manifest["seconds"]) == ("cuda", 1.235)
    assert re.search(r"\w.*, \d+ cores?$", manifest["machine"])
    assert manifest["evaluations"] == 7
    assert manifest["versions"]["python"] == platform.python_version()
    assert manifest["versions"]["fedkit"] == provenance.stamp().loc["fedkit", "value"]
    assert 1 < manifest["peak_memory_mib"] < 1e6
    table = provenance.stamp("smoke")
    assert table.loc["profile", "value"] == "smoke"
    assert {"fedkit", "python", "numpy", "torch", "threads", "device", "commit"} <= set(table.index)
    text = repr(manifest) + table.to_string()
    assert platform.node() not in text or len(platform.node()) < 4
    assert getpass.getuser() not in text or len(getpass.getuser()) < 5
    assert str(Path.home()) not in text
    assert "/" not in table.to_string()


def test_the_machine_of_a_record_is_models_and_cores(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "_processor", lambda: "Some CPU")
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: 2)
    assert provenance._machine("cpu") == "Some CPU, 2 cores"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    assert provenance._machine("cuda:0") == "Some GPU; Some CPU, 2 cores"
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: None)
    assert provenance._machine("cpu") == "Some CPU, 1 core"


def test_a_processor_without_a_name_is_told_by_its_kind(monkeypatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor : 0\n")
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert provenance._processor.__wrapped__() == platform.machine()


def test_times_are_told_with_their_machine_where_it_was_kept() -> None:
    def of(*machines: str | None) -> str:
        manifests = [{} if m is None else {"machine": m} for m in machines]
        return machines_told([records.Record(None, (), m) for m in manifests])

    assert of(None, None) == of() == "The processor was not kept."
    assert of("B, 2 cores", "A, 1 core", "A, 1 core") == "Measured on A, 1 core and B, 2 cores."
    told = "Measured on A, 1 core; of 1 of 2 records it was not kept."
    assert of("A, 1 core", None) == told


def test_a_record_ahead_of_its_golden_run_is_of_a_newer_checkout() -> None:
    one = Cell("paper", "fedms", "table1", {"method": "fedavg"}, (0,))
    with pytest.raises(records.NewerRecordError, match=r"ahead of this checkout in run\.fedavg"):
        records.Record(one, (), {"behaviour": {"run.fedavg": 10**6}}).stale()


def test_seeds_in_other_records_of_a_setting_count_as_done(tmp_path: Path) -> None:
    store = Store(tmp_path)
    block = cell("a", seeds=(0, 1, 2))
    run_cells([cell("a", seeds=(0,)), cell("b", seeds=(1, 2))], compute, store, progress=False)
    assert store.state(block)[0] == "missing"
    assert not store.holding(block)
    run_cells([cell("a", seeds=(1, 2, 3))], compute, store, progress=False)
    assert store.state(block)[0] == "fresh"
    assert [r.cell.seeds for r in store.holding(block)] == [(0,), (1, 2, 3)]
    assert run_cells([block], compute, store, progress=False).skipped == [block]
    assert run_cells([block], compute, store, progress=False, anew=lambda _: True).computed == [
        block
    ]
    assert [r.cell for r in store.holding(block)] == [block]
    store.path(cell("a", seeds=(0,))).write_text("damaged")
    store.path(block).unlink()
    assert store.state(block)[0] == "missing"


def test_settings_do_not_depend_on_the_data_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of every experiment are listed without a look at the data folder."""

    def looked(*_: object) -> Path:
        raise AssertionError("a setting asked which data are there")

    experiments = all_experiments()
    for module in ("readers", "catalogue", "dataset", "tabular", "movielens"):
        monkeypatch.setattr(f"fedkit.datasets.{module}.data_root", looked)
    for item in experiments:
        for profile in PROFILES:
            item.cells(profile, None)
