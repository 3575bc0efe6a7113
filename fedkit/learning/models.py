"""A model is a row: the numbers of a torch module that clients send and a server averages.

A row begins with the parameters, in the order of ``module.parameters()``; floating-point buffers,
such as the running statistics of BatchNorm, follow.
"""

from __future__ import annotations

import copy
import math
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.checks import brief, warn, whole
from fedkit.learning.chains import chain_of, run_chain
from fedkit.learning.device import as_tensor, real_tensor

State = Mapping[str, Any]
_KNOWN = 'mlp-H (also mlp-H1-H2), "lenet5", "cnn", "resnet18", "resnet20"'


@dataclass(frozen=True, eq=False)
class Model:
    """A torch module whose state is given with every call, as rows ``[S, P]`` of S models.

    ``fk.build`` and ``fk.model_of`` make one.  Rows are float32, or float64 where a module is.

    Attributes
    ----------
    name : str
    module : torch.nn.Module
        In evaluation mode; what does not travel in a row is its own.
    keys : tuple of str
        The state that travels, named as in ``module.state_dict()``: parameters first.
    example : tensor ``[2, ...]``
        Two samples.
    output_shape : tuple of int
        Of one sample's outputs; ``(n_classes,)`` for a classifier.
    start : tensor ``[P]``, optional
        Where every model starts; drawn if left out.
    """

    name: str
    module: nn.Module = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    example: Tensor = field(repr=False)
    output_shape: tuple[int, ...]
    start: Tensor | None = field(default=None, repr=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.example.shape[1:])

    @property
    def n_classes(self) -> int:
        """Number of outputs."""
        return self.output_shape[0] if self.output_shape else 1

    @cached_property
    def _travelling(self) -> dict[str, Tensor]:
        state = self.module.state_dict(keep_vars=True)
        return {key: state[key] for key in self.keys}

    @cached_property
    def _sizes(self) -> list[int]:
        return [tensor.numel() for tensor in self._travelling.values()]

    @property
    def size(self) -> int:
        """Length P of a row."""
        return sum(self._sizes)

    @property
    def n_parameters(self) -> int:
        """Numbers of a row that are parameters; they come first."""
        return sum(self._sizes[: self.n_parameter_tensors])

    @cached_property
    def n_parameter_tensors(self) -> int:
        """How many of `keys` are parameters; they come first."""
        return sum(isinstance(t, nn.Parameter) for t in self._travelling.values())

    @cached_property
    def row_dtype(self) -> torch.dtype:
        """Type of a row's numbers, in which models are averaged."""
        wide = any(t.dtype == torch.float64 for t in self._travelling.values())
        return torch.float64 if wide else torch.float32

    @cached_property
    def layers(self) -> list[nn.Module] | None:
        """The layers of a chain (:mod:`fedkit.learning.chains`) that travels whole, or None."""
        layers = chain_of(self.module)
        numbers = sum(p.numel() for layer in layers or () for p in layer.parameters())
        plain = all(tensor.dtype == torch.float32 for tensor in self._travelling.values())
        return layers if numbers == self.size and plain else None

    @cached_property
    def dense(self) -> bool:
        """Whether it is linear layers with ReLU between them, and nothing else."""
        layers = list(self.layers or [nn.Identity()])
        flat = len(self.input_shape) == 1
        if isinstance(layers[0], nn.Flatten):
            first = layers.pop(0)
            flat = (first.start_dim, first.end_dim) == (1, -1)
        kinds = [type(layer) for layer in layers]
        biased = all(layer.bias is not None for layer in layers if isinstance(layer, nn.Linear))
        return flat and biased and kinds == [nn.Linear, nn.ReLU] * (len(kinds) // 2) + [nn.Linear]

    @cached_property
    def has_convolution(self) -> bool:
        """Whether stacked models need grouped convolutions, which are slow on a CPU."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self.module.modules())

    @cached_property
    def widest(self) -> int:
        """Scalars of the largest activation of one sample, for bounds on memory."""
        sizes = [self.example[0].numel()]

        def note(part: nn.Module, given: Any, out: Any) -> None:
            sizes.append(out.numel() // len(self.example) if isinstance(out, Tensor) else 1)

        own = copy.deepcopy(self.module)
        for part in own.modules():
            part.register_forward_hook(note)
        with torch.no_grad():
            own(self.example.clone())
        return max(sizes)

    @cached_property
    def stackable(self) -> bool:
        """Whether ``torch.vmap`` runs many models at once."""
        return self._runs_stacked(self.copied())

    @cached_property
    def stackable_in_training(self) -> bool:
        """Whether it does in training: without chance, and each sample by itself."""
        return self._runs_stacked(self.copied(training=True))

    def _runs_stacked(self, own: Model) -> bool:
        row = self.row(self.module, others=True).to(self.example.device)
        rows = row.repeat(2, 1)
        alike = self.example[:1].expand(2, *self.input_shape)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("error")  # torch tells of what runs one by one all the same
                first, other = (
                    own.forward(rows, x.expand(2, *x.shape), stacked=True)[:, 0]
                    for x in (self.example, alike)
                )
        except Exception:  # control flow that turns on numbers, chance, statistics of a batch
            return False
        return torch.allclose(first, other, rtol=1e-4, atol=1e-6, equal_nan=True)

    def copied(self, *, training: bool = False) -> Model:
        """The model with a module of its own, for a thread or a client; what travels is shared."""
        if self.layers is not None and not training:
            return self
        shared: dict[int, Tensor] = {id(tensor): tensor for tensor in self.module.parameters()}
        shared |= {id(tensor): tensor for tensor in self._travelling.values()}
        return replace(self, module=copy.deepcopy(self.module, shared).train(training))

    def on(self, device: torch.device) -> Model:
        """The model on a device."""
        here = {tensor.device for tensor in chain(self.module.parameters(), self.module.buffers())}
        if here <= {device}:
            return self
        moved = copy.deepcopy(self.module).to(device)
        return replace(self, module=moved, example=self.example.to(device))

    # ------------------------------------------------------------------------ rows and state

    def init(self, rng: np.random.Generator) -> Tensor:
        """Draw initial parameters ``[P]`` on the CPU; a given `start` is copied.

        Weights and biases of linear and convolutional layers are uniform within
        ``1 / sqrt(fan_in)``, PyTorch's default rule; the numbers come from `rng` alone.
        """
        if self.start is not None:
            return self.start.clone()
        parts = []
        for layer in self.module.modules():
            for name, tensor in layer.named_parameters(recurse=False):
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    parts.append(rng.uniform(-bound, bound, tensor.numel()))
                else:
                    parts.append(np.full(tensor.numel(), float(name == "weight")))
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    def split(self, rows: Tensor) -> list[Tensor]:
        """Tensors ``[..., *shape]`` of ``[..., P]``, in the order of `keys`."""
        likes = list(self._travelling.values())
        parts = rows.split(self._sizes, dim=-1) if likes else ()
        return [
            part.view(*part.shape[:-1], *like.shape).to(like.dtype)
            for part, like in zip(parts, likes, strict=True)
        ]

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Rows ``[S, P]`` of stacked tensors ``[S, *shape]``, in the order of `keys`."""
        return torch.cat([t.reshape(len(t), -1).to(self.row_dtype) for t in tensors], dim=1)

    def parameters_of(self, rows: Tensor) -> Tensor:
        """The parameters ``[..., n_parameters]`` of rows, on which geometry acts."""
        return rows[..., : self.n_parameters]

    def last_layer(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Weight ``[..., n_classes, d]`` and bias ``[..., n_classes]`` of the last layer."""
        tensors = self.split(rows)[: self.n_parameter_tensors]
        weight, bias = [rows[..., :0], *tensors][-2:]
        if weight.dim() != bias.dim() + 1 or bias.shape[-1] != self.n_classes:
            raise ValueError(f"{self.name} does not end in a linear layer with a bias")
        return weight, bias

    def row(self, given: Any, name: str = "state", *, others: bool = False) -> Tensor:
        """The row ``[P]`` of a module, a state_dict, a checkpoint's path or a vector.

        Keys that do not travel are refused, unless `others` may be there.
        """
        given = state_of(given)
        if isinstance(given, list | tuple) and any(np.ndim(one) for one in given):
            raise ValueError(f"{name} is {brief(given)}; give dict(zip(net.state_dict(), arrays))")
        if not isinstance(given, Mapping):
            vector = real_tensor(name, given).to(self.row_dtype)
            if tuple(vector.shape) != (self.size,):
                raise ValueError(f"{name} has shape {tuple(vector.shape)}; expected ({self.size},)")
            return vector
        state, tied = self.module.state_dict(keep_vars=True), self._tied
        found = {tied.get(key, key): key for key in given}
        missing = [key for key in self.keys if key not in found]
        fixed = {key for key in state if not _travels(state[key])}
        allowed = {*state} if others else {*self.keys, *tied, *fixed}
        extra = [key for key in given if key not in allowed]
        if missing or extra:
            raise ValueError(
                f"{name} is no state of {self.name}: missing keys {_few(missing)}, keys too many "
                f"{_few(extra)}"
            )
        parts = []
        for key, like in self._travelling.items():
            tensor = as_tensor(f"{name}[{key!r}]", given[found[key]])
            if tensor.shape != like.shape or tensor.is_complex():
                raise ValueError(f"{name}[{key!r}] is {brief(tensor)}; {brief(like)} is expected")
            parts.append(tensor.reshape(-1).to("cpu", self.row_dtype))
        return torch.cat(parts)

    @cached_property
    def _tied(self) -> dict[str, str]:
        """Other names of tensors that travel, to the key under which they do."""
        state = self.module.state_dict(keep_vars=True)
        first = {id(tensor): key for key, tensor in self._travelling.items()}
        names = {key: first.get(id(tensor), key) for key, tensor in state.items()}
        return {key: name for key, name in names.items() if key != name}

    def state(self, row: Tensor) -> dict[str, Tensor]:
        """The whole state_dict of one model ``[P]``, for ``module.load_state_dict``."""
        own = dict(zip(self.keys, self.split(row.detach()), strict=True))
        kept = self.module.state_dict()
        return {key: own.get(self._tied.get(key, key), kept[key]).clone() for key in kept}

    # --------------------------------------------------------------------------------- calls

    def forward(self, rows: Tensor, x: Tensor, *, stacked: bool | None = None) -> Tensor:
        """Outputs ``[S, N, *output_shape]`` of S models ``[S, P]``.

        Samples are each model's own ``[S, N, ...]``, or shared ``[N, ...]``.  `stacked` runs all
        models at once by ``torch.vmap``; left out, where that is faster.
        """
        if stacked is None:
            stacked = (rows.is_cuda or not self.has_convolution) and self.stackable
        return self.call(self.split(rows), x, stacked=stacked and len(rows) > 1)

    def call(self, tensors: Sequence[Tensor], x: Tensor, *, stacked: bool) -> Tensor:
        """Outputs of stacked tensors ``[S, *shape]``, in the order of `keys`."""
        own = x.dim() > self.example.dim()
        if stacked:
            one = partial(self._one, fast=False)
            return torch.vmap(one, in_dims=(0 if own else None, *[0] * len(tensors)))(x, *tensors)
        count = len(x) if own else len(tensors[0])
        if count == 1:  # squeeze, not [0]: the gradient of an index is a tensor of zeros
            row = (tensor.squeeze(0) for tensor in tensors)
            return self._one(x.squeeze(0) if own else x, *row)[None]
        rows = zip(*(tensor.unbind() for tensor in tensors), strict=True)
        return torch.stack([self._one(x[s] if own else x, *row) for s, row in enumerate(rows)])

    def _one(self, x: Tensor, *tensors: Tensor, fast: bool = True) -> Tensor:
        layers = self.layers
        # a layer that works in place on its input must not reach the caller's
        if not layers or not isinstance(layers[0], nn.Linear | nn.Conv2d):
            x = x.clone()
        if layers is not None:
            return run_chain(layers, tensors, x, fast=fast)
        given = dict(zip(self.keys, tensors, strict=True))
        return torch.func.functional_call(self.module, given, (x,))


def _few(names: Sequence[str]) -> str:
    return f"{list(names[:5])}{' ...' if len(names) > 5 else ''}"


def _travels(tensor: Any) -> bool:
    """Whether a server averages it: floating-point, and no mask of infinities among the buffers."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return False
    return isinstance(tensor, nn.Parameter) or bool(tensor.isfinite().all())


def state_of(given: Any, name: str = "state") -> Any:
    """Return the state_dict of a module or of a checkpoint's path; other things as they are."""
    if isinstance(given, str | os.PathLike):
        try:
            return torch.load(given, map_location="cpu", weights_only=True)
        except Exception as error:  # of a dozen kinds
            told = str(error).partition("\n")[0]
            raise ValueError(f"{name} is the path {given!s}, no checkpoint: {told}") from error
    return given.state_dict() if isinstance(given, nn.Module) else given


def states_of(given: Any, name: str) -> list[Any]:
    """Return the states of several clients, each as :func:`state_of` does."""
    if not isinstance(given, Sequence | Tensor | np.ndarray) or isinstance(given, str | bytes):
        raise ValueError(f"{name} is {brief(given)}; expected a list with a model of each client")
    if not len(given):
        raise ValueError(f"{name} is empty; give the model of at least one client")
    states = [state_of(one, f"{name}[{i}]") for i, one in enumerate(given)]
    if len(states) > 1 and len({id(one) for one in given}) > 1 and _alive(states):
        warn(
            f"all of {name} are the same tensors: state_dict() returns those of the model, which "
            "the next client trains on; keep copy.deepcopy(model.state_dict()) of each client"
        )
    return states


def _alive(states: Sequence[Any]) -> bool:
    """Tell whether the states of all clients share their memory."""
    if not all(isinstance(one, Mapping) for one in states):
        return False
    held = [[x.data_ptr() for x in one.values() if isinstance(x, Tensor)] for one in states]
    return bool(held[0]) and all(mine == held[0] for mine in held)


def _module(name: str, given: Any) -> nn.Module:
    if isinstance(given, nn.Module):
        return given
    raise ValueError(f"{name} is {brief(given)}; expected a torch.nn.Module or fk.build's model")


def model_of(
    module: nn.Module | Model,
    x: Any,
    keys: Collection[str] | None = None,
    *,
    base: State | None = None,
    trained_only: bool = False,
) -> Model:
    """Take a torch module as a model, which starts from the module's own state.

    Parameters
    ----------
    module : torch.nn.Module
        It is copied, and left as it is.
    x : tensor ``[N, ...]``
        Samples, of which two are tried.
    keys : names in its state_dict, optional
        The state that travels (adapters, say); by default all parameters and floating-point
        buffers.
    base : state_dict, optional
        State of which the copy takes what it holds.
    trained_only : bool
        Leave out parameters that ask for no gradient: they stay as they are.

    Returns
    -------
    Model
    """
    if isinstance(module, Model):
        return module
    own = copy.deepcopy(_module("model", module))
    name, x, state = type(module).__name__, as_tensor("x", x), own.state_dict(keep_vars=True)
    if x.dim() < 1 or not len(x):
        raise ValueError(f"x has shape {tuple(x.shape)}; [N, ...] with N >= 1 samples is expected")
    wanted = _travelling(own, keys, trained_only)
    if not wanted:
        lacking = f"key among {_few(list(keys))}" if keys is not None else "parameters"
        lacking = "trained parameters" if trained_only else lacking
        wrapped = keys is not None and any(key.startswith("module.") for key in keys)
        more = " (keys of a wrapper begin with 'module.': give its module's)" * wrapped
        raise ValueError(f"module {name} has no {lacking} that could travel{more}")
    if base is not None:
        own.load_state_dict({k: v for k, v in base.items() if k in state}, strict=False)
    own.eval().requires_grad_(False)
    example = x[:2].cpu().clone() if len(x) > 1 else x[:1].cpu().repeat(2, *[1] * (x.dim() - 1))
    if example.is_floating_point():
        held = (t.dtype for t in chain(own.parameters(), own.buffers()) if t.is_floating_point())
        example = example.to(next(held, torch.float32))
    device = next(tensor.device for tensor in state.values() if isinstance(tensor, Tensor))
    own = own.to("cpu") if device.type != "cpu" else own
    try:
        with torch.no_grad():
            out = own(example.clone())
    except Exception as error:  # whatever a stranger's module raises
        raise ValueError(f"module {name} fails on inputs {brief(example)}: {error}") from error
    if not isinstance(out, Tensor) or out.dim() < 1 or len(out) != len(example):
        raise ValueError(f"the module {name} returns no tensor [N, ...] for N samples")
    made = Model(name, own, tuple(wanted), example, tuple(out.shape[1:]))
    return replace(made, start=made.row(own, others=True))


def states_only(module: nn.Module | Model, keys: Collection[str] | None = None) -> Model:
    """A model that turns states into rows and back, of which no samples are known."""
    if isinstance(module, Model):
        return module
    wanted = tuple(_travelling(_module("model", module), keys, False))
    return Model(type(module).__name__, module, wanted, torch.zeros(2, 1), ())


def _travelling(module: nn.Module, keys: Collection[str] | None, trained_only: bool) -> list[str]:
    """The keys of what travels, parameters first, or of the part of it that has these `keys`."""
    state = module.state_dict(keep_vars=True)
    wanted = [k for k, p in module.named_parameters() if p.requires_grad or not trained_only]
    wanted += [k for k, _ in module.named_buffers() if k in state and _travels(state[k])]
    if keys is None:
        return wanted
    names = {id(state[key]) for key in keys if key in state}
    return [key for key in wanted if id(state[key]) in names]


def classifier(name: str, module: nn.Module, x: Tensor) -> Model:
    """The model of a module that clients train, or say why they cannot."""
    held = chain(_module(name, module).named_parameters(), module.named_buffers())
    if wrong := [part for part, tensor in held if tensor.isnan().any()]:
        raise ValueError(f"{name} has a NaN in {', '.join(wrong[:5])}")
    made = model_of(module, x, trained_only=True)
    if len(made.output_shape) != 1 or made.n_classes == 1:
        raise ValueError(
            f"{made.name} gives outputs of shape {(len(made.example), *made.output_shape)}; a "
            "federation trains classifiers by cross-entropy, whose outputs are [N, classes], one "
            "logit for each class: begin with torch.nn.Flatten(), end in torch.nn.Linear"
        )
    return made


# ------------------------------------------------------------------------- networks by name


def build(name: str, input_shape: tuple[int, int, int], n_classes: int) -> Model:
    """Make a network for images of one shape.

    Parameters
    ----------
    name : str
        ``mlp-H`` (one hidden layer of H units; ``mlp-H1-H2`` for more), ``lenet5`` (LeCun et al.
        1998, with ReLU and max pooling), ``cnn`` (McMahan et al. 2017), ``resnet18`` or
        ``resnet20`` (He et al. 2016, with GroupNorm in the place of BatchNorm).
    input_shape : tuple of int
        ``(C, H, W)``.
    n_classes : int

    Returns
    -------
    Model
    """
    if np.shape(input_shape) != (3,):
        raise ValueError(f"input_shape is {input_shape!r}; expected (channels, height, width)")
    channels, height, width = (whole("a side in input_shape", side, 1) for side in input_shape)
    shape = (channels, height, width)
    whole("n_classes", n_classes, 2)
    least = min(height, width)
    fewest = {"lenet5": 4, "cnn": 4, "resnet18": 8, "resnet20": 4}.get(str(name), 1)
    if least < fewest:
        raise ValueError(f"images are {height} x {width}; {name} needs {fewest} x {fewest} or more")
    with torch.random.fork_rng(devices=[]):  # torch draws numbers that nobody uses
        if re.fullmatch(r"mlp(-[1-9]\d*)+", str(name)):
            widths = [int(part) for part in name.split("-")[1:]]
            layers = _mlp([math.prod(shape), *widths, n_classes])
        elif name == "lenet5":  # 28 x 28 becomes the original's 32 x 32; small images are padded
            pads = (2 if least < 32 else 0), (0 if least >= 28 else 2)
            layers = _convolutional(shape, [6, 16], pads, [120, 84, n_classes])
        elif name == "cnn":
            layers = _convolutional(shape, [32, 64], (2, 2), [512, n_classes])
        elif name == "resnet18":
            layers = _resnet(shape, n_classes, (64, 128, 256, 512), blocks=2, groups=32)
        elif name == "resnet20":
            layers = _resnet(shape, n_classes, (16, 32, 64), blocks=3, groups=8)
        else:
            raise ValueError(f"name is {name!r}, an unknown architecture; expected one of {_KNOWN}")
    module = nn.Sequential(*layers).eval().requires_grad_(False)
    keys = tuple(key for key, _ in module.named_parameters())
    return Model(name, module, keys, torch.zeros(2, *shape), (n_classes,))


def _mlp(sizes: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return layers[:-1]


def _convolutional(
    shape: tuple[int, int, int],
    channels: Sequence[int],
    paddings: Sequence[int],
    widths: Sequence[int],
) -> list[nn.Module]:
    """5 x 5 convolutions with 2 x 2 max pooling and ReLU, then an MLP."""
    layers: list[nn.Module] = []
    c_in, height, width = shape
    for c_out, padding in zip(channels, paddings, strict=True):
        # Pooling before ReLU: the same function and gradient, at a quarter of the work.
        layers += [nn.Conv2d(c_in, c_out, 5, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
        c_in, height, width = c_out, (height + 2 * padding - 4) // 2, (width + 2 * padding - 4) // 2
    return layers + _mlp([c_in * height * width, *widths])


class _Block(nn.Module):
    """Basic block of a ResNet: ``relu(body(x) + shortcut(x))``."""

    def __init__(self, c_in: int, c_out: int, stride: int, groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.GroupNorm(groups, c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, c_out),
        )
        self.shortcut = nn.Sequential()
        if stride != 1:
            project = nn.Conv2d(c_in, c_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(project, nn.GroupNorm(groups, c_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _resnet(
    shape: tuple[int, int, int], n_classes: int, widths: Sequence[int], blocks: int, groups: int
) -> list[nn.Module]:
    """ResNet for small images: 3 x 3 stem, basic blocks, stride 2 between stages."""
    stem = nn.Conv2d(shape[0], widths[0], 3, padding=1, bias=False)
    layers: list[nn.Module] = [stem, nn.GroupNorm(groups, widths[0]), nn.ReLU()]
    c_in = widths[0]
    for stage, c_out in enumerate(widths):
        for block in range(blocks):
            layers.append(_Block(c_in, c_out, 2 if stage and not block else 1, groups))
            c_in = c_out
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, n_classes)]
