"""Chains of torch layers: one model's forward pass, with the fastest convolution where it serves.

A chain is a module whose state lies in plain ``Linear`` and ``Conv2d`` layers, one after another.
Torch's pool looks at one window after the other; comparisons of strided halves give the same
maxima in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LARGE = 1e37  # below it, float32 sums have no infinity and no NaN


def chain_of(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a module in order, or None where it is no chain."""
    layers = list(_leaves(module))
    for layer in layers:
        stateless = not any(True for _ in (*layer.parameters(), *layer.buffers()))
        if not _plain(layer) or not (stateless or type(layer) in (nn.Linear, nn.Conv2d)):
            return None
    return layers


def _plain(module: nn.Module) -> bool:
    """Whether a module does what its class says: no hooks, no forward of its own."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential and _plain(module):
        for part in module:
            yield from _leaves(part)
    else:
        yield module


def plain_pool(layer: nn.Module) -> int:
    """Return the side of a max pool's squares, or 0 for another layer and other pools."""
    if type(layer) is not nn.MaxPool2d or not isinstance(layer.kernel_size, int):
        return 0
    plain = layer.stride == layer.kernel_size and not layer.padding and layer.dilation == 1
    return layer.kernel_size if plain and not layer.ceil_mode and not layer.return_indices else 0


def run_chain(
    layers: Sequence[nn.Module], tensors: Sequence[Tensor], x: Tensor, *, fast: bool = True
) -> Tensor:
    """Outputs ``[N, ...]`` of one model; `fast` takes kernels that ``torch.vmap`` does not know."""
    todo, rest = list(layers), list(tensors)
    while todo:
        layer = todo.pop(0)
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            fewer = fast and x.device.type == "cpu" and plain_pool(layer) == 2
            x = max_pool_2x2(x) if fewer else layer(x)
            continue
        weight, bias = rest.pop(0), None if layer.bias is None else rest.pop(0)
        size = plain_pool(todo[0]) if fast and todo else 0
        if isinstance(layer, nn.Linear):
            x = F.linear(x, weight, bias)
        elif size and not torch.is_grad_enabled():
            x = convolve_and_pool(layer, weight, bias, x=x, size=size)
            todo.pop(0)
        else:
            x = layer._conv_forward(x, weight, bias)
    return x


def max_pool_2x2(x: Tensor) -> Tensor:
    """``F.max_pool2d(x, 2)`` of ``[N, C, H, W]``, gradients included."""
    return _MaxPool2x2.apply(x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2])


class _MaxPool2x2(torch.autograd.Function):
    """Pairs of columns, then of rows: among equals the first of a square, as torch has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        left, right = x[..., 0::2], x[..., 1::2]
        wide = torch.maximum(left, right)
        upper, lower = wide[..., 0::2, :], wide[..., 1::2, :]
        if x.requires_grad:
            ctx.save_for_backward(left >= right, upper >= lower)
        return torch.maximum(upper, lower)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        left, upper = ctx.saved_tensors
        wide = gradient.new_empty(left.shape)
        torch.mul(gradient, upper, out=wide[..., 0::2, :])
        torch.sub(gradient, wide[..., 0::2, :], out=wide[..., 1::2, :])
        result = gradient.new_empty(*left.shape[:-1], 2 * left.shape[-1])
        torch.mul(wide, left, out=result[..., 0::2])
        torch.sub(wide, result[..., 0::2], out=result[..., 1::2])
        return result


def convolve_and_pool(
    layer: nn.Conv2d, weight: Tensor, bias: Tensor | None, *, x: Tensor, size: int
) -> Tensor:
    """A convolution with other weights and the max pool behind it, of squares of this size.

    By oneDNN, in whose blocked layout both stay, on a CPU and where the convolution cannot
    overflow: oneDNN's pool passes over a NaN.  `weight` may have the channels of several models
    side by side.
    """
    known = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str) and size > 1
    usable = known and plain and torch.backends.mkldnn.is_available()
    if not (usable and bool(_bound(x, weight, bias) < _LARGE)):
        convolved = layer._conv_forward(x, weight, bias)
        return F.max_pool2d(convolved, size) if size > 1 else convolved
    padding: Any = layer.padding
    blocked = torch.mkldnn_convolution(
        x.contiguous().to_mkldnn(),
        weight.contiguous(),
        bias,
        padding,
        layer.stride,
        layer.dilation,
        layer.groups,
    )
    return torch.mkldnn_max_pool2d(blocked, (size, size), (size, size)).to_dense()


def _bound(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A bound of the absolute values of a convolution's outputs; NaN where x or a weight is."""
    low, high = torch.aminmax(x)
    largest = torch.maximum(high, -low) * weight.abs().sum((-3, -2, -1)).max()
    return largest if bias is None else largest + bias.abs().max()
