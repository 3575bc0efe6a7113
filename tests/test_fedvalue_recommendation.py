"""Federated recommendation: selection, shares, scores and tables by hand, on a made-up matrix."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedkit.datasets import MovieLens, made_up_ratings
from fedkit.streams import Streams
from reproduction.fedvalue.experiments import Case
from reproduction.fedvalue.recommendation import (
    Recommender,
    affordable,
    configure,
    forward_selection,
    greedy,
    odd_share,
    prices,
    values,
)

DATA = made_up_ratings()
SMALL = Case(movies=8, low=0.02, high=0.2)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("scores", "price", "budget", "paid"),
    [
        ([3.0, 1, 2], (2, 1, 2), 1, {0b010: 1}),  # the two best are too dear
        ([3.0, 1, 2], (2, 1, 2), 3, {0b011: 1}),  # 0, then not 2, then 1
        ([3.0, 1, 2], (2, 2, 2), 1, {0: 1}),
        # ties come in every order
        ([1.0, 1, 5, 5], (1, 1, 1, 1), 3, {0b1101: 0.5, 0b1110: 0.5}),
        ([0.0, 0], (1, 2), 2, {0b01: 0.5, 0b10: 0.5}),  # 0 first leaves nothing for 1
        ([0.3, 0.1 + 0.2], (1, 1), 1, {0b01: 0.5, 0b10: 0.5}),  # equal but for rounding
    ],
)
def test_greedy_takes_the_best_that_it_can_pay(scores, price, budget, paid):
    assert greedy(np.array(scores), ints(*price), budget) == pytest.approx(paid)


def test_a_thrifty_task_party_pays_for_nothing_worthless():
    scores = np.array([1.0, 0.0, -1.0])
    assert greedy(scores, ints(1, 1, 1), 3) == {0b111: 1.0}
    assert greedy(scores, ints(1, 1, 1), 3, worthless=False) == {0b001: 1.0}
    assert greedy(np.zeros(3), ints(1, 1, 1), 3, worthless=False) == {0: 1.0}


def test_prices_what_they_afford_and_shares_of_odd_parties():
    high = np.array([False, True])
    assert prices(high, "fix").tolist() == [1, 1]
    assert prices(high, "var").tolist() == [1, 2]
    assert affordable(ints(1, 2), 2) == [0b00, 0b01, 0b10]
    odd = np.array([True, False, False])
    assert odd_share({0b011: 0.5, 0b100: 0.5}, odd) == pytest.approx(0.25)
    assert odd_share({0b001: 1.0}, odd) == 1.0
    assert odd_share({0: 1.0}, odd) == 0.0  # nobody is paid


def test_a_repetition_is_of_its_seed_and_scenarios_share_their_draws():
    one = configure(DATA, SMALL, 3)
    assert not np.array_equal(one.label, configure(DATA, SMALL, 4).label)
    odd = configure(DATA, replace(SMALL, scenario="free-riders", ratio=0.4), 3)
    assert np.array_equal(one.label, odd.label)
    assert odd.odd.sum() == 2
    for i in range(5):
        assert np.array_equal(one.features[i], odd.features[i]) == (not odd.odd[i])


def test_targets_liked_a_new_movie_and_parties_never_hold_one():
    ratings = np.zeros((40, 30), dtype=np.uint8)
    ratings[:20] = 4  # who likes anything likes all
    people = np.zeros((40, 3), dtype=np.int64)
    case = Case(movies=10, low=0.1, high=0.6, features=1, candidates=2)
    made = configure(MovieLens("x", ratings, people), case, 0)
    assert made.label.tolist() == [1] * 20 + [0] * 20
    seen = []
    for movie in range(30):  # a movie that only user 39 likes is new, or not
        marked = ratings.copy()
        marked[39, movie] = 5
        again = configure(MovieLens("x", marked, people), case, 0)
        seen.append(again.label[39] == 1)
        pairs = zip(again.features, made.features, strict=True)
        assert not (seen[-1] and any(not np.allclose(a, b) for a, b in pairs))
    assert sum(seen) == 10


@pytest.mark.parametrize("how", ["own", "copy", "given"])
def test_redundant_parties_offer_what_the_task_party_has_and_are_worth_nothing(how):
    case = replace(SMALL, scenario="redundant", ratio=0.4, redundancy=how)
    made = configure(DATA, case, 1)
    has = np.column_stack([made.demographics, made.own])
    for i in np.flatnonzero(made.odd):
        for column in made.features[i].T:
            assert any(np.array_equal(column, known) for known in has.T)
    assert made.own.shape[1] == {"own": 2, "copy": 0, "given": 4}[how]
    found = values(made, case, 1)["fedvalue"]
    assert np.allclose(found[made.odd], 0.0, atol=1e-12)
    assert (found[~made.odd] > 1e-3).all()


class Known:
    """Stands for a recommender whose models are known beforehand."""

    def mark(self, mask, held_out=False):
        assert held_out
        return 0.0, {0b001: 0.6, 0b010: 0.5, 0b100: 0.7, 0b101: 0.7, 0b110: 0.8}.get(mask, 0.9)


def test_forward_selection_by_hand():
    assert forward_selection(Known(), ints(1, 1, 1), 1) == 0b100
    assert forward_selection(Known(), ints(1, 1, 1), 2) == 0b110
    assert forward_selection(Known(), ints(1, 1, 2), 1) == 0b001  # the best is too dear
    assert forward_selection(Known(), ints(2, 2, 2), 1) == 0


def test_no_test_label_is_ever_used(monkeypatch):
    seen = []
    noise = Streams(1).generator("test").integers(0, 20, 2000) / 20  # with ties
    monkeypatch.setattr(
        Recommender, "chance", lambda _, *given: seen.append(given) or noise[: len(given[2])]
    )
    made = configure(DATA, SMALL, 0)
    recommender = Recommender(SMALL, made)
    accuracy, area = recommender.mark(0b00011)
    recommender.mark(0b00011, held_out=True)
    table, train = recommender.table(0b00011), made.train
    assert table.shape == (2000, 3 + 2 + 2)
    (x, y, wanted), (less, fewer, held) = seen
    assert np.array_equal(x, table[train])
    assert np.array_equal(y, made.label[train])
    assert np.array_equal(wanted, table[~train])
    truth, chance = made.label[~train], noise[: len(wanted)]
    assert (accuracy, area) == pytest.approx(
        (((chance > 0.5) == truth).mean(), roc_auc_score(truth, chance))
    )
    third = np.arange(400) % 3 == 0
    assert np.array_equal(less, x[~third])
    assert np.array_equal(fewer, y[~third])
    assert np.array_equal(held, x[third])
    turned = replace(made, label=np.where(train, made.label, 1 - made.label))
    one, two = values(made, SMALL, 0), values(turned, SMALL, 0)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    everybody = values(turned, replace(SMALL, known="all"), 0)
    assert not np.array_equal(one["fedvalue"], everybody["fedvalue"])
