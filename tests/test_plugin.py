"""The page on parts of one's own: its examples run, are short, and a paper may live outside."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from fedkit.cli import main
from fedkit.papers import packages, registry
from fedkit.papers.claims import all_claims, claims_papers
from fedkit.records.golden import golden_runs

PAGE = (Path(__file__).parent.parent / "book" / "plug-in.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_examples_run_in_their_order_and_are_short(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    names: dict[str, object] = {}
    for block in BLOCKS:
        assert sum(bool(line.strip()) for line in block.splitlines()) < 20
        exec(block, names)
    assert len(names["mine"].client_data(1)[0]) == 80
    (experiment,) = registry.all_experiments("toy")
    assert [cell.settings["method"] for cell in experiment.cells("smoke", None)] == [
        "ours", "theirs"
    ]  # fmt: skip


@pytest.fixture
def enter(tmp_path: Path, monkeypatch):
    """Return what installs modules that enter a paper each: its name, and the files by path."""

    def install(**files_of: dict[str, str]) -> None:
        info = tmp_path / "toys-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
        points = [f"{paper} = {paper}_paper" for paper in files_of]
        (info / "entry_points.txt").write_text("\n".join(["[fedkit.papers]", *points]))
        for paper, files in files_of.items():
            for path, text in files.items():
                file = tmp_path / f"{paper}_paper{path}"
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    registry.all_experiments()  # fedkit's own stay registered
    there = set(sys.modules)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    yield install
    for name in set(sys.modules) - there:
        if "_paper" in name:
            del sys.modules[name]


CLAIMS = (Path(registry.__file__).parent / "fedowen" / "claims.yaml").read_text("utf-8")
TINY = """
from fedkit.records import Tiny
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
            "/claims.yaml": CLAIMS.replace("key: fedowen", "key: toy"),
        }
    )
    experiment = registry.get("toy", "table1")
    run = golden_runs([experiment])["toy/run.ours"]
    assert run.accept("first") == 1
    assert [p.name for p in tmp_path.glob("toy_paper/golden/*")] == ["run.ours.json"]
    assert run.check() == []
    assert experiment.behaviours(experiment.cells("smoke", None)[0]) == {"run.ours": 1}
    assert "toy" in claims_papers()


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
