"""Architectures as functions of flat parameter vectors.

A model is a row of a float32 matrix ``[S, P]``: averaging clients is a matrix product, and the
forward pass takes all S rows together (see :mod:`fedkit.learning.layers`).  No architecture here
holds running statistics.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedkit.checks import whole
from fedkit.learning.layers import (
    Conv2d,
    Flatten,
    GlobalAvgPool,
    GroupNorm,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Residual,
    Spec,
    joined_specs,
    run_layers,
)

__all__ = ["Architecture", "Named", "build"]

_KNOWN = 'mlp-H (also mlp-H1-H2), "lenet5", "cnn", "resnet18", "resnet20"'
Named = list[tuple[str, Layer]]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Architecture:
    """A network with the sizes filled in, but without parameters.

    Parameters
    ----------
    name : str
        Name that :func:`build` was given.
    input_shape : tuple of int
        ``(C, H, W)`` of one image, or the shape of whatever a sample is.
    n_classes : int
        Number of logits.
    layers : tuple of (str, Layer)
        Layers in order; the names prefix those of the parameters.
    start : float32 ``[P]``, optional
        Initial parameters of every model, such as a torch module's own; drawn if left out.
    """

    name: str
    input_shape: tuple[int, ...]
    n_classes: int
    layers: tuple[tuple[str, Layer], ...]
    start: Tensor | None = field(default=None, repr=False, compare=False)

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        """All parameters in the order of the flat vector, named ``layer.parameter``."""
        return joined_specs(self.layers)

    @cached_property
    def n_parameters(self) -> int:
        """Length P of the flat vector."""
        return sum(spec.size for spec in self.specs)

    @cached_property
    def widest(self) -> int:
        """Scalars of the largest activation of one image, for bounds on memory."""
        known = getattr(self.layers[0][1], "widest", None)  # a module, which has run already
        if known is not None:
            return int(known)
        # One real image: PyTorch's "meta" device would import a compiler to answer.
        x, most = torch.zeros(1, 1, *self.input_shape), 0
        with torch.no_grad():
            for _, layer in self.layers:
                most = max(most, x.numel())
                x = layer.forward([torch.zeros(1, *spec.shape) for spec in layer.specs], x)
        return max(most, x.numel())

    def init(self, rng: np.random.Generator) -> Tensor:
        """Draw initial parameters, float32 ``[P]`` on the CPU; a given `start` is copied.

        Weights and biases of linear and convolutional layers are uniform within
        ``1 / sqrt(fan_in)``, PyTorch's default rule (He et al., 2015, with ``a = sqrt(5)``).
        The numbers come from `rng`, so they are the same on every device.
        """
        if self.start is not None:
            return self.start.clone()
        parts = [
            rng.uniform(-spec.bound, spec.bound, spec.size)
            if spec.bound > 0
            else np.full(spec.size, spec.fill)
            for spec in self.specs
        ]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    def unflatten(self, params: Tensor) -> dict[str, Tensor]:
        """Split ``[..., P]`` into named views ``[..., *shape]``."""
        if params.shape[-1] != self.n_parameters:
            raise ValueError(
                f"parameters of length {params.shape[-1]} were given; {self.name} on "
                f"{self.input_shape} images has {self.n_parameters}: build both for the same data"
            )
        names = [spec.name for spec in self.specs]
        return dict(zip(names, self.split(params), strict=True))

    def split(self, params: Tensor, skip: int = 0) -> list[Tensor]:
        """Stacked tensors ``[S, *shape]`` from ``[S, P - skip]``, without the first `skip` scalars.

        `skip` counts whole tensors, in the order of `specs`.
        """
        specs, gone = list(self.specs), 0
        while gone < skip:
            gone += specs.pop(0).size
        parts = params.split([spec.size for spec in specs], dim=-1)
        return [part.unflatten(-1, s.shape) for part, s in zip(parts, specs, strict=True)]

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Join stacked tensors ``[S, *shape]``, in the order of `specs`, into ``[S, P]``."""
        return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)

    def apply(self, tensors: Sequence[Tensor], x: Tensor) -> Tensor:
        """Logits from stacked tensors ``[S, *shape]`` in the order of `specs`."""
        return run_layers([layer for _, layer in self.layers], tensors, x)

    def forward(self, params: Tensor, x: Tensor) -> Tensor:
        """Logits of S models.

        Parameters
        ----------
        params : float32 tensor ``[S, P]``
        x : float32 tensor ``[S, N, C, H, W]`` or ``[N, C, H, W]``
            Images of each model, or images that all models share.

        Returns
        -------
        float32 tensor ``[S, N, n_classes]``
        """
        if params.dim() != 2:
            raise ValueError(
                f"parameters have shape {tuple(params.shape)}; a stack [S, P] is expected: add an "
                "axis with params[None] for one model"
            )
        shared = x.shape[1:] == self.input_shape
        own = x.shape[2:] == self.input_shape and len(x) == len(params)
        if not (shared or own):
            raise ValueError(
                f"images have shape {tuple(x.shape)}; {self.name} expects "
                f"[N, {', '.join(map(str, self.input_shape))}], or the same with a leading axis "
                f"of {len(params)} models"
            )
        return self.apply(list(self.unflatten(params).values()), x)

    def last_layer(self, params: Tensor) -> tuple[Tensor, Tensor]:
        """Weight ``[..., n_classes, d]`` and bias ``[..., n_classes]`` of the last layer."""
        weight, bias = [params[..., :0], *self.unflatten(params).values()][-2:]
        if weight.dim() != bias.dim() + 1 or bias.shape[-1] != self.n_classes:
            raise ValueError(f"{self.name} does not end in a linear layer with a bias")
        return weight, bias


def build(name: str, input_shape: Shape, n_classes: int) -> Architecture:
    """Make an architecture for images of one shape.

    Parameters
    ----------
    name : str
        ``mlp-H`` (one hidden layer of H units; ``mlp-H1-H2`` for more), ``lenet5``, ``cnn``,
        ``resnet18`` or ``resnet20``.
    input_shape : tuple of int
        ``(C, H, W)``.
    n_classes : int

    Returns
    -------
    Architecture

    Notes
    -----
    * ``lenet5``: LeCun et al. (1998) with ReLU and max pooling.  Images of 28 x 28 (up to 31) are
      padded by 2 inside the first convolution, which is the 32 x 32 of the original; larger ones
      are not.  Images smaller than 28 (the 8 x 8 digits) keep the 5 x 5 kernels and are padded by
      2 in both convolutions, so a small image costs little and still ends in 16 channels.
    * ``cnn``: the usual network for CIFAR-10 in this field (McMahan et al., 2017): two 5 x 5
      convolutions of 32 and 64 channels, each with 2 x 2 max pooling, then 512 hidden units.
      FedMS names its CNN only as 'commonly employed'; this is our reading.
    * ``resnet18`` (He et al., 2016, in its usual form for 32 x 32 images) and ``resnet20`` have
      GroupNorm (Wu and He, 2018) where the originals have BatchNorm.  The running statistics of
      BatchNorm are not a function of the update: averaging them over clients with different
      data describes no client's activations, and a coalition's model would need a pass over
      data to mend them.  Batch statistics also couple the samples of a batch, which stacking and
      masked batches would change.  GroupNorm uses one sample at a time.

    Raises
    ------
    ValueError
        If the name is unknown, or the images are too small for the network.
    """
    if np.shape(input_shape) != (3,):
        raise ValueError(f"input_shape is {input_shape!r}; expected (channels, height, width)")
    channels, height, width = (whole("a side in input_shape", side, 1) for side in input_shape)
    shape = (channels, height, width)
    whole("n_classes", n_classes, 2)
    least = min(shape[1:])
    if re.fullmatch(r"mlp(-[1-9]\d*)+", str(name)):
        layers = _mlp([int(width) for width in name.split("-")[1:]], shape, n_classes)
    elif name == "lenet5":
        first = Conv2d(shape[0], 6, 5, padding=2 if least < 32 else 0)
        second = Conv2d(6, 16, 5, padding=0 if least >= 28 else 2)
        layers = _convolutional(name, shape, [first, second], [120, 84], n_classes)
    elif name == "cnn":
        pair = [Conv2d(shape[0], 32, 5, padding=2), Conv2d(32, 64, 5, padding=2)]
        layers = _convolutional(name, shape, pair, [512], n_classes)
    elif name == "resnet18":
        layers = _resnet(name, shape, n_classes, (64, 128, 256, 512), blocks=2, groups=32)
    elif name == "resnet20":
        layers = _resnet(name, shape, n_classes, (16, 32, 64), blocks=3, groups=8)
    else:
        raise ValueError(f"name is {name!r}, an unknown architecture; expected one of {_KNOWN}")
    return Architecture(name, shape, n_classes, tuple(layers))


def _small(name: str, shape: Shape, least: int) -> None:
    if min(shape[1:]) < least:
        raise ValueError(
            f"images are {shape[1]} x {shape[2]}; {name} needs at least {least} x {least}: choose "
            "an mlp, or enlarge the images"
        )


def _mlp(widths: list[int], shape: Shape, n_classes: int) -> Named:
    sizes = [shape[0] * shape[1] * shape[2], *widths, n_classes]
    layers: Named = [("flatten", Flatten())]
    for i, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        layers.append((f"fc{i}", Linear(n_in, n_out)))
        if i < len(sizes) - 1:
            layers.append((f"relu{i}", ReLU()))
    return layers


def _convolutional(
    name: str, shape: Shape, convolutions: list[Conv2d], widths: list[int], n_classes: int
) -> Named:
    """Convolutions with ReLU and 2 x 2 max pooling, then an MLP."""
    _small(name, shape, 4)
    layers: Named = []
    height, width = shape[1:]
    for i, convolution in enumerate(convolutions, start=1):
        # Pooling before ReLU: the same function and gradient, at a quarter of the work.
        layers += [(f"conv{i}", convolution), (f"pool{i}", MaxPool(2)), (f"relu{i}", ReLU())]
        height, width = convolution.out_size(height) // 2, convolution.out_size(width) // 2
    return layers + _mlp(widths, (convolutions[-1].c_out, height, width), n_classes)


def _resnet(
    name: str, shape: Shape, n_classes: int, widths: tuple[int, ...], blocks: int, groups: int
) -> Named:
    """ResNet for small images: 3 x 3 stem, basic blocks, stride 2 between stages."""
    _small(name, shape, 2 ** (len(widths) - 1))
    layers: Named = [
        ("stem", Conv2d(shape[0], widths[0], 3, padding=1, bias=False)),
        ("norm", GroupNorm(groups, widths[0])),
        ("relu", ReLU()),
    ]
    c_in = widths[0]
    for stage, c_out in enumerate(widths, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            body: Named = [
                ("conv1", Conv2d(c_in, c_out, 3, stride, 1, bias=False)),
                ("norm1", GroupNorm(groups, c_out)),
                ("relu1", ReLU()),
                ("conv2", Conv2d(c_out, c_out, 3, 1, 1, bias=False)),
                ("norm2", GroupNorm(groups, c_out)),
            ]
            shortcut: Named = []
            if stride != 1:
                shortcut = [
                    ("project", Conv2d(c_in, c_out, 1, stride, bias=False)),
                    ("norm3", GroupNorm(groups, c_out)),
                ]
            layers.append((f"stage{stage}.{block}", Residual(tuple(body), tuple(shortcut))))
            c_in = c_out
    return [*layers, ("pool", GlobalAvgPool()), ("fc", Linear(c_in, n_classes))]
