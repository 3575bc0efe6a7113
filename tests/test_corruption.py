from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refusals
from rounding import assert_trained_alike
from test_federation import FEDAVG, LOCAL, ran, toy

import fedkit as fk
from fedkit.federated.adversaries import (
    Backdoor,
    FeatureNoise,
    FreeRider,
    LabelFlip,
    LabelNoise,
    LabelPermutation,
    RandomData,
    RandomUpdate,
    ScaledUpdate,
)

RNG = np.random.default_rng
X = torch.arange(40 * 1 * 4 * 5, dtype=torch.float32).view(40, 1, 4, 5)
Y = torch.tensor([0, 1, 2, 3, 4] * 8)
PLAN = fk.Plan(2, 4, LOCAL)


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
    same = (x == X).flatten(1).all(dim=1)
    assert torch.equal(y[same], Y[same])


def test_updates_by_hand():
    honest = torch.tensor([3.0, 4.0, 0.0])
    assert float(RandomUpdate().update(honest, RNG(0)).norm()) == pytest.approx(5)
    assert float(RandomUpdate(2.0).update(honest, RNG(0)).norm()) == pytest.approx(10)
    assert FreeRider().update(honest, RNG(0)).tolist() == [0, 0, 0]


def test_what_is_sent_is_a_copy_of_what_was_trained():
    trained = torch.ones(3, 4)
    sent = toy().with_adversaries({2: FreeRider()}).sent(trained, [0, 2, 3], fk.Streams(0))
    assert sent.sum(dim=1).tolist() == [4, 0, 4]
    assert (trained == 1).all()


def test_a_later_change_of_a_clients_data_takes_the_place_of_the_first():
    once = toy().with_transforms({0: LabelFlip(3), 2: LabelFlip(3)})
    twice = once.with_transforms({0: lambda x, y, rng: (x, 0 * y)})
    assert not twice.client_data(0)[1].any()
    assert torch.equal(twice.client_data(2)[1], once.client_data(2)[1])


def test_a_cast_acts_on_its_own_clients_only():
    honest = toy()
    federation = honest.with_adversaries({0: LabelFlip(3), 2: FreeRider(), 4: RandomUpdate()})
    assert federation.with_adversaries({2: FreeRider()}).attacks == federation.attacks
    assert torch.equal(federation.client_data(0)[1], 2 - honest.client_data(0)[1])
    assert torch.equal(federation.client_data(3)[1], honest.client_data(3)[1])

    seen = []

    plan, probe = replace(PLAN, rounds=1), lambda r, valuation: seen.append(r)
    for f in (honest, federation):
        ran(FEDAVG, federations=[f], plan=plan, seeds=[5], probe=probe)
    before, after = (r.updates for r in seen)
    assert seen[1].participants.tolist() == [0, 2, 3, 4]
    assert not torch.equal(before[0], after[0])  # trained on flipped labels
    assert (after[1] == 0).all()  # the free-rider
    assert_trained_alike(after[2], before[2], torch.zeros_like(before[2]))  # an honest client
    assert after[3].norm() == pytest.approx(float(before[3].norm()), rel=1e-5)
    assert not torch.equal(before[3], after[3])


def test_an_attack_of_a_round_sees_what_adversaries_sent():
    seen = []

    def attack(r):
        seen.append(r.updates[r.participants == 2])
        return r.updates

    riding = [toy().with_adversaries({2: FreeRider()})]
    ran(FEDAVG, federations=riding, plan=PLAN, seeds=[5], attack=attack)
    assert len(seen) == PLAN.rounds
    assert not torch.cat(seen).any()


flipped = toy().with_transforms({0: LabelFlip(3)})


test_bad_input = refusals(
    (lambda: flipped.with_adversaries({0: LabelPermutation(3)}), r"\[0\] have an attack of"),
    (lambda: LabelPermutation(1), "n_classes is 1"),
    (lambda: LabelNoise(0.5, 1), "n_classes is 1"),
    (lambda: LabelNoise(-0.1, 5), "share is -0.1"),
    (lambda: FeatureNoise(2.0), "share is 2"),
    (lambda: FeatureNoise(float("nan")), "share is nan"),
    (lambda: RandomData(0), "n_classes is 0"),
    (lambda: Backdoor(0.5, target=-3), "target is -3"),
    (lambda: Backdoor(1.5), "share is 1.5"),
    (lambda: RandomUpdate(float("nan")), "scale is nan"),
    (lambda: RandomUpdate(-1.0), "scale is -1"),
    (lambda: ScaledUpdate("x"), "factor is 'x'"),
    (
        lambda: (
            toy()
            .with_adversaries({0: FreeRider(), 2: FreeRider()})
            .with_adversaries({3: FreeRider(), 4: FreeRider()})
        ),
        "leave one",
    ),
    (lambda: toy().with_adversaries({7: FreeRider()}), r"clients \[7\] do not exist"),
    (lambda: toy().with_adversaries(dict.fromkeys([0, 2, 3, 4], FreeRider())), "leave one"),
)


def test_noisy_labels_are_any_of_the_others():
    many = Y.repeat(50)
    _, noisy = LabelNoise(1.0, 5)(X.repeat(50, 1, 1, 1), many, RNG(0))
    found = np.bincount(((noisy - many) % 5).numpy(), minlength=5)
    expected = len(many) / 4
    assert found[0] == 0
    assert np.abs(found[1:] - expected).max() < 4.5 * (0.75 * expected) ** 0.5
