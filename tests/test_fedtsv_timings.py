from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
from rounding import assert_close

import fedkit as fk
from fedkit.methods.fedtsv import TrajectoryGame, gram_matrix
from fedkit.papers.fedtsv.tables import timings_table
from fedkit.papers.fedtsv.timings import Timing, averaging, clock, made_up, run_timing
from fedkit.papers.registry import Cell, get


def test_averaging_is_the_game_of_the_gram_matrix():
    updates, reference = made_up(4, 300)
    fast = TrajectoryGame(gram_matrix(torch.cat([updates, reference[None]])))
    slow = averaging(updates, reference)
    everyone = fk.all_coalitions(4)
    assert_close(slow.value(everyone), fast.value(everyone))
    assert torch.equal(made_up(4, 300)[0], updates)


def test_the_clock_keeps_the_shortest_run_and_the_last_result(monkeypatch):
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    results = iter("abc")
    assert clock(lambda: next(results)) == (1.0, "c")


def timed(players, draws):
    """The table of a small run."""
    rows = []
    for k in players:
        setting = Timing(k, 200)
        cell = Cell("smoke", "fedtsv", "timings", asdict(setting), tuple(range(draws)))
        for result in run_timing(cell, None, False):
            for name, value in result["metrics"].items():
                row = {"participants": k, "seed": result["seed"], "metric": name, "value": value}
                rows.append(row)
    return timings_table(pd.DataFrame(rows))


def test_the_table_has_every_way():
    table = timed((3, 5), 4)
    assert table.index.tolist() == [3, 5]
    assert float(table.loc[3, "difference of averaging"]) < 1e-6
    for column in ("exact (s)", "sampled (s)"):
        assert (table[column].astype(float) > 0).all()


def test_errors_are_those_of_as_many_coalitions_as_in_the_records():
    game = averaging(*made_up(5, 200))
    exact = fk.shapley(game).values
    errors = [
        np.abs(fk.estimate(game, fk.PermutationSampling(), budget=12, seed=i).values - exact).mean()
        for i in range(4)
    ]
    row = timed((5,), 4).loc[5]
    assert float(row["error of sampling"].split()[0]) == pytest.approx(np.mean(errors), abs=6e-4)
    assert float(row["size of a value"]) == pytest.approx(np.abs(exact).mean(), abs=6e-4)


def test_the_cells_have_the_papers_network_and_all_participants():
    cells = get("fedtsv", "timings").cells("paper")
    assert [c.settings["participants"] for c in cells] == [5, 10, 15, 20]
    network = fk.build("mlp-64", (1, 28, 28), 10)
    assert {c.settings["parameters"] for c in cells} == {network.n_parameters}
    assert all(c.settings["averaged"] for c in cells)
    assert get("fedtsv", "timings").cells("laptop") == []


def test_seconds_are_written_without_an_exponent():
    metrics = {"seconds.exact": 0.00051, "seconds.sampled": 351.0, "error.sampled": 0.1, "size": 1}
    metrics |= {"seconds.averaged": 1.0, "error.averaged": 0.0}
    rows = [{"participants": 3, "seed": 0, "metric": m, "value": v} for m, v in metrics.items()]
    row = timings_table(pd.DataFrame(rows)).loc[3]
    assert (row["exact (s)"], row["sampled (s)"]) == ("0.00051", "350")
