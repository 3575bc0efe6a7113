"""Cooperative games: coalitions, closed forms, exact values, and the result of a valuation."""

from __future__ import annotations

from fedkit.extras import homes, later

_LATER = homes(
    {
        "closed_forms": "airport glove random_unanimity_sum unanimity weighted_majority",
        "coalitions": "all_coalitions coalition_index",
        "exact": "banzhaf beta_shapley leave_one_out semivalue shapley",
        "game": "FunctionGame Game MemoGame TableGame normalise tabulate",
        "valuation": "Trace Valuation",
    }
)

__all__ = list(_LATER)
__getattr__ = later(__name__, _LATER)
