"""Utilities of coalition models on one validation set.

The model of a coalition is linear in the clients' updates, and so are the outputs of its first
linear or convolutional layer, before any activation.  The first layer of ``2^k`` models is then
one matrix product of coalition weights with k + 1 outputs that are computed once.  A max pool
behind it is a maximum over strided convolutions, so it too is taken on whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedkit.learning.architectures import Architecture
from fedkit.learning.first_layer import FirstLayer
from fedkit.learning.layers import Linear, run_layers
from fedkit.learning.workers import for_each

__all__ = ["Evaluator", "Prepared"]

Utility = Literal["accuracy", "negative_loss", "class_accuracy"]

# Bytes that a group of coalitions, and one activation of one model, may fill on a CPU: shares of
# its last-level cache (chosen by measurement).
_CPU_GROUP_BYTES = 1 << 26
_CPU_TILE_BYTES = 1 << 24
# Patches of all images are kept up to here; beyond, they are made anew for every block.
_CPU_PATCH_BYTES = 1 << 26


@dataclass
class Prepared:
    """One round's base and updates on the device, made by :meth:`Evaluator.prepare`.

    `first` holds the first layer's outputs once they were needed, if they fit in memory.
    """

    base: Tensor
    updates: Tensor
    first: Tensor | None = None


class Evaluator:
    """Utility of many models on one validation set.

    Parameters
    ----------
    arch : Architecture
    x : float32 tensor ``[N, C, H, W]``
        Validation images, at least one.
    y : int64 tensor ``[N]``
    utility : {"accuracy", "negative_loss", "class_accuracy"}
        Share of correct predictions in [0, 1]; minus the mean cross-entropy in nats; or the
        accuracy on each class, a vector.  A model with a NaN among its logits has the utility NaN.
    device : optional
        CUDA if there is one, otherwise the CPU.
    memory_mb : int, optional
        Bound on the working memory of one call, in MiB, beside parameters and images; the
        default is 1024 on the CPU and 8192 on CUDA.  Results do not depend on it (up to the
        rounding of float32).
    path : {"auto", "stacked", "loop"}
        Whether the layers behind the first run for many coalitions at once.  "auto" does so on
        CUDA and for architectures without a second convolution, as measured.

    Raises
    ------
    ValueError
        If the validation set is empty or misshapen, the utility is unknown, or
        `class_accuracy` is asked for and a class has no validation image.
    """

    def __init__(
        self,
        arch: Architecture,
        x: Tensor,
        y: Tensor,
        utility: Utility = "accuracy",
        *,
        device: str | torch.device | None = None,
        memory_mb: int | None = None,
        path: Literal["auto", "stacked", "loop"] = "auto",
    ) -> None:
        counts = _check_validation(arch, x, y, utility)
        if memory_mb is not None and memory_mb < 1:
            raise ValueError(f"memory_mb is {memory_mb}; at least 1 is expected")
        if path not in ("auto", "stacked", "loop"):
            raise ValueError(f'path is {path!r}; expected "auto", "stacked" or "loop"')
        self.arch, self.utility = arch, utility
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        cuda = self.device.type == "cuda"
        self._bytes = (memory_mb or (8192 if cuda else 1024)) << 20
        self.x = x.to(self.device, torch.float32).contiguous()
        self.y = y.to(self.device)
        self._counts = counts.to(self.device, torch.float64)
        self._head = FirstLayer.of(arch)
        rest = self._head.rest if self._head else [layer for _, layer in arch.layers]
        flat = all(isinstance(layer, Linear) or not layer.specs for layer in rest)
        self._stacked = path == "stacked" or (path == "auto" and (cuda or flat))
        self._peak = 3 * 4 * arch.widest  # bytes of live activations per image and model
        self._patch = self._head.patch if self._head and not cuda else 0
        self._patches: Tensor | None = None
        self._block = self._head.block(self.device) if self._head else 1

    def utilities(self, params: Tensor) -> np.ndarray:
        """Utility of each model of ``[B, P]``: float64 ``[B]``, or ``[B, classes]``."""
        models = torch.as_tensor(params, dtype=torch.float32, device=self.device)
        if models.dim() != 2 or models.shape[1] != self.arch.n_parameters:
            raise ValueError(
                f"models have shape {tuple(models.shape)}; [B, {self.arch.n_parameters}] is "
                f"expected for {self.arch.name}: params[None] makes a stack of one model"
            )
        return self._run(models, None, direct=True)

    def prepare(self, base: Tensor, updates: Tensor) -> Prepared:
        """Move one round's parameters to the device; base ``[P]``, updates ``[k, P]``."""
        return Prepared(base.to(self.device, torch.float32), updates.to(self.device, torch.float32))

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
        # Preparing costs about k + 1 models: too dear for a few coalitions of a round.
        few = len(weights) <= len(prepared.updates) and prepared.first is None
        rows = torch.as_tensor(weights, dtype=torch.float32, device=self.device)
        return self._run(rows, prepared, direct=self._head is None or few)

    @torch.no_grad()
    def _run(self, rows: Tensor, prepared: Prepared | None, direct: bool) -> np.ndarray:
        """Utilities of models ``[B, P]``, or of coalitions ``[B, k]`` of what was prepared."""
        wide = self.utility == "class_accuracy"
        outputs = self.arch.n_classes if wide else 1
        sums = torch.zeros(len(rows), outputs, dtype=torch.float64, device=self.device)
        for lo, hi in self._image_blocks(prepared, direct):
            first: Tensor | None = None
            if prepared is not None and not direct:
                first = self._first(prepared, lo, hi)
            elif self._patch:
                first = self._patches_of(lo, hi)
            for start, stop in self._tiles(lo, hi):
                groups = self._row_groups(rows, stop - start, direct)
                add = partial(self._add, sums, rows, prepared, first, start, stop, lo)
                if self.device.type == "cpu":
                    for_each(add, groups)
                else:
                    for group in groups:
                        add(group)
        out: np.ndarray = (sums / self._counts if wide else sums[:, 0] / len(self.y)).cpu().numpy()
        return out

    def _image_blocks(self, prepared: Prepared | None, direct: bool) -> Iterator[tuple[int, int]]:
        """Blocks of images, outside the loop over coalitions, which all read the same outputs."""
        # Three quarters of the memory for what the coalitions share, the rest for their groups.
        per_image = 4 * self._peak
        if prepared is not None and not direct and self._head:
            outputs = 4 * self._head.size * (1 + len(prepared.updates))
            per_image = max(per_image, outputs * 2)
        step = max(1, self._bytes // per_image)
        step = -(-step // self._block) * self._block
        if direct and self._patch and self._head:
            per_image = 4 * self._patch * (self._head.width // self._head.shape[0])
            kept = min(_CPU_PATCH_BYTES, self._bytes // 4) // per_image
            if kept < len(self.x):
                step = max(1, min(step, kept // 8))
        for lo in range(0, len(self.x), step):
            yield lo, min(lo + step, len(self.x))

    def _tiles(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Tiles of a block whose activations of one model stay in a CPU's cache."""
        step = hi - lo
        if self.device.type == "cpu":
            step = min(step, max(64, _CPU_TILE_BYTES // (4 * self.arch.widest)))
        step = -(-step // self._block) * self._block
        for first in range(lo, hi, step):
            yield first, min(first + step, hi)

    def _row_groups(self, rows: Tensor, images: int, direct: bool) -> Iterator[slice]:
        """Groups of coalitions, bounded in memory and enough of them for every core."""
        per_row = 4 * self.arch.n_parameters + (images * self._peak if self._stacked else 0)
        if self._head and (self._patch or not direct):
            per_row = 4 * self.arch.n_parameters
            per_row += images * (8 * self._head.width + (self._peak if self._stacked else 0))
        most = max(1, self._bytes // (4 * per_row))
        if self.device.type == "cpu":
            threads = torch.get_num_threads()
            share = -(-len(rows) // threads)
            most = max(1, min(most // threads, max(8, _CPU_GROUP_BYTES // per_row), share))
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

    def _patches_of(self, lo: int, hi: int) -> Tensor:
        """Patches of images lo to hi; kept when they cover all images."""
        assert self._head is not None
        if self._patches is not None:
            return self._patches
        patches = self._head.patches(self.x[lo:hi])
        if (lo, hi) == (0, len(self.x)):
            self._patches = patches
        return patches

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
        """Add the scores of a group of models on images lo to hi to `sums`.

        `first` are the first layer's outputs on the images from `origin` on, or their patches
        (three axes).
        """
        rows, y = rows[group], self.y[lo:hi]
        head = self._head if first is not None else None
        done = head.n_parameters if head else 0
        skip = 0 if first is None or first.dim() == 3 else done
        params = rows
        if prepared is not None:
            params = torch.addmm(prepared.base[skip:], rows, prepared.updates[:, skip:])
        layers, x = [layer for _, layer in self.arch.layers], self.x[lo:hi]
        if head and first is not None:
            hidden = torch.empty(len(rows), (hi - lo) * head.width, device=self.device)
            if skip:
                blocks = slice((lo - origin) // self._block, -(-(hi - origin) // self._block))
                head.combine(rows, first[blocks], hidden)
            else:
                head.convolve(params[:, :done], first[lo - origin : hi - origin], hidden)
            layers, x = list(head.rest), hidden.view(len(rows), hi - lo, *head.shape)
        tensors = self.arch.split(params[:, done - skip :], done)
        if self._stacked:
            sums[group] += self._score(run_layers(layers, tensors, x), y)
            return
        for b, target in enumerate(sums[group].split(1)):
            own = [t[b : b + 1] for t in tensors]
            target += self._score(run_layers(layers, own, x[b : b + 1] if head else x), y)

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


def _check_validation(arch: Architecture, x: Tensor, y: Tensor, utility: str) -> Tensor:
    """Refuse what cannot be evaluated; return the number of images of each class."""
    if utility not in ("accuracy", "negative_loss", "class_accuracy"):
        raise ValueError(
            f'utility is {utility!r}; expected "accuracy", "negative_loss" or "class_accuracy"'
        )
    if len(x) != len(y) or len(y) == 0 or tuple(x.shape[1:]) != arch.input_shape:
        raise ValueError(
            f"validation images {tuple(x.shape)} and {len(y)} labels were given; "
            f"[N, {', '.join(map(str, arch.input_shape))}] and N >= 1 labels are expected"
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
            "their accuracy is undefined: draw the validation set by class, or use another utility"
        )
    return counts
