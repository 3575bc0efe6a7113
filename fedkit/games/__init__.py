"""Cooperative games: coalitions, closed forms, exact values, and the result of a valuation."""

from __future__ import annotations

from fedkit.games.closed_forms import (
    airport,
    glove,
    random_unanimity_sum,
    unanimity,
    weighted_majority,
)
from fedkit.games.coalitions import all_coalitions, coalition_index
from fedkit.games.exact import banzhaf, beta_shapley, leave_one_out, semivalue, shapley
from fedkit.games.game import FunctionGame, Game, MemoGame, TableGame, normalise, tabulate
from fedkit.games.valuation import Trace, Valuation

__all__ = [
    "FunctionGame", "Game", "MemoGame", "TableGame", "Trace", "Valuation", "airport",
    "all_coalitions", "banzhaf", "beta_shapley", "coalition_index", "glove", "leave_one_out",
    "normalise", "random_unanimity_sum", "semivalue", "shapley", "tabulate", "unanimity",
    "weighted_majority",
]  # fmt: skip
