"""A paper's claims beside what was measured: read (claim), measured, judged, joined, shown (tables).

Knows no paper: their claims files are handed in (:func:`fedkit.papers.claims.load_claims`).
"""
