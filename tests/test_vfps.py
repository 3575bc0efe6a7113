"""VF-PS: the estimate of mutual information and the scores, by hand and against theory."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif

from fedkit.fedvalue import vfps
from fedkit.fedvalue.vfps import draw_groups, mixed_information, vfps_scores
from fedkit.streams import Streams


def test_mixed_information_by_hand():
    apart = mixed_information([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1], k=1)
    assert apart == pytest.approx(1 / 2 + 1 / 3)  # psi(4) - psi(2)
    mixed = mixed_information([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], k=1)
    by_hand = digamma(4) - digamma(2) + digamma(1) - (digamma(2) + digamma(3)) / 2
    assert mixed == pytest.approx(by_hand)


def test_mixed_information_agrees_with_theory_and_with_another_program():
    rng = Streams(0).generator("test")
    y = rng.integers(0, 2, size=1500)
    x = rng.normal(size=1500) + 2.0 * y
    grid = np.linspace(-7, 9, 20001)
    one, two = (np.exp(-((grid - c) ** 2) / 2) / np.sqrt(2 * np.pi) for c in (0, 2))
    mean = (one + two) / 2
    truth = sum(trapezoid(p * np.log(p / mean), grid) / 2 for p in (one, two))
    ours = mixed_information(x[:, None], y)
    assert abs(ours - truth) < 0.06
    assert ours == pytest.approx(mutual_info_classif(x[:, None], y, random_state=0)[0], abs=1e-6)


def test_score_is_the_mean_over_the_groups_of_a_party(monkeypatch):
    monkeypatch.setattr(vfps, "draw_groups", lambda parties, groups, seed: [1, 3, 3, 2])
    seen = []

    def information(x, y, k, seed):
        seen.append(x.shape[1])
        return {1: 1.0, 2: 2.0, 3: 3.0}[x.shape[1]]

    monkeypatch.setattr(vfps, "mixed_information", information)
    scores = vfps_scores([np.zeros((4, 1)), np.zeros((4, 2))], [0, 1, 0, 1])
    assert scores.tolist() == pytest.approx([(1 + 3 + 3) / 3, (3 + 3 + 2) / 3])
    assert sorted(seen) == [1, 2, 3]  # each group once


def test_groups_cover_everybody():
    for seed in range(5):
        groups = draw_groups(4, 3, seed)
        assert len(groups) >= 3
        assert np.bitwise_or.reduce(groups) == 0b1111
        assert min(groups) > 0
    assert draw_groups(4, 3, 0) == draw_groups(4, 3, 0)


@pytest.mark.parametrize(
    ("x", "y", "k", "why"),
    [
        ([[0.0], [1.0]], [0], 1, "shape"),
        ([[0.0], [np.nan]], [0, 0], 1, "not finite"),
        ([[0.0], [1.0]], [0, 1], 1, "occurs once"),
        ([[0.0], [1.0]], [0, 0], 0, "neighbour"),
    ],
)
def test_bad_input_of_the_estimate(x, y, k, why):
    with pytest.raises(ValueError, match=why):
        mixed_information(x, y, k)


def test_no_group_is_refused():
    with pytest.raises(ValueError, match="0 groups"):
        draw_groups(3, 0)
