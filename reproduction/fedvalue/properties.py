"""Proposition 1 and Example 1 of FedValue, exactly, on a table of 32 rows.

Every combination of five bits is a row: the task party's, those of three data parties, and one of a
fourth that the label does not depend on.  Nothing is sampled, so probabilities are exact, and each
function returns by how many nats a property is missed.  A true statement gives zero up to rounding.
"""

from __future__ import annotations

import numpy as np

from fedkit.checks import Floats, Ints
from fedkit.fedvalue.information import mshapley_cmi, mutual_information
from fedkit.games.exact import shapley
from fedkit.games.game import table_game

ROWS: Ints = np.indices((2,) * 5).reshape(5, -1).T
TASK, ALIKE, OTHER, THIRD, NOTHING = ROWS.T[..., None]
#: the second and the third bit play one part in it, the last plays none
LABEL: Ints = ((ALIKE + OTHER + TASK * THIRD) >= 2).astype(np.int64).ravel()


def _values(*parties: Ints) -> Floats:
    return mshapley_cmi(TASK, LABEL, list(parties)).values


def efficiency() -> float:
    """Sum of the values less what the data parties add to the task party (property 1)."""
    everything = mutual_information(ROWS, LABEL)
    added = everything - mutual_information(TASK, LABEL)
    return float(_values(ALIKE, OTHER, THIRD, NOTHING).sum()) - added


def symmetry() -> float:
    """Difference of two parties that add as much to every coalition (property 2)."""
    values = _values(ALIKE, OTHER, THIRD, NOTHING)
    return float(values[0] - values[1])


def null_player() -> float:
    """Value of a party that adds nothing to any coalition (property 3)."""
    return float(_values(ALIKE, OTHER, THIRD, NOTHING)[3])


def null_duplication() -> float:
    """Change of a party's value when it repeats a column of its own (property 4)."""
    two = np.hstack([ALIKE, THIRD])
    twice = np.hstack([ALIKE, THIRD, THIRD])
    return float(_values(twice, OTHER)[0] - _values(two, OTHER)[0])


def half_as_equals() -> float:
    """Shapley value of a party with the task party's columns, less half of what these tell."""
    told = mutual_information(TASK, LABEL)  # by either of the two, and by both
    return float(shapley(table_game(np.array([0.0, told, told, told]))).values[1]) - told / 2


def substitute() -> float:
    """Value of a party that has the task party's columns, beside others (Example 1)."""
    return float(_values(TASK, ALIKE, OTHER)[0])
