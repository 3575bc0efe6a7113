"""Utilities of coalition models on one validation set.

The model of a coalition is linear in the clients' updates, and so are the outputs of its first
linear or convolutional layer, before any activation.  The first layer of ``2^k`` models is then
one matrix product of coalition weights with k + 1 outputs that are computed once.  A max pool
behind it is a maximum over strided convolutions, so it too is taken on whole blocks.  A torch
module that is no chain of known layers is called as a whole.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedkit import checks
from fedkit.learning.architectures import Architecture
from fedkit.learning.device import as_tensor, find_device
from fedkit.learning.first_layer import FirstLayer
from fedkit.learning.foreign import WholeModule, doubt_probabilities, of_module
from fedkit.learning.layers import Conv2d, Linear, run_layers
from fedkit.learning.workers import for_each

__all__ = ["Evaluator", "Prepared", "share_right"]

Named = Literal["accuracy", "negative_loss", "class_accuracy", "margins"]
Score = Callable[[Tensor, Tensor], Any]
Array = Tensor | np.ndarray

# Bytes that a group of coalitions, and one activation of one model, may fill on a CPU: shares of
# its last-level cache (chosen by measurement).
_CPU_GROUP_BYTES = 1 << 25
_CPU_TILE_BYTES = 1 << 24


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
    arch : Architecture or torch.nn.Module
        A module is copied and put into evaluation mode: parameters come from the vectors
        (``torch.nn.utils.parameters_to_vector``), buffers stay as they are.
    x : float32 tensor or array ``[N, C, H, W]``
        Validation images, at least one; for a module ``[N, ...]`` of whatever it takes.
    y : int64 tensor or array ``[N]``
        Labels; for a function, whatever it compares outputs with.
    utility : {"accuracy", "negative_loss", "class_accuracy", "margins"} or callable
        Share of correct predictions in [0, 1]; minus the mean cross-entropy in nats; the accuracy
        on each class, a vector; or for each image the logit of its class less the largest other,
        a vector, positive where the prediction is correct (:func:`share_right` makes the accuracy
        of it).  A model with a NaN among its logits has the utility NaN.
        A function gets the outputs ``[N, ...]`` of one model and y, and returns a number or a
        vector, larger for better; of the losses of torch and scikit-learn give the negative.
    device : optional
        CUDA if there is one, otherwise the CPU.
    memory_mb : int, optional
        Bound on the working memory of one call, in MiB, beside parameters and images; the
        default is 1024 on the CPU and 8192 on CUDA.  Results do not depend on it (up to the
        rounding of float32).
    path : {"auto", "stacked", "loop"}
        Whether the layers behind the first run for many coalitions at once.  "auto" does so on
        CUDA and for architectures without a second convolution, as measured; for a module,
        where ``torch.vmap`` takes it and it has no convolution or runs on CUDA.

    Attributes
    ----------
    path : str
        The way taken: "first layer, stacked" and "first layer, loop" share the first layer among
        coalitions (a module is served so where it is a ``Sequential`` of linear layers, square
        convolutions, ReLU, max pools, ``Flatten`` and dropout); "stacked" and "loop" do not;
        "module, stacked" and "module, loop" call a module of unknown layers.

    Raises
    ------
    ValueError
        If the validation set is empty, misshapen or not finite, the utility or device is unknown,
        or a loss, `class_accuracy` is asked for and a class has no validation image, or a module
        fails on x.

    Warns
    -----
    UserWarning
        If a function seems to compare the outputs ``[N, 1]`` of every sample with the targets
        ``[N]`` of all, or a module seems to give probabilities where logits are expected.

    Examples
    --------
    >>> import torch, fedkit as fk
    >>> from torch.nn.utils import parameters_to_vector
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> x = torch.linspace(-1, 1, 200).reshape(50, 4)
    >>> base = parameters_to_vector(net.parameters()).detach()
    >>> updates = 0.1 * torch.randn(3, len(base)).numpy()
    >>> def fit(outputs, y):
    ...     return -float((outputs[:, 0] - y).square().mean())
    >>> evaluator = fk.Evaluator(net, x, x.sum(dim=1), fit)
    >>> evaluator.path
    'module, stacked'
    >>> len(fk.shapley(fk.RoundGame(evaluator, base, updates, [20, 10, 20])).values)
    3
    """

    def __init__(
        self,
        arch: Architecture | nn.Module,
        x: Array,
        y: Array,
        utility: Named | Score = "accuracy",
        *,
        device: str | torch.device | None = None,
        memory_mb: int | None = None,
        path: Literal["auto", "stacked", "loop"] = "auto",
    ) -> None:
        if memory_mb is not None:
            checks.whole("memory_mb", memory_mb, 1)
        checks.choice("path", path, ("auto", "stacked", "loop"))
        self.device = find_device(device)
        checks.same_rows("x and y", x, y)
        x, y, outputs = as_tensor("x", x), as_tensor("y", y), None
        if not (callable(utility) or y.is_floating_point() or y.is_complex()):
            y = y.long()
        if broken := int((~torch.isfinite(x)).sum()):
            raise ValueError(
                f"validation images x hold {broken} numbers that are NaN or infinite; replace "
                "them, or leave those images out"
            )
        if isinstance(arch, nn.Module):
            x = x.float() if x.is_floating_point() else x
            arch, outputs = of_module(arch, x, self.device)
        elif not isinstance(arch, Architecture):
            raise ValueError(
                f"arch is {arch!r}; expected an architecture (fk.build), a torch.nn.Module or "
                "ScikitLinear(model).architecture"
            )
        self.arch, self.utility = arch, utility
        self._outputs = (arch.n_classes,) if outputs is None else tuple(outputs.shape[1:])
        counts = _check_validation(arch, x, y, utility, self._outputs)
        if callable(utility):
            if self._outputs == (1,) and y.dim() == 1 and _mixes_rows(utility, y):
                checks.warn(
                    "utility says the same whichever outputs belong to which targets: outputs "
                    "[N, 1] less targets [N] are [N, N]; use outputs[:, 0] in it"
                )
        elif utility == "negative_loss" and outputs is not None:
            doubt_probabilities(arch.name, outputs)
        cuda = self.device.type == "cuda"
        self._bytes = (memory_mb or (8192 if cuda else 1024)) << 20
        whole = arch.layers[0][1]
        self._whole = isinstance(whole, WholeModule)
        self.x = x.to(self.device, None if self._whole else torch.float32, copy=True).contiguous()
        self.y = y.to(self.device, None if callable(utility) else torch.int64, copy=True)
        self._counts = counts.to(self.device, torch.float64)
        self._head = FirstLayer.of(arch)
        rest = self._head.rest if self._head else [layer for _, layer in arch.layers]
        flat = all(isinstance(layer, Linear) or not layer.specs for layer in rest)
        if isinstance(whole, WholeModule):
            flat = not whole.has_convolution
            if path == "stacked" and not whole.stackable:
                raise ValueError(f'torch.vmap does not take {arch.name}; use path="loop"')
            if not whole.stackable:
                path = "loop"
        self._stacked = path == "stacked" or (path == "auto" and (cuda or flat))
        way = "first layer, " if self._head else "module, " if self._whole else ""
        self.path = way + ("stacked" if self._stacked else "loop")
        self._peak = 3 * 4 * arch.widest  # bytes of live activations per image and model
        self._convolves = not cuda and bool(self._head and isinstance(self._head.layer, Conv2d))
        self._block = self._head.block(self.device) if self._head else 1

    def utilities(self, params: Array) -> np.ndarray:
        """Utility of each model of ``[B, P]``: float64 ``[B]``, or ``[B, classes]``."""
        models = as_tensor("models", params)
        models = models.to(self.device, torch.float32)
        if models.dim() != 2 or models.shape[1] != self.arch.n_parameters:
            raise ValueError(
                f"models have shape {tuple(models.shape)}; [B, {self.arch.n_parameters}] is "
                f"expected for {self.arch.name}: params[None] makes a stack of one model"
            )
        return self._run(models, None, direct=True)

    def prepare(self, base: Array, updates: Array) -> Prepared:
        """Move one round's parameters to the device; base ``[P]``, updates ``[k, P]``."""

        def own(name: str, given: Array) -> Tensor:  # the caller may fill its buffers anew
            return as_tensor(name, given).to(self.device, torch.float32, copy=True)

        return Prepared(own("base", base), own("updates", updates))

    def evaluate(self, prepared: Prepared, weights: np.ndarray | Tensor) -> np.ndarray:
        """Utility of ``base + weights @ updates``.

        Parameters
        ----------
        prepared : Prepared
            Keeps the first layer's outputs for the next call where the memory bound allows it.
        weights : array or tensor ``[B, k]``

        Returns
        -------
        float64 array ``[B]``, or ``[B, classes]`` for "class_accuracy"
        """
        # Preparing costs about k + 1 models: it waits until as much was spent without, so that a
        # round of small requests costs at most twice what was best.
        asked = len(weights) + prepared.spent
        direct = self._head is None or self._convolves
        direct = direct or (asked <= len(prepared.updates) and prepared.first is None)
        prepared.spent += len(weights) if direct else 0
        rows = torch.as_tensor(weights, dtype=torch.float32, device=self.device)
        return self._run(rows, prepared, direct)

    @torch.no_grad()
    def _run(self, rows: Tensor, prepared: Prepared | None, direct: bool) -> np.ndarray:
        """Utilities of models ``[B, P]``, or of coalitions ``[B, k]`` of what was prepared."""
        if callable(self.utility):
            return self._scored(self.utility, rows, prepared, direct)
        if self.utility == "margins":
            each = torch.empty(len(rows), len(self.y), dtype=torch.float32, device=self.device)
            self._fill(each, rows, prepared, direct)
            return each.double().cpu().numpy()
        wide = self.utility == "class_accuracy"
        outputs = self.arch.n_classes if wide else 1
        sums = torch.zeros(len(rows), outputs, dtype=torch.float64, device=self.device)
        self._fill(sums, rows, prepared, direct)
        out: np.ndarray = (sums / self._counts if wide else sums[:, 0] / len(self.y)).cpu().numpy()
        return out

    def _scored(
        self, score: Score, rows: Tensor, prepared: Prepared | None, direct: bool
    ) -> np.ndarray:
        """What a function of outputs and targets gives each model."""
        per_row = 4 * len(self.x) * math.prod(self._outputs)
        scores: list[np.ndarray] = []
        for part in rows.split(max(1, self._bytes // (4 * per_row))):
            shape = (len(part), len(self.x), *self._outputs)
            outputs = torch.empty(shape, dtype=torch.float32, device=self.device)
            self._fill(outputs, part, prepared, direct)
            scores += [_number(score(one, self.y.clone())) for one in outputs]
        if len({one.shape for one in scores}) > 1:
            raise ValueError("utility returned vectors of several lengths; expected one length")
        return np.array(scores, dtype=np.float64)

    def _fill(self, sums: Tensor, rows: Tensor, prepared: Prepared | None, direct: bool) -> None:
        """Sums of scores over images, or the outputs where a function scores them."""
        for lo, hi in self._image_blocks(prepared, direct):
            first: Tensor | None = None
            if prepared is not None and not direct:
                first = self._first(prepared, lo, hi)
            tile = hi - lo
            if self.device.type == "cpu":  # activations of one model then stay in its cache
                tile = min(tile, max(64, _CPU_TILE_BYTES // (4 * self.arch.widest)))
            for start, stop in self._cut(lo, hi, tile):
                groups = self._row_groups(rows, stop - start, direct)
                add = partial(self._add, sums, rows, prepared, first, start, stop, lo)
                for_each(add, groups, parallel=self.device.type == "cpu" and not self._whole)

    def _image_blocks(self, prepared: Prepared | None, direct: bool) -> Iterator[tuple[int, int]]:
        """Blocks of images, outside the loop over coalitions, which all read the same outputs."""
        # Three quarters of the memory for what the coalitions share, the rest for their groups.
        per_image = 4 * self._peak
        if prepared is not None and not direct and self._head:
            outputs = 4 * self._head.size * (1 + len(prepared.updates))
            per_image = max(per_image, outputs * 2)
        return self._cut(0, len(self.x), max(1, self._bytes // per_image))

    def _cut(self, lo: int, hi: int, step: int) -> Iterator[tuple[int, int]]:
        """Pieces of so many images, rounded up to whole blocks."""
        step = -(-step // self._block) * self._block
        return ((first, min(first + step, hi)) for first in range(lo, hi, step))

    def _row_groups(self, rows: Tensor, images: int, direct: bool) -> Iterator[slice]:
        """Groups of coalitions, bounded in memory and enough of them for every core."""
        per_row = 4 * self.arch.n_parameters + (images * self._peak if self._stacked else 0)
        if self._head and (self._convolves or not direct):
            per_row = 4 * self.arch.n_parameters
            hidden = 4 if self._convolves else 8  # a product has its own and that of the ReLU
            per_row += images * (hidden * self._head.width + (self._peak if self._stacked else 0))
        most = max(1, self._bytes // (4 * per_row))
        if self.device.type == "cpu":
            threads = torch.get_num_threads()
            share = -(-len(rows) // threads)
            most = max(1, min(most // threads, max(8, _CPU_GROUP_BYTES // per_row), share))
            if self._convolves and self._head and most > self._head.together:
                most -= most % self._head.together  # whole convolutions, side by side
        for start in range(0, len(rows), most):
            yield slice(start, start + most)

    def _first(self, prepared: Prepared, lo: int, hi: int) -> Tensor:
        """First layer's outputs of base and updates; kept when they cover all images."""
        assert self._head is not None
        if prepared.first is not None and (lo, hi) == (0, len(self.x)):
            return prepared.first
        outputs = self._head.outputs(prepared.base, prepared.updates, self.x[lo:hi], self._block)
        if (lo, hi) == (0, len(self.x)):
            prepared.first = outputs
        return outputs

    @torch.no_grad()  # holds for one thread
    def _add(
        self,
        sums: Tensor,
        rows: Tensor,
        prepared: Prepared | None,
        first: Tensor | None,
        lo: int,
        hi: int,
        origin: int,
        group: slice,
    ) -> None:
        """Add a group's scores on images lo to hi; `first` begins at the image `origin`."""
        rows = rows[group]
        head = self._head if self._convolves or first is not None else None
        done = head.n_parameters if head else 0
        skip = 0 if first is None else done
        params = rows
        if prepared is not None:
            params = torch.addmm(prepared.base[skip:], rows, prepared.updates[:, skip:])
        layers, x = [layer for _, layer in self.arch.layers], self.x[lo:hi]
        reach: Tensor | None = None
        if head:
            shape = (len(rows), (hi - lo) * head.width)
            hidden = torch.empty(shape, dtype=torch.float32, device=self.device)
            if first is None:
                reach = head.convolve(params[:, :done], x, hidden)
            else:
                blocks = slice((lo - origin) // self._block, -(-(hi - origin) // self._block))
                head.combine(rows, first[blocks], hidden)
            layers, x = list(head.rest), hidden.view(len(rows), hi - lo, *head.shape)
        tensors = self.arch.split(params[:, done - skip :], done)
        if self._stacked:
            self._keep(sums[group], run_layers(layers, tensors, x, reach), lo, hi)
            return
        for b, target in enumerate(sums[group].split(1)):
            own = [t[b : b + 1] for t in tensors]
            logits = run_layers(layers, own, x[b : b + 1] if head else x, reach)
            self._keep(target, logits, lo, hi)

    def _keep(self, target: Tensor, logits: Tensor, lo: int, hi: int) -> None:
        if callable(self.utility):
            target[:, lo:hi] = logits
        elif self.utility == "margins":
            target[:, lo:hi] = _margins(logits, self.y[lo:hi])
        else:
            target += self._score(logits, self.y[lo:hi])

    def _score(self, logits: Tensor, y: Tensor) -> Tensor:
        """Sums over images of the utility, float64 ``[B, 1]`` or ``[B, classes]``."""
        if self.utility == "negative_loss":
            labels = y.expand(len(logits), -1).flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), labels, reduction="none")
            return -loss.view(len(logits), -1).double().sum(dim=1, keepdim=True)
        top, predicted = logits.max(dim=-1)  # NaN where one of the logits is
        hits = (predicted == y).double().masked_fill_(top.isnan(), torch.nan)
        if self.utility == "accuracy":
            return hits.sum(dim=1, keepdim=True)
        sums = hits.new_zeros(len(logits), self.arch.n_classes)
        return sums.index_add_(1, y, hits)


def share_right(margins: np.ndarray) -> np.ndarray:
    """Accuracy ``[B]`` from margins ``[B, N]``; NaN where one of them is.

    Parameters
    ----------
    margins : ndarray
        ``[B, N]``: logit of the class less the largest other.

    Returns
    -------
    ndarray
        ``[B]``.

    Raises
    ------
    ValueError
        If `margins` are no rows.
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
        raise ValueError(
            f"utility returned {checks.brief(value)}; expected a number, or a vector of them"
        )
    return given.astype(np.float64)


def _is_loss(utility: Any) -> bool:
    """Whether a function is one of those of torch and scikit-learn that are to be minimised."""
    home = getattr(utility, "__module__", None) or ""
    minimised = re.search(r"(loss|error|deviance|entropy|div)$", getattr(utility, "__name__", ""))
    known = home.split(".")[0] in ("torch", "sklearn") and minimised is not None
    return known or isinstance(utility, nn.modules.loss._Loss)


def _mixes_rows(utility: Score, y: Tensor) -> bool:
    """Whether a function of outputs ``[N, 1]`` and targets ``[N]`` compares each with all."""
    y = y[:64]
    draws = torch.Generator().manual_seed(0)
    outputs = torch.randn(len(y), 1, generator=draws)
    dealt = outputs[torch.randperm(len(y), generator=draws)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:  # what fails on a vector picks the column itself, or is told of when it is used
            own, moved, flat = (
                _number(utility(o, y.clone())) for o in (outputs, dealt, outputs[:, 0])
            )
        except Exception:
            return False
    same = partial(np.allclose, rtol=1e-5, atol=0.0, equal_nan=True)
    return own.shape == moved.shape == flat.shape and same(own, moved) and not same(own, flat)


def _check_validation(
    arch: Architecture, x: Tensor, y: Tensor, utility: Any, outputs: tuple[int, ...]
) -> Tensor:
    """Refuse what cannot be evaluated; return the number of images of each class."""
    if not callable(utility):
        checks.choice("utility", utility, get_args(Named))
    elif _is_loss(utility):
        raise ValueError(
            f"utility is the loss {getattr(utility, '__name__', utility)}, and a utility is larger "
            "for better: give its negative, such as lambda outputs, y: -loss(outputs, y)"
        )
    n = len(y) if y.dim() else 0
    if n == 0 or tuple(x.shape) != (n, *arch.input_shape):
        raise ValueError(
            f"validation images {tuple(x.shape)} and {n} labels were given; "
            f"[N, {', '.join(map(str, arch.input_shape))}] and N >= 1 labels are expected"
        )
    if callable(utility):
        return torch.zeros(0)
    if len(outputs) != 1 or y.dim() != 1 or y.is_floating_point() or y.is_complex():
        raise ValueError(
            f"{arch.name} gives outputs [N, {', '.join(map(str, outputs))}] for labels of shape "
            f"{tuple(y.shape)} and type {y.dtype}; {utility} needs [N, classes] and N whole "
            "numbers: give a function of outputs and targets as utility"
        )
    if int(y.min()) < 0 or int(y.max()) >= arch.n_classes:
        raise ValueError(
            f"validation labels lie in [{int(y.min())}, {int(y.max())}]; classes 0 to "
            f"{arch.n_classes - 1} are expected"
        )
    counts = torch.bincount(y.cpu(), minlength=arch.n_classes)
    if utility == "class_accuracy" and bool((counts == 0).any()):
        raise ValueError(
            f"classes {torch.nonzero(counts == 0).flatten().tolist()} have no validation image, so "
            "their accuracy is undefined: draw the validation set by class, or use another utility "
            f"(labels may begin at 1, or the {arch.n_classes} outputs of {arch.name} be more than "
            "there are classes)"
        )
    return counts
