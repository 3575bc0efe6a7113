"""Flower federations whose clients are valued round by round (extra ``flower``)."""

from __future__ import annotations

from fedkit.extras import homes, later

_HOMES = homes({"valued": "Valued to_arrays to_row"})

__all__ = list(_HOMES)
__getattr__ = later(__name__, _HOMES)
