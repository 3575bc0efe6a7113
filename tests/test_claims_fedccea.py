"""FedCCEA's claims: what was typed is what a program read from the paper's text."""

import pytest

from fedkit.claims.join import join
from fedkit.claims.tables import comparison_table
from fedkit.papers.claims import load_claims
from fedkit.records.store import Store

FEDCCEA = load_claims("fedccea")

# Sum of a row, and sum of place x number, as a program read them.
SUMS = {
    ("t3", "base"): (479.51, 1572.93),
    ("t3", "fedccea"): (479.51, 1572.93),
    ("t3", "tmc-sv"): (451.2, 1461.46),
    ("t3", "loo"): (474.25, 1542.14),
    ("r3", "connected"): (479.51, 1572.93),
    ("r3", "adam"): (479.51, 1572.93),
    ("t2", "fedccea"): (107.31, 468.96),
    ("t2", "tmc-sv"): (1208.66, 5879.38),
    ("t2", "loo"): (1231.67, 6003.09),
}


@pytest.mark.parametrize(("table", "row"), SUMS)
def test_rows_add_up(table, row):
    numbers = [float(text) for text in FEDCCEA.tables[table].rows[row]]
    weighted = sum(i * x for i, x in enumerate(numbers, 1))
    assert (round(sum(numbers), 2), round(weighted, 2)) == SUMS[table, row]


def test_every_printed_number_has_one_claim():
    assert {(t.id, row) for t in FEDCCEA.tables.values() for row in t.rows} == set(SUMS)
    assert len(FEDCCEA.select("fedccea.t3")) == 24
    assert len(FEDCCEA.select("fedccea.r3")) == 12
    assert len(FEDCCEA.select("fedccea.t2")) == 18


def test_a_row_may_name_its_metric():
    claim = FEDCCEA["fedccea.t3.mnist.strong.tmc-sv"]
    assert claim.ours["metric"] == "excluded.tmc-sv"
    assert "method" not in claim.ours["settings"]
    assert claim.paper_value == "74.29"


def test_every_reading_is_held_to_what_the_paper_prints_of_fedccea():
    for reading in ("connected", "adam"):
        for column in ("mnist.iid", "mnist.strong", "emnist.weak"):
            claim = FEDCCEA[f"fedccea.r3.{column}.{reading}"]
            assert claim.ours["metric"] == f"excluded.{reading}"
            assert claim.paper_value == FEDCCEA[f"fedccea.t3.{column}.fedccea"].paper_value


def test_seconds_cannot_be_tested():
    assert all(c.untestable for c in FEDCCEA.select("fedccea.t2"))


def test_a_number_of_other_data_says_so_beside_the_papers():
    """The letters stand in the column of EMNIST by class."""
    lines = comparison_table(join(load_claims("fedccea"), Store()), "t3").splitlines()
    cells = next(line for line in lines if line.startswith("| base")).split("|")
    assert sum("run on emnist-letters, the paper has emnist" in cell for cell in cells) == 3
    assert not any("run on" in cell for cell in cells if "reproduced" in cell)
