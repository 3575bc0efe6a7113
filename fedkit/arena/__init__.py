"""The arena: every method on the same federations, whose truth is planted; and yours among them.

``fk.arena.run(["mypackage:MyValues"], profile="smoke")`` returns tidy frames.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_HOMES = homes(
    {
        "federations": "Planted SCENARIOS Scenario plant",
        "truths": "World world",
        "methods": "METHODS Method MethodError PeekError RoundByRound SIGHTS View play",
        "cells": "scenarios",
        "measures": "BETTER MEASURES agreement board interval measure picture ranking summary",
        "entering": "Entered measures_of run submit",
        "own": "Compared compare",
    }
)

__all__ = list(_HOMES)
__getattr__ = later(__name__, _HOMES)
