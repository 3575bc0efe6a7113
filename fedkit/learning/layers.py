"""Layers whose parameters carry a leading axis of models, so that many models run as one.

An activation is ``[S, N, ...]`` (S models, N samples), or ``[N, ...]`` while all models still
share the same input.  A parameter is ``[S, *shape]``.  Image layers compute on
``[N, S * C, H, W]``: a convolution of S models is then one grouped convolution, and the layout
goes from layer to layer without a copy.  Nothing here holds state; shapes are checked when an
architecture is built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = [
    "Conv2d", "Flatten", "GlobalAvgPool", "GroupNorm", "Layer", "Linear", "MaxPool", "ReLU",
    "Residual", "Spec", "affine", "convolve_and_pool", "grown", "joined_specs", "largest",
    "max_pool_2x2", "run_layers",
]  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """One parameter tensor: its name, its shape and how it starts.

    A positive `bound` means uniform in ``[-bound, bound]``; otherwise the tensor starts as `fill`.
    """

    name: str
    shape: tuple[int, ...]
    bound: float = 0.0
    fill: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layer(Protocol):
    """A function of parameters and an activation, for S models at once."""

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Parameters of one model, in the order in which `forward` takes them."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor: ...


def _fold(x: Tensor) -> tuple[Tensor, int]:
    """``[S, N, C, H, W]`` to ``[N, S * C, H, W]``: a view when `x` came from `_unfold`."""
    s, n, c, h, w = x.shape
    if s == 1:
        return x.squeeze(0), 1
    return x.transpose(0, 1).reshape(n, s * c, h, w), s


def _unfold(x: Tensor, s: int) -> Tensor:
    return x[None] if s == 1 else x.view(x.shape[0], s, -1, *x.shape[2:]).transpose(0, 1)


@dataclass(frozen=True)
class Linear:
    """Affine map ``x W' + b`` from `n_in` to `n_out` features."""

    n_in: int
    n_out: int

    @property
    def specs(self) -> tuple[Spec, ...]:
        bound = 1 / math.sqrt(self.n_in)
        return Spec("weight", (self.n_out, self.n_in), bound), Spec("bias", (self.n_out,), bound)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """``[S, N, n_in]`` or shared ``[N, n_in]`` to ``[S, N, n_out]``."""
        weight, bias = parameters
        s = weight.shape[0]
        if s == 1:
            # squeeze, not [0]: the gradient of an index is a new tensor of zeros.
            return affine(x.reshape(-1, self.n_in), weight.squeeze(0), bias.squeeze(0))[None]
        if x.dim() == 2:
            out = x @ weight.reshape(s * self.n_out, self.n_in).t()
            return out.view(-1, s, self.n_out).transpose(0, 1) + bias[:, None]
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


@dataclass(frozen=True)
class Conv2d:
    """Two-dimensional convolution with a square kernel."""

    c_in: int
    c_out: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True

    @property
    def specs(self) -> tuple[Spec, ...]:
        bound = 1 / math.sqrt(self.c_in * self.kernel**2)
        weight = Spec("weight", (self.c_out, self.c_in, self.kernel, self.kernel), bound)
        return (weight, Spec("bias", (self.c_out,), bound)) if self.bias else (weight,)

    def out_size(self, size: int) -> int:
        return (size + 2 * self.padding - self.kernel) // self.stride + 1

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Map ``[S, N, C, H, W]`` or shared ``[N, C, H, W]`` to ``[S, N, c_out, H', W']``."""
        weight = parameters[0].flatten(0, 1)
        bias = parameters[1].flatten() if self.bias else None
        s = parameters[0].shape[0]
        if x.dim() == 5:
            x, groups = _fold(x)
        else:
            groups = 1  # all models see the same images: one plain convolution, S times as wide
        return _unfold(F.conv2d(x, weight, bias, self.stride, self.padding, groups=groups), s)

    def pooled(self, parameters: Sequence[Tensor], x: Tensor, size: int, reach: Tensor) -> Tensor:
        """The layer of one model and a max pool as one step; no output is beyond `reach`."""
        images = x.squeeze(0) if x.dim() == 5 else x
        weight, *bias = (p.squeeze(0) for p in parameters)
        place = self.stride, self.padding, size
        return convolve_and_pool(images, weight, bias[0] if bias else None, *place, reach)[None]


@dataclass(frozen=True)
class GroupNorm:
    """Group normalisation: statistics of one sample alone, whatever else is in its batch."""

    groups: int
    channels: int

    @property
    def specs(self) -> tuple[Spec, ...]:
        return Spec("weight", (self.channels,), fill=1.0), Spec("bias", (self.channels,))

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        folded, s = _fold(x)
        weight, bias = (p.flatten() for p in parameters)
        return _unfold(F.group_norm(folded, s * self.groups, weight, bias), s)


def joined_specs(layers: Sequence[tuple[str, Layer]]) -> tuple[Spec, ...]:
    """Parameters of named layers in their order, named ``layer.parameter``."""
    return tuple(
        replace(spec, name=f"{name}.{spec.name}") for name, layer in layers for spec in layer.specs
    )


class _Plain:
    """A layer without parameters."""

    @property
    def specs(self) -> tuple[Spec, ...]:
        return ()


@dataclass(frozen=True)
class ReLU(_Plain):
    """Positive part."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        return torch.relu(x)


@dataclass(frozen=True)
class MaxPool(_Plain):
    """Maximum over non-overlapping squares; an incomplete border is dropped."""

    size: int = 2

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        if x.dim() == 4:  # images that all models share
            return self.forward(parameters, x[None])[0]
        folded, s = _fold(x)
        if self.size == 2 and x.device.type == "cpu":
            return _unfold(max_pool_2x2(folded), s)
        return _unfold(F.max_pool2d(folded, self.size), s)


@dataclass(frozen=True)
class GlobalAvgPool(_Plain):
    """Mean over all pixels, ``[S, N, C, H, W]`` to ``[S, N, C]``."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.mean((-2, -1))


@dataclass(frozen=True)
class Flatten(_Plain):
    """One row of features per sample, in the order channel, row, column."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.flatten(-3)


@dataclass(frozen=True)
class Residual:
    """``relu(body(x) + shortcut(x))``; an empty shortcut is the identity.

    The parameters of the body come first.
    """

    body: tuple[tuple[str, Layer], ...]
    shortcut: tuple[tuple[str, Layer], ...] = ()

    @property
    def specs(self) -> tuple[Spec, ...]:
        return joined_specs(self.body + self.shortcut)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        split = sum(len(layer.specs) for _, layer in self.body)
        y = run_layers([layer for _, layer in self.body], parameters[:split], x)
        skip = run_layers([layer for _, layer in self.shortcut], parameters[split:], x)
        return torch.relu(y + skip)


def run_layers(
    layers: Sequence[Layer],
    parameters: Sequence[Tensor],
    x: Tensor,
    reach: Tensor | None = None,
) -> Tensor:
    """Run layers in order; `parameters` are those of all layers, one after another.

    No scalar of x is beyond `reach`, where that is known.
    """
    todo, rest = list(layers), list(parameters)
    while todo:
        layer = todo.pop(0)
        own, rest = rest[: len(layer.specs)], rest[len(layer.specs) :]
        alone = bool(own) and len(own[0]) == 1 and _onednn(x)
        following = todo[0] if todo else None
        if alone and isinstance(layer, Conv2d) and isinstance(following, MaxPool):
            reach = grown(largest(x) if reach is None else reach, *own)
            x = layer.pooled(own, x, following.size, reach)
            todo.pop(0)
            continue
        if layer.specs:
            reach = None
        x = layer.forward(own, x)
    return x


# ------------------------------------------------- affine maps and 2 x 2 max pooling on a CPU
#
# Torch's matrix products come from a library that is half as fast on some processors as oneDNN.
#
# Torch's kernel looks at one window after the other.  Comparisons of strided halves give the same
# maxima several times as fast.  Without a gradient, convolution and pool stay in oneDNN's blocked
# layout, of which a quarter of the pixels is brought back into torch's.

_LARGE = 1e37  # below it, float32 sums have no infinity and no NaN


def _onednn(x: Tensor) -> bool:
    """Whether oneDNN may be asked: without gradients, float32 on a CPU, where torch has it."""
    usable = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
    return usable and not torch.is_grad_enabled() and torch.backends.mkldnn.is_available()


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``F.linear(x, weight, bias)`` of ``[N, n_in]``."""
    if not _onednn(x) or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return F.linear(x, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def max_pool_2x2(x: Tensor) -> Tensor:
    """``F.max_pool2d(x, 2)`` of ``[N, C, H, W]``, gradients included."""
    x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
    if torch.is_grad_enabled() and x.requires_grad:
        pooled: Tensor = _MaxPool2x2.apply(x)
        return pooled
    wide = torch.maximum(x[..., 0::2], x[..., 1::2])
    return torch.maximum(wide[..., 0::2, :], wide[..., 1::2, :])


class _MaxPool2x2(torch.autograd.Function):
    """Pairs of columns, then of rows: among equals the first of a square, as torch has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        left, right = x[..., 0::2], x[..., 1::2]
        wide = torch.maximum(left, right)
        upper, lower = wide[..., 0::2, :], wide[..., 1::2, :]
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


def largest(x: Tensor) -> Tensor:
    """Return the largest absolute value; NaN where there is one."""
    low, high = torch.aminmax(x)
    return torch.maximum(high, -low)


def grown(reach: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a bound of a convolution's outputs ``[..., c_out, c_in, k, k]`` from its inputs'."""
    reach = reach * weight.abs().sum((-3, -2, -1)).max()
    return reach if bias is None else reach + bias.abs().max()


def convolve_and_pool(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    size: int,
    reach: Tensor,
) -> Tensor:
    """Return ``F.max_pool2d(F.conv2d(x, weight, bias, stride, padding), size)`` of one model.

    By oneDNN where it may be asked, and where the convolution cannot overflow (no output is beyond
    `reach`), because oneDNN's pool passes over a NaN.
    """
    if not _onednn(x) or not bool(reach < _LARGE):
        return F.max_pool2d(F.conv2d(x, weight, bias, stride, padding), size)
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
