"""Many stacked models at once: layers, architectures, local training, evaluation of coalitions.

All of it needs torch and is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import later

_LATER = {
    "Architecture": "architectures",
    "Evaluator": "evaluation",
    "LocalSGD": "training",
    "Prepared": "evaluation",
    "ScikitLinear": "foreign",
    "build": "architectures",
    "for_each": "workers",
    "share_right": "evaluation",
    "train_clients": "training",
}

__all__ = list(_LATER)
__getattr__ = later(__name__, _LATER)
