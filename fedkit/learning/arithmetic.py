"""Faster arithmetic where a run can bear it: TF32, bfloat16, compiled models.

All three are off unless asked for.  They wrap a run and change no other code::

    with fk.precision("bf16"):
        history = fk.run(federations, fk.compiled(model), strategy, plan, seeds, device="cuda")

They change numbers beyond the rounding of float32, so a record made with them says so in its
settings, or is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fedkit.learning.architectures import Architecture

__all__ = ["compiled", "precision"]

_PRODUCTS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(F.linear, F.conv2d, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm),
        *(Tensor.matmul, Tensor.__matmul__, Tensor.mm, Tensor.bmm),
    }
)


class _BFloat16Products(TorchFunctionMode):
    """Products take bfloat16 and give float32; everything else stays as it is.

    Unlike ``torch.autocast`` this keeps what lies between two products in float32, so that the
    in-place steps of the trainers meet one dtype.  A product with ``out=`` stays in float32: it
    makes the models of coalitions, sums of small updates that bfloat16 would swallow.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.baddbmm_:  # the trainers' update of weights inside a product
            target, left, right = args
            product = torch.bmm(_half(left), _half(right)).float()
            return target.mul_(kwargs["beta"]).add_(product, alpha=kwargs["alpha"])
        if func not in _PRODUCTS or "out" in kwargs:
            return func(*args, **kwargs)
        result: Tensor = func(*map(_half, args), **{k: _half(v) for k, v in kwargs.items()})
        return result.float()


def _half(value: Any) -> Any:
    single = isinstance(value, Tensor) and value.dtype == torch.float32
    return value.to(torch.bfloat16) if single else value


@contextmanager
def precision(mode: Literal["fp32", "tf32", "bf16"]) -> Iterator[None]:
    """Compute products at lower precision inside a ``with`` block.

    Parameters
    ----------
    mode : {"fp32", "tf32", "bf16"}
        "fp32" changes nothing.  "tf32" lets CUDA round the factors of float32 products to ten
        bits of mantissa; on a CPU it has no effect.  "bf16" gives products bfloat16 factors, on
        any device; parameters, activations and updates stay float32.

    Raises
    ------
    ValueError
        If the mode is unknown.

    Notes
    -----
    The setting belongs to the calling thread, and "bf16" therefore wants one torch thread on a
    CPU; with more, the clients that other threads train are computed in float32.
    """
    if mode not in ("fp32", "tf32", "bf16"):
        raise ValueError(f'mode is {mode!r}; expected "fp32", "tf32" or "bf16"')
    if mode == "bf16":
        with _BFloat16Products():
            yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    torch.backends.cudnn.allow_tf32 = mode == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@dataclass(frozen=True)
class _Compiled(Architecture):
    """An architecture whose forward pass torch has compiled."""

    backend: str = "inductor"

    def apply(self, tensors: Any, x: Tensor) -> Tensor:
        logits: Tensor = _program(self)(list(tensors), x)
        return logits


_programs: dict[_Compiled, Callable[..., Any]] = {}


def _program(architecture: _Compiled) -> Callable[..., Any]:
    """Compile the forward pass of an architecture once per process."""
    if architecture not in _programs:
        own = {f.name: getattr(architecture, f.name) for f in fields(Architecture)}
        plain = Architecture(**own)
        _programs[architecture] = torch.compile(
            plain.apply, dynamic=True, backend=architecture.backend
        )
    return _programs[architecture]


def compiled(architecture: Architecture, backend: str = "inductor") -> Architecture:
    """Return the same architecture with a compiled forward (and backward) pass.

    Parameters
    ----------
    architecture : Architecture
        One with convolutions; multi-layer perceptrons train by hand-written products anyway.
    backend : str
        Of ``torch.compile``.  The default needs a compiler for the device; the first call of
        each kind takes tens of seconds.  On a CPU it did not pay: mkldnn's convolutions are
        called either way.

    Returns
    -------
    Architecture
        Equal parameters, equal functions up to rounding.
    """
    own = {f.name: getattr(architecture, f.name) for f in fields(Architecture)}
    return _Compiled(**own, backend=backend)
