"""2 x 2 max pooling on a CPU: in whole rows and columns, or with the convolution before it.

Torch's kernel looks at one window after the other and always records which pixel won: it was a
third of the time of a LeNet's training step.  Two comparisons of strided halves give the same
maxima three to eight times as fast; the winners are worked out where a gradient will ask for them.
Without a gradient, convolution and pool stay in oneDNN's blocked layout, and a quarter of the
pixels is brought back into torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["convolve_and_pool", "max_pool_2x2"]

_LARGE = 1e37  # below it, float32 sums have no infinity and no NaN


def max_pool_2x2(x: Tensor, size: int = 2) -> Tensor:
    """Return ``F.max_pool2d(x, 2)``, gradients included.

    Parameters
    ----------
    x : tensor ``[N, C, H, W]``
        An odd last row or column is dropped.
    size : int
        Always 2; it lets the function stand in for ``torch.nn.functional.max_pool2d``.

    Returns
    -------
    tensor ``[N, C, H // 2, W // 2]``
    """
    assert size == 2
    if torch.is_grad_enabled() and x.requires_grad:
        pooled: Tensor = _Pool.apply(x)  # type: ignore[no-untyped-call]
        return pooled
    upper, lower = _rows(torch.maximum(*_columns(x)))
    return torch.maximum(upper, lower)


def convolve_and_pool(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int, size: int
) -> Tensor | None:
    """Return ``F.max_pool2d(F.conv2d(x, weight, bias, stride, padding), size)`` of one model.

    None says that this is not the place: with gradients, on another device, without oneDNN, or
    where the convolution could overflow, because oneDNN's pool passes over a NaN.
    """
    usable = x.device.type == "cpu" and x.dtype == torch.float32 and len(x) > 0
    if not usable or torch.is_grad_enabled() or not torch.backends.mkldnn.is_available():
        return None
    low, high = torch.aminmax(x)
    reach = torch.maximum(high, -low) * weight.abs().sum((1, 2, 3)).max()
    if bias is not None:
        reach = reach + bias.abs().max()
    if not bool(reach < _LARGE):
        return None
    blocked = torch.mkldnn_convolution(
        x.contiguous().to_mkldnn(),
        weight.contiguous(),
        bias,
        (padding, padding),
        (stride, stride),
        (1, 1),
        1,
    )
    pooled: Tensor = torch.mkldnn_max_pool2d(blocked, (size, size), (size, size))
    return pooled.to_dense()


def _columns(x: Tensor) -> tuple[Tensor, Tensor]:
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    return x[..., :height, 0:width:2], x[..., :height, 1:width:2]


def _rows(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0::2, :], x[..., 1::2, :]


class _Pool(torch.autograd.Function):
    """Among equal pixels the gradient goes to the first in reading order, as in torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        left, right = _columns(x)
        upper, lower = _rows(torch.maximum(left, right))
        top = upper >= lower
        column_upper, column_lower = _rows(left < right)
        # Bits, not torch.where, whose time depends on how predictable the winners are.
        column = column_lower ^ (top & (column_upper ^ column_lower))
        height, width = x.shape[-2:]
        start = torch.arange(0, height // 2 * 2, 2)[:, None] * width
        start = start + torch.arange(0, width // 2 * 2, 2)
        winner = torch.add(start, column)
        winner += width * top.logical_not()
        ctx.save_for_backward(x, winner)
        return torch.maximum(upper, lower)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        x, winner = ctx.saved_tensors
        given: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, x, [2, 2], [2, 2], [0, 0], [1, 1], False, winner
        )
        return given
