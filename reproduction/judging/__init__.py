"""A paper's claims beside what was measured: claim, measured, judge, join, tables.

Knows no paper: their claims files are handed in (:func:`reproduction.claimfiles.load_claims`).
"""
