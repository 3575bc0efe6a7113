"""The arena: every method on federations whose truth is planted; and yours among them.

``arena.run({"mine": MyValues}, profile="smoke")`` returns tidy frames.
"""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(
    __name__,
    {
        "federations": "SCENARIOS Scenario plant",
        "experiments": "scenarios",
        "measures": "BETTER MEASURES board interval measure summary",
        "comparison": "Entered measures_of run",
    },
)
