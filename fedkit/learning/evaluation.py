"""Utilities of coalition models on one validation set.

The outputs of a coalition's first linear layer are linear in the clients' updates, ``(W_0 + sum
w_i D_i) x = W_0 x + sum w_i D_i x``: those of base and updates give all by one matrix product.  Of
a convolution the weights of several coalitions are one of many channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedkit import checks
from fedkit.learning.chains import convolve_and_pool, plain_pool
from fedkit.learning.device import find_device, for_each, real_tensor, samples_of
from fedkit.learning.models import Model, model_of

Named = Literal["accuracy", "negative_loss", "class_accuracy", "margins"]
Score = Callable[[Tensor, Tensor], Any]
Array = Tensor | np.ndarray

# Bytes of working memory of one call, beside rows and samples.
_BYTES = {"cpu": 1 << 30, "cuda": 1 << 33}
# Shares of a CPU's last-level cache, by measurement: bytes of a group of coalitions, and of one
# activation of one model; columns of one matrix product; scalars of a convolution's output; and
# channels of convolutions side by side.
_CPU_GROUP_BYTES = 1 << 25
_CPU_TILE_BYTES = 1 << 24
_CPU_COLUMNS = 1 << 13
_CPU_CONVOLVED = 1 << 20
_CPU_CHANNELS = 48


@dataclass
class Prepared:
    """One round's base and updates on the device, made by :meth:`Evaluator.prepare`.

    `first` holds the first layer's outputs once they were needed, if they fit in memory; `spent`
    counts the coalitions that were evaluated without them.
    """

    base: Tensor
    updates: Tensor
    first: Tensor | None = None
    spent: int = 0


class Evaluator:
    """Utility of many models on one validation set.

    Parameters
    ----------
    model : torch.nn.Module or Model
        A module is copied and put into evaluation mode; its state comes from rows.
    x : tensor or array ``[N, ...]``, DataLoader or Dataset of pairs
        Validation samples, at least one.
    y : tensor or array ``[N]``, optional
        Labels; for a function, whatever it compares outputs with.
    utility : {"accuracy", "negative_loss", "class_accuracy", "margins"} or callable
        Share of correct predictions in [0, 1]; minus the mean cross-entropy in nats; the accuracy
        on each class, a vector; or for each sample the logit of its class less the largest other,
        a vector.  NaN where a logit is.  A function gets the outputs ``[N, ...]`` of one model and
        y, and returns a number or a vector, larger for better: of a loss give the negative.
    device : optional
        CUDA if there is one, otherwise the CPU.

    Raises
    ------
    ValueError
        If the validation set is empty, misshapen or not finite, or a module fails on x.

    Examples
    --------
    >>> import torch, fedkit as fk
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> x = torch.linspace(-1, 1, 200).reshape(50, 4)
    >>> base = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    >>> updates = 0.1 * torch.randn(3, len(base)).numpy()
    >>> def fit(outputs, y):
    ...     return -float((outputs[:, 0] - y).square().mean())
    >>> evaluator = fk.Evaluator(net, x, x.sum(dim=1), fit)
    >>> len(fk.shapley(fk.round_game(evaluator, base, base + updates, [20, 10, 20])).values)
    3
    """

    def __init__(
        self,
        model: Model | nn.Module,
        x: Any,
        y: Any = None,
        utility: Named | Score = "accuracy",
        *,
        device: str | torch.device | None = None,
    ) -> None:
        self.device = find_device(device)
        x, y = samples_of(x, y)
        if not (callable(utility) or y.is_floating_point() or y.is_complex()):
            y = y.long()
        if broken := int((~torch.isfinite(x)).sum()):
            raise ValueError(f"x holds {broken} numbers that are NaN or infinite; leave them out")
        model = model_of(model, x)
        counts = _check_validation(model, x, y, utility)
        self.model, self.utility = model.on(self.device), utility
        self._dtype = model.row_dtype
        self.x = x.to(self.device, model.example.dtype, copy=True).contiguous()
        self.y = y.to(self.device, None if callable(utility) else torch.int64, copy=True)
        self._counts = counts.to(self.device, torch.float64)
        self._head = _FirstLayer.of(self.model)
        self._bytes = _BYTES["cuda" if self.device.type == "cuda" else "cpu"]
        # grouped convolutions are slower than one model after the other on a CPU
        slow = (self._head.rest if self._head else model).has_convolution
        #: whether the layers behind the first run for many models at once, by ``torch.vmap``
        self.stacked = (self.device.type == "cuda" or not slow) and model.stackable
        self._peak = 3 * 4 * model.widest  # bytes of live activations per image and model
        self._convolves = bool(self._head and isinstance(self._head.layer, nn.Conv2d))

    def utilities(self, rows: Array) -> np.ndarray:
        """Utility of each model of ``[B, P]``: float64 ``[B]``, or ``[B, classes]``."""
        models = real_tensor("models", rows).to(self.device, self._dtype)
        if models.dim() != 2 or models.shape[1] != self.model.size:
            raise ValueError(f"models are {tuple(models.shape)}; expected [B, {self.model.size}]")
        return self._run(models, None, direct=True)

    def prepare(self, base: Array, updates: Array) -> Prepared:
        """Move one round's rows to the device; base ``[P]``, updates ``[k, P]``."""

        def own(name: str, given: Array) -> Tensor:  # the caller may fill its buffers anew
            return real_tensor(name, given).to(self.device, self._dtype, copy=True)

        return Prepared(own("base", base), own("updates", updates))

    def evaluate(self, prepared: Prepared, weights: np.ndarray | Tensor) -> np.ndarray:
        """Utility of ``base + weights @ updates``: float64 ``[B]`` or ``[B, m]`` of ``[B, k]``."""
        # Preparing costs about k + 1 models: it waits until as much was spent without, so that a
        # round of small requests costs at most twice what was best.
        asked = len(weights) + prepared.spent
        direct = self._head is None or self._convolves
        direct = direct or (asked <= len(prepared.updates) and prepared.first is None)
        prepared.spent += len(weights) if direct else 0
        rows = torch.as_tensor(weights, dtype=self._dtype, device=self.device)
        return self._run(rows, prepared, direct)

    # ------------------------------------------------ scores of images, and utilities of them

    @torch.no_grad()
    def _run(self, rows: Tensor, prepared: Prepared | None, direct: bool) -> np.ndarray:
        """Utilities of models ``[B, P]``, or of coalitions ``[B, k]`` of what was prepared."""
        shape = self.model.output_shape if callable(self.utility) else ()
        per_row = 8 * len(self.x) * math.prod(shape)
        found: list[np.ndarray] = []
        for part in rows.split(max(1, self._bytes // (4 * per_row))):
            scores = torch.empty(
                (len(part), len(self.x), *shape), dtype=self._dtype, device=self.device
            )
            self._fill(scores, part, prepared, direct)
            found += self._utilities(scores)
        if len({np.shape(one) for one in found}) > 1:
            raise ValueError("utility returned vectors of several lengths; expected one length")
        return np.array(found, dtype=np.float64)

    def _utilities(self, scores: Tensor) -> list[np.ndarray]:
        """A number or a vector for each model, of its images' scores ``[B, N]``."""
        if callable(self.utility):
            return [_number(self.utility(one, self.y.clone())) for one in scores]
        scores = scores.double()
        if self.utility == "class_accuracy":
            sums = scores.new_zeros(len(scores), self.model.n_classes)
            scores = sums.index_add_(1, self.y, scores) / self._counts
        elif self.utility != "margins":
            scores = scores.sum(dim=1) / len(self.y)
        return list(scores.cpu().numpy())

    def _score(self, logits: Tensor, y: Tensor) -> Tensor:
        """Scores ``[B, n]`` of images, or their outputs where a function scores them."""
        logits = logits.to(self.model.row_dtype)
        if callable(self.utility):
            return logits
        if self.utility == "margins":
            return _margins(logits, y)
        if self.utility == "negative_loss":
            labels = y.expand(len(logits), -1).flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none")
            return -loss.view(len(logits), -1)
        top, predicted = logits.max(dim=-1)  # NaN where one of the logits is
        return (predicted == y).to(logits.dtype).masked_fill_(top.isnan(), torch.nan)

    # -------------------------------------------------------- tiles of images, groups of models

    def _fill(self, scores: Tensor, rows: Tensor, prepared: Prepared | None, direct: bool) -> None:
        shared = self._head is not None and prepared is not None and not direct
        per_image = 4 * self._peak
        if self._head and prepared and shared:  # half of the memory for what coalitions share
            per_image = max(per_image, 8 * self._head.width * (1 + len(prepared.updates)))
        tile = max(1, self._bytes // per_image)
        fits = tile >= len(self.x)
        if self.device.type == "cpu":  # activations of one model then stay in its cache
            tile = min(tile, max(64, _CPU_TILE_BYTES // (4 * self.model.widest)))
        for lo in range(0, len(self.x), tile):
            images, first = slice(lo, lo + tile), None
            if self._head and prepared and shared:
                if fits and prepared.first is None:
                    prepared.first = self._head.outputs(prepared, self.x)
                if prepared.first is None:
                    first = self._head.outputs(prepared, self.x[images])
                else:
                    first = prepared.first[:, images]
            add = partial(self._add, scores, rows, prepared, first, images)
            groups = self._row_groups(rows, min(tile, len(self.x)), direct)
            for_each(add, groups, parallel=self.device.type == "cpu")

    def _row_groups(self, rows: Tensor, images: int, direct: bool) -> Iterator[slice]:
        """Groups of coalitions, bounded in memory and enough of them for every core."""
        per_row = 4 * self.model.size + (images * self._peak if self.stacked else 0)
        if self._head and (self._convolves or not direct):
            hidden = 4 if self._convolves else 8  # a product has its own and that of the ReLU
            per_row += images * hidden * self._head.width
        most = max(1, self._bytes // (4 * per_row))
        if self.device.type == "cpu":
            threads = torch.get_num_threads()
            share = -(-len(rows) // threads)
            most = max(1, min(most // threads, max(8, _CPU_GROUP_BYTES // per_row), share))
            if self._convolves and self._head and most > self._head.together:
                most -= most % self._head.together  # whole convolutions, side by side
        for start in range(0, len(rows), most):
            yield slice(start, start + most)

    @torch.no_grad()  # holds for one thread
    def _add(
        self,
        scores: Tensor,
        rows: Tensor,
        prepared: Prepared | None,
        first: Tensor | None,
        images: slice,
        group: slice,
    ) -> None:
        """Write a group's scores on some images; `first` holds the first layer's outputs there."""
        rows, x, y, target = rows[group], self.x[images], self.y[images], scores[group, images]
        model = self.model.copied()
        head = self._head if self._convolves or first is not None else None
        skip = 0 if first is None or head is None else head.n_parameters
        params = rows
        if prepared is not None:
            params = torch.addmm(prepared.base[skip:], rows, prepared.updates[:, skip:])
        if head is not None:
            hidden = torch.empty(len(rows), len(x) * head.width, dtype=rows.dtype, device=x.device)
            if first is None:
                head.convolve(params[:, : head.n_parameters], x, hidden)
                params = params[:, head.n_parameters :]
            else:
                head.combine(rows, first.flatten(1), hidden)
            model, x = head.rest, hidden.view(len(rows), len(x), *head.shape)
        if self.stacked and len(rows) > 1:
            target.copy_(self._score(model.call(model.split(params), x, stacked=True), y))
            return
        for b, row in enumerate(params.split(1)):
            own = x if head is None else x[b : b + 1]
            outputs = model.call(model.split(row), own, stacked=False)
            target[b : b + 1] = self._score(outputs, y)


# ----------------------------------------------------------------------------- first layers


@dataclass(frozen=True)
class _FirstLayer:
    """The first layer of a chain with the ReLU and max pool that follow it."""

    layer: nn.Linear | nn.Conv2d
    pool: int  # side of the max pool, 1 for none
    relu: bool
    shape: tuple[int, ...]  # (features,), or (channels, height, width) after pooling
    rest: Model  # what follows

    @classmethod
    def of(cls, model: Model) -> _FirstLayer | None:
        """Take the first layer off, or return None where there is none."""
        layers, sample = list(model.layers or ()), model.example
        if layers and isinstance(layers[0], nn.Flatten):
            sample = layers.pop(0)(sample)
        layer = layers.pop(0) if layers else None
        linear = isinstance(layer, nn.Linear) and sample.dim() == 2
        image = isinstance(layer, nn.Conv2d) and sample.dim() == 4 and layer.groups == 1
        if not isinstance(layer, nn.Linear | nn.Conv2d) or not (linear or image):
            return None
        pool, relu = 1, False
        while layers and (isinstance(layers[0], nn.ReLU) or (image and plain_pool(layers[0]))):
            following = layers.pop(0)
            relu = relu or isinstance(following, nn.ReLU)
            pool *= plain_pool(following) or 1  # ReLU and max commute
        with torch.no_grad():
            hidden = layer(sample)
        hidden = F.max_pool2d(hidden, pool) if pool > 1 else hidden
        rest = nn.Sequential(*layers)
        keys = tuple(key for key, _ in rest.named_parameters())
        behind = Model(model.name, rest, keys, hidden, model.output_shape)
        return cls(layer, pool, relu, tuple(hidden.shape[1:]), behind)

    @property
    def n_parameters(self) -> int:
        """Number of scalars of the layer, which come first in a row."""
        return sum(p.numel() for p in self.layer.parameters())

    @property
    def width(self) -> int:
        """Scalars per image after pooling."""
        return math.prod(self.shape)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weight ``[..., *shape]`` and bias of the layer in rows."""
        size, like = self.layer.weight.numel(), self.layer.weight.shape
        weight = rows[..., :size].reshape(*rows.shape[:-1], *like)
        return weight, None if self.layer.bias is None else rows[..., size : self.n_parameters]

    def outputs(self, prepared: Prepared, x: Tensor) -> Tensor:
        """Outputs of base and k updates on N images, of a linear layer: ``[k + 1, N, width]``."""
        stack, flat = torch.cat([prepared.base[None], prepared.updates]), x.flatten(1)
        z = x.new_empty(len(stack), len(x), self.width)
        for own, target in zip(stack, z, strict=True):
            target.copy_(F.linear(flat, *self._split(own)))
        return z

    def combine(self, weights: Tensor, outputs: Tensor, out: Tensor) -> None:
        """Activations of coalitions ``[B, k]`` into `out`, of `outputs` ``[k + 1, N * width]``."""
        a = torch.cat([weights.new_ones(len(weights), 1), weights], dim=1)
        columns = _CPU_COLUMNS if out.device.type == "cpu" else out.shape[1]
        for z, part in zip(outputs.split(columns, 1), out.split(columns, 1), strict=True):
            torch.mm(a, z, out=part)
            if self.relu:
                part.relu_()

    @property
    def together(self) -> int:
        """Models whose convolutions stand side by side."""
        channels = _CPU_CHANNELS if self.layer.weight.device.type == "cpu" else 64 * _CPU_CHANNELS
        return max(1, channels // self.shape[0])

    def convolve(self, params: Tensor, x: Tensor, out: Tensor) -> None:
        """Activations of models ``[B, ...]`` on images ``[N, C, H, W]`` into ``[B, N * width]``."""
        layer = self.layer
        assert isinstance(layer, nn.Conv2d)
        activations = out.view(len(params), len(x), *self.shape)
        size = self.pool**2 * self.width * min(self.together, len(params))
        step = max(1, _CPU_CONVOLVED // size)
        for models, group in zip(
            params.split(self.together), activations.split(self.together), strict=True
        ):
            weight, bias = self._split(models)
            kernels, added = weight.flatten(0, 1), None if bias is None else bias.flatten()
            for part, target in zip(x.split(step), group.split(step, 1), strict=True):
                pooled = convolve_and_pool(layer, kernels, added, x=part, size=self.pool)
                pooled = pooled.unflatten(1, (len(models), -1)).transpose(0, 1)
                if self.relu:
                    torch.clamp_min(pooled, 0, out=target)
                else:
                    target.copy_(pooled)


# --------------------------------------------------------------------- utilities and doubts


def share_right(margins: np.ndarray) -> np.ndarray:
    """Accuracy ``[B]`` from margins ``[B, N]``, as the utility "margins"; NaN where one is.

    Parameters
    ----------
    margins : ndarray
        ``[B, N]``.

    Returns
    -------
    ndarray
    """
    margins = np.asarray(margins)
    if margins.ndim != 2 or not margins.shape[1]:
        raise ValueError(f"margins have shape {margins.shape}; expected [B, N]")
    right = (margins > 0).astype(np.float32) @ np.ones(margins.shape[1], dtype=np.float32)
    lost = np.isnan(margins.min(axis=1))
    return np.where(lost, np.nan, right.astype(np.float64) / margins.shape[1])


def _margins(logits: Tensor, y: Tensor) -> Tensor:
    """Logit of the class less the largest other ``[B, N]``, positive where argmax is the class."""
    top, predicted = logits.max(dim=-1)  # NaN where one of the logits is
    right = y.expand(len(logits), -1)[..., None]
    others = logits.scatter(2, right, -torch.inf).max(dim=-1).values
    margins = logits.gather(2, right)[..., 0] - others
    # among equals the first class is predicted; what is infinite counts as very large
    tiny, huge = torch.finfo(margins.dtype).tiny, 1e30
    hit = margins.nan_to_num(nan=huge, posinf=huge).clamp(tiny, huge)
    miss = margins.nan_to_num(nan=-huge, neginf=-huge).clamp(-huge, 0.0)
    return torch.where(predicted == y, hit, miss).masked_fill_(top.isnan(), torch.nan)


def _number(value: Any) -> np.ndarray:
    """What a scoring function returned, a number or a vector."""
    given = checks.plain_array(value)
    if given.dtype.kind not in "iuf" or given.ndim > 1 or given.size == 0:
        raise ValueError(f"utility returned {checks.brief(value)}; expected a number or a vector")
    return given.astype(np.float64)


def _check_validation(model: Model, x: Tensor, y: Tensor, utility: Any) -> Tensor:
    """Refuse what cannot be evaluated; return the number of samples of each class."""
    if not callable(utility):
        checks.choice("utility", utility, get_args(Named))
    n = len(y) if y.dim() else 0
    if n == 0 or tuple(x.shape) != (n, *model.input_shape):
        raise ValueError(
            f"validation images {tuple(x.shape)} and {n} labels were given; expected "
            f"{[n, *model.input_shape]}, and at least one"
        )
    if callable(utility):
        return torch.zeros(0)
    outputs = model.output_shape
    if len(outputs) != 1 or outputs == (1,) or y.dim() != 1 or y.dtype.is_floating_point:
        raise ValueError(
            f"{model.name} gives outputs [N, {', '.join(map(str, outputs))}] for labels of shape "
            f"{tuple(y.shape)} and type {y.dtype}; {utility} needs one logit for each class, and N "
            "whole numbers: give a function of outputs and targets as utility"
        )
    if int(y.min()) < 0 or int(y.max()) >= model.n_classes:
        raise ValueError(
            f"labels go from {y.min()} to {y.max()}; expected 0 to {model.n_classes - 1}"
        )
    counts = torch.bincount(y.cpu(), minlength=model.n_classes)
    if utility == "class_accuracy" and bool((counts == 0).any()):
        raise ValueError(
            f"classes {torch.nonzero(counts == 0).flatten().tolist()} have no validation image, "
            f"so their accuracy is undefined"
        )
    return counts
