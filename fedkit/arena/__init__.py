"""Methods side by side on a federation: ``fk.arena.compare``, and planted federations."""

from __future__ import annotations

from fedkit.extras import homes, later

_HOMES = homes(
    {
        "federations": "Planted SCENARIOS Scenario plant",
        "truths": "World world",
        "methods": "METHODS Method MethodError PeekError RoundByRound SIGHTS View play",
        "own": "Compared agreement compare",
    }
)

__all__ = list(_HOMES)
__getattr__ = later(__name__, _HOMES)
