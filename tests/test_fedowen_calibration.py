"""The calibration of FedOwen's federation: its rule on made-up numbers, and one small run."""

import math

import numpy as np
import pytest
from tinyrecords import records

from reproduction.fedowen.calibration import (
    CALIBRATION,
    NEAR,
    PRINTED,
    class_weights,
    confirms,
    declared,
    fit,
    picture,
    reported,
    rounds_tested,
    screen,
)
from reproduction.fedowen.experiments import SCREENED, TINY, confirmation
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


def test_the_other_cells_confirm_what_was_declared():
    cells = {(s.dataset, s.alpha, s.imbalance) for s in confirmation("paper")}
    assert cells | {("mnist", *cell) for cell in SCREENED} == set(PRINTED)
    assert len(cells) == 9
    near, far = ({"error": e} for e in (NEAR, NEAR + 1))
    assert confirms(near, far)
    assert not confirms(near, near)
    assert not confirms(far, {"error": 2 * far["error"]})


def _screened(errors, seeds=3):
    """Records of readings, each with one error in all cells."""
    rows = [
        ({"split": split, "lr": 0.1, "batch_size": 32, "momentum": 0.0, "dataset": data,
          "alpha": alpha, "imbalance": imbalance},
         {f"train.{reported}": [PRINTED[data, alpha, imbalance] + error] * seeds})
        for (split, reported), error in errors.items()
        for data, alpha, imbalance in CELLS
    ]  # fmt: skip
    return screen(records(rows))


def test_the_declared_reading_fits_best_of_those_that_report_a_final_accuracy():
    errors = {("class", "best"): 0.5, ("capped", "last"): -1.0, ("blocks", "last"): 4.0}
    table = _screened(errors)
    assert table.index[0][0] == "class"
    assert table.error.tolist() == pytest.approx([0.5, 1.0, 4.0])
    assert table.loc[declared(table), "error"] == pytest.approx(1.0)
    assert declared(table)[0] == "capped"
    assert table.loc[declared(table), "mnist 0.01 0.05"] == pytest.approx(-1.0)
    assert declared(_screened(errors, seeds=1)) is None  # the screen alone declares nothing
    drawn = picture(table, 2)
    assert [t.get_text() for t in drawn.axes[0].get_yticklabels()] == [
        "class, rate 0.1, batch 32, best",
        "capped, rate 0.1, batch 32, last",
        "blocks, rate 0.1, batch 32, last",
    ]


def test_a_reading_without_all_cells_is_not_compared():
    one = {"split": "class", "lr": 0.1, "batch_size": 32, "momentum": 0.0, "dataset": "mnist"}
    near, far = ({**one, "alpha": alpha, "imbalance": 0.01} for alpha in (0.01, 0.1))
    found = {"train.last": [70.0]}
    rows = [(near, found), (far, found), ({**far, "lr": 0.01}, found)]
    assert screen(records(rows)).index.get_level_values("lr").tolist() == [0.1]


def test_a_run_weights_its_classes():
    cell = Cell("smoke", "fedowen", "calibration", CALIBRATION.base, (0,))
    (result,) = CALIBRATION.run(cell, "cpu", False)
    classes = np.array([result["series"][f"class.{c}"] for c in range(10)]).T
    assert result["metrics"]["train.last"] == pytest.approx(classes[-1].mean())
    tail = class_weights(TINY, 10)["both"]
    assert result["metrics"]["both.last"] == pytest.approx(classes[-1] @ tail)
