"""The calibration of FedOwen's federation: its rule on made-up numbers, and one small run."""

import pytest
from tinyrecords import records

from reproduction.fedowen.calibration import PRINTED, declared, picture, screen
from reproduction.fedowen.experiments import SCREENED, confirmation

CELLS = {("mnist", 0.01, 0.01): 70.0, ("mnist", 0.1, 0.01): 80.0, ("mnist", 0.01, 0.05): 75.0}


def test_the_other_cells_confirm_what_was_declared():
    cells = {(s.dataset, s.alpha, s.imbalance) for s in confirmation("paper")}
    assert cells | {("mnist", *cell) for cell in SCREENED} == set(PRINTED)
    assert len(cells) == 9


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
