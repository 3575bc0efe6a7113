"""Flower federations whose clients are valued round by round (extra ``flower``)."""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(__name__, {"valued": "Valued to_arrays to_row"})
