"""Selection: FedOwen's Algorithm 2, and the policies that FedMS is compared with."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals, refused

from fedkit.federated.policies import UniformSelection
from fedkit.federated.rounds import ClientTable
from fedkit.games.valuation import Valuation
from fedkit.methods.baselines import (
    FedEMD,
    GreedyFed,
    Oracle,
    PowerOfChoice,
    RunningValue,
    SFedAvg,
)
from fedkit.methods.fedowen import EpsilonGreedy
from reproduction.arena.federations import LateJoiners

RNG = np.random.default_rng
LABELS = np.array([[8, 2, 0], [5, 5, 0], [0, 0, 20], [0, 0, 0], [6, 4, 0]])
LOSSES = np.array([0.3, 0.9, 0.5, np.nan, 0.7])


EVERY = (UniformSelection(), LateJoiners({}), EpsilonGreedy(), GreedyFed(), SFedAvg(), FedEMD(),
         PowerOfChoice(), Oracle())  # fmt: skip


def table(t=0, counts=(0, 0, 0, 0, 0), values=(0, 0, 0, 0, 0)):
    """Client 3 owns nothing."""
    clients = ClientTable.new(LABELS.sum(axis=1), LABELS)
    clients.round, clients.counts = t, np.array(counts)
    clients.values = np.array(values, dtype=float)
    clients.losses = lambda ids: LOSSES[ids]
    return clients


def agrees(policy, clients, p, draws=2000):
    """Whether one client at a time is drawn with probabilities p."""
    rng = RNG(0)
    chosen = [policy(clients, 1, rng)[0] for _ in range(draws)]
    found = np.bincount(chosen, minlength=len(p)) / draws
    return (np.abs(found - p) <= 4.5 * np.sqrt(p * (1 - p) / draws)).all()


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


def test_without_a_preference_an_exploiting_round_is_uniform():
    first = EpsilonGreedy(floor=0.5).probabilities(np.zeros(4), np.zeros(4, dtype=int), t=0)
    assert first == pytest.approx(np.full(4, 0.25))
    equal = np.array([0.1 + 0.2, 0.3, 0.3])  # but for rounding
    p = EpsilonGreedy().probabilities(equal, np.array([2, 2, 2]), t=5)
    assert p == pytest.approx(np.full(3, 1 / 3))


def test_who_was_asked_and_sent_nonsense_is_no_newcomer():
    clients = table(8, counts=(4, 4, 0, 0, 4))
    clients.missed = np.array([0, 0, 4, 0, 0])
    greedy = EpsilonGreedy(0.0, confidence=10.0)
    assert agrees(greedy, clients, np.array([0.25, 0.25, 0.25, 0, 0.25]), draws=200)


def test_too_few_likely_clients_are_filled_up():
    clients = table(4, counts=(3, 3, 3, 3, 3), values=(0.7, 0, 0, 0, 0))
    chosen = EpsilonGreedy(epsilon=0.0)(clients, 3, RNG(2))
    assert 0 in chosen
    assert len(set(chosen.tolist()) - {3}) == 3


@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=12),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(0, 2**31),
)
def test_selection_is_a_set_of_clients_with_data(values, t, k, seed):
    sizes = np.arange(1, len(values) + 1) % 3
    clients = ClientTable.new(sizes, np.ones((len(values), 2), dtype=np.int64))
    clients.values, clients.counts, clients.round = np.array(values), np.arange(len(values)), t
    for policy in (EpsilonGreedy(0.3, 0.2, 0.1), UniformSelection()):
        chosen, again = (policy(clients, k, RNG(seed)) for _ in range(2))
        assert len(set(chosen.tolist())) == len(chosen) == min(k, (sizes > 0).sum())
        assert (sizes[chosen] > 0).all()
        assert chosen.tolist() == again.tolist()


def test_power_of_choice_takes_the_largest_losses():
    rng = RNG(0)
    assert PowerOfChoice()(table(), 2, rng).tolist() == [1, 4]
    assert PowerOfChoice()(table(), 3, rng).tolist() == [1, 2, 4]


def test_fedemd_by_hand():
    clients = table(t=20, counts=(3, 0, 1, 0, 0))
    everybody = np.array([19, 11, 20]) / 50
    chosen = np.array([24, 6, 20]) / 50
    own = LABELS[[0, 1, 2, 4]] / LABELS[[0, 1, 2, 4]].sum(axis=1, keepdims=True)
    g = np.abs(own - everybody).sum(axis=1)
    c = np.abs(own - chosen).sum(axis=1)
    logits = g / g.max() - 20 * 0.05 * c / c.max()
    policy = FedEMD(beta=0.05)
    np.testing.assert_allclose(policy.logits(clients)[[0, 1, 2, 4]], logits)
    p = np.zeros(5)
    p[[0, 1, 2, 4]] = np.exp(logits) / np.exp(logits).sum()
    assert agrees(policy, clients, p)


def test_running_values():
    clients = table(counts=(1, 2, 0, 0, 0), values=(9.0, 1.0, 0, 0, 0))
    new = Valuation(np.array([2.0, 3.0]), np.zeros(2), 0, 0, "made up")
    RunningValue(0.75)(clients, np.array([0, 1]), new)
    np.testing.assert_allclose(clients.values[:2], [0.75 * 0.2 + 0.5, 0.75 + 0.75])
    clients.values[:2] = [9.0, 1.0]
    RunningValue(0.75, "first")(clients, np.array([0, 1]), new)
    np.testing.assert_allclose(clients.values[:2], [2.0, 1.5])


def test_greedyfed_asks_everybody_once_then_the_best():
    rng = RNG(0)
    clients = table(counts=(1, 0, 1, 0, 0), values=(5.0, 0, 9.0, 0, 0))
    assert GreedyFed()(clients, 2, rng).tolist() == [1, 4]
    clients.counts = np.array([1, 1, 1, 0, 0])
    assert 4 in GreedyFed()(clients, 2, rng)
    clients.counts[4] = 1
    assert GreedyFed()(clients, 2, rng).tolist() == [0, 2]
    tied = table(counts=(1, 1, 1, 0, 1))
    assert agrees(GreedyFed(), tied, np.array([0.25, 0.25, 0.25, 0, 0.25]))


def test_an_oracle_keeps_its_favourites_and_excludes_the_others():
    rng = RNG(0)
    for _ in range(20):
        chosen = Oracle((2,), (1,))(table(), 2, rng)
        assert 2 in chosen
        assert 1 not in chosen
        assert 3 not in chosen  # no data
    refused("every client with data is excluded", Oracle(excluded=(0, 1, 2, 4)), table(), 2, rng)
    refused("a client", Oracle, excluded=(True, False))


test_bad_settings = refusals(
    (lambda: PowerOfChoice()(replace(table(), losses=None), 2, RNG(0)), "for their loss"),
    *((lambda policy=policy: policy(table(t=1), -1, RNG(0)), "k is -1") for policy in EVERY),
    (lambda: EpsilonGreedy().probabilities([0, np.nan], np.zeros(2), 3), "finite number"),
)
