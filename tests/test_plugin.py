"""The page on parts of one's own: its examples run, are short, and a paper may live outside."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from fedkit.papers import packages, registry
from fedkit.papers.claims import claims_papers

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


def test_an_installed_package_may_enter_a_paper(tmp_path: Path, monkeypatch) -> None:
    info = tmp_path / "toy_paper-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-paper\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedkit.papers]\ntoy = toy_paper\n")
    (tmp_path / "toy_paper.py").write_text(BLOCKS[-1])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registry", {})
    assert packages()["toy"] == "toy_paper"
    assert registry.get("toy", "table1").title == "Who is better"
    assert "toy" not in claims_papers()
    (tmp_path / "claims.yaml").write_text("paper: {key: toy}\n")
    assert "toy" in claims_papers()
    sys.modules.pop("toy_paper", None)
