"""Records: written whole or not at all, checked when read, computed once."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from toyrecords import cell, compute

from fedkit.papers.staleness import SIZE_LIMIT, check_records, stale_records
from fedkit.records import store as records
from fedkit.records.store import Cell, CellError, RecordError, Store, parse_seeds, run_cells


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


# -------------------------------------------------------------------------- cells


def test_key_depends_on_content_alone() -> None:
    one = Cell("smoke", "toy", "table1", {"method": "b", "alpha": 1, "rounds": 3}, (0, 1))
    two = Cell(
        "smoke", "toy", "table1", {"rounds": 3, "alpha": np.float64(1.0), "method": "b"}, (0, 1)
    )
    assert one == two
    assert one.key == two.key
    assert hash(one) == hash(two)
    assert one.key.startswith("b-alpha1-s0-1-")
    different = [
        Cell("laptop", "toy", "table1", one.settings, (0, 1)),
        Cell("smoke", "toy", "table2", one.settings, (0, 1)),
        Cell("smoke", "toy", "table1", {**one.settings, "rounds": 4}, (0, 1)),
        Cell("smoke", "toy", "table1", one.settings, (1, 0)),
    ]
    assert len({c.key for c in [one, *different]}) == 5
    assert Cell.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_key_is_a_file_name() -> None:
    key = cell("a/../b c", seeds=tuple(range(0, 60, 2)), text="x" * 500).key
    assert len(key) < 120
    assert "/" not in key
    assert not key.startswith(".")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"profile": "huge"}, "profile 'huge'"),
        ({"paper": "../up"}, "not a name"),
        ({"settings": {"alpha": math.nan}}, "alpha is nan"),
        ({"settings": {"alpha": {1, 2}}}, "of type set"),
        ({"settings": {"seed": 3}}, "rename"),
        ({"seeds": ()}, "at least one"),
        ({"seeds": (1, 1)}, "each once"),
        ({"seeds": (-1,)}, "negative"),
    ],
)
def test_bad_cells_are_refused(change: dict[str, object], word: str) -> None:
    fields: dict = {
        "profile": "smoke",
        "paper": "p",
        "experiment": "e",
        "settings": {},
        "seeds": (0,),
    }
    with pytest.raises(ValueError, match=word):
        Cell(**{**fields, **change})


def test_seeds_are_read() -> None:
    assert parse_seeds("0-3") == (0, 1, 2, 3)
    assert parse_seeds("7, 1-2") == (7, 1, 2)
    for text in ("", "x", "3-1", "1,1", "-2", "0--1"):
        with pytest.raises(ValueError, match="seeds"):
            parse_seeds(text)


# -------------------------------------------------------------------------- the store


def test_round_trip(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c), {})
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


def test_damage_is_found_and_named(store: Store) -> None:
    c = cell()
    path = store.save(c, compute(c))
    whole = path.read_text()
    broken = {
        "truncated": whole[: len(whole) // 2],
        "one digit": whole.replace("0.6666667", "0.6666668"),
        "empty": "",
        "no fields": "[]",
        "other cell": whole.replace('"method":"b"', '"method":"a"'),
    }
    for damage, text in broken.items():
        path.write_text(text)
        with pytest.raises(RecordError, match=r"damaged.*fedkit run toy table1 --profile smoke"):
            store.load(c)
        assert store.missing([c]) == [c], damage
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="damaged"):
        store.load(c)
    # The next run makes a damaged record anew.
    assert run_cells([c], compute, store, progress=False).computed == [c]
    assert store.load(c).cell == c


def test_a_record_under_another_cells_name_is_refused(store: Store) -> None:
    a, b = cell("a"), cell("b")
    os.rename(store.save(a, compute(a)), store.path(b))
    with pytest.raises(RecordError, match="another cell"):
        store.load(b)
    assert any("move it" in problem for problem in check_records(store))


def test_schemas_of_the_past_and_of_the_future(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = cell()
    path = store.save(c, compute(c))
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "schema": records.SCHEMA - 1}))
    with pytest.raises(RecordError, match=r"schema 0 .*make it anew"):
        store.load(c)
    assert run_cells([c], compute, store, progress=False).computed == [c]  # replaced
    newer = json.dumps({**body, "schema": records.SCHEMA + 1})
    path.write_text(newer)
    with pytest.raises(CellError, match="install the fedkit"):
        run_cells([c], compute, store, progress=False)
    assert path.read_text() == newer  # never replaced


def test_a_missing_record_names_its_command(store: Store) -> None:
    with pytest.raises(FileNotFoundError, match=r"fedkit run toy table1 .*--seeds 0-2"):
        store.load(cell())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_leaves_the_old_record(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    c = cell()
    path = store.save(c, compute(c))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    other = [{"seed": s, "metrics": {"accuracy": 9.0}} for s in c.seeds]
    with pytest.raises(OSError, match=r"disk is full.*fedkit resume"):
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


def test_default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    assert Store().root == tmp_path
    monkeypatch.delenv("FEDKIT_RESULTS")
    assert Store().root == Path(records.__file__).parents[2] / "results"


# -------------------------------------------------------------------------- staleness


def test_stale_records_are_sound_and_shown(store: Store) -> None:
    run_cells([cell("a")], compute, store, progress=False)
    store.save(cell("b"), compute(cell("b")))
    assert store.load(cell("a")).stale() == []
    assert store.load(cell("b")).stale() == ["(no golden run recorded)"]
    assert check_records(store) == []
    (key,) = stale_records(store)
    assert key.startswith("smoke/toy/table1/b-")


def test_status(store: Store) -> None:
    run_cells([cell("a")], compute, store, progress=False)
    store.save(cell("b"), compute(cell("b")))
    status = store.status([cell("a"), cell("b"), cell("c")])
    assert list(status.state) == ["fresh", "stale", "missing"]
    assert status.reason[1] == "(no golden run recorded)"
    assert "fedkit run toy table1" in status.command[2]
    store.path(cell("a")).write_text("{}")
    assert sorted(store.status().state) == ["stale", "unreadable"]


def test_large_records_are_reported(store: Store) -> None:
    c = cell(seeds=(0,))
    values = list(np.linspace(0.1, 0.9, SIZE_LIMIT // 6))
    store.save(c, [{"seed": 0, "metrics": {}, "series": {"x": values}}], {})
    assert any("over the limit" in problem for problem in check_records(store))


def test_committed_records_are_sound() -> None:
    """Every record in the repository is whole, small, in its place, and fresh or excused."""
    root = Path(records.__file__).parents[2] / "results"
    assert check_records(Store(root)) == []
