"""Many stacked models at once: layers, architectures, local training, evaluation of coalitions.

All of it needs torch and is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_LATER = homes(
    {
        "architectures": "Architecture build",
        "evaluation": "Evaluator Prepared share_right",
        "foreign": "ScikitLinear",
        "training": "LocalSGD train_clients",
        "workers": "for_each",
    }
)

__all__ = list(_LATER)
__getattr__ = later(__name__, _LATER)
