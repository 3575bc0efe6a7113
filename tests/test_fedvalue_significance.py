"""Permutation p-values: exact on tiny data, honest under noise, small where columns tell."""

from itertools import permutations

import numpy as np
import pytest

from fedkit.fedvalue import significance
from fedkit.fedvalue.columns import VerticalData, joint_codes
from fedkit.fedvalue.information import cells_of_table, conditional_mutual_information
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


def test_very_many_rows_leave_the_p_value_as_it_is():
    # four rows of a two by two table, near chi squared = 9 whatever their number
    for n in (10**6, 10**9):
        half, shift = n // 4, round(1.5 * np.sqrt(n) / 2)
        weights = np.array([half + shift, half - shift, half - shift, half + shift])
        x, y = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        p = permutation_p_value(np.zeros(4, int), x, y, weights, draws=2000, rng=rng_of(0))
        assert 0.0005 < p < 0.01


def test_parties_are_adjusted_together():
    rng = rng_of(2)
    y = rng.integers(2, size=300)
    parties = [y + 0.8 * rng.normal(size=300), *rng.normal(size=(3, 300))]
    found = permutation_p_values(None, y, dict(zip(["real", *"abc"], parties, strict=True)))
    assert found.adjusted.tolist() == holm(found.p_values.tolist()).tolist()
    assert found.adjusted[0] == pytest.approx(4 / 1000)
    assert (found.adjusted[1:] > 0.05).all()
    assert list(found.to_frame().party) == ["real", "a", "b", "c"]


def test_what_is_known_decides_what_is_found():
    rng = rng_of(3)
    a, b = rng.integers(2, size=(2, 200))
    assert (permutation_p_values(None, a ^ b, [a, b]).p_values > 0.01).all()
    assert permutation_p_values(b, a ^ b, [a]).p_values == 1 / 1000
    assert permutation_p_values(a, a, [a]).p_values == 1


def test_a_table_is_tested_as_its_rows_are(monkeypatch):
    """A real party, a weak one and noise: the same p-values, in one batch of tables or in many."""
    rng = rng_of(6)
    task, y = rng.integers(3, size=400), rng.integers(2, size=400)
    parties = [y ^ (rng.random(400) < 0.3), y ^ (rng.random(400) < 0.46), rng.integers(5, size=400)]
    token = joint_codes(task, y)
    table, counts = np.unique(np.stack([token, *parties], axis=1), axis=0, return_counts=True)
    meaning = np.array([[task[token == t][0], y[token == t][0]] for t in range(token.max() + 1)])
    names = ["a", "b", "c"]
    data = VerticalData(task, y, dict(zip(names, parties, strict=True)))
    rows = permutation_p_values(data, draws=1999)
    monkeypatch.setattr(significance, "CHUNK", 500)
    cells = cells_of_table(table, meaning, counts, names)
    found = permutation_p_values(cells, draws=1999)
    assert found.contributions == pytest.approx(rows.contributions, abs=1e-12)
    error = 4 * np.sqrt(rows.p_values * (1 - rows.p_values) / 1000) + 1e-3
    assert (np.abs(found.p_values - rows.p_values) <= error).all()
    assert found.p_values[0] == 1 / 2000
    assert found.p_values[2] > 0.05
    assert found.names == rows.names == ("a", "b", "c")


def test_p_values_do_not_depend_on_the_numbers_of_cells():
    """Between two runs the numbers of a data party's cells, and the order of rows, differ."""
    rng = rng_of(9)
    cells = np.stack(np.unravel_index(np.arange(6 * 4 * 5), (6, 4, 5)), axis=1)
    meaning = np.stack([np.arange(6) // 2, np.arange(6) % 2], axis=1)
    counts = rng.integers(0, 4, size=len(cells))
    found = []
    for _ in range(3):
        task, *parties = (rng.permutation(levels) for levels in (6, 4, 5))
        renamed = np.stack(
            [task[cells[:, 0]], *(p[c] for p, c in zip(parties, cells.T[1:], strict=True))]
        )
        order = rng.permutation(len(cells))
        table = cells_of_table(renamed.T[order], meaning[np.argsort(task)], counts[order])
        table = permutation_p_values(table, draws=199)
        found.append(table.p_values.tolist())
    assert found[0] == found[1] == found[2]
    assert 0.01 < min(found[0]) < 1
