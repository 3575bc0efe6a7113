"""The arena: every method on the same federations, whose truth is planted; and yours among them.

``fk.arena.run(["mypackage:MyValues"], profile="smoke")`` returns tidy frames.
"""

from __future__ import annotations

from fedkit.extras import later

_LATER = {
    "BETTER": "measures",
    "Compared": "own",
    "Entered": "entering",
    "MEASURES": "measures",
    "METHODS": "methods",
    "Method": "methods",
    "MethodError": "methods",
    "PeekError": "methods",
    "Planted": "federations",
    "RoundByRound": "methods",
    "SCENARIOS": "federations",
    "SIGHTS": "methods",
    "Scenario": "federations",
    "View": "methods",
    "World": "truths",
    "board": "measures",
    "compare": "own",
    "interval": "measures",
    "measure": "measures",
    "measures_of": "entering",
    "picture": "measures",
    "plant": "federations",
    "play": "methods",
    "ranking": "measures",
    "run": "entering",
    "scenarios": "cells",
    "submit": "entering",
    "summary": "measures",
    "world": "truths",
}

__all__ = list(_LATER)
EXPERIMENTS = ("truths", "methods", "entries")
__getattr__ = later(__name__, _LATER)
