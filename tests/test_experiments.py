"""Running experiments: each cell is computed once, here, in processes or on Ray, and recorded."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from refusals import refused
from toyrecords import cell, compute

from reproduction import PAPERS, experiments
from reproduction.common import Setting, later, product, settings_in_cell
from reproduction.experiments import (
    CellError,
    Experiment,
    all_experiments,
    enter,
    get,
    keep,
)
from reproduction.records import PROFILES, Cell, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def test_failures_stop_or_are_kept(store: Store) -> None:
    def fails(c: Cell, device: object, progress: bool) -> list[dict[str, object]]:
        if c.settings["method"] == "a":
            raise ZeroDivisionError("no clients")
        return compute(c)

    toy = Experiment("toy", "table1", "", lambda profile, seeds: [], fails)
    cells = [cell("a"), cell("b"), cell("b")]
    with pytest.raises(CellError, match=r"cell a-alpha0.1.* failed: ZeroDivisionError: no clients"):
        toy.execute(cells, store, progress=False)
    assert not [path for path in store.root.rglob("*") if path.is_file()]
    outcome = toy.execute(cells, store, progress=False, on_error="continue")
    assert [c.settings["method"] for c, _ in outcome.failed] == ["a"]
    assert outcome.computed == [cell("b")]


# ----------------------------------------------------------------- a paper of one's own


PAPER = """
from helper import GAINS
from reproduction.common import experiment
from reproduction.golden import Tiny

def compute(cell, device, progress):
    gain = GAINS[cell.settings["method"]]
    return [{"seed": s, "metrics": {"accuracy": gain + s / 10}} for s in cell.seeds]

experiment(
    "mine", "table1", "Who is better",
    lambda profile: [{"method": name} for name in GAINS],
    lambda profile, setting: [(0, 1)],
    Tiny("run", compute, {"method": "ours"}, by="method"),
)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "experiments.py").write_text(PAPER)
    (folder / "helper.py").write_text("GAINS = {'ours': 2.0, 'theirs': 1.0}")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(experiments, "_registry", dict(experiments._registry))
    there = dict(PAPERS)
    yield folder
    PAPERS.clear()
    PAPERS.update(there)
    for name in ("helper", "mine_experiments"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "options",
    [{}, {"jobs": 2}, pytest.param({"engine": "ray"}, marks=pytest.mark.weekly)],
    ids=["here", "processes", "ray"],
)
def test_every_engine_gives_the_records_of_a_plain_run(mine: Path, store, options) -> None:
    if "engine" in options:
        pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")
    item = get(enter(mine), "table1")
    cells = item.cells("smoke", None)
    outcome = item.execute(cells, store, progress=False, **options)
    assert sorted(c.key for c in outcome.computed) == sorted(c.key for c in cells)
    assert [(r.cell.settings["method"], s["seed"], s["metrics"]["accuracy"])
            for r in store.records() for s in r.results] == [
        ("ours", 0, 2.0), ("ours", 1, 2.1), ("theirs", 0, 1.0), ("theirs", 1, 1.1)
    ]  # fmt: skip
    assert store.records()[0].manifest["behaviour"] == {"run.ours": 0}


def test_what_fails_in_another_process_is_told_here(mine: Path, store: Store) -> None:
    item = get(enter(mine), "table1")
    nobody = Cell("smoke", "mine", "table1", {"method": "nobody"}, (0,))
    with pytest.raises(CellError, match=r"cell nobody-s0-.* failed: KeyError: 'nobody'"):
        item.execute([nobody], store, progress=False, jobs=2)


def test_a_folder_that_is_no_paper_is_told(mine: Path, tmp_path: Path) -> None:
    refused(r"holds no experiments.py", enter, tmp_path)
    (mine / "helper.py").write_text("import nothing_of_that_name")
    refused(r"experiments.py cannot be loaded: ModuleNotFoundError", enter, mine)
    assert "mine" not in PAPERS
    other = tmp_path / "fedms"
    other.mkdir()
    refused("a paper is called fedms already; rename the folder", enter, other)


# ------------------------------------------------------------------------------ settings


@dataclass(frozen=True)
class Small(Setting):
    method: str
    alpha: float = 0.1
    split: str = later("class")


def test_a_product_of_settings_and_what_a_cell_holds_of_one() -> None:
    found = product(Small("a"), method=("a", "b"), alpha=(0.1, 1.0))
    assert [(s.method, s.alpha) for s in found] == [("a", 0.1), ("a", 1.0), ("b", 0.1), ("b", 1.0)]
    assert settings_in_cell(found[0]) == {"method": "a", "alpha": 0.1}
    other = Small("a", split="client")
    assert settings_in_cell(other) == {"method": "a", "alpha": 0.1, "split": "client"}
    assert Small.of(cell("a", split="client", more=1)) == other


def test_cells_are_selected_by_their_settings() -> None:
    table = get("fedowen", "table1")
    assert table.select("smoke") == table.cells("smoke", None)
    (one,) = table.select("smoke", method="mc", alpha=0.1)
    assert one.settings["method"] == "mc"
    assert table.select("smoke", key=one.digest) == [one]


def test_settings_do_not_depend_on_the_data_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of every experiment are listed without a look at the data folder."""

    def looked(*_: object) -> Path:
        raise AssertionError("a setting asked which data are there")

    found = all_experiments()
    for module in (".files", ".ratings", ".tables", ""):
        monkeypatch.setattr(f"fedkit.datasets{module}.data_root", looked)
    for item in found:
        for profile in PROFILES:
            item.cells(profile, None)


def test_a_choice_among_no_cells_says_that_there_are_none() -> None:
    refused("there are no cells: give one seed at least", keep, [], "dataset", "mnist")
