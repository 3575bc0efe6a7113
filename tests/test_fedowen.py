import math
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from fedkit.federated.aggregation import Proportional
from fedkit.federated.rounds import run
from fedkit.federated.selection import UniformSelection
from fedkit.learning.architectures import build
from fedkit.methods.fedowen import EpsilonGreedy
from fedkit.papers.fedowen import settings as paper
from fedkit.papers.fedowen import tables
from fedkit.papers.fedowen.cells import SCALES
from fedkit.papers.registry import Cell, get

SMALL = replace(SCALES["smoke"].base, alpha=0.1, imbalance=0.1, rounds=4, exact_every=2)
ALL = (*paper.METHODS, *paper.TABLE_3)


def one(method, **changes):
    setting = replace(SMALL, method=method, **changes)
    return paper.run_cell(Cell("smoke", "fedowen", "table1", asdict(setting), (0,)), "cpu", False)[
        0
    ]


@pytest.mark.parametrize("method", ALL)
def test_every_method_runs_within_the_budget(method):
    result = one(method)
    metrics = result["metrics"]
    calls = metrics["calls"]
    if method in paper.estimators(SMALL):
        assert 0 < calls <= SMALL.budget
        assert math.isfinite(metrics["error"])
    if method in ("mc", "banzhaf", "weightedshap", "fedowen", "fedowen-corrected"):
        assert calls == SMALL.budget  # saved calls are spent again
    if method in (
        "fedavg",
        "shapfed",
        "shapfed-proportional",
        "random-values",
        "size-values",
        "uniform",
    ):
        assert calls == 0
    assert 0 <= metrics["accuracy"] <= 100
    assert result["series"]["round"][-1] == SMALL.rounds


def test_the_papers_budget_is_forty_calls():
    setting = SCALES["paper"].base
    assert setting.budget == 10 * 4
    assert replace(setting, levels=4, budget_grows=True).budget == 80


def test_rows_share_scheduler_and_aggregation():
    shared = [paper.strategy(replace(SMALL, method=m)) for m in ("mc", "gtg", "shapfed", "fedowen")]
    assert len({(s.select, s.aggregate) for s in shared}) == 1
    assert isinstance(shared[0].select, EpsilonGreedy)
    without = paper.strategy(replace(SMALL, method="fedowen-no-adaptive"))
    assert isinstance(without.select, UniformSelection)
    assert without.value == paper.strategy(replace(SMALL, method="fedowen")).value
    blind = paper.strategy(replace(SMALL, method="random-values-no-adaptive"))
    assert (blind.select, blind.aggregate) == (without.select, without.aggregate)
    assert isinstance(
        paper.strategy(replace(SMALL, method="shapfed-proportional")).aggregate, Proportional
    )
    with pytest.raises(ValueError, match="unknown method 'best'"):
        paper.strategy(replace(SMALL, method="best"))


def test_methods_of_one_seed_share_partition_and_first_model():
    a, b = (paper.federation(replace(SMALL, method=m), 3) for m in ("mc", "fedowen"))
    assert all(np.array_equal(x, y) for x, y in zip(a.clients, b.clients, strict=True))
    model = build("mlp-8", a.input_shape, a.n_classes)
    settings = [replace(SMALL, method=m) for m in ("uniform", "fedavg")]
    from fedkit.federated.rounds import Plan
    from fedkit.learning.training import LocalSGD

    plan = Plan(rounds=1, participants=4, local=LocalSGD(lr=0.1))
    first = [run([a], model, paper.strategy(s), plan, [3]) for s in settings]
    assert [r["client"] for r in first[0].clients] == [r["client"] for r in first[1].clients]


def test_same_rounds_compare_estimators_with_exact_values():
    cell = get("fedowen", "round_errors").cells("smoke", [0])[0]
    small = replace(paper.setting(cell), rounds=4, exact_every=2)
    result = paper.run_round_errors(
        Cell("smoke", "fedowen", "round_errors", asdict(small), (0,)), "cpu", False
    )[0]
    for method in paper.estimators(small):
        assert result["metrics"][f"error.{method}"] > 0
        assert 0 <= result["metrics"][f"same_best.{method}"] <= 1


def test_cells_cover_the_papers_tables():
    for name in ("table1", "table2"):
        cells = get("fedowen", name).cells("paper", range(10))
        places = {(c.settings["dataset"], c.settings["alpha"]) for c in cells}
        assert len(places) == 15
        assert {c.settings["method"] for c in cells} == set(paper.METHODS)
    assert {c.settings["model"] for c in cells if c.settings["dataset"] == "cifar10"} == {
        "resnet18"
    }
    with pytest.raises(ValueError, match="unknown profile"):
        get("fedowen", "table1").cells("huge", None)


def test_every_experiment_carries_controls():
    for name in ("table1", "table2", "sweep_levels", "sweep_epsilon", "classwise"):
        for profile in SCALES:
            methods = {c.settings["method"] for c in get("fedowen", name).cells(profile)}
            assert set(paper.CONTROLS) <= methods, name
    for name in ("sensitivity", "reduced"):
        methods = {c.settings["method"] for c in get("fedowen", name).cells("paper")}
        assert {"fedavg", "fedowen", "random-values", "uniform"} <= methods
    for experiment in ("table1", "sweep_levels", "sweep_epsilon", "classwise", "reduced"):
        cells = get("fedowen", experiment).cells("paper")
        assert len({repr((c.settings, c.seeds)) for c in cells}) == len(cells)
    places = {(c.settings["data"], c.settings["alpha"], c.settings["split"])
              for c in get("fedowen", "classwise").cells("paper")}  # fmt: skip
    assert places == {(d, a, "class") for d in ("mnist", "fashionmnist") for a in (0.01, 0.1)}


def test_both_readings_of_figure_3_are_cells():
    cells = [c.settings for c in get("fedowen", "sweep_levels").cells("laptop")]
    budgets = {
        grows: sorted({paper.Setting(**c).budget for c in cells
                       if c["budget_grows"] is grows and c["method"] == "fedowen"})
        for grows in (True, False)
    }  # fmt: skip
    assert budgets == {True: [20, 40, 80, 160], False: [40]}


def frame(rows):
    return pd.DataFrame(rows, columns=["method", "seed", "metric", "value", "alpha"])


ROWS = [
    (m, s, "accuracy", v + 10 * s, 0.1)
    for m, values in {"fedavg": (1, 1, 1), "fedowen": (3, 4, 5)}.items()
    for s, v in enumerate(values)
]


def test_gains_are_paired_by_seed():
    table = tables.gains(tables.by_seed(frame(ROWS)), "fedavg")
    row = table.loc["fedowen"]
    assert row.gain == pytest.approx(3)
    half = 4.302652729911275 / math.sqrt(3)  # t(0.975, 2), differences 2, 3, 4
    assert (row.low, row.high) == pytest.approx((3 - half, 3 + half))
    text = tables.as_text(
        tables.overview(frame(ROWS), references=("fedavg",)), paper={"fedavg": 12.0}
    )
    assert "| FedAvg | 12.00 | 11.00 " in text
    assert "+3.00 [+0.52, +5.48]" in text


def test_tables_refuse_what_they_cannot_show():
    with pytest.raises(ValueError, match="no record"):
        tables.by_seed(frame(ROWS), alpha=0.5)
    with pytest.raises(ValueError, match="several records"):
        tables.by_seed(frame([*ROWS, ("fedavg", 0, "accuracy", 2, 0.2)]))
    with pytest.raises(ValueError, match="'exact' has no record"):
        tables.gains(tables.by_seed(frame(ROWS)), "exact")


def test_rows_with_fewer_seeds_are_compared_on_the_seeds_they_share():
    wide = tables.by_seed(frame([*ROWS, ("exact", 0, "accuracy", 30.0, 0.1)]))
    assert tables.gains(wide, "fedavg").loc["exact", "seeds"] == 1
    table = tables.overview(
        frame([*ROWS, ("exact", 0, "accuracy", 30.0, 0.1)]), references=("fedavg",)
    )
    assert table.loc["exact", "mean"] == 30.0
    assert np.isfinite(table.drop(index="exact")["mean"]).all()


def test_sensitivity_varies_one_setting_at_a_time():
    rows = [
        (method, seed, "accuracy", base + seed + shift, lr, c)
        for method, base in (("fedavg", 10.0), ("fedowen", 12.0))
        for seed in (0, 1, 2)
        for shift, lr, c in ((0, 0.1, 0.5), (5, 0.2, 0.5), (7 * (method == "fedowen"), 0.1, 0.9))
    ]
    records = pd.DataFrame(rows, columns=["method", "seed", "metric", "value", "lr", "c"])
    table = tables.sensitivity(records, ["lr", "c"], {"lr": 0.1, "c": 0.5})
    assert list(table.index) == [("our choice", ""), ("lr", "0.2"), ("c", "0.9")]
    assert table.gain.tolist() == pytest.approx([2, 2, 9])
    assert table.fedavg.tolist() == pytest.approx([11, 16, 11])
    assert (table.seeds == 3).all()
