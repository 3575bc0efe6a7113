"""Local training of many clients at once, equal to training them one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedkit.checks import brief, having, real, whole, whole_or_none
from fedkit.learning.device import find_device, for_each, samples_of
from fedkit.learning.models import Model

Data = tuple[Tensor, Tensor]
Batch = tuple[Tensor, Tensor, Tensor]  # images, labels, weights of the samples
State = list[tuple[Tensor, Tensor, Tensor]]  # each parameter, its momentum, where it started


@dataclass(frozen=True)
class LocalSGD:
    """How a client trains: mini-batch SGD on the mean cross-entropy.

    Parameters
    ----------
    lr, momentum, weight_decay : float
        As in ``torch.optim.SGD`` (no dampening, no Nesterov).
    batch_size : int
        Samples per step; the last batch of an epoch may be smaller.
    epochs, steps : int
        Passes over the client's data, each in a fresh random order, or exactly so many steps.
    proximal : float
        mu of FedProx (Li et al., 2020, Eq. 2): adds ``mu / 2 ||w - w_0||^2`` to the loss.
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None
    proximal: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "proximal"):
            real(name, getattr(self, name), 0.0)
        if real("momentum", self.momentum, 0.0, 1.0) == 1.0:
            raise ValueError("momentum is 1, which never forgets a step; expected less")
        whole("batch_size", self.batch_size, 1)
        whole("epochs", self.epochs, 0)
        whole_or_none("steps", self.steps, 0)

    def n_steps(self, size: int) -> int:
        """Number of SGD steps of a client with `size` samples."""
        if size == 0:
            return 0
        return self.epochs * -(-size // self.batch_size) if self.steps is None else self.steps

    def batches(self, size: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Sample indices of every step: consecutive pieces of one permutation per epoch."""
        steps = self.n_steps(size)
        batches: list[np.ndarray] = []
        while len(batches) < steps:
            order = rng.permutation(size)
            batches += [order[i : i + self.batch_size] for i in range(0, size, self.batch_size)]
        return batches[:steps]


def train_clients(
    model: Model,
    start: Tensor,
    datasets: Sequence[Data],
    config: LocalSGD,
    rngs: Sequence[np.random.Generator],
    *,
    device: str | torch.device | None = None,
) -> Tensor:
    """Train S models, each on a data set of its own.

    Parameters
    ----------
    model : Model
        It trains in training mode: batches give BatchNorm its statistics, which are part of the
        rows, and dropout draws from a client's own stream.
    start : tensor ``[S, P]``
        Row that each client receives.
    datasets : sequence of S pairs ``(x_i, y_i)``, or of DataLoaders or Datasets
        Samples ``[n_i, ...]`` and labels int64 ``[n_i]``; who has none is returned unchanged.
    config : LocalSGD
    rngs : sequence of S numpy generators
        Client i's batches come from ``rngs[i]`` alone.
    device : optional
        CUDA if there is one, otherwise the CPU.

    Returns
    -------
    tensor ``[S, P]`` on the CPU.  Parameters that overflowed are returned as they are.
    """
    having("model", model, "copied", "keys")
    datasets = [samples_of(*own if isinstance(own, tuple) else (own,)) for own in datasets]
    _check(model, start, datasets, rngs)
    where = find_device(device)
    model = model.on(where)
    result = start.detach().to("cpu", model.row_dtype, copy=True)
    sizes = [len(y) for _, y in datasets]
    steps = np.array([config.n_steps(n) for n in sizes])
    # Longest first: the clients that still train are then always a prefix of the stack.
    order = [int(i) for i in np.argsort(-steps, kind="stable") if steps[i] > 0]
    size = _stack_size(model, config, where)
    if where.type == "cpu":  # something to do for every core
        size = max(1, min(size, -(-len(order) // torch.get_num_threads())))
    groups = [order[i : i + size] for i in range(0, len(order), size)]
    chance = not (model.dense or model.stackable_in_training)

    def work(group: list[int]) -> None:
        batches = [config.batches(sizes[i], rngs[i]) for i in group]
        data = [datasets[i] for i in group]
        with _chance(rngs[group[0]], where, chance):
            result[group] = _train(model, result[group].to(where), data, config, batches).cpu()

    for_each(work, groups, parallel=where.type == "cpu" and not chance)
    return result


@contextmanager
def _chance(rng: np.random.Generator, device: torch.device, needed: bool) -> Iterator[None]:
    """Let torch's global generator, of which dropout draws, follow a client's own stream."""
    if not needed:
        yield
        return
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(rng.integers(1 << 62)))
        yield


# Bytes of parameters of one stack: on a CPU larger ones leave its L2 cache (``benchmarks.speed``).
_CPU_STACK_BYTES = 1 << 23
_CUDA_STACK_BYTES = 1 << 33


def _stack_size(model: Model, config: LocalSGD, device: torch.device) -> int:
    """How many clients to train as one program; samples that see each other are never stacked."""
    parameters = 4 * model.size
    if device.type == "cpu":  # where grouped convolutions are slower than client by client
        return max(1, _CPU_STACK_BYTES // parameters) if model.dense else 1
    if not model.dense and not model.stackable_in_training:
        return 1
    # Weights, gradients, moments and anchors; activations and their gradients, twice for slack.
    per_client = 6 * parameters + 16 * model.widest * config.batch_size * len(model.keys)
    return max(1, _CUDA_STACK_BYTES // per_client)


def _check(
    model: Model, start: Tensor, datasets: Sequence[Data], rngs: Sequence[np.random.Generator]
) -> None:
    if not isinstance(start, Tensor) or start.dim() != 2 or start.shape[1] != model.size:
        raise ValueError(f"start is {np.shape(start)}; expected a row for each, [S, {model.size}]")
    if not len(start) == len(datasets) == len(rngs):
        raise ValueError(
            f"{len(start)} models, {len(datasets)} data sets and {len(rngs)} generators; "
            f"expected one of each per client"
        )
    classes = model.n_classes
    for i, (x, y) in enumerate(datasets):
        if len(x) != len(y) or (len(y) and tuple(x.shape[1:]) != model.input_shape):
            raise ValueError(
                f"datasets[{i}] has images {tuple(x.shape)} and {len(y)} labels; expected "
                f"{[len(y), *model.input_shape]}"
            )
        if y.is_floating_point() or (len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes):
            raise ValueError(
                f"datasets[{i}] has labels {brief(y)}; expected whole numbers from 0 to "
                f"{classes - 1}"
            )


def _feed(
    data: list[Data], batches: list[list[np.ndarray]], device: torch.device, dtype: torch.dtype
) -> Iterator[Batch]:
    """Images ``[S, b, ...]``, labels ``[S, b]`` and weights ``[S, b]`` of each step's live clients.

    A padded sample repeats the client's own first one and weighs zero.
    """
    x, y = (torch.cat(part) if len(part) > 1 else part[0] for part in zip(*data, strict=True))
    x, y = x.to(device, dtype), y.to(device, torch.int64)
    offsets = np.cumsum([0] + [len(labels) for _, labels in data[:-1]])
    for t in range(len(batches[0])):
        rows = [b[t] for b in batches if t < len(b)]
        lengths = np.array([len(row) for row in rows])[:, None]
        width = int(lengths.max())
        index = np.stack(
            [np.pad(row, (0, width - len(row)), constant_values=row[0]) for row in rows]
        )
        index += offsets[: len(rows), None]
        share = ((np.arange(width) < lengths) / lengths).astype(np.float32)
        where = torch.from_numpy(index).to(device)
        images = x.index_select(0, where.flatten()).unflatten(0, where.shape)
        yield images, y[where], torch.from_numpy(share).to(device)


def _train(
    model: Model, start: Tensor, data: list[Data], config: LocalSGD, batches: list[list[np.ndarray]]
) -> Tensor:
    """Train a stack whose clients are sorted by their number of steps, longest first."""
    weights = [t.contiguous() for t in model.split(start)]
    anchors = [w.clone() for w in weights] if config.proximal else weights
    moments = [torch.zeros_like(w) for w in weights] if config.momentum else weights
    step = _dense_step if model.dense else _autograd_step
    own = model.copied(training=True)
    for batch in _feed(data, batches, start.device, model.example.dtype):
        live = len(batch[1])
        parts = zip(weights, moments, anchors, strict=True)
        step(own, config, batch, [(w[:live], v[:live], w0[:live]) for w, v, w0 in parts])
    return model.flatten(weights)


def _autograd_step(model: Model, config: LocalSGD, batch: Batch, state: State) -> None:
    """One step in place, in the order of ``torch.optim.SGD``; the forward pass changes buffers."""
    x, y, share = batch
    leaves = [w.detach().requires_grad_() for w, _, _ in state[: model.n_parameter_tensors]]
    buffers = [w.detach() for w, _, _ in state[model.n_parameter_tensors :]]
    with torch.enable_grad():  # whatever the caller has switched off
        logits = model.call([*leaves, *buffers], x, stacked=len(y) > 1)
        if len(y) == 1:
            loss = F.cross_entropy(logits.squeeze(0), y.squeeze(0))
        else:
            losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
            loss = (losses.view_as(share) * share).sum()
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    for g, (w, v, w0) in zip(gradients, state, strict=False):
        if config.proximal:
            g = g + config.proximal * (w - w0)
        if config.weight_decay:
            g = g.add(w, alpha=config.weight_decay)
        if config.momentum:
            g = v.mul_(config.momentum).add_(g)
        w.sub_(g, alpha=config.lr)


def _dense_step(model: Model, config: LocalSGD, batch: Batch, state: State) -> None:
    """One step of a multi-layer perceptron, with the update inside the gradient's product.

    ``W <- (1 - lr (wd + mu)) W - lr G' X`` is one call: no gradient is written to memory.
    """
    x, y, share = batch
    inputs = [x.flatten(2)]
    for i in range(0, len(state), 2):
        weight, bias = state[i][0], state[i + 1][0]
        out = torch.baddbmm(bias[:, None], inputs[-1], weight.transpose(1, 2))
        inputs.append(out.relu_() if i + 2 < len(state) else out)
    delta = torch.softmax(inputs.pop(), dim=-1)
    delta.scatter_add_(2, y[..., None], delta.new_full((*y.shape, 1), -1.0))
    delta *= share[..., None]
    lr, decay = config.lr, config.weight_decay + config.proximal
    keep = 1 - lr * decay
    for i in range(len(state) - 2, -1, -2):
        below = inputs.pop()
        # The gradient of the inputs needs the weights as they were.
        upper = torch.bmm(delta, state[i][0]) if i else delta
        for (w, v, w0), left in ((state[i], delta.transpose(1, 2)), (state[i + 1], None)):
            target, beta, alpha = (v, config.momentum, 1.0) if config.momentum else (w, keep, -lr)
            if left is None:  # of a bias
                target.mul_(beta).add_(delta.sum(1), alpha=alpha)
            else:
                target.baddbmm_(left, below, beta=beta, alpha=alpha)
            if config.momentum:
                if decay:
                    v.add_(w, alpha=decay)
                if config.proximal:
                    v.sub_(w0, alpha=config.proximal)
                w.sub_(v, alpha=lr)
            elif config.proximal:
                w.add_(w0, alpha=lr * config.proximal)
        delta = upper * (below > 0) if i else upper
