"""Networks and rows: named networks by their parts, kernels against torch, states by key."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn
from torch.nn import functional as F

from fedkit.learning.chains import _bound as bound
from fedkit.learning.chains import convolve_and_pool, max_pool_2x2, run_chain
from fedkit.learning.models import build, model_of, state_of


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


def resnet(widths, blocks, groups):
    """The network as a function of its parameters in their order, by torch's functions alone."""

    def run(parameters, x):
        left = iter(parameters)

        def normed(x, stride, padding):
            x = F.conv2d(x, next(left), None, stride, padding)
            return F.group_norm(x, groups, next(left), next(left))

        x = torch.relu(normed(x, 1, 1))
        for stage in range(len(widths)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                body = normed(torch.relu(normed(x, stride, 1)), 1, 1)
                x = torch.relu(body + (normed(x, 2, 0) if stride == 2 else x))
        return F.linear(x.mean((2, 3)), next(left), next(left))

    return run


def as_function(module):
    def run(parameters, x):
        named = zip((key for key, _ in module.named_parameters()), parameters, strict=True)
        return torch.func.functional_call(module, dict(named), (x,))

    return run


CASES = {
    "mlp-20": ((1, 28, 28), as_function(mlp(784, 20, 10))),
    "mlp-20-7": ((3, 8, 8), as_function(mlp(192, 20, 7, 10))),
    "lenet5": ((1, 28, 28), as_function(lenet(1, 2, 0, 400))),
    "lenet5 ": ((3, 32, 32), as_function(lenet(3, 0, 0, 400))),
    "lenet5  ": ((1, 8, 8), as_function(lenet(1, 2, 2, 64))),
    "cnn": ((3, 32, 32), as_function(convolutional([3, 32, 64], [2, 2], 4096, 512, 10))),
    "resnet20": ((3, 32, 32), resnet((16, 32, 64), 3, 8)),
    "resnet18": ((3, 32, 32), resnet((64, 128, 256, 512), 2, 32)),
}


@pytest.mark.parametrize("case", CASES)
def test_networks_are_what_their_papers_say(case):
    shape, plain = CASES[case]
    model, rng = build(case.strip(), shape, 10), np.random.default_rng(3)
    rows = torch.stack([model.init(rng) for _ in range(2)])
    rows += 0.01 * torch.from_numpy(rng.standard_normal(rows.shape, dtype=np.float32))
    own = torch.from_numpy(rng.standard_normal((2, 3, *shape), dtype=np.float32))
    with torch.no_grad():
        for x in (own, own[0]):  # images of each model, and images that both share
            for stacked in (False, True):
                logits = model.forward(rows, x, stacked=stacked)
                assert logits.shape == (2, 3, 10)
                for s in range(2):
                    expected = plain(model.split(rows[s]), x[s] if x.dim() == 5 else x)
                    torch.testing.assert_close(logits[s], expected, rtol=1e-4, atol=1e-5)


def test_initial_parameters_are_pytorchs_default_rule_and_depend_on_the_generator_alone():
    state = torch.random.get_rng_state()
    model = build("lenet5", (1, 28, 28), 10)
    first, again = (model.init(np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.random.get_rng_state())
    assert first.numel() == model.size == model.n_parameters == 61706
    for ours, theirs in zip(model.split(first), lenet(1, 2, 0, 400).parameters(), strict=True):
        assert ours.shape == theirs.shape
        if ours.dim() > 1:
            bound = 1 / np.sqrt(theirs[0].numel())
            assert 0.8 * bound < ours.abs().max() <= bound
    normed = build("resnet20", (3, 8, 8), 10)
    named = dict(zip(normed.keys, normed.split(normed.init(np.random.default_rng(0))), strict=True))
    assert named["1.weight"].eq(1).all()
    assert named["1.bias"].eq(0).all()


def test_rows_split_into_tensors_and_back():
    model = build("lenet5", (1, 28, 28), 10)
    rows = torch.arange(2 * model.size, dtype=torch.float32).view(2, -1)
    tensors = model.split(rows)
    assert tensors[2].shape == (2, 16, 6, 5, 5)
    assert torch.equal(model.flatten(tensors), rows)
    weight, bias = model.last_layer(rows)
    assert weight.shape == (2, 10, 84)
    assert torch.equal(bias, rows[:, -10:])
    assert torch.equal(model.row(model.state(rows[1])), rows[1])


def test_a_row_has_parameters_first_and_then_running_statistics():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    net[1].running_mean += 3.0
    model = model_of(net, torch.ones(5, 4))
    row = model.row(net)
    assert model.keys[-2:] == ("1.running_mean", "1.running_var")
    flat = nn.utils.parameters_to_vector(net.parameters())
    assert torch.equal(model.parameters_of(row), flat.detach())
    assert row[model.n_parameters :].tolist() == [3.0] * 3 + [1.0] * 3
    assert all(torch.equal(net.state_dict()[k], t) for k, t in model.state(row).items())


def test_keys_are_matched_by_name_and_what_differs_is_named(tmp_path):
    net = mlp(4, 4, 4)
    model, state = model_of(net, torch.ones(5, 4)), net.state_dict()
    expected = model.row(net)
    torch.save(state, tmp_path / "client.pt")
    backwards = dict(reversed(state.items()))
    arrays = {key: tensor.numpy() for key, tensor in state.items()}
    for given in (backwards, arrays, tmp_path / "client.pt", expected.numpy()):
        assert torch.equal(model.row(given), expected)
    assert state_of(7) == 7
    for given, told in (
        ({**state, "9.bias": torch.ones(1)}, r"missing keys \[\], keys too many \['9.bias'\]"),
        (dict(list(state.items())[1:]), r"missing keys \['1.weight'\]"),
        ({**state, "1.bias": torch.ones(3)}, r"\['1.bias'\] is .*1, 1, 1.* is expected"),
        ({**state, "1.bias": torch.ones(4) + 1j}, "is expected"),
        (expected[1:], r"has shape \(39,\); expected \(40,\)"),
    ):
        refused(told, model.row, given)


@pytest.mark.parametrize(
    ("name", "side", "message"),
    [
        ("mlp-0", 28, "an unknown architecture"),
        ("mlp", 28, "an unknown architecture"),
        ("lenet5", 3, "needs 4 x 4 or more"),
        ("resnet18", 4, "needs 8 x 8 or more"),
    ],
)
def test_what_cannot_be_built_is_refused(name, side, message):
    refused(message, build, name, (1, side, side), 10)


# ------------------------------------------------------------------------------- kernels


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


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_and_its_pool_in_one_step(bias):
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.normal(size=(5, 6, 15, 14)), dtype=torch.float32)
    weight = torch.tensor(rng.normal(size=(7, 6, 5, 5)), dtype=torch.float32)
    added = torch.tensor(rng.normal(size=7), dtype=torch.float32) if bias else None
    with torch.no_grad():
        for stride, padding, size in ((1, 0, 2), (1, 2, 2), (2, 1, 3)):
            layer = nn.Conv2d(6, 7, 5, stride, padding, bias=bias)
            expected = F.max_pool2d(F.conv2d(x, weight, added, stride, padding), size)
            got = convolve_and_pool(layer, weight, added, x=x, size=size)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
        layer = nn.Conv2d(6, 7, 5, bias=bias)
        for large in (torch.nan, torch.inf, 3e38):
            got = convolve_and_pool(layer, weight, added, x=x * large, size=2)
            expected = F.max_pool2d(F.conv2d(x * large, weight, added), 2)
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_bounds_are_of_absolute_values_and_count_the_bias():
    weight = torch.tensor([1.0, -2.0]).view(1, 2, 1, 1)
    assert bound(torch.tensor([-3.0, 1.0]), weight, torch.tensor([-5.0])) == 3 * 3 + 5


def test_a_bound_of_the_images_is_none_of_what_a_layer_made_of_them():
    """A first convolution overflows, and infinity less infinity is NaN in three of four pixels."""
    layers = [nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 1), nn.MaxPool2d(2)]
    wide, difference = torch.tensor([1e30, 1e30]), torch.tensor([1.0, -1.0])
    own = [wide.view(2, 1, 1, 1), torch.zeros(2), difference.view(1, 2, 1, 1), torch.zeros(1)]
    x = torch.full((1, 1, 2, 2), 1e30)
    x[..., 0, 0] = 0.0
    with torch.no_grad():
        assert run_chain(layers, own, x).isnan().all()
