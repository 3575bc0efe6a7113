import numpy as np
import pytest
import torch
from rounding import assert_same_answers, assert_trained_alike
from test_federation import MLP, toy

import fedkit as fk
from fedkit.federated import sample_space as samplespace
from fedkit.federated.partition import QuantitySkew
from fedkit.federated.retraining import InOrder, train_with_sizes
from fedkit.federated.sample_space import SampleSpace, in_sample_space
from fedkit.streams import Streams

#: a small rate: at 0.2 training amplifies a change of 1e-7 of the start to 0.1
LOCAL = fk.LocalSGD(lr=0.05, batch_size=7, epochs=3)


@pytest.fixture(scope="module")
def clients():
    return fk.make_federation(
        fk.load("digits"), 4, QuantitySkew(1.0), 0, validation=0.1, empty="refill", min_size=10
    )


def network(f, name="mlp-8"):
    return fk.build(name, f.input_shape, f.n_classes)


@pytest.mark.parametrize("name", ["mlp-8", "mlp-12-6"])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("group", [1, 3, 16])
def test_updates_are_those_of_plain_training(clients, monkeypatch, name, epochs, group):
    monkeypatch.setattr(samplespace, "_GROUP", group)
    arch, local = network(clients, name), fk.LocalSGD(lr=0.2, batch_size=7, epochs=epochs)
    x, y = clients.client_data(0)
    used = np.array([5, 0, 20, 7, 1, 14, 13])  # full and broken batches, one sample, nobody
    rng = Streams(1).generator("models")
    start = torch.stack([arch.init(rng) for _ in used])
    share = torch.rand(len(used), generator=torch.Generator().manual_seed(0))
    parts = [(x[:k], y[:k]) for k in used]
    ended = fk.train_clients(arch, start, parts, local, [InOrder()] * len(used), device="cpu")
    total = [torch.ones_like(t) for t in arch.split(start)]
    space = SampleSpace(arch, (x, y), local, torch.device("cpu"))
    space.add_updates(arch.split(start), used, share, total)
    expected = 1 + share[:, None] * (ended - start)
    assert_trained_alike(arch.flatten(total), expected, torch.ones_like(expected))
    assert (ended - start).abs().max() > 0.1


def test_paths_agree_through_rounds(clients):
    rng = Streams(2).generator("sizes")
    sizes = np.floor(rng.random((4, 4, 4)) * (clients.sizes // 2 + 1)).astype(np.int64)
    sizes[1, 2] = 0  # a round in which nobody uses data
    sizes[2, :, 1] = 0  # a client that never does
    arch = network(clients, "mlp-12-6")
    found = {
        path: train_with_sizes(clients, arch, LOCAL, sizes, seed=3, device="cpu", path=path)
        for path in ("weights", "samples")
    }
    images = len(clients.y_test)
    assert_same_answers(found["samples"], found["weights"], images)
    assert found["samples"][1, 2] == found["samples"][1, 1]
    assert np.ptp(found["samples"][:, -1]) > 10 / images


@pytest.mark.parametrize("path", ["weights", "samples"])
def test_one_that_overflows_leaves_its_neighbours_alone(clients, path):
    sizes = np.zeros((3, 2, 4), dtype=np.int64)
    sizes[1] = clients.sizes
    local, arch = fk.LocalSGD(lr=1e30, batch_size=7), network(clients)
    found = train_with_sizes(clients, arch, local, sizes, device="cpu", path=path)
    alone = train_with_sizes(clients, arch, local, sizes[:1], device="cpu", path=path)
    assert_same_answers(found[[0, 2]], alone[[0, 0]], len(clients.y_test))
    assert (alone[0] != found[1]).all()


@pytest.mark.parametrize("path", ["weights", "samples"])
def test_who_weighs_nothing_may_overflow(clients, path):
    f = clients.with_transforms({1: lambda x, y, rng: (1e30 * x, y)})
    arch, found = network(f), []
    for used in (f.sizes, f.sizes * [1, 0, 1, 1]):
        found.append(
            train_with_sizes(
                f, arch, LOCAL, used[None, None], device="cpu", path=path, weights=[[1, 0, 1, 1]]
            )
        )
    assert_same_answers(*found, len(f.y_test))
    assert found[0].item() > 0.3  # it has learnt


def test_it_is_taken_where_it_applies(clients):
    wide, conv = network(clients), fk.build("lenet5", (1, 28, 28), 10)
    assert in_sample_space(wide, LOCAL, 64)
    assert not in_sample_space(wide, LOCAL, 65)  # digits have 64 pixels
    assert not in_sample_space(conv, LOCAL, 10)
    for other in (
        fk.LocalSGD(lr=0.1, momentum=0.9),
        fk.LocalSGD(lr=0.1, weight_decay=0.1),
        fk.LocalSGD(lr=0.1, proximal=0.1),
        fk.LocalSGD(lr=0.1, steps=3),
    ):
        assert not in_sample_space(wide, other, 10)


def test_a_path_that_cannot_serve_is_refused(clients):
    local, sizes = fk.LocalSGD(lr=0.1, momentum=0.9), np.ones((1, 1, 4), dtype=int)
    with pytest.raises(ValueError, match="needs linear layers and plain SGD"):
        train_with_sizes(clients, network(clients), local, sizes, path="samples")


def test_a_model_that_overflows_answers_with_the_first_class():
    f = toy()
    wild, everybody = fk.LocalSGD(lr=1e30, batch_size=4), f.sizes[None, None].repeat(3, 1)
    reached = train_with_sizes(f, MLP, wild, everybody, device="cpu")
    assert reached[0, -1] == pytest.approx(float((f.y_test == 0).double().mean()))
