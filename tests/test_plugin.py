"""The page on parts of one's own: its examples run, are short, and a paper may live outside."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

pytest.importorskip("sklearn")

import fedkit as fk
from fedkit import outside as methods
from reproduction import arena, packages, registry
from reproduction.claims import all_claims, claims_papers, load_claims
from reproduction.commands import main
from reproduction.fedowen import tables
from reproduction.fedowen.runs import strategy
from reproduction.fedowen.settings import Setting
from reproduction.measured import _Lookup
from reproduction.records import Cell, Store
from reproduction.records.golden import golden_runs
from reproduction.records.outside import entered
from reproduction.staleness import check_records
from reproduction.verdicts import join

PAGE = (Path(__file__).parent.parent / "book" / "plug-in.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


ROW = next(block for block in BLOCKS if block.startswith("# my_values.py"))
COMMANDS = re.findall(r"^fedkit (run fedowen .*)$", PAGE, flags=re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with records and modules of its own."""
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(methods, "_digits_of", methods._digits_of.__wrapped__)
    (tmp_path / "my_values.py").write_text(ROW)
    yield tmp_path
    sys.modules.pop("my_values", None)


@pytest.mark.parametrize("frame", [pd.DataFrame(), Store(Path("nowhere")).frame("fedowen")])
def test_before_any_record_a_table_says_that_there_is_none(frame) -> None:
    with pytest.raises(ValueError, match=r"no record with metric 'accuracy' and .*0\.5"):
        tables.by_seed(frame, alpha=0.5)


def test_the_examples_run_in_their_order_and_are_short(monkeypatch, here: Path, capsys) -> None:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    names: dict[str, object] = {}
    for block in BLOCKS:
        assert sum(bool(line.strip()) for line in block.splitlines()) < 20
        if "Store" in block:  # the commands stand before it
            assert [main(line.split()) for line in COMMANDS] == [0, 0]
        exec(block, names)
    assert re.search(r"method +fedowen +my_values:Alone@[0-9a-f]{10}\n", capsys.readouterr().out)
    assert len(names["mine"].client_data(1)[0]) == 80
    (cosines,) = fk.CosineValues().value([SimpleNamespace(directions=names["updates"])])
    assert names["cosines"].tolist() == pytest.approx(cosines.values, abs=1e-5)
    assert 1 < names["skewed"].summary()["classes"] < 2
    assert not names["found"].failures
    (experiment,) = registry.all_experiments("toy")
    assert [cell.settings["method"] for cell in experiment.cells("smoke", None)] == [
        "ours", "theirs"
    ]  # fmt: skip


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
    table = registry.get("fedowen", "table1")
    cells = [replace(cell, settings=cell.settings | SMALL) for cell in table.cells("smoke", (0,))]
    monkeypatch.setitem(
        registry._registry, ("fedowen", "table1"), replace(table, cells=lambda p, s: cells)
    )
    run = ["run", "fedowen", "table1", "--quiet"]
    for name in ("fedavg", "random-values"):
        assert main([*run, "--only", f"method={name}"]) == 0
    before, golden = join(load_claims("fedowen"), profile="smoke"), len(golden_runs([table]))
    for name in ("Sampled", "policy", "whole"):
        assert main([*run, "--method", f"my_values:{name}"]) == 0
    capsys.readouterr()
    store = Store()
    records = {str(r.cell.settings["method"]): r for r in store.records("smoke", "fedowen")}
    mine = sorted(name for name in records if ":" in name)
    digits = mine[0].partition("@")[2]
    assert mine == [f"my_values:{name}@{digits}" for name in ("Sampled", "policy", "whole")]
    sampled, cell = records[mine[0]], records[mine[0]].cell
    assert sampled.results[0]["metrics"]["calls"] == cell.settings["participants"] * 4  # N x M
    assert sampled.manifest["behaviour"] == table.behaviours(cell)
    assert list(table.behaviours(cell)) == ["run.fedavg"]
    assert "--method my_values:Sampled --seeds 0" in cell.command
    wide = tables.by_seed(store.frame("fedowen", "table1", "smoke"))
    assert list(wide) == ["fedavg", "random-values", *mine]
    shown = tables.as_text(tables.overview(store.frame("fedowen", "table1", "smoke")))
    assert mine[0] in shown.index
    after = join(load_claims("fedowen"), profile="smoke")
    assert after.drop(columns="entry").equals(before.drop(columns="entry"))
    assert len(golden_runs([table])) == golden
    assert check_records(store) == []
    for command in (["list"], ["list", "fedowen"], ["compare", "fedowen", "--profile", "smoke"]):
        assert main(command) == 0
    assert main(cell.command.split()[1:]) == 0  # as the record says
    assert "1 computed" in capsys.readouterr().out
    (here / "my_values.py").write_text(WHOLE + "# another")
    assert main([*run, "--method", "my_values:policy", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "missing" in out
    assert digits not in out
    with pytest.raises(ValueError, match="has another source by now, which makes it my_values"):
        methods.make_method(mine[0])


def test_an_audit_does_not_repeat_what_was_entered_in_the_arena(here: Path, capsys) -> None:
    settings = {"method": "Gone", "commit": "0123456", **asdict(arena.scenarios("smoke")[0])}
    cell = Cell("smoke", "arena", "entries", settings, (0,))
    Store().save(cell, [{"seed": 0, "metrics": {"seconds": 1.0}}])
    assert main(["audit", "1", "--paper", "arena", "--profile", "smoke"]) == 1
    assert "no record of arena" in capsys.readouterr().err


def test_a_claim_that_names_no_method_does_not_take_one_from_outside(here: Path) -> None:
    claims = load_claims("fedowen")
    cell = registry.get("fedowen", "table1").cells("smoke", (0,))[0]
    place = {"experiment": "table1", "metric": "accuracy"}
    settings = {**cell.settings, "method": "my_values:Alone@0123456789"}
    Store().save(replace(cell, settings=settings), [{"seed": 0, "metrics": {"accuracy": 1.0}}])
    assert _Lookup(claims, Store(), "smoke", False)._find(place) is None
    Store().save(cell, [{"seed": 0, "metrics": {"accuracy": 2.0}}])
    by_seed, _, _ = _Lookup(claims, Store(), "smoke", False)._find(place)
    assert by_seed == {0: 2.0}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("table1 my_values:Gone", "method 'my_values:Gone' cannot be imported: AttributeError"),
        ("table1 my_values:Raises", "method 'my_values:Raises' cannot be made: SystemExit"),
        ("table1 fedowen", "method 'fedowen' is not of your own; write package:Name"),
        ("round_errors my_values:policy", "fedowen round_errors takes no method from outside"),
        ("table1 my_values:broken", "expected an object with value"),
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
    figures = registry.get("fedtsv", "figures")
    name = methods.signed("my_values:Alone")
    (cell,) = figures.entered(figures.cells("smoke", (0,)), name)
    (result,) = figures.run(replace(cell, settings={**cell.settings, "rounds": 4}), "cpu", False)
    assert 0 < result["metrics"]["evaluations"] <= cell.settings["participants"]
    third = registry.get("fedowen", "table3")
    (cell,) = third.entered(third.cells("smoke", (0,)), name)
    row = strategy(Setting.of(cell))
    assert isinstance(row.select, fk.UniformSelection)
    assert type(row.value).__name__ == "Alone"


@pytest.fixture
def enter(tmp_path: Path, monkeypatch):
    """Return what installs modules that enter a paper each: its name, and the files by path."""

    def install(**files_of: dict[str, str]) -> None:
        info = tmp_path / "toys-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
        points = [f"{paper} = {paper}_paper" for paper in files_of]
        (info / "entry_points.txt").write_text("\n".join(["[reproduction]", *points]))
        for paper, files in files_of.items():
            for path, text in files.items():
                file = tmp_path / f"{paper}_paper{path}"
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        entered.cache_clear()

    registry.all_experiments()  # fedkit's own stay registered
    there = set(sys.modules)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    yield install
    entered.cache_clear()
    for name in set(sys.modules) - there:
        if "_paper" in name:
            del sys.modules[name]


CLAIMS = """
paper: {key: toy}
claims: [{id: c, where: here, says: so, test: {rule: at_least, bound: 1}}]
"""
TINY = """
from reproduction.records import Tiny
tiny = Tiny("run", compute, {"method": "ours"}, by="method")
register(Experiment("toy", "table1", "Who is better", cells, compute, (tiny,)))
"""


def test_an_installed_module_may_enter_a_paper(enter, tmp_path: Path) -> None:
    enter(toy={".py": BLOCKS[-1] + TINY})
    assert packages()["toy"] == "toy_paper"
    assert registry.get("toy", "table1").title == "Who is better"
    (tmp_path / "claims.yaml").write_text("anybody's")
    assert "toy" not in claims_papers()
    run = golden_runs([registry.get("toy", "table1")])["toy/run.ours"]
    with pytest.raises(ValueError, match="toy_paper is a single module"):
        run.accept("first")


def test_a_package_has_its_claims_and_golden_numbers_in_itself(enter, tmp_path: Path) -> None:
    enter(
        toy={
            "/__init__.py": BLOCKS[-1] + TINY,
            "/__main__.py": "raise SystemExit('run me')",
            "/_draft.py": "raise SystemExit('not ready')",
            "/claims.yaml": CLAIMS,
        }
    )
    experiment = registry.get("toy", "table1")
    run = golden_runs([experiment])["toy/run.ours"]
    assert run.accept("first") == 1
    assert [p.name for p in tmp_path.glob("toy_paper/golden/*")] == ["run.ours.json"]
    assert run.check() == []
    assert experiment.behaviours(experiment.cells("smoke", None)[0]) == {"run.ours": 1}
    assert "toy" in claims_papers()
    assert [claim.id for claim in load_claims("toy").claims] == ["toy.c"]


def test_a_broken_paper_from_outside_breaks_no_other(enter, tmp_path: Path, capsys) -> None:
    half = BLOCKS[-1].replace('"toy"', '"half"')
    enter(
        toy={".py": BLOCKS[-1]}, half={".py": f"{half}\nimport nothing_of_that_name"},
        gone={}, odd={"/__init__.py": "", "/claims.yaml": "paper: 3"},
    )  # fmt: skip
    assert registry.get("toy", "table1").title == "Who is better"
    with pytest.raises(ValueError, match="'half' cannot be loaded: importing half_paper gave Mod"):
        registry.all_experiments("half")
    with pytest.warns(UserWarning, match="left out, it cannot be loaded") as told:
        there = {item.paper for item in registry.all_experiments()}
    assert {"toy", "fedowen"} <= there
    assert "half" not in there
    assert [str(w.message).split(",")[0] for w in told] == [
        "paper 'gone' is left out", "paper 'half' is left out"
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="paper 'odd' is left out: the claims"):
        assert "fedowen" in all_claims()
    assert main(["compare", "fedowen"]) == 0
    assert main(["run", "half"]) == 1
    assert capsys.readouterr().err.startswith("fedkit: paper 'half' cannot be loaded")


def test_the_sample_of_the_arena_has_the_columns_that_are_printed() -> None:
    (sample,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    for table in sample.strip().split("\n\n"):
        kind, *columns = table.splitlines()[0].split()
        there = [m.split(".")[-1] for m in arena.MEASURES if m.split(".")[0] == kind]
        assert columns == there
