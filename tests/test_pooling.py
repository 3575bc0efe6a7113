import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedkit.layers import MaxPool
from fedkit.pooling import max_pool_2x2


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
