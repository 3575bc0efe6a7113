import numpy as np
import pytest
import torch
from refusals import refused
from tinydata import is_partition

import fedkit as fk
from fedkit import datasets as data
from fedkit.federated.federation import Federation, make_federation
from fedkit.federated.partition import IID, Dirichlet
from fedkit.streams import Streams


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def tailed(digits, scheme, seed):
    return make_federation(
        digits, 20, scheme, seed, validation=0.05, imbalance_factor=0.1, empty="refill"
    )


@pytest.fixture(scope="module")
def federation(digits):
    return tailed(digits, Dirichlet(0.1), 5)


def test_summary_by_hand():
    x = torch.zeros(6, 1, 2, 2)
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    clients = (np.array([0, 1, 2, 3]), np.array([4, 5]), np.empty(0, dtype=np.int64))
    f = Federation(x, y, clients, x, y, x, y, 3, "made up")
    assert f.summary() == {
        "clients": 3.0, "empty": 1.0, "smallest": 0.0, "median": 2.0, "largest": 4.0,
        "classes": 1.5, "dominance": 0.875,
    }  # fmt: skip


def test_federation_shapes(federation, digits):
    f = federation
    assert is_partition(list(f.clients), len(f.y))
    assert len(f.x) == len(f.y) < len(digits.y_train) - len(f.y_val)
    assert f.sizes.tolist() == f.label_counts.sum(1).tolist()
    assert f.sizes.min() >= 1
    assert f.label_counts.sum(0).tolist() == f.y.bincount().tolist()
    assert len(f.x_test) == 355
    assert f.y_val.unique().tolist() == list(range(10))
    x_3, y_3 = f.client_data(3)
    assert torch.equal(x_3, f.x[torch.from_numpy(f.clients[3])])
    assert y_3.bincount(minlength=10).tolist() == f.label_counts[3].tolist()
    refused(r"clients \[20\] do not exist", f.client_data, 20)


@pytest.mark.parametrize("part", ["train", "test"])
def test_validation_is_taken_away_from_where_it_comes_from(digits, part):
    f = make_federation(digits, 5, IID(), 0, validation=0.2, validation_from=part)
    train, test = (digits.to_float(x).flatten(1) for x in (digits.x_train, digits.x_test))
    whole, rest, other, kept = (
        (train, f.x, test, f.x_test) if part == "train" else (test, f.x_test, train, f.x)
    )
    assert len(f.x_val) == pytest.approx(0.2 * len(whole), abs=10)
    both = torch.cat([rest, f.x_val]).flatten(1)
    assert sorted(both.tolist()) == sorted(whole.tolist())
    assert sorted(kept.flatten(1).tolist()) == sorted(other.tolist())


def test_same_seed_same_federation(federation, digits):
    again = tailed(digits, Dirichlet(0.1), 5)
    assert torch.equal(again.x, federation.x)
    assert all(np.array_equal(a, b) for a, b in zip(again.clients, federation.clients, strict=True))
    assert not np.array_equal(tailed(digits, Dirichlet(0.1), 6).sizes, federation.sizes)
    # Another scheme under the same seed sees the same pool and the same validation images.
    iid = tailed(digits, IID(), 5)
    assert torch.equal(iid.x, federation.x)
    assert torch.equal(iid.x_val, federation.x_val)


def test_transforms_are_per_client_and_repeatable(federation):
    def flip(x, y, rng):
        return x, (y + int(rng.integers(1, 10))) % 10

    bad = federation.with_transforms({2: flip, 4: flip})
    assert not torch.equal(bad.client_data(2)[1], federation.client_data(2)[1])
    assert torch.equal(bad.client_data(3)[1], federation.client_data(3)[1])
    assert torch.equal(bad.y, federation.y)
    assert np.array_equal(bad.label_counts, federation.label_counts)
    expected = int(Streams(5).generator("client", 2, "transform").integers(1, 10))
    assert torch.equal(bad.client_data(2)[1], (federation.client_data(2)[1] + expected) % 10)


def test_a_transform_keeps_the_number_of_samples(federation):
    halved = federation.with_transforms({2: lambda x, y, rng: (x[::2], y[::2])})
    refused("transform of client 2 made", halved.client_data, 2)


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


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([pair(0, 0)], "no client has data"),
        ([pair(3, 0), pair(3, 0, columns=5)], "client 1: samples"),
        ([(np.full((2, 4), 1e300), [0, 1])], "client 0: features that are not finite"),
        ([(np.zeros((2, 4)), [0, 1e30])], "client 0: labels are not whole numbers from 0"),
        ([(np.zeros((2, 4)), [0, 2])], "n_classes is 2, and a label is 2"),
        ([(np.ma.masked_equal(np.eye(2, 4), 0), [0, 1])], "client 0: features that are not finite"),
        ([(np.eye(2, 4), np.ma.masked_equal([0, 1], 0))], "client 0: .* fill what is missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_refused(clients, says):
    refused(says, fk.federation_from_arrays, clients, pair(3, 1), n_classes=2)


@pytest.mark.parametrize(
    "dealt",
    [
        lambda n: [np.arange(n) % 3 == i for i in range(3)],
        lambda n: np.array_split(np.arange(n), 2),
        lambda n: [np.arange(9)] * 3,
        lambda n: np.array_split(np.arange(n) - 1, 3),
        lambda n: np.array_split(np.arange(n) + 1, 3),
        lambda n: np.array_split(np.arange(n) / 2, 3),
        lambda n: [np.eye(3, dtype=int)] * 3,
        lambda n: None,
    ],
    ids=["masks", "too few", "twice", "negative", "beyond", "fractions", "axes", "nothing"],
)
def test_what_an_own_partitioner_deals_is_a_partition(digits, dealt):
    class Mine:
        def split(self, y, n_clients, rng):
            return dealt(len(y))

    with pytest.raises(ValueError, match=r"^Mine dealt .*; expected 3 vectors of positions"):
        make_federation(digits, 3, Mine(), 0)
    dealt = lambda n: [[0, 2], [], [1]]  # noqa: E731 - lists will do
    assert make_federation(digits, 3, Mine(), 0).sizes.tolist() == [2, 0, 1]


def test_a_sentence_shows_no_whole_array():
    with pytest.raises(ValueError, match=r"^clients is dict of 1 \(a\); expected a list of"):
        fk.federation_from_arrays({"a": pair(300, 0)}, pair(3, 1))
    made = fk.federation_from_arrays([pair(7, 0)], pair(6, 3), pair(4, 4))
    policies = fk.UniformSelection(), fk.SizeAsValue(), fk.SizeWeighted()
    rest = fk.build("mlp-2", (1, 1, 4), 2), fk.Strategy(*policies), fk.Plan(1, 1, fk.LocalSGD(0.1))
    for given, told in ((made, "is Federation"), ([made, 3], "is list of 2")):
        with pytest.raises(ValueError, match=f"^federations {told}.* a list of feder") as caught:
            fk.run(given, *rest, [0])
        assert len(str(caught.value)) < 150


def test_a_data_frame_of_numbers_and_truth_values_is_numbers():
    pd = pytest.importorskip("pandas")
    x, y = pair(6, 0, columns=2)
    frame = pd.DataFrame({"age": x[:, 0], "member": y > 0})
    made = fk.federation_from_arrays([(frame, pd.array(y, dtype="Int64"))], (frame, y))
    assert made.x[:, 0, 0].tolist() == np.c_[x[:, 0], y].astype(np.float32).tolist()
    with pytest.raises(ValueError, match="client 0: features and labels have different indexes"):
        fk.federation_from_arrays([(frame, pd.Series(y)[::-1])], (frame, y))
    half = torch.tensor(x).bfloat16()
    made = fk.federation_from_arrays([(half, y)], (half, y))
    assert torch.equal(made.x[:, 0, 0], half.float())


def test_data_sets_and_loaders_are_taken_as_arrays_are():
    from torch.utils.data import DataLoader, TensorDataset

    x, y = torch.linspace(-1, 1, 240).reshape(60, 4), torch.arange(60) % 3
    parts = [slice(0, 20), slice(20, 40), slice(40, 50), slice(50, 60)]
    sets = [TensorDataset(x[part], y[part]) for part in parts]
    expected = fk.federation_from_arrays([(x[p], y[p]) for p in parts[:2]], *sets[2:])
    for made in (sets, [DataLoader(one, batch_size=7) for one in sets]):
        found = fk.federation_from_arrays(made[:2], *made[2:])
        for name in ("x", "y", "x_val", "y_val", "x_test", "y_test"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert found.sizes.tolist() == [20, 20]
