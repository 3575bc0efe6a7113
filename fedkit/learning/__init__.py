"""Many models at once: rows of torch modules, local training, utilities of coalitions.

All of it needs torch and is imported when it is first used.
"""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(
    __name__,
    {
        "device": "for_each",
        "evaluation": "Evaluator Prepared share_right",
        "models": "Model build model_of",
        "training": "LocalSGD train_clients",
    },
)
