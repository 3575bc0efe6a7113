from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_trained_alike
from test_federation import MLP, toy

from fedkit.federated.adversaries import (
    Adversaries,
    Backdoor,
    FreeRider,
    LabelFlip,
    LabelNoise,
    LabelPermutation,
    RandomData,
    RandomUpdate,
)
from fedkit.federated.policies import NoValue, SizeWeighted, UniformSelection
from fedkit.federated.retraining import train_with_sizes
from fedkit.federated.rounds import Plan, Strategy, run
from fedkit.learning.training import LocalSGD
from fedkit.streams import Streams

RNG = np.random.default_rng
X = torch.arange(40 * 1 * 4 * 5, dtype=torch.float32).view(40, 1, 4, 5)
Y = torch.tensor([0, 1, 2, 3, 4] * 8)
EVERYBODY = Strategy(UniformSelection(), NoValue(), SizeWeighted())
PLAN = Plan(2, 4, LocalSGD(lr=0.2, batch_size=4))


def test_flipped_labels_are_mirrored():
    x, y = LabelFlip(5)(X, Y, RNG(0))
    assert x is X
    assert y[:5].tolist() == [4, 3, 2, 1, 0]


def test_a_permutation_has_no_fixed_point_and_is_the_clients_own():
    orders = {tuple(LabelPermutation(5)(X, Y, RNG(s))[1][:5].tolist()) for s in range(20)}
    assert len(orders) > 5
    for order in orders:
        assert sorted(order) == [0, 1, 2, 3, 4]
        assert all(a != b for a, b in enumerate(order))


@pytest.mark.parametrize("share", [0, 0.1, 0.29, 0.4, 1])  # 0.29 of 40 are 11.6
def test_noise_changes_exactly_its_share_of_the_labels(share):
    _, y = LabelNoise(share, 5)(X, Y, RNG(0))
    assert int((y != Y).sum()) == round(40 * share)
    assert set(y.tolist()) <= set(range(5))
    x, y = RandomData(5)(X, Y, RNG(0))
    assert (x.shape, x.dtype, set(y.tolist())) == (X.shape, torch.float32, set(range(5)))


def test_a_backdoor_marks_its_share():
    x, y = Backdoor(0.25, target=3)(X, Y, RNG(0))
    marked = (x[:, 0, 1:, 2:] == X.max()).all(dim=(1, 2))
    assert 10 <= int(marked.sum()) <= 11  # the brightest image may look marked by itself
    assert (y[marked & (x != X).flatten(1).any(1)] == 3).all()
    assert torch.equal(x[~marked], X[~marked])


def test_updates_by_hand():
    honest = torch.tensor([3.0, 4.0, 0.0])
    assert float(RandomUpdate().update(honest, RNG(0)).norm()) == pytest.approx(5)
    assert float(RandomUpdate(2.0).update(honest, RNG(0)).norm()) == pytest.approx(10)
    assert FreeRider().update(honest, RNG(0)).tolist() == [0, 0, 0]


def test_what_is_sent_is_a_copy_of_what_was_trained():
    trained = torch.ones(3, 4)
    sent = Adversaries.of((FreeRider(), [5])).sent(trained, [4, 5, 6], Streams(0))
    assert sent.sum(dim=1).tolist() == [4, 0, 4]
    assert (trained == 1).all()


def test_a_later_change_of_a_clients_data_takes_the_place_of_the_first():
    once = toy().with_transforms({0: LabelFlip(3), 2: LabelFlip(3)})
    twice = once.with_transforms({0: lambda x, y, rng: (x, 0 * y)})
    assert not twice.client_data(0)[1].any()
    assert torch.equal(twice.client_data(2)[1], once.client_data(2)[1])


def test_a_cast_acts_on_its_own_clients_only():
    honest = toy()
    adversaries = Adversaries.of((LabelFlip(3), [0]), (FreeRider(), [2]), (RandomUpdate(), [4]))
    kinds = ["LabelFlip", "honest", "FreeRider", "honest", "RandomUpdate"]
    assert [adversaries.kind(i) for i in range(5)] == kinds
    federation = adversaries.data(honest)
    assert torch.equal(federation.client_data(0)[1], 2 - honest.client_data(0)[1])
    assert torch.equal(federation.client_data(3)[1], honest.client_data(3)[1])

    seen = []

    def probe(r, v):
        seen.append(r)
        return {}

    plan = replace(PLAN, rounds=1)
    for f, attack in ((honest, None), (federation, adversaries.attack)):
        run([f], MLP, EVERYBODY, plan, [5], attack=attack, probe=probe)
    before, after = (r.updates for r in seen)
    assert seen[1].participants.tolist() == [0, 2, 3, 4]
    assert not torch.equal(before[0], after[0])  # trained on flipped labels
    assert (after[1] == 0).all()  # the free-rider
    assert_trained_alike(after[2], before[2], torch.zeros_like(before[2]))  # an honest client
    assert after[3].norm() == pytest.approx(float(before[3].norm()), rel=1e-5)
    assert not torch.equal(before[3], after[3])


def test_half_a_cast_is_refused_and_what_it_does_not_need_is_not():
    both = Adversaries.of((LabelFlip(3), [0]), (FreeRider(), [2]))
    sent, held = (Adversaries({i: both.attacks[i]}) for i in (2, 0))

    def play(f, attack=None):
        return run([f], MLP, EVERYBODY, replace(PLAN, rounds=1), [5], attack=attack)

    def retrain(f, adversaries=None):
        sizes = np.broadcast_to(f.sizes, (1, 1, f.n_clients))
        return train_with_sizes(f, MLP, PLAN.local, sizes, adversaries=adversaries)

    for cast, call, given in (
        (both, play, lambda r: both.attack(r)), (sent, play, sent.attack), (held, play, None),
        (sent, retrain, sent), (held, retrain, None),
    ):  # fmt: skip
        call(cast.data(toy()), given)
    play(toy(), sent.attack)  # nobody misuses data
    for call in (play, retrain):
        with pytest.raises(ValueError, match=r"clients \[2\] of the federation .* pass attack="):
            call(both.data(toy()))
    for call, given in ((play, both.attack), (retrain, both)):
        with pytest.raises(ValueError, match=r"clients \[0\] of the adv.* pass adversaries\.data"):
            call(toy(), given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Adversaries.of((FreeRider(), [1]), (LabelFlip(3), [1])),
            "client 1 is given two attacks",
        ),
        (lambda: Adversaries.of((FreeRider(), [7])).data(toy()), r"clients \[7\] do not exist"),
        (lambda: Adversaries.of((FreeRider(), [0, 2, 3, 4])).data(toy()), "at least one honest"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_backdoor_relabels_what_it_marks_and_nothing_else():
    x, y = Backdoor(0.25, target=3)(X, Y, RNG(0))
    same = (x == X).flatten(1).all(dim=1)
    assert torch.equal(y[same], Y[same])


def test_noisy_labels_are_any_of_the_others():
    many = Y.repeat(50)
    _, noisy = LabelNoise(1.0, 5)(X.repeat(50, 1, 1, 1), many, RNG(0))
    found = np.bincount(((noisy - many) % 5).numpy(), minlength=5)
    expected = len(many) / 4
    assert found[0] == 0
    assert np.abs(found[1:] - expected).max() < 4.5 * (0.75 * expected) ** 0.5
