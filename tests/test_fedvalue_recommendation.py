"""Federated recommendation: selection, shares, scores and tables by hand, on a made-up matrix."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tinyrecords import records, series_of

from fedkit.datasets import MovieLens, made_up_ratings
from fedkit.streams import Streams
from reproduction.experiments import get
from reproduction.fedvalue import findings, recommendation
from reproduction.fedvalue.experiments import MILD, PLACES, STRATEGIES, Case
from reproduction.fedvalue.recommendation import (
    Recommender,
    affordable,
    configure,
    forward_selection,
    greedy,
    odd_share,
    play,
    prices,
    values,
)
from reproduction.records import Cell

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


def test_bad_input_is_refused():
    alike = MovieLens("x", np.ones((50, 60), np.uint8), np.zeros((50, 3), int))
    with pytest.raises(ValueError, match="300 movies are too few"):
        configure(DATA, replace(SMALL, movies=250), 0)
    with pytest.raises(ValueError, match="same label"):
        configure(alike, replace(SMALL, low=0.1), 0)


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


def test_the_cells():
    cells = get("fedvalue", "recommendation").cells("paper")
    assert len(cells) == len({c.key for c in cells}) == 28
    assert all(c.seeds == tuple(range(20)) for c in cells)
    more = get("fedvalue", "gender_age").cells("paper")
    assert {c.settings["demographics"] for c in more} == {"gender-age"}
    assert len({c.key for c in more}) == len(more) == 18 * 10  # twenty of 200 repetitions in each
    asked_for = get("fedvalue", "recommendation").cells("paper", range(200))
    assert {*cells} < {*asked_for}  # what is on record is part of more seeds
    assert len(asked_for) == 280


@pytest.mark.parametrize("redundancy", ["own", "copy"])
def test_gender_and_age_alone_leave_out_the_occupation_everywhere(redundancy):
    case = replace(SMALL, scenario="redundant", ratio=0.4, redundancy=redundancy)
    alone = configure(DATA, replace(case, demographics="gender-age"), 1)
    with_work = configure(DATA, case, 1)
    assert np.array_equal(alone.demographics, DATA.demographics[:, :2])
    assert np.array_equal(with_work.demographics, DATA.demographics)
    assert np.array_equal(alone.label, with_work.label)
    for party, odd in enumerate(alone.odd):
        if odd and redundancy == "copy":
            assert np.array_equal(alone.features[party], DATA.demographics[:, :2])
        else:
            assert np.array_equal(alone.features[party], with_work.features[party])


def test_forward_selection_by_hand():
    assert forward_selection(Known(), ints(1, 1, 1), 1) == 0b100
    assert forward_selection(Known(), ints(1, 1, 1), 2) == 0b110
    assert forward_selection(Known(), ints(1, 1, 2), 1) == 0b001  # the best is too dear
    assert forward_selection(Known(), ints(2, 2, 2), 1) == 0


def test_a_repetition_end_to_end(monkeypatch):
    trained = []
    chance = Recommender.chance
    monkeypatch.setattr(Recommender, "chance", lambda *a: trained.append(1) or chance(*a))
    case = replace(SMALL, scenario="free-riders", candidates=3, trees_rounds=5, trees_depth=2)
    one = play(DATA, case, 0)
    assert len(trained) <= 8 + 7  # each set at most once on test users and once held out
    m = one["metrics"]
    assert m["auc.fix.3.fedvalue"] == pytest.approx(m["auc.all"])
    assert m["lead.auc.var.1"] == m["auc.var.1.fedvalue"] - m["auc.var.1.vf-ps"]
    assert m["spent.var.1.volume"] == 1.0  # high volume is too dear, a low one is not
    assert m["frsp.fix.1.random"] == pytest.approx(100 / 3)
    assert m["frsp.worst.vf-ps"] == max(m[f"frsp.{s}.{b}.vf-ps"] for s, b in PLACES)
    # RANDOM with one alpha: each party in a third of the orders
    nobody, alone = m["auc.none"], np.array(one["series"]["gain"])
    assert m["auc.fix.1.random"] == pytest.approx(nobody + alone.mean())
    for scheme, budget in PLACES:
        best = m[f"auc.{scheme}.{budget}.hindsight"]
        for name in (*STRATEGIES, "validated"):
            assert m[f"auc.{scheme}.{budget}.{name}"] <= best + 1e-12
            assert m[f"spent.{scheme}.{budget}.{name}"] <= budget


def test_who_passes_no_test_is_not_paid(monkeypatch):
    """Parties 1 and 3 pass; 3 is worth more, and 1 nothing once chance is taken off."""
    case = replace(SMALL, scenario="free-riders", ratio=0.4)
    adjusted, value = np.array([0.2, 0.05, 0.06, 0.001, 1]), np.array([0.9, 0.0, 0.8, 0.1, 0.7])
    found = {"permutation_p_values": ("adjusted", adjusted), "mshapley_cmi": ("values", value)}
    for name, (key, array) in found.items():
        made = SimpleNamespace(**{key: array})
        monkeypatch.setattr(recommendation, name, lambda *_, made=made, **__: made)
    cell = Cell("smoke", "fedvalue", "tested", asdict(case), (0,))
    (result,) = recommendation.run_tested(cell, None, False)
    r, told = configure(DATA, case, 0), result["metrics"]
    alone = Recommender(case, r)
    for scheme, budget in PLACES:
        dear = int(prices(r.high, scheme)[3])
        mask = 0b1000 if dear <= budget else 0
        assert told[f"auc.{scheme}.{budget}"] == alone.mark(mask)[1]
        assert told[f"spent.{scheme}.{budget}"] == (dear if mask else 0)
        assert told[f"odd.{scheme}.{budget}"] == 100 * (bool(mask) and r.odd[3])
    assert told["passes.nobody"] == 0
    for kind, those in {"odd": r.odd, "high": r.high & ~r.odd, "low": ~r.high & ~r.odd}.items():
        assert told[f"passes.{kind}"] == 100 * np.mean([i in (1, 3) for i in np.flatnonzero(those)])


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


def frame_of(*cases):
    """Records of cases: what each changes in the default one, and numbers per seed by metric."""
    return records([({**asdict(Case()), **change}, numbers) for change, numbers in cases])


def evaluation_of(*cases):
    """An evaluation whose records are these."""
    return findings.Evaluation(store=SimpleNamespace(frame=lambda *_: frame_of(*cases)))


def test_rows_of_a_case_and_no_other():
    e = evaluation_of(
        ({}, {"auc.none": [0.5]}), ({"movies": 30}, {"auc.none": [0.7]}), (MILD, {"auc.none": [1]})
    )
    assert e.played(Case(dataset="ml-1m", validated=False)).value.tolist() == [0.5]
    assert e.played(Case(movies=30)).value.tolist() == [0.7]
    assert e.played(Case(**MILD)).value.tolist() == [1]
    assert e.played(Case(movies=40)).empty


def test_shares_and_leads_of_strategies():
    frame = frame_of(({}, {
        "frsp.fix.1.vf-ps": [0.0] * 20, "auc.fix.1.vf-ps": [0.5] * 20,
        "auc.fix.1.fedvalue": [0.6] * 20, "auc.var.2.fedvalue": [0.8] * 20,
        "auc.var.2.vf-ps": [0.5] * 20,
    }))  # fmt: skip
    none = findings.cut(frame, "frsp", "vf-ps")  # none of 20 is not never
    assert (none.mean, round(none.high, 1)) == (0, 16.8)
    both = findings.lead(frame, "fedvalue", "vf-ps", columns=["fix.1", "var.2"])
    assert both.mean == pytest.approx(0.2)


def test_readings_are_those_on_record():
    paid = {"frsp.fix.1.fedvalue": [40.0, 60.0], "frsp.fix.1.fedvalue-corrected": [0.0, 0.0]}
    rider = {"scenario": "free-riders"}
    e = evaluation_of((rider, paid), ({**rider, "known": "all"}, paid))
    found = findings.riders_by_reading(e)["mean"].unstack()
    assert set(found.index) == {"occupation too", "occupation too, everybody's labels"}
    assert found["FedValue"].tolist() == [50, 50]


@pytest.mark.filterwarnings("error")
def test_explanation_ranks_within_a_repetition():
    parties = {"high": [0, 0, 1], "odd": [0, 1, 0], "gain": [0.1, -0.1, 0.3], "cells": [3, 2, 1],
               "score.volume": [1, 1, 9]}  # fmt: skip
    # the last does not vary but for rounding, so it has no rank correlation
    scores = [[2.0, 1.0, 0.5], [3.0, 1.0, 0.5], [1.0, 1.0, 1.0 + 1e-13]]
    named = {name: [values] * 3 for name, values in parties.items()}
    means, ranks = findings.explained(series_of([({}, {**named, "score.fedvalue": scores})]))
    assert means.loc["odd, low volume", "gain"] == pytest.approx(-0.1)
    assert means.loc["low volume", "FedValue"] == pytest.approx(2)
    cells = ranks["FedValue", "cells"]
    assert (cells.mean, cells.low, cells.high) == pytest.approx((1, 1, 1))
    assert ranks["FedValue", "gain"].mean == pytest.approx(-0.5)
