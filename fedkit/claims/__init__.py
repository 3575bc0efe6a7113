"""A paper's claims beside what was measured: claim, measured, judge, join, tables.

Knows no paper: their claims files are handed in (:func:`fedkit.papers.claims.load_claims`).
"""
