"""Federations of arrays that are already divided among clients."""

import numpy as np
import pytest
import torch

import fedkit as fk
from fedkit.federated.adversaries import LabelNoise


def pair(n, seed, columns=4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, columns))
    return x, (x[:, 0] > 0).astype(int)


def test_clients_keep_what_they_brought():
    clients = [pair(7, 0), pair(0, 1), pair(5, 2)]
    made = fk.federation_from_arrays(clients, pair(6, 3), pair(4, 4))
    assert made.sizes.tolist() == [7, 0, 5]
    assert made.input_shape == (1, 1, 4)
    for i, (x, y) in enumerate(clients):
        x_i, y_i = made.client_data(i)
        assert torch.equal(x_i[:, 0, 0], torch.from_numpy(x).float())
        assert y_i.tolist() == y.tolist()
    assert (len(made.x_val), len(made.y_test), made.n_classes) == (4, 6, 2)
    assert len(fk.federation_from_arrays(clients, pair(6, 3)).y_val) == 0
    yes_or_no = [(x, y > 0) for x, y in clients]
    assert fk.federation_from_arrays(yes_or_no, pair(6, 3)).y.tolist() == made.y.tolist()
    images = [(torch.zeros(3, 2, 2), [0, 1, 4])]
    shown = fk.federation_from_arrays(images, (np.zeros((1, 2, 2)), [0]), n_classes=6)
    assert (shown.input_shape, shown.n_classes) == ((1, 2, 2), 6)


def test_they_are_valued_by_both_papers():
    clients = [pair(40, k) for k in range(4)]
    mine = fk.federation_from_arrays(clients, pair(50, 9), pair(50, 8))
    mine = mine.with_transforms({3: LabelNoise(1.0, mine.n_classes)})
    model = fk.build("mlp-8", mine.input_shape, mine.n_classes)
    plan = fk.Plan(4, 4, fk.LocalSGD(lr=0.5, batch_size=10))
    run = fk.run([mine], model, fk.FedTSV().strategy(), plan, seeds=[0], progress=False)
    assert run.clients_frame().groupby("client").value.sum().idxmin() == 3
    from fedkit.methods.fedccea import fit_aam, simulate

    local = fk.LocalSGD(lr=0.5, batch_size=10)
    found = fit_aam(simulate(mine, model, local, simulations=20, rounds=3, progress=False))
    assert found.quality.shape == (4,)


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([], "no client has data"),
        ([pair(0, 0)], "no client has data"),
        ([pair(3, 0), pair(3, 0, columns=5)], "client 1: a sample has the shape"),
        ([pair(3, 0), (np.full((2, 4), np.nan), [0, 1])], "client 1: features that are not finite"),
        ([(np.full((2, 4), 1e300), [0, 1])], "client 0: features that are not finite"),
        ([(np.zeros((2, 4)), [0, 0.5])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)), [0, -1])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)), [0, np.nan])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)), [0, np.inf])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)), [0, 1e30])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)) * 1j, [0, 1])], "client 0: complex128 and int64; expected numbers"),
        ([(np.zeros((2, 4)), ["a", "b"])], "client 0: float64 and <U1; expected numbers"),
        ([(np.zeros((2, 4)), [0])], "client 0: features of shape"),
        ([(np.zeros(2), [0, 1])], "client 0: features of shape"),
        ([(np.zeros((2, 4)),)], "client 0: 1 arrays"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_refused(clients, says):
    with pytest.raises(ValueError, match=says):
        fk.federation_from_arrays(clients, pair(3, 1))


def test_a_label_beyond_the_classes_is_refused():
    with pytest.raises(ValueError, match="there is a label 1; n_classes is 1"):
        fk.federation_from_arrays([pair(9, 0)], pair(3, 1), n_classes=1)
