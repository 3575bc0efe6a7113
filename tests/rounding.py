"""What may differ between two ways to compute the same thing, on any processor.

Kernels round differently: by processor, by the shape of a batch, by the number of threads.  A sum
moves by a few units of its last place, relative to its largest terms; and a unit of a network that
rests near its kink, or an image near a boundary between classes, may fall on the other side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def assert_trained_alike(found: Tensor, expected: Tensor, start: Tensor) -> None:
    """Models ``[..., P]`` end at one point, within a hundredth of the way that they went.

    A unit at its kink changes single parameters by a step's share, so no tolerance per parameter
    is safe; an error of the method changes the whole way by much more than a hundredth.
    """
    gap, way = (torch.linalg.vector_norm(m - expected, dim=-1) for m in (found, start))
    assert bool((gap <= 0.01 * way).all()), f"apart by {gap}, of a way of {way}"


def assert_close(found: npt.ArrayLike, expected: npt.ArrayLike, relative: float = 1e-5) -> None:
    """Numbers agree to `relative` of the largest of them: what float32 gives, times a hundred."""
    scale = float(np.abs(np.asarray(expected)).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=relative * scale)


def assert_same_answers(found: npt.ArrayLike, expected: npt.ArrayLike, images: int) -> None:
    """Accuracies agree but for two images that may lie on a boundary."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.5 / images)
