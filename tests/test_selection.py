import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkit.federated.selection import ClientTable, UniformSelection
from fedkit.methods.fedowen import EpsilonGreedy


def table(values, counts=None, t=0, sizes=None):
    n = len(values)
    sizes = np.ones(n, dtype=np.int64) if sizes is None else np.asarray(sizes)
    new = ClientTable.new(sizes, np.ones((n, 2), dtype=np.int64))
    new.values = np.asarray(values, dtype=float)
    new.counts = np.zeros(n, dtype=np.int64) if counts is None else np.asarray(counts)
    new.round = t
    return new


def test_algorithm_2_by_hand():
    """Three clients, t = 1, c = 0.2, tau = 0.1: every symbol of Algorithm 2 once."""
    p = EpsilonGreedy(0.1, confidence=0.2, floor=0.1).probabilities(
        np.array([0.5, 0.3, 0.05]), np.array([1, 0, 3]), t=1
    )
    ln2 = np.log(2)
    s = np.array(
        [0.5 + 0.2 * np.sqrt(ln2 / 2), 0.3 + 0.2 * np.sqrt(ln2), 0.0 + 0.1 * 0.2 * np.sqrt(ln2 / 4)]
    )
    s -= s.min()
    assert p == pytest.approx(s / s.sum(), abs=1e-15)
    assert p[2] == 0  # the shift leaves the smallest score without any probability


def test_first_round_is_uniform():
    p = EpsilonGreedy(floor=0.5).probabilities(np.zeros(4), np.zeros(4, dtype=int), t=0)
    assert p == pytest.approx(np.full(4, 0.25))


def test_equal_scores_are_no_preference_despite_rounding():
    values = np.array([0.1 + 0.2, 0.3, 0.3])
    p = EpsilonGreedy().probabilities(values, np.array([2, 2, 2]), t=5)
    assert p == pytest.approx(np.full(3, 1 / 3))


def test_exploiting_round_prefers_high_values():
    rng = np.random.default_rng(0)
    policy = EpsilonGreedy(epsilon=0.0)
    clients = table([0.0, 0.1, 0.2, 0.9], counts=[5, 5, 5, 5], t=9)
    hits = np.zeros(4)
    for _ in range(400):
        hits[policy.select(clients, 1, rng)] += 1
    p = policy.probabilities(clients.values, clients.counts, 9)
    assert hits[0] == 0
    assert np.all(np.abs(hits / 400 - p) < 4 * np.sqrt(p * (1 - p) / 400) + 1e-12)


def test_exploring_round_ignores_values():
    rng = np.random.default_rng(1)
    clients = table([0.0, 0.1, 0.2, 0.9], counts=[5, 5, 5, 5], t=9)
    hits = np.zeros(4)
    for _ in range(400):
        hits[EpsilonGreedy(epsilon=1.0).select(clients, 1, rng)] += 1
    assert np.all(np.abs(hits / 400 - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400))


def test_too_few_likely_clients_are_filled_up():
    clients = table([0.7, 0.0, 0.0, 0.0], counts=[3, 3, 3, 3], t=4)
    chosen = EpsilonGreedy(epsilon=0.0).select(clients, 3, np.random.default_rng(2))
    assert 0 in chosen
    assert len(set(chosen.tolist())) == 3


@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=12),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(0, 2**31),
)
def test_selection_is_a_set_of_clients_with_data(values, t, k, seed):
    sizes = [i % 3 for i in range(1, len(values) + 1)]
    clients = table(values, counts=np.arange(len(values)), t=t, sizes=sizes)
    for policy in (EpsilonGreedy(0.3, 0.2, 0.1), UniformSelection()):
        chosen = policy.select(clients, k, np.random.default_rng(seed))
        assert len(chosen) == min(k, len(clients.available))
        assert len(set(chosen.tolist())) == len(chosen)
        assert all(sizes[i] > 0 for i in chosen)
        again = policy.select(clients, k, np.random.default_rng(seed))
        assert chosen.tolist() == again.tolist()


@pytest.mark.parametrize("bad", [{"epsilon": 1.5}, {"epsilon": -0.1}, {"confidence": -1.0}])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(ValueError, match="is"):
        EpsilonGreedy(**bad)


def test_values_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="client 1"):
        EpsilonGreedy().probabilities(np.array([0.0, np.nan]), np.zeros(2, dtype=int), 3)
