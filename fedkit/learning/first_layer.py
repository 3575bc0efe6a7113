"""The first layer of many coalition models, from the layer's outputs for base and updates.

Before any activation, a linear or convolutional layer is linear in its weights and bias.  For a
coalition with weights w, ``(W_0 + sum w_i D_i) x = W_0 x + sum w_i D_i x``: k + 1 outputs give
those of every coalition by one matrix product.

A convolution on a CPU needs no outputs to start from: several coalitions convolve the same images,
so that their own weights, side by side, are one convolution with many channels.  Even for three
input channels that is as fast as the product, and small requests cost no more (measured, k = 10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedkit.learning.architectures import Architecture
from fedkit.learning.layers import (
    Conv2d,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Residual,
    affine,
    convolve_and_pool,
    grown,
    largest,
)

__all__ = ["FirstLayer"]

# Columns of one matrix product on a CPU (measured).
_CPU_COLUMNS = 1 << 15
# Scalars of a convolution's output that its pool still finds in a cache (measured).
_CPU_CONVOLVED = 1 << 20
# Channels of convolutions side by side: whole vectors of any width.
_CPU_CHANNELS = 48


@dataclass(frozen=True)
class FirstLayer:
    """The first layer of an architecture with the ReLU and max pool that follow it.

    Outputs are laid out as ``[blocks, models, pool * pool, images * width]``, a few images to a
    block: what one matrix product reads is contiguous, and the positions of a pooling square lie
    in slabs, so pooling is an elementwise maximum of slabs.
    """

    layer: Linear | Conv2d
    pool: int  # side of the max pool, 1 for none
    relu: bool
    shape: tuple[int, ...]  # (features,), or (channels, height, width) after pooling
    rest: tuple[Layer, ...]  # that remain

    @classmethod
    def of(cls, arch: Architecture) -> FirstLayer | None:
        """Take the first layer off, or return None where that gains nothing.

        In a residual network the first layer is a hundredth of the work.
        """
        layers = [layer for _, layer in arch.layers]
        if any(isinstance(layer, Residual) for layer in layers):
            return None
        if isinstance(layers[0], Flatten):
            layers.pop(0)
        layer = layers.pop(0)
        if not isinstance(layer, Linear | Conv2d):
            return None
        pool, relu = 1, False
        while layers and isinstance(layers[0], ReLU | MaxPool):
            following = layers.pop(0)
            if isinstance(following, MaxPool):
                pool *= following.size  # ReLU and max commute
            else:
                relu = True
        if isinstance(layer, Linear):
            return cls(layer, 1, relu, (layer.n_out,), tuple(layers))
        height, width = (layer.out_size(size) // pool for size in arch.input_shape[1:])
        return cls(layer, pool, relu, (layer.c_out, height, width), tuple(layers))

    @property
    def n_parameters(self) -> int:
        """Number of scalars of the layer, which come first in the flat vector."""
        return sum(spec.size for spec in self.layer.specs)

    @property
    def width(self) -> int:
        """Scalars per image after pooling."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Scalars per image before pooling."""
        return self.pool**2 * self.width

    def outputs(self, base: Tensor, updates: Tensor, x: Tensor, block: int) -> Tensor:
        """Outputs of base and k updates on N images: ``[N / block, k + 1, pool^2, block * width]``.

        The last block is filled up with zeros.
        """
        stack = torch.cat([base[None], updates])[:, : self.n_parameters]
        models, slabs = len(stack), self.pool**2
        z = x.new_empty(len(x), models, slabs, self.width)
        if isinstance(self.layer, Linear):
            flat, sizes = x.flatten(1), [spec.size for spec in self.layer.specs]
            for i, own in enumerate(stack):
                weight, bias = own.split(sizes)
                z[:, i, 0] = affine(flat, weight.view(self.layer.n_out, -1), bias)
        else:
            self._convolved(stack, x, z)
        if block == 1:
            return z[:, :, :, None].flatten(3)
        blocks = -(-len(x) // block)
        if blocks * block > len(x):
            z = torch.cat([z, z.new_zeros(blocks * block - len(x), *z.shape[1:])])
        return z.view(blocks, block, models, slabs, -1).permute(0, 2, 3, 1, 4).flatten(3)

    def _convolved(self, stack: Tensor, x: Tensor, out: Tensor) -> None:
        """Convolutions of each model at each position of the pooling square."""
        conv, (_, height, width) = self.layer, self.shape
        assert isinstance(conv, Conv2d)
        size = conv.specs[0].size
        padded, step = F.pad(x, [conv.padding] * 4), conv.stride * self.pool
        for j in range(self.pool**2):
            dy, dx = (conv.stride * d for d in divmod(j, self.pool))
            reach = [conv.kernel + (side - 1) * step for side in (height, width)]
            shifted = padded[:, :, dy : dy + reach[0], dx : dx + reach[1]].contiguous()
            for i, own in enumerate(stack):
                weight = own[:size].view(conv.specs[0].shape)
                z = F.conv2d(shifted, weight, own[size:] if conv.bias else None, step)
                out[:, i, j] = z.flatten(1)

    def block(self, device: torch.device) -> int:
        """Images of a block: as many as a matrix product takes at once."""
        if device.type != "cpu":
            return max(1, (1 << 20) // self.size)
        return max(1, _CPU_COLUMNS // (self.pool**2 * self.size))

    def combine(self, weights: Tensor, outputs: Tensor, out: Tensor) -> None:
        """Activations of coalitions with `weights` ``[B, k]`` into `out` ``[B, N * width]``.

        `outputs` are the blocks of these images, the last one perhaps in part.
        """
        a = torch.cat([weights.new_ones(len(weights), 1), weights], dim=1)
        models, slabs, columns = outputs.shape[1:]
        for block, lo in zip(outputs, range(0, out.shape[1], columns), strict=True):
            part = out[:, lo : lo + columns]
            flat = block.view(models, -1)
            if slabs == 1:
                torch.mm(a, flat[:, : part.shape[1]], out=part)
                if self.relu:
                    part.relu_()
                continue
            pooled = (a @ flat).view(len(a), slabs, columns).amax(1)[:, : part.shape[1]]
            if self.relu:
                torch.clamp_min(pooled, 0, out=part)
            else:
                part.copy_(pooled)

    @property
    def together(self) -> int:
        """Models whose convolutions stand side by side."""
        return max(1, _CPU_CHANNELS // self.shape[0])

    def convolve(self, params: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """Activations of models ``[B, ...]`` on images ``[N, C, H, W]`` into ``[B, N * width]``.

        Returns a bound of their absolute values.
        """
        assert isinstance(self.layer, Conv2d)
        conv, size = self.layer, self.layer.specs[0].size
        activations = out.view(len(params), len(x), *self.shape)
        inputs, bounds = largest(x), []
        step = max(1, _CPU_CONVOLVED // (min(self.together, len(params)) * self.size))
        for models, group in zip(
            params.split(self.together), activations.split(self.together), strict=True
        ):
            kernels = models[:, :size].reshape(-1, *conv.specs[0].shape[1:])
            bias = models[:, size:].flatten() if conv.bias else None
            bounds.append(grown(inputs, kernels, bias))
            for lo in range(0, len(x), step):
                part, place = x[lo : lo + step], (conv.stride, conv.padding)
                if self.pool > 1:
                    pooled = convolve_and_pool(part, kernels, bias, *place, self.pool, bounds[-1])
                else:
                    pooled = F.conv2d(part, kernels, bias, *place)
                pooled = pooled.unflatten(1, (len(models), -1)).transpose(0, 1)
                target = group[:, lo : lo + step]
                if self.relu:
                    torch.clamp_min(pooled, 0, out=target)
                else:
                    target.copy_(pooled)
        return torch.stack(bounds).max()
