"""Permutation p-values: exact on tiny data, honest under noise, small where columns tell."""

from itertools import permutations

import numpy as np
import pytest

from fedkit.fedvalue.information import conditional_mutual_information, mshapley_cmi
from fedkit.fedvalue.significance import permutation_p_value, permutation_p_values
from fedkit.intervals import holm


def rng_of(seed):
    return np.random.default_rng(seed)


def test_it_is_the_share_of_all_permutations():
    z = np.array([0, 0, 0, 0, 1, 1, 1])
    x = np.array([0, 0, 1, 1, 0, 1, 1])
    y = np.array([0, 0, 1, 0, 1, 0, 0])
    real = conditional_mutual_information(x, y, z)
    orders = [np.array(o) for o in permutations(range(7)) if (z[list(o)] == z).all()]
    every = np.array([conditional_mutual_information(x[o], y, z) for o in orders])
    share = (every > real - 1e-12).mean()
    assert 0.05 < share < 0.95
    p = permutation_p_value(z, x, y, draws=20_000, rng=rng_of(0))
    assert p == pytest.approx(share, abs=4 * 0.5 / np.sqrt(20_000))
    # one permutation of a tie counts as a tie
    assert permutation_p_value(z, x, y, draws=1, rng=rng_of(0)) in (0.5, 1.0)


@pytest.mark.parametrize("rare", [0.05, 0.4])
def test_noise_is_called_significant_no_oftener_than_it_says(rare):
    """x and y both follow z and nothing else links them: few levels, many ties, a skewed null."""
    p_values, z_scores = [], []
    for seed in range(500):
        rng = rng_of(seed)
        z = rng.integers(2, size=80)
        x = (rng.random(80) < 0.3 + 0.4 * z).astype(int)
        y = (rng.random(80) < rare + 0.3 * z).astype(int)
        p_values.append(permutation_p_value(z, x, y, draws=99, rng=rng))
        z_scores.append(mshapley_cmi(z, y, [x], correction="permutation").z[0])
    p = np.array(p_values)
    for level in (0.02, 0.05, 0.1, 0.3):
        assert (p <= level).mean() < level + 3 * np.sqrt(level * (1 - level) / 500)
    assert (p <= 0.1).mean() > 0.05  # and it is no test that never rejects
    assert (np.array(z_scores) > 2).mean() > 0.03  # a normal z would exceed 2 in 2.3%


def test_all_of_a_rare_label_is_no_chance():
    """The z-score is 0 or astronomical here: none of its draws differs from another."""
    y = np.zeros(5000, dtype=int)
    y[:2] = 1
    assert permutation_p_values(None, y, [y]).p_values[0] == 1 / 1000
    z = mshapley_cmi(None, y, [y], correction="permutation").z[0]
    assert z == 0 or z > 1e6


def test_a_null_that_does_not_vary_gives_one():
    rng = rng_of(1)
    y = rng.integers(2, size=90)
    task = rng.integers(3, size=90)
    names = np.arange(90).astype(str)  # as many levels as rows: every order is as good
    found = permutation_p_values(task, y, [np.zeros(90), task, names], draws=200)
    assert (found.p_values == 1).all()
    assert found.contributions[:2] == pytest.approx(0, abs=1e-12)
    assert found.contributions[2] > 0.5
    for seed in range(5):  # sums of the same terms in another order
        rng = rng_of(seed)
        z, y = rng.integers(60, size=900), rng.integers(3, size=900)
        assert permutation_p_value(z, z // 2, y, draws=9, rng=rng) == 1


def test_parties_are_adjusted_together():
    rng = rng_of(2)
    y = rng.integers(2, size=300)
    parties = [y + 0.8 * rng.normal(size=300), *rng.normal(size=(3, 300))]
    found = permutation_p_values(None, y, parties, names=["real", "a", "b", "c"])
    assert found.adjusted.tolist() == holm(found.p_values.tolist()).tolist()
    assert found.adjusted[0] == pytest.approx(4 / 1000)
    assert (found.adjusted[1:] > 0.05).all()
    frame = found.to_frame()
    assert list(frame.columns) == ["party", "contribution", "p", "p (Holm)"]
    assert list(frame.party) == ["real", "a", "b", "c"]
    again = permutation_p_values(None, y, parties, names=["real", "a", "b", "c"])
    assert np.array_equal(again.p_values, found.p_values)


def test_what_is_given_decides_what_is_found():
    rng = rng_of(3)
    a, b = rng.integers(2, size=(2, 200))
    together = permutation_p_values(None, a ^ b, [a, b], given="others")
    assert (together.p_values == 1 / 1000).all()
    assert (permutation_p_values(None, a ^ b, [a, b]).p_values > 0.01).all()
    copied = permutation_p_values(None, a, [a, a], given="others")
    assert (copied.p_values == 1).all()


def test_rows_that_stand_for_many_are_many_rows():
    rng = rng_of(4)
    z, x, y = rng.integers(2, size=30), rng.integers(3, size=30), rng.integers(2, size=30)
    weights = rng.integers(1, 3, size=30)
    each = [np.repeat(c, weights) for c in (z, x, y)]
    p = permutation_p_value(z, x, y, weights, draws=4000, rng=rng_of(0))
    assert p == pytest.approx(permutation_p_value(*each, draws=4000, rng=rng_of(1)), abs=0.04)
    assert 0.001 < p < 0.999


def test_what_is_refused():
    y = np.arange(10) % 2
    with pytest.raises(ValueError, match="draws is 0"):
        permutation_p_values(None, y, [y], draws=0)
    with pytest.raises(ValueError, match="given is 'all'"):
        permutation_p_values(None, y, [y], given="all")
