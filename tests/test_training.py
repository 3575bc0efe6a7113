"""Stacked local training against a plain loop over clients with torch.nn and torch.optim."""

import numpy as np
import pytest
import torch
from refusals import refused
from rounding import assert_trained_alike
from test_models import lenet, mlp
from torch import nn

from fedkit.learning import training
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD, train_clients

SIZES = [37, 0, 16, 5, 40]


MODULES = {
    "mlp-9": lambda: mlp(64, 9, 4),
    "mlp-9-6": lambda: mlp(64, 9, 6, 4),
    "lenet5": lambda: lenet(1, 2, 2, 64, classes=4),
}


def clients(sizes=SIZES):
    rng = np.random.default_rng(11)
    return [
        (
            torch.from_numpy(rng.standard_normal((n, 1, 8, 8), dtype=np.float32)),
            torch.from_numpy(rng.integers(0, 4, n)),
        )
        for n in sizes
    ]


def generators(n=5):
    return [np.random.default_rng([5, i]) for i in range(n)]


def plain(name, start, data, config, rng):
    """One client, the way a textbook would train it."""
    x, y = data
    model = MODULES[name]()
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    anchor = [p.detach().clone() for p in model.parameters()]
    optimiser = torch.optim.SGD(
        model.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay
    )
    done, epoch = 0, 0
    while len(y) and (done < config.steps if config.steps is not None else epoch < config.epochs):
        order = rng.permutation(len(y))
        for i in range(0, len(y), config.batch_size):
            if config.steps is not None and done == config.steps:
                break
            batch = torch.from_numpy(order[i : i + config.batch_size])
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            for p, a in zip(model.parameters(), anchor, strict=True):
                loss = loss + config.proximal / 2 * (p - a).square().sum()
            loss.backward()
            optimiser.step()
            done += 1
        epoch += 1
    return nn.utils.parameters_to_vector(model.parameters()).detach()


CONFIGS = {
    "plain": LocalSGD(0.1, batch_size=8, epochs=2),
    "momentum": LocalSGD(0.05, momentum=0.9, batch_size=8),
    "decay": LocalSGD(0.1, weight_decay=0.05, batch_size=16),
    "proximal": LocalSGD(0.1, proximal=0.5, batch_size=7, epochs=3),
    "everything": LocalSGD(0.05, 0.8, 0.02, 8, 2, proximal=0.3),
    "steps": LocalSGD(0.1, momentum=0.5, batch_size=16, steps=7),
    "full batch": LocalSGD(0.1, batch_size=1000, epochs=3),
    "no steps": LocalSGD(0.1, steps=0),
    "no epochs": LocalSGD(0.1, epochs=0),
}


@pytest.fixture(params=[1, 128], ids=["one by one", "stacked"])
def stack(request, monkeypatch):
    """How many clients are one program, as on a CPU and on CUDA."""
    monkeypatch.setattr(training, "_stack_size", lambda *_: request.param)


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", MODULES)
def test_equals_a_plain_loop(name, config):
    arch, data = build(name, (1, 8, 8), 4), clients()
    start = torch.stack([arch.init(np.random.default_rng(i)) for i in range(len(data))])
    kept = start.clone()
    got = train_clients(arch, start, data, config, generators())
    for i, rng in enumerate(generators()):
        expected = plain(name, start[i], data[i], config, rng)
        assert_trained_alike(got[i], expected, start[i])
    assert torch.equal(got[1], start[1])  # no data: unchanged
    still = config.steps == 0 or config.epochs == 0
    assert torch.equal(got[0], start[0]) if still else (got[0] - start[0]).abs().max() > 1e-3
    assert torch.equal(start, kept)


@pytest.mark.parametrize("name", ["mlp-9", "resnet20"])
@pytest.mark.usefixtures("stack")
def test_a_client_does_not_depend_on_its_neighbours(name):
    arch, data = build(name, (1, 8, 8), 4), clients([9, 21, 14])
    start = arch.init(np.random.default_rng(0)).expand(3, -1)
    config = LocalSGD(0.05, momentum=0.9, batch_size=8)
    together = train_clients(arch, start, data, config, generators(3))
    one = train_clients(arch, start[2:], data[2:], config, generators(3)[2:])
    assert_trained_alike(one[0], together[2], start[2])


@pytest.mark.usefixtures("stack")
def test_an_overflow_stays_with_its_client():
    arch, data = build("mlp-9", (1, 8, 8), 4), clients([20, 20, 20])
    data[1] = (data[1][0] * 1e30, data[1][1])
    start = arch.init(np.random.default_rng(0)).expand(3, -1)
    config = LocalSGD(1.0, batch_size=8, epochs=2)
    got = train_clients(arch, start, data, config, generators(3))
    assert torch.isfinite(got).all(dim=1).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["mlp-9", "lenet5"])
def test_labels_are_whole_numbers_of_any_type(name):
    arch = build(name, (1, 28, 28), 3)
    x = torch.rand(5, *arch.input_shape, generator=torch.Generator().manual_seed(0))
    y, start = torch.arange(5) % 3, arch.init(np.random.default_rng(0))[None]

    def trained(labels):
        rng = [np.random.default_rng(1)]
        return train_clients(arch, start, [(x, labels)], LocalSGD(0.1), rng, device="cpu")

    for kind in (torch.int32, torch.uint8, torch.int16):
        assert torch.equal(trained(y.to(kind)), trained(y))
    refused(r"expected whole numbers from 0", trained, y.float())


def test_a_rate_beyond_all_floats_is_refused():
    refused("expected a finite number", LocalSGD, 10**400)


def test_clients_that_do_not_match_are_refused():
    arch, data = build("mlp-9", (1, 8, 8), 4), clients()
    start = arch.init(np.random.default_rng(0)).expand(len(data), -1)
    with pytest.raises(ValueError, match="one of each per client"):
        train_clients(arch, start, data[:3], LocalSGD(0.1), generators())
