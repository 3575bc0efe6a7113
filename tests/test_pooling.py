import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedkit.learning.architectures import build
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.layers import MaxPool, convolve_and_pool, max_pool_2x2


@pytest.mark.parametrize("shape", [(3, 2, 6, 8), (1, 1, 5, 7), (2, 3, 2, 2), (4, 1, 9, 4)])
def test_pooling_is_torchs_ties_and_gradients_included(shape):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.integers(-2, 3, shape), dtype=torch.float32)  # ties everywhere
    weights = torch.tensor(rng.normal(size=(*shape[:2], shape[2] // 2, shape[3] // 2)))
    gradients = []
    for pool in (max_pool_2x2, F.max_pool2d):
        leaf = x.clone().requires_grad_()
        out = pool(leaf, 2)
        assert torch.equal(out, F.max_pool2d(x, 2))
        gradients.append(torch.autograd.grad((out * weights).sum(), leaf)[0])
    assert torch.equal(*gradients)
    with torch.no_grad():
        assert torch.equal(max_pool_2x2(x), F.max_pool2d(x, 2))


def test_a_nan_stays_visible():
    x = torch.zeros(1, 1, 2, 2)
    x[0, 0, 1, 0] = torch.nan
    assert torch.isnan(max_pool_2x2(x)).all()


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
            got = convolve_and_pool(x, weight, added, stride, padding, size)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
        for large in (torch.nan, torch.inf, 3e38):
            assert convolve_and_pool(x * large, weight, added, 1, 0, 2) is None
    assert convolve_and_pool(x, weight, added, 1, 0, 2) is None  # with gradients


def test_a_model_that_overflows_shows_its_nan():
    arch = build("lenet5", (1, 28, 28), 3)
    params = arch.init(np.random.default_rng(0))[None].repeat(2, 1)
    params[1] *= 1e25
    x = torch.tensor(np.random.default_rng(2).normal(size=(9, 1, 28, 28)), dtype=torch.float32)
    y = torch.zeros(9, dtype=torch.int64)
    losses = Evaluator(arch, x, y, "negative_loss").utilities(params)
    assert np.isfinite(losses[0])
    assert np.isnan(losses[1])
