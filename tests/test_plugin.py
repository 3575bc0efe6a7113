"""The page on parts of one's own: its examples run, are short, and a paper may live outside."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from refusals import refused

pytest.importorskip("sklearn")

import fedkit as fk
from fedkit.__main__ import main
from reproduction import PAPERS, arena, experiments
from reproduction.claims import load_claims
from reproduction.experiments import check_records
from reproduction.fedowen import tables
from reproduction.fedowen.experiments import Setting
from reproduction.fedowen.run import strategy
from reproduction.golden import golden_runs
from reproduction.measured import _Lookup
from reproduction.records import Cell, Store
from reproduction.verdicts import join

BOOK = Path(__file__).parent.parent / "book"
PAGE = "".join((BOOK / f"{n}.md").read_text("utf-8") for n in ("plug-in", "plug-in-papers"))
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


ROW = next(block for block in BLOCKS if block.startswith("# my_values.py"))
PAPER = next(block for block in BLOCKS if block.startswith("# toy/experiments.py"))
OWN = re.findall(r"^fedkit (.*\./toy.*)$", PAGE, flags=re.MULTILINE)
COMMANDS = re.findall(r"^fedkit (run fedowen .*)$", PAGE, flags=re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with records and modules of its own."""
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "my_values.py").write_text(ROW)
    yield tmp_path
    sys.modules.pop("my_values", None)


@pytest.mark.parametrize("frame", [pd.DataFrame(), Store(Path("nowhere")).frame("fedowen")])
def test_before_any_record_a_table_says_that_there_is_none(frame) -> None:
    refused(r"no record with metric 'accuracy' and .*0\.5", tables.by_seed, frame, alpha=0.5)


def test_the_examples_run_in_their_order_and_are_short(monkeypatch, here: Path, capsys) -> None:
    names: dict[str, object] = {}
    for block in BLOCKS:
        assert sum(bool(line.strip()) for line in block.splitlines()) < 20
        if "records.frame" in block:  # the commands stand before it
            assert [main(line.split()) for line in COMMANDS] == [0, 0]
        if block != PAPER:
            exec(block, names)
    assert re.search(r"method +fedowen +my_values:alone\n", capsys.readouterr().out)
    assert len(names["mine"].client_data(1)[0]) == 80
    assert len(names["ledger"]) == 20
    assert names["ledger"].total().n_players == 20
    assert 1 < names["skewed"].summary()["classes"] < 2
    assert not names["found"].failures


def test_a_folder_stands_wherever_the_name_of_a_paper_may(here: Path, monkeypatch, capsys) -> None:
    experiments.all_experiments()  # those of the book stay registered
    monkeypatch.setattr(experiments, "_registry", dict(experiments._registry))
    (here / "toy").mkdir()
    (here / "toy" / "experiments.py").write_text(PAPER)
    assert len(OWN) == 4
    try:
        for line in OWN:
            assert main(shlex.split(line)) == 0, line
        out = capsys.readouterr().out
        for words in ("2 computed", "2 cells: 2 done", "behaviour 1 from now on", ": equal"):
            assert words in out
        golden = {p.name for p in (here / "toy" / "golden").glob("*")}
        assert golden == {"run.ours.json", "run.theirs.json"}
        (here / "toy" / "claims.yaml").write_text("paper: 3")
        assert main(["compare", "./toy"]) == 1
        assert "toy" in capsys.readouterr().err
    finally:
        PAPERS.pop("toy", None)


SMALL = {"rounds": 4, "exact_every": 2}
WHOLE = """
import fedkit as fk
class Sampled(fk.PermutationSampling): pass
policy = fk.SizeAsValue()
whole = fk.FedOwen().strategy()
broken = 3
class Raises:
    def __init__(self): raise SystemExit("not today")
"""


def test_a_method_from_outside_is_a_row_and_never_the_papers(here: Path, monkeypatch, capsys):
    (here / "my_values.py").write_text(WHOLE)
    table = experiments.get("fedowen", "table1")
    cells = [replace(cell, settings=cell.settings | SMALL) for cell in table.cells("smoke", (0,))]
    monkeypatch.setitem(
        experiments._registry, ("fedowen", "table1"), replace(table, cells=lambda p, s: cells)
    )
    run = ["run", "fedowen", "table1", "--quiet"]
    assert main([*run, "--only", "method=fedavg"]) == 0
    before, golden = join(load_claims("fedowen"), profile="smoke"), len(golden_runs([table]))
    mine = [f"my_values:{name}" for name in ("Sampled", "policy", "whole")]
    for name in mine:
        assert main([*run, "--method", name]) == 0
    capsys.readouterr()
    store = Store()
    records = {str(r.cell.settings["method"]): r for r in store.records("smoke", "fedowen")}
    assert sorted(name for name in records if ":" in name) == mine
    sampled, cell = records[mine[0]], records[mine[0]].cell
    assert sampled.results[0]["metrics"]["calls"] == cell.settings["participants"] * 4  # N x M
    assert sampled.manifest["behaviour"] == table.behaviours(cell)
    assert list(table.behaviours(cell)) == ["run.fedavg"]
    wide = tables.by_seed(store.frame("fedowen", "table1", "smoke"))
    assert list(wide) == ["fedavg", *mine]
    after = join(load_claims("fedowen"), profile="smoke")
    assert after.drop(columns="entry").equals(before.drop(columns="entry"))
    assert len(golden_runs([table])) == golden
    assert check_records(store) == []
    for command in (["list"], ["list", "fedowen"]):
        assert main(command) == 0
    assert main(cell.command.split()[1:]) == 0  # as the record says
    assert "1 computed" in capsys.readouterr().out


def test_an_audit_does_not_repeat_what_was_entered_in_the_arena(here: Path, capsys) -> None:
    settings = {"method": "Gone", "commit": "0123456", **asdict(arena.scenarios("smoke")[0])}
    cell = Cell("smoke", "arena", "entries", settings, (0,))
    Store().save(cell, [{"seed": 0, "metrics": {"seconds": 1.0}}])
    assert main(["audit", "1", "--paper", "arena", "--profile", "smoke"]) == 1
    assert "no record of arena" in capsys.readouterr().err


def test_a_claim_that_names_no_method_does_not_take_one_from_outside(here: Path) -> None:
    claims = load_claims("fedowen")
    cell = experiments.get("fedowen", "table1").cells("smoke", (0,))[0]
    place = {"experiment": "table1", "metric": "accuracy"}
    settings = {**cell.settings, "method": "my_values:alone@0123456789"}
    Store().save(replace(cell, settings=settings), [{"seed": 0, "metrics": {"accuracy": 1.0}}])
    assert _Lookup(claims, Store(), "smoke", False)._find(place) is None
    Store().save(cell, [{"seed": 0, "metrics": {"accuracy": 2.0}}])
    by_seed, _, _ = _Lookup(claims, Store(), "smoke", False)._find(place)
    assert by_seed == {0: 2.0}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("table1 my_values:Gone", "method 'my_values:Gone' cannot be made: AttributeError"),
        ("table1 my_values:Raises", "method 'my_values:Raises' cannot be made: SystemExit"),
        ("table1 fedowen", "method 'fedowen' is not of your own; write module:Name"),
        ("round_errors my_values:policy", "fedowen round_errors takes no method from outside"),
        ("table1 my_values:broken", "value is 3; expected a function"),
        ("table1 my_values:policy --engine ray", "method 'my_values:policy' runs here"),
    ],
)
def test_a_method_that_cannot_run_ends_in_one_sentence(here, capsys, arguments, told) -> None:
    (here / "my_values.py").write_text(WHOLE)
    experiment, method, *more = arguments.split()
    assert main(["run", "fedowen", experiment, "--method", method, "--seeds", "0", *more]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_fedtsv_takes_a_method_too_and_table_3_selects_at_random(here: Path) -> None:
    figures = experiments.get("fedtsv", "figures")
    name = "my_values:alone"
    (cell,) = figures.entered(figures.cells("smoke", (0,)), name)
    (result,) = figures.run(replace(cell, settings={**cell.settings, "rounds": 4}), "cpu", False)
    assert 0 < result["metrics"]["evaluations"] <= cell.settings["participants"]
    third = experiments.get("fedowen", "table3")
    (cell,) = third.entered(third.cells("smoke", (0,)), name)
    row = strategy(Setting.of(cell))
    assert isinstance(row.select, fk.UniformSelection)
    assert row.value.__name__ == "alone"


def test_the_sample_of_the_arena_has_the_columns_that_are_printed() -> None:
    (sample,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    for table in sample.strip().split("\n\n"):
        kind, *columns = table.splitlines()[0].split()
        there = [m.split(".")[-1] for m in arena.MEASURES if m.split(".")[0] == kind]
        assert columns == there
