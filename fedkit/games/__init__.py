"""Cooperative games: coalitions, exact values, examples, and the result of a valuation."""

from __future__ import annotations

from fedkit.games.coalitions import all_coalitions, coalition_index
from fedkit.games.exact import banzhaf, beta_shapley, leave_one_out, semivalue, shapley
from fedkit.games.examples import airport, glove, random_unanimity_sum, unanimity, weighted_majority
from fedkit.games.game import Game, normalise, parallel, table_game, tabulate
from fedkit.games.ledger import Ledger, total
from fedkit.games.memory import remember
from fedkit.games.recorded import RECORDED, recorded
from fedkit.games.valuation import Valuation

__all__ = [
    "RECORDED", "Game", "Ledger", "Valuation", "airport", "all_coalitions", "banzhaf",
    "beta_shapley", "coalition_index", "glove", "leave_one_out", "normalise", "parallel",
    "random_unanimity_sum", "recorded", "remember", "semivalue", "shapley", "table_game",
    "tabulate", "total", "unanimity", "weighted_majority",
]  # fmt: skip
