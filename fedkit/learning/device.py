"""Where models are computed."""

from __future__ import annotations

import torch

__all__ = ["find_device"]


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
        if isinstance(device, int):  # torch takes the number of a GPU
            raise TypeError
        found = torch.device(device)
        torch.zeros(1, device=found).tolist()
    except (RuntimeError, TypeError, AssertionError, NotImplementedError, ImportError) as error:
        raise ValueError(
            f"device is {device!r}; expected 'cpu', or 'cuda' where torch sees a GPU"
        ) from error
    return found
