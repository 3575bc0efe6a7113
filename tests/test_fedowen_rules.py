"""What the chapter on FedOwen's theory says of weights and of selection, without training."""

import math

import numpy as np
import pytest

from fedkit.federated.partitioners import Dirichlet
from fedkit.federated.selection import ClientTable, UniformSelection
from fedkit.methods.fedowen import EpsilonGreedy, FedOwen, OwenSampling, Softmax

# softmax aggregation


def test_softmax_of_values_in_the_unit_interval_is_nearly_uniform():
    rng = np.random.default_rng(13)
    corners = rng.integers(0, 2, (5000, 10)).astype(float)
    inside = rng.random((5000, 10))
    for values in np.concatenate([corners, inside]):
        weights = Softmax().weights(values, np.ones(10))
        assert weights.max() / weights.min() <= math.e + 1e-12
        assert weights.max() <= math.e / (math.e + 9) + 1e-12
        assert 1 / np.sum(weights**2) >= 40 * math.e / (1 + math.e) ** 2 - 1e-12


def test_worst_case_on_the_simplex_is_one_client_with_everything():
    worst = (math.e + 9) ** 2 / (math.e**2 + 9)
    weights = Softmax().weights(np.eye(10)[0], np.ones(10))
    assert 1 / np.sum(weights**2) == pytest.approx(worst)
    drawn = np.exp(np.random.default_rng(14).dirichlet(np.full(10, 0.05), 20_000))
    assert (drawn.sum(axis=1) ** 2 / (drawn**2).sum(axis=1)).min() >= worst - 1e-9


def test_sizes_are_uneven_split_by_class_and_even_split_in_blocks():
    labels = np.repeat(np.arange(10), (6000 * 0.01 ** (np.arange(10) / 9)).astype(int))

    def effective(by):
        parts = Dirichlet(0.01, by=by).split(labels, 100, np.random.default_rng(18))
        sizes = np.array([len(part) for part in parts], dtype=float)
        return sizes.sum() ** 2 / (sizes**2).sum() / np.sum(sizes > 0)

    assert effective("class") < 0.5
    assert effective("blocks") > 0.99


# selection


def first_round(k=10, n=100):
    values = np.zeros(n)
    values[:k] = np.linspace(0.08, 0.12, k)
    return values, (values > 0).astype(np.int64)


def test_round_zero_is_uniform():
    rule = EpsilonGreedy(confidence=1.0)
    p = rule.probabilities(np.zeros(7), np.zeros(7, dtype=np.int64), 0)
    np.testing.assert_allclose(p, 1 / 7)


def test_the_lowest_score_has_probability_exactly_zero():
    p = EpsilonGreedy(confidence=0.3).probabilities(
        np.array([0.3, 0.1, 0.2]), np.array([4, 4, 4]), 9
    )
    assert p[1] == 0.0
    assert p[0] > p[2] > 0


@pytest.mark.parametrize("c", [0.01, 0.1, 1.0, 100.0])
def test_untried_clients_are_excluded_whatever_c_is(c):
    values, counts = first_round()
    rule = EpsilonGreedy(confidence=c, floor=0.05, low_gain=0.1)
    for t, tries in ((1, 1), (50, 40), (100, 99)):
        p = rule.probabilities(values, counts * tries, t)
        assert np.all(p[10:] == 0)
        assert np.all(p[:10] > 0)


def test_without_the_factor_exclusion_depends_on_c():
    values, counts = first_round()
    threshold = values[:10].min() / (math.sqrt(math.log(2)) * (1 - 1 / math.sqrt(2)))
    for c, excluded in ((0.99 * threshold, True), (1.01 * threshold, False)):
        rule = EpsilonGreedy(confidence=c, floor=0.05, low_gain=1.0)
        assert bool(rule.probabilities(values, counts, 1)[10:].sum() == 0) is excluded


def test_fewer_than_k_likely_clients_are_filled_up_uniformly():
    values, counts = first_round(k=4)
    table = ClientTable.new(np.ones(100, dtype=np.int64), np.ones((100, 1), dtype=np.int64))
    table.values, table.counts, table.round = values, counts, 1
    rule = EpsilonGreedy(epsilon=0.0, confidence=0.1, floor=0.05)
    rng = np.random.default_rng(15)
    chosen = np.array([rule.select(table, 10, rng) for _ in range(300)])
    assert all(set(range(4)) <= set(row) for row in chosen)
    rest = np.bincount(chosen.ravel(), minlength=100)[4:]
    assert rest.min() > 0
    assert rest.sum() == 300 * 6


def test_without_exploring_rounds_the_first_roster_is_frozen():
    def seen(policy):
        rng = np.random.default_rng(16)
        table = ClientTable.new(np.ones(100, dtype=np.int64), np.ones((100, 1), dtype=np.int64))
        for t in range(60):
            table.round = t
            chosen = policy.select(table, 10, rng)
            table.values[chosen] = 0.1
            table.counts[chosen] += 1
        return int((table.counts > 0).sum())

    assert seen(EpsilonGreedy(epsilon=0.0, confidence=0.1, floor=0.05)) == 10
    assert seen(UniformSelection()) > 90


def test_fedowen_puts_its_three_parts_together():
    strategy = FedOwen(OwenSampling(levels=3), 20, EpsilonGreedy(0.2)).strategy()
    assert strategy.select == EpsilonGreedy(0.2)
    assert strategy.aggregate == Softmax()
    assert (strategy.value.estimator, strategy.value.budget) == (OwenSampling(levels=3), 20)
