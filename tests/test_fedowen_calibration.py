"""The calibration of FedOwen's federation: its rule on made-up numbers, and one small run."""

import math

import numpy as np
import pytest

from reproduction.fedowen.calibration import (
    CALIBRATION,
    class_weights,
    fit,
    reported,
    rounds_tested,
)
from reproduction.fedowen.settings import TINY
from reproduction.records import Cell

CELLS = {("mnist", 0.01, 0.01): 70.0, ("mnist", 0.1, 0.01): 80.0, ("mnist", 0.01, 0.05): 75.0}


def test_the_rule_on_made_up_numbers():
    exact = fit({cell: [x] for cell, x in CELLS.items()}, CELLS)
    assert exact == {"error": 0.0, "error_of_medians": 0.0, "alpha": 0.0, "imbalance": 0.0}
    # three points too high everywhere: the trends are right; one seed of three collapsed
    shifted = fit({cell: [x + 3.0] for cell, x in CELLS.items()}, CELLS)
    assert shifted["error"] == pytest.approx(3.0)
    assert shifted["alpha"] == shifted["imbalance"] == pytest.approx(0.0)
    collapsed = {cell: [x, x, x] for cell, x in CELLS.items()}
    collapsed["mnist", 0.1, 0.01] = [80.0, 80.0, 10.0]
    found = fit(collapsed, CELLS)
    assert found["error_of_medians"] == 0.0
    assert found["error"] == pytest.approx(70 / 3 / math.sqrt(3))
    assert found["alpha"] == pytest.approx(70 / 3)
    assert found["imbalance"] == 0.0


def test_a_fit_without_two_cells_has_no_trend():
    found = fit({("mnist", 0.01, 0.01): [71.0]}, CELLS)
    assert found["error"] == 1.0
    assert math.isnan(found["alpha"])


def test_what_a_paper_may_report():
    curve = np.array([10.0, 90.0, *range(50, 60)])
    assert reported(curve) == {"last": 59.0, "last_10": 54.5, "best": 90.0}
    assert rounds_tested(100) == [20, 40, 60, 80, *range(91, 101)]
    assert rounds_tested(3) == [1, 2, 3]


def test_the_test_set_may_have_the_long_tail_of_training():
    weights = class_weights(TINY, 10)
    assert weights["train"] == pytest.approx(np.full(10, 0.1))
    assert weights["both"].sum() == pytest.approx(1.0)
    assert weights["both"][-1] / weights["both"][0] == pytest.approx(TINY.imbalance)


def test_a_run_weights_its_classes():
    cell = Cell("smoke", "fedowen", "calibration", CALIBRATION.base, (0,))
    (result,) = CALIBRATION.run(cell, "cpu", False)
    classes = np.array([result["series"][f"class.{c}"] for c in range(10)]).T
    assert result["metrics"]["train.last"] == pytest.approx(classes[-1].mean())
    tail = class_weights(TINY, 10)["both"]
    assert result["metrics"]["both.last"] == pytest.approx(classes[-1] @ tail)
