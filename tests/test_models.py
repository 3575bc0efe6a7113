"""Layers and architectures against torch.nn with the same weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedkit.learning.architectures import build
from fedkit.learning.first_layer import FirstLayer
from fedkit.learning.layers import (
    Conv2d,
    MaxPool,
    convolve_and_pool,
    grown,
    largest,
    max_pool_2x2,
    run_layers,
)


class Block(nn.Module):
    """A basic residual block with GroupNorm, in the usual torch.nn way."""

    def __init__(self, c_in, c_out, stride, groups):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.GroupNorm(groups, c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, c_out),
        )
        self.skip = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.skip = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.GroupNorm(groups, c_out)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def resnet(widths, blocks, groups):
    layers: list[nn.Module] = [
        nn.Conv2d(3, widths[0], 3, 1, 1, bias=False),
        nn.GroupNorm(groups, widths[0]),
        nn.ReLU(),
    ]
    c_in = widths[0]
    for stage, c_out in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(c_in, c_out, 2 if stage and not block else 1, groups))
            c_in = c_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, 10))


def mlp(*sizes):
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolutional(channels, paddings, *sizes):
    layers: list[nn.Module] = []
    for (a, b), padding in zip(pairwise(channels), paddings, strict=True):
        layers += [nn.Conv2d(a, b, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *mlp(*sizes))


def lenet(c, first, second, flat, classes=10):
    return convolutional([c, 6, 16], [first, second], flat, 120, 84, classes)


CASES = {
    "mlp-20": ((1, 28, 28), lambda: mlp(784, 20, 10)),
    "mlp-20-7": ((3, 8, 8), lambda: mlp(192, 20, 7, 10)),
    "lenet5": ((1, 28, 28), lambda: lenet(1, 2, 0, 400)),
    "lenet5 ": ((3, 32, 32), lambda: lenet(3, 0, 0, 400)),
    "lenet5  ": ((1, 8, 8), lambda: lenet(1, 2, 2, 64)),
    "cnn": ((3, 32, 32), lambda: convolutional([3, 32, 64], [2, 2], 4096, 512, 10)),
    "resnet20": ((3, 32, 32), lambda: resnet((16, 32, 64), 3, 8)),
    "resnet18": ((3, 32, 32), lambda: resnet((64, 128, 256, 512), 2, 32)),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_a_torch_module(case):
    shape, make = CASES[case]
    arch, module = build(case.strip(), shape, 10), make()
    rng = np.random.default_rng(3)
    params = torch.stack([arch.init(rng) for _ in range(2)])
    params += 0.01 * torch.from_numpy(rng.standard_normal(params.shape, dtype=np.float32))
    own = torch.from_numpy(rng.standard_normal((2, 3, *shape), dtype=np.float32))
    with torch.no_grad():
        for x in (own, own[0]):  # images of each model, and images that both share
            logits = arch.forward(params, x)
            assert logits.shape == (2, 3, 10)
            for s in range(2):
                nn.utils.vector_to_parameters(params[s], module.parameters())
                reference = module(x[s] if x.dim() == 5 else x)
                torch.testing.assert_close(logits[s], reference, rtol=1e-4, atol=1e-5)
                alone = arch.forward(params[s : s + 1], x[s : s + 1] if x.dim() == 5 else x)
                torch.testing.assert_close(alone[0], reference, rtol=1e-4, atol=1e-5)


def test_init_is_pytorchs_default_rule_and_depends_on_the_generator_alone():
    arch = build("lenet5", (1, 28, 28), 10)
    first, again = (arch.init(np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(first, again)
    module = lenet(1, 2, 0, 400)
    for ours, theirs in zip(arch.split(first[None]), module.parameters(), strict=True):
        assert ours[0].shape == theirs.shape
        if ours.dim() > 2:
            bound = 1 / np.sqrt(theirs[0].numel())
            assert 0.8 * bound < ours.abs().max() <= bound


def test_flat_vectors_split_into_names_and_back():
    arch = build("lenet5", (1, 28, 28), 10)
    assert arch.n_parameters == 61706
    params = torch.arange(2 * arch.n_parameters, dtype=torch.float32).view(2, -1)
    named = arch.unflatten(params)
    assert list(named)[:2] == ["conv1.weight", "conv1.bias"]
    assert named["conv2.weight"].shape == (2, 16, 6, 5, 5)
    assert torch.equal(arch.flatten(list(named.values())), params)
    assert arch.unflatten(params[0])["fc3.bias"].shape == (10,)
    weight, bias = arch.last_layer(params)
    assert weight.shape == (2, 10, 84)
    assert torch.equal(bias, params[:, -10:])
    tail = arch.split(params[:, 156:], skip=156)
    assert torch.equal(tail[0], named["conv2.weight"])


@pytest.mark.parametrize(
    ("name", "side", "message"),
    [
        ("mlp-0", 28, "an unknown architecture"),
        ("mlp", 28, "an unknown architecture"),
        ("lenet5", 3, "at least 4 x 4"),
        ("resnet18", 4, "at least 8 x 8"),
    ],
)
def test_what_cannot_be_built_is_refused(name, side, message):
    with pytest.raises(ValueError, match=message):
        build(name, (1, side, side), 10)


def test_wrong_shapes_are_refused():
    arch = build("mlp-5", (1, 4, 4), 3)
    params = torch.zeros(2, arch.n_parameters)
    with pytest.raises(ValueError, match=r"params\[None\]"):
        arch.forward(params[0], torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="images have shape"):
        arch.forward(params, torch.zeros(6, 1, 5, 4))
    with pytest.raises(ValueError, match="images have shape"):
        arch.forward(params, torch.zeros(3, 6, 1, 4, 4))
    with pytest.raises(ValueError, match="parameters of length"):
        arch.unflatten(params[:, 1:])


@pytest.mark.parametrize("shape", [(3, 2, 6, 8), (1, 1, 5, 7), (2, 3, 2, 2), (4, 1, 9, 4)])
def test_pooling_is_torchs_ties_and_gradients_included(shape):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.integers(-2, 3, shape), dtype=torch.float32)  # ties everywhere
    weights = torch.tensor(rng.normal(size=(*shape[:2], shape[2] // 2, shape[3] // 2)))
    gradients = []
    for pool in (max_pool_2x2, lambda t: F.max_pool2d(t, 2)):
        leaf = x.clone().requires_grad_()
        out = pool(leaf)
        assert torch.equal(out, max_pool_2x2(x))  # without a gradient
        gradients.append(torch.autograd.grad((out * weights).sum(), leaf)[0])
    assert torch.equal(*gradients)


def test_other_sizes_take_torchs_kernel():
    x = torch.arange(2 * 3 * 1 * 6 * 6, dtype=torch.float32).view(2, 3, 1, 6, 6)
    expected = F.max_pool2d(x.flatten(0, 1), 3).view(2, 3, 1, 2, 2)
    assert torch.equal(MaxPool(3).forward((), x), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_and_its_pool_in_one_step(bias):
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.normal(size=(5, 6, 15, 14)), dtype=torch.float32)
    weight = torch.tensor(rng.normal(size=(7, 6, 5, 5)), dtype=torch.float32)
    added = torch.tensor(rng.normal(size=7), dtype=torch.float32) if bias else None
    with torch.no_grad():
        for stride, padding, size in ((1, 0, 2), (1, 2, 2), (2, 1, 3)):
            expected = F.max_pool2d(F.conv2d(x, weight, added, stride, padding), size)
            reach = grown(largest(x), weight, added)
            got = convolve_and_pool(x, weight, added, stride, padding, size, reach)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
        for large in (torch.nan, torch.inf, 3e38):
            beyond = grown(largest(x * large), weight, added)
            got = convolve_and_pool(x * large, weight, added, 1, 0, 2, beyond)
            expected = F.max_pool2d(F.conv2d(x * large, weight, added), 2)
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_bounds_are_of_absolute_values_and_count_the_bias():
    assert largest(torch.tensor([-3.0, 1.0])) == 3
    weight = torch.tensor([1.0, -2.0]).view(1, 2, 1, 1)
    assert grown(torch.tensor(2.0), weight, torch.tensor([-5.0])) == 11


def test_a_bound_of_the_images_is_none_of_what_a_layer_made_of_them():
    """A first convolution overflows, and infinity less infinity is NaN in three of four pixels."""
    layers = [Conv2d(1, 2, 1), Conv2d(2, 1, 1), MaxPool()]
    wide, difference = torch.tensor([1e30, 1e30]), torch.tensor([1.0, -1.0])
    own = [wide.view(1, 2, 1, 1, 1), torch.zeros(1, 2)]
    own += [difference.view(1, 1, 2, 1, 1), torch.zeros(1, 1)]
    x = torch.full((1, 1, 2, 2), 1e30)
    x[..., 0, 0] = 0.0
    with torch.no_grad():
        assert run_layers(layers, own, x, torch.tensor(1e30)).isnan().all()


def test_the_bound_of_convolutions_is_that_of_all_groups():
    head = FirstLayer.of(build("lenet5", (1, 28, 28), 10))
    params = torch.zeros(head.together + 1, head.n_parameters)
    params[-1] = 1.0  # alone in the second group
    out = torch.empty(len(params), 2 * head.width)
    with torch.no_grad():
        bound = head.convolve(params, torch.ones(2, 1, 28, 28), out)
    assert bound >= out.abs().max() > 0
