"""Records: named by what they hold, written whole, checked when read, shown as tables."""

from __future__ import annotations

import errno
import getpass
import json
import math
import os
import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused
from toyrecords import cell, compute, run

from reproduction import ROOT, manifest
from reproduction.experiments import SIZE_LIMIT, check_records, stale_records
from reproduction.overviews import machines_told
from reproduction.records import Cell, Record, RecordError, Store, frame, parse_seeds


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
    refused("would hide columns of the tables", cell, seed=3)


def test_seeds_are_read() -> None:
    assert parse_seeds("0-3") == (0, 1, 2, 3)
    assert parse_seeds("7, 1-2, 1") == (7, 1, 2)
    for text in ("", "x", "3-1", "-2", "0--1"):
        refused("seeds", parse_seeds, text)


# ------------------------------------------------------------------------------ one record


def test_round_trip(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    assert path == store.root / "smoke" / "toy" / "table1" / f"{c.key}.json"
    record = store.read(path)
    assert record.cell == c
    assert [r["metrics"]["accuracy"] for r in record.results] == [2 + s / 7 for s in range(3)]
    assert math.isnan(record.results[0]["metrics"]["absent"])
    assert record.results[1]["series"]["accuracy"] == [0.6666667, math.inf, 1.0]
    assert "NaN" not in path.read_text()
    assert "null" in path.read_text()
    assert os.listdir(path.parent) == [path.name]
    refused(r"of seeds \[0, 1, 2\], not \[0, 1\]", store.save, cell(seeds=(0, 1)), compute(c))


DAMAGE = {
    "truncated": lambda whole: whole[: len(whole) // 2],
    "one digit": lambda whole: whole.replace("0.6666667", "0.6666668"),
    "empty": lambda whole: "",
    "no fields": lambda whole: "[]",
    "of another form": lambda whole: whole.replace('"schema":1', '"schema":2'),
    "other cell": lambda whole: whole.replace('"method":"b"', '"method":"a"'),
    "not text": lambda whole: "\udcff",
    "nested": lambda whole: "[" * 100_000,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told_in_one_sentence_and_never_overwritten(store: Store, kind: str) -> None:
    c = cell()
    path = store.save(c, compute(c))
    path.write_text(DAMAGE[kind](path.read_text()), errors="surrogateescape")
    damaged = path.read_bytes()
    calls = (store.frame, lambda: store.state(c), lambda: run(store, c))
    for call in calls:
        refused(r"smoke/toy/table1/b-.* is damaged .*; delete it", call, error=RecordError)
    assert path.read_bytes() == damaged
    assert len(check_records(store)) == 1


def test_a_record_that_is_elsewhere_or_too_large(store: Store) -> None:
    a, b = cell("a"), cell("b")
    os.rename(store.save(a, compute(a)), store.path(b))
    with pytest.raises(RecordError, match=r"holds the record smoke/toy/table1/a-.*; move it there"):
        store.frame()
    assert any("move it" in problem for problem in check_records(store))
    store.path(b).unlink()
    values = list(np.linspace(0.1, 0.9, SIZE_LIMIT // 6))
    store.save(cell(seeds=(0,)), [{"seed": 0, "metrics": {}, "series": {"x": values}}])
    assert any("over the limit" in problem for problem in check_records(store))


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


# ------------------------------------------------------------------------------ seeds and tables


def test_tables_are_tidy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, cell("a"), cell("b", levels=[1, 2]))
    table = store.frame("toy", "table1")
    assert len(table) == 2 * 3 * 2
    row = table[(table.method == "b") & (table.seed == 2) & (table.metric == "accuracy")]
    assert row.value.item() == 2 + 2 / 7
    assert row.levels.item() == (1, 2)
    series = store.series("toy")
    assert list(series[(series.method == "a") & (series.seed == 1)]["index"]) == [0, 1, 2]
    assert store.frame("none").empty
    monkeypatch.setenv("FEDKIT_RESULTS", str(store.root))
    assert frame("toy", profile="smoke").equals(table)


def test_a_seed_counts_once_and_the_fresh_record_before_the_stale(store: Store) -> None:
    old = cell(seeds=(0, 1, 2, 3))
    store.save(old, [{**r, "metrics": {"accuracy": -1.0}} for r in compute(old)])  # no golden run
    fresh = {"accuracy": 3.0}
    for seeds in ((0, 1), (1,)):
        c = cell(seeds=seeds)
        store.save(c, [{**r, "metrics": fresh} for r in compute(c)], {"behaviour": {}})
    found = store.frame().set_index("seed").value
    assert found.to_dict() == {0: 3.0, 1: 3.0, 2: -1.0, 3: -1.0}
    assert {seed: record.cell.seeds for seed, record in store.held(old).items()} == {
        0: (0, 1), 1: (0, 1), 2: old.seeds, 3: old.seeds
    }  # fmt: skip
    assert [r["metrics"]["accuracy"] for r in store.results(cell(seeds=(3, 0)))] == [-1.0, 3.0]
    assert store.state(old) == "stale"
    with pytest.raises(FileNotFoundError, match=r"make it with: fedkit run toy .*--seeds 9 "):
        store.results(cell(seeds=(0, 9)))


def test_a_seed_that_some_record_holds_is_done(store: Store) -> None:
    block = cell("a", seeds=(0, 1, 2))
    run(store, cell("a", seeds=(0,)), cell("b", seeds=(1, 2)), cell("a", seeds=(7,), rounds=3))
    assert store.state(block) == "missing"
    assert run(store, block).computed == [cell("a", seeds=(1, 2))]  # what was missing alone
    assert store.state(block) == "done"
    assert run(store, block).finished == [block]
    assert sorted(store.frame().query("method == 'a' and alpha == 0.1").seed.unique()) == [
        0, 1, 2, 7
    ]  # fmt: skip
    assert run(store, block, anew="all").computed == [block]
    assert {record.cell for record in store.held(block).values()} == {block}


# ------------------------------------------------------------------------------ soundness


def test_stale_records_are_sound_and_shown(store: Store) -> None:
    run(store, cell("a"))
    store.save(cell("b"), compute(cell("b")))
    assert check_records(store) == []
    (key,) = stale_records(store)
    assert key.startswith("smoke/toy/table1/b-")
    assert stale_records(store)[key] == ["(no golden run recorded)"]
    gone = Record(cell(), (), {"behaviour": {"run.renamed": 2}})
    assert gone.stale() == ["run.renamed, which is there no longer"]
    ahead = Record(replace(cell(), paper="fedms"), (), {"behaviour": {"run.fedavg": 10**6}})
    refused(r"ahead of this checkout in run\.fedavg", ahead.stale, error=RecordError)


def test_committed_records_are_sound() -> None:
    """Every record in the repository is whole, small, in its place, and named after its cell."""
    assert check_records(Store(ROOT / "results")) == []


# ----------------------------------------------------------------------------- provenance


def test_the_folder_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDKIT_RESULTS", "~/kept")
    assert Store().root == tmp_path / "kept"
    monkeypatch.delenv("FEDKIT_RESULTS")
    assert Store().root == ROOT / "results"


def test_a_manifest_tells_whether_the_code_is_that_of_its_commit(tmp_path, monkeypatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    changed = manifest.uncommitted.__wrapped__
    assert changed() is None  # no checkout
    (tmp_path / "reproduction").mkdir()
    code = tmp_path / "reproduction" / "a.py"
    code.write_text("x = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    (tmp_path / "results.json").write_text("{}")
    assert changed() is False  # a record beside it changes no code
    code.write_text("x = 2\n")
    assert changed() is True
    git("commit", "-am", "b")
    code.with_name("new.py").write_text("")
    assert changed() is True


def test_the_book_names_every_field_of_a_manifest() -> None:
    page = ROOT / "book" / "provenance.md"
    table = page.read_text("utf-8").partition("| field |")[2].partition("```")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    assert set(manifest.make_manifest({})) <= set(first.replace(",", " ").split())


def test_manifest_and_stamp_tell_how_and_never_where(store: Store) -> None:
    made = manifest.make_manifest({"run": 2}, device="cuda:0", seconds=1.23456)
    assert made["behaviour"] == {"run": 2}
    assert (made["device"], made["seconds"]) == ("cuda", 1.235)
    assert re.search(r"\w.*, \d+ cores?$", made["machine"])
    assert made["versions"]["python"] == platform.python_version()
    assert made["versions"]["fedkit"] == manifest.stamp().loc["fedkit", "value"]
    assert 1 < made["peak_memory_mib"] < 1e6
    run(store, cell())
    recorded = store.records()[0].manifest
    assert recorded["evaluations"] == 15
    assert recorded["data"] == [{"name": "toy", "source": "made here", "checksum": "0"}]
    table = manifest.stamp("smoke")
    assert {"profile", "fedkit", "python", "numpy", "torch", "threads", "device"} <= set(
        table.index
    )
    text = repr(made) + table.to_string()
    assert platform.node() not in text or len(platform.node()) < 4
    assert getpass.getuser() not in text or len(getpass.getuser()) < 5
    assert str(Path.home()) not in text
    assert "/" not in table.to_string()


def test_the_machine_of_a_record_is_models_and_cores(monkeypatch) -> None:
    monkeypatch.setattr(manifest, "_processor", lambda: "Some CPU")
    monkeypatch.setattr(manifest.os, "cpu_count", lambda: 2)
    assert manifest._machine("cpu") == "Some CPU, 2 cores"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    assert manifest._machine("cuda:0") == "Some GPU; Some CPU, 2 cores"


def test_times_are_told_with_their_machine_where_it_was_kept() -> None:
    def of(*machines: str | None) -> str:
        manifests = [{} if m is None else {"machine": m} for m in machines]
        return machines_told([Record(cell(), (), m) for m in manifests])

    assert of(None, None) == of() == "We did not record which processor this ran on."
    assert of("B, 2 cores", "A, 1 core", "A, 1 core") == "Measured on A, 1 core and B, 2 cores."
    told = "Measured on A, 1 core; of 1 of 2 records it was not kept."
    assert of("A, 1 core", None) == told
