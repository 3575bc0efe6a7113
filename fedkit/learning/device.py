"""Where models are computed, and arrays from outside as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedkit.checks import plain_array, unboxed

__all__ = ["as_tensor", "find_device"]


def as_tensor(name: str, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor, an array or a list of rows as a tensor without gradient, or refuse it."""
    try:
        if isinstance(values, list | tuple) and values:
            values = torch.stack([torch.as_tensor(row) for row in values])
        if hasattr(values, "to_numpy"):  # a data frame
            values = unboxed(values.to_numpy())
        held = values.flat[:1].tolist() if isinstance(values, np.ndarray) else []
        if any(isinstance(one, str | bytes) for one in held):
            raise TypeError(
                "it holds text; number the classes, by np.searchsorted(model.classes_, y) as "
                "scikit-learn does, or np.unique(y, return_inverse=True)[1]"
            )
        if isinstance(values, np.ma.MaskedArray):  # torch would take what is hidden
            values = plain_array(values)
        if isinstance(values, np.ndarray):  # torch takes no other order, and warns of read-only
            values = np.require(values, values.dtype.newbyteorder("="), ["C", "W"])
        return torch.as_tensor(values, dtype=dtype).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is no tensor and no array of numbers: {error}") from error


def find_device(device: str | torch.device | None) -> torch.device:
    """Return the device asked for; None is CUDA if there is one, otherwise the CPU.

    Raises
    ------
    ValueError
        If it is no device, or not one that is there.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"device is {device!r}; expected 'cpu', or 'cuda' where torch sees a GPU"
        ) from error
    return found
