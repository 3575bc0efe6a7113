"""Cooperative games: coalitions, closed forms, exact values, and the result of a valuation."""
