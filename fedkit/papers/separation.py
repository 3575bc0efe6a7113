"""How well values tell two groups of clients apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def chance_above(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Probability that a member of `a` is above one of `b`, ties half; NaN if one is empty.

    This is the area under the ROC curve, and Mann and Whitney's U over its largest value.
    """
    if not len(a) or not len(b):
        return float("nan")
    left, right = np.asarray(a)[:, None], np.asarray(b)[None, :]
    return float(((left > right) + 0.5 * (left == right)).mean())
