"""Flower federations whose clients are valued round by round (extra ``flower``)."""

from __future__ import annotations

from fedkit.extras import later

_HOMES = {
    "Valued": "valued",
    "to_arrays": "valued",
    "to_vector": "valued",
}

__all__ = list(_HOMES)
__getattr__ = later(__name__, _HOMES)
