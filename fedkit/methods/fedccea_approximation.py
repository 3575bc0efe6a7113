"""The Accuracy Approximation Model of FedCCEA as a network (section 3.2.1, appendix A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = ["AccuracyApproximation", "padded_inputs", "train_by_adam"]

FloatArray = npt.NDArray[np.float64]
#: of the mean shared weight; less is a weight of 0
_NOTHING = 1e-3


def padded_inputs(sizes: FloatArray) -> FloatArray:
    """Inputs of the AAM: for every round what was used up to it, and zeros behind (Figure 3).

    Parameters
    ----------
    sizes : float64[S, R, n]

    Returns
    -------
    float64[S * R, R, n]; row ``s * R + r`` holds rounds 0 to r of simulation s
    """
    if np.ndim(sizes) != 3:
        raise ValueError(f"sizes have shape {np.shape(sizes)}; expected (S, R, n)")
    s, r, n = sizes.shape
    past = np.tril(np.ones((r, r)))[None, :, :, None]  # [1, now, round, 1]
    return np.asarray((past * sizes[:, None]).reshape(s * r, r, n))


class AccuracyApproximation(nn.Module):
    """The AAM: shared weights, then two fully connected layers (section 3.2.1, appendix A).

    Parameters
    ----------
    clients, rounds : int
    nodes : int
        Nodes of the first fully connected layer; 10 in the paper.
    sigmoid : {"shared", "connected"}
        Layer with the only non-linearity: "the first layer of the AAM" (appendix A), so the shared
        weights (section 3.2.1), or the first fully connected one.
    rng : numpy.random.Generator
        Initial weights.
    """

    def __init__(
        self,
        clients: int,
        rounds: int,
        nodes: int = 10,
        sigmoid: Literal["shared", "connected"] = "shared",
        *,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        if sigmoid not in ("shared", "connected"):
            raise ValueError(f'sigmoid is {sigmoid!r}; expected "shared" or "connected"')
        if min(clients, rounds, nodes) < 1:
            raise ValueError(
                f"clients is {clients}, rounds {rounds} and nodes {nodes}; all are at least 1"
            )
        self.sigmoid = sigmoid

        def uniform(*shape: int, low: float, high: float) -> nn.Parameter:
            return nn.Parameter(torch.from_numpy(rng.uniform(low, high, shape)).float())

        reach = 1 / np.sqrt(rounds)
        self.quality = uniform(clients, low=0.0, high=1 / np.sqrt(clients))  # omega
        self.inner = uniform(rounds, nodes, low=-reach, high=reach)
        self.inner_bias = nn.Parameter(torch.zeros(nodes))
        self.outer = uniform(nodes, low=-1 / np.sqrt(nodes), high=1 / np.sqrt(nodes))
        self.outer_bias = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Predict accuracies ``[B]`` from padded sizes ``[B, R, n]``."""
        per_round = inputs @ self.quality
        if self.sigmoid == "shared":
            per_round = torch.sigmoid(per_round)
        hidden = per_round @ self.inner + self.inner_bias
        if self.sigmoid == "connected":
            hidden = torch.sigmoid(hidden)
        return hidden @ self.outer + self.outer_bias

    @property
    def per_round(self) -> FloatArray | None:
        """a: what a round's sigmoid adds to the accuracy; None with the sigmoid behind the nodes.

        Without a sigmoid between them the two connected layers are one linear function.
        """
        if self.sigmoid == "connected":
            return None
        return np.asarray((self.inner @ self.outer).detach().double().numpy())

    @torch.no_grad()
    def accuracies(self, sizes: FloatArray) -> FloatArray:
        """Return the approximated accuracies, float64[S, R], for scaled sizes float64[S, R, n]."""
        found = self(torch.from_numpy(padded_inputs(sizes)).float())
        return np.asarray(found.double().numpy().reshape(sizes.shape[:2]))

    @torch.no_grad()
    def constrain(self) -> None:
        """Set negative shared weights to 0 (appendix A)."""
        self.quality.clamp_(min=0.0)


@torch.no_grad()
def train_by_adam(
    starts: Sequence[AccuracyApproximation],
    sizes: FloatArray,
    accuracy: FloatArray,
    rng: np.random.Generator,
    *,
    lr: float,
    batch_size: int,
    epochs: int,
    watch: Callable[[int, float], None] | None = None,
) -> tuple[AccuracyApproximation, list[float], FloatArray]:
    """Train the network from several starts at once, by mini-batches, and take the best.

    The rate falls to 0 along half a cosine.  At the paper's constant one the loss of EMNIST's model
    (0.05) does not settle, and in many starts all shared weights end at 0 for good.  A weight at
    its bound jitters a last step above it: what ends below a thousandth of the mean weight is 0.

    Parameters
    ----------
    starts : sequence of AccuracyApproximation
        Networks that differ in their initial weights only; trained in place.
    sizes : float64[S, R, n]
    accuracy : float64[S, R]
    rng : numpy.random.Generator
        Order of the batches, the same for all starts.
    lr, batch_size, epochs, watch
        As in :func:`fedkit.methods.fedccea.fit_aam`.

    Returns
    -------
    AccuracyApproximation
        The one with the least loss after the last epoch.
    losses : list of float
        Its mean squared error after each epoch.
    predicted : float64[S, R]

    Raises
    ------
    ValueError
        If a number is out of its range, or every start diverges.
    """
    whole = all(isinstance(k, Integral) and k >= 1 for k in (batch_size, epochs))
    if not (np.isfinite(lr) and lr > 0 and whole and starts):
        raise ValueError(
            f"lr is {lr}, batch_size {batch_size}, epochs {epochs} and starts {len(starts)}; "
            "expected a positive rate and whole numbers from 1"
        )
    inputs = torch.from_numpy(padded_inputs(sizes)).float()
    targets = torch.from_numpy(accuracy.reshape(-1)).float()
    weights = torch.stack([parameters_to_vector(s.parameters()).detach() for s in starts])
    weights.grad = torch.zeros_like(weights)
    many = _Networks(weights, starts[0])
    many.outer_bias.fill_(float(targets.mean()))
    step = _adam(weights)
    history = []
    for epoch in range(epochs):
        rate = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for batch in torch.from_numpy(rng.permutation(len(targets))).split(batch_size):
            many.slope(inputs[batch], targets[batch])
            step(rate)
            many.quality.clamp_(min=0.0)  # appendix A, as `constrain`
        history.append((many.predict(inputs) - targets).square().mean(dim=1).double().numpy())
        if not np.isfinite(history[-1]).any():
            raise ValueError(f"Adam diverges with lr {lr}; take a smaller one")
        if watch is not None:
            watch(epoch, float(np.nanmin(history[-1])))
    many.quality.mul_(many.quality >= _NOTHING * many.quality.mean(dim=1, keepdim=True))
    best = int(np.nanargmin(history[-1]))
    vector_to_parameters(weights[best], starts[best].parameters())
    losses = [float(epoch[best]) for epoch in history]
    return starts[best], losses, starts[best].accuracies(sizes)


def _adam(weights: Tensor) -> Callable[[float], None]:
    """Return a step of Adam (Kingma and Ba 2015, Algorithm 1) on weights with a ``grad``.

    As ``torch.optim.Adam`` with its defaults, whose import alone takes seconds.
    """
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    steps = 0

    def step(lr: float) -> None:
        nonlocal steps
        steps += 1
        assert weights.grad is not None
        first.lerp_(weights.grad, 0.1)
        second.mul_(0.999).addcmul_(weights.grad, weights.grad, value=0.001)
        root = (second.sqrt() / (1 - 0.999**steps) ** 0.5).add_(1e-8)
        weights.addcdiv_(first, root, value=-lr / (1 - 0.9**steps))

    return step


class _Networks:
    """Several networks of the same shape, and the slopes of their mean squared errors.

    The slopes are written out: on networks this small automatic differentiation takes several times
    as long as what it differentiates.

    Parameters
    ----------
    weights : float32[K, P]
        One network per row, in the order of ``like.parameters()``; with a ``grad``.
    like : AccuracyApproximation
    """

    def __init__(self, weights: Tensor, like: AccuracyApproximation) -> None:
        shapes = [p.shape for p in like.parameters()]

        def parts(rows: Tensor) -> list[Tensor]:
            pieces = rows.split([shape.numel() for shape in shapes], dim=1)
            return [p.view(len(rows), *shape) for p, shape in zip(pieces, shapes, strict=True)]

        assert weights.grad is not None
        self.connected = like.sigmoid == "connected"
        self.quality, self.inner, self.inner_bias, self.outer, self.outer_bias = parts(weights)
        self.slopes = parts(weights.grad)

    def predict(self, inputs: Tensor) -> Tensor:
        """Predict ``[K, B]`` from padded sizes ``[B, R, n]``."""
        return self._layers(inputs)[2]

    def _layers(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the shared layer, ``[K, B, R]``, the nodes, ``[K, B, H]``, and the last."""
        b, r, n = inputs.shape
        shared = (self.quality @ inputs.view(-1, n).T).view(-1, b, r)
        if not self.connected:
            shared.sigmoid_()
        hidden = torch.baddbmm(self.inner_bias[:, None], shared, self.inner)
        if self.connected:
            hidden.sigmoid_()
        last = torch.baddbmm(self.outer_bias[:, None, None], hidden, self.outer[..., None])
        return shared, hidden, last[..., 0]

    def slope(self, inputs: Tensor, targets: Tensor) -> None:
        """Put the slopes of the mean squared errors of a batch into the weights' ``grad``."""
        shared, hidden, predicted = self._layers(inputs)
        left = (predicted - targets) * (2 / len(targets))
        by_hidden = left[..., None] * self.outer[:, None]
        if self.connected:
            by_hidden *= hidden * (1 - hidden)
        by_shared = by_hidden @ self.inner.mT
        if not self.connected:
            by_shared *= shared * (1 - shared)
        found = (
            by_shared.flatten(1) @ inputs.flatten(0, 1),
            shared.mT @ by_hidden,
            by_hidden.sum(dim=1),
            (hidden.mT @ left[..., None])[..., 0],
            left.sum(dim=1),
        )
        for slope, value in zip(self.slopes, found, strict=True):
            slope.copy_(value)
