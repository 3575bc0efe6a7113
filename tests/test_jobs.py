"""The fourteen jobs of the page: whole examples that run, in no more lines than in a peer.

Selection, aggregation, estimator, frames, forests, ledger and a paper of one's own run in
``test_plugin.py``, a Flower federation in ``test_flower.py``, a chapter with other parameters in
``test_bookbuild.py``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_arena import small

from benchmarks import jobs
from fedkit.__main__ import main
from reproduction.arena import experiments


@pytest.mark.filterwarnings("ignore")  # of packages about each other, and of shap's plots
def test_the_examples_of_the_page_run_in_their_order_and_are_under_ten_lines():
    for name in ("shapiq", "shap", "pydvl"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(name)
    import matplotlib.pyplot as plt

    names: dict[str, object] = {}
    for block in jobs.blocks("jobs"):
        assert sum(bool(line.strip()) for line in block.splitlines()) < 10
        exec(block, names)
    plt.close("all")
    assert names["found"].has_intervals
    assert names["core"].values.sum() == pytest.approx(5)
    assert names["pairs"][(1, 3)] == pytest.approx(-11 / 6)
    assert names["worth"].n_players == 200
    assert not np.isnan(names["worth"].values).any()


def test_no_job_takes_more_lines_than_in_a_peer():
    assert len(jobs.JOBS) + len(jobs.COMMANDS) == 14
    for job in jobs.JOBS:
        written = {name: jobs.lines(program) for name, program in jobs.programs(job).items()}
        assert 0 < written["fedkit"] == min(written.values()), (job.name, written)
    told = pd.read_csv(jobs.TABLE)
    assert set(told["job"]) == {job.name for job in jobs.JOBS} | set(jobs.COMMANDS)


def test_a_method_enters_the_arena_by_its_command(tmp_path: Path, monkeypatch, capsys) -> None:
    (example,) = (block for block in jobs.blocks("plug-in") if "class Agreement" in block)
    (tmp_path / "mine.py").write_text(example.split("from reproduction")[0], "utf-8")
    (command,) = jobs.COMMANDS["the arena"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path / "results"))
    monkeypatch.setitem(experiments.SCALES, "smoke", ((small("sizes"),), 2))
    assert main(command.split()) == 0
    told = capsys.readouterr().out
    assert "\nmine:Agreement " in told
    assert "\nrandom " in told
    sys.modules.pop("mine", None)
