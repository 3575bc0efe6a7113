"""Local training in sample space: what a client's few samples do to a wide first layer.

Plain SGD moves the weights of the first layer inside the span of the client's images X.  With W the
weights that the client received and D the sum, sample by sample, of the gradients at the first
layer's outputs, the weights are ``W - lr D' X`` and the outputs on the client's own images are
``X W' - lr (X X') D``.  So the weights are touched twice in a round, at its beginning and at its
end; between them the Gram matrix of the images does, and all models that train on this client's
images share it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedkit.learning.models import Model
from fedkit.learning.training import Data, LocalSGD

__all__ = ["SampleSpace", "in_sample_space", "plain_and_dense"]

IntArray = npt.NDArray[np.int64]
#: models that train together, of similar sizes; more of them leave a CPU's cache
_GROUP = 16


def plain_and_dense(arch: Model, local: LocalSGD) -> bool:
    """Say whether sample space gives what local training gives: linear layers and plain SGD."""
    plain = local.momentum == local.weight_decay == local.proximal == 0 and local.steps is None
    return plain and arch.dense


def in_sample_space(arch: Model, local: LocalSGD, samples: int) -> bool:
    """Say whether :class:`SampleSpace` applies, and is cheaper.

    An output of the first layer costs about ``2 d`` products per sample and epoch on weights (d
    inputs), and here ``2 d`` once and up to `samples` in every epoch.
    """
    return plain_and_dense(arch, local) and samples <= math.prod(arch.input_shape)


class SampleSpace:
    """Train many models on the first samples of one client, in their order, by plain SGD.

    `arch` and `local` are such as :func:`plain_and_dense` takes; `data` are the client's images
    float32 [n, C, H, W] and labels int64 [n].
    """

    def __init__(self, arch: Model, data: Data, local: LocalSGD, device: torch.device) -> None:
        self.arch, self.local = arch, local
        self.x = data[0].flatten(1).to(device, torch.float32)
        self.gram = self.x @ self.x.T + 1.0  # the bias is the weight of an input that is always 1
        self.target = torch.nn.functional.one_hot(data[1], arch.n_classes).to(self.x)

    @torch.no_grad()
    def add_updates(
        self, models: list[Tensor], used: IntArray, share: Tensor, total: list[Tensor]
    ) -> None:
        """Train, and add ``share * (trained - models)`` to `total` in place.

        `models` and `total` are float32 tensors [B, ...] as ``arch.split`` gives them; each model
        trains on the first `used` samples, int64 [B].
        """
        order = np.argsort(-used, kind="stable")
        order = order[used[order] > 0]
        for lo in range(0, len(order), _GROUP):
            # Largest first: the models that still train are then always the first ones.
            rows = torch.from_numpy(order[lo : lo + _GROUP]).to(share.device)
            start = [t.index_select(0, rows) for t in models]  # a copy of whole rows
            updates = self._train(start, used[order[lo : lo + _GROUP]])
            for target, update in zip(total, updates, strict=True):
                weight = share[rows].view(-1, *[1] * (update.dim() - 1))
                target.index_add_(0, rows, update.mul_(weight))

    def _train(self, start: list[Tensor], used: IntArray) -> list[Tensor]:
        """Return the updates of S models; the first one trains on most samples."""
        lr, most, models = self.local.lr, int(used[0]), len(used)
        weight, bias, *below = start
        units, upper = weight.shape[1], [t.clone() for t in below]
        outputs = torch.addmm(bias.flatten(), self.x[:most], weight.flatten(0, 1).T)
        moved = torch.zeros_like(outputs)  # D, [sample, model * unit]
        for epoch in range(self.local.epochs):
            for a in range(0, most, self.local.batch_size):
                b, live = min(a + self.local.batch_size, most), int((used > a).sum())
                width = live * units
                z = outputs[a:b, :width]
                moving = most if epoch else a  # samples that have moved the weights so far
                if moving:
                    z = z.addmm(self.gram[a:b, :moving], moved[:moving, :width], alpha=-lr)
                count = torch.from_numpy(np.minimum(used[:live], b) - a)[:, None]
                mean = ((torch.arange(b - a) < count) / count).to(z)[..., None]
                delta = self._step(z.view(b - a, live, units), [u[:live] for u in upper], a, mean)
                moved[a:b, :width].view(b - a, live, units).add_(delta.transpose(0, 1))
        moved *= -lr
        torch.mm(moved.T, self.x[:most], out=weight.flatten(0, 1))  # W has done its service
        changed = [u.sub_(w) for u, w in zip(upper, below, strict=True)]
        return [weight, moved.sum(0).view(models, units), *changed]

    def _step(self, z: Tensor, upper: list[Tensor], first: int, mean: Tensor) -> Tensor:
        """One step of the upper layers in place; the gradient at z, ``[S, batch, units]``."""
        inputs, out = [], z.transpose(0, 1)
        for i in range(0, len(upper), 2):
            inputs.append(torch.relu(out))
            out = torch.baddbmm(upper[i + 1][:, None], inputs[-1], upper[i].transpose(1, 2))
        delta = torch.softmax(out, dim=-1)
        delta = (delta - self.target[first : first + len(z)]) * mean
        for i in range(len(upper) - 2, -1, -2):
            below = inputs.pop()
            lower = torch.bmm(delta, upper[i])  # with the weights as they were
            upper[i].baddbmm_(delta.transpose(1, 2), below, alpha=-self.local.lr)
            upper[i + 1].sub_(delta.sum(1), alpha=self.local.lr)
            delta = lower * (below > 0)
        return delta
