"""Models from elsewhere as architectures: torch modules, and scikit-learn's linear models."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedkit.checks import warn
from fedkit.learning.architectures import Architecture, Named
from fedkit.learning.layers import Conv2d, Flatten, Linear, MaxPool, ReLU, Spec

__all__ = ["ScikitLinear", "WholeModule", "classifier", "doubt_probabilities", "of_module"]

# functional_call lends the module its parameters: one thread at a time.
_LENT = threading.Lock()


@dataclass(frozen=True, eq=False)
class WholeModule:
    """A torch module as one layer, called through ``torch.func.functional_call``."""

    module: nn.Module  # in evaluation mode, on its device
    specs: tuple[Spec, ...]  # in the order of ``module.named_parameters()``
    widest: int  # scalars of the largest activation of one sample
    stackable: bool  # whether ``torch.vmap`` runs it for many models at once
    axes: int  # of samples ``[N, ...]`` that all models share; one more, and each has its own

    @property
    def has_convolution(self) -> bool:
        """Whether stacked models would need grouped convolutions, which are slow on a CPU."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self.module.modules())

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs ``[S, N, ...]`` of S models on samples ``[N, ...]`` or ``[S, N, ...]``."""
        names = [spec.name for spec in self.specs]

        def one(x: Tensor, *tensors: Tensor) -> Tensor:
            given = dict(zip(names, tensors, strict=True))
            # a forward that works in place on its input must not reach the caller's
            out: Tensor = torch.func.functional_call(self.module, given, (x.clone(),))
            return out

        own = x.dim() > self.axes
        with _LENT:
            if self.stackable and len(parameters[0]) > 1:
                axes = (0 if own else None, *[0] * len(parameters))
                return torch.vmap(one, in_dims=axes)(x, *parameters)
            each = zip(*(tensor.unbind() for tensor in parameters), strict=True)
            return torch.stack(
                [one(x[s] if own else x, *tensors) for s, tensors in enumerate(each)]
            )


def of_module(module: nn.Module, x: Tensor, device: torch.device) -> tuple[Architecture, Tensor]:
    """The architecture of a module, and its outputs on the first samples of `x`.

    A sequence of layers that fedkit knows becomes a chain of them, which the fast paths serve;
    anything else one :class:`WholeModule` of a copy in evaluation mode.  Flat vectors have the
    order of ``torch.nn.utils.parameters_to_vector(module.parameters())`` either way, and models
    start from that vector.
    """
    if x.dim() < 1 or not len(x):
        raise ValueError(f"x has shape {tuple(x.shape)}; [N, ...] with N >= 1 samples is expected")
    name = type(module).__name__
    own = copy.deepcopy(module).to(device, torch.float32).eval().requires_grad_(False)
    specs = tuple(Spec(name, tuple(p.shape)) for name, p in own.named_parameters())
    few, sizes = x[:2].to(device, copy=True), [1]
    if not specs:
        raise ValueError(f"the module {name} has no parameters: its coalitions would all be equal")

    def note(count: int, part: nn.Module, given: Any, out: Any) -> None:
        sizes.append(out.numel() // count if isinstance(out, Tensor) else 1)

    hooks = [part.register_forward_hook(partial(note, len(few))) for part in own.modules()]
    try:
        with torch.no_grad():
            out = own(few)
    except Exception as error:  # whatever a stranger's module raises
        raise ValueError(
            f"the module {name} fails on inputs of shape {tuple(few.shape)} and type {few.dtype}: "
            f"{error}{_arriving(own, x)}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(out, Tensor) or out.dim() < 1 or len(out) != len(few):
        raise ValueError(f"the module {name} returns no tensor [N, ...] for N samples")
    shape, n_classes = tuple(x.shape[1:]), out.shape[1] if out.dim() > 1 else 1
    start = nn.utils.parameters_to_vector(own.parameters()).cpu()
    chain = _chain(own, shape)
    if chain is not None and sum(s.size for _, layer in chain for s in layer.specs) == sum(
        s.size for s in specs
    ):
        return Architecture(name, shape, n_classes, tuple(chain), start), out
    widest = max(*sizes, few[0].numel())
    pair = [p.detach().expand(2, *p.shape) for p in own.parameters()]
    try:
        with torch.no_grad():
            WholeModule(own, specs, widest, True, x.dim()).forward(pair, few)
        stackable = True
    except Exception:  # data-dependent control flow and the like: one model after another
        stackable = False
    layer = WholeModule(own, specs, widest, stackable, x.dim())
    return Architecture(name, shape, n_classes, (("module", layer),), start), out


def _arriving(module: nn.Module, x: Tensor) -> str:
    """What to say of columns, which are images of one row, to a module that flattens nothing."""
    if not x.is_floating_point():
        return "; if these are no indices, pass x.float()"
    flattens = any(isinstance(part, nn.Flatten) for part in module.modules())
    if x.dim() != 4 or x.shape[1:3] != (1, 1) or flattens:
        return ""
    return f"; samples arrive as [N, 1, 1, {x.shape[3]}]: begin with torch.nn.Flatten()"


def classifier(name: str, module: nn.Module, x: Tensor, device: torch.device) -> Architecture:
    """The architecture of a module that clients train, or say why they cannot."""
    frozen = [part for part, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise ValueError(
            f"{name} has frozen parameters ({', '.join(frozen)}), and clients train all: "
            "pass the part that is trained, with the outputs of the rest as data"
        )
    wrong = [part for part, p in module.named_parameters() if not p.isfinite().all()]
    if wrong:
        raise ValueError(f"{name} has a NaN or an infinity in its parameters ({', '.join(wrong)})")
    # an infinity may be meant, as in the mask of an attention
    wrong = [part for part, b in module.named_buffers() if b.isnan().any()]
    if wrong:
        raise ValueError(f"{name} has a NaN in its buffers ({', '.join(wrong)})")
    made, outputs = of_module(module, x, device)
    doubt_probabilities(name, outputs)
    if outputs.dim() != 2:
        raise ValueError(
            f"{made.name} gives outputs of shape {tuple(outputs.shape)}; a federation "
            f"trains classifiers, whose outputs are [N, classes]{_arriving(module, x)}"
        )
    return made


def doubt_probabilities(name: str, outputs: Tensor) -> None:
    """Warn of a module whose first outputs are those of a softmax."""
    sums = outputs.sum(dim=-1)
    several = outputs.dim() == 2 and outputs.shape[1] > 1
    if several and bool((outputs >= 0).all() and ((sums - 1).abs() < 1e-4).all()):
        warn(
            f"{name} gives probabilities, and the cross-entropy takes logits: leave out the softmax"
        )


def _plain(module: nn.Module) -> bool:
    """Whether a module does what its class says: no hooks, no forward of its own."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential and _plain(module):
        for part in module:
            yield from _parts(part)
    else:
        yield module


def _chain(module: nn.Module, shape: tuple[int, ...]) -> Named | None:
    """The module as layers of fedkit, or None."""
    layers: Named = []
    axes = len(shape)  # of one sample: 3 while it is an image, 1 when it is flat
    for i, part in enumerate(_parts(module)):
        kind = type(part)
        if not _plain(part) or axes not in (1, 3):
            return None
        if kind in (nn.Identity, nn.Dropout, nn.Dropout2d):
            continue  # evaluation mode
        if isinstance(part, nn.Linear) and kind is nn.Linear and part.bias is not None:
            if axes != 1:
                return None
            layers.append((str(i), Linear(part.in_features, part.out_features)))
        elif isinstance(part, nn.Conv2d) and kind is nn.Conv2d and axes == 3:
            sides = [part.kernel_size, part.stride, part.padding, part.dilation]
            if any(isinstance(s, str) or s[0] != s[1] for s in sides) or (
                part.groups != 1 or part.dilation[0] != 1 or part.padding_mode != "zeros"
            ):
                return None
            size, stride, padding = (int(s[0]) for s in sides[:3])
            conv = Conv2d(
                part.in_channels, part.out_channels, size, stride, padding, part.bias is not None
            )
            layers.append((str(i), conv))
        elif kind is nn.ReLU:
            layers.append((str(i), ReLU()))
        elif isinstance(part, nn.MaxPool2d) and kind is nn.MaxPool2d and axes == 3:
            plain = part.kernel_size == part.stride and isinstance(part.kernel_size, int)
            if not plain or part.padding or part.dilation != 1 or part.ceil_mode:
                return None
            layers.append((str(i), MaxPool(int(part.kernel_size))))  # type: ignore[arg-type]
        elif isinstance(part, nn.Flatten) and (part.start_dim, part.end_dim) == (1, -1):
            if axes == 3:
                layers.append((str(i), Flatten()))
            axes = 1
        else:
            return None
    return layers if axes == 1 else None


class ScikitLinear:
    """scikit-learn's linear models as vectors: ``coef_`` and ``intercept_`` in one row.

    Parameters
    ----------
    model : fitted estimator with ``coef_`` and ``intercept_``
        LogisticRegression, SGDClassifier, LinearRegression, Ridge and the like.  The two classes
        of a binary classifier get the logits 0 and its decision function.

    Attributes
    ----------
    architecture : Architecture
        What an ``fk.Evaluator`` takes; samples are ``[N, features]``, labels are the
        positions of the classes in ``classes_``.

    Examples
    --------
    >>> import fedkit as fk
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> x, y = load_iris(return_X_y=True)
    >>> clients = [LogisticRegression().fit(x[i::3], y[i::3]) for i in range(3)]
    >>> linear = fk.ScikitLinear(clients[0])
    >>> base = 0 * linear.vector(clients[0])
    >>> updates = [linear.vector(model) - base for model in clients]
    >>> evaluator = fk.Evaluator(linear.architecture, x, y)
    >>> game = fk.RoundGame(evaluator, base, updates, [50, 50, 50])
    >>> bool(fk.shapley(game).values.min() > 0.15)
    True
    """

    def __init__(self, model: Any) -> None:
        coef = _linear(model)[0]
        self._shape, self._binary = coef.shape, len(coef) == 1 and hasattr(model, "classes_")
        outputs = 2 if self._binary else len(coef)
        layer = Linear(coef.shape[1], outputs)
        name = type(model).__name__
        self.architecture = Architecture(name, (coef.shape[1],), outputs, (("linear", layer),))
        self._model, self._classes = model, np.asarray(getattr(model, "classes_", ()))
        columns = getattr(model, "feature_names_in_", None)
        self._columns = None if columns is None else list(columns)

    def vector(self, model: Any) -> Tensor:
        """Coefficients and intercepts of a model of the same shape, float32 ``[P]``."""
        coef, intercept = _linear(model)
        if coef.shape != self._shape:
            raise ValueError(
                f"coef_ has shape {coef.shape}; {self._shape} is expected: fit all clients on the "
                "same features and classes"
            )
        classes = np.asarray(getattr(model, "classes_", ()))
        if not np.array_equal(classes, self._classes):
            raise ValueError(
                f"classes_ are {classes}; {self._classes} are expected: fit all clients on the "
                "same classes"
            )
        columns = getattr(model, "feature_names_in_", None)
        if columns is not None and self._columns is not None and list(columns) != self._columns:
            raise ValueError(
                f"feature_names_in_ are {list(columns)}; {self._columns} are expected: fit all "
                "clients on the same columns, in one order"
            )
        if self._binary:
            coef = np.vstack([np.zeros_like(coef), coef])
            intercept = np.concatenate([[0.0], intercept])
        return torch.from_numpy(np.concatenate([coef.ravel(), intercept]).astype(np.float32))

    def model(self, vector: Any) -> Any:
        """A copy of the first model that has the coefficients of a vector ``[P]``."""
        flat = torch.as_tensor(vector).detach().cpu().double().numpy()
        p = self.architecture.n_parameters
        if flat.shape != (p,):
            raise ValueError(f"the vector has shape {flat.shape}; ({p},) is expected")
        outputs = self.architecture.n_classes
        coef, intercept = flat[:-outputs].reshape(outputs, -1), flat[-outputs:]
        if self._binary:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        new = copy.deepcopy(self._model)
        new.coef_ = coef.reshape(np.shape(self._model.coef_))
        new.intercept_ = intercept if np.ndim(self._model.coef_) > 1 else float(intercept[0])
        return new


def _linear(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Finite ``coef_ [T, F]`` and ``intercept_ [T]`` in double precision."""
    if hasattr(model, "support_vectors_"):
        raise ValueError(
            f"{type(model).__name__} has coefficients for pairs of classes; take LinearSVC, which "
            "has a row for each"
        )
    if not hasattr(model, "coef_") or not hasattr(model, "intercept_"):
        raise ValueError(
            f"{type(model).__name__} has no coef_ and intercept_: fit it first; other models "
            "come in as torch modules"
        )
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    intercept = np.asarray(model.intercept_, dtype=np.float64).ravel()
    if not math.isfinite(coef.sum() + intercept.sum()):
        raise ValueError(f"coefficients of {type(model).__name__} hold a NaN or an infinity")
    return coef, np.broadcast_to(intercept, (len(coef),))
