"""Figures and tables of the book: one style, one palette, no global state.

Every function that draws returns a :class:`Picture`, a matplotlib Figure that a notebook shows by
itself, without pyplot; :func:`table` shows a data frame with a caption, :func:`finder` a long one
to be searched, :func:`slider` a figure that a reader turns by hand.
"""

from fedkit.plots.clients import (
    bars_with_errors,
    circles_of_clients,
    dots_of_clients,
)
from fedkit.plots.curves import (
    curves_with_bands,
    dots_with_intervals,
    error_against_evaluations,
    forests,
    scatter_estimates,
)
from fedkit.plots.finder import finder
from fedkit.plots.interactive import slider
from fedkit.plots.style import INK, MARKERS, PALETTE, Picture, panels
from fedkit.plots.tables import Shown, table

__all__ = [
    "INK", "MARKERS", "PALETTE", "Picture", "Shown", "bars_with_errors", "circles_of_clients",
    "curves_with_bands", "dots_of_clients", "dots_with_intervals",
    "error_against_evaluations", "finder", "forests", "panels",
    "scatter_estimates", "slider", "table",
]  # fmt: skip
