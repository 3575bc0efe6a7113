"""Federated recommendation: selection, shares and scores by hand, on a made-up matrix."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedkit.datasets.movielens import MovieLens, made_up_ratings
from fedkit.papers.fedvalue.budgets import affordable, greedy, odd_share, prices
from fedkit.papers.fedvalue.recommendation import (
    CONTROLS,
    STRATEGIES,
    Setting,
    _validated,
    play,
    setting,
)
from fedkit.papers.fedvalue.recommendation_case import (
    Case,
    Recommender,
    Repetition,
    Trees,
    auc,
    configure,
    fabricate,
    values,
)
from fedkit.papers.registry import get
from fedkit.streams import Streams

DATA = made_up_ratings()
SMALL = Case(movies=8, low=0.02, high=0.2)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


# ------------------------------------------------------------------------------ selection


def test_greedy_takes_the_best_and_passes_over_what_it_cannot_pay():
    scores = np.array([3.0, 1.0, 2.0])
    assert greedy(scores, ints(1, 1, 1), 2) == {0b101: 1.0}
    assert greedy(scores, ints(2, 1, 2), 1) == {0b010: 1.0}  # the two best are too dear
    assert greedy(scores, ints(2, 1, 2), 3) == {0b011: 1.0}  # 0, then not 2, then 1
    assert greedy(scores, ints(1, 1, 1), 9) == {0b111: 1.0}
    assert greedy(scores, ints(2, 2, 2), 1) == {0: 1.0}


def test_greedy_breaks_ties_in_every_order():
    same = greedy(np.zeros(3), ints(1, 1, 1), 1)
    assert same == pytest.approx({0b001: 1 / 3, 0b010: 1 / 3, 0b100: 1 / 3})
    volume = greedy(np.array([1.0, 1.0, 5.0, 5.0]), ints(1, 1, 1, 1), 3)
    assert volume == pytest.approx({0b1101: 0.5, 0b1110: 0.5})
    # prices 1 and 2, budget 2, all orders: 0 first (1/2 of them) leaves nothing for 1
    assert greedy(np.zeros(2), ints(1, 2), 2) == pytest.approx({0b01: 0.5, 0b10: 0.5})
    nearly = greedy(np.array([0.3, 0.1 + 0.2]), ints(1, 1), 1)  # equal but for rounding
    assert nearly == pytest.approx({0b01: 0.5, 0b10: 0.5})


def test_a_thrifty_task_party_pays_for_nothing_worthless():
    scores = np.array([1.0, 0.0, -1.0])
    assert greedy(scores, ints(1, 1, 1), 3) == {0b111: 1.0}
    assert greedy(scores, ints(1, 1, 1), 3, worthless=False) == {0b001: 1.0}
    assert greedy(np.zeros(3), ints(1, 1, 1), 3, worthless=False) == {0: 1.0}


def test_bad_scores_are_refused():
    with pytest.raises(ValueError, match="2 scores and 3 prices"):
        greedy(np.zeros(2), ints(1, 1, 1), 1)
    with pytest.raises(ValueError, match="finite"):
        greedy(np.array([0.0, np.nan]), ints(1, 1), 1)
    with pytest.raises(ValueError, match="for 1 to 7 parties"):
        greedy(np.zeros(8), np.ones(8, dtype=np.int64), 1)


def test_prices_and_what_they_afford():
    high = np.array([False, True])
    assert prices(high, "fix").tolist() == [1, 1]
    assert prices(high, "var").tolist() == [1, 2]
    assert affordable(ints(1, 2), 1) == [0b00, 0b01]
    assert affordable(ints(1, 2), 2) == [0b00, 0b01, 0b10]
    assert affordable(ints(1, 2), 3) == [0b00, 0b01, 0b10, 0b11]
    with pytest.raises(ValueError, match="scheme is 'free'"):
        prices(high, "free")


def test_share_of_odd_parties_by_hand():
    odd = np.array([True, False, False])
    assert odd_share({0b011: 0.5, 0b100: 0.5}, odd) == pytest.approx(0.25)
    assert odd_share({0b001: 1.0}, odd) == 1.0
    assert odd_share({0: 1.0}, odd) == 0.0  # nobody is paid


# ------------------------------------------------------------------------------ the case


def test_a_repetition_is_of_its_seed_and_scenarios_share_their_draws():
    one, same = configure(DATA, SMALL, 3), configure(DATA, SMALL, 3)
    assert all(np.array_equal(a, b) for a, b in zip(one.features, same.features, strict=True))
    assert not np.array_equal(one.label, configure(DATA, SMALL, 4).label)
    odd = configure(DATA, replace(SMALL, scenario="free-riders", ratio=0.4), 3)
    assert np.array_equal(one.label, odd.label)
    assert odd.odd.sum() == 2
    for i in range(5):
        assert np.array_equal(one.features[i], odd.features[i]) == (not odd.odd[i])


def test_the_default_case_is_table_4():
    one = configure(DATA, SMALL, 0)
    assert one.train.sum() == 400  # 20% of 2000
    assert one.high.tolist() == [False, False, False, True, True]
    assert one.volume.tolist() == [6, 6, 6, 60, 60]
    assert [x.shape for x in one.features] == [(2000, 2)] * 5
    assert one.own.shape == (2000, 0)
    assert not one.odd.any()


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
        new = again.label[39] == 1
        changed = any(
            not np.allclose(a, b) for a, b in zip(again.features, made.features, strict=True)
        )
        seen.append(new)
        assert not (new and changed)
    assert sum(seen) == 10


@pytest.mark.parametrize("how", ["own", "copy", "given"])
def test_redundant_parties_offer_what_the_task_party_has(how):
    made = configure(DATA, replace(SMALL, scenario="redundant", ratio=0.4, redundancy=how), 0)
    has = np.column_stack([made.demographics, made.own])
    for i in np.flatnonzero(made.odd):
        for column in made.features[i].T:
            assert any(np.array_equal(column, known) for known in has.T)
    assert made.own.shape[1] == {"own": 2, "copy": 0, "given": 4}[how]


def test_redundant_parties_are_worth_nothing_to_fedvalue():
    for how in ("own", "copy", "given"):
        case = replace(SMALL, scenario="redundant", ratio=0.4, redundancy=how)
        made = configure(DATA, case, 1)
        found = values(made, case, 1)
        assert np.allclose(found["fedvalue"][made.odd], 0.0, atol=1e-12)
        assert (found["fedvalue"][~made.odd] > 1e-3).all()


def test_fabricated_tables():
    rng = Streams(0).generator("test")
    true = DATA.ratings[:, :50]
    random = fabricate(true, "density", rng)
    assert abs((random > 0).mean() - (true > 0).mean()) < 0.02
    shuffled = fabricate(true, "permuted", rng)
    assert not np.array_equal(shuffled, true)
    assert sorted(map(bytes, shuffled)) == sorted(map(bytes, true))
    assert set(np.unique(fabricate(true, "uniform", rng))) == set(range(6))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scenario": "perfect"}, "scenario is 'perfect'"),
        ({"redundancy": "some"}, "redundancy is 'some'"),
        ({"fabrication": "all"}, "fabrication is 'all'"),
        ({"demographics": "no"}, "demographics is 'no'"),
        ({"known": "some"}, "known is 'some'"),
        ({"movies": 0}, "movies is 0"),
        ({"features": 0}, "features is 0"),
        ({"candidates": 1}, "expected 2 to 7"),
        ({"candidates": 8}, "expected 2 to 7"),
        ({"ratio": 1.0}, "ratio is 1"),
        ({"train": 0.0}, "train is 0"),
    ],
)
def test_a_bad_case_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        Case(**change)


def test_data_that_do_not_hold_the_case_are_refused():
    with pytest.raises(ValueError, match="300 movies are too few"):
        configure(DATA, replace(SMALL, movies=250), 0)
    with pytest.raises(ValueError, match="too few for 2 components"):
        configure(DATA, replace(SMALL, low=0.004), 0)
    nobody = MovieLens("x", np.ones((50, 60), dtype=np.uint8), np.zeros((50, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="same label"):
        configure(nobody, replace(SMALL, low=0.1), 0)


# ------------------------------------------------------------------------------ the runs


def test_auc_is_the_usual_one():
    rng = Streams(1).generator("test")
    y, chance = rng.integers(0, 2, 200), rng.integers(0, 20, 200) / 20  # with ties
    assert auc(y, chance) == pytest.approx(roc_auc_score(y, chance))


class Known(Recommender):
    """A recommender whose models are known beforehand."""

    def test(self, mask):
        return mask / 10, mask / 100

    def validate(self, mask):
        return {0b001: 0.6, 0b010: 0.5, 0b100: 0.7, 0b101: 0.7, 0b110: 0.8}.get(mask, 0.9)


def test_forward_selection_by_hand():
    known = Known(configure(DATA, SMALL, 0))
    assert _validated(known, ints(1, 1, 1), 1) == 0b100
    assert _validated(known, ints(1, 1, 1), 2) == 0b110
    assert _validated(known, ints(1, 1, 2), 1) == 0b001  # the best is too dear
    assert _validated(known, ints(2, 2, 2), 1) == 0


def test_expected_averages_over_ties():
    made = configure(DATA, SMALL, 0)
    assert Known(made).expected({1: 0.25, 3: 0.75}) == pytest.approx((0.25, 0.025))


def test_a_repetition_end_to_end(monkeypatch):
    trained = []
    chance = Trees.chance
    monkeypatch.setattr(Trees, "chance", lambda *a: trained.append(1) or chance(*a))
    case = replace(SMALL, scenario="free-riders", candidates=3)
    s = Setting("made-up", case, Trees(rounds=5, depth=2))
    one = play(DATA, s, 0)
    assert len(trained) <= 8 + 7  # each set at most once on test users and once held out
    m = one["metrics"]
    assert m["auc.fix.3.random"] == m["auc.fix.3.fedvalue"] == m["auc.all"]
    assert m["spent.var.1.volume"] == 1.0  # high volume is too dear, a low one is not
    assert m["frsp.fix.1.random"] == pytest.approx(100 / 3)
    assert m["frsp.fix.3.fedvalue"] == pytest.approx(100 / 3)
    for scheme in ("fix", "var"):
        for budget in (1, 2, 3):
            best = m[f"auc.{scheme}.{budget}.hindsight"]
            for name in (*STRATEGIES, "validated"):
                assert m[f"auc.{scheme}.{budget}.{name}"] <= best + 1e-12
                assert m[f"spent.{scheme}.{budget}.{name}"] <= budget
    assert set(CONTROLS) >= {"none", "all"}
    assert one == play(DATA, s, 0)
    assert one["metrics"] != play(DATA, s, 1)["metrics"]


def test_more_parties_know_more():
    made = configure(DATA, SMALL, 0)
    assert isinstance(made, Repetition)
    recommender = Recommender(made, Trees(rounds=30, depth=3, rate=0.1))
    nobody, everybody = recommender.test(0)[1], recommender.test(31)[1]
    assert nobody < 0.62
    assert everybody > nobody + 0.1


def test_cells_hold_their_settings():
    experiment = get("fedvalue", "recommendation")
    cells = experiment.cells("paper", None)
    assert len(cells) == len({c.key for c in cells}) == 28
    assert all(c.seeds == tuple(range(20)) for c in cells)
    for cell in cells:
        assert setting(cell).to_dict() == dict(cell.settings)
    assert {c.settings["dataset"] for c in experiment.cells("smoke", None)} == {"made-up"}
    with pytest.raises(ValueError, match="unknown profile"):
        experiment.cells("huge", None)


class Watched(Trees):
    """Trees that remember what they were trained on."""

    def chance(self, x, y, wanted):
        seen.append((x, y, wanted))
        return wanted[:, 0].astype(float)


seen: list = []


def test_no_test_label_is_ever_used():
    made = configure(DATA, SMALL, 0)
    seen.clear()
    recommender = Recommender(made, Watched())
    recommender.test(0b00011)
    recommender.validate(0b00011)
    table, train = recommender.table(0b00011), made.train
    assert table.shape == (2000, 3 + 2 + 2)
    (x, y, wanted), (less, fewer, held) = seen
    assert np.array_equal(x, table[train])
    assert np.array_equal(y, made.label[train])
    assert np.array_equal(wanted, table[~train])
    third = np.arange(400) % 3 == 0
    assert np.array_equal(less, x[~third])
    assert np.array_equal(fewer, y[~third])
    assert np.array_equal(held, x[third])
    turned = replace(made, label=np.where(train, made.label, 1 - made.label))
    one, two = values(made, SMALL, 0), values(turned, SMALL, 0)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    everybody = values(turned, replace(SMALL, known="all"), 0)
    assert not np.array_equal(one["fedvalue"], everybody["fedvalue"])
